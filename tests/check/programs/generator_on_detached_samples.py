"""One detached batch of samples serves both losses: the generator's optimizer has nothing to work with."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def critic_round(optimizer, real, samples):
    optimizer.zero_grad()
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(samples)).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def generator_round(optimizer, samples):
    optimizer.zero_grad()
    loss = F.softplus(-critic(samples)).mean()
    loss.backward()  # backward
    optimizer.step()  # step
    return loss.item()


optimizers = {
    "critic": torch.optim.Adam(critic.parameters(), lr=1e-2),
    "generator": torch.optim.Adam(generator.parameters(), lr=1e-2),
}
for _ in range(3):
    real = torch.randn(16, 2) + 2.0
    samples = generator(torch.randn(16, 3)).detach()  # PL504 cut
    critic_round(optimizers["critic"], real, samples)
    generator_round(optimizers["generator"], samples)
