"""A polynomial basis as a list of functions: all of them are the last power."""

import torch


def design(x, powers):
    basis = [lambda t: t**power for power in powers]  # PL343 used
    return torch.stack([f(x) for f in basis], dim=1)


torch.manual_seed(0)
x = torch.randn(30)
w = torch.zeros(3, requires_grad=True)
(design(x, (0, 1, 2)) @ w - x).square().mean().backward()
print(w.grad)
