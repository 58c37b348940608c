"""Classes that a loss ignores: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
texts = [torch.randint(1, 9, (n,)) for n in (5, 3, 4)]
tags = [(t > 5).long() for t in texts]
words = pad_sequence(texts, batch_first=True)
lengths = torch.tensor([5, 3, 4])
valid = torch.arange(5) < lengths[:, None]

class Tagger(nn.Module):
    def __init__(self, kinds=2):
        super().__init__()
        self.table = nn.Embedding(9, 6, padding_idx=0)
        self.head = nn.Linear(6, kinds)
    def forward(self, words):
        return self.head(self.table(words))

model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=0.1)
def update(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "a module and a mask": HEAD
    + """
y = pad_sequence(tags, batch_first=True, padding_value=0)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for _ in range(5):
    update(criterion(model(words).flatten(0, 1), y.flatten()))  # PL996
with torch.no_grad():
    print((model(words).argmax(-1) == y)[valid].float().mean())  # used
""",
    "classes first, mask multiplied": HEAD
    + """
y = pad_sequence(tags, batch_first=True)
for _ in range(5):
    update(F.cross_entropy(model(words).transpose(1, 2), y, ignore_index=0))  # PL996
hits = model(words).max(-1).indices.eq(y) * valid  # used
print(hits.sum().item() / valid.sum().item())
""",
    "chosen before they are compared": HEAD
    + """
y = pad_sequence(tags, batch_first=True, padding_value=0)
PAD = 0
for _ in range(5):
    logp = model(words).log_softmax(-1)
    update(F.nll_loss(logp.view(-1, 2), y.view(-1), ignore_index=PAD))  # PL996
predicted = model(words).argmax(2)
print((predicted[valid] == y[valid]).float().mean())  # used
""",
    "one for each example": HEAD
    + """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(20, 4)
kinds = torch.arange(20) % 3
for _ in range(5):
    update(F.cross_entropy(net(x), kinds, ignore_index=2))  # PL996
print((net(x).argmax(1) == kinds).sum().item())  # used
""",
}
RIGHT = {
    "padding is -100": HEAD
    + """
y = pad_sequence(tags, batch_first=True, padding_value=-100)
for _ in range(5):
    update(F.cross_entropy(model(words).transpose(1, 2), y))
print((model(words).argmax(-1) == y)[valid].float().mean())
""",
    "a number for padding of its own": HEAD
    + """
model = Tagger(3)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
y = pad_sequence([t + 1 for t in tags], batch_first=True)
for _ in range(5):
    update(F.cross_entropy(model(words).transpose(1, 2), y, ignore_index=0))
print((model(words).argmax(-1) == y)[valid].float().mean())
""",
    "words": HEAD
    + """
model = Tagger(9)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
for _ in range(5):
    update(F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten(), ignore_index=0))
right = model(words[:, :-1]).argmax(-1) == words[:, 1:]
print(right[words[:, 1:] != 0].float().mean())
""",
    "the score leaves it out too": HEAD
    + """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(20, 4)
kinds = torch.arange(20) % 3
for _ in range(5):
    update(F.cross_entropy(net(x), kinds, ignore_index=0))
seen = kinds != 0
print((net(x).argmax(1) == kinds)[seen].float().mean(), (net(x)[seen].argmax(1) == kinds[seen]).sum())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
