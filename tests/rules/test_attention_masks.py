"""Masks of attentions that mean the opposite: padding or the future is all that is seen; masks that
fit their convention are right.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

ROWS = """
lengths = torch.tensor([5, 3, 2])
x = torch.randn(3, 5, 8)
mha, layer = nn.MultiheadAttention(8, 2, batch_first=True), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
"""
FILLED = """
from torch.nn.utils.rnn import pad_sequence
rows = [torch.randn(n, 8) for n in (4, 6, 3)]
x = pad_sequence(rows, batch_first=True)
"""

WRONG = {
    "a number that fills up the rows, as nothing else says": """
ids = torch.tensor([[5, 7, 2, 0, 0], [4, 1, 3, 2, 6], [8, 1, 0, 0, 0]])
h = nn.Embedding(9, 8)(ids)
F.scaled_dot_product_attention(h, h, h, attn_mask=(ids == 0)[:, None, :]).sum().backward()  # PL424
""",
    "padding is true for scaled_dot_product_attention, and the words alone are read": """
lengths, x = torch.tensor([4, 6, 3]), torch.randn(3, 7, 8)
padding = torch.arange(7)[None, :] >= lengths[:, None]
out = F.scaled_dot_product_attention(x, x, x, attn_mask=padding[:, None, :])  # PL424
print(out[~padding].square().mean())
""",
    "words are true for an encoder that leaves out what is true": ROWS
    + """
real = torch.arange(5).expand(3, 5) < lengths.unsqueeze(1)
enc = nn.TransformerEncoder(layer, 2)
enc(x, src_key_padding_mask=real).sum().backward()  # PL424
""",
    "words are true, in a module of attention with heads": ROWS
    + """
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x, mask):
        return self.mha(x, x, x, key_padding_mask=mask)[0]  # PL424
Attend()(x, lengths[:, None] > torch.arange(5)).sum().backward()
""",
    "scores by hand": ROWS
    + """
kept = torch.arange(5) < lengths.view(-1, 1)
scores = (x @ x.transpose(1, 2)).masked_fill(kept.unsqueeze(1), float("-inf"))  # PL424
h = scores.softmax(-1) @ x
print((h * kept[..., None]).sum(1))
""",
    "zeros behind the rows of a list, with a mask that was filled in a loop": FILLED
    + """
padding = torch.zeros(3, 6, dtype=torch.bool)
for i, row in enumerate(rows):
    padding[i, len(row):] = True
F.scaled_dot_product_attention(x, x, x, padding[:, None]).sum()  # PL424
""",
    "zeros behind the rows, words true, by position among the arguments": FILLED.replace(
        "(4, 6, 3)", "(4, 3, 2)"
    ).replace(
        "x = pad_sequence(rows, batch_first=True)",
        "x = torch.cat([pad_sequence(rows, batch_first=True), torch.zeros(3, 2, 8)], 1)",
    )
    + """
real = torch.tensor([[True] * len(row) + [False] * (6 - len(row)) for row in rows])
mha = nn.MultiheadAttention(8, 2, batch_first=True)
mha(x, x, x, real)[0].sum().backward()  # PL424
""",
    "tokens, of which 3 is padding, and a mask of their lengths": """
tokens = torch.tensor([[5, 6, 7, 4, 8, 9], [1, 5, 4, 6, 3, 3], [7, 5, 3, 3, 3, 3]])
emb = nn.Embedding(10, 8)
h = emb(tokens)
padding = torch.arange(6) >= torch.tensor([6, 4, 2])[:, None]
F.scaled_dot_product_attention(h, h, h, attn_mask=padding[:, None, :]).sum().backward()  # PL424
""",
    "a decoder that looks at the memory of an encoder": ROWS
    + """
dec = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
real = torch.arange(5)[None] < lengths[:, None]
dec(torch.randn(3, 4, 8), x, memory_key_padding_mask=real).sum().backward()  # PL424
""",
    "a loss of the words, time first": """
lengths, x, y = torch.tensor([4, 6, 3]), torch.randn(7, 3, 8), torch.randint(0, 8, (3, 7))
real = torch.arange(7)[None] < lengths[:, None]
mha = nn.MultiheadAttention(8, 2)
out = mha(x, x, x, key_padding_mask=real)[0].transpose(0, 1)  # PL424
F.cross_entropy(out[real], y[real]).backward()
""",
    "the past is true for a module that leaves it out": ROWS
    + """
past = torch.tril(torch.ones(5, 5)).bool()
mha(x, x, x, attn_mask=past)[0][:, 0].sum().backward()  # PL420
""",
    "the past is left out of scores by hand, and by an encoder": ROWS
    + """
past = torch.ones(5, 5, dtype=torch.bool).tril()
h = (x @ x.mT).masked_fill(past, -1e9).softmax(-1) @ x  # PL420
nn.TransformerEncoder(layer, 1)(h, mask=past)[:, 0].sum().backward()  # PL420
""",
    "the future is true where scaled_dot_product_attention looks, through a comparison": ROWS
    + """
i = torch.arange(5)
F.scaled_dot_product_attention(x, x, x, attn_mask=i[None, :] > i[:, None])[:, 0].sum()  # PL420
""",
}

RIGHT = {
    "a number that is looked for, anywhere in the rows": """
ids = torch.tensor([[5, 7, 2, 0, 4], [0, 1, 3, 2, 6], [8, 0, 3, 1, 2]])
h = nn.Embedding(9, 8)(ids)
F.scaled_dot_product_attention(h, h, h, attn_mask=(ids == 0)[:, None, :]).sum().backward()
""",
    "each convention where it belongs": ROWS
    + """
real = torch.arange(5)[None] < lengths[:, None]
h = F.scaled_dot_product_attention(x, x, x, attn_mask=real[:, None])
h = h + mha(h, h, h, key_padding_mask=~real)[0] + layer(h, src_key_padding_mask=torch.arange(5)[None] >= lengths[:, None])
h = h + (h @ h.mT).masked_fill(~real[:, None], float("-inf")).softmax(-1) @ h
(h[real].square().mean() + (h * real[..., None]).sum()).backward()
""",  # noqa: E501
    "padding on the left": """
missing, x = torch.tensor([0, 2, 3]), torch.randn(3, 5, 8)
real = torch.arange(5)[None] >= missing[:, None]
mha = nn.MultiheadAttention(8, 2, batch_first=True)
h = F.scaled_dot_product_attention(x, x, x, attn_mask=real[:, None])
h = h + mha(h, h, h, key_padding_mask=torch.arange(5) < missing[:, None])[0]
(h * real[..., None]).sum().backward()
""",
    "rows filled with zeros on the left, one of them empty": """
x = torch.randn(3, 5, 8)
missing = torch.tensor([0, 2, 4])
x[torch.arange(5)[None] < missing[:, None]] = 0
h = F.scaled_dot_product_attention(x, x, x, attn_mask=(torch.arange(5)[None] >= missing[:, None])[:, None])
print(h[:, -1])
""",
    "what is hidden is predicted from what is seen": """
x = torch.randn(3, 6, 8)
hidden = torch.zeros(3, 6, dtype=torch.bool)
hidden[:, 4:] = True
mha = nn.MultiheadAttention(8, 2, batch_first=True)
out = mha(x, x, x, key_padding_mask=hidden)[0]
((out - x)[hidden]).square().mean().backward()
seen = torch.arange(6)[None] < torch.tensor([4, 3, 5])[:, None]
out = F.scaled_dot_product_attention(x, x, x, attn_mask=seen[:, None])
(out - x)[~seen].square().mean()
""",
    "the newest positions of each row, and those up to the present": """
x, start, now = torch.randn(3, 6, 8), torch.tensor([2, 1, 3]), torch.tensor([4, 3, 5])
i = torch.arange(6)
newest = i[None] >= (now - 2)[:, None]
h = F.scaled_dot_product_attention(x[:, :1], x, x, attn_mask=(i[None] <= now[:, None])[:, None])
h = h + F.scaled_dot_product_attention(x[:, :1], x, x, attn_mask=(newest & (i[None] <= now[:, None]))[:, None])
print(h + F.scaled_dot_product_attention(x[:, :1], x, x, attn_mask=newest[:, None]))
""",
    "the past and itself in both conventions": ROWS
    + """
past = torch.ones(5, 5, dtype=torch.bool).tril()
h = F.scaled_dot_product_attention(x, x, x, attn_mask=past) + mha(x, x, x, attn_mask=past.logical_not())[0]
h = h + layer(h, src_mask=torch.ones(5, 5).triu(1).bool()) + (h @ h.mT).masked_fill(past == 0, -1e9).softmax(-1) @ h
h.sum().backward()
""",
    "a model that reads backwards: itself and the future": ROWS
    + """
ahead = torch.ones(5, 5, dtype=torch.bool).triu()
(F.scaled_dot_product_attention(x, x, x, attn_mask=ahead) + mha(x, x, x, attn_mask=~ahead)[0]).sum().backward()
""",
    "all but itself, windows, and blocks": ROWS
    + """
i = torch.arange(5)
h = F.scaled_dot_product_attention(x, x, x, attn_mask=~torch.eye(5, dtype=torch.bool))
h = h + F.scaled_dot_product_attention(x, x, x, attn_mask=(i[:, None] - i[None]).abs() < 2)
(h + F.scaled_dot_product_attention(x, x, x, attn_mask=i[:, None] // 2 == i[None] // 2)).sum()
""",
    "zeros in what is real; a memory of slots that are still empty": """
x = torch.randn(2, 4, 8)
x[:, :2] = x[:, :2].relu()
x[0, 0] = 0
real = torch.tensor([[True, True, True, False], [True, True, False, False]])
x = x * real[..., None]
F.scaled_dot_product_attention(x, x, x, attn_mask=real[:, None]).sum()
memory = torch.zeros(2, 4, 8)
used = torch.tensor([[True, False, False, False], [True, True, False, False]])
F.scaled_dot_product_attention(x, memory, memory, attn_mask=used[:, None]).sum()
""",
}


def test_a_mask_that_means_the_opposite_is_found_and_turned_around(shop: Workshop) -> None:
    for title, text in WRONG.items():  # each alone: a fix would be tried on all of them together
        assert_found(shop, together({title: text}), only=("PL420", "PL424"), repaired=True)


def test_a_mask_that_means_what_the_attention_takes_it_for_is_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
