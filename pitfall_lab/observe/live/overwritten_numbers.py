"""Finds numbers that a second run of a cell has overwritten: it computes them from data which it then changes by them
(:meth:`OverwrittenNumbers.compare`).

``mu, sd = x.mean(), x.std(); x = (x - mu) / sd``: the second run leaves ``x`` unchanged but computes 0 and 1, and the
mean of the data is lost. Which numbers to compare is read from the cell's source; samples of the values show that the
data was not created again, that the second run has not changed it, and that the numbers differ now. Only CPU memory is
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pitfall_lab.observe.live.found import Thing
from pitfall_lab.observe.live.object_kinds import Kinds
from pitfall_lab.observe.live.written_again import differs, place_of, sample_of

MOST = 64
"""How many numbers of one cell are compared at most."""
_GREATEST = 1e300


class Overwritten(NamedTuple):
    """A number that a second run of a cell has computed from data that the first run had already changed.

    Cell ``again`` has computed ``name`` from ``source`` once more; ``source`` was already the result of cell ``first``,
    and has not changed, but ``name`` has (two names, and numbers of cells). ``was`` and ``now``: the values of a single
    number before and after; ``None`` if ``name`` holds several.
    """

    name: str
    source: str
    first: int
    again: int
    was: float | None
    now: float | None


class _NumberAndSource(NamedTuple):
    """A number and its source after a cell: samples of the values of both, and the id of the source."""

    cell: int
    number: np.ndarray
    source: np.ndarray
    at: int


class OverwrittenNumbers:
    """Remembers samples of the numbers that cells compute from data which they then change."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], _NumberAndSource] = {}
        #: Each with the sample that the number has now.
        self._found: dict[str, tuple[Overwritten, np.ndarray]] = {}
        self._cell = 0

    def compare(
        self, namespace: Mapping[str, Any], asked: Sequence[tuple[str, str, str]], now: int
    ) -> list[Overwritten]:
        """The numbers that were overwritten and still have the value from then; ``now`` is the number of the last cell.
        An empty list if there are none.

        ``asked`` are the numbers that the last cell computes from data which it changes: for each its name, the name of
        the data, and the statement. At most :data:`MOST` (64) are compared. ``namespace`` has the notebook's names and
        their objects.
        """
        if now == self._cell:
            return [each for each, _ in self._found.values()]
        self._cell = now
        self._found = {
            name: each
            for name, each in self._found.items()
            if (is_ := _sample(namespace.get(name))) is not None and np.array_equal(is_, each[1], equal_nan=True)
        }
        kept: dict[tuple[str, str, str], _NumberAndSource] = {}
        for key in dict.fromkeys(asked[:MOST]):
            number, source = (_sample(namespace.get(name)) for name in key[:2])
            if number is None or source is None or len(source) < 2:
                continue
            kept[key] = _NumberAndSource(now, number, source, id(namespace.get(key[1])))
            was = self._kept.get(key)
            if was is None or differs(was.source, source) or not differs(was.number, number):
                continue
            kept[key] = was._replace(at=kept[key].at)  # a third run does not make the second one right
            if key[0] in self._found:
                continue
            before, after = (float(each[0]) if len(each) == 1 else None for each in (was.number, number))
            self._found[key[0]] = Overwritten(key[0], key[1], was.cell, now, before, after), number
        self._kept = {
            key: each for key, each in self._kept.items() if key not in kept and self._is(namespace, key)
        } | kept
        return [each for each, _ in self._found.values()]

    def _is(self, namespace: Mapping[str, Any], key: tuple[str, str, str]) -> bool:
        """Whether a source is still the object that it was after its cell, with the same values."""
        was, value = self._kept[key], namespace.get(key[1])
        sample = _sample(value)
        return id(value) == was.at and sample is not None and np.array_equal(sample, was.source, equal_nan=True)


def _sample(value: Any) -> np.ndarray | None:
    """Some of the values of a tensor or an array, or a single number, as an array; ``None`` for what cannot be read."""
    if type(value) is float or type(value) is int:
        return np.array([float(value)]) if abs(value) < _GREATEST else None
    if type(value) is np.float32 or type(value) is np.float64:
        return np.array([float(value)])
    kind = Kinds().of(value)
    where = place_of(Thing((), "", kind, value), least=1) if kind in ("tensor", "array") else None
    return sample_of(where) if where is not None else None
