"""Writes the state of tensors, arrays, storages and nodes to the trace (:class:`Description`): the whole record once,
later only what changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.tensor_facts import TensorFacts
from pitfall_lab.shadow import Node, Saved, ShadowError, ShadowTensor
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.trace import By, Effect
from pitfall_lab.verify.json_values import cells
from pitfall_lab.verify.records import StorageRecord, TensorRecord, array_facts
from pitfall_lab.verify.shared_state import World


class Description:
    """Updates the trace's state from the tables of known objects; each method but :meth:`saved` returns the effects for
    this, which become part of an event. ``by`` is the origin of the facts (torch, the shadow, or both).
    """

    def __init__(self, world: World) -> None:
        self._records, self._writer = world.records, world.writer
        self._bumps = world.bumps

    def tensor(self, record: TensorRecord, seen: TensorFacts, by: By) -> list[Effect]:
        """Return the effects that describe the tensor of ``record``, with the facts ``seen``, its version counter, and
        the node whose output it is; only what has changed.
        """
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

    def _tensor_value(self, record: TensorRecord, seen: TensorFacts) -> dict[str, Any]:
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

    def new_gradient(
        self, record: TensorRecord, leaf: TensorRecord, dtype: str, device: str, version: int
    ) -> list[Effect]:
        """Return the effects that describe the tensor of ``record``, in a new storage, and that it is the gradient of
        ``leaf`` (in a recording without values); ``dtype``, ``device`` and ``version`` are the gradient's.
        """
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
        """Return the effects that describe a NumPy array with the fields of a tensor; it has no version counter and no
        grad_fn. Only what has changed.
        """
        seen, storage = array_facts(array), record.storage
        offset = (seen["pointer"] - storage.pointer) // seen["itemsize"] if storage is not None else None
        value = {
            "kind": "array",
            **_names(record),
            "shape": seen["shape"],
            "stride": seen["stride"],
            "offset": offset,
            "dtype": seen["dtype"],
            "device": "cpu",
            "storage": storage.label if storage else None,
            "counter": None,
            "requires_grad": False,
            "is_leaf": True,
            "grad_fn": None,
            "base": None,
            "grad": None,
            "born": record.born,
            "alive": True,
        }
        return self._writer.changes(f"tensors.{record.label}", value, "observed")

    def storage(self, record: StorageRecord, by: By) -> list[Effect]:
        """Return the effects that describe a storage and its contents (abbreviated if they are long); only what has
        changed.
        """
        numbers = cells(record.shadow.data)
        value = {
            "size": record.shadow.size,
            "dtype": record.dtype,
            "nbytes": record.nbytes,
            "cells": numbers,
            "alive": True,
        }
        return self._writer.changes(f"storages.{record.label}", value, by)

    def node(self, node: Node, by: By) -> list[Effect]:
        """Return the effects that describe a new node of the graph and its saved tensors."""
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
        """Return the effects that describe the present names of a tensor; none if the tensor is not in the trace yet,
        or they are unchanged.
        """
        path = f"tensors.{record.label}"
        return self._writer.changes(path, _names(record), "observed") if self._writer.known(path) else []

    def deaths(self) -> list[Effect]:
        """Return the effects that mark tensors and storages that died since the last call as no longer alive."""
        self._writer.forget_gone()
        tensors, storages = self._writer.rows.dead(self._records.bury())
        effects = []
        for mark in tensors:
            if self._writer.has(f"tensors.t{mark}"):
                effects.append(Effect(f"tensors.t{mark}.alive", False))
                self._writer.forget(f"tensors.t{mark}")
        for mark in storages:
            effects.append(Effect(f"storages.S{mark}.alive", False))
            self._writer.forget(f"storages.S{mark}")
        return effects

    def saved(self, saved: Saved) -> dict[str, Any]:
        """Return the fields of :class:`~pitfall_lab.trace.Failure` that identify a saved tensor, as a dict: ``saved``
        (its slot), ``tensor``, ``storage`` and ``counter`` (labels, or None), ``saved_at`` (the step, or None) and
        ``changed_at`` (the steps that increased the version since).
        """
        counter = self._records.counter_label(saved.counter)
        node = self._records.node_label(saved.node)
        return {
            "saved": saved.name,
            "tensor": self._saved_label(saved),
            "storage": self._records.storage_label(saved.storage),
            "counter": counter,
            "saved_at": (self._writer.last(f"nodes.{node}") or {}).get("born"),
            "changed_at": tuple(
                step for step, version in self._bumps.get(counter or "", ()) if version > saved.version
            ),
        }

    def _saved_label(self, saved: Saved) -> str | None:
        if saved.own:
            return None
        return self._records.shadow_label(saved.tensor) or self._output_label(saved)

    def _output_label(self, saved: Saved) -> str | None:
        """Return the label of the live tensor with the shape, strides and offset of a saved output (saved without its
        tensor); None if there is none.
        """
        record = self._records.memory(saved.storage.mark)
        for other, _ in self._records.live(record) if record is not None else ():
            shadow = other.shadow
            if shadow is not None and (shadow.offset, shadow.shape, shadow.stride) == (
                saved.offset,
                saved.shape,
                saved.stride,
            ):
                return other.label
        return None

    def _now(self) -> int:
        return max(len(self._writer.events) - 1, 0)


def _names(record: TensorRecord) -> dict[str, Any]:
    return {"name": record.names[-1] if record.names else None, "names": list(record.names)}


def read(record: TensorRecord, real: Any) -> TensorFacts:
    """Read the facts of the known tensor ``real`` from torch, without regenerating a stale grad_fn."""
    return tensor_facts.read(real, stale=record.shadow is not None and record.shadow.has_stale_grad_fn)


def quiet_grad_fn(shadow: ShadowTensor, *, regenerates: bool = False) -> Node | None:
    """Return the grad_fn of the shadow, or None if it has none or reading it raises (a view whose base was written in a
    way that autograd forbids).

    A stale grad_fn counts as None, unless ``regenerates`` is True: then it is regenerated, as it is in torch when the
    program reads it.
    """
    if not regenerates and shadow.has_stale_grad_fn:
        return None
    try:
        return shadow.grad_fn
    except (ShadowError, Unmodelled):
        return None
