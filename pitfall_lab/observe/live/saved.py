"""Compares the saved tensors of live graphs from cell to cell: which have changed, with or without a new version
(:meth:`Memory.compare`).

For each saved tensor a few values are stored: the cell in which it was first seen, and its version and checksum then.
No object is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.graphs import Key, SavedNow, is_read_in_backward, kept
from pitfall_lab.observe.live.sums import Sums

REMEMBERED = 20_000
STALE_LOOKED_AT = 40
"""How many changed saved tensors are reported after one cell at most."""


@dataclass(slots=True)
class FirstSeen:
    """The state of a saved tensor when it was first seen.

    ``cell`` is the number of the cell then, ``version`` its version and ``sum`` its checksum (None if none is
    computed); ``moved`` is the number of the cell that changed it later (None: none did). ``version`` is ``None`` if
    the tensor had been changed before it was first seen and the version at which it was saved could not be found.
    """

    cell: int
    version: int | None
    sum: int | None
    moved: int | None = None


class Moved(NamedTuple):
    """A saved tensor that was changed since it was saved: ``kept``, with its present version.

    ``node`` is the name of the node that saved it, ``version`` the version at which it was saved. ``silent``: its
    version has not changed. ``made`` and ``changed`` are the numbers of the cells that created the node and changed the
    tensor, ``line`` is the line of the statement that created the node. ``None`` where unknown.
    """

    kept: SavedNow
    node: str
    version: int | None
    silent: bool
    made: int | None
    line: int | None
    changed: int | None


class SavedRow(NamedTuple):
    """A saved tensor, for the rows of the panel: ``kept``.

    ``node`` is the name of the node that saved it, ``version`` the version at which it was saved, ``made`` the number
    of the cell that created the node; ``None`` where unknown.
    """

    kept: SavedNow
    node: str
    version: int | None
    made: int | None


class Memory:
    """Remembers the saved tensors of live graphs from one cell to the next."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, str, int | None], FirstSeen] = {}

    def compare(self, nodes: Iterable[Any], cells: Cells, budget: Budget) -> tuple[list[SavedRow], list[Moved]]:
        """The saved tensors of ``nodes`` (see :func:`.graphs.kept`): a list of all, and a list of those known to have
        changed since they were saved, at most :data:`STALE_LOOKED_AT` (40).

        Both are incomplete if the time limit ``budget`` is exceeded. ``cells`` determines which cell created a node.
        """
        held: list[SavedRow] = []
        moved: list[Moved] = []
        sums, met = Sums(), {}
        for node in nodes:
            if not budget.goes_on():
                break
            made = name = None
            for slot in kept(node):
                if name is None:
                    name, made = tensor_facts.node_name(node), cells.of(slot.key[0])
                at = slot.key, slot.slot, slot.index
                seen = self._seen.get(at)
                if seen is None:
                    seen = _first(slot, made, cells.now, sums)
                met[at] = seen
                held.append(SavedRow(slot, name, seen.version, made))
                if len(moved) < STALE_LOOKED_AT and (change := _change(slot, seen, cells.now, sums)):
                    moved.append(
                        Moved(slot, name, seen.version, change == "silent", made, cells.line(slot.key[0]), seen.moved)
                    )
        complete = not budget.spent
        self._seen = met if complete else {**self._seen, **met}
        if len(self._seen) > REMEMBERED:
            self._seen = met
        return held, moved


def _first(slot: SavedNow, made: int | None, now: int, sums: Sums) -> FirstSeen:
    """The record of a saved tensor that is seen for the first time, after the cell that created its node or a later
    one.
    """
    if slot.version == 0 or slot.taken():
        return FirstSeen(now, slot.version, sums.of(slot.tensor) if is_read_in_backward(slot) else None)
    return FirstSeen(now, slot.saved_at(), None, now if made == now else None)


def _change(slot: SavedNow, seen: FirstSeen, now: int, sums: Sums) -> str:
    """Return ``counted`` or ``silent`` (its version did not change) for a saved tensor that has changed; else an empty
    string.
    """
    if slot.version != seen.version:
        if slot.taken():
            return ""
        if seen.moved is None and seen.cell != now:
            seen.moved = now
        return "counted"
    if seen.sum is None or (found := sums.of(slot.tensor)) is None or found == seen.sum:
        return ""
    seen.moved = seen.moved or now
    return "silent"


class Cells:
    """Determines the cell that created a node from the node's sequence number; nodes created in other threads count
    separately, so their cell may be wrong or unknown.

    ``now`` is the number of the last cell.
    """

    def __init__(self) -> None:
        self._began: list[tuple[int, int, int]] = []
        self._statements: list[tuple[int, int]] = []
        self.now = 0

    def ran(self, cell: int, first: int, end: int, statements: Iterable[tuple[int, int]] = ()) -> None:
        """Store that the cell with the number ``cell`` created the nodes with the sequence numbers from ``first`` up
        to, and without, ``end``.

        ``statements``: for each statement, the sequence number of its first node and its line in the cell.
        """
        self.now = cell
        if end > first:
            self._began.append((first, end, cell))
            self._statements += statements

    def line(self, number: Any) -> int | None:
        """Return the line, in its cell, of the statement that created the node with the sequence number ``number``;
        ``None`` if unknown.
        """
        at = bisect_right(self._statements, (number, tensor_facts.LAST)) - 1 if self.of(number) is not None else -1
        return self._statements[at][1] if at >= 0 and self.of(self._statements[at][0]) == self.of(number) else None

    def of(self, number: Any) -> int | None:
        """Return the number of the cell that created the node with the sequence number ``number``; ``None`` if
        unknown.
        """
        if type(number) is not int:
            return None
        at = bisect_right(self._began, (number, tensor_facts.LAST, 0)) - 1
        if at >= 0:
            first, end, cell = self._began[at]
            if first <= number < end:
                return cell
        return None
