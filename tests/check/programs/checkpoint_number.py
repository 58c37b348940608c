# A weight of the loss that is warmed up: the function reads the global again when backward runs it a second time.
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = nn.Linear(3, 3)
strength = 0.1


def block(x):
    return torch.tanh(layer(x) * strength)  # made


x = torch.randn(4, 3)
for epoch in range(2):
    loss = checkpoint(block, x, use_reentrant=False).sum()
    strength = strength + 0.5
    loss.backward()  # PL108 backward
print(layer.bias.grad)
