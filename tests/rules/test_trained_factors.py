"""Factors of a loss that are trained by it: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y, z = torch.randn(16, 3), torch.randn(16, 1), torch.randint(0, 2, (16,))
body, one, two = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)
w = nn.Parameter({start})
net = nn.ModuleList([body, one, two])
opt = torch.optim.{optimizer}([*net.parameters(), w], lr=0.1{more})
for _ in range(6):
    h = torch.tanh(body(x))
    a, b = F.mse_loss(one(h), y), F.cross_entropy(two(h), z)
    {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
    {after}
"""


def program(loss: str, *, start: str = "torch.ones(2)", optimizer: str = "SGD", more: str = "", after: str = "") -> str:
    """Two losses, joined with what is trained."""
    joined = "\n    ".join(loss.strip("\n").split("\n"))
    return HEAD.format(start=start, optimizer=optimizer, more=more, loss=joined, after=after or "pass")


WRONG = {
    "weights as they are": program("loss = w[0] * a + w[1] * b  # PL554"),
    "shares of a softmax": program("loss = (w.softmax(0) * torch.stack([a, b])).sum()  # PL554"),
    "positive by softplus": program("loss = a + F.softplus(w).sum() * b  # PL554", start="torch.zeros(1)"),
    "a precision that falls": program("p = torch.exp(-w)\nloss = p[0] * a + p[1] * b  # PL554", optimizer="Adam"),
    "with weight decay on everything": program("loss = (w ** 2).mean() * (a + b)  # PL554", more=", weight_decay=0.01"),
    "a multiplier of a constraint": program(
        "loss = a + F.softplus(w) * (one.weight.square().sum() + 0.1)  # PL554", start="torch.zeros(())"
    ),
}
RIGHT = {
    "Kendall's weights": program("p = torch.exp(-w)\nloss = p[0] * a + p[1] * b + w.sum()"),
    "held by a penalty": program("loss = w[0] * a + w[1] * b + (w - 1).square().sum()"),
    "maximized": program(
        "loss = a + F.softplus(w) * (one.weight.square().sum() + 0.1)\nw.register_hook(torch.neg) if _ == 0 else None",
        start="torch.zeros(())",
    ),
    "a gate inside the network": program("loss = F.mse_loss(w[0] * one(h), y) + b"),
    "a temperature": program("loss = F.cross_entropy(w[0] * two(h), z) + a"),
    "a temperature that is tuned to a target": program(
        "loss = a + b - (w[0] * (a.detach() - 0.5))", start="torch.ones(1)"
    ),
    "kept in its bounds": program("loss = w[0] * a + w[1] * b", after="w.data.div_(w.data.sum())"),
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], only=("PL554",))


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
