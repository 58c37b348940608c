# All layers of the model are in a dictionary, so there is no parameter to optimize, and torch raises.
import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.branches = {name: nn.Linear(3, 1) for name in names}  # PL608 made

    def forward(self, x):
        return sum(branch(x) for branch in self.branches.values())


def training(model, steps):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)  # step
    for _ in range(steps):
        opt.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        opt.step()


training(Branches(["left", "right"]), 3)
