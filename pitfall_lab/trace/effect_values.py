"""Checks what the effects of a decoded trace write: the types of :mod:`pitfall_lab.trace.state_types`, at places that a
state has (:func:`mistake` returns the first fault).

Only built-in types are compared, and values stay as they are: a drawing can rely on the types and need not look again.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from pitfall_lab.trace.model import Event
from pitfall_lab.trace.state_types import ModeState, NodeState, StorageState, TensorState

Test = Callable[[Any], bool]

_COLLECTIONS: dict[str, tuple[str, Any]] = {
    "tensors": ("t", TensorState),
    "storages": ("S", StorageState),
    "nodes": ("n", NodeState),
    "counters": ("C", int),
}
"""The collections of the state: with which letter their labels begin, and the type of what has a label."""
_UNKNOWN = frozenset({"stride", "offset", "is_leaf"})
"""Fields that are None where torch does not say: of a sparse tensor, of a view whose ``grad_fn`` is out of date."""
_NUMBER = re.compile(r"[a-zA-Z](0|[1-9][0-9]{0,17})")


def mistake(events: Iterable[Event]) -> str | None:
    """The first mistake in the effects of the events: part of a sentence that names the event, or None if there is
    none. A mistake is a path that a state does not have, or a value of the wrong type.

    A record may be written in part before it is described, or without that: what torch's own code made (the numbers of
    a parameter, a tensor that another process sent) is not always described whole.
    """
    for event in events:
        for effect in event.effects:
            test = _target(effect.path)
            if test is None:
                return f"event {event.step} writes to a place that a state does not have"
            if not test(effect.value):
                return f"event {event.step} writes a value of the wrong type"
    return None


@cache
def _of_field(record: Any, name: str) -> Test | None:
    """The test of one field of a record, None if it has no such field."""
    hints = typing.get_type_hints(record)
    return _test(hints[name] | None if name in _UNKNOWN else hints[name]) if name in hints else None


def _target(path: str) -> Test | None:
    """The test for what is written to a path; None if a state has no such place."""
    parts = path.split(".")
    if parts[0] == "mode" and len(parts) == 2:
        return _of_field(ModeState, parts[1])
    letter, kind = _COLLECTIONS.get(parts[0], ("", None))
    if kind is None or len(parts) not in (2, 3) or parts[1][:1] != letter or not _NUMBER.fullmatch(parts[1]):
        return None
    if len(parts) == 2:
        return _test(kind)
    return _of_field(kind, parts[2]) if typing.is_typeddict(kind) else None


@cache
def _test(kind: Any) -> Test:
    """A function that says whether a value has this type; created once per type."""
    if typing.is_typeddict(kind):
        return _record(kind)
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [_test(option) for option in arguments]
        return lambda value: any(each(value) for each in options)
    if origin is list:
        item = _test(arguments[0])
        return lambda value: type(value) is list and all(map(item, value))
    if origin is tuple:
        items = [_test(each) for each in arguments]
        return lambda value: (
            type(value) is list
            and len(value) == len(items)
            and all(test(each) for test, each in zip(items, value, strict=True))
        )
    if origin is typing.Literal:
        return lambda value: type(value) is str and value in arguments
    return lambda value: type(value) is kind


def _record(kind: Any) -> Test:
    hints = typing.get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    needed = hints.keys() - optional
    fields: dict[str, Test] = {}

    def holds(value: Any) -> bool:
        if type(value) is not dict or not needed <= value.keys() <= hints.keys():
            return False
        if not fields:
            fields.update((name, test) for name in hints if (test := _of_field(kind, name)) is not None)
        return all(fields[name](item) for name, item in value.items()) and (kind is not TensorState or _is_whole(value))

    return holds


def _is_whole(tensor: dict[str, Any]) -> bool:
    return tensor["stride"] is None or len(tensor["stride"]) == len(tensor["shape"])
