"""The backward formulas of as_strided and CopySlices, and a way for a formula to mark its results.

The functions return the backward formula (vjp) of a node.

Source in torch: ``as_strided_backward`` in ``torch/csrc/autograd/FunctionsManual.cpp``, ``CopySlices`` in
``functions/tensor.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.errors import runtime
from pitfall_lab.shadow.layout import positions
from pitfall_lab.shadow.storage import ShadowTensor, Shape

if TYPE_CHECKING:
    from pitfall_lab.shadow.graph import Node

Vjp = Callable[[Any, Any], Sequence[Any]]


class Written(NamedTuple):
    """A gradient (``array``) that its formula wrote into a new storage ``times`` times, as ``.grad._version`` will
    show.

    ``seen_through`` is True if the formula returns a view of that storage, so that torch does not add in place into it.
    """

    array: np.ndarray
    times: int = 1
    seen_through: bool = False


class RaisingVjp:
    """The formula of a node that raises :class:`ShadowError` with this message and kind whenever a gradient arrives."""

    __slots__ = ("kind", "message")

    def __init__(self, message: str, kind: str = "other") -> None:
        self.message = message
        self.kind = kind

    def __call__(self, _g: object = None, _s: object = None) -> Any:
        """Raise the error (a RuntimeError with its message and kind)."""
        raise runtime(self.message, self.kind)


Window = tuple[int, Shape, Shape]


def as_strided_vjp(given: Window, made: Window) -> Vjp:
    """Return the backward formula of as_strided.

    It adds the gradient of the result into zeros of the size of the storage, and returns the elements at the input.
    ``given`` and ``made`` are (offset, shape, strides) of input and result, in elements. In torch:
    ``as_strided_backward`` in ``torch/csrc/autograd/FunctionsManual.cpp``.
    """
    shape, stride = given[1:]

    def vjp(g: np.ndarray, _: object) -> tuple[np.ndarray | Written]:
        if 0 in shape or 0 in made[1]:
            return (Written(np.zeros(shape, g.dtype), 1),)
        first = min(given[0], made[0])
        everywhere, places = (positions(window[0] - first, *window[1:]) for window in (given, made))
        flat = np.zeros(max(int(everywhere.max()), int(places.max())) + 1, g.dtype)
        np.add.at(flat, places.reshape(-1), g.reshape(-1))
        # elements of the input that share an address share its gradient evenly
        count = np.bincount(everywhere.reshape(-1), minlength=flat.size)
        if shared := bool(count.max() > 1):
            flat /= np.maximum(count, 1).astype(g.dtype)
        step = flat.itemsize
        seen = np.ndarray(shape, g.dtype, flat, (given[0] - first) * step, tuple(step * s for s in stride))
        return (Written(seen, 1 + shared, seen_through=True),)

    return vjp


def copy_slices_vjp(base: ShadowTensor, view: ShadowTensor, inner: Node) -> Vjp:
    """Return the backward formula of CopySlices, for a write through ``view`` into ``base``.

    The elements of the gradient at the view are passed to the formula of ``inner``, the operation's node; the others
    are returned unchanged. Returns a :class:`RaisingVjp` if the view is expanded and the base requires a gradient. In
    torch: ``CopySlices::apply`` in ``torch/csrc/autograd/functions/tensor.cpp``.
    """
    stretched = 0 not in view.shape and any(
        n > 1 and step == 0 for n, step in zip(view.shape, view.stride, strict=True)
    )
    if stretched and base.requires_grad:
        return RaisingVjp(errors.OVERLAP_SELF, "overlap")  # the gradient is written through a view with these strides
    window_at = (view.offset - base.offset, view.shape, view.stride)
    shape, stride = base.shape, base.stride

    def vjp(g: np.ndarray, s: Any) -> Sequence[Any]:
        places = positions(*window_at)
        flat = np.zeros(_extent(shape, stride, places), g.dtype)
        everywhere = positions(0, shape, stride)
        flat[everywhere] = g
        if inner.vjp is None:
            raise ValueError("a mirrored node cannot be inside CopySlices")
        results = inner.vjp(flat[places], s)
        first = results[0].array if isinstance(results[0], Written) else results[0]
        flat[places] = 0 if first is None else first
        return (Written(_laid_out(flat[everywhere], stride), 2), *results[1:])

    return vjp


def _laid_out(array: np.ndarray, stride: Shape) -> np.ndarray:
    """Return a copy of the array whose dimensions have the same order in storage as these strides."""
    order = sorted(range(array.ndim), key=lambda d: -stride[d])
    return (
        array
        if order == list(range(array.ndim))
        else array.transpose(order).copy().transpose(np.argsort(order)).copy(order="K")
    )


def _extent(shape: Shape, stride: Shape, places: np.ndarray) -> int:
    last = sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0
    return max(last, int(places.max()) if places.size else 0) + 1
