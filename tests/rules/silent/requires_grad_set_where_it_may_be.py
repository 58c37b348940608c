import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
for parameter in net[0].parameters():
    parameter.requires_grad = False
x = torch.randn(4, 2)
hidden = net[1](net[0](x))
hidden.requires_grad_()  # computed from frozen parameters only: it begins a computation
loss = net[2](hidden).square().mean()
loss.backward()
print(hidden.grad.shape)
result = net(x)
result.requires_grad_()  # already so: nothing changes
result.sum().backward()
