"""Batch normalisation in training mode, twice before one backward."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 2))
left, right = torch.randn(8, 3), torch.randn(8, 3)
loss = 1 - F.cosine_similarity(net(left), net(right)).mean()
loss.backward()
print(net[0].weight.grad is not None)
