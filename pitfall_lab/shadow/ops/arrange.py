"""Arranging elements: diagonals, stacking, rotating, repeating, and writing a part of a copy (``*_scatter``,
``put``, ``scatter_reduce``).
"""

# ruff: noqa: A002, ARG001, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import INT64, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.gradient import laid_like
from pitfall_lab.shadow.graph import Written
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    broadcast,
    check_history,
    in_place,
    index_grid,
    new,
    pure,
    records,
    tensor_only,
    wrap_dim,
)
from pitfall_lab.shadow.registry import add, do, op
from pitfall_lab.shadow.storage import ShadowTensor

# -- diagonals


@op("diag_embed", samples=("c.diag_embed()", "torch.diag_embed(c, 1)"))
def diag_embed(e: Engine, input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> ShadowTensor:
    tensor_only(input)
    if input.ndim != 1 or (dim1, dim2) != (-2, -1):
        raise Unmodelled("diag_embed of a tensor that is not 1-D, or with dim1 or dim2")
    size = input.shape[0] + abs(offset)
    rule = OpRule("DiagEmbedBackward0", lambda x: np.diag(x, offset), (), lambda g, s: (np.diagonal(g, offset),))
    return pure(e, rule, (input,), (size, size), input.dtype)


@op("diag", samples=("c.diag()", "w.diag()", "torch.diag(w, 1)", "torch.diag(p)"))
def diag(e: Engine, input: Any, diagonal: int = 0) -> ShadowTensor:
    tensor_only(input)
    if input.ndim == 1:
        return diag_embed(e, input, diagonal)
    if input.ndim != 2:
        raise Unmodelled("diag of a tensor with more than 2 dimensions")
    shape, count = input.shape, len(np.diagonal(np.empty(input.shape, bool), diagonal))

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        full = np.zeros(shape, g.dtype)
        rows = np.arange(count)
        full[rows + max(-diagonal, 0), rows + max(diagonal, 0)] = g
        return (full,)

    rule = OpRule("DiagonalBackward0_copy", lambda x: np.diagonal(x, diagonal), (), vjp)
    return pure(e, rule, (input,), (count,), input.dtype)


@op("diagflat", samples=("c.diagflat()",))
def diagflat(e: Engine, input: Any, offset: int = 0) -> ShadowTensor:
    tensor_only(input)
    return diag_embed(
        e, do(e, "Tensor.contiguous", do(e, "Tensor.view", do(e, "Tensor.contiguous", input), -1)), offset
    )


@op("trace", samples=("w.trace()", "torch.trace(n)"), traits=("deterministic",))
def trace(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if input.ndim != 2:
        raise Unmodelled("trace of a tensor that is not 2-D")
    shape = input.shape
    rule = OpRule(
        "TraceBackward0",
        np.trace,
        (),
        lambda g, s: (Written(np.where(np.eye(*shape) > 0, g, 0), 2, seen_through=True),),
    )
    return pure(e, rule, (input,), (), INT64 if input.dtype.category < 2 else input.dtype)


def _triangle_in_place(name: str, forward: Callable[..., Any]) -> None:
    def run(e: Engine, self: Any, diagonal: int = 0) -> ShadowTensor:
        tensor_only(self)
        if self.ndim < 2:
            raise runtime(f"{name}: input tensor must have at least 2 dimensions", "shape")
        if self.is_expanded:
            raise Unmodelled(f"{name}_ on a tensor in which several elements share one memory location")
        rule = OpRule(
            f"{name.capitalize()}Backward0", lambda x: forward(x, diagonal), (), lambda g, s: (forward(g, diagonal),)
        )
        return in_place(e, rule, (self,), elementwise=False)

    add(f".{name}_", run, "inplace", "", (f"h.{name}_()", f"p.{name}_(1)"))

    def indices(
        e: Engine, row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None
    ) -> ShadowTensor:
        if device is not None and str(device) != "cpu":
            raise Unmodelled(f"device {device}")
        places = np.stack(np.nonzero(forward(np.ones((row, col)), offset)))
        return new(e, places.shape, DType(dtype) if dtype else INT64, places)

    add(f"torch.{name}_indices", indices, "pure", "", (f"torch.{name}_indices(3, 2)",))


_triangle_in_place("tril", np.tril)
_triangle_in_place("triu", np.triu)


# -- stacking and turning


def _stacked(
    name: str, alias: tuple[str, ...], atleast: int, dim: Callable[[Any], int], samples: tuple[str, ...]
) -> None:
    def run(e: Engine, tensors: Any) -> ShadowTensor:
        parts = [do(e, f"functional.atleast_{atleast}d", x) for x in tensors]
        result: ShadowTensor = do(e, "cat", parts, dim(parts))
        return result

    add((f"torch.{name}", *alias), run, "pure", "", samples)


_stacked(
    "hstack", (), 1, lambda parts: 0 if parts[0].ndim == 1 else 1, ("torch.hstack((a, b))", "torch.hstack([c, c])")
)
_stacked("vstack", ("torch.row_stack",), 2, lambda parts: 0, ("torch.vstack((a, c))",))
_stacked("dstack", (), 3, lambda parts: 2, ("torch.dstack((a, b))",))


@op("torch.column_stack", samples=("torch.column_stack((c, c * 2))", "torch.column_stack((a, b))"))
def column_stack(e: Engine, tensors: Any) -> ShadowTensor:
    result: ShadowTensor = do(
        e, "cat", [do(e, "Tensor.reshape", x, x.numel, 1) if x.ndim <= 1 else x for x in tensors], 1
    )
    return result


def _corners(sizes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The (row, column) at which each diagonal block begins, and the end of the last one."""
    return list(itertools.accumulate(sizes, lambda at, size: (at[0] + size[0], at[1] + size[1]), initial=(0, 0)))


@op("torch.functional.block_diag", "torch.block_diag", samples=("torch.block_diag(a, c)", "torch.block_diag(w, p)"))
def block_diag(e: Engine, *tensors: Any) -> ShadowTensor:
    tensor_only(*tensors)
    if any(x.ndim > 2 or x.dtype != tensors[0].dtype for x in tensors):
        raise Unmodelled("block_diag of tensors of more than 2 dimensions or of several dtypes")
    sizes = [(1,) * (2 - x.ndim) + x.shape for x in tensors]
    corners = _corners(sizes)
    # torch's backward ignores the row taken by an empty vector: tensors after it get the gradient of the row above.
    places = _corners([(0, 0) if x.shape == (0,) else size for x, size in zip(tensors, sizes, strict=True)])

    def forward(*xs: np.ndarray) -> np.ndarray:
        full = np.zeros(corners[-1], xs[0].dtype)
        for x, (row, col), (n, m) in zip(xs, corners, sizes, strict=False):
            full[row : row + n, col : col + m] = x
        return full

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, ...]:
        blocks = [g[row : row + n, col : col + m] for (row, col), (n, m) in zip(places, sizes, strict=False)]
        return tuple(block if x.ndim == 2 else vector(block, x) for block, x in zip(blocks, tensors, strict=True))

    def vector(block: np.ndarray, x: ShadowTensor) -> Any:
        if block.size == 1:
            return block[:, 0] if x.ndim else block.reshape(())
        return Written(block.reshape(x.shape).copy(), 0, seen_through=True)

    return pure(e, OpRule("BlockDiagBackward0", forward, (), vjp), tensors, corners[-1], tensors[0].dtype)


def _flipped(name: str, dim: int) -> None:
    def run(e: Engine, input: Any) -> ShadowTensor:
        tensor_only(input)
        if input.ndim <= dim:
            raise runtime(f"Input must be >= {dim + 1}-d.", "shape")
        result: ShadowTensor = do(e, "flip", input, (dim,))
        return result

    add(name, run, "pure", "", (f"a.{name}()",))


_flipped("fliplr", 1)
_flipped("flipud", 0)


@op("rot90", samples=("a.rot90()", "torch.rot90(a, 2)", "a.rot90(3)"))
def rot90(e: Engine, input: Any, k: int = 1, dims: Any = (0, 1)) -> ShadowTensor:
    tensor_only(input)
    if input.ndim < 2:
        raise runtime(f"expected total dims >= 2, but got total dims = {input.ndim}", "shape")
    axes = wrap_dim(dims[0], input.ndim), wrap_dim(dims[1], input.ndim)
    swapped = list(input.shape)
    if k % 2:
        swapped[axes[0]], swapped[axes[1]] = swapped[axes[1]], swapped[axes[0]]

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        turns = -k % 4
        flipped = laid_like(np.flip(g, axes if turns == 2 else axes[int(turns == 1)]).copy(order="K"), g)
        if turns % 2:  # transposed in place: no view
            turned = np.swapaxes(flipped, *axes)
            flipped = laid_like(turned.copy(), turned)
        return (flipped,)

    rule = OpRule("Rot90Backward0", lambda x: np.rot90(x, k, axes), (), vjp)
    if input.ndim != 2 or k % 4 == 0:
        raise Unmodelled("rot90 of a tensor that is not 2-D, or with k divisible by 4")
    stride = preserved(input)[::-1] if k % 2 else preserved(input)  # the transpose of a copy
    return pure(e, rule, (input,), tuple(swapped), input.dtype, stride=stride)


@op(
    "repeat_interleave",
    saves="index, if repeats is a tensor",
    samples=("a.repeat_interleave(2)", "torch.repeat_interleave(a, 2, dim=1)", "a.repeat_interleave(i, dim=0)"),
)
def repeat_interleave(
    e: Engine, input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> ShadowTensor:
    tensor_only(input)
    if repeats is None:
        raise Unmodelled("repeat_interleave(repeats) without an input")
    x = input if dim is not None else do(e, "flatten", input)
    at = wrap_dim(dim or 0, x.ndim)
    if isinstance(repeats, ShadowTensor):
        found = arrays(e, (repeats,))
        if (
            found is None
            or repeats.dtype not in ("int64", "int32")
            or repeats.ndim != 1
            or repeats.shape[0] != x.shape[at]
        ):
            raise Unmodelled("repeat_interleave with a repeats tensor of unknown values, or of another shape or dtype")
        places = np.repeat(np.arange(x.shape[at]), found[0])
        result: ShadowTensor = do(e, "index_select", x, at, new(e, places.shape, INT64, places))
        return result
    sizes = list(x.shape)
    spread = do(e, "Tensor.expand", do(e, "unsqueeze", x, at + 1), *sizes[: at + 1], repeats, *sizes[at + 1 :])
    copy = do(e, "clone", spread, memory_format="contiguous_format")
    answer: ShadowTensor = do(e, "flatten", copy, at, at + 1)
    return answer


@op("take_along_dim", saves="index, self", samples=("torch.take_along_dim(a, i.reshape(2, 1), 1)",))
def take_along_dim(e: Engine, input: Any, indices: Any, dim: Any = None) -> ShadowTensor:
    tensor_only(input, indices)
    if dim is None:
        raise Unmodelled("take_along_dim without dim")
    if input.ndim != indices.ndim:
        found = f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        raise runtime(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {found}",
            "shape",
        )
    if indices.dtype != INT64:
        raise runtime(
            f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.scalar_name}", "dtype"
        )
    at = wrap_dim(dim, input.ndim)
    if not input.ndim or not input.shape[at]:
        raise Unmodelled("take_along_dim of an empty or 0-dim input")
    others = [x.shape[:at] + y.shape[at : at + 1] + x.shape[at + 1 :] for x, y in ((input, indices), (indices, input))]
    index = do(e, "Tensor.expand", indices, *broadcast(others[0], indices.shape))
    rows = do(e, "Tensor.expand", input, *broadcast(others[1], input.shape))
    # torch computes index % size into a new tensor, which is what is saved, not the program's index.
    result: ShadowTensor = do(e, "gather", rows, at, do(e, "remainder", index, input.shape[at]))
    return result


@op(
    "torch.functional.cartesian_prod",
    "torch.cartesian_prod",
    samples=("torch.cartesian_prod(c, c)", "torch.cartesian_prod(c)"),
)
def cartesian_prod(e: Engine, *tensors: Any) -> ShadowTensor:
    tensor_only(*tensors)
    if any(x.ndim != 1 for x in tensors):
        raise Unmodelled("cartesian_prod of tensors that are not 1-D")
    if len(tensors) == 1:
        result: ShadowTensor = tensors[0]
        return result
    grids = do(e, "functional.meshgrid", *tensors, indexing="ij")
    answer: ShadowTensor = do(e, "stack", [do(e, "flatten", grid) for grid in grids], 1)
    return answer


# -- a part of a copy


def _scattered(name: str, node: str, part: Callable[..., Any], samples: tuple[str, ...]) -> None:
    """Register a ``*_scatter`` operation; ``part(array, ...)`` is the view that ``src`` replaces."""

    def run(e: Engine, input: Any, src: Any, *where: Any, **named: Any) -> ShadowTensor:
        tensor_only(input, src)
        if input.dtype != src.dtype:
            raise Unmodelled(f"{name} with input and src of different dtypes")

        def forward(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            full = x.copy()
            part(full, *where, **named)[...] = y
            return full

        def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
            kept = laid_like(g.copy(), g)
            part(kept, *where, **named)[...] = 0
            return kept, part(g, *where, **named)

        if input.offset or input.numel != input.storage.size:
            raise Unmodelled(f"{name} of an input that does not cover its whole storage")
        if part(np.empty(input.shape, bool), *where, **named).shape != src.shape:
            raise Unmodelled(f"{name} with a src whose shape is not that of the part it replaces")
        check_history(e, input, src)
        return pure(e, OpRule(node, forward, (), vjp), (input, src), input.shape, input.dtype, stride=preserved(input))

    add(name, run, "pure", "", samples)


def _selected(x: np.ndarray, dim: int, index: int) -> np.ndarray:
    result: np.ndarray = np.moveaxis(x, dim, 0)[index]
    return result


def _sliced(x: np.ndarray, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> np.ndarray:
    return np.moveaxis(np.moveaxis(x, dim, 0)[slice(start, end, step)], 0, dim)


def _diagonal(x: np.ndarray, offset: int = 0, dim1: int = 0, dim2: int = 1) -> np.ndarray:
    window = np.diagonal(x, offset, dim1, dim2)
    window.flags.writeable = True
    return window


_scattered(
    "select_scatter",
    "SelectScatterBackward0",
    _selected,
    ("a.select_scatter(c, 0, 1)", "torch.select_scatter(p, p[:, 0], 1, 2)"),
)
_scattered(
    "slice_scatter",
    "SliceScatterBackward0",
    _sliced,
    ("a.slice_scatter(b, 0, 0, 2)", "torch.slice_scatter(p, p[:1], 0, 1)"),
)
_scattered("diagonal_scatter", "DiagonalScatterBackward0", _diagonal, ("w.diagonal_scatter(w[0])",))


def _masked_scatter_rule(mask_shape: Any) -> OpRule:
    def forward(x: np.ndarray, source: np.ndarray, mask: np.ndarray) -> np.ndarray:
        full, where = x.copy(), np.broadcast_to(mask, x.shape)
        if where.sum() > source.size:
            raise Unmodelled("masked_scatter with fewer source elements than True elements in the mask")
        full[where] = source.reshape(-1)[: where.sum()]
        return full

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
        where = np.broadcast_to(s.mask, g.shape)
        picked = np.zeros(mask_shape, g.dtype).reshape(-1)
        picked[: where.sum()] = g[where]
        return np.where(where, 0, g), picked.reshape(mask_shape)

    return OpRule("MaskedScatterBackward0", forward, (Keep("mask", 2),), vjp, edges=2)


def _check_masked(self: Any, mask: Any, source: Any) -> None:
    tensor_only(self, mask, source)
    if mask.dtype != "bool" or source.dtype != self.dtype or mask.shape != self.shape:
        raise Unmodelled(
            "masked_scatter whose mask is not of the input's shape and bool, or whose source has another dtype"
        )


@op("masked_scatter", saves="mask", samples=("p.masked_scatter(m, p * 2)",))
def masked_scatter(e: Engine, input: Any, mask: Any, source: Any) -> ShadowTensor:
    _check_masked(input, mask, source)
    if records(e, source):
        raise Unmodelled("the gradient of masked_scatter's source")
    return pure(e, _masked_scatter_rule(source.shape), (input, source, mask), input.shape, input.dtype)


@op(".masked_scatter_", kind="inplace", saves="mask", samples=("p.masked_scatter_(m, p * 2)",))
def masked_scatter_(e: Engine, self: Any, mask: Any, source: Any) -> ShadowTensor:
    _check_masked(self, mask, source)
    if records(e, source):
        raise Unmodelled("the gradient of masked_scatter's source")
    if source.storage is self.storage:
        raise Unmodelled("masked_scatter_ whose source shares the target's memory")
    return in_place(e, _masked_scatter_rule(source.shape), (self, source, mask), elementwise=False, separate=True)


def _put_rule(accumulate: bool) -> OpRule:
    def forward(x: np.ndarray, source: np.ndarray, index: np.ndarray) -> np.ndarray:
        flat = x.reshape(-1).copy()
        if accumulate:
            np.add.at(flat, index.reshape(-1), source.reshape(-1))
        else:
            flat[index.reshape(-1)] = source.reshape(-1)
        return flat.reshape(x.shape)

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
        kept = g.reshape(-1).copy()
        if not accumulate:
            kept[s.index.reshape(-1)] = 0
        return kept.reshape(g.shape), g.reshape(-1)[s.index].reshape(s.index.shape)

    return OpRule("PutBackward0", forward, (Keep("index", 2), Keep("source", 1, 1)), vjp, edges=2)


@op(
    ".put_",
    kind="inplace",
    saves="index; source if it needs grad",
    samples=("p.put_(i, torch.ones(2))", "p.put_(i, torch.ones(2), accumulate=True)", "h.put_(i, c[:2])"),
    traits=("deterministic",),
)
def put_(e: Engine, self: Any, index: Any, source: Any, accumulate: bool = False) -> ShadowTensor:
    tensor_only(self, index, source)
    if index.dtype != "int64" or source.dtype != self.dtype or index.shape != source.shape:
        raise Unmodelled("put_ whose index and source differ in shape, or with an index or source of another dtype")
    return in_place(e, _put_rule(accumulate), (self, source, index), elementwise=False, separate=True)


# -- combining values written to one element

_COMBINE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum, "mean": np.add}


def _combined(x: np.ndarray, places: Any, src: np.ndarray, how: str, include_self: bool) -> np.ndarray:
    full = x.copy()
    if not include_self:
        full[places] = {"sum": 0, "mean": 0, "prod": 1, "amax": -np.inf, "amin": np.inf}[how]
    _COMBINE[how].at(full, places, src)
    if how == "mean":
        count = np.zeros(x.shape) + int(include_self)
        np.add.at(count, places, 1)
        full = full / np.where(count == 0, 1, count)
    return full.astype(x.dtype)


def _reduced(
    name: str, node: str, keep: str, places: Callable[[np.ndarray, int], Any], sample: str, names: dict[str, str]
) -> None:
    def make(at: int, how: str, include_self: bool) -> OpRule:
        def forward(x: np.ndarray, src: np.ndarray, k: np.ndarray) -> np.ndarray:
            where = places(k, at)
            return _combined(
                x, where, src[tuple(slice(n) for n in k.shape)] if keep == "src" else src, how, include_self
            )

        return OpRule("", forward, (), None)

    def check(e: Engine, self: Any, dim: int, index: Any, src: Any, reduce: str) -> tuple[int, str]:
        tensor_only(self, index, src)
        how = names.get(reduce)
        if records(e, self, src):
            raise Unmodelled(f"the gradient of {name}")
        if how is None or self.dtype != src.dtype or self.dtype.category != 2 or not self.ndim:
            raise Unmodelled(f"{name} with operands of these shapes or dtypes")
        return wrap_dim(dim, self.ndim), how

    def run(
        e: Engine, input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
    ) -> ShadowTensor:
        at, how = check(e, input, dim, index, src, reduce)
        return pure(e, make(at, how, include_self), (input, src, index), input.shape, input.dtype)

    def run_in_place(
        e: Engine, self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
    ) -> ShadowTensor:
        at, how = check(e, self, dim, index, src, reduce)
        return in_place(e, make(at, how, include_self), (self, src, index), elementwise=False, separate=True)

    ways = list(names)
    add(name, run, "pure", f"index, result, self, {keep}", tuple(f"p.{name}({sample}, '{way}')" for way in ways))
    add(
        f".{name}_",
        run_in_place,
        "inplace",
        f"index, result, self, {keep}",
        (f"p.{name}_({sample}, '{ways[0]}', include_self=False)",),
    )


_reduced("scatter_reduce", "ScatterReduceBackward0", "src", index_grid, "0, torch.tensor([[0, 1, 0]]), p[1:] * 2",
         {"sum": "sum", "prod": "prod", "amax": "amax", "amin": "amin", "mean": "mean"})  # fmt: skip
_reduced("index_reduce", "IndexReduceBackward0", "source", lambda k, at: (*(slice(None),) * at, k), "0, i, p * 2",
         {"prod": "prod", "amax": "amax", "amin": "amin"})  # fmt: skip
