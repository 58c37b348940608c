"""Momentum by hand: buffers of the optimiser are written, the graph never sees it."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
velocity = [torch.zeros_like(p) for p in model.parameters()]
x, y = torch.randn(12, 4), torch.randn(12, 2)
for _ in range(3):
    loss = F.mse_loss(model(x), y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, v, g in zip(model.parameters(), velocity, gradients):
            v.mul_(0.9).add_(g)
            p.sub_(v, alpha=0.05)
print(loss.item() > 0)
