"""A training step by hand: update and clear under no_grad."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
w = torch.randn(3, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
x, y = torch.randn(10, 3), torch.randn(10, 1)
for _ in range(4):
    loss = ((x @ w + b - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for parameter in (w, b):
            parameter -= 0.1 * parameter.grad
            parameter.grad.zero_()
print(loss.item() > 0)
