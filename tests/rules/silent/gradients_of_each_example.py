"""The gradients of each example are read one by one, then training goes on with a gradient of its own."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 3), torch.randn(6, 1)
fisher = torch.zeros_like(model.weight)
for one, wanted in zip(x, y):
    opt.zero_grad()
    (model(one) - wanted).square().mean().backward()
    fisher += model.weight.grad ** 2
opt.zero_grad()
(model(x) - y).square().mean().backward()
opt.step()
print(fisher.shape)
