"""From which positions of an input the positions of a result were computed, through convolutions, padding and slices
along time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.ramps import SAME_AXES, moved_axis
from pitfall_lab.rules.signals.sequences import KEEPING, makers
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

TURNED = spellings("transpose") | {
    "T",
    "flatten",
    "mT",
    "movedim",
    "permute",
    "reshape",
    "squeeze",
    "t",
    "unsqueeze",
    "view",
}
"""Calls that move positions to another axis, or join axes."""
SLICES = {"__getitem__", "narrow"}
STOPPING = spellings("matmul", "mm") | {
    "_softmax",
    "baddbmm",
    "bmm",
    "einsum",
    "layer_norm",
    "linear",
    "log_softmax",
    "rms_norm",
    "softmax",
}
"""Calls of :data:`KEEPING` that combine all elements along the last axis: positions along that axis are no longer
separate.
"""
WRITTEN = {"mul_", "__imul__", "__setitem__", "zero_", "masked_fill_", "fill_"}
"""In-place calls by which positions may be masked."""
POOLS = ("avg_pool1d", "max_pool1d")
WINDOWS = ("conv1d", *POOLS)
"""Calls that compute each position from a window of positions."""
JOINS = ("stack", "cat")
MOST = 300
WIDEST = 5_000

Offsets = frozenset[int]


@dataclass(frozen=True, slots=True)
class Field:
    """The receptive field of a result: its position ``t`` was computed from the positions ``t + o`` of the tensor
    ``label``, as it was at ``step``, along its axis ``axis``, for each ``o`` in ``offsets``.

    ``axis`` counts from the end. ``shifts`` are the calls on the way, each with the number of positions by which it
    looked ahead.
    """

    label: str
    step: int
    axis: int
    offsets: Offsets
    shifts: tuple[tuple[Event, int], ...] = ()


def fields(story: Story, label: str, step: int, axis: int) -> Iterator[Field]:
    """Yield the tensors from which the tensor ``label`` at ``step`` was computed position by position along the axis
    ``axis`` (counted from the end), nearest first; the first one is the tensor itself.

    A path ends at calls that compute anything else, and at tensors that were written after they were created. At most
    about ``MOST`` are yielded.
    """
    pending, seen = [Field(label, step, axis, frozenset([0]))], set[tuple[str, Offsets]]()
    while pending and len(seen) < MOST:
        here = pending.pop(0)
        if (here.label, here.offsets) in seen or len(here.offsets) > WIDEST:
            continue
        seen.add((here.label, here.offsets))
        yield here
        made = list(makers(story, here.label, here.step))
        if len(made) == 1:
            pending += _before(story, here, made[0])


def _before(story: Story, here: Field, event: Event) -> Iterator[Field]:
    """The operands of the call that created a tensor, with the positions of them that it used."""
    given = [o.label for o in event.operands if o.label is not None]
    if event.name in JOINS and (axis := _beside(story, here, event, len(given))) is not None:
        for each in dict.fromkeys(given):
            yield Field(each, event.step, axis, here.offsets, here.shifts)
        return
    moved = _moved(story, here, event, given) if given else None
    if moved is not None:
        axis, offsets, ahead = moved
        shifts = (*here.shifts, (event, ahead)) if ahead or event.name in WINDOWS else here.shifts
        yield Field(given[0], event.step, axis, frozenset(o + each for o in here.offsets for each in offsets), shifts)
    elif (
        event.name in KEEPING | SAME_AXES
        and event.name not in TURNED | SLICES
        and not (event.name in STOPPING and here.axis == -1)
    ):
        for each in given[:1] if event.name in STOPPING else given:
            if event.name != "cat" and _length(story, each, event.step, here.axis) == _length(
                story, here.label, event.step, here.axis
            ):
                yield Field(each, event.step, here.axis, here.offsets, here.shifts)


def _beside(story: Story, here: Field, event: Event, count: int) -> int | None:
    """The axis, in the tensors that ``event`` joined, that is the axis of the field; None if they are joined along that
    axis itself.
    """
    dims = len(story.shape(here.label, event.step) or ())
    along = whole(argument(event, "dim", count))
    along = (0 if along is None else along) % dims if dims else 0
    if along == here.axis + dims:
        return None
    return here.axis + 1 if event.name == "stack" and along > here.axis + dims else here.axis


def _moved(story: Story, here: Field, event: Event, given: list[str]) -> tuple[int, list[int], int] | None:
    """For a call that moves or combines positions of its first operand: their axis in it, their offsets, and how far
    the call looks ahead; None for every other call.
    """
    if event.name in WINDOWS:
        taps = None if here.axis != -1 else _pooled(event) if event.name in POOLS else _taps(story, event, given)
        return (-1, taps, max(taps)) if taps else None
    if event.name == "pad":
        sizes, place = _numbers(event.operands[1].text) if len(event.operands) > 1 else [], 2 * (-here.axis - 1)
        left = sizes[place] if place < len(sizes) else 0
        return here.axis, [-left], -left
    if event.name in ("embedding", "one_hot"):
        return (here.axis + 1, [0], 0) if here.axis < -1 else None
    if event.name in SLICES and len(given) == 1:
        sliced = _sliced(story, here, event, given[0])
        return (sliced[0], [sliced[1]], sliced[1]) if sliced is not None else None
    if event.name in TURNED:
        count = len(story.shape(given[0], event.step) or ())
        axes = [each for each in range(-count, 0) if moved_axis(story, given[0], event, here.label, each) == here.axis]
        same = len(axes) == 1 and _length(story, given[0], event.step, axes[0]) == _length(
            story, here.label, event.step, here.axis
        )
        return (axes[0], [0], 0) if same else None
    return None


def _length(story: Story, label: str, step: int, axis: int) -> int:
    shape = story.shape(label, step) or ()
    return shape[axis] if len(shape) >= -axis else 0


def _taps(story: Story, event: Event, given: list[str]) -> list[int] | None:
    """The positions, relative to that of the result, that a convolution reads; None if its stride is not 1, its
    arguments are not known, or its weight may be masked.
    """
    size = _length(story, given[1], event.step, -1) if len(given) > 1 else 0
    stride, padding, dilation = (
        _option(event, name, place) for name, place in (("stride", 3), ("padding", 4), ("dilation", 5))
    )
    if stride != "1" or not size or not str(dilation).isdigit() or _is_masked(story, given[1], event.step):
        return None
    step = int(str(dilation))
    left = (
        step * (size - 1) // 2
        if padding == "same"
        else 0
        if padding == "valid"
        else int(padding)
        if padding.isdigit()
        else None
    )
    record = story.tensor(given[1], event.step) or {}
    fixed = record.get("kind") != "parameter" and list(record.get("shape") or ()) == [1, 1, size]
    known = story.held(given[1], event.step) if fixed and not record.get("offset") else {}
    return None if left is None else [tap * step - left for tap in range(size) if known.get(tap, 1) != 0]


def _pooled(event: Event) -> list[int] | None:
    """The positions, relative to that of the result, that a pooling reads; None if its stride is not known to be 1, or
    it has a dilation.
    """
    size, stride, padding = (
        (argument(event, name, place) or default).strip("()[], ")
        for name, place, default in (("kernel_size", 1, ""), ("stride", 2, ""), ("padding", 3, "0"))
    )
    if stride != "1" or not size.isdigit() or not padding.isdigit() or argument(event, "dilation") not in (None, "1"):
        return None
    return [tap - int(padding) for tap in range(int(size))]


def _option(event: Event, name: str, place: int) -> str:
    """The text of a numeric argument of a convolution, without parentheses; its default if it was not passed."""
    bias = any(o.name == "bias" or (at == 2 and o.label is not None) for at, o in enumerate(event.operands))
    text = argument(event, name) or argument(event, name, place if bias else place - 1)
    return (text or {"stride": "1", "padding": "0", "dilation": "1"}[name]).strip("()[]'\", ")


def _is_masked(story: Story, weight: str, step: int) -> bool:
    """Whether the program may have set parts of a weight to 0, as in a masked convolution."""
    made = story.event((story.tensor(weight, step) or {}).get("born"))
    computed = made is not None and weight in made.results and any(o.label is not None for o in made.operands)
    if (
        computed
        and made is not None
        and (story.tensor(weight, step) or {}).get("kind") != "parameter"
        and made.name != "_weight_norm"
    ):
        return True
    storage = (story.tensor(weight, step) or {}).get("storage")
    return any(
        use.name in WRITTEN and use.writes and story.said(use.step) != "step"
        for label, _ in story.tensors_on(storage) for use in story.uses(label)[:8] if use.operands[0].label == label
    )  # fmt: skip


def _sliced(story: Story, here: Field, event: Event, source: str) -> tuple[int, int] | None:
    """The axis of the source of a slice that became the axis of its result, and the first position that the slice
    contains.

    None if the result is no view in which this axis keeps its stride.
    """
    one, other = (story.tensor(label, event.step) or {} for label in (source, here.label))
    stride = (other.get("stride") or [0])[here.axis] if len(other.get("stride") or ()) >= -here.axis else 0
    before, steps = list(one.get("shape") or ()), list(one.get("stride") or ())
    places = [axis for axis, n in enumerate(steps) if n == stride and before[axis] > 1]
    if one.get("storage") != other.get("storage") or not stride or len(places) != 1:
        return None
    rest, start = (other.get("offset") or 0) - (one.get("offset") or 0), 0
    for axis in sorted(range(len(steps)), key=lambda each: -steps[each]):
        if steps[axis] > 0 and before[axis] > 1:
            at, rest = divmod(rest, steps[axis])
            start = at if axis == places[0] else start
    return places[0] - len(before), start


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.strip("()[]").split(",")]
    return [int(part) for part in parts if part.lstrip("-").isdigit()]
