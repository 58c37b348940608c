"""Losses are kept for a plot, detached."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
curve = []
for x in torch.randn(4, 5, 3):
    loss = model(x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(loss.detach())
print(torch.stack(curve).shape)
