"""Reads live tensors and arrays (:func:`snapshot`), or their graph (:func:`graph`), once and without a recording, as a
trace with one event.

Every view of a trace can then draw it. Nothing is changed or kept alive. A note says what could not be read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from itertools import product
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.namespace import FrameNames
from pitfall_lab.observe.private import byte_bounds
from pitfall_lab.trace import Effect, Event, Failure, Note, Trace
from pitfall_lab.trace.text import plain

Named = Sequence[tuple[str, object]]

CELLS = 16
"""How many cells of a storage are read at most; of a longer storage, those at both ends and at the ends of its
tensors.
"""
NODES = 300
"""How many nodes are read at most; those nearest to the loss first."""
COUNTED = 100_000


def snapshot(values: Named) -> Trace:
    """Return a trace of the memory of ``values``, pairs of a name and a tensor or array: storages, strides, offsets,
    versions, and which of them share memory.

    A value without such memory is left out, with a note that gives the reason.
    """
    # The learner's function modes (a recorder among them) must not see these reads.
    with unseen():
        table = _Table()
        for name, value in values:
            table.take(name, value)
        return table.trace([])


def graph(values: Named, frame: FrameType | None = None) -> Trace:
    """Return a trace of the autograd graph of ``values``, pairs of a name and a tensor: nodes, edges, leaves, and the
    saved tensors with their states. A saved tensor that fails torch's version check adds an event with an error.

    Tensors get the names that they have in ``frame`` (none for None). At most ``NODES`` (300) nodes are read; a note
    counts the rest.
    """
    with unseen():
        walk = _Walk(_names_in(frame))
        for name, value in values:
            walk.start(name, value)
        return walk.trace(frame)


class _Item(NamedTuple):
    """A tensor or array, with the bytes of its storage. ``label`` is empty for a saved tensor without a name."""

    label: str
    name: str
    value: Any
    key: Any
    """The key of its storage if that has no address; else None."""
    low: int
    high: int
    first: int
    """The address of the element at index 0, …, 0."""
    itemsize: int
    grad_fn: str | None


class _Table:
    """Collects tensors and arrays, then determines which of them share memory and version counters."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.notes: list[Note] = []
        self.homes: dict[int, tuple[str, str | None]] = {}
        """For each item, by index, the labels of its storage and counter; filled by :meth:`effects`."""

    def note(self, en: str, zh: str) -> None:
        """Add a note, unless there is one with the same text."""
        if not any(known.en == en for known in self.notes):
            self.notes.append(Note("limit", en, zh))

    def take(self, name: str, value: object, grad_fn: str | None = None, *, named: bool = True) -> int | None:
        """Add a tensor or array; return its index, or ``None``, with a note, if it has no memory that can be read.

        Without ``named`` it gets no label (a saved tensor that has no name).
        """
        label = f"t{1 + sum(bool(item.label) for item in self.items)}" if named else ""
        if isinstance(value, torch.Tensor):
            item = self._tensor(label, name, value, grad_fn)
        elif isinstance(value, np.ndarray):
            item = self._array(label, name, value)
        else:
            kind = type(value).__name__
            self.note(
                f"{name} is of type {kind}: not a tensor or a NumPy array.",
                f"{name} 的类型是 {kind}，不是张量或 NumPy 数组。",
            )
            return None
        if item is None:
            return None
        self.items.append(item)
        return len(self.items) - 1

    def _tensor(self, label: str, name: str, value: torch.Tensor, grad_fn: str | None) -> _Item | None:
        reason = tensor_facts.why_opaque(value)
        if reason is not None:
            self.note(f"{name} is {reason.en}.", f"{name}：{reason.zh}。")
            return None
        read = tensor_facts.read(value)
        low, item = read.pointer, read.itemsize
        first = low + (read.offset or 0) * item
        if read.device == "meta":
            en = f"{name} is on the device meta: it has a shape and strides, but no numbers."
            self.note(en, f"{name} 在 meta 设备上，有形状和步长，没有数值。")
        elif read.device != "cpu":
            en = f"{name} is on {read.device}: its numbers stay there and are not copied."
            self.note(en, f"{name} 在 {read.device} 上，其数值不复制过来。")
        if not low:  # no address (another device, or nothing allocated): a key for the storage, and addresses from 0
            return _Item(label, name, value, ("storage", read.storage), 0, read.nbytes, first, item, grad_fn)
        return _Item(label, name, value, None, low, low + read.nbytes, first, item, grad_fn)

    def _array(self, label: str, name: str, value: np.ndarray) -> _Item | None:
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = byte_bounds(owner)
        own_low, own_high = byte_bounds(value)
        first = value.__array_interface__["data"][0]
        key = None if owner.size else ("array", id(owner))
        return _Item(
            label, name, value, key, min(low, own_low), max(high, own_high), first, max(value.itemsize, 1), None
        )

    def effects(self) -> list[Effect]:
        """Return effects that describe the storages, counters and tensors, in the order of each storage's first
        item.
        """
        out: list[Effect] = []
        counters = 0
        for number, members in enumerate(self._groups(), 1):
            storage = f"S{number}"
            items = [self.items[i] for i in members]
            low, high = min(i.low for i in items), max(i.high for i in items)
            unit = next((i for i in items if isinstance(i.value, torch.Tensor)), items[0])
            out.append(Effect(f"storages.{storage}", self._storage(items, unit, low, high)))
            known: list[tuple[str, torch.Tensor]] = []
            for i in members:
                counter = _counter(self.items[i].value, known)
                if counter == "new":
                    counters += 1
                    counter = f"C{counters}"
                    known.append((counter, self.items[i].value))
                    out.append(Effect(f"counters.{counter}", self.items[i].value._version))
                self.homes[i] = storage, counter
                if self.items[i].label:
                    out.append(
                        Effect(
                            f"tensors.{self.items[i].label}",
                            self._record(self.items[i], storage, counter, unit.itemsize, low),
                        )
                    )
        return out

    def _groups(self) -> list[list[int]]:
        """The indices of items whose bytes overlap, or that have the same storage key, in groups."""
        groups: list[tuple[int, int, list[int]]] = []
        keyed: dict[Any, list[int]] = {}
        for i in sorted(range(len(self.items)), key=lambda i: (self.items[i].low, i)):
            item = self.items[i]
            if item.key is not None:
                keyed.setdefault(item.key, []).append(i)
            elif groups and item.low < groups[-1][1]:
                low, high, members = groups[-1]
                groups[-1] = low, max(high, item.high), [*members, i]
            else:
                groups.append((item.low, item.high, [i]))
        return sorted((sorted(members) for members in [*(g[2] for g in groups), *keyed.values()]), key=min)

    def _storage(self, items: list[_Item], unit: _Item, low: int, high: int) -> dict[str, Any]:
        size = (high - low) // unit.itemsize
        dtype = (
            tensor_facts.dtype_name(unit.value.dtype) if isinstance(unit.value, torch.Tensor) else str(unit.value.dtype)
        )
        chosen = list(range(size)) if size <= CELLS else _chosen(items, low, unit.itemsize, size)
        shown = [[i, cell] for i in chosen if (cell := _cell(unit, low + i * unit.itemsize)) is not None]
        cells = (
            None
            if not shown
            else [cell for _, cell in shown]
            if len(shown) == size
            else {"count": size, "shown": shown}
        )
        if chosen and not shown:
            cells = {"count": size, "shown": [[i, None] for i in chosen]}
        return {"size": size, "dtype": dtype, "nbytes": high - low, "cells": cells, "alive": True}

    def _record(self, item: _Item, storage: str, counter: str | None, unit: int, low: int) -> dict[str, Any]:
        value = item.value
        array = isinstance(value, np.ndarray)
        shape = [int(n) for n in value.shape]
        steps = list(value.strides) if array else [step * item.itemsize for step in value.stride()]
        fits = all(step % unit == 0 for step in steps) and (item.first - low) % unit == 0 and item.itemsize == unit
        if not fits:
            dtype = str(value.dtype) if array else tensor_facts.dtype_name(value.dtype)
            self.note(
                f"{item.name} reads the same bytes as {dtype}: its elements are not the cells drawn here.",
                f"{item.name} 把同样的字节当作 {dtype} 来读，其元素与这里画的格子不对应。",
            )
        read = None if array else tensor_facts.read(value)
        return {
            "kind": "array" if read is None else read.kind,
            "name": item.name or None,
            "names": [item.name] if item.name else [],
            "shape": shape,
            "stride": [step // unit for step in steps] if fits else [],
            "offset": (item.first - low) // unit,
            "dtype": str(value.dtype) if read is None else read.dtype,
            "device": "cpu" if read is None else read.device,
            "storage": storage,
            "counter": counter,
            "requires_grad": read is not None and read.requires_grad,
            "is_leaf": None if read is None else read.is_leaf,
            "grad_fn": item.grad_fn,
            "base": None,
            "grad": None,
            "born": 0,
            "alive": True,
        }

    def trace(self, more: list[Event], effects: list[Effect] | None = None) -> Trace:
        """Return a trace with one event for everything collected, followed by the events ``more``."""
        first = Event(0, "write", "now", effects=tuple(effects if effects is not None else self.effects()))
        return Trace((), (first, *more), notes=tuple(self.notes), environment=tensor_facts.environment())


def _counter(value: Any, known: list[tuple[str, torch.Tensor]]) -> str | None:
    """The label of the known counter that counts the value's writes; ``"new"`` for another one, ``None`` for a value
    without a counter.
    """
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return None
    return next((label for label, other in known if other is value or tensor_facts.shares_counter(other, value)), "new")


def _chosen(items: list[_Item], low: int, unit: int, size: int) -> list[int]:
    """The cells of a long storage that are shown: its ends, and the first few elements and the last one of each tensor;
    at most ``CELLS``.
    """
    chosen: dict[int, None] = dict.fromkeys((0, size - 1))
    per_item = max(2, CELLS // max(len(items), 1) - 1)
    for item in items:
        shape = [int(n) for n in item.value.shape]
        steps = (
            item.value.strides
            if isinstance(item.value, np.ndarray)
            else [s * item.itemsize for s in item.value.stride()]
        )
        if 0 in shape:
            continue
        tails = [[*range(min(n, per_item))] for n in shape]
        ends: Iterable[tuple[int, ...]] = [*_few(tails, per_item), tuple(n - 1 for n in shape)]
        for index in ends:
            place = (item.first - low + sum(i * s for i, s in zip(index, steps, strict=True))) // unit
            if 0 <= place < size and len(chosen) < CELLS:
                chosen[place] = None
    return sorted(chosen)


def _few(axes: list[list[int]], count: int) -> list[tuple[int, ...]]:
    out = []
    for index in product(*axes):
        out.append(index)
        if len(out) >= count:
            break
    return out


def _cell(unit: _Item, address: int) -> Any:
    """One element of a storage, read from memory; ``None`` if it cannot be read or is not a number."""
    tensor = isinstance(unit.value, torch.Tensor)
    if unit.key is not None or (tensor and unit.value.device.type != "cpu"):
        return None
    dtype = tensor_facts.numpy_dtype(unit.value.dtype) if tensor else unit.value.dtype
    if dtype is None or dtype.kind not in "biufc":
        return None
    value = np.frombuffer(ctypes.string_at(address, unit.itemsize), dtype)
    if tensor and unit.value.dtype == torch.bfloat16:
        value = (value.astype(np.uint32) << 16).view(np.float32)
    return plain(value[0].item())


class _Walk:
    """Walks the graph from the loss to the leaves, nearest nodes first, without recursion."""

    def __init__(self, names: dict[Any, tuple[str, torch.Tensor]]) -> None:
        self.names = names
        self.table = _Table()
        self.nodes: dict[Any, list[Any | None]] = {}
        self.roots: list[tuple[str, Any]] = []
        self.more = 0

    def start(self, name: str, value: object) -> None:
        """Collect the nodes in the graph of one value, or add a note if it has no graph.

        At most ``NODES`` nodes are kept, for all values together; the others are counted.
        """
        if not isinstance(value, torch.Tensor):
            self.table.take(name, value)
            if isinstance(value, np.ndarray):
                self.table.items.pop()
                self.table.note(f"{name} is a NumPy array: it has no graph.", f"{name} 是 NumPy 数组，没有计算图。")
            return
        node = tensor_facts.node_of(value)
        if node is None:
            leaf = value.requires_grad
            self.table.note(
                f"{name} is a leaf: nothing computed it, so there is no graph behind it."
                if leaf
                else f"{name} does not require a gradient: torch kept no graph of how it was computed.",
                f"{name} 是叶子张量：没有运算产生它，背后没有计算图。"
                if leaf
                else f"{name} 不需要梯度，torch 没有保留它的计算过程。",
            )
            return
        self.names[node] = (name, value)
        self._collect(node)

    def _collect(self, root: Any) -> None:
        todo, seen = [root], {root}
        for node in todo:  # the list grows during the iteration
            if len(self.nodes) >= NODES:
                self.more += node not in self.nodes
            elif node not in self.nodes:
                self.nodes[node] = []
            if len(todo) > COUNTED:
                return
            following = [source for source, _ in tensor_facts.next_nodes(node)]
            if node in self.nodes:
                self.nodes[node] = following
            for source in following:
                if source is not None and source not in seen:
                    seen.add(source)
                    todo.append(source)

    def trace(self, frame: FrameType | None) -> Trace:
        """Return the nodes as a trace, oldest first, with an error event for each saved tensor that fails torch's
        version check.
        """
        table, finder = self.table, FrameNames()
        if self.more:
            table.note(
                f"{self.more} more nodes, farther from the loss, are not drawn.",
                f"另有 {self.more} 个离损失更远的节点未画出。",
            )
        order = sorted(self.nodes, key=_age)
        labels = {node: f"n{i}" for i, node in enumerate(order, 1)}
        outputs: dict[Any, int | None] = {}
        for node in order:
            leaf = tensor_facts.leaf_of(node)
            if leaf is not None:
                outputs[node] = table.take(next(iter(finder.names(leaf, frame)), ""), leaf)
            elif node in self.names:
                outputs[node] = table.take(*self.names[node], labels[node])
        slots = [
            (node, slot, self._place(slot, finder, frame)) for node in order for slot in tensor_facts.slots_of(node)
        ]
        if any(slot.state == "hooked" for _, slot, _ in slots):
            en = "Some tensors were saved through hooks (saved_tensors_hooks, checkpointing): they were not unpacked."
            table.note(en, "有些张量经钩子保存（saved_tensors_hooks、checkpoint），不为查看而解包。")
        effects = table.effects()
        label_of = {id(item.value): item.label for item in table.items if item.label}
        saved: dict[Any, list[dict[str, Any]]] = {}
        refused: list[Event] = []
        for node, slot, place in slots:
            storage, counter = table.homes[place] if place is not None else (None, None)
            owner = label_of.get(id(slot.tensor))
            record = {
                "name": slot.name,
                "tensor": owner,
                "storage": storage,
                "counter": counter,
                "version": slot.version,
            }
            record["state"] = slot.state
            saved.setdefault(node, []).append(record)
            if slot.state == "stale":
                refused.append(_refusal(len(refused) + 1, node, labels[node], slot, record))
        for node in order:
            at = outputs.get(node)
            output = table.items[at].label if at is not None else None
            following = [labels.get(source) for source in self.nodes[node]]
            effects.append(Effect(f"nodes.{labels[node]}", _node_record(node, following, output, saved.get(node, []))))
        return table.trace(refused, effects)

    def _place(self, slot: tensor_facts.Slot, finder: FrameNames, frame: FrameType | None) -> int | None:
        """Add a saved tensor to the table, with its name in the program if it has one; return its index (None without a
        tensor).
        """
        if slot.tensor is None:
            return None
        known = any(item.value is slot.tensor and item.label for item in self.table.items)
        name = "" if known else next(iter(finder.names(slot.tensor, frame)), "")
        return self.table.take(name, slot.tensor, named=bool(name))


def _age(node: Any) -> int:
    """The sort key of a node: leaves first, then by sequence number."""
    return -1 if tensor_facts.leaf_of(node) is not None else tensor_facts.sequence_of(node)


def _refusal(step: int, node: Any, label: str, slot: tensor_facts.Slot, record: dict[str, Any]) -> Event:
    failure = Failure(
        "RuntimeError",
        slot.message,
        "saved-tensor-modified",
        step,
        node=label,
        saved=slot.name,
        tensor=record["tensor"],
        storage=record["storage"],
        counter=record["counter"],
        expected=slot.version,
        found=slot.now,
    )
    return Event(step, "node", tensor_facts.node_name(node), error=failure)


def _node_record(
    node: Any, following: list[str | None], output: str | None, saved: list[dict[str, Any]]
) -> dict[str, Any]:
    shapes = tensor_facts.outputs_of(node)
    freed = any(slot["state"] == "freed" for slot in saved)
    return {
        "name": tensor_facts.node_name(node),
        "next": following,
        "born": 0,
        "output": output,
        "saved": saved,
        "freed": freed,
        "ran": None,
        "gradient": None,
        "gradient_shape": list(shapes[0][0]) if shapes else None,
    }


def _names_in(frame: FrameType | None) -> dict[Any, tuple[str, torch.Tensor]]:
    """The variables of a frame that are tensors with a grad_fn, by that node; locals before globals, without names that
    begin with ``_``.
    """
    out: dict[Any, tuple[str, torch.Tensor]] = {}
    for variables in (frame.f_locals, frame.f_globals) if frame is not None else ():
        for name, value in list(variables.items()):
            if isinstance(value, torch.Tensor) and not name.startswith("_") and value.requires_grad:
                node = tensor_facts.node_of(value)
                if node is not None:
                    out.setdefault(node, (name, value))
    return out
