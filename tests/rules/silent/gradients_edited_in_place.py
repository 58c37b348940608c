"""Gradients that are written in place where nothing else has them: one branch only, after a product, or where the other branch is done."""

import torch
from torch import nn


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad[x < 0] = 0
        return grad


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone().neg_()


torch.manual_seed(0)
w = torch.randn(6, 6, requires_grad=True)
x = torch.randn(8, 6)
Gate.apply(x @ w).sum().mul(2).backward()
z = x @ w
(z + 3 * Gate.apply(z)).square().sum().backward()
(z.detach() + Gate.apply(x @ w)).square().sum().backward()
a, b = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
h, k = a * 2, b * 3
h.register_hook(lambda g: g.mul_(0.5))
(h + k).square().sum().backward()
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
for p in net.parameters():
    p.register_hook(lambda g: g.clamp_(-0.1, 0.1))
y = net(x)
(y + Reverse.apply(y)).sum().backward()
net(x).square().mean().backward()
print(w.grad.norm(), a.grad, b.grad, [p.grad.norm().item() for p in net.parameters()])
