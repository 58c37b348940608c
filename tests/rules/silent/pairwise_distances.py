"""A table of distances of every point to every centre, asked for with None."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
points = torch.randn(9, 2)
centres = torch.randn(3, 2, requires_grad=True)
optimizer = torch.optim.Adam([centres], lr=0.1)
for _ in range(3):
    table = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(dim=-1)
    loss = table.min(dim=1).values.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item() > 0)
