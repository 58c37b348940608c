"""An attention mask is filled before use and applied out of place."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
query, key, value = (torch.randn(2, 5, 4, requires_grad=True) for _ in range(3))
mask = torch.ones(5, 5, dtype=torch.bool)
mask = mask.tril_()
scores = query @ key.transpose(1, 2) / 2.0
scores = scores.masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
out = weights @ value
out.square().mean().backward()
print(query.grad.shape)
