"""Replays a trace: applies the effects of its events to one nested dictionary, the state, which :func:`replay` and
:func:`states` return.

The front end implements the same few lines in TypeScript, so that a trace has the same meaning there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pitfall_lab.trace.event_log import Trace
from pitfall_lab.trace.model import Effect, Event

State = dict[str, Any]


def empty_state() -> State:
    """Return the state before the first event."""
    return {"tensors": {}, "storages": {}, "counters": {}, "nodes": {}, "mode": {"grad": True, "inference": False}}


def apply(state: State, effect: Effect) -> None:
    """Write one effect into ``state``, in place.

    >>> state = empty_state(); apply(state, Effect("counters.C1", 2)); state["counters"]
    {'C1': 2}
    """
    *parents, last = effect.path.split(".")
    place = state
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = copy.deepcopy(effect.value)


def advance(state: State, effect: Effect) -> None:
    """Like :func:`apply`, but faster: values are shared with the trace, and a record that
    changes is replaced by a new one.

    A record that was read from ``state`` before therefore keeps its content; it must not be changed.
    """
    *parents, last = effect.path.split(".")
    place = state
    for depth, key in enumerate(parents):
        inner = place.get(key)
        if depth or not isinstance(inner, dict):
            inner = dict(inner) if isinstance(inner, dict) else {}
        place[key] = inner
        place = inner
    place[last] = effect.value


def states(trace: Trace) -> Iterator[tuple[Event, State]]:
    """Yield each event with the state *after* it.

    It is one dictionary, changed from event to event: copy what you keep.
    """
    state = empty_state()
    for event in trace.events:
        for effect in event.effects:
            apply(state, effect)
        yield event, state


def replay(trace: Trace, step: int | None = None) -> State:
    """Return the state after ``step`` (all events when ``None``; before the first event when negative)."""
    state = empty_state()
    for event in trace.events:
        if step is not None and event.step > step:
            break
        for effect in event.effects:
            apply(state, effect)
    return state
