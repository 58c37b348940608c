"""A program's own dispatch mode sees its own operations, those of backward too, and nothing of anybody else's."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Printing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print(func)
        return func(*args, **(kwargs or {}))


class Doubling(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ops.aten.add.Tensor else out


x = torch.ones(3, requires_grad=True)
with Printing():
    y = (x * 2).sigmoid()
    z = y.sum()
    z.backward()
print(x.grad)
with torch.no_grad():
    x.grad.add_(1)
print(x.grad)

before = (x * 3).exp()
with Printing():
    before.sum().backward()
print(x.grad)

with Doubling():
    total = x + 1
    total.sum().backward()
print(total, x.grad)

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
with FlopCounterMode(display=False) as counter:
    model(torch.ones(2, 4)).sum().backward()
print(counter.get_total_flops(), model[0].weight.grad.shape)
model[0].weight.grad.zero_()

with Printing():
    try:
        stale = x.exp()
        stale.add_(1)
        stale.sum().backward()
    except RuntimeError as error:
        print(error)

with torch.profiler.profile() as profile:
    model(torch.ones(2, 4)).tanh().sum().backward()
print(sorted((event.key, event.count) for event in profile.key_averages() if event.key.startswith("aten::")))
