"""Finds graphs with nodes of several cells (:func:`growing`), and sums and lists that keep alive the graphs of steps
whose backward has run (:meth:`GraphGrowth.compare`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.carriers import Carriers
from pitfall_lab.observe.live.found import ELEMENTS, Path
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import node_key, sequence_of

ADDED = "AddBackward0"
STEPS = 4
"""A sum or list is reported if it keeps at least this many graphs alive whose backward has run."""


NEAR = 20


class Growing(NamedTuple):
    """A tensor whose graph has nodes of several cells or, by addition, keeps graphs alive whose backward has run ("used
    graphs"); or (``kept``) a list or dict of results, each with its own graph.

    ``name`` is the expression for it, ``path`` the names and keys that lead to it; a graph with nodes of several cells
    is reported under the name by which each cell passes it to the next: ``h``, and not each loss computed from it.
    ``nodes`` is the number of nodes in the graph (0 for a list), ``cells`` are the numbers of the cells that created
    them (for a list: those after which its graphs were first seen used), ``used`` is the number of used graphs (0 also
    for a tensor of several elements). For a list only: ``numbers``: each result has one element; ``fresh`` counts the
    results that a later cell created and whose backward has not run.
    """

    name: str
    path: Path
    nodes: int
    cells: tuple[int, ...]
    used: int
    kept: bool = False
    numbers: bool = True
    fresh: int = 0
    more: bool = False
    """Whether the list may hold more used graphs than were counted."""


class GraphGrowth:
    """Remembers, for each result in a list, the cell after which its backward was first found to have run.

    A result is identified by the key of its grad_fn (:func:`node_key`).
    """

    def __init__(self) -> None:
        self._used: dict[tuple[Any, ...], int] = {}

    def compare(self, roots: Sequence[Root], cells: Cells, budget: Budget) -> list[Growing]:
        """The lists, dicts and other holders whose first results, at least :data:`STEPS` of them, have graphs whose
        backward has run. An empty list if there are none.

        ``roots`` are the named tensors with a graph, ``cells`` shows which cell created a node, ``budget`` is the time
        limit.
        """
        parts: dict[Path, list[Root]] = {}
        for root in roots:
            if len(root.thing.path) > 1:
                parts.setdefault(root.thing.path[:-1], []).append(root)
        found, known = [], dict[tuple[Any, ...], int]()
        for path, inside in parts.items():
            if len(inside) < STEPS:
                continue
            keys = [node_key(root.node) for root in inside]
            count = self._count(keys, inside, budget)
            used = {key: self._used.get(key, cells.now) for key in keys[:count]}
            known |= used
            if count >= STEPS and not budget.spent:
                first = min(used.values())
                fresh = sum((cells.of(sequence_of(root.node)) or 0) > first for root in inside[count:])
                name = path[0] if len(path) == 1 else inside[0].thing.text.rpartition("[")[0]
                numbers = all(root.thing.value.numel() == 1 for root in inside)
                rounds = tuple(sorted(set(used.values())))
                one = Growing(
                    name,
                    path,
                    0,
                    rounds,
                    count,
                    kept=True,
                    numbers=numbers,
                    fresh=fresh,
                    more=len(inside) == count == ELEMENTS,
                )
                found.append(one)
        if not budget.spent:
            self._used = known
        return found

    def _count(self, keys: Sequence[tuple[Any, ...]], inside: Sequence[Root], budget: Budget) -> int:
        """For how many results at the beginning of a list the backward has run; the backward of results added later is
        assumed to run later.
        """
        low, high = next((at for at, key in enumerate(keys) if key not in self._used), len(keys)), len(keys)
        if low < high and _is_used(inside[-1].node, budget):
            return high
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _is_used(inside[middle].node, budget) else (low, middle)
        return low


def growing(
    roots: Sequence[Root], bound: Container[str], cells: Cells, carriers: Carriers, budget: Budget
) -> list[Growing]:
    """Of the named tensors with a graph (``roots``) whose names are in ``bound``, those whose graph has nodes of
    several cells, and one-element tensors that are sums of at least :data:`STEPS` losses whose backward has run. An
    empty list if there are none.

    ``carriers`` finds the name through which a graph comes from an earlier cell, ``cells`` shows which cell created a
    node, ``budget`` is the time limit.
    """
    found: dict[Path, Growing] = {}
    for root in roots:
        if root.thing.path[0] not in bound:
            continue
        nodes = walk([root.node], budget)
        through = {cell for node in nodes if (cell := cells.of(sequence_of(node))) is not None}
        used = _used(root.node, budget) if root.thing.value.numel() == 1 else 0
        if not budget.spent and (len(through) > 1 or used >= STEPS):
            met = (
                [each for each, _ in carriers.of(root.node, cells.now, budget) if each.path[0] in bound]
                if used < STEPS
                else []
            )
            name, path = (met[0].name, met[0].path) if met else (root.thing.text, root.thing.path)
            found.setdefault(path, Growing(name, path, len(nodes), tuple(sorted(through)), used))
    return list(found.values())


def _is_used(node: Any, budget: Budget) -> bool:
    """Whether one of the about :data:`NEAR` nearest nodes has been freed; the others of a large graph need not be
    examined.
    """
    near = [node]
    for each in near:  # the list grows during the iteration
        if is_freed(each):
            return True
        if len(near) > NEAR or not budget.goes_on():
            return False
        near += [following for following, _ in each.next_functions if following is not None and following not in near]
    return False


def _used(node: Any, budget: Budget) -> int:
    """The number of graphs whose backward has run among the terms of a chain of additions that ends at ``node``."""
    count = 0
    while node is not None and node.name() == ADDED and budget.goes_on():
        branches = [each for each, _ in node.next_functions if each is not None]
        further = next((each for each in branches if each.name() == ADDED), None)
        count += any(is_freed(each) for branch in branches if branch is not further for each in walk([branch], budget))
        node = further
    return count
