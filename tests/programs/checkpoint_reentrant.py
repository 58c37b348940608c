# The older way of checkpointing: a backward of its own runs inside backward.
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Dropout(0.5), nn.Tanh(), nn.Linear(3, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    x = torch.randn(2, 3, requires_grad=True)
    optimizer.zero_grad()
    checkpoint_sequential(net, 3, x, use_reentrant=True).pow(2).mean().backward()
    optimizer.step()
    print(net[0].weight.grad.norm(), net[0].bias.grad, x.grad.sum())


def inner(t):
    return checkpoint(torch.sin, t, use_reentrant=True) * net[5].bias


z = torch.randn(2, requires_grad=True)
torch.autograd.backward(checkpoint(inner, z, use_reentrant=True).sum())
print(z.grad, net[5].bias.grad * 2)
