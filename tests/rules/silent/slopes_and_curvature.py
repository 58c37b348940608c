# Derivatives of derivatives with a record, columns that the network did see, and an input that may be unused and is said to be.
import torch
from torch import nn

torch.manual_seed(0)
field = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(field.parameters(), lr=0.01)
for _ in range(2):
    x = torch.rand(6, 1, requires_grad=True)
    t = torch.rand(6, 1, requires_grad=True)
    u = field(torch.cat([x, t], dim=1))
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    loss = (u_t - 0.1 * u_xx).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
print(torch.autograd.grad(a.exp().sum(), (a, b), allow_unused=True)[1])
slope = torch.autograd.grad((a**3).sum(), a)[0]
print((slope * b).sum().backward(), b.grad)
