"""Finds features and labels whose rows one cell has put into two different orders, so that features and labels no
longer match (:meth:`Orders.compare`).

For each table in the namespace the checksums of its rows are stored. If a cell makes a table and a column, each with
exactly the rows of an earlier one in another order, the new order of the table is known from its rows, and the column
either has the same order or not. Sorted columns, columns of distinct integers (row indices), and two tables may be
reordered separately on purpose and are not reported. Only CPU memory is read.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.tensor_facts import is_opaque

FEWEST, MOST = 8, 4096
"""How many rows a table may have, at least and at most."""
BYTES = 1 << 19
READ, ROWS = 1 << 20, 1 << 13
"""How many bytes are read at most after one cell, and how many rows of new tables."""
NAMES = 8
"""How many tables and columns of one cell are compared with each other at most."""


class Reordered(NamedTuple):
    """A table of features and a column of labels whose rows one cell has put into two different orders.

    ``features`` has the rows of ``source``, and ``labels`` those of ``answers`` (all names). ``wrong`` of the ``rows``
    rows have a wrong label now. ``cell`` is the number of that cell. ``path``: the name of the features, as a path.
    """

    features: str
    labels: str
    path: Path
    source: str
    answers: str
    wrong: int
    rows: int
    cell: int


class TableOrder(NamedTuple):
    """The rows of a table as checksums.

    ``rows`` are the checksums of the rows in order, ``whole`` is that of the whole table, ``wide`` the number of
    elements in a row. ``same``: equal for tables with the same rows in any order. ``is_order``: it is a column in
    rising or falling order, or of integers that are all different (row indices).
    """

    whole: int
    rows: tuple[int, ...]
    wide: int
    same: int
    is_order: bool


class Orders:
    """Remembers a checksum of each row of the notebook's tensors and arrays after the last cell, to find features and
    labels whose rows have been put into two different orders.
    """

    def __init__(self) -> None:
        self._known: dict[str, TableOrder] = {}
        self._new: set[str] = set()
        self._found: list[tuple[Reordered, int, int]] = []
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[Reordered]:
        """The tables and columns whose rows are now in two different orders; ``now`` is the number of the last cell. An
        empty list if there are none.

        Tables that exceed the limit of bytes and rows for one cell are compared after a later cell. ``found`` is what
        the notebook's names lead to, ``budget`` the time limit.
        """
        left, rest, tables, new = READ, ROWS, dict[str, TableOrder](), set[str]()
        for thing in (*found.tensors, *found.arrays):
            if len(thing.path) != 1:
                continue
            memory = _memory(thing)
            if memory is None:
                continue
            address, rows, size = memory[:3]
            left -= size
            if left < 0 or not budget.goes_on():
                break
            whole, name = zlib.crc32((ctypes.c_char * size).from_address(address)), thing.text
            known = self._known.get(name)
            if known is not None and (known.whole, len(known.rows)) == (whole, rows):
                tables[name] = known
            elif rows <= rest:
                rest -= rows
                tables[name] = _table(whole, memory)
                new.add(name)
        if now != self._cell:
            self._found = [each for each in self._found if _holds(each, tables)]
            taken = {(each.features, each.labels) for each, _, _ in self._found}
            self._found += [
                each
                for each in _reordered(tables, new, self._known, now)
                if (each[0].features, each[0].labels) not in taken
            ]
            self._known, self._new, self._cell = tables, new, now
        return [each for each, _, _ in self._found]

    @property
    def tables(self) -> dict[str, TableOrder]:
        """The tables after the last cell, by name."""
        return self._known

    @property
    def new(self) -> set[str]:
        """The names of the tables that the last cell has created or changed."""
        return self._new


def _memory(thing: Thing) -> tuple[int, int, int, int, np.dtype] | None:
    """The address, number of rows, bytes, elements in a row and dtype of a table; ``None`` if it cannot be read or has
    too few or too many rows or bytes.
    """
    value = thing.value
    if thing.kind == "array":
        if (
            type(value) is not np.ndarray
            or not value.flags.c_contiguous
            or value.dtype.kind not in "fiub"
            or not value.ndim
        ):
            return None
        kind, address = value.dtype, value.__array_interface__["data"][0]
    else:
        if (
            not is_own(value)
            or value.requires_grad
            or value.device.type != "cpu"
            or is_opaque(value)
            or not value.dim()
        ):
            return None
        if not value.is_contiguous() or value.is_complex() or value.is_quantized:
            return None
        kind, address = np.dtype(f"{'f' if value.is_floating_point() else 'i'}{value.element_size()}"), value.data_ptr()
    rows = int(value.shape[0])
    count = 1
    for each in value.shape[1:]:
        count *= int(each)
    size = rows * count * kind.itemsize
    return (address, rows, size, count, kind) if FEWEST <= rows <= MOST and 0 < size <= BYTES and address else None


def _table(whole: int, memory: tuple[int, int, int, int, np.dtype]) -> TableOrder:
    address, rows, size, wide, kind = memory
    content = ctypes.string_at(address, size)
    row = size // rows
    sums = tuple(zlib.crc32(content[at : at + row]) for at in range(0, size, row))
    is_order = False
    if wide == 1:
        steps = np.diff(np.frombuffer(content, kind).astype(np.float64))
        is_order = bool((steps >= 0).all() or (steps <= 0).all()) or (kind.kind in "iu" and len(set(sums)) == rows)
    return TableOrder(whole, sums, wide, hash((wide, *sorted(sums))), is_order)


def _reordered(
    tables: dict[str, TableOrder], new: set[str], before: dict[str, TableOrder], now: int
) -> Iterator[tuple[Reordered, int, int]]:
    """Yield each new table and new column that no longer match: both have reordered rows, but in different orders.

    Reordered means: the rows are those of an earlier table or column in another order. ``tables`` are all tables now
    and ``before`` those before the last cell, by name; ``new`` are the names of those that the cell has created or
    changed. Each item is the finding, and the checksums of the table and of the column, by which :func:`_holds`
    determines later whether they are unchanged.
    """
    kin: dict[int, list[tuple[str, TableOrder]]] = {}
    for known in (before, tables):
        for name, each in known.items():
            kin.setdefault(each.same, []).append((name, each))
    moved = {}
    for name in sorted(new):
        here = tables[name]
        # What the name itself was comes first, then other names; what it is now is no earlier table.
        origins = [(other, was) for other, was in kin[here.same] if other != name or was is not here]
        if any(was.rows != here.rows for _, was in origins):
            moved[name] = [
                *(each for each in origins if each[0] == name),
                *(each for each in origins if each[0] != name),
            ]
    columns = [name for name in moved if tables[name].wide == 1 and not tables[name].is_order][:NAMES]
    features = [
        name for name in moved if tables[name].wide > 1 and len(set(tables[name].rows)) == len(tables[name].rows)
    ][:NAMES]
    for name, column in product(features, columns):
        pairs = list(_pairs(name, column, moved, tables))
        if pairs and all(wrong for _, _, wrong in pairs):
            source, answers, wrong = pairs[0]
            one = Reordered(name, column, (name,), source, answers, wrong, len(tables[name].rows), now)
            yield one, tables[name].whole, tables[column].whole


def _pairs(
    name: str, column: str, moved: dict[str, list[tuple[str, TableOrder]]], tables: dict[str, TableOrder]
) -> Iterator[tuple[str, str, int]]:
    """Yield, for each earlier table and earlier column that may belong together, their names and how many rows have a
    wrong label now.
    """
    here, there = tables[name].rows, tables[column].rows
    for source, was in moved[name] if len(here) == len(there) else ():
        place = {each: at for at, each in enumerate(was.rows)}
        for answers, were in moved[column]:
            if (source == name) == (answers == column):
                yield source, answers, sum(mine != were.rows[place[row]] for mine, row in zip(there, here, strict=True))


def _holds(found: tuple[Reordered, int, int], tables: dict[str, TableOrder]) -> bool:
    """Whether both tables are unchanged since the finding."""
    one, features, labels = found
    return all(
        name in tables and tables[name].whole == whole
        for name, whole in ((one.features, features), (one.labels, labels))
    )
