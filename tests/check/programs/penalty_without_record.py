import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(2):
    real, fake = torch.randn(4, 2), torch.randn(4, 2) + 1
    mix = (real + torch.rand(4, 1) * (fake - real)).requires_grad_()
    slope = torch.autograd.grad(critic(mix).sum(), mix)[0]  # PL509 made
    loss = critic(fake).mean() - critic(real).mean()
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    opt.zero_grad()
    (loss + 10 * penalty).backward()  # used backward
    opt.step()
