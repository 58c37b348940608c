import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)
    def forward(self, x):
        return x + torch.tanh(self.lin(x))
class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(3)] * depth)  # PL704 made
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
torch.manual_seed(0)
Net(3)(torch.randn(2, 3)).mean().backward()
