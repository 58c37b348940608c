"""PL515: second derivatives by an input through networks of straight pieces; and those that are not zero."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
one, two = nn.Linear(2, 16), nn.Linear(16, 1)
opt = torch.optim.SGD([*one.parameters(), *two.parameters()], 0.01)
"""
TAIL = """
    loss = (u_xx + 1).pow(2).mean() + u.pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
FOUND = {
    "a column of the first derivative": """
for _ in range(3):
    x = torch.rand(6, 2, requires_grad=True)
    u = two(F.relu(one(x)))
    u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0][:, 0]
    u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0][:, 0]  # here
""",
    "with leaky pieces": """
for _ in range(3):
    x = torch.rand(6, 2, requires_grad=True)
    u = two(F.leaky_relu(one(x), 0.1)).squeeze(1)
    u_x, = torch.autograd.grad(u, x, torch.ones(6), create_graph=True)
    u_xx, = torch.autograd.grad(u_x, x, torch.ones(6, 2), create_graph=True)  # here
    u_xx = u_xx[:, 0]
""",
}
RIGHT = {
    "a network that bends everywhere": FOUND["with leaky pieces"].replace("F.leaky_relu(one(x), 0.1)", "one(x).tanh()"),
    "straight pieces times a square": FOUND["a column of the first derivative"].replace(
        "u = two(F.relu(one(x)))", "u = two(F.relu(one(x))) * x[:, :1] ** 2"
    ),
    "squares of straight pieces": FOUND["a column of the first derivative"].replace(
        "F.relu(one(x))", "F.relu(one(x)) ** 2"
    ),
    "by weights": """
for _ in range(3):
    u = two(F.relu(one(torch.rand(6, 2))))
    first, = torch.autograd.grad(u.sum(), two.weight, create_graph=True)
    u_xx, = torch.autograd.grad(first.sum(), one.weight, create_graph=True)
    u_xx = u_xx.sum()
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_second_derivative_that_is_zero_everywhere_is_found(name: str) -> None:
    text = HEAD + FOUND[name] + TAIL
    found = [(each.rule, each.span.line) for each in find(trace_program(text)) if each.rule == "PL515"]
    assert found == [("PL515", 1 + text[: text.index("# here")].count("\n"))]


@pytest.mark.parametrize("name", RIGHT)
def test_one_that_is_not_is_left_alone(name: str) -> None:
    assert "PL515" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name] + TAIL))}
