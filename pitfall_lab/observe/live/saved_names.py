"""Finds the names of a tensor that a node has saved (:class:`Names`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.found import Found, Thing
from pitfall_lab.observe.live.graphs import SavedNow
from pitfall_lab.observe.live.object_kinds import is_own


class Names:
    """The named tensors of one examination, searchable by identity and by version counter."""

    def __init__(self, found: Found) -> None:
        self._found = found

    @cached_property
    def _things(self) -> list[Thing]:
        return [thing for thing in (*self._found.parameters, *self._found.tensors) if is_own(thing.value)]

    @cached_property
    def _by_id(self) -> dict[int, Thing]:
        return {id(thing.value): thing for thing in reversed(self._things)}

    def of(self, kept: SavedNow) -> Thing | None:
        """Return the named tensor for a saved tensor: the tensor itself, else one that shares its version counter
        (preferably of the same shape and offset); None if neither has a name.
        """
        return self._by_id.get(id(kept.tensor)) or self._counted_with(kept.tensor, kept.version)

    def _counted_with(self, tensor: torch.Tensor, version: int) -> Thing | None:
        same: Sequence[Thing] = [
            thing
            for thing in self._things
            if not tensor_facts.is_opaque(thing.value)
            and not thing.value.is_inference()
            and thing.value._version == version
            and tensor_facts.shares_counter(thing.value, tensor)
        ]
        alike = [
            t for t in same if t.value.shape == tensor.shape and t.value.storage_offset() == tensor.storage_offset()
        ]
        return next(iter([*alike, *same]), None)
