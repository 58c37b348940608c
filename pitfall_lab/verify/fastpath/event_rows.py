"""Rows: events of calls that were done before, in a few numbers, written out when somebody reads them.

The first call of its kind writes a whole event. What the trace says of it, it will say of the next one as well, with other labels:
a :class:`Saying` is the event with its labels left open. A row fills them in.
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
"""The marks of the tensors and of the storages that have gone; as a rule one of each, told by the step of the row of their birth."""


class Births(NamedTuple):
    """How many tensors, storages, counters and nodes had been labelled before a call."""

    t: int
    S: int
    C: int
    n: int


Row = Sequence[Any]
"""One call that was done by a recipe: numbers and texts (as a rule).

The place of its saying, of its span and of its scope among the :class:`Rows`; how many tensors, storages, counters and nodes had been
labelled before; None, or the names that the result has now and the mark of the tensor that lost its name with those it keeps; None, or
the tensors and storages that have gone since (:data:`Deaths`); None, or the effects that tell of operands which
were met for the first time; None, or the numbers of each storage that the saying leaves open (of one that was written, those from before
stand first); None, or the plain numbers among the arguments, or the index of a window and where it begins; and at the end the numbers of
its operands, one for each of the saying's roles.
"""
BIRTHS, NAMES, DEATHS, MET, NUMBERS, PLAIN, MARKS = 3, 7, 8, 9, 10, 11, 12
"""Where they are in a row."""


class Ran(NamedTuple):
    """The nodes that a backward ran, in the place of the row of each: there may be as many of them as there were calls.

    The step of the backward, the place of its span, and the step of the first node. Then, node by node, its mark and its name, the shape of
    the gradient that it received, the numbers of that (an empty list, where no numbers are followed), and whether it has been freed.
    """

    parent: int
    place: int
    first: int
    marks: list[int]
    names: list[str]
    shapes: list[tuple[int, ...]]
    gradients: list[json_values.Look | None]
    freed: list[bool]


class Rows:
    """The rows of a trace, and what they have in common. ``among`` the events, the number where a row begins stands for it."""

    def __init__(self, among: list[Any]) -> None:
        self._events = among
        self.cells: list[Any] = []
        """All rows, one behind the other. Python's cyclic collector looks at every new container, and a row of its own would be one for
        each call."""
        self.sayings: list[Saying] = []
        self.spans: list[Span | None] = []
        self.scopes: list[tuple[str, ...]] = []

    def place(self, span: Span | None) -> int:
        """The place of a span; each call makes a new one."""
        self.spans.append(span)
        return len(self.spans) - 1

    def cell(self, step: int, which: int) -> Any:
        """One cell of the row in the place of an event."""
        return self.cells[self._events[step] + which]

    def row(self, step: int) -> Row:
        """The row in the place of an event."""
        start: int = self._events[step]
        return self.cells[start : start + MARKS + len(self.sayings[self.cells[start]].roles)]

    def event(self, step: int) -> Event:
        """The event of a row, written out."""
        ran = self._events[step]
        if type(ran) is Ran:
            return self._node_event(ran, step)
        row = self.row(step)
        saying, names, deaths = self.sayings[row[0]], row[NAMES], row[DEATHS]
        effects, results, operands, writes = saying.told(row, step)
        if row[MET] is not None:
            effects = [*row[MET], *effects]
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
        if row[PLAIN]:
            operands = _with_numbers(operands, saying.plain, row[PLAIN])
        span, scope = self.spans[row[1]], self.scopes[row[2]]
        by: By = "observed" if saying.reason else "agreed"
        return Event(step, "call", saying.op, span, scope, None, operands, results, writes, tuple(effects), by, saying.reason)

    def births(self, step: int) -> Births:
        """What had been labelled before the call whose row this is."""
        return Births(*self.row(step)[BIRTHS:NAMES])

    def dead(self, deaths: Deaths) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The marks of the tensors and of the storages that have gone."""
        if isinstance(deaths, int):
            tensor, storage, *_ = self.births(deaths)
            return (tensor + 1,), (storage + 1,)
        return deaths

    def _node_event(self, ran: Ran, step: int) -> Event:
        k = step - ran.first
        path = f"nodes.n{ran.marks[k]}"
        received = json_values.told(ran.gradients[k] if ran.gradients else None)
        effects = [Effect(f"{path}.ran", step, "modelled"), Effect(f"{path}.gradient", received, "modelled")]
        effects.append(Effect(f"{path}.gradient_shape", list(ran.shapes[k]), "modelled"))
        if ran.freed[k]:
            effects.append(Effect(f"{path}.freed", True, "modelled"))
        return Event(step, "node", ran.names[k], self.spans[ran.place], parent=ran.parent, effects=tuple(effects), by="modelled")


def _places_of(numbers: Sequence[Any], operands: tuple[Operand, ...]) -> tuple[int, ...]:
    """Where among the operands the plain numbers stand, in their order."""
    texts = [None if operand.label else operand.text for operand in operands]
    places: list[int] = []
    for number in numbers:
        following = [place for place, said in enumerate(texts) if said == text(number) and place not in places]
        if not following:
            raise Unsayable(text(number))
        places.append(following[0])
    return tuple(places)


def _with_numbers(operands: tuple[Operand, ...], places: tuple[int, ...], numbers: tuple[Any, ...]) -> tuple[Operand, ...]:
    given = list(operands)
    for place, number in zip(places, numbers, strict=False):  # behind an index stands where its window begins
        given[place] = Operand(None, text(number), given[place].name)
    return tuple(given)


def _named(label: str, names: tuple[str, ...]) -> list[Effect]:
    return [Effect(f"tensors.{label}.name", names[-1] if names else None), Effect(f"tensors.{label}.names", list(names))]


class Unsayable(Exception):
    """An event that says something about more than the call's operands and results."""


Slot = tuple[str, int, bool]
"""A label left open: its letter, a number, and whether that counts what the call made (or is the place of a role)."""


class Saying:
    """An event with its labels left open."""

    __slots__ = ("_count", "_told", "effects", "looks", "made", "op", "operands", "plain", "reason", "results", "roles", "writes")

    def __init__(  # noqa: PLR0917 - an event's parts
        self, op: str, effects: list[Effect], operands: tuple[Operand, ...], results: list[str], labels: Labels,
        written: tuple[str, str] | None = None, uncounted: Sequence[str] = (), numbers: Sequence[Any] = (), reason: str = "",
    ) -> None:  # fmt: skip
        """Leave the labels of an event open, and its numbers.

        ``written`` are the labels of the storage that the call writes and of the counter that counts it; ``uncounted`` those of the
        storages that it writes without being counted; ``numbers`` the plain numbers among the operands that another call of the kind may
        have others of, or an index; ``reason`` says why the call was only observed.

        Raises:
            Unsayable: it speaks of others.
        """
        self.op, self.reason = op, reason
        self._count = 0
        self._told: Callable[[Row, int], Told] | None = None
        self.writes: list[Slot] = []
        if written is not None:
            effects = [effect for effect in effects if effect.path not in (f"storages.{written[0]}.cells", f"counters.{written[1]}")]
        self.effects = [self._template(effect, labels) for effect in effects]
        if written is not None:
            self._tell_of_write(*written, labels)
        self.writes += [labels.slot(label) for label in uncounted]
        self.results = [labels.slot(label) for label in results]
        self.operands = [(None if o.label is None else labels.slot(o.label), o) for o in operands]
        self.plain = _places_of(numbers, operands)
        whole = [(slot, value) for table, slot, _, value in self.effects if table == "storages" and type(value) is dict]
        self.looks = tuple(slot[1] for slot, value in whole if type(value["cells"]) is _Look)
        self.roles = tuple(labels.roles)
        self.made = labels.made

    @classmethod
    def clearing(cls, op: str, field: str) -> Saying:
        """The event of an assignment of None to the ``field`` of the one operand; without a field it changes nothing that is known."""
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

    def _look(self) -> _Look:
        self._count += 1
        return _Look(self._count - 1)

    def _tell_of_write(self, storage: str, counter: str, labels: Labels) -> None:
        place, counts = labels.slot(storage), labels.slot(counter)
        self.writes.append(place)
        before, after = self._look(), self._look()
        self.effects.append(("storages", place, ".cells", _Changed(before.place, after.place)))
        self.effects.append(("counters", counts, "", _Open(labels.version(counter))))

    def told(self, row: Row, step: int) -> Told:
        """The event's effects, results, operands and writes with labels and numbers filled in.

        A trace has many events of a kind: the first one that is read turns the saying into a function.
        """
        if self._told is None:
            self._told = self._function()
        return self._told(row, step)

    def _function(self) -> Callable[[Row, int], Told]:
        others: list[Any] = []
        effects = []
        for table, slot, rest, value in self.effects:
            path = f'f"{table}.{_label(slot)}{rest}"'
            if type(value) is _Changed:
                effects.append(f"*changed({path}, row[{NUMBERS}][{value.before}], row[{NUMBERS}][{value.after}])")
            else:
                effects.append(f'Effect({path}, {_text(value, others)}, "agreed")')
        results, writes = ("".join(f'f"{_label(slot)}", ' for slot in slots) for slots in (self.results, self.writes))
        operands = "".join(
            f"{_text(o, others)}, " if slot is None else f'Operand(f"{_label(slot)}", {o.text!r}, {o.name!r}), '
            for slot, o in self.operands
        )
        source = f"lambda row, step: ([{', '.join(effects)}], ({results}), ({operands}), ({writes}))"
        names = {"Effect": Effect, "Operand": Operand, "told": json_values.told, "changed": _changed, "others": others}
        function: Callable[[Row, int], Told] = eval(source, names)  # noqa: S307 - our own text
        return function


Told = tuple[list[Effect], tuple[str, ...], tuple[Operand, ...], tuple[str, ...]]


def _label(slot: Slot) -> str:
    """The label that belongs at an open place, as a part of an f-string over the ``row``."""
    letter, number, is_new = slot
    return f"{letter}{{row[{BIRTHS + 'tSCn'.index(letter)}] + {number}}}" if is_new else f"{letter}{{row[{MARKS + number}]}}"


def _text(value: Any, others: list[Any]) -> str:
    """The expression that fills in a value; what is always the same and not written in a word goes to ``others``."""
    if type(value) is _Look:
        return f"told(row[{NUMBERS}][{value.place}])"
    if type(value) is _Open:
        return "step" if value.what is None else f"row[{MARKS + value.what}]" if type(value.what) is int else f'f"{_label(value.what)}"'
    if type(value) is _Beginning:
        return f"row[{PLAIN}][1]" if value.role is None else f"row[{MARKS + value.role}] + {value.further}"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_text(item, others)}' for key, item in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(_text(item, others) for item in value)}]"
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    others.append(value)
    return f"others[{len(others) - 1}]"


def _changed(path: str, before: json_values.Look | None, after: json_values.Look | None) -> tuple[Effect, ...]:
    """The effect that tells the numbers of a storage that was written; none where they are as they were."""
    return () if json_values.alike(before, after) else (Effect(path, json_values.told(after), "agreed"),)


class _Open:
    """A place in a value: ``what`` is a slot, the number of a role (a version), or None for the step."""

    __slots__ = ("what",)

    def __init__(self, what: Slot | int | None) -> None:
        self.what = what


class _Beginning(NamedTuple):
    """Where a window begins: so many elements ``further`` than the operand in this role; None where only the row knows."""

    role: int | None
    further: int


class _Look(NamedTuple):
    """A place in a value for the numbers of a storage: which of the row's."""

    place: int


class _Changed(NamedTuple):
    """The same for the numbers of a storage that was written: those from before, and those from after."""

    before: int
    after: int


class Labels:
    """Which label of a first call is what: the k-th new thing of its letter, or something of an operand's.

    ``roles`` collects what of which operand is spoken of: ``(operand, letter)``, with ``"v"`` for the version of its counter.
    """

    def __init__(
        self, births: Births, after: Births, olds: dict[str, tuple[int, str]], offsets: Sequence[int] = (), *, is_open: bool = False
    ) -> None:
        """``offsets`` say where the operands begin in their memory; ``is_open``: a window of another call may begin anywhere."""
        self._births, self._after, self._olds, self._offsets, self._is_open = births, after, olds, offsets, is_open
        self.made = tuple(b - a for a, b in zip(births, after, strict=True))
        self.roles: list[tuple[int, str]] = []

    def slot(self, label: str) -> Slot:
        """The open place for a label."""
        letter, number = label[0], int(label[1:])
        before = getattr(self._births, letter)
        if number > before:
            if number > getattr(self._after, letter):
                raise Unsayable(label)
            return letter, number - before, True
        return letter, self.role(self._old(label)), False

    def role(self, role: tuple[int, str]) -> int:
        """The place of a role among the marks of a row."""
        if role not in self.roles:
            self.roles.append(role)
        return self.roles.index(role)

    def version(self, counter: str | None) -> int | None:
        """The place of the version of an operand's counter; None for a counter that the call made."""
        if counter is None or self.slot(counter)[2]:
            return None
        operand, _ = self._old(counter)
        return self.role((operand, "v"))

    def beginning(self, storage: str, offset: int) -> _Beginning | int:
        """Where a tensor begins in its memory."""
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
