"""PL474: positions that start from 0 again behind kept keys; and programs that count on, or join other keys."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TEXT = """
torch.manual_seed(0)
token, place, qkv = nn.Embedding(6, 8), nn.Embedding(12, 8), nn.Linear(8, 24)
words = torch.tensor([[1, 3, 2, 5, 4, 0], [2, 4, 1, 3, 5, 0]])
def write(step):
    with torch.no_grad():
        out, kept = step(words[:, :4], None)
        for i in range(4, 6):
            out, kept = step(words[:, i:i + 1], kept)
    return out
"""
WRONG = {
    "a cache of keys and values": TEXT
    + """
def step(idx, cache):
    x = token(idx) + place(torch.arange(idx.size(1)))  # PL474
    q, k, v = qkv(x).chunk(3, -1)
    if cache is not None:
        k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=cache is None), (k, v)
print(write(step))
""",
    "heads, by hand, in a module that keeps them itself": TEXT
    + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.past = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), None
    def forward(self, idx, _):
        b, t = idx.shape
        x = token(idx) + place(torch.arange(t)[None].expand(b, t))  # PL474
        q, k, v = (f(x).view(b, t, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.past is not None:
            k, v = torch.cat([self.past[0], k], dim=2), torch.cat([self.past[1], v], dim=2)
        self.past = (k, v)
        w = (q @ k.transpose(-2, -1) / 2).softmax(-1)
        return (w @ v).transpose(1, 2).flatten(2), None
print(write(Block()))
""",
    "a table of sines": TEXT
    + """
table = torch.sin(torch.arange(12.0)[:, None] / torch.arange(1.0, 9.0))
def step(idx, cache):
    x = token(idx) + table[: idx.size(1)]  # PL474
    q, k, v = qkv(x).chunk(3, -1)
    k = k if cache is None else torch.cat((cache[0], k), 1)
    v = v if cache is None else torch.cat((cache[1], v), 1)
    return F.scaled_dot_product_attention(q, k, v), (k, v)
print(write(step))
""",
    "learned positions in a parameter": TEXT
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, 12, 8))
    def forward(self, idx, cache):
        h = token(idx) + self.pos[:, :idx.size(1)]  # PL474
        q, k, v = qkv(F.layer_norm(h, (8,))).split(8, -1)
        if cache:
            k, v = torch.cat((cache["k"], k), 1), torch.cat((cache["v"], v), 1)
        return F.scaled_dot_product_attention(q, k, v), {"k": k, "v": v}
print(write(Net()))
""",
    "zeros for one new token": TEXT
    + """
def step(idx, cache):
    at = torch.arange(idx.size(1))  # PL474
    x = token(idx) + place(at.unsqueeze(0))
    q, k, v = qkv(x).chunk(3, dim=-1)
    if cache is not None:
        k = torch.cat((cache[0], k), dim=1)
        v = torch.cat((cache[1], v), dim=1)
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1)
    return torch.bmm(weights, v), (k, v)
print(write(step))
""",
    "in two new tokens at once": TEXT
    + """
def step(idx, cache):
    x = F.embedding(torch.arange(idx.shape[1]), place.weight) + token(idx)  # PL474
    q, k, v = qkv(x).chunk(3, -1)
    if cache is not None:
        k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
    return F.scaled_dot_product_attention(q, k, v), (k, v)
with torch.no_grad():
    out, kept = step(words[:, :4], None)
    print(step(words[:, 4:], kept)[0])
""",
}
RIGHT = {
    "counted on": TEXT
    + """
def step(idx, cache):
    past = 0 if cache is None else cache[0].size(1)
    x = token(idx) + place(torch.arange(past, past + idx.size(1)))
    q, k, v = qkv(x).chunk(3, -1)
    if cache is not None:
        k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=cache is None), (k, v)
print(write(step))
""",
    "a sum with the length, and rows further down a table": TEXT
    + """
def step(idx, cache):
    past = cache[0].size(1) if cache else 0
    x = token(idx) + place(torch.arange(idx.size(1)) + past) + place.weight[past : past + idx.size(1)]
    q, k, v = qkv(x).chunk(3, -1)
    if cache:
        k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
    return F.scaled_dot_product_attention(q, k, v), (k, v)
print(write(step))
""",
    "no positions at all": TEXT
    + """
def step(idx, cache):
    q, k, v = qkv(token(idx)).chunk(3, -1)
    if cache is not None:
        k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
    return F.scaled_dot_product_attention(q, k, v), (k, v)
print(write(step))
""",
    "a learned prefix": TEXT
    + """
prefix = nn.Parameter(torch.randn(2, 3, 8))
x = token(words) + place(torch.arange(6))
q, k, v = qkv(x).chunk(3, -1)
print(F.scaled_dot_product_attention(q, torch.cat((prefix, k), 1), torch.cat((prefix, v), 1)))
""",
    "another sequence in front": TEXT
    + """
other = nn.Linear(8, 16)
picture = other(torch.randn(2, 3, 8)).chunk(2, -1)
q, k, v = qkv(token(words) + place(torch.arange(6))).chunk(3, -1)
print(F.scaled_dot_product_attention(q, torch.cat((picture[0], k), 1), torch.cat((picture[1], v), 1)))
""",
    "everything is computed again": TEXT
    + """
text = words[:, :4]
with torch.no_grad():
    for i in range(4, 6):
        text = torch.cat((text, words[:, i : i + 1]), 1)
        q, k, v = qkv(token(text) + place(torch.arange(text.size(1)))).chunk(3, -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
print(out)
""",
    "more examples": TEXT
    + """
bank = None
for part in (words[:1], words[1:]):
    q, k, v = qkv(token(part) + place(torch.arange(6))).chunk(3, -1)
    bank = k if bank is None else torch.cat((bank, k), 0)
    print(F.scaled_dot_product_attention(q, bank[-1:], v).mean())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, together({title: WRONG[title]}), only=("PL474",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
