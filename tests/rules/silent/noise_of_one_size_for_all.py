"""Noise of one example's size where that is right: weights, scalars, positions, one example, drawn per row."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(8, 3)


class Bayes(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu, self.rho = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(2, 3))
        self.b_mu, self.b_rho = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        w = self.mu + F.softplus(self.rho) * torch.randn(2, 3)
        b = self.b_mu + F.softplus(self.b_rho) * torch.randn(2)
        return x @ w.T + b


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.sigma = nn.Linear(3, 2), nn.Parameter(torch.full((2, 3), 0.1))

    def forward(self, x):
        f = lambda n: torch.randn(n).sign()
        return F.linear(x, self.fc.weight + self.sigma * torch.outer(f(2), f(3)), self.fc.bias)


enc = nn.Linear(3, 4)


def vae(x):
    mean, log_var = enc(x).chunk(2, dim=1)
    return mean + (0.5 * log_var).exp() * torch.randn(len(x), 2)


def several(x):
    mean, log_var = enc(x).chunk(2, dim=1)
    return mean + (0.5 * log_var).exp() * torch.randn(5, *mean.shape)


def single(x):
    mean, log_var = enc(x[:1]).chunk(2, dim=1)
    return mean + (0.5 * log_var).exp() * torch.randn(2)


def jitter(x):
    return enc(x) * (1 + 0.1 * torch.randn(1).float().to(torch.float32))


def of_each_row(x):
    return enc(x) + enc(x).std() * torch.randn(8, 1)


for make in (Bayes(), Noisy(), vae, several, single, jitter, of_each_row):
    opt = torch.optim.SGD([*enc.parameters(), *(make.parameters() if isinstance(make, nn.Module) else ())], lr=0.1)
    for _ in range(3):
        loss = make(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
