"""Linear algebra: products and sums of products, inverses, determinants, solutions of equations, norms of matrices.

``svd``, ``eigh`` and ``qr`` are left to torch: their factors are unique only up to signs, so
two right answers may differ.
"""

# ruff: noqa: A002, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.ops import matmul
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    finite_vjp,
    in_place,
    is_finite,
    private,
    promoted,
    pure,
    records,
    tensor_only,
    wrap_dim,
)
from pitfall_lab.shadow.registry import add, do, op
from pitfall_lab.shadow.storage import ShadowTensor

# -- products


@op("vdot", saves="other, self", samples=("torch.vdot(p[0], p[1])",), traits=("products",))
def vdot(e: Engine, input: Any, other: Any) -> ShadowTensor:
    tensor_only(input, other)
    if records(e, input, other) or input.dtype.is_complex:
        raise Unmodelled("vdot of complex tensors, or of ones that require grad")
    result: ShadowTensor = do(e, "dot", input, other)
    return result


@op(
    "torch.linalg.vecdot",
    saves="other if self needs grad; self if other needs grad",
    samples=("torch.linalg.vecdot(a, b)",),
    traits=("products",),
)
def vecdot(e: Engine, x: Any, y: Any, *, dim: int = -1) -> ShadowTensor:
    tensor_only(x, y)
    if x.dtype != y.dtype:
        kinds = f"x of type {x.dtype.scalar_name} and y of type {y.dtype.scalar_name}"
        raise runtime(f"linalg.vecdot: Expected x and y to have the same dtype, but found {kinds} instead", "dtype")
    if x.dtype.is_complex or x.ndim < 2:
        raise Unmodelled("vecdot of complex tensors, or of tensors with fewer than 2 dimensions")
    result: ShadowTensor = do(e, "sum", do(e, "mul", x, y), dim)
    return result


def _cross(dim: int) -> OpRule:
    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
        return (
            None if s.other is None else np.array(np.cross(s.other, g, axis=dim), order="C"),
            None if s.self is None else np.array(np.cross(g, s.self, axis=dim), order="C"),
        )

    def forward(a: np.ndarray, b: np.ndarray) -> Any:
        found = np.cross(a, b, axis=dim)
        overflows = np.isfinite(a).all() and np.isfinite(b).all() and not np.isfinite(found).all()
        return (
            None if overflows else found
        )  # a product that is not rounded before the other is subtracted overflows later

    return OpRule("LinalgCrossBackward0", forward, (Keep("other", 1, 0), Keep("self", 0, 1)), vjp)


@op(
    "cross",
    "torch.linalg.cross",
    saves="other if self needs grad; self if other needs grad",
    samples=("torch.cross(a, b, dim=1)", "torch.linalg.cross(a, b)", "a.cross(b, 1)"),
    traits=("products",),
)
def cross(e: Engine, input: Any, other: Any, dim: Any = None) -> ShadowTensor:
    tensor_only(input, other)
    if input.shape != other.shape or input.dtype != other.dtype:
        raise Unmodelled("cross with operands of two shapes or dtypes")
    if not input.ndim:
        if dim is None:
            raise Unmodelled("cross of 0-dim tensors")
        raise ShadowError("IndexError", f"Dimension specified as {dim} but tensor has no dimensions", "shape")
    at = wrap_dim(-1 if dim is None else dim, input.ndim)
    if input.shape[at] != 3 or (dim is None and input.shape.count(3) > 1):
        raise Unmodelled("cross along a dimension whose size is not 3, or without dim where several have size 3")
    return pure(e, _cross(at), (input, other), input.shape, input.dtype)


def _matrices(*tensors: Any) -> None:
    tensor_only(*tensors)
    if len({x.dtype for x in tensors}) > 1 or tensors[0].dtype.category != 2:
        raise Unmodelled("a matrix product with operands of several dtypes, or not floating point")


def _sum_rule(
    node: str, names: tuple[str, str], product: Callable[..., Any], back: Callable[..., Any], beta: float, alpha: float
) -> OpRule:
    """The rule of ``beta * self + alpha * product(one, two)``; ``back(g, one, two)`` returns the
    gradients of ``one`` and ``two``.
    """

    def forward(x: np.ndarray, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        result: np.ndarray = (0 if beta == 0 else x * x.dtype.type(beta)) + product(one, two) * x.dtype.type(alpha)
        return result

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        first, second = back(g * g.dtype.type(alpha), getattr(s, names[0]), getattr(s, names[1]))
        return g * g.dtype.type(beta) if beta != 1 else g, first, second

    return OpRule(node, forward, (Keep(names[0], 1, 2), Keep(names[1], 2, 1)), vjp)


def _bmm_back(g: Any, one: Any, two: Any) -> tuple[Any, Any]:
    return None if two is None else g @ np.swapaxes(two, -1, -2), None if one is None else np.swapaxes(one, -1, -2) @ g


@op(
    ".addmm_",
    kind="inplace",
    saves="mat1 if mat2 needs grad; mat2 if mat1 needs grad",
    samples=("p.addmm_(w.detach()[:2], p * 2)", "h.addmm_(p[:, :2], p, beta=0.5)"),
    traits=("products",),
)
def addmm_(e: Engine, self: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> ShadowTensor:
    _matrices(self, mat1, mat2)
    if records(e, mat1, mat2) or (mat1.shape[0], mat2.shape[1], mat1.shape[1]) != (*self.shape, mat2.shape[0]):
        raise Unmodelled("addmm_ that broadcasts, or whose mat1 or mat2 requires grad")
    if any(x.storage is self.storage for x in (mat1, mat2)):
        raise Unmodelled("addmm_ whose target shares memory with mat1 or mat2")
    rule = _sum_rule("AddmmBackward0", ("mat1", "mat2"), matmul.product, _bmm_back, beta, alpha)
    return in_place(e, rule, (self, mat1, mat2), elementwise=False, copies_self=False, separate=True)


@op(
    "torch.linalg.matrix_power",
    "matrix_power",
    saves="as mm",
    samples=("torch.linalg.matrix_power(s, 2)", "torch.matrix_power(s, 3)", "s.matrix_power(1)"),
)
def matrix_power(e: Engine, input: Any, n: int) -> ShadowTensor:
    tensor_only(input)
    if input.ndim != 2 or input.shape[0] != input.shape[1] or n not in (1, 2, 3):
        raise Unmodelled("matrix_power of a tensor that is not a square matrix, or with n other than 1, 2 and 3")
    if n == 1:
        result: ShadowTensor = do(e, "clone", input, memory_format="contiguous_format")
        return result
    square = do(e, "mm", input, input)
    answer: ShadowTensor = square if n == 2 else do(e, "mm", square, input)
    return answer


# -- one square matrix


def _square(x: Any) -> None:
    tensor_only(x)
    if x.ndim != 2 or x.shape[0] != x.shape[1] or x.dtype not in ("float32", "float64") or not x.numel:
        raise Unmodelled("a tensor that is not one square matrix of float32 or float64")


IMPRECISE = {"float32": 1e5, "float64": 1e7}
"""From this condition number on, more digits are lost than a comparison allows, and rounding may decide
whether torch refuses a matrix.
"""


def _regular(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, declining singular square matrices among its arguments (for the matrix to be inverted torch
    raises), and nearly singular ones, whose inverse is mostly rounding error.

    It also declines inf and NaN, and every matrix for which NumPy raises.
    """

    def run(*arrays: Any) -> Any:
        given = [x for one in arrays for x in (vars(one).values() if isinstance(one, SimpleNamespace) else (one,))]
        if not all(np.isfinite(x).all() for x in given if isinstance(x, np.ndarray)):
            raise Unmodelled("inf or NaN in a matrix: which elements of the result they reach depends on the kernel")
        matrices = [x for x in arrays if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[0] == x.shape[1]]
        if any(not np.linalg.cond(x) < IMPRECISE.get(x.dtype.name, np.inf) for x in matrices):
            raise Unmodelled("a nearly singular matrix: rounding decides what the result is, and whether there is one")
        try:
            return function(*arrays)
        except np.linalg.LinAlgError as problem:
            raise Unmodelled(str(problem)) from None

    return run


def without_overflow(product: Any) -> Any:
    """A product of matrices, as it is given.

    Raises ``Unmodelled`` if it has inf or NaN: the order of adding decides about signs and NaN.
    """
    if not is_finite(product):
        raise Unmodelled("a matrix product that overflows: inf or NaN depends on the order in which the kernel adds")
    return product


@op("torch.linalg.inv", "inverse", saves="inverse", samples=("torch.linalg.inv(s)", "s.inverse()"))
def inv(e: Engine, A: Any) -> ShadowTensor:
    _square(A)
    rule = OpRule(
        "LinalgInvExBackward0", _regular(lambda x: np.linalg.inv(x.astype(np.float64))), (Keep("inverse", "result"),),
        finite_vjp(lambda g, s: (without_overflow(-s.inverse.T @ g @ s.inverse.T),)),
    )  # fmt: skip
    return pure(e, rule, (A,), A.shape, A.dtype, stride=(1, A.shape[0]))


def _factored(e: Engine, result: ShadowTensor, A: ShadowTensor) -> None:
    """Keep the saved tensors ``LU`` and ``pivots``.

    Their values are not modelled: a private copy of the operand takes their place.
    """
    if result.node is not None:
        found = arrays(e, (A,))
        for name in ("LU", "pivots"):
            result.node.keep(Saved(name, private(e, np.zeros(0) if found is None else found[0], A.dtype), own=True))


@op(
    "torch.linalg.det",
    "det",
    saves="A, result, and private factors",
    samples=("torch.linalg.det(s)", "s.det()", "torch.det(w[:2])"),
)
def det(e: Engine, A: Any) -> ShadowTensor:
    _square(A)

    def forward(x: np.ndarray) -> Any:
        found = np.linalg.det(x.astype(np.float64))
        most = np.prod(
            np.linalg.norm(x.astype(np.float64), axis=-1)
        )  # what Hadamard allows: rounding is relative to it
        return None if abs(found) < most * np.finfo(x.dtype).eps * 64 else found  # rounding alone decides

    rule = OpRule(
        "LinalgDetBackward0", forward, (Keep("A", 0), Keep("result", "result")),
        _regular(lambda g, s: (g * s.result * np.linalg.inv(s.LU.astype(np.float64)).T,)),
    )  # fmt: skip
    result = pure(e, rule, (A,), (), A.dtype)
    _factored(e, result, A)
    return result


@op(
    "torch.linalg.solve",
    saves="A, result, and private factors",
    samples=("torch.linalg.solve(s, s * 2)", "torch.linalg.solve(s, c)"),
)
def solve(e: Engine, A: Any, B: Any, *, left: bool = True) -> ShadowTensor:
    _square(A)
    tensor_only(B)
    if not left or B.ndim not in (1, 2) or B.shape[0] != A.shape[0] or B.dtype != A.dtype:
        raise Unmodelled("linalg.solve with operands of incompatible shapes or dtypes, or with left=False")

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
        flow = np.linalg.solve(s.LU.astype(np.float64).T, g)
        if s.result.ndim == 1:
            return -np.outer(flow, s.result), Written(
                flow, 0, seen_through=True
            )  # torch solves for a matrix of one column
        return -(flow @ s.result.T), flow

    rule = OpRule(
        "LinalgSolveExBackward0",
        _regular(lambda a, b: np.linalg.solve(a.astype(np.float64), b)),
        (Keep("A", 0), Keep("result", "result")),
        _regular(vjp),
    )
    stride = (1,) if B.ndim == 1 else (1, A.shape[0])
    result = pure(e, rule, (A, B), B.shape, A.dtype, stride=stride)
    _factored(e, result, A)
    return result


@op("torch.linalg.cholesky", saves="L", samples=("torch.linalg.cholesky(s)",))
def cholesky(e: Engine, input: Any, *, upper: bool = False) -> ShadowTensor:
    _square(input)
    if upper:
        raise Unmodelled("cholesky with upper=True")

    def vjp(g: np.ndarray, s: Any) -> tuple[Any]:
        lower = s.L.astype(np.float64)
        inner = np.tril(lower.T @ g)
        inner -= np.diag(np.diag(inner)) / 2
        inverse = np.linalg.inv(np.tril(lower))  # what was written above the diagonal since is not looked at
        full = inverse.T @ inner @ inverse
        return (np.asfortranarray((full + full.T) / 2),)

    values = _regular(lambda x: np.linalg.cholesky(x.astype(np.float64)))
    rule = OpRule("LinalgCholeskyExBackward0", values, (Keep("L", "result"),), finite_vjp(vjp))
    return pure(e, rule, (input,), input.shape, input.dtype, stride=(1, input.shape[0]))


# -- norms and statistics


@op(
    "torch.linalg.norm",
    saves="result, self",
    samples=("torch.linalg.norm(a)", "torch.linalg.norm(c, 3)", "torch.linalg.norm(a, dim=1)"),
)
def linalg_norm(
    e: Engine, A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> ShadowTensor:
    tensor_only(A)
    if dim is None and ord is not None and A.ndim not in (1, 2):
        text = f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        raise runtime(text, "shape")
    matrix = (isinstance(dim, tuple | list) and len(dim) == 2) or (dim is None and A.ndim == 2 and ord is not None)
    if matrix and ord not in (None, "fro"):
        raise Unmodelled("a matrix norm other than the Frobenius norm")
    result: ShadowTensor = do(e, "linalg.vector_norm", A, 2 if ord in (None, "fro") else ord, dim, keepdim, dtype)
    return result


@op("torch.linalg.matrix_norm", saves="result, self", samples=("torch.linalg.matrix_norm(a)",))
def matrix_norm(
    e: Engine, A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> ShadowTensor:
    tensor_only(A)
    if A.ndim < 2:
        raise runtime("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.", "shape")
    if ord != "fro":
        raise Unmodelled("a matrix norm other than the Frobenius norm")
    result: ShadowTensor = do(e, "linalg.vector_norm", A, 2, tuple(dim), keepdim, dtype)
    return result


def _both(name: str) -> None:
    def run(
        e: Engine, input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        tensor_only(input)
        if records(e, input) or isinstance(dim, bool):
            raise Unmodelled(f"{name}_mean of a tensor that requires grad, or with unbiased given by position")
        return do(e, name, input, dim, unbiased, keepdim, correction=correction), do(e, "mean", input, dim, keepdim)

    add(
        f"torch.{name}_mean", run, "pure", "self, and the spread", (f"torch.{name}_mean(p)", f"torch.{name}_mean(p, 0)")
    )


_both("std")
_both("var")


@op("dist", saves="other, result, self", samples=("torch.dist(p, p * 2)", "p.dist(p + 1, 1)"))
def dist(e: Engine, input: Any, other: Any, p: float = 2) -> ShadowTensor:
    tensor_only(input, other)
    if records(e, input, other) or p not in (1, 2):
        raise Unmodelled("dist of tensors that require grad, or with p other than 1 and 2")
    forward = lambda x, y: np.sum(np.abs(x.astype(np.float64) - y) ** p) ** (1 / p)  # noqa: E731 - a rule in one row
    return pure(e, OpRule("", forward), (input, other), (), promoted(input, other))
