"""All pairs on purpose: similarities of every left with every right."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
left, right = nn.Linear(4, 6), nn.Linear(5, 6)
a = F.normalize(left(torch.randn(7, 4)), dim=1)
b = F.normalize(right(torch.randn(7, 5)), dim=1)
scores = a @ b.t() / 0.1
labels = torch.arange(7)
loss = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2
loss.backward()
print(loss.item() > 0)
