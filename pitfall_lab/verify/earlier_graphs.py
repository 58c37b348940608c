"""Backwards through a graph that was made before the recording began: why torch refuses one is read from the live graph.

A node that the recorder did not see being made is taken over without what it saved. When a backward fails at one, torch itself still tells
which saved tensor it would not take, at which version that was saved, and where its version is now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pitfall_lab.observe import argument_values, looking, tensor_facts
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Effect, Failure
from pitfall_lab.verify.records import Records

MOST = 5_000
"""So many nodes are looked at, those nearest to the loss."""


def explained(records: Records, call: Call, failure: Failure) -> tuple[Failure, list[Effect]]:
    """The failure of a backward with what the live graph knows of it; as it was, where that is nothing."""
    if failure.kind != "other" or failure.type != "RuntimeError":
        return failure, []
    with looking.unseen():
        for node in _behind([tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs))]):
            mine = records.nodes.get(tensor_facts.node_key(node))
            if mine is None or not mine.mirrored:
                continue
            for slot in _slots(node):
                if slot.state == "stale" and slot.message == failure.message and slot.tensor is not None:
                    return _told(records, failure, records.node_label(mine), slot)
    return failure, []


def _slots(node: Any) -> tuple[tensor_facts.Slot, ...]:
    """What a node saved; nothing where torch refuses to show it, as of a custom Function that has been freed."""
    try:
        return tuple(tensor_facts.slots_of(node))
    except RuntimeError:
        return ()


def _behind(roots: list[Any]) -> list[Any]:
    """The nodes of a graph, nearest to its roots first."""
    found = [node for node in roots if node is not None]
    seen = set(found)
    for node in found:  # grows while it is read
        if len(found) >= MOST:
            break
        for following, _ in tensor_facts.next_nodes(node):
            if following is not None and following not in seen:
                seen.add(following)
                found.append(following)
    return found


def _told(records: Records, failure: Failure, node: str | None, slot: tensor_facts.Slot) -> tuple[Failure, list[Effect]]:
    storage = records.storage_of(tensor_facts.read(slot.tensor))
    owner = next(
        (
            record
            for record, real in (records.live(storage) if storage is not None else ())
            if record.shadow is not None and tensor_facts.is_tensor(real) and tensor_facts.shares_counter(real, slot.tensor)
        ),
        None,
    )
    shadow = owner.shadow if owner is not None else None
    tensor = owner.label if owner is not None else None
    label = records.storage_label(storage.shadow) if storage is not None else None
    counter = records.counter_label(shadow.counter) if shadow is not None else None
    saved = {"name": slot.name, "tensor": tensor, "storage": label, "counter": counter, "version": slot.version}
    found = replace(
        failure, kind="saved-tensor-modified", node=node, saved=slot.name, tensor=tensor, storage=label, counter=counter,
        expected=slot.version, found=slot.now, earlier=True,
    )  # fmt: skip
    return found, [Effect(f"nodes.{node}.saved", [saved], "observed")]
