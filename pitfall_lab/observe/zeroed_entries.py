"""Counts the zeros, written by an index or a mask, that a ranking puts before other values, or that get a share of a
softmax (:class:`ZeroedEntries`).

A trace has only the first and last values of long tensors, so the tensors to which such a call wrote are remembered,
and examined when their smallest or largest values, or a softmax, are computed.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.counted_numbers import CountedNumbers
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Span

PLAIN = (torch.Tensor, torch.nn.Parameter)
VALUES = {
    "scatter": ("value", 3), "index_fill": ("value", 3), "masked_fill": ("value", 2), "index_put": ("values", 2),
    "__setitem__": ("value", 2), "fill_diagonal": ("fill_value", 1),
}  # fmt: skip
"""The calls that write a value to selected elements, each with the name and the index of the argument that is
written.
"""
WRITING = frozenset({
    *(f"torch.Tensor.{name}{end}" for name in VALUES for end in (("",) if name.endswith("_") else ("", "_"))),
    *(f"torch.{name}" for name in VALUES if not name.endswith("_")),
})  # fmt: skip
RANKINGS = {"topk": 2, "sort": 1, "argsort": 1, "max": 1, "min": 1, "argmax": 1, "argmin": 1, "amax": 1, "amin": 1}
"""The calls that select the smallest or the largest values, each with the index of the argument for the axis."""
RANKING = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in RANKINGS)
SHARES = {"softmax", "log_softmax"}
SHARING = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch", "torch.nn.functional") for name in SHARES)
LEAST = frozenset({"min", "argmin", "amin"})
"""Those of :data:`RANKINGS` that select the smallest."""
SORTS = frozenset({"sort", "argsort"})
"""Those of :data:`RANKINGS` of which the first element counts, if they sort in descending order."""
SMALL = 1e-3
"""A smaller share counts as none."""
MOST = 1 << 22
"""How many elements a tensor may have to be examined."""
LOOKS, FOUND = 100, 60
"""How many calls of one function at one position are examined, and how many findings are stored, each at most."""
KEPT, STEPS = 8, 12
"""How many tensors are remembered, and how many writes to one of them, each at most."""


@dataclass(slots=True)
class _Zeroed:
    """A tensor, its memory and shape, and the steps at which zeros were written to it."""

    tensor: weakref.ref[torch.Tensor]
    place: tuple[Any, ...]
    steps: list[int]


@dataclass(slots=True)
class ZeroedEntries:
    """Counts zeros in the calls that it receives after they ran (:meth:`after`).

    ``found`` has the rankings in which zeros came first, and the softmaxes in which they got a share: by the span of
    the call, its step and a :class:`CountedNumbers` of the kind ``zeroed``. ``number`` of its ``of`` selected elements
    are zeros that displaced other values (of a softmax: how many of its values are zeros); ``numbers`` are the best
    value that was not selected (of a softmax: the mean share of a row that zeros got), and the steps of the last writes
    of zeros.
    """

    found: dict[Span | None, tuple[int, CountedNumbers]] = field(default_factory=dict)
    _looks: Counter[tuple[Span | None, str]] = field(default_factory=Counter)
    _kept: deque[_Zeroed] = field(default_factory=lambda: deque(maxlen=KEPT))

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` at the position ``span`` is to be passed to :meth:`after`:
        only writes, rankings and softmaxes, and only the first ``LOOKS`` (100) calls of each at each position.

        Rankings and softmaxes only if zeros were written to a tensor before, there is no finding at this position yet,
        and there are fewer than ``FOUND`` (60) in all.
        """
        if name in WRITING:
            return self._looks[span, name] < LOOKS
        fits = (
            (name in RANKING or name in SHARING)
            and bool(self._kept)
            and span not in self.found
            and len(self.found) < FOUND
        )
        return fits and self._looks[span, name] < LOOKS

    def after(self, call: Call, result: Any, step: int) -> None:
        """Examine a call, at ``step`` of the trace, that has written values, selected the smallest or the largest, or
        computed a softmax. Calls under a dispatch mode are ignored.
        """
        self._looks[call.span, call.name] += 1
        if call.dispatching or not call.args or type(call.args[0]) not in PLAIN:
            return
        name = call.name.rpartition(".")[2]
        with contextlib.suppress(Exception):  # what cannot be repeated for a mask is not followed
            if call.name in WRITING:
                self._write(call, name, call.args[0] if name.endswith("_") else result, step)
            else:
                known = self._known(call.args[0])
                found = _shared if name in SHARES else _ranked
                counted = found(call, name, known.steps) if known is not None else None
                if counted is not None:
                    self.found[call.span] = step, counted

    def _known(self, tensor: torch.Tensor) -> _Zeroed | None:
        place = _place(tensor)
        return next((each for each in self._kept if each.place == place and each.tensor() is not None), None)

    def _write(self, call: Call, name: str, written: Any, step: int) -> None:
        marks = _marks(call, name if name == "__setitem__" else name.rstrip("_"), written) if _fits(written) else None
        if marks is None:
            return
        known = self._known(written)
        if known is not None:
            known.steps.append(step)
        elif not bool(((written.detach() == 0) & ~marks).any()):  # else zero is one of its numbers anyway
            self._kept.append(_Zeroed(weakref.ref(written), _place(written), [step]))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A key that is equal for two names of the same elements."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return (id(tensor),)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _fits(tensor: Any) -> bool:
    is_plain = type(tensor) in PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.is_floating_point() and tensor.dim() > 0 and 1 < tensor.numel() <= MOST


def _given(call: Call, name: str, place: int) -> Any:
    return call.kwargs.get(name, call.args[place] if len(call.args) > place else None)


def _marks(call: Call, name: str, written: torch.Tensor) -> torch.Tensor | None:
    """Where the call has written zeros, as a mask of the tensor's shape; None if it wrote anything else, or to elements
    that are the same in each program (``x[:, 0] = 0``).
    """
    if name == "__setitem__" and not _is_data(call.args[1]):
        return None
    value = _given(call, *VALUES[name])
    if value is None and name == "scatter":
        value = call.kwargs.get("src")
    if type(value) in PLAIN:
        held = tensor_facts.window_values(value, MOST)  # reads the memory: a profiler sees no operation
        value = 0.0 if held is not None and not held.any() else None
    if type(value) not in (int, float) or value != 0 or call.kwargs.get("accumulate") or "reduce" in call.kwargs:
        return None
    marks = torch.zeros(written.shape, dtype=torch.bool)
    if name == "__setitem__":
        marks[call.args[1]] = True
    elif name == "scatter":
        marks.scatter_(_given(call, "dim", 1), _given(call, "index", 2), value=True)
    elif name == "index_fill":
        marks.index_fill_(_given(call, "dim", 1), _given(call, "index", 2), value=True)
    elif name == "masked_fill":
        marks.masked_fill_(_given(call, "mask", 1), value=True)
    elif name == "index_put":
        marks.index_put_(_given(call, "indices", 1), torch.tensor(True))
    else:
        marks.fill_diagonal_(True)
    return marks


def _is_data(index: Any) -> bool:
    """Whether an index contains a list, an array or a mask, and no uint8 values, which torch takes for a mask."""
    parts = index if isinstance(index, tuple) else (index,)
    lists = [part for part in parts if isinstance(part, (list, np.ndarray, torch.Tensor))]
    return any(isinstance(part, list) or part.ndim > 0 for part in lists) and not any(
        getattr(part, "dtype", None) in (torch.uint8, np.uint8) for part in lists
    )


def _ranked(call: Call, name: str, steps: list[int]) -> CountedNumbers | None:
    """How many of the selected elements of a tensor are zeros, although other values were not selected; None if there
    are none.

    ``numbers`` are the best of the values that were not selected in the first such row, and the steps of the writes.
    None too if the rows have zeros at only one index along the axis, which may be a class with which the others are
    compared.
    """
    values = call.args[0].detach()
    axis, count, least = _taken(call, name)
    if values.dim() == 0 or not isinstance(axis, int | None) or (name in SORTS and least):
        return None
    rows = values.reshape(1, -1) if axis is None else values.movedim(axis, -1).reshape(-1, values.shape[axis])
    if not 0 < count <= rows.shape[1] or bool(rows.isnan().any()):
        return None
    zeros = rows == 0
    if len(rows) > 1 and int(zeros.any(0).sum()) == 1:
        return None
    chosen = rows.topk(count, dim=1, largest=not least).indices
    left = (~zeros & rows.isfinite()).scatter(1, chosen, value=False)
    wrong = torch.minimum(zeros.gather(1, chosen).sum(1), left.sum(1))
    if not bool(wrong.any()):
        return None
    first = int((wrong > 0).int().argmax())
    others = rows[first][left[first]]
    best = float(others.min() if least else others.max())
    return CountedNumbers("zeroed", int(wrong.sum()), chosen.numel(), (best, *map(float, steps[-STEPS:])))


def _shared(call: Call, _: str, steps: list[int]) -> CountedNumbers | None:
    """How many of the values in a softmax are zeros; ``numbers`` are their mean share in the rows with a zero and
    another value, and the steps of the writes.

    None if their share is very small, or if the rows have zeros at only one index along the axis.
    """
    values, axis = call.args[0].detach(), _given(call, "dim", 1)
    if type(axis) is not int or not values.dim():
        return None
    rows = values.movedim(axis, -1).reshape(-1, values.shape[axis]).double()
    zeros = rows == 0
    some = zeros.any(1) & (~zeros & rows.isfinite()).any(1)
    if not bool(some.any()) or (len(rows) > 1 and int(zeros.any(0).sum()) == 1):
        return None
    share = float((rows[some].softmax(1) * zeros[some]).sum(1).mean())
    if share < SMALL:
        return None
    return CountedNumbers("zeroed", int(zeros.sum()), zeros.numel(), (share, *map(float, steps[-STEPS:])))


def _taken(call: Call, name: str) -> tuple[Any, int, bool]:
    """The axis along which a call selects values (None: all), how many it selects, and whether these are the
    smallest.
    """
    axis = _given(call, "dim", RANKINGS[name])
    if name == "topk":
        largest = _given(call, "largest", 3)
        count = _given(call, "k", 1)
        return -1 if axis is None else axis, count if isinstance(count, int) else 0, largest is False
    if name in SORTS:
        falls = _given(call, "descending", 2)
        return -1 if axis is None else axis, 1, not falls
    return axis, 1, name in LEAST
