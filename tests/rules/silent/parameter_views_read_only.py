"""Slices of a parameter are read, never written."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
packed = nn.Parameter(torch.randn(3, 8))
x = torch.randn(5, 3)
left, right = packed[:, :4], packed[:, 4:]
gate = torch.sigmoid(x @ left)
h = gate * torch.tanh(x @ right)
first, second = h.chunk(2, dim=1)
loss = (first * second).sum()
loss.backward()
print(packed.grad.shape)
