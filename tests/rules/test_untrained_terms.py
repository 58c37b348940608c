"""Derivatives without a graph in loss terms that require grad through their inputs only: in other forms, and right
programs that resemble them.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
ends = torch.tensor([[0.0], [1.0]])
"""
WRONG = {
    "a default": HEAD
    + """
def slope(y, x, keep=False):
    return torch.autograd.grad(y.sum(), x, create_graph=keep, retain_graph=True)[0]  # PL509
for _ in range(3):
    x = torch.rand(4, 1).requires_grad_()
    u = net(x)
    residual = (slope(u, x) - torch.cos(x)).square().mean()
    loss = residual + net(ends).square().mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    "a second derivative": HEAD
    + """
for _ in range(3):
    x = torch.rand(4, 1, requires_grad=True)
    (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, torch.ones_like(first))  # PL509
    equation = torch.mean((second + x * x) ** 2)
    total = 10 * net(ends).pow(2).mean() + 0.5 * equation  # used
    opt.zero_grad()
    total.backward()
    opt.step()
print(total.item())
""",
    "in a class": HEAD
    + """
class Physics:
    def __init__(self, net):
        self.net = net
    def residual(self, t):
        t.requires_grad_(True)
        rate = torch.autograd.grad(outputs=self.net(t).sum(), inputs=t)[0]  # PL509
        return (rate + 2.0 * t).abs().mean()
physics = Physics(net)
for _ in range(3):
    term = physics.residual(torch.rand(4, 1))
    loss = net(ends).square().mean()
    loss = loss + term  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
}
RIGHT = {
    "it has a graph": HEAD
    + """
for _ in range(3):
    x = torch.rand(4, 1).requires_grad_()
    (rate,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    loss = (rate - torch.cos(x)).square().mean() + net(ends).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    "the inputs learn": HEAD
    + """
x = torch.rand(4, 1, requires_grad=True)
for _ in range(3):
    (rate,) = torch.autograd.grad(net(x).sum(), x)
    loss = (rate - torch.cos(x)).square().mean() + net(ends).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        x -= 0.1 * x.grad
    x.grad = None
print(loss.item(), x)
""",
    "an attack": HEAD
    + """
for _ in range(3):
    x = torch.rand(4, 1, requires_grad=True)
    (rate,) = torch.autograd.grad(net(x).square().mean(), x)
    loss = net(x + 0.1 * rate / rate.norm()).square().mean() + net(ends).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    "it is only logged": HEAD
    + """
for _ in range(3):
    x = torch.rand(4, 1).requires_grad_()
    u = net(x)
    (rate,) = torch.autograd.grad(u.sum(), x, retain_graph=True)
    size = (rate - torch.cos(x)).square().mean()
    loss = u.square().mean() + net(ends).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item() + size.item())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
