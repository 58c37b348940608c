"""PL737: averages of weights that were kept by reference, however they are written; and averages of copies."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import copy
import torch
from torch import nn

torch.manual_seed(0)
net, first, kept = nn.Linear(3, 2), copy.deepcopy(nn.Linear(3, 2).state_dict()), []

def train(target):
    net.load_state_dict(first)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        opt.zero_grad()
        (net(torch.ones(4, 3)) - target).pow(2).mean().backward()
        opt.step()
"""
FOUND = {
    "a stack of states": """
for target in (1.0, -1.0, 3.0):
    train(target)
    kept.append(net.state_dict())  # here
soup = {name: torch.stack([each[name] for each in kept]).mean(0) for name in first}
""",
    "a running sum": """
for target in (1.0, -1.0, 3.0):
    train(target)
    kept.append((2, net.state_dict()))  # here
soup = {}
for name in first:
    total = torch.zeros_like(first[name])
    total = kept[0][1][name] * 0.5 + kept[1][1][name] * 0.25 + kept[2][1][name] * 0.25
    soup[name] = total
""",
    "a running sum in place": """
for target in (1.0, -1.0, 3.0):
    train(target)
    kept.append(net.state_dict())  # here
soup = {name: torch.zeros_like(value) for name, value in first.items()}
for state in kept:
    for name, value in state.items():
        soup[name] += value / 3
""",
    "the data of parameters": """
for target in (1.0, -1.0):
    train(target)
    kept.append([p.data for p in net.parameters()])  # here
soup = [(a + b) / 2 for a, b in zip(*kept)]
""",
}
RIGHT = {
    "copies": FOUND["a stack of states"].replace("net.state_dict()", "copy.deepcopy(net.state_dict())"),
    "copies of data": FOUND["the data of parameters"].replace("p.data", "p.detach().clone()"),
    "an average in the weights themselves": """
average = {name: weight for name, weight in net.state_dict().items()}
for target in (1.0, -1.0):
    train(target)
    for name, weight in net.state_dict().items():
        average[name].mul_(0.9).add_(weight, alpha=0.1)
""",
    "each state read in time": """
average = {name: weight.clone() for name, weight in net.state_dict().items()}
for target in (1.0, -1.0, 3.0):
    train(target)
    for name, weight in net.state_dict().items():
        average[name].mul_(0.9).add_(weight, alpha=0.1)
""",
    "a history": """
for target in (1.0, -1.0, 3.0):
    train(target)
    kept.append(net.weight.detach())
print(torch.stack(kept))
""",
    "models of their own": """
for target in (1.0, -1.0):
    net = nn.Linear(3, 2)
    train(target)
    kept.append(net.state_dict())
soup = {name: (kept[0][name] + kept[1][name]) / 2 for name in first}
""",
    "two views that nothing was written between": """
train(1.0)
one, two = net.weight.detach(), net.weight.detach()
soup = 0.5 * one + 0.5 * two
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_an_average_of_one_memory_is_found_where_it_is_kept(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text))]
    assert ("PL737", 1 + text[: text.index("# here")].count("\n")) in found


@pytest.mark.parametrize("name", RIGHT)
def test_an_average_of_copies_is_not(name: str) -> None:
    assert "PL737" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
