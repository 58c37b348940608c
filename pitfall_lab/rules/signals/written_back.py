"""Finds elements that are read at some indices, combined with other values, and written back at the same indices, some
of which occur several times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import key, made_by
from pitfall_lab.rules.signals.takes import take
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

READS = {"__getitem__", "index_select"}
WRITES = ("__setitem__", "index_put_", "index_copy_")
"""Writes by an index."""
ADDING = spellings("add", "sub", in_place=True)
LARGEST = spellings("bitwise_or", "clamp_min", in_place=True) | {"__ror__", "fmax", "logical_or", "max", "maximum"}
"""Calls that keep the larger of two values."""
SMALLEST = spellings("bitwise_and", "clamp_max", in_place=True) | {"__rand__", "fmin", "logical_and", "min", "minimum"}
"""Calls that keep the smaller of two values."""
OTHERS = (
    spellings("ge", "gt", "le", "lt", "neg") | spellings("bitwise_xor", "clamp", "div", "lerp", "mul", in_place=True)
    | {"addcmul", "clone", "detach", "exp", "float", "log", "logaddexp", "logical_xor", "to", "where"}
)  # fmt: skip
"""Other calls between reading and writing back whose result still depends on the old value."""
PLAIN = {
    "ones",
    "zeros",
    "full",
    "ones_like",
    "zeros_like",
    "full_like",
    "new_ones",
    "new_zeros",
    "new_full",
    "empty",
    "expand",
}
"""Calls that make the same value for all elements."""
NEAR, UPWARD = 16, 60
EQUAL = 1e-6

Kind = Literal["largest", "smallest", "other"]


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """Elements that are read, combined with other values, and written back: the call ``read`` read them by the index
    tensors ``index``, and the call ``write`` (an ``Event``) put the tensor ``value``, computed from them, back at the
    same indices; all tensors are labels.

    ``combined`` is the last call that combined them with other values, ``other`` the label of these; both are None if
    values were only added or subtracted. ``kind`` is the result that should stay if an index occurs several times
    ("largest", "smallest" or "other"). ``axis`` is the first axis that is indexed; None if unknown.
    """

    read: Event
    write: Event
    index: list[str]
    value: str
    axis: int | None
    combined: Event | None
    other: str | None
    kind: Kind

    @property
    def table(self) -> str:
        """The label of the tensor that is read and written."""
        return str(self.write.operands[0].label)


@dataclass(frozen=True, slots=True)
class LostResult:
    """A result that was overwritten: at the index ``place`` of a tensor the value is ``stays``, although the value
    ``lost`` was also computed for this index.
    """

    place: Index
    stays: float
    lost: float


def written_back(story: Story, write: Event) -> WrittenBack | None:
    """Return what the call ``write`` writes back: values that were read just before by the same index, and computed
    with (by calls of ``ADDING``, ``LARGEST``, ``SMALLEST`` and ``OTHERS``); None if it writes anything else, or with
    ``accumulate=True``.

    Unless values were only added or subtracted, also None if the indexed axis is unknown, or if the values they were
    combined with have no axis as long as one of the index.
    """
    given = [o.label for o in write.operands[1:] if o.label is not None]
    if (
        write.name not in WRITES
        or write.error is not None
        or any(o.name == "accumulate" and o.text == "True" for o in write.operands)
    ):
        return None
    index, value = index_of(story, write, given[:-1]), given[-1] if len(given) > 1 else None
    read = _read(story, write, index) if index and value is not None else None
    if read is None or value is None:
        return None
    axis = _axis(story, read, index)
    if value in _reached(story, read, write, ADDING):
        return WrittenBack(read, write, index, value, axis, None, None, "other")
    reached = _reached(story, read, write, ADDING | LARGEST | SMALLEST | OTHERS)
    if axis is None or value not in reached:
        return None
    rows = story.shape(index[0], write.step)
    for event in reversed(list(reached.values())):
        for operand in event.operands:
            other = operand.label
            shape = story.shape(other, event.step) or ()
            if (
                other is not None
                and other not in reached
                and other not in read.results
                and rows
                and any(n in rows for n in shape)
            ):
                kind = _kind(event, operand.name)
                return WrittenBack(read, write, index, value, axis, event, other, kind)
    return None


def index_of(story: Story, event: Event, labels: list[str] | None = None) -> list[str]:
    """Return the labels of the int64 and int32 tensors among the operands ``labels`` of the call ``event`` (default:
    all after the first one), which are index tensors; empty if there are none.
    """
    labels = [o.label for o in event.operands[1:] if o.label is not None] if labels is None else labels
    dtypes = [str((story.tensor(label, event.step) or {}).get("dtype")) for label in labels]
    return [label for label, dtype in zip(labels, dtypes, strict=True) if dtype in ("int64", "int32")]


def _read(story: Story, write: Event, index: list[str]) -> Event | None:
    """The last call among the ``NEAR`` events before ``write`` that read the same tensor by the same index; None if
    there is none.
    """
    table = write.operands[0].label
    same = [key(story, label, write.step) for label in index]
    for event in reversed(story.events[max(0, write.step - NEAR) : write.step]):
        if event.kind != "call" or event.name not in READS or not event.results or event.operands[0].label is None:
            continue
        if key(story, event.operands[0].label, event.step) != key(story, str(table), write.step):
            continue
        if [key(story, label, event.step) for label in index_of(story, event)] == same:
            return event
    return None


def _reached(story: Story, read: Event, write: Event, names: set[str]) -> dict[str, Event]:
    """The tensors that calls with a name in ``names`` computed, between ``read`` and ``write``, from the elements read,
    each with its call.
    """
    reached: dict[str, Event] = {}
    for event in story.events[read.step + 1 : write.step]:
        if (
            event.kind == "call"
            and event.name in names
            and any(o.label in reached or o.label in read.results for o in event.operands)
        ):
            reached.update(dict.fromkeys(event.results, event))
    return reached


def _kind(event: Event, name: str) -> Kind:
    if event.name in LARGEST or (event.name.startswith("cl") and name == "min"):
        return "largest"
    return "smallest" if event.name in SMALLEST or (event.name.startswith("cl") and name == "max") else "other"


def _axis(story: Story, read: Event, index: list[str]) -> int | None:
    """The first axis that is indexed, which is the same in the tensor and in the elements read; None if it is
    unknown.
    """
    table, taken = (story.shape(label, read.step) or () for label in (read.operands[0].label, read.results[0]))
    shapes = {story.shape(label, read.step) or () for label in index}
    if len(shapes) == 1 and taken == (*shapes.pop(), *table[len(index) :]):
        return 0
    found = take(story, read)
    return found.axis if found is not None else None


def lost_result(story: Story, found: WrittenBack) -> LostResult | Literal["unknown"] | None:
    """Return a result that was overwritten, found by its value; None if all known values agree, ``"unknown"`` if the
    trace does not have the values.
    """
    step, axis = found.write.step, found.axis or 0
    values = dict(Elements(story, found.value, step, answers=True).known())
    positions = [dict(Elements(story, label, step).known()) for label in found.index]
    if not values or not all(positions):
        return "unknown"
    length = len(story.shape(found.index[0], step) or ())
    groups: dict[Index, list[float]] = defaultdict(list)
    for at, value in sorted(values.items()):
        where = [known.get(at[axis : axis + length]) for known in positions]
        if None not in where:
            groups[(*at[:axis], *(int(p) for p in where if p is not None), *at[axis + length :])].append(value)
    after, kind = Elements(story, found.table, step, answers=True), found.kind
    if (
        found.combined is not None and found.combined.name == "where"
    ):  # of two numbers, one that is compared with the other
        pairs = [
            (values[at], old)
            for at, old in Elements(story, found.read.results[0], found.read.step).known()
            if at in values
        ]
        kind = (
            "largest"
            if all(new >= old for new, old in pairs)
            else "smallest"
            if all(new <= old for new, old in pairs)
            else kind
        )
    for place, several in groups.items():
        stays = after.at(place)
        if stays is None or len(several) == 1:
            continue
        lost = {"largest": max(several), "smallest": min(several)}.get(kind, max(several, key=lambda v: abs(v - stays)))
        if abs(lost - stays) > EQUAL * max(1.0, abs(lost)):
            return LostResult(place, float(stays), float(lost))
    return None


def varies(story: Story, found: WrittenBack) -> bool:
    """Whether the values that were combined with the elements may differ between entries with the same index; values
    read from another table by the same index do not.
    """
    same = {key(story, label, found.write.step) for label in found.index}
    count = (story.shape(found.index[0], found.write.step) or (0,))[0]
    pending, seen = [(found.other, found.write.step)], {found.other}
    while pending and len(seen) < UPWARD:
        label, step = pending.pop()
        made = made_by(story, label, step)
        if made is None:
            return True
        given = [o.label for o in made.operands if o.label is not None and o.label != label]
        if made.name in PLAIN or any(key(story, each, made.step) in same for each in given):
            continue
        wide = [each for each in given if count in (story.shape(each, made.step) or ())]
        if not wide:
            return True
        pending += [(each, made.step) for each in wide if each not in seen]
        seen.update(wide)
    return False


def repeats(story: Story, found: WrittenBack) -> tuple[int, int]:
    """Return two numbers: of the entries in the index of ``found``, and of the different indices that are possible
    along the indexed axes of the tensor.
    """
    table, shape = story.shape(found.table, found.read.step) or (), story.shape(found.index[0], found.read.step) or ()
    axis, depth = found.axis or 0, len(found.index)
    if found.axis is None:
        taken, rest = story.shape(found.read.results[0], found.read.step) or (), prod(table[depth:])
        return (prod(taken) // rest if rest else 0), prod(table[:depth])
    return prod(shape), prod(table[axis : axis + depth])


def all_written_back(story: Story) -> Iterator[WrittenBack]:
    """Yield all writes by the program's own calls that put results back where their operands were read, as
    :func:`written_back` finds them, in order.
    """
    for event in story.calls(*WRITES):
        if event.parent is None and (found := written_back(story, event)) is not None:
            yield found
