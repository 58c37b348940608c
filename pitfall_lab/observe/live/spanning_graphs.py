"""Finds tensors whose graph reaches back through several steps: it has saved a weight at several versions
(:func:`spanning`).

No backward can go through such a graph, as the steps have written into what it has saved. It only keeps the tensors of
each step alive. Typical are a memory bank or a running value, written with results and their graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root, sampled
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path
from pitfall_lab.observe.live.graphs import kept
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.tensor_facts import base_of

STEPS = 4
"""At how many versions a graph must have saved one weight to be reported."""
NODES = 400
"""How many nodes of one graph are examined at most, nearest first."""


class Spanning(NamedTuple):
    """A tensor whose graph has saved one weight at :data:`STEPS` (4) versions or more.

    ``name`` is the expression for the tensor, ``path`` the names and keys that lead to it, ``weight`` the expression
    for the weight (empty if no name leads to it).
    """

    name: str
    path: Path
    weight: str


def spanning(found: Found, roots: Sequence[Root], budget: Budget) -> list[Spanning]:
    """The named tensors with a graph (a sample of ``roots``), and the buffers of modules, whose graphs reach back
    through several steps; an empty list if there are none.

    ``found`` is what the notebook's names lead to, ``budget`` the time limit.
    """
    buffers = [
        Root(each, node)
        for each in found.parameters
        if is_own(each.value)
        and each.value.requires_grad
        and not each.value.is_inference()
        and (node := history(each.value, each.value._version).root) is not None
    ]
    names: dict[int, str] | None = None
    said: list[Spanning] = []
    for root in (*buffers, *sampled(roots)):
        weight = _saved_often(root.node, budget)
        if weight is not None and not budget.spent:
            if names is None:
                names = {each.value.data_ptr(): each.text for each in reversed(found.parameters) if is_own(each.value)}
            said.append(Spanning(root.thing.text, root.thing.path, names.get(weight, "")))
    return said


def _saved_often(root: Any, budget: Budget) -> int | None:
    """The address of a leaf that the graph has saved at :data:`STEPS` versions; ``None`` if there is none, or the time
    limit is exceeded.
    """
    work, seen = [root], {root}
    versions: dict[int, set[int]] = {}
    for node in islice(work, NODES):  # the list grows during the iteration
        if not budget.goes_on():
            return None
        for slot in kept(node):
            leaf = base_of(slot.tensor)
            leaf = slot.tensor if leaf is None else leaf
            if slot.version < STEPS - 1 or not is_own(leaf) or not leaf.requires_grad or leaf.grad_fn is not None:
                continue
            known = versions.setdefault(leaf.data_ptr(), set())
            if (version := slot.saved_at()) is not None:
                known.add(version)
            if len(known) >= STEPS:
                return leaf.data_ptr()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    return None
