"""Losses: those with a node of their own, and the ones that torch composes of other operations
(``aten/src/ATen/native/Loss.cpp``).
"""

# ruff: noqa: A002, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import average
from pitfall_lab.shadow.graph import RaisingVjp, Written
from pitfall_lab.shadow.layout import layout, made_of, preserved
from pitfall_lab.shadow.ops import matmul, pointwise, views
from pitfall_lab.shadow.ops import reduce as reductions
from pitfall_lab.shadow.ops.activation import logsigmoid
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    broadcast,
    check_fits,
    check_history,
    new,
    no_derivative,
    promoted,
    pure,
    tensor_only,
)
from pitfall_lab.shadow.ops.building import pointwise as broadcasting
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.releases import MSE_LOSS_MIXES_TYPES, TARGETS_MAY_BE_BYTES
from pitfall_lab.shadow.storage import ShadowTensor, Shape, is_contiguous

REDUCTIONS = ("mean", "sum", "none")


def value_error(text: str) -> ShadowError:
    """A ValueError of torch's Python side."""
    return ShadowError("ValueError", text, "shape")


def _check(reduction: str, *legacy: Any) -> None:
    if any(x is not None for x in legacy):
        raise Unmodelled("a loss with the deprecated arguments size_average or reduce")
    if reduction not in REDUCTIONS:
        raise value_error(f"{reduction} is not a valid value for reduction")


def _lost(
    e: Engine, rule: OpRule, operands: Sequence[Any], reduction: str, dtype: DType, *, like: ShadowTensor | None = None
) -> ShadowTensor:
    """Run a loss's rule: a 0-dim result, or with ``reduction="none"`` one of the input's shape.

    Its strides are those of TensorIterator, or of ``empty_like(like)``.
    """
    x, y = operands[:2]
    stride = (layout(x.shape, [x, y], cast=dtype) if like is None else preserved(like)) if reduction == "none" else None
    return pure(e, rule, operands, x.shape if reduction == "none" else (), dtype, dtype, stride)


def _reduce(values: Any, reduction: str) -> Any:
    if reduction == "none":
        return values
    wide = np.asarray(values, np.float64)
    return average(wide) if reduction == "mean" else wide.sum()


def reduced(e: Engine, values: ShadowTensor, reduction: str) -> ShadowTensor:
    """Apply ``reduction``: ``"none"`` gives ``values`` itself, ``"mean"`` the mean of all elements, any other word
    their sum.
    """
    return (
        values
        if reduction == "none"
        else reductions.mean(e, values)
        if reduction == "mean"
        else reductions.sum(e, values)
    )


# -- of two tensors, element by element


def _size(tensor: ShadowTensor) -> str:
    return f"torch.Size({list(tensor.shape)})"


def _pair(e: Engine, input: Any, target: Any) -> tuple[ShadowTensor, ShadowTensor]:
    """Return both operands broadcast to one shape, with torch's warning if the shapes differ:
    (N, 1) and (N,) become (N, N).
    """
    tensor_only(input, target)
    shape = broadcast(input.shape, target.shape)
    if input.shape != target.shape:
        e.warnings.append(
            f"Using a target size ({_size(target)}) that is different to the input size ({_size(input)}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )
    return tuple(x if x.shape == shape else views.expand(e, x, *shape) for x in (input, target))  # type: ignore[return-value]


def _elementwise(
    e: Engine,
    node: str,
    x: ShadowTensor,
    y: ShadowTensor,
    reduction: str,
    forward: Any,
    slope: Any,
    *,
    like: ShadowTensor | None = None,
) -> ShadowTensor:
    """A loss with one node: ``forward`` of both operands, reduced; ``slope`` is its derivative in the first."""
    dtype, count = promoted(x, y), max(x.numel, 1)
    if not dtype.is_floating_point:
        raise Unmodelled("a loss of tensors that are not floating point")

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        d = slope(s.self, s.target) * g
        d = d / d.dtype.type(count) if reduction == "mean" else d
        return d, -d

    rule = OpRule(node, lambda a, b: _reduce(forward(a, b), reduction), (Keep("self", 0), Keep("target", 1)), vjp)
    return _lost(e, rule, (x, y), reduction, dtype, like=like)


def _same_size_weight(input: ShadowTensor, weight: Any) -> None:
    tensor_only(weight)
    if weight.shape != input.shape:
        raise value_error("Weights and input must have the same size.")


def _weighted(
    e: Engine, errors: ShadowTensor, weight: ShadowTensor, reduction: str, *, by_weight: bool = True
) -> ShadowTensor:
    """Reduce ``errors * weight``.

    A mean is divided by the sum of the weights, or, without ``by_weight``, by the number of elements.
    """
    scaled = pointwise.mul(e, errors, weight)
    if reduction != "mean" or not by_weight:
        return reduced(e, scaled, reduction)
    return pointwise.div(e, reductions.sum(e, scaled), reductions.sum(e, weight))


@op("F.mse_loss", saves="self, target", samples=(
    "F.mse_loss(a, b)", "F.mse_loss(a, p, reduction='sum')", "F.mse_loss(a, c)", "F.mse_loss(a, b, reduction='none')",
    "F.mse_loss(a, p, weight=p)", "F.mse_loss(a, p, weight=p, reduction='sum')", "F.mse_loss(a, p, weight=c)",
    "F.mse_loss(a, i)", "F.mse_loss(a, b, reduction='max')", "F.mse_loss(a, n)",
    "F.mse_loss(a, p.double())"), traits=("difference_loss",))  # fmt: skip
def mse_loss(
    e: Engine,
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> ShadowTensor:
    x, y = _pair(e, input, target)
    if weight is not None:
        _same_size_weight(input, weight)
        return _weighted(e, pointwise.pow(e, pointwise.sub(e, x, y), 2), weight, reduction)
    _check(reduction, size_average, reduce)

    def slope(a: Any, b: Any) -> Any:
        if x.dtype != y.dtype and not e.does(MSE_LOSS_MIXES_TYPES):
            wanted, found = (x, y) if x.requires_grad else (y, x)
            raise runtime(f"Found dtype {found.dtype.scalar_name} but expected {wanted.dtype.scalar_name}", "dtype")
        return 2 * (a - b)

    return _elementwise(e, "MseLossBackward0", x, y, reduction, lambda a, b: (a - b) ** 2, slope)


@op("F.smooth_l1_loss", saves="self, target; the sign of input - target when beta is 0", samples=(
    "F.smooth_l1_loss(a, b)", "F.smooth_l1_loss(a, p, reduction='sum', beta=0.5)", "F.smooth_l1_loss(a, c)",
    "F.smooth_l1_loss(a, b, reduction='none')", "F.smooth_l1_loss(a, b, beta=0.0)",
    "F.smooth_l1_loss(a, b, beta=-1)"), traits=("difference_loss",))  # fmt: skip
def smooth_l1_loss(
    e: Engine,
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> ShadowTensor:
    x, y = _pair(e, input, target)
    _check(reduction, size_average, reduce)
    if beta == 0:
        return reduced(e, pointwise.absolute(e, pointwise.sub(e, x, y)), reduction)
    if beta < 0:
        raise runtime("smooth_l1_loss does not support negative values for beta.")

    def forward(a: Any, b: Any) -> Any:
        d = np.abs(a - b)
        return np.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)

    return _elementwise(
        e, "SmoothL1LossBackward0", x, y, reduction, forward, lambda a, b: np.clip((a - b) / beta, -1, 1)
    )


@op("F.huber_loss", saves="self, target", samples=(
    "F.huber_loss(a, b)", "F.huber_loss(a, p, reduction='sum', delta=0.5)", "F.huber_loss(a, c)",
    "F.huber_loss(a, b, reduction='none')", "F.huber_loss(a, p, weight=p)",
    "F.huber_loss(a, b, delta=0)"), traits=("difference_loss",))  # fmt: skip
def huber_loss(
    e: Engine, input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> ShadowTensor:
    x, y = _pair(e, input, target)
    if weight is not None:
        _same_size_weight(input, weight)
    _check(reduction)
    if any(t.dtype != input.dtype for t in (target, weight) if t is not None):
        raise Unmodelled("huber_loss with operands of several dtypes")
    if delta <= 0:
        raise runtime("huber_loss does not support non-positive values for delta.")

    def forward(a: Any, b: Any) -> Any:
        d = np.abs(a - b)
        return np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))

    inner = reduction if weight is None else "none"
    loss = _elementwise(
        e, "HuberLossBackward0", x, y, inner, forward, lambda a, b: np.clip(a - b, -delta, delta), like=x
    )
    return loss if weight is None else _weighted(e, loss, weight, reduction, by_weight=False)


@op(
    "F.l1_loss",
    saves="the sign of input - target",
    samples=(
        "F.l1_loss(a, b)",
        "F.l1_loss(a, p, reduction='sum')",
        "F.l1_loss(a, p, weight=p)",
        "F.l1_loss(a, n)",
        "F.l1_loss(a, b, reduction='none')",
    ),
    traits=("difference_loss",),
)
def l1_loss(
    e: Engine,
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> ShadowTensor:
    x, y = _pair(e, input, target)
    if weight is not None:
        _same_size_weight(input, weight)
    _check(reduction, size_average, reduce)
    distance = pointwise.absolute(e, pointwise.sub(e, x, y))
    return reduced(e, distance, reduction) if weight is None else _weighted(e, distance, weight, reduction)


@op(
    "F.soft_margin_loss",
    saves="self, target",
    samples=(
        "F.soft_margin_loss(a, torch.sign(p))",
        "F.soft_margin_loss(a, torch.sign(p), reduction='none')",
        "F.soft_margin_loss(a, b)",
    ),
)
def soft_margin_loss(
    e: Engine, input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> ShadowTensor:
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if input.shape != target.shape or input.dtype != target.dtype:
        raise Unmodelled("soft_margin_loss with operands of incompatible shapes or dtypes")
    no_derivative(e, "soft_margin_loss", target=target)
    count = input.numel if reduction == "mean" else 1

    def vjp(g: Any, s: Any) -> tuple[Any]:
        z = np.exp(-s.target * s.self)
        return (-s.target * z / (1 + z) * g / count,)

    rule = OpRule(
        "SoftMarginLossBackward0",
        lambda x, y: _reduce(np.log1p(np.exp(-y * x)), reduction),
        (Keep("self", 0), Keep("target", 1)),
        vjp,
        edges=1,
    )
    return _lost(e, rule, (input, target), reduction, input.dtype)


# -- classification


def _nll_sizes(e: Engine, log_probs: ShadowTensor, target: ShadowTensor, weight: Any) -> None:
    if target.ndim > 1 and log_probs.ndim <= 2:
        raise runtime("0D or 1D target tensor expected, multi-target not supported", "shape")
    if target.dtype not in ("int64", "uint8"):
        wanted = (
            "expected target dtype to be Long or Byte, but got"
            if e.does(TARGETS_MAY_BE_BYTES)
            else "expected scalar type Long but found"
        )
        raise runtime(f"{wanted} {target.dtype.scalar_name}", "dtype")
    if weight is not None:
        tensor_only(weight)
        classes = log_probs.shape[-1 if log_probs.ndim == 1 else 1]
        if log_probs.ndim > 2 and weight.numel != classes:
            raise runtime("weight tensor should be defined either for all or no classes", "shape")
        if log_probs.ndim > 2 and weight.ndim != 1:
            raise Unmodelled("a class weight that is not 1-D")
        if weight.shape != (classes,):
            text = (
                f"weight tensor should be defined either for all {classes} classes or no classes but got weight "
                f"tensor of shape: {list(weight.shape)}"
            )
            raise runtime(text, "shape")
        if weight.dtype != log_probs.dtype:
            raise Unmodelled("nll_loss with operands of several dtypes")


def _nll(
    e: Engine, node: str, log_probs: ShadowTensor, target: ShadowTensor, weight: Any, ignore_index: int, reduction: str
) -> ShadowTensor:
    """``nll_loss`` of log-probabilities (C,), (N, C) or (N, C, H, W) and a target without the class dimension.

    Targets that are ``ignore_index`` count as 0; a mean is over the weights of the others.
    Raises for a class out of range.
    """
    if node == "NllLoss2DBackward0" and (target.ndim != 3 or log_probs.shape[2:] != target.shape[1:]):
        raise Unmodelled("nll_loss with operands of incompatible shapes")
    if log_probs.ndim == 1 and target.shape not in ((), (1,)):
        raise Unmodelled("several targets for one input")
    if log_probs.ndim == 1 and target.ndim and reduction == "none":
        raise Unmodelled("a target of shape (1,) for an input without a batch dimension")
    _nll_sizes(e, log_probs, target, weight)
    at, classes = (0, log_probs.shape[0]) if log_probs.ndim == 1 else (1, log_probs.shape[1])

    def chosen(y: np.ndarray, w: Any) -> tuple[np.ndarray, np.ndarray]:
        """For each target: its class (0 where it is ``ignore_index``), and its weight (0 there)."""
        y = y.reshape(()) if log_probs_ndim == 1 else y
        kept = np.asarray(y != ignore_index)
        for bad in y[kept & ((y < 0) | (y >= classes))].reshape(-1):
            raise ShadowError("IndexError", f"Target {int(bad)} is out of bounds.", "shape")
        safe = np.where(kept, y, 0).astype(np.int64)
        return np.expand_dims(safe, at), kept * (1 if w is None else w[safe])

    def forward(x: np.ndarray, y: np.ndarray, w: Any) -> tuple[Any, Any]:
        places, factor = chosen(y, w)
        picked = np.where(y == ignore_index, 0, -np.take_along_axis(x, places, at).squeeze(at) * factor).astype(x.dtype)
        total = factor.sum(dtype=np.float64)
        return picked if reduction == "none" else picked.sum(dtype=np.float64) / (
            total if reduction == "mean" else 1
        ), np.asarray(total, x.dtype)

    def vjp(g: Any, s: Any) -> tuple[np.ndarray]:
        places, factor = chosen(s.target, s.weight)
        full = np.zeros(s.self.shape, g.dtype)
        flow = -np.broadcast_to(g, factor.shape) * factor / (s.total_weight if reduction == "mean" else 1)
        flow = np.where(np.reshape(s.target == ignore_index, factor.shape), 0, flow)
        np.put_along_axis(full, places, np.expand_dims(np.asarray(flow, g.dtype), at), at)
        return (full,)

    log_probs_ndim = log_probs.ndim
    backward: Any = vjp
    if log_probs.ndim == 1 and target.ndim:
        backward = RaisingVjp(
            f"size mismatch (got input: {list(log_probs.shape)}, target: {list(target.shape)})", "shape"
        )
    if log_probs.ndim == 4 and not is_contiguous(log_probs.shape, preserved(log_probs)):
        backward = RaisingVjp("grad_input must be contiguous")  # it is made like the input
    rule = OpRule(node, forward, (Keep("self", 0), Keep("target", 1), Keep("weight", 2)), backward, edges=1)
    shape = (() if log_probs.ndim == 1 else target.shape) if reduction == "none" else ()
    return pure(e, rule, (log_probs, target, weight), shape, log_probs.dtype, hidden=("total_weight",))


def nll(
    e: Engine, log_probs: ShadowTensor, target: ShadowTensor, weight: Any, ignore_index: int, reduction: str
) -> ShadowTensor:
    """The negative log-likelihood loss (``nll_loss_nd``) of log-probabilities (N, C, ...) for class numbers ``target``
    (N, ...), of which those equal to ``ignore_index`` do not count. torch reshapes any number of inner dimensions to
    two before it calls the kernel.

    Raises ``ShadowError`` (torch's error) for log-probabilities without dimensions, sizes and dtypes of ``target`` and
    ``weight`` that do not fit, a class out of range, and a ``weight`` that requires grad; ``Unmodelled``, among others,
    for a dtype that NumPy lacks, other sizes of two inner dimensions in ``target``, a ``weight`` of another dtype or
    one with several dimensions, and, without a batch dimension, several targets or, with ``reduction="none"``, a target
    of shape (1,).
    """
    if log_probs.dtype.numpy is None:
        raise Unmodelled(f"a loss of {log_probs.dtype[:]}")
    if log_probs.ndim < 1:
        raise value_error("Expected 1 or more dimensions (got 0)")
    if log_probs.ndim != 1 and log_probs.shape[:1] != target.shape[:1]:
        raise value_error(
            f"Expected input batch_size ({log_probs.shape[0]}) to match target batch_size ({(*target.shape, 0)[0]})."
        )
    count, *inner = log_probs.shape[0], *log_probs.shape[2:]
    if log_probs.ndim not in (1, 2, 4) and target.shape[1:] != tuple(inner):
        raise runtime(f"Expected target size {[count, *inner]}, got {list(target.shape)}", "shape")
    no_derivative(e, "nll_loss_forward" if log_probs.ndim <= 2 else "nll_loss2d_forward", weight=weight)
    if log_probs.ndim <= 2:
        return _nll(e, "NllLossBackward0", log_probs, target, weight, ignore_index, reduction)
    if log_probs.ndim == 4:
        return _nll(e, "NllLoss2DBackward0", log_probs, target, weight, ignore_index, reduction)
    picture = views.view_(e, views.contiguous(e, log_probs), count, log_probs.shape[1], 1, -1)
    result = _nll(
        e,
        "NllLoss2DBackward0",
        picture,
        views.view_(e, views.contiguous(e, target), count, 1, -1),
        weight,
        ignore_index,
        reduction,
    )
    return views.view_(e, result, count, *inner) if reduction == "none" else result


@op("F.nll_loss", saves="self, target, weight", samples=(
    "F.nll_loss(a, torch.tensor([0, 2]))", "F.nll_loss(a, torch.tensor([0, -100]), reduction='sum')",
    "F.nll_loss(a, i, weight=p[0])", "F.nll_loss(a, i, c.detach(), reduction='none')",
    "F.nll_loss(img, n[:, :1, None].expand(2, 4, 6) % 4)",
    "F.nll_loss(seq, n[:, [0, 1, 2, 0, 1, 2]] % 4, reduction='none')", "F.nll_loss(a, n)",
    "F.nll_loss(a, torch.tensor([0, 3]))", "F.nll_loss(a, p[:, 0])", "F.nll_loss(a, torch.tensor([0, 2, 1]))",
    "F.nll_loss(a, i, weight=p)", "F.nll_loss(a, i, weight=c)"))  # fmt: skip
def nll_loss(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
             reduce: Any = None, reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    return nll(e, input, target, weight, ignore_index, reduction)


@op("F.cross_entropy", saves="target, weight; the log-probabilities (private)", samples=(
    "F.cross_entropy(a, torch.tensor([0, 2]))", "F.cross_entropy(a, torch.tensor([1, 1]), reduction='sum')",
    "F.cross_entropy(c, torch.tensor(1))", "F.cross_entropy(c, torch.tensor([1]))",
    "F.cross_entropy(a, i, weight=p[0])", "F.cross_entropy(a, torch.tensor([0, -100]))",
    "F.cross_entropy(a, torch.tensor([0, 1]), ignore_index=0, reduction='none')",
    "F.cross_entropy(a, i, label_smoothing=0.1)", "F.cross_entropy(a, i, label_smoothing=0.1, reduction='sum')",
    "F.cross_entropy(a, torch.tensor([0, -100]), p[0], label_smoothing=0.1)",
    "F.cross_entropy(a, i, label_smoothing=0.1, reduction='none')", "F.cross_entropy(a, p)",
    "F.cross_entropy(a, b, label_smoothing=0.1)", "F.cross_entropy(a, p, p[1], reduction='sum')",
    "F.cross_entropy(a, p, reduction='none')", "F.cross_entropy(c, p[0])",
    "F.cross_entropy(img, n[:, :1, None].expand(2, 4, 6) % 4)", "F.cross_entropy(seq, n[:, [0, 1, 2, 0, 1, 2]] % 4)",
    "F.cross_entropy(a, torch.tensor([0.0, 2.0]))", "F.cross_entropy(a, torch.tensor([0, 5]))", "F.cross_entropy(a, n)",
    "F.cross_entropy(a, n[:, :2])", "F.cross_entropy(a, i.int())", "F.cross_entropy(a, torch.tensor([1, 2, 0]))",
    "F.cross_entropy(a, i, torch.ones(2))", "F.cross_entropy(a, i, reduction='max')",
    "F.cross_entropy(a, i, label_smoothing=1.5)"))  # fmt: skip
def cross_entropy(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                  ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> ShadowTensor:  # fmt: skip
    """``F.cross_entropy`` of scores (N, C, ...); ``target``: class numbers (N, ...), or probabilities in the shape of
    ``input``.

    Raises ``ShadowError`` (torch's error) for operands that do not fit, an unknown ``reduction``, a ``label_smoothing``
    above 1 and, with probabilities, an ``ignore_index`` of 0 or more; ``Unmodelled``, among others, with
    ``size_average`` or ``reduce``, for probabilities of an empty input, and for class numbers where :func:`nll` raises
    it.
    """
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    at = 0 if input.ndim == 1 else 1
    if input.shape == target.shape:
        return _soft_targets(e, input, target, weight, ignore_index, reduction, label_smoothing, at)
    _check_smoothing(label_smoothing)
    log_probs = reduce_log_softmax(e, input, at)
    plain = nll(e, log_probs, target, weight, ignore_index, reduction)
    return (
        _smoothed(e, log_probs, plain, target, weight, ignore_index, reduction, label_smoothing, at)
        if label_smoothing > 0
        else plain
    )


def reduce_log_softmax(e: Engine, input: ShadowTensor, at: int) -> ShadowTensor:
    """``log_softmax`` over the class dimension."""
    return reductions.log_softmax(e, input, at)


def _column(e: Engine, weight: ShadowTensor, ndim: int, at: int) -> ShadowTensor:
    """The class weights in a shape that broadcasts along the class dimension."""
    return weight if ndim == 1 else views.view_(e, weight, *(weight.numel if d == at else 1 for d in range(ndim)))


def _soft_targets(
    e: Engine,
    input: ShadowTensor,
    target: ShadowTensor,
    weight: Any,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    at: int,
) -> ShadowTensor:
    if not target.dtype.is_floating_point:
        raise runtime(
            f"Expected floating point type for target with class probabilities, got {target.dtype.scalar_name}", "dtype"
        )
    if ignore_index >= 0:
        raise runtime("ignore_index is not supported for floating point target")
    classes = input.shape[at]
    if not input.numel:
        raise Unmodelled("cross_entropy of an empty input")
    if weight is not None and weight.shape != (classes,):
        text = (
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )
        raise runtime(text, "shape")
    log_probs = reduce_log_softmax(e, input, at)
    if smoothing > 0:
        _check_smoothing(smoothing)
        target = pointwise.add_number(e, pointwise.mul_number(e, target, 1 - smoothing), smoothing / classes)
    product = pointwise.mul(e, log_probs, target)
    if weight is not None:
        product = pointwise.mul(e, product, _column(e, weight, input.ndim, at))
    if reduction == "none":
        return pointwise.negative(e, reductions.sum(e, product, at))
    total = pointwise.negative(e, reductions.sum(e, product))
    return pointwise.div_number(e, total, input.numel // classes) if reduction == "mean" else total


def _check_smoothing(smoothing: float) -> None:
    if smoothing > 1:
        raise runtime(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing:g}")


def _smoothed(
    e: Engine,
    log_probs: ShadowTensor,
    plain: ShadowTensor,
    target: ShadowTensor,
    weight: Any,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    at: int,
) -> ShadowTensor:
    """``cross_entropy`` with ``label_smoothing``: (1 - smoothing) times ``plain``, the loss without
    it, plus a term of all classes.

    That term is smoothing times the mean of the (weighted) negative ``log_probs`` over the classes. Targets that are
    ``ignore_index`` count in neither.
    """
    spread = log_probs if weight is None else pointwise.mul(e, log_probs, _column(e, weight, log_probs.ndim, at))
    smooth = pointwise.negative(e, reductions.sum(e, spread, at))
    if log_probs.ndim == 1 and target.ndim:
        raise Unmodelled("a target of shape (1,) for an input without a batch dimension")
    ignored = pointwise.compare_equal(e, target, ignore_index)
    pointwise.masked_fill_in_place(e, smooth, ignored, 0.0)
    if reduction != "none":
        smooth = reductions.sum(e, smooth)
    if reduction == "mean":
        seen = target.window()
        if weight is None:
            by = reductions.sum(e, pointwise.logical_not(e, ignored))
        else:
            weights = weight.window()
            known = None if seen is None or weights is None else weights[seen[seen != ignore_index]].sum()
            by = new(e, (), weight.dtype, known)
        smooth = pointwise.div(e, smooth, by)
    spread = pointwise.mul_number(
        e, smooth, smoothing / log_probs.shape[at]
    )  # the compiler has the right side computed first
    return pointwise.add_(e, pointwise.mul_number(e, plain, 1 - smoothing), spread)


# -- binary classification


def _bce_keeps(*names: str) -> tuple[Keep, ...]:
    """The saved operands in alphabetical order, in which torch unpacks them."""
    return tuple(sorted((Keep(name, k) for k, name in enumerate(names)), key=lambda keep: keep.name))


@op("F.binary_cross_entropy", saves="self, target, weight", samples=(
    "F.binary_cross_entropy(torch.sigmoid(a), torch.ones(2, 3))",
    "F.binary_cross_entropy(torch.sigmoid(a), torch.sigmoid(b))",
    "F.binary_cross_entropy(torch.sigmoid(a), torch.ones(2, 3), weight=p[0])",
    "F.binary_cross_entropy(torch.sigmoid(a), torch.ones(2, 3), reduction='none')",
    "F.binary_cross_entropy(a, torch.ones(2, 3))", "F.binary_cross_entropy(torch.sigmoid(a), torch.ones(3))",
    "F.binary_cross_entropy(torch.sigmoid(a), m)",
    "F.binary_cross_entropy(torch.sigmoid(a), p, weight=c)"))  # fmt: skip
def binary_cross_entropy(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                         reduce: Any = None, reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if input.shape != target.shape:
        text = (
            f"Using a target size ({_size(target)}) that is different to the input size ({_size(input)}) is "
            "deprecated. Please ensure they have the same size."
        )
        raise value_error(text)
    if weight is not None:
        if any(
            n != m and 1 not in {n, m} for n, m in zip(reversed(target.shape), reversed(weight.shape), strict=False)
        ):
            raise Unmodelled("a weight that does not broadcast to the input")  # torch says so in words of its own
        weight = views.expand(e, weight, *broadcast(target.shape, weight.shape))
    no_derivative(e, "binary_cross_entropy", weight=weight)
    if input.dtype != target.dtype:
        raise runtime(f"Found dtype {target.dtype.scalar_name} but expected {input.dtype.scalar_name}", "dtype")
    count = max(input.numel, 1) if reduction == "mean" else 1
    if any(x.window() is None and x.numel <= e.value_limit for x in (input, target)):
        raise Unmodelled("a loss of unknown values, which torch checks to be in [0, 1]")

    def forward(x: np.ndarray, y: np.ndarray, w: Any) -> Any:
        if not np.all((x >= 0) & (x <= 1)):
            raise runtime("all elements of input should be between 0 and 1")
        if not np.all((y >= 0) & (y <= 1)):
            raise runtime("all elements of target should be between 0 and 1")
        loss = -(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log(1 - x), -100))
        return _reduce(loss if w is None else loss * w, reduction)

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        flow = g / count if s.weight is None else g * s.weight / count
        to_target = flow * (np.log(1 - s.self) - np.log(s.self))  # worked out in place
        times = 2 + (s.weight is not None) + (reduction == "mean")
        return flow * (s.self - s.target) / np.maximum((1 - s.self) * s.self, 1e-12), Written(to_target, times)

    rule = OpRule("BinaryCrossEntropyBackward0", forward, _bce_keeps("self", "target", "weight"), vjp, edges=2)
    return _lost(e, rule, (input, target, weight), reduction, input.dtype)


def _softened(x: Any) -> Any:
    """``log(1 + exp(x))``, for any x."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _logit_losses(x: np.ndarray, y: np.ndarray, weight: Any, positive: Any, kept: Any) -> Any:
    """``binary_cross_entropy_with_logits`` of each element, rounded to the dtype ``kept``
    after every step, as in torch.
    """

    def rounded(step: Any) -> Any:
        return step.astype(kept).astype(x.dtype)

    below = rounded(_softened(-x))
    if positive is not None:
        below = rounded(rounded(rounded(rounded(positive - 1) * y) + 1) * below)
    loss = rounded(rounded(rounded(1 - y) * x) + below)
    return loss if weight is None else rounded(loss * weight)


@op("F.binary_cross_entropy_with_logits", saves="self, target, weight, pos_weight", samples=(
    "F.binary_cross_entropy_with_logits(a, torch.ones(2, 3))", "F.binary_cross_entropy_with_logits(a, b, weight=p[0])",
    "F.binary_cross_entropy_with_logits(a, b, pos_weight=p[0], reduction='sum')",
    "F.binary_cross_entropy_with_logits(a, p, reduction='none')", "F.binary_cross_entropy_with_logits(a, i)",
    "F.binary_cross_entropy_with_logits(a, p, weight=c)",
    "F.binary_cross_entropy_with_logits(a, p, pos_weight=c)"))  # fmt: skip
def binary_cross_entropy_with_logits(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                                     reduce: Any = None, reduction: str = "mean",
                                     pos_weight: Any = None) -> ShadowTensor:  # fmt: skip
    tensor_only(input, target, *(x for x in (weight, pos_weight) if x is not None))
    _check(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise value_error(f"Target size ({_size(target)}) must be the same as input size ({_size(input)})")
    no_derivative(e, "binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    if (
        any(x is not None and x.dtype != input.dtype for x in (target, weight, pos_weight))
        or not input.dtype.is_floating_point
    ):
        raise Unmodelled("binary_cross_entropy_with_logits with operands of several dtypes")
    count = max(input.numel, 1) if reduction == "mean" else 1
    if pos_weight is not None:
        broadcast(pos_weight.shape, target.shape)
    for factor in (pos_weight, weight):  # torch multiplies in place
        if factor is not None:
            check_fits(input, (input, factor), None)

    def forward(x: np.ndarray, y: np.ndarray, w: Any, positive: Any) -> Any:
        return _reduce(_logit_losses(x, y, w, positive, input.dtype.numpy), reduction)

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        gate = 1 / (1 + np.exp(-s.self))
        if s.pos_weight is None:
            to_input, to_target = gate - s.target, -s.self
        else:
            more = s.pos_weight * s.target
            to_input = (more + 1 - s.target) * gate - more
            to_target = np.asarray(s.pos_weight * _softened(-s.self) - _softened(s.self), order="C")
        # torch computes in place, which increases the version; the strides are those of the first operand
        times = (2 if s.pos_weight is None else 4) + (s.weight is not None) + (reduction == "mean")
        like = s.self if s.pos_weight is None else s.target
        found = []
        for slope, lying in ((to_input, like), (to_target, to_target)):
            laid = made_of(lying)
            laid[...] = slope * g if s.weight is None else slope * g * s.weight
            laid /= laid.dtype.type(count)
            found.append(laid)
        return Written(found[0], times), Written(found[1], times - 2)

    rule = OpRule(
        "BinaryCrossEntropyWithLogitsBackward0",
        forward,
        _bce_keeps("self", "target", "weight", "pos_weight"),
        vjp,
        edges=2,
    )
    return _lost(
        e, rule, (input, target, weight, pos_weight), reduction, input.dtype, like=target
    )  # ``1 - target``, from C++


# -- composed of other operations


def xlogy(e: Engine, x: ShadowTensor, y: ShadowTensor) -> ShadowTensor:
    """``x * log(y)``, and 0 where x is 0. Raises ``ShadowError`` (torch's error) if the two do not broadcast, among
    others.
    """

    def forward(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(b), b, np.where(a == 0, 0, a * np.log(b)))

    def vjp(g: Any, s: Any) -> tuple[Any, Any]:
        to_x = (
            None
            if s.other is None
            else np.where((s.self == 0) & (s.other <= 0) if s.self is not None else False, 0, g * np.log(s.other))
        )
        return to_x, None if s.self is None else g * s.self / s.other

    dtype = promoted(x, y)
    rule = OpRule("XlogyBackward0", forward, (Keep("other", 1), Keep("self", 0)), vjp)
    return pure(
        e,
        rule,
        (x, y),
        broadcast(x.shape, y.shape),
        dtype,
        dtype,
        layout(broadcast(x.shape, y.shape), (x, y), cast=dtype),
    )


@op(
    "F.kl_div",
    saves="as xlogy, mul and sub",
    samples=(
        "F.kl_div(a, b)",
        "F.kl_div(a, b.detach(), reduction='batchmean')",
        "F.kl_div(a, p, reduction='sum', log_target=True)",
        "F.kl_div(a, b.detach(), reduction='none')",
    ),
)
def kl_div(
    e: Engine,
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> ShadowTensor:
    tensor_only(input, target)
    _check("sum" if reduction == "batchmean" else reduction, size_average, reduce)
    if reduction == "mean":
        e.warnings.append(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release."
        )
    if input.dtype.category < 2 or target.dtype.category < 2:
        raise runtime("kl_div: Integral inputs not supported.", "dtype")
    if log_target:
        gap = pointwise.sub(e, target, input)  # the compiler has the right side computed first, here and below
        loss = pointwise.mul(e, pointwise.RUNS["exp"][0](e, target), gap)
    else:
        product = pointwise.mul(e, target, input)
        loss = pointwise.sub(e, xlogy(e, target, target), product)
    if reduction != "batchmean":
        return reduced(e, loss, reduction)
    total = reduced(e, loss, "sum")
    return pointwise.div(e, total, input.shape[0]) if input.ndim else total


@op(
    "F.poisson_nll_loss",
    saves="as exp, mul and sub",
    samples=(
        "F.poisson_nll_loss(a, p)",
        "F.poisson_nll_loss(b, p, log_input=False, full=True)",
        "F.poisson_nll_loss(a, b, reduction='none')",
    ),
)
def poisson_nll_loss(e: Engine, input: Any, target: Any, log_input: bool = True, full: bool = False,
                     size_average: Any = None, eps: float = 1e-8, reduce: Any = None,
                     reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if log_input:
        product = pointwise.mul(e, target, input)
        loss = pointwise.sub(e, pointwise.RUNS["exp"][0](e, input), product)
    else:
        log = pointwise.RUNS["log"][0](e, pointwise.add_number(e, input, eps))
        loss = pointwise.sub(e, input, pointwise.mul(e, target, log))
    if full:
        if target.requires_grad or target.dtype != loss.dtype:
            raise Unmodelled(
                "poisson_nll_loss with full=True and a target that requires grad or has another dtype than the loss"
            )
        seen = target.window()
        stirling = (
            None
            if seen is None
            else np.where(seen <= 1, 0, seen * np.log(seen) - seen + 0.5 * np.log(2 * math.pi * seen))
        )
        loss = pointwise.add_in_place(e, loss, new(e, target.shape, target.dtype, stirling))
    return reduced(e, loss, reduction)


@op(
    "F.gaussian_nll_loss",
    saves="as log, pow, div and mul",
    samples=(
        "F.gaussian_nll_loss(a, p, b)",
        "F.gaussian_nll_loss(a, p, b, full=True, reduction='none')",
        "F.gaussian_nll_loss(a, p, b[:, 0])",
        "F.gaussian_nll_loss(a, p, p)",
    ),
)
def gaussian_nll_loss(
    e: Engine, input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> ShadowTensor:
    tensor_only(input, target, var)
    seen = var.window()
    if seen is None:
        raise Unmodelled("gaussian_nll_loss of a variance with unknown values, which torch checks for negative ones")
    if np.any(seen < 0):
        raise value_error("var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = views.unsqueeze(e, var, -1)
        elif not (
            input.ndim == var.ndim and math.fsum(x != y and y for x, y in zip(input.shape, var.shape, strict=True)) == 1
        ):
            raise value_error("var is of incorrect size")
    if reduction not in REDUCTIONS:
        raise value_error(reduction + " is not valid")
    var = views.clone(e, var)
    before, e.grad_enabled = e.grad_enabled, False
    try:
        pointwise.clamp_in_place(e, var, min=eps)
    finally:
        e.grad_enabled = before
    log = pointwise.RUNS["log"][0](e, var)
    error = pointwise.pow(e, pointwise.sub(e, input, target), 2)
    loss = pointwise.mul(e, pointwise.add_(e, log, pointwise.div(e, error, var)), 0.5)
    if full:
        loss = pointwise.add_in_place(e, loss, 0.5 * math.log(2 * math.pi))
    return reduced(e, loss, reduction)


def _kept_where(e: Engine, condition: ShadowTensor, values: ShadowTensor) -> ShadowTensor:
    return pointwise.where(e, condition, values, new(e, values.shape, values.dtype, np.zeros(())))


@op(
    "F.hinge_embedding_loss",
    saves="as sub, clamp_min and where",
    samples=(
        "F.hinge_embedding_loss(a, torch.sign(p))",
        "F.hinge_embedding_loss(a, torch.sign(p), margin=0.5, reduction='none')",
    ),
)
def hinge_embedding_loss(
    e: Engine,
    input: Any,
    target: Any,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> ShadowTensor:
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise Unmodelled("hinge_embedding_loss with operands of two shapes")
    clamped = pointwise.clamp_min_in_place(e, _from_number(e, margin, input), 0)
    outside = _kept_where(e, pointwise.compare_different(e, target, 1), clamped)
    return reduced(
        e, pointwise.add_(e, outside, _kept_where(e, pointwise.compare_different(e, target, -1), input)), reduction
    )


def _from_number(e: Engine, number: float, tensor: ShadowTensor) -> ShadowTensor:
    """``number - tensor`` as C++ writes it: the number becomes a tensor."""
    return pointwise.sub(e, number, tensor)


@op(
    "F.margin_ranking_loss",
    saves="as sub, mul and clamp_min",
    samples=(
        "F.margin_ranking_loss(a, b, torch.sign(p))",
        "F.margin_ranking_loss(a, b, torch.sign(p), 0.5, reduction='none')",
        "F.margin_ranking_loss(a, b, p[0])",
    ),
)
def margin_ranking_loss(e: Engine, input1: Any, input2: Any, target: Any, margin: float = 0, size_average: Any = None,
                        reduce: Any = None, reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input1, input2, target)
    _check(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        shown = f"input1: {_size(input1)}, input2: {_size(input2)}, target: {_size(target)} "
        raise runtime(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: {shown}", "shape"
        )
    product = pointwise.mul(e, pointwise.negative(e, target), pointwise.sub(e, input1, input2))
    return reduced(e, pointwise.clamp_min_in_place(e, pointwise.add_number(e, product, margin), 0), reduction)


@op(
    "F.cosine_embedding_loss",
    saves="as mul, sum, sqrt, div and where",
    samples=(
        "F.cosine_embedding_loss(a, b, torch.tensor([1.0, -1.0]))",
        "F.cosine_embedding_loss(a, b, torch.tensor([1, -1]), 0.2, reduction='none')",
        "F.cosine_embedding_loss(c, p[0], torch.tensor(1))",
    ),
)
def cosine_embedding_loss(e: Engine, input1: Any, input2: Any, target: Any, margin: float = 0, size_average: Any = None,
                          reduce: Any = None, reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input1, input2, target)
    _check(reduction, size_average, reduce)
    check_history(e, input1, input2, target)
    if target.ndim > 1:
        raise runtime("0D or 1D target tensor expected, multi-target not supported", "shape")
    if {input1.ndim, input2.ndim} != {target.ndim + 1}:
        found = f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        raise runtime(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found {found}", "shape"
        )
    if target.shape != input1.shape[: target.ndim]:
        raise Unmodelled("cosine_embedding_loss with operands of incompatible shapes")
    at = target.ndim
    product = reduction_of(e, input1, input2, at)
    first, second = (pointwise.add_number(e, reduction_of(e, x, x, at), 1e-12) for x in (input1, input2))
    cosine = pointwise.div(e, product, pointwise.RUNS["sqrt"][1](e, pointwise.mul(e, first, second)))
    alike = _from_number(e, 1, cosine)
    unlike = pointwise.clamp_min_in_place(e, pointwise.sub_number(e, cosine, margin), 0)
    alike = _kept_where(e, pointwise.compare_equal(e, target, 1), alike)
    return reduced(
        e, pointwise.add_(e, alike, _kept_where(e, pointwise.compare_equal(e, target, -1), unlike)), reduction
    )


def reduction_of(e: Engine, x: ShadowTensor, y: ShadowTensor, at: int) -> ShadowTensor:
    """``(x * y).sum(at)``."""
    return reductions.sum(e, pointwise.mul(e, x, y), at)


def _nearer(e: Engine, x: ShadowTensor, y: ShadowTensor) -> ShadowTensor:
    return broadcasting(e, pointwise.MINIMUM, (x, y), x.dtype)


@op(
    "F.triplet_margin_loss",
    saves="as norm, sub and clamp_min",
    samples=(
        "F.triplet_margin_loss(a, b, p)",
        "F.triplet_margin_loss(a, b, p, swap=True, reduction='none')",
        "F.triplet_margin_loss(a, b, p, margin=0)",
    ),
)
def triplet_margin_loss(e: Engine, anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: Any = None, reduce: Any = None,
                        reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(anchor, positive, negative)
    _check(reduction, size_average, reduce)
    if margin <= 0:
        raise value_error(f"margin must be greater than 0, got {margin}")
    check_history(e, anchor, positive, negative)
    if not anchor.ndim == positive.ndim == negative.ndim:
        found = f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        raise runtime(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: {found}",
            "shape",
        )
    near, far = (
        matmul.pairwise_distance(e, anchor, positive, p, eps),
        matmul.pairwise_distance(e, anchor, negative, p, eps),
    )
    if swap:
        far = _nearer(e, far, matmul.pairwise_distance(e, positive, negative, p, eps))
    return reduced(
        e, pointwise.clamp_min(e, pointwise.sub(e, pointwise.add_number(e, near, margin), far), 0), reduction
    )


@op(
    "F.triplet_margin_with_distance_loss",
    saves="as norm, sub and clamp_min",
    samples=("F.triplet_margin_with_distance_loss(a, b, p)",),
)
def triplet_margin_with_distance_loss(e: Engine, anchor: Any, positive: Any, negative: Any, *,
                                      distance_function: Any = None, margin: float = 1.0, swap: bool = False,
                                      reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(anchor, positive, negative)
    if distance_function is not None:
        raise Unmodelled("triplet_margin_with_distance_loss with a user-defined distance_function")
    near, far = matmul.pairwise_distance(e, anchor, positive), matmul.pairwise_distance(e, anchor, negative)
    if swap:
        far = _nearer(e, far, matmul.pairwise_distance(e, positive, negative))
    return reduced(e, pointwise.clamp_min(e, pointwise.sub(e, pointwise.add_(e, near, margin), far), 0), reduction)


@op(
    "F.multilabel_soft_margin_loss",
    saves="as logsigmoid and mul",
    samples=("F.multilabel_soft_margin_loss(a, p)", "F.multilabel_soft_margin_loss(a, p, p, reduction='none')"),
)
def multilabel_soft_margin_loss(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                                reduce: Any = None, reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    present = pointwise.mul(e, target, logsigmoid(e, input))
    absent = pointwise.mul(e, pointwise.rsub(e, target, 1), logsigmoid(e, pointwise.negative(e, input)))
    loss = pointwise.negative(e, pointwise.add_(e, present, absent))
    loss = loss if weight is None else pointwise.mul(e, loss, weight)
    return reduced(e, pointwise.div(e, reduce_last(e, loss), input.shape[-1]), reduction)


def reduce_last(e: Engine, values: ShadowTensor) -> ShadowTensor:
    """The sum over the last dimension."""
    return reductions.sum(e, values, values.ndim - 1)


# -- margins between classes


def _rows(tensor: ShadowTensor) -> Shape:
    return tensor.shape[:1] if tensor.ndim == 2 else ()


@op(
    "F.multi_margin_loss",
    saves="self, target, weight",
    samples=(
        "F.multi_margin_loss(a, i)",
        "F.multi_margin_loss(a, i, p=2, margin=0.5, weight=p[0], reduction='none')",
        "F.multi_margin_loss(a, i, reduction='sum')",
        "F.multi_margin_loss(a, i, weight=c)",
    ),
)
def multi_margin_loss(e: Engine, input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None,
                      size_average: Any = None, reduce: Any = None,
                      reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    """``F.multi_margin_loss`` of (N, C) scores and N class indices: of each row, the amounts by which a class misses
    the ``margin``.

    They are raised to the power ``p`` (1 or 2), weighted by the target class, and reduced. Raises ``ShadowError``
    (torch's error) for another ``p``, an unknown ``reduction``, and a weight that is not 1-D, of another dtype, or
    requires grad; ``Unmodelled``, among others, for other shapes, an empty input, ``size_average`` and ``reduce``.
    """
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if p not in (1, 2):
        raise value_error("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise value_error("weight must be one-dimensional")
    no_derivative(e, "multi_margin_loss", weight=weight)
    if (
        input.ndim != 2
        or target.shape != input.shape[:1]
        or target.dtype != "int64"
        or (weight is not None and weight.shape != input.shape[1:])
    ):
        raise Unmodelled("multi_margin_loss with operands of incompatible shapes or dtypes")
    if not input.numel:
        raise Unmodelled("multi_margin_loss of an empty input")  # torch leaves the memory of the result as it is
    if weight is not None and weight.dtype != input.dtype:
        raise runtime(f"expected scalar type {input.dtype.scalar_name} but found {weight.dtype.scalar_name}", "dtype")
    count, classes = input.shape
    rows = np.arange(count)

    def gaps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        gap = margin - x[rows, y][:, None] + x
        gap[rows, y] = 0
        return np.where(gap > 0, gap, 0)

    def forward(x: np.ndarray, y: np.ndarray, w: Any) -> Any:
        loss = (gaps(x, y) ** p).sum(1) / classes
        return _reduce(loss if w is None else loss * w[y], reduction)

    def vjp(g: Any, s: Any) -> tuple[np.ndarray]:
        gap = gaps(s.self, s.target)
        slope = (2 * gap if p == 2 else (gap > 0).astype(gap.dtype)) / classes
        slope = slope if s.weight is None else slope * s.weight[s.target][:, None]
        slope[rows, s.target] = -slope.sum(1)
        return (slope * (g[:, None] if reduction == "none" else g / (count if reduction == "mean" else 1)),)

    rule = OpRule(
        "MultiMarginLossBackward0", forward, (Keep("self", 0), Keep("target", 1), Keep("weight", 2)), vjp, edges=1
    )
    return pure(e, rule, (input, target, weight), _rows(input) if reduction == "none" else (), input.dtype)


@op("F.multilabel_margin_loss", saves="self, target, and which classes are targets (private)", samples=(
    "F.multilabel_margin_loss(a, torch.tensor([[0, 1, -1], [2, -1, 0]]))",
    "F.multilabel_margin_loss(a, torch.tensor([[0, 1, -1], [2, -1, 0]]), reduction='none')"))  # fmt: skip
def multilabel_margin_loss(
    e: Engine, input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> ShadowTensor:
    """``F.multilabel_margin_loss`` of (N, C) scores; each row of the target lists the row's classes up to the first -1.

    Raises ``ShadowError`` (torch's error) for an unknown ``reduction``, and ``Unmodelled``, among others, for other
    shapes, a target that is not int64, ``size_average`` and ``reduce``.
    """
    tensor_only(input, target)
    _check(reduction, size_average, reduce)
    if input.ndim != 2 or target.shape != input.shape or target.dtype != "int64":
        raise Unmodelled("multilabel_margin_loss with operands of incompatible shapes or dtypes")
    count, classes = input.shape

    def pairs(x: np.ndarray, y: np.ndarray) -> list[tuple[int, int, int, float]]:
        """Return (row, target class, other class, gap) for each target class of a row of scores ``x`` and each class
        that is no target of it, where the gap is positive: 1 - score of the target + score of the other class.
        """
        found = []
        for row in range(count):
            last = np.flatnonzero(y[row] < 0)
            wanted = y[row, : last[0] if last.size else classes].tolist()
            found += [
                (row, t, k, 1 - x[row, t] + x[row, k])
                for t in wanted
                for k in range(classes)
                if k not in wanted and 1 - x[row, t] + x[row, k] > 0
            ]
        return found

    def forward(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        loss = np.zeros(count)
        for row, _, _, gap in pairs(x, y):
            loss[row] += gap / classes
        return _reduce(loss, reduction), np.zeros(x.shape, x.dtype)

    def vjp(g: Any, s: Any) -> tuple[np.ndarray]:
        slope = np.zeros(s.self.shape, s.self.dtype)
        for row, t, k, _ in pairs(s.self, s.target):
            slope[row, t] -= 1 / classes
            slope[row, k] += 1 / classes
        return (slope * (g[:, None] if reduction == "none" else g / (count if reduction == "mean" else 1)),)

    rule = OpRule("MultilabelMarginLossBackward0", forward, (Keep("self", 0), Keep("target", 1)), vjp, edges=1)
    return pure(
        e, rule, (input, target), _rows(input) if reduction == "none" else (), input.dtype, hidden=("is_target",)
    )
