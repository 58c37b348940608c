"""Layers are frozen while their gradients are None: the optimizer leaves them alone, momentum or not."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for epoch in range(4):
    if epoch == 2:
        model[0].requires_grad_(False)
    opt.zero_grad()
    (model(x) - y).square().mean().backward()
    opt.step()
print(model[0].weight.grad is None)
