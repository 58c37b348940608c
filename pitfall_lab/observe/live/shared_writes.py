"""Finds data whose memory a cell has changed through another name (:meth:`SharedWrites.compare`).

For tensors and arrays with different names on the same memory a small sample of the values is stored. Whether a write
was intended, and what reads the values later, only the sources of the cells show. Parameters, buffers and gradients are
left out, as training writes them. Only CPU memory is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.written_again import Place, data, place_of, sample_of

MOST = 64
"""How many changes are remembered at most."""
SUMMED = 1 << 20


class Shared(NamedTuple):
    """A tensor or array (``kind``) with the expression ``name`` whose values the cell with the number ``cell`` has
    changed, while other names share its memory.

    ``others`` are those names, ``path`` the names and keys that lead to it. ``blank``: before, all values in the sample
    were the same, as in a buffer that is still to be filled. ``reordered``: the memory has the same values as before,
    in another order.
    """

    name: str
    path: Path
    kind: str
    others: tuple[str, ...]
    cell: int
    blank: bool
    reordered: bool


class _WrittenObject(NamedTuple):
    """An object after a cell: its id, the span of its memory, a sample, and sums over all its values."""

    at: int
    place: Place
    sample: np.ndarray
    sums: tuple[float, float] | None


class SharedWrites:
    """Remembers samples of data that has several names, and which cells have changed it."""

    def __init__(self) -> None:
        self._was: dict[Path, _WrittenObject] = {}
        #: The changes, each with what was sampled of the object before.
        self._changes: list[tuple[Shared, np.ndarray]] = []
        self._cell = 0

    def compare(
        self, found: Found, began: Callable[[Path], np.ndarray | None], now: int, budget: Budget
    ) -> list[Shared]:
        """All changes of data that still exists and has not been changed back, according to samples, oldest first; an
        empty list if there are none. ``now`` is the number of the last cell.

        ``began`` returns, for a path, a sample of the object's values when it was first seen (None: unknown); it is
        used for an object that had only one name until now. ``found`` is what the notebook's names lead to, ``budget``
        the time limit.
        """
        if now == self._cell:
            return [each for each, _ in self._changes]
        self._cell = now
        known: dict[Path, _WrittenObject] = {}
        for thing, place, others in _shared(found, budget):
            was, at = self._was.get(thing.path), id(thing.value)
            if was is None and (first := began(thing.path)) is not None:
                was = _WrittenObject(at, place, first, None)
            sample = sample_of(place)
            if was is None or (was.at, was.place) != (at, place):
                known[thing.path] = _WrittenObject(at, place, sample, _sums(place))
                self._changes = [each for each in self._changes if each[0].path != thing.path]
            elif np.array_equal(was.sample, sample, equal_nan=True):
                known[thing.path] = was._replace(sums=was.sums or _sums(place))
            else:
                known[thing.path] = _WrittenObject(at, place, sample, _sums(place))
                sums = known[thing.path].sums
                reordered = was.sums is not None and sums is not None and np.allclose(was.sums, sums, rtol=1e-6)
                blank = bool((was.sample == was.sample[0]).all())
                change = Shared(thing.text, thing.path, thing.kind, others, now, blank, bool(reordered))
                self._changes.append((change, was.sample))
        if budget.spent:
            self._was |= known
        else:
            self._was = known
        self._changes = [
            (each, before)
            for each, before in self._changes
            if (is_ := self._was.get(each.path)) is not None and not np.array_equal(is_.sample, before, equal_nan=True)
        ][-MOST:]
        return [each for each, _ in self._changes]


def _shared(found: Found, budget: Budget) -> list[tuple[Thing, Place, tuple[str, ...]]]:
    """Each tensor or array that overlaps in memory with one under another name, the span of its memory, and those other
    names.
    """
    things = [
        (where, thing)
        for thing in (*found.arrays, *found.tensors)
        if budget.goes_on() and (where := place_of(thing)) is not None
    ]
    things.sort(key=lambda each: each[0][:2])
    groups: list[list[tuple[Place, Thing]]] = []
    end = 0
    for place, thing in things:
        if place[0] >= end:
            groups.append([])
        groups[-1].append((place, thing))
        end = max(end, place[0] + place[1])
    groups = [each for each in groups if len({thing.path[0] for _, thing in each}) > 1]
    written = {id(thing.value) for thing in data(found)} if groups else set()
    made = []
    for group in groups:
        names = dict.fromkeys(thing.path[0] for _, thing in group)
        made += [
            (thing, place, tuple(name for name in names if name != thing.path[0]))
            for place, thing in group
            if id(thing.value) in written
        ]
    return made


def _sums(place: Place) -> tuple[float, float] | None:
    """The sum of all values and that of their squares; ``None`` for more than :data:`SUMMED` bytes."""
    address, size, kind = place
    if size > SUMMED:
        return None
    memory = (ctypes.c_char * size).from_address(address)
    numbers = np.frombuffer(memory, dtype=kind).astype(np.float64)  # type: ignore[call-overload] # an object with a buffer
    with np.errstate(all="ignore"):
        return float(numbers.sum()), float(np.square(numbers).sum())
