"""Who is who: the live objects of the program, their shadows, and the labels that the trace calls both by.

Nothing here keeps an object of the program alive: tensors and arrays are held weakly, storages by a reference that
keeps their number unique but not their memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from pitfall_lab.observe import facts
from pitfall_lab.observe.facts import Facts
from pitfall_lab.shadow import Counter, Node, ShadowTensor, Storage


@dataclass(slots=True)
class StorageRecord:
    """One piece of memory: torch may have several StorageImpls for it (NumPy round trips), the shadow has one Storage."""

    label: str
    shadow: Storage
    pointer: int
    nbytes: int
    dtype: str
    itemsize: int
    impls: list[Any] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    shared: bool = False
    """Whether NumPy code can write here without torch knowing."""

    @property
    def alive(self) -> bool:
        """Whether any StorageImpl on this memory still exists."""
        return any(not impl.expired() for impl in self.impls) or not self.impls


@dataclass(slots=True)
class TensorRecord:
    """One tensor or array of the program. ``shadow`` is None for arrays and for opaque tensors (sparse, wrapped)."""

    label: str
    ref: Callable[[], Any]
    shadow: ShadowTensor | None
    kind: str
    born: int
    storage: StorageRecord | None = None
    names: list[str] = field(default_factory=list)
    searches: int = 0
    """How often its name was looked for: a parameter is used (by its initialisation) before its module has a name."""


class Records:
    """The tables. Labels count up in order of birth, one series each for tensors, storages, counters and nodes."""

    def __init__(self) -> None:
        self.by_label: dict[str, TensorRecord] = {}
        self.storages: dict[str, StorageRecord] = {}
        self.nodes: WeakValueDictionary[Any, Node] = WeakValueDictionary()
        self.died: list[str] = []
        self.shared: dict[str, StorageRecord] = {}
        self._left: dict[str, StorageRecord] = {}
        self._by_id: dict[int, TensorRecord] = {}
        self._by_impl: dict[int, StorageRecord] = {}
        self._by_pointer: dict[int, StorageRecord] = {}
        self._counts = {"t": 0, "S": 0, "C": 0, "n": 0}
        kinds = ("tensor", "storage", "counter", "node")
        self._labels: dict[str, WeakKeyDictionary[Any, str]] = {kind: WeakKeyDictionary() for kind in kinds}

    # ------------------------------------------------------------------ labels

    def _next(self, letter: str) -> str:
        self._counts[letter] += 1
        return f"{letter}{self._counts[letter]}"

    def counter_label(self, counter: Counter | None) -> str | None:
        """The label of a counter, made on first sight."""
        if counter is None:
            return None
        known = self._labels["counter"].get(counter)
        if known is None:
            known = self._labels["counter"][counter] = self._next("C")
        return known

    def node_label(self, node: Node | None) -> str | None:
        """The label of a node, or None when the trace does not know it."""
        return None if node is None else self._labels["node"].get(node)

    def label_node(self, node: Node) -> str:
        """Give a new node its label."""
        label = self._labels["node"][node] = self._next("n")
        return label

    def shadow_label(self, shadow: ShadowTensor | None) -> str | None:
        """The label of the tensor that ``shadow`` models, or None."""
        return None if shadow is None else self._labels["tensor"].get(shadow)

    def storage_label(self, storage: Storage | None) -> str | None:
        """The label of a shadow storage, or None."""
        return None if storage is None else self._labels["storage"].get(storage)

    # ------------------------------------------------------------------ tensors

    def find(self, real: Any) -> TensorRecord | None:
        """The record of a live object."""
        record = self._by_id.get(id(real))
        return record if record is not None and record.ref() is real else None

    def enter(self, real: Any, shadow: ShadowTensor | None, kind: str, born: int, storage: StorageRecord | None) -> TensorRecord:
        """Make a record for an object seen for the first time."""
        label = self._next("t")
        key = id(real)
        # The callback must not reference `real`, and records of a finished trace may outlive this table.
        record = TensorRecord(label, facts.weak(real, lambda ref: self._gone(key, ref)), shadow, kind, born, storage)
        self._by_id[key] = self.by_label[label] = record
        if shadow is not None:
            self._labels["tensor"][shadow] = label
        if storage is not None:
            storage.members.add(label)
        return record

    def rebind(self, record: TensorRecord, shadow: ShadowTensor, storage: StorageRecord | None) -> None:
        """Let another shadow stand for a known object (after something happened that was not modelled)."""
        if record.shadow is not None:
            self._labels["tensor"].pop(record.shadow, None)
        if record.storage is not None:
            record.storage.members.discard(record.label)
        record.shadow, record.storage = shadow, storage
        self._labels["tensor"][shadow] = record.label
        if storage is not None:
            storage.members.add(record.label)

    def _gone(self, key: int, ref: Any) -> None:
        record = self._by_id.get(key)
        if record is not None and record.ref is ref:
            del self._by_id[key]
            self.by_label.pop(record.label, None)
            self.died.append(record.label)
            if record.storage is not None:
                record.storage.members.discard(record.label)
                if not record.storage.members:
                    self._left[record.storage.label] = record.storage

    # ------------------------------------------------------------------ storages

    def storage_of(self, seen: Facts) -> StorageRecord | None:
        """The record of the memory a tensor lies in, if it is known: by StorageImpl, else by address."""
        if seen.storage is None:
            return None
        record = self._by_impl.get(seen.storage)
        if record is not None:
            return record
        return self.covering(seen.pointer, seen.nbytes)

    def covering(self, pointer: int, nbytes: int) -> StorageRecord | None:
        """The living memory that contains the byte range, if any."""
        if not pointer or not nbytes:
            return None
        exact = self._by_pointer.get(pointer)
        if exact is not None and nbytes <= exact.nbytes and exact.alive:
            return exact
        # Only NumPy makes a second StorageImpl that begins inside other memory, so few records need the look.
        inside = (r for r in self.shared.values() if r.pointer <= pointer and pointer + nbytes <= r.pointer + r.nbytes)
        return next((record for record in inside if record.alive), None)

    def add_storage(self, shadow: Storage, seen: Facts, real: Any) -> StorageRecord:
        """Make a record for memory seen for the first time."""
        record = StorageRecord(self._next("S"), shadow, seen.pointer, seen.nbytes, seen.dtype, seen.itemsize)
        self.storages[record.label] = record
        if seen.pointer and seen.nbytes:
            self._by_pointer[seen.pointer] = record
        self._labels["storage"][shadow] = record.label
        self.add_impl(record, seen, real)
        return record

    def add_impl(self, record: StorageRecord, seen: Facts, real: Any) -> None:
        """Note one more StorageImpl on known memory."""
        if seen.storage is not None and seen.storage not in self._by_impl:
            record.impls.append(facts.weak_storage(real))
            self._by_impl[seen.storage] = record

    def bury(self) -> tuple[list[str], list[str]]:
        """Return the labels of tensors and storages that died since the last call, and forget them."""
        tensors, self.died = self.died, []
        storages = []
        for label in sorted(self._left, key=lambda name: int(name[1:])):
            record = self._left[label]
            if record.members:
                del self._left[label]
            elif not record.alive:
                # A graph may keep memory that no tensor of the program names any more: it stays in the list until it is gone.
                storages.append(label)
                self._drop(record)
        return tensors, storages

    def _drop(self, record: StorageRecord) -> None:
        del self.storages[record.label], self._left[record.label]
        self.shared.pop(record.label, None)
        if self._by_pointer.get(record.pointer) is record:
            del self._by_pointer[record.pointer]
        for impl in record.impls:
            self._by_impl.pop(impl.cdata, None)

    def share(self, record: StorageRecord) -> None:
        """From now on NumPy code can write this memory without torch knowing."""
        if not record.shared:
            record.shared = True
            self.shared[record.label] = record
            record.shadow.share()

    def offset(self, seen: Facts, storage: StorageRecord) -> int:
        """The tensor's offset in elements of the labelled memory, also when its StorageImpl begins further inside."""
        own = seen.offset or 0
        return own + (seen.pointer - storage.pointer) // seen.itemsize if storage.pointer and seen.pointer else own

    def live(self, storage: StorageRecord) -> Iterator[tuple[TensorRecord, Any]]:
        """Yield the living tensors and arrays on a piece of memory."""
        for label in sorted(storage.members, key=lambda name: int(name[1:])):
            record = self.by_label.get(label)
            real = record.ref() if record is not None else None
            if record is not None and real is not None:
                yield record, real


def array_facts(array: np.ndarray) -> dict[str, Any]:
    """Shape, strides in elements, dtype and address range of a NumPy array."""
    item = max(array.itemsize, 1)
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
    return {
        "shape": list(array.shape), "stride": [step // item for step in array.strides], "dtype": array.dtype.name, "low": low, "high": high,
        "pointer": array.__array_interface__["data"][0], "itemsize": item, "numel": math.prod(array.shape),
    }
