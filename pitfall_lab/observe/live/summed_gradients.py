"""Finds gradients to which two cells have added, one after the other, without a step in between
(:meth:`GradientSums.compare`).

Determined from versions alone: ``.grad`` is the tensor that an earlier cell left there, is not zero, and was written
again, and the leaf itself was not changed. This is gradient accumulation; whether it was intended, only the cells'
sources can show.
"""

from __future__ import annotations

from typing import NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.leftover_gradients import has_numbers
from pitfall_lab.observe.live.object_kinds import is_own


class Summed(NamedTuple):
    """A leaf whose gradient cell ``first`` has left, and to which cell ``now`` has added (numbers of cells).

    ``name`` is the expression for the leaf, ``path`` the names and keys that lead to it. ``others`` counts further such
    leaves under the same name.
    """

    name: str
    path: Path
    others: int
    first: int
    now: int


class _Was(NamedTuple):
    """A leaf after a cell: its version, the id and version of its gradient, and the cell that wrote this last; 0 if the
    gradient is zero.
    """

    version: int
    gradient: int
    written: int
    by: int


class GradientSums:
    """Remembers, after each cell, the versions of leaves and of their gradients, to find gradients to which two cells
    have added without a step in between.
    """

    def __init__(self) -> None:
        self._was: dict[int, _Was] = {}
        self._cell = 0
        self._found: list[Summed] = []

    def compare(self, found: Found, now: int, budget: Budget) -> list[Summed]:
        """The leaves to whose gradients the last cell, with the number ``now``, has added, only the first leaf of each
        name in the namespace.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        if now == self._cell:
            return self._found
        self._cell, self._found = now, []
        known: dict[int, _Was] = {}
        summed: dict[str, Summed] = {}
        for thing in (*found.parameters, *found.tensors):
            leaf = thing.value
            if not budget.goes_on():
                self._was |= known
                return []
            if id(leaf) in known or not is_own(leaf) or leaf.is_inference() or not is_leaf(leaf):
                continue
            gradient = leaf.grad
            if gradient is None or not is_own(gradient) or gradient.is_inference():
                continue
            was, version, written = self._was.get(id(leaf)), leaf._version, gradient._version
            same = was is not None and (was.version, was.gradient) == (version, id(gradient))
            added = same and was is not None and written > was.written
            by = was.by if was is not None and same and not added else now if has_numbers(thing, gradient) else 0
            known[id(leaf)] = _Was(version, id(gradient), written, by)
            if added and was is not None and was.by:
                name = thing.path[0]
                one = summed.get(name)
                summed[name] = (
                    one._replace(others=one.others + 1)
                    if one is not None
                    else Summed(thing.text, thing.path, 0, was.by, now)
                )
        self._was, self._found = known, list(summed.values())
        return self._found
