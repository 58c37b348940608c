"""DCGAN for 16 x 16 pictures: both losses from one pass over the generated batch."""

import torch
from torch import nn

torch.manual_seed(0)
NOISE, WIDTH, BATCH = 16, 8, 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(NOISE, 2 * WIDTH, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * WIDTH),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, 2, 1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.ConvTranspose2d(WIDTH, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.layers(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * WIDTH, 1, 4, 1, 0, bias=False),
        )

    def forward(self, pictures):
        return self.layers(pictures).view(-1)


def initialise(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def discs(count):
    """Bright discs of random radius."""
    grid = torch.linspace(-1, 1, 16)
    distance = (grid[:, None] ** 2 + grid[None, :] ** 2).sqrt()
    radius = torch.rand(count, 1, 1) * 0.6 + 0.2
    return ((distance < radius).float() * 2 - 1).unsqueeze(1)


generator, discriminator = Generator(), Discriminator()
generator.apply(initialise)
discriminator.apply(initialise)
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
real_label, fake_label = torch.ones(BATCH), torch.zeros(BATCH)

for step in range(3):
    real = discs(BATCH)
    noise = torch.randn(BATCH, NOISE, 1, 1)
    fake = generator(noise)

    judged = discriminator(fake)
    d_loss = criterion(discriminator(real), real_label) + criterion(judged, fake_label)
    g_loss = criterion(judged, real_label)

    d_optimizer.zero_grad()
    d_loss.backward(retain_graph=True)
    d_optimizer.step()

    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
    print(step, d_loss.item(), g_loss.item())
