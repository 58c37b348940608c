"""Scores are masked in place before softmax: division and matmul do not need them."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
query, key = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
scores = query @ key.transpose(1, 2)
scores.div_(2.0)
scores.masked_fill_(torch.ones(5, 5).triu(1).bool(), float("-inf"))
weights = scores.softmax(dim=-1)
weights.square().sum().backward()
print(key.grad.shape)
