import torch
from torch import nn
torch.manual_seed(0)
raw = nn.Parameter(torch.randn(3))
scale = raw * 2  # made
opt = torch.optim.SGD([{"params": [scale]}], lr=0.1)  # PL206
x = torch.randn(4, 3)
for step in range(2):
    opt.zero_grad()
    ((x * (raw * 2)).sum(1) - 1).pow(2).mean().backward()
    opt.step()
