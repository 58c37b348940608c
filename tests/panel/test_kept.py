"""Weights that were kept without a copy, and change with the training that goes on."""

from __future__ import annotations

import pytest

START = [
    ("net", "X = torch.randn(8, 4)\nnet = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"),
    (
        "f",
        (
            "def step(model):\n"
            "    opt.zero_grad()\n"
            "    (loss := model(X).square().mean()).backward()\n"
            "    opt.step()\n"
            "    return loss"
        ),
    ),
]
KEEP = "import io\nstate = net.state_dict()\ntorch.save(state, io.BytesIO())"
TRAIN = ("train", "for _ in range(3):\n    low = step(net).item()")


def best(kept, name="best"):
    return (
        "low = 9.0\n"
        "for _ in range(3):\n"
        "    now = step(net).item()\n"
        "    if now < low:\n"
        "        low = now\n"
        f"        {name} = {kept}"
    )


@pytest.mark.parametrize(
    ("cells", "row", "rule"),
    [
        ([("keep", "best = net.state_dict()"), TRAIN], "best", "PL703"),
        ([("keep", "saved = {'model': net.state_dict(), 'epoch': 3}"), TRAIN], "saved", "PL703"),
        ([("keep", "old = [p.detach() for p in net.parameters()]"), TRAIN], "old", "PL703"),
        ([("keep", "before = net.weight.detach()"), TRAIN], "before", "PL702"),
        ([("keep", "w = net.weight.data.numpy()\nw.shape"), TRAIN, ("see", "net.weight.detach().numpy() - w")], "w",
        "PL702"), ([("keep", "start = net.state_dict()\n" + TRAIN[1])], "start", "PL703"),
        ([("keep", best("net.state_dict()"))], "best", "PL703"),
        ([("keep", best("net"))], "best", "PL703"),
        ([("keep", best("{k: v.detach() for k, v in net.state_dict().items()}", "state"))], "state", "PL703"),
        (
            [("fit", "def fit():\n    " + best("net.state_dict()", "w").replace("\n",
            "\n    ") + "\n    return w, low"), ("go", "kept, low = fit()")],
            "kept", "PL703",
        ),
    ],
)  # fmt: skip
def test_it_is_said_when_the_weights_change(notebook, cells, row, rule):
    warned = [notebook.run(text, cell) for cell, text in (*START, *cells)]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["row"], warning["rule"], warning["level"]) == (
        "kept-by-reference",
        row,
        rule,
        "silent",
    )
    assert notebook.run(f"import copy\n{row} = copy.deepcopy({row})", "copy") == []
    assert notebook.run(TRAIN[1], "train") == []


@pytest.mark.parametrize(
    "cells",
    [
        [("keep", "import copy\nbest = copy.deepcopy(net.state_dict())"), TRAIN, ("load", "net.load_state_dict(best)")],
        [("keep", "best = {k: v.clone() for k, v in net.state_dict().items()}"), TRAIN, ("load",
        "net.load_state_dict(best)"), TRAIN], [("save", KEEP), TRAIN, ("save", "torch.save(state, io.BytesIO())")],
        [("save", "for n in range(4):\n    step(net)\n    if n % 2:\n        " + KEEP.replace("\n", "\n        "))],
        [("see", "state = net.state_dict()\nprint(list(state))"), TRAIN],
        [("see", "w = net.weight.detach().numpy()\nprint(w.mean())"), TRAIN, ("see",
        "w = net.weight.detach().numpy()\nprint(w.mean())")], [("names",
        "named = dict(net.named_parameters())\nall_of_them = list(net.parameters())\nw = net.weight"), TRAIN], [("name",
        "model = net\nmodel(X).shape"), TRAIN], [("other",
        "twin = nn.Linear(4, 1)\nstate = net.state_dict()\ntwin.load_state_dict(state)"), TRAIN], [("old",
        "old = net.state_dict()"), ("new", "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"),
        TRAIN], [("best", "import copy\n" + best("copy.deepcopy(net)")), TRAIN],
    ],
)  # fmt: skip
def test_a_copy_and_what_is_only_looked_at_are_not(notebook, cells):
    assert [notebook.run(text, cell) for cell, text in (*START, *cells)] == [[]] * (len(START) + len(cells))


def test_weights_without_memory_are_shared_with_nobody(notebook):
    """Every tensor of the meta device has the address 0, and so has a tensor whose address is not read."""
    notebook.run("net = nn.Linear(2, 1, device='meta')", "meta")
    assert notebook.run("a = torch.ones(1, requires_grad=True)\nb = [torch.ones(2, device='meta')]", "a") == []
    assert notebook.run("net.weight = nn.Parameter(torch.empty(1, 2, device='meta'))", "changed") == []
    assert notebook.run("with torch.no_grad():\n    net.weight.add_(1)", "written") == []
