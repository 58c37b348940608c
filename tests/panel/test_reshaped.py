"""A tensor that has lost or gained an axis of size 1 between two trainings with the same code."""

from __future__ import annotations

import pytest

START = """torch.manual_seed(0)
X, Y = torch.randn(30, 4), torch.randn(30, 1)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
def step(x, y):
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()
    return loss.item()
def fit(y, rounds=2):
    for _ in range(rounds):
        step(X, y)"""
ROUND = "for _ in range(2):\n    opt.zero_grad()\n    ((net(X) - Y) ** 2).mean().backward()\n    opt.step()"


@pytest.mark.parametrize(
    ("train", "change"),
    [
        ("fit(Y)", "Y = torch.randn(30)"),
        ("fit(y=Y, rounds=3)", "Y = Y.squeeze(1).exp()"),
        ("print(step(X, Y))", "Y = Y[:, 0]"),
        (ROUND, "Y = torch.tensor(np.ones(30), dtype=torch.float32)"),
    ],
)
def test_it_is_noted_when_the_same_training_runs_again(notebook, train, change):
    assert [notebook.run(text, at) for text, at in ((START, "a"), (train, "b"), (change, "c"))] == [[], [], []]
    [warning] = notebook.run(train, "b")
    assert (warning["kind"], warning["rule"], warning["level"]) == ("shape-changed", "PL401", "note")
    sentence = warning["sentence"]["en"]
    assert "`Y` had shape (30, 1) when In [3] trained with it; In [4] made it anew with shape (30,)" in sentence
    assert warning["fix"]["en"].endswith("`Y = Y.reshape(30, 1)`.")
    assert [(each["count"], each["role"]) for each in warning["cells"]] == [(4, "changed")]
    assert notebook.run("Y = Y.reshape(30, 1)", "d") == []
    assert notebook.run(train, "b") == []


@pytest.mark.parametrize(
    "cells",
    [
        ["fit(Y)", "Y = torch.randn(30)", "Y.mean()"],
        ["Y = torch.randn(30)", "Y = Y.unsqueeze(1)", "fit(Y)"],  # nothing trained with the first shape
        ["fit(Y)", "Y = torch.randn(30)", "Y = Y.unsqueeze(1)", "fit(Y)"],
        ["fit(Y)", "Y = torch.randn(30)", "fit(Y.unsqueeze(1))"],
        ["fit(Y)", "X, Y = torch.randn(20, 4), torch.randn(20, 1)", "fit(Y)"],
        ["print(Y.std())", "Y = torch.randn(30)", "print(Y.std())"],  # no training
    ],
)
def test_other_changes_and_other_code_are_not(notebook, cells):
    assert [notebook.run(text, str(at)) for at, text in enumerate((START, *cells))] == [[]] * (len(cells) + 1)
