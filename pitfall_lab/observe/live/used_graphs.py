"""Finds losses whose new graph leads into one that a backward has freed, so that the next backward would fail there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path
from pitfall_lab.observe.live.graphs import is_freed
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import ACCUMULATE, node_name, sequence_of


class Used(NamedTuple):
    """A scalar with a new graph, the name of the freed node that it leads into, and the cell that made that node."""

    name: str
    path: Path
    node: str
    made: int | None


def used(roots: Sequence[Root], live: set[Any], cells: Cells, budget: Budget) -> list[Used]:
    """The scalars computed both from parameters and from a result whose graph was freed. Nodes in ``live`` are known to be not freed.

    A loss whose backward has run, and what was computed from it alone (a percentage to print), is left out: between it and the parameters
    no node holds saved tensors any more.
    """
    found = [_used(root, live, cells, budget) for root in roots if root.thing.value.numel() == 1]
    return [each for each in found if each is not None] if not budget.spent else []


def _used(root: Root, live: set[Any], cells: Cells, budget: Budget) -> Used | None:
    work, seen, freed, leaf, new = [root.node], {root.node}, None, False, False
    for node in work:  # the list grows during the iteration
        if not budget.goes_on():
            return None
        if node not in live and is_freed(node):
            freed = freed or node
            continue
        new |= node in live
        leaf |= node.name() == ACCUMULATE
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    if freed is None or not (leaf and new):
        return None
    return Used(root.thing.text, root.thing.path, node_name(freed), cells.of(sequence_of(freed)))
