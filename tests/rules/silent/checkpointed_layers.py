"""Checkpointing done right: dropout inside (its numbers are drawn again), batch norm, one block in a loop, steps between the rounds."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5))
head = nn.Linear(4, 1)
parameters = [*block.parameters(), *head.parameters()]
opt = torch.optim.SGD(parameters, lr=0.1)
scale = 1.0


def part(x):
    return block(x) * scale


for _ in range(2):
    x = torch.randn(6, 4)
    for _ in range(2):
        x = checkpoint(part, x, use_reentrant=False)
    x = checkpoint_sequential(block, 2, x, use_reentrant=False)
    opt.zero_grad()
    head(x).square().mean().backward()
    opt.step()
    scale = scale * 0.9
