"""Strides: those that TensorIterator and ``empty_like`` give a result, and the places of a view's elements.

Source in torch: ``aten/src/ATen/TensorIterator.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pitfall_lab.shadow.dtypes import DType
from pitfall_lab.shadow.memory_format import channels_last_strides, follows
from pitfall_lab.shadow.storage import ShadowTensor, Shape, contiguous_strides, is_contiguous, is_dense

OVERLAP_LIMIT = 4096


class Strided(NamedTuple):
    """A shape and strides (``stride``, in elements) without an array: what is needed of an operand to find the strides
    of a result.
    """

    shape: Shape
    stride: Shape

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)


def layout(
    shape: Shape, operands: Sequence[ShadowTensor | Strided], *, alone: bool = True, cast: DType | None = None
) -> Shape:
    """The strides (in elements) that TensorIterator gives a new result of ``shape``: the order of dimensions follows
    the operands' strides.

    ``alone`` is False where a Python number is among the operands of the call: it counts as an operand of another
    shape. Operands of another dtype than ``cast`` (if given) count with the strides of their converted copies.

    Source: ``aten/src/ATen/TensorIterator.cpp``, ``compute_types``, ``reorder_dimensions`` and
    ``compute_fast_setup_type``.
    """
    lying = [
        (t.shape, t.stride if cast is None or isinstance(t, Strided) or t.dtype == cast else preserved(t))
        for t in operands
    ]
    if alone and all(own == shape for own, _ in lying):
        if all(is_contiguous(*x) for x in lying):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(follows(*x, "channels_last") for x in lying):
            return channels_last_strides(shape)
        first = lying[0][1]
        if all(stride == first and is_dense(own, stride) for own, stride in lying):
            return first
    if len(shape) < 2:
        return contiguous_strides(shape)
    strides = [_aligned(*x, shape) for x in lying]
    if 1 not in shape and 0 not in shape and all(is_contiguous(shape, s) for s in strides):
        return contiguous_strides(shape)
    return _permuted(shape, _reordered(shape, strides))


def _aligned(own: Shape, stride: Shape, shape: Shape) -> Shape:
    missing = len(shape) - len(own)
    return (0,) * missing + tuple(
        0 if n == 1 and m != 1 else s for n, s, m in zip(own, stride, shape[missing:], strict=True)
    )


def _reordered(shape: Shape, strides: Sequence[Shape]) -> list[int]:
    """Dimensions from the smallest stride to the largest (an insertion sort that keeps
    the order of ambiguous pairs).
    """

    def order(dim0: int, dim1: int) -> int:
        for s in strides:
            if s[dim0] == 0 or s[dim1] == 0:
                continue
            if s[dim0] != s[dim1]:
                return -1 if s[dim0] < s[dim1] else 1
            if shape[dim0] > shape[dim1]:
                return 1
        return 0

    perm = list(reversed(range(len(shape))))
    for i in range(1, len(perm)):
        later = i
        for earlier in reversed(range(i)):
            verdict = order(perm[earlier], perm[later])
            if verdict > 0:
                perm[earlier], perm[later] = perm[later], perm[earlier]
                later = earlier
            elif verdict < 0:
                break
    return perm


def _permuted(shape: Shape, perm: Sequence[int]) -> Shape:
    strides, step = [0] * len(shape), 1
    for dim in perm:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides) if list(perm) != list(reversed(range(len(shape)))) else contiguous_strides(shape)


def preserved(tensor: ShadowTensor | Strided) -> Shape:
    """The strides of ``empty_like``: the tensor's own when they are dense, else the same order without gaps."""
    if is_dense(tensor.shape, tensor.stride):
        return tensor.stride
    return layout(tensor.shape, (tensor,))


def made_of(*operands: np.ndarray) -> np.ndarray:
    """A new array for the result of an operation on the arrays ``operands``, with the strides that torch's
    TensorIterator gives (for one array: those of ``empty_like``).

    Its elements are not set; its dtype is that of the last array.
    """
    lying = [Strided(x.shape, element_strides(x)) for x in operands]
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    stride = preserved(lying[0]) if len(lying) == 1 else layout(shape, lying)
    item = operands[-1].itemsize
    return np.ndarray(shape, operands[-1].dtype, strides=tuple([s * item for s in stride]))


def element_strides(array: np.ndarray) -> Shape:
    """Return the strides of an array in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def positions(offset: int, shape: Shape, stride: Shape) -> np.ndarray:
    """The index into the storage of every element of a strided view.

    >>> positions(1, (2, 2), (3, 1)).tolist()
    [[1, 2], [4, 5]]
    """
    index = np.full(shape, offset, np.int64)
    for axis, (size, step) in enumerate(zip(shape, stride, strict=True)):
        index += (np.arange(size) * step).reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return index


def overlaps_itself(target: ShadowTensor) -> bool:
    """Whether several elements of a tensor share an address; False for one of more than ``OVERLAP_LIMIT``
    elements: it is not examined.
    """
    if target.numel > OVERLAP_LIMIT or is_dense(target.shape, target.stride):
        return False
    here = positions(target.offset, target.shape, target.stride)
    return bool(np.unique(here).size < here.size)
