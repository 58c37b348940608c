"""Parameters whose shape was changed while their gradients, or an optimizer's state, have the old one."""

from __future__ import annotations

import pytest

START = """X, Y = torch.randn(64, 4), torch.randn(64, 2)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
def make(cls=torch.optim.Adam, **more):
    return cls(net.parameters(), lr=0.01, **more)
def train(n=4):
    for _ in range(n):
        opt.zero_grad()
        (net(X) - Y).square().mean().backward()
        opt.step()"""
CUT = """kept = net[0].weight.norm(dim=1).topk(5).indices
net[0].weight.data = net[0].weight.data[kept]
net[0].bias.data = net[0].bias.data[kept]
net[2].weight.data = net[2].weight.data[:, kept]"""
FUNCTION = "def cut():\n    " + CUT.replace("\n", "\n    ")
STATE = """for p, pick in ((net[0].weight, kept), (net[0].bias, kept), (net[2].weight, (slice(None), kept))):
    for key, each in opt.state[p].items():
        if each.dim():
            opt.state[p][key] = each[pick]"""
ZEROS = START.replace("zero_grad()", "zero_grad(set_to_none=False)")


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ([START, "opt = make()\ntrain()", CUT], "exp_avg"),
        ([START, "opt = make(torch.optim.SGD, momentum=0.9)\ntrain()", CUT], "momentum_buffer"),
        ([START, "opt = make(torch.optim.RMSprop)\ntrain()", FUNCTION, "cut()\nprint(net)"], "square_avg"),
        (
            [START, "opt = make()", "train()", "w = net[2].weight", "w.data = torch.cat([w.data, w.data[:1]])"],
            "exp_avg",
        ),
    ],
)
def test_a_state_of_the_old_shape_is_said_before_the_step(notebook, cells, kept):
    warned = [notebook.run(text) for text in cells]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"], warning["row"]) == ("parameter-cut", "error", "opt")
    assert f"`{kept}` of it in `opt` still has the shape" in warning["sentence"]["en"]
    grown = "cat" in cells[-1]
    assert ("from (2, 8) to (3, 8)" if grown else "(and 2 more) from (8, 4) to (5, 4)") in warning["sentence"]["en"]
    assert [each["kind"] for each in notebook.run("print('later')")] == ["parameter-cut"]
    if not grown:
        assert notebook.fails("train()") != ""  # what is said comes true
    assert notebook.run("net.zero_grad()\nopt = make()") == []


def test_a_gradient_that_is_only_set_to_zero_is_said(notebook):
    sgd = "opt = make(torch.optim.SGD)\ntrain()"
    assert [notebook.run(text) for text in (ZEROS, sgd)] == [[], []]
    [warning] = notebook.run(CUT)
    assert warning["kind"] == "parameter-cut"
    assert "but its gradient still has the shape (8, 4)" in warning["sentence"]["en"]
    assert notebook.fails("train()") != ""
    assert notebook.run("for p in net.parameters():\n    p.grad = None") == []
    assert notebook.fails("train()") == ""


@pytest.mark.parametrize(
    "cells",
    [
        [START, "opt = make()\ntrain()", f"{CUT}\nopt = make()", "train()"],
        [START, "opt = make()\ntrain()", f"{CUT}\n{STATE}", "train()"],
        [
            START,
            "opt = make(torch.optim.SGD)\ntrain()",
            CUT,
            "train()",
        ],  # the gradients are cleared before the backward
        [START, "opt = make()", CUT, "train()"],  # nothing is kept yet
        [START, "opt = make(torch.optim.Adafactor)\ntrain()", "opt = make()\ntrain()"],
    ],
)
def test_what_was_cut_with_its_state_is_right(notebook, cells):
    for text in cells:
        assert notebook.run(text) == []
