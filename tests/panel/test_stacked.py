"""Gradients that add up from step to step."""

from __future__ import annotations

import pytest

NET = "X = torch.randn(8, 4)\nnet = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"
LOSS, BACK, STEP, CLEAR = "loss = net(X).square().mean()", "loss.backward()", "opt.step()", "opt.zero_grad()"
GRAD = f"{LOSS}\ng = torch.autograd.grad(loss, [net.weight])\nnet.weight.data -= g[0]"
HAND = "with torch.no_grad():\n    for p in net.parameters():\n        p -= 0.1 * p.grad"


@pytest.mark.parametrize(
    "cells",
    [
        [f"{LOSS}\n{BACK}\n{STEP}"] * 2,
        [LOSS, BACK, STEP, LOSS, BACK],
        [f"for _ in range(3):\n    {LOSS}\n    {BACK}\n    {STEP}"],
        [f"{LOSS}\n{BACK}\n{HAND}"] * 2,
        [f"def train():\n    {LOSS}\n    {BACK}\n    {STEP}", "train()", "train()"],
    ],
)
def test_they_are_said_after_the_second_backward(notebook, cells):
    warned = [notebook.run(text, text) for text in (NET, *cells)]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["row"], warning["rule"]) == ("gradients-add-up", "net\x1fweight", "PL601")
    assert notebook.run(f"{CLEAR}\n{LOSS}\n{BACK}\n{STEP}", "right") == []


@pytest.mark.parametrize(
    "cells",
    [
        [f"{CLEAR}\n{LOSS}\n{BACK}\n{STEP}"] * 3,
        [f"opt.zero_grad(set_to_none=False)\n{LOSS}\n{BACK}\n{STEP}"] * 3,
        [f"{LOSS}\n{BACK}"] * 3 + [STEP],  # one gradient of several batches
        [f"{LOSS}\n{BACK}", "[p.grad.norm() for p in net.parameters()]", STEP, "net(X).shape"],
        [f"{LOSS}\n{BACK}\n{HAND}\n        p.grad = None"] * 3,
        [GRAD] * 3,
    ],
)  # fmt: skip
def test_what_is_cleared_or_gathered_for_one_step_is_not(notebook, cells):
    assert [notebook.run(text, text) for text in (NET, *cells)] == [[]] * (len(cells) + 1)
