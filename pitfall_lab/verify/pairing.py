"""Matches the nodes of torch's graph with those of the shadow's graph (:class:`Pairing`), and compares what each node
saved.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from pitfall_lab.observe import tensor_facts
from pitfall_lab.shadow import Node, Saved
from pitfall_lab.trace import Effect
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.records import torch_key_of
from pitfall_lab.verify.shared_state import World

Pair = tuple[Any, Node]


class Pairing:
    """Matches each node of torch's graph with the node of the shadow's graph that models it, and compares what the two
    saved. Both graphs are walked in parallel, without recursion: chains of 2,000 operations are common.
    """

    def __init__(self, world: World, describe: Description) -> None:
        self._records, self._writer = world.records, world.writer
        self._engine, self._limit = world.engine, world.limit
        self._describe = describe

    def pair(
        self, node: Any, mine: Node | None, effects: list[Effect], step: int | None = None, label: str = ""
    ) -> bool:
        """Match torch's ``node``, and every node to which it leads, with the shadow's ``mine``; return whether they
        match.

        If they differ or ``mine`` is None, nothing is entered. New nodes get a label, and one effect for each is
        appended to ``effects``. With a ``step``, a difference is recorded as a disagreement about the tensor ``label``,
        and what the new nodes saved is compared.
        """
        if mine is None:
            return False
        fresh: dict[Any, Pair] = {}
        work: list[tuple[Any, Node, Node | None]] = [(node, mine, None)]
        while work:
            theirs, own, user = work.pop()
            key = tensor_facts.node_key(theirs)
            if torch_key_of(own) == key:
                continue
            known = fresh[key][1] if key in fresh else self._records.nodes.get(key)
            if known is own or (known is not None and _is_unpacked_leaf(known, own, user)):
                continue
            children, edges = tensor_facts.next_nodes(theirs), own.next
            ends_alike = [child is None for child, _ in children] == [edge is None for edge, _ in edges]
            if known is not None and own.leaf is not None and known.leaf is own.leaf:
                known = None  # a leaf whose dtype was changed through ``.data`` gets a second AccumulateGrad
            if known is not None or tensor_facts.node_name(theirs) != own.name or not ends_alike:
                self._differ(step, label, theirs, own)
                return False
            fresh[key] = (theirs, own)
            both = zip((child for child, _ in children), (edge for edge, _ in edges), strict=True)
            work += [(child, edge, own) for child, edge in both if child is not None and edge is not None]
        # The nodes are entered only if the whole graph matches.
        for key, (_, own) in fresh.items():
            self._records.nodes[key] = own
        for theirs, own in sorted(fresh.values(), key=lambda pair: (pair[1].leaf is None, pair[1].sequence)):
            self._records.label_node(own)
            self._compare_saved(step, theirs, own)
            effects += self._describe.node(own, "agreed")
        return True

    def _differ(self, step: int | None, label: str, theirs: Any, own: Node) -> None:
        if step is not None:
            behind = [
                None if child is None else tensor_facts.node_name(child) for child, _ in tensor_facts.next_nodes(theirs)
            ]
            expected = [None if edge is None else edge.name for edge in own.children]
            self._writer.disagree(
                step, f"tensors.{label}.grad_fn", [tensor_facts.node_name(theirs), behind], [own.name, expected]
            )

    def _compare_saved(self, step: int | None, theirs: Any, own: Node) -> None:
        """Compare which tensors a new node saved, and their versions; each difference is a disagreement at ``step``.

        Nothing is compared without a step, for an AccumulateGrad, a node without a model or CopySlices, or if saved
        tensors cannot be read.
        """
        if (
            step is None
            or own.leaf is not None
            or own.mirrored
            or own.name == "CopySlices"
            or not tensor_facts.may_read_saved()
        ):
            return
        kept = dict(tensor_facts.saved_tensors(theirs))
        observed = {slot: tensor._version for slot, tensor in kept.items() if not tensor.is_inference()}
        modelled = {saved.name: saved for saved in own.saved}
        for slot in observed.keys() | modelled.keys():
            saved = modelled.get(slot)
            if saved is not None and saved.drawn and slot in kept:
                self._take_drawn(saved, kept[slot])
            if saved is not None and (saved.own or (saved.stale and slot not in observed)):
                continue
            predicted = None if saved is None else saved.version
            if observed.get(slot) != predicted:
                self._writer.disagree(step, f"nodes.{own.name}.saved.{slot}", observed.get(slot), predicted)

    def _take_drawn(self, saved: Saved, real: Any) -> None:
        """Copy random values that an operation drew and saved (the mask of dropout) from torch: they cannot be
        predicted.
        """
        if (
            saved.storage.data is None
            and saved.shape == tuple(real.shape)
            and saved.dtype == tensor_facts.dtype_name(real.dtype)
        ):
            flat = tensor_facts.flat_values(real, self._limit)
            if flat is not None and flat.size == saved.storage.size:
                self._engine.fill(saved.storage, flat)


def _is_unpacked_leaf(known: Node, own: Node, user: Node | None) -> bool:
    """Whether ``own`` is the AccumulateGrad of a leaf unpacked by saved-tensor hooks; if so, its edge is redirected to
    torch's ``known``.

    What an unpack hook returns for a saved leaf becomes a new tensor on the same memory with the *old* leaf's
    AccumulateGrad (``SavedVariable::unpack``). The shadow adopts that tensor without an observed call and treats it as
    a separate leaf.
    """
    if (
        user is None
        or known.leaf is None
        or own.leaf in {None, known.leaf}
        or own.leaf.storage is not known.leaf.storage
    ):
        return False
    user.next = tuple((known if edge is own else edge, index) for edge, index in user.next)
    own.leaf.accumulator = ref(known)
    return True
