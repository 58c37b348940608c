"""Layer and batch normalisation."""

# mypy: disable-error-code="no-any-return"
# ruff: noqa: A002, E501, PLR0917 - signatures and names are torch's

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.graph import Saved
from pitfall_lab.shadow.ops.kit import arrays, edges, new, own, private, records, tensor_only
from pitfall_lab.shadow.ops.registry import op
from pitfall_lab.shadow.storage import ShadowTensor


def _spread(x: np.ndarray, axes: tuple[int, ...], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean and 1 / sqrt(variance + eps), with the reduced dimensions kept."""
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True)
    return mean, 1 / np.sqrt(((wide - mean) ** 2).mean(axis=axes, keepdims=True) + eps)


def _through_statistics(g: np.ndarray, normal: np.ndarray, rstd: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The gradient through mean and variance that were computed from the input itself."""
    return rstd * (g - g.mean(axis=axes, keepdims=True) - normal * (g * normal).mean(axis=axes, keepdims=True))


@op("F.layer_norm", saves="bias, input, weight, and private statistics", samples=("F.layer_norm(a, (3,))", "F.layer_norm(a, (3,), c, c * 2)", "F.layer_norm(p, (2, 3))"))
def layer_norm(e: Engine, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> ShadowTensor:
    """(..., *normalized_shape) in, the same out."""
    given = [x for x in (weight, bias) if x is not None]
    tensor_only(input, *given)
    shape = tuple(normalized_shape)
    if input.shape[input.ndim - len(shape) :] != shape or any(x.shape != shape or x.dtype != input.dtype for x in given):
        raise Unmodelled("layer_norm of operands that do not fit")
    axes = tuple(range(input.ndim - len(shape), input.ndim))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        normal = (s.input - s.result1) * s.result2
        scaled = g if s.weight is None else g * s.weight
        rows = tuple(range(input.ndim - len(shape)))
        return _through_statistics(scaled, normal, s.result2, axes), (g * normal).sum(axis=rows), g.sum(axis=rows)

    return _normalised(e, "NativeLayerNormBackward0", input, weight, bias, axes, eps, vjp, None)


@op("F.batch_norm", saves="input, running_mean, running_var, weight, and private statistics", samples=(
    "F.batch_norm(a, None, None, training=True)", "F.batch_norm(a, torch.zeros(3), torch.ones(3))", "F.batch_norm(a, torch.zeros(3), torch.ones(3), c, c * 2, training=True)"))  # fmt: skip
def batch_norm(e: Engine, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> ShadowTensor:  # fmt: skip
    """(N, C, ...); in training the running statistics are changed in place *without* being counted."""
    running = [x for x in (running_mean, running_var) if x is not None]
    given = [x for x in (weight, bias) if x is not None]
    tensor_only(input, *running, *given)
    if input.ndim < 2 or any(x.shape != (input.shape[1],) or x.dtype != input.dtype for x in (*running, *given)) or momentum is None:
        raise Unmodelled("batch_norm of operands that do not fit")
    if len(running) == 1 or (not training and not running):
        raise Unmodelled("batch_norm without running statistics")
    axes = (0, *range(2, input.ndim))
    column = (1, -1, *(1,) * (input.ndim - 2))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        mean, rstd = (s.result1, s.result2) if training else (s.running_mean.reshape(column), 1 / np.sqrt(s.running_var.reshape(column) + eps))
        normal = (s.input - mean) * rstd
        scaled = g if s.weight is None else g * s.weight.reshape(column)
        flow = _through_statistics(scaled, normal, rstd, axes) if training else scaled * rstd
        return flow, (g * normal).sum(axis=axes), g.sum(axis=axes)

    result = _normalised(e, "NativeBatchNormBackward0", input, weight, bias, axes, eps, vjp, (running, training, column))
    if training and running:
        _follow(e, input, running, axes, momentum)
    return result


def _follow(e: Engine, input: ShadowTensor, running: list[ShadowTensor], axes: tuple[int, ...], momentum: float) -> None:
    """Move the running statistics. torch's kernel writes them directly: no counter moves."""
    found = arrays(e, (input, *running))
    statistics: tuple[Any, Any] = (np.mean, np.var)
    for target, statistic in zip(running, statistics, strict=True):
        if found is None:
            e.write(target, None)
            continue
        count = math.prod(input.shape[d] for d in axes)
        fresh = statistic(found[0].astype(np.float64), axis=axes) * (count / max(count - 1, 1) if statistic is np.var else 1)
        before = target.values()
        e.write(target, None if before is None else before * (1 - momentum) + momentum * fresh)


def _normalised(e: Engine, name: str, input: ShadowTensor, weight: Any, bias: Any, axes: tuple[int, ...], eps: float, vjp: Any, batch: Any) -> ShadowTensor:
    running, training, column = batch or ([], True, None)
    node = None
    operands = [input, weight, bias]
    if records(e, *operands):
        node = e.graph.new_node(name, edges(e, operands), vjp)
        kept: list[tuple[str, Any]] = [("input", input), ("weight", weight)]
        kept += [("bias", bias)] if batch is None else list(zip(("running_mean", "running_var"), running, strict=False))
        node.keep(*(Saved(key, x) for key, x in sorted((k for k in kept if k[1] is not None), key=lambda k: k[0])))
    tensors = [x for x in (input, weight, bias, *running) if x is not None]
    found = arrays(e, tensors) if input.numel <= e.value_limit else None
    values: Any = None
    statistics: tuple[Any, Any] = (np.zeros(0), np.zeros(0))
    if found is not None:
        table = dict(zip(map(id, tensors), found, strict=True))
        statistics = _spread(found[0], axes, eps) if training else (table[id(running[0])].reshape(column), 1 / np.sqrt(table[id(running[1])].reshape(column) + eps))
        values = (found[0] - statistics[0]) * statistics[1]
        for x, combine in ((weight, np.multiply), (bias, np.add)):
            if x is not None:
                values = combine(values, table[id(x)] if column is None else table[id(x)].reshape(column))
    result = new(e, input.shape, input.dtype, values)
    if node is not None:
        own(node, result)
        node.keep(*(Saved(f"result{k + 1}", private(e, s.astype(np.float64), input.dtype), own=True) for k, s in enumerate(statistics)))
    return result
