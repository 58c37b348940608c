"""New graphs that lead into one that a backward has used: what that one had saved is freed, so the next backward fails there."""

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
    """A number with a new graph, the node of a used graph that it leads into, and the cell that made that."""

    name: str
    path: Path
    node: str
    made: int | None


def used(roots: Sequence[Root], live: set[Any], cells: Cells, budget: Budget) -> list[Used]:
    """Numbers computed anew from parameters, and from a result whose graph has been used. ``live`` nodes are known to hold something.

    A used loss, and what was computed from it alone (a percentage to print), is no new graph: no node of it holds anything on the way to a
    parameter.
    """
    found = [_used(root, live, cells, budget) for root in roots if root.thing.value.numel() == 1]
    return [each for each in found if each is not None] if not budget.spent else []


def _used(root: Root, live: set[Any], cells: Cells, budget: Budget) -> Used | None:
    work, seen, freed, leaf, new = [root.node], {root.node}, None, False, False
    for node in work:  # grows while it is read
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
