"""Finds graphs that span several runs of one cell, and sums that keep alive the graphs of steps whose backward has run."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.carriers import Carriers
from pitfall_lab.observe.live.found import Path
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import sequence_of

ADDED = "AddBackward0"
STEPS = 4
"""A sum that keeps at least so many used graphs alive is reported."""


NEAR = 20


class Growing(NamedTuple):
    """A tensor and its graph: the cells whose nodes it contains, and the number of used graphs that it keeps alive by addition.

    A graph that goes through several cells is that of the name that carries it from one to the next: ``h``, and not each loss made from it.
    ``kept``: it is a list of numbers, each with its own graph.
    """

    name: str
    path: Path
    nodes: int
    cells: tuple[int, ...]
    used: int
    kept: bool = False


def growing(roots: Sequence[Root], bound: Container[str], cells: Cells, carriers: Carriers, budget: Budget) -> list[Growing]:
    """Of the tensors that the last cell has bound, those whose graph has nodes of several cells, and sums of used graphs."""
    found: dict[Path, Growing] = {}
    for root in roots:
        if root.thing.path[0] not in bound:
            continue
        nodes = walk([root.node], budget)
        through = {cell for node in nodes if (cell := cells.of(sequence_of(node))) is not None}
        used = _used(root.node, budget) if root.thing.value.numel() == 1 else 0
        if not budget.spent and (len(through) > 1 or used >= STEPS):
            met = [each for each, _ in carriers.of(root.node, cells.now, budget) if each.path[0] in bound] if used < STEPS else []
            name, path = (met[0].name, met[0].path) if met else (root.thing.text, root.thing.path)
            found.setdefault(path, Growing(name, path, len(nodes), tuple(sorted(through)), used))
    return [*found.values(), *_lists(roots, budget)]


def _lists(roots: Sequence[Root], budget: Budget) -> list[Growing]:
    """The lists and dicts with numbers in them whose graphs have been used."""
    parts: dict[Path, list[Root]] = {}
    for root in roots:
        if len(root.thing.path) > 1 and root.thing.value.numel() == 1:
            parts.setdefault(root.thing.path[:-1], []).append(root)
    found = []
    for path, inside in parts.items():
        used = sum(_is_used(root.node, budget) for root in inside) if len(inside) >= STEPS else 0
        if used >= STEPS and not budget.spent:
            found.append(Growing(path[0] if len(path) == 1 else inside[0].thing.text.rpartition("[")[0], path, 0, (), used, kept=True))
    return found


def _is_used(node: Any, budget: Budget) -> bool:
    """Whether one of the nearest nodes has been freed: the farther ones of a large graph need not be looked at."""
    near = [node]
    for each in near:  # the list grows during the iteration
        if is_freed(each):
            return True
        if len(near) > NEAR or not budget.goes_on():
            return False
        near += [following for following, _ in each.next_functions if following is not None and following not in near]
    return False


def _used(node: Any, budget: Budget) -> int:
    """The number of used graphs among the terms of a chain of additions that ends at ``node``."""
    count = 0
    while node is not None and node.name() == ADDED and budget.goes_on():
        branches = [each for each, _ in node.next_functions if each is not None]
        further = next((each for each in branches if each.name() == ADDED), None)
        count += any(is_freed(each) for branch in branches if branch is not further for each in walk([branch], budget))
        node = further
    return count
