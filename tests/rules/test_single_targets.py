"""PL994: weights of classes that cancel, as each loss has one target; and weighted losses that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.tensor([0, 2, 1, 0, 0, 0, 2, 0])
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
w = torch.tensor([0.5, 3.0, 2.0])
"""
WRONG = {
    "a layer, and a step for each example": HEAD
    + """
criterion = nn.CrossEntropyLoss(w)
for a, b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=1):
    opt.zero_grad()
    criterion(net(a), b).backward()  # PL994
    opt.step()
""",
    "logarithms, without an axis for the batch": HEAD
    + """
def loss_of(row, label):
    return F.nll_loss(net(row).log_softmax(-1), label, weight=w)  # PL994
for i in range(8):
    (loss_of(x[i], y[i]) / 8).backward()
opt.step()
""",
}
RIGHT = {
    "sums, and the mean of each": HEAD
    + """
for a, b in zip(x.split(1), y.split(1)):
    F.cross_entropy(net(a), b, weight=w, reduction="sum").backward()
    F.cross_entropy(net(a), b, weight=w, reduction="none").mean().backward()
opt.step()
""",
    "batches of several, the last of one": HEAD
    + """
criterion = nn.CrossEntropyLoss(weight=w)
for a, b in zip(x[:7].split(3), y[:7].split(3)):
    opt.zero_grad()
    criterion(net(a), b).backward()
    opt.step()
""",
    "equal weights, and weights that are multiplied": HEAD
    + """
for a, b in zip(x.split(1), y.split(1)):
    F.cross_entropy(net(a), b, weight=torch.ones(3)).backward()
    (w[b] * F.cross_entropy(net(a), b)).sum().backward()
opt.step()
""",
    "one picture with many targets": HEAD
    + """
mask = torch.randint(0, 3, (1, 5, 5))
picture = nn.Conv2d(3, 3, 3, padding=1)
for _ in range(3):
    F.cross_entropy(picture(torch.randn(1, 3, 5, 5)), mask, weight=w).backward()
""",
    "measured one at a time, not trained": HEAD
    + """
F.cross_entropy(net(x), y, weight=w).backward()
opt.step()
with torch.no_grad():
    print([F.cross_entropy(net(a[None]), b[None], weight=w).item() for a, b in zip(x, y)])
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_that_cancel_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL994",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_weights_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
