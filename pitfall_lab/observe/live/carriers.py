"""Finds the name through which a graph continues in the graph of an earlier cell: a hidden state, a running sum
(:class:`Carriers`).

After each look only the keys of nodes are stored, with the names whose graphs ended in them: numbers and texts, no
object.
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
    """A name whose tensor had a graph when cell ``cell`` (a number) had ended: ``name`` is the expression for the
    tensor, ``path`` are the name and the keys that lead to it. A later graph may contain that graph: then the name has
    carried it on.
    """

    name: str
    path: Path
    cell: int


class Carriers:
    """Remembers, for each node that was the grad_fn of a named tensor after a cell, that name and cell."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Carrier] = {}

    def remember(self, roots: Sequence[Root], cell: int) -> None:
        """Store for the grad_fn of each tensor in ``roots`` the name of the tensor and the cell, if no earlier call has
        stored this node; the oldest of more than ``REMEMBERED`` are dropped.
        """
        for root in roots:
            self._known.setdefault(tensor_facts.node_key(root.node), Carrier(root.thing.text, root.thing.path, cell))
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def of(self, node: Any, before: int, budget: Budget) -> list[tuple[Carrier, Any]]:
        """The names whose tensor had a graph after a cell before cell ``before``, where the graph of ``node`` contains
        that graph, nearest first: pairs of the :class:`Carrier` (name and cell) and its node. Behind such a node no
        further ones are looked for; ``node`` itself does not count. Empty if there are none. ``budget`` is the time
        limit.
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
