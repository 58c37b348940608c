"""Finds data that was split again after nothing of the earlier split is left: its rows are in several new parts, and a
model trained on some of them may still exist (:meth:`GoneSplits.compare`).

For each whole split its cell and the rows of its parts are stored: the indices of subsets, or the checksums of the rows
of tables that together have the rows of another table (``X_train, X_val = X[some], X[others]``). For the models, the
ids and versions of their parameters are stored, to recognise one that was created again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.nn import Parameter

from pitfall_lab.observe.live.found import Found
from pitfall_lab.observe.live.object_kinds import Kinds, inside, is_own
from pitfall_lab.observe.live.row_orders import Orders, TableOrder
from pitfall_lab.observe.live.split_again import MOST as MANY
from pitfall_lab.observe.live.split_again import SubsetPart, numbers
from pitfall_lab.observe.live.sums import mark

MOST = 8
"""How many splits are remembered at most."""
FEWEST = 2
"""How many equal checksums count as shared rows; a single one may be chance."""
_TABLES = "tables"


class NewPart(NamedTuple):
    """A part of a new split: ``names`` are the expressions that lead to it or to a loader of it, ``rows`` is its number
    of rows.

    ``shared`` are, for each part of the earlier split, how many of these rows were in it (for tables, 0 instead of 1,
    which may be chance).
    """

    names: tuple[str, ...]
    rows: int
    shared: tuple[int, ...]


class SplitGone(NamedTuple):
    """A split of which nothing is left, whose data was split again (numbers of cells): cell ``before`` made it, cell
    ``again`` the new one.

    ``old`` are the expressions that led to each of its parts, ``new`` the parts of the new split; ``models`` are the
    names of models that existed before the new split and have not been created again.
    """

    before: int
    again: int
    old: tuple[tuple[str, ...], ...]
    new: tuple[NewPart, ...]
    models: frozenset[str]


class _Rows(NamedTuple):
    """A part of a split: the expressions for it, a key that identifies it, and its rows."""

    names: tuple[str, ...]
    key: Hashable
    rows: np.ndarray


class _ModelIds(NamedTuple):
    """The ids of a model's parameters, and the sum of their versions."""

    ids: tuple[int, ...]
    version: int


class _Round(NamedTuple):
    """A split: its cell, a key that identifies its data, its parts, and the models before it."""

    cell: int
    data: Hashable
    parts: tuple[_Rows, ...]
    models: dict[str, _ModelIds]


class GoneSplits:
    """Remembers the rows of the parts of each whole split, as numbers, to find parts of a new split that share rows
    with parts of an earlier one.
    """

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self._keys: set[Hashable] = set()
        self._models: dict[str, _ModelIds] = {}
        self._shared: dict[tuple[int, int, Hashable], tuple[NewPart, ...]] = {}
        self._cell, self._was_skipped = 0, False

    def compare(self, parts: Sequence[SubsetPart] | None, orders: Orders, found: Found, now: int) -> list[SplitGone]:
        """The splits whose data was split again after nothing of them was left, if some new part has rows of several
        old parts and a model from before still exists; ``now`` is the number of the last cell.

        An empty list if there are none, or ``parts`` is ``None``. ``parts`` are all subsets of the namespace (``None``:
        unknown), ``orders`` has its tables. ``found`` is what the notebook's names lead to.
        """
        if parts is None:
            self._was_skipped = True
            return []
        tables, new = orders.tables, orders.new
        keys = {_key(part) for part in parts}
        if now != self._cell:
            rounds = [*_of_subsets([part for part in parts if _key(part) not in self._keys]), *_of_tables(tables, new)]
            if self._was_skipped:  # which cell made them is not known
                rounds, self._was_skipped = [], False
            self._rounds += [_Round(now, data, some, self._models) for data, some in rounds]
            self._rounds = self._rounds[-MOST:]
            self._keys, self._cell = keys, now
            self._models = _models(found) if self._rounds else {}
        last = {each.data: each for each in self._rounds}
        there = keys | {("table", table.same) for table in tables.values()}
        return [
            made
            for old in self._rounds
            if (newer := last[old.data]) is not old
            and there.isdisjoint(part.key for part in old.parts)
            and not there.isdisjoint(part.key for part in newer.parts)
            and (made := self._found(old, newer)) is not None
        ]

    def _found(self, old: _Round, newer: _Round) -> SplitGone | None:
        models = {
            name
            for name, was in newer.models.items()
            if (is_ := self._models.get(name)) is not None and is_.ids == was.ids and is_.version >= was.version
        }
        at = old.cell, newer.cell, old.data
        if at not in self._shared:
            self._shared = {**dict(list(self._shared.items())[-MOST:]), at: _shared(old, newer)}
        made = self._shared[at]
        if not models or not any(sum(map(bool, part.shared)) > 1 for part in made):
            return None  # the parts are the same as before
        return SplitGone(old.cell, newer.cell, tuple(each.names for each in old.parts), made, frozenset(models))


def _shared(old: _Round, newer: _Round) -> tuple[NewPart, ...]:
    least, made = FEWEST if old.data == _TABLES else 1, []
    for part in newer.parts:
        shared = tuple(len(np.intersect1d(part.rows, each.rows, assume_unique=True)) for each in old.parts)
        made.append(NewPart(part.names, len(part.rows), tuple(each if each >= least else 0 for each in shared)))
    return tuple(made)


def _key(part: SubsetPart) -> Hashable:
    return ("subset", *part.key)


def _of_subsets(parts: Sequence[SubsetPart]) -> Iterator[tuple[Hashable, tuple[_Rows, ...]]]:
    of_data: dict[int, list[tuple[SubsetPart, np.ndarray]]] = {}
    for part in parts:
        rows = np.unique(np.asarray(numbers(part.positions), dtype=np.int64))
        of_data.setdefault(id(part.data), []).append((part, rows))
    for some in of_data.values():
        total = sum(len(part.positions) for part, _ in some)
        every = np.unique(np.concatenate([rows for _, rows in some]))
        if len(some) > 1 and 0 < total <= MANY and len(every) == total and (every[0], every[-1]) == (0, total - 1):
            named = (_Rows((*part.names, *part.loaders), _key(part), rows) for part, rows in some)
            yield _content(some[0][0].data), tuple(named)


def _content(data: Any) -> Hashable:
    """A key that identifies a data set: checksums of its tensors and arrays, or, if it has none, its id."""
    kinds = Kinds()
    held = list(inside(data, "object").values()) if kinds.of(data) not in ("tensor", "array", "group") else [data]
    held = [one for each in held for one in (each if type(each) is tuple or type(each) is list else (each,))][:MOST]
    marks = tuple(found for each in held if kinds.of(each) in ("tensor", "array") and (found := mark(each)) is not None)
    return marks or id(data)


def _of_tables(tables: Mapping[str, TableOrder], new: set[str]) -> Iterator[tuple[Hashable, tuple[_Rows, ...]]]:
    """The first split of a table: new tables that together have each of its rows exactly once. Yields nothing if there
    is none.
    """
    distinct = {
        name: frozenset(table.rows)
        for name, table in tables.items()
        if len(new) > 1 and len(set(table.rows)) == len(table.rows)
    }
    for source, rows in sorted(distinct.items(), key=lambda each: -len(each[1])):
        wide = tables[source].wide
        parts: dict[int, list[str]] = {}
        for name in sorted(new & distinct.keys()):
            if name != source and tables[name].wide == wide and distinct[name] < rows:
                parts.setdefault(tables[name].same, []).append(name)
        least = [
            names
            for names in parts.values()
            if not any(distinct[each[0]] < distinct[names[0]] for each in parts.values())
        ]  # what was split further is no part
        sets = [distinct[names[0]] for names in least]
        if len(least) > 1 and sum(map(len, sets)) == len(rows) == len(frozenset[int]().union(*sets)):
            yield (
                _TABLES,
                tuple(
                    _Rows(tuple(names), ("table", tables[names[0]].same), np.array(sorted(some), dtype=np.int64))
                    for names, some in zip(least, sets, strict=True)
                ),
            )
            return


def _models(found: Found) -> dict[str, _ModelIds]:
    made: dict[str, _ModelIds] = {}
    for thing in found.parameters:
        tensor = thing.value
        if type(tensor) is Parameter and is_own(tensor) and not tensor.is_inference():
            ids, version = made.get(thing.path[0], _ModelIds((), 0))
            made[thing.path[0]] = _ModelIds((*ids, id(tensor)), version + tensor._version)
    return made
