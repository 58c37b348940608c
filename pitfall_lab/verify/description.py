"""Describing: what the trace says of a tensor, an array, a storage and a node, and which of it is news."""

from __future__ import annotations

from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.tensor_facts import Facts
from pitfall_lab.shadow import Node, Saved, ShadowError, ShadowTensor
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.trace import By, Effect
from pitfall_lab.verify.json_values import cells
from pitfall_lab.verify.records import StorageRecord, TensorRecord, array_facts
from pitfall_lab.verify.shared_state import World


class Description:
    """Brings the trace's state up to date with the records; each method returns the effects that do it."""

    def __init__(self, world: World) -> None:
        self._records, self._writer = world.records, world.writer
        self._bumps = world.bumps

    def tensor(self, record: TensorRecord, seen: Facts, by: By) -> list[Effect]:
        """Describe a tensor, its version counter, and that it is the output of its node."""
        value = self._tensor_value(record, seen)
        effects = self._writer.changes(f"tensors.{record.label}", value, by)
        node = f"nodes.{value['grad_fn']}"
        if value["grad_fn"] and self._writer.known(node) and self._writer.last(node)["output"] is None:
            effects += self._writer.changes(node, {"output": record.label}, by)
        if value["counter"] and seen.version is not None:
            bumped = self._writer.changes(f"counters.{value['counter']}", seen.version, by)
            if bumped:
                self._bumps.setdefault(value["counter"], []).append((self._now(), seen.version))
            effects = bumped + effects
        return effects

    def _tensor_value(self, record: TensorRecord, seen: Facts) -> dict[str, Any]:
        shadow, storage, records = record.shadow, record.storage, self._records
        return {
            "kind": record.kind,
            **_names(record),
            "shape": list(seen.shape),
            "stride": None if seen.stride is None else list(seen.stride),
            "offset": None if storage is None else records.offset(seen, storage),
            "dtype": seen.dtype,
            "device": seen.device,
            "storage": storage.label if storage else None,
            "counter": records.counter_label(shadow.counter) if shadow is not None and not seen.inference else None,
            "requires_grad": seen.requires_grad,
            "is_leaf": seen.is_leaf,
            "grad_fn": records.node_label(quiet_grad_fn(shadow)) if shadow is not None else None,
            "base": records.shadow_label(shadow.base) if shadow is not None else None,
            "grad": records.shadow_label(shadow.grad) if shadow is not None else None,
            "born": record.born,
            "alive": True,
        }

    def new_gradient(self, record: TensorRecord, leaf: TensorRecord, dtype: str, device: str, version: int) -> list[Effect]:
        """Describe a gradient that is new, with new memory of its own, and that ``leaf`` has it; without numbers."""
        shadow, storage, writer = record.shadow, record.storage, self._writer
        assert shadow is not None
        assert storage is not None
        counter = self._records.counter_label(shadow.counter)
        value = {
            "kind": "tensor", "name": None, "names": [], "shape": list(shadow.shape), "stride": list(shadow.stride),
            "offset": shadow.offset, "dtype": dtype,
            "device": device, "storage": storage.label, "counter": counter, "requires_grad": False, "is_leaf": True,
            "grad_fn": None, "base": None, "grad": None, "born": record.born, "alive": True,
        }  # fmt: skip
        place = {"size": shadow.storage.size, "dtype": dtype, "nbytes": storage.nbytes, "cells": None, "alive": True}
        effects = writer.first(f"storages.{storage.label}", place, "agreed")
        effects += writer.first(f"counters.{counter}", version, "agreed")
        self._bumps.setdefault(counter or "", []).append((self._now(), version))
        effects += writer.first(f"tensors.{record.label}", value, "agreed")
        return effects + writer.changes(f"tensors.{leaf.label}", {"grad": record.label}, "agreed")

    def array(self, record: TensorRecord, array: np.ndarray) -> list[Effect]:
        """Describe a NumPy array in the words for tensors: it has neither a version nor a history."""
        seen, storage = array_facts(array), record.storage
        offset = (seen["pointer"] - storage.pointer) // seen["itemsize"] if storage is not None else None
        value = {
            "kind": "array", **_names(record), "shape": seen["shape"], "stride": seen["stride"], "offset": offset, "dtype": seen["dtype"],
            "device": "cpu", "storage": storage.label if storage else None, "counter": None, "requires_grad": False, "is_leaf": True,
            "grad_fn": None, "base": None, "grad": None, "born": record.born, "alive": True,
        }  # fmt: skip
        return self._writer.changes(f"tensors.{record.label}", value, "observed")

    def storage(self, record: StorageRecord, by: By) -> list[Effect]:
        """Describe a piece of memory and the numbers in it."""
        numbers = cells(record.shadow.data)
        value = {"size": record.shadow.size, "dtype": record.dtype, "nbytes": record.nbytes, "cells": numbers, "alive": True}
        return self._writer.changes(f"storages.{record.label}", value, by)

    def node(self, node: Node, by: By) -> list[Effect]:
        """Describe a new node of the graph and what it saved."""
        value = {
            "name": node.name,
            "next": [self._records.node_label(edge) for edge in node.children],
            "born": self._now(),
            "output": self._records.shadow_label(node.leaf) if node.leaf is not None else None,
            "saved": [self._saved_value(saved) for saved in node.saved],
            "freed": False,
            "ran": None,
            "gradient": None,
            "gradient_shape": None,
        }
        return self._writer.changes(f"nodes.{self._records.node_label(node)}", value, by)

    def _saved_value(self, saved: Saved) -> dict[str, Any]:
        return {
            "name": saved.name,
            "tensor": self._saved_label(saved),
            "storage": None if saved.own else self._records.storage_label(saved.storage),
            "counter": None if saved.own else self._records.counter_label(saved.counter),
            "version": saved.version,
        }

    def names(self, record: TensorRecord) -> list[Effect]:
        """Describe what a tensor that the trace knows is called now."""
        path = f"tensors.{record.label}"
        return self._writer.changes(path, _names(record), "observed") if self._writer.known(path) else []

    def deaths(self) -> list[Effect]:
        """Say of what died since the last call that it is gone."""
        self._writer.forget_gone()
        tensors, storages = self._writer.rows.dead(self._records.bury())
        effects = []
        for mark in tensors:
            if self._writer.told(f"tensors.t{mark}"):
                effects.append(Effect(f"tensors.t{mark}.alive", False))
                self._writer.forget(f"tensors.t{mark}")
        for mark in storages:
            effects.append(Effect(f"storages.S{mark}.alive", False))
            self._writer.forget(f"storages.S{mark}")
        return effects

    def saved(self, saved: Saved) -> dict[str, Any]:
        """What failures, forecasts and harms say of a saved tensor: what it is, when it was saved, which steps changed it since."""
        counter = self._records.counter_label(saved.counter)
        node = self._records.node_label(saved.node)
        return {
            "saved": saved.name,
            "tensor": self._saved_label(saved),
            "storage": self._records.storage_label(saved.storage),
            "counter": counter,
            "saved_at": (self._writer.last(f"nodes.{node}") or {}).get("born"),
            "changed_at": tuple(step for step, version in self._bumps.get(counter or "", ()) if version > saved.version),
        }

    def _saved_label(self, saved: Saved) -> str | None:
        if saved.own:
            return None
        return self._records.shadow_label(saved.tensor) or self._output_label(saved)

    def _output_label(self, saved: Saved) -> str | None:
        """A saved output is kept without its object: find the living tensor that looks at the same place."""
        record = self._records.memory(saved.storage.mark)
        for other, _ in self._records.live(record) if record is not None else ():
            shadow = other.shadow
            if shadow is not None and (shadow.offset, shadow.shape, shadow.stride) == (saved.offset, saved.shape, saved.stride):
                return other.label
        return None

    def _now(self) -> int:
        return max(len(self._writer.events) - 1, 0)


def _names(record: TensorRecord) -> dict[str, Any]:
    return {"name": record.names[-1] if record.names else None, "names": list(record.names)}


def read(record: TensorRecord, real: Any) -> Facts:
    """What torch says of a known tensor; one that sleeps is let sleep."""
    return tensor_facts.read(real, asleep=record.shadow is not None and record.shadow.sleeps)


def quiet_grad_fn(shadow: ShadowTensor, *, wakes: bool = False) -> Node | None:
    """The tensor's node, or None where asking for it is an error (a view whose base was written in a forbidden way).

    A view that sleeps has none, unless the program asks for it, which ``wakes`` it.
    """
    if not wakes and shadow.sleeps:
        return None
    try:
        return shadow.grad_fn
    except (ShadowError, Unmodelled):
        return None
