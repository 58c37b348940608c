"""Versions: whether every counter stands where the shadow says, also those of tensors that a call did not name.

A write through one tensor moves the versions of all that share its counter, and of no other. Which those are is the shadow's to say: a
version that has moved otherwise is a disagreement, and not merely taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import Storage
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.shared_state import World


class Versions:
    """Compares counters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._engine, self._records, self._writer = world.engine, world.records, world.writer

    def after_writes(self, step: int, written: Iterable[Storage]) -> bool:
        """Compare the versions of all tensors on the memory that a call has written."""
        places = [self._records.storages.get(storage.mark) for storage in written]
        found = [self.stands(step, *each) for place in places if place is not None for each in self._tensors(place)]
        return all(found)

    def agree(self, place: StorageRecord) -> bool:
        """The same for one piece of memory, with nothing noted."""
        return self._world.writes_unseen or all(_stands(record, real) for record, real in self._tensors(place))

    def _tensors(self, place: StorageRecord) -> Iterator[tuple[TensorRecord, Any]]:
        return ((record, real) for record, real in self._records.live(place) if record.kind != "array")

    def stands(self, step: int, record: TensorRecord, real: Any) -> bool:
        """Whether a tensor's counter stands where the shadow says; if not, that is written down, and torch's taken over."""
        counter = None if record.shadow is None else record.shadow.counter
        if counter is None or tensor_facts.is_at_version(real, counter.version):
            return True
        if not self._world.writes_unseen:
            self._writer.disagree(step, f"tensors.{record.label}.version", real._version, counter.version)
        self._engine.bump(counter, real._version - counter.version)
        return self._world.writes_unseen

    def at_the_end(self) -> None:
        """Compare the versions of all tensors that are alive when the program ends."""
        if self._world.writes_unseen:
            return
        step = max(len(self._writer.events) - 1, 0)
        for record in list(self._records.by_mark.values()):
            real = None if record.kind == "array" else record()
            if real is not None and not tensor_facts.is_opaque(real) and not _stands(record, real):
                self.stands(step, record, real)


def _stands(record: TensorRecord, real: Any) -> bool:
    """Whether a tensor's counter stands where the shadow says."""
    if record.window is not None:  # as it was made
        return tensor_facts.is_at_version(real, record.window.version)
    counter = None if record.shadow is None else record.shadow.counter
    return counter is None or tensor_facts.is_at_version(real, counter.version)
