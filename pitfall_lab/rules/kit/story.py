"""Look-ups in a trace for rules: the name of ``t3`` at step 7, the calls that wrote ``S2``, the line of an event.

Indexed in one pass; each look-up then processes only the effects on one tensor, node or counter.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pitfall_lab.rules.kit.finding import Related, Role
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, flat_targets
from pitfall_lab.trace import Effect, Event, Failure, Span, T, Trace
from pitfall_lab.trace.used_names import used_names

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Clash:
    """A storage that was saved for a backward and written before that backward.

    ``storage`` is its label (``"S3"``), ``saved_at`` the step that saved it, ``changed_at`` are the steps that wrote
    it, ``backward`` is the step of the backward that needed it. Each is None (``changed_at``: empty) if unknown.
    """

    storage: str | None
    saved_at: int | None
    changed_at: tuple[int, ...]
    backward: int | None


class Story:
    """Look-ups in one trace, by label (``"t3"``) and step (the index of an event).

    ``trace`` is the trace and ``events`` its events. If the program is a notebook, ``cells`` has the line at which each
    code cell begins, and lines are shown by cell (:meth:`place`); else it is empty.
    """

    def __init__(self, trace: Trace, cells: tuple[int, ...] = ()) -> None:
        self.trace = trace
        self.cells = cells
        self.events = trace.events
        self._effects: dict[str, list[tuple[int, Effect]]] = defaultdict(list)
        self._folded: dict[str, tuple[int, Record | None]] = {}
        self._write_steps: dict[str, list[int]] = {}
        self.needs_values = False
        """Whether a rule has looked up values that the trace does not have."""
        for event in trace.events:
            step = event.step
            for effect in event.effects:
                path = effect.path
                end = path.find(".", path.find(".") + 1)
                self._effects[path if end < 0 else path[:end]].append((step, effect))

    @cached_property
    def program(self) -> Program:
        """The source and the syntax tree of the program itself (source 0)."""
        return Program(self.trace.sources[0].text if self.trace.sources else "")

    @cached_property
    def picked(self) -> dict[int, tuple[int, ...]]:
        """For the step of each call that indexed a table by an array or a list: the indices of the selected rows; for a
        long selection, only some of them.
        """
        return {step: each.rows for each in self.trace.beside.picked for step in each.steps}

    @cached_property
    def steps_at(self) -> dict[tuple[Span | None, str], list[int]]:
        """For each pair of a span (None for events without one) and an operation (``Event.op``): the steps of all its
        events, in order. There are several if a loop ran the line again, or if one call of the program made several
        events. An empty list for a pair without events.
        """
        steps: dict[tuple[Span | None, str], list[int]] = defaultdict(list)
        for event in self.events:
            steps[event.span, event.op].append(event.step)
        return steps

    @cached_property
    def steps_in(self) -> dict[tuple[str, ...], list[int]]:
        """For each stack of functions (``Event.scope``): the steps of the events on the program's own lines that ran in
        it, in order.
        """
        steps: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for event in self.events:
            if event.span is not None and event.span.source == 0:
                steps[event.scope].append(event.step)
        return steps

    def event(self, step: int | None) -> Event | None:
        """Return the event at ``step``; None if there is none."""
        return self.events[step] if step is not None and 0 <= step < len(self.events) else None

    def line_event(self, step: int | None) -> Event | None:
        """Return the event at ``step`` or, if that has no span, the nearest call around it that has one; the outermost
        call if none has.

        None if there is no event at ``step``.
        """
        event = self.event(step)
        while event is not None and event.span is None and event.parent is not None:
            event = self.event(event.parent)
        return event

    def span(self, step: int | None) -> Span | None:
        """Return the span in the source of the event at ``step``, or of the call that contains it; None if there is
        none.

        For a write by NumPy only the line is known: the span is that of the line's statement, if this is alone on its
        lines.
        """
        event = self.line_event(step)
        if event is None or event.span is None or event.kind != "write" or event.span.source != 0:
            return event.span if event else None
        # a write by NumPy is known only by its line; use that line's statement
        statement = self.program.statement_on(event.span.line)
        return (
            self.program.place(statement)
            if statement is not None and self.program.stands_alone(statement)
            else event.span
        )

    def place(self, line: int) -> tuple[int | None, int]:
        """Return ``line`` as shown to the user: the number of the code cell (from 1; None for a file) and the number of
        the line in it.
        """
        number = sum(first <= line for first in self.cells)
        return (number, line - self.cells[number - 1] + 1) if number else (None, line)

    def outer_call(self, step: int | None) -> Event | None:
        """Return the outermost call that contains the event at ``step`` (the ``backward``, for a node that it ran), or
        the event itself if no call contains it.

        None if there is no such event.
        """
        event = self.event(step)
        while event is not None and event.parent is not None:
            event = self.event(event.parent)
        return event

    def record(self, kind: str, label: str | None, step: int | None = None) -> Record | None:
        """Return what is known about ``kind``.``label`` (``"tensors"``, ``"t3"``) after ``step``, or at the end if
        ``step`` is None, as a dict of its fields; None if it did not exist yet.

        If ``kind`` is ``"storages"`` and its values are not in the trace, ``needs_values`` becomes True.
        """
        key = f"{kind}.{label}"
        effects: Sequence[tuple[Any, ...]] = self._effects.get(key, ())
        until = len(effects) if step is None else bisect_left(effects, (step + 1,))
        index, value = self._folded.get(key, (0, None))
        if until < index:
            index, value = 0, None
        for _, effect in effects[index:until]:
            fields = effect.path.split(".")[2:]
            if not fields:
                value = dict(effect.value) if isinstance(effect.value, dict) else None
            elif value is not None:
                value = {**value, fields[0]: effect.value}
        self._folded[key] = (until, value)  # look-ups mostly go forward in time: the next one continues from here
        self.needs_values = self.needs_values or (
            kind == "storages" and value is not None and value.get("cells") is None
        )
        return value

    def tensor(self, label: str | None, step: int | None = None) -> Record | None:
        """Return the record of the tensor ``label`` as it was after ``step``, or at the end if ``step`` is None; None
        if it did not exist yet, or the label is None.
        """
        return self.record("tensors", label, step)

    def shape(self, label: str | None, step: int | None = None) -> tuple[int, ...] | None:
        """Return the shape of a tensor after ``step``, or else its last known shape; None if unknown."""
        tensor = self.tensor(label, step) or self.tensor(label)
        shape = tensor.get("shape") if tensor else None
        return tuple(shape) if shape is not None else None

    def name(self, label: str | None, step: int | None = None) -> str | None:
        """Return the tensor's name in the program after ``step``, else its last known name, else the target to which it
        was unpacked; None if there is none of these.
        """
        for at in (step, None):
            tensor = self.tensor(label, at)
            if tensor and tensor.get("name"):
                return str(tensor["name"])
        return self._unpacked(label)

    def used_name(self, label: str | None) -> str | None:
        """Return the name by which a call of the program uses the tensor; None if there is none. It need not be the
        name of a variable on the line that a rule edits.
        """
        return used_names(self.trace, {label}).get(label) if label else None

    def _unpacked(self, label: str | None) -> str | None:
        """The target to which one of several results was assigned: ``self.h`` for the second result in ``out, self.h =
        rnn(x, self.h)``; None if there is none.
        """
        event = self.event((self.tensor(label) or {}).get("born"))
        if event is None or label not in event.results or len(event.results) == 1 or self.program.tree is None:
            return None
        statement = self.program.statement_at(event.span)
        if not isinstance(statement, ast.Assign) or self.program.place(statement.value) != event.span:
            return None
        names = list(flat_targets(statement.targets[0]))
        node = names[event.results.index(label)] if len(names) == len(event.results) else None
        return (
            self.program.segment(node)
            if isinstance(node, ast.Name | ast.Attribute) and self.program.segment(node) != "_"
            else None
        )

    def history(self, kind: str, label: str | None, field: str) -> list[tuple[int, Any]]:
        """Return the values that the field ``field`` of ``kind``.``label`` took, in order, as pairs of step and value:
        ``history("tensors", "t3", "grad")``.

        Sets ``needs_values`` if ``field`` is ``"cells"`` and a value is unknown.
        """
        values: list[tuple[int, Any]] = []
        for at, effect in self._effects.get(f"{kind}.{label}", ()):
            fields = effect.path.split(".")[2:]
            if fields == [field]:
                values.append((at, effect.value))
            elif not fields and isinstance(effect.value, dict) and field in effect.value:
                values.append((at, effect.value[field]))
        self.needs_values = self.needs_values or (field == "cells" and any(value is None for _, value in values))
        return values

    def held(self, label: str | None, step: int | None) -> dict[int, Any]:
        """Return the values that the trace has of the whole storage of the tensor ``label`` at ``step``, by index in
        the storage; empty if it has none.

        Unlike :meth:`record`, it does not set ``needs_values`` then.
        """
        needs_values = self.needs_values
        cells = (self.record("storages", (self.tensor(label, step) or {}).get("storage"), step) or {}).get("cells")
        self.needs_values = needs_values
        shown = cells.get("shown", ()) if isinstance(cells, dict) else enumerate(cells or ())
        return {int(place): value for place, value in shown}

    @cached_property
    def tensors(self) -> dict[str, Record]:
        """All tensors and arrays in their last known state, by label, in order of creation."""
        labels = [key.split(".", 1)[1] for key in self._effects if key.startswith("tensors.")]
        labels.sort(key=lambda label: int(label[1:]) if label[1:].isdigit() else 0)
        return {label: record for label in labels if (record := self.tensor(label)) is not None}

    @cached_property
    def nodes(self) -> dict[str, Record]:
        """All nodes of the graph in their last known state, by label."""
        labels = [key.split(".", 1)[1] for key in self._effects if key.startswith("nodes.")]
        return {label: record for label in labels if (record := self.record("nodes", label)) is not None}

    @cached_property
    def _by_storage(self) -> dict[str | None, list[tuple[str, Record]]]:
        found: dict[str | None, list[tuple[str, Record]]] = defaultdict(list)
        for label, record in self.tensors.items():
            found[record.get("storage")].append((label, record))
        return found

    def tensors_on(self, storage: str | None) -> list[tuple[str, Record]]:
        """Return all tensors and arrays that were ever on ``storage``, in order of creation, each label with its last
        known record; empty for None.
        """
        return self._by_storage.get(storage, [])

    @cached_property
    def leaves(self) -> dict[str, Record]:
        """The leaves that require grad, parameters included, by label, in their last known state: a parameter that is
        frozen at the end is not among them.
        """
        return {
            label: record
            for label, record in self.tensors.items()
            if record.get("is_leaf") and record.get("requires_grad")
        }

    def storage_name(self, storage: str | None, step: int | None) -> str | None:
        """Return a name for the storage: that of the oldest tensor on it for which :meth:`name` finds one; None if
        there is none.
        """
        for label, _ in self.tensors_on(storage):
            if name := self.name(label, step):
                return name
        return None

    def bumps(self, counter: str | None, after: int, until: int) -> list[int]:
        """Return the steps after ``after`` and up to ``until`` (included) at which the version counter ``counter`` (a
        label) changed; empty if there are none or the label is None.
        """
        return [step for step, effect in self._effects.get(f"counters.{counter}", ()) if after < step <= until]

    def writes(self, storage: str, after: int, until: int) -> tuple[int, ...]:
        """Return the steps strictly between ``after`` and ``until`` at which the storage was written or its values
        changed, in order, whether a version counter counted the write or not.
        """
        steps = self._write_steps.get(storage)
        if steps is None:
            changed = {
                step for step, effect in self._effects.get(f"storages.{storage}", ()) if effect.path.endswith(".cells")
            }
            steps = self._write_steps[storage] = sorted(changed | self._writers.get(storage, set()))
        return tuple(steps[bisect_right(steps, after) : bisect_left(steps, until)])

    def calls(self, *names: str) -> Iterator[Event]:
        """Yield the calls in order, without the nodes that ran in backward; with ``names``, only calls with one of
        these short names (``Event.name``): ``story.calls("detach", "numpy")``.

        Names match exactly: ``"add_"`` is not ``"add"``. One call of the program often makes several events (an
        optimizer's step makes one ``add_`` for each parameter): :meth:`said` gives the name of the program's call.
        """
        if not names:
            return (event for event in self.events if event.kind == "call")
        steps = sorted(step for name in names for step in self._by_name.get(name, ()))
        return (self.events[step] for step in steps)

    @cached_property
    def _writers(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for event in self.events:
            for storage in event.writes:
                found[storage].add(event.step)
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for event in self.calls():
            found[event.name].append(event.step)
        return found

    @cached_property
    def _by_operand(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for event in self.calls():
            for label in dict.fromkeys(operand.label for operand in event.operands if operand.label is not None):
                found[label].append(event.step)
        return found

    def uses(self, label: str | None) -> list[Event]:
        """Return the calls that had the tensor ``label`` as an operand, in order; empty if there are none or the label
        is None.
        """
        return [self.events[step] for step in self._by_operand.get(label or "", ())]

    @cached_property
    def _by_span(self) -> dict[Span, list[int]]:
        found: dict[Span, list[int]] = defaultdict(list)
        for event in self.calls():
            if event.span is not None and event.span.source == 0:
                found[event.span].append(event.step)
        return found

    def within(self, node: ast.AST) -> list[Event]:
        """Return the calls made directly in the source of ``node``, in order; not those inside functions that it
        calls.
        """
        place = self.program.place(node)
        first, last = (place.line, place.column), (place.end_line, place.end_column)
        spans = (s for s in self._by_span if first <= (s.line, s.column) and (s.end_line, s.end_column) <= last)
        return [self.events[step] for step in sorted(step for span in spans for step in self._by_span[span])]

    def said(self, step: int | None) -> str:
        """Return the name of the function that the program calls on the line of the event at ``step``: ``step`` for
        each ``add_`` of ``opt.step()``.

        Empty if the source at its span is not a call.
        """
        span = self.span(step)
        if span not in self._said:
            node = self.program.at(span)
            self._said[span] = called(node) if isinstance(node, ast.Call) else ""
        return self._said[span]

    @cached_property
    def _said(self) -> dict[Span | None, str]:
        return {}

    @cached_property
    def calls_of(self) -> dict[str, list[ast.Call]]:
        """A cache for :mod:`.call_stack`, empty at first: by the name of a class of the program, the calls in the
        source of variables that hold an object of this class.
        """
        return {}

    def runs(self, *names: str) -> list[list[Event]]:
        """Return the recorded calls grouped by the program's calls of a function with one of ``names``, one list for
        each execution: for ``runs("step")``, the events of each ``opt.step()``.

        Events of one execution have the same span and consecutive steps; events inside another recorded call are left
        out.
        """
        found: list[list[Event]] = []
        last: tuple[Span | None, int] | None = None
        for event in self.calls():
            if event.parent is None and self.said(event.step) in names:
                if last is not None and last[0] == event.span and last[1] == event.step - 1:
                    found[-1].append(event)
                else:
                    found.append([event])
                last = (event.span, event.step)
        return found

    def backwards(self) -> list[Event]:
        """Return the calls that ran backward (``backward``, ``torch.autograd.grad``), each once, in order."""
        names = ("backward", "grad")
        ran = (
            e
            for e in self.calls(*names)
            if e.op in ("torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad")
        )
        return [e for e in ran if (parent := self.event(e.parent)) is None or parent.name not in names]

    def nodes_run(self, backward: Event) -> list[Event]:
        """Return the events of the nodes that ran in this backward, in order."""
        found = []
        for event in self.events[backward.step + 1 :]:
            outer = self.outer_call(event.step)
            if outer is None or outer.step != backward.step:
                break
            if event.kind == "node":
                found.append(event)
        return found

    def behind(self, node: str | None) -> Iterator[str]:
        """Yield ``node`` and all nodes that a backward from it reaches, nearest first; nothing for None."""
        pending: deque[str | None] = deque([node])
        seen: set[str] = set()
        while pending:
            here = pending.popleft()
            if here is None or here in seen:
                continue
            seen.add(here)
            yield here
            pending += (self.record("nodes", here) or {}).get("next", ())

    def failures(self, *kinds: str) -> list[tuple[int, Failure]]:
        """Return the errors that torch raised, of the given ``kinds`` (as in ``Failure.kind``), in order, as pairs of
        step and failure; of equal errors at one span only the first.

        They are the errors of calls, of nodes inside calls, and the error that ended the program.
        """
        found: list[tuple[int, Failure]] = [
            (event.step, event.error) for event in self.events if event.error is not None
        ]
        if (ended := self.trace.outcome.failure) is not None:
            found.append((ended.step if ended.step is not None else len(self.events) - 1, ended))
        once: dict[tuple[object, ...], tuple[int, Failure]] = {}
        for step, failure in found:
            if failure.kind in kinds:
                once.setdefault(
                    (failure.kind, failure.tensor, failure.node, failure.span or self.span(step)), (step, failure)
                )
        return list(once.values())

    def predicted(self, failure: Failure, step: int) -> bool:
        """Whether the shadow engine predicted the error: it forecast an error of this kind at or before ``step``, which
        came true, or it raised the same error as torch at the event of ``step``.
        """
        event = self.event(step)
        was_forecast = any(
            f.failure.kind == failure.kind and f.step <= step and f.came_true is not None for f in self.trace.forecasts
        )
        return was_forecast or (event is not None and event.by == "agreed")

    def related(self, role: Role, step: int | None, text: T) -> Related:
        """Return the line of the event at ``step`` as a related line of a finding, with the role ``role`` and the
        message ``text``.
        """
        return Related(role, self.span(step), step, text)

    def by(self, step: int | None) -> Any:
        """Return where the facts of the event at ``step`` come from: "observed" (torch), "modelled" (the shadow engine)
        or "agreed" (both); "observed" if there is no such event.
        """
        event = self.event(step)
        return event.by if event else "observed"
