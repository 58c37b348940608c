"""Finds buffers and attributes of modules that were computed from a parameter which has changed since, or whose graph
was freed (:class:`ComputedBuffers` and :func:`freed_buffer`).

A value that a module computes when it is created is not computed again: it does not follow the parameter, and only one
backward can go through its graph. For each, the key of its node and the versions of the leaves are stored, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.object_kinds import class_name, is_own
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import ACCUMULATE, node_key, sequence_of

MOST = 200
"""Graphs are examined up to this many nodes; larger ones are results of a forward pass."""


class ComputedBuffer(NamedTuple):
    """A tensor in a module that was computed from parameters, and does not follow them: ``name`` is the expression for
    it, ``path`` are the names that lead to it, ``owner`` is the class of the module, ``leaf`` the expression for the
    first of the parameters.

    ``made`` is the number of the cell that computed it (None: unknown), ``moved`` that of the first later cell that
    changed one of the parameters (None: not determined, see :func:`freed_buffer`). ``is_buffer``: it is registered as a
    buffer, and is no plain attribute.
    """

    name: str
    path: Path
    owner: str
    leaf: str
    made: int | None
    moved: int | None
    is_buffer: bool


class _SeenBuffer(NamedTuple):
    """The key of the node that computed a buffer, the versions of its leaves, and the cell that changed one of them
    (None: none).
    """

    key: tuple[Any, ...]
    versions: tuple[int, ...]
    moved: int | None


class ComputedBuffers:
    """Remembers the versions of the parameters from which buffers and attributes of modules were computed."""

    def __init__(self) -> None:
        self._seen: dict[Path, _SeenBuffer] = {}

    def compare(self, found: Found, cells: Cells, budget: Budget) -> list[ComputedBuffer]:
        """The buffers and attributes one of whose parameters has changed since they were first seen after a cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to, ``cells`` shows which cell created a node.
        """
        seen, said = dict[Path, _SeenBuffer](), list[ComputedBuffer]()
        names = {id(each.value): each.text for each in reversed(found.parameters)}
        for thing, owner, node, is_buffer in _computed(found, budget):
            leaves = [each.variable for each in walk([node], budget)[:MOST] if each.name() == ACCUMULATE]
            first = next((each for each in leaves if id(each) in names), None)
            if first is None:
                continue
            key, versions = node_key(node), tuple(each._version for each in leaves)
            was = self._seen.get(thing.path)
            now = _SeenBuffer(key, versions, None)
            if was is not None and was.key == key:
                changed = cells.now if was.versions != versions else None
                now = was._replace(moved=was.moved if was.moved is not None else changed)
            seen[thing.path] = now
            if now.moved is not None:
                made = cells.of(sequence_of(node))
                leaf = names[id(first)]
                said.append(ComputedBuffer(thing.text, thing.path, owner, leaf, made, now.moved, is_buffer))
        if budget.spent:
            return []
        self._seen = seen
        return said


def freed_buffer(found: Found, cells: Cells, behind: set[Any], budget: Budget) -> ComputedBuffer | None:
    """Return the first buffer or attribute that a known cell computed from a parameter, in whose graph nodes were
    freed, and whose own node is in ``behind`` (a set of nodes; empty: any); None if there is none. Its ``moved`` is
    None.

    ``found`` is what the notebook's names lead to, ``cells`` determines which cell created a node, ``budget`` is the
    time limit.
    """
    names = {id(each.value): each.text for each in reversed(found.parameters)}
    for thing, owner, node, is_buffer in _computed(found, budget):
        made, nodes = cells.of(sequence_of(node)), walk([node], budget)[:MOST]
        if made is None or (behind and node not in behind) or not any(is_freed(each) for each in nodes):
            continue
        leaves = (names.get(id(each.variable), "") for each in nodes if each.name() == ACCUMULATE)
        leaf = next((each for each in leaves if each), "")
        if leaf:
            return ComputedBuffer(thing.text, thing.path, owner, leaf, made, None, is_buffer)
    return None


def _computed(found: Found, budget: Budget) -> Iterator[tuple[Thing, str, Any, bool]]:
    """The buffers and tensor attributes that have a graph, each with the class of its module and its node."""
    layers: dict[Path, Any] | None = None
    buffers = [(each, True) for each in found.parameters]
    beside = [(each, False) for each in found.tensors if len(each.path) > 1]
    for thing, is_buffer in (*buffers, *beside):
        tensor = thing.value
        if not is_own(tensor) or not tensor.requires_grad or tensor.is_inference() or not budget.goes_on():
            continue
        node = history(tensor, tensor._version).root
        if node is None:
            continue
        if layers is None:
            layers = {each.path: each.value for each in found.layers}
        if thing.path[:-1] in layers:
            yield thing, class_name(layers[thing.path[:-1]]), node, is_buffer
