"""The values of each label (tensor, storage, node) over the steps of a trace, gathered in one pass for all views.
:func:`gather` returns them as :class:`Facts`.

A projection reads :class:`Facts` and returns plain data. It never folds the trace by itself, so a trace of 5,000
events is replayed once for all views.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pitfall_lab.trace import State, T, Trace, empty_state
from pitfall_lab.trace.replay import advance
from pitfall_lab.trace.text import excerpt, sentences, written
from pitfall_lab.views.display_names import names
from pitfall_lab.views.display_names import written as as_written

GROUPS = ("tensors", "storages", "counters", "nodes")
History = list[tuple[int, Any]]
"""The values a label had, each with the step that wrote it, oldest first."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A finished trace, indexed by label: ``t2`` for a tensor, ``S1`` for a storage, ``C1`` for a counter, ``n3`` for a
    node.

    ``tensors``, ``storages``, ``counters`` and ``nodes`` have, for each label, the values that its record in the
    trace's state had, each with the step that wrote it; ``final`` is the state after the last step. ``on_counter`` has,
    for each counter, the tensors that had it at any time, in order of creation. ``palette`` are the storages that get a
    colour, at most six, in order of creation.
    """

    trace: Trace
    tensors: dict[str, History]
    storages: dict[str, History]
    counters: dict[str, History]
    nodes: dict[str, History]
    final: State
    writes: dict[str, list[int]]
    """Steps whose event says that it wrote the storage."""
    broken: dict[tuple[str, str], int]
    """(node, slot) → the step that torch refused it at."""
    wrong: dict[tuple[str, str], int]
    """(node, slot) → the step of a backward that silently used changed memory."""
    in_storage: dict[str, list[str]]
    """Tensors and arrays that were on a storage at any time, in order of creation."""
    on_counter: dict[str, list[str]]
    of_node: dict[str, list[str]]
    """Tensors whose ``grad_fn`` a node was at any time, in order of creation."""
    palette: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The display name of each label (:mod:`pitfall_lab.views.display_names`); empty until needed."""
    labelled: bool = True
    """Whether names are shown together with the label."""
    drawn: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The projections computed so far, by view: the browser's scene and the static page share them."""
    outlined: set[str] = field(default_factory=set)
    """The views of which ``drawn`` has only the outline."""
    said: list[T] = field(default_factory=list)
    """The sentences of the events, computed when first needed."""

    def projected(self, view: ModuleType, *, first: bool = False) -> Any:
        """The result of ``project`` of the module ``view`` for these facts, computed once.

        With ``first``, the result of its ``outline`` instead, if it has one and that is not None.
        """
        name = view.__name__
        if name not in self.drawn:
            outline = view.outline(self.trace, self) if first and hasattr(view, "outline") else None
            self.drawn[name] = view.project(self.trace, self) if outline is None else outline
            if outline is not None:
                self.outlined.add(name)
        return self.drawn[name]

    def sentences(self) -> list[T]:
        """Each event as a sentence, in the order of the events."""
        if not self.said:
            self.said.extend(text for _, text in sentences(self.trace))
        return self.said

    def tensor(self, label: str | None, step: int | None = None) -> dict[str, Any]:
        """The tensor's record in the trace's state (shape, storage, name and the like) as it was after ``step`` (the
        last one for None); an empty dictionary when there is none.
        """
        return at(self.tensors.get(label or "", []), step) or {}

    def name(self, label: str | None) -> str:
        """The program's name of a tensor with its label, ``h (t2)``; the label alone if it has no name.

        If labels are not shown (``labelled``), the name alone, or else the display name.
        """
        name = self.tensor(label).get("name")
        if not self.labelled:
            return str(name or self.called(label))
        return f"{name} ({label})" if name else str(label)

    def called(self, label: str | None, step: int | None = None) -> str:
        """The display name of a label; with ``step``, the name that the tensor had in the program then, if it has
        another now.

        ``h`` before the line ``y = relu(h)`` that writes into ``h`` and names it ``y``.
        """
        if not self.names:
            self.names.update(names(self))
        name = self.names.get(label or "", str(label))
        if step is None or label is None:
            return name
        mine = [label] if label in self.tensors else [*self.of_storage(label), *self.of_counter(label)]
        owner = next((t for t in mine if self.tensor(t).get("name") and self.names.get(t) == name), None)
        then, now = self.tensor(owner, step).get("name"), self.tensor(owner).get("name")
        if not then or then == now:
            return name
        return as_written(str(then))

    def number(self, counter: str | None, storage: str | None, version: Any) -> str:
        """A version as :meth:`badge` writes it if labels are shown, else always as ``v2``.

        It is for pictures that distinguish the counters of one storage by their drawing.
        """
        return self.badge(counter, storage, version) if self.labelled else f"v{version}"

    def badge(self, counter: str | None, storage: str | None, version: Any) -> str:
        """A version as ``v2``; with the counter's label if labels are shown, or if the storage has more than one
        counter.
        """
        several = (
            len({record["counter"] for t in self.of_storage(storage) if (record := self.tensor(t)).get("counter")}) > 1
        )
        return f"{counter}·v{version}" if self.labelled or several else f"v{version}"

    def of_storage(self, storage: str | None) -> list[str]:
        """Tensors and arrays that were on ``storage`` at any time, in order of creation."""
        return self.in_storage.get(storage or "", [])

    def of_counter(self, counter: str) -> list[str]:
        """Tensors that had the version counter ``counter`` at any time, in order of creation."""
        return self.on_counter.get(counter, [])

    def output(self, node: str) -> str | None:
        """The output tensor of a node (for AccumulateGrad: its leaf), also if the node is no longer its ``grad_fn``.

        If the trace does not give it, the oldest tensor that had the node as ``grad_fn``; None if there is none.
        """
        record = (self.nodes[node][-1][1] or {}) if node in self.nodes else {}
        known = record.get("output") or next(
            (r["output"] for _, r in self.nodes.get(node, []) if r and r.get("output")), None
        )
        return known or next(iter(self.of_node.get(node, [])), None)

    def line(self, step: int | None) -> int | None:
        """Return the source line of a step; None if it has none."""
        if step is None or not 0 <= step < len(self.trace.events):
            return None
        span = self.trace.events[step].span
        return span.line if span else None

    def code(self, step: int | None) -> str:
        """The piece of source that a step ran, on one line; torch's name of the call if the source is unknown.

        "" for None and for a number that is no step.
        """
        if step is None or not 0 <= step < len(self.trace.events):
            return ""
        return excerpt(self.trace, self.trace.events[step].span) or self.trace.events[step].name


def at(history: History, step: int | None = None) -> Any:
    """The value in ``history`` after ``step`` (None: the last value); None before the first one and for an empty
    history.
    """
    if not history:
        return None
    if step is None:
        return history[-1][1]
    place = bisect_right(history, step, key=lambda item: item[0])
    return history[place - 1][1] if place else None


def gather(trace: Trace) -> Facts:
    """Read the whole trace once and return its facts by label."""
    logs: dict[str, dict[str, History]] = {group: {} for group in GROUPS}
    state, writes = empty_state(), defaultdict(list)
    for event in trace.events:
        touched: dict[tuple[str, str], None] = {}
        changed = written(event, logs["storages"])
        for effect in event.effects:
            advance(state, effect)
            parts = effect.path.split(".")
            if parts[0] in logs and len(parts) > 1:
                touched[parts[0], parts[1]] = None
        for group, label in touched:
            logs[group].setdefault(label, []).append((event.step, _sound(group, state[group].get(label))))
        for storage in changed:
            writes[storage].append(event.step)
    facts = Facts(
        trace,
        **logs,  # type: ignore[arg-type] # the groups are the fields
        final=state,
        writes=dict(writes),
        broken=_broken(trace),
        wrong=_wrong(trace),
        in_storage=_owners(logs["tensors"], "storage"),
        on_counter=_owners(logs["tensors"], "counter"),
        of_node=_owners(logs["tensors"], "grad_fn"),
    )
    facts.palette.extend(_palette(facts))
    return facts


def _sound(group: str, record: Any) -> Any:
    """The record if it has the right type, else None, since a trace may come from a file of another program."""
    kind = int if group == "counters" else dict
    return record if isinstance(record, kind) else None


def _owners(tensors: dict[str, History], key: str) -> dict[str, list[str]]:
    owners: dict[str, dict[str, None]] = {}
    for label, history in tensors.items():
        for _, record in history:
            if record and isinstance(record.get(key), str):
                owners.setdefault(record[key], {})[label] = None
    return {place: list(labels) for place, labels in owners.items()}


def _broken(trace: Trace) -> dict[tuple[str, str], int]:
    failures = [event.error for event in trace.events if event.error] + (
        [trace.outcome.failure] if trace.outcome.failure else []
    )
    return {(f.node, f.saved or ""): f.step for f in failures if f.node and f.step is not None}


def _wrong(trace: Trace) -> dict[tuple[str, str], int]:
    out: dict[tuple[str, str], int] = {}
    for harm in trace.harms:
        for cause in harm.causes:
            out.setdefault((cause.node, cause.saved), harm.step)
    return out


def _palette(facts: Facts) -> list[str]:
    """At most six storages that get a colour, in order of creation.

    They are chosen in this order: storages of errors and wrong gradients, those with several tensors, those that were
    written, those with a named tensor, then the others.
    """
    trace, order = facts.trace, list(facts.storages)
    named = [
        f.storage
        for f in [e.error for e in trace.events if e.error] + [f.failure for f in trace.forecasts]
        if f and f.storage
    ]
    named += [cause.storage for harm in trace.harms for cause in harm.causes]
    shared = [s for s in order if len(facts.of_storage(s)) > 1]
    written = [s for s in order if s in facts.writes]
    names = [s for s in order if any(facts.tensor(t).get("name") for t in facts.of_storage(s))]
    chosen = list(dict.fromkeys(s for s in [*named, *shared, *written, *names, *order] if s in facts.storages))[:6]
    return sorted(chosen, key=order.index)
