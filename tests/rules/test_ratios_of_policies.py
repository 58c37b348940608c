"""PL477: ratios of probabilities for each number of an action; and ratios that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
log_std = nn.Parameter(torch.zeros(2))
opt = torch.optim.Adam([*net.parameters(), log_std], 0.01)
states, advantage = torch.randn(16, 3), torch.randn(16)
def policy(states):
    return Normal(net(states), log_std.exp())
with torch.no_grad():
    actions = policy(states).sample()
    old = policy(states).log_prob(actions)
def update(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "clipped, with a learned deviation": HEAD
    + """
for _ in range(2):
    ratio = (policy(states).log_prob(actions) - old).exp()  # PL477
    gain = advantage.unsqueeze(-1)
    update(-torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean())
""",
    "minibatches of what was stored, and a weight for each number": HEAD
    + """
for rows in torch.randperm(16).split(8):
    new = policy(states[rows]).log_prob(actions[rows])
    ratio = torch.exp(new - old[rows])  # PL477
    gain = advantage[rows].unsqueeze(1).expand_as(ratio)
    update(-(gain * ratio).sum(1).mean() - 0.01 * policy(states[rows]).entropy().sum(1).mean())
""",
    "by hand": HEAD
    + """
def log_prob(mean):
    return -0.5 * ((actions - mean) / log_std.exp()) ** 2 - log_std
past = log_prob(net(states)).detach()
for _ in range(2):
    ratio = torch.exp(log_prob(net(states)) - past)  # PL477
    update(-(ratio * advantage[:, None]).mean())
""",
}
RIGHT = {
    "summed before": HEAD
    + """
old = old.sum(-1)
for _ in range(2):
    ratio = (policy(states).log_prob(actions).sum(-1) - old).exp()
    update(-torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean())
""",
    "one distribution of all numbers": HEAD
    + """
old = old.sum(-1, keepdim=True)
for _ in range(2):
    new = Independent(policy(states), 1).log_prob(actions).unsqueeze(1)
    update(-(torch.exp(new - old) * advantage[:, None]).mean())
""",
    "multiplied afterwards": HEAD
    + """
for _ in range(2):
    ratio = torch.exp(policy(states).log_prob(actions) - old).prod(-1)
    update(-(ratio * advantage).mean())
""",
    "without a ratio, where only the size of the step differs": HEAD
    + """
for _ in range(2):
    update(-(policy(states).log_prob(actions) * advantage[:, None]).mean())
""",
    "a weight for each number, and a mask of rows": HEAD
    + """
gains, real = torch.randn(16, 2), (torch.arange(16) < 12).float()[:, None]
for _ in range(2):
    ratio = torch.exp(policy(states).log_prob(actions) - old)
    update(-(ratio * real * gains).sum() / real.sum())
""",
    "several agents of one team, each with two numbers": HEAD
    + """
team = torch.randn(5, 4, 3)
with torch.no_grad():
    moves = policy(team).sample()
    past = policy(team).log_prob(moves).sum(-1)
for _ in range(2):
    ratio = torch.exp(policy(team).log_prob(moves).sum(-1) - past)
    update(-(ratio * advantage[:5, None]).mean())
""",
    "steps in time of discrete actions": HEAD
    + """
steps = torch.randn(5, 7, 3)
with torch.no_grad():
    moves = Categorical(logits=net(steps)).sample()
    past = Categorical(logits=net(steps)).log_prob(moves)
for _ in range(2):
    ratio = torch.exp(Categorical(logits=net(steps)).log_prob(moves) - past)
    update(-(ratio * advantage[:5, None]).mean())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_ratio_for_each_number_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL477",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_ratios_of_whole_actions_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
