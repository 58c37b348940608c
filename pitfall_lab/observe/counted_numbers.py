"""Counts facts about the values of a call that a trace does not show, as it has only the first and last values of long
tensors (:class:`Counts`).

Counted are: rows of masks without a one whose first one is searched for; examples of each class of a weighted loss;
targets that a loss does not ignore; columns of a table that have become constant; class indices that are compared;
entries of sparse tensors stored in several parts; rows of even length whose two middle values differ; values in the
unread triangle of a symmetric matrix; columns with large means of a table that is decomposed; distances that the
rounding of a matrix product has made wrong; and entries of Hermitian matrices that differ from their mirror image.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import private
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Span
from pitfall_lab.trace.operation_facts import spellings

Kind = Literal[
    "empty",
    "weights",
    "kept",
    "blank",
    "parts",
    "renumbered",
    "middle",
    "tied",
    "zeroed",
    "unread",
    "several",
    "unsorted",
    "uncentred",
    "cancelled",
    "ranked",
    "correlated",
    "cumulated",
    "hermitian",
]
PLAIN = (torch.Tensor, torch.nn.Parameter)
SEARCHES = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in ("argmax", "max"))
CLASSES = frozenset({"torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"})
LOGITS = "torch.nn.functional.binary_cross_entropy_with_logits"
_FILLING = spellings("masked_fill", "nan_to_num", in_place=True) | {"where", "__setitem__"}
FILLING = frozenset({"torch.nan_to_num", "torch.where", *(f"torch.Tensor.{name}" for name in _FILLING)})
TAKING = frozenset({"torch.from_numpy", "torch.tensor", "torch.as_tensor"})
"""Functions that make a tensor from a table such as a NumPy array."""
STORED = "torch.Tensor._values"
EQUALS = frozenset({"torch.Tensor.eq", "torch.Tensor.__eq__", "torch.eq"})
"""Element-wise comparisons."""
MEDIANS = frozenset(f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in ("median", "nanmedian"))
SYMMETRIC = frozenset(
    {f"torch.linalg.{name}" for name in ("eigh", "eigvalsh", "cholesky", "cholesky_ex")}
    | {"torch.cholesky", "torch.Tensor.cholesky"}
)
"""Calls that read only one triangle of a matrix and assume that the other one mirrors it."""
SEARCHED = {"torch.searchsorted": ("sorted_sequence", 0), "torch.bucketize": ("boundaries", 1)}
"""Calls that search in sorted rows, with the name and the position of the argument that has these rows."""
DECOMPOSED = frozenset({"torch.linalg.svd", "torch.linalg.svdvals", "torch.svd", "torch.Tensor.svd"})
"""Calls that compute the singular values of a table."""
PRODUCTS = frozenset(
    f"{owner}.{name}" for owner in ("torch.Tensor", "torch") for name in spellings("matmul", "mm") | {"mv"}
)
"""Calls that may multiply a table's transpose and the table, or a matrix and a vector."""
DISTANCES = frozenset({"torch.cdist", "torch.functional.cdist"})
"""Calls that may compute distances by a matrix product."""
COUNTED = (
    EQUALS
    | DISTANCES
    | DECOMPOSED
    | PRODUCTS
    | SEARCHES
    | CLASSES
    | FILLING
    | TAKING
    | MEDIANS
    | SYMMETRIC
    | SEARCHED.keys()
    | {LOGITS, STORED}
)
LOOKED_AT = MEDIANS | SYMMETRIC | SEARCHED.keys() | DECOMPOSED | PRODUCTS | DISTANCES | {STORED}
"""Calls of which, on each line, the first one with a finding is kept."""
MOST = 1 << 22
"""The largest number of elements of a tensor that is examined."""
LARGEST = 1000
"""The largest number of classes."""
TABLE = 2
"""The number of axes of a table of examples and classes."""
LOOKS = 100
"""How many calls of one function on one line are examined at most."""
TABLES = 10
"""How many calls that compute distances on one line are examined at most."""
ROWS = 8
"""The smallest number of rows of a table that is examined for constant columns."""
FOUND = 60
TWICE = 2
WHOLE = 20
"""How many losses on one line are examined until one ignores a target."""
PAIRS, OTHERS = 20, 3
"""``PAIRS``: how many pairs of class indices, and ``OTHERS``: of how many classes, are needed at least to find that
classes are numbered differently.
"""
PURE = 0.9
"""The least fraction of one index among those that are paired with a class."""
MIDDLE, CLOSE = 12, 1e-3
"""``MIDDLE``: the largest number of values whose median is examined; ``CLOSE``: the fraction of their range by which
the two middle ones must differ.
"""
UNLIKE = 1e-2
"""Two mirrored values differ if their difference exceeds this fraction of the largest value off the diagonal."""
ROUNDED = 1e-5
"""A matrix counts as Hermitian up to this fraction of its largest entry."""
TALL, ABSENT, SHARE = 3, 0.3, 0.5
"""A table of examples has at least ``TALL`` rows for each column and at most the fraction ``ABSENT`` of zeros; it is
not centred if the means of its columns make up more than the fraction ``SHARE`` of the sum of all squares.
"""
FARTHER, APART = 1.25, 1e-3
"""A row chosen as nearest is wrong if its distance is more than ``FARTHER`` times the smallest one, and the difference
more than the fraction ``APART`` of the median distance.
"""
WRONG, FEWEST = 0.05, 3
"""The fraction, and the number, of rows for which that must be so."""
COMPARED = 1 << 21
"""How many differences of coordinates are computed at most to find it."""
KEPT = 100
"""Of how many losses on one line the targets are counted at most."""


class CountedNumbers(NamedTuple):
    """What the values of one call show; :class:`pitfall_lab.trace.Counted` stores the same with the call's step.

    ``number`` of ``of`` items are concerned. The items are, by ``kind``:

    - ``empty``: rows of a mask without a one;
    - ``kept``: targets that a loss does not ignore;
    - ``weights``: ``number`` classes with weights and ``of`` examples (``numbers``: the weights, then the number of
      examples of each class);
    - ``parts``: entries of a sparse tensor that are stored several times (``numbers``: the index of one, and how often
      it is stored);
    - ``blank``: constant columns of a table (``numbers``: the number of missing entries of such a column in a table of
      the program, and the rows of that table; ``names``: variables with statistics that are NaN there);
    - ``renumbered``: pairs of class indices that are equal (``numbers``: for each pair, the index in the second tensor
      and the one in the first that it is paired with);
    - ``middle``: rows whose two middle values differ (``numbers``: these two, and half their mean difference);
    - ``unread``: values in the triangle of a matrix that the call does not read, of all there, which are neither 0 nor
      equal to their mirror image (``numbers``: the largest difference, the largest value of the triangle that is read,
      and 1 if that is the lower one);
    - ``several``: rows of ones and zeros, the target of a loss for one class, with more than a one (``numbers``: the
      most ones in a row, and the number of classes);
    - ``unsorted``: values of rows that should be sorted which are smaller than the one before (``numbers``: the first
      such pair);
    - ``uncentred``: columns, of a table which is decomposed or multiplied by its transpose, whose mean is larger than
      their standard deviation (``numbers``: the fraction of the means in the sum of all squares, and the number of
      rows);
    - ``cancelled``: examined rows of a table of distances whose smallest distance is not that of the nearest row
      (``numbers``: for the row with the largest difference, its index, the index of the smallest distance, the computed
      and the exact distance there, the index of the nearest row, and its exact distance; then the largest square of a
      norm);
    - ``hermitian``: entries of a Hermitian matrix, multiplied with a complex vector, that differ from their mirror
      image without the conjugate (``numbers``: the largest such difference, and the largest entry).

    Other kinds are made by other modules. ``numbers`` and ``names`` are empty where nothing is said about them.
    """

    kind: Kind
    number: int
    of: int
    numbers: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class _Weighted:
    """The step of the first loss with these weights, the number of examples of each class so far, and of all
    examples.
    """

    step: int
    counts: list[int]
    of: int = 0


@dataclass(slots=True)
class _Searched:
    """The step of the first search with an empty row, the number of empty rows so far, and of all rows."""

    step: int | None = None
    empty: int = 0
    of: int = 0

    @property
    def is_mixed(self) -> bool:
        """Whether some rows were empty and some were not."""
        return 0 < self.empty < self.of


@dataclass(slots=True)
class Counts:
    """Counts facts in the calls that are passed to :meth:`after`; :meth:`finished` returns what was found."""

    _looks: Counter[tuple[Span | None, str]] = field(default_factory=Counter)
    _searched: dict[Span | None, _Searched] = field(default_factory=dict)
    _blank: dict[Span | None, tuple[int, CountedNumbers]] = field(default_factory=dict)
    _first: dict[Span | None, tuple[int, CountedNumbers]] = field(default_factory=dict)
    _weighted: dict[tuple[Span | None, tuple[float, ...]], _Weighted] = field(default_factory=dict)
    _kept: dict[Span | None, dict[int, CountedNumbers]] = field(default_factory=dict)
    _equals: dict[Span | None, list[tuple[int, Any]]] = field(default_factory=dict)

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` (torch's qualified name) at ``span`` should be passed to
        :meth:`after`: only functions in ``COUNTED``, and only the first ``LOOKS`` (100) calls of each at each span, for
        distances ``TABLES`` (10).

        False, too, once a comparison, search or loss there has shown that there is nothing to count, and once searches
        there have found rows with and rows without a one.
        """
        return (
            name in COUNTED
            and self._looks[span, name] < (TABLES if name in DISTANCES else LOOKS)
            and (span not in self._searched or not self._searched[span].is_mixed)
        )

    def after(self, call: Call, result: Any, step: int) -> None:
        """Count in the arguments, or the ``result``, of a call that has returned; ``step`` is its number in the trace.
        Calls under a dispatch mode are not counted.
        """
        self._looks[call.span, call.name] += 1
        if call.name in FILLING | TAKING:
            blank = _blank_columns(call, result) if not call.dispatching else None
            if blank is not None and len(self._blank) < FOUND:
                self._blank[call.span] = step, blank
            return
        first = call.args[1:2] if call.name in SEARCHED else call.args[:1]  # what is searched for may be a number
        if call.dispatching or not call.args or not all(type(x) in PLAIN for x in first):
            return
        if call.name in EQUALS:
            self._compare(call, step)
        elif call.name in LOOKED_AT:
            found = _look(call, result)
            if found is not None and len(self._first) < FOUND:
                self._first.setdefault(call.span, (step, found))
            elif call.name in PRODUCTS:
                self._looks[call.span, call.name] = LOOKS  # most products are others
        elif call.name in SEARCHES:
            self._search(call, step)
        else:
            self._weigh(call, step)

    def _compare(self, call: Call, step: int) -> None:
        table = _paired_classes(call)
        if table is None:
            self._looks[call.span, call.name] = LOOKS  # no class numbers
        elif call.span in self._equals or len(self._equals) < FOUND:
            self._equals.setdefault(call.span, []).append((step, table))

    def _search(self, call: Call, step: int) -> None:
        rows = _empty_rows(call)
        if rows is None:
            self._looks[call.span, call.name] = LOOKS  # no mask
        elif call.span in self._searched or len(self._searched) < FOUND:
            known = self._searched.setdefault(call.span, _Searched())
            known.step = step if known.step is None and rows[0] else known.step
            known.empty, known.of = known.empty + rows[0], known.of + rows[1]

    def _weigh(self, call: Call, step: int) -> None:
        several = _several_classes(call) if call.name in CLASSES else None
        if several is not None and len(self._first) < FOUND:
            self._first.setdefault(call.span, (step, several))
        counted = _in_binary_loss(call) if call.name == LOGITS else _in_classes(call)
        keeps = call.name in CLASSES and self._keep(call, step)
        if counted is None:
            if not keeps:
                self._looks[call.span, call.name] = LOOKS  # no weights, and all targets count
            return
        weights, counts, of = counted
        if (call.span, weights) not in self._weighted and len(self._weighted) >= FOUND:
            return
        met = self._weighted.setdefault((call.span, weights), _Weighted(step, [0] * len(weights)))
        met.counts = [a + b for a, b in zip(met.counts, counts, strict=True)]
        met.of += of

    def _keep(self, call: Call, step: int) -> bool:
        """Count the targets that a loss does not ignore; return whether further losses on this line should be
        examined.
        """
        kept = _kept_targets(call)
        if kept is None or (call.span not in self._kept and len(self._kept) >= FOUND):
            return False
        known = self._kept.setdefault(call.span, {})
        known.setdefault(step, kept)
        return len(known) < (KEPT if any(each.number < each.of for each in known.values()) else WHOLE)

    def finished(self) -> list[tuple[int, CountedNumbers]]:
        """What was found, as pairs of the call's step and the :class:`CountedNumbers`, in the order of the steps; an
        empty list if there is nothing.
        """
        weighted = [
            (each.step, CountedNumbers("weights", len(weights), each.of, (*weights, *map(float, each.counts))))
            for (_, weights), each in self._weighted.items()
        ]
        searched = [
            (each.step, CountedNumbers("empty", each.empty, each.of))
            for each in self._searched.values()
            if each.step is not None and each.is_mixed
        ]
        kept = [
            (step, each)
            for known in self._kept.values()
            if any(one.number < one.of for one in known.values())
            for step, each in known.items()
        ]
        equals = [_renumbered(tables) for tables in self._equals.values()]
        numbered = [each for each in equals if each is not None]
        return sorted(
            [*searched, *weighted, *kept[: FOUND * 2], *self._blank.values(), *self._first.values(), *numbered]
        )


def _look(call: Call, result: Any) -> CountedNumbers | None:
    """What a call of ``LOOKED_AT`` shows about stored parts, medians, one triangle, sorted rows, a decomposed table, a
    matrix, or distances; None if nothing is found.
    """
    if call.name in DISTANCES:
        return _cancelled(call, result)
    if call.name in SEARCHED:
        return _unsorted(call)
    if call.name in DECOMPOSED:
        return _uncentred(call.args[0])
    if call.name in PRODUCTS:
        table = call.args[1] if len(call.args) > 1 else None
        return _uncentred(table) if _is_transpose(call.args[0], table) else _hermitian(call.args[0], table)
    return _parts(call) if call.name == STORED else _middles(call) if call.name in MEDIANS else _unread(call)


def _unsorted(call: Call) -> CountedNumbers | None:
    """How many values of the rows in which a search expects sorted values are smaller than the one before; None if
    there are none, or if their order is given by ``sorter``.
    """
    name, place = SEARCHED[call.name]
    rows = call.args[place] if len(call.args) > place else call.kwargs.get(name)
    if (
        not isinstance(rows, PLAIN)
        or type(rows) not in PLAIN
        or not _is_held(rows)
        or call.kwargs.get("sorter") is not None
    ):
        return None
    if not _is_held(rows) or not rows.dim() or not 1 < rows.numel() <= MOST:
        return None
    rows = rows.detach()
    falls = rows[..., 1:] < rows[..., :-1]
    count = int(falls.sum())
    if not count:
        return None
    at = falls.nonzero()[0].tolist()
    here, after = (*at[:-1], at[-1]), (*at[:-1], at[-1] + 1)
    return CountedNumbers("unsorted", count, rows.numel(), (float(rows[here]), float(rows[after])))


def _is_transpose(one: torch.Tensor, table: Any) -> bool:
    """Whether ``one`` is a view of ``table`` with its two axes swapped."""
    if type(table) not in PLAIN or one.dim() != TABLE or table.dim() != TABLE or one.layout is not torch.strided:
        return False
    fits = one.shape == table.shape[::-1] and table.layout is torch.strided and one.device.type == "cpu"
    return fits and one.stride() == table.stride()[::-1] and one.data_ptr() == table.data_ptr()


def _uncentred(table: Any) -> CountedNumbers | None:
    """How many columns of a table of examples have a mean larger than their standard deviation.

    None if the means are no large fraction of the sum of squares, if many values are 0, or if there are too few rows.
    """
    if type(table) not in PLAIN or not _is_held(table) or table.dim() != TABLE or not table.is_floating_point():
        return None
    rows, columns = table.shape
    if columns < TABLE or rows < TALL * columns or table.numel() > MOST:
        return None
    numbers = table.detach().double()
    mean, deviation, squares = numbers.mean(0), numbers.std(0), float(numbers.square().sum())
    if not 0 < squares < math.inf or float((numbers == 0).double().mean()) > ABSENT:
        return None
    share = rows * float(mean.square().sum()) / squares
    count = int((mean.abs() > deviation).sum())
    return CountedNumbers("uncentred", count, columns, (share, float(rows))) if share > SHARE else None


def _hermitian(one: torch.Tensor, other: Any) -> CountedNumbers | None:
    """How many entries of a Hermitian matrix that is multiplied with a complex vector differ from their mirror image,
    the entry with the two indices exchanged.

    None if the matrix is not Hermitian, if none of its entries differ, or if all are the negative of the mirror image.
    """
    if type(other) not in PLAIN or not _is_held(one) or not _is_held(other) or not other.is_complex():
        return None
    matrix = (one if one.dim() == TABLE else other).detach()
    vector = other if one.dim() == TABLE else one
    if matrix.dim() != TABLE or matrix.shape[0] != matrix.shape[1] or not 1 < matrix.numel() <= MOST:
        return None
    if not matrix.is_complex() or (vector.dim() > 1 and 1 not in vector.shape):
        return None
    largest = float(matrix.abs().max())
    unlike, opposite = (matrix - matrix.mT).abs(), float((matrix + matrix.mT).abs().max())
    fits = float((matrix - matrix.mH).abs().max()) <= ROUNDED * largest < math.inf
    if not fits or min(float(unlike.max()), opposite) <= UNLIKE * largest:
        return None
    numbers = float(unlike.max()), largest
    return CountedNumbers("hermitian", int((unlike > UNLIKE * largest).sum()), matrix.numel(), numbers)


def _cancelled(call: Call, result: Any) -> CountedNumbers | None:
    """How many rows of a table of distances have their smallest value at a row that is not the nearest one, of at most
    as many rows as ``COMPARED`` differences allow.

    Rows that are equal to the row are ignored. None if there are few such rows, and for other norms.
    """
    one: Any = call.args[0]
    other: Any = call.args[1] if len(call.args) > 1 else call.kwargs.get("x2")
    power = call.args[TABLE] if len(call.args) > TABLE else call.kwargs.get("p", 2)
    if not all(type(x) in PLAIN and _is_held(x) for x in (one, other, result)) or power != 2:
        return None
    if one.dim() < TABLE or one.dim() != other.dim() or not one.is_floating_point() or not result.numel():
        return None
    while one.dim() > TABLE:
        one, other, result = one[0], other[0], result[0]
    rows = min(len(one), COMPARED // max(other.numel(), 1))
    if other.numel() > COMPARED or rows < FEWEST or len(other) < FEWEST:
        return None
    places = torch.arange(rows) * len(one) // rows
    exact, came, largest = _both_distances(one.detach()[places], other.detach(), result.detach()[places])
    taken, nearest = came.argmin(1, keepdim=True), exact.argmin(1, keepdim=True)
    far, near = exact.gather(1, taken)[:, 0], exact.gather(1, nearest)[:, 0]
    wrong = (far > FARTHER * near) & (far - near > APART * exact.median(1).values) & far.isfinite()
    count = int(wrong.sum())
    if count < max(FEWEST, WRONG * rows):
        return None
    row = int((far - near).where(wrong, -math.inf).argmax())
    at, place = int(taken[row]), int(nearest[row])
    numbers = int(places[row]), at, came[row, at], far[row], place, near[row], largest
    return CountedNumbers("cancelled", count, rows, tuple(map(float, numbers)))


def _both_distances(one: torch.Tensor, other: torch.Tensor, came: torch.Tensor) -> tuple[Any, Any, Any]:
    """The exact distances between the rows of two tables, the computed ones, and the largest square of a row's norm;
    both distances are infinite where rows are equal.
    """
    one, other = one.double(), other.double()
    exact = torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
    equal = exact == 0
    largest = torch.maximum(one.square().sum(1).max(), other.square().sum(1).max())
    return exact.masked_fill(equal, math.inf), came.double().masked_fill(equal, math.inf), largest


def _empty_rows(call: Call) -> tuple[int, int] | None:
    """How many of the rows of zeros and ones in which the largest value is searched have no one, and how many rows
    there are; None if it is no search along an axis, or if there are other values.
    """
    mask = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", -1 if mask.dim() == 1 else None)
    fits = _is_held(mask) and not mask.is_complex() and not mask.requires_grad
    if type(axis) is not int or not fits or not mask.dim() or not 0 < mask.numel() <= MOST or mask.shape[axis] == 1:
        return None
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        return None
    some = (mask != 0).any(axis)
    return some.numel() - int(some.sum()), some.numel()


def _parts(call: Call) -> CountedNumbers | None:
    """How many entries of a sparse tensor are stored several times, and how many entries it has; ``numbers`` are the
    index of the entry that is stored most often, and how often. None if there is no such entry.
    """
    sparse = call.args[0]
    if sparse.layout is not torch.sparse_coo or sparse.is_coalesced() or sparse.device.type != "cpu":
        return None
    stored = private.places_stored(sparse)
    if not 0 < stored.numel() <= MOST:
        return None
    places, counts = torch.unique(stored, dim=1, return_counts=True)
    most = int(counts.argmax())
    if counts[most] < TWICE:
        return None
    at = (*map(float, places[:, most].tolist()), float(counts[most]))
    return CountedNumbers("parts", int((counts >= TWICE).sum()), counts.numel(), at)


def _middles(call: Call) -> CountedNumbers | None:
    """In how many rows, of all with finite values, the two middle values differ.

    ``numbers`` are these two of the first such row, and half their difference, averaged over all rows. None if there is
    no such row, or if the length of the rows is odd or large.
    """
    numbers = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
    if not _is_held(numbers) or not numbers.is_floating_point() or not 0 < numbers.numel() <= MOST:
        return None
    rows = numbers.detach().reshape(-1) if axis is None else numbers.detach().movedim(axis, -1)
    count = rows.shape[-1]
    if count % 2 or not TWICE <= count <= MIDDLE:
        return None
    ordered = rows.reshape(-1, count).double().sort(-1).values
    ordered = ordered[ordered.isfinite().all(-1)]
    lower, upper = ordered[:, count // 2 - 1], ordered[:, count // 2]
    differ = upper - lower > CLOSE * (ordered[:, -1] - ordered[:, 0])
    if not bool(differ.any()):
        return None
    first = int(differ.int().argmax())
    found = float(lower[first]), float(upper[first]), float((upper - lower).mean()) / TWICE
    return CountedNumbers("middle", int(differ.sum()), len(ordered), found)


def _unread(call: Call) -> CountedNumbers | None:
    """How many values of the triangle that a call does not read differ from their mirror image; None if all of them
    equal it, up to rounding, or are 0.
    """
    matrix = call.args[0].detach()
    if not _is_held(matrix) or matrix.dim() < TABLE or not 0 < matrix.numel() <= MOST:
        return None
    side = call.args[1] if len(call.args) > 1 else call.kwargs.get("UPLO", call.kwargs.get("upper", False))
    is_lower = side not in ("U", "u", True)
    if not is_lower:
        matrix = matrix.mH
    read, other = matrix.tril(-1), matrix.triu(1)
    unlike = (other - read.mH).abs()
    limit = UNLIKE * max(float(other.abs().max()), float(read.abs().max()))
    count = int(((unlike > limit) & (other.abs() > limit)).sum())
    if not count or math.isnan(limit):
        return None
    n = matrix.shape[-1]
    numbers = float(unlike.max()), float(read.abs().max()), float(is_lower)
    return CountedNumbers("unread", count, matrix.numel() // n // n * n * (n - 1) // 2, numbers)


def _blank_columns(call: Call, result: Any) -> CountedNumbers | None:
    """The columns of a table that a call has filled or converted which are constant as a statistic of the program is
    NaN, although the program has a table in which they are known in more than half of the rows.

    The variables of the running functions are searched. ``numbers`` are the number of missing entries of such a column
    in that table, and its number of rows; ``names`` are the names of the statistics. None if there is no such column.
    """
    table = call.args[0] if call.name == "torch.Tensor.__setitem__" else result
    if not _is_table(table):
        return None
    values = table.detach()
    alike = (values == values[:1]).all(0)
    if not bool(alike.any()) or bool(alike.all()):
        return None
    dead = alike.numpy(force=True)
    frames: list[FrameType] = []
    frame: FrameType | None = call.frame
    while frame is not None:
        if frame.f_globals is call.frame.f_globals:
            frames.insert(0, frame)
        frame = frame.f_back
    held = {id(value): (name, value) for each in frames for name, value in reversed(list(each.f_locals.items()))}
    arrays = [(name, array) for name, value in held.values() if (array := _array(value)) is not None]
    spoiled = [
        (name, gone)
        for name, array in arrays
        if array.size == dead.size and max(array.shape) == dead.size and (gone := np.isnan(array.reshape(-1))).any()
    ]
    spoiled = [(name, gone) for name, gone in spoiled if not (gone & ~dead).any()]
    for _, array in arrays if spoiled else ():
        if array.ndim == TABLE and array.shape[1] == dead.size and len(array) >= ROWS:
            missing = np.isnan(array).sum(0)
            names = [n for n, gone in spoiled if (missing[gone] > 0).all() and (2 * missing[gone] < len(array)).all()]
            if names:
                columns = next(gone for n, gone in spoiled if n == names[0])
                most = float(missing[columns].max())
                return CountedNumbers(
                    "blank", int(columns.sum()), dead.size, (most, float(len(array))), tuple(names[::-1])
                )
    return None


def _is_table(value: Any) -> bool:
    return (
        type(value) in PLAIN
        and value.dim() == TABLE
        and value.is_floating_point()
        and _is_held(value)
        and not value.requires_grad
        and value.shape[0] >= ROWS
        and value.shape[1] > 1
        and value.numel() <= MOST
        and not bool(value.isnan().all(0).any())
    )


def _array(value: Any) -> Any:
    """A floating-point array or tensor as an array; None for other or large ones, and for those without NaN."""
    if type(value) in PLAIN and _is_held(value) and value.dtype in (torch.float32, torch.float64):
        value = value.numpy(force=True) if value.numel() <= MOST else None
    is_array = type(value) is np.ndarray and value.dtype.kind == "f" and 0 < value.size <= MOST and value.ndim > 0
    return value if is_array and np.isnan(value).any() else None


def _in_classes(call: Call) -> tuple[tuple[float, ...], list[int], int] | None:
    weights, target = _given(call, "weight", 2), _given(call, "target", 1)
    if weights is None or target is None or target.dtype != torch.int64 or not 0 < target.numel() <= MOST:
        return None
    if target.dim() not in (1, 3) or weights.dim() != 1 or not 1 < weights.numel() <= LARGEST:
        return None
    inside = target[(target >= 0) & (target < weights.numel())]
    counts = torch.bincount(inside, minlength=weights.numel()).tolist()
    return tuple(weights.detach().double().tolist()), counts, inside.numel()


def _several_classes(call: Call) -> CountedNumbers | None:
    """How many rows of ones and zeros, passed as class probabilities to a loss for one class, have more than a one;
    None if there is no such row, or if the target has other values.
    """
    target, scores = _given(call, "target", 1), call.args[0]
    if target is None or not target.is_floating_point() or target.shape != scores.shape or target.dim() < TABLE:
        return None
    if not 0 < target.numel() <= MOST:
        return None
    rows = target.detach().movedim(1, -1).flatten(0, -2)
    if not bool(((rows == 0) | (rows == 1)).all()):
        return None
    ones = rows.sum(-1)
    count = int((ones > 1).sum())
    numbers = float(ones.max()), float(rows.shape[-1])
    return CountedNumbers("several", count, len(rows), numbers) if count else None


def _kept_targets(call: Call) -> CountedNumbers | None:
    """How many targets of a classification loss are not ``ignore_index``, and how many there are; None for class
    probabilities, and for too many or no targets.
    """
    target, ignored = _given(call, "target", 1), call.kwargs.get("ignore_index", -100)
    if target is None or target.dtype != torch.int64 or type(ignored) is not int or not 0 < target.numel() <= MOST:
        return None
    return CountedNumbers("kept", int((target != ignored).sum()), target.numel())


def _paired_classes(call: Call) -> Any:
    """How often each class index of the first tensor is compared with each of the second, as a table of the first
    (rows) and the second (columns); None if other values are compared.
    """
    other = _given(call, "other", 1)
    one = call.args[0]
    if other is None or one.dtype != torch.int64 or other.dtype != torch.int64 or one.shape != other.shape:
        return None
    if not _is_held(one) or one.dim() != 1 or not 0 < one.numel() <= MOST:
        return None
    count = int(max(one.max(), other.max())) + 1
    if int(min(one.min(), other.min())) < 0 or not OTHERS <= count <= LARGEST:
        return None
    return torch.bincount(one * count + other, minlength=count * count).reshape(count, count).numpy()


def _renumbered(tables: list[tuple[int, Any]]) -> tuple[int, CountedNumbers] | None:
    """The comparison in which two class indices are nearly always paired in the same way, but are not equal: the last
    such comparison, or else all comparisons of this line together.

    ``numbers`` are, for each pair, the index in the second tensor and the one in the first. None if most are equal, or
    the pairs are mixed.
    """
    size = max(len(table) for _, table in tables)
    everything = sum(np.pad(table, (0, size - len(table))) for _, table in tables)
    for step, table in (*reversed(tables), (tables[-1][0], everything)):
        total, agreed = int(table.sum()), int(np.trace(table))
        met = np.flatnonzero(table.sum(0))
        most = table[:, met].argmax(0)
        pure = table[most, met] >= PURE * table[:, met].sum(0)
        if total < PAIRS or 2 * agreed > total or len(met) < OTHERS or not pure.all() or len(set(most)) < len(met):
            continue
        if int((most != met).sum()) > 1:
            pairs = (float(each) for pair in zip(met, most, strict=True) for each in pair)
            return step, CountedNumbers("renumbered", agreed, total, tuple(pairs))
    return None


def _in_binary_loss(call: Call) -> tuple[tuple[float, ...], list[int], int] | None:
    weights, target = _given(call, "pos_weight", 5), _given(call, "target", 1)
    if weights is None or target is None or target.dim() != TABLE or not 0 < target.numel() <= MOST:
        return None
    if weights.dim() != 1 or weights.numel() != target.shape[1] or not 1 < weights.numel() <= LARGEST:
        return None
    return tuple(weights.detach().double().tolist()), (target > 1 / 2).sum(0).tolist(), target.shape[0]


def _given(call: Call, name: str, place: int) -> Any:
    """The plain, dense CPU tensor that a call was given as an argument, by its name or its position; None if there is
    none.
    """
    value: Any = call.kwargs.get(name, call.args[place] if len(call.args) > place else None)
    is_plain = type(value) in PLAIN
    return value if is_plain and _is_held(value) else None


def _is_held(tensor: torch.Tensor) -> bool:
    """Whether the tensor is dense and in CPU memory, where its values can be read at once."""
    return tensor.device.type == "cpu" and tensor.layout is torch.strided
