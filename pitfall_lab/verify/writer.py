"""Writing the trace: events in order, and as effects only what changed since the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pitfall_lab.observe.recorder import Enough
from pitfall_lab.trace import Agreement, By, Disagreement, Effect, Event, Failure, Note, Outcome, Source, Trace

EVENT_LIMIT = 20_000


class Writer:
    """Collects events. A call's step is reserved before it runs, because its parts (hooks, nodes) come after it."""

    def __init__(self) -> None:
        self.events: list[Event | None] = []
        self.notes: list[Note] = []
        self.disagreements: list[Disagreement] = []
        self.checked = self.agreed = self.mirrored = 0
        self.disagreed_steps: set[int] = set()
        self._last: dict[str, Any] = {}

    @property
    def full(self) -> bool:
        """Whether the trace has reached its size limit."""
        return len(self.events) >= EVENT_LIMIT

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
        known = self._last.get(path)
        if isinstance(value, dict) and isinstance(known, dict):
            found = [Effect(f"{path}.{key}", item, by) for key, item in value.items() if key not in known or known[key] != item]
            known.update(value)
            return found
        if path in self._last and known == value:
            return []
        self._last[path] = dict(value) if isinstance(value, dict) else value
        return [Effect(path, value, by)]

    def known(self, path: str) -> bool:
        """Whether something was already written at ``path``."""
        return path in self._last

    def last(self, path: str) -> Any:
        """What was last written at ``path``."""
        return self._last.get(path)

    def forget(self, path: str) -> None:
        """Stop comparing with ``path``: the thing it describes is gone."""
        self._last.pop(path, None)

    def disagree(self, step: int, path: str, observed: Any, modelled: Any) -> None:
        """Keep a disagreement between the engines."""
        self.disagreements.append(Disagreement(step, path, observed, modelled))
        self.disagreed_steps.add(step)

    def finish(self, sources: tuple[Source, ...], failure: Failure | None, environment: tuple[tuple[str, str], ...]) -> Trace:
        """Return the finished trace."""
        events = tuple(event or Event(step, "call", "", reason="not observed") for step, event in enumerate(self.events))
        outcome = Outcome("raised", failure) if failure is not None else Outcome()
        agreement = Agreement(self.checked, self.agreed, self.mirrored, len(self.disagreed_steps))
        return Trace(sources, events, outcome, agreement, tuple(self.disagreements), tuple(self.notes), environment)

    def amend(self, step: int, **fields: Any) -> None:
        """Change fields of an event that was already written (a forecast that came true)."""
        event = self.events[step]
        if event is not None:
            self.events[step] = replace(event, **fields)


class TooLong(Enough):
    """The trace has reached its size limit."""

    def __str__(self) -> str:
        return f"the trace has reached its limit of {EVENT_LIMIT:,} steps; what the program did after that is not shown"
