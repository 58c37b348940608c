"""PL970 where a function splits a data set at random each time it is called; and splits that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 3), torch.randn(24, 1))
def train(net, loader):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
        opt.step()
@torch.no_grad()
def measure(net, loader):
    return sum((net(x) - y).square().sum() for x, y in loader)
"""
WRONG = {
    "a method with two parts": HEAD
    + """
class Rows:
    def part(self, which, size=4):
        return DataLoader(random_split(data, [0.75, 0.25])[which], size)  # PL970
rows, net = Rows(), nn.Linear(3, 1)
train(net, rows.part(0))
print(measure(net, rows.part(1)))
""",
}
RIGHT = {
    "split once, or always in the same way": HEAD
    + """
def loaders():
    return [DataLoader(each, 4) for each in random_split(data, [18, 6], torch.Generator().manual_seed(3))]
net = nn.Linear(3, 1)
train(net, loaders()[0])
print(measure(net, loaders()[1]))
one, other = random_split(data, [18, 6])
train(net := nn.Linear(3, 1), DataLoader(one, 4, shuffle=True))
print(measure(net, DataLoader(other, 6)), measure(net, DataLoader(one, 6)))
""",
    "another network for each split": HEAD
    + """
for _ in range(3):
    one, other = random_split(data, [18, 6])
    train(net := nn.Linear(3, 1), DataLoader(one, 4))
    print(measure(net, DataLoader(other, 6)))
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_second_split_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL970",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_splits_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
