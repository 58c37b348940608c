"""The samples once more, on operands in unusual states, with other endings: what is rare alone
is common in whole programs.

``PITFALL_EVERYTHING=1`` runs every sample in every state with every ending; otherwise one in a hundred.
"""

from __future__ import annotations

import os
import re

import pytest

from pitfall_lab.shadow.ops.operands import definitions
from tests.fuzz import standalone
from tests.shadow.test_sums import SAMPLES

HEAD = """import torch
import torch.nn.functional as F
from torch import nn
def inferred(x):
    with torch.inference_mode():
        return x.detach().clone()
def with_history(x):
    y = inferred(x).detach()
    y.mul_(x)
    return y
def unrecorded(x):
    with torch.no_grad():
        return (x * 1)[...]
"""
STATES = {
    "a zero inside": "({x}.detach() * (torch.arange({x}.numel()).view({x}.shape) != 1)).requires_grad_()",
    "ones": "torch.ones_like({x}.detach()).requires_grad_()",
    "turned round": (
        "{x}.detach().permute(*reversed(range({x}.dim()))).contiguous().permute(*reversed(range({x}.di"
        "m()))).requires_grad_()"
    ),
    "one element": "{x}.detach()[(slice(0, 1),) * {x}.dim()].clone().requires_grad_()",
    "one row": "{x}.detach()[:1].clone().requires_grad_() if {x}.dim() else {x}",
    "no rows": "{x}.detach()[:0].clone().requires_grad_() if {x}.dim() else {x}",
    "a row of a leaf": "{x}.detach().clone().requires_grad_()[:1] if {x}.dim() else {x}",
    "stretched": "{x}.detach()[:1].clone().requires_grad_().expand({x}.shape) if {x}.dim() else {x}",
    "infinite": "({x}.detach() * 1e38 * 1e3).requires_grad_()",
    "of inference mode": "inferred({x})",
    "detached from inference mode": "inferred({x}).detach()",
    "of inference mode, with a history": "with_history({x})",
    "a real part": "torch.view_as_real(torch.complex({x}, {x} * 2))[..., 0]",
    "a view that nobody recorded": "unrecorded({x})",
    "one of many outputs": "torch.stack([{x}, {x} * 2]).unbind(0)[0]",
    "half": "{x}.detach().half().requires_grad_()",
}
ENDINGS = {
    "a sum": "(q.sum() + before).backward()",
    "two backwards": "q.sum().backward(retain_graph=True)\nq.exp().sum().backward()",
    "autograd.grad": "g = torch.autograd.grad(q.exp().sum() + before, [{names}])\ng[0].mul_(2)",
    "create_graph": "(q * q).sum().backward(create_graph=True)",
    "a gradient that is given": "u = torch.ones_like(q)\nq.backward(u)\nu.mul_(2)",
    "a hook": "{first}.register_hook(lambda g: None)\n(q.sum() + before).backward()",
    "another type by then": "{first}.data = {first}.data.double()\nq.sum().backward()",
    "new numbers, unseen": "{first}.data.mul_(2)\nq.sum().backward()",
    "new numbers, seen": "with torch.no_grad():\n    {first}.add_(1)\nq.sum().backward()",
    "the result is written": "q[..., :1] = q.sum().detach().requires_grad_() * 2\n(q * q).sum().backward()",
}
CRASHES = "torch._weight_norm"
"""Torch itself divides by zero when this one gets no rows, and takes the process with it."""
UNPREDICTED = ("no rows", "a gradient that is given")
"""Whether a gradient without elements is a copy is not predicted, so neither is what a write
into the given one does to it.
"""
PAIRS = [(state, ending) for state in STATES for ending in ENDINGS if (state, ending) != UNPREDICTED]
ALL = [(sample, kind, *pair) for pair in PAIRS for sample, kind in SAMPLES if CRASHES not in sample]
STEP = 1 if os.environ.get("PITFALL_EVERYTHING") else 101


def program(sample: str, kind: str, state: str, ending: str) -> str | None:
    """The sample on operands in this state; None when none of its operands is a leaf."""
    made = definitions(sample).splitlines()
    leaves = [line.partition(" = ")[0] for line in made if "requires_grad" in line and re.match(r"\w+ = ", line)]
    text = "\n".join(made)
    names = [
        name for name in dict.fromkeys(leaves) if re.search(rf"\b{name}\b", sample + text.replace(f"{name} =", ""))
    ]
    if not names:
        return None
    lines = []
    for line in made:
        lines.append(line)
        name = line.partition(" = ")[0]
        if name in names and "requires_grad" in line:
            lines += [f"{name} = {STATES[state].format(x=name)}", f"if {name}.requires_grad:\n    {name}.retain_grad()"]
    before = " + ".join(f"({name} * 2).sum()" for name in names)
    statement = f"r = {sample}" if kind in {"pure", "view"} else f"{sample}\nr = h"
    end = (
        "q = r[0] if isinstance(r, (tuple, list)) else r\n"
        f"{ENDINGS[ending].format(names=', '.join(names), first=names[0])}\n"
    )
    return HEAD + "\n".join(lines) + f"\nbefore = {before}\n{statement}\n{end}"


@pytest.mark.parametrize("part", range(4))
def test_operands_in_unusual_states_agree_or_are_declined(part: int) -> None:
    wrong = []
    for sample, kind, state, ending in ALL[part * STEP :: 4 * STEP]:
        text = program(sample, kind, state, ending)
        problems = standalone.check(text).problems if text else []
        wrong += [f"{sample}, {state}, {ending}: {problem}" for problem in problems]
    assert not wrong, "\n".join(wrong)


def test_every_state_and_ending_makes_programs_that_run() -> None:
    for state in STATES:
        for ending in ENDINGS:
            text = program("a * b", "pure", state, ending)
            assert text is not None
            assert standalone.check(text).counts["statements"] > 5
