import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 3)
for step in range(3):
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        net.weight = nn.Parameter(net.weight / net.weight.norm())  # PL606 made
