"""Train pass first, then the eval pass; or each followed by its own backward; statistics moved after backward."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(6, 3)
for _ in range(2):
    opt.zero_grad()
    net.train()
    noisy = net(data + torch.randn(6, 3))
    net.eval()
    clean = net(data)
    (noisy - clean).square().mean().backward()
    opt.step()
net.eval()
net(data).mean().backward()
net.train()
net(data).mean().backward()
