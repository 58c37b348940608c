"""All operations: importing a family registers its entries."""

from __future__ import annotations

from pitfall_lab.shadow.ops import (
    autograd,
    creation,
    foreach,
    fused,
    indexing,
    loss,
    matmul,
    mutate,
    normalise,
    pointwise,
    reduce,
    scatter,
    views,
)
from pitfall_lab.shadow.ops.registry import ENTRIES, Op, add, op, spell

FAMILIES = (autograd, creation, foreach, fused, indexing, loss, matmul, mutate, normalise, pointwise, reduce, scatter, views)

__all__ = ["ENTRIES", "FAMILIES", "Op", "add", "op", "spell"]
