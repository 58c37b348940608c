"""Which tensors each operation saves for backward, and when: row by row, on the running torch and on the shadow."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow.facade.tensors import GradFn
from pitfall_lab.shadow.releases import LINEAR_IS_NO_VIEW

LINES = Path(__file__).with_name("saved_table.md").read_text("utf-8").splitlines()
ROWS = {cells[0]: cells[1:] for cells in (line[2:-2].split(" | ") for line in LINES if " | `" in line)}
#: Rows that releases before one had otherwise: a node of another name.
EARLIER = {"F.linear(a, b, c) 3-D": (LINEAR_IS_NO_VIEW, "UnsafeViewBackward0", "ViewBackward0")}
for _label, (_difference, _now, _before) in EARLIER.items():
    if _difference.since > RUNNING:
        ROWS[_label][2] = ROWS[_label][2].replace(_now, _before, 1)

#: Rows that the shadow may decline: the call is then mirrored, and its saved tensors are read from torch.
MIRRORED = {
    "torch.atan2",
    "torch.hypot",
    "sgn",
    "nan_to_num",
    "torch.clamp(a, min=b)",
    "a.cumprod(0)",
    "a.logcumsumexp(0)",
    "torch.outer",
    "torch.einsum('ij,jk->ik')",
    "F.scaled_dot_product_attention",
    "F.interpolate nearest",
    "F.binary_cross_entropy_with_logits",
    "F.kl_div(a, b)",
    "F.cosine_similarity",
    "torch.cdist",
    "torch.linalg.inv",
    "torch.linalg.det",
    "torch.linalg.solve",
    "torch.linalg.cholesky",
    "torch.linalg.cross",
    "torch.kron",
}


def operands(t: Any, text: str, wanted: tuple[bool, ...]) -> dict[str, Any]:
    """The named operands of a row: floats in a fixed pattern, and constants."""
    shapes, *constants = text.split("; ")
    found = {}
    for name, shape, requires_grad in zip("abc", shapes.split(), wanted, strict=False):
        if shape == "eye":
            values = t.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
        else:
            sizes = [int(n) for n in shape.split("x")]
            values = (t.arange(float(t.ones(sizes).numel())) * 0.37 + 0.5).reshape(sizes).clone()
        found[name] = values.requires_grad_(requires_grad)
    return found | {name: t.tensor(eval(value)) for name, value in (c.split(" = ") for c in constants)}


def saved_tensors(node: Any) -> list[tuple[str, Any]]:
    """The saved tensors of a node of either engine, by name."""
    if isinstance(node, GradFn):
        return [(s.name, getattr(node, f"_saved_{s.name}")) for s in node.node.saved]
    found = []
    for name in dir(node):
        if name.startswith("_saved_"):
            value = getattr(node, name)
            found += [
                (name[7:], v)
                for v in (value if isinstance(value, tuple | list) else [value])
                if isinstance(v, torch.Tensor)
            ]
    return found


def identify(kept: Any, named: dict[str, Any], name: str) -> str:
    """Which operand or result a saved tensor is, by its memory."""
    if kept.numel():
        for label, t in named.items():
            if kept.data_ptr() == t.data_ptr() and kept.shape == t.shape and kept.stride() == t.stride():
                return label
        for label, t in named.items():
            if kept.untyped_storage().data_ptr() == t.untyped_storage().data_ptr():
                return f"view({label})"
    return f"own:{name}"


def chain(result: Any, named: dict[str, Any]) -> list[tuple[str, set[str]]]:
    """The nodes from the result to the leaves, breadth first, and what each saved."""
    seen, todo, found = [], [result.grad_fn], []
    while todo:
        node = todo.pop(0)
        if node is None or node in seen or "AccumulateGrad" in node.name():
            continue
        seen.append(node)
        found.append((node.name().split("::")[-1], {identify(kept, named, name) for name, kept in saved_tensors(node)}))
        todo += [following for following, _ in node.next_functions]
    return found


def describe(t: Any, label: str) -> str:
    """The row's last cell, as this engine gives it."""
    program, text, _ = ROWS[label]
    names = "abc"[: len(text.split(";", maxsplit=1)[0].split())]
    seen: dict[frozenset[str], list[tuple[str, set[str]]]] = {}
    for wanted in itertools.product([True, False], repeat=len(names)):
        if any(wanted):
            named = operands(t, text, wanted)
            out = eval(program.strip("`"), {"torch": t, "F": t.nn.functional}, named)
            outs = list(out) if isinstance(out, tuple) else [out]
            named |= {"result": out} if len(outs) == 1 else dict(zip(("values", "indices"), outs, strict=False))
            nodes = chain(outs[0], named)
            in_place = "in place" in label or "inplace=True" in label
            seen[frozenset(n for n, w in zip(names, wanted, strict=True) if w)] = nodes[:1] if in_place else nodes
    cells = []
    for node, saves in seen[frozenset(names)]:
        parts = []
        for who in sorted(saves):
            have = {needs for needs, nodes in seen.items() if any(n == node and who in s for n, s in nodes)}
            parts.append(who + ("" if have == set(seen) else condition(names, set(seen), have)))
        cells.append(f"{node}: {', '.join(parts) if parts else 'nothing'}")
    return "; ".join(cells)


def condition(names: str, every: set[frozenset[str]], have: set[frozenset[str]]) -> str:
    """The smallest set of operands of which one must require grad."""
    for size in range(1, len(names) + 1):
        for some in itertools.combinations(names, size):
            if {needs for needs in every if needs & set(some)} == have:
                return f" if {' or '.join(some)} needs grad"
    return " (sometimes)"


def test_the_table_has_all_its_rows() -> None:
    assert len(ROWS) == 175
    assert set(ROWS) >= MIRRORED


@pytest.mark.parametrize("label", ROWS)
def test_the_running_torch_saves_what_the_row_says(label: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert describe(torch, label) == ROWS[label][2]


@pytest.mark.parametrize("label", ROWS)
def test_the_shadow_saves_what_the_row_says(label: str) -> None:
    shadow_torch.reset(release=RUNNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = describe(shadow_torch, label)
        except (NotImplementedError, AttributeError):
            if label in MIRRORED:
                return
            raise
    assert found == ROWS[label][2]
