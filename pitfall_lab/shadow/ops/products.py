"""Products of more than two matrices or vectors: batched sums of products, einsum, bilinear
maps, distances, and weight norm.
"""

# ruff: noqa: A002, ARG001, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.ops import matmul, pointwise, reduce, views
from pitfall_lab.shadow.ops.building import (
    LARGE,
    Keep,
    OpRule,
    broadcast,
    of_finite,
    pure,
    tensor_only,
    underflow_on_the_way,
    wrap_dim,
)
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, Shape, is_contiguous

# -- an addend and a product


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * np.asarray(factor).astype(x.dtype)


def _register_sum(
    name: str,
    names: tuple[str, str],
    product: Any,
    slopes: Any,
    ranks: tuple[int, int],
    shape: Any,
    samples: tuple[str, ...],
) -> None:
    """Register ``beta * input + alpha * product(x, y)``: ``x`` is saved if ``y`` requires
    grad, and ``y`` if ``x`` does.

    ``ranks`` are the numbers of dimensions of x and y, ``shape`` gives the result's or None
    (declined), ``slopes`` both gradients.
    """
    keeps = tuple(sorted((Keep(names[0], 1, 2), Keep(names[1], 2, 1)), key=lambda keep: keep.name))
    title = name.capitalize()

    def run(
        e: Engine, input: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1, out: Any = None
    ) -> ShadowTensor:
        pointwise.no_out(out)
        tensor_only(input, x, y)
        if (x.ndim, y.ndim) != ranks or not input.dtype == x.dtype == y.dtype or not input.dtype.is_floating_point:
            raise Unmodelled(f"{name} with operands of incompatible shapes or dtypes")
        result = shape(x.shape, y.shape)
        if result is None or (name == "addr" and not is_contiguous(input.shape, input.stride)):
            raise Unmodelled(f"{name} with operands of incompatible shapes or dtypes")
        views.expanded(input, result)

        def vjp(g: Any, s: Any) -> tuple[Any, Any, Any]:
            left, right = slopes(_scaled(g, alpha), *(getattr(s, n) for n in names))
            return _scaled(g, beta), left, right

        rule = OpRule(f"{title}Backward0", lambda c, a, b: _scaled(c, beta) + _scaled(product(a, b), alpha), keeps, vjp)
        return pure(e, rule, (input, x, y), result, input.dtype)

    add(
        name,
        run,
        "pure",
        f"{names[0]} if {names[1]} needs grad; {names[1]} if {names[0]} needs grad",
        samples,
        traits=("products",),
    )


def _batches(x: Shape, y: Shape) -> Shape | None:
    return (*x[:2], y[2]) if x[0] == y[0] and x[2] == y[1] else None


def _turned(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _matrix_slopes(g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return None if y is None else g @ _turned(y), None if x is None else _turned(x) @ g


_register_sum(
    "baddbmm",
    ("batch1", "batch2"),
    matmul.product,
    _matrix_slopes,
    (3, 3),
    _batches,
    (
        "torch.baddbmm(a[:, :2], a[None], w[None])",
        "torch.baddbmm(waves(2, 4, 4), seq, seq.mT, alpha=0.5)",
        "a[None, :, :2].baddbmm(a[None], w[None], beta=2)",
    ),
)
_register_sum(
    "addbmm",
    ("batch1", "batch2"),
    lambda x, y: (x @ y).sum(0),
    lambda g, x, y: (None if y is None else g[None] @ _turned(y), None if x is None else _turned(x) @ g[None]),
    (3, 3),
    lambda x, y: (x[1], y[2]) if x[0] == y[0] and x[2] == y[1] else None,
    ("torch.addbmm(a[:, :2], a[None], w[None])", "torch.addbmm(waves(4, 4), seq, seq.mT)"),
)
_register_sum(
    "addmv",
    ("mat", "vec"),
    matmul.product,
    lambda g, x, y: (None if y is None else np.outer(g, y), None if x is None else x.T @ g),
    (2, 1),
    lambda x, y: (x[0],) if x[1] == y[0] else None,
    ("torch.addmv(a[:, 0], b, c)", "torch.addmv(p[:, 0], p, c, beta=0.5, alpha=2)"),
)
_register_sum(
    "addr",
    ("vec1", "vec2"),
    np.outer,
    lambda g, x, y: (None if y is None else g @ y, None if x is None else x @ g),
    (1, 1),
    lambda x, y: (x[0], y[0]),
    ("torch.addr(a, a[:, 0], c)", "torch.addr(c, c[:2], c, beta=0.5, alpha=2)"),
)


# -- outer products


@op(
    "outer", "torch.ger", ".ger", saves="as mul", samples=("torch.outer(c, a[0])", "c.outer(p[0])", "torch.outer(a, c)")
)
def outer(e: Engine, input: Any, vec2: Any, *, out: Any = None) -> ShadowTensor:
    pointwise.no_out(out)
    tensor_only(input, vec2)
    for name, x in (("self", input), ("vec2", vec2)):
        if x.ndim != 1:
            raise runtime(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D", "shape")
    return pointwise.mul(e, views.reshape(e, input, input.numel, 1), vec2)


@op("kron", saves="as mul, of views", samples=("torch.kron(a, w)", "torch.kron(c, a)"), traits=("out_uncounted",))
def kron(e: Engine, input: Any, other: Any) -> ShadowTensor:
    tensor_only(input, other)
    if 0 in (*input.shape, *other.shape):
        raise Unmodelled("kron of an empty tensor")
    rank = max(input.ndim, other.ndim)
    left, right = ((1,) * (rank - x.ndim) + x.shape for x in (input, other))
    first = matmul.unsafe_view(e, input, tuple(n for size in left for n in (size, 1)))
    second = matmul.unsafe_view(e, other, tuple(n for size in right for n in (1, size)))
    return matmul.unsafe_view(
        e, pointwise.mul(e, first, second), tuple(a * b for a, b in zip(left, right, strict=True))
    )


# -- contraction


def _dimensions(given: Any, ndim: int) -> list[int]:
    wanted = [given] if isinstance(given, int) else list(given)
    if wanted and not ndim:
        raise ShadowError("IndexError", f"Dimension specified as {wanted[0]} but tensor has no dimensions", "shape")
    found = [wrap_dim(d, ndim) for d in wanted]
    for d in found:
        if found.count(d) > 1:
            raise runtime(f"dim {d} appears multiple times in the list of dims", "shape")
    return found


@op("torch.functional.tensordot", "torch.tensordot", saves="as mm", samples=(
    "torch.tensordot(a, b, dims=([1], [1]))", "torch.tensordot(a, w, dims=1)", "torch.tensordot(a, b)",
    "torch.tensordot(a, c, 1)", "torch.tensordot(img, k2, dims=([1], [1]))"), traits=("products",))  # fmt: skip
def tensordot(e: Engine, a: Any, b: Any, dims: Any = 2, out: Any = None) -> ShadowTensor:
    """Sum of products over pairs of dimensions: over the last ``dims`` of ``a`` and the first of ``b`` if it is a
    number, else over the dimensions in its two lists.

    Raises ``ShadowError`` (torch's error) for dimensions that do not exist or occur twice and for two dtypes, and
    ``Unmodelled``, among others, for pairs of unequal size or of size 1, for some results of one element, and for
    ``dims`` given as a tensor.
    """
    pointwise.no_out(out)
    tensor_only(a, b)
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise runtime(
                f"tensordot expects dims {'< ndim_a or ndim_b' if dims > 0 else '>= 0'}, but got dims={dims}", "shape"
            )
        dims = (list(range(a.ndim - dims, a.ndim)), list(range(dims)))
    if isinstance(dims, ShadowTensor):
        raise Unmodelled("tensordot with dims given as a tensor")
    if a.dtype != b.dtype:
        raise runtime("both inputs should have same dtype", "dtype")
    first, second = (_dimensions(given, x.ndim) for given, x in zip(dims, (a, b), strict=True))
    if len(first) != len(second) or any(a.shape[i] != b.shape[j] for i, j in zip(first, second, strict=True)):
        raise Unmodelled("tensordot with operands of incompatible shapes or dtypes")
    if any(b.shape[j] == 1 for j in second):
        raise Unmodelled("tensordot over a dimension of size 1")
    kept, other = ([d for d in range(x.ndim) if d not in gone] for x, gone in ((a, first), (b, second)))
    rows, columns = math.prod(a.shape[d] for d in kept), math.prod(b.shape[d] for d in other)
    inner = math.prod(a.shape[d] for d in first)
    if not kept and not other:
        if not all(is_contiguous(x.shape, x.stride) for x in (a, b)):
            raise Unmodelled(
                "tensordot over all dimensions of non-contiguous tensors"
            )  # which is mul and sum, in an order of its own
        turned = [views.permute(e, x, *order) for x, order in ((a, first), (b, second))]
        right, left = (views.flatten(e, x) for x in reversed(turned))  # arguments are computed from the right
        return views.reshape(e, matmul.dot(e, left, right))
    if rows == columns == 1:
        raise Unmodelled("tensordot with a one-element result: whether torch calls mm or dot")
    left = views.reshape(e, views.permute(e, a, *kept, *first), rows, inner)
    right = views.reshape(e, views.permute(e, b, *second, *other), inner, columns)
    return views.reshape(e, matmul.mm(e, left, right), *(a.shape[d] for d in kept), *(b.shape[d] for d in other))


@op(
    "inner",
    saves="as tensordot or mul",
    samples=("torch.inner(a, b)", "torch.inner(c, a[0])", "torch.inner(a, c[0])"),
    traits=("products",),
)
def inner(e: Engine, input: Any, other: Any) -> ShadowTensor:
    tensor_only(input, other)
    if not input.ndim or not other.ndim:
        return pointwise.mul(e, input, other)
    if input.shape[-1] != other.shape[-1]:
        shown = f"{list(input.shape)} and {list(other.shape)}"
        raise runtime(f"inner() the last dimension must match on both input tensors but got shapes {shown}", "shape")
    return tensordot(e, input, other, ([input.ndim - 1], [other.ndim - 1]))


def _labels(equation: str, count: int) -> tuple[list[str], str]:
    """The subscripts of each operand and of the result of an ``einsum`` equation.

    Without an arrow, the result has the letters that occur once, sorted. Declines an ellipsis, a letter repeated in one
    operand, and another number of operands than ``count``.
    """
    text = equation.replace(" ", "")
    if "." in text:
        raise Unmodelled("einsum with an ellipsis")
    given, arrow, result = text.partition("->")
    parts = given.split(",")
    if not arrow:
        result = "".join(sorted(x for x in set(given) - {","} if given.count(x) == 1))
    if len(parts) != count or any(len(set(p)) != len(p) for p in (*parts, result)) or not set(result) <= set(given):
        raise Unmodelled("einsum with a repeated letter, or an equation that does not fit the operands")
    return parts, result


@op("torch.functional.einsum", "torch.einsum", saves="as bmm, mul and sum", samples=(
    "torch.einsum('ij,jk->ik', a, w)", "torch.einsum('ij,kj->ik', a, b)", "torch.einsum('ij->ji', a)",
    "torch.einsum('ij->i', a)", "torch.einsum('ij->', a)", "torch.einsum('ij,ij->', a, b)",
    "torch.einsum('i,j->ij', c, a[0])", "torch.einsum('bct,bdt->bcd', seq, seq * 2)",
    "torch.einsum('bhqd,bhkd->bhqk', q4, q4 + 1)", "torch.einsum('ij,j', a, c)", "torch.einsum('ij,ij->ij', a, b)",
    "torch.einsum('bhqk,bhkd->bqhd', q4.mT, q4)", "torch.einsum('ij,jk', a, w)", "torch.einsum('ij,k->i', a, c)"),
    traits=("products",))  # fmt: skip
def einsum(e: Engine, *arguments: Any) -> ShadowTensor:
    """Sums of products named by letters: one operand or two.

    Raises ``Unmodelled``, among others, for more of them, an ellipsis, a letter repeated in one operand, dimensions
    given as lists, shapes that do not fit, and inference tensors outside of inference mode.
    """
    if len(arguments) == 2 and isinstance(arguments[1], tuple | list):
        arguments = (arguments[0], *arguments[1])
    equation, *operands = arguments
    if not isinstance(equation, str) or len(operands) not in (1, 2):
        raise Unmodelled("einsum of more than two operands, or with dimensions given as lists")
    tensor_only(*operands)
    if not e.inference and any(x.inference for x in operands):
        raise Unmodelled("the version of einsum's result computed from inference tensors, outside inference_mode")
    parts, result = _labels(equation, len(operands))
    if any(len(p) != x.ndim for p, x in zip(parts, operands, strict=True)):
        raise Unmodelled("einsum with operands of incompatible shapes or dtypes")
    letters = result + "".join(sorted({x for p in parts for x in p} - set(result)))
    aligned = [_aligned(e, x, p, letters) for x, p in zip(operands, parts, strict=True)]
    summed = list(range(len(result), len(letters)))
    if len(aligned) == 1:
        return reduce.sum(e, aligned[0], summed) if summed else aligned[0]
    return _pair(e, aligned[0], aligned[1], summed, len(result))


def _aligned(e: Engine, x: ShadowTensor, part: str, letters: str) -> ShadowTensor:
    """The operand with one dimension per letter, in the order of ``letters``; a letter that it lacks
    becomes a dimension of size 1.
    """
    order = [part.find(letter) for letter in letters]
    for k, place in enumerate(order):
        if place < 0:
            x = views.unsqueeze(e, x, -1)
            order[k] = x.ndim - 1
    return views.permute(e, x, *order)


def _pair(e: Engine, x: ShadowTensor, y: ShadowTensor, summed: Sequence[int], kept: int) -> ShadowTensor:
    """One step of ``einsum``: sum the dimensions that only one operand has, multiply, and sum
    the dimensions that both have.
    """
    if any(a != b and 1 not in (a, b) for a, b in zip(x.shape, y.shape, strict=True)):
        raise Unmodelled("einsum with operands of incompatible shapes or dtypes")
    both = [d for d in summed if x.shape[d] != 1 and y.shape[d] != 1]
    alone_x, alone_y = (
        [d for d in summed if one.shape[d] != 1 and other.shape[d] == 1] for one, other in ((x, y), (y, x))
    )
    x = reduce.sum(e, x, alone_x, keepdim=True) if alone_x else x
    y = reduce.sum(e, y, alone_y, keepdim=True) if alone_y else y
    result = _contract(e, x, y, both) if both else pointwise.mul(e, x, y)
    return views.view_(e, result, *result.shape[:kept]) if summed else result


def _contract(e: Engine, x: ShadowTensor, y: ShadowTensor, both: Sequence[int]) -> ShadowTensor:
    """``sumproduct_pair`` of ``aten/src/ATen/native/Linear.cpp``: one bmm between permutations."""
    rest = [d for d in range(x.ndim) if d not in both]
    shared = [d for d in rest if x.shape[d] != 1 and y.shape[d] != 1]
    left = [d for d in rest if d not in shared and x.shape[d] != 1]
    right = [d for d in rest if d not in shared and d not in left]
    count, rows, columns = (
        math.prod(x.shape[d] for d in shared),
        math.prod(x.shape[d] for d in left),
        math.prod(y.shape[d] for d in right),
    )
    inner_size = math.prod(x.shape[d] for d in both)
    first = views.reshape(e, views.permute(e, x, *shared, *left, *both, *right), count, rows, inner_size)
    second = views.reshape(e, views.permute(e, y, *shared, *both, *right, *left), count, inner_size, columns)
    product = matmul.bmm(e, first, second)
    sizes = [*(x.shape[d] for d in (*shared, *left)), *(1 for _ in both), *(y.shape[d] for d in right)]
    order = [*shared, *left, *both, *right]
    return views.permute(e, views.view_(e, product, *sizes), *(order.index(d) for d in range(x.ndim)))


# -- bilinear


@op("F.bilinear", "torch.bilinear", saves="input1, input2 (views) and weight", samples=(
    "F.bilinear(a, b, waves(4, 3, 3).requires_grad_(), c4)", "F.bilinear(a, p, waves(2, 3, 3).requires_grad_())",
    "F.bilinear(a[None], b[None], waves(2, 3, 3))"), traits=("products",))  # fmt: skip
def bilinear(e: Engine, input1: Any, input2: Any, weight: Any, bias: Any = None) -> ShadowTensor:
    """``F.bilinear`` of ``input1`` (..., I) and ``input2`` (..., J) with a weight (O, I, J) and a bias (O,) or None:
    (..., O).

    Raises ``Unmodelled``, among others, for other shapes and several dtypes.
    """
    given = [x for x in (input1, input2, weight, bias) if x is not None]
    tensor_only(*given)
    if (
        weight.ndim != 3
        or input1.shape[:-1] != input2.shape[:-1]
        or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]
        or len({x.dtype for x in given}) > 1
    ):
        raise Unmodelled("bilinear with operands of incompatible shapes or dtypes")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise Unmodelled("bilinear with a bias of another shape")
    outer_shape = input1.shape[:-1]
    rows = (views.reshape(e, x, -1, x.shape[-1]) for x in (input1, input2))
    first, second = rows

    def vjp(g: Any, s: Any) -> tuple[Any, Any, Any]:
        return (
            np.einsum("no,oij,nj->ni", g, s.i2, s.i3) if s.i2 is not None and s.i3 is not None else None,
            np.einsum("no,ni,nj->oij", g, s.i1, s.i3) if s.i1 is not None and s.i3 is not None else None,
            np.einsum("no,ni,oij->nj", g, s.i1, s.i2) if s.i1 is not None and s.i2 is not None else None,
        )

    keeps = (Keep("i1", 0, (1, 2)), Keep("i2", 1, (0, 2)), Keep("i3", 2, (0, 1)))
    rule = OpRule("TrilinearBackward0", lambda x, w, y: np.einsum("ni,oij,nj->no", x, w, y), keeps, vjp)
    product = pure(e, rule, (first, weight, second), (first.shape[0], weight.shape[0]), weight.dtype)
    result = views.reshape(e, product, *outer_shape, weight.shape[0])
    return result if bias is None else pointwise.add_(e, result, bias)


# -- distances


@op(
    "F.cosine_similarity",
    "torch.cosine_similarity",
    saves="as norm, div, mul and sum",
    samples=("F.cosine_similarity(a, b)", "F.cosine_similarity(a, p, dim=0)", "F.cosine_similarity(a, c)"),
)
def cosine_similarity(e: Engine, x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> ShadowTensor:
    tensor_only(x1, x2)
    if x1.dtype != x2.dtype:
        raise Unmodelled("cosine_similarity with operands of two dtypes")
    shape = broadcast(x1.shape, x2.shape)
    pair = [x1, x2] if x1.shape == x2.shape else [views.expand(e, x, *shape) for x in (x2, x1)][::-1]
    lengths = [views.clone(e, reduce.norm(e, x, 2, dim, keepdim=True)) for x in pair]
    before, e.grad_enabled = e.grad_enabled, False
    try:
        for length in lengths:
            pointwise.clamp_min_in_place(e, length, eps)
    finally:
        e.grad_enabled = before
    two, one = (
        pointwise.div(e, x, length) for x, length in zip(pair[::-1], lengths[::-1], strict=True)
    )  # computed from the right
    return reduce.sum(e, pointwise.mul(e, one, two), dim)


@op(
    "torch.functional.cdist",
    "torch.cdist",
    saves="x1, x2, result",
    samples=("torch.cdist(a, b)", "torch.cdist(a, p, p=1.0)", "torch.cdist(a, a)", "torch.cdist(seq, seq * 2)"),
)
def cdist(
    e: Engine, x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = "use_mm_for_euclid_dist_if_necessary"
) -> ShadowTensor:
    """``torch.cdist``: the distances between rows of (..., P, M) and (..., R, M), of shape (..., P, R).

    Raises ``Unmodelled``, among others, for a ``p`` other than 1 and 2, other shapes and dtypes, and more than 25 rows,
    from which on torch may compute them otherwise.
    """
    tensor_only(x1, x2)
    if (
        p not in (1, 2)
        or x1.ndim < 2
        or x1.shape[:-2] != x2.shape[:-2]
        or x1.shape[-1] != x2.shape[-1]
        or x1.dtype != x2.dtype
        or x1.dtype not in ("float32", "float64")
        or max(x1.shape[-2], x2.shape[-2]) > 25
    ):
        raise Unmodelled("cdist with operands of these shapes or dtypes, or of this order p")

    def forward(x: Any, y: Any) -> Any:
        gap = x[..., :, None, :].astype(np.float64) - y[..., None, :, :]
        if x.dtype == np.float32 and np.abs(gap).max(initial=0) > LARGE:
            return None  # torch adds in float32
        if p != 1 and underflow_on_the_way(np.abs(gap), (-1,), x.dtype):
            return None
        return np.abs(gap).sum(-1) if p == 1 else np.sqrt((gap * gap).sum(-1))

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        gap = s.x1[..., :, None, :] - s.x2[..., None, :, :]
        length = s.result[..., None]
        flow = g[..., None] * np.sign(gap) if p == 1 else np.where(length == 0, 0, g[..., None] * gap / length)
        return flow.sum(-2), -flow.sum(-3)

    rule = of_finite(OpRule("CdistBackward0", forward, (Keep("x1", 0), Keep("x2", 1), Keep("result", "result")), vjp))
    return pure(e, rule, (x1, x2), (*x1.shape[:-1], x2.shape[-2]), x1.dtype)


# -- weight norm


@op(
    "torch.norm_except_dim",
    saves="as norm, of views",
    samples=(
        "torch.norm_except_dim(a, 2, 0)",
        "torch.norm_except_dim(a, 2, 1)",
        "torch.norm_except_dim(k1, 2, 0)",
        "torch.norm_except_dim(a, 2, -1)",
    ),
)
def norm_except_dim(e: Engine, v: Any, pow: int = 2, dim: int = 0) -> ShadowTensor:
    """The norm of order ``pow`` of ``v`` over all dimensions but ``dim``, which are kept with size 1; with ``dim=-1``
    over all, without dimensions.

    Raises ``Unmodelled``, among others, for a ``dim`` that is neither the first nor the last one.
    """
    tensor_only(v)
    if dim == -1:
        return matmul.norm_of(e, v, pow, None)
    if dim == 0:
        rows = views.view_(e, views.contiguous(e, v), v.shape[0], -1)
        return views.view_(e, matmul.norm_of(e, rows, pow, 1), v.shape[0], *(1,) * (v.ndim - 1))
    if dim == v.ndim - 1:
        columns = views.view_(e, views.contiguous(e, v), -1, v.shape[-1])
        return views.view_(e, matmul.norm_of(e, columns, pow, 0), *(1,) * (v.ndim - 1), v.shape[-1])
    raise Unmodelled("weight norm with dim other than the first and the last one")


@op(
    "torch._weight_norm",
    saves="g, v, and private norms",
    samples=(
        "torch._weight_norm(a, a[:, :1] + 2, 0)",
        "torch._weight_norm(k1, waves(6, 1, 1).requires_grad_())",
        "torch._weight_norm(a, p[:1], 1)",
    ),
)
def weight_norm(e: Engine, v: Any, g: Any, dim: int = 0) -> ShadowTensor:
    """``g * v / norm(v)``, where the norm is over all dimensions but ``dim``.

    Raises ``Unmodelled``, among others, for a ``dim`` that is neither the first nor the last one, for two dtypes, and
    for fewer than 2 dimensions.
    """
    tensor_only(v, g)
    if dim not in (0, v.ndim - 1) or v.dtype != g.dtype or v.ndim < 2:
        raise Unmodelled(
            "weight norm along an inner dim, of a tensor with fewer than 2 dimensions, or with v and "
            "g of different dtypes"
        )
    axes = tuple(d for d in range(v.ndim) if d != dim)
    direction, length = views.contiguous(e, v), views.contiguous(e, g)

    def norms(x: Any) -> Any:
        return np.sqrt((x.astype(np.float64) ** 2).sum(axis=axes, keepdims=True))

    def vjp(flow: Any, s: Any) -> tuple[Any, Any]:
        size = norms(s.v)
        along = (flow * s.v).sum(axis=axes, keepdims=True)
        return s.g / size * (flow - s.v * along / (size * size)), along / size

    rule = OpRule(
        "WeightNormInterfaceBackward0",
        lambda x, y: (x * (y / norms(x)), norms(x).reshape(y.shape)),
        (Keep("g", 1), Keep("v", 0)),
        vjp,
    )
    return pure(e, rule, (direction, length), v.shape, v.dtype, hidden=("result1",))
