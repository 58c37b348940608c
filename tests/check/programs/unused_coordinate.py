# A network of points in space and time; its slope in time is asked of a column that the network did not see.
import torch
from torch import nn

torch.manual_seed(0)
field = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def residual(batch):
    t = batch[:, 1:]  # made
    u = field(batch)
    u_t = torch.autograd.grad(u.sum(), t, create_graph=True)[0]  # PL508 read
    return (u_t + u).pow(2).mean()


residual(torch.rand(6, 2, requires_grad=True)).backward()
