"""Memory formats (``channels_last`` and ``contiguous_format``), and which of them a result has.

A tensor has no memory format attribute: torch derives it from the strides. Source: ``c10/core/MemoryFormat.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.errors import runtime as error
from pitfall_lab.shadow.storage import ShadowTensor, Shape, contiguous_strides

RANKS = {"channels_last": 4, "channels_last_3d": 5}


def strides(shape: Shape, memory_format: Any) -> Shape:
    """The strides of a new tensor in that memory format; raises ``ShadowError`` (torch's error) for another number of
    dimensions than the format has, and ``Unmodelled`` for an unknown format.

    >>> strides((2, 3, 4, 5), "channels_last"), strides((2, 3), "contiguous_format")
    ((60, 1, 15, 3), (3, 1))
    """
    name = str(memory_format).removeprefix("torch.")
    if name == "contiguous_format":
        return contiguous_strides(shape)
    if name not in RANKS:
        raise Unmodelled(f"memory format {name}")
    if len(shape) != RANKS[name]:
        raise error(f"required rank {RANKS[name]} tensor to use {name} format", "shape")
    return channels_last_strides(shape)


def channels_last_strides(shape: Shape) -> Shape:
    """Strides in elements for a shape (N, C, ...) of two to five dimensions with C (dimension 1) as the fastest, as
    ``channels_last`` has them.
    """
    result, step = [0] * len(shape), 1
    for d in (1, *reversed(range(2, len(shape))), 0):
        result[d] = step
        step *= shape[d]  # no elements make it 0, unlike in contiguous_format
    return tuple(result)


def follows(shape: Shape, stride: Shape, memory_format: Any) -> bool:
    """Whether the strides ``stride`` of a tensor with this shape are those of ``memory_format``; strides of dimensions
    of size 1 are ignored. Raises what :func:`strides` raises (for another number of dimensions than the format has).

    Without elements, any strides are contiguous_format.
    """
    nothing = 0 in shape and str(memory_format).removeprefix("torch.") not in RANKS
    return nothing or all(
        n == 1 or have == want for n, have, want in zip(shape, stride, strides(shape, memory_format), strict=True)
    )


def is_channels_last(tensor: ShadowTensor) -> bool:
    """Whether torch treats the tensor as channels_last (``suggest_memory_format``)."""
    return tensor.ndim in {4, 5} and lies_channels_last(tensor.shape, tensor.stride)


def lies_channels_last(shape: Shape, stride: Shape) -> bool:
    """Whether a shape with four or five dimensions and strides in elements counts as channels_last for torch
    (``is_channels_last_strides_2d``): strides grow in the order C, W, H, N. False without elements.
    """
    if 0 in shape or stride[1] == 0:
        return False
    least = 0
    for d in (1, *reversed(range(2, len(shape))), 0):
        if stride[d] < least or (d == 0 and least == stride[1]):
            return False
        least = stride[d] * max(shape[d], 1)
    return True


def suggests(tensor: ShadowTensor, memory_format: Any) -> bool:
    """Whether ``memory_format`` is the one that torch derives from the tensor: channels_last (of five dimensions,
    channels_last_3d) if its memory has that order, else contiguous_format.
    """
    found = (
        {4: "channels_last", 5: "channels_last_3d"}[tensor.ndim] if is_channels_last(tensor) else "contiguous_format"
    )
    return str(memory_format).removeprefix("torch.") == found


def any_channels_last(*tensors: Any) -> bool:
    """Whether a result takes channels_last from one of ``tensors``."""
    return any(isinstance(x, ShadowTensor) and is_channels_last(x) for x in tensors)


def suggested(shape: Shape, *tensors: Any) -> Shape:
    """The contiguous strides of a result with ``shape``: those of channels_last if one of ``tensors`` is channels_last,
    else row-major.
    """
    return channels_last_strides(shape) if any_channels_last(*tensors) else contiguous_strides(shape)


def laid_out(array: np.ndarray, channels_last: bool) -> np.ndarray:
    """A copy of ``array`` in one of the two memory formats."""
    if not channels_last:
        return np.array(array, order="C")
    inner = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    copy: np.ndarray = np.empty_like(np.moveaxis(inner, -1, 1), order="K")
    copy[...] = array
    return copy
