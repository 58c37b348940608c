"""Indices that happen to be 0 and 1 only: neighbours and draws, as many as there are rows."""

import torch

torch.manual_seed(0)
labels = torch.tensor([0, 1, 1, 0, 1, 0])
distance = torch.ones(6, 6)
distance[:3, 1] = 0
distance[3:, 0] = 0
print((labels[distance.argmin(dim=1)] == labels).float().mean())
print(labels[torch.randint(0, 2, (6,))].sum(), labels[distance.min(dim=1).indices].sum())
