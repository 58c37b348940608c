"""Gradient norms of a recurrence are to be kept by time step; all are kept under the last one."""

import torch

torch.manual_seed(0)
w = torch.randn(4, 4, requires_grad=True)
h = torch.ones(4)
norms = {}
for t in range(5):
    h = torch.tanh(w @ h)
    h.register_hook(lambda g: norms.update({t: g.norm().item()}))  # PL343 used
h.sum().backward()
print(norms)
