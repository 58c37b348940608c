"""The Trace: one immutable document that says what a program did to its tensors.

A trace is an event log. Every event carries explicit *effects*, ``Effect(path, value, by)``, and replaying a
trace means folding the effects of its events into a nested dictionary (see :mod:`pitfall_lab.trace.replay`).
Nothing is a snapshot, nothing is an address: identities are birth-ordered labels, so the same program gives
the same trace every time.

Labels
    ``t3`` a tensor or NumPy array, ``S2`` a storage, ``C1`` a version counter, ``n5`` a node of the graph.

The state that effects write (``None`` means *does not exist* or *not known*)::

    tensors.t3   = {"kind": "tensor" | "parameter" | "array", "name": "h" | None, "names": ["h", ...],
                    "shape": [2, 3], "stride": [3, 1], "offset": 0, "dtype": "float32", "device": "cpu",
                    "storage": "S1" | None, "counter": "C1" | None, "requires_grad": True, "is_leaf": False,
                    "grad_fn": "n5" | None, "base": "t1" | None, "grad": "t9" | None, "born": step,
                    "alive": True}
    storages.S1  = {"size": 6, "dtype": "float32", "nbytes": 24, "cells": Cells | None, "alive": True}
    counters.C1  = 0                                    # the version
    nodes.n5     = {"name": "SigmoidBackward0", "next": ["n3", None], "born": step, "output": "t4" | None,
                    "saved": [{"name": "result", "tensor": "t4" | None, "storage": "S2" | None,
                               "counter": "C2" | None, "version": 0}, ...],
                    "freed": False, "ran": None | step, "gradient": Cells | None, "gradient_shape": [...] | None}
    mode         = {"grad": True, "inference": False}

Strides, offsets and sizes are in *elements*, ``nbytes`` in bytes. ``Cells`` is a list of plain values (``true``,
``3``, ``0.5``, or one of the strings ``"nan"``, ``"inf"``, ``"-inf"``, ``"1+2j"``) when there are at most
:data:`CELL_LIMIT`, and otherwise ``{"count": n, "shown": [[index, value], ...]}``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = 3
CELL_LIMIT = 12

By = Literal["observed", "modelled", "agreed"]
"""Who holds a fact: read from torch, computed by the shadow engine, or both with the same value."""

EventKind = Literal["call", "node", "write", "mode"]
"""A call the program made · a graph node that ran in backward · memory changed behind torch's back · a mode switch."""


Cause = Literal["failure", "limit", "removed", "never"]
"""Why observation stopped: a failure of ours · a limit was reached · the program took the recorder away · it could not begin."""


@dataclass(frozen=True, slots=True)
class Part:
    """A cell's share of a program that several cells make: from ``line`` on, which is line ``own`` of the cell called ``name``.

    ``cell`` is the notebook's id for the cell, empty where there is none.
    """

    name: str
    line: int
    own: int = 1
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One file or cell of the program: its display ``name`` and its complete ``text``; where cells make it, their ``parts``, in order."""

    name: str
    text: str
    parts: tuple[Part, ...] = ()

    def part(self, line: int) -> Part | None:
        """The part that a line belongs to."""
        return next((part for part in reversed(self.parts) if part.line <= line), None)


@dataclass(frozen=True, slots=True)
class Span:
    """An exact piece of source. Lines count from 1, columns from 0, both ends as in Python slices.

    ``column`` and ``end_column`` count code points (what a person counts); ``utf16`` holds the same two columns
    in UTF-16 units (what a browser counts). ``source`` is an index into ``Trace.sources``.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    utf16: tuple[int, int] = (0, 0)
    source: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """``state[path] = value``. The path is dotted (``"tensors.t3.name"``); ``by`` says who holds the fact."""

    path: str
    value: Any
    by: By = "observed"


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a call: a tensor's ``label``, or the ``text`` of a plain value. ``name`` is its parameter, if known."""

    label: str | None = None
    text: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of a call that raised, or one tensor of the frame in which the program raised itself.

    ``name`` is the parameter, ``text`` what the program writes for the argument at that line (empty: it has no name there), ``kind`` the
    name of its type. A tensor (or an array) has its ``label`` if the trace knows it, and what it was at that moment; ``low`` and ``high``
    are its smallest and its largest number, where that was looked at. Anything else has its ``value`` as text. ``part_of`` is set for an
    item of a list of tensors: the parameter's name once more, and ``name`` is ``tensors[2]``.
    """

    name: str = ""
    text: str = ""
    kind: str = ""
    label: str | None = None
    value: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    device: str = ""
    requires_grad: bool = False
    low: Any = None
    high: Any = None
    part_of: str = ""


Origin = Literal["", "torch", "program", "library"]
"""Who raised an error: not known · torch · the program's own code · other code that it calls."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as typed facts. It is never parsed from a message: the message is only quoted.

    ``kind`` is one of

    - ``saved-tensor-modified``: a node needs a tensor that was written since it was saved; ``node``, ``saved`` (the
      slot, e.g. ``"result"``), ``tensor``, ``storage``, ``counter``, ``expected`` and ``found`` versions, ``saved_at``
      and ``changed_at`` (steps) are set; with ``earlier`` it was saved before the recording began, which no step stands for;
    - ``leaf-modified``, ``view-of-leaf-modified``, ``multi-output-view-modified``, ``no-grad-view-modified``,
      ``inference-tensor``: refused at the write; ``tensor`` is set;
    - ``backward-twice``: the saved tensors of ``node`` were freed at ``changed_at``;
    - ``no-gradient``: backward of something without a graph; ``nonscalar-backward``;
    - ``non-leaf-optimized``: an optimizer was given ``tensor``, which is no leaf;
    - ``shape``, ``dtype``, ``overlap``: operands that do not fit;
    - ``other``: anything else, the learner's own exceptions included.

    ``op`` is the function that raised, as torch calls it, ``given`` what it was called with (what the program's own frame held, where the
    ``origin`` is the program).
    """

    type: str
    message: str
    kind: str = "other"
    step: int | None = None
    span: Span | None = None
    node: str | None = None
    saved: str | None = None
    tensor: str | None = None
    storage: str | None = None
    counter: str | None = None
    expected: int | None = None
    found: int | None = None
    saved_at: int | None = None
    changed_at: tuple[int, ...] = ()
    origin: Origin = ""
    op: str = ""
    given: tuple[Given, ...] = ()
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the shadow engine said would fail, and at which ``step`` it said so: before torch did.

    ``came_true`` is the step at which torch raised it, ``None`` while (or if) that backward never ran.
    """

    step: int
    failure: Failure
    came_true: int | None = None


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A backward node used memory that had changed since it was saved, and no counter told."""

    node: str
    saved: str
    storage: str
    saved_at: int | None
    changed_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Harm:
    """A silently wrong gradient: what torch put into ``leaf``'s ``.grad`` and what was meant.

    ``torch`` and ``meant`` are :data:`Cells` of the leaf's shape; ``meant`` uses saved values as they were when saved.
    """

    step: int
    leaf: str
    torch: Any
    meant: Any
    causes: tuple[StaleRead, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the program.

    ``op`` is torch's own name (``"torch.Tensor.add_"``; for a node, ``"SigmoidBackward0"``). ``scope`` names the learner's
    enclosing functions, outermost first. ``parent`` is the step of the call this event is a part of (a node's backward
    call, an optimizer's or composite's part). ``by`` says who holds the event's facts; ``reason`` says why a call was
    mirrored (taken over from torch without a model). ``error`` is set when the call raised.
    """

    step: int
    kind: EventKind
    op: str
    span: Span | None = None
    scope: tuple[str, ...] = ()
    parent: int | None = None
    operands: tuple[Operand, ...] = ()
    results: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Labels of the storages whose memory this event wrote."""
    effects: tuple[Effect, ...] = ()
    by: By = "observed"
    reason: str = ""
    forecasts: tuple[Forecast, ...] = ()
    harms: tuple[Harm, ...] = ()
    error: Failure | None = None

    @property
    def name(self) -> str:
        """The short name: ``add_`` for ``torch.Tensor.add_``, ``grad`` for ``torch.Tensor.grad.__get__``."""
        parts = self.op.split(".")
        if parts[-1] in ("__get__", "__set__", "__delete__") and len(parts) > 1:
            return parts[-2]
        return parts[-1]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many calls both engines were compared on, on how many they agreed, and how many had no model."""

    checked: int = 0
    agreed: int = 0
    mirrored: int = 0
    disagreed: int = 0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two engines, two answers. Shown, never hidden, and red in CI."""

    step: int
    path: str
    observed: Any
    modelled: Any


@dataclass(frozen=True, slots=True)
class OptimizerMade:
    """An ``optimizer`` (the name of its class) was made after ``step`` events; ``holds`` are the tensors that it was given, then or later.

    A tensor that no call ever used has no label, and is left out.
    """

    step: int
    optimizer: str
    span: Span | None = None
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """An ``optimizer`` (the name of its class) was told to step after ``step`` events; ``holds`` are the tensors it had been given.

    The calls that change a parameter are events like any other. This says what no call does: that a parameter without a gradient was
    passed over. Only the first few steps of each optimizer are noted. ``made`` is the optimizer's place in ``Trace.optimizers``,
    where it was seen when it was made.
    """

    step: int
    optimizer: str
    span: Span | None = None
    holds: tuple[str, ...] = ()
    made: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of a trace must know.

    ``stopped``: observation ended although the program went on (at most one note of a trace); ``step`` and ``span`` say where, or after
    what, and ``cause`` why. ``unseen``: the program did something that no part of the recording saw; observation went on.
    ``limit``: anything else, such as what a drawing leaves out.
    """

    kind: Literal["limit", "stopped", "unseen"]
    en: str
    zh: str
    step: int | None = None
    span: Span | None = None
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """How far observation went, in numbers that the trace's events may be too many, or too few, to be asked for.

    ``lines`` of the program made the calls that were seen. After observation had stopped, at least ``missed`` more calls of torch were made
    (those are counted, not looked at); ``later`` are the lines of the program itself that had made none before.
    """

    lines: int = 0
    missed: int = 0
    later: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ended: ``finished``, or ``raised`` with its failure."""

    kind: Literal["finished", "raised"] = "finished"
    failure: Failure | None = None


class _Later:
    """Room for what makes a trace's events when they are first asked for."""

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
    """The whole document. See the module's text for the state that its events' effects describe."""

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
    schema: int = SCHEMA

    @property
    def calls(self) -> int:
        """How many calls of torch were seen: compared with the model, or only observed."""
        return self.agreement.checked + self.agreement.mirrored

    @property
    def stopped(self) -> Note | None:
        """Where observation ended before the program did; ``None`` when it went on to the end."""
        return next((note for note in self.notes if note.kind == "stopped"), None)

    @property
    def unseen(self) -> tuple[Note, ...]:
        """What the program did that was not seen, although observation went on."""
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
        """Return a trace whose events are made when they are first read; ``others`` are the fields after ``events``, in order."""
        trace = cls(sources, (), *others)
        object.__delattr__(trace, "events")
        object.__setattr__(trace, "_make", events)
        return trace

    def to_json(self) -> str:
        """Return the trace as strict JSON (no NaN literals, defaults left out)."""
        from pitfall_lab.trace.codec import encode

        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read a trace; raises :class:`pitfall_lab.trace.codec.TraceError` with one clear sentence when it is none."""
        from pitfall_lab.trace.codec import decode

        return decode(text)
