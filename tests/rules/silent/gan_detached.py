"""A GAN in the right order: the fake is detached for the discriminator and judged anew for the generator."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
judge = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_j = torch.optim.Adam(judge.parameters(), lr=1e-3)

for step in range(3):
    real = torch.randn(8, 2) + 2
    fake = generator(torch.randn(8, 2))

    opt_j.zero_grad()
    loss_j = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
    loss_j.backward()
    opt_j.step()

    opt_g.zero_grad()
    loss_g = F.softplus(-judge(fake)).mean()
    loss_g.backward()
    opt_g.step()
print(loss_g.item() > 0)
