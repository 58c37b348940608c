"""Coordinates: along which axis of a tensor the values of an ``arange`` or a ``linspace`` run."""

from __future__ import annotations

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

POINTWISE = (
    spellings("clamp", "floor_divide", "neg", "remainder") | spellings("add", "mul", in_place=True)
    | spellings("div", "sub", in_place=True, exchanged=True)
)  # fmt: skip
"""Element-wise operations, by their names without underscores."""
POINTWISE_NAMES = {form for name in POINTWISE for form in (name, f"{name}_", f"__{name}__")}
SAME_AXES = {
    "contiguous",
    "clone",
    "detach",
    "to",
    "float",
    "double",
    "half",
    "type",
    "type_as",
    "long",
    "int",
    "requires_grad_",
    "alias",
}
"""Calls that keep each axis in its position."""
STRETCHED = spellings("expand") | {"broadcast_tensors", "expand_as", "repeat", "tile"}
"""Calls that repeat elements along an axis."""
REGULAR = {"arange", "linspace"}
FURTHER = 40

Axes = frozenset[int]


def ramp(story: Story, label: str | None, step: int, depth: int = 0) -> Axes | None:
    """Return the axes, counted from the end, along which the values of the tensor ``label`` at ``step`` come from an
    ``arange`` or ``linspace``; empty if there is no such axis.

    None if it is unknown: the calls mix axes, a write other than an element-wise one followed, or more than ``FURTHER``
    calls would have to be followed back (``depth`` were followed already).
    """
    event = made_by(story, label, step)
    if event is None or label is None:
        return frozenset()
    axes = _born(story, label, event, depth) if depth < FURTHER else None
    is_kept = not axes or all(
        is_pointwise(story, at) for at in story.writes(_storage(story, label, step), event.step, step)
    )
    return axes if is_kept else None


def _born(story: Story, label: str, event: Event, depth: int) -> Axes | None:
    """The axes along which regular values ran when ``event`` had created the tensor."""
    record = story.tensor(label, event.step) or {}
    if event.name in REGULAR:
        return frozenset([-1])
    if event.name == "meshgrid":
        lengths = record.get("shape") or []
        return frozenset(
            axis - len(lengths) for axis, n in enumerate(record.get("stride") or ()) if n and lengths[axis] > 1
        )
    given = [o.label for o in event.operands if o.label is not None]
    if event.name == "broadcast_tensors":
        given = [given[event.results.index(label)]]
    before = [ramp(story, each, event.step, depth + 1) for each in given if each != label]
    if None in before or not any(before):
        return None if None in before else frozenset()
    if event.name in POINTWISE_NAMES:
        return frozenset(axis for axes in before for axis in axes or ())
    if event.name not in SAME_AXES | STRETCHED and _storage(story, given[0], event.step) != _storage(
        story, label, event.step
    ):
        return None
    moved = [moved_axis(story, given[0], event, label, axis) for axis in before[0] or ()]
    return None if None in moved else frozenset(axis for axis in moved if axis is not None)


def is_pointwise(story: Story, step: int) -> bool:
    """Whether the call at ``step`` computes element by element."""
    event = story.event(step)
    return event is not None and event.name.strip("_") in POINTWISE


def moved_axis(story: Story, source: str, event: Event, result: str, axis: int) -> int | None:
    """Return the axis of ``result``, counted from the end, that was the axis ``axis`` of ``source``, if the call
    ``event`` made ``result`` from ``source`` as a view or a copy; None if unknown.

    Calls of ``SAME_AXES`` and ``STRETCHED`` keep it, unless its length changes. After other calls it is found by its
    stride, so that an axis of length 1 is never found.
    """
    one, other = (story.tensor(label, event.step) or {} for label in (source, result))
    before, after = list(one.get("shape") or ()), list(other.get("shape") or ())
    if event.name in SAME_AXES | STRETCHED:
        return axis if -axis <= len(after) and after[axis] == before[axis] else None
    stride = (one.get("stride") or [])[axis]
    if before[axis] < 2 or not stride:
        return None
    found = [i - len(after) for i, n in enumerate(other.get("stride") or ()) if n == stride and after[i] > 1]
    return found[0] if len(found) == 1 else None


def _storage(story: Story, label: str, step: int) -> str:
    return str((story.tensor(label, step) or {}).get("storage"))
