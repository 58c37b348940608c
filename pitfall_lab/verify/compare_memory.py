"""Memory: comparing the numbers of both engines, and finding the writes that torch's versions did not count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import Applied, ShadowTensor, Storage
from pitfall_lab.shadow.applied import Arrived
from pitfall_lab.shadow.rounding import Rounding
from pitfall_lab.trace import Effect, Event, Operand, Span
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.json_values import cells, equal, identical, near
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.shared_state import World

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


ELEMENTWISE = frozenset({
    "abs", "add", "addcdiv", "addcmul", "atan2", "clamp", "clamp_max", "clamp_min", "clone", "copy", "cos", "cosh", "div", "elu",
    "erf", "erfc", "exp", "exp2", "expm1", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "lerp", "log", "log10",
    "log1p", "log2", "logaddexp", "logsigmoid", "mish", "mul", "neg", "pow", "rdiv", "reciprocal", "relu", "relu6", "rmul", "rsqrt",
    "rsub", "selu", "sigmoid", "silu", "sin", "sinh", "softplus", "softsign", "sqrt", "square", "sub", "tan", "tanh", "true_divide",
    "truediv", "where", "xlogy",
})  # fmt: skip
"""Operations of which each result comes from one element of each operand."""


def total(array: np.ndarray) -> float:
    """The sum of the sizes of the finite numbers."""
    return float(np.abs(array[np.isfinite(array)]).sum(dtype=np.float64))


def length(array: np.ndarray) -> float:
    """The square root of the sum of the squares of the finite numbers."""
    return float(np.sqrt(np.square(np.abs(array[np.isfinite(array)]), dtype=np.float64).sum()))


class Memory:
    """The numbers in storages. Torch's are always the ones that the shadow goes on with."""

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
        """Keep in mind what the call that is compared next worked with, and the gradients it gave: they decide how exact it can be."""
        storages = [record.storage for record in operands if record is not None and record.storage is not None]
        self._operands = [storage.shadow.data for storage in storages if storage.shadow.data is not None]
        self._op = op.rpartition(".")[2]
        self._rounding = Rounding(arrived)

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
        same = self.is_close(observed, modelled, storage.shadow)
        if not same:
            self._writer.disagree(step, f"storages.{storage.label}.cells", cells(observed), cells(modelled))
        modelled[...] = observed
        return same

    def is_close(self, observed: np.ndarray, modelled: np.ndarray, storage: Storage) -> bool:
        """Whether the numbers of both engines are the same up to rounding: of a gradient, that of its own way."""
        if observed.dtype.kind == "f" and self._rounding.knows(storage):
            return near(observed, modelled, storage.dtype) or near(observed, modelled, storage.dtype, self._rounding.allowed(storage))
        if equal(observed, modelled, storage.dtype):
            return True
        types = {array.dtype.name for array in self._operands}
        coarsest = next((name for name in PRECISE.get(storage.dtype, ()) if name in types), storage.dtype)
        return equal(observed, modelled, coarsest, scale=self._operand_scale())

    def is_close_gradient(self, observed: np.ndarray, modelled: np.ndarray, gradient: ShadowTensor) -> bool:
        """The same for a gradient that lies in other memory than the shadow has it in."""
        dtype = str(gradient.dtype[:])
        return near(observed, modelled, dtype) or near(observed, modelled, dtype, self._rounding.within(gradient))

    @property
    def is_silent(self) -> bool:
        """Whether no write waits to be told with the next event."""
        return not self._silently

    def _operand_scale(self) -> float:
        """The largest number that this call may have added up: where such numbers cancel, the rounding of the operands is what remains."""
        floats = [data for data in self._operands if data.dtype.kind in "fc"]
        if self._op in PRODUCTS:  # by Cauchy and Schwarz, no sum of products of two is larger than the product of their lengths
            return math.prod([max(1.0, length(data)) for data in floats])
        if self._op.removeprefix("__").removesuffix("__").rstrip("_") in ELEMENTWISE:
            return max(map(largest, floats), default=0.0)
        return max((total(data) for data in floats), default=0.0)

    def _observed(self, storage: StorageRecord, real: Any) -> np.ndarray | None:
        """What lies in the memory; what torch has reserved behind it (``F.mse_loss`` adds up in the differences) is nobody's."""
        flat = tensor_facts.flat_values(real, self.limit)
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
