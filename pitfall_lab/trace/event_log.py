"""The :class:`Trace`: all records of :mod:`pitfall_lab.trace.model` in one document, read and written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pitfall_lab.trace.codec import decode, encode
from pitfall_lab.trace.model import (
    SCHEMA,
    Agreement,
    Beside,
    Disagreement,
    Event,
    Forecast,
    Harm,
    Note,
    OptimizerMade,
    OptimizerStep,
    Outcome,
    Reach,
    Source,
)


class _Later:
    """The base class of :class:`Trace`: makes the events when they are first read."""

    __slots__ = ("_make",)

    def __getattr__(self, name: str) -> Any:
        if name != "events":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        events = self._make()
        object.__setattr__(self, "events", events)
        object.__delattr__(self, "_make")
        return events


@dataclass(frozen=True, slots=True)
class Trace(_Later):
    """A whole trace: the recorded events of one program, its sources, how it ended, and how far the recording reaches.

    ``sources[0]`` is the program itself; ``events`` are in order, each ``step`` is its index. ``outcome`` says how the
    program ended, ``notes`` what was not observed, ``reach`` how far observation went. ``agreement`` has the numbers of
    compared calls, ``disagreements`` the differences between torch and the shadow engine, ``environment`` pairs of
    names and versions (``torch``), ``optimizers`` the optimizers that were created, ``optimizer_steps`` the first steps
    of each, ``beside`` what else was noted; ``schema`` is the number of the file format. The docstring of
    :mod:`pitfall_lab.trace.model` describes the state that the effects write.
    """

    sources: tuple[Source, ...] = ()
    events: tuple[Event, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    agreement: Agreement = field(default_factory=Agreement)
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[Note, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    optimizer_steps: tuple[OptimizerStep, ...] = ()
    reach: Reach = field(default_factory=Reach)
    optimizers: tuple[OptimizerMade, ...] = ()
    beside: Beside = field(default_factory=Beside)
    schema: int = SCHEMA

    @property
    def calls(self) -> int:
        """The number of observed torch calls, with or without a model."""
        return self.agreement.checked + self.agreement.mirrored

    @property
    def stopped(self) -> Note | None:
        """The note that says where observation ended before the program did; ``None`` if it did not."""
        return next((note for note in self.notes if note.kind == "stopped"), None)

    @property
    def unseen(self) -> tuple[Note, ...]:
        """The notes about what the program did unobserved while observation continued."""
        return tuple(note for note in self.notes if note.kind == "unseen")

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """All forecasts, in the order they were made."""
        return tuple(f for e in self.events for f in e.forecasts)

    @property
    def harms(self) -> tuple[Harm, ...]:
        """All silently wrong gradients, in the order they happened."""
        return tuple(h for e in self.events for h in e.harms)

    @classmethod
    def later(cls, events: Callable[[], tuple[Event, ...]], sources: tuple[Source, ...], *others: Any) -> Trace:
        """Return a trace whose events are made when they are first read, by the function ``events``; ``others`` are the
        values of the fields after ``events``, in order.
        """
        trace = cls(sources, (), *others)
        object.__delattr__(trace, "events")
        object.__setattr__(trace, "_make", events)
        return trace

    def to_json(self) -> str:
        """Return the trace as strict JSON (no NaN literals, defaults left out)."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read a trace; raises :class:`pitfall_lab.trace.codec.TraceError`, with a message of one
        sentence, if the text is none.
        """
        return decode(text, cls)
