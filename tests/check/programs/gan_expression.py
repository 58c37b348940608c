# The discriminator's score of the fakes is computed inside the loss expression; noise is drawn anew for each batch.
import torch
from torch import nn

torch.manual_seed(0)
NOISE, WIDTH, BATCH = 4, 8, 16


class Generator(nn.Module):
    """Turn noise into points of the plane."""

    def __init__(self):
        super().__init__()
        layers = nn.Linear(NOISE, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, 2)
        self.body = nn.Sequential(*layers)

    def forward(self, noise):
        return self.body(noise)


class Discriminator(nn.Module):
    """Score points: high for real ones."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))

    def forward(self, points):
        return self.body(points)  # saved


def real_points():
    """Draw points from a ring."""
    angle = torch.rand(BATCH) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def train(steps):
    """Update both networks once per step."""
    g, d = Generator(), Discriminator()
    g_optimizer = torch.optim.Adam(g.parameters(), lr=1e-3)
    d_optimizer = torch.optim.Adam(d.parameters(), lr=1e-3)
    score = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    for _ in range(steps):
        fake = g(torch.randn(BATCH, NOISE))
        d_loss = score(d(real_points()), ones) + score(d(fake.detach()), zeros)
        g_loss = score(d(fake), ones)
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()  # PL104 changed
        g_optimizer.zero_grad()
        g_loss.backward()  # backward
        g_optimizer.step()
    return g


if __name__ == "__main__":
    train(steps=3)
