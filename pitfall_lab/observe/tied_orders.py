"""Finds results that depend on the order in which a sort put equal scores (:class:`TiedOrders`): sums and correlations
of ranks that give equal scores different ranks, and labels cumulated in the order of such scores.

A trace has only the first and last values of long tensors, so the orders of scores of which many are equal are
remembered, and the next calls are examined: a vector that increases or decreases by equal steps along such an order
contains its ranks.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.counted_numbers import CountedNumbers
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Span
from pitfall_lab.trace.operation_facts import spellings

PLAIN = (torch.Tensor, torch.nn.Parameter)
SORTS = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in ("sort", "argsort"))
PICKS = frozenset({"__getitem__", "masked_select"})
"""Calls that select values by a mask, or put them into an order."""
ORDERS = frozenset({"__getitem__", "gather", "index_select", "take", "take_along_dim"})
"""Calls that put labels into the order of a sort."""
MEETS = frozenset(spellings("mul", "matmul", "sub") | {"dot", "inner", "vdot", "stack", "vstack", "cosine_similarity"})
"""Calls that combine the values of two vectors element by element."""
CUMULATES = frozenset({"cumsum"})
LEAST, MOST = 12, 1 << 17
"""How many scores a sort may have, at least and at most."""
SHARE = 0.1
"""The least fraction of the scores that must be equal to another one."""
CHANGE, RANGE = 0.01, 0.03
"""The least difference between the result and the one that mid-ranks give, and between the lowest and the highest
possible result.
"""
LOOKS, FOUND, FOLLOWED, KEPT = 12, 40, 60, 4
"""How many sorts at one position are examined, how many findings are stored, how many calls after a sort of equal
scores are followed, and how many orders are remembered, each at most.
"""
EVEN = 0.05
"""How much the steps of a vector may differ, as a fraction of their mean: it may have half precision."""
PAIR = 2


@dataclass(slots=True)
class _TiedOrder:
    """A sort of scores of which some are equal.

    It has the indices that sort the scores, the number of the group of equal scores of each of them, how many are equal
    to another one, and the step of the sort. ``hits`` are the two-valued vectors that were put into this order.
    """

    step: int
    places: Any
    groups: Any
    tied: int
    hits: list[Any] = field(default_factory=list)

    def ranks(self, numbers: Any) -> Any | None:
        """Return ``numbers`` in this order, if they are the ranks that it gives, perhaps shifted and scaled; else
        None.
        """
        if len(numbers) != len(self.places):
            return None
        ordered = numbers[self.places]
        step = ordered[1] - ordered[0]
        if step == 0 or not np.isfinite(step) or abs(ordered[2] - ordered[1] - step) > EVEN * abs(step):
            return None
        mean = (ordered[-1] - ordered[0]) / (len(ordered) - 1)
        return ordered if bool((abs(np.diff(ordered) - mean) <= EVEN * abs(mean)).all()) else None

    def middle(self, ordered: Any) -> Any:
        """Return, for each number, in this order, the mean over those of equal scores."""
        return (np.bincount(self.groups, ordered) / np.bincount(self.groups))[self.groups]


@dataclass(slots=True)
class TiedOrders:
    """Examines the calls that it receives after they ran (:meth:`after`); ``found`` has the findings, by the position
    and kind of the call: its step and a :class:`CountedNumbers`, those of the largest change there.

    ``number`` of ``of`` scores are equal to another one. ``numbers`` are the result, the result if equal scores share
    their ranks, the lowest and the highest that the order of equal scores can give, and the step of the sort. For the
    kind ``ranked`` these are the fraction of pairs of a selected and another element in which the selected one has the
    higher rank, for ``correlated`` correlations. ``cumulated`` is like ``ranked``, for labels that are cumulated along
    the order.
    """

    found: dict[tuple[Span | None, str], tuple[int, CountedNumbers]] = field(default_factory=dict)
    _looks: Counter[Span | None] = field(default_factory=Counter)
    _orders: deque[_TiedOrder] = field(default_factory=lambda: deque(maxlen=KEPT))
    _left: int = 0

    @property
    def is_following(self) -> bool:
        """Whether the next call must be passed to :meth:`after` too."""
        return self._left > 0

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` at the position ``span`` is to be passed to :meth:`after`:
        sorts, and only the first ``LOOKS`` (12) of them at each position, and none after ``FOUND`` (40) findings.
        """
        return name in SORTS and self._looks[span] < LOOKS and len(self.found) < FOUND

    def after(self, call: Call, result: Any, step: int) -> None:
        """Examine a call that returned ``result``, at ``step`` of the trace.

        A sort of many equal scores is remembered, and the next ``FOLLOWED`` (60) calls are followed; other calls are
        examined only then.
        """
        if self._left:
            self._left -= 1
            if not self._left:
                self._orders.clear()
        if call.dispatching:
            return
        short = call.name.rpartition(".")[2]
        with contextlib.suppress(Exception):  # what cannot be computed again is not followed
            if call.name in SORTS and self.looks(call.name, call.span):
                self._looks[call.span] += 1
                self._sorted(call, result, step)
            elif self._orders:
                for kind, counted in self._counts(call, short):
                    known = self.found.get((call.span, kind))
                    if known is None or _change(known[1]) < _change(counted):
                        self.found[call.span, kind] = step, counted

    def _sorted(self, call: Call, result: Any, step: int) -> None:
        given = next(iter(call.args), call.kwargs.get("input"))
        scores = _numbers(given)
        order = result[1] if isinstance(result, tuple) else result
        if scores is None or not _fits(order):
            return
        places = order.detach().numpy(force=True).copy()
        ordered = scores[places]
        starts = np.diff(ordered) != 0
        groups = np.concatenate([[0], starts.cumsum()])
        sizes = np.bincount(groups)
        tied = int(sizes[sizes > 1].sum())
        if tied < SHARE * len(scores) or len(sizes) == 1 or not np.isfinite(ordered).all():
            return
        self._orders.append(_TiedOrder(step, places, groups, tied))
        self._left = FOLLOWED

    def _counts(self, call: Call, short: str) -> Iterator[tuple[str, CountedNumbers]]:
        """The findings for a call that combines ranks, or labels in an order."""
        if short not in PICKS | ORDERS | MEETS | CUMULATES:
            return
        given = call.args[0] if call.args and type(call.args[0]) in (list, tuple) else list(call.args)
        vectors = [numbers for each in given[:3] if (numbers := _numbers(each)) is not None]
        one = vectors[0] if vectors else None
        if one is None:
            return
        if short in CUMULATES:
            yield from self._cumulated(one)
        if len(vectors) != PAIR or len(vectors[1]) != len(one):
            return
        other = vectors[1]
        if short in ORDERS and self._brought(one, other):
            return
        if short in MEETS or (short in PICKS and given[1].dtype is torch.bool):
            yield from self._met(one, other, is_picked=short in PICKS, is_difference=short in spellings("sub"))

    def _met(
        self, one: Any, other: Any, *, is_picked: bool, is_difference: bool
    ) -> Iterator[tuple[str, CountedNumbers]]:
        for ranks, weights in ((one, other), (other, one)):
            for order in self._orders:
                ordered = order.ranks(ranks)
                if ordered is None or order.ranks(weights) is not None:
                    continue
                by = weights[order.places]
                is_binary = len(np.unique(by)) == PAIR
                if (is_difference and not _is_even(by)) or (not is_binary and (is_picked or len(np.unique(by)) < PAIR)):
                    continue
                others = (each for each in self._orders if each is not order)
                same = next((each for each in others if each.ranks(weights) is not None), None)
                middle = same.middle(weights[same.places])[_inverse(same.places)][order.places] if same else by
                found = _counted("ranked" if is_binary else "correlated", order, ordered, by, middle)
                if found is not None:
                    yield found
                return
            if is_picked:
                return

    def _brought(self, labels: Any, places: Any) -> bool:
        """Whether labels with two values are put into an order that is remembered; the labels are then remembered
        too.
        """
        if len(np.unique(labels)) != PAIR:
            return False
        for order in self._orders:
            if np.array_equal(order.places, places):
                order.hits.append(labels[order.places])
                return True
        return False

    def _cumulated(self, numbers: Any) -> Iterator[tuple[str, CountedNumbers]]:
        for order in self._orders:
            for hits in order.hits:
                high, marks = hits == hits.max(), numbers == numbers.max()
                if len(numbers) == len(hits) and (np.array_equal(high, marks) or np.array_equal(high, ~marks)):
                    along = -np.arange(len(hits), dtype=float)
                    found = _counted("cumulated", order, along, high.astype(float), high.astype(float))
                    if found is not None:
                        yield found
                    return


def _change(counted: CountedNumbers) -> float:
    """The difference between the result and the result if equal scores share their ranks."""
    return abs(counted.numbers[0] - counted.numbers[1])


def _counted(kind: Any, order: _TiedOrder, ranks: Any, weights: Any, middle: Any) -> tuple[str, CountedNumbers] | None:
    """The finding for ranks and weights, both in an order; None if the order of equal scores hardly changes the
    result.
    """
    measure = _correlation if kind == "correlated" else _pairs
    sign = np.sign(ranks[-1] - ranks[0])
    came, meant = measure(ranks, weights, ranks), measure(order.middle(ranks), middle, ranks)
    ends = [measure(ranks, weights[np.lexsort((way * sign * weights, order.groups))], ranks) for way in (-1, 1)]
    low, high = min(ends), max(ends)
    if not abs(came - meant) >= CHANGE or high - low < RANGE:
        return None
    numbers = (float(came), float(meant), float(low), float(high), float(order.step))
    return kind, CountedNumbers(kind, order.tied, len(ranks), numbers)


def _pairs(ranks: Any, weights: Any, whole: Any) -> float:
    """The fraction of pairs of a selected and another element in which the selected one has the higher rank. ``whole``
    are all ranks, each once.
    """
    picked = weights == weights.max()
    low = whole.min()
    places = (ranks - low) / (whole.max() - low) * (len(ranks) - 1)
    count = int(picked.sum())
    return float((places[picked].sum() - count * (count - 1) / 2) / (count * (len(ranks) - count)))


def _correlation(ranks: Any, weights: Any, _: Any) -> float:
    return float(np.corrcoef(ranks, weights)[0, 1])


def _inverse(places: Any) -> Any:
    inverse = np.empty_like(places)
    inverse[places] = np.arange(len(places))
    return inverse


def _is_even(numbers: Any) -> bool:
    """Whether numbers are ranks in some order: sorted, their steps are equal."""
    steps = np.diff(np.sort(numbers))
    return bool(steps.mean() > 0 and (abs(steps - steps.mean()) <= EVEN * steps.mean()).all())


def _numbers(value: Any) -> Any | None:
    """A vector of real numbers, as float64 or, if it has that dtype, as int64; None for anything else."""
    if not _fits(value):
        return None
    return value.detach().to(torch.float64).numpy(force=True) if value.dtype != torch.int64 else value.detach().numpy()


def _fits(value: Any) -> bool:
    return (
        type(value) in PLAIN
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.dim() == 1
        and LEAST <= len(value) <= MOST
        and not value.is_complex()
    )
