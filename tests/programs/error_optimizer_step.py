# An error in backward: opt.step() between two backwards of one graph.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
out = net(torch.ones(4, 2))
first, second = out.mean(), (out**2).mean()
first.backward(retain_graph=True)
opt.step()
second.backward()
