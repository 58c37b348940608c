"""The samples once more, on other operands: other memory, other types, other sizes.

The shadow agrees with torch, or declines.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import MORE, OPERANDS, WAVES
from tests.shadow.side_by_side import attempt, compare_results, compare_worlds, flatten, is_tensor

Make = Callable[[Any, str, Any], Any]


def again(t: Any, old: Any) -> Any:
    """``t`` as a leaf that requires grad when ``old`` does."""
    return t.requires_grad_(old.requires_grad)


def transposed(t: Any, name: str, x: Any) -> Any:
    """The same numbers in column order."""
    return again(x.detach().t().contiguous().t(), x) if x.dim() == 2 else x


def sliced(t: Any, name: str, x: Any) -> Any:
    """Every second element of larger memory."""
    return again(t.stack([x.detach()] * 2, -1)[..., 1], x)


def expanded(t: Any, name: str, x: Any) -> Any:
    """One row, shown twice."""
    return again(x.detach()[:1].clone().expand(*x.shape), x) if x.dim() == 2 else x


def empty(t: Any, name: str, x: Any) -> Any:
    """No rows (of ``w``: no columns)."""
    return x if name == "c" else again((x.detach()[:, :0] if name == "w" else x.detach()[:0]).clone(), x)


def single(t: Any, name: str, x: Any) -> Any:
    """One element, in as many dimensions."""
    return again((x.detach()[:1, :1] if x.dim() == 2 else x.detach()[:1]).clone(), x)


def scalars(t: Any, name: str, x: Any) -> Any:
    """Numbers as 0-dim tensors."""
    return again((x.detach()[0, 0] if x.dim() == 2 else x.detach()[0]).clone(), x)


def float64(t: Any, name: str, x: Any) -> Any:
    """Doubles."""
    return again(x.detach().double(), x) if x.is_floating_point() else x


def mixed(t: Any, name: str, x: Any) -> Any:
    """Some doubles among the floats."""
    return float64(t, name, x) if name in "bp" else x


def integers(t: Any, name: str, x: Any) -> Any:
    """Integers where there were floats."""
    return x.detach().long() if x.is_floating_point() else x


def plain(t: Any, name: str, x: Any) -> Any:
    """Nothing requires grad."""
    return x.detach().clone()


VARIANTS: dict[str, Make] = {
    make.__name__: make
    for make in (transposed, sliced, expanded, empty, single, scalars, float64, mixed, integers, plain)
}
#: Variants whose leaves are laid out row by row: for the others see ``compare_worlds``.
ROW_BY_ROW = {"float64", "mixed", "integers", "plain"}
SAMPLES: dict[str, list[str]] = {}
for _entry in ENTRIES.values():
    small = [sample for sample in _entry.samples if not MORE.keys() & set(re.findall(r"\w+", sample))]
    if (
        small and _entry.names[0] not in SAMPLES and "_weight_norm" not in _entry.names[0]
    ):  # an empty one ends torch's process
        SAMPLES[_entry.names[0]] = small

TOTAL = "sum((t * t).sum() if t.dtype.is_floating_point and t.requires_grad else 0 for t in results)"


def world(t: Any, functional: Any, make: Make) -> dict[str, Any]:
    """The operands of the samples, each made anew by ``make``."""
    names: dict[str, Any] = {"torch": t, "F": functional, "np": np}
    exec(OPERANDS + WAVES, names)
    for name in "abcwpnim":
        names[name] = make(t, name, names[name])
    names["h"] = names["a"] * 1
    return names


def place(result: Any, names: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Which operands a result is, and whose memory it has."""
    pointer = result.untyped_storage().data_ptr()
    tensors = {name: t for name, t in names.items() if is_tensor(t)}
    shared = [name for name, t in tensors.items() if pointer and t.untyped_storage().data_ptr() == pointer]
    return [name for name, t in tensors.items() if t is result], shared


def declined(outcome: Any) -> bool:
    """Whether the shadow says that it does not know."""
    return isinstance(outcome, NotImplementedError) and not hasattr(outcome, "shadow")


#: What lies in new memory nobody can know; what a norm leaves of a row of equal numbers is
#: rounding (``normalise.CONDITION``).
NUMBERS_MAY_BE_UNKNOWN = ("resize_", "_norm(")


def compare(sample: str, variant: str) -> bool:
    """Run a sample on both engines and compare everything; False when the shadow declined."""
    shadow_torch.reset(release=RUNNING)
    real = world(torch, torch.nn.functional, VARIANTS[variant])
    shadow = world(shadow_torch, shadow_torch.nn.functional, VARIANTS[variant])
    x, y = attempt(real, sample), attempt(shadow, sample)
    if declined(y) or (
        is_tensor(y) and y.shadow.values() is None and any(word in sample for word in NUMBERS_MAY_BE_UNKNOWN)
    ):
        return False
    compare_results(x, y, sample)
    compare_worlds(real, shadow, sample)
    if isinstance(x, Exception):
        return True
    pairs = [(u, v) for u, v in zip(flatten(x), flatten(y), strict=True) if is_tensor(u)]
    assert [place(u, real) for u, _ in pairs] == [place(v, shadow) for _, v in pairs]
    real["results"], shadow["results"] = [u for u, _ in pairs], [v for _, v in pairs]
    loss, twin = attempt(real, TOTAL), attempt(shadow, TOTAL)
    if is_tensor(loss):
        real["loss"], shadow["loss"] = loss, twin
        outcome = attempt(shadow, "loss.backward()")
        if declined(outcome):
            return False
        compare_results(attempt(real, "loss.backward()"), outcome, f"backward of {sample}")
        names = {name: t for name, t in real.items() if name not in ("h", "loss", "results")}
        leaves = [shadow[name].grad for name, t in names.items() if is_tensor(t) and t.is_leaf]
        if "det(" in sample and any(grad is not None and grad.shadow.values() is None for grad in leaves):
            return False  # a singular matrix: its gradient is what an inverse that does not exist leaves
        compare_worlds(names, shadow, f"after backward of {sample}", layouts=variant in ROW_BY_ROW)
    return True


def chosen() -> list[tuple[str, str]]:
    """Which variants of which entries are run: one or two of the ten, others for each entry;
    ``PITFALL_EVERYTHING=1`` runs all.
    """
    kinds = list(VARIANTS)
    every = bool(os.environ.get("PITFALL_EVERYTHING"))
    return [
        (name, kind) for name in SAMPLES for n, kind in enumerate(kinds) if every or (n + crc32(name.encode())) % 8 == 0
    ]


@pytest.mark.parametrize(("name", "variant"), chosen())
def test_the_entry_agrees_with_torch_on_other_operands_or_declines(name: str, variant: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in SAMPLES[name]:
            compare(sample, variant)
