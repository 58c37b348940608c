"""PL997: the divergence of random weights in the loss of each batch; and losses with divergences that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(24, 2)
y = x.sum(1, keepdim=True) + 0.1 * torch.randn(24, 1)
loader = DataLoader(TensorDataset(x, y), 6)
class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu, self.rho = nn.Parameter(torch.zeros(1, 2)), nn.Parameter(torch.full((1, 2), -2.0))
    @property
    def sigma(self):
        return nn.functional.softplus(self.rho)
    def forward(self, x):
        return nn.functional.linear(x, self.mu + self.sigma * torch.randn(1, 2))
    def divergence(self):
        return (0.5 * (self.sigma ** 2 + self.mu ** 2 - 1) - self.sigma.log()).sum()
net = Random()
opt = torch.optim.Adam(net.parameters(), 0.01)
def update(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "by hand, with a loader": HEAD
    + """
for _ in range(2):
    for xb, yb in loader:
        nll = 0.5 * (net(xb) - yb).square().sum()
        loss = net.divergence() + nll  # PL997
        update(loss)
""",
}
RIGHT = {
    "divided, or the batch multiplied, or all rows at once": HEAD
    + """
for xb, yb in loader:
    update((net(xb) - yb).square().sum() + net.divergence() / len(loader))
    update(len(loader) * (net(xb) - yb).square().sum() + net.divergence())
    update((net(xb) - yb).square().mean() + 0.01 * net.divergence())
update((net(x) - y).square().sum() + net.divergence())
""",
    "a divergence of each row": HEAD
    + """
encoder, decoder = nn.Linear(2, 4), nn.Linear(2, 2)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 0.01)
for xb, _ in loader:
    mean, log_std = encoder(xb).chunk(2, 1)
    std = log_std.exp()
    out = decoder(mean + std * torch.randn_like(std))
    update((out - xb).square().sum() + (0.5 * (std ** 2 + mean ** 2 - 1) - std.log()).sum())
""",
    "a learned noise level, and a decay": HEAD
    + """
level = nn.Parameter(torch.ones(1))
opt = torch.optim.Adam([*net.parameters(), level], 0.01)
for xb, yb in loader:
    update(((net(xb) - yb) / level).square().mean() + level.log().sum() + 0.5 * net.mu.square().sum())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_whole_divergence_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL997",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_losses_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
