"""PL476: states that are handed on to other sequences; and those that are handed on rightly."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x, y = torch.randn(24, 5, 2), torch.randn(24, 1)
gru, lstm, head = nn.GRU(2, 3, batch_first=True), nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 1)
opt = torch.optim.SGD([*gru.parameters(), *lstm.parameters(), *head.parameters()], lr=0.1)
def train(out, rows):
    loss = nn.functional.mse_loss(head(out[:, -1]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "an order that is split": HEAD
    + """
h = None
for _ in range(2):
    for rows in torch.randperm(24).split(8):
        out, h = gru(x[rows], h)  # PL476
        h = h.detach()
        train(out, rows)
""",
    "drawn with replacement, both states": HEAD
    + """
state = (torch.zeros(1, 6, 3), torch.zeros(1, 6, 3))
for _ in range(4):
    rows = torch.randint(0, 24, (6,))
    out, state = lstm(x[rows], state)  # PL476
    state = tuple(each.detach() for each in state)
    train(out, rows)
""",
    "kept on a module": HEAD
    + """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.hidden = gru, None
    def forward(self, x):
        out, hidden = self.layer(x, self.hidden)  # PL476
        self.hidden = hidden.detach()
        return out
reader, order = Reader(), torch.randperm(24)
for first in range(0, 24, 8):
    rows = order[first : first + 8]
    train(reader(x[rows]), rows)
""",
    "a loader that shuffles": HEAD
    + """
h = None
for xb, rows in DataLoader(TensorDataset(x, torch.arange(24)), batch_size=8, shuffle=True):
    out, h = gru(xb, h)  # PL476
    h = h.detach()
    train(out, rows)
""",
}
RIGHT = {
    "zeros in each batch": HEAD
    + """
for rows in torch.randperm(24).split(8):
    out, h = gru(x[rows])
    train(out, rows)
""",
    "pieces of long sequences": HEAD
    + """
h = None
for part in x.reshape(8, 15, 2).split(5, dim=1):
    out, h = gru(part, h)
    h = h.detach()
    train(out, slice(0, 8))
""",
    "a loader in order": HEAD
    + """
h = None
for xb, rows in DataLoader(TensorDataset(x, torch.arange(24)), batch_size=8):
    out, h = gru(xb, h)
    h = h.detach()
    train(out, rows)
""",
    "drawn once, then read in pieces": HEAD
    + """
rows, h = torch.randperm(24)[:8], None
for part in x[rows].split(2, dim=1):
    out, h = gru(part, h)
    h = h.detach()
    train(out, rows)
""",
    "an encoder's state for a decoder": HEAD
    + """
decoder = nn.GRU(2, 3, batch_first=True)
opt.add_param_group({"params": decoder.parameters()})
for rows in torch.randperm(24).split(8):
    _, h = gru(x[rows])
    out, _ = decoder(x[rows].flip(1), h)
    train(out, rows)
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_that_is_handed_on_to_other_sequences_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_states_that_belong_to_their_sequences_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
