"""Distances of points to each other: the distance of a point to itself has no slope."""

import torch

points = torch.nn.Parameter(torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]))
opt = torch.optim.SGD([points], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    gap = points[:, None] - points[None]
    distance = gap.pow(2).sum(-1).sqrt()  # PL804 made
    loss = (distance - 1).square().mean()
    loss.backward()  # backward
    opt.step()
print(points.detach())
