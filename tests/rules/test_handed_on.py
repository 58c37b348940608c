"""Remedies that reach into another function or a line that makes several loaders: PL974 and PL964."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found
from tests.rules.test_signals import HEAD

NOISE = """
torch.manual_seed(0)
data, net = torch.randn(40, 3), nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def disturbed(x%s):
    return 0.6 * x + 0.8 * torch.randn_like(x)
for _ in range(4):
    given = data[:8]
    noise = torch.randn_like(given)  # PL974
    loss = F.mse_loss(net(disturbed(given)), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LOADERS = """
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(24, 3)
sets = {name: TensorDataset(x + k, x.sum(1) + k) for k, name in enumerate(("train", "test"))}
loaders = {name: DataLoader(each, batch_size=6, shuffle=True) for name, each in sets.items()}
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for a, b in loaders["train"]:
    loss = F.mse_loss(net(a).squeeze(1), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    found = torch.cat([net(a).squeeze(1) for a, _ in loaders["test"]])
print(F.mse_loss(found, sets["test"].tensors[1]))  # PL964
"""
WRONG = {
    "noise that is drawn in a result": (NOISE % "", "PL974"),
    "noise beside a default": (NOISE % ", scale=1.0", "PL974"),
    "loaders made in one line": (LOADERS, "PL964"),
}


@pytest.mark.parametrize("name", WRONG)
def test_they_are_repaired(shop: Workshop, name: str) -> None:
    text, code = WRONG[name]
    assert_found(shop, HEAD + text, only=(code,), repaired=True)
