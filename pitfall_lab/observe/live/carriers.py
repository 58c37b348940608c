"""Finds the name through which the graph of an earlier cell becomes part of a later one: a hidden state, a running sum
(:class:`Carriers`).

After each examination only the keys of nodes are stored, with the names whose graphs ended in them: numbers and
strings, no objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path

REMEMBERED = 5_000


class Carrier(NamedTuple):
    """A name whose tensor had a graph at the end of cell ``cell`` (a number): ``name`` is the expression for the
    tensor, ``path`` are the name and the keys that lead to it. If a later graph contains that graph, it came in through
    this name.
    """

    name: str
    path: Path
    cell: int


class Carriers:
    """Remembers, for each node that was the grad_fn of a named tensor after a cell, the name and the cell."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Carrier] = {}

    def remember(self, roots: Sequence[Root], cell: int) -> None:
        """Store for the grad_fn of each tensor in ``roots`` the name of the tensor and the cell, unless an earlier call
        has stored this node; if there are more than ``REMEMBERED``, the oldest are dropped.
        """
        for root in roots:
            self._known.setdefault(tensor_facts.node_key(root.node), Carrier(root.thing.text, root.thing.path, cell))
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def of(self, node: Any, before: int, budget: Budget) -> list[tuple[Carrier, Any]]:
        """The named tensors, after a cell before cell ``before``, whose grad_fn is in the graph of ``node``, nearest
        first: pairs of the :class:`Carrier` (name and cell) and its node. Empty if there are none.

        The search ends at such a node; ``node`` itself does not count. ``budget`` is the time limit.
        """
        found: list[tuple[Carrier, Any]] = []
        work, seen = [node], {node}
        for each in work:  # the list grows during the iteration
            if not budget.goes_on():
                return found
            known = self._known.get(tensor_facts.node_key(each)) if each is not node else None
            if known is not None and known.cell < before:
                found.append((known, each))
                continue
            for following, _ in each.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    work.append(following)
        return found
