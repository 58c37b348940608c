"""Calls that clip gradients, and whether their limit had an effect."""

from __future__ import annotations

import math

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, cells
from pitfall_lab.rules.kit.wording import flat

CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_", "clamp_", "clip_"}
CLIPPING = 40
"""How many events are searched at most between computing the factor from the limit and scaling."""


def is_clip(story: Story, clip: Moment) -> bool:
    """Whether ``clip`` (a :class:`Moment`), a change of a gradient, is a clipping: a call of ``CLIPS``."""
    return story.said(clip.step) in CLIPS or clip.event.name in CLIPS


def is_effective(story: Story, clip: Moment) -> bool:
    """Whether the limit of the clipping ``clip`` is finite: with an infinite one ``clip_grad_norm_`` only measures.

    If the trace does not show the limit: whether the clipping wrote known values, or multiplied by a factor below 1.
    """
    if (limit := _limit(story, clip)) is not None:
        return math.isfinite(limit)
    before = cells(story, clip.storage, clip.step - 1)
    if any(e.path == f"storages.{clip.storage}.cells" and e.value is not None for e in clip.event.effects):
        return before is not None
    factors = [
        c
        for o in clip.event.operands[-1:]
        if (c := cells(story, (story.tensor(o.label) or {}).get("storage"), clip.step)) is not None
    ]
    values = [value for factor in factors for _, value in flat(factor)]
    return len(values) == 1 and isinstance(values[0], float) and values[0] < 1


def _limit(story: Story, clip: Moment) -> float | None:
    """The largest norm that a call of ``clip_grad_norm_`` allows, read from its division of the limit by the norm, just
    before it scales.

    None if the limit is a tensor, or if no such division by the same line is among the last ``CLIPPING`` events.
    """
    span = story.span(clip.step)
    for event in reversed(story.events[max(clip.step - CLIPPING, 0) : clip.step]):
        if event.span != span:
            break
        if event.name == "__rtruediv__" and len(event.operands) > 1:
            return float(event.operands[1].text) if event.operands[1].label is None else None
    return None


def has_shrunk(story: Story, clips: list[Moment]) -> bool:
    """Whether one of the clippings ``clips`` changed the gradient, as far as its values are known; if none are known,
    whether one of them is effective (:func:`is_effective`).
    """
    pairs = [(cells(story, clip.storage, clip.step - 1), cells(story, clip.storage, clip.step)) for clip in clips]
    known = [(before, after) for before, after in pairs if before is not None and after is not None]
    return (
        any(before != after for before, after in known) if known else any(is_effective(story, clip) for clip in clips)
    )
