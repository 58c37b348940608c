"""Sums, means, extrema and other reductions, softmax, and joining tensors."""

# ruff: noqa: A001, A002, ARG001, ARG005, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pitfall_lab.shadow.dtypes import FLOAT32, INT64, DType, promote
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import average, dense_array, in_memory_order, laid_like, unsqueezed
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.memory_format import channels_last_strides, is_channels_last
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    as_shape,
    check_history,
    edges,
    keep_inputs,
    new,
    own,
    pure,
    records,
    sign_of,
    tensor_only,
    underflow_on_the_way,
    wrap_dim,
)
from pitfall_lab.shadow.ops.pointwise import no_out
from pitfall_lab.shadow.registry import ENTRIES, Trait, add, op
from pitfall_lab.shadow.storage import ShadowTensor, Shape


def reduced_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions that an argument ``dim`` of a reduction names, counted from 0; all of them for None and for an
    empty sequence. Empty for a tensor without dimensions (``ndim`` 0). Raises ``ShadowError`` (torch's IndexError) for
    one that is out of range.
    """
    if dim is None or dim in ((), []):
        return tuple(range(ndim))
    dims = tuple(wrap_dim(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    return dims if ndim else ()


def reduced_shape(shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Shape:
    """Return the shape that remains after reducing ``dims``."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims)


def widen(g: np.ndarray, shape: Shape, dims: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """Expand ``g``, which was reduced over ``dims`` (``keepdim``: these are there with size 1), to ``shape``: stride 0
    along ``dims``, the other strides unchanged (``expand``).
    """
    small = g if keepdim else unsqueezed(g, dims)
    wide = np.broadcast_to(small, shape)
    if not isinstance(g, np.ndarray) or 1 not in shape or not dense_array(small):
        return wide
    missing = len(shape) - small.ndim
    strides = (s if n == m else 0 for n, m, s in zip(small.shape, shape[missing:], small.strides, strict=True))
    return np.ndarray(shape, small.dtype, in_memory_order(small), 0, (0,) * missing + tuple(strides))


EVERY: list[int] = []
"""``dim`` where it is not given, which is another overload than ``None`` or ``()``: ``sum()`` makes
SumBackward0, these SumBackward1.
"""


def _names(name: str, *, given: bool) -> str:
    return f"{name}Backward{int(given)}"


def _whole(dim: Any) -> bool:
    return dim is None or dim in ((), [])


@op(
    "sum",
    samples=(
        "a.sum()",
        "a.sum(0)",
        "a.sum(axis=0, keepdims=True)",
        "a.sum(dim=1, keepdim=True)",
        "n.sum()",
        "torch.sum(a.t(), 0)",
        "m.sum()",
        "a.sum((0, 1))",
        "a.sum(dim=None)",
        "a[:1].sum((), keepdim=True)",
        "a[0, 0].sum()",
    ),
)
def sum(
    e: Engine, input: Any, dim: Any = EVERY, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> ShadowTensor:
    no_out(out)
    tensor_only(input)
    kind = DType(dtype) if dtype else (INT64 if input.dtype.category < 2 else input.dtype)
    dims, before = reduced_dims(dim, input.ndim), input.shape
    wide = np.float64 if kind == FLOAT32 else kind.numpy

    def forward(x: np.ndarray) -> Any:
        return np.sum(x, axis=dims, keepdims=keepdim, dtype=wide)

    rule = OpRule(
        _names("Sum", given=dim is not EVERY),
        forward,
        (),
        lambda g, s: (widen(g, before, dims, keepdim or _whole(dim)),),
    )
    return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), kind)


@op("mean", samples=("a.mean()", "a.mean(0)", "a.mean(1, keepdim=True)", "torch.mean(a, dim=(0, 1))", "a.mean(None)"))
def mean(
    e: Engine, input: Any, dim: Any = EVERY, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> ShadowTensor:
    no_out(out)
    tensor_only(input)
    kind = DType(dtype) if dtype else input.dtype
    if kind.category < 2:
        text = (
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {kind.scalar_name}"
        )
        raise runtime(text, "dtype", tensor=input)
    dims, before = reduced_dims(dim, input.ndim), input.shape
    count = math.prod(before[d] for d in dims)
    wide = np.float64 if kind == FLOAT32 else kind.numpy

    def forward(x: np.ndarray) -> Any:
        return np.sum(x, axis=dims, keepdims=keepdim, dtype=wide) / count if count else np.full((), np.nan)

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        return (widen(g, before, dims, keepdim or _whole(dim)) / g.dtype.type(count or 1),)

    rule = OpRule(_names("Mean", given=dim is not EVERY), forward, (), vjp)
    return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), kind)


@op("prod", saves="self, result", samples=("b.prod()", "b.prod(0)"))
def prod(e: Engine, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ShadowTensor:
    tensor_only(input)
    kind = DType(dtype) if dtype else (INT64 if input.dtype.category < 2 else input.dtype)
    dims, before = reduced_dims(dim, input.ndim), input.shape

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray | Written]:
        if not before:
            return (g,)
        if np.all(
            s.self != 0
        ):  # as torch does; where the input was changed since, this is not the product of the others
            return (widen(g, before, dims, keepdim) * (widen(s.result, before, dims, keepdim) / s.self),)
        if math.prod(before[d] for d in dims) == 1:
            return (widen(g, before, dims, keepdim),)
        if dim is not None:
            return (widen(g, before, dims, keepdim) * _product_of_others(s.self, dims),)
        if np.sum(s.self == 0) > 1:
            return (np.zeros_like(s.self),)
        flat = widen(g, before, dims, keepdim) * _product_of_others(s.self, dims)
        return (
            Written(np.ascontiguousarray(flat), 0, seen_through=True),
        )  # torch flattens the input, and shapes what comes out

    rule = OpRule(
        _names("Prod", given=dim is not None),
        lambda x: np.prod(x, axis=dims, keepdims=keepdim),
        (Keep("self", 0), Keep("result", "result")),
        vjp,
    )
    return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), kind)


def _product_of_others(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """For each element the product of the others along ``dims``, in an array of the shape of ``x``; no
    division, so zeros may occur.
    """
    moved = np.moveaxis(x, dims, range(x.ndim - len(dims), x.ndim))
    flat = moved.reshape((*moved.shape[: x.ndim - len(dims)], -1))
    left = np.concatenate([np.ones_like(flat[..., :1]), np.cumprod(flat, -1)[..., :-1]], -1)
    right = np.concatenate([np.cumprod(flat[..., ::-1], -1)[..., ::-1][..., 1:], np.ones_like(flat[..., :1])], -1)
    return np.ascontiguousarray(
        np.moveaxis((left * right).reshape(moved.shape), range(x.ndim - len(dims), x.ndim), dims)
    )


# -- extrema


class Pair(tuple[ShadowTensor, ShadowTensor]):
    """A pair of tensors with names, ``values`` and ``indices``, as in ``torch.return_types``;
    subclasses have other ``fields``.
    """

    __slots__ = ()
    fields: ClassVar[tuple[str, str]] = ("values", "indices")

    @property
    def values(self) -> ShadowTensor:
        """The values."""
        return self[0]

    @property
    def indices(self) -> ShadowTensor:
        """The positions of the values."""
        return self[1]


def evenly_rule(node: str, forward: Callable[..., Any]) -> OpRule:
    """The rule of a full reduction to one element (max, min, median), which ``forward`` computes: its gradient is
    divided evenly among all elements equal to it.
    """

    def vjp(g: np.ndarray, s: Any) -> tuple[Written]:
        hit = (s.self == s.result) | (np.isnan(s.self) & np.isnan(s.result) if s.self.dtype.kind == "f" else False)
        return (Written(np.asarray(np.where(hit, g / hit.sum(), 0), g.dtype, order="C")),)

    return OpRule(node, forward, (Keep("self", 0), Keep("result", "result")), vjp)


def _extremum(name: str, best: Callable[..., Any], where: Callable[..., Any]) -> None:
    title = name.capitalize()

    everywhere = evenly_rule(f"{title}Backward1", best)

    def run(
        e: Engine, input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None
    ) -> Any:
        no_out(out)
        tensor_only(input)
        if isinstance(dim, ShadowTensor) or other is not None:
            return ENTRIES[f"torch.{name}imum"].run(e, input, dim if other is None else other)
        if dim is None:
            _not_empty(input, name)
            return pure(e, everywhere, (input,), (), input.dtype)
        return along(e, f"{title}Backward0", input, wrap_dim(dim, input.ndim), keepdim, where)

    add(
        name,
        run,
        "pure",
        "self, result; indices when a dim is given",
        (
            f"a.{name}()",
            f"a.{name}(0)",
            f"torch.{name}(a, 1, keepdim=True)",
            f"a.{name}(dim=1)[0]",
            f"torch.{name}(a, b)",
        ),
        traits=("deterministic",),
    )

    def flat(e: Engine, input: Any, dim: Any = (), keepdim: bool = False) -> ShadowTensor:
        tensor_only(input)
        dims, before = reduced_dims(dim, input.ndim), input.shape
        if dim is None or dim in ((), []):
            _not_empty(input, f"a{name}")
        else:
            _has_room(input, f"a{name}", (dim,) if isinstance(dim, int) else dim)

        def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
            hit = s.self == widen(s.result, before, dims, keepdim)
            return (widen(g, before, dims, keepdim) * hit / hit.sum(axis=dims, keepdims=True),)

        rule = OpRule(
            f"A{name}Backward0",
            lambda x: best(x, axis=dims, keepdims=keepdim),
            (Keep("self", 0), Keep("result", "result")),
            vjp,
        )
        return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), input.dtype)

    add(f"a{name}", flat, "pure", "self, result", (f"a.a{name}(0)", f"torch.a{name}(a, 1, keepdim=True)"))

    def index(e: Engine, input: Any, dim: Any = None, keepdim: bool = False) -> ShadowTensor:
        tensor_only(input)
        if dim is None:
            if input.numel == 0:
                raise ShadowError(
                    "IndexError",
                    f"arg{name}(): Expected reduction dim to be specified for input.numel() == 0.",
                    "shape",
                )
            return pure(
                e, OpRule("", lambda x: where(x.reshape(-1))), (input,), (1,) * input.ndim if keepdim else (), INT64
            )
        at = wrap_dim(dim, input.ndim)
        _has_room(input, f"arg{name}", (at,))
        return pure(
            e,
            OpRule("", lambda x: where(x, axis=at, keepdims=keepdim)),
            (input,),
            reduced_shape(input.shape, (at,), keepdim),
            INT64,
        )

    add(f"arg{name}", index, "pure", "", (f"a.arg{name}()", f"a.arg{name}(1)"))


def _not_empty(input: ShadowTensor, name: str) -> None:
    if input.numel == 0:
        text = (
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument."
        )
        raise runtime(text, "shape", tensor=input)


def _has_room(input: ShadowTensor, name: str, dims: Sequence[int]) -> None:
    """Raise torch's error for a search (max, argmin, ...) along a dimension of size 0."""
    for dim in dims:
        if input.ndim and input.shape[dim] == 0:
            raise ShadowError("IndexError", f"{name}(): Expected reduction dim {dim} to have non-zero size.", "shape")


def along(e: Engine, name: str, input: ShadowTensor, at: int, keepdim: bool, where: Callable[..., Any]) -> Pair:
    """``(values, indices)`` of a search such as ``max`` along dimension ``at``; the gradient goes to the elements
    found. ``keepdim``: the dimension stays with size 1.

    ``where(array, axis=, keepdims=)`` finds the indices. Raises ``ShadowError`` (torch's error) for a dimension of size
    0, and what :func:`records` raises.
    """
    _has_room(input, name.partition("Backward")[0].lower(), (at,))
    shape, before = reduced_shape(input.shape, (at,), keepdim), input.shape
    node = None
    if records(e, input):

        def vjp(gs: list[Any], s: Any) -> tuple[Any]:
            if gs[0] is None:
                return (None,)
            if not before:
                return (Written(gs[0].copy(), 2),)
            full = np.zeros(before, gs[0].dtype)
            g, index = (gs[0], s.indices) if keepdim else (np.expand_dims(gs[0], at), np.expand_dims(s.indices, at))
            np.put_along_axis(full, index, g, at)
            return (Written(full, 2),)

        node = e.graph.new_node(name, edges(e, (input,)), vjp)
        node.multiple = True
    found = arrays(e, (input,))
    index: Any = None
    values: Any = None
    if found is not None and not before:
        index = np.zeros((), np.int64)
        values = found[0]
    else:
        index = None if found is None else where(found[0], axis=at, keepdims=True)
        values = None if found is None or index is None else np.take_along_axis(found[0], index, at).reshape(shape)
    pair = Pair(
        (new(e, shape, input.dtype, values), new(e, shape, INT64, None if index is None else index.reshape(shape)))
    )
    if node is not None:
        own(node, pair[0])
        node.outputs.append((shape, INT64))
        node.keep(Saved("indices", pair[1], is_output=True))
    return pair


_extremum("max", np.max, np.argmax)
_extremum("min", np.min, np.argmin)


# -- spread and size


@op("var", saves="self", samples=("a.var()", "a.var(0)", "a.var(1, unbiased=False)"))
def var(
    e: Engine, input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> ShadowTensor:
    return _spread(e, "Var", input, dim, correction if correction is not None else int(unbiased), keepdim, root=False)


@op("std", saves="self, result", samples=("a.std()", "a.std(0)", "a.std(dim=1, keepdim=True)"))
def std(
    e: Engine, input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> ShadowTensor:
    return _spread(e, "Std", input, dim, correction if correction is not None else int(unbiased), keepdim, root=True)


def _spread(
    e: Engine, name: str, input: Any, dim: Any, correction: float, keepdim: bool, *, root: bool
) -> ShadowTensor:
    tensor_only(input)
    if isinstance(dim, bool):
        raise Unmodelled(f"{name} with unbiased given by position")
    dims, before = reduced_dims(dim, input.ndim), input.shape
    count = max(math.prod(before[d] for d in dims) - correction, 0)

    def forward(x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        centred = wide - average(wide, dims, keepdims=True)
        result = np.sum(centred * centred, axis=dims, keepdims=keepdim) / count
        answer: np.ndarray = np.sqrt(result) if root else result
        return answer

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        centred = s.self - average(s.self, dims, keepdims=True)
        if root:
            g = np.where(s.result == 0, 0, g / (2 * np.where(s.result == 0, 1, s.result)))
        # in this order: the result has the strides of the input
        return (
            np.reshape(g, [1 if d in dims else n for d, n in enumerate(before)])
            * (2 / count if count else math.inf)
            * centred,
        )

    keeps = (Keep("self", 0), Keep("result", "result")) if root else (Keep("self", 0),)
    return pure(
        e, OpRule(f"{name}Backward0", forward, keeps, vjp), (input,), reduced_shape(before, dims, keepdim), input.dtype
    )


def _lengths(x: np.ndarray, order: float, dims: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """The p-norms of an array of absolute values over some dimensions.

    For ``order`` 0 it is the number of elements that are not 0, for infinity the largest, for
    minus infinity the smallest one.
    """
    length: np.ndarray
    if order == 0:
        length = np.sum(x != 0, axis=dims, keepdims=keepdim)
    elif math.isinf(order):
        length = (np.max if order > 0 else np.min)(x, axis=dims, keepdims=keepdim)
    elif order == 2:
        length = np.sqrt(np.sum(x * x, axis=dims, keepdims=keepdim))
    else:
        length = np.sum(x**order, axis=dims, keepdims=keepdim) ** (1 / order)
    return length


@op(
    ".norm",
    "torch.functional.norm",
    "torch.norm",
    "torch.linalg.vector_norm",
    saves="self, result",
    samples=(
        "a.norm()",
        "torch.norm(a)",
        "a.norm(dim=1)",
        "torch.linalg.vector_norm(a)",
        "a.norm(p=1)",
        "a.norm(3)",
        "a.norm(float('inf'))",
        "a.norm(0)",
    ),
)
def norm(
    e: Engine,
    input: Any,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    *,
    ord: Any = None,
    out: Any = None,
) -> ShadowTensor:
    tensor_only(input)
    order = {"fro": 2}.get(p, p) if ord is None else ord
    if not isinstance(order, int | float) or dtype is not None or out is not None or input.dtype.category != 2:
        raise Unmodelled(f"norm of order {order!r}")
    if not order and input.dtype.numpy is None:
        raise Unmodelled("a norm of order 0 of a bfloat16 tensor")
    dims, before = reduced_dims(dim, input.ndim), input.shape

    def forward(x: np.ndarray) -> np.ndarray | None:
        size = np.abs(x.astype(np.float64))
        if order not in (0, 1) and not math.isinf(order) and underflow_on_the_way(size, dims, x.dtype):
            return None
        return _lengths(size, order, dims, keepdim)

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray | None]:
        return (
            norm_gradient(order, s.self, widen(s.result, before, dims, keepdim), widen(g, before, dims, keepdim), dims),
        )

    rule = OpRule("LinalgVectorNormBackward0", forward, (Keep("self", 0), Keep("result", "result")), vjp)
    return pure(e, rule, (input,), reduced_shape(before, dims, keepdim), input.dtype)


def norm_gradient(
    order: float, x: np.ndarray, length: np.ndarray, g: np.ndarray, dims: tuple[int, ...]
) -> np.ndarray | None:
    """The gradient of a norm of this ``order`` over ``dims`` for its input ``x`` (``norm_backward`` in
    ``torch/csrc/autograd/FunctionsManual.cpp``); None for order 0. ``length`` is the norm and ``g`` its gradient, both
    of the shape of ``x``, or with size 1 along ``dims``.
    """
    if order == 0:
        return None
    found: np.ndarray
    size = np.abs(x)
    if order == 1:
        found = sign_of(x) * g
    elif math.isinf(order):
        hit = (size == length) | np.isnan(x)
        found = sign_of(x) * (g / hit.sum(axis=dims, keepdims=True) * hit)
    elif order == 2:
        found = g * np.where(length == 0, 0, x / length)
    elif order < 1:
        found = np.where(x == 0, 0, sign_of(x) * size ** (order - 1)) * g * length ** (1 - order)
    else:
        scaled = x * size ** (order - 2) if order >= 2 else sign_of(x) * size ** (order - 1)
        found = scaled * np.where(length == 0, 0, g / length ** (order - 1))
    return found


def _truth(name: str, forward: Callable[..., Any]) -> None:
    def run(e: Engine, input: Any, dim: Any = None, keepdim: bool = False) -> ShadowTensor:
        tensor_only(input)
        dims = () if dim in ((), []) else reduced_dims(dim, input.ndim)  # here no dimensions are none, elsewhere all
        shape = reduced_shape(input.shape, dims, keepdim)
        answer = input.dtype if input.dtype == "uint8" else DType("bool")  # as it was when torch had no bool
        return pure(e, OpRule("", lambda x: forward(x, axis=dims, keepdims=keepdim)), (input,), shape, answer)

    add(
        name,
        run,
        "pure",
        "",
        (
            f"(a > 0).{name}()",
            f"torch.{name}(m, 0)",
            f"(a > 0).to(torch.uint8).{name}(0)",
            f"torch.{name}(a > 0, dim=())",
        ),
    )


_truth("all", np.all)
_truth("any", np.any)


@op("torch.equal", ".equal", kind="other")
def equal(e: Engine, input: Any, other: Any) -> bool:
    tensor_only(input, other)
    pair = arrays(e, (input, other))
    if pair is None:
        raise Unmodelled("values that are not modelled")
    return input.shape == other.shape and bool(np.array_equal(*pair))


@op("torch.allclose", ".allclose", kind="other")
def allclose(
    e: Engine, input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    tensor_only(input, other)
    if input.dtype != other.dtype:
        raise runtime(f"{input.dtype.scalar_name} did not match {other.dtype.scalar_name}", "dtype")
    pair = arrays(e, (input, other))
    if pair is None:
        raise Unmodelled("values that are not modelled")
    return bool(np.allclose(pair[0], pair[1], rtol=rtol, atol=atol, equal_nan=equal_nan))


def cumsum_vjp(at: int, g: Any, s: Any) -> tuple[Any]:
    """The gradient of cumsum along dimension ``at``, in a tuple: ``g`` summed up from the other end; along a dimension
    of size 1, and where ``g`` has fewer than two elements, it is ``g`` itself, as in torch.
    """
    return (g if g.size < 2 or g.shape[at] == 1 else laid_like(np.flip(np.cumsum(np.flip(g, at), at), at).copy(), g),)


@op("cumsum", samples=("a.cumsum(0)", "torch.cumsum(a, 1)", "n.cumsum(0)"), traits=("fresh", "copies_0d"))
def cumsum(e: Engine, input: Any, dim: int, *, dtype: Any = None) -> ShadowTensor:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    kind = DType(dtype) if dtype else (INT64 if input.dtype.category < 2 else input.dtype)

    rule = OpRule("CumsumBackward0", lambda x: np.cumsum(x, axis=at) if x.ndim else x, (), partial(cumsum_vjp, at))
    return pure(e, rule, (input,), input.shape, kind)


# -- softmax


def _in_half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(x.dtype)


def softmax_values(x: np.ndarray, at: int, *, half: bool) -> np.ndarray:
    """exp(x) / sum along dimension ``at``, computed without overflow.

    ``half``: for float16, torch's kernel for dimensions other than the last rounds exp(x) to float16
    before it divides; so does this.
    """
    shifted = np.exp(x - (np.max(x, axis=at, keepdims=True) if x.ndim else x))
    if not x.ndim:
        result: np.ndarray = shifted
        return result
    total = shifted.sum(axis=at, keepdims=True)
    answer: np.ndarray = (_in_half(shifted) if half and at < x.ndim - 1 else shifted) / total
    return answer


def log_softmax_values(x: np.ndarray, at: int, *, half: bool) -> np.ndarray:
    """``x - log(sum(exp(x)))`` along dimension ``at``, computed without overflow.

    ``half``: for float16, torch's kernel for the last dimension rounds the sum and its
    logarithm to float16; so does this.
    """
    if not x.ndim:
        result: np.ndarray = x - x  # 0, or NaN
        return result
    shifted = x - np.max(x, axis=at, keepdims=True)
    total = np.exp(shifted).sum(axis=at, keepdims=True)
    answer: np.ndarray = shifted - (_in_half(np.log(_in_half(total))) if half and at == x.ndim - 1 else np.log(total))
    return answer


def _softmax_vjp(at: int, g: Any, s: Any) -> tuple[Any]:
    return (s.result * (g - np.sum(g * s.result, axis=at if g.ndim else None, keepdims=True)),)


def _log_softmax_vjp(at: int, g: Any, s: Any) -> tuple[Any]:
    return (g - np.exp(s.result) * np.sum(g, axis=at if g.ndim else None, keepdims=True),)


def _register_softmax(name: str, title: str, values: Any, vjp: Any) -> Callable[..., ShadowTensor]:
    def run(e: Engine, input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> ShadowTensor:
        tensor_only(input)
        if dim is None or dtype is not None or input.dtype.category < 2:
            raise Unmodelled(f"{name} without dim, or with dtype")
        at = wrap_dim(dim, input.ndim)
        rule = OpRule(
            f"{title}Backward0",
            lambda x: values(x, at, half=input.dtype == "float16"),
            (Keep("result", "result"),),
            partial(vjp, at),
        )
        return pure(e, rule, (input,), input.shape, input.dtype)

    def method(e: Engine, input: Any, dim: int, dtype: Any = None) -> ShadowTensor:
        return run(e, input, dim, 3, dtype)

    traits: tuple[Trait, ...] = ("fresh", "out_without_derivative")
    add(f"F.{name}", run, "pure", "result", (f"F.{name}(a, dim=1)",), traits=traits)
    add(name, method, "pure", "result", (f"a.{name}(0)", f"torch.{name}(a, 1)"), traits=traits)
    return run


softmax = _register_softmax("softmax", "Softmax", softmax_values, _softmax_vjp)
log_softmax = _register_softmax("log_softmax", "LogSoftmax", log_softmax_values, _log_softmax_vjp)


@op("logsumexp", saves="self, result", samples=("a.logsumexp(0)", "torch.logsumexp(a, 1)"))
def logsumexp(e: Engine, input: Any, dim: Any, keepdim: bool = False) -> ShadowTensor:
    tensor_only(input)
    dims, before = reduced_dims(dim, input.ndim), input.shape

    def forward(x: np.ndarray) -> np.ndarray:
        top = np.max(x, axis=dims, keepdims=True)
        top = np.where(np.isinf(top), 0, top).astype(x.dtype)
        result = np.log(np.exp(x - top).sum(axis=dims, keepdims=True)) + top
        answer: np.ndarray = result if keepdim else np.squeeze(result, dims)
        return answer

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        return (widen(g, before, dims, keepdim) * np.exp(s.self - widen(s.result, before, dims, keepdim)),)

    return pure(
        e,
        OpRule("LogsumexpBackward0", forward, (Keep("self", 0), Keep("result", "result")), vjp),
        (input,),
        reduced_shape(before, dims, keepdim),
        input.dtype,
    )


# -- joining


def _all_tensors(tensors: Any) -> list[ShadowTensor]:
    found = list(tensors)
    if not found:
        raise Unmodelled("cat or stack of an empty list")
    tensor_only(*found)
    return found


def _common(tensors: list[ShadowTensor]) -> DType:
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = promote(dtype, t.dtype)
    return dtype


@op(
    "torch.cat",
    "torch.concat",
    "torch.concatenate",
    samples=("torch.cat([a, b])", "torch.cat((a, p), dim=1)", "torch.cat([a, n])"),
)
def cat(e: Engine, tensors: Any, dim: int = 0, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    parts = _all_tensors(tensors)
    check_history(e, *parts)
    for k, p in enumerate(parts):
        if p.ndim == 0:
            raise runtime(f"zero-dimensional tensor (at position {k}) cannot be concatenated", "shape")
    shaped = [p for p in parts if p.shape != (0,)]
    if not shaped and not -1 <= dim < 1:
        raise Unmodelled("cat of empty 1-D tensors along a dimension that they do not have, which torch does not check")
    at = wrap_dim(dim, (shaped or parts)[0].ndim)
    for k, p in enumerate(parts):
        _check_cat(parts[0], p, at, k)
    sizes = [p.shape[at] for p in parts]
    shape = (*parts[0].shape[:at], math.fsum(sizes).__int__(), *parts[0].shape[at + 1 :])
    cuts = np.cumsum(sizes)[:-1]
    rule = OpRule("CatBackward0", lambda *xs: np.concatenate(xs, at), (), lambda g, s: tuple(np.split(g, cuts, at)))
    dtype = _common(parts)
    stride = channels_last_strides(shape) if all(map(is_channels_last, parts)) else None
    return pure(e, rule, parts, shape, dtype, dtype, stride)


def _check_cat(first: ShadowTensor, part: ShadowTensor, at: int, k: int) -> None:
    if part.ndim != first.ndim:
        if part.shape == (0,) or first.shape == (0,):
            raise Unmodelled("cat of an empty 1-D tensor with others")
        raise runtime(f"Tensors must have same number of dimensions: got {first.ndim} and {part.ndim}", "shape")
    for d, (n, other) in enumerate(zip(first.shape, part.shape, strict=True)):
        if d != at and n != other:
            text = (
                f"Sizes of tensors must match except in dimension {at}. Expected size {n} but got size {other} for "
                f"tensor number {k} in the list."
            )
            raise runtime(text, "shape")


@op("torch.stack", samples=("torch.stack([a, b])", "torch.stack((a[0], c), dim=1)"))
def stack(e: Engine, tensors: Any, dim: int = 0, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    parts = _all_tensors(tensors)
    check_history(e, *parts)
    at = wrap_dim(dim, parts[0].ndim + 1)
    if any(map(is_channels_last, parts)):
        raise Unmodelled("the strides of a stack of channels_last tensors")
    for k, p in enumerate(parts):
        if p.shape != parts[0].shape:
            text = (
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at entry 0 and "
                f"{list(p.shape)} at entry {k}"
            )
            raise runtime(text, "shape")
    shape = (*parts[0].shape[:at], len(parts), *parts[0].shape[at:])
    count = len(parts)
    rule = OpRule(
        "StackBackward0",
        lambda *xs: np.stack(xs, at),
        (),
        lambda g, s: tuple(g[(*(slice(None),) * at, k, ...)] for k in range(count)),
    )
    dtype = _common(parts)
    return pure(e, rule, parts, shape, dtype, dtype)


@op(".repeat", samples=("c.repeat(2)", "a.repeat(2, 1)", "a.repeat(1, 1)"))
def repeat(e: Engine, self: Any, *sizes: Any) -> ShadowTensor:
    tensor_only(self)
    times = as_shape(sizes)
    if len(times) < self.ndim:
        raise runtime(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor", "shape"
        )
    padded = (1,) * (len(times) - self.ndim) + self.shape
    before = self.shape

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        if all(n == 1 for n in times):
            return (g if g.shape == before else g.reshape(before).copy(),)
        split = g.reshape(tuple(x for pair in zip(times, padded, strict=True) for x in pair))
        return (split.sum(axis=tuple(range(0, 2 * len(times), 2))).reshape(before).copy(),)

    rule = OpRule("RepeatBackward0", lambda x: np.tile(x, times), (), vjp)
    return pure(e, rule, (self,), tuple(a * b for a, b in zip(times, padded, strict=True)), self.dtype)


@op("flip", samples=("a.flip(0)", "torch.flip(a, (0, 1))"))
def flip(e: Engine, input: Any, *dims: Any) -> ShadowTensor:
    tensor_only(input)
    axes = tuple(wrap_dim(d, input.ndim) for d in as_shape(dims))
    rule = OpRule(
        "FlipBackward0", lambda x: np.flip(x, axes), (), lambda g, s: (laid_like(np.flip(g, axes).copy(), g),)
    )
    return pure(e, rule, (input,), input.shape, input.dtype, stride=preserved(input))


def _triangle(name: str, forward: Callable[..., Any]) -> None:
    def run(e: Engine, input: Any, diagonal: int = 0) -> ShadowTensor:
        tensor_only(input)
        check_history(e, input)
        if input.ndim < 2:
            raise runtime(f"{name}: input tensor must have at least 2 dimensions", "shape")
        rule = OpRule(
            f"{name.capitalize()}Backward0", lambda x: forward(x, diagonal), (), lambda g, s: (forward(g, diagonal),)
        )
        return pure(e, rule, (input,), input.shape, input.dtype)

    add(name, run, "pure", "", (f"a.{name}()", f"torch.{name}(a, 1)"))


_triangle("tril", np.tril)
_triangle("triu", np.triu)


__all__ = ["Pair", "ShadowError", "keep_inputs", "widen"]
