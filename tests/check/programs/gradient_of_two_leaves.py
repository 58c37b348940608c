"""A hook limits the gradient of one of two summed parameters in place, and with it that of the other."""

import torch

torch.manual_seed(0)
x = torch.randn(20)
slope, shift = torch.randn(20, requires_grad=True), torch.randn(20, requires_grad=True)
slope.register_hook(lambda g: g.clamp_(-0.5, 0.5))  # PL340 changed
total = slope + shift  # forward
(total * x).square().sum().backward()  # backward
print(slope.grad.abs().max(), shift.grad.abs().max())
