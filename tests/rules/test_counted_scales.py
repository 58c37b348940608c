"""PL473: logarithms of scales that count once for each column; and sums of them that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.distributions import Normal
torch.manual_seed(0)
x = torch.randn(32, 4) * 2
base = Normal(torch.zeros(4), torch.ones(4))
"""
SCALED = (
    HEAD
    + """
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_s, self.shift = nn.Parameter(torch.full((4,), 0.1)), nn.Parameter(torch.zeros(4))
    def forward(self, x):
        return x * self.log_s.exp() + self.shift, self.log_s.sum()
flow = Scale()
"""
)
COUPLED = (
    HEAD
    + """
net = nn.Linear(2, 4)
def coupled(x):
    s, t = net(x[:, :2]).tanh().split(2, dim=1)
    return torch.cat([x[:, :2], x[:, 2:] * s.exp() + t], 1), s.sum(1, keepdim=True)
"""
)
WRONG = {
    "a learned scale of each column": SCALED
    + """
z, log_det = flow(x)
nll = -torch.sum(base.log_prob(z) + log_det, dim=1)  # PL473
nll.mean().backward()
""",
    "the half of the columns, and a loss in a loop": COUPLED
    + """
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(3):
    z, log_det = coupled(x)
    loss = -(log_det + base.log_prob(z)).sum(-1).mean()  # PL473
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a function that adds, and a mean elsewhere": COUPLED
    + """
def log_prob(rows):
    z, log_det = coupled(rows)
    return base.log_prob(z) + log_det  # PL473
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(3):
    loss = -log_prob(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "the logarithm of a positive scale": HEAD
    + """
raw = nn.Parameter(torch.zeros(4))
scale = nn.functional.softplus(raw) + 0.1
log_p = (base.log_prob(x * scale) + scale.log().sum()).sum(1)  # PL473
(-log_p.mean()).backward()
""",
}
RIGHT = {
    "once for each sample": SCALED
    + """
z, log_det = flow(x)
(-(base.log_prob(z).sum(1) + log_det).mean()).backward()
""",
    "of each column to its own column": SCALED
    + """
z, _ = flow(x)
(-(base.log_prob(z) + flow.log_s).sum(1).mean()).backward()
""",
    "one variance for all columns": HEAD
    + """
net = nn.Linear(4, 5)
mean, log_var = net(x).split([4, 1], dim=1)
nll = 0.5 * ((x - mean) ** 2 * torch.exp(-log_var) + log_var).sum(1)
nll.mean().backward()
log_std = nn.Parameter(torch.zeros(()))
(((x - 1.0) / log_std.exp()) ** 2 / 2 + log_std).sum(1).mean().backward()
""",
    "the half of the columns, with the sums of both": COUPLED
    + """
z, log_det = coupled(x)
(-(base.log_prob(z).sum(1, keepdim=True) + log_det).mean()).backward()
""",
    "a term that scales nothing": HEAD
    + """
bias = nn.Parameter(torch.zeros(()))
net = nn.Linear(4, 1)
(base.log_prob(x) + net(x) + bias).sum(1).mean().backward()
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_log_scale_in_each_column_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL473",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_sums_of_log_scales_that_are_right_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
