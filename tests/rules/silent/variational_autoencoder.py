"""Noise is drawn, scaled and added out of place: the reparameterisation trick."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
x = torch.rand(5, 6)
mean, log_variance = encoder(x).chunk(2, dim=1)
z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
reconstruction = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum") / len(x)
divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=1).mean()
(reconstruction + divergence).backward()
print(encoder.weight.grad is not None)
