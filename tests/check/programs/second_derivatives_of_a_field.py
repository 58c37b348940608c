"""The Laplacian of a network, from one second differentiation of the whole gradient."""

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 12), nn.Linear(12, 1)

    def forward(self, x):
        return self.head(torch.sin(self.body(x))).squeeze(-1)


def gradient(y, x):
    return torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]


torch.manual_seed(0)
field = Field()
points = torch.rand(10, 3).requires_grad_()
slope = gradient(field(points), points)
curvature = gradient(slope, points)  # PL344
laplacian = curvature.sum(dim=1)  # used
laplacian.square().mean().backward()
print(field.body.weight.grad.norm())
