# A GAN step in the wrong order: the discriminator is updated before the generator's backward needs its old weights.
import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, noise, data):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(noise, 8), nn.Tanh(), nn.Linear(8, data))

    def forward(self, z):
        return self.body(z)


class Discriminator(nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first = nn.Linear(data, 8)
        self.second = nn.Linear(8, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def real_batch(size):
    return torch.randn(size, 2) * 0.5 + 2.0


def train(steps):
    generator, discriminator = Generator(3, 2), Discriminator(2)
    g_opt = torch.optim.SGD(generator.parameters(), lr=0.05)
    d_opt = torch.optim.SGD(discriminator.parameters(), lr=0.05)
    criterion = nn.BCEWithLogitsLoss()
    for step in range(steps):
        real = real_batch(4)
        fake = generator(torch.randn(4, 3))

        fake_score = discriminator(fake)
        real_score = discriminator(real)
        ones, zeros = torch.ones(4, 1), torch.zeros(4, 1)
        d_loss = criterion(real_score, ones) + criterion(fake_score, zeros)
        g_loss = criterion(fake_score, ones)

        d_opt.zero_grad()
        d_loss.backward(retain_graph=True)
        d_opt.step()

        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        print(step, round(d_loss.item(), 4), round(g_loss.item(), 4))


if __name__ == "__main__":
    torch.manual_seed(0)
    train(2)
