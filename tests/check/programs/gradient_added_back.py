"""The gradient of one loss is put aside while that of another is looked at, and added back: to itself."""

import torch

torch.manual_seed(0)
x = torch.randn(20, 4)
w = torch.randn(4, requires_grad=True)
(x @ w).square().mean().backward()
main = w.grad  # PL605 kept
w.grad.zero_()  # changed
(0.1 * w.abs().sum()).backward()
print("penalty", w.grad.norm())
both = w.grad + main  # used
print(both)
