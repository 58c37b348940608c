"""Finds attributes of a data set that a cell has changed while several subsets share the data set
(:meth:`SharedSettings.compare`).

``random_split`` and ``Subset`` copy nothing: an attribute set for one subset is set for all. Only the attributes of
data sets are compared, as plain values or ids; no item of a data set is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.found import ELEMENTS
from pitfall_lab.observe.live.object_kinds import class_name, inside
from pitfall_lab.observe.live.split_again import SubsetPart

_PLAIN = (bool, int, float, str, type(None))
_ABSENT = ("absent",)
_Mark = tuple[Any, ...]


class SharedSetting(NamedTuple):
    """An attribute of a data set that several subsets share, changed by a cell to another value, which it still has.

    ``attribute`` is its name and ``cell`` the number of the cell. ``parts`` has, for each subset of that data set, the
    expressions for it and for its loaders.
    """

    attribute: str
    cell: int
    parts: tuple[tuple[str, ...], ...]


class SharedSettings:
    """Remembers the attributes of data sets with several subsets: hashes of plain values, and the ids of all others."""

    def __init__(self) -> None:
        self._was: dict[tuple[int, str], dict[str, _Mark]] = {}
        #: For a data set and an attribute the value before the first change, and the cell of the last.
        self._changed: dict[tuple[int, str, str], tuple[_Mark, int]] = {}

    def compare(self, parts: Sequence[SubsetPart] | None, now: int) -> list[SharedSetting]:
        """All changes that have not been undone; an empty list if there are none, or ``parts``, all subsets of the
        namespace, is ``None`` because they were not found in time. ``now`` is the number of the last cell.
        """
        if parts is None:
            return []
        shared: dict[int, list[SubsetPart]] = {}
        for part in parts:
            shared.setdefault(id(part.data), []).append(part)
        was, changed, self._was, self._changed = self._was, self._changed, {}, {}
        found: list[SharedSetting] = []
        for some in shared.values():
            if len({part.key[2:] for part in some}) < 2:
                continue
            key = id(some[0].data), class_name(some[0].data)
            before, marks = was.get(key), _marks(some[0].data)
            self._was[key] = marks
            for name in sorted({*marks, *(before or ())}):
                mark = marks.get(name, _ABSENT)
                first, cell = changed.get((*key, name), (mark if before is None else before.get(name, _ABSENT), now))
                if before is not None and before.get(name, _ABSENT) != mark:
                    cell = now
                if first != mark:
                    self._changed[*key, name] = first, cell
                    names = tuple((*part.names, *part.loaders) for part in some)
                    found.append(SharedSetting(name, cell, names))
        return found


def _marks(data: Any) -> dict[str, _Mark]:
    table = list(islice(inside(data, "object").items(), ELEMENTS))
    return {
        name: (class_name(each), hash(each)) if type(each) in _PLAIN else ("id", id(each))
        for name, each in table
        if type(name) is str
    }
