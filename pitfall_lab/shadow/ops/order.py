"""Cumulative results, order statistics and counting: cummax, cumprod, kthvalue, mode, quantile,
unique, searchsorted, bincount.
"""

# ruff: noqa: A002, ARG001, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import BOOL, INT64, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.ops import scatter
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    edges,
    finite_vjp,
    in_place,
    new,
    own,
    pure,
    records,
    tensor_only,
    wrap_dim,
)
from pitfall_lab.shadow.ops.reduce import Pair, along, cumsum_vjp, evenly_rule, reduced_dims, reduced_shape, widen
from pitfall_lab.shadow.registry import add, do, op
from pitfall_lab.shadow.storage import ShadowTensor


def _numbers(e: Engine, *tensors: ShadowTensor) -> list[np.ndarray]:
    """The values of the operands; declines the call if they are unknown, since the
    shape of the result depends on them.
    """
    tensor_only(*tensors)
    found = arrays(e, tensors)
    if found is None:
        raise Unmodelled("a result whose shape depends on values that are not modelled")
    return found


# -- running results


def _running(name: str, better: Callable[[Any, Any], Any]) -> None:
    def places(x: np.ndarray, at: int) -> np.ndarray:
        moved = np.moveaxis(x, at, 0)
        index = np.zeros(moved.shape, np.int64)
        for k in range(1, moved.shape[0]):
            best = np.take_along_axis(moved, index[k - 1 : k], 0)[0]
            index[k] = np.where(better(moved[k], best) | np.isnan(moved[k]), k, index[k - 1])
        return np.moveaxis(index, 0, at)

    def run(e: Engine, input: Any, dim: int) -> Pair:
        tensor_only(input)
        if not input.ndim and dim not in (0, -1):
            raise ShadowError(
                "IndexError", f"{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}", "shape"
            )
        at, before = wrap_dim(dim, input.ndim), input.shape
        if not before or input.dtype.category != 2:
            raise Unmodelled(f"{name} of a tensor of this shape or dtype")
        node = None
        if records(e, input):

            def vjp(gs: list[Any], s: Any) -> tuple[Any]:
                if gs[0] is None:
                    return (None,)
                full = np.zeros(before, gs[0].dtype)
                grid: list[Any] = list(np.indices(before))
                grid[at] = s.indices
                np.add.at(full, tuple(grid), gs[0])
                return (Written(full, 2),)

            node = e.graph.new_node(f"{name.capitalize()}Backward0", edges(e, (input,)), vjp)
            node.multiple = True
            node.keep(Saved("self", input))
        found = arrays(e, (input,))
        index = None if found is None else places(found[0], at)
        values = None if found is None or index is None else np.take_along_axis(found[0], index, at)
        pair = Pair((new(e, before, input.dtype, values), new(e, before, INT64, index)))
        if node is not None:
            own(node, pair[0])
            node.outputs.append((before, INT64))
            node.keep(Saved("indices", pair[1], is_output=True))
        return pair

    add(name, run, "pure", "indices, self", (f"a.{name}(0)", f"torch.{name}(a, 1)"), traits=("deterministic",))


_running("cummax", np.greater_equal)
_running("cummin", np.less_equal)


def _cumprod_rule(at: int) -> OpRule:
    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        if s.self.shape[at] == 1:
            return (g,)
        if np.any(s.self == 0):
            return (_cumprod_with_zeros(g, s.self, s.result, at),)
        back = np.flip(np.cumsum(np.flip(g * s.result, at), at), at)
        return (back / s.self,)

    return OpRule("CumprodBackward0", lambda x: np.cumprod(x, at), (Keep("self", 0), Keep("result", "result")), vjp)


def _cumprod_with_zeros(g: np.ndarray, x: np.ndarray, result: np.ndarray, at: int) -> np.ndarray:
    """The gradient of cumprod with zeros: the usual one before the first zero, at it the
    sum up to the second, 0 after it.

    Source: ``cumprod_backward`` in ``torch/csrc/autograd/FunctionsManual.cpp``.
    """
    count = np.cumsum(x == 0, at)
    before, between = count == 0, count == 1
    first = np.argmax(between, at, keepdims=True)
    here = np.zeros_like(between)
    np.put_along_axis(here, first, True, at)
    here &= between
    tail = (np.cumprod(np.where(between & ~here, x, 1), at) * np.where(between, g, 0)).sum(at, keepdims=True)
    lead = np.where(first == 0, 1, np.take_along_axis(result, np.maximum(first - 1, 0), at))
    straight = np.flip(np.cumsum(np.flip(np.where(before, g * result, 0), at), at), at) / x
    return np.asarray(np.where(before, straight, np.where(here, tail * lead, 0)).astype(g.dtype))


def _whole_to_long(input: ShadowTensor, dtype: Any) -> DType:
    return DType(dtype) if dtype else (INT64 if input.dtype.category < 2 else input.dtype)


@op(
    "cumprod",
    saves="result, self",
    samples=("a.cumprod(1)", "torch.cumprod(b, 0)", "n.cumprod(0)", "(a * 0).cumprod(1)"),
)
def cumprod(e: Engine, input: Any, dim: int, *, dtype: Any = None) -> ShadowTensor:
    tensor_only(input)
    kind = _whole_to_long(input, dtype)
    if not input.ndim or (kind != input.dtype and records(e, input)):
        raise Unmodelled("cumprod of a 0-dim tensor, or of one that requires grad with a conversion to another dtype")
    return pure(e, _cumprod_rule(wrap_dim(dim, input.ndim)), (input,), input.shape, kind, kind)


@op(".cumprod_", kind="inplace", saves="result, a clone of self", samples=("h.cumprod_(1)",))
def cumprod_(e: Engine, self: Any, dim: int) -> ShadowTensor:
    tensor_only(self)
    rule = _cumprod_rule(wrap_dim(dim, self.ndim))
    _check_running(self, "cumprod")
    return in_place(e, rule, (self,), elementwise=False, separate=True)


def _check_running(self: ShadowTensor, name: str) -> None:
    if self.dtype == BOOL and self.ndim and self.numel:
        raise no_kernel(f"{name}_out_cpu", "Bool")


@op(".cumsum_", kind="inplace", samples=("h.cumsum_(0)", "n.cumsum_(1)"))
def cumsum_(e: Engine, self: Any, dim: int) -> ShadowTensor:
    tensor_only(self)
    at = wrap_dim(dim, self.ndim)
    _check_running(self, "cumsum")
    rule = OpRule("CumsumBackward0", lambda x: np.cumsum(x, at) if x.ndim else x, (), partial(cumsum_vjp, at))
    return in_place(e, rule, (self,), elementwise=False, separate=True)


@op("logcumsumexp", saves="result, self", samples=("a.logcumsumexp(1)", "torch.logcumsumexp(b, 0)"))
def logcumsumexp(e: Engine, input: Any, dim: int) -> ShadowTensor:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    if not input.ndim or input.dtype.category != 2:
        raise Unmodelled("logcumsumexp of a tensor of this shape or dtype")

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        if g.dtype != np.float64 and np.abs(s.result).max(initial=0) > 64:
            raise Unmodelled(
                "the gradient of logcumsumexp with results over 64, whose rounding exceeds a comparison's tolerance"
            )

        # each element counts in every later sum by its share exp(x - sum); what is above zero and
        # what is below are taken apart, and NaN is neither
        def part(g: np.ndarray) -> np.ndarray:
            shares = np.log(np.where(g > 0, g, 0).astype(np.float64)) - s.result
            result: np.ndarray = np.exp(np.flip(np.logaddexp.accumulate(np.flip(shares, at), at), at) + s.self)
            return result

        return ((part(g) - part(-g)).astype(g.dtype),)

    keeps = Keep("self", 0), Keep("result", "result")
    rule = OpRule("LogcumsumexpBackward0", lambda x: np.logaddexp.accumulate(x, at), keeps, finite_vjp(vjp))
    return pure(e, rule, (input,), input.shape, input.dtype)


# -- places in an order

KEPT_IN_ORDER = 16
"""The longest row that ``std::sort`` sorts by insertion, which leaves equal elements in their order."""


@op(
    "kthvalue",
    saves="indices",
    samples=("a.kthvalue(2)", "torch.kthvalue(a, 1, 0, keepdim=True)"),
    traits=("deterministic",),
)
def kthvalue(e: Engine, input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    if not input.ndim or not 1 <= k <= input.shape[at]:
        raise Unmodelled("kthvalue of a 0-dim tensor, or with k out of range")

    def place(x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        found = np.take(np.argsort(x, axis=axis, kind="stable"), [k - 1], axis)
        chosen = np.take_along_axis(x, found, axis)
        if (((x == chosen) | (np.isnan(x) & np.isnan(chosen))).sum(axis) > 1).any():
            raise Unmodelled("the index of one of several equal elements")  # torch only partitions the row
        return found if keepdims else np.squeeze(found, axis)

    return along(e, "KthvalueBackward0", input, at, keepdim, place)


@op("mode", saves="indices", samples=("a.mode()", "torch.mode(a.round(), 0)"), traits=("deterministic",))
def mode(e: Engine, input: Any, dim: int = -1, keepdim: bool = False) -> Pair:
    tensor_only(input)
    if not input.ndim:
        raise Unmodelled("mode of a 0-dim tensor")

    def place(x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        def last_of_most_frequent(row: np.ndarray) -> int:
            values, counts = np.unique(row, return_counts=True)
            return int(np.flatnonzero(row == values[np.argmax(counts)])[-1])

        if np.isnan(x).any():
            raise Unmodelled("mode of a tensor with NaN, which is not equal to itself")
        found = np.apply_along_axis(last_of_most_frequent, axis, x)
        if (
            x.shape[axis] > KEPT_IN_ORDER
            and ((x == np.take_along_axis(x, np.expand_dims(found, axis), axis)).sum(axis) > 1).any()
        ):
            raise Unmodelled(
                "the index of one of several equal elements"
            )  # torch sorts a long row, and equal elements change places
        return np.expand_dims(found, axis) if keepdims else found

    return along(e, "ModeBackward0", input, wrap_dim(dim, input.ndim), keepdim, place)


@op("msort", saves="indices", samples=("a.msort()",), traits=("deterministic",))
def msort(e: Engine, input: Any) -> ShadowTensor:
    return scatter.sort(e, input, 0)[0]


@op("nanmedian", saves="result, self", samples=("a.nanmedian()",), traits=("deterministic",))
def nanmedian(e: Engine, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    tensor_only(input)
    if dim is not None or not input.numel:
        raise Unmodelled("nanmedian with dim, or of an empty tensor")

    def forward(x: np.ndarray) -> Any:
        known = np.sort(x[~np.isnan(x)])
        return known[(known.size - 1) // 2] if known.size else np.nan

    return pure(e, evenly_rule("NanmedianBackward0", forward), (input,), (), input.dtype)


@op("nansum", saves="self", samples=("a.nansum()", "torch.nansum(a, 0)"))
def nansum(e: Engine, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ShadowTensor:
    tensor_only(input)
    if dtype is not None or input.dtype.category != 2:
        raise Unmodelled("nansum with dtype, or of a tensor that is not floating point")
    dims, before = reduced_dims(dim, input.ndim), input.shape
    rule = OpRule(
        "NansumBackward0", lambda x: np.nansum(x, axis=dims, keepdims=keepdim, dtype=np.float64), (Keep("self", 0),),
        lambda g, s: (widen(g, before, dims, keepdim) * ~np.isnan(s.self),),
    )  # fmt: skip
    return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), input.dtype)


class MinMax(Pair):
    """A pair of tensors named ``min`` and ``max``, as ``torch.aminmax`` returns it."""

    __slots__ = ()
    fields = ("min", "max")


@op("aminmax", saves="max, min, self", samples=("p.aminmax()", "torch.aminmax(p, dim=1)", "p.aminmax().max"))
def aminmax(e: Engine, input: Any, *, dim: Any = None, keepdim: bool = False) -> MinMax:
    tensor_only(input)
    if records(e, input):
        raise Unmodelled("the gradient of aminmax")
    dims = () if dim is None else dim
    return MinMax((do(e, "amin", input, dims, keepdim), do(e, "amax", input, dims, keepdim)))


def _quantile(
    e: Engine, input: Any, q: Any, dim: Any, keepdim: bool, interpolation: str, *, without_nan: bool
) -> ShadowTensor:
    """A quantile along an axis, or of all elements; NaN in it makes it NaN, or is left out."""
    tensor_only(input)
    if records(e, input) or isinstance(q, ShadowTensor) or interpolation != "linear":
        raise Unmodelled("quantile with q as a tensor, with interpolation, or of a tensor that requires grad")
    if not input.numel:
        raise runtime("quantile() input tensor must be non-empty", "shape")

    axis, of = None if dim is None else wrap_dim(dim, input.ndim), np.nanquantile if without_nan else np.quantile
    dims = reduced_dims(dim, input.ndim)

    def forward(x: np.ndarray) -> Any:
        nan = np.isnan(x)
        found = of(x.astype(np.float64), q, axis=axis, keepdims=keepdim)
        return np.where((nan.all if without_nan else nan.any)(axis=dims, keepdims=keepdim), np.nan, found)

    result = pure(e, OpRule("", forward), (input,), reduced_shape(input.shape, dims, keepdim), input.dtype)
    e.graph.bump(result.counter, 2)  # it is interpolated and squeezed in place
    return result


@op(
    "quantile",
    saves="index, indices, weight, and what gather saves",
    samples=("p.quantile(0.5)", "torch.quantile(p, 0.3, dim=1)", "p.log().quantile(0.5, dim=1)"),
)
def quantile(
    e: Engine, input: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> ShadowTensor:
    return _quantile(e, input, q, dim, keepdim, interpolation, without_nan=False)


@op(
    "nanquantile",
    saves="index, indices, weight, and what gather saves",
    samples=("p.nanquantile(0.5)", "torch.nanquantile(p, 0.3, dim=1)", "p.log().nanquantile(0.5, dim=1)"),
)
def nanquantile(
    e: Engine, input: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> ShadowTensor:
    return _quantile(e, input, q, dim, keepdim, interpolation, without_nan=True)


@op("torch.searchsorted", samples=("torch.searchsorted(n[0], n)", "torch.searchsorted(n[0], 2, right=True)"))
def searchsorted(e: Engine, sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False,
                 side: Any = None, sorter: Any = None) -> ShadowTensor:  # fmt: skip
    tensor_only(sorted_sequence)
    if sorted_sequence.ndim != 1 or sorter is not None:
        raise Unmodelled("searchsorted with sorter, or with a sorted_sequence that is not 1-D")
    way: Any = side or ("right" if right else "left")
    kind = DType("int32") if out_int32 else INT64

    def search(row: np.ndarray, x: Any = input) -> np.ndarray | None:
        if not np.all(row[:-1] <= row[1:]):
            return None  # where a search in what is not sorted ends depends on where it begins
        return np.asarray(np.searchsorted(row, x, way))

    if not isinstance(input, ShadowTensor):
        return pure(e, OpRule("", search), (sorted_sequence,), (), kind)
    return pure(e, OpRule("", search), (sorted_sequence, input), input.shape, kind)


@op(
    "torch.bucketize",
    samples=("torch.bucketize(p, torch.tensor([0.0, 1.0, 3.0]))", "torch.bucketize(n, n[0], right=True)"),
)
def bucketize(e: Engine, input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> ShadowTensor:
    return searchsorted(e, boundaries, input, out_int32=out_int32, right=right)


# -- counting


@op("count_nonzero", samples=("a.count_nonzero()", "torch.count_nonzero(n - 1, 0)"))
def count_nonzero(e: Engine, input: Any, dim: Any = None) -> ShadowTensor:
    tensor_only(input)
    dims = reduced_dims(dim, input.ndim)
    return pure(
        e,
        OpRule("", lambda x: np.count_nonzero(x, axis=dims)),
        (input,),
        reduced_shape(input.shape, dims, False),
        INT64,
    )


@op("bincount", samples=("i.bincount()", "torch.bincount(n.reshape(6), minlength=9)"))
def bincount(e: Engine, input: Any, weights: Any = None, minlength: int = 0) -> ShadowTensor:
    if weights is not None:
        raise Unmodelled("bincount with weights")
    [x] = _numbers(e, input)
    if x.ndim != 1 or x.dtype.kind not in "iu" or np.any(x < 0):
        raise Unmodelled("bincount of a tensor that is not 1-D, not an integer one, or holds negative numbers")
    counts = np.bincount(x, minlength=minlength)
    return new(e, counts.shape, INT64, counts)


@op("histc", samples=("p.histc(4)", "torch.histc(p, 3, 0, 3)"))
def histc(e: Engine, input: Any, bins: int = 100, min: float = 0, max: float = 0) -> ShadowTensor:
    [x] = _numbers(e, input)
    if records(e, input) or x.dtype.kind != "f" or not x.size:
        raise Unmodelled("histc of a tensor that is empty, not floating point, or requires grad")
    low, high = (float(x.min()), float(x.max())) if min == max == 0 else (min, max)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    counts, _ = np.histogram(x, bins, (low, high))
    return new(e, (bins,), input.dtype, counts)


@op("torch.isin", samples=("torch.isin(n, i)", "torch.isin(n, i, invert=True)"))
def isin(
    e: Engine, elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> ShadowTensor:
    tensor_only(elements, test_elements)
    return pure(
        e,
        OpRule("", lambda x, y: np.isin(x, y, invert=invert)),
        (elements, test_elements),
        elements.shape,
        DType("bool"),
    )


@op("torch.argwhere", ".argwhere", samples=("torch.argwhere(m)", "(n > 2).argwhere()"))
def argwhere(e: Engine, input: Any) -> ShadowTensor:
    [x] = _numbers(e, input)
    found = np.argwhere(x)
    # torch writes the places column after column
    return new(e, found.shape, INT64, found, (1, found.shape[0]))


@op("nonzero", samples=("m.nonzero()", "torch.nonzero(m, as_tuple=True)", "(n > 2)[0].nonzero()"))
def nonzero(e: Engine, input: Any, *, as_tuple: bool = False) -> Any:
    tensor_only(input)
    found = argwhere(e, do(e, "unsqueeze", input, 0) if as_tuple and not input.ndim else input)
    return do(e, "unbind", found, 1) if as_tuple else found


@op(
    "torch.functional.unique",
    "torch.unique",
    ".unique",
    samples=("n.unique()", "torch.unique(m)", "torch.unique(n, return_counts=True)[1]"),
)
def unique(
    e: Engine,
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    if dim is not None:
        raise Unmodelled("unique with dim")
    [x] = _numbers(e, input)
    if records(e, input):
        raise Unmodelled("unique of a tensor that requires grad")
    values, inverse, counts = np.unique(x.reshape(-1), return_inverse=True, return_counts=True)
    results = [new(e, values.shape, input.dtype, values)]
    results += [new(e, x.shape, INT64, inverse.reshape(x.shape))] if return_inverse else []
    results += [new(e, counts.shape, INT64, counts)] if return_counts else []
    return results[0] if len(results) == 1 else tuple(results)


@op(
    "torch.functional.unique_consecutive",
    "torch.unique_consecutive",
    ".unique_consecutive",
    samples=("(n // 2).unique_consecutive()",),
)
def unique_consecutive(
    e: Engine, input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    if dim is not None or return_inverse or return_counts:
        raise Unmodelled("unique_consecutive with return_inverse, return_counts or dim")
    if records(e, input):
        raise Unmodelled("the gradient of unique_consecutive, which torch does not implement either")
    [x] = _numbers(e, input)
    flat = x.reshape(-1)
    kept = flat[np.concatenate([[True], flat[1:] != flat[:-1]])] if flat.size else flat
    return new(e, kept.shape, input.dtype, kept)


# -- differences


@op("diff", samples=("a.diff()", "torch.diff(a, dim=0)", "a.diff(n=2)"))
def diff(e: Engine, input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> ShadowTensor:
    tensor_only(input)
    if prepend is not None or append is not None or not input.ndim or n < 1 or input.dtype == "bool":
        raise Unmodelled("diff with prepend, append or n below 1, or of a 0-dim or bool tensor")
    at, result = wrap_dim(dim, input.ndim), input
    for _ in range(n):
        size = result.shape[at]
        if size < 2:
            raise Unmodelled("diff along a dimension with fewer than two elements")
        first = do(e, "narrow", result, at, 0, size - 1)
        second = do(e, "narrow", result, at, 1, size - 1)
        result = do(e, "sub", second, first)
    answer: ShadowTensor = result
    return answer
