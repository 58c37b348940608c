"""Where single elements of a tensor come from: the storage and index that they were copied from, followed through row
selections and stacking.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.signals.forms import key
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

Index = tuple[int, ...]
Place = tuple[str, int]
"""A storage, and the index of an element in it."""
COPIES = {"clone", "contiguous", "to", "float", "double", "detach", "cpu"}
"""Calls whose result has the same elements at the same indices."""
RESHAPED = {"reshape", "flatten", "ravel"}
"""Calls that may copy, and keep the order of the elements."""
SHIFTED = spellings("add", "div", "mul", "sub")
FOLLOWED = COPIES | RESHAPED | SHIFTED | {"__getitem__", "cat", "index_select", "roll", "stack"}
"""All calls through which elements are followed."""
DEEPEST = 24


class Origins:
    """Follows elements of tensors back to where they were first stored, for one comparison of tensors.

    If rows were taken by an index tensor whose values are not in the trace, the rows are assumed to be consecutive (0,
    1, 2, …), the same for each use of that index; ``supposed`` has the keys of the index tensors for which this was
    assumed. ``trail`` has the calls on the way, each once; those of one element from the last back to the first.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.supposed: set[Hashable] = set()
        self.trail: list[Event] = []
        self._passed: set[int] = set()
        self._given: dict[int, list[str]] = {}

    def place(self, label: str | None, index: Index, step: int) -> Place | None:
        """Return the storage and the index in it at which the element ``index`` of the tensor ``label``, as it was at
        ``step``, was first stored; None if unknown.

        A copy that was written after it was made counts as the first.
        """
        for _ in range(DEEPEST):
            record = self.story.tensor(label, step) or {}
            if label is None or record.get("storage") is None or len(index) != len(record.get("shape") or ()):
                return None
            self._note(label, step)
            storage = str(record["storage"])
            at = int(record.get("offset") or 0) + sum(
                i * n for i, n in zip(index, record.get("stride") or (), strict=True)
            )
            before = self._before(storage, at)
            if before is None:
                return storage, at
            if self.story.writes(storage, before[2], step):
                return storage, at
            label, index, step = before
        return None

    def _note(self, label: str, step: int) -> None:
        """Add to the trail the call that made the tensor and, if it is a view, the calls that made the tensors it is a
        view of.
        """
        for _ in range(DEEPEST):
            record = self.story.tensor(label, step) or {}
            event = self.story.event(record.get("born"))
            if event is None or event.kind != "call" or event.step in self._passed:
                return
            self._passed.add(event.step)
            self.trail.append(event)
            source = event.operands[0].label if event.operands else None
            if (
                source is None
                or source == label
                or (self.story.tensor(source) or {}).get("storage") != record.get("storage")
            ):
                return
            label, step = source, event.step

    def _before(self, storage: str, at: int) -> tuple[str, Index, int] | None:
        """The element from which the element ``at`` of a storage was copied, as a tensor, an index and a step; None if
        it was not copied.
        """
        first = next(iter(self.story.tensors_on(storage)), None)
        event = self.story.event(first[1].get("born")) if first is not None else None
        if (
            first is None
            or event is None
            or event.kind != "call"
            or first[0] not in event.results
            or event.error is not None
        ):
            return None
        index = _index(self.story.tensor(first[0], event.step) or {}, at)
        given = self._tensors(event)
        if index is None or not given:
            return None
        found = self._source(event, index, given)
        return (*found, event.step) if found is not None else None

    def _tensors(self, event: Event) -> list[str]:
        """The labels of a call's operands, cached: a stack may have thousands, and they are needed for each element."""
        if event.step not in self._given:
            self._given[event.step] = [o.label for o in event.operands if o.label is not None]
        return self._given[event.step]

    def _source(self, event: Event, index: Index, given: list[str]) -> tuple[str, Index] | None:
        if event.name == "stack":
            axis = whole(argument(event, "dim", len(given))) or 0
            axis %= len(index)
            return (given[index[axis]], index[:axis] + index[axis + 1 :]) if index[axis] < len(given) else None
        if event.name not in FOLLOWED:
            return None
        shapes = [self.story.shape(each, event.step) or () for each in given]
        if event.name == "roll" and len(given) == 1:
            back = _rolled(event, index, shapes[0])
            return (given[0], back) if back is not None else None
        if event.name == "cat" and (whole(argument(event, "dim", len(given))) or 0) == 0 and index:
            return _joined(index, given, shapes)
        if (
            event.name in ("__getitem__", "index_select")
            and len(given) == 2
            and len(shapes[1]) == 1
            and len(shapes[0]) == len(index)
        ):
            if shapes[0][1:] != (self.story.shape(event.results[0], event.step) or ())[1:]:
                return None
            row = self._row(given[1], index[0], event.step, shapes[0][0])
            return (given[0], (row, *index[1:])) if row is not None else None
        if event.name in RESHAPED and len(given) == 1:
            return given[0], unflat(_flat(index, self.story.shape(event.results[0], event.step) or ()), shapes[0])
        alone = len(given) == 1 or (event.name in SHIFTED and all(prod(shape) == 1 for shape in shapes[1:]))
        if event.name in COPIES | SHIFTED and alone and len(shapes[0]) == len(index):
            return given[0], index
        return None

    def _row(self, index: str, at: int, step: int, count: int) -> int | None:
        """The row that entry ``at`` of an index tensor selects; an assumed one if the trace does not have its value.
        None if the index has no integer dtype.
        """
        record = self.story.tensor(index, step) or {}
        if not str(record.get("dtype")).startswith("int"):
            return None
        place = int(record.get("offset") or 0) + at * int((record.get("stride") or (1,))[0])
        known = self.story.held(index, step).get(place)
        if isinstance(known, int):
            return known % count if count else None
        self.supposed.add(key(self.story, index, step))
        return at % count if count else None


def _joined(index: Index, given: list[str], shapes: list[Index]) -> tuple[str, Index] | None:
    """The tensor that row ``index[0]`` of a ``cat`` along the first dimension came from, and the index in it."""
    rest = index[0]
    for label, shape in zip(given, shapes, strict=True):
        if rest < (shape[0] if shape else 0):
            return label, (rest, *index[1:])
        rest -= shape[0] if shape else 0
    return None


def _rolled(event: Event, index: Index, shape: Index) -> Index | None:
    """The index that the element ``index`` of the result of a ``roll`` had before; None if the arguments are not
    known.
    """
    found = list(index)
    shifts, dims = (_numbers(argument(event, name, place)) for place, name in enumerate(("shifts", "dims"), start=1))
    if shifts is None:
        return None
    if not dims:
        return unflat((_flat(index, shape) - shifts[0]) % prod(shape), shape) if len(shifts) == 1 else None
    if len(dims) != len(shifts):
        return None
    for dim, shift in zip(dims, shifts, strict=True):
        axis = dim % len(shape)
        found[axis] = (found[axis] - shift) % shape[axis]
    return tuple(found)


def _numbers(text: str | None) -> list[int] | None:
    """The integers in the text of an argument, one or a tuple of them; None if it contains none, or anything else."""
    parts = [each.strip() for each in (text or "").strip("()[]").split(",") if each.strip()]
    numbers = [whole(each) for each in parts]
    return [each for each in numbers if each is not None] if parts and None not in numbers else None


def _index(record: Record, at: int) -> Index | None:
    """The index of the element ``at`` of a storage in a contiguous tensor that begins at offset 0; None for other
    tensors.
    """
    shape = tuple[int, ...](record.get("shape") or ())
    plain = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    stride = tuple(record.get("stride") or ())
    if record.get("offset") or any(n > 1 and a != b for n, a, b in zip(shape, stride, plain, strict=True)):
        return None
    return unflat(at, shape)


def _flat(index: Index, shape: Index) -> int:
    return sum(i * prod(shape[axis + 1 :]) for axis, i in enumerate(index))


def unflat(at: int, shape: Index) -> Index:
    """Return the multi-dimensional index of the element ``at``, counted in row-major order, of a tensor of shape
    ``shape``.
    """
    found = list[int]()
    for length in reversed(shape):
        found.insert(0, at % max(length, 1))
        at //= max(length, 1)
    return tuple(found)
