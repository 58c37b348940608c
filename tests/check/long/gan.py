"""A generator and a discriminator on points of a ring, with the usual two steps in each round."""

import torch
from torch import nn

torch.manual_seed(3)
LATENT = 4


def real_batch(count):
    angle = torch.rand(count) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, noise):
        return self.net(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, points):
        return self.net(points)


generator, discriminator = Generator(), Discriminator()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(8, LATENT)
ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
history = []
for epoch in range(5):
    for batch in range(30):
        real = real_batch(16)
        fake = generator(torch.randn(16, LATENT))
        opt_d.zero_grad()
        loss_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
        loss_d.backward()
        opt_d.step()

        opt_g.zero_grad()
        # planted: pass
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        opt_g.step()
        if batch % 10 == 0:
            history.append((loss_d.item(), loss_g.item()))
    with torch.no_grad():
        sample = generator(fixed_noise)
    print(epoch, [round(value, 2) for value in history[-1]], round(sample.norm(dim=1).mean().item(), 2))
