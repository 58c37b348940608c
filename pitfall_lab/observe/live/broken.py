"""Backwards that would fail, or go on with other numbers: what was changed after a graph that has a name had saved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path, Thing
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Moved
from pitfall_lab.observe.live.saved_names import Names


class Root(NamedTuple):
    """A named tensor with a graph, and the node where that begins."""

    thing: Thing
    node: Any


class Broken(NamedTuple):
    """One backward that would go wrong. ``name`` is what was changed, empty where it has no name; ``others`` were changed with it.

    ``at`` and ``now`` are versions; ``made`` and ``changed`` the numbers of cells, ``line`` the place of the statement that
    saved it; ``None`` where they are not known. ``refusals`` are torch's own words, one for each saved tensor that it would not take.
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


def broken(roots: Sequence[Root], moved: Sequence[Moved], names: Names, budget: Budget) -> list[Broken]:
    """What is to be said, each change once: of the first root that it breaks, numbers (losses) before other tensors.

    A tensor that is no single number is rarely what a backward begins with. That a trained leaf has moved since is the ordinary life of an
    output that was looked at before the training went on: nothing is said of that.
    """
    found: list[Broken] = []
    told: set[int] = set()
    by_node: dict[Any, list[int]] = {}
    for at, each in enumerate(moved):
        by_node.setdefault(each.kept.node, []).append(at)
    for root in sorted(roots, key=lambda root: root.thing.value.numel() != 1) if moved else ():
        scalar = root.thing.value.numel() == 1
        nodes = walk([root.node], budget)
        hit = [at for node in nodes for at in by_node.get(node, ()) if at not in told and (scalar or not _is_leaf(moved[at]))]
        if hit and not any(is_freed(node) for node in nodes):
            told.update(hit)
            for silent in (False, True):
                met = [moved[at] for at in hit if moved[at].silent is silent]
                if met:
                    found.append(_broken(root, scalar, met, names))
    return found


def _is_leaf(moved: Moved) -> bool:
    """Whether it is a leaf that collects a gradient, or a view of one (a weight, turned)."""
    tensor = tensor_facts.base_of(moved.kept.tensor)
    tensor = moved.kept.tensor if tensor is None else tensor
    return bool(tensor.requires_grad and tensor.grad_fn is None)


def _broken(root: Root, scalar: bool, met: Sequence[Moved], names: Names) -> Broken:
    """One sentence for all that a cell has changed: about what a backward would come to first."""
    first = max(met, key=lambda each: each.kept.key[0] if type(each.kept.key[0]) is int else -1)
    named = {each.kept.tensor.data_ptr(): names.of(each.kept) for each in met if each.changed == first.changed}
    thing = named.get(first.kept.tensor.data_ptr())
    return Broken(
        thing.text if thing else "", thing.path if thing else (), len(named) - 1, root.thing.text, root.thing.path, scalar, first.node,
        first.version, first.kept.version, first.silent, _is_leaf(first), first.made, first.line, first.changed,
        frozenset(each.kept.refusal() for each in met if not each.silent),
    )  # fmt: skip
