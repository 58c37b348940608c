"""Layers in plain lists are right where somebody else trains them, or nobody should."""

import torch
from torch import nn


class Ensemble(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.members = [nn.Linear(3, 3) for _ in range(2)]
        self.stack = nn.Sequential(*[nn.Linear(3, 3), nn.ReLU()])
        self.frozen = [frozen]  # on purpose: not in state_dict(), and not trained
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        with torch.no_grad():
            x = self.frozen[0](x)
        return self.head(self.stack(sum(member(x) for member in self.members)))


torch.manual_seed(0)
model = Ensemble(nn.Linear(3, 3))
hidden = [parameter for member in model.members for parameter in member.parameters()]
optimizer = torch.optim.SGD([*model.parameters(), *hidden], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
