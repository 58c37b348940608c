"""Finds backwards that would raise, or would use wrong values, because a saved tensor of
their graph was changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path, Thing
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Moved
from pitfall_lab.observe.live.saved_names import Names


class Root(NamedTuple):
    """A named tensor with a graph, and its grad_fn (or its base's)."""

    thing: Thing
    node: Any


class Broken(NamedTuple):
    """One backward that would go wrong.

    ``name`` is the name of the changed tensor, empty if it has none; ``others`` counts further ones.

    ``at`` and ``now`` are versions; ``made`` and ``changed`` numbers of cells, ``line`` the line of the statement that
    saved it; ``None`` where unknown. ``silent``: the change did not increment the version, so backward does not raise.
    ``refusals`` are torch's error messages, one for each saved tensor that fails its version check. ``changes`` are
    numbers of changes: a backward from another root may go wrong by the same ones.
    """

    name: str
    path: Path
    others: int
    root: str
    root_path: Path
    is_scalar: bool
    node: str
    at: int | None
    now: int
    silent: bool
    is_parameter: bool
    made: int | None
    line: int | None
    changed: int | None
    refusals: frozenset[str]
    changes: frozenset[int]


MOST = 50


def broken(roots: Sequence[Root], moved: Sequence[Moved], names: Names, budget: Budget) -> list[Broken]:
    """The backwards that go wrong, at most :data:`MOST`, scalars (losses) first.

    A backward rarely starts from a tensor with several elements. For such a tensor, changed leaves are not reported: an
    output that was looked at before the training continued is a usual thing.
    """
    found: list[Broken] = []
    by_node: dict[Any, list[int]] = {}
    for at, each in enumerate(moved):
        by_node.setdefault(each.kept.node, []).append(at)
    for root in sorted(roots, key=lambda root: root.thing.value.numel() != 1) if moved else ():
        scalar = root.thing.value.numel() == 1
        nodes = walk([root.node], budget)
        hit = [at for node in nodes for at in by_node.get(node, ()) if scalar or not _is_leaf(moved[at])]
        if hit and len(found) < MOST and not any(is_freed(node) for node in nodes):
            for silent in (False, True):
                met = {at: moved[at] for at in hit if moved[at].silent is silent}
                if met:
                    found.append(_broken(root, scalar, met, names))
    return found


def _is_leaf(moved: Moved) -> bool:
    """Whether the saved tensor is a leaf that requires gradients, or a view of one (a transposed weight)."""
    tensor = tensor_facts.base_of(moved.kept.tensor)
    tensor = moved.kept.tensor if tensor is None else tensor
    return bool(tensor.requires_grad and tensor.grad_fn is None)


def _broken(root: Root, scalar: bool, hit: Mapping[int, Moved], names: Names) -> Broken:
    """One report for all changes by one cell; it describes the one that backward would reach first."""
    met = list(hit.values())
    first = max(met, key=lambda each: each.kept.key[0] if type(each.kept.key[0]) is int else -1)
    named = {each.kept.tensor.data_ptr(): names.of(each.kept) for each in met if each.changed == first.changed}
    thing = named.get(first.kept.tensor.data_ptr())
    return Broken(
        thing.text if thing else "",
        thing.path if thing else (),
        len(named) - 1,
        root.thing.text,
        root.thing.path,
        scalar,
        first.node,
        first.version,
        first.kept.version,
        first.silent,
        _is_leaf(first),
        first.made,
        first.line,
        first.changed,
        frozenset(each.kept.refusal() for each in met if not each.silent),
        frozenset(hit),
    )
