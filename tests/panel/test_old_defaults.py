"""Functions whose default is a model that a later cell has replaced."""

from __future__ import annotations

import pytest

DATA = "X, Y = torch.randn(24, 2), torch.randint(0, 2, (24,))"
NET = "net = nn.Linear(2, 2)"
SCORE = "def accuracy(X, Y, model=net):\n    return (model(X).argmax(1) == Y).float().mean().item()"
WIDER = "net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))"


@pytest.mark.parametrize(
    ("score", "call"),
    [
        (SCORE, "accuracy(X, Y)"),
        (SCORE, "print('test', accuracy(X[:9], Y[:9]))"),
        (
            "def accuracy(X, Y, *, model=net):\n    return (model(X).argmax(1) == Y).sum()",
            "[accuracy(X, Y) for _ in 'ab']",
        ),
    ],
)
def test_a_model_that_was_replaced(notebook, score, call):
    for text in (DATA, NET, score, call):
        assert notebook.run(text, text) == []
    assert notebook.run(WIDER, "wider") == []
    [warning] = notebook.run(call, "again")
    assert (warning["kind"], warning["row"], warning["level"]) == ("old-default", "net", "silent")
    assert warning["sentence"]["en"] == (
        "`accuracy` still works with the `net` of In [3]: its default `model=net` was taken when In [4] ran, and "
        "In [6] has made another `net`. In [7] used the old one."
    )
    assert notebook.run(score, "defined") == []
    assert notebook.run(call, "right") == []


def test_an_optimizer_that_was_made_anew(notebook):
    notebook.run(DATA, "data")
    notebook.run(f"{NET}\nopt = torch.optim.SGD(net.parameters(), lr=0.1)", "net")
    step = "def step(x, y, opt=opt):\n    opt.zero_grad()\n    nn.functional.cross_entropy(net(x), y).backward()"
    step += "\n    opt.step()"
    notebook.run(step, "step")
    notebook.run("opt = torch.optim.Adam(net.parameters())", "other")
    assert "old-default" in [each["kind"] for each in notebook.run("step(X, Y)", "train")]


@pytest.mark.parametrize(
    "cells",
    [
        [SCORE, WIDER, "accuracy(X, Y, net)", "accuracy(X, Y, model=net)"],  # given
        [SCORE, WIDER, "net(X).sum()"],  # never called
        ["old = net", SCORE, WIDER, "accuracy(X, Y), accuracy(X, Y, old)"],  # kept under another name
        [SCORE, "accuracy(X, Y)", "net.train()", "accuracy(X, Y)"],  # the same
        [WIDER, SCORE, "accuracy(X, Y)"],
    ],
)
def test_what_is_right_draws_nothing(notebook, cells):
    for text in (DATA, NET, *cells):
        assert notebook.run(text, text) == []
