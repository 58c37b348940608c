"""PL959: an entropy with plus in a policy's loss, however the two are written; and losses in which it is right."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal

F = nn.functional
torch.manual_seed(0)
net, value = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Linear(3, 1)
log_std = nn.Parameter(torch.zeros(4))
opt = torch.optim.Adam([*net.parameters(), *value.parameters(), log_std], lr=1e-2)

def step(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()

def judged(s, a):
    return (a == s.argmax(1)).float()
"""
LOOP = """
for _ in range(3):
    s = torch.randn(8, 3)
    dist = Categorical(logits=net(s))
    a = dist.sample()
    r = judged(s, a)
"""
FOUND = {
    "a mean of entropies": LOOP
    + """
    step(-(dist.log_prob(a) * (r - r.mean())).mean() + 0.05 * dist.entropy().mean())  # here
""",
    "a negative coefficient that is subtracted": LOOP
    + """
    bonus = -0.05 * dist.entropy().mean()  # here
    step(-(dist.log_prob(a) * (r - r.mean())).mean() - bonus)
""",
    "with a critic, in a function": """
def losses(dist, a, adv):
    pg = (-dist.log_prob(a) * adv).sum()
    entropy = dist.entropy().sum()  # here
    return pg, entropy
"""
    + LOOP
    + """
    v = value(s).squeeze(1)
    pg, entropy = losses(dist, a, (r - v).detach())
    loss = pg + 0.5 * F.mse_loss(v, r)
    loss += 0.01 * entropy
    step(loss)
""",
    "by hand, with an index": """
for _ in range(3):
    s = torch.randn(8, 3)
    logp = F.log_softmax(net(s), dim=1)
    p = logp.exp()
    a = torch.multinomial(p, 1).squeeze(1)
    r = judged(s, a)
    chosen = logp[torch.arange(8), a]
    loss = -(chosen * (r - 0.3)).mean()
    loss = loss + torch.tensor(0.02) * -(p * logp).sum(1).mean()  # here
    step(loss)
""",
    "the negative entropy is subtracted": """
for _ in range(3):
    s = torch.randn(8, 3)
    p = torch.softmax(net(s), dim=1)
    a = torch.multinomial(p, 1)
    r = judged(s, a[:, 0])
    negative = (p * torch.log(p + 1e-8)).sum(1)  # here
    step((-torch.log(p.gather(1, a).squeeze(1)) * (r - 0.3) - 0.02 * negative).mean())
""",
    "cross entropy of the drawn action": LOOP
    + """
    ce = F.cross_entropy(dist.logits, a, reduction="none")
    step((ce * (r - 0.3)).mean() + 0.05 * dist.entropy().mean())  # here
""",
    "clipped, with actions of before": """
for _ in range(2):
    s = torch.randn(8, 3)
    with torch.no_grad():
        old = Categorical(logits=net(s))
        a = old.sample()
        before, adv = old.log_prob(a), judged(s, a) - 0.3
    for rows in torch.randperm(8).split(4):
        dist = Categorical(logits=net(s[rows]))
        ratio = (dist.log_prob(a[rows]) - before[rows]).exp()
        gain = torch.min(ratio * adv[rows], ratio.clamp(0.8, 1.2) * adv[rows]).mean()
        step(-gain + 0.01 * dist.entropy().mean())  # here
""",
    "an episode, with returns as numbers": """
for _ in range(3):
    scores, rewards, entropies = [], [], []
    for t in range(4):
        s = torch.randn(3)
        dist = Categorical(logits=net(s))
        a = dist.sample()
        scores.append(dist.log_prob(a))
        entropies.append(dist.entropy())  # here
        rewards.append(float(a.item() == s.argmax().item()) - 0.3)
    loss = sum(-score * r for score, r in zip(scores, rewards)) + 0.05 * torch.stack(entropies).mean()
    step(loss)
""",
    "a normal distribution": """
for _ in range(3):
    s = torch.randn(8, 3)
    dist = Normal(net(s), log_std.exp())
    a = dist.sample()
    r = -(a[:, :3] - s).square().sum(1)
    step(-(dist.log_prob(a).sum(1) * (r - r.mean())).mean() + 0.01 * dist.entropy().sum(1).mean())  # here
""",
    "a normal distribution of independent parts": """
for _ in range(3):
    s = torch.randn(8, 3)
    dist = Independent(Normal(net(s), F.softplus(log_std)), 1)
    a = dist.sample()
    r = -(a[:, :3] - s).square().sum(1)
    step(-(dist.log_prob(a) * (r - r.mean())).mean() + 0.01 * dist.entropy().mean())  # here
""",
    "two choices each": """
for _ in range(3):
    s = torch.randn(8, 3)
    dist = Bernoulli(logits=net(s))
    a = dist.sample()
    r = (a[:, :3] == (s > 0)).float().mean(1)
    step((-dist.log_prob(a).sum(1) * (r - r.mean())).mean() + 0.01 * dist.entropy().sum(1).mean())  # here
""",
}
RIGHT = {
    "minus": FOUND["a mean of entropies"].replace("+ 0.05", "- 0.05"),
    "a negative coefficient": FOUND["a mean of entropies"].replace("+ 0.05", "+ -0.05"),
    "a negative coefficient in a tensor": FOUND["by hand, with an index"].replace("tensor(0.02)", "tensor(-0.02)"),
    "the negative entropy": FOUND["the negative entropy is subtracted"].replace("- 0.02", "+ 0.02"),
    "clipped": FOUND["clipped, with actions of before"].replace("+ 0.01", "- 0.01"),
    "an episode": FOUND["an episode, with returns as numbers"].replace("+ 0.05", "- 0.05"),
    "a normal distribution": FOUND["a normal distribution"].replace("+ 0.01", "- 0.01"),
    "a coefficient of 0": FOUND["a mean of entropies"].replace("+ 0.05", "+ 0.0"),
    "an objective that is turned around": LOOP
    + """
    gain = (dist.log_prob(a) * (r - r.mean())).mean() + 0.05 * dist.entropy().mean()
    step(-gain)
""",
    "no action is scored": """
for _ in range(3):
    s = torch.randn(8, 3)
    dist = Categorical(logits=net(s))
    seen = dist.sample()
    step(dist.entropy().mean())
""",
    "labels, and the entropy of what has none": """
for _ in range(3):
    s, y = torch.randn(8, 3), torch.randint(4, (8,))
    w = torch.rand(8)
    rows = torch.multinomial(w, 8, replacement=True)
    dist = Categorical(logits=net(s[rows]))
    step((-dist.log_prob(y[rows]) * w).mean() + 0.1 * dist.entropy().mean())
""",
    "weighted labels drawn by another network": """
teacher = nn.Linear(3, 4)
for _ in range(3):
    s = torch.randn(8, 3)
    y = Categorical(logits=teacher(s)).sample()
    other = Categorical(logits=net(torch.randn(8, 3)))
    step(F.cross_entropy(net(s), y) + 0.1 * other.entropy().mean())
""",
    "the entropy of the mean is larger": LOOP
    + """
    mean = dist.probs.mean(0)
    whole = -(mean * mean.log()).sum()
    step(-(dist.log_prob(a) * (r - r.mean())).mean() + 0.05 * (dist.entropy().mean() - whole))
""",
    "the entropy of another distribution": LOOP
    + """
    gates = torch.softmax(value(s) * torch.arange(4.0), 1)
    step(-(dist.log_prob(a) * (r - 0.3)).mean() - 0.1 * (gates * gates.log()).sum(1).mean())
""",
    "an optimizer that goes up": (LOOP + FOUND["a mean of entropies"][len(LOOP) :]).replace(
        "\nfor _", "\nopt = torch.optim.Adam(net.parameters(), lr=1e-2, maximize=True)\nfor _"
    ),
    "only measured": LOOP
    + """
    with torch.no_grad():
        entropy = dist.entropy().mean()
    step(-(dist.log_prob(a) * (r - r.mean())).mean() + 0.05 * entropy)
""",
    "noise in a regression": """
for _ in range(3):
    s = torch.randn(8, 3)
    y = torch.cat([s, s[:, :1]], 1) + 0.1 * torch.randn(8, 4)
    dist = Normal(net(s), log_std.exp())
    w = torch.rand(8)
    step(-(dist.log_prob(y).sum(1) * w).mean() + 0.01 * dist.entropy().sum(1).mean())
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_an_entropy_with_plus_is_found_where_it_is_computed(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text))]
    assert ("PL959", 1 + text[: text.index("# here")].count("\n")) in found


@pytest.mark.parametrize("name", RIGHT)
def test_an_entropy_with_minus_is_not(name: str) -> None:
    assert "PL959" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
