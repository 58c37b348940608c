"""Where two sizes that should be equal began to differ: a pooling layer makes 4 of 9, and the layer that should undo it
makes 8 of 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

RESIZING = re.compile(r"pool|conv|upsample|interpolate|^pad$|_pad_")
"""Operations whose result has the dimensions of their first tensor, in the same order, with other sizes."""
REORDERING = spellings("matmul", "mm", "transpose") | {"bmm", "einsum", "linear", "movedim", "permute", "t"}
"""Calls after which a size is on another axis, or no longer present."""
FURTHEST = 400
"""How many calls are followed back at most."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """``event`` is a call (``Event``) that changed the size of a tensor along one dimension from ``before`` to
    ``after`` elements.
    """

    event: Event
    before: int
    after: int


def origin(refused: Refused) -> T | None:
    """Return a sentence that names the poolings, convolutions, interpolations and paddings that changed a size of one
    argument of the refused call, which had been equal to that of another argument; None if there are none.

    Only arguments with the same number of dimensions are compared, without the dimension ``dim`` of a join, and without
    sizes of 1.
    """
    story = refused.story
    joined = {int(g.value) for g in refused.given if g.name == "dim" and re.fullmatch(r"-?\d+", g.value)}
    for one in refused.tensors:
        for other in refused.tensors:
            if (
                one is other
                or one.label is None
                or one.shape is None
                or other.shape is None
                or len(one.shape) != len(other.shape)
            ):
                continue
            for at in range(len(one.shape)):
                if (
                    {at, at - len(one.shape)} & joined
                    or one.shape[at] == other.shape[at]
                    or 1 in (one.shape[at], other.shape[at])
                ):
                    continue
                changes = _changes(story, one.label, at, refused.step)
                first = next((i for i, change in enumerate(changes) if change.before == other.shape[at]), None)
                if first is not None:
                    return _said(story, changes[first:], other.shape[at])
    return None


def _changes(story: Story, label: str, at: int, step: int) -> list[SizeChange]:
    """The calls that resized a tensor along a dimension (pooling, convolution, interpolation, padding), oldest first.

    The tensor is followed back through calls that keep the number and the order of dimensions, until a call changes the
    size in another way.
    """
    found: list[SizeChange] = []
    record = story.tensor(label, step) or {}
    for _ in range(FURTHEST):
        born, shape = record.get("born"), record.get("shape")
        event = story.events[born] if isinstance(born, int) and 0 <= born < len(story.events) else None
        given = (
            next((operand.label for operand in event.operands if operand.label), None) if event is not None else None
        )
        before = story.tensor(given, event.step) or {} if event is not None and given is not None else {}
        if event is None or shape is None or len(before.get("shape") or ()) != len(shape) or event.name in REORDERING:
            break
        was, now = before["shape"][at], shape[at]
        if was != now and not RESIZING.search(event.name):
            break
        if was != now:
            found.append(SizeChange(event, was, now))
        record = before
    return found[::-1]


def _said(story: Story, changes: list[SizeChange], meant: int) -> T:
    last = changes[-1]
    places = [at_line(story, story.span(change.event.step)) for change in changes]
    en = [
        f"`{c.event.name}` on {place.en} makes {c.after} of {c.before}"
        for c, place in zip(changes, places, strict=True)
    ]
    zh = [
        f"{place.zh}的 `{c.event.name}` 把 {c.before} 变成 {c.after}" for c, place in zip(changes, places, strict=True)
    ]
    return T(
        en=f"The sizes come apart where {', and '.join(en)}, not {meant} again."
        if last.after != meant and len(changes) > 1
        else f"The sizes come apart where {en[0]}.",
        zh=f"两者的大小从这里开始不同：{'，'.join(zh)}，不再是 {meant}。"
        if last.after != meant and len(changes) > 1
        else f"两者的大小从这里开始不同：{zh[0]}。",
    )
