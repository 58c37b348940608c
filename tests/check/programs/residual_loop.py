# In a loop over layers, the running sum is a tensor that the next layer saved.
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
first = nn.Linear(4, 4)
h = first(torch.randn(2, 4))
for layer in layers:
    h += torch.sigmoid(layer(h))  # PL105 changed saved
h.sum().backward()  # backward
