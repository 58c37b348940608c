"""Graphs that go back through several runs of one cell, and sums that keep the graphs of steps whose backward has been run."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import sequence_of

ADDED = "AddBackward0"
STEPS = 4
"""A sum that keeps so many used graphs is spoken of."""


class Growing(NamedTuple):
    """A tensor with its graph: through which cells it goes back, and how many graphs that a backward has used it keeps by adding."""

    name: str
    path: Path
    nodes: int
    cells: tuple[int, ...]
    used: int


def growing(roots: Sequence[Root], bound: Container[str], cells: Cells, budget: Budget) -> list[Growing]:
    """Of tensors that the last cell has bound: those with a graph of more than one cell, and sums of used graphs."""
    found = []
    for root in roots:
        if root.thing.path[0] not in bound:
            continue
        nodes = walk([root.node], budget)
        through = {cell for node in nodes if (cell := cells.of(sequence_of(node))) is not None}
        used = _used(root.node, budget) if root.thing.value.numel() == 1 else 0
        if not budget.spent and (len(through) > 1 or used >= STEPS):
            found.append(Growing(root.thing.text, root.thing.path, len(nodes), tuple(sorted(through)), used))
    return found


def _used(node: Any, budget: Budget) -> int:
    """How many used graphs have been added up, one after the other."""
    count = 0
    while node is not None and node.name() == ADDED and budget.goes_on():
        branches = [each for each, _ in node.next_functions if each is not None]
        further = next((each for each in branches if each.name() == ADDED), None)
        count += any(is_freed(each) for branch in branches if branch is not further for each in walk([branch], budget))
        node = further
    return count
