"""PL665: the weights of the worst round are kept; and choices of weights that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import copy, torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(60, 4), torch.randint(3, (60,))
held, held_y = torch.randn(40, 4), torch.randint(3, (40,))
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
END = """
net.load_state_dict(kept if isinstance(kept, dict) else kept.state_dict())
with torch.no_grad():
    print(F.cross_entropy(net(held), held_y).item())
"""
WRONG = {
    "a loss, in one line": """
best, kept = 0.0, None
for _ in range(8):
    train()
    with torch.no_grad():
        value = F.cross_entropy(net(held), held_y).item()
    if value > best:  # PL665
        best, kept = value, copy.deepcopy(net.state_dict())
""",
    "a sum over batches, in a function": """
def evaluate(model):
    total, hits = 0.0, 0
    with torch.no_grad():
        for a, b in zip(held.split(10), held_y.split(10)):
            scores = model(a)
            total += F.cross_entropy(scores, b).item() * len(a)
            hits += (scores.argmax(1) == b).sum().item()
    return total / len(held), hits / len(held)
best = float("-inf")
for _ in range(8):
    train()
    value, accuracy = evaluate(net)
    if best < value:  # PL665
        best = value
        kept = copy.deepcopy(net)
""",
    "an accuracy that is lower": """
def accuracy():
    with torch.no_grad():
        return (net(held).argmax(1) == held_y).float().mean().item()
best = float("inf")
for _ in range(8):
    train()
    score = accuracy()
    if score < best:  # PL665
        best = score
        kept = {k: v.clone() for k, v in net.state_dict().items()}
""",
    "the other branch": """
best, waited, kept = float("inf"), 0, copy.deepcopy(net.state_dict())
for _ in range(8):
    train()
    losses = []
    with torch.no_grad():
        for a, b in zip(held.split(20), held_y.split(20)):
            losses.append(F.cross_entropy(net(a), b).item())
    mean = sum(losses) / len(losses)
    if mean <= best and waited >= 0:  # PL665
        waited += 1
    else:
        best = mean
        kept = copy.deepcopy(net.state_dict())
""",
    "tensors are compared": """
best = torch.zeros(())
for _ in range(8):
    train()
    with torch.no_grad():
        error = F.nll_loss(net(held).log_softmax(1), held_y)
    if error > best:  # PL665
        best = error
        kept = copy.deepcopy(net.state_dict())
""",
}
RIGHT = {
    "a smaller loss, a larger accuracy": """
best, top = float("inf"), 0.0
for _ in range(8):
    train()
    with torch.no_grad():
        value = F.cross_entropy(net(held), held_y).item()
        score = (net(held).argmax(1) == held_y).float().mean().item()
    if value < best:
        best = value
        kept = copy.deepcopy(net.state_dict())
    if score > top:
        top = score
        kept = copy.deepcopy(net.state_dict())
""",
    "a likelihood, a share of errors": """
best, fewest = float("-inf"), 1.0
for _ in range(8):
    train()
    with torch.no_grad():
        likelihood = -F.cross_entropy(net(held), held_y).item()
        errors = 1 - (net(held).argmax(1) == held_y).float().mean().item()
        gain = (-F.cross_entropy(net(held), held_y)).item()
    if likelihood > best:
        best = likelihood
        kept = copy.deepcopy(net.state_dict())
    if errors < fewest:
        fewest = errors
        kept = copy.deepcopy(net.state_dict())
    if gain > best:
        best = gain
        kept = copy.deepcopy(net.state_dict())
""",
    "a larger loss counts against it": """
best, waited = float("inf"), 0
for _ in range(8):
    train()
    with torch.no_grad():
        value = F.cross_entropy(net(held), held_y).item()
    if value > best:
        waited += 1
    else:
        best, waited = value, 0
        kept = copy.deepcopy(net.state_dict())
""",
    "the worst case is looked for": """
worst = 0.0
for _ in range(8):
    train()
    with torch.no_grad():
        value = F.cross_entropy(net(held), held_y).item()
    if value > worst:
        worst = value
        kept = copy.deepcopy(net.state_dict())
""",
    "the strongest of several attacks": """
best, kept = 0.0, copy.deepcopy(net)
change = torch.zeros(60, 4, requires_grad=True)
for _ in range(5):
    value = F.cross_entropy(net(x + change), y)
    change.grad = None
    value.backward()
    if value.item() > best:
        best = value.item()
        strongest = copy.deepcopy(change)
    change.data += 0.1 * change.grad.sign()
print(strongest.mean())
""",
    "a network that is to mislead another": """
noise = nn.Linear(4, 4)
ascent = torch.optim.SGD(noise.parameters(), lr=0.1)
train()
net.requires_grad_(False)
best, kept = 0.0, copy.deepcopy(net)
for _ in range(5):
    value = F.cross_entropy(net(x + noise(x)), y)
    ascent.zero_grad()
    (-value).backward()
    ascent.step()
    now = value.item()
    if now > best:
        best = now
        found = copy.deepcopy(noise.state_dict())
print(found["bias"].sum())
""",
    "the hardest examples": """
top, kept = 0.0, copy.deepcopy(net)
for row in range(8):
    train()
    with torch.no_grad():
        value = F.cross_entropy(net(held[row : row + 1]), held_y[row : row + 1]).item()
    if value > top:
        top = value
        example = held[row].clone()
print(example.sum())
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_of_the_worst_round_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case] + END, repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_weights_of_the_best_round_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case] + END)
