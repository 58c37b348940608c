"""Data that are split at random: once for training and measuring, or once for each of them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
from torch.utils.data import Subset, random_split
torch.manual_seed(0)
x = torch.randn(40, 3)
data = TensorDataset(x, (x[:, 0] > 0).long())
net = nn.Linear(3, 2)
def train(net, part, epochs=2):
    opt = SGD(net.parameters(), lr=0.1)
    for _ in range(epochs):
        for xb, yb in DataLoader(part, 6, shuffle=True):
            update(opt, F.cross_entropy(net(xb), yb))
@torch.no_grad()
def measure(net, part):
    print(sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in DataLoader(part, 5)) / len(part))
"""
WRONG = {
    "a function that is called twice": SETTING
    + """
def parts():
    return random_split(data, [30, 10])  # PL970
train(net, parts()[0])
measure(net, parts()[1])
""",
    "an order that is drawn in it": SETTING
    + """
def parts(share=0.75):
    order = torch.randperm(len(data))  # PL970
    cut = int(share * len(data))
    return Subset(data, order[:cut].tolist()), Subset(data, order[cut:].tolist())
one, _ = parts()
_, two = parts()
train(net, one)
measure(net, two)
""",
    "a class that splits where it is made": SETTING
    + """
class Data:
    def __init__(self):
        self.learn, self.rest = random_split(data, [0.7, 0.3])  # PL970
train(net, Data().learn)
measure(net, Data().rest)
""",
}
RIGHT = {
    "one split": SETTING
    + """
one, two = random_split(data, [30, 10])
train(net, one)
measure(net, two)
measure(net, one)
""",
    "a generator of its own": SETTING
    + """
def parts():
    return random_split(data, [30, 10], generator=torch.Generator().manual_seed(3))
train(net, parts()[0])
measure(net, parts()[1])
""",
    "a new network for each split": SETTING
    + """
for _ in range(2):
    one, two = random_split(data, [30, 10])
    other = nn.Linear(3, 2)
    train(other, one)
    measure(other, two)
""",
    "some of the rows that were learned from": SETTING
    + """
one, two = Subset(data, range(30)), Subset(data, range(30, 40))
for _ in range(2):
    train(net, one, 1)
    measure(net, two)
    measure(net, Subset(one, torch.randperm(30)[:8].tolist()))
""",
}


def test_data_that_are_split_again_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", WRONG)
def test_the_same_split_repairs_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_splits_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
