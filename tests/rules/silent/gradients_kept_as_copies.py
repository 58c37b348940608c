"""Gradients of two losses side by side, each with memory of its own; and one gradient under two names, at one time."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(16, 4), torch.randn(16, 2)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def copies(column):
    net.zero_grad(set_to_none=False)
    (net(x)[:, column] - y[:, column]).square().mean().backward()
    return [p.grad.clone() for p in net.parameters()]


def fresh(column):
    net.zero_grad()
    (net(x)[:, column] - y[:, column]).square().mean().backward()
    return [p.grad for p in net.parameters()]


for gradients in (copies, fresh):
    first, second = gradients(0), gradients(1)
    print(sum((a * b).sum() for a, b in zip(first, second)))
w = torch.zeros(4, requires_grad=True)
for step in range(4):
    (x @ w - y[:, 0]).square().mean().backward()
    g = w.grad
    length = torch.dot(g.view(-1), w.grad.flatten()).sqrt()
    with torch.no_grad():
        w -= 0.1 * g / (1 + length)
    w.grad.zero_()
loss = net(x).square().mean()
one = torch.autograd.grad(loss, net.weight, retain_graph=True)[0]
other = torch.autograd.grad(loss, net.weight)[0]
print(F.cosine_similarity(one.flatten(), other.flatten(), dim=0), w)
