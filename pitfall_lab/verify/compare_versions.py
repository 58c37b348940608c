"""Compares the version counters of torch and the shadow (:class:`Versions`), also those of tensors that are no
arguments of a call.

A write through one tensor increments the version of all tensors that share its counter, and of no others. The shadow
predicts which: a version that differs from its prediction is a disagreement, even though the shadow then continues with
torch's version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import Storage
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.shared_state import World


class Versions:
    """Compares the versions of tensors with those of their shadows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._engine, self._records, self._writer = world.engine, world.records, world.writer

    def after_writes(self, step: int, written: Iterable[Storage]) -> bool:
        """Compare the versions of all tensors on the storages that a call has ``written``; False if one differs, which
        is recorded as a disagreement at ``step``.

        Always True if the program may increment versions in calls that are not observed.
        """
        places = [self._records.storages.get(storage.mark) for storage in written]
        found = [
            self.compare_one(step, *each) for place in places if place is not None for each in self._tensors(place)
        ]
        return all(found)

    def agree(self, place: StorageRecord) -> bool:
        """Whether the versions of all tensors on one storage are the shadow's; nothing is recorded or changed.

        Always True if the program may increment versions in calls that are not observed.
        """
        return self._world.writes_unseen or all(_is_equal(record, real) for record, real in self._tensors(place))

    def _tensors(self, place: StorageRecord) -> Iterator[tuple[TensorRecord, Any]]:
        return ((record, real) for record, real in self._records.live(place) if record.kind != "array")

    def compare_one(self, step: int, record: TensorRecord, real: Any) -> bool:
        """Whether the version of the tensor ``real`` is its shadow's; if not, record a disagreement at ``step`` and
        copy torch's version to the shadow.

        If the program may increment versions in calls that are not observed, a difference is no disagreement: the
        version is copied, and the result is True.
        """
        counter = None if record.shadow is None else record.shadow.counter
        if counter is None or tensor_facts.is_at_version(real, counter.version):
            return True
        if not self._world.writes_unseen:
            self._writer.disagree(step, f"tensors.{record.label}.version", real._version, counter.version)
        self._engine.bump(counter, real._version - counter.version)
        return self._world.writes_unseen

    def at_the_end(self) -> None:
        """Compare the versions of all tensors that are alive at the end of the program; not if the program may have
        written unseen.
        """
        if self._world.writes_unseen:
            return
        step = max(len(self._writer.events) - 1, 0)
        for record in list(self._records.by_mark.values()):
            real = None if record.kind == "array" else record()
            if real is not None and not tensor_facts.is_opaque(real) and not _is_equal(record, real):
                self.compare_one(step, record, real)


def _is_equal(record: TensorRecord, real: Any) -> bool:
    """Whether a tensor has the version that the shadow predicts; True if the shadow has no counter for it."""
    if record.window is not None:  # the shadow has not been created yet: nothing has changed since
        return tensor_facts.is_at_version(real, record.window.version)
    counter = None if record.shadow is None else record.shadow.counter
    return counter is None or tensor_facts.is_at_version(real, counter.version)
