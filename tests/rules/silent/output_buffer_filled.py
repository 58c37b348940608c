"""Rows of a fresh tensor are filled one after the other, then used."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(3, 3)
x = torch.randn(4, 3)
out = torch.zeros(4, 3)
for i in range(4):
    out[i] = layer(x[i])
loss = out.square().mean()
loss.backward()
print(layer.weight.grad is not None)
