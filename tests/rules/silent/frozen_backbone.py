"""A part of the model is frozen; its parameters have no gradient, and that is meant."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
head = nn.Linear(8, 2)
for parameter in backbone.parameters():
    parameter.requires_grad_(False)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
x, y = torch.randn(10, 4), torch.randint(0, 2, (10,))
for _ in range(2):
    with torch.no_grad():
        features = backbone(x)
    loss = F.cross_entropy(head(features), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(all(p.grad is None for p in backbone.parameters()))
