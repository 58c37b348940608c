"""Updates a known tensor's shadow (the engine's copy) from torch, for changes that were made without an observed call
(:class:`CatchingUp`).
"""

from __future__ import annotations

import contextlib
from types import FrameType
from typing import Any

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.tensor_facts import TensorFacts
from pitfall_lab.shadow import Unmodelled
from pitfall_lab.shadow.engine import is_forbidden
from pitfall_lab.trace import Effect
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.compare_versions import Versions
from pitfall_lab.verify.description import Description, quiet_grad_fn, read
from pitfall_lab.verify.pairing import Pairing
from pitfall_lab.verify.records import TensorRecord, torch_key_of
from pitfall_lab.verify.shared_state import World

SEARCHES = 4
"""How many times the name of a parameter is searched for at most."""


class CatchingUp:
    """Gives the shadow of a tensor the state that the tensor has in torch now: before a call uses it, and after a call
    that the engine did not predict, or predicted wrongly. The effects that its methods return show these changes in the
    trace.
    """

    def __init__(
        self, world: World, describe: Description, *, memory: MemoryComparison, pairing: Pairing, adoption: Adoption
    ) -> None:
        self._engine, self._records, self._namespace = world.engine, world.records, world.namespace
        self._writer, self._versions = world.writer, Versions(world)
        self._describe, self._memory, self._pairing, self._adoption = describe, memory, pairing, adoption

    def meet(self, real: Any, frame: FrameType) -> list[Effect]:
        """Update the record of the argument ``real`` before the call runs, or create one; return the effects.

        A write found here gets an event of its own. A parameter without a name is searched for in the variables of
        ``frame``, up to ``SEARCHES`` (4) times.
        """
        record = self._records.find(real)
        if record is None:
            adopted, effects = self._adoption.adopt(real, frame)
            if adopted.storage is not None:  # known memory may have been written before this tensor was known
                effects += self._memory.catch_up(adopted.storage, real, announce=True)
            return effects
        if record.kind == "parameter" and not record.names and record.searches < SEARCHES:
            record.searches += 1
            record.names = tuple(self._namespace.names(real, frame))
            if record.names:
                return self.catch_up(real, announce=True) + self._describe.tensor(
                    record, read(record, real), "observed"
                )
        return self.catch_up(real, announce=True)

    def catch_up(self, real: Any, *, announce: bool = False, regenerates: bool = False) -> list[Effect]:
        """Copy what changed on a known tensor (version, grad_fn, contents) to its shadow; return the effects, none for
        an unknown tensor.

        ``announce``: writes found here get an event of their own. ``regenerates``: torch has read the tensor's grad_fn,
        or may have, so a stale grad_fn is regenerated in the shadow too.
        """
        record = self._records.find(real)
        if record is None or record.shadow is None or record.storage is None:
            # a lazy module's parameter becomes an ordinary one when its shape is known
            return (
                []
                if record is None or tensor_facts.is_opaque(real)
                else self.replace(record, real, tensor_facts.read(real))
            )
        shadow, stale = record.shadow, record.shadow.has_stale_grad_fn and not regenerates
        seen = tensor_facts.read(real, stale=stale)
        if (
            seen.shape != shadow.shape
            or seen.dtype != shadow.dtype
            or self._records.storage_of(seen) is not record.storage
        ):
            return self.replace(record, real, seen)
        if (
            not announce and shadow.numel and seen.stride != shadow.stride
        ):  # a call without a model has changed its strides in place
            return self.replace(record, real, seen)
        was = (shadow.node, shadow.flag, shadow.grad, shadow._version)
        if seen.version is not None and shadow.counter is not None and seen.version != shadow.counter.version:
            if announce:
                self._versions.compare_one(max(len(self._writer.events) - 1, 0), record, real)
            else:
                self._engine.bump(shadow.counter, seen.version - shadow.counter.version)
        effects = [] if stale else self._catch_up_history(record, real, seen)
        effects += self._memory.catch_up(record.storage, real, announce=announce)
        if effects or announce is False or was != (shadow.node, shadow.flag, shadow.grad, shadow._version):
            effects += self._describe.tensor(record, seen, "observed")
        return effects

    def _catch_up_history(self, record: TensorRecord, real: Any, seen: TensorFacts) -> list[Effect]:
        """Give the shadow the grad_fn that torch has (after an unobserved custom Function, a hook, or requires_grad set
        from C++).

        Returns the effects of nodes that are new; the shadow's own node is kept if it matches torch's.
        """
        shadow = record.shadow
        if shadow is None or seen.inference:
            return []
        node = tensor_facts.node_of(real)
        mine = quiet_grad_fn(shadow, regenerates=True)
        if node is None:
            if mine is not None and seen.is_leaf:
                shadow.node = None
            if shadow.view is not None and seen.is_view and shadow.view.creation == "no_grad":
                shadow.view.creation = tensor_facts.creation_of(
                    real
                )  # a custom Function may have returned it since, without a grad_fn
            if shadow.node is None and (shadow.base is None or not shadow.base.requires_grad):
                shadow.flag = seen.requires_grad
            return []
        if mine is not None and torch_key_of(mine) == tensor_facts.node_key(node):
            return []
        effects: list[Effect] = []
        if mine is None or not self._pairing.pair(node, mine, effects):
            made = self._adoption.mirror_node(node, effects)
            with contextlib.suppress(Unmodelled):  # a hook that torch has lost does not move to the new node
                self._engine.graph.move_retained(shadow, made, real.output_nr)
            shadow.node, shadow.output_nr, shadow.flag = made, real.output_nr, False
            if shadow.view is not None:
                shadow.view.version = shadow._version
                shadow.view.creation = tensor_facts.creation_of(real) if seen.is_view else "default"
        return effects

    def replace(self, record: TensorRecord, real: Any, seen: TensorFacts) -> list[Effect]:
        """Give a tensor with a new storage, shape or strides (``p.data = …``, ``set_``, ``module.to``) a new shadow,
        from its facts ``seen``; return the effects.
        """
        shadow, storage, effects = self._adoption.shadow_of(real, seen)
        if record.shadow is not None:
            if record.shadow.counter is not None:
                shadow.counter = record.shadow.counter
                if seen.version != shadow.counter.version:
                    record.shadow.accumulator = (
                        None  # only ``set_`` increments the version: later graphs get a new AccumulateGrad
                    )
                if seen.version is not None:  # an inference tensor has no version to read; its counter keeps its value
                    shadow.counter.version = seen.version
            old = record.shadow.view
            if old is not None and shadow.view is not None and shadow.view.base is old.base:
                shadow.view.creation, shadow.view.version = (
                    old.creation,
                    old.version,
                )  # torch no longer shows how the view was made
                if is_forbidden(shadow):
                    shadow.node, shadow.output_nr = record.shadow.node, record.shadow.output_nr
            record.shadow.become(
                shadow
            )  # nodes and views hold this object as saved tensor or base, so it must stay the same one
            shadow = record.shadow
        self._records.rebind(record, shadow, storage)
        return effects + self._describe.tensor(record, seen, "observed")
