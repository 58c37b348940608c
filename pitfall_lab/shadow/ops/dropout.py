"""Dropout: a product with random noise. In evaluation, and with ``p=0``, the result is the input object itself.

The dropped elements are drawn by NumPy when stand-alone; in lockstep torch draws them, and the mask that its node saved
is read. Source: ``aten/src/ATen/native/Dropout.cpp``.
"""

# ruff: noqa: A002 - signatures and names are torch's

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.ops import pointwise
from pitfall_lab.shadow.ops.building import Keep, OpRule, drawn, in_place, new, tensor_only
from pitfall_lab.shadow.ops.building import pointwise as broadcasting
from pitfall_lab.shadow.registry import add
from pitfall_lab.shadow.storage import ShadowTensor, contiguous_strides

NOISE = OpRule("MulBackward0", np.multiply, (Keep("other", 1, 0, drawn=True),), pointwise.MUL.vjp)
ALPHA = 1.7580993408473766


def _noise(
    e: Engine, input: ShadowTensor, p: float, *, feature: bool, alpha: bool
) -> tuple[ShadowTensor, ShadowTensor | None]:
    """The factor by which dropout multiplies its input, and, for alpha dropout, the number that it adds (else None)."""
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2)) if feature else input.shape
    stride = contiguous_strides(shape) if feature else preserved(input)
    scale = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p)) if alpha else 1 / (1 - p)
    noise = drawn(e, shape, input.dtype, lambda r: (r.random(shape) < 1 - p) * scale, stride)
    if noise.counter is not None:
        noise.counter.version = 2  # drawn, and divided, in place
    if not alpha:
        return noise, None
    factors = noise.window()
    shift = None if factors is None else (factors / scale - 1) * (ALPHA * scale) + ALPHA * scale * p
    return noise, new(e, shape, input.dtype, shift, stride)


def drop(
    e: Engine, input: Any, p: float, training: bool, inplace: bool, *, feature: bool = False, alpha: bool = False
) -> ShadowTensor:
    """All forms of dropout: of elements or whole channels (``feature``), to zero or to the lowest value of a SELU
    (``alpha``).

    The input itself is returned for ``p=0``, outside of ``training``, and if it is empty; ``inplace`` writes it. Raises
    ``ShadowError`` (torch's ValueError) unless ``p`` is from 0 to 1, and ``Unmodelled``, among others, for an input
    that is not floating point, or without channels.
    """
    tensor_only(input)
    if not 0 <= p <= 1:
        raise ShadowError("ValueError", f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not training or input.numel == 0:
        answer: ShadowTensor = input
        return answer
    if not input.dtype.is_floating_point or (feature and input.ndim < 2):
        raise Unmodelled("dropout of an input of this shape or dtype")
    if p == 1:
        zero = new(e, (), input.dtype, np.zeros(()))
        if zero.counter is not None:
            zero.counter.version = 1  # it is made by a write
        return pointwise.mul_in_place(e, input, zero) if inplace else pointwise.mul(e, input, zero)
    noise, shift = _noise(e, input, p, feature=feature, alpha=alpha)
    result = (
        in_place(e, NOISE, (input, noise), input.dtype)
        if inplace
        else broadcasting(e, NOISE, (input, noise), input.dtype, input.dtype)
    )
    return result if shift is None else pointwise.add_in_place(e, result, shift)


def _register(name: str, samples: tuple[str, ...] = (), dims: tuple[int, ...] = (), default: float = 0.5, *,
              feature: bool = False, alpha: bool = False, low: bool = True) -> None:  # fmt: skip
    """Register ``F.name``, and torch's ``name`` and ``name_`` that it calls.

    Inputs with another number of dimensions than ``dims`` are declined: for these ``F.name`` does more
    than call the other function.
    """

    def run(e: Engine, input: Any, p: float = default, training: bool = True, inplace: bool = False) -> ShadowTensor:
        tensor_only(input)
        if dims and input.ndim not in dims:
            raise Unmodelled(f"{name} of {input.ndim} dimensions")
        return drop(e, input, p, training, inplace, feature=feature, alpha=alpha)

    def plain(e: Engine, input: Any, p: float, train: bool) -> ShadowTensor:
        return drop(e, input, p, train, inplace=False, feature=feature, alpha=alpha)

    def writing(e: Engine, input: Any, p: float, train: bool) -> ShadowTensor:
        return drop(e, input, p, train, inplace=True, feature=feature, alpha=alpha)

    saves = "the noise (private)"
    add(f"F.{name}", run, "pure", saves, samples, traits=("dropout",))
    if low:
        add(f"torch.{name}", plain, "pure", saves, traits=("dropout",))
        add(f"torch.{name}_", writing, "inplace", saves, traits=("dropout",))


_register(
    "dropout",
    (
        "F.dropout(a, 0.5, False)",
        "F.dropout(a, 0.0)",
        "F.dropout(a, 1.0)",
        "F.dropout(h, 1.0, inplace=True)",
        "F.dropout(h, 0.5, False, inplace=True)",
        "F.dropout(a, 1.5)",
    ),
)
_register("alpha_dropout", ("F.alpha_dropout(a, 0.5, False)",), alpha=True)
_register("feature_alpha_dropout", ("F.feature_alpha_dropout(seq, 0.5, False)",), feature=True, alpha=True)
_register("dropout1d", ("F.dropout1d(seq, 0.5, False)",), (3,), feature=True, low=False)
_register("dropout2d", ("F.dropout2d(img, 0.5, False)",), (4,), feature=True, low=False)
_register("dropout3d", ("F.dropout3d(vol, 0.5, False)",), (5,), feature=True, low=False)


def feature_dropout(e: Engine, input: Any, p: float, train: bool) -> ShadowTensor:
    """The form of dropout that the functions for whole channels share: each channel is set to zero with probability
    ``p`` if ``train``.
    """
    return drop(e, input, p, train, inplace=False, feature=True)


def feature_dropout_in_place(e: Engine, input: Any, p: float, train: bool) -> ShadowTensor:
    """Like :func:`feature_dropout`, in place."""
    return drop(e, input, p, train, inplace=True, feature=True)


add("torch.feature_dropout", feature_dropout, "pure", "the noise (private)", traits=("dropout",))
add("torch.feature_dropout_", feature_dropout_in_place, "inplace", "the noise (private)", traits=("dropout",))
