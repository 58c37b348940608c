"""Schedulers that go on with an optimizer which the notebook has replaced."""

from __future__ import annotations

import pytest

START = """X, Y = torch.randn(64, 4), torch.randn(64, 1)
S = torch.optim.lr_scheduler
def build(n):
    return nn.Sequential(nn.Linear(4, n), nn.Tanh(), nn.Linear(n, 1))
def train(net, opt, sched=None, n=6, value=False):
    for _ in range(n):
        opt.zero_grad()
        loss = (net(X) - Y).square().mean()
        loss.backward()
        opt.step()
        if sched is not None:
            sched.step(loss.item()) if value else sched.step()"""
FIRST = "net = build(4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)"
AGAIN = "net = build(8)\nopt = torch.optim.Adam(net.parameters(), lr=0.01)"
OWN = """class Warmup:
    def __init__(self, optimizer, steps):
        self.optimizer, self.steps, self.done = optimizer, steps, 0
    def step(self):
        self.done += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 * min(1, self.done / self.steps)"""
PLANTED = {
    "a new network and optimizer": [
        FIRST,
        "sched = S.StepLR(opt, 10)",
        "train(net, opt, sched)",
        AGAIN,
        "train(net, opt, sched)",
    ],
    "on a plateau, in one cell": [
        FIRST,
        "sched = S.ReduceLROnPlateau(opt, patience=1)",
        "train(net, opt, sched, value=True)",
        f"{AGAIN}\ntrain(net, opt, sched, n=20, value=True)",
    ],
    "the same network": [
        FIRST,
        "sched = S.CosineAnnealingLR(opt, 30)",
        "train(net, opt, sched)",
        "opt = torch.optim.AdamW(net.parameters(), lr=0.01)",
        "train(net, opt, sched)",
    ],
    "in a dict": [
        f"{FIRST}\nrun = {{'opt': opt, 'sched': S.ExponentialLR(opt, 0.9)}}",
        "train(net, run['opt'], run['sched'])",
        "net = build(8)\nrun['opt'] = torch.optim.SGD(net.parameters(), lr=0.1)",
        "train(net, run['opt'], run['sched'])",
    ],
    "one of its own": [
        OWN,
        FIRST,
        "sched = Warmup(opt, 20)",
        "train(net, opt, sched)",
        AGAIN,
        "train(net, opt, sched)",
    ],
    "after a warm-up, in sequence": [
        FIRST,
        "sched = S.SequentialLR(opt, [S.ConstantLR(opt, 0.1, 3), S.ExponentialLR(opt, 0.9)], [3])",
        "train(net, opt, sched)",
        AGAIN,
        "print(opt)",
        "train(net, opt, sched)",
    ],
}


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_named_after_the_cell_that_trains(notebook, name):
    *cells, last = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == []
    [warning] = notebook.run(last)
    assert warning["kind"] == "stale-scheduler"
    assert "still belongs to an earlier optimizer" in warning["sentence"]["en"]
    assert "stays 0.1." in warning["sentence"]["en"] or "stays 0.01." in warning["sentence"]["en"]
    assert [each["kind"] for each in notebook.run("print('later')")] == ["stale-scheduler"]
    assert "stale-scheduler" not in {each["kind"] for each in notebook.run("sched = run = None")}


@pytest.mark.parametrize(
    "cells",
    [
        [
            FIRST,
            "sched = S.StepLR(opt, 10)",
            "train(net, opt, sched)",
            f"{AGAIN}\nsched = S.StepLR(opt, 10)",
            "train(net, opt, sched)",
        ],
        [
            FIRST,
            "sched = S.StepLR(opt, 10)",
            "train(net, opt, sched)",
            AGAIN,
            "train(net, opt)",
        ],
        [
            "a, b = build(4), build(4)\noa, ob = (torch.optim.SGD(each.parameters(), 0.1) for each in (a, b))",
            "sa = S.StepLR(oa, 3)",
            "train(a, oa, sa)\ntrain(b, ob)",
            "train(b, ob)",
            "train(a, oa, sa)\ntrain(b, ob)",
        ],
        [
            FIRST,
            "sched = S.StepLR(opt, 10)",
            ("train(net, opt, sched)\n" + AGAIN),
            "train(net, opt)",
        ],
        [
            (
                "for n in (4, 8):\n    net = build(n)\n    opt = torch.optim.SGD(net.parameters(), 0.1)\n"
                "    sched = S.StepLR(opt, 2)\n    train(net, opt, sched)"
            ),
        ]
        * 2,
        [
            (
                "class Trainer:\n    def __init__(self, optimizer, net):\n"
                "        self.optimizer, self.net, self.n = optimizer, net, 0\n    def fit(self):\n"
                "        self.n += 1\n        self.optimizer.zero_grad()\n"
                "        self.net(X).sum().backward()\n        self.optimizer.step()"
            ),
            "net = build(4)\nt = Trainer(torch.optim.SGD(net.parameters(), 0.1), net)",
            "t.fit()",
            "other = build(4)\nopt = torch.optim.SGD(other.parameters(), 0.1)",
            "t.fit()\ntrain(other, opt)",
        ],
    ],
)
def test_a_rate_that_belongs_to_what_trains_is_right(notebook, cells):
    for text in (START, *cells):
        assert notebook.run(text) == []
