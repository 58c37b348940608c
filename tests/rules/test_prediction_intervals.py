"""PL991: intervals measured on the rows that a model was fitted to; and intervals that hold."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
def rows(n):
    x = torch.randn(n, 10)
    return x, x[:, :1] + torch.randn(n, 1)
fit, held, new = rows(20), rows(60), rows(200)
net = nn.Linear(10, 1)
opt = torch.optim.SGD(net.parameters(), 0.2)
for _ in range(30):
    part = torch.randperm(20)
    loss = nn.functional.mse_loss(net(fit[0][part]), fit[1][part])
    opt.zero_grad()
    loss.backward()
    opt.step()
net.requires_grad_(False)
"""
WRONG = {
    "both bounds": HEAD
    + """
errors = torch.abs(net(fit[0]) - fit[1]).flatten()
q = torch.quantile(errors, 0.8)  # PL991
guess = net(new[0])
low, high = guess - q, guess + q
covered = torch.logical_and(new[1] > low, new[1] < high).double().mean()
""",
    "distances": HEAD
    + """
q = (fit[1] - net(fit[0])).abs().squeeze().quantile(0.8)  # PL991
covered = (q >= (new[1] - net(new[0])).abs()).float().mean()
""",
}
RIGHT = {
    "the rows that were held": HEAD
    + """
q = (held[1] - net(held[0])).abs().quantile(0.9)
covered = ((new[1] - net(new[0])).abs() <= q).float().mean()
""",
    "a large set, where the errors are alike": HEAD.replace("rows(20)", "rows(2000)").replace("(20)", "(2000)")
    + """
q = (fit[1] - net(fit[0])).abs().quantile(0.9)
covered = ((new[1] - net(new[0])).abs() <= q).float().mean()
""",
    "the share beyond it, and other rows that are found by it": HEAD
    + """
q = (fit[1] - net(fit[0])).abs().quantile(0.8)
strange = ((new[1] - net(new[0])).abs() > q).float().mean()
inside = ((fit[1] - net(fit[0])).abs() <= q).float().mean()
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_narrow_intervals_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL991",))


@pytest.mark.parametrize("name", RIGHT)
def test_intervals_that_hold_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
