import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5))
x = torch.randn(4, 3)
y = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  # PL108 made
y.square().sum().backward()  # backward
print(block[0].bias.grad)
