"""Hooks that are registered twice, because the cell that registers them was run again."""

from __future__ import annotations

import pytest

START = (
    "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))\nx, scale, seen = torch.ones(2, 3), 0.5, []\n"
    "def keep(module, inputs, output):\n    seen.append(output.detach())\n"
    "def add(amount):\n    return lambda module, inputs, output: output + amount\n"
    "def halve(gradient):\n    return gradient / 2"
)
LATE = "h = net[0].register_forward_hook(lambda m, i, o: o * scale)"


@pytest.mark.parametrize(
    ("first", "again", "row", "words"),
    [
        ("handle = net[0].register_forward_hook(keep)", "", "net\x1f0",
         "`net.0` (Linear) has one forward hook twice from In [3], and again from In [4]"),
        (f"scale = 0.2\n{LATE}", f"scale = 0.4\n# other\n{LATE}", "net\x1f0", "has one forward hook twice"),
        ("net[2].register_forward_pre_hook(lambda m, i: None)", "", "net\x1f2", "has one forward pre-hook twice"),
        ("h = net[0].register_forward_hook(add(0.2))", "h = net[0].register_forward_hook(add(0.4))", "net\x1f0",
        "one forward hook twice"), ("net[0].register_forward_hook(add(0.2))", "", "net\x1f0",
        "has one forward hook twice"), ("hs = [each.register_full_backward_hook(lambda m, i, o: None) for each in net]",
        "", "net\x1f0", "has one backward hook twice"), ("h = net[0].weight.register_hook(halve)", "",
        "net\x1f0\x1fweight", "`net.0.weight` (Parameter) has one backward hook twice"),
        ("h = net[0].weight.register_post_accumulate_grad_hook(lambda p: None)", "", "net\x1f0\x1fweight",
        "accumulate-grad hook twice"),
        ("w = w if 'w' in globals() else torch.ones(3, requires_grad=True)\nh = w.register_hook(halve)", "", "w",
        "`w` (Tensor) has one backward hook twice"),
        ("hs = globals().get('hs', [])\nhs.append(net.register_forward_hook(keep))", "", "net",
        "has one forward hook twice"),
    ],
)  # fmt: skip
def test_a_cell_that_registers_and_is_run_again(notebook, first, again, row, words):
    notebook.run(START, "start")
    assert notebook.run(first, "hook") == []
    warnings = notebook.run(again or first, "hook")
    assert {each["kind"] for each in warnings} == {"hooked-twice"}
    assert warnings[0]["row"] == row
    assert words in warnings[0]["sentence"]["en"]
    assert [each["count"] for each in warnings[0]["cells"]] == [3, 4]
    assert [each["row"] for each in notebook.run("net(x)", "use")] == [
        each["row"] for each in warnings
    ]  # as long as it is true
    for each in warnings:  # the fix does what it says
        assert notebook.run(each["fix"]["en"].split("`")[1], "fix") is not None
    assert notebook.run("net(x)", "use") == []


def test_a_third_run_is_counted(notebook):
    notebook.run(START, "start")
    for _ in range(2):
        notebook.run("handle = net.register_forward_hook(keep)", "hook")
    [warning] = notebook.run("handle = net.register_forward_hook(keep)", "hook")
    assert "3 times" in warning["sentence"]["en"]


@pytest.mark.parametrize(
    "cells",
    [
        ["h = net[0].register_forward_hook(keep)", "h.remove()", "h = net[0].register_forward_hook(keep)"],
        ["h = net[0].register_forward_hook(keep)", "h.remove()\nh = net[0].register_forward_hook(keep)"],
        ["h = net[0].register_forward_hook(keep)", "h2 = net[2].register_forward_hook(keep)"],
        ["a = net[0].register_forward_hook(keep)", "b = net[0].register_forward_hook(keep)"],  # both can be removed
        ["a = net[0].register_forward_hook(add(0.2))", "b = net[0].register_forward_hook(add(0.4))"],
        ["net[0].register_forward_hook(add(0.2))", "net[0].register_forward_hook(add(0.4))"],
        ["h = net[0].register_forward_hook(add(0.2))", "h = net[0].register_forward_hook(lambda m, i, o: o.clamp(0))"],
        ["hs = [net[0].register_forward_hook(add(a)) for a in (0.1, 0.2)]"],
        [
            (
                "hs = {}\n"
                "for name, each in net.named_modules():\n"
                "    hs[name] = each.register_forward_hook(lambda m, i, o, name=name: None)"
            )
        ],
        [
            "h = net[0].register_forward_hook(keep)",
            "net = nn.Sequential(nn.Linear(3, 2))\nh = net[0].register_forward_hook(keep)",
        ],
        ["nn.utils.parametrizations.weight_norm(net[0])", "nn.utils.parametrizations.weight_norm(net[2])", "net(x)"],
    ],
)
def test_hooks_that_are_removed_or_different(notebook, cells):
    notebook.run(START, "start")
    assert [notebook.run(text, str(at)) for at, text in enumerate(cells)] == [[]] * len(cells)


TRAINS = (
    "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))\nx = torch.randn(8, 3)\n"
    "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
    "def step():\n    opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); opt.step()\n"
    "def scaled(factor):\n    for p in net[0].parameters():\n        p.register_hook(lambda g: g * factor)\n"
    "def noisy(p, sigma):\n    p.register_post_accumulate_grad_hook(lambda p: (p.grad.add_(sigma), None)[1])"
)
GRADIENTS = {
    "the cell edited": [
        "s = 0.1\nfor p in net[0].parameters():\n    p.register_hook(lambda g, s=s: g * s)",
        "s = 0.4  # stronger\nfor p in net[0].parameters():\n    p.register_hook(lambda g, s=s: g * s)",
    ],
    "one function, two cells": [
        "scaled(0.1)\nstep()",
        "print('again')\nscaled(0.4)\nstep()",
    ],
    "after the gradients": [
        "noisy(net[2].weight, 1e-3)",
        "for _ in range(2):\n    step()",
        "sigma = 1e-2\nnoisy(net[2].weight, sigma)",
    ],
    "each round of a sweep": [
        "for factor in (1.0, 0.5, 0.1):\n    scaled(factor)\n    step()",
    ],
    "an object of a class": [
        (
            "class Clip:\n    def __init__(self, most):\n        self.most = most\n    def __call__(self, g):\n"
            "        return g.clamp(-self.most, self.most)\n"
        ),
        "net[0].weight.register_hook(Clip(1.0))",
        "step()",
        "net[0].weight.register_hook(Clip(0.1))",
    ],
    "a list that has both": [
        "hs = []",
        "hs += [p.register_hook(lambda g: g * 0.5) for p in net[0].parameters()]",
        "step()",
        "hs += [p.register_hook(lambda g: g * 0.2) for p in net[0].parameters()]",
    ],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_hooks_that_act_one_after_the_other(notebook, name):
    notebook.run(TRAINS)
    *before, last = GRADIENTS[name]
    for text in before:
        assert notebook.run(text) == []
    [warning] = notebook.run(last)
    assert warning["kind"] == "hooked-twice"
    assert "hook" in warning["sentence"]["en"]


@pytest.mark.parametrize(
    "cells",
    [
        [
            "hs = [p.register_hook(lambda g: g * 0.1) for p in net[0].parameters()]",
            "step()",
            ("for h in hs:\n    h.remove()\nhs = [p.register_hook(lambda g: g * 0.4) for p in net[0].parameters()]"),
            "step()",
        ],
        [
            "net[0].weight.register_hook(lambda g: g.clamp(-1, 1))",
            "net[0].weight.register_hook(lambda g: g * 2)",
            "step()",
        ],
        [
            "scaled(0.1)",
            "step()",
            "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))\nscaled(0.4)",
        ],
        [
            (
                "for factor in (1.0, 0.5):\n    h = net[0].weight.register_hook(lambda g, f=factor: g * f)\n"
                "    step()\n    h.remove()"
            ),
        ],
        [
            "noisy(net[0].weight, 0.1)",
            "noisy(net[2].weight, 0.1)",
            "step()",
        ],
    ],
)
def test_gradient_hooks_of_one_each(notebook, cells):
    notebook.run(TRAINS)
    for text in cells:
        assert notebook.run(text) == []
