"""Writes the trace (:class:`Writer`): its events in order, each with only the fields that changed since an earlier
event.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pitfall_lab.observe.recorder import Enough
from pitfall_lab.trace import (
    Agreement,
    Beside,
    By,
    Disagreement,
    Effect,
    Event,
    Failure,
    Note,
    OptimizerMade,
    OptimizerStep,
    Outcome,
    Reach,
    Source,
    Span,
    T,
    Trace,
)
from pitfall_lab.trace.replay import advance
from pitfall_lab.verify.fastpath.event_rows import BIRTHS, DEATHS, NodesRan, Rows
from pitfall_lab.verify.json_values import Look, as_json

EVENT_LIMIT = 20_000
METADATA_LIMIT = 500_000
"""The limit without values, where most events are rows of some hundred bytes."""
MUCH = 2_000
"""How many entries ``_last`` and ``_renamed`` may have before those of dead objects are removed."""
_SERIES = {"tensors": 0, "storages": 1, "counters": 2, "nodes": 3}


class Writer:
    """Collects the events. A call's step is reserved before it runs, because hooks and nodes that run inside it get
    later steps.

    Events describe objects at *paths* such as ``tensors.t3`` or ``storages.S1``. Calls that took the fast path are rows
    in the list, not events. Which values a row gives to a path is computed only when they are needed. ``limit`` is the
    number of steps from which on the trace is full; ``checked``, ``agreed`` and ``mirrored`` count calls: compared with
    torch, equal to it, and copied from it.
    """

    def __init__(self) -> None:
        self.limit = EVENT_LIMIT
        self.events: list[Event | int | NodesRan | None] = []
        self.rows = Rows(self.events)
        self.row_steps: list[int] = []
        """The steps that are rows; the fast path appends to this list and to ``events``."""
        self._forgotten = 0
        self._room = MUCH
        self._renamed: dict[int, list[str]] = {}
        self.notes: list[Note] = []
        self.disagreements: list[Disagreement] = []
        self.checked = self.agreed = self.mirrored = self.rows_observed = 0
        self.disagreed_steps: set[int] = set()
        self._last: dict[str, Any] = {}
        self._looks: dict[str, Look] = {}
        """The contents of the storages that rows have written, by path, as of the last write."""

    @property
    def full(self) -> bool:
        """Whether the trace has reached its size limit."""
        return len(self.events) >= self.limit

    def lines(self) -> set[tuple[int, int]]:
        """Return the lines that made the calls recorded so far, as (number of the source, line)."""
        spans = [event.span for event in self.events if isinstance(event, Event) and event.kind == "call"]
        return {(span.source, span.line) for span in (*spans, *self.rows.spans) if span is not None}

    def last_span(self) -> Span | None:
        """Return the span of the last event that has one; None if none has."""
        for step in range(len(self.events) - 1, -1, -1):
            event = self.events[step]
            span = event.span if isinstance(event, Event) else None if event is None else self.rows.event(step).span
            if span is not None:
                return span
        return None

    def reserve(self) -> int:
        """Return the next step number, which a later :meth:`put` fills."""
        self.events.append(None)
        return len(self.events) - 1

    def put(self, event: Event) -> None:
        """Write an event at the step of the trace that was reserved for it."""
        self.events[event.step] = event

    def drop(self, step: int) -> None:
        """Remove a reserved step that is not needed; only possible while it is the last one."""
        if step == len(self.events) - 1 and self.events[step] is None:
            self.events.pop()

    def changes(self, path: str, value: Any, by: By) -> list[Effect]:
        """Return the effects that set ``state[path]`` to ``value``: the whole record the first time, later only the
        changed fields. The value is stored as the last one at ``path``.

        There are no effects if nothing changed.
        """
        known = self.last(path)
        if isinstance(value, dict) and isinstance(known, dict):
            found = [
                Effect(f"{path}.{key}", item, by)
                for key, item in value.items()
                if key not in known or known[key] != item
            ]
            known.update(value)
            return found
        if known == value and path in self._last:
            return []
        self._last[path] = dict(value) if isinstance(value, dict) else value
        return [Effect(path, value, by)]

    def first(self, path: str, value: Any, by: By) -> list[Effect]:
        """Like :meth:`changes`, for a path that no event and no row has written before: always one effect with the
        whole value.
        """
        self._last[path] = dict(value) if isinstance(value, dict) else value
        return [Effect(path, value, by)]

    def known(self, path: str) -> bool:
        """Whether an event or a row has written ``path``."""
        return path in self._last or self._recall(path)

    def last(self, path: str) -> Any:
        """Return the value last written at ``path``, or None if none was. The object returned is the one stored: do not
        change it.
        """
        known: Any = self._last.get(path) if path in self._last or self._recall(path) else None
        if self._looks and path in self._looks:
            known["cells"] = as_json(self._looks.pop(path))
        return known

    def forget(self, path: str) -> None:
        """Discard the last value of ``path``, because the object it describes no longer exists."""
        self._last.pop(path, None)
        self._looks.pop(path, None)

    def remembers(self, path: str) -> bool:
        """Whether the last value of ``path`` is in memory. One that only a row (a call of the fast path) has written is
        not, until :meth:`last` or :meth:`known` reads it; the version of a counter is stored at once.
        """
        return path in self._last

    def note(self, path: str, field: str, value: Any) -> None:
        """Store ``value`` as the last value of ``field`` of the object at ``path``, because a row has written it.

        Later events are compared with it (:meth:`changes`). The object must be stored already (:meth:`remembers`).
        """
        self._last[path][field] = value

    # ------------------------------------------------------------------ rows

    def wrote(self, storage: int, counter: int, version: int, seen: Look | None) -> None:
        """Store what a row has written to the storage with the mark ``storage``: the new ``version`` of its counter
        (mark ``counter``), and the storage's contents ``seen`` (None without values).
        """
        self._last[f"counters.C{counter}"] = version
        if seen is not None:
            self._looks[f"storages.S{storage}"] = seen

    def rename(self, mark: int, names: Sequence[str]) -> None:
        """Store the names that the tensor with this mark has after a row has changed them."""
        path = f"tensors.t{mark}"
        if path in self._last:
            self._last[path].update(name=names[-1] if names else None, names=list(names))
        else:
            self._renamed[mark] = list(names)

    def forget_gone(self) -> None:
        """Discard the last values of objects that rows have reported dead, once many have accumulated (label numbers
        are never reused).
        """
        if len(self._last) + len(self._renamed) < self._room:
            return
        for step in self.row_steps[self._forgotten :]:
            deaths = self.rows.cell(step, DEATHS)
            if deaths is not None:
                tensors, storages = self.rows.dead(deaths)
                for mark in tensors:
                    self._last.pop(f"tensors.t{mark}", None)
                    self._renamed.pop(mark, None)
                for mark in storages:
                    self.forget(f"storages.S{mark}")
        self._forgotten = len(self.row_steps)
        self._room = max(MUCH, 2 * (len(self._last) + len(self._renamed)))

    def has(self, path: str) -> bool:
        """Whether an event or a row has described the object at ``path``; like :meth:`known`, but cheaper."""
        return path in self._last or self._row_of(path) >= 0

    def _row_of(self, path: str) -> int:
        """The step of the row that created the object at ``path``, or -1."""
        table, _, label = path.partition(".")
        series = _SERIES.get(table)
        if series is None or not self.row_steps:
            return -1
        number, cell, sayings = int(label[1:]), self.rows.cell, self.rows.sayings
        newest = self.row_steps[-1]
        if number > cell(newest, BIRTHS + series) + sayings[cell(newest, 0)].made[series]:
            return -1
        place = bisect.bisect_left(self.row_steps, number, key=lambda step: cell(step, BIRTHS + series))
        step = self.row_steps[place - 1]
        if not place or number > cell(step, BIRTHS + series) + sayings[cell(step, 0)].made[series]:
            return -1
        return step

    def _recall(self, path: str) -> bool:
        """Store the value that a row gave to ``path`` as the value last written there; return False if no row
        wrote it.
        """
        step = self._row_of(path)
        if step < 0:
            return False
        table, _, label = path.partition(".")
        number = int(label[1:])
        state: dict[str, Any] = {}
        for effect in self.rows.event(step).effects:
            if effect.path == path or effect.path.startswith(path + "."):
                advance(state, effect)
        if table not in state:
            return False
        found = state[table][label]
        self._last[path] = dict(found) if isinstance(found, dict) else found
        if table == "tensors" and number in self._renamed:
            self.rename(number, self._renamed.pop(number))
        return True

    # ------------------------------------------------------------------ the end

    def disagree(self, step: int, path: str, observed: Any, modelled: Any) -> None:
        """Record a disagreement between torch and the shadow. ``step`` is that of the call, ``path`` names the fact
        (``tensors.t3.version``), with the values ``observed`` in torch and ``modelled`` by the shadow.
        """
        self.disagreements.append(Disagreement(step, path, observed, modelled))
        self.disagreed_steps.add(step)

    def finish(
        self, sources: tuple[Source, ...], failure: Failure | None, environment: tuple[tuple[str, str], ...],
        reach: Reach, *, steps: Sequence[OptimizerStep], optimizers: tuple[OptimizerMade, ...], beside: Beside,
    ) -> Trace:  # fmt: skip
        """Return the finished trace; if it has rows, their events are created when they are first read. ``failure`` is
        the error that ended the program (None: none); the other arguments are stored in the trace.
        """
        written, rows = self.events, self.rows

        def events() -> tuple[Event, ...]:
            with without_collector():  # nothing that is made here is garbage
                return tuple([_written_out(event, step, rows) for step, event in enumerate(written)])

        outcome = Outcome("raised", failure) if failure is not None else Outcome()
        by_recipe = len(self.row_steps) - self.rows_observed  # torch and the shadow agreed on each of them
        mirrored = self.mirrored + self.rows_observed
        agreement = Agreement(self.checked + by_recipe, self.agreed + by_recipe, mirrored, len(self.disagreed_steps))
        disagreements, notes = tuple(self.disagreements), tuple(self.notes)
        facts = sources, outcome, agreement, disagreements, notes, environment, tuple(steps), reach, optimizers, beside
        return Trace.later(events, *facts) if self.row_steps else Trace(sources, events(), *facts[1:])

    def amend(self, step: int, **fields: Any) -> None:
        """Replace fields of the event at ``step``, which was already written (for instance a forecast that came true);
        a row is left unchanged.
        """
        event = self.events[step]
        if isinstance(event, Event):
            self.events[step] = replace(event, **fields)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """While the context is active, Python's cyclic garbage collector is off; it would repeatedly scan the objects that
    are being created.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _written_out(event: Event | int | NodesRan | None, step: int, rows: Rows) -> Event:
    if isinstance(event, Event):
        return event
    return Event(step, "call", "", reason="not observed") if event is None else rows.event(step)


class TooLong(Enough):
    """Raised when the trace has reached its size limit: the recording pauses."""

    only_pauses = True

    def __init__(self, limit: int) -> None:
        en = (
            f"the trace has reached its limit of {limit:,} steps; after that only lines that had not called "
            "torch before are recorded"
        )
        super().__init__(T(en=en, zh=f"记录已达到 {limit:,} 步的上限；此后只记录此前没有调用过 torch 的行"))
