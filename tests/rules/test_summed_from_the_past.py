"""PL995: weights of actions that sum the rewards before them; and sums over time that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
rewards, states = torch.rand(6), torch.randn(6, 4)
net = torch.nn.Linear(4, 3)
policy = torch.distributions.Categorical(logits=net(states))
actions = policy.sample()
log_probs = policy.log_prob(actions)
"""
END = """
loss.backward()
print(net.weight.grad.sum())
"""
WRONG = {
    "filled by index, in a function": """
def returns(r, gamma=0.9):
    out, total = torch.zeros_like(r), 0.0
    for i in range(len(r)):
        total = r[i] + gamma * total  # PL995
        out[i] = total
    return out
loss = -(log_probs * returns(rewards)).sum()
""",
    "a list, normalized": """
returns, running = [], torch.zeros(())
for reward in rewards:
    running = running * 0.99 + reward  # PL995
    returns.append(running)
returns = torch.stack(returns)
returns = (returns - returns.mean()) / (returns.std() + 1e-8)
loss = (-log_probs * returns).mean()
""",
    "log-probabilities one by one": """
sums, g = [], 0
for t in range(6):
    g = rewards[t] + 0.95 * g  # PL995
    sums.append(g)
loss = sum(-p * w for p, w in zip(log_probs, sums))
""",
    "by hand, for several games": """
games, out = torch.rand(6, 5), torch.zeros(6, 5)
total = torch.zeros(5)
for t in range(6):
    total = games[t] + 0.9 * total  # PL995
    out[t] = total
chosen = net(torch.randn(6, 5, 4)).log_softmax(-1).gather(-1, torch.randint(3, (6, 5, 1))).squeeze(-1)
loss = -(chosen * out.detach()).mean()
""",
    "cross entropy, in a method": """
class Agent:
    gamma = 0.9
    def loss(self, r):
        total, back = torch.zeros(()), []
        for i in range(len(r)):
            total = r[i] + self.gamma * total  # PL995
            back.append(total)
        weights = torch.stack(back)
        return (torch.nn.functional.cross_entropy(net(states), actions, reduction="none") * weights).mean()
loss = Agent().loss(rewards)
""",
}
RIGHT = {
    "from the last step": """
out, total = torch.zeros(6), 0.0
for i in reversed(range(6)):
    total = rewards[i] + 0.9 * total
    out[i] = total
loss = -(log_probs * out).sum()
""",
    "put in front": """
out, total = [], 0.0
for r in rewards.flip(0):
    total = r + 0.9 * total
    out.insert(0, total)
loss = -(log_probs * torch.stack(out)).sum()
""",
    "the rewards are in reversed order": """
turned = torch.tensor(rewards.tolist()[::-1])
out, total = [], 0.0
for r in turned:
    total = r + 0.9 * total
    out.append(total)
loss = -(log_probs * torch.stack(out[::-1])).sum() - (log_probs * torch.stack(out).flip(0)).sum()
""",
    "both from the last step": """
turned, out, total = rewards.flip(0), torch.zeros(6), 0.0
for i in range(6):
    total = turned[i] + 0.9 * total
    out[i] = total
loss = -(log_probs.flip(0) * out).sum()
""",
    "a moving average as a baseline": """
average, base = torch.zeros(()), torch.zeros(6)
for i in range(6):
    average = 0.1 * rewards[i] + 0.9 * average
    base[i] = average
loss = -(log_probs * (rewards - base)).sum()
""",
    "traces of gradients": """
trace = torch.zeros(())
for i in range(6):
    trace = log_probs[i] + 0.9 * trace
loss = -(trace * rewards[5])
""",
    "a running sum that is only shown": """
total, seen = torch.zeros(()), []
for i in range(6):
    total = rewards[i] + 0.9 * total
    seen.append(total)
print(torch.stack(seen))
loss = -(log_probs * rewards).sum()
""",
    "an input of the network": """
total, seen = torch.zeros(4), []
for i in range(6):
    total = states[i] + 0.9 * total
    seen.append(total)
loss = -(net(torch.stack(seen)).log_softmax(1)[:, 0] * rewards).sum()
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_sums_of_the_rewards_before_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case] + END, repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_returns_and_other_sums_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case] + END)
