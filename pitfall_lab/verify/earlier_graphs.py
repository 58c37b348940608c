"""Explains errors of a backward through a graph from before the recording (:func:`explained`), by reading torch's live
graph.

The recorder does not know what nodes created before its start have saved. When a backward raises at such a node,
torch's node still has the saved tensor that failed the version check, with its saved and its present version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pitfall_lab.observe import argument_values, looking, tensor_facts
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Effect, Failure
from pitfall_lab.verify.records import Records

MOST = 5_000
"""How many nodes are searched at most; those nearest to the loss first."""


def explained(records: Records, call: Call, failure: Failure) -> tuple[Failure, list[Effect]]:
    """Return the ``failure`` of the backward ``call``, and the effects to record with it.

    If a node from before the recording saved a tensor whose version check gives exactly this message, the failure
    becomes ``saved-tensor-modified``, with the node and both versions, and the only effect enters the saved tensor.
    Else the failure is unchanged, and there are no effects.
    """
    if failure.kind != "other" or failure.type != "RuntimeError":
        return failure, []
    with looking.unseen():
        for node in _behind([tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs))]):
            mine = records.nodes.get(tensor_facts.node_key(node))
            if mine is None or not mine.mirrored:
                continue
            for slot in _slots(node):
                if slot.state == "stale" and slot.message == failure.message and slot.tensor is not None:
                    return _failure(records, failure, records.node_label(mine), slot)
    return failure, []


def _slots(node: Any) -> tuple[tensor_facts.Slot, ...]:
    """The saved tensors of a node; none if torch raises, as it does for a custom Function whose saved tensors were
    freed.
    """
    try:
        return tuple(tensor_facts.slots_of(node))
    except RuntimeError:
        return ()


def _behind(roots: list[Any]) -> list[Any]:
    """The nodes of a graph, about :data:`MOST` at most, nearest to its roots first."""
    found = [node for node in roots if node is not None]
    seen = set(found)
    for node in found:  # the list grows during the iteration
        if len(found) >= MOST:
            break
        for following, _ in tensor_facts.next_nodes(node):
            if following is not None and following not in seen:
                seen.add(following)
                found.append(following)
    return found


def _failure(
    records: Records, failure: Failure, node: str | None, slot: tensor_facts.Slot
) -> tuple[Failure, list[Effect]]:
    tensor: Any = slot.tensor
    storage = records.storage_of(tensor_facts.read(tensor))
    owner = next(
        (
            record
            for record, real in (records.live(storage) if storage is not None else ())
            if record.shadow is not None and tensor_facts.is_tensor(real) and tensor_facts.shares_counter(real, tensor)
        ),
        None,
    )
    shadow = owner.shadow if owner is not None else None
    tensor = owner.label if owner is not None else None
    label = records.storage_label(storage.shadow) if storage is not None else None
    counter = records.counter_label(shadow.counter) if shadow is not None else None
    saved = {"name": slot.name, "tensor": tensor, "storage": label, "counter": counter, "version": slot.version}
    found = replace(
        failure,
        kind="saved-tensor-modified",
        node=node,
        saved=slot.name,
        tensor=tensor,
        storage=label,
        counter=counter,
        expected=slot.version,
        found=slot.now,
        earlier=True,
    )
    return found, [Effect(f"nodes.{node}.saved", [saved], "observed")]
