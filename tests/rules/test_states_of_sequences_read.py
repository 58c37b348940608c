"""PL478: a growing sequence that a layer reads again from the state it left; and states that are handed on rightly."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(9, 6), nn.GRU(6, 7, batch_first=True), nn.Linear(7, 9)
    def forward(self, tokens, state=None):
        out, state = self.layer(self.words(tokens), state)
        return self.head(out), state
net, prompt = Model().eval(), torch.randint(9, (4, 3))
lstm, series = nn.LSTM(2, 2), torch.randn(12, 4, 2)
"""
END = """
print(prompt)
"""
WRONG = {
    "a module around the layer": """
state = None
with torch.no_grad():
    for _ in range(4):
        scores, state = net(prompt, state)  # PL478
        prompt = torch.cat([prompt, scores[:, -1].argmax(-1, keepdim=True)], 1)
""",
    "a module, in a function, by keyword": """
def generate(model, tokens, count, hidden=None):
    for _ in range(count):
        scores, hidden = model(tokens, state=hidden)  # PL478
        hidden = hidden.detach()
        tokens = torch.cat((tokens, scores[:, -1:].argmax(-1)), dim=-1)
    return tokens
prompt = generate(net, prompt, 5)
""",
    "a pair of states, steps first": """
h, c = torch.zeros(1, 4, 2), torch.zeros(1, 4, 2)
given = series[:3]
for _ in range(4):
    out, (h, c) = lstm(given, (h, c))  # PL478
    given = torch.concat([given, out[-1:]])
print(given.mean())
""",
    "longer and longer starts of one series": """
state = (torch.zeros(1, 4, 2), torch.zeros(1, 4, 2))
for end in range(3, 8):
    out, state = lstm(series[:end], state)  # PL478
    print((out[-1] - series[end]).square().mean())
""",
    "a list of steps": """
steps, state = [series[0]], None
for _ in range(4):
    out, state = lstm(torch.stack(steps), state)  # PL478
    steps.append(out[-1])
print(steps[-1])
""",
    "a list of numbers": """
ids, state = [3, 1], None
for _ in range(4):
    scores, state = net(torch.tensor([ids]), state)  # PL478
    ids.append(scores[0, -1].argmax().item())
print(ids)
""",
}
RIGHT = {
    "the new step only": """
scores, state = net(prompt)
for _ in range(4):
    new = scores[:, -1].argmax(-1, keepdim=True)
    prompt = torch.cat([prompt, new], 1)
    scores, state = net(new, state)
""",
    "the whole sequence from zeros": """
for _ in range(4):
    scores, state = net(prompt)
    prompt = torch.cat([prompt, scores[:, -1].argmax(-1, keepdim=True)], 1)
""",
    "pieces of a long series": """
state = None
for piece in series.split(3):
    out, state = lstm(piece, state)
    state = tuple(each.detach() for each in state)
print(out.mean())
""",
    "pieces that get longer": """
state, start = None, 0
for length in (2, 3, 4):
    out, state = lstm(series[start : start + length], state)
    start += length
print(out.mean())
""",
    "one context for every step": """
context, state = torch.randn(1, 4, 2), None
for _ in range(5):
    out, state = lstm(context, state)
print(out.mean())
""",
    "zeros as input": """
_, state = lstm(series)
for length in (1, 2, 3):
    out, state = lstm(torch.zeros(length, 4, 2), state)
print(out.mean())
""",
    "a state to begin with, from the first steps": """
_, state = lstm(series[:4])
out, _ = lstm(series, state)
print(out.mean())
""",
    "an encoder and a decoder that reads more": """
decoder = nn.LSTM(2, 2)
given = series[:3]
for _ in range(4):
    _, state = lstm(given)
    out, _ = decoder(torch.cat([given, given[-1:]]), state)
    given = torch.cat([given, out[-1:]])
print(out.mean())
""",
    "steps in front": """
given, state = series[:3], None
for place in range(3):
    out, state = lstm(given, state)
    given = torch.cat([series[place : place + 1], given])
print(out.mean())
""",
    "more and more rows": """
rows, state = series.transpose(0, 1), None
one = nn.GRU(2, 2)
for length in (2, 3, 4):
    out, state = one(rows[:length].transpose(0, 1))
print(out.mean())
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_sequence_read_again_from_its_own_state_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case] + END, repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_states_that_are_handed_on_rightly_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case] + END)
