# The view has a name of its own, and the write is a method on it.
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(3, 3)
x = torch.rand(2, 3)
weights = torch.exp(layer(x))  # saved
first = weights[0]
first.mul_(0.5)  # PL101 changed
loss = (weights / weights.sum()).pow(2).sum()
loss.backward()  # backward
