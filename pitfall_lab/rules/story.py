"""A trace, arranged for questions that rules ask: what was ``t3`` called at step 7, who wrote ``S2``, which line was that.

Built in one pass; afterwards each question folds only the effects of one tensor, node or counter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pitfall_lab.rules.source import Program
from pitfall_lab.trace import Effect, Event, Span, Trace

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Clash:
    """What has to be repaired: memory that was saved at one step, changed at others, and needed by a backward."""

    storage: str | None
    saved_at: int | None
    changed_at: tuple[int, ...]
    backward: int | None


class Story:
    """Look-ups in one trace, by label and step."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events
        self._effects: dict[str, list[tuple[int, Effect]]] = defaultdict(list)
        for event in trace.events:
            for effect in event.effects:
                self._effects[".".join(effect.path.split(".")[:2])].append((event.step, effect))

    @cached_property
    def program(self) -> Program:
        """The text and the syntax tree of the program itself (source 0)."""
        return Program(self.trace.sources[0].text if self.trace.sources else "")

    def event(self, step: int | None) -> Event | None:
        """The event at ``step``, or ``None`` when there is none."""
        return self.events[step] if step is not None and 0 <= step < len(self.events) else None

    def line_event(self, step: int | None) -> Event | None:
        """The event at ``step``, or the nearest call around it that has a place in the source."""
        event = self.event(step)
        while event is not None and event.span is None and event.parent is not None:
            event = self.event(event.parent)
        return event

    def span(self, step: int | None) -> Span | None:
        """The source of the event at ``step``, or of the call it is a part of."""
        event = self.line_event(step)
        if event is None or event.span is None or event.kind != "write" or event.span.source != 0:
            return event.span if event else None
        # a write that nobody announced is known by its line; its statement is what can be edited
        statement = self.program.statement_on(event.span.line)
        return self.program.place(statement) if statement is not None and self.program.stands_alone(statement) else event.span

    def outer_call(self, step: int | None) -> Event | None:
        """The outermost call that the event at ``step`` is a part of (``opt.step()`` for one parameter's update)."""
        event = self.event(step)
        while event is not None and event.parent is not None:
            event = self.event(event.parent)
        return event

    def record(self, kind: str, label: str | None, step: int | None = None) -> Record | None:
        """What is known about ``kind``.``label`` (``"tensors"``, ``"t3"``) after ``step``; ``None`` when it did not exist yet."""
        value: Any = None
        for at, effect in self._effects.get(f"{kind}.{label}", ()):
            if step is not None and at > step:
                break
            fields = effect.path.split(".")[2:]
            if not fields:
                value = dict(effect.value) if isinstance(effect.value, dict) else effect.value
            elif isinstance(value, dict):
                value[fields[0]] = effect.value
        return value if isinstance(value, dict) else None

    def tensor(self, label: str | None, step: int | None = None) -> Record | None:
        """The tensor ``label`` after ``step``."""
        return self.record("tensors", label, step)

    def shape(self, label: str | None, step: int | None = None) -> tuple[int, ...] | None:
        """The shape of a tensor, ``None`` when it is not known."""
        tensor = self.tensor(label, step) or self.tensor(label)
        shape = tensor.get("shape") if tensor else None
        return tuple(shape) if shape is not None else None

    def name(self, label: str | None, step: int | None = None) -> str | None:
        """What the learner calls the tensor: its name at ``step``, else any name it ever had."""
        for at in (step, None):
            tensor = self.tensor(label, at)
            if tensor and tensor.get("name"):
                return str(tensor["name"])
        return None

    def tensors_on(self, storage: str | None) -> list[tuple[str, Record]]:
        """All tensors and arrays that ever looked at ``storage``, in birth order."""
        labels = [key.split(".", 1)[1] for key in self._effects if key.startswith("tensors.")]
        found = [(label, record) for label in labels if (record := self.tensor(label)) and record.get("storage") == storage]
        return sorted(found, key=lambda item: int(item[0][1:]) if item[0][1:].isdigit() else 0)

    def storage_name(self, storage: str | None, step: int | None) -> str | None:
        """A name for the memory: of the oldest tensor on it that has one."""
        for label, _ in self.tensors_on(storage):
            if name := self.name(label, step):
                return name
        return None

    def bumps(self, counter: str | None, after: int, until: int) -> list[int]:
        """The steps after ``after`` and up to ``until`` at which ``counter`` changed."""
        return [step for step, effect in self._effects.get(f"counters.{counter}", ()) if after < step <= until]

    def writes(self, storage: str, after: int, until: int) -> tuple[int, ...]:
        """The steps between two others at which the memory is known to have changed, counted by a version or not."""
        changed = {step for step, effect in self._effects.get(f"storages.{storage}", ()) if effect.path.endswith(".cells")}
        changed |= {event.step for event in self.events if storage in event.writes}
        return tuple(sorted(step for step in changed if after < step < until))

    def calls(self) -> Iterator[Event]:
        """All calls, in order, without the nodes that ran in backward."""
        return (event for event in self.events if event.kind == "call")

    def by(self, step: int | None) -> Any:
        """Who holds the facts of the event at ``step``."""
        event = self.event(step)
        return event.by if event else "observed"
