"""Seeds that a function, or the loop itself, sets in each round of a loop that draws."""

from __future__ import annotations

import pytest

START = """import random
import torch.nn.functional as F
torch.manual_seed(5)
X = torch.randn(200, 4)
Y = X.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)
def step(rows):
    opt.zero_grad()
    F.mse_loss(net(X[rows]), Y[rows]).backward()
    opt.step()
def look(n=4, seed=0):
    torch.manual_seed(seed)
    rows = torch.randint(0, 200, (n,))
    with torch.no_grad():
        return net(X[rows])"""
PLANTED = {
    "a look in each epoch": (
        [
            (
                "seen = []\nfor epoch in range(4):\n    for rows in torch.randperm(200)[:50].split(10):\n"
                "        step(rows)\n    seen.append(look())"
            ),
        ],
        "`look` (In [2]) sets the global seed of torch to 0: `torch.randperm(200)` draws the same",
    ),
    "a helper that sets all seeds, NumPy's draws": (
        [
            (
                "def seed_all_of_it(s):\n    random.seed(s); np.random.seed(s)\ndef evaluate():\n"
                "    seed_all_of_it(42)\n    return 1"
            ),
            (
                "for _ in range(3):\n    rows = np.random.permutation(200)[:20]\n"
                "    step(torch.from_numpy(rows))\n    evaluate()"
            ),
        ],
        "`evaluate` (In [3]) sets the global seed of NumPy to 42: `np.random.permutation(200)` draws the same",
    ),
    "the whole epoch in one function": (
        [
            (
                "def train_epoch(seed=7):\n    torch.manual_seed(seed)\n"
                "    for rows in torch.randperm(200)[:40].split(20):\n        step(rows)"
            ),
            "def run(n):\n    for _ in range(n):\n        train_epoch()\nrun(3)",
        ],
        "`train_epoch` (In [3]) sets the global seed of torch to 7",
    ),
    "dropout that is to spread": (
        [
            (
                "draws = []\nwith torch.no_grad():\n    for _ in range(10):\n        torch.manual_seed(0)\n"
                "        draws.append(F.dropout(net[0](X[:5]), 0.5))"
            ),
        ],
        "the loop itself sets the global seed of torch to 0: `F.dropout(",
    ),
    "a shuffled loader": (
        [
            (
                "data = torch.utils.data.TensorDataset(X, Y)\n"
                "loader = torch.utils.data.DataLoader(data, batch_size=50, shuffle=True)\ndef check():\n"
                "    torch.manual_seed(1)\n    return torch.rand(1)"
            ),
            (
                "for epoch in range(2):\n    for x, y in loader:\n"
                "        opt.zero_grad(); F.mse_loss(net[3](torch.relu(net[0](x))), y).backward(); opt.step()\n"
                "    check()"
            ),
        ],
        "the order of `loader` draws the same",
    ),
    "a generator of its own": (
        [
            "g = torch.Generator()\ndef show():\n    g.manual_seed(3)\n    return torch.rand(2, generator=g)",
            "for epoch in range(3):\n    step(torch.randperm(200, generator=g)[:20])\n    show()",
        ],
        "`show` (In [3]) sets the seed of `g` to 3: `torch.randperm(200, generator=g)` draws",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_named_after_the_loop(notebook, name):
    (*cells, last), words = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == []
    [warning] = notebook.run(last)
    assert warning["kind"] == "seeded-each-round"
    assert words in warning["sentence"]["en"]
    assert notebook.run("print('later')") == []


TRAIN = "for epoch in range(3):\n    step(torch.randperm(200)[:20])\n    "


@pytest.mark.parametrize(
    "cells",
    [
        [
            (("torch.manual_seed(0)\n" + TRAIN) + "pass"),
        ],
        [
            (
                "def quiet():\n    with torch.random.fork_rng():\n        torch.manual_seed(0)\n"
                "        return torch.rand(2)"
            ),
            (TRAIN + "quiet()"),
        ],
        [
            (TRAIN + "with torch.random.fork_rng():\n        look()"),
        ],
        [
            (
                "def kept():\n    state = torch.get_rng_state()\n    torch.manual_seed(0)\n"
                "    a = torch.rand(2)\n    torch.set_rng_state(state)\n    return a"
            ),
            (TRAIN + "kept()"),
        ],
        [
            (TRAIN + "look(seed=epoch)"),
        ],
        [
            "for epoch in range(3):\n    torch.manual_seed(100 + epoch)\n    step(torch.randperm(200)[:20])",
        ],
        [
            (
                "for lr in (0.1, 0.01):\n    torch.manual_seed(0)\n    net = nn.Linear(4, 1)\n"
                "    opt = torch.optim.SGD(net.parameters(), lr)\n    for _ in range(3):\n"
                "        step(torch.randperm(200)[:20])"
            ),
        ],
        [
            (TRAIN + "pass\nlook()"),
        ],
        [
            (TRAIN + "if epoch == 0:\n        look()"),
        ],
        [
            ("def noisy():\n    torch.manual_seed(0)\n    return (net[0](X) + torch.randn(200, 8)).mean().item()"),
            (
                "rows = torch.arange(20)\nplain = nn.Linear(4, 1)\n"
                "o = torch.optim.SGD(plain.parameters(), 0.1)\nfor _ in range(3):\n"
                "    o.zero_grad(); plain(X).square().mean().backward(); o.step()\n    noisy()"
            ),
        ],
        [
            "for s in (0.1, 0.2):\n    torch.manual_seed(0)\n    noisy = X + s * torch.randn(200, 4)",
        ],
    ],
)
def test_seeds_that_are_set_on_purpose_are_right(notebook, cells):
    for text in (START, *cells):
        assert notebook.run(text) == []
