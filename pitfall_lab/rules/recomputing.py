"""Gradient checkpointing, as a trace shows it: calls of the forward pass that run a second time inside a backward."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pitfall_lab.rules.story import Story
from pitfall_lab.rules.syntax import called
from pitfall_lab.rules.training import cells
from pitfall_lab.rules.wording import differ, flat
from pitfall_lab.trace import Event, Span

Key = tuple[str, Span | None, tuple[str, ...]]


def checkpoints(story: Story) -> list[ast.Call]:
    """The program's calls of ``checkpoint``."""
    return [node for node in story.program.nodes if isinstance(node, ast.Call) and called(node) in ("checkpoint", "checkpoint_sequential")]


def is_recomputed(story: Story, step: int, backward: int) -> bool:
    """Was the call at ``step`` run again inside the backward at ``backward``, from the same place of the program?"""
    first = story.event(step)
    return first is not None and any(_key(event) == _key(first) for event in _inside(story, backward))


def differences(story: Story, backward: Event) -> Iterator[tuple[Event, Event]]:
    """The calls that a backward ran again and that gave other numbers than they ever had before, with an earlier run, in order."""
    again = list(_inside(story, backward.step))
    wanted, before = set(map(_key, again)), defaultdict[Key, list[Event]](list)
    for event in story.events[: backward.step] if again else ():
        if event.kind == "call" and event.parent is None and _key(event) in wanted:
            before[_key(event)].append(event)
    for event in again:
        now, then = numbers_of(story, event), [numbers_of(story, each) for each in before[_key(event)]]
        if now and then and all(then) and all(differ(now, each) for each in then):
            yield event, before[_key(event)][-1]


def numbers_of(story: Story, event: Event) -> dict[int, Any]:
    """The numbers of a call's first result, as far as the trace shows them; none where no gradient goes through it (a counter, a mask)."""
    tensor = (story.tensor(event.results[0], event.step) or {}) if event.results else {}
    return dict(flat(cells(story, tensor.get("storage"), event.step))) if tensor.get("requires_grad") else {}


def _inside(story: Story, backward: int) -> Iterator[Event]:
    """The calls of the program's own functions that a backward ran."""
    for event in story.events[backward + 1 :]:
        if event.parent is None:
            return
        if event.kind == "call" and event.parent == backward:
            yield event


def _key(event: Event) -> Key:
    return event.op, event.span, event.scope
