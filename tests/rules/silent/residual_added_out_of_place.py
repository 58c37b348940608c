"""A residual connection that writes only into what addition made."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = self.second(h)
        h += x  # a linear layer's output is not saved by it
        return h


blocks = nn.Sequential(Block(4), Block(4))
loss = blocks(torch.randn(5, 4)).square().mean()
loss.backward()
print(loss.item() > 0)
