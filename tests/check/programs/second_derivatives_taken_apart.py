"""A wave equation: both second derivatives come from one call, and are taken apart."""

import torch

torch.manual_seed(0)
z = (torch.rand(40, 2) * 3).requires_grad_()
x, t = z.unbind(1)
u = torch.sin(x) * torch.cos(2 * t)
(first,) = torch.autograd.grad(u.sum(), z, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), z)  # PL344
u_xx, u_tt = second.unbind(1)  # used
print((u_tt - 4 * u_xx).abs().max())
