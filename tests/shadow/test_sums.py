"""Gradients that meet another one: whether torch adds in place shows in ``.grad._version``, and depends on
what each formula hands out.

Each sample's operands get a second gradient, from before the operation and so after it in backward.
``PITFALL_EVERYTHING=1`` runs all samples; otherwise one in eight.
"""

from __future__ import annotations

import os
import re

import pytest

from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import definitions
from tests.fuzz import standalone

SAMPLES = sorted(
    {
        (sample, entry.kind)
        for entry in ENTRIES.values()
        for sample in entry.samples
        if not re.search("rand|dropout|empty", sample)
    }
)
STEP = 1 if os.environ.get("PITFALL_EVERYTHING") else 8


def program(sample: str, kind: str) -> str | None:
    """A program whose leaves get two gradients each; None when the sample has no leaves."""
    made = definitions(sample)
    lines = [line for line in made.splitlines() if "requires_grad" in line and re.match(r"\w+ = ", line)]
    leaves = dict.fromkeys(line.partition(" = ")[0] for line in lines)
    used = [name for name in leaves if re.search(rf"\b{name}\b", sample + made.replace(f"{name} =", ""))]
    if not used:
        return None
    before = " + ".join(f"({name} * 2).sum()" for name in used)
    statement = f"r = {sample}" if kind in {"pure", "view"} else f"{sample}\nr = h"
    first = "q = r[0] if isinstance(r, (tuple, list)) else r"
    head = "import torch\nimport torch.nn.functional as F\nfrom torch import nn"
    return f"{head}\n{made}\nbefore = {before}\n{statement}\n{first}\n(q.exp().sum() + before).backward()\n"


@pytest.mark.parametrize("part", range(8))
def test_gradients_are_added_in_place_where_torch_does(part: int) -> None:
    wrong = []
    for sample, kind in SAMPLES[part * STEP :: 8 * STEP]:
        text = program(sample, kind)
        problems = standalone.check(text).problems if text else []
        wrong += [f"{sample}: {problem}" for problem in problems]
    assert not wrong, "\n".join(wrong)


def test_most_samples_have_leaves() -> None:
    assert sum(program(*sample) is not None for sample in SAMPLES) > 1000
