"""A trace as strict JSON, and back. Standard library only; no pickle anywhere.

Encoding leaves out fields that have their default value. Decoding checks every type and refuses what it does not
know, with one sentence: a trace file may come from anywhere.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any

from pitfall_lab.trace.model import SCHEMA, By, Effect, Trace

MAX_BYTES = 256 * 1024 * 1024
_BY: dict[By, str] = {"observed": "o", "modelled": "m", "agreed": "a"}
_BY_BACK: dict[str, By] = {short: long for long, short in _BY.items()}


class TraceError(ValueError):
    """The text is not a trace that this version can read. The message is one sentence for a person."""


def encode(trace: Trace) -> str:
    """Return ``trace`` as JSON."""
    whole = {"schema": trace.schema, **_record(trace)}
    return json.dumps(whole, default=_record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(text: str) -> Trace:
    """Return the trace in ``text``.

    Raises:
        TraceError: the text is not JSON, not a trace, or from a newer schema.
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
        raise TraceError(f"This trace has schema {raw['schema']}; this version of pitfall_lab reads up to {SCHEMA}. Please update it.")
    trace: Trace = _build(Trace, raw, "trace")
    for number, event in enumerate(trace.events):
        if event.step != number:
            raise TraceError(f"This is not a trace: event {number} says it is step {event.step}.")
    return trace


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _record(value: Any) -> Any:
    """What JSON writes of a part of the trace: an object of the fields that are not what they are by default; an effect is a list."""
    if type(value) is Effect:
        return [value.path, value.value, _BY[value.by]]
    fields = ((name, default, getattr(value, name)) for name, default in _fields(value.__class__))
    return {name: item for name, default, item in fields if default is dataclasses.MISSING or item != default}


@cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(cls))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(kind: Any, raw: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return raw
    if dataclasses.is_dataclass(kind):
        return _build_record(typing.cast("type", kind), raw, where)
    if origin is tuple:
        return _build_tuple(typing.get_args(kind), raw, where)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if raw is None and type(None) in options:
            return None
        return _build(next(option for option in options if option is not type(None)), raw, where)
    if origin is typing.Literal:
        if raw in typing.get_args(kind) and isinstance(raw, str):
            return raw
        raise TraceError(f"This is not a trace: {where} is not one of the known words.")
    if isinstance(kind, type) and isinstance(raw, kind) and not (kind is int and isinstance(raw, bool)):
        return raw
    raise TraceError(f"This is not a trace: {where} should be {getattr(kind, '__name__', kind)}.")


def _build_tuple(kinds: tuple[Any, ...], raw: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise TraceError(f"This is not a trace: {where} should be a list.")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_build(kinds[0], item, where) for item in raw)
    if len(raw) != len(kinds):
        raise TraceError(f"This is not a trace: {where} should have {len(kinds)} items.")
    return tuple(_build(kind, item, where) for kind, item in zip(kinds, raw, strict=True))


def _build_record(cls: type, raw: Any, where: str) -> Any:
    if cls is Effect and isinstance(raw, list):
        if len(raw) != 3 or not isinstance(raw[0], str) or not isinstance(raw[2], str) or raw[2] not in _BY_BACK:
            raise TraceError(f"This is not a trace: {where} has a damaged effect.")
        return cls(raw[0], raw[1], _BY_BACK[raw[2]])
    if not isinstance(raw, dict):
        raise TraceError(f"This is not a trace: {where} should be an object.")
    hints = _hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    for name in raw:
        if name not in known:
            raise TraceError(f"This is not a trace: {where} has an unknown field.")
    for name, f in known.items():
        if name not in raw and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise TraceError(f"This is not a trace: {where} lacks {name!r}.")
    return cls(**{name: _build(hints[name], item, f"{cls.__name__}.{name}") for name, item in raw.items()})
