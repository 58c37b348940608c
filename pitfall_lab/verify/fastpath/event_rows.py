"""Rows: a compact form of the events of repeated calls, expanded into events when they are read.

The first call with a key writes a whole event. The events of later calls with that key differ only in labels and
values. A :class:`Saying` is such an event with placeholders for them, and a row contains their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.argument_values import text
from pitfall_lab.trace import By, Effect, Event, Operand, Span
from pitfall_lab.verify import json_values

LABELLED = frozenset({"storage", "counter", "grad_fn", "base", "grad", "tensor", "output"})
"""The fields of the state whose values are labels."""


Deaths = int | tuple[tuple[int, ...], tuple[int, ...]]
"""The marks of the tensors and storages that died; one of each, the usual case, is given by the step of the row that
created both.
"""


class Births(NamedTuple):
    """How many tensors (``t``), storages (``S``), version counters (``C``) and nodes (``n``) had labels before a call:
    the next new ones get the labels after these.
    """

    t: int
    S: int
    C: int
    n: int


class CallRow(NamedTuple):
    """One call that followed a plan (what is stored about calls of this kind), with named fields; it is stored as
    :data:`Packed`.

    A mark is the number in a label: 3 for ``t3``.
    """

    saying: int
    """The index of its :class:`Saying` in :class:`Rows`; ``span`` and ``scope`` are indices as well."""
    span: int
    scope: int
    births: Births
    names: tuple[tuple[str, ...] | None, tuple[int, tuple[str, ...]] | None] | None
    """The names of the result, and (mark, remaining names) of the tensor that lost its name to it."""
    deaths: Deaths | None
    """The tensors and storages that died since the last call."""
    met: tuple[Effect, ...] | None
    """The effects that describe operands seen for the first time."""
    numbers: Sequence[Any] | None
    """The contents of each storage for which the saying has a placeholder (for a storage that was written: before,
    after).
    """
    plain: tuple[Any, ...] | None
    """The number arguments; or the index of ``x[...]``, and the offset of the view."""
    marks: Sequence[int]
    """The marks of the operands, one for each of the saying's roles."""


Packed = Sequence[Any]
"""A row as it is stored: its fields in their order, with ``births`` replaced by its four values and ``marks`` by the
marks.
"""
BIRTHS = CallRow._fields.index("births")
MARKS = len(CallRow._fields) - 1 + len(Births._fields) - 1
"""The indices of the first of the births and of the first of the marks in a packed row; ``DEATHS``: of the deaths."""
DEATHS = CallRow._fields.index("deaths") + len(Births._fields) - 1


def unpacked(cells: Packed) -> CallRow:
    """Return the row whose cells, as they are stored, are ``cells``.

    >>> row = unpacked([7, 1, 0, 5, 4, 3, 2, None, None, None, None, (0.5,), 8, 9])
    >>> row.births.S, row.plain, row.marks
    (4, (0.5,), [8, 9])
    """
    saying, span, scope, t, storages, counters, nodes, names, deaths, met, numbers, plain, *marks = cells
    births = Births(t, storages, counters, nodes)
    return CallRow(saying, span, scope, births, names, deaths, met, numbers, plain, marks)


class NodesRan(NamedTuple):
    """The nodes that one backward ran, as one object instead of the events of all of them.

    ``parent``: the step of the backward; ``place``: the index of its span; ``first``: the step of the first node. The
    lists have one item for each node: ``marks`` (the numbers in their labels), ``names``, ``shapes`` and contents
    (``gradients``; empty without values) of the gradient that each received, and ``freed``, whether its saved tensors
    were freed. ``parts``, by the node's index: the gradients whose sum it received, each with the mark of its node; an
    empty list where an earlier backward had some and this one has none.
    """

    parent: int
    place: int
    first: int
    marks: list[int]
    names: list[str]
    shapes: list[tuple[int, ...]]
    gradients: list[json_values.Look | None]
    freed: list[bool]
    parts: dict[int, list[tuple[int, json_values.Look]]]


class Rows:
    """The rows of a trace and what they share: ``sayings`` (the forms of their events), ``spans`` and ``scopes``, to
    which rows refer by index.

    In ``among``, the list of events, a row is represented by its start in ``cells``.
    """

    def __init__(self, among: list[Any]) -> None:
        self._events = among
        self.cells: list[Any] = []
        """All rows in one flat list: Python's cyclic collector scans each container, and a separate list for each row
        would add one for each call.
        """
        self.sayings: list[Saying] = []
        self.spans: list[Span | None] = []
        self.scopes: list[tuple[str, ...]] = []

    def place(self, span: Span | None) -> int:
        """Append a span (None: unknown) and return its index. Each line that calls has its own."""
        self.spans.append(span)
        return len(self.spans) - 1

    def cell(self, step: int, which: int) -> Any:
        """Return the field with index ``which`` in the row of a step."""
        return self.cells[self._events[step] + which]

    def row(self, step: int) -> CallRow:
        """Return the row of a step."""
        start: int = self._events[step]
        return unpacked(self.cells[start : start + MARKS + len(self.sayings[self.cells[start]].roles)])

    def event(self, step: int) -> Event:
        """Return the event of a step, expanded from its row, or from its node's entry in the nodes that a backward
        ran.
        """
        ran = self._events[step]
        if type(ran) is NodesRan:
            return self._node_event(ran, step)
        row = self.row(step)
        saying, names, deaths = self.sayings[row.saying], row.names, row.deaths
        effects, results, operands, writes = saying.parts(row, step)
        if row.met is not None:
            effects = [*row.met, *effects]
        if names is not None:
            mine, lost = names
            if lost is not None:
                effects += _named(f"t{lost[0]}", lost[1])
            if mine is not None:
                effects += _named(results[0], mine)
        if deaths is not None:
            tensors, storages = self.dead(deaths)
            effects += [Effect(f"tensors.t{mark}.alive", False) for mark in tensors]
            effects += [Effect(f"storages.S{mark}.alive", False) for mark in storages]
        if row.plain:
            operands = _with_numbers(operands, saying.plain, row.plain)
        span, scope = self.spans[row.span], self.scopes[row.scope]
        by: By = "observed" if saying.reason else "agreed"
        return Event(
            step, "call", saying.op, span, scope, None, operands, results, writes, tuple(effects), by, saying.reason
        )

    def births(self, step: int) -> Births:
        """Return how many labels of each kind existed before the row's call."""
        return self.row(step).births

    def dead(self, deaths: Deaths) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the marks of the tensors and of the storages that died, from a row's ``deaths``."""
        if isinstance(deaths, int):
            tensor, storage, *_ = self.births(deaths)
            return (tensor + 1,), (storage + 1,)
        return deaths

    def _node_event(self, ran: NodesRan, step: int) -> Event:
        k = step - ran.first
        path = f"nodes.n{ran.marks[k]}"
        received = json_values.as_json(ran.gradients[k] if ran.gradients else None)
        effects = [Effect(f"{path}.ran", step, "modelled"), Effect(f"{path}.gradient", received, "modelled")]
        effects.append(Effect(f"{path}.gradient_shape", list(ran.shapes[k]), "modelled"))
        if k in ran.parts:
            added = [{"node": f"n{mark}", "cells": json_values.as_json(part)} for mark, part in ran.parts[k]]
            effects.append(Effect(f"{path}.added", added, "modelled"))
        if ran.freed[k]:
            effects.append(Effect(f"{path}.freed", True, "modelled"))
        return Event(
            step, "node", ran.names[k], self.spans[ran.place], parent=ran.parent, effects=tuple(effects), by="modelled"
        )


def _places_of(numbers: Sequence[Any], operands: tuple[Operand, ...]) -> tuple[int, ...]:
    """The indices of the number arguments among the operands, in their order; raises Unsayable if one is not found."""
    texts = [None if operand.label else operand.text for operand in operands]
    places: list[int] = []
    for number in numbers:
        following = [place for place, said in enumerate(texts) if said == text(number) and place not in places]
        if not following:
            raise Unsayable(text(number))
        places.append(following[0])
    return tuple(places)


def _with_numbers(
    operands: tuple[Operand, ...], places: tuple[int, ...], numbers: tuple[Any, ...]
) -> tuple[Operand, ...]:
    given = list(operands)
    for place, number in zip(places, numbers, strict=False):  # an index is followed by an offset, which is no operand
        given[place] = Operand(None, text(number), given[place].name)
    return tuple(given)


def _named(label: str, names: tuple[str, ...]) -> list[Effect]:
    return [
        Effect(f"tensors.{label}.name", names[-1] if names else None),
        Effect(f"tensors.{label}.names", list(names)),
    ]


class Unsayable(Exception):
    """Raised if the event cannot be expressed with placeholders: it refers to something other than the call's operands
    and results. The text is the label or the argument.
    """


Slot = tuple[str, int, bool]
"""A placeholder for a label: its letter, a number, and whether this numbers the objects that the call created (True) or
is a role's index (False).
"""


class Saying:
    """The event of a call with placeholders for its labels and values: the form of the events of all calls with one
    key.
    """

    __slots__ = (
        "_build",
        "_count",
        "effects",
        "looks",
        "made",
        "op",
        "operands",
        "plain",
        "reason",
        "results",
        "roles",
        "writes",
    )

    def __init__(  # noqa: PLR0917 - an event's parts
        self, op: str, effects: list[Effect], operands: tuple[Operand, ...], results: list[str], labels: Labels,
        written: tuple[str, str] | None = None, uncounted: Sequence[str] = (), numbers: Sequence[Any] = (),
        reason: str = "",
    ) -> None:  # fmt: skip
        """Replace the labels and values of an event by placeholders.

        ``written`` are the labels of the storage that the call writes and of its version counter; ``uncounted`` those
        of storages that it writes without increasing a version; ``numbers`` the number arguments (or an index) that
        differ between calls with the same key; ``reason`` is why the call was only observed.

        Raises:
            Unsayable: the event refers to something other than the call's operands and results.
        """
        self.op, self.reason = op, reason
        self._count = 0
        self._build: Callable[[CallRow, int], EventParts] | None = None
        self.writes: list[Slot] = []
        if written is not None:
            effects = [
                effect
                for effect in effects
                if effect.path not in (f"storages.{written[0]}.cells", f"counters.{written[1]}")
            ]
        self.effects = [self._template(effect, labels) for effect in effects]
        if written is not None:
            self._add_write(*written, labels)
        self.writes += [labels.slot(label) for label in uncounted]
        self.results = [labels.slot(label) for label in results]
        self.operands = [(None if o.label is None else labels.slot(o.label), o) for o in operands]
        self.plain = _places_of(numbers, operands)
        whole = [(slot, value) for table, slot, _, value in self.effects if table == "storages" and type(value) is dict]
        self.looks = tuple(slot[1] for slot, value in whole if type(value["cells"]) is _ContentsSlot)
        self.roles = tuple(labels.roles)
        self.made = labels.made

    @classmethod
    def clearing(cls, op: str, field: str) -> Saying:
        """Return the form of the event of assigning None to the attribute ``field`` of the only operand; with "", an
        event without effects.
        """
        labels = Labels(Births(1, 0, 0, 0), Births(1, 0, 0, 0), {"t1": (0, "t")})
        saying = cls(op, [], (Operand("t1"),), [], labels)
        saying.effects = [("tensors", labels.slot("t1"), f".{field}", None)] if field else []
        return saying

    def _template(self, effect: Effect, labels: Labels) -> tuple[str, Slot, str, Any]:
        table, label, *rest = effect.path.split(".")
        slot = labels.slot(label)
        if not slot[2]:
            raise Unsayable(effect.path)
        value = _opened(effect.value, labels, rest[-1] if rest else "")
        if table == "storages" and value["cells"] is not None:
            value["cells"] = self._look()
        return table, slot, "".join(f".{part}" for part in rest), value

    def _look(self) -> _ContentsSlot:
        self._count += 1
        return _ContentsSlot(self._count - 1)

    def _add_write(self, storage: str, counter: str, labels: Labels) -> None:
        place, counts = labels.slot(storage), labels.slot(counter)
        self.writes.append(place)
        before, after = self._look(), self._look()
        self.effects.append(("storages", place, ".cells", _Changed(before.place, after.place)))
        self.effects.append(("counters", counts, "", _Open(labels.version(counter))))

    def parts(self, row: CallRow, step: int) -> EventParts:
        """Return the effects, results, operands and writes of the event that ``row`` represents at ``step``.

        The saying is compiled to a function at the first call, because a trace has many events of one form.
        """
        if self._build is None:
            self._build = self._function()
        return self._build(row, step)

    def _function(self) -> Callable[[CallRow, int], EventParts]:
        others: list[Any] = []
        effects = []
        for table, slot, rest, value in self.effects:
            path = f'f"{table}.{_label(slot)}{rest}"'
            if type(value) is _Changed:
                effects.append(f"*changed({path}, row.numbers[{value.before}], row.numbers[{value.after}])")
            else:
                effects.append(f'Effect({path}, {_text(value, others)}, "agreed")')
        results, writes = ("".join(f'f"{_label(slot)}", ' for slot in slots) for slots in (self.results, self.writes))
        operands = "".join(
            f"{_text(o, others)}, " if slot is None else f'Operand(f"{_label(slot)}", {o.text!r}, {o.name!r}), '
            for slot, o in self.operands
        )
        source = f"lambda row, step: ([{', '.join(effects)}], ({results}), ({operands}), ({writes}))"
        names = {
            "Effect": Effect,
            "Operand": Operand,
            "as_json": json_values.as_json,
            "changed": _changed,
            "others": others,
        }
        function: Callable[[CallRow, int], EventParts] = eval(source, names)  # noqa: S307 - our own text
        return function


EventParts = tuple[list[Effect], tuple[str, ...], tuple[Operand, ...], tuple[str, ...]]


def _label(slot: Slot) -> str:
    """Return the source of the part of an f-string that gives the label for a placeholder; the f-string reads
    ``row``.
    """
    letter, number, is_new = slot
    return f"{letter}{{row.births.{letter} + {number}}}" if is_new else f"{letter}{{row.marks[{number}]}}"


def _text(value: Any, others: list[Any]) -> str:
    """The source of an expression that computes ``value``; constants that have no short literal are appended to
    ``others``.
    """
    if type(value) is _ContentsSlot:
        return f"as_json(row.numbers[{value.place}])"
    if type(value) is _Open:
        if value.what is None:
            return "step"
        return f"row.marks[{value.what}]" if isinstance(value.what, int) else f'f"{_label(value.what)}"'
    if type(value) is _Beginning:
        return "row.plain[1]" if value.role is None else f"row.marks[{value.role}] + {value.further}"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_text(item, others)}' for key, item in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(_text(item, others) for item in value)}]"
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    others.append(value)
    return f"others[{len(others) - 1}]"


def _changed(path: str, before: json_values.Look | None, after: json_values.Look | None) -> tuple[Effect, ...]:
    """The effect that shows the contents of a written storage, in a tuple; empty if they are unchanged."""
    return () if json_values.alike(before, after) else (Effect(path, json_values.as_json(after), "agreed"),)


class _Open:
    """A placeholder in a value for a label (``what`` is its slot), for a version (the index of a role), or for the step
    (None).
    """

    __slots__ = ("what",)

    def __init__(self, what: Slot | int | None) -> None:
        self.what = what


class _Beginning(NamedTuple):
    """A placeholder for an offset: that of the operand with this role plus ``further``; with None, the row contains the
    offset.
    """

    role: int | None
    further: int


class _ContentsSlot(NamedTuple):
    """A placeholder for the contents of a storage; ``place`` is their index in the row's list of contents."""

    place: int


class _Changed(NamedTuple):
    """A placeholder for the contents of a written storage: the indices of those before and after the write."""

    before: int
    after: int


class Labels:
    """Maps the labels in the event of a first call to placeholders.

    A label belongs to something that the call created (its number is between ``births`` and ``after``), or to an
    operand (``olds``: its index and a letter by the label). ``roles`` collects which facts of the operands are needed,
    as ``(operand, letter)``; the letter ``"v"`` is the version of its counter, ``"o"`` its storage offset.
    """

    def __init__(
        self,
        births: Births,
        after: Births,
        olds: dict[str, tuple[int, str]],
        offsets: Sequence[int] = (),
        *,
        is_open: bool = False,
    ) -> None:
        """Store the labels before and after the call. ``offsets`` are the storage offsets of the operands; ``is_open``:
        another call's view may have any offset.
        """
        self._births, self._after, self._olds, self._offsets, self._is_open = births, after, olds, offsets, is_open
        self.made = tuple(b - a for a, b in zip(births, after, strict=True))
        self.roles: list[tuple[int, str]] = []

    def slot(self, label: str) -> Slot:
        """Return the placeholder for a label such as ``t3``; raises :class:`Unsayable` if it belongs neither to an
        operand nor to what the call created.
        """
        letter, number = label[0], int(label[1:])
        before = getattr(self._births, letter)
        if number > before:
            if number > getattr(self._after, letter):
                raise Unsayable(label)
            return letter, number - before, True
        return letter, self.role(self._old(label)), False

    def role(self, role: tuple[int, str]) -> int:
        """Return the index of a role; a new role is added to the list."""
        if role not in self.roles:
            self.roles.append(role)
        return self.roles.index(role)

    def version(self, counter: str | None) -> int | None:
        """Return the index of the role for the version of an operand's counter; None for a counter that the call
        created, and for None.

        Raises :class:`Unsayable` for a counter that is neither an operand's nor created by the call.
        """
        if counter is None or self.slot(counter)[2]:
            return None
        operand, _ = self._old(counter)
        return self.role((operand, "v"))

    def beginning(self, storage: str, offset: int) -> _Beginning | int:
        """Return what the plan stores for a tensor's storage offset, in elements: ``offset`` itself if the call created
        the storage, else a placeholder that is computed from the operand's offset at each call.

        Raises :class:`Unsayable` for a storage that is neither an operand's nor created by the call.
        """
        if self.slot(storage)[2]:
            return offset
        if self._is_open:
            return _Beginning(None, 0)
        operand, _ = self._old(storage)
        return _Beginning(self.role((operand, "o")), offset - self._offsets[operand])

    def _old(self, label: str) -> tuple[int, str]:
        if label not in self._olds:
            raise Unsayable(label)
        return self._olds[label]


def _opened(value: Any, labels: Labels, field: str) -> Any:
    if field in LABELLED:
        return value if value is None else _Open(labels.slot(value))
    if field == "next":
        return [None if label is None else _Open(labels.slot(label)) for label in value]
    if field == "born":
        return _Open(None)
    if field == "saved":
        return [_opened_saved(saved, labels) for saved in value]
    if type(value) is dict:
        opened = {key: _opened(item, labels, key) for key, item in value.items()}
        if "offset" in value:
            opened["offset"] = labels.beginning(value["storage"], value["offset"])
        return opened
    return value


def _opened_saved(saved: dict[str, Any], labels: Labels) -> dict[str, Any]:
    opened: dict[str, Any] = _opened(saved, labels, "")
    place = labels.version(saved["counter"])
    return opened if place is None else {**opened, "version": _Open(place)}
