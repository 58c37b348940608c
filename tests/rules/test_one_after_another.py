"""Signals that need more than the first rounds: the lowest of several metrics, a network carried through folds that
functions train, samples too large to be kept, a sum that is begun anew, batches that no table has, names in a
state that have a prefix of their own.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

METRICS = """import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.zeros(32)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
wait = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)%s
for wrong in (%s):
    opt.zero_grad()
    (net(x).squeeze(1) - y).square().mean().backward()
    opt.step()
    said = torch.arange(32).lt(wrong).float()
    share = (said == y).float().mean().item()
    wait.step(%s)
"""

PATHS = """import torch
from torch.func import vmap
torch.manual_seed(0)
def worth(start, strike):
    return torch.relu(start + torch.randn(5).sum() - strike)
start = torch.full((20000,), 9.0)
paid = vmap(worth, in_dims=(0, None), randomness="%s")(start, %s)%s
print(paid.mean().item(), paid.std().item())
"""

FOLDS = """import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(24, 3), torch.randn(24, 1)
def fit(net, x, y):
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(2):
        for rows in torch.randperm(len(x)).split(8):
            loss = (net(x[rows]) - y[rows]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
@torch.no_grad()
def error(net, x, y):
    return (net(x) - y).square().mean().item()%s
parts = torch.arange(24).chunk(3)
%s
"""

CARRIED = """net = nn.Linear(3, 1)
for k in range(3):
    rest = torch.cat([part for place, part in enumerate(parts) if place != k])
    mean = x[rest].mean(0)
    fit(net, x[rest] - mean, y[rest])
    print(error(net, x[parts[k]] - mean, y[parts[k]]))
"""

ANEW = """for k in range(3):
    net = nn.Linear(3, 1)
    rest = torch.cat([part for place, part in enumerate(parts) if place != k])
    fit(net, x[rest], y[rest])
    print(error(net, x[parts[k]], y[parts[k]]))
"""

ONE_SPLIT = """net = nn.Linear(3, 1)
rest = torch.cat(parts[1:])
for _ in range(3):
    fit(net, x[rest], y[rest])
    print(error(net, x[parts[0]], y[parts[0]]))
"""

COUNTS = """import torch
torch.manual_seed(0)
for epoch in range(3):
    right = torch.zeros((), dtype=torch.%s)
    for _ in range(20):
        right += torch.ones(%d).eq(1).sum()%s
    print(right.item())
"""

TEXTS = """import math
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
def written(count, last):
    texts = torch.zeros(count, 12, dtype=torch.long)
    for t in range(1, 12):
        texts[:, t] = (texts[:, t - 1] + torch.randint(1, 3, (count,))) %% 9
    return texts + last
def cost(model, texts):
    return nn.functional.cross_entropy(model(texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())
for _ in range(30):
    opt.zero_grad()
    cost(net, written(20, 0)).backward()
    opt.step()
kept = [written(10, 0) for _ in range(4)] + [torch.zeros(1, 12, dtype=torch.long)]
@torch.no_grad()
def perplexity(model, batches):
    %s
print(perplexity(net, kept))
"""

OF_EACH = """total = 0.0
    for texts in batches:
        total += math.exp(cost(model, texts).item())
    return total / len(batches)  # PL774"""

OF_ALL = """total, count = 0.0, 0
    for texts in batches:
        total += cost(model, texts).item() * texts[:, 1:].numel()
        count += texts[:, 1:].numel()
    return math.exp(total / count)"""

OF_DRAWS = """total = 0.0
    for _ in range(5):
        total += math.exp(cost(lambda x: model(x) + torch.randn(9), batches[0]).item())
    return total / 5"""

PARTS = """import torch
from torch import nn
torch.manual_seed(0)
def build():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = build()
    def forward(self, x):
        return self.net(x)
kept = {"model": %s.state_dict(), "epoch": 3}
served = build()
served.load_state_dict(kept["model"], strict=False)%s
print(served(torch.randn(5, 3)).sum().item())
"""

BY_NUMPY = """import numpy as np, torch
from torch import nn
torch.manual_seed(0)
rng = np.random.default_rng(0)
x, y = torch.randn(60, 3), torch.randn(60, 1)
folds = %s
def train(model, opt, x, y):
    for _ in range(5):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scores = []
for fold in range(3):
%s
    with torch.no_grad():
        scores.append(nn.functional.mse_loss(net(x[out]), y[out]).item())%s
print(sum(scores) / 3)
"""
OTHERS = """    out = folds[fold]
    rest = np.concatenate([folds[k] for k in range(3) if k != fold])
    train(net, opt, x[rest], y[rest])"""
BEGUN = """    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
MASKED = """    out = folds == fold
    train(net, opt, x[~out], y[~out])"""
LISTED = """    out = folds[fold]
    train(net, opt, x[[row for row in range(60) if row not in out]], y[[row for row in range(60) if row not in out]])"""

WRONG = {
    "folds that NumPy drew": BY_NUMPY % ("np.array_split(rng.permutation(60), 3)", OTHERS, "  # PL982"),
    "folds as numbers of each row": BY_NUMPY % ("np.arange(60) % 3", MASKED, "  # PL982"),
    "folds as lists": BY_NUMPY % ("[list(range(k, 60, 3)) for k in range(3)]", LISTED, "  # PL982"),
    "the lowest accuracy comes in the fifth epoch": METRICS % ("  # PL664", "12, 11, 10, 9, 14, 8", "share"),
    "samples of which only the mean and the spread are kept": PATHS % ("same", "5.0", "  # PL850"),
    "batches of the standardised rows of a fold, an optimizer in each": FOLDS % ("  # PL982", CARRIED),
    "a count that each epoch begins anew": COUNTS % ("bfloat16", 33, "  # PL803"),
    "names with the prefix of the module around, in an entry": PARTS % ("Held()", "  # PL627"),
    "perplexities of batches that no table has, by the function that trains": TEXTS % OF_EACH,
}

RIGHT = {
    "a network for each fold that NumPy drew": BY_NUMPY
    % ("np.array_split(rng.permutation(60), 3)", BEGUN + OTHERS, ""),
    "parts of a stream, each measured before it trains": BY_NUMPY
    % (
        "np.array_split(np.arange(60), 4)",
        "    train(net, opt, x[folds[fold]], y[folds[fold]])\n    out = folds[fold + 1]",
        "",
    ),
    "one part held out throughout, by an array": BY_NUMPY
    % (
        "np.array_split(rng.permutation(60), 4)",
        "    out = folds[3]\n    train(net, opt, x[folds[fold]], y[folds[fold]])",
        "",
    ),
    "a share of mistakes": METRICS % ("", "13, 12, 14, 20, 13", "1 - share"),
    "paths that draw their own numbers": PATHS % ("different", "5.0", ""),
    "samples that are all 0": PATHS % ("same", "900.0", ""),
    "a network for each fold": FOLDS % ("", ANEW),
    "one split, measured again and again": FOLDS % ("", ONE_SPLIT),
    "counts that stay exact": COUNTS % ("bfloat16", 8, ""),
    "names that fit": PARTS % ("build()", ""),
    "a perplexity of all texts": TEXTS % OF_ALL,
    "the mean over draws for the same texts": TEXTS % OF_DRAWS,
    "a count in a type that can count": COUNTS % ("float32", 33, ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_they_are_found_and_repaired(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
