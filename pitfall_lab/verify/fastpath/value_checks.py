"""Compares the contents of torch's tensors with the engine's for calls that were seen before and have a stored plan:
operands before the call, results after it (:class:`ValueChecks`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import ShadowTensor, Storage
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.fastpath.plans import Plan
from pitfall_lab.verify.json_values import Look, look
from pitfall_lab.verify.records import Records, StorageRecord, TensorRecord


def holds(real: Any, place: StorageRecord, data: np.ndarray) -> bool:
    """Whether the storage of ``real`` is the one recorded as ``place`` and its contents are ``data``, the contents
    after the last event.
    """
    memory = real.untyped_storage()
    return (
        memory._cdata == place.impls[0]
        and memory.nbytes() >= data.nbytes
        and tensor_facts.bytes_in(memory, data.nbytes) == data.tobytes()
    )


class ValueChecks:
    """Compares the contents that a call with a plan produced in torch with those of the shadow."""

    def __init__(self, records: Records, memory: MemoryComparison) -> None:
        self._records, self._memory = records, memory

    def _are_same(self, memory: Any, storage: Storage, operands: list[TensorRecord], op: str) -> bool:
        """Whether torch's and the shadow's contents are equal up to rounding; if so, the shadow gets torch's.

        True if the shadow has none.
        """
        data = storage.data
        if data is None:
            return True
        if memory.nbytes() < data.nbytes:
            return False
        found = tensor_facts.bytes_in(memory, data.nbytes)
        if found == data.tobytes():
            return True
        observed = np.frombuffer(found, data.dtype)
        self._memory.remember(operands, op=op)
        if not self._memory.is_close(observed, data, storage):
            return False
        data[...] = observed
        return True

    def agree(self, reals: Any, shadows: tuple[ShadowTensor, ...], plan: Plan, operands: list[TensorRecord]) -> bool:
        """Compare the contents of the new storages of the results ``reals`` with those of ``shadows``, or, if the call
        writes, those of the storage that it wrote and its version; False if they differ.

        Contents that the shadow does not have count as equal.
        """
        if plan.writes:
            real, shadow = reals[0], shadows[0]
            memory = real.untyped_storage()
            return (
                real._version == shadow.counter.version  # type: ignore[union-attr]
                and real.shape == shadow.shape
                and real.requires_grad is shadow.requires_grad
                and memory._cdata == operands[0].storage.impls[0]  # type: ignore[union-attr]
                and self._are_same(memory, shadow.storage, operands, plan.op)
            )
        for real, shadow, expected in zip(reals, shadows, plan.results, strict=True):
            is_new = type(expected) is not int and expected.storage  # type: ignore[union-attr]
            if is_new and not self._are_same(real.untyped_storage(), shadow.storage, operands, plan.op):
                return False
        return True

    def fill(self, reals: Any, shadows: tuple[ShadowTensor, ...], plan: Plan) -> None:
        """Copy contents of new or written storages that the shadow could not compute from torch to the shadow.

        ``reals`` are the results of the call in torch, ``shadows`` those in the shadow, in the same order.
        """
        for real, shadow, expected in zip(reals, shadows, plan.results, strict=True):
            if shadow.storage.data is None and (plan.writes or (type(expected) is not int and expected.storage)):  # type: ignore[union-attr]
                self._memory.fill(self._records.storages[shadow.storage.mark], real)

    @staticmethod
    def looks(plan: Plan, shadows: tuple[ShadowTensor, ...]) -> tuple[Look, ...]:
        """Return the contents of the new storages that the call's event shows, one for each of ``plan.looks``."""
        made: dict[int, Any] = {}
        for x, expected in zip(shadows, plan.results, strict=True):
            if type(expected) is not int:
                made[expected.storage] = x.storage.data  # type: ignore[union-attr]
        return tuple([look(made[number]) for number in plan.looks])
