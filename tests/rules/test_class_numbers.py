"""PL941: labels that number the classes otherwise than the training did; and comparisons that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
centres = 4 * torch.eye(5)
def drawn(y):
    return centres[y] + 0.2 * torch.randn(len(y), 5)
y = torch.arange(5).repeat(20)
x = drawn(y)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 5))
opt = torch.optim.Adam(net.parameters(), 0.02)
for _ in range(40):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
names = torch.arange(1, 5).repeat(10)
x_test = drawn(names)
"""
WRONG = {
    "numbers of what is there": HEAD
    + """
y_test = names.unique(return_inverse=True)[1]
print((net(x_test).max(1).indices == y_test).float().mean())  # PL941
""",
    "numbers from 1 on, in batches": HEAD
    + """
right = 0
for xb, yb in zip(x.split(10), (y + 1).split(10)):
    predicted = torch.argmax(net(xb), dim=1)
    right += predicted.eq(yb).sum().item()  # PL941
""",
}
RIGHT = {
    "the same numbers, and a network that errs": HEAD
    + """
print((net(x_test).argmax(1) == names).float().mean())
print((net(torch.randn(40, 5)).argmax(1) == names).float().mean())
""",
    "mapped first": HEAD
    + """
y_test = names.unique(return_inverse=True)[1]
print(((net(x_test).argmax(1) - 1) == y_test).float().mean())
""",
    "other classes were meant": HEAD
    + """
wanted = (names + 1) % 5
picture = x_test.clone().requires_grad_()
nn.functional.cross_entropy(net(picture), wanted).backward()
moved = drawn(wanted)
print((net(moved).argmax(1) == names).float().mean())
""",
    "and said so": HEAD
    + """
wanted = (names + 1) % 5
predicted = net(drawn(wanted)).argmax(1)
print((predicted == names).float().mean(), (predicted == wanted).float().mean())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_other_numbers_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL941",))


@pytest.mark.parametrize("name", RIGHT)
def test_comparisons_with_the_same_numbers_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])


@pytest.mark.parametrize("compared", ["net(x_test).argmax(1) == y_test", "y_test == net(x_test).argmax(1)"])
def test_the_label_and_the_predicted_class_are_told_apart(shop: Workshop, compared: str) -> None:
    program = f"{HEAD}y_test = names.unique(return_inverse=True)[1]\nprint(({compared}).float().mean())\n"
    found = [one for one in find(shop.trace(Subject(program, "program.py"))) if one.rule == "PL941"]
    assert ["label 0 where 1 is predicted, label 1 where 2 is predicted" in one.message.en for one in found] == [True]
