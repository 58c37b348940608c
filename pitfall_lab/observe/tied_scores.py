"""Counts, for comparisons of all scores of a row with one of them, the other scores that are equal to that one
(:class:`TiedScores`).

A trace has only the first and last values of long tensors, so such comparisons are examined while the program runs:
``scores > scores[label]``, summed, is the rank of the label, and equal scores do not count in this sum.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from pitfall_lab.observe.counted_numbers import CountedNumbers
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Span
from pitfall_lab.trace.operation_facts import spellings

PLAIN = (torch.Tensor, torch.nn.Parameter)
GREATER = frozenset(spellings("gt"))
STRICT = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in spellings("gt", "lt"))
"""Calls that compare values element by element, and give False for equal ones."""
MOST = 1 << 22
"""How many elements a tensor may have to be examined."""
LOOKS, FOUND = 100, 60
"""How many comparisons at one position are examined, and how many positions are stored, each at most."""
PAIR = 2
FEW = 4
"""How many scores a row must have."""


@dataclass(slots=True)
class _Ranked:
    """The step of the first comparison at a position, and sums over all rows so far: the rows with other equal scores,
    all rows, the scores that are better, and half of the other equal ones.
    """

    step: int
    tied: int = 0
    rows: int = 0
    better: float = 0.0
    half: float = 0.0


@dataclass(slots=True)
class TiedScores:
    """Counts equal scores in the comparisons that it receives after they ran (:meth:`after`); :meth:`finished` returns
    the findings.
    """

    _looks: Counter[tuple[Span | None, str]] = field(default_factory=Counter)
    _ranked: dict[Span | None, _Ranked] = field(default_factory=dict)

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` at the position ``span`` is to be passed to :meth:`after`:
        only ``gt`` and ``lt``, only the first ``LOOKS`` (100) calls at each position, and none after one there that
        does not compare scores in this way.
        """
        return name in STRICT and self._looks[span, name] < LOOKS

    def after(self, call: Call, step: int) -> None:
        """Count the equal scores in a comparison that has returned, at ``step`` of the trace, if it compares all scores
        of each row with one of them.
        """
        self._looks[call.span, call.name] += 1
        with contextlib.suppress(Exception):  # what cannot be broadcast here is not counted
            counts = _counts(call) if not call.dispatching else None
            if counts is None:
                self._looks[call.span, call.name] = LOOKS  # no place of one among all
            elif call.span in self._ranked or len(self._ranked) < FOUND:
                known = self._ranked.setdefault(call.span, _Ranked(step))
                tied, rows, better, half = counts
                known.tied, known.rows = known.tied + tied, known.rows + rows
                known.better, known.half = known.better + better, known.half + half

    def finished(self) -> list[tuple[int, CountedNumbers]]:
        """Return the positions in the program where ranks are computed and scores are equal: pairs of the step of the
        first comparison there and a :class:`CountedNumbers` of the kind ``tied``; an empty list if there are none.

        ``number`` of ``of`` rows have other scores equal to the one with which they are compared; ``numbers`` are two
        means of the ranks (from 1): counting only better scores, and counting half of the equal ones, too.
        """
        return [
            (each.step, CountedNumbers("tied", each.tied, each.rows, (first, first + each.half / each.rows)))
            for each in self._ranked.values()
            if each.tied
            for first in [1 + each.better / each.rows]
        ]


def _counts(call: Call) -> tuple[int, int, float, float] | None:
    """For a comparison of all scores of each row with one of them: the number of rows with other equal scores, of all
    rows, of better scores, and half the number of other equal ones; None for any other comparison.

    Rows whose one score is infinite or NaN do not count.
    """
    given = [*call.args, *call.kwargs.values()]
    if len(given) != PAIR or not all(_fits(each) for each in given) or given[0].dtype != given[1].dtype:
        return None
    one, other = (each.detach() for each in given)
    table, single = (one, other) if one.numel() > other.numel() else (other, one)
    is_greater = (call.name.rpartition(".")[2] in GREATER) is (table is one)
    if single.dim() > table.dim() or table.numel() > MOST:
        return None
    lengths = (1,) * (table.dim() - single.dim()) + tuple(single.shape)
    axes = [axis for axis, length in enumerate(lengths) if length != table.shape[axis]]
    if len(axes) != 1 or lengths[axes[0]] != 1 or table.shape[axes[0]] < FEW:
        return None
    single, axis = single.reshape(lengths), axes[0]
    equal = (table == single).sum(axis)
    finite = single.squeeze(axis).isfinite()
    if not bool(finite.any()):
        return None
    better = ((table > single) if is_greater else (table < single)).sum(axis)[finite]
    is_among = bool((equal[finite] >= 1).all())  # else the one score is not among those that it is compared with
    others = equal[finite] - int(is_among)
    if not is_among and not bool(others.any()):
        return None
    return int((others > 0).sum()), int(finite.sum()), float(better.sum()), float(others.sum()) / PAIR


def _fits(value: Any) -> bool:
    return type(value) in PLAIN and value.layout is torch.strided and value.device.type == "cpu" and value.numel() > 0
