"""The transposed matrix is flattened (a copy) and filled."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(3, 2)
with torch.no_grad():
    for scale in (1.0, 2.0):
        layer.weight.t().flatten().mul_(scale)  # PL706 copied changed
print(layer(torch.ones(3)).sum())
