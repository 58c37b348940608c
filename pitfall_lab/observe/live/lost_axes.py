"""Finds names whose tensor or array has been replaced by one that differs only in axes of size 1: a target of shape
(500, 1) that is created again as (500,), for example (:meth:`Shapes.compare`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found
from pitfall_lab.observe.live.object_kinds import is_own

MOST = 100
"""How many changes are remembered at most."""
Shape = tuple[int, ...]


class Reshaped(NamedTuple):
    """A name whose tensor or array has been replaced by one with other axes of size 1: its shape was ``before`` since
    cell ``made``, and has been ``after`` since cell ``changed`` (numbers of cells).
    """

    name: str
    before: Shape
    after: Shape
    made: int
    changed: int


class Shapes:
    """Remembers the shapes of the namespace's tensors and arrays after each cell, and which names have since lost or
    gained axes of size 1.
    """

    def __init__(self) -> None:
        self._was: dict[str, tuple[Shape, int]] = {}
        self._changes: dict[str, Reshaped] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[Reshaped]:
        """The names whose tensor or array has gained or lost axes of size 1 and does not have its earlier shape again;
        ``now`` is the number of the last cell.

        An empty list if there are none. The other axes must be the same before and after, and there must be at least
        one; at most ``MOST`` (100) changes are remembered. ``found`` is what the notebook's names lead to, ``budget``
        the time limit.
        """
        if now == self._cell:
            return list(self._changes.values())
        self._cell = now
        known: dict[str, tuple[Shape, int]] = {}
        for thing in (*found.tensors, *found.arrays):
            if not budget.goes_on():
                break
            if len(thing.path) != 1 or not (type(thing.value) is np.ndarray or is_own(thing.value)):
                continue
            name, shape = thing.path[0], tuple(thing.value.shape)
            was, made = self._was.get(name, (shape, now))
            known[name] = (shape, made if was == shape else now)
            if was == shape:
                continue
            change = self._changes.pop(name, None)
            if change is not None and change.before == shape:
                continue  # as it was
            if _lengths(was) == _lengths(shape) and len(_lengths(shape)) and len(self._changes) < MOST:
                self._changes[name] = Reshaped(name, was, shape, made, now)
        self._was |= known
        for name in [name for name in self._changes if name not in self._was]:
            del self._changes[name]
        return list(self._changes.values())


def _lengths(shape: Shape) -> Shape:
    """A shape without its axes of size 1."""
    return tuple(size for size in shape if size != 1)
