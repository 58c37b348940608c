"""Several losses are added before one backward: the sum is meant to have a graph."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(6, 2), nn.Linear(2, 6)
x = torch.randn(8, 6)
code = encoder(x)
losses = [F.mse_loss(decoder(code), x), 0.01 * code.square().mean(), 0.001 * sum(p.abs().sum() for p in decoder.parameters())]
total = 0.0
for loss in losses:
    total += loss
total.backward()
print(total.item() > 0)
