"""Counts what a call's numbers show and a trace does not, as it has only the ends of long tensors.

Looked at are masks whose first entry is searched for, and the classes that a weighted loss meets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Span

Kind = Literal["empty", "weights"]
PLAIN = (torch.Tensor, torch.nn.Parameter)
SEARCHES = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in ("argmax", "max"))
CLASSES = frozenset({"torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"})
LOGITS = "torch.nn.functional.binary_cross_entropy_with_logits"
COUNTED = SEARCHES | CLASSES | {LOGITS}
MOST = 1 << 22
"""The number of elements of the largest tensor that is looked at."""
LARGEST = 1000
"""The largest number of classes."""
TABLE = 2
"""The axes of a table of examples and classes."""
LOOKS = 100
"""The calls of one function at one place that are looked at."""
FOUND = 60


class Found(NamedTuple):
    """What :class:`pitfall_lab.trace.Counted` stores, without its step."""

    kind: Kind
    number: int
    of: int
    numbers: tuple[float, ...] = ()


@dataclass(slots=True)
class _Weighted:
    """The step of the first loss with these weights, the examples of each class so far, and all examples."""

    step: int
    counts: list[int]
    of: int = 0


@dataclass(slots=True)
class _Searched:
    """The step of the first search that met an empty row, the empty rows so far, and all rows."""

    step: int | None = None
    empty: int = 0
    of: int = 0

    @property
    def is_mixed(self) -> bool:
        """Whether some rows were empty and some were not."""
        return 0 < self.empty < self.of


@dataclass(slots=True)
class Counts:
    """Is shown calls after they ran; ``finished`` returns what was found, each with its step."""

    _looks: Counter[tuple[Span | None, str]] = field(default_factory=Counter)
    _searched: dict[Span | None, _Searched] = field(default_factory=dict)
    _weighted: dict[tuple[Span | None, tuple[float, ...]], _Weighted] = field(default_factory=dict)

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of this function at this place is to be shown."""
        return (
            name in COUNTED
            and self._looks[span, name] < LOOKS
            and (span not in self._searched or not self._searched[span].is_mixed)
        )

    def after(self, call: Call, step: int) -> None:
        """Count in the arguments of a call that has returned."""
        self._looks[call.span, call.name] += 1
        if call.dispatching or not call.args or not all(type(x) in PLAIN for x in call.args[:1]):
            return
        if call.name in SEARCHES:
            rows = _empty_rows(call)
            if rows is None:
                self._looks[call.span, call.name] = LOOKS  # no mask
            elif call.span in self._searched or len(self._searched) < FOUND:
                known = self._searched.setdefault(call.span, _Searched())
                known.step = step if known.step is None and rows[0] else known.step
                known.empty, known.of = known.empty + rows[0], known.of + rows[1]
            return
        counted = _in_binary_loss(call) if call.name == LOGITS else _in_classes(call)
        if counted is None:
            return
        weights, counts, of = counted
        if (call.span, weights) not in self._weighted and len(self._weighted) >= FOUND:
            return
        met = self._weighted.setdefault((call.span, weights), _Weighted(step, [0] * len(weights)))
        met.counts = [a + b for a, b in zip(met.counts, counts, strict=True)]
        met.of += of

    def finished(self) -> list[tuple[int, Found]]:
        """What was found, in the order of the steps."""
        weighted = [
            (each.step, Found("weights", len(weights), each.of, (*weights, *map(float, each.counts))))
            for (_, weights), each in self._weighted.items()
        ]
        searched = [
            (each.step, Found("empty", each.empty, each.of))
            for each in self._searched.values()
            if each.step is not None and each.is_mixed
        ]
        return sorted([*searched, *weighted])


def _empty_rows(call: Call) -> tuple[int, int] | None:
    """How many of the rows of zeros and ones in which the largest number is searched have no one, and how many rows
    there are; None if it is no search along an axis, or if there are other numbers.
    """
    mask = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", -1 if mask.dim() == 1 else None)
    fits = mask.layout is torch.strided and not mask.is_complex() and not mask.requires_grad
    if type(axis) is not int or not fits or not mask.dim() or not 0 < mask.numel() <= MOST or mask.shape[axis] == 1:
        return None
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        return None
    some = (mask != 0).any(axis)
    return some.numel() - int(some.sum()), some.numel()


def _in_classes(call: Call) -> tuple[tuple[float, ...], list[int], int] | None:
    weights, target = _given(call, "weight", 2), _given(call, "target", 1)
    if weights is None or target is None or target.dtype != torch.int64 or not 0 < target.numel() <= MOST:
        return None
    if target.dim() not in (1, 3) or weights.dim() != 1 or not 1 < weights.numel() <= LARGEST:
        return None
    inside = target[(target >= 0) & (target < weights.numel())]
    counts = torch.bincount(inside, minlength=weights.numel()).tolist()
    return tuple(weights.detach().double().tolist()), counts, inside.numel()


def _in_binary_loss(call: Call) -> tuple[tuple[float, ...], list[int], int] | None:
    weights, target = _given(call, "pos_weight", 5), _given(call, "target", 1)
    if weights is None or target is None or target.dim() != TABLE or not 0 < target.numel() <= MOST:
        return None
    if weights.dim() != 1 or weights.numel() != target.shape[1] or not 1 < weights.numel() <= LARGEST:
        return None
    return tuple(weights.detach().double().tolist()), (target > 1 / 2).sum(0).tolist(), target.shape[0]


def _given(call: Call, name: str, place: int) -> Any:
    """The plain tensor that a call was given, by its name or its place; None if it was given none."""
    value: Any = call.kwargs.get(name, call.args[place] if len(call.args) > place else None)
    is_plain = type(value) in PLAIN
    return value if is_plain and value.layout is torch.strided and value.device.type != "meta" else None
