"""Functions made in loops that run in the round they were made in, or keep its values."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
x, y = torch.randn(20, 3), torch.randn(20, 1)


def scaled(rate):
    return lambda grad: grad * rate


def times(rate, grad):
    return rate * grad


for layer, rate in ((net[0], 0.1), (net[2], 1.0)):
    layer.weight.register_hook(scaled(rate))
    layer.bias.register_hook(partial(times, rate))
    layer.weight.register_hook(lambda grad, rate=rate: grad / (1 + rate))
net(x).square().mean().backward()
opt = torch.optim.LBFGS(net.parameters(), max_iter=3)
for inputs, targets in zip(x.split(10), y.split(10)):

    def closure():
        opt.zero_grad()
        loss = (net(inputs) - targets).square().mean()
        loss.backward()
        return loss

    opt.step(closure)
means = []
for epoch in range(3):
    handle = net[1].register_forward_hook(lambda module, args, out: means.append((epoch, out.mean().item())))
    net(x)
    handle.remove()
found = []
for power in (1, 2, 3):
    transforms = [lambda t: t**power, torch.tanh]
    found.append(sum(f(x).mean() for f in transforms))
    smallest = min(range(3), key=lambda i: (x[:, i] ** power).mean().item())
for part in x.split(10):
    part.requires_grad_()
    out = checkpoint(lambda t: net(t) * part.mean(), part, use_reentrant=False)
    out.sum().backward()
for name, p in net.named_parameters():
    if name.endswith("bias"):
        h = p * 2
        h.register_hook(lambda g: print(name, g.shape))
        h.sum().backward()
layers = {f"act{i}": torch.tanh for i in range(3)}
print(means, found, smallest, sum(f(x).sum() for f in layers.values()))
