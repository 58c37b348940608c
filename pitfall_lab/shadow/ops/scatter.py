"""Writing at places given by index tensors, and reading back sorted: index_put,
index_add, scatter, take, sort, topk.
"""

# ruff: noqa: A002, ARG001, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import BOOL, INT64
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import laid_like
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.layout import made_of, preserved
from pitfall_lab.shadow.ops import indexing
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    as_shape,
    check_history,
    check_no_overlap,
    check_overlap,
    edges,
    in_place,
    index_grid,
    new,
    no_room,
    own,
    pure,
    reads_what_it_writes,
    records,
    refusing,
    tensor_only,
    wrap_dim,
)
from pitfall_lab.shadow.ops.reduce import Pair, along, evenly_rule, repeat
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, is_dense

# -- index_put, index_add, index_copy, index_fill


def _seen_through(picked: np.ndarray) -> Written:
    """Elements taken from a gradient, marked as one that torch passes on as a view (``expand_as``)
    and so never adds to in place.
    """
    return Written(picked, 0, seen_through=True)


def _check_count(self: ShadowTensor, indices: Any) -> None:
    if len(indices) > self.ndim:
        text = f"too many indices for tensor of dimension {self.ndim} (got {len(indices)})"
        raise ShadowError("IndexError", text, "shape", tensor=self)


@op(
    ".index_put_",
    kind="inplace",
    saves="indices",
    samples=("h.index_put_((i,), c)", "p.index_put_((i,), torch.ones(3))"),
)
def index_put_(e: Engine, self: Any, indices: Any, values: Any, accumulate: bool = False) -> ShadowTensor:
    tensor_only(self, values, *indices)
    indexing.refuse_bytes(indices)
    if accumulate:
        raise Unmodelled("index_put_ with accumulate=True")
    _check_count(self, indices)
    indexing.put(e, self, list(indices), values, assigned=False)
    result: ShadowTensor = self
    return result


@op("index_put", saves="indices", samples=("a.index_put((i,), c)", "p.index_put((i,), c)"))
def index_put(e: Engine, input: Any, indices: Any, values: Any, accumulate: bool = False) -> ShadowTensor:
    tensor_only(input, values, *indices)
    indexing.refuse_bytes(indices)
    check_history(e, input, values)
    _check_count(input, indices)
    if any(x.dtype.category == 0 for x in indices) or values.dtype != input.dtype:
        raise Unmodelled("index_put with a mask, or with values of another dtype")
    shape, outside = indexing.places_to_write(input, list(indices))
    indexing.check_broadcasts(values, shape)
    if outside is not None:
        raise outside[1]

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray]:
        places = tuple(getattr(s, f"indices{k}") for k in range(len(indices)))
        kept = g.copy()
        if not accumulate:
            kept[places] = 0
        return kept, g[places]

    def forward(x: np.ndarray, v: np.ndarray, *places: np.ndarray) -> np.ndarray:
        full = x.copy()
        if accumulate:
            np.add.at(full, places, np.broadcast_to(v, shape))
        else:
            full[places] = v
        return full

    keeps = tuple(Keep(f"indices{k}", 2 + k) for k in range(len(indices)))
    return pure(
        e,
        OpRule("IndexPutBackward0", forward, keeps, vjp, edges=2),
        (input, values, *indices),
        input.shape,
        input.dtype,
        stride=preserved(input),
    )


def _check_places(name: str, index: np.ndarray, dim: int, size: int, *, inplace: bool) -> None:
    outside = index[(index < 0) | (index >= size)]
    if outside.size and (name != "index_copy" or inplace or not size):
        raise Unmodelled(f"{name} with an index out of range")  # which is found out on the way
    if outside.size:
        raise ShadowError(
            "IndexError",
            f"index_copy_(): index {outside[0]} is out of bounds for dimension {dim} with size {size}",
            "shape",
        )


def _along(
    name: str, node: str, place: Callable[..., Any], vjp: Callable[..., Any], keeps: tuple[Keep, ...], sample: str
) -> None:
    def make(dim: int, *, inplace: bool) -> OpRule:
        def forward(x: np.ndarray, src: np.ndarray, k: np.ndarray) -> np.ndarray:
            full = x.copy()
            _check_places(name, k, dim, x.shape[dim], inplace=inplace)
            place(full, (*(slice(None),) * dim, k), src)
            return full

        return OpRule(node, forward, keeps, lambda g, s: vjp(g, s, (*(slice(None),) * dim, s.index)), edges=2)

    def check(self: Any, dim: int, index: Any, source: Any) -> int:
        tensor_only(self, source)
        indexing.integer_index(index)
        at = wrap_dim(dim, self.ndim)
        if (
            index.ndim != 1
            or source.ndim != self.ndim
            or source.dtype != self.dtype
            or source.shape[at] != index.shape[0]
        ):
            raise Unmodelled(f"{name} with operands of incompatible shapes or dtypes")
        if any(n != m for d, (n, m) in enumerate(zip(self.shape, source.shape, strict=True)) if d != at):
            raise Unmodelled(f"{name} with operands of incompatible shapes or dtypes")
        if name == "index_copy" and index.dtype != INT64:
            raise runtime(
                f"index_copy_(): Expected a long tensor for index, but got {index.dtype.scalar_name}", "dtype"
            )
        return at

    def run(e: Engine, input: Any, dim: int, index: Any, source: Any) -> ShadowTensor:
        at = check(input, dim, index, source)
        return pure(e, make(at, inplace=False), (input, source, index), input.shape, input.dtype)

    def run_in_place(e: Engine, self: Any, dim: int, index: Any, source: Any) -> ShadowTensor:
        tensor_only(self, source)
        e.graph.check_inplace(self, records(e, self, source))
        at = check(self, dim, index, source)
        check_overlap(self)
        check_no_overlap(self, index, source)
        if reads_what_it_writes(self, (self, source)):
            raise Unmodelled(f"{name}_ on a tensor in which several elements share one memory location")
        return in_place(e, make(at, inplace=True), (self, source, index), elementwise=False)

    add(name, run, "pure", "index, source", (f"a.{name}{sample}",))
    add(f".{name}_", run_in_place, "inplace", "index, source", (f"h.{name}_{sample}",))


_along(
    "index_add",
    "IndexAddBackward0",
    np.add.at,
    lambda g, s, k: (g, _seen_through(g[k]) if s.index is not None else None),
    (Keep("index", 2, 1), Keep("source", 1, 1)),
    "(0, i, b)",
)


def _put(full: np.ndarray, k: Any, src: np.ndarray) -> None:
    full[k] = src


def _zeroed(g: np.ndarray, k: Any) -> np.ndarray:
    kept = laid_like(g.copy(), g)
    kept[k] = 0
    result: np.ndarray = kept
    return result


_along(
    "index_copy", "IndexCopyBackward0", _put, lambda g, s, k: (_zeroed(g, k), _seen_through(g[k])),
    (Keep("index", 2), Keep("source", 1, 1)), "(0, i, b)",
)  # fmt: skip


def _fill_index(index: Any, dim: int, ndim: int) -> None:
    indexing.integer_index(index)
    if index.dtype != INT64:
        raise ShadowError("IndexError", "index_fill_(): Expected dtype int64 for index.", "dtype")
    wrap_dim(dim, ndim)
    if index.ndim > 1:
        raise runtime("Index has to be a vector/scalar", "shape")


def _index_fill_rule(at: int, value: float) -> OpRule:
    def forward(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        full = x.copy()
        places: tuple[Any, ...] = (*(slice(None),) * at, k)
        full[places] = value
        return full

    return OpRule(
        "IndexFillBackward0",
        forward,
        (Keep("index", 1),),
        lambda g, s: (_zeroed(g, (*(slice(None),) * at, s.index)),),
        edges=1,
    )


@op("index_fill", saves="index", samples=("a.index_fill(0, i[:1], 1.0)",))
def index_fill(e: Engine, input: Any, dim: int, index: Any, value: Any) -> ShadowTensor:
    tensor_only(input)
    check_history(e, input)
    _fill_index(index, dim, input.ndim)
    if not isinstance(value, bool | int | float):
        raise Unmodelled("index_fill with a tensor or a complex number as value")
    rule = refusing(_index_fill_rule(wrap_dim(dim, input.ndim), value), no_room(input.dtype, value))
    return pure(e, rule, (input, index), input.shape, input.dtype, stride=preserved(input))


@op(".index_fill_", kind="inplace", saves="index", samples=("h.index_fill_(0, i[:1], 1.0)",))
def index_fill_(e: Engine, self: Any, dim: int, index: Any, value: Any) -> ShadowTensor:
    tensor_only(self)
    _fill_index(index, dim, self.ndim)
    if not isinstance(value, bool | int | float):
        raise Unmodelled("index_fill_ with a tensor or a complex number as value")
    at = wrap_dim(dim, self.ndim)

    def again() -> None:
        places = index.window()
        if places is not None and not is_dense(self.shape, self.stride):
            e.write_at(self, (*(slice(None),) * at, places), value)  # elements that share their memory change together

    rule = refusing(_index_fill_rule(at, value), no_room(self.dtype, value))
    return in_place(e, rule, (self, index), elementwise=False, overlapping=again)


# -- scatter


def _scatter_rule(at: int, value: Any, accumulate: bool, inplace: bool) -> OpRule:
    def forward(x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        k = rest[-1]
        indexing.check_elements(k, at, x.shape, inplace=inplace)
        full, places = x.copy(), index_grid(k, at)
        src = rest[0][tuple(slice(0, n) for n in k.shape)] if len(rest) == 2 else value
        if accumulate:
            np.add.at(full, places, src)
        else:
            full[places] = src
        return full

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, ...]:
        if accumulate:
            return g, None if s.index is None else g[index_grid(s.index, at)]
        return _zeroed(g, index_grid(s.index, at)), g[index_grid(s.index, at)]

    if isinstance(value, ShadowTensor):
        name = "ScatterAddBackward0" if accumulate else "ScatterBackward0"
        return OpRule(name, forward, (Keep("index", 2, 1 if accumulate else None),), vjp, edges=2)
    return OpRule("ScatterBackward1", forward, (Keep("index", 1),), vjp, edges=1)


def _check_index_fits(self: ShadowTensor, at: int, index: ShadowTensor, src: Any) -> None:
    """Decline an index that is larger than the tensor or the source in a dimension where torch does not allow that."""
    source = src.shape if isinstance(src, ShadowTensor) else index.shape
    sizes = zip(index.shape, self.shape, source, strict=True)
    if index.numel and any(n > k or (d != at and n > m) for d, (n, m, k) in enumerate(sizes)):
        raise Unmodelled("an index of another shape than the operation accepts")


def _scatter(e: Engine, self: Any, dim: int, index: Any, src: Any, accumulate: bool, inplace: bool) -> ShadowTensor:
    tensor_only(self)
    indexing.integer_index(index)
    is_tensor = isinstance(src, ShadowTensor)
    if not is_tensor and not isinstance(src, bool | int | float | complex):
        raise Unmodelled("scatter with a value that is neither a tensor nor a number")
    if index.ndim != self.ndim or (is_tensor and (src.dtype != self.dtype or src.ndim != self.ndim)):
        raise Unmodelled("scatter with operands of incompatible shapes or dtypes")
    if is_tensor and src.shape != index.shape and src.requires_grad:
        raise Unmodelled("scatter with a src of another shape than the index, where src requires grad")
    rule = refusing(_scatter_rule(wrap_dim(dim, self.ndim), src, accumulate, inplace), no_room(self.dtype, src))
    operands = (self, src, index) if is_tensor else (self, index)
    if inplace:
        e.graph.check_inplace(self, records(e, *operands))
        _check_index_fits(self, wrap_dim(dim, self.ndim), index, src)
        check_overlap(self)
        check_no_overlap(self, index, src)
        return in_place(e, rule, operands, elementwise=False)
    _check_index_fits(self, wrap_dim(dim, self.ndim), index, src)
    return pure(e, rule, operands, self.shape, self.dtype)


@op(
    "scatter",
    saves="index",
    samples=("a.scatter(0, torch.tensor([[0, 1, 0]]), b[:1])", "a.scatter(1, torch.tensor([[0], [1]]), 2.0)"),
)
def scatter(
    e: Engine, input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> ShadowTensor:
    if reduce is not None:
        raise Unmodelled("scatter with reduce")
    return _scatter(e, input, dim, index, src if src is not None else value, accumulate=False, inplace=False)


@op(
    ".scatter_",
    kind="inplace",
    saves="index",
    samples=("h.scatter_(0, torch.tensor([[0, 1, 0]]), b[:1])", "h.scatter_(1, torch.tensor([[0], [1]]), 2.0)"),
)
def scatter_(
    e: Engine, self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> ShadowTensor:
    if reduce is not None:
        raise Unmodelled("scatter with reduce")
    return _scatter(e, self, dim, index, src if src is not None else value, accumulate=False, inplace=True)


@op("scatter_add", saves="index if src needs grad", samples=("a.scatter_add(0, torch.tensor([[0, 1, 0]]), b[:1])",))
def scatter_add(e: Engine, input: Any, dim: int, index: Any, src: Any) -> ShadowTensor:
    return _scatter(e, input, dim, index, src, accumulate=True, inplace=False)


@op(
    ".scatter_add_",
    kind="inplace",
    saves="index if src needs grad",
    samples=("h.scatter_add_(0, torch.tensor([[0, 1, 0]]), b[:1])",),
)
def scatter_add_(e: Engine, self: Any, dim: int, index: Any, src: Any) -> ShadowTensor:
    return _scatter(e, self, dim, index, src, accumulate=True, inplace=True)


@op("take", saves="index, self", samples=("a.take(i)", "torch.take(a, torch.tensor([[0, 5]]))"))
def take(e: Engine, input: Any, index: Any) -> ShadowTensor:
    tensor_only(input)
    indexing.integer_index(index)
    check_history(e, input)
    if index.dtype != INT64:
        raise runtime(f"take(): Expected a long tensor for index, but got {index.dtype.scalar_name}", "dtype")

    def vjp(g: np.ndarray, s: Any) -> tuple[Written]:
        full = made_of(s.self)
        full[...] = 0
        np.add.at(full, np.unravel_index(s.index % max(full.size, 1), full.shape), g)
        return (Written(full),)

    rule = OpRule("TakeBackward0", lambda x, k: x.reshape(-1)[k], (Keep("index", 1), Keep("self", 0)), vjp, edges=1)
    return pure(e, rule, (input, index), index.shape, input.dtype)


# -- order


def _order(x: np.ndarray, at: int, descending: bool) -> np.ndarray:
    if not x.ndim:
        return np.zeros((), np.int64)
    if descending:
        result: np.ndarray = x.shape[at] - 1 - np.flip(np.argsort(np.flip(x, at), axis=at, kind="stable"), at)
        return result
    return np.argsort(x, axis=at, kind="stable")


def _ordered(
    e: Engine, name: str, input: ShadowTensor, at: int, index: Callable[[np.ndarray], np.ndarray], shape: Any
) -> Pair:
    node = None
    before = input.shape
    if records(e, input):

        def vjp(gs: list[Any], s: Any) -> tuple[Any]:
            if gs[0] is None:
                return (None,)
            full = np.zeros(before, gs[0].dtype)
            np.put_along_axis(full, s.indices, gs[0], at)
            return (Written(full, 2),)

        node = e.graph.new_node(name, edges(e, (input,)), vjp)
        node.multiple = True
    found = arrays(e, (input,))
    places = None if found is None else index(found[0])
    values = None if found is None or places is None else np.take_along_axis(found[0], places, at)
    stride = preserved(input) if name == "SortBackward0" else None
    pair = Pair((new(e, shape, input.dtype, values, stride), new(e, shape, INT64, places, stride)))
    if node is not None:
        own(node, pair[0])
        node.outputs.append((shape, INT64))
        node.keep(Saved("indices", pair[1], is_output=True))
    return pair


@op(
    "sort",
    saves="indices",
    samples=("a.sort()", "a.sort(dim=0, descending=True)", "torch.sort(a, 1)"),
    traits=("deterministic",),
)
def sort(e: Engine, input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Pair:
    tensor_only(input)
    if not input.ndim:
        raise Unmodelled("sort of a 0-dim tensor")
    at = wrap_dim(dim, input.ndim)
    return _ordered(e, "SortBackward0", input, at, lambda x: _sorted(x, at, descending, stable), input.shape)


def _sorted(x: np.ndarray, at: int, descending: bool, stable: bool) -> np.ndarray:
    """The indices that sort ``x``.

    Which of equal elements comes first is the processor's choice, unless ``stable`` is set.

    So equal elements are declined without ``stable``, in rows longer than ``STABLE``.
    """
    order = _order(x, at, descending)
    if not stable and x.shape[at] > STABLE:
        row = np.moveaxis(np.take_along_axis(x, order, at), at, -1)
        if ((row[..., 1:] == row[..., :-1]) | (np.isnan(row[..., 1:]) & np.isnan(row[..., :-1]))).any():
            raise Unmodelled("the indices of equal values in a sort that is not stable")
    return order


@op("argsort", samples=("a.argsort()", "a.argsort(dim=0, descending=True)"))
def argsort(e: Engine, input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> ShadowTensor:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    check_history(e, input)  # it sorts, and that has a derivative
    return pure(
        e,
        OpRule("", lambda x: _sorted(x, at, descending, stable)),
        (input,),
        input.shape,
        INT64,
        stride=preserved(input),
    )


STABLE = 3
"""Rows up to this length are sorted by insertion, which leaves equal numbers in their order."""


@op("topk", saves="indices", samples=("a.topk(2)", "torch.topk(a, 1, dim=0, largest=False)"), traits=("deterministic",))
def topk(e: Engine, input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    if input.dtype == BOOL:
        raise runtime("topk does not support bool dtypes on CPU", "dtype", tensor=input)
    if not input.ndim or k > input.shape[at]:
        raise Unmodelled("topk of a 0-dim tensor, or with k out of range")
    shape = (*input.shape[:at], k, *input.shape[at + 1 :])

    def places(x: np.ndarray) -> np.ndarray:
        order = np.moveaxis(_order(x, at, largest), at, -1)
        best = np.take_along_axis(np.moveaxis(x, at, -1), order, -1)[..., : k + 1]
        tied = (best[..., 1:] == best[..., :-1]) | (np.isnan(best[..., 1:]) & np.isnan(best[..., :-1]))
        if tied.any() and x.shape[at] > STABLE:
            raise Unmodelled("the indices of equal values in topk")  # torch only partitions the row
        return np.moveaxis(order[..., :k], -1, at)

    return _ordered(e, "TopkBackward0", input, at, places, shape)


def _median_place(x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
    places = np.take(np.argsort(x, axis=axis, kind="stable"), [(x.shape[axis] - 1) // 2], axis)
    missing = np.isnan(x)
    places = np.where(
        missing.any(axis, keepdims=True), missing.argmax(axis, keepdims=True), places
    )  # a NaN is any row's median
    return places if keepdims else np.squeeze(places, axis)


def _unique_median_place(x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
    places = _median_place(x, axis, keepdims=True)
    if ((x == np.take_along_axis(x, places, axis)).sum(axis) > 1).any():
        raise Unmodelled("the index of one of several equal medians")  # torch only partitions the row
    return places if keepdims else np.squeeze(places, axis)


@op(
    "median",
    saves="self, result; indices when a dim is given",
    samples=("a.median()", "a.median(0)", "a.median(dim=1, keepdim=True)"),
    traits=("deterministic",),
)
def median(e: Engine, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    tensor_only(input)
    if dim is not None:
        return along(e, "MedianBackward1", input, wrap_dim(dim, input.ndim), keepdim, _unique_median_place)
    if input.numel == 0:
        raise Unmodelled("median of an empty tensor")
    return pure(
        e, evenly_rule("MedianBackward0", lambda x: x.flat[_median_place(x.reshape(-1), 0)]), (input,), (), input.dtype
    )


# -- moving elements


@op("roll", samples=("a.roll(1)", "a.roll(1, 0)", "torch.roll(a, (1, 2), (0, 1))"))
def roll(e: Engine, input: Any, shifts: Any, dims: Any = None) -> ShadowTensor:
    tensor_only(input)
    back = tuple(-s for s in shifts) if isinstance(shifts, tuple | list) else -shifts
    rule = OpRule(
        "RollBackward0", lambda x: np.roll(x, shifts, dims), (), lambda g, s: (np.roll(g, back, dims).copy(),)
    )
    stride = None if input.numel or dims is None else preserved(input)  # of nothing, a clone
    return pure(e, rule, (input,), input.shape, input.dtype, stride=stride)


@op("tile", samples=("a.tile(2)", "c.tile(2, 1)"))
def tile(e: Engine, input: Any, *dims: Any) -> ShadowTensor:
    tensor_only(input)
    times = as_shape(dims)
    return repeat(e, input, *(1,) * (input.ndim - len(times)), *times)
