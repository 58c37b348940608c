"""Computes checksums of tensor contents, to find changes that no version counter shows (:class:`Sums`).

Only CPU memory is read. Up to :data:`WHOLE` bytes are read completely; of a larger tensor only :data:`BLOCKS` blocks,
so a write between them is not found. A tensor whose strides skip elements of its storage, such as ``x[:, 0]``, has no
checksum: other tensors may use the skipped elements.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.live.object_kinds import Kinds, is_own
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.tensor_facts import is_opaque

WHOLE = 1 << 16
BLOCKS, BLOCK = 16, 512
MOST = 4 << 20
"""How many bytes one examination may read before it reads no further memory; a larger tensor counts as :data:`WHOLE`
bytes.
"""


class Sums:
    """The checksums of one examination; memory that several nodes have saved is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], int] = {}
        self.left = MOST

    def of(self, tensor: torch.Tensor) -> int | None:
        """Return the checksum of a tensor's memory; ``None`` for a tensor that is empty, not on the CPU, opaque,
        expanded, or with gaps between its elements.

        Once the bytes of ``left`` (at first :data:`MOST`) have been read, also ``None`` for memory that has not been
        read before. Of more than :data:`WHOLE` bytes only :data:`BLOCKS` (16) blocks are read, so a write between them
        does not change the checksum.
        """
        if tensor.device.type != "cpu" or is_opaque(tensor):
            return None
        count, item = tensor.numel(), tensor.element_size()
        if not count or not (tensor.is_contiguous() or _extent(tensor) == count):
            return None
        address, size = tensor.data_ptr(), count * item
        known = self._known.get((address, size))
        if known is None and address and self.left > 0:
            self.left -= min(size, WHOLE)
            known = self._known[address, size] = _sum(address, size)
        return known


def _extent(tensor: torch.Tensor) -> int:
    """Return the number of elements in memory from the tensor's first to its last, both included."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def mark(value: Any) -> Any:
    """Return a value to compare later: equal as long as a tensor or array has the same contents (of a large one, in the
    blocks that are read), or a module or optimizer is the same object.

    ``None`` for objects of other kinds, and for tensors and arrays that cannot be read.
    """
    kind = Kinds().of(value)
    if kind in ("module", "optimizer"):
        return kind, id(value)
    if kind == "tensor" and is_own(value):
        with unseen():
            total = Sums().of(value)
        return None if total is None else (kind, tuple(value.shape), total)
    if type(value) is np.ndarray and value.flags.c_contiguous and not value.dtype.hasobject:
        return kind, value.shape, _sum(value.__array_interface__["data"][0], value.nbytes)
    return None


def _sum(address: int, size: int) -> int:
    if size <= WHOLE:
        return zlib.crc32((ctypes.c_char * size).from_address(address))
    found = 0
    for piece in range(BLOCKS):
        at = address + (size - BLOCK) * piece // (BLOCKS - 1)
        found = zlib.crc32((ctypes.c_char * BLOCK).from_address(at), found)
    return found
