"""Tensors that share a storage: whether they have elements in common, and their names."""

from __future__ import annotations

from pitfall_lab.rules.kit.overlaps import places
from pitfall_lab.rules.kit.story import Record, Story

OVERWRITING = {
    "copy_", "zero_", "fill_", "__setitem__", "normal_", "uniform_", "random_", "bernoulli_", "trunc_normal_",
    "index_fill_", "index_copy_", "masked_fill_", "scatter_", "index_put_", "fill_diagonal_", "requires_grad_", "set_",
    "resize_",
}  # fmt: skip
"""Writes that do not depend on the old values, as used to fill buffers."""


def same_piece(one: Record | None, other: Record | None) -> bool:
    """Whether two tensors, given by their records, are the same view of one storage: same storage, offset, shape and
    strides; False if a record is None or has no storage.
    """
    if one is None or other is None or one.get("storage") is None:
        return False
    return all(one.get(key) == other.get(key) for key in ("storage", "offset", "shape", "stride"))


def share_elements(one: Record, other: Record) -> bool:
    """Whether the tensors with the records ``one`` and ``other`` have an element in common; for two tensors on one
    storage of which one is too large to compare, True.
    """
    if one.get("storage") is None or one.get("storage") != other.get("storage"):
        return False
    here, there = places(one), places(other)
    return here is None or there is None or not set(here).isdisjoint(there)


def changed_numbers(story: Story, storage: str, step: int) -> bool:
    """Whether the write at ``step`` changed values of the storage; True if the trace does not have the values."""
    before, after = ((story.record("storages", storage, at) or {}).get("cells") for at in (step - 1, step))
    return before is None or after is None or before != after


def names_of(story: Story, storage: str | None, step: int) -> set[str]:
    """Return all names that the program gave tensors on the storage labelled ``storage`` up to ``step``; empty if it
    gave none.
    """
    return {
        str(name)
        for label, _ in story.tensors_on(storage)
        for at, names in story.history("tensors", label, "names") if at <= step
        for name in names or ()
    }  # fmt: skip
