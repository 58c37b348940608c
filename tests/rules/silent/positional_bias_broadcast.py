"""A bias of one row and a scale of one column, meant to be stretched."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
tokens = torch.randn(5, 4, requires_grad=True)
position = torch.randn(5, 1, requires_grad=True)
bias = torch.randn(4, requires_grad=True)
h = tokens * position + bias
weights = torch.softmax(h, dim=-1)
loss = ((weights - weights.mean(dim=1, keepdim=True)) ** 2).mean()
loss.backward()
print(position.grad.shape, bias.grad.shape)
