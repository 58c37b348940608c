"""Losses."""

# mypy: disable-error-code="no-any-return"
# ruff: noqa: A002, ARG001, D103, E501, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.ops import pointwise, reduce
from pitfall_lab.shadow.ops.kit import Keep, Rule, arrays, broadcast, edges, new, own, private, promoted, pure, records, tensor_only
from pitfall_lab.shadow.ops.registry import add, op
from pitfall_lab.shadow.ops.views import expand
from pitfall_lab.shadow.storage import ShadowTensor, Shape


def _pair(e: Engine, name: str, input: Any, target: Any) -> tuple[ShadowTensor, ShadowTensor]:
    """Both operands expanded to one shape: (N, 1) against (N,) silently becomes (N, N), with a warning only."""
    tensor_only(input, target)
    shape = broadcast(input.shape, target.shape)
    if input.shape != target.shape:
        e.warnings.append(
            f"Using a target size (torch.Size({list(target.shape)})) that is different to the input size (torch.Size({list(input.shape)})). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )
    return tuple(x if x.shape == shape else expand(e, x, *shape) for x in (input, target))  # type: ignore[return-value]


def _reduce(values: Any, reduction: str) -> Any:
    if reduction == "none":
        return values
    wide = np.asarray(values, np.float64)
    return wide.mean() if reduction == "mean" else wide.sum()


def _pointwise_loss(name: str, node: str, forward: Any, slope: Any) -> None:
    def run(e: Engine, input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None,
            **extra: Any) -> ShadowTensor:  # fmt: skip
        if size_average is not None or reduce is not None or weight is not None or extra or reduction not in ("mean", "sum", "none"):
            raise Unmodelled(f"{name} with options")
        x, y = broadcast_pair(e, input, target)
        dtype = promoted(x, y)
        count = max(math.prod(x.shape), 1)

        def vjp(g: Any, s: Any) -> tuple[Any, Any]:
            d = slope(s.self, s.target) * g
            d = d / d.dtype.type(count) if reduction == "mean" else d
            return d, -d

        rule = Rule(node, lambda a, b: _reduce(forward(a, b), reduction), (Keep("self", 0), Keep("target", 1)), vjp)
        return pure(e, rule, (x, y), x.shape if reduction == "none" else (), dtype, dtype)

    def broadcast_pair(e: Engine, input: Any, target: Any) -> tuple[ShadowTensor, ShadowTensor]:
        return _pair(e, name, input, target)

    add(
        f"F.{name}",
        run,
        "pure",
        "self, target",
        (f"F.{name}(a, b)", f"F.{name}(a, p, reduction='sum')", f"F.{name}(a, c)", f"F.{name}(a, b, reduction='none')"),
    )


_pointwise_loss("mse_loss", "MseLossBackward0", lambda a, b: (a - b) ** 2, lambda a, b: 2 * (a - b))
_pointwise_loss(
    "smooth_l1_loss", "SmoothL1LossBackward0",
    lambda a, b: np.where(np.abs(a - b) < 1, 0.5 * (a - b) ** 2, np.abs(a - b) - 0.5), lambda a, b: np.clip(a - b, -1, 1),
)  # fmt: skip
_pointwise_loss(
    "huber_loss", "HuberLossBackward0",
    lambda a, b: np.where(np.abs(a - b) < 1, 0.5 * (a - b) ** 2, np.abs(a - b) - 0.5), lambda a, b: np.clip(a - b, -1, 1),
)  # fmt: skip


@op("F.l1_loss", saves="the sign of input - target", samples=("F.l1_loss(a, b)", "F.l1_loss(a, p, reduction='sum')"))
def l1_loss(
    e: Engine, input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> ShadowTensor:
    if size_average is not None or reduce is not None or weight is not None or reduction not in ("mean", "sum", "none"):
        raise Unmodelled("l1_loss with options")
    x, y = _pair(e, "l1_loss", input, target)
    distance = pointwise.absolute(e, pointwise.sub(e, x, y))
    return distance if reduction == "none" else reduce_fully(e, distance, reduction)


def reduce_fully(e: Engine, values: ShadowTensor, reduction: str) -> ShadowTensor:
    """``mean`` or ``sum`` of everything."""
    return reduce.mean(e, values) if reduction == "mean" else reduce.sum(e, values)


# -- classification


def nll(e: Engine, log_probs: ShadowTensor, target: ShadowTensor, weight: Any, ignore_index: int, reduction: str) -> ShadowTensor:
    """``nll_loss`` of (N, C) or (C,) log-probabilities with class targets."""
    if weight is not None or log_probs.ndim not in (1, 2) or target.ndim != log_probs.ndim - 1:
        raise Unmodelled("nll_loss with weights or more dimensions")
    if target.dtype not in ("int64", "uint8"):
        raise runtime(f"expected scalar type Long but found {target.dtype.scalar_name}", "dtype")
    if log_probs.ndim == 2 and log_probs.shape[0] != target.shape[0]:
        raise _batch_mismatch(log_probs.shape, target.shape)
    found = arrays(e, (log_probs, target))
    kept = None if found is None else _valid(found[1], ignore_index, log_probs.shape[-1])
    total = 1.0 if kept is None else float(kept.sum())
    shape = target.shape if reduction == "none" else ()
    node = None
    if records(e, log_probs):
        node = e.graph.new_node("NllLossBackward0", edges(e, (log_probs,)), _nll_vjp(reduction, ignore_index))
        node.keep(Saved("self", log_probs), Saved("target", target))
    values = None
    if found is not None and kept is not None:
        picked = -np.take_along_axis(found[0], np.where(kept, found[1], 0)[..., None].astype(np.int64), -1)[..., 0] * kept
        values = picked if reduction == "none" else picked.sum() / (total if reduction == "mean" else 1)
    result = new(e, shape, log_probs.dtype, values)
    if node is not None:
        own(node, result)
        node.keep(Saved("total_weight", private(e, np.asarray(total, np.float32), log_probs.dtype), own=True))
    return result


def _valid(target: np.ndarray, ignore_index: int, classes: int) -> np.ndarray:
    kept = np.asarray(target != ignore_index)
    bad = target[kept & ((target < 0) | (target >= classes))] if target.ndim else target[None][[bool(kept and not 0 <= target < classes)]]
    if bad.size:
        from pitfall_lab.shadow.errors import ShadowError

        raise ShadowError("IndexError", f"Target {int(bad.reshape(-1)[0])} is out of bounds.", "shape")
    return kept


def _batch_mismatch(shape: Shape, target: Shape) -> Exception:
    return ShadowValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({target[0]}).")


def ShadowValueError(text: str) -> Exception:  # noqa: N802 - makes an exception
    """A ValueError of torch's Python side."""
    from pitfall_lab.shadow.errors import ShadowError

    return ShadowError("ValueError", text, "shape")


def _nll_vjp(reduction: str, ignore_index: int) -> Any:
    def vjp(g: Any, s: Any) -> tuple[np.ndarray]:
        full = np.zeros_like(s.self, dtype=g.dtype)
        kept = np.asarray(s.target != ignore_index)
        scale = np.broadcast_to(-g / (s.total_weight if reduction == "mean" else 1), kept.shape) * kept
        np.put_along_axis(full, np.where(kept, s.target, 0)[..., None].astype(np.int64), np.asarray(scale, g.dtype)[..., None], -1)
        return (full,)

    return vjp


@op(
    "F.nll_loss",
    saves="self, target",
    samples=("F.nll_loss(a, torch.tensor([0, 2]))", "F.nll_loss(a, torch.tensor([0, -100]), reduction='sum')"),
)
def nll_loss(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
             reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    if size_average is not None or reduce is not None:
        raise Unmodelled("nll_loss with options")
    return nll(e, input, target, weight, ignore_index, reduction)


@op("F.cross_entropy", saves="target; the log-probabilities (private)", samples=(
    "F.cross_entropy(a, torch.tensor([0, 2]))", "F.cross_entropy(a, torch.tensor([1, 1]), reduction='sum')", "F.cross_entropy(c, torch.tensor(1))"))  # fmt: skip
def cross_entropy(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    if size_average is not None or reduce is not None or label_smoothing or target.shape == input.shape:
        raise Unmodelled("cross_entropy with options or probabilities")
    if input.ndim == 2 and target.ndim == 1 and input.shape[0] != target.shape[0]:
        raise _batch_mismatch(input.shape, target.shape)
    log_probs = reduce_log_softmax(e, input)
    return nll(e, log_probs, target, weight, ignore_index, reduction)


def reduce_log_softmax(e: Engine, input: ShadowTensor) -> ShadowTensor:
    """``log_softmax`` over the class dimension."""
    from pitfall_lab.shadow.ops.registry import ENTRIES

    return ENTRIES["torch.log_softmax"].run(e, input, 0 if input.ndim == 1 else 1)


def _bce(g: Any, s: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return g * (x - y) / np.maximum((1 - x) * x, 1e-12)


@op("F.binary_cross_entropy", saves="self, target", samples=("F.binary_cross_entropy(torch.sigmoid(a), torch.ones(2, 3))",))
def binary_cross_entropy(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    if weight is not None or size_average is not None or reduce is not None or target.requires_grad or input.dtype != target.dtype:
        raise Unmodelled("binary_cross_entropy with options")
    if input.shape != target.shape:
        raise ShadowValueError(
            f"Using a target size (torch.Size({list(target.shape)})) that is different to the input size (torch.Size({list(input.shape)})) is deprecated. "
            "Please ensure they have the same size."
        )
    count = max(input.numel, 1) if reduction == "mean" else 1

    def forward(x: np.ndarray, y: np.ndarray) -> Any:
        return _reduce(-(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log(1 - x), -100)), reduction)

    keeps = (Keep("self", 0), Keep("target", 1))
    rule = Rule("BinaryCrossEntropyBackward0", forward, keeps, lambda g, s: (_bce(g, s, s.self, s.target) / count, None))
    return pure(e, rule, (input, target), input.shape if reduction == "none" else (), input.dtype)


@op("F.binary_cross_entropy_with_logits", saves="self, target", samples=("F.binary_cross_entropy_with_logits(a, torch.ones(2, 3))",))
def binary_cross_entropy_with_logits(e: Engine, input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None,
                                     reduction: str = "mean", pos_weight: Any = None) -> ShadowTensor:  # fmt: skip
    tensor_only(input, target)
    if weight is not None or size_average is not None or reduce is not None or pos_weight is not None or target.requires_grad:
        raise Unmodelled("binary_cross_entropy_with_logits with options")
    if input.shape != target.shape:
        raise ShadowValueError(
            f"Target size (torch.Size({list(target.shape)})) must be the same as input size (torch.Size({list(input.shape)}))"
        )
    count = max(input.numel, 1) if reduction == "mean" else 1

    def forward(x: np.ndarray, y: np.ndarray) -> Any:
        return _reduce(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x))), reduction)

    def vjp(g: Any, s: Any) -> tuple[Written, None]:
        return Written(g * (1 / (1 + np.exp(-s.self)) - s.target) / count, 3 if reduction == "mean" else 2), None

    rule = Rule("BinaryCrossEntropyWithLogitsBackward0", forward, (Keep("self", 0), Keep("target", 1)), vjp)
    return pure(e, rule, (input, target), input.shape if reduction == "none" else (), input.dtype)
