"""PL475: one term of a log-likelihood averaged over dimensions that another sums; and losses that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import math
import torch
from torch import nn
from torch.distributions import Independent, Laplace, Normal
torch.manual_seed(0)
x = torch.randn(32, 4) * 2
base = Normal(torch.zeros(4), torch.ones(4))
log_s = nn.Parameter(torch.full((4,), 0.1))
net = nn.Linear(2, 4)
encoder = nn.Linear(4, 6)
opt = torch.optim.Adam([log_s, *net.parameters(), *encoder.parameters()], 0.01)
def coupled(x):
    s, t = net(x[:, :2]).tanh().split(2, dim=1)
    return torch.cat([x[:, :2], x[:, 2:] * s.exp() + t], 1), s
def draw():
    mean, log_var = encoder(x).chunk(2, 1)
    q = Normal(mean, torch.exp(0.5 * log_var))
    return q, q.rsample()
def update(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "a coupling, by hand": HEAD
    + """
for _ in range(2):
    z, s = coupled(x)
    update(0.5 * torch.mean(z ** 2) - s.sum(1).mean())  # PL475
""",
    "with the constant, each mean for itself": HEAD
    + """
z, s = coupled(x)
log_p = -0.5 * (z.square() + math.log(2 * math.pi))
update(-(log_p.mean(dim=-1) + s.sum(-1)).mean())  # PL475
""",
    "a mask, and a mean of the logarithms": HEAD
    + """
mask = torch.tensor([1.0, 1.0, 0.0, 0.0])
wide = nn.Linear(4, 4)
opt = torch.optim.Adam(wide.parameters(), 0.01)
s = wide(x * mask).tanh()
z = x * mask + (1 - mask) * (x * torch.exp(s))
update(-base.log_prob(z).sum(1).mean() - ((1 - mask) * s).mean())  # PL475
""",
    "the entropy of a sample": HEAD
    + """
q, z = draw()
loss = q.log_prob(z).sum(-1).mean() - Normal(0.0, 1.0).log_prob(z).mean()  # PL475
update(loss)
""",
    "logarithms that are added in place": HEAD
    + """
log_det = torch.zeros(32)
z = x
for _ in range(2):
    z, s = coupled(z)
    log_det += s.sum(1)
    z = z.flip(1)
update(-(base.log_prob(z).mean() + log_det.mean()))  # PL475
""",
    "a picture": HEAD
    + """
pictures = torch.randn(8, 1, 2, 2)
z = (pictures - 0.5) / log_s.view(1, 1, 2, 2).exp()
update(-Laplace(0.0, 1.0).log_prob(z).mean() + log_s.sum())  # PL475
""",
    "random weights": HEAD
    + """
w = log_s.exp() * torch.randn(4)
update((x @ w).square().mean() - Normal(torch.zeros(4), torch.ones(4)).log_prob(w).mean() - log_s.sum())  # PL475
""",
}
RIGHT = {
    "both summed": HEAD
    + """
z, s = coupled(x)
update(-(base.log_prob(z).sum(1) + s.sum(1)).mean())
update(-(Independent(base, 1).log_prob(coupled(x)[0]) + coupled(x)[1].sum(1)).mean())
""",
    "both summed, in place": HEAD
    + """
log_det, z = torch.zeros(32), x
for _ in range(2):
    z, s = coupled(z)
    log_det += s.sum(1)
log_p = base.log_prob(z).sum(1)
log_p += log_det
update(-log_p.mean())
""",
    "all in nats for each dimension": HEAD
    + """
z, s = coupled(x)
update(-(base.log_prob(z).mean() + s.sum(1).mean() / 4))
z = x * log_s.exp()
update(-(base.log_prob(z).mean() + log_s.mean()))
z, s = coupled(x)
update(-(base.log_prob(z).sum(1) + s.sum(1)).mean() / 4)
update(-base.log_prob(x * log_s.exp()).mean() * 4 - log_s.sum())
""",
    "one scale for all": HEAD
    + """
level = nn.Parameter(torch.zeros(()))
opt = torch.optim.Adam([level], 0.01)
update(0.5 * ((x - 1) / level.exp()).square().mean() + level)
update(0.5 * torch.exp(-2 * level) * (x - 1).square().mean() + level)
""",
    "a variance for each number": HEAD
    + """
head = nn.Linear(4, 8)
opt = torch.optim.Adam(head.parameters(), 0.01)
mean, log_std = head(x).chunk(2, 1)
update(-Normal(mean, log_std.exp()).log_prob(x).mean())
""",
    "an autoencoder": HEAD
    + """
decoder = nn.Linear(3, 4)
opt = torch.optim.Adam([*decoder.parameters(), *encoder.parameters()], 0.01)
q, z = draw()
update((decoder(z) - x).square().mean() + torch.distributions.kl_divergence(q, Normal(0.0, 1.0)).sum(1).mean())
q, z = draw()
update(0.5 * (decoder(z) - x).square().mean() - q.entropy().sum(1).mean() + 0.5 * (q.loc ** 2).sum(1).mean())
""",
    "weights of its own": HEAD
    + """
z, s = coupled(x)
update(0.01 * z.square().mean() - 0.1 * s.sum(1).mean())
z, s = coupled(x)
update(0.5 * z.square().mean() + s.sum(1).mean())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mean_beside_a_sum_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL475",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_terms_that_count_alike_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
