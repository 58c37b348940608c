"""A hook on one branch of a residual block scales the gradient in place; the other branch receives the same tensor."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        straight = self.one(x)
        curved = self.two(x)
        if curved.requires_grad:
            curved.register_hook(self.damp)
        return straight + curved  # forward

    def damp(self, grad):
        grad *= 0.1  # PL340 changed


torch.manual_seed(0)
net = nn.Sequential(Block(), nn.Tanh(), Block())
loss = net(torch.randn(8, 4)).square().mean()
loss.backward()  # backward
print([p.grad.norm().item() for p in net.parameters()])
