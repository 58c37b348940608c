"""Denoising diffusion of points on a ring; keeps the best weights to draw samples with them afterwards."""

import math

import torch
from torch import nn

torch.manual_seed(0)
STEPS, WIDTH, BATCH = 20, 32, 16

betas = torch.linspace(1e-4, 0.2, STEPS)
alphas = 1 - betas
kept = torch.cumprod(alphas, 0)


class Time(nn.Module):
    """Sines and cosines of the step."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2)))

    def forward(self, t):
        angle = t[:, None] * self.rates
        return torch.cat([angle.sin(), angle.cos()], dim=1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = Time(WIDTH)
        self.enter = nn.Linear(2, WIDTH)
        self.middle = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.leave = nn.Linear(WIDTH, 2)

    def forward(self, x, t):
        return self.leave(self.middle(self.enter(x) + self.time(t)))


def ring(count):
    angle = torch.rand(count) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def loss_of(model, x0):
    t = torch.randint(0, STEPS, (len(x0),))
    noise = torch.randn_like(x0)
    share = kept[t][:, None]
    xt = share.sqrt() * x0 + (1 - share).sqrt() * noise
    return ((model(xt, t) - noise) ** 2).mean()


@torch.no_grad()
def sample(model, count):
    x = torch.randn(count, 2)
    for step in reversed(range(STEPS)):
        t = torch.full((count,), step)
        x = (x - betas[step] / (1 - kept[step]).sqrt() * model(x, t)) / alphas[step].sqrt()
        if step:
            x = x + betas[step].sqrt() * torch.randn_like(x)
    return x


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
best, lowest = None, math.inf
for step in range(8):
    loss = loss_of(model, ring(BATCH))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < lowest:
        lowest = loss.item()
        best = model.state_dict()
    print(step, loss.item())

model.load_state_dict(best)
points = sample(model, 32)
print("radius", points.norm(dim=1).mean().item(), "best loss", lowest)
