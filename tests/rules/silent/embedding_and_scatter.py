"""Indices are saved by lookups and left alone afterwards; counts go into another tensor."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(10, 4)
words = torch.randint(0, 10, (3, 6))
vectors = table(words).mean(dim=1)
counts = torch.zeros(10)
counts.scatter_add_(0, words.reshape(-1), torch.ones(18))
loss = vectors.square().sum() / counts.clamp(min=1).mean()
loss.backward()
print(table.weight.grad.shape)
