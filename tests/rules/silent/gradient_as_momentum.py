"""Gradients are not cleared but scaled down after each update: momentum without a buffer of its own."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.02)
x, y = torch.randn(12, 3), torch.randn(12, 1)
for _ in range(4):
    (model(x) - y).square().mean().backward()
    opt.step()
    for p in model.parameters():
        p.grad.mul_(0.9)
print(model.weight.grad.shape)
