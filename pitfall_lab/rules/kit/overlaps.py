"""Writes to tensors in which several elements share one memory location: expanded tensors, or overlapping
``unfold`` and ``as_strided``.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.wording import flat
from pitfall_lab.trace import Event

MOST_PLACES = 4096
VIEWING = {"__getitem__", "select", "narrow", "view", "view_as", "t", "transpose", "permute", "squeeze", "unsqueeze",
           "diagonal", "unbind", "split", "chunk", "__iter__", "detach", "data", "T"}  # fmt: skip
"""Views through which a write is followed back to the tensor whose elements share memory."""
EVEN = {"zero_", "fill_"}
"""Writes of one value to all elements, for which repeated writes make no difference."""


@dataclass(frozen=True, slots=True)
class SharedWrite:
    """A write to a tensor of which several elements share one memory location: the call ``event`` wrote ``written``
    elements of the tensor labelled ``label``, or of a view of it.

    These elements are at ``places`` memory locations, which ``changed`` elements of the tensor share. Both are None if
    there are too many to count.
    """

    event: Event
    label: str
    written: int
    changed: int | None
    places: int | None


@lru_cache(maxsize=1)
def shared_writes(story: Story) -> tuple[SharedWrite, ...]:
    """Return the writes that changed more elements of a tensor than they wrote, or wrote some locations more than once;
    the first such write of each line.

    Only writes to a storage that is used later, as far as shapes and values in the trace show it. Writing one value
    several times to the same location does not count.
    """
    reported, writes = set(), []
    for event in story.calls():
        if (
            not event.writes
            or event.error is not None
            or not event.operands
            or event.operands[0].label is None
            or event.span in reported
        ):
            continue
        label = _repeating(story, event.operands[0].label, event.step)
        found = _shared(story, event, label) if label is not None else None
        if found is not None and _read_later(story, found):
            reported.add(event.span)
            writes.append(found)
    return tuple(writes)


def repeats(record: Record) -> bool:
    """Whether several elements of the tensor with this record share a memory location; of a large tensor, only a few
    elements are compared.
    """
    shape, stride = record.get("shape") or (), record.get("stride") or ()
    if any(n > 1 and step == 0 for n, step in zip(shape, stride, strict=False)):
        return True
    return not _steps_over(shape, stride) and _coincide(*_small_part(tuple(shape), tuple(stride)))


def is_repeated(record: Record) -> bool:
    """Whether the tensor with this record has an axis longer than 1 with stride 0, as ``expand`` makes it."""
    return any(
        n > 1 and step == 0 for n, step in zip(record.get("shape") or (), record.get("stride") or (), strict=False)
    )


def _small_part(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a part with few elements: the axes with the largest strides are shortened to length 2 until
    at most ``MOST_PLACES`` elements are left.
    """
    lengths = list(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: -stride[axis]):
        if math.prod(lengths) > MOST_PLACES:
            lengths[axis] = min(lengths[axis], 2)
    return tuple(lengths), stride


@lru_cache(maxsize=256)
def _coincide(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    at = places({"shape": shape, "stride": stride})
    return at is not None and len(set(at)) < len(at)


def _steps_over(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether each stride exceeds the extent of all axes with smaller strides, so that no two elements share a
    location.
    """
    reach = 0
    for step, length in sorted(zip(stride, shape, strict=False)):
        if length > 1 and step <= reach:
            return False
        reach += step * max(length - 1, 0)
    return True


def places(record: Record) -> list[int] | None:
    """Return, for each element of the tensor with this record, in row-major order, its index in the storage; None if
    there are more than ``MOST_PLACES`` elements.
    """
    shape, stride = record.get("shape") or [], record.get("stride") or []
    if math.prod(shape) > MOST_PLACES:
        return None
    found = [record.get("offset") or 0]
    for length, step in zip(shape, stride, strict=True):
        found = [at + i * step for at in found for i in range(length)]
    return found


def part(record: Record, text: str) -> Record | None:
    """Return the view of the tensor with this record that the index ``text`` selects (``"1, :2"``), as a record (a
    dict) with shape, stride and offset only.

    None if ``text`` contains anything but integers and slices, has more indices than the tensor has dimensions, or is
    not valid Python.
    """
    try:
        index = ast.parse(f"_[{text}]" if not text.startswith("(") else f"_[{text[1:-1]}]", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(index, ast.Subscript):
        return None
    given = index.slice.elts if isinstance(index.slice, ast.Tuple) else [index.slice]
    shape, stride, offset = list(record.get("shape") or ()), list(record.get("stride") or ()), record.get("offset") or 0
    kept: list[tuple[int, int]] = []
    for axis, item in enumerate(given):
        if axis >= len(shape):
            return None
        bounds = _bounds(item)
        if bounds is None:
            return None
        if isinstance(bounds, int):
            offset += (bounds % shape[axis]) * stride[axis]
        else:
            chosen = range(*bounds.indices(shape[axis]))
            offset += chosen.start * stride[axis]
            kept.append((len(chosen), stride[axis] * chosen.step))
    kept += zip(shape[len(given) :], stride[len(given) :], strict=True)
    return {"shape": [n for n, _ in kept], "stride": [step for _, step in kept], "offset": offset}


def _bounds(item: ast.expr) -> int | slice | None:
    try:
        if isinstance(item, ast.Slice):
            return slice(
                *(None if end is None else int(ast.literal_eval(end)) for end in (item.lower, item.upper, item.step))
            )
        value = ast.literal_eval(item)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _repeating(story: Story, label: str, step: int) -> str | None:
    """The tensor itself, or the nearest tensor it is a view of, in which elements share a memory location; None if
    there is none.

    At most five views are followed back, and only through calls of ``VIEWING``.
    """
    here: str | None = label
    for _ in range(6):
        record = story.tensor(here, step)
        if here is None or record is None:
            return None
        if repeats(record):
            return here
        maker = story.event(record.get("born"))
        if maker is None or maker.name not in VIEWING or not maker.operands:
            return None
        here = maker.operands[0].label
    return None


def _shared(story: Story, event: Event, label: str) -> SharedWrite | None:
    whole, target = story.tensor(label, event.step) or {}, event.operands[0].label
    if (story.tensor(target, event.step) or {}).get("storage") != whole.get("storage"):
        return None
    written = story.tensor(target, event.step) or {}
    if event.name == "__setitem__":
        chosen = event.operands[1] if len(event.operands) > 1 else None
        if chosen is None or chosen.label is not None:
            return _masked(story, event, label, chosen.label if chosen else None)
        selected = part(written, chosen.text)
        if selected is None:
            return None
        written = selected
    elif event.name in ("masked_fill_", "masked_scatter_") and target == label:
        return _masked(story, event, label, event.operands[1].label)
    even = event.name in EVEN or (event.name == "__setitem__" and event.operands[-1].label is None)
    everywhere, here = places(whole), places(written)
    counted_by_shape = _by_shape(whole, written) if everywhere is None or here is None else None
    if counted_by_shape is not None:
        size, at, changes = counted_by_shape
        twice = not even and at < size
        return SharedWrite(event, label, size, changes, at) if changes > size or twice else None
    if here is None and not even and repeats(written):
        return SharedWrite(event, label, math.prod(written.get("shape") or ()), None, None)
    if everywhere is None or here is None or not here:
        return None
    counted, given = Counter(everywhere), Counter(here)
    changed = sum(counted[place] for place in given)
    twice = not even and max(given.values()) > 1
    found = SharedWrite(event, label, len(here), changed, len(given))
    return found if changed > len(here) or twice else None


def _by_shape(whole: Record, written: Record) -> tuple[int, int, int] | None:
    """The number of elements written, of memory locations, and of elements of the whole tensor at these locations,
    computed from shapes and strides alone.

    None if elements of either tensor share memory in another way than along axes with stride 0.
    """
    counts = []
    for record in (whole, written):
        axes = list(zip(record.get("shape") or (), record.get("stride") or (), strict=True))
        apart = [(length, step) for length, step in axes if step]
        if not _steps_over([length for length, _ in apart], [step for _, step in apart]):
            return None
        counts.append((math.prod(length for length, _ in axes), math.prod(length for length, _ in apart)))
    (elements, locations), (size, at) = counts
    return (size, at, at * (elements // locations)) if at else None


def _masked(story: Story, event: Event, label: str, mask: str | None) -> SharedWrite | None:
    """The write through a mask, if an unselected element shares a memory location with a selected one; else None.

    None, too, unless the mask is a bool tensor of the tensor's shape with known values.
    """
    whole, chosen = story.tensor(label, event.step) or {}, story.tensor(mask, event.step) or {}
    cells = dict(flat((story.record("storages", chosen.get("storage"), event.step) or {}).get("cells")))
    everywhere, at = places(whole), places(chosen)
    if chosen.get("dtype") != "bool" or chosen.get("shape") != whole.get("shape") or everywhere is None or at is None:
        return None
    if any(place not in cells for place in at):
        return None
    hit = [place for place, source in zip(everywhere, at, strict=True) if cells[source]]
    changed = sum(place in set(hit) for place in everywhere)
    return SharedWrite(event, label, len(hit), changed, len(set(hit))) if changed > len(hit) else None


def _read_later(story: Story, found: SharedWrite) -> bool:
    """Whether the program uses the storage after the write: in a call, or on a later line by the name of a tensor on
    it.
    """
    step, span = found.event.step, story.span(found.event.step)
    around = [label for label, _ in story.tensors_on((story.tensor(found.label, step) or {}).get("storage"))]
    if any(use.step > step for label in around for use in story.uses(label)):
        return True
    names = {story.name(label, step) for label in around} - {None}
    return span is not None and any(
        isinstance(n, ast.Name | ast.Attribute) and n.lineno > span.line and story.program.segment(n) in names
        for n in story.program.nodes
    )
