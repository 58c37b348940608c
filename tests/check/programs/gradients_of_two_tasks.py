"""A function returns the gradients of a task as they are; those of the second task are written into the same tensors."""

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(16, 4), torch.randn(16, 2)
net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


def gradients(column):
    net.zero_grad(set_to_none=False)  # changed
    (net(x)[:, column] - y[:, column]).square().mean().backward()
    return [p.grad for p in net.parameters()]  # PL605 kept


first, second = gradients(0), gradients(1)
dot = sum((a * b).sum() for a, b in zip(first, second))  # used
print("conflict" if dot < 0 else "agree")
