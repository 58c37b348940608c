"""Writing the trace: events in order, and as effects only what changed since the last one."""

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
from pitfall_lab.verify.fastpath.event_rows import BIRTHS, DEATHS, Ran, Rows
from pitfall_lab.verify.json_values import Look, told

EVENT_LIMIT = 20_000
METADATA_LIMIT = 500_000
"""Without numbers an event is a row of some hundred bytes."""
MUCH = 2_000
"""So much may be remembered before it is worth looking what of it is gone."""
_SERIES = {"tensors": 0, "storages": 1, "counters": 2, "nodes": 3}


class Writer:
    """Collects events. A call's step is reserved before it runs, because its parts (hooks, nodes) come after it.

    Calls that took the express lane stand in the list as rows. What they would have written as the last known of a path
    is worked out when somebody asks.
    """

    def __init__(self) -> None:
        self.limit = EVENT_LIMIT
        self.events: list[Event | int | Ran | None] = []
        self.rows = Rows(self.events)
        self.row_steps: list[int] = []
        """Where the rows are; the express lane writes both lists."""
        self._forgotten = 0
        self._room = MUCH
        self._renamed: dict[int, list[str]] = {}
        self.notes: list[Note] = []
        self.disagreements: list[Disagreement] = []
        self.checked = self.agreed = self.mirrored = self.rows_observed = 0
        self.disagreed_steps: set[int] = set()
        self._last: dict[str, Any] = {}
        self._looks: dict[str, Look] = {}
        """By their paths, the storages that a row has written, with the numbers in them since."""

    @property
    def full(self) -> bool:
        """Whether the trace has reached its size limit."""
        return len(self.events) >= self.limit

    def lines(self) -> set[tuple[int, int]]:
        """The lines that made the calls seen so far: the number of the source, and the line in it."""
        spans = [event.span for event in self.events if isinstance(event, Event) and event.kind == "call"]
        return {(span.source, span.line) for span in (*spans, *self.rows.spans) if span is not None}

    def last_span(self) -> Span | None:
        """The last place of the program at which something was seen."""
        for step in range(len(self.events) - 1, -1, -1):
            event = self.events[step]
            span = event.span if isinstance(event, Event) else None if event is None else self.rows.event(step).span
            if span is not None:
                return span
        return None

    def reserve(self) -> int:
        """Take the next step number."""
        self.events.append(None)
        return len(self.events) - 1

    def put(self, event: Event) -> None:
        """Fill a reserved step."""
        self.events[event.step] = event

    def drop(self, step: int) -> None:
        """Give back a reserved step that turned out to be nothing; only possible for the last one."""
        if step == len(self.events) - 1 and self.events[step] is None:
            self.events.pop()

    def changes(self, path: str, value: Any, by: By) -> list[Effect]:
        """Return the effects that bring ``state[path]`` to ``value``: one whole record at birth, then single fields."""
        known = self.last(path)
        if isinstance(value, dict) and isinstance(known, dict):
            found = [Effect(f"{path}.{key}", item, by) for key, item in value.items() if key not in known or known[key] != item]
            known.update(value)
            return found
        if known == value and path in self._last:
            return []
        self._last[path] = dict(value) if isinstance(value, dict) else value
        return [Effect(path, value, by)]

    def first(self, path: str, value: Any, by: By) -> list[Effect]:
        """The same for something that nothing was written of, and that no row tells of."""
        self._last[path] = dict(value) if isinstance(value, dict) else value
        return [Effect(path, value, by)]

    def known(self, path: str) -> bool:
        """Whether something was already written at ``path``."""
        return path in self._last or self._recall(path)

    def last(self, path: str) -> Any:
        """What was last written at ``path``."""
        known = self._last.get(path) if path in self._last or self._recall(path) else None
        if self._looks and path in self._looks:
            known["cells"] = told(self._looks.pop(path))
        return known

    def forget(self, path: str) -> None:
        """Stop comparing with ``path``: the thing it describes is gone."""
        self._last.pop(path, None)
        self._looks.pop(path, None)

    def remembers(self, path: str) -> bool:
        """Whether something was written at ``path`` by an event that is no row."""
        return path in self._last

    def note(self, path: str, field: str, value: Any) -> None:
        """A row says this of a field of something that is remembered."""
        self._last[path][field] = value

    # ------------------------------------------------------------------ rows

    def wrote(self, storage: int, counter: int, version: int, seen: Look | None) -> None:
        """A row says that a storage was written: at which version it is now, and its numbers."""
        self._last[f"counters.C{counter}"] = version
        if seen is not None:
            self._looks[f"storages.S{storage}"] = seen

    def rename(self, mark: int, names: Sequence[str]) -> None:
        """Another row says that a tensor has these names now."""
        path = f"tensors.t{mark}"
        if path in self._last:
            self._last[path].update(name=names[-1] if names else None, names=list(names))
        else:
            self._renamed[mark] = list(names)

    def forget_gone(self) -> None:
        """Stop comparing with what rows have said to be gone. Marks are not used again, so it may wait until there is much of it."""
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

    def told(self, path: str) -> bool:
        """Whether the trace tells of a tensor, a storage, a counter or a node; the same as :meth:`known`, with less work."""
        return path in self._last or self._row_of(path) >= 0

    def _row_of(self, path: str) -> int:
        """The step of the row that tells of the birth of what is at ``path``; -1 if none does."""
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
        """Work out what a row would have written at ``path``, if one would."""
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
        """Keep a disagreement between the engines."""
        self.disagreements.append(Disagreement(step, path, observed, modelled))
        self.disagreed_steps.add(step)

    def finish(
        self, sources: tuple[Source, ...], failure: Failure | None, environment: tuple[tuple[str, str], ...], reach: Reach, *,
        steps: Sequence[OptimizerStep], optimizers: tuple[OptimizerMade, ...],
    ) -> Trace:  # fmt: skip
        """Return the finished trace."""
        written, rows = self.events, self.rows

        def events() -> tuple[Event, ...]:
            with without_collector():  # nothing of what is made here is garbage
                return tuple([_written_out(event, step, rows) for step, event in enumerate(written)])

        outcome = Outcome("raised", failure) if failure is not None else Outcome()
        by_recipe = len(self.row_steps) - self.rows_observed  # both engines agreed on each of them
        mirrored = self.mirrored + self.rows_observed
        agreement = Agreement(self.checked + by_recipe, self.agreed + by_recipe, mirrored, len(self.disagreed_steps))
        disagreements, notes = tuple(self.disagreements), tuple(self.notes)
        facts = sources, outcome, agreement, disagreements, notes, environment, tuple(steps), reach, optimizers
        return Trace.later(events, *facts) if self.row_steps else Trace(sources, events(), *facts[1:])

    def amend(self, step: int, **fields: Any) -> None:
        """Change fields of an event that was already written (a forecast that came true)."""
        event = self.events[step]
        if isinstance(event, Event):
            self.events[step] = replace(event, **fields)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Let Python's cyclic collector rest: it would look again and again at all that is being made."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _written_out(event: Event | int | Ran | None, step: int, rows: Rows) -> Event:
    if isinstance(event, Event):
        return event
    return Event(step, "call", "", reason="not observed") if event is None else rows.event(step)


class TooLong(Enough):
    """The trace has reached its size limit."""

    def __init__(self, limit: int) -> None:
        en = f"the trace has reached its limit of {limit:,} steps; what the program did after that is not shown"
        super().__init__(T(en=en, zh=f"记录已达到 {limit:,} 步的上限；此后程序所做的不再显示"))
