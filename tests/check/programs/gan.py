# A small GAN: the discriminator is stepped between its own backward and the generator's, which needs the old weights.
import torch
from torch import nn

torch.manual_seed(0)

LATENT, DATA, HIDDEN, BATCH = 4, 2, 16, 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(LATENT, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, DATA),
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(DATA, HIDDEN)
        self.second = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.second(h)  # saved


def real_batch():
    angle = torch.rand(BATCH) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1)


generator = Generator()
discriminator = Discriminator()
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)

for step in range(2):
    z = torch.randn(BATCH, LATENT)
    fake = generator(z)
    score_real = discriminator(real_batch())
    score_fake = discriminator(fake)

    loss_d = criterion(score_real, ones) + criterion(score_fake, zeros)
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()  # PL104 changed

    loss_g = criterion(score_fake, ones)
    opt_g.zero_grad()
    loss_g.backward()  # backward
    opt_g.step()

print(loss_d.item(), loss_g.item())
