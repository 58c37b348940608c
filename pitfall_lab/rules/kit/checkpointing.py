"""Gradient checkpointing in a trace: calls of the forward pass that run a second time inside a backward."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.training import cells
from pitfall_lab.rules.kit.wording import differ, flat
from pitfall_lab.trace import Event, Span

MOST_RUNS = 64  # runs of one call in a loop, any of which may be the one repeated
Key = tuple[str, Span | None, tuple[str, ...]]


def checkpoints(story: Story) -> list[ast.Call]:
    """Return the calls in the program's source whose function has the name ``checkpoint`` or ``checkpoint_sequential``,
    whatever precedes the dot.
    """
    return [
        node
        for node in story.program.nodes
        if isinstance(node, ast.Call) and called(node) in ("checkpoint", "checkpoint_sequential")
    ]


def is_recomputed(story: Story, step: int, backward: int) -> bool:
    """Whether the call at the step ``step`` was run again inside the backward at the step ``backward``: the same
    operation on the same line, in the same functions.

    Always True if the source at the call's span is a call of ``checkpoint`` itself, as for
    ``checkpoint(nn.Sequential(…), x)``. False if there is no event at ``step``.
    """
    first = story.event(step)
    if first is None:
        return False
    return story.program.at(first.span) in checkpoints(story) or any(
        _key(event) == _key(first) for event in _inside(story, backward)
    )


def differences(story: Story, backward: Event) -> Iterator[tuple[Event, Event]]:
    """Yield the calls that ``backward`` ran again (recomputed) and whose first result differs from that of every
    earlier run, each paired with its last earlier run, in order.

    At most the last ``MOST_RUNS`` earlier runs are compared. A call is left out if it has no earlier run, or if a
    result has no known values or does not require grad.
    """
    for event in _inside(story, backward.step):
        earlier = _before(_runs(story)[_key(event)], backward.step)
        now = numbers_of(story, event) if earlier else {}
        if now and all((then := numbers_of(story, each)) and differ(now, then) for each in reversed(earlier)):
            yield event, earlier[-1]


def first_runs(story: Story, backward: int, after: int) -> list[Event]:
    """Return the earlier runs, after the step ``after``, of the calls that the backward at the step ``backward`` ran
    again, in order of their steps; empty if there are none.

    Of each call, at most the last ``MOST_RUNS`` runs before the backward.
    """
    found = [
        event
        for key in {_key(again) for again in _inside(story, backward)}
        for event in _before(_runs(story)[key], backward)
    ]
    return sorted((event for event in found if event.step > after), key=lambda event: event.step)


def _before(runs: list[Event], step: int) -> list[Event]:
    end = bisect_left(runs, step, key=lambda event: event.step)
    return runs[max(0, end - MOST_RUNS) : end]


@lru_cache(maxsize=1)
def _runs(story: Story) -> dict[Key, list[Event]]:
    """Return the calls that the program made while no backward was running, grouped by operation, span and function."""
    found = defaultdict[Key, list[Event]](list)
    for event in story.calls():
        if event.parent is None:
            found[_key(event)].append(event)
    return found


def numbers_of(story: Story, event: Event) -> dict[int, Any]:
    """Return the known values in the storage of a call's first result, right after the call, by their index in the
    storage.

    Empty if the call has no result, if the result does not require grad (a counter, a mask), or if no value is known.
    """
    tensor = (story.tensor(event.results[0], event.step) or {}) if event.results else {}
    return dict(flat(cells(story, tensor.get("storage"), event.step))) if tensor.get("requires_grad") else {}


def _inside(story: Story, backward: int) -> Iterator[Event]:
    """Yield the calls made directly by the backward at the step ``backward``: by a recomputed forward pass, a hook or a
    custom backward.
    """
    for event in story.events[backward + 1 :]:
        if event.parent is None:
            return
        if event.kind == "call" and event.parent == backward:
            yield event


def _key(event: Event) -> Key:
    return event.op, event.span, event.scope
