"""Compares torch's result with the prediction (:class:`Comparison`), records each difference as a Disagreement, and
continues with torch's values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import Call
from pitfall_lab.observe.tensor_facts import TensorFacts
from pitfall_lab.shadow import Applied, Device, ShadowTensor
from pitfall_lab.trace import By, Effect
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.catching_up import CatchingUp
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.description import Description, quiet_grad_fn, read
from pitfall_lab.verify.json_values import cells, equal
from pitfall_lab.verify.pairing import Pairing
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.shared_state import World


class Comparison:
    """Compares one call's result and side effects in torch with those that the shadow modelled."""

    def __init__(
        self,
        world: World,
        describe: Description,
        *,
        memory: MemoryComparison,
        pairing: Pairing,
        adoption: Adoption,
        meeting: CatchingUp,
    ) -> None:
        self._engine, self._records, self._writer = world.engine, world.records, world.writer
        self.is_brief = world.limit < 0
        """Whether :meth:`_plain_gradient` may be used: only in recordings without values."""
        self._is_backward = False
        self._describe, self._memory, self._pairing, self._adoption, self._meeting = (
            describe,
            memory,
            pairing,
            adoption,
            meeting,
        )

    def compare(self, call: Call, step: int, applied: Applied, result: Any) -> tuple[list[str], bool, list[Effect]]:
        """Compare what ``call`` returned (``result``) and changed with what the shadow did (``applied``). Return the
        labels of the results, True if the engines agree, and the effects of the call for the trace.
        """
        before = len(self._writer.disagreements)
        operands = [self._records.find(real) for real in argument_values.tensors((call.args, call.kwargs))]
        self._memory.remember(operands, applied.arrived, call.name)
        self._is_backward = bool(applied.ran or applied.passed)
        reals = list(argument_values.tensors(result))
        shadows = list(_shadows(applied.result))
        if applied.ran:
            for real, shadow in zip(reals, shadows, strict=False):
                _take_layout(real, shadow)
        results, effects = self._bind_results(step, reals, shadows)
        for real in self._touched(call, applied, reals):
            record = self._records.find(real)
            if record is not None and record.shadow is not None:
                effects += self._check(step, record, real)
        if not reals:
            self._compare_plain(step, applied.result, result)
        for array in argument_values.arrays(result):
            results += self._adoption.meet_array(array, call.frame, effects)
        effects += self._gradients(step, applied)
        return results, len(self._writer.disagreements) == before, effects

    def _touched(self, call: Call, applied: Applied, reals: list[Any]) -> list[Any]:
        """The results and the arguments that the call may have changed, together with the bases of both that have a
        record.
        """
        touched = {id(real): real for real in itertools.chain(reals, self._changed(call, applied))}
        for real in list(touched.values()):
            base = tensor_facts.base_of(real)
            if base is not None and self._records.find(base) is not None:
                touched.setdefault(id(base), base)
        return list(touched.values())

    def _changed(self, call: Call, applied: Applied) -> Iterator[Any]:
        """Yield the arguments that this call may have changed; the others were compared just before it."""
        for real in argument_values.tensors((call.args, call.kwargs)):
            record = self._records.find(real)
            shadow = record.shadow if record is not None else None
            if shadow is not None and (
                shadow.storage in applied.writes
                or not tensor_facts.is_at_version(real, shadow._version)
                or real.requires_grad != shadow.requires_grad
                or call.name.endswith("_")
            ):
                yield real

    # ------------------------------------------------------------------ results

    def _bind_results(self, step: int, reals: list[Any], shadows: list[ShadowTensor]) -> tuple[list[str], list[Effect]]:
        results: list[str] = []
        effects: list[Effect] = []
        if len(reals) != len(shadows):
            self._writer.disagree(step, "result", f"{len(reals)} tensors", f"{len(shadows)} tensors")
        for real, shadow in zip(reals, shadows, strict=False):
            label, more = self._bind(step, real, shadow)
            results.append(label)
            effects += more
        return results, effects

    def _bind(self, step: int, real: Any, shadow: ShadowTensor) -> tuple[str, list[Effect]]:
        """Connect ``shadow`` with ``real`` unless something contradicts it; return the tensor's label and effects.

        If the tensor or storage is not the predicted one, this is a disagreement, and ``real`` is adopted as a new
        tensor; it is no disagreement if the shadow could not know it, because a hook returned or received the tensor.
        """
        known = self._records.find(real)
        if known is not None and known.shadow is shadow:
            return known.label, []
        seen = tensor_facts.read(real)
        if seen.storage is None:
            return (known.label, []) if known is not None else self._adopt(real)
        other = self._records.shadow_label(shadow)
        # The tensor was returned by a hook or passed to one: whether it was an existing tensor or
        # shares its memory was not known.
        was_shown = (
            other is None and (shadow.storage.data is None or self._is_backward) and self._engine.graph.has_guests
        )
        if known is not None and was_shown:
            return known.label, []
        if known is not None or other is not None:
            self._writer.disagree(step, "result.is", known.label if known else "a new tensor", other or "a new tensor")
            return (known.label, []) if known else self._adopt(real)
        storage = self._records.storage_of(seen)
        mine = self._records.storage_label(shadow.storage)
        if (storage.label if storage else None) != mine:
            return self._in_other_storage(step, real, storage, mine, expected=mine is None and was_shown)
        if storage is None:
            storage = self._records.add_storage(shadow.storage, seen, real)
            if shadow.storage.data is None:
                self._memory.fill(storage, real)
        else:
            self._records.add_impl(storage, seen, real)
        shadow.kind = seen.kind
        if seen.device != shadow.device:
            shadow.device = shadow.storage.device = Device(seen.device)
        if shadow.received:
            self._adoption.take_base(real, shadow, storage)
            shadow.received = False
        return self._records.enter(real, shadow, seen.kind, step, storage).label, []

    def _in_other_storage(
        self, step: int, real: Any, storage: StorageRecord | None, mine: str | None, *, expected: bool
    ) -> tuple[str, list[Effect]]:
        """Adopt a result whose storage is not the predicted one; return its label and the effects.

        No disagreement is reported if ``expected``: its storage was not predicted.
        """
        if not expected:
            self._writer.disagree(
                step, "result.storage", storage.label if storage else "new memory", mine or "new memory"
            )
        return self._adopt(real)

    def bind(self, step: int, real: Any, shadow: ShadowTensor) -> list[Effect]:
        """Connect ``shadow`` with ``real``, a tensor that is not the result of a call, and return the effects that
        describe it.

        If the tensor or storage is not the predicted one, this is a disagreement at ``step``, unless the shadow could
        not know it (a gradient that user code may have seen).
        """
        if shadow.loose:
            _take_layout(real, shadow)
        _, effects = self._bind(step, real, shadow)
        record = self._records.find(real)
        if record is None:
            return effects
        described = self._describe.storage(record.storage, "agreed") if record.storage is not None else []
        return effects + described + self._describe.tensor(record, tensor_facts.read(real), "agreed")

    def _adopt(self, real: Any) -> tuple[str, list[Effect]]:
        record, effects = self._adoption.adopt(real, None)
        return record.label, effects

    def _compare_plain(self, step: int, mine: Any, theirs: Any) -> None:
        """Compare results that are plain Python values, floats up to the rounding of float32; other types are not
        compared.
        """
        kinds = (bool, int, float, str)
        if type(mine) in kinds and type(theirs) in kinds and mine != theirs:
            if isinstance(mine, float) and equal(np.array([theirs]), np.array([mine]), "float32"):
                return
            self._writer.disagree(step, "result", _jsonable(theirs), _jsonable(mine))

    # ------------------------------------------------------------------ one tensor

    def _check(self, step: int, record: TensorRecord, real: Any) -> list[Effect]:
        """Compare one tensor's facts and memory with its shadow's; where they differ, copy torch's into the shadow.

        Each difference is a disagreement at ``step``. Returns the effects; none for a tensor without a shadow.
        """
        seen, shadow = read(record, real), record.shadow
        if shadow is None or record.storage is None:
            return []
        if not self._follow_storage(record, real, seen):
            known = self._records.storage_of(seen)
            mine = self._records.storage_label(shadow.storage)
            self._writer.disagree(
                step, f"tensors.{record.label}.storage", known.label if known else "new memory", mine or "new memory"
            )
            return self._meeting.replace(record, real, seen)
        effects: list[Effect] = []
        wrong = self._wrong_facts(step, record.label, shadow, record.storage, seen)
        if not self._same_history(step, record, real, seen, effects):
            wrong.append("grad_fn")
        if not self._memory.agrees(step, record.storage, real):
            wrong.append("cells")
        if wrong:
            has_moved = not {"shape", "stride", "offset"}.isdisjoint(wrong)
            effects += self._meeting.replace(record, real, seen) if has_moved else self._meeting.catch_up(real)
        by: By = "observed" if wrong else "agreed"
        return effects + self._describe.storage(record.storage, by) + self._describe.tensor(record, seen, by)

    def _follow_storage(self, record: TensorRecord, real: Any, seen: TensorFacts) -> bool:
        """Whether the shadow has the storage that torch's tensor has now, which may differ from the record's (``p.data
        = …``).

        If so, the record gets it, too.
        """
        storage = self._records.storage_of(seen)
        shadow = record.shadow
        if storage is record.storage or shadow is None:
            return True
        if storage is None and self._records.storage_label(shadow.storage) is None:
            storage = self._records.add_storage(shadow.storage, seen, real)
        if storage is None or storage.shadow is not shadow.storage:
            return False
        self._records.rebind(record, shadow, storage)
        return True

    def _wrong_facts(
        self, step: int, label: str, shadow: ShadowTensor, storage: StorageRecord, seen: TensorFacts
    ) -> list[str]:
        """The names of the facts in which torch and the shadow differ; each is recorded as a disagreement.

        The facts are shape, stride, offset, dtype, requires_grad, is_leaf and version; one that torch does not show is
        left out.
        """
        both: dict[str, tuple[Any, Any]] = {
            "shape": (seen.shape, shadow.shape),
            "stride": (seen.stride, shadow.stride),
            "offset": (self._records.offset(seen, storage), shadow.offset),
            "dtype": (seen.dtype, str(shadow.dtype[:])),
            "requires_grad": (seen.requires_grad, shadow.requires_grad),
            "is_leaf": (seen.is_leaf, quiet_grad_fn(shadow) is None),
        }
        if seen.version is not None and shadow.counter is not None:
            both["version"] = (seen.version, shadow.counter.version)
        wrong = [key for key, (theirs, mine) in both.items() if mine != theirs and theirs is not None]
        for key in wrong:
            theirs, mine = both[key]
            self._writer.disagree(step, f"tensors.{label}.{key}", _jsonable(theirs), _jsonable(mine))
        return wrong

    def _same_history(
        self, step: int, record: TensorRecord, real: Any, seen: TensorFacts, effects: list[Effect]
    ) -> bool:
        """Whether the tensor has the same graph in torch and in the shadow; effects of new nodes are appended to
        ``effects``.

        True without a comparison if the shadow's grad_fn is stale: reading torch's would regenerate it.
        """
        if record.shadow is not None and record.shadow.has_stale_grad_fn:
            return True
        node = (
            None if seen.inference and seen.version is None else tensor_facts.node_of(real)
        )  # what it detaches later has a grad_fn
        own = quiet_grad_fn(record.shadow) if record.shadow is not None else None
        if (node is None) != (own is None):
            self._writer.disagree(
                step, f"tensors.{record.label}.grad_fn", node and tensor_facts.node_name(node), own and own.name
            )
            return False
        return node is None or self._pairing.pair(node, own, effects, step, record.label)

    # ------------------------------------------------------------------ gradients

    def _gradients(self, step: int, applied: Applied) -> list[Effect]:
        """After a backward, compare the gradients of the leaves that it reached; return the effects."""
        effects: list[Effect] = []
        for leaf in [node.leaf for node in applied.nodes_run if node.leaf is not None]:
            record = self._records.modelled_by(leaf)
            real = record() if record is not None else None
            if record is None or real is None:
                continue
            modelled = leaf.grad if self.is_brief and not applied.ran_user_code else None
            found = None if modelled is None else self._plain_gradient(step, record, real, modelled)
            if found is not None:
                effects += found
            else:
                effects += self._gradient(step, record, real, ran_user_code=applied.ran_user_code)
        return effects

    def _plain_gradient(
        self, step: int, record: TensorRecord, real: Any, modelled: ShadowTensor
    ) -> list[Effect] | None:
        """Compare a leaf's first gradient in a recording without values, in a short way: for a dense tensor in new
        memory.

        The result is the same as that of :meth:`_gradient`, in less time. Returns None, with nothing changed, if the
        short comparison does not apply or finds a difference.
        """
        observed, leaf, records = tensor_facts.grad_of(real), record.shadow, self._records
        if (
            type(observed) is not torch.Tensor
            or modelled.mark
            or modelled.storage.mark
            or modelled.flag
            or modelled.node is not None
            or leaf is None
            or leaf.counter is None
            or modelled.view is not None
            or modelled.counter is None
            or modelled.counter.mark
            or records.find(observed) is not None
            or observed.requires_grad
            or observed.layout is not torch.strided
            or observed.shape != modelled.shape
            or observed.stride() != modelled.stride
            or observed.storage_offset() != modelled.offset
            or tensor_facts.dtype_name(observed.dtype) != modelled.dtype
            or tensor_facts.device_name(observed.device) != modelled.device
            or observed._is_view()
            or observed.is_conj()
            or observed.is_neg()
            or not self._writer.remembers(f"tensors.{record.label}")
            or real._version != leaf.counter.version
            or real.requires_grad is not leaf.flag
            or leaf.node is not None
            or records.shared
        ):
            return None
        memory = observed.untyped_storage()
        if (
            not memory.resizable()
            or records.knows(memory._cdata)
            or memory.nbytes() != modelled.storage.size * observed.element_size()
        ):
            return None
        return self._enter_gradient(step, record, observed, modelled, memory)

    def _enter_gradient(
        self, step: int, record: TensorRecord, observed: Any, modelled: ShadowTensor, memory: Any
    ) -> list[Effect]:
        """Enter a new gradient and its storage in the tables of known tensors; return the trace effects that describe
        the gradient.
        """
        records, counter = self._records, modelled.counter
        assert counter is not None
        counter.version = observed._version
        records.storage_count += 1
        nbytes, dtype = memory.nbytes(), str(modelled.dtype[:])
        storage = StorageRecord(records.storage_count, modelled.storage, None, nbytes, dtype, observed.element_size())
        records.add_new_storage(storage, memory._weak_ref())
        known = records.enter(observed, modelled, "tensor", step, storage)
        return self._describe.new_gradient(known, record, dtype, str(modelled.device[:]), counter.version)

    def _gradient(self, step: int, record: TensorRecord, real: Any, *, ran_user_code: bool) -> list[Effect]:
        observed = tensor_facts.grad_of(real, stale=record.shadow is not None and record.shadow.has_stale_grad_fn)
        modelled = record.shadow.grad if record.shadow is not None else None
        effects: list[Effect] = []
        if observed is not None:
            known, effects = self._meet_gradient(step, observed, modelled, ran_user_code=ran_user_code)
            if known is not None and known.shadow is None:
                self._records.strange_gradients[record.mark] = tensor_facts.opacity(observed)
            unsure = ran_user_code or (modelled is not None and modelled.loose)
            if unsure and known is not None and record.shadow is not None:
                self._engine.set_grad(record.shadow, known.shadow)
            if known is not None and known.shadow is not None:
                effects += self._check(step, known, observed)
                if record.shadow is not None and record.shadow.grad is not known.shadow:
                    mine = self._records.shadow_label(record.shadow.grad)
                    self._writer.disagree(step, f"tensors.{record.label}.grad", known.label, mine)
                    self._engine.set_grad(record.shadow, known.shadow)
        elif modelled is not None and record.shadow is not None:
            self._writer.disagree(step, f"tensors.{record.label}.grad", None, "a gradient")
            self._engine.set_grad(record.shadow, None)
        return effects + self._describe.tensor(record, read(record, real), "agreed")

    def _meet_gradient(
        self, step: int, observed: Any, modelled: ShadowTensor | None, *, ran_user_code: bool
    ) -> tuple[TensorRecord | None, list[Effect]]:
        """The record of a gradient, and the effects of creating one; a new record is connected with the shadow's
        gradient.

        Whether torch stores the incoming gradient or a copy depends on what else refers to it, and can be seen from its
        storage and version. The shadow cannot predict it for a gradient with unknown values, nor after user code has
        received gradients (``ran_user_code``).
        """
        known = self._records.find(observed)
        if known is not None:
            return known, []
        if modelled is None or self._records.shadow_label(modelled) is not None:
            return self._adoption.adopt(observed, None)
        unsure = ran_user_code or modelled.loose
        if unsure and not self._is_same_storage(observed, modelled):
            return self._take_over(step, observed, modelled)
        if modelled.loose:
            _take_layout(observed, modelled)
        unknown = unsure or modelled.storage.data is None
        _, effects = self._bind(step, observed, modelled)
        if unknown and modelled.counter is not None:
            modelled.counter.version = observed._version
        return self._records.find(observed), effects

    def _is_same_storage(self, real: Any, shadow: ShadowTensor) -> bool:
        """Whether both have the same recorded storage, or both a new one."""
        storage = self._records.storage_of(tensor_facts.read(real))
        return (storage.label if storage else None) == self._records.storage_label(shadow.storage)

    def _take_over(self, step: int, observed: Any, modelled: ShadowTensor) -> tuple[TensorRecord, list[Effect]]:
        """Adopt a gradient whose storage is not the predicted one, and compare its values with the shadow's; return its
        record and the effects.
        """
        record, effects = self._adoption.adopt(observed, None)
        theirs, mine = tensor_facts.window_values(observed, self._memory.limit), modelled.window()
        if theirs is not None and mine is not None and not self._memory.is_close_gradient(theirs, mine, modelled):
            self._writer.disagree(step, f"tensors.{record.label}.cells", cells(theirs), cells(mine))
        return record, effects


def _take_layout(real: Any, gradient: ShadowTensor) -> None:
    """Copy the strides, offset and version of torch's gradient to a shadow gradient whose own are unknown.

    They are unknown if its values are, or if it is ``loose``: a sum returns expanded gradients, and torch may have
    accumulated into it in place.
    """
    unknown = gradient.storage.data is None or gradient.loose
    if unknown and gradient.storage.mark and not gradient.numel and gradient.shape == tuple(real.shape):
        gradient.stride = real.stride()  # an empty gradient on known memory: only the strides are unknown
    if (
        unknown
        and not gradient.storage.mark
        and gradient.shape == tuple(real.shape)
        and not tensor_facts.is_opaque(real)
    ):
        gradient.lay_out(real.stride(), real.storage_offset(), real.untyped_storage().nbytes() // real.element_size())
        if gradient.storage.data is not None and gradient.storage.size > gradient.numel:  # the rest is unknown too
            own, around = gradient.values(), tensor_facts.flat_values(real, gradient.storage.size)
            if (
                around is not None
                and around.dtype == gradient.storage.data.dtype
                and around.size == gradient.storage.size
            ):
                gradient.storage.data[:] = around
                gradient.window()[...] = own  # type: ignore[index]
        if gradient.counter is not None and not real.is_inference():
            gradient.counter.version = real._version


def _shadows(value: Any) -> Iterator[ShadowTensor]:
    if isinstance(value, ShadowTensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _shadows(item)


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | int | float | str | type(None) | list) else str(value)
