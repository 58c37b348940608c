"""A block scales its input in place and returns it under another name; the gradient of the input was retained before."""

import torch


def block(x, gate):
    return x.mul_(gate).tanh()  # PL341 changed


torch.manual_seed(0)
w = torch.randn(3, 4, requires_grad=True)
h = torch.randn(5, 3) @ w
h.retain_grad()  # kept
out = block(h, torch.tensor([1.0, 0.0, 2.0, 0.5]))
out.sum().backward()
print("which units count", h.grad.abs().sum(0))  # read
