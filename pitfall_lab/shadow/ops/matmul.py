"""Matrix products, decomposed into the operations whose autograd nodes torch records."""

# ruff: noqa: A002, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import C_TYPES
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import reshaped
from pitfall_lab.shadow.ops import pointwise, reduce, views
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    broadcast,
    check_history,
    own,
    pure,
    records,
    tensor_only,
    underflow_on_the_way,
)
from pitfall_lab.shadow.ops.pointwise import no_out
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.releases import LINEAR_IS_NO_VIEW, PRODUCTS_NAME_THEMSELVES
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, is_contiguous


def product(a: Any, b: Any) -> Any:
    """``a @ b``.

    Raises Unmodelled where a sum may overflow: the result then depends on the kernel's order of additions.
    """
    if a.dtype.kind == "f" and a.size and b.size:
        largest = [float(np.abs(x, where=np.isfinite(x), out=np.zeros(x.shape)).max()) for x in (a, b)]
        if largest[0] * largest[1] * a.shape[-1] > np.finfo(a.dtype).max:
            raise Unmodelled(
                "a matrix product whose sums overflow: the result depends on the order in which the kernel adds"
            )
    return np.matmul(a, b)


def _column_major(t: ShadowTensor) -> bool:
    return t.stride[0] == 1 and t.stride[1] == t.shape[0]


def _left(g: Any, mat2: Any, column_major: bool) -> Any:
    """The gradient of the first factor of ``mm``, with torch's strides: column-major if the first factor is."""
    return (mat2 @ g.T).T if column_major else g @ mat2.T


def _right(g: Any, mat1: Any, column_major: bool) -> Any:
    return (g.T @ mat1).T if column_major else mat1.T @ g


def _mm_rule(a: ShadowTensor, b: ShadowTensor) -> OpRule:
    first, second = _column_major(a), _column_major(b)

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        right = None if s.self is None else _right(g, s.self, second)  # first, as in torch: by name
        return None if s.mat2 is None else _left(g, s.mat2, first), right

    return OpRule("MmBackward0", product, (Keep("mat2", 1, 0), Keep("self", 0, 1)), vjp)


def _bmm_vjp(g: Any, s: Any) -> tuple[Any, Any]:
    return (
        None if s.mat2 is None else g @ np.swapaxes(s.mat2, -1, -2),
        None if s.self is None else np.swapaxes(s.self, -1, -2) @ g,
    )


BMM = OpRule("BmmBackward0", product, (Keep("mat2", 1, 0), Keep("self", 0, 1)), _bmm_vjp)
MV = OpRule(
    "MvBackward0", product, (Keep("self", 0, 1), Keep("vec", 1, 0)),
    lambda g, s: (None if s.vec is None else np.outer(g, s.vec), None if s.self is None else s.self.T @ g),
)  # fmt: skip
DOT = OpRule(
    "DotBackward0", product, (Keep("self", 0, 1), Keep("tensor", 1, 0)),
    lambda g, s: (None if s.tensor is None else g * s.tensor, None if s.self is None else g * s.self),
)  # fmt: skip


def _same_type(a: ShadowTensor, b: ShadowTensor, text: str) -> None:
    if a.dtype != b.dtype:
        raise runtime(text, "dtype")


def _mat_types(a: ShadowTensor, b: ShadowTensor) -> None:
    if a.dtype != b.dtype:
        if a.dtype not in C_TYPES or b.dtype not in C_TYPES:
            raise Unmodelled("matmul with operands of two dtypes, one of them without a name in torch's message")
        raise runtime(
            f"expected m1 and m2 to have the same dtype, but got: {C_TYPES[a.dtype]} != {C_TYPES[b.dtype]}", "dtype"
        )


@op(
    "mm",
    "torch.spmm",
    saves="mat2 if self needs grad; self if mat2 needs grad",
    samples=("a.mm(w)", "torch.mm(a, w)", "p.mm(w)"),
    traits=("matrix_product", "fresh", "products"),
)
def mm(e: Engine, input: Any, mat2: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    tensor_only(input, mat2)
    check_history(e, input, mat2)
    for name, x in (("self", input), ("mat2", mat2)):
        if x.ndim != 2:
            raise runtime(
                f"mm: {name} must be a matrix, got {x.ndim}-D tensor"
                if e.does(PRODUCTS_NAME_THEMSELVES)
                else f"{name} must be a matrix",
                "shape",
            )
    if input.shape[1] != mat2.shape[0]:
        raise _cannot(e, "mm", input.shape, mat2.shape)
    _mat_types(input, mat2)
    return pure(e, _mm_rule(input, mat2), (input, mat2), (input.shape[0], mat2.shape[1]), input.dtype)


def _cannot(e: Engine, name: str, a: Shape, b: Shape) -> ShadowError:
    who = f"{name}: " if e.does(PRODUCTS_NAME_THEMSELVES) else ""
    return runtime(f"{who}mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})", "shape")


@op(
    "mv",
    saves="vec if self needs grad; self if vec needs grad",
    samples=("a.mv(c)", "torch.mv(p, c)"),
    traits=("matrix_product", "products"),
)
def mv(e: Engine, input: Any, vec: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    tensor_only(input, vec)
    check_history(e, input, vec)
    if input.ndim != 2 or vec.ndim != 1:
        raise Unmodelled("mv with operands that are not 2-D and 1-D")
    if input.shape[1] != vec.shape[0]:
        raise runtime(
            f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), "
            f"vec ({vec.shape[0]})",
            "shape",
        )
    if input.dtype[:] == "bfloat16" != vec.dtype[:]:
        raise Unmodelled(
            "mv of a bfloat16 matrix and a vector of another type: the release and the processor "
            "decide which error comes"
        )
    kinds = f"{vec.dtype.scalar_name}, {input.dtype.scalar_name}, and {vec.dtype.scalar_name}"
    _same_type(input, vec, f"addmv input tensors must have the same dtype, but got {kinds}")
    return pure(e, MV, (input, vec), (input.shape[0],), input.dtype)


@op(
    "dot",
    saves="tensor if self needs grad; self if tensor needs grad",
    samples=("c.dot(c)", "torch.dot(c, a[0])"),
    traits=("products",),
)
def dot(e: Engine, input: Any, tensor: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    tensor_only(input, tensor)
    check_history(e, input, tensor)
    if input.ndim != 1 or tensor.ndim != 1:
        raise runtime(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors", "shape")
    _same_type(
        input,
        tensor,
        f"dot : expected both vectors to have same dtype, but found {input.dtype.scalar_name} and "
        f"{tensor.dtype.scalar_name}",
    )
    if input.shape != tensor.shape:
        raise runtime(
            f"inconsistent tensor size, expected tensor [{input.shape[0]}] and src [{tensor.shape[0]}] to have the "
            f"same number of elements, but got {input.shape[0]} and {tensor.shape[0]} elements respectively",
            "shape",
        )
    return pure(e, DOT, (input, tensor), (), input.dtype)


@op(
    "bmm",
    saves="mat2 if self needs grad; self if mat2 needs grad",
    samples=("torch.bmm(a[None], w[None])",),
    traits=("matrix_product", "products"),
)
def bmm(e: Engine, input: Any, mat2: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    tensor_only(input, mat2)
    check_history(e, input, mat2)
    if (
        input.ndim != 3
        or mat2.ndim != 3
        or input.dtype != mat2.dtype
        or input.shape[0] != mat2.shape[0]
        or input.shape[2] != mat2.shape[1]
    ):
        raise Unmodelled("bmm with operands of incompatible shapes")
    return pure(e, BMM, (input, mat2), (*input.shape[:2], mat2.shape[2]), input.dtype)


@op("matmul", ".__matmul__", "torch.linalg.matmul", saves="as mm, mv, dot or bmm", samples=(
    "a @ w", "a @ c", "c @ c", "c @ w", "torch.matmul(a, w)", "a[None] @ w", "a[None] @ w[None]", "p @ w",
    "a[None].expand(2, 2, 3) @ w[None].expand(2, 3, 2)", "a @ a.t()", "seq @ waves(6, 2)",
    "seq.transpose(0, 1) @ waves(6, 2)", "seq.transpose(0, 1) @ a[0].repeat(2)", "seq @ c6", "seq @ waves(6)",
    "seq.mT @ waves(4)", "waves(5, 4) @ seq", "k1[0].mT @ seq", "c4 @ seq", "waves(4) @ seq",
    "waves(4) @ seq.mT.contiguous().mT", "img @ seq.mT[:, None, :, :3]", "seq @ a"),
    traits=("matrix_product", "products"))  # fmt: skip
def matmul(e: Engine, input: Any, other: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    tensor_only(input, other)
    i, j = input.ndim, other.ndim
    if i == 0 or j == 0:
        raise runtime(f"both arguments to matmul need to be at least 1D, but they are {i}D and {j}D", "shape")
    if (i, j) == (1, 1):
        return dot(e, input, other)
    if (i, j) == (2, 1):
        return mv(e, input, other)
    if (i, j) == (1, 2):
        return views.squeeze_(e, mm(e, views.unsqueeze(e, input, 0), other), 0)
    if (i, j) == (2, 2):
        return mm(e, input, other)
    if j <= 2 and _folds(other, input.shape, input.stride):
        return _folded(e, input, other)
    if i <= 2 and (input.requires_grad or (i == 1 and _folds(input, *_turned(other)))):
        output = _folded(e, views.matrix_t(e, other), views.t(e, input) if i == 2 else input)
        return views.contiguous(e, views.matrix_t(e, output)) if i == 2 else output
    return _batched(e, input, other)


def _turned(tensor: ShadowTensor) -> tuple[Shape, Shape]:
    """Return the shape and strides with the last two dimensions exchanged."""
    return tuple((*x[:-2], x[-1], x[-2]) for x in (tensor.shape, tensor.stride))  # type: ignore[return-value]


def _folds(small: ShadowTensor, shape: Shape, stride: Shape) -> bool:
    """Whether torch folds the batch of the larger factor into the rows of one product.

    It does if the smaller factor ``small`` requires grad, else only where folding (of ``shape``, ``stride``) gives a
    view (``should_fold`` in ``LinearAlgebra.cpp``).
    """
    rows = zip(shape[1:-1], stride[:-2], stride[1:-1], strict=True)
    return small.requires_grad or 0 in shape or all(outer == inner * n for n, outer, inner in rows)


def unsafe_view(e: Engine, self: ShadowTensor, shape: Shape) -> ShadowTensor:
    """The same memory under another shape, with a counter of its own: writes to the one are not counted on the other.

    Raises ``ShadowError`` (torch's error) if the strides do not allow that shape, and what :func:`records` raises.
    """
    before = self.shape
    counter = None if self.counter is None else Counter()
    stride = views.view_strides(before, self.stride, shape)
    if stride is None:
        raise runtime(views.NO_VIEW, "shape", tensor=self)
    result = ShadowTensor(e.graph, self.storage, shape, stride, self.offset, self.dtype, counter)
    result.inference = self.inference
    if records(e, self):
        node = e.graph.new_node("UnsafeViewBackward0", (e.graph.edge(self),), lambda g, s: (reshaped(g, before),))
        own(node, result)
    return result


def _folded(e: Engine, large: ShadowTensor, small: ShadowTensor) -> ShadowTensor:
    """(B, N, K) @ (K, M) or (K,): fold the batch into the rows."""
    if large.shape[-1] != small.shape[0]:
        if small.ndim == 1:
            raise Unmodelled("matmul with operands of incompatible shapes")
        raise _cannot(e, "mm", (math.prod(large.shape[:-1]), large.shape[-1]), small.shape)
    flat = views.reshape(e, large, math.prod(large.shape[:-1]), large.shape[-1])
    product = mm(e, flat, small) if small.ndim == 2 else mv(e, flat, small)
    return unsafe_view(e, product, (*large.shape[:-1], *small.shape[1:]))


def _batched(e: Engine, input: ShadowTensor, other: ShadowTensor) -> ShadowTensor:
    """Expand both to one batch, flatten it, bmm; a vector is a matrix of one row or one column.

    A single matrix that requires grad is not expanded where the other operand is a batch: its gradient is
    then computed by one product.
    """
    pair = (input, other)
    alone = next((x for x in pair if x.shape[0] == 1 and x.requires_grad), None)
    if input.ndim == other.ndim == 3 and alone is not None and input.shape[0] != other.shape[0]:
        return matmul(e, *(views.squeeze(e, x, 0) if x is alone else x for x in pair))
    batch = broadcast(input.shape[:-2], other.shape[:-2])
    count = int(np.prod(batch))
    n, k = input.shape[-2:] if input.ndim > 1 else (1, input.shape[0])
    inner, m = other.shape[-2:] if other.ndim > 1 else (other.shape[0], 1)
    if inner != k:
        raise Unmodelled("matmul with operands of incompatible shapes")
    left = views.reshape(e, views.expand(e, input, *batch, n, k), count, n, k)
    shape = (*batch, *((n,) if input.ndim > 1 else ()), *((m,) if other.ndim > 1 else ()))
    if other.ndim == 1:
        right = views.unsqueeze(e, views.reshape(e, views.expand(e, other, *batch, k), count, k), 2)
        return unsafe_view(e, views.squeeze(e, bmm(e, left, right), -1), shape)
    right = views.reshape(e, views.expand(e, other, *batch, k, m), count, k, m)
    return unsafe_view(e, bmm(e, left, right), shape)


def _addmm_rule(mat1: ShadowTensor, mat2: ShadowTensor, beta: float, alpha: float) -> OpRule:
    first, second = _column_major(mat1), _column_major(mat2)

    def scaled(g: Any, factor: float) -> Any:
        return g if factor == 1 or g is None else g * g.dtype.type(factor)

    def vjp(g: Any, s: Any) -> tuple[Any, Any, Any]:
        left = None if s.mat2 is None else scaled(_left(g, s.mat2, first), alpha)
        right = None if s.mat1 is None else scaled(_right(g, s.mat1, second), alpha)
        return scaled(g, beta), left, right

    def forward(c: Any, a: Any, b: Any) -> Any:
        total = product(a, b)
        return (c if beta == 1 else c * c.dtype.type(beta)) + (total if alpha == 1 else total * total.dtype.type(alpha))

    return OpRule("AddmmBackward0", forward, (Keep("mat1", 1, 2), Keep("mat2", 2, 1)), vjp)


@op(
    "addmm",
    saves="mat1 if mat2 needs grad; mat2 if mat1 needs grad",
    samples=("torch.addmm(a[:, :2], a, w)", "torch.addmm(c[:2], a, w, beta=2)"),
    traits=("products",),
)
def addmm(
    e: Engine, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> ShadowTensor:
    no_out(out)
    tensor_only(input, mat1, mat2)
    check_history(e, input, mat1, mat2)
    for name, x in (("self", input), ("mat1", mat1)):
        _same_type(
            x,
            mat2,
            f"{name} and mat2 must have the same dtype, but got {x.dtype.scalar_name} and {mat2.dtype.scalar_name}",
        )
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise Unmodelled("addmm with mat1 or mat2 not 2-D")
    if mat1.shape[1] != mat2.shape[0]:
        raise _cannot(e, "addmm", mat1.shape, mat2.shape)
    shape = (mat1.shape[0], mat2.shape[1])
    views.expanded(input, shape)
    return pure(e, _addmm_rule(mat1, mat2, beta, alpha), (input, mat1, mat2), shape, mat1.dtype)


@op("F.linear", "torch._C._nn.linear", saves="input if weight needs grad; weight.t() if input needs grad", samples=(
    "F.linear(a, b)", "F.linear(a, b, c[:2])", "F.linear(p, b)", "F.linear(c, b)", "F.linear(c, b, c[:2])",
    "F.linear(a[None].transpose(0, 1), b, c[:2])", "F.linear(a[None], b, c[:2])", "F.linear(a[None], b)"),
    traits=("products",))  # fmt: skip
def linear(e: Engine, input: Any, weight: Any, bias: Any = None) -> ShadowTensor:
    tensor_only(input, weight)
    if not input.ndim or not weight.ndim:
        raise runtime(
            f"both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D", "shape"
        )
    if bias is not None:
        tensor_only(bias)
        if input.ndim != 2 and 0 in input.shape:
            raise Unmodelled("linear of an empty input")
        if input.ndim == 2:
            return addmm(e, bias, input, views.t(e, weight))
        if bias.ndim > 1:
            raise Unmodelled("linear with a bias that is not 1-D")
        if is_contiguous(input.shape, input.stride) and is_contiguous(bias.shape, bias.stride):
            return _linear_folded(e, input, weight, bias)
    out = matmul(e, input, views.t(e, weight))
    return out if bias is None else pointwise_add(e, out, bias)


def _linear_folded(e: Engine, input: ShadowTensor, weight: ShadowTensor, bias: ShadowTensor) -> ShadowTensor:
    """``F.linear`` for an input that is not 2-D: the input is viewed as a matrix, and the
    result in the shape of the input.
    """
    flat = views.view_(e, input, -1, input.shape[-1])
    result = addmm(e, bias, flat, views.t(e, weight))
    shape = (*input.shape[:-1], result.shape[1])
    return unsafe_view(e, result, shape) if e.does(LINEAR_IS_NO_VIEW) else views.view_(e, result, *shape)


def pointwise_add(e: Engine, out: ShadowTensor, bias: ShadowTensor) -> ShadowTensor:
    """``out.add_(bias)``, which torch does after the product for input that is not contiguous."""
    return pointwise.add_in_place(e, out, bias)


# -- distances


def norm_of(e: Engine, input: ShadowTensor, order: float, dim: int | None, keepdim: bool = False) -> ShadowTensor:
    """The norm of this ``order`` over the dimension ``dim``, or over all (None), with the node that torch records when
    C++ code computes it. ``keepdim``: ``dim`` is kept with size 1.
    """
    axes = tuple(range(input.ndim)) if dim is None else (dim % input.ndim,)

    def forward(x: Any) -> Any:
        wide = np.abs(x.astype(np.float64))
        if order != 1 and underflow_on_the_way(wide, axes, x.dtype):
            return None
        return np.power(np.power(wide, order).sum(axis=axes, keepdims=keepdim), 1 / order)

    def vjp(g: Any, s: Any) -> tuple[Any]:
        length, flow = (
            (s.result, g) if keepdim or dim is None else (np.expand_dims(s.result, axes), np.expand_dims(g, axes))
        )
        return (reduce.norm_gradient(order, s.self, length, flow, axes),)

    shape = tuple(1 if d in axes else n for d, n in enumerate(input.shape) if keepdim or d not in axes)
    name = f"NormBackward{0 if dim is None else 1}"
    return pure(
        e, OpRule(name, forward, (Keep("self", 0), Keep("result", "result")), vjp), (input,), shape, input.dtype
    )


@op(
    "F.pairwise_distance",
    "torch.pairwise_distance",
    saves="as sub, add and norm",
    samples=(
        "F.pairwise_distance(a, b)",
        "F.pairwise_distance(a, c, p=1.0, keepdim=True)",
        "F.pairwise_distance(a, b, 3.0)",
    ),
)
def pairwise_distance(
    e: Engine, x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> ShadowTensor:
    tensor_only(x1, x2)
    if p < 1 or p == float("inf") or not x1.ndim:
        raise Unmodelled(f"pairwise_distance with p={p}, or of 0-dim tensors")
    return norm_of(e, pointwise.add_number(e, pointwise.sub(e, x1, x2), eps), p, -1, keepdim)
