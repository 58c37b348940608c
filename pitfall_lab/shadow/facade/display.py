"""Printing tensors as torch prints them (four digits, the common cases). :func:`show` returns the text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.errors import ShadowError
from pitfall_lab.shadow.storage import ShadowTensor


def show(tensor: ShadowTensor) -> str:
    """Return the ``repr`` that torch gives for the tensor, in the common cases.

    It contains the values; the shape if the tensor has no elements and more than one dimension; the dtype unless it is
    float32, int64 or bool; and the grad_fn or ``requires_grad=True``. If the values are unknown, it contains the shape
    and the words "not modelled" instead. ``grad_fn=<Invalid>`` is shown for a grad_fn that torch refuses to make.
    """
    values = tensor.values()
    body = _body(values) if values is not None else f"<{'x'.join(map(str, tensor.shape))} values, not modelled>"
    suffix = []
    if tensor.dtype not in ("float32", "int64", "bool") or tensor.numel == 0:
        suffix += [f"size={tuple(tensor.shape)}"] if tensor.numel == 0 and tensor.ndim > 1 else []
        suffix += [f"dtype={tensor.dtype}"] if tensor.dtype not in ("float32", "int64", "bool") else []
    try:
        node = tensor.grad_fn
        suffix += (
            [f"grad_fn=<{node.name}>"] if node is not None else ["requires_grad=True"] if tensor.requires_grad else []
        )
    except ShadowError:
        suffix.append("grad_fn=<Invalid>")
    return f"tensor({', '.join([body, *suffix])})"


def _body(values: np.ndarray) -> str:
    if values.size == 0:
        return "[]"
    words = _formatter(values)
    if values.ndim == 0:
        result: str = words(values.item())
        return result
    width = max(len(words(v)) for v in values.reshape(-1).tolist())
    return _nested(values, lambda v: words(v).rjust(width), 8)


def _nested(values: np.ndarray, word: Any, indent: int) -> str:
    if values.ndim == 1:
        return "[" + ", ".join(word(v) for v in values.tolist()) + "]"
    gap = "," + "\n" * (values.ndim - 1) + " " * indent
    return "[" + gap.join(_nested(v, word, indent + 1) for v in values) + "]"


def _formatter(values: np.ndarray) -> Any:
    if values.dtype.kind != "f":
        return str
    finite = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    if finite.size == 0 or bool(np.all(finite == np.ceil(finite))):
        large = (finite.size and finite.max() / finite.min() > 1000 and finite.max() > 1e8) or (
            finite.size and finite.max() > 1e8
        )
        return (lambda v: f"{v:.4e}") if large else lambda v: f"{v:.0f}." if math.isfinite(v) else str(v)
    if finite.max() / finite.min() > 1000 or finite.max() > 1e8 or finite.min() < 1e-4:
        return lambda v: f"{v:.4e}" if math.isfinite(v) else str(v)
    return lambda v: f"{v:.4f}" if math.isfinite(v) else str(v)
