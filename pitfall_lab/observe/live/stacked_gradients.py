"""Finds gradients to which a backward has added although a step had already used them: nothing cleared them in between
(:meth:`Gradients.compare` returns the first).

Determined from versions alone: ``.grad`` is the same tensor as after the previous cell and was written, and the
parameter had been changed. A gradient that was cleared in place looks the same, so the sources of the cells must be
read too.
"""

from __future__ import annotations

from typing import NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import is_own

TWICE = 2


class Stacked(NamedTuple):
    """A leaf to whose gradient a backward has added after a step had used it; ``others`` counts the other such leaves.

    ``name`` is the expression for the leaf, ``path`` the names and keys that lead to it.
    """

    name: str
    path: Path
    others: int


class _StackedLeaf(NamedTuple):
    """What is remembered of a leaf from one cell to the next: its ``version``, and the id and version (``written``) of
    its gradient.

    ``before`` is the leaf's version when the gradient was last added to: if the leaf's version is higher, a step came
    after that.
    """

    version: int
    gradient: int
    written: int
    before: int


class Gradients:
    """Remembers the versions of leaves and of their gradients after the previous cell, to find gradients that were used
    by a step and then added to.
    """

    def __init__(self) -> None:
        self._was: dict[int, _StackedLeaf] = {}
        self._is: dict[int, _StackedLeaf] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> Stacked | None:
        """The first leaf to whose gradient the last cell has added after a step, or whose values and gradient that cell
        has both written at least twice, with the number of others; ``now`` is the number of that cell.

        None if there is none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's names lead to.
        """
        if now != self._cell:
            self._was, self._is, self._cell = self._is, {}, now
        stacked = []
        for thing in (*found.parameters, *found.tensors):
            tensor = thing.value
            if not budget.goes_on():
                return None
            if not is_own(tensor) or tensor.is_inference() or not is_leaf(tensor):
                continue
            was, version, gradient = self._was.get(id(tensor)), tensor._version, tensor.grad
            if gradient is None or not is_own(gradient):
                self._is[id(tensor)] = _StackedLeaf(version, 0, -1, version)
                continue
            same = was is not None and was.gradient == id(gradient)
            written = gradient._version
            added = was is not None and written > was.written if same else True
            before = (
                (was.version if was is not None else version) if added else was.before if was is not None else version
            )
            self._is[id(tensor)] = _StackedLeaf(version, id(gradient), written, before)
            if was is None:
                continue
            again = same and added and was.version > was.before
            looped = version - was.version >= TWICE and written - (was.written if same else -1) >= TWICE
            if again or looped:
                stacked.append(thing)
        return Stacked(stacked[0].text, stacked[0].path, len(stacked) - 1) if stacked else None
