"""Normalisation over layers, batches, groups and instances."""

# ruff: noqa: A002, ARG001, D103, PLR0917 - signatures and names are torch's

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.gradient import average
from pitfall_lab.shadow.graph import Saved
from pitfall_lab.shadow.layout import overlaps_itself
from pitfall_lab.shadow.memory_format import any_channels_last, laid_out, suggested
from pitfall_lab.shadow.ops import mutate, pointwise, reduce, views
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    arrays,
    edges,
    finite_vjp,
    is_finite,
    new,
    no_derivative,
    of_finite,
    own,
    private,
    pure,
    records,
    tensor_only,
)
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.releases import GROUP_NORM_TAKES_ANY_STRIDES, INSTANCE_NORM_ONLY_READS
from pitfall_lab.shadow.storage import ShadowTensor, is_contiguous


def _spread(x: np.ndarray, axes: tuple[int, ...], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean and ``1 / sqrt(variance + eps)`` over ``axes``, which are kept with size 1."""
    wide = x.astype(np.float64)
    middle = average(wide, axes, keepdims=True)
    return middle, 1 / np.sqrt(average((wide - middle) ** 2, axes, keepdims=True) + eps)


CONDITION = {np.dtype(np.float64): 4096.0}
"""How many times its spread the largest number of a row may be (16 in float32).

A mean is known up to one rounding of that number, and what is left after subtracting it is divided by the spread:
beyond this, the comparison's tolerance is used up by the order in which torch's kernel happens to add. ``eps`` bounds
the spread from below, so a row of zeros is fine and a row of ones is not.
"""
SQUARED = {np.dtype(np.float64): 1e150}
"""Larger numbers (1e18 in float32) have squares that overflow, in a kernel that squares them."""


def _is_settled(x: np.ndarray, rstd: np.ndarray, normal: np.ndarray) -> bool:
    """Whether the normalised numbers do not depend on how torch's kernel computes mean and spread."""
    size = np.nan_to_num(np.abs(x), posinf=0)
    room = CONDITION.get(x.dtype, 16.0) * min(
        1.0, float(np.nan_to_num(np.abs(normal)).max(initial=0))
    )  # of equal numbers rounding remains
    return not (size * np.nan_to_num(rstd) > room).any() and not (size > SQUARED.get(x.dtype, 1e18)).any()


def _through_statistics(g: np.ndarray, normal: np.ndarray, rstd: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The gradient through mean and variance that were computed from the input itself."""
    if any(np.isinf(x).any() for x in (g, rstd, normal)):
        raise Unmodelled("inf in the gradient of a normalisation: whether it cancels depends on the kernel")
    result: np.ndarray = rstd * (
        g - average(g, axes, keepdims=True) - normal * average(g * normal, axes, keepdims=True)
    )
    return result


@op(
    "F.layer_norm",
    saves="bias, input, weight, and private statistics",
    samples=("F.layer_norm(a, (3,))", "F.layer_norm(a, (3,), c, c * 2)", "F.layer_norm(p, (2, 3))"),
)
def layer_norm(
    e: Engine, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> ShadowTensor:
    """``F.layer_norm`` of an input of shape (..., *normalized_shape): each row is normalised, then weighed and shifted
    if these are given.

    Raises ``ShadowError`` (torch's error) for an empty ``normalized_shape``, an integer input and some mixtures of
    dtypes, and ``Unmodelled``, among others, for other shapes and the other mixtures.
    """
    given = [x for x in (weight, bias) if x is not None]
    tensor_only(input, *given)
    shape = tuple(normalized_shape)
    if not shape:
        raise runtime(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []",
            "shape",
        )
    if input.shape[input.ndim - len(shape) :] != shape or any(
        x.shape != shape or x.dtype != input.dtype for x in given
    ):
        if (
            input.shape[input.ndim - len(shape) :] == shape
            and all(x.shape == shape for x in given)
            and given[0].dtype != input.dtype
        ):
            if any(x.dtype != "float32" for x in given):
                raise runtime("mixed dtype (CPU): expect parameter to have scalar type of Float", "dtype")
            if input.dtype not in ("float16", "bfloat16"):
                raise runtime("mixed dtype (CPU): all inputs must share same datatype.", "dtype")
        raise Unmodelled("layer_norm with operands of incompatible shapes or mixed dtypes")
    if input.dtype.category < 2:
        raise no_kernel("LayerNormKernelImpl", input.dtype.scalar_name)
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    rows = tuple(range(input.ndim - len(shape)))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        normal = (s.input - s.result1) * s.result2
        scaled = g if s.weight is None else g * s.weight
        return _through_statistics(scaled, normal, s.result2, axes), (g * normal).sum(axis=rows), g.sum(axis=rows)

    return _normalised(e, "NativeLayerNormBackward0", input, weight, bias, axes, eps, vjp, None)


@op("F.batch_norm", saves="input, running_mean, running_var, weight, and private statistics", samples=(
    "F.batch_norm(a, None, None, training=True)", "F.batch_norm(a, torch.zeros(3), torch.ones(3))",
    "F.batch_norm(a, torch.zeros(3), torch.ones(3), c, c * 2, training=True)",
    "F.batch_norm(img, d4 * 1, d4 * 2, c4, d4, training=True)",
    "F.batch_norm(cl, d4 * 1, d4 * 2, c4, d4, training=True).sigmoid()", "F.batch_norm(cl, d4, d4, c4)",
    "F.batch_norm(a[:1], None, None, training=True)",
    "F.batch_norm(seq, d4, d4, training=True, momentum=0.5)"))  # fmt: skip
def batch_norm(e: Engine, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> ShadowTensor:  # fmt: skip
    """``F.batch_norm`` of (N, C, ...): in ``training`` by the batch's own statistics, else by ``running_mean`` and
    ``running_var``.

    In training the running statistics are written *without* increasing their version.

    Raises ``ShadowError`` (torch's error) for a batch with one value per channel in ``training`` and for running
    statistics that require grad while operations are recorded (:func:`no_derivative`), and ``Unmodelled``, among
    others, for shapes and dtypes that do not fit, an empty input, ``momentum=None``, and one of the running statistics
    without the other.
    """
    running = [x for x in (running_mean, running_var) if x is not None]
    given = [x for x in (weight, bias) if x is not None]
    tensor_only(input, *running, *given)
    if (
        input.ndim < 2
        or any(x.shape != (input.shape[1],) or x.dtype != input.dtype for x in (*running, *given))
        or momentum is None
    ):
        raise Unmodelled("batch_norm with operands of incompatible shapes or dtypes, or with momentum=None")
    if training and any(map(overlaps_itself, running)):
        raise Unmodelled("batch_norm whose running_mean or running_var has several elements at one memory location")
    if any(not is_contiguous(x.shape, x.stride) for x in given):
        raise Unmodelled("batch_norm whose weight or bias is not contiguous: torch's kernels read it as if it were")
    if not input.numel:
        raise Unmodelled("batch_norm of an empty input")  # which is a copy, or an addition
    if len(running) == 1 or (not training and not running):
        raise Unmodelled("batch_norm with only one of running_mean and running_var, or with neither in evaluation")
    if training:
        _several_values(input.shape)
    no_derivative(e, "native_batch_norm", running_mean=running_mean, running_var=running_var)
    axes = (0, *range(2, input.ndim))
    column = (1, -1, *(1,) * (input.ndim - 2))
    last = any_channels_last(input)

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        mean, rstd = (
            (s.result1, s.result2)
            if training
            else (s.running_mean.reshape(column), 1 / np.sqrt(s.running_var.reshape(column) + eps))
        )
        normal = (s.input - mean) * rstd
        scaled = g if s.weight is None else g * s.weight.reshape(column)
        flow = _through_statistics(scaled, normal, rstd, axes) if training else scaled * rstd
        return laid_out(flow, last), (g * normal).sum(axis=axes), g.sum(axis=axes)

    result = _normalised(
        e, "NativeBatchNormBackward0", input, weight, bias, axes, eps, vjp, (running, training, column)
    )
    if training and running:
        _follow(e, input, running, axes, momentum)
    return result


def _several_values(shape: Sequence[int]) -> None:
    """Raise torch's error if a channel has only one value: such a channel has no variance to train with."""
    if math.prod((shape[0], *shape[2:])) == 1:
        shown = shape if isinstance(shape, list) else f"torch.Size({list(shape)})"
        raise ShadowError(
            "ValueError", f"Expected more than 1 value per channel when training, got input size {shown}", "shape"
        )


def _follow(
    e: Engine, input: ShadowTensor, running: list[ShadowTensor], axes: tuple[int, ...], momentum: float
) -> None:
    """Update the running statistics. No version is increased, because torch's kernel writes their memory directly."""
    found = arrays(e, (input, *running))
    statistics: tuple[Any, Any] = (np.mean, np.var)
    for target, statistic in zip(running, statistics, strict=True):
        if found is None:
            e.write(target, None)
            continue
        count = math.prod(input.shape[d] for d in axes)
        fresh = statistic(found[0].astype(np.float64), axis=axes) * (
            count / max(count - 1, 1) if statistic is np.var else 1
        )
        before = target.values()
        e.write(target, None if before is None else before * (1 - momentum) + momentum * fresh)


def _normalised(
    e: Engine,
    name: str,
    input: ShadowTensor,
    weight: Any,
    bias: Any,
    axes: tuple[int, ...],
    eps: float,
    vjp: Any,
    batch: Any,
) -> ShadowTensor:
    running, training, column = batch or ([], True, None)
    node = None
    operands = [input, weight, bias]
    if records(e, *operands):
        node = e.graph.new_node(name, edges(e, operands), finite_vjp(vjp))
        kept: list[tuple[str, Any]] = [("input", input), ("weight", weight)]
        kept += [("bias", bias)] if batch is None else list(zip(("running_mean", "running_var"), running, strict=False))
        node.keep(*(Saved(key, x) for key, x in sorted((k for k in kept if k[1] is not None), key=lambda k: k[0])))
    tensors = [x for x in (input, weight, bias, *running) if x is not None]
    found = arrays(e, tensors) if input.numel <= e.value_limit else None
    values: Any = None
    statistics: tuple[Any, Any] = (np.zeros(0), np.zeros(0))
    if found is not None:
        table = dict(zip(map(id, tensors), found, strict=True))
        statistics = (
            _spread(found[0], axes, eps)
            if training
            else (table[id(running[0])].reshape(column), 1 / np.sqrt(table[id(running[1])].reshape(column) + eps))
        )
        values = (found[0] - statistics[0]) * statistics[1]
        if not all(map(is_finite, found)) or (training and not _is_settled(found[0], statistics[1], values)):
            values, statistics = None, (None, None)
        for x, combine in ((weight, np.multiply), (bias, np.add)):
            if x is not None and values is not None:
                values = combine(values, table[id(x)] if column is None else table[id(x)].reshape(column))
    result = new(e, input.shape, input.dtype, values, None if batch is None else suggested(input.shape, input))
    if node is not None:
        own(node, result)
        node.keep(
            *(
                Saved(f"result{k + 1}", private(e, s if s is None else s.astype(np.float64), input.dtype), own=True)
                for k, s in enumerate(statistics)
            )
        )
    return result


@op("F.group_norm", "torch.group_norm", saves="input, weight, and private statistics", samples=(
    "F.group_norm(img, 2)", "F.group_norm(img, 4, c4, d4)", "F.group_norm(cl, 2, d4, c4)", "F.group_norm(seq, 2)",
    "F.group_norm(img, 3)", "F.group_norm(img.transpose(2, 3), 2)"))  # fmt: skip
def group_norm(
    e: Engine,
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> ShadowTensor:
    """``F.group_norm`` of an input of shape (N, C, ...): normalises ``num_groups`` consecutive groups of channels.

    ``weight`` and ``bias`` have one number for each channel. Raises ``ShadowError`` (torch's error) if the groups do
    not divide the channels, and for fewer than 2 dimensions; ``Unmodelled``, among others, for an empty input, for one
    value per group in a batch of one, and for other shapes and dtypes.
    """
    given = [x for x in (weight, bias) if x is not None]
    tensor_only(input, *given)
    if (
        input.ndim >= 2
        and num_groups > 0
        and input.shape[0] * input.shape[1] // num_groups * math.prod(input.shape[2:]) == 1
    ):
        raise Unmodelled("group_norm with one value per group, which F.group_norm refuses and torch.group_norm accepts")
    if input.ndim < 2:
        raise runtime(f"Expected at least 2 dimensions for input tensor but received {input.ndim}", "shape")
    count, channels = input.shape[:2]
    _several_values([count * channels // num_groups, num_groups, *input.shape[2:]])
    if channels % num_groups:
        text = (
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
        raise runtime(text, "shape")
    if (
        any(x.shape != (channels,) or x.dtype != input.dtype for x in given)
        or not input.dtype.is_floating_point
        or 0 in input.shape
    ):
        raise Unmodelled("group_norm of an empty input, or with operands of incompatible shapes or dtypes")
    last = any_channels_last(input)
    form = {4: "channels_last", 5: "channels_last_3d"}[input.ndim] if last else "contiguous_format"
    given = [None if x is None else views.contiguous(e, x) for x in (weight, bias)]
    source = input if e.does(GROUP_NORM_TAKES_ANY_STRIDES) else views.contiguous(e, input, form)
    column, grouped = (1, -1, *(1,) * (input.ndim - 2)), (count, num_groups, -1)
    axes = (0, *range(2, input.ndim))

    def forward(x: np.ndarray, w: Any, b: Any) -> tuple[Any, ...] | None:
        rows = x.reshape(grouped)
        mean, rstd = _spread(rows, (2,), eps)
        normal = (rows - mean) * rstd
        if not _is_settled(rows, rstd, normal):
            return None
        scaled = normal.reshape(x.shape) * (1 if w is None else w.reshape(column))
        return scaled if b is None else scaled + b.reshape(column), mean[..., 0], rstd[..., 0]

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        normal = ((s.input.reshape(grouped) - s.result1[..., None]) * s.result2[..., None]).reshape(g.shape)
        scaled = (g if s.weight is None else g * s.weight.reshape(column)).reshape(grouped)
        flow = _through_statistics(scaled, normal.reshape(grouped), s.result2[..., None], (2,)).reshape(g.shape)
        return laid_out(flow, last), (g * normal).sum(axis=axes), g.sum(axis=axes)

    rule = of_finite(OpRule("NativeGroupNormBackward0", forward, (Keep("input", 0), Keep("weight", 1)), vjp))
    return pure(
        e,
        rule,
        (source, *given),
        input.shape,
        input.dtype,
        stride=suggested(input.shape, input),
        hidden=("result1", "result2"),
    )


@op("F.instance_norm", saves="as batch_norm, of one batch with N * C channels", samples=(
    "F.instance_norm(img)", "F.instance_norm(seq, weight=c4, bias=d4)", "F.instance_norm(img, d4, d4 * 2, c4, None)",
    "F.instance_norm(img, d4, d4 * 2, use_input_stats=False)"))  # fmt: skip
def instance_norm(e: Engine, input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
                  bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
                  cudnn_enabled: bool = True) -> ShadowTensor:  # fmt: skip
    """``F.instance_norm`` of an input of shape (N, C, ...): normalises each channel of each instance, with
    ``use_input_stats`` by its own statistics, else by the running ones.

    Raises ``ShadowError`` (torch's ValueError) if its own statistics are of one value, and ``Unmodelled``, among
    others, for an input that is empty or has fewer than 3 dimensions; and what :func:`batch_norm` raises.
    """
    tensor_only(input)
    if input.ndim < 3 or 0 in input.shape:
        raise Unmodelled("instance_norm of an empty input, or of one without spatial dimensions")
    count, channels = input.shape[:2]
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        shown = list(input.shape)
        raise ShadowError(
            "ValueError",
            f"Expected more than 1 spatial element when training, got input size torch.Size({shown})",
            "shape",
        )
    repeated = [None if x is None else reduce.repeat(e, x, count) for x in (weight, bias, running_mean, running_var)]
    flat = views.view_(e, views.contiguous(e, input), 1, count * channels, *input.shape[2:])
    result = batch_norm(e, flat, repeated[2], repeated[3], repeated[0], repeated[1], use_input_stats, momentum, eps)
    back = use_input_stats or not e.does(INSTANCE_NORM_ONLY_READS)
    for target, moved in ((running_mean, repeated[2]), (running_var, repeated[3])):
        if target is not None and moved is not None and back:
            mutate.copy_(e, target, reduce.mean(e, views.view_(e, moved, count, channels), 0))
    return views.view_(e, result, *input.shape)


@op(
    "F.rms_norm",
    "torch.rms_norm",
    saves="as pow, mean, rsqrt and mul",
    samples=(
        "F.rms_norm(img, (6,))",
        "F.rms_norm(a, (3,), c)",
        "F.rms_norm(a, (2, 3), eps=0.1)",
        "F.rms_norm(img.mT, (4,))",
        "F.rms_norm(w.t(), (3,), c)",
    ),
)
def rms_norm(
    e: Engine, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> ShadowTensor:
    """``input / sqrt(average(input ** 2) + eps)``, times ``weight`` if there is one, composed of other operations.

    The average is over the last dimensions, those of ``normalized_shape``; ``eps`` None is the machine epsilon of the
    dtype. Raises ``ShadowError`` (torch's error) for a ``weight`` of another shape, and ``Unmodelled``, among others,
    for an input of another shape or a dtype other than float32 and float64, and for another dtype of ``weight``.
    """
    tensor_only(input, *(() if weight is None else (weight,)))
    shape = tuple(normalized_shape)
    if (
        input.shape[input.ndim - len(shape) :] != shape
        or input.dtype not in ("float32", "float64")
        or (weight is not None and weight.dtype != input.dtype)
    ):
        raise Unmodelled("rms_norm with operands of incompatible shapes or dtypes, or in half precision")
    if weight is not None and weight.shape != shape:
        raise runtime(
            f"Expected weight to be of same shape as normalized_shape, but got weight of shape {list(weight.shape)} "
            f"and normalized_shape = {list(shape)}",
            "shape",
        )
    room = float(np.finfo(np.float32 if input.dtype == "float32" else np.float64).eps) if eps is None else eps
    mean = reduce.mean(e, pointwise.pow(e, input, 2), tuple(range(input.ndim - len(shape), input.ndim)), keepdim=True)
    scale = pointwise.RUNS["rsqrt"][0](e, pointwise.add_number_(e, mean, room))
    result = pointwise.mul(e, input, scale)
    form = {4: "channels_last", 5: "channels_last_3d"}[input.ndim] if any_channels_last(input) else None
    return views.contiguous(e, result if weight is None else pointwise.mul(e, result, weight), form)


@op(
    "F.normalize",
    saves="as norm, clamp_min and div",
    samples=("F.normalize(a)", "F.normalize(a, p=1, dim=0)", "F.normalize(img)"),
)
def normalize(e: Engine, input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> ShadowTensor:
    pointwise.no_out(out)
    length = pointwise.clamp_min(e, reduce.norm(e, input, p, dim, keepdim=True), eps)
    return pointwise.div(e, input, views.expand_as(e, length, input))
