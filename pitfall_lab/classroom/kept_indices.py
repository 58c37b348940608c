"""Derivatives of torch's that trust the indices which the forward call has kept, with ones in their place that check
them. :func:`check` registers these, once, before any cell runs.

What a forward call keeps for backward is memory that the cell has as well: the indices that ``F.max_pool2d(...,
return_indices=True)`` returns, the ones that an embedding was given, or what hooks for saved tensors put in their
place. A write by ``.data`` is not counted, and torch's kernels add a gradient wherever the index leads, also outside of
the tensor: a cell that does so could write anywhere in its process. Nearly all of torch's derivatives check each index;
these are the others, written with functions that do.
"""

from __future__ import annotations

import math
import sys
from typing import Any

_AS_POOLS = {
    "max_pool2d_with_indices_backward": 2,
    "max_pool3d_with_indices_backward": 3,
    "adaptive_max_pool2d_backward": 2,
    "adaptive_max_pool3d_backward": 3,
    "fractional_max_pool2d_backward": 2,
    "fractional_max_pool3d_backward": 3,
}
"""Derivatives of pools, each with the number of dimensions in which one index counts."""
_SUM, _MEAN = 0, 1
"""How an embedding puts a bag together; the third way takes the largest."""
_registered: list[Any] = []
"""What torch would forget together with these kernels if nothing held it."""


def check() -> None:
    """Have the derivatives of maximum pools and embeddings raise where an index is outside of the tensor, in this
    process and its forks.
    """
    if _registered:
        return
    library = sys.modules["torch"].library.Library("aten", "IMPL")
    for name, dims in _AS_POOLS.items():
        library.impl(name, _of_pool(dims), "CPU")
        library.impl(f"{name}.grad_input", _into(_of_pool(dims), "grad_input"), "CPU")
    library.impl("embedding_dense_backward", _of_embedding, "CPU")
    library.impl("_embedding_bag_dense_backward", _of_bags, "CPU")
    library.impl("_embedding_bag_per_sample_weights_backward", _of_weights, "CPU")
    _registered.append(library)


def _into(compute: Any, name: str) -> Any:
    def write(*values: Any, **named: Any) -> Any:
        out = named.pop(name)
        found = compute(*values, **named)
        return out.resize_(found.shape).copy_(found)

    return write


def _of_pool(dims: int) -> Any:
    """Make the backward function of a max pool over ``dims`` dimensions that adds each gradient element at its saved
    index.

    The function raises where an index is out of range, or the shapes do not fit.
    """

    def backward(grad: Any, x: Any, *rest: Any, **named: Any) -> Any:
        indices = named["indices"] if "indices" in named else rest[-1]
        if grad.shape != indices.shape or grad.shape[:-dims] != x.shape[:-dims]:
            raise RuntimeError("the indices that a pool has kept are of another shape")
        ahead = x.shape[:-dims]
        found = grad.new_zeros((*ahead, math.prod(x.shape[-dims:])))
        if grad.numel():
            found.scatter_add_(-1, indices.reshape(*ahead, -1), grad.reshape(*ahead, -1))
        return found.reshape(x.shape).contiguous(memory_format=_layout(x))

    return backward


def _layout(x: Any) -> Any:
    torch = sys.modules["torch"]
    for layout, dims in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if x.dim() == dims and x.is_contiguous(memory_format=layout) and not x.is_contiguous():
            return layout
    return torch.contiguous_format


def _checked(indices: Any, length: int) -> Any:
    """The indices as a tensor of one dimension (int64); raises ``IndexError`` if one is below 0, or is ``length`` or
    more.
    """
    row = indices.reshape(-1).long()
    if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < length:
        raise IndexError("index out of range in self")
    return row


def _of_embedding(grad: Any, indices: Any, length: int, padding: int, by_frequency: Any) -> Any:
    row = _checked(indices, length)
    grad = grad.reshape(row.numel(), grad.shape[-1])
    if padding >= 0:
        kept = row != padding
        row, grad = row[kept], grad[kept]
    if by_frequency:
        grad = grad / row.bincount(minlength=length)[row].unsqueeze(1)
    return grad.new_zeros((length, grad.shape[1])).index_add_(0, row, grad)


def _of_bags(*values: Any) -> Any:
    grad, indices, bags, sizes, largest, length, by_frequency, mode, weights, padding = (*values, -1)[:10]
    found = grad.new_zeros((length, grad.shape[1]))
    if mode not in (_SUM, _MEAN):
        filled = sizes.nonzero().reshape(-1)
        return found.scatter_add_(0, largest.index_select(0, filled).long(), grad.index_select(0, filled))
    row = _checked(indices, length)
    each = grad.index_select(0, bags)
    if mode == _MEAN:
        each = each / sizes.index_select(0, bags).unsqueeze(1)
    if weights is not None:
        each = each * weights.reshape(-1, 1)
    if by_frequency and row.numel():  # torch divides by how often the n-th index is there, for the n-th different one
        nth = row.unique(return_inverse=True)[1]
        each = each / row.bincount(minlength=length)[row.sort().values[nth]].unsqueeze(1)
    kept = row != padding
    return found.index_add_(0, row[kept], each[kept])


def _of_weights(*values: Any) -> Any:
    grad, weight, indices, offsets, bags, mode, padding = (*values, -1)[:7]
    if mode != _SUM:
        raise RuntimeError("embedding_bag: only the sum takes weights")
    row = _checked(indices, weight.shape[0])
    if row.numel() and not bags.numel():
        torch = sys.modules["torch"]
        bags = torch.searchsorted(offsets.contiguous(), torch.arange(row.numel(), dtype=offsets.dtype), right=True) - 1
    found = (grad.index_select(0, bags) * weight.index_select(0, row)).sum(1)
    return found.masked_fill(row == padding, 0)
