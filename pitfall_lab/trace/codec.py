"""Converts a trace to strict JSON (:func:`encode`) and back (:func:`decode`). Standard library only; pickle is not
used.

Encoding leaves out fields with their default value. Decoding checks every type and raises :class:`TraceError` for
anything unknown, with a message of one sentence: a trace file may come from anywhere.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

from pitfall_lab.trace.effect_values import mistake
from pitfall_lab.trace.model import SCHEMA, By, Effect, Event

MAX_BYTES = 256 * 1024 * 1024
_BY: dict[By, str] = {"observed": "o", "modelled": "m", "agreed": "a"}
_BY_BACK: dict[str, By] = {short: long for long, short in _BY.items()}


class Log(Protocol):
    """What the codec reads of a :class:`~pitfall_lab.trace.Trace` besides its fields."""

    @property
    def schema(self) -> int:
        """The schema number."""

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in order."""


Read = TypeVar("Read", bound=Log)


class TraceError(ValueError):
    """The text is not a trace that this version can read. The message is one sentence for users."""


def encode(trace: Log) -> str:
    """Return ``trace`` as JSON. ValueError is raised when a value in it is a float that is NaN or infinite."""
    whole = {"schema": trace.schema, **_record(trace)}
    return json.dumps(whole, default=_record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(text: str, kind: type[Read]) -> Read:
    """Return the trace in ``text``; ``kind`` is :class:`~pitfall_lab.trace.Trace`.

    Raises:
        TraceError: the text has more than ``MAX_BYTES`` characters, is not complete JSON, has a newer schema number
            (or none), or is not a trace: a field of the wrong type, unknown or missing, an event whose ``step`` is not
            its index, an effect that writes what a state does not have.
    """
    if len(text) > MAX_BYTES:
        raise TraceError(f"This trace is larger than {MAX_BYTES // 2**20} MiB and was not opened.")
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise TraceError("This is not a trace: the file is not complete JSON.") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), int) or isinstance(raw.get("schema"), bool):
        raise TraceError("This is not a trace: it has no schema number.")
    if raw["schema"] > SCHEMA:
        raise TraceError(
            f"This trace has schema {raw['schema']}; this version of pitfall_lab reads up to "
            f"{SCHEMA}. Please update it."
        )
    trace: Read = _reader(kind)(raw, "trace")
    for number, event in enumerate(trace.events):
        if event.step != number:
            raise TraceError(f"This is not a trace: event {number} has the step number {event.step}.")
    if wrong := mistake(trace.events):
        raise TraceError(f"This is not a trace: {wrong}.")
    return trace


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _record(value: Any) -> Any:
    """A part of the trace in the form that JSON writes: a dictionary of the fields without their default
    values; an effect is a list.
    """
    if type(value) is Effect:
        return [value.path, value.value, _BY[value.by]]
    fields = ((name, default, getattr(value, name)) for name, default in _fields(value.__class__))
    return {name: item for name, default, item in fields if default is dataclasses.MISSING or item != default}


@cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(cls))


Reader = Callable[[Any, str], Any]
"""Converts the JSON value at a path to a value of the trace, or raises TraceError."""


@cache
def _reader(kind: Any) -> Reader:
    """A function that reads values of this type; created once per type, because a trace has thousands of values."""
    if kind is Any:
        return _anything
    if kind is Effect:
        return _effect
    if dataclasses.is_dataclass(kind):
        return _records(typing.cast("type", kind))
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is tuple:
        return _tuples(arguments)
    if origin in (typing.Union, types.UnionType):
        read = _reader(next(option for option in arguments if option is not type(None)))
        return (lambda raw, where: None if raw is None else read(raw, where)) if type(None) in arguments else read
    if origin is typing.Literal:
        return _words(frozenset(arguments))
    return _values(kind)


def _anything(raw: Any, _: str) -> Any:
    return raw


def _values(kind: type) -> Reader:
    def read(raw: Any, where: str) -> Any:
        if isinstance(raw, kind) and not (kind is int and isinstance(raw, bool)):
            return raw
        raise TraceError(f"This is not a trace: {where} should be {getattr(kind, '__name__', kind)}.")

    return read


def _words(known: frozenset[str]) -> Reader:
    def read(raw: Any, where: str) -> Any:
        if isinstance(raw, str) and raw in known:
            return raw
        raise TraceError(f"This is not a trace: {where} is not one of the known words.")

    return read


def _tuples(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds if kind is not Ellipsis]
    endless, (first, *_) = kinds[-1] is Ellipsis, readers

    def read(raw: Any, where: str) -> Any:
        if not isinstance(raw, list):
            raise TraceError(f"This is not a trace: {where} should be a list.")
        if endless:
            return tuple([first(item, where) for item in raw])
        if len(raw) != len(readers):
            raise TraceError(f"This is not a trace: {where} should have {len(readers)} items.")
        return tuple([each(item, where) for each, item in zip(readers, raw, strict=True)])

    return read


def _records(cls: type) -> Reader:
    hints = typing.get_type_hints(cls)
    fields: dict[str, tuple[Reader, str]] = {}
    needed = [
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]

    def read(raw: Any, where: str) -> Any:
        if not isinstance(raw, dict):
            raise TraceError(f"This is not a trace: {where} should be an object.")
        if not fields:  # now, and not before: a type may hold itself; at once, as another thread may read a trace too
            fields.update(
                {f.name: (_reader(hints[f.name]), f"{cls.__name__}.{f.name}") for f in dataclasses.fields(cls)}
            )
        if not fields.keys() >= raw.keys():
            raise TraceError(f"This is not a trace: {where} has an unknown field.")
        for name in needed:
            if name not in raw:
                raise TraceError(f"This is not a trace: {where} lacks {name!r}.")
        given = {}
        for name, item in raw.items():
            each, place = fields[name]
            given[name] = each(item, place)
        return cls(**given)

    return read


def _effect(raw: Any, where: str) -> Effect:
    if not isinstance(raw, list):
        return typing.cast("Effect", _records(Effect)(raw, where))
    if len(raw) != 3 or not isinstance(raw[0], str) or not isinstance(raw[2], str) or raw[2] not in _BY_BACK:
        raise TraceError(f"This is not a trace: {where} has a damaged effect.")
    return Effect(raw[0], raw[1], _BY_BACK[raw[2]])
