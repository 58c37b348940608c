"""What graph nodes have saved, from cell to cell: which have moved since, counted by torch or past its counter.

Of each saved tensor a few numbers are remembered: the version and the checksum when it was first met, and the cell. No object is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.graphs import Kept, Key, is_read_in_backward, kept
from pitfall_lab.observe.live.sums import Sums

REMEMBERED = 20_000
STALE_LOOKED_AT = 40
"""So many saved tensors that have moved are examined after one cell."""


@dataclass(slots=True)
class Seen:
    """A saved tensor when it was first met: in which cell, at which version, with which numbers; and since which cell it has moved.

    ``version`` is ``None`` where it had moved before it was met and torch did not say from where.
    """

    cell: int
    version: int | None
    sum: int | None
    moved: int | None = None


class Moved(NamedTuple):
    """A saved tensor that is no longer what was saved.

    ``made`` and ``changed`` are the numbers of cells, ``line`` that of the statement that made the node, where they are known.
    """

    kept: Kept
    node: str
    version: int | None
    silent: bool
    made: int | None
    line: int | None
    changed: int | None


class Held(NamedTuple):
    """A saved tensor as rows show it."""

    kept: Kept
    node: str
    version: int | None
    made: int | None


class Memory:
    """Remembers, from cell to cell, what was saved."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, str, int | None], Seen] = {}

    def compare(self, nodes: Iterable[Any], cells: Cells, budget: Budget) -> tuple[list[Held], list[Moved]]:
        """What the nodes hold now, and what of it has moved."""
        held: list[Held] = []
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
                held.append(Held(slot, name, seen.version, made))
                if len(moved) < STALE_LOOKED_AT and (change := _change(slot, seen, cells.now, sums)):
                    moved.append(Moved(slot, name, seen.version, change == "silent", made, cells.line(slot.key[0]), seen.moved))
        complete = not budget.spent
        self._seen = met if complete else {**self._seen, **met}
        if len(self._seen) > REMEMBERED:
            self._seen = met
        return held, moved


def _first(slot: Kept, made: int | None, now: int, sums: Sums) -> Seen:
    """A saved tensor that is met for the first time: in the cell that made its node, or later."""
    if slot.version == 0 or slot.taken():
        return Seen(now, slot.version, sums.of(slot.tensor) if is_read_in_backward(slot) else None)
    return Seen(now, slot.saved_at(), None, now if made == now else None)


def _change(slot: Kept, seen: Seen, now: int, sums: Sums) -> str:
    """``counted``, ``silent``, or nothing."""
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
    """Which cell of the session made a node, by the numbers that torch gives nodes; nodes of another thread are numbered by that thread."""

    def __init__(self) -> None:
        self._began: list[tuple[int, int, int]] = []
        self._statements: list[tuple[int, int]] = []
        self.now = 0

    def ran(self, cell: int, first: int, end: int, statements: Iterable[tuple[int, int]] = ()) -> None:
        """Note which nodes a cell has made: from ``first`` up to ``end``. ``statements``: the first node of each, and its line."""
        self.now = cell
        if end > first:
            self._began.append((first, end, cell))
            self._statements += statements

    def line(self, number: Any) -> int | None:
        """The line of the statement, in its cell, that made the node of this number."""
        at = bisect_right(self._statements, (number, tensor_facts.LAST)) - 1 if self.of(number) is not None else -1
        return self._statements[at][1] if at >= 0 and self.of(self._statements[at][0]) == self.of(number) else None

    def of(self, number: Any) -> int | None:
        """The cell that made the node of this number; ``None`` where that is not known."""
        if type(number) is not int:
            return None
        at = bisect_right(self._began, (number, tensor_facts.LAST, 0)) - 1
        if at >= 0:
            first, end, cell = self._began[at]
            if first <= number < end:
                return cell
        return None
