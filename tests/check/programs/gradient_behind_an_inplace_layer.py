"""A class keeps an activation for its gradient, and the next layer, which works in place, changes it."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.act, self.head = nn.Linear(4, 6), nn.LeakyReLU(0.1, inplace=True), nn.Linear(6, 1)
        self.features = None

    def forward(self, x):
        self.features = self.body(x)
        self.features.retain_grad()  # kept
        return self.head(self.act(self.features))  # PL341 changed


torch.manual_seed(0)
net = Net()
net(torch.randn(5, 4)).sum().backward()
importance = net.features.grad.abs().mean(0)  # read
print(importance)
