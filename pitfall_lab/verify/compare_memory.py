"""Compares the contents of storages in torch and the shadow (:class:`MemoryComparison`), and finds writes that changed
no version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import Applied, ShadowTensor, Storage
from pitfall_lab.shadow.applied import Arrived
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.rounding import Rounding
from pitfall_lab.trace import Effect, Event, Operand, Span
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.json_values import beyond, cells, equal, identical, near
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.shared_state import World

PRECISE = {"float64": ("float16", "float32"), "float32": ("float16",)}
"""For a dtype, the dtypes with a coarser rounding, the coarsest first."""


PER_CHANCE, SCALED, MOST_SCALED = 100, 1000, 1e-3
"""One in how many elements of a gradient may differ by more than its bound, and by which factor such a gradient may be
scaled as a whole: in units in the last place, and at most.
"""


def largest(array: np.ndarray) -> float:
    """Return the largest absolute value of the finite elements; 0 if there are none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def total(array: np.ndarray) -> float:
    """Return the sum of the absolute values of the finite elements."""
    return float(np.abs(array[np.isfinite(array)]).sum(dtype=np.float64))


def length(array: np.ndarray) -> float:
    """Return the Euclidean norm of the finite elements."""
    return float(np.sqrt(np.square(np.abs(array[np.isfinite(array)]), dtype=np.float64).sum()))


def _is_rounding(observed: np.ndarray, modelled: np.ndarray, dtype: str, allowed: np.ndarray) -> bool:
    """Whether a gradient differs from the modelled one only by rounding: each element by at most ``allowed``, or all
    but a few of very many, which happens by chance.

    ``allowed`` comes from four perturbed runs, whose results are sometimes close together: of 4,096 elements some
    differ by two or three times as much. At most one in ``PER_CHANCE`` may, by no more than the largest ``allowed``,
    and the gradient as a whole must not be scaled: a factor that is wrong by a thousandth changes all elements.
    """
    far = beyond(observed, modelled, dtype, allowed)
    if not far.any() or np.count_nonzero(far) * PER_CHANCE > far.size:
        return not far.any()
    ones, others = np.asarray(observed, np.float64), np.asarray(modelled, np.float64)
    if not np.all(np.abs(ones - others)[far] <= allowed.max(initial=0.0)):
        return False
    scaled = min(SCALED * float(np.finfo(modelled.dtype).eps), MOST_SCALED)
    return abs(float(((ones - others) * others).sum())) <= scaled * float(np.square(others).sum())


class MemoryComparison:
    """Compares storage contents. After each comparison the shadow has torch's values, if these can be read. A storage
    is given as its record and ``real``, a tensor on it.
    """

    def __init__(self, world: World, describe: Description) -> None:
        self._engine, self._records, self._writer = world.engine, world.records, world.writer
        self.limit, self._writes = world.limit, world.writes
        self._describe = describe
        self._silently: list[StorageRecord] = []
        self._operands: list[np.ndarray] = []
        self._op = ""
        self._rounding = Rounding()

    # ------------------------------------------------------------------ after a call

    def remember(self, operands: Sequence[TensorRecord | None], arrived: Sequence[Arrived] = (), op: str = "") -> None:
        """Store the operands (records, or None for unknown ones), the gradients that arrived and the name (``op``) of
        the call that is compared next; they determine the tolerance.
        """
        storages = [record.storage for record in operands if record is not None and record.storage is not None]
        self._operands = [storage.shadow.data for storage in storages if storage.shadow.data is not None]
        self._op = op
        self._rounding = Rounding(arrived)

    def agrees(self, step: int, storage: StorageRecord, real: Any) -> bool:
        """Whether the contents of ``storage`` are equal up to rounding; if not, record a disagreement at ``step``. The
        shadow gets torch's values if these can be read.

        True if there is nothing to compare: torch's contents cannot be read, or the shadow has none of this dtype and
        size.
        """
        observed = self._observed(storage, real)
        modelled = storage.shadow.data
        if observed is None:
            return True
        if modelled is None or modelled.dtype != observed.dtype or modelled.size != observed.size:
            self.fill(storage, real)
            return True
        if identical(observed, modelled):
            return True
        same = self.is_close(observed, modelled, storage.shadow)
        if not same:
            self._writer.disagree(step, f"storages.{storage.label}.cells", cells(observed), cells(modelled))
        modelled[...] = observed
        return same

    def is_close(self, observed: np.ndarray, modelled: np.ndarray, storage: Storage) -> bool:
        """Whether two contents of ``storage``, torch's and the shadow's, are equal up to rounding; the tolerance of a
        gradient depends on how it was computed.

        The tolerance of other contents depends on the largest result, else on the operands of the call and their
        coarsest dtype.
        """
        if observed.dtype.kind == "f" and self._rounding.knows(storage):
            return near(observed, modelled, storage.dtype) or _is_rounding(
                observed, modelled, storage.dtype, self._rounding.allowed(storage)
            )
        if equal(observed, modelled, storage.dtype):
            return True
        types = {array.dtype.name for array in self._operands}
        coarsest = next((name for name in PRECISE.get(storage.dtype, ()) if name in types), storage.dtype)
        return equal(observed, modelled, coarsest, scale=self._operand_scale())

    def is_close_gradient(self, observed: np.ndarray, modelled: np.ndarray, gradient: ShadowTensor) -> bool:
        """Like :meth:`is_close`, for the values of a gradient whose storage in torch is not the one that the shadow
        predicted.
        """
        dtype = str(gradient.dtype[:])
        return near(observed, modelled, dtype) or _is_rounding(
            observed, modelled, dtype, self._rounding.within(gradient)
        )

    @property
    def is_silent(self) -> bool:
        """Whether every uncounted write found so far has been described in an event."""
        return not self._silently

    def _operand_scale(self) -> float:
        """A bound on the values that this call may have added up: if they cancel, only their rounding error is left.

        For sums of products it is the product of the operands' norms, for element-wise operations the largest value of
        an operand, else the largest sum of the absolute values of an operand.
        """
        floats = [data for data in self._operands if data.dtype.kind in "fc"]
        entry = ENTRIES.get(self._op)
        traits = entry.traits if entry is not None else ()
        if (
            "products" in traits
        ):  # by the Cauchy-Schwarz inequality, no sum of products exceeds the product of the norms
            return math.prod([max(1.0, length(data)) for data in floats])
        if "elementwise" in traits:
            return max(map(largest, floats), default=0.0)
        return max((total(data) for data in floats), default=0.0)

    def _observed(self, storage: StorageRecord, real: Any) -> np.ndarray | None:
        """The contents of torch's storage up to the shadow's size, flat; None if they cannot be read or have more
        elements than the limit.

        Memory that torch reserves beyond this size (in ``F.mse_loss``) is not compared.
        """
        flat = tensor_facts.flat_values(real, self.limit)
        return flat if flat is None else flat[: storage.shadow.size]

    def fill(self, storage: StorageRecord, real: Any) -> None:
        """Copy torch's contents to a shadow storage whose contents the shadow could not compute; nothing happens if
        they cannot be read or have another size.
        """
        flat = self._observed(storage, real)
        if flat is not None and flat.size == storage.shadow.size:
            self._engine.fill(storage.shadow, flat)

    def written(self, step: int, applied: Applied | None, wrote: Sequence[StorageRecord | None]) -> tuple[str, ...]:
        """Return the labels (``S2``) of the storages that a call wrote, each once: those that the shadow wrote
        (``applied``; None: unknown), those whose version has increased (``wrote``), and those found by their bytes
        since the last call of this method.

        The write is entered under ``step`` in the world's table of writes.
        """
        storages = [self._records.storage_label(storage) for storage in applied.writes] if applied is not None else []
        storages += [storage.label for storage in wrote if storage is not None]
        storages += [storage.label for storage in self._silently]
        self._silently.clear()
        labels = tuple(dict.fromkeys(label for label in storages if label))
        for label in labels:
            self._writes.setdefault(label, []).append(step)
        return labels

    # ------------------------------------------------------------------ writes outside torch functions

    def look_for_writes(self, span: Span | None) -> None:
        """Search for writes by NumPy code to memory that it shares with a tensor; they get an event at ``span`` (None:
        without a source position).

        All storages that were written since the last search get one event: slices of one array overlap.
        """
        written: list[StorageRecord] = []
        effects: list[Effect] = []
        for storage in [each for each in self._records.shared.values() if each.shadow.data is not None]:
            if self._is_unwritten(storage):
                continue
            for record, real in self._records.live(storage):
                if record.kind != "array" and self._observed(storage, real) is not None:
                    storage.readable = record.mark
                    found = self._take_over(storage, real)
                    if found:
                        written.append(storage)
                        effects += found
                    break  # all tensors on a storage show the same memory
        if written:
            self._announce(written, span, effects)

    def _is_unwritten(self, storage: StorageRecord) -> bool:
        """Whether the bytes in memory are those of the shadow; False if only a full comparison can show it.

        This runs after each line for each storage: a batch of examples that are views of one array has hundreds.
        """
        record, modelled = self._records.by_mark.get(storage.readable), storage.shadow.data
        real = record() if record is not None else None
        if real is None or modelled is None:
            return False
        memory = real.untyped_storage()
        return (
            memory.nbytes() >= modelled.nbytes and tensor_facts.bytes_in(memory, modelled.nbytes) == modelled.tobytes()
        )

    def catch_up(self, storage: StorageRecord, real: Any, span: Span | None = None, *, announce: bool) -> list[Effect]:
        """Compare a storage with its contents after the last event; a difference is a write that no version counted.
        Return the effects that show the new contents.

        With ``announce``, the write gets an event of its own at ``span``, which contains them; else it belongs to the
        call that is compared now. There are no effects if the contents are equal or cannot be compared.
        """
        effects = self._take_over(storage, real)
        if effects and announce:
            self._announce([storage], span, effects)
        elif effects:
            self._silently.append(storage)
        return effects

    def _take_over(self, storage: StorageRecord, real: Any) -> list[Effect]:
        """Give the shadow the contents of torch's storage; return the effects, none if they are equal or cannot be
        compared.
        """
        observed = self._observed(storage, real)
        modelled = storage.shadow.data
        if observed is None or modelled is None or observed.dtype != modelled.dtype or observed.size != modelled.size:
            return []
        if identical(observed, modelled):
            return []
        self._engine.overwrite(storage.shadow, observed)
        return self._describe.storage(storage, "observed")

    def _announce(self, written: list[StorageRecord], span: Span | None, effects: list[Effect]) -> None:
        """Write an event for writes that do not belong to a call."""
        op = "numpy" if any(storage.shared for storage in written) else "unseen"
        step = self._writer.reserve()
        arrays = []
        for storage in written:
            self._writes.setdefault(storage.label, []).append(step)
            living = self._records.live(storage)
            arrays += [Operand(record.label) for record, _ in living if record.kind == "array"]
        labels = tuple(storage.label for storage in written)
        self._writer.put(Event(step, "write", op, span, operands=tuple(arrays), writes=labels, effects=tuple(effects)))
