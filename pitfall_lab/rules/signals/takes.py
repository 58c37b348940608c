"""Entries that a program selects from a tensor along one axis, by a vector of indices or by a mask."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import flat
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, argument, whole
from pitfall_lab.trace import Event

TAKES = ("__getitem__", "index_select")
UPWARD = 10
BOTH = 2


@dataclass(frozen=True, slots=True)
class Take:
    """A selection along one axis: ``event`` is the call (``Event``) that selected entries of the tensor ``source``
    along its axis ``axis`` (from 0) by the tensor ``index``, a vector of integers or bools; both are labels.
    """

    event: Event
    source: str
    index: str
    axis: int

    @property
    def result(self) -> str:
        """The label of the tensor with the selected entries."""
        return self.event.results[0]


def take(story: Story, event: Event) -> Take | None:
    """Return the selection along one axis that the call ``event`` made: ``x[index]`` or ``index_select``.

    None for another call, for an index that is no vector of integers or bools, for a result with another number of axes
    than the source, and if the axis is unknown.
    """
    given = [o.label for o in event.operands if o.label is not None]
    if event.name not in TAKES or event.error is not None or len(given) != BOTH or not event.results:
        return None
    source, index = given
    before, entries, after = (story.shape(label, event.step) for label in (source, index, event.results[0]))
    kind = str((story.tensor(index, event.step) or {}).get("dtype"))
    if (
        before is None
        or entries is None
        or after is None
        or len(entries) != 1
        or len(after) != len(before)
        or not before
    ):
        return None
    if event.name == "index_select":
        axis = whole(argument(event, "dim", 1))
        return Take(event, source, index, axis % len(before)) if axis is not None else None
    if not kind.startswith(("int", "bool")):
        return None
    count = entries[0] if kind != "bool" else None
    axes = [
        axis for axis in range(len(before))
        if before[:axis] + before[axis + 1 :] == after[:axis] + after[axis + 1 :]
        and (after[axis] == count if count is not None else before[axis] == entries[0])
    ]  # fmt: skip
    if len(axes) > 1:
        node = story.program.at(event.span)
        places = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
        written = next((place for place, each in enumerate(places) if not isinstance(each, ast.Slice)), 0)
        axes = [written] if written in axes else []
    return Take(event, source, index, axes[0]) if len(axes) == 1 else None


def maker(story: Story, index: str | None, step: int) -> Event | None:
    """Return the call that computed the vector of indices ``index``, looking back through fewer than ``UPWARD`` views
    and conversions of it; None if there is none.
    """
    for _ in range(UPWARD):
        made = story.event((story.tensor(index, step) or {}).get("born"))
        if made is None or index not in made.results:
            return None
        if (
            made.name not in SAME_NUMBERS | {"long", "int"}
            or not made.operands
            or made.operands[0].label in (None, index)
        ):
            return made
        index, step = made.operands[0].label, made.step
    return None


def positions(story: Story, index: str | None, step: int) -> list[int] | None:
    """Return all entries of the integer vector ``index`` (a label) at ``step``; None if the trace does not have all of
    them.
    """
    record = story.tensor(index, step) or {}
    held = (story.record("storages", record.get("storage"), step) or {}).get("cells")
    count, start = (record.get("shape") or [0])[0], record.get("offset") or 0
    stride = (record.get("stride") or [1])[0]
    cells = dict(flat(held))
    found = [cells.get(start + place * stride) for place in range(count)] if count <= len(cells) else [None]
    return [int(value) for value in found if value is not None] if None not in found else None
