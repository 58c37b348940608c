"""Single elements of tensors: their indices, and their values as far as the trace has them."""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.wording import flat

Index = tuple[int, ...]


class Elements:
    """The known numeric values of the tensor ``label`` at ``step``; ``shape`` is its shape.

    Bools are included only with ``answers``; NaN and infinity are not, as a trace stores them as texts.
    """

    def __init__(self, story: Story, label: str | None, step: int, *, answers: bool = False) -> None:
        record: Record = story.tensor(label, step) or {}
        self.shape: Index = tuple(record.get("shape") or ())
        self._stride, self._offset = tuple(record.get("stride") or ()), record.get("offset") or 0
        held = (story.record("storages", record.get("storage"), step) or {}).get("cells")
        if len(self._stride) != len(self.shape):  # of a sparse tensor, no element is known
            self._stride, held = (0,) * len(self.shape), None
        self._cells = {
            place: value
            for place, value in flat(held)
            if isinstance(value, int | float) and (answers or not isinstance(value, bool))
        }

    def at(self, index: Index) -> float | None:
        """Return the known value of the element that is broadcast to the index ``index`` of a result; None if it is
        unknown.

        ``index`` must have at least as many items as the tensor has axes.
        """
        own = index[len(index) - len(self.shape) :] if self.shape else ()
        steps = (0 if length == 1 else i * step for i, length, step in zip(own, self.shape, self._stride, strict=True))
        return self._cells.get(self._offset + sum(steps))

    def known(self) -> Iterator[tuple[Index, float]]:
        """Yield the index and the value of each element whose value is known; correct only if no two elements share a
        memory location.
        """
        order = sorted(range(len(self.shape)), key=lambda axis: -self._stride[axis])
        for place, value in self._cells.items():
            rest, index = place - self._offset, [0] * len(self.shape)
            for axis in order:
                if self._stride[axis] > 0:
                    index[axis], rest = divmod(rest, self._stride[axis])
            if rest == 0 and all(0 <= i < n for i, n in zip(index, self.shape, strict=True)):
                yield tuple(index), value
