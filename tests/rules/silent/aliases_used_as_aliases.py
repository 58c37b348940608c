"""Aliases that are meant: live views, gradients clipped after they got a name, a shared layer with a name, copies where values are kept."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
shared = nn.Linear(3, 3)
net = nn.Sequential(shared, nn.Tanh(), shared, *[nn.ReLU()] * 2)
zeros = [torch.zeros(2)] * 3
total = torch.stack(zeros).sum()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 3)
before = shared.weight.detach().clone()
live = shared.weight.detach()
numbers = shared.weight.detach().numpy().copy()
norms, grads = [], []
for step in range(3):
    opt.zero_grad()
    net(x.float()).square().mean().backward()
    grad = shared.weight.grad
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    norms.append(grad.norm())
    grads.append(grad.clone())
    opt.step()
moved = (shared.weight - before).norm()
print(moved, live.norm(), np.abs(numbers - shared.weight.detach().numpy()).sum(), torch.stack(grads).shape, total)
image = torch.arange(4.0)
scaled = image.to(torch.float64)
scaled /= scaled.max()
own = image.float()
own += 1
print(own, scaled, own is image, id(own) == id(scaled))
