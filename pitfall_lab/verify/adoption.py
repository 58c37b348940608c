"""Creates shadows (the engine's copies) of tensors, storages and nodes that torch created without a modelled call, and
records arrays on their memory (:class:`Adoption`).
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.recorder import Enough
from pitfall_lab.observe.tensor_facts import TensorFacts
from pitfall_lab.shadow import DType, Node, Saved, ShadowTensor, ViewOf
from pitfall_lab.shadow.storage import Counter
from pitfall_lab.trace import Effect, T
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.records import StorageRecord, TensorRecord, array_facts
from pitfall_lab.verify.shared_state import World

NUMBERED_ALIKE = T(
    "the program builds graphs in several threads, and torch gives nodes of different threads the "
    "same sequence numbers",
    "程序在多个线程中建图，而 torch 给不同线程的节点编了相同的序号",
)


class Adoption:
    """Gives a shadow (the engine's copy) and a record (an entry in the tables of known objects) to objects that come
    from an unobserved or unmodelled operation. The effects that its methods return describe them in the trace.
    """

    def __init__(self, world: World, describe: Description) -> None:
        self._world, self._describe = world, describe
        self._engine, self._records, self._writer = world.engine, world.records, world.writer

    # ------------------------------------------------------------------ tensors and their memory

    def adopt(
        self, real: Any, frame: FrameType | None, names: tuple[str, ...] = (), *, seen: TensorFacts | None = None
    ) -> tuple[TensorRecord, list[Effect]]:
        """Create the record of the tensor ``real``, which is seen for the first time, and those of its base, its graph,
        its gradient and the NumPy arrays in ``frame`` on its memory; return it and the effects to be written into the
        trace.

        ``names`` are its variables; if empty, they are looked up from ``frame`` (None: not at all). ``seen``: the
        tensor's facts, if known. A tensor without a readable storage gets a record without a shadow. Raises what
        :meth:`mirror_node` raises.
        """
        seen = seen or tensor_facts.read(real)
        effects: list[Effect] = []
        if seen.storage is None:
            record = self._records.enter(real, None, seen.kind, len(self._writer.events) - 1, None)
        else:
            unseen = self._unseen(real, seen)
            shadow, storage, effects = (*unseen, []) if unseen is not None else self.shadow_of(real, seen)
            record = self._records.enter(real, shadow, seen.kind, len(self._writer.events) - 1, storage)
        record.names = names or tuple(self._world.namespace.names(real, frame))
        gradient = tensor_facts.grad_of(real) if record.shadow is not None else None
        if (
            gradient is not None and gradient is not real
        ):  # a copy made by ``copy.deepcopy`` has a gradient from the beginning
            known = self._records.find(gradient)
            if known is None:
                known, more = self.adopt(gradient, None)
                effects += more
            self._engine.set_grad(record.shadow, known.shadow)  # type: ignore[arg-type]
        if record.storage is not None and seen.foreign:
            self._records.share(record.storage)
            self._world.lines.start(frame)
        if record.storage is not None and frame is not None:
            for array, name in self._world.namespace.arrays(frame, seen.pointer, seen.nbytes):
                effects += self._enter_array(array, record.storage, [name], frame)
        return record, effects + self._describe.tensor(record, seen, "observed")

    def shadow_of(self, real: Any, seen: TensorFacts) -> tuple[ShadowTensor, StorageRecord, list[Effect]]:
        """Create the engine's copy (shadow) of the tensor ``real`` with the facts ``seen``, in its present state, and
        find or create the record of its storage; return both, and the effects for the trace.
        """
        storage, effects = self._storage(real, seen)
        base, more = self._base(real)
        effects += more
        node = None if seen.inference and seen.version is None else tensor_facts.node_of(real)
        shadow = self._engine.adopt(
            storage.shadow,
            seen.shape,
            seen.stride or (),
            self._records.offset(seen, storage),
            seen.dtype,
            version=seen.version or 0,
            requires_grad=seen.requires_grad and node is None,
            grad_fn=None if node is None else self.mirror_node(node, effects),
            output_nr=real.output_nr,
            base=base,
            creation="" if base is None else tensor_facts.creation_of(real),
            kind=seen.kind,
        )
        if seen.inference:
            shadow.inference = self._engine.met_inference = True
        if seen.version is None:
            shadow.counter = None  # an inference tensor that was moved to a normal tensor's storage: see `predict`
        if base is not None:
            shadow.counter = base.counter
            if seen.version is not None and base.counter is not None and seen.version > base.counter.version:
                self._engine.bump(base.counter, seen.version - base.counter.version)  # the base was written unobserved
            # requires_grad_() on a view of a plain tensor makes the view a leaf of its own.
            shadow.flag = seen.requires_grad and node is None and not base.requires_grad
        elif shadow.counter is not None and not seen.inference:
            shadow.counter = self._counted_with(real, storage) or shadow.counter
        return shadow, storage, effects

    def _counted_with(self, real: Any, storage: StorageRecord) -> Counter | None:
        """The version counter that ``real`` shares with a known tensor on this storage; None if there is none.

        ``nn.Parameter(t)`` shares the counter of ``t``, and its call cannot be observed.
        """
        for record, other in self._records.live(storage):
            shadow = record.shadow
            counter = None if isinstance(other, np.ndarray) or shadow is None or shadow.inference else shadow.counter
            if counter is not None and tensor_facts.shares_counter(other, real):
                return counter
        return None

    def _base(self, real: Any) -> tuple[ShadowTensor | None, list[Effect]]:
        base = tensor_facts.base_of(real)
        if base is None:
            return None, []
        known = self._records.find(base)
        if known is not None:
            return known.shadow, []
        seen = tensor_facts.read(base)
        unseen = self._unseen(base, seen)
        if unseen is not None:
            shadow, storage = unseen
            self._records.enter(base, shadow, seen.kind, len(self._writer.events) - 1, storage)
            return shadow, []
        record, effects = self.adopt(base, None, seen=seen)
        return record.shadow, effects

    def _unseen(self, base: Any, seen: TensorFacts) -> tuple[ShadowTensor, StorageRecord] | None:
        """The shadow and storage of a base that has no record, because only views of it have been observed; None if
        there is none.
        """
        storage = (
            self._records.storage_of(seen) if tensor_facts.base_of(base) is None else None
        )  # a view is no view's base
        for record, tensor in self._records.live(storage) if storage is not None else ():
            shadow = None if record.shadow is None else record.shadow.base
            if (
                shadow is not None
                and self._records.shadow_label(shadow) is None
                and tensor_facts.base_of(tensor) is base
            ):
                return shadow, storage  # type: ignore[return-value]
        return None

    def take_base(self, real: Any, shadow: ShadowTensor, storage: StorageRecord) -> None:
        """Give ``shadow``, the shadow of a gradient ``real`` on ``storage`` that ``autograd.grad`` returned, its base:
        torch may return a view of an internal tensor.

        Nothing happens if ``real`` is no view.
        """
        base = tensor_facts.base_of(real)
        if base is None:
            return
        seen = tensor_facts.read(base)
        known, unseen = self._records.find(base), self._unseen(base, seen)
        if known is not None and known.shadow is not None:  # a tensor that the caller passed
            made = known.shadow
        elif unseen is not None:
            made = unseen[0]
        else:
            offset = self._records.offset(seen, storage)
            made = self._engine.adopt(
                shadow.storage, seen.shape, seen.stride or (), offset, seen.dtype, counter=shadow.counter
            )
        shadow.view = ViewOf(made, tensor_facts.creation_of(real), shadow.version)

    def _storage(self, real: Any, seen: TensorFacts) -> tuple[StorageRecord, list[Effect]]:
        known = self._records.storage_of(seen)
        if known is not None:
            self._records.add_impl(known, seen, real)
            return known, self._grown(known, real, seen)
        size = seen.nbytes // max(seen.itemsize, 1)
        flat = tensor_facts.flat_values(real, self._world.limit)
        record = self._records.add_storage(self._engine.storage(size, seen.dtype, seen.device, flat), seen, real)
        return record, self._describe.storage(record, "observed")

    def _grown(self, known: StorageRecord, real: Any, seen: TensorFacts) -> list[Effect]:
        """Update a storage that a call without a model has enlarged; return the effects.

        An empty list, and nothing is changed, if ``real`` still fits into the known size of the storage or has another
        dtype, or the storage has several StorageImpls.
        """
        reach = (
            0
            if 0 in seen.shape
            else 1 + sum((n - 1) * step for n, step in zip(seen.shape, seen.stride or (), strict=True))
        )
        model = known.shadow
        if (
            len(known.impls) != 1
            or seen.dtype != known.dtype
            or self._records.offset(seen, known) + reach <= model.size
        ):
            return []
        model.about_to_change()
        known.nbytes, model.size = seen.nbytes, seen.nbytes // max(seen.itemsize, 1)
        model.data = tensor_facts.flat_values(real, self._world.limit)
        return self._describe.storage(known, "observed")

    # ------------------------------------------------------------------ arrays

    def meet_array(self, array: np.ndarray, frame: FrameType | None, effects: list[Effect]) -> list[str]:
        """Return the label (``t3``), in a list, of an array that a call returned, if it shares memory with a tensor;
        else an empty list.

        The effects of recording the array are appended to ``effects``; other arrays on the memory are not searched for.
        From now on lines are watched in ``frame`` (None: not).
        """
        seen = array_facts(array)
        storage = self._records.covering(seen["low"], seen["high"] - seen["low"])
        if storage is None:
            return []
        effects += self._enter_array(array, storage, [], frame)
        record = self._records.find(array)
        return [record.label] if record is not None else []

    def _enter_array(
        self, array: np.ndarray, storage: StorageRecord, names: list[str], frame: FrameType | None
    ) -> list[Effect]:
        """Record a NumPy array that shares memory with a tensor: from now on the memory can change without a new
        version.
        """
        self._records.share(storage)
        record = self._records.find(array)
        if record is None:
            record = self._records.enter(array, None, "array", len(self._writer.events) - 1, storage)
        record.names += tuple([name for name in names if name not in record.names])
        if frame is not None:
            self._world.lines.start(frame)
        return self._describe.array(record, array)

    # ------------------------------------------------------------------ nodes

    def mirror_node(self, node: Any, effects: list[Effect]) -> Node:
        """Create shadows of torch's ``node`` and of every unknown node to which it leads; return the shadow of
        ``node``. The effects that describe them are appended to ``effects``.

        Raises :class:`~pitfall_lab.observe.recorder.Enough`, which ends the recording, if two live nodes have the same
        key.
        """
        self._tell_apart(node)
        order: list[Any] = []
        stack = [node]
        seen: set[Any] = set()
        while stack:
            item = stack.pop()
            key = tensor_facts.node_key(item)
            if key in seen or key in self._records.nodes:
                continue
            seen.add(key)
            order.append(item)
            stack += [child for child, _ in tensor_facts.next_nodes(item) if child is not None]
        made = []  # keeps the nodes alive until they are linked
        for item in sorted(order, key=lambda n: (tensor_facts.leaf_of(n) is None, tensor_facts.sequence_of(n))):
            made.append(self._mirror_one(item, effects))
            self._records.nodes[tensor_facts.node_key(item)] = made[-1]
        mirrored = self._records.nodes.get(tensor_facts.node_key(node))
        assert mirrored is not None
        return mirrored

    def _tell_apart(self, node: Any) -> None:
        """Raise :class:`Enough` if a node of another thread has the same key as this node.

        Torch numbers the nodes of each thread from 0, so two nodes can have the same key, and it would be unknown which
        one a backward ran. It is detected when a live tensor whose shadow has the known node has a different node in
        torch.
        """
        known = self._records.nodes.get(tensor_facts.node_key(node))
        for record in list(self._records.by_id.values()) if known is not None else ():
            real = record() if record.shadow is not None and record.shadow.node is known else None
            if real is not None and tensor_facts.node_of(real) is not node:
                raise Enough(NUMBERED_ALIKE)

    def _mirror_one(self, item: Any, effects: list[Effect]) -> Node:
        leaf = tensor_facts.leaf_of(item)
        if leaf is not None:
            record = self._records.find(leaf)
            if record is None:
                record, more = self.adopt(leaf, None)
                effects += more
            mirrored = (
                self._engine.accumulate_grad(record.shadow)
                if record.shadow is not None
                else self._engine.node("AccumulateGrad")
            )
        else:
            behind = tensor_facts.next_nodes(item)
            edges = [
                (None if child is None else self._records.nodes.get(tensor_facts.node_key(child)), index)
                for child, index in behind
            ]
            mirrored = self._engine.node(
                tensor_facts.node_name(item), edges, self._mirror_saved(item), lazy=tensor_facts.is_custom(item)
            )
            mirrored.outputs = [(shape, DType(dtype)) for shape, dtype in tensor_facts.outputs_of(item)]
        self._records.label_node(mirrored)
        effects += self._describe.node(mirrored, "observed")
        return mirrored

    def _mirror_saved(self, item: Any) -> list[Saved]:
        if not tensor_facts.may_read_saved():
            return []
        found = []
        for slot, tensor in tensor_facts.saved_tensors(item):
            record = self._records.find(tensor)
            seen = tensor_facts.read(tensor)
            storage = self._records.storage_of(seen)
            if record is not None and record.shadow is not None:
                found.append(self._engine.saved(slot, record.shadow))
            elif storage is not None:
                view = self._saved_view(storage, seen)
                if view is not None:
                    made_by = tensor_facts.node_of(tensor)
                    own_output = made_by is not None and tensor_facts.node_key(made_by) == tensor_facts.node_key(item)
                    found.append(self._engine.saved(slot, view, is_output=own_output))
        return found

    def _saved_view(self, storage: StorageRecord, seen: TensorFacts) -> ShadowTensor | None:
        """A shadow on known memory for a saved tensor that is no object of the program; it uses the counter of a tensor
        there.

        None if no tensor there has the saved tensor's version.
        """
        for record, _ in self._records.live(storage):
            if (
                record.shadow is not None
                and record.shadow.counter is not None
                and record.shadow.counter.version == seen.version
            ):
                offset = self._records.offset(seen, storage)
                return self._engine.adopt(
                    storage.shadow, seen.shape, seen.stride or (), offset, seen.dtype, counter=record.shadow.counter
                )
        return None
