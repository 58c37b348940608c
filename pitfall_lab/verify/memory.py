"""Memory: comparing the numbers of both engines, and finding the writes that torch's versions did not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.observe import facts
from pitfall_lab.shadow import Applied
from pitfall_lab.shadow.engine import NodeRun
from pitfall_lab.trace import Effect, Event, Operand, Span
from pitfall_lab.verify.cells import cells, equal, identical
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.world import World

PRECISE = {"float64": ("float16", "float32"), "float32": ("float16",)}
"""Types, with those that are rounded more coarsely, the coarsest first."""

PRODUCTS = frozenset({
    "cross", "matmul", "__matmul__", "__rmatmul__", "mm", "mv", "bmm", "dot", "vdot", "vecdot", "inner", "einsum", "tensordot", "linear",
    "bilinear", "addmm", "addmm_", "addmv", "addmv_", "addbmm", "addbmm_", "baddbmm", "baddbmm_", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention",
})  # fmt: skip
"""Operations that add up products of their operands, which may cancel to the rounding of one of them."""


def largest(array: np.ndarray) -> float:
    """The largest finite number."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def flow(run: NodeRun) -> float:
    """The largest number that the formula of a node may have added up: of the gradient, times one that was saved, for each element.

    What is added may cancel (a sum over a batch norm, the cross product of a vector with itself) to a rounding of itself.
    """
    if run.gradient is None or run.gradient.dtype.kind not in "fc":
        return 0.0
    saved = [array for array in (s.now() for s in run.node.saved) if array is not None and array.dtype.kind in "fc"]
    return largest(np.asarray(run.gradient)) * max(run.gradient.size, 1) * max((1.0, *map(largest, saved)))


def types_on_the_way(run: NodeRun) -> set[str]:
    """The types of what a node made and saved: gradients are rounded like them."""
    return {str(dtype[:]) for dtype in (*(s.dtype for s in run.node.saved), *(dtype for _, dtype in run.node.outputs))}


class Memory:
    """The numbers in storages. Torch's are always the ones that the shadow goes on with."""

    def __init__(self, world: World, describe: Description) -> None:
        self._engine, self._records, self._writer = world.engine, world.records, world.writer
        self.limit, self._writes = world.limit, world.writes
        self._describe = describe
        self._silently: list[StorageRecord] = []
        self._operands: list[np.ndarray] = []
        self._multiplies = False
        self._ran: Sequence[NodeRun] = ()

    # ------------------------------------------------------------------ after a call

    def remember(self, operands: Sequence[TensorRecord | None], ran: Sequence[NodeRun] = (), op: str = "") -> None:
        """Keep in mind what the call that is compared next worked with, and the nodes it ran: they decide how exact its result can be."""
        storages = [record.storage for record in operands if record is not None and record.storage is not None]
        self._operands = [storage.shadow.data for storage in storages if storage.shadow.data is not None]
        self._ran, self._multiplies = ran, op.rpartition(".")[2] in PRODUCTS

    def agrees(self, step: int, storage: StorageRecord, real: Any) -> bool:
        """Compare the numbers and go on with torch's, which differ by rounding at most."""
        observed = self._observed(storage, real)
        modelled = storage.shadow.data
        if observed is None:
            return True
        if modelled is None or modelled.dtype != observed.dtype or modelled.size != observed.size:
            self.fill(storage, real)
            return True
        if identical(observed, modelled):
            return True
        same = self.is_close(observed, modelled, storage.dtype)
        if not same:
            self._writer.disagree(step, f"storages.{storage.label}.cells", cells(observed), cells(modelled))
        modelled[...] = observed
        return same

    def is_close(self, observed: np.ndarray, modelled: np.ndarray, dtype: str) -> bool:
        """Whether the numbers of both engines are the same up to rounding: that of the least precise type that they came from."""
        if equal(observed, modelled, dtype):
            return True
        types = {array.dtype.name for array in self._operands}.union(*map(types_on_the_way, self._ran))
        coarsest = next((name for name in PRECISE.get(dtype, ()) if name in types), dtype)
        return equal(observed, modelled, coarsest, scale=self._operand_scale())

    @property
    def is_silent(self) -> bool:
        """Whether no write waits to be told with the next event."""
        return not self._silently

    def _operand_scale(self) -> float:
        """The largest number that went into this call: where large numbers cancel, the rounding of the operands is what remains."""
        floats = [data for data in self._operands if data.dtype.kind in "fc"]
        size = max((largest(data) * max(data.size, 1) for data in floats), default=0.0)
        if self._multiplies:
            size *= max((1.0, *map(largest, floats)))
        return max((size, *map(flow, self._ran)))

    def _observed(self, storage: StorageRecord, real: Any) -> np.ndarray | None:
        """What lies in the memory; what torch has reserved behind it (``F.mse_loss`` adds up in the differences) is nobody's."""
        flat = facts.flat_values(real, self.limit)
        return flat if flat is None else flat[: storage.shadow.size]

    def fill(self, storage: StorageRecord, real: Any) -> None:
        """Give the shadow numbers that it could not compute."""
        flat = self._observed(storage, real)
        if flat is not None and flat.size == storage.shadow.size:
            self._engine.fill(storage.shadow, flat)

    def written(self, step: int, applied: Applied | None, wrote: Sequence[StorageRecord | None]) -> tuple[str, ...]:
        """The labels of the storages that a call wrote: as the shadow says, as versions told (``wrote``), and silently."""
        storages = [self._records.storage_label(storage) for storage in applied.writes] if applied is not None else []
        storages += [storage.label for storage in wrote if storage is not None]
        storages += [storage.label for storage in self._silently]
        self._silently.clear()
        labels = tuple(dict.fromkeys(label for label in storages if label))
        for label in labels:
            self._writes.setdefault(label, []).append(step)
        return labels

    # ------------------------------------------------------------------ changed behind torch's back

    def look_for_writes(self, span: Span | None) -> None:
        """Look whether NumPy code wrote memory that it shares with torch."""
        for storage in list(self._records.shared.values()):
            for record, real in self._records.live(storage):
                if record.kind != "array":
                    effects = self.catch_up(storage, real, span, announce=True)
                    if effects:
                        break

    def catch_up(self, storage: StorageRecord, real: Any, span: Span | None = None, *, announce: bool) -> list[Effect]:
        """Compare the memory with what it was after the last event; a difference is a write that no version counted."""
        observed = self._observed(storage, real)
        modelled = storage.shadow.data
        if observed is None or modelled is None or observed.dtype != modelled.dtype or observed.size != modelled.size:
            return []
        if identical(observed, modelled):
            return []
        self._engine.overwrite(storage.shadow, observed)
        effects = self._describe.storage(storage, "observed")
        if announce:
            self._announce(storage, span, effects)
        else:
            self._silently.append(storage)
        return effects

    def _announce(self, storage: StorageRecord, span: Span | None, effects: list[Effect]) -> None:
        """Give a write that was no call an event of its own."""
        op = "numpy" if storage.shared else "unseen"
        step = self._writer.reserve()
        self._writes.setdefault(storage.label, []).append(step)
        arrays = tuple(Operand(record.label) for record, _ in self._records.live(storage) if record.kind == "array")
        self._writer.put(Event(step, "write", op, span, operands=arrays, writes=(storage.label,), effects=tuple(effects)))
