"""Counts the zeros, written by an index or a mask, that a ranking puts before other numbers, or that get a share
(:class:`ZeroedEntries`).

A trace shows only the ends of long tensors, so the tensors that such a call wrote to are remembered, and looked at when
their smallest or largest numbers are taken, or a softmax.
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
"""The calls that write a value to chosen places, each with the name and the place of the argument that is written."""
WRITING = frozenset({
    *(f"torch.Tensor.{name}{end}" for name in VALUES for end in (("",) if name.endswith("_") else ("", "_"))),
    *(f"torch.{name}" for name in VALUES if not name.endswith("_")),
})  # fmt: skip
RANKINGS = {"topk": 2, "sort": 1, "argsort": 1, "max": 1, "min": 1, "argmax": 1, "argmin": 1, "amax": 1, "amin": 1}
"""The calls that take the smallest or the largest, each with the place of the argument that says along which axis."""
RANKING = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in RANKINGS)
SHARES = {"softmax", "log_softmax"}
SHARING = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch", "torch.nn.functional") for name in SHARES)
LEAST = frozenset({"min", "argmin", "amin"})
"""Those that take the smallest."""
SORTS = frozenset({"sort", "argsort"})
"""Those of which the first place counts, if the largest comes first."""
SMALL = 1e-3
"""A share that is next to nothing."""
MOST = 1 << 22
"""The number of elements of the largest tensor that is looked at."""
LOOKS, FOUND = 100, 60
"""The calls of one function at one place that are looked at, and the rankings that are noted."""
KEPT, STEPS = 8, 12
"""The tensors that are remembered, and the writes to one of them."""


@dataclass(slots=True)
class _Zeroed:
    """A tensor, the memory and the shape that it had, and the steps at which zeros were written to it."""

    tensor: weakref.ref[torch.Tensor]
    place: tuple[Any, ...]
    steps: list[int]


@dataclass(slots=True)
class ZeroedEntries:
    """Counts in the calls that it is given after they ran (:meth:`after`).

    ``found`` has the rankings in which zeros came first, and the softmaxes in which they got a share: by the span of
    the call, its step and a :class:`CountedNumbers` of the kind ``zeroed``. ``number`` of its ``of`` places went to
    zeros (of a softmax: so many of its numbers are zeros); ``numbers`` are the best number that was left over instead
    (of a softmax: the mean share of a row that zeros got), and the steps of the last writes of zeros.
    """

    found: dict[Span | None, tuple[int, CountedNumbers]] = field(default_factory=dict)
    _looks: Counter[tuple[Span | None, str]] = field(default_factory=Counter)
    _kept: deque[_Zeroed] = field(default_factory=lambda: deque(maxlen=KEPT))

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` at the place ``span`` is to be given to :meth:`after`: only
        writes, rankings and softmaxes, and only the first ``LOOKS`` (100) calls of each at each place. Rankings and
        softmaxes only if zeros were written to a tensor before, nothing was found at this place yet, and fewer than
        ``FOUND`` (60) were.
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
        """Look at a call, at ``step`` of the trace, that has written numbers, has taken the smallest or the largest of
        some, or a softmax. Calls under a dispatch mode are not looked at.
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
    """What two names of the same elements have in common."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return (id(tensor),)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _fits(tensor: Any) -> bool:
    is_plain = type(tensor) in PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.is_floating_point() and tensor.dim() > 0 and 1 < tensor.numel() <= MOST


def _given(call: Call, name: str, place: int) -> Any:
    return call.kwargs.get(name, call.args[place] if len(call.args) > place else None)


def _marks(call: Call, name: str, written: torch.Tensor) -> torch.Tensor | None:
    """Where the call has written zeros, as a mask of the tensor's shape; None if it wrote anything else, or to places
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
    """Whether an index has a list of places, an array or a mask in it; no bytes, which torch takes for a mask."""
    parts = index if isinstance(index, tuple) else (index,)
    lists = [part for part in parts if isinstance(part, (list, np.ndarray, torch.Tensor))]
    return any(isinstance(part, list) or part.ndim > 0 for part in lists) and not any(
        getattr(part, "dtype", None) in (torch.uint8, np.uint8) for part in lists
    )


def _ranked(call: Call, name: str, steps: list[int]) -> CountedNumbers | None:
    """How many of the best places of a tensor are zeros, although other numbers are left over; None where it is none.

    ``numbers`` are the best of the numbers that are left over in the first such row, and the steps of the writes. None
    too where one place along the axis is 0 in all rows, which may be a class that the others are compared with.
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
    """How many of the numbers in a softmax are zeros; ``numbers`` are the share of a row that goes to them on average,
    of the rows with a zero and another number, and the steps of the writes.

    None if their share is next to nothing, or if one place along the axis is 0 in all rows.
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
    """Along which axis (None: all) a call takes how many numbers, and whether these are the smallest."""
    axis = _given(call, "dim", RANKINGS[name])
    if name == "topk":
        largest = _given(call, "largest", 3)
        count = _given(call, "k", 1)
        return -1 if axis is None else axis, count if isinstance(count, int) else 0, largest is False
    if name in SORTS:
        falls = _given(call, "descending", 2)
        return -1 if axis is None else axis, 1, not falls
    return axis, 1, name in LEAST
