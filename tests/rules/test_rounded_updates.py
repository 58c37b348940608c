"""PL818: one of several weights of 16 bits that no update moves; and weights that move, or that nothing should move."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.shift = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
    def forward(self, x):
        return x * self.factor + self.shift
x = torch.randn(32, 12)
y = x * (1 + 0.3 * torch.randn(12)) + 0.2
def train(net, opt, rounds=30, dtype=torch.bfloat16):
    for _ in range(rounds):
        loss = (net(x.to(dtype)).float() - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()  # step
    print(loss.item())
"""
WRONG = {
    "factors near one, and a shift that moves": HEAD
    + """
net = Affine().to(torch.bfloat16)  # PL818
train(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
""",
    "a norm in float16, in groups": HEAD
    + """
def half(module):
    return module.half()  # PL818
net = half(nn.Sequential(Affine(), nn.LayerNorm(12)))
opt = torch.optim.Adam([{"params": net[0].parameters()}, {"params": net[1].parameters()}], lr=2e-4, eps=1e-4)
train(net, opt, 40, torch.float16)
""",
    "steps as long as the gradient": HEAD
    + """
net = Affine().to(torch.bfloat16)  # PL818
train(net, torch.optim.SGD(net.parameters(), lr=0.01), 60)
""",
}
RIGHT = {
    "steps that are long enough": HEAD
    + """
net = Affine().to(torch.bfloat16)
train(net, torch.optim.AdamW(net.parameters(), lr=2e-2))
""",
    "the same numbers in float32, with products of 16 bits": HEAD
    + """
net = Affine()
with torch.autocast("cpu", dtype=torch.bfloat16):
    train(net, torch.optim.AdamW(net.parameters(), lr=1e-3), dtype=torch.float32)
""",
    "copies of weights in float32": HEAD
    + """
net = Affine().to(torch.bfloat16)
exact = [p.detach().float() for p in net.parameters()]
for _ in range(30):
    loss = (net(x.bfloat16()).float() - y).square().mean()
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), exact):
            e -= 0.01 * p.grad.float()
            p.copy_(e)
print(loss.item())
""",
    "a weight with next to no gradient": HEAD
    + """
class Hardly(Affine):
    def forward(self, x):
        return x * (1 + 1e-5 * self.factor) + self.shift
net = Hardly().to(torch.bfloat16)
train(net, torch.optim.SGD(net.parameters(), lr=0.5))
""",
    "a few first steps": HEAD
    + """
net = Affine().to(torch.bfloat16)
train(net, torch.optim.AdamW(net.parameters(), lr=1e-3), 3)
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_that_stand_still_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL818",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_weights_that_move_or_have_no_reason_to_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
