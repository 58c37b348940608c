"""PL688: states of optimizers that are loaded for other parameters, with and without an error; and states that fit."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain
from tests.rules.build import assert_found, assert_quiet

HEAD = """import io
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 5)
class Pair(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.body, self.head = nn.Linear(3, width), nn.Linear(width, 5)
    def forward(self, x):
        return self.head(self.body(x).tanh())
def train(net, opt, rounds=3):
    for _ in range(rounds):
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
        opt.step()  # step
    print(sum(p.detach().abs().sum() for p in net.parameters()))
def saved(opt):
    buffer = io.BytesIO()
    torch.save(opt.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer)
"""
RAISING = {
    "sorted groups, from a file": HEAD
    + """
def groups(net, rates):
    return [{"params": list(getattr(net, name).parameters()), "lr": rate} for name, rate in rates]
net, rates = Pair(), {"head": 0.1, "body": 0.01}
opt = torch.optim.Adam(groups(net, rates.items()))
train(net, opt)
state = saved(opt)
opt = torch.optim.Adam(groups(net, sorted(rates.items())))  # made
opt.load_state_dict(state)  # PL688
train(net, opt)
""",
    "all parameters the other way round": HEAD
    + """
net = Pair()
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
train(net, opt)
later = torch.optim.SGD(reversed(list(net.parameters())), 0.1, momentum=0.9)  # made
later.load_state_dict(opt.state_dict())  # PL688
train(net, later)
""",
    "a wider network": HEAD
    + """
net, wide = Pair(), Pair(6)
opt = torch.optim.RMSprop(net.parameters(), 0.01)
train(net, opt)
later = torch.optim.RMSprop(wide.parameters(), 0.01)  # made
later.load_state_dict(opt.state_dict())  # PL688
train(wide, later)
""",
}
SILENT = {
    "named parameters of one shape": """import torch
a, b = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
def train(opt):
    for _ in range(3):
        opt.zero_grad()
        ((a - 3).square().sum() + b.square().sum()).backward()
        opt.step()  # step
first = torch.optim.Adam([("a", a), ("b", b)], lr=0.1)
train(first)
later = torch.optim.Adam([("b", b), ("a", a)], lr=0.1)  # made
later.load_state_dict(first.state_dict())  # PL688
train(later)
print(a, b)
""",
    "named groups of one shape": """import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(8, 3)
towers = {"user": nn.Linear(3, 2), "item": nn.Linear(3, 2)}
def train(opt):
    for _ in range(3):
        opt.zero_grad()
        ((towers["user"](x) * towers["item"](x)).sum(1) - 1).square().mean().backward()
        opt.step()  # step
def optimizer(names):
    return torch.optim.Adam([{"params": list(towers[n].parameters()), "name": n} for n in names], lr=0.01)  # made
first = optimizer(towers)
train(first)
later = optimizer(sorted(towers))
later.load_state_dict(first.state_dict())  # PL688
train(later)
""",
}
RIGHT = {
    "the same order, and a state that was put in order": HEAD
    + """
net = Pair()
opt = torch.optim.Adam([{"params": net.body.parameters()}, {"params": net.head.parameters()}])
train(net, opt)
again = torch.optim.Adam([{"params": net.body.parameters()}, {"params": net.head.parameters()}])
again.load_state_dict(opt.state_dict())
train(net, again)
state = opt.state_dict()
state["param_groups"].reverse()
later = torch.optim.Adam([{"params": net.head.parameters()}, {"params": net.body.parameters()}])
later.load_state_dict(state)
train(net, later)
""",
    "averages of other shapes than the parameters": HEAD
    + """
for make in (torch.optim.Adafactor, torch.optim.LBFGS):
    net = Pair()
    opt, again = make(net.parameters()), make(net.parameters())
    def closure():
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss
    opt.step(closure)
    again.load_state_dict(opt.state_dict())
    opt = again
    opt.step(closure)
""",
    "loaded for its rates, and then cleared": HEAD
    + """
net, wide = Pair(), Pair(6)
opt = torch.optim.Adam(net.parameters(), 0.01)
train(net, opt)
later = torch.optim.Adam(wide.parameters(), 0.01)
later.load_state_dict(opt.state_dict())
later.state.clear()
train(wide, later)
""",
    "names that differ, in the same order": """import torch
a, b = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
def train(opt):
    for _ in range(3):
        opt.zero_grad()
        ((a - 3).square().sum() + b.square().sum()).backward()
        opt.step()
first = torch.optim.Adam([("module.a", a), ("module.b", b)], lr=0.1)
train(first)
later = torch.optim.Adam([("a", a), ("b", b)], lr=0.1)
later.load_state_dict(first.state_dict())
train(later)
print(a, b)
""",
}


@pytest.mark.parametrize("name", RAISING)
def test_a_state_of_other_parameters_explains_the_error_of_the_step(shop: Workshop, name: str) -> None:
    program = RAISING[name]
    subject = Subject(plain(program), "program.py")
    trace = shop.trace(subject)
    assert trace.outcome.kind == "raised"
    findings = find(trace)
    assert met(findings, program) == ""
    assert [fix.verified for fix in tried(shop, subject, trace, findings)[0].fixes][:1] == [True]


@pytest.mark.parametrize("name", SILENT)
def test_averages_that_go_to_another_name_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, SILENT[name], only=("PL688",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_states_that_fit_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
