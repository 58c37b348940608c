"""PL611: parameters that a loss or a scale computes with, forgotten when the optimizer is made; and right programs."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

DATA = """
x, y = torch.randn(24, 4), torch.randn(24, 2)
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
"""
LOSS = (
    DATA
    + """
class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(2))
    def forward(self, guess, target):
        error = (guess - target).pow(2).mean(0)
        return (0.5 * torch.exp(-self.log_var) * error + 0.5 * self.log_var).sum()
loss_of = Weighed()
"""
)
TRAINING = """
for _ in range(3):
    opt.zero_grad()
    loss_of(net(x), y).backward()
    opt.step()
"""
WRONG = {
    "variances of two tasks": LOSS + "opt = Adam(net.parameters(), lr=0.01)  # PL611\n" + TRAINING,
    "widths that are picked one by one": DATA
    + """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = nn.Parameter(torch.ones(2))
    def forward(self, guess, target):
        parts = [F.mse_loss(guess[:, i], target[:, i]) / (2 * w ** 2) + w.log() for i, w in enumerate(self.width)]
        return torch.stack(parts).sum()
loss_of = Heads()
opt = SGD(net.parameters(), lr=0.01)  # PL611
"""
    + TRAINING,
    "a scale of the scores": DATA
    + """
scale = nn.Parameter(torch.tensor(1.0))
opt = Adam(net.parameters(), lr=0.01)  # PL611
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(F.normalize(net(x), dim=1) * F.softplus(scale).clamp(max=50), torch.arange(24) % 2).backward()
    opt.step()
""",
}
RIGHT = {
    "given to the optimizer, or to one of its own": LOSS
    + "opt = Adam([*net.parameters(), *loss_of.parameters()], lr=0.01)\n"
    + TRAINING,
    "fixed": LOSS + "loss_of.requires_grad_(False)\nopt = Adam(net.parameters(), lr=0.01)\n" + TRAINING,
    "a first layer without a bias that stays as it was made": DATA
    + """
first = nn.Linear(4, 4, bias=False)
opt = Adam(net.parameters(), lr=0.01)
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(net(first(x).tanh() * 0.5), y).backward()
    opt.step()
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_and_given_to_the_optimizer(shop: Workshop, title: str) -> None:
    assert_found(shop, together({title: WRONG[title]}), only=("PL611",), repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_parameters_that_are_trained_or_stay_on_purpose_are_right(shop: Workshop, title: str) -> None:
    assert_quiet(shop, together({title: RIGHT[title]}))
