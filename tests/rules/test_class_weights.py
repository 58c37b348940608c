"""Weights of classes in another order than the classes: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
counts = torch.tensor([120, 15, 45])
y = torch.repeat_interleave(torch.arange(3), counts)
x = torch.randn(180, 2) + y[:, None]
net = nn.Linear(2, 3)
"""
STEPS = """
from torch.utils.data import DataLoader, TensorDataset
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=18, shuffle=True):
        loss = {loss}
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
WRONG = {
    "a layer, and batches": HEAD
    + "weight = (1 / counts.float()).roll(1)\nlossf = nn.CrossEntropyLoss(weight=weight)\n"
    + STEPS.format(loss="lossf(net(x), y)").replace("lossf(net(x), y)", "lossf(net(xb), yb)  # PL913"),
    "by hand, one over the root": HEAD
    + """
weight = torch.tensor([15.0, 45.0, 120.0]).rsqrt()
F.cross_entropy(net(x), y, weight).backward()  # PL913
""",
    "log-probabilities, in a function": HEAD
    + """
def cost(out, y, weight):
    return F.nll_loss(out.log_softmax(1), y, weight=weight)  # PL913
sizes = sorted(counts.tolist())
weight = torch.tensor([sum(sizes) / (3 * n) for n in sizes])
cost(net(x), y, weight).backward()
""",
    "the share of the others": HEAD
    + """
share = counts / counts.sum()
weight = 1 - share.sort().values
F.cross_entropy(net(x), y, weight=weight).backward()  # PL913
""",
    "positives of several columns": HEAD
    + """
table = F.one_hot(y, 3).float()
positive = table.sum(0).flip(0)
ratio = (len(table) - positive) / positive
F.binary_cross_entropy_with_logits(net(x), table, pos_weight=ratio[[0, 2, 1]]).backward()  # PL913
""",
    "two classes": """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
y = (torch.arange(60) < 10).long()
weight = 60 / (2 * torch.tensor([10.0, 50.0]))
F.cross_entropy(torch.nn.Linear(2, 2)(torch.randn(60, 2)), y, weight=weight).backward()  # PL913
""",
}
RIGHT = {
    "in their order": HEAD + "F.cross_entropy(net(x), y, weight=180 / (3.0 * counts)).backward()\n",
    "in batches": HEAD + STEPS.format(loss="F.cross_entropy(net(xb), yb, weight=1 / counts.float())"),
    "by importance": HEAD + "F.cross_entropy(net(x), y, weight=torch.tensor([1.0, 2.0, 5.0])).backward()\n",
    "equal ones": HEAD + "F.cross_entropy(net(x), y, weight=torch.ones(3)).backward()\n",
    "classes that are hardly known": HEAD
    + "F.cross_entropy(net(x[::30]), y[::30], weight=torch.tensor([0.2, 1.0, 3.0])).backward()\n",
    "one class left out": HEAD + "F.cross_entropy(net(x), y, weight=torch.tensor([1.0, 0.0, 1.0])).backward()\n",
    "as many of each": HEAD
    + """
y = torch.arange(180) % 3
F.cross_entropy(net(x), y, weight=torch.tensor([0.2, 0.3, 0.5])).backward()
""",
    "positives in their order": HEAD
    + """
table = F.one_hot(y, 3).float()
positive = table.sum(0)
F.binary_cross_entropy_with_logits(net(x), table, pos_weight=(180 - positive) / positive).backward()
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
