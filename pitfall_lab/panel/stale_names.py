"""Finds names whose value was computed from an older value of another name, so that running all cells in order gives
another result (:class:`Order`).

The sources of the cells that ran are read statement by statement. A name is out of date if the cell that bound its
source has run again with another value, and the name was not computed again. It is not out of date if *another* cell
has bound the source's name (names are often reused), nor if only a shape or dtype of the source was used.
"""

# ruff: noqa: PLC0415 - a notebook without torch does not import it

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from pitfall_lab.panel.cells_run import Cell
from pitfall_lab.panel.name_flow import binds, statements

DEPTH = 8
_PLAIN = (int, float, str, bool, bytes, type(None))


class Value(NamedTuple):
    """The value to which the run ``cell`` bound a name; ``mark`` is a number that identifies the value.

    ``made_from`` has, for each name from which it was computed, the mark of that name's value and the id of the cell
    that had bound it.
    """

    cell: Cell
    mark: int
    made_from: Mapping[str, tuple[int, str]]


class OutOfOrder(NamedTuple):
    """A name that is out of date: ``name``, bound in the run with the number ``made``, was computed from a value of
    ``source`` that the run ``again`` has replaced.
    """

    name: str
    source: str
    made: int
    again: int


class Order:
    """Tracks from cell to cell from which names each name was computed.

    Cells without an id are ignored, as it cannot be recognised that they run again.
    """

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._seen: dict[str, Any] = {}
        self._marks = 0

    def ran(self, cell: Cell, namespace: Mapping[str, Any], *, succeeded: bool) -> list[OutOfOrder]:
        """Called after a cell has run; return the names it has read whose values were computed from an older value of
        another name.

        An empty list if there are none, if the cell has not succeeded, or if it has no id. ``namespace`` has the
        notebook's names and their objects.
        """
        taken, made = cell.flow
        if not succeeded or not cell.id:
            for name in made:  # which statements ran is unknown
                self._values.pop(name, None)
            return []
        stale = [found for name in sorted(taken) if (found := self._stale(name)) is not None]
        before = {name: (value.mark, value.cell.id) for name, value in self._values.items()}
        for name, sources in made.items():
            seen = _look(namespace.get(name), cell, name)
            if name not in self._values or seen != self._seen.get(name):
                self._marks += 1
                mark = self._marks
            else:
                mark = self._values[name].mark
            self._seen[name] = seen
            self._values[name] = Value(
                cell, mark, {each: before[each] for each in sources if each in before and each != name}
            )
        return stale

    def _stale(self, name: str, depth: int = DEPTH) -> OutOfOrder | None:
        value = self._values.get(name)
        if value is None:
            return None
        for source, (mark, binder) in value.made_from.items():
            now = self._values.get(source)
            if now is None:
                continue
            # What one run has both read and replaced (`X, Y = X[order], Y[order]`) is as
            # little out of date as `x = x + 1`.
            if now.mark != mark and now.cell.id == binder and now.cell.count != value.cell.count:
                return OutOfOrder(name, source, value.cell.count, now.cell.count)
            if (
                now.mark == mark
                and depth
                and (behind := self._stale(source, depth - 1)) is not None
                and behind.again > value.cell.count
            ):
                return behind._replace(name=name, made=value.cell.count)
        return None


def _look(value: Any, cell: Cell, name: str) -> Any:
    """Return a key that is equal for values that are equal, as far as can be known without running code of their class.

    For a value that cannot be compared so, the key is the statements that bind the name: the same statements are
    assumed to give the same value.
    """
    if any(type(value) is each for each in _PLAIN):  # compared by identity: a metaclass may define __eq__
        return type(value), value
    if "torch" in sys.modules:
        from pitfall_lab.observe.live.sums import mark

        found = mark(value)
        if found is not None:
            return found
    return tuple(ast.dump(each) for each in statements(cell.tree) if name in binds(each))
