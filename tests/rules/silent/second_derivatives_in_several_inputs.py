"""Second derivatives that are right: of each element alone, of separate inputs, of sums of functions, column by column, with a direction."""

import torch
from torch import nn

torch.manual_seed(0)
z = (torch.rand(20, 2) * 3).requires_grad_()


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


elementwise = torch.tanh(z) * z
first = slope(elementwise, z)
second = slope(first, z)
print(second[:, 0].mean(), second[:, 1].mean())
separable = (z**3).sum(1)
d2 = slope(slope(separable, z), z)
print((d2[:, 0] - 6 * z[:, 0]).abs().max())
x, t = torch.rand(20, 1, requires_grad=True), torch.rand(20, 1, requires_grad=True)
net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
u = net(torch.cat([x, t], 1))
u_x, u_t = slope(u, x), slope(u, t)
u_xx = slope(u_x, x)
(u_t - u_xx).square().mean().backward()
du = slope(net(z), z)
d2u = slope(du[:, 0], z)
print(d2u[:, 0].mean(), d2u[:, 1].mean())
v = torch.randn(20, 2)
hvp = slope(du * v, z)
print(hvp[:, 0].mean(), hvp.sum(1).mean())
normal = torch.autograd.grad(net(z).sum(), z, create_graph=True)[0]
penalty = (normal.norm(dim=1) - 1).square().mean()
penalty.backward()
plus = z[:, 0].sin() + z[:, 1].cos()
d2plus = slope(slope(plus, z), z)
print(d2plus[:, 0].mean())
