"""Variational autoencoder on little bar pictures. `encode` was written for a notebook that only looked at codes."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
SIDE, HIDDEN, CODE, BATCH = 8, 32, 4, 16


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, HIDDEN), nn.ReLU())
        self.mean = nn.Linear(HIDDEN, CODE)
        self.log_variance = nn.Linear(HIDDEN, CODE)
        self.decoder = nn.Sequential(nn.Linear(CODE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SIDE * SIDE))

    @torch.no_grad()
    def encode(self, pictures):
        hidden = self.encoder(pictures)
        return self.mean(hidden), self.log_variance(hidden)

    def sample(self, mean, log_variance):
        deviation = torch.exp(0.5 * log_variance)
        return mean + deviation * torch.randn_like(deviation)

    def decode(self, code):
        return torch.sigmoid(self.decoder(code)).view(-1, SIDE, SIDE)

    def forward(self, pictures):
        mean, log_variance = self.encode(pictures)
        return self.decode(self.sample(mean, log_variance)), mean, log_variance


def bars(count):
    """Pictures with one bright row or column."""
    pictures = torch.zeros(count, SIDE, SIDE)
    for picture in pictures:
        place = torch.randint(SIDE, ()).item()
        if torch.rand(()) < 0.5:
            picture[place] = 1.0
        else:
            picture[:, place] = 1.0
    return pictures


def loss_of(pictures, rebuilt, mean, log_variance, beta=1.0):
    reconstruction = F.binary_cross_entropy(rebuilt, pictures, reduction="sum") / len(pictures)
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp()) / len(pictures)
    return reconstruction + beta * divergence, reconstruction, divergence


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    pictures = bars(BATCH)
    rebuilt, mean, log_variance = model(pictures)
    loss, reconstruction, divergence = loss_of(pictures, rebuilt, mean, log_variance)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.2f} = {reconstruction.item():.2f} + {divergence.item():.2f}")

with torch.no_grad():
    new = model.decode(torch.randn(4, CODE))
print(new.shape)
