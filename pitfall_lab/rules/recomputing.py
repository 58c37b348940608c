"""Gradient checkpointing, as a trace shows it: calls of the forward pass that run a second time inside a backward."""

from __future__ import annotations

from pitfall_lab.rules.story import Story


def is_recomputed(story: Story, step: int, backward: int) -> bool:
    """Was the call at ``step`` run again inside the backward at ``backward``, from the same place of the program?"""
    first = story.event(step)
    if first is None or first.span is None:
        return False
    again = (event for event in story.events[backward + 1 :] if event.kind == "call" and event.parent == backward)
    return any((event.op, event.span) == (first.op, first.span) for event in again)
