"""Tables (:class:`Records`) that connect each live tensor, array, storage and node of the program with its shadow (the
engine's copy) and its label in the trace.

Nothing here keeps the program's objects alive: tensors and arrays are referred to weakly, storages by a weak reference
to the StorageImpl, which keeps its address unique but not its memory alive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.private import byte_bounds, is_gone, let_go
from pitfall_lab.observe.swapping import Watching
from pitfall_lab.observe.tensor_facts import TensorFacts
from pitfall_lab.shadow import Counter, Node, ShadowTensor, Storage
from pitfall_lab.shadow.graph import Graph, full_name
from pitfall_lab.shadow.recipes import Window
from pitfall_lab.verify.fastpath.event_rows import Deaths, Rows

LOOKS = 16
"""How many storages without a live tensor are checked after each call for whether they have been freed."""


class StorageRecord:
    """One block of memory. Torch may have several StorageImpls for it (after NumPy round trips); the shadow has one
    Storage, ``shadow``. ``mark`` is the number in its label.

    ``impls`` are the weak references to the StorageImpls; ``members`` are the marks of the live tensors and arrays on
    this memory; ``shared`` is True if NumPy code can write it without torch's knowledge. ``nbytes`` is its size and
    ``itemsize`` that of an element, in bytes, ``dtype`` the name of the element's dtype. ``pointer``, its address, is
    None until :meth:`Records.covering` first needs it. ``readable`` is the mark of a tensor whose memory could be read,
    or 0.
    """

    __slots__ = ("dtype", "impls", "itemsize", "mark", "members", "nbytes", "pointer", "readable", "shadow", "shared")

    def __init__(  # noqa: PLR0917 - its facts
        self, mark: int, shadow: Storage, pointer: int | None, nbytes: int, dtype: str, itemsize: int
    ) -> None:
        self.mark = mark
        self.shadow = shadow
        self.pointer = pointer
        self.nbytes = nbytes
        self.dtype = dtype
        self.itemsize = itemsize
        self.impls: tuple[int, ...] = ()
        self.members: set[int] = set()
        self.shared = False
        self.readable = 0

    @property
    def label(self) -> str:
        """The storage's label, such as ``"S2"``."""
        return f"S{self.mark}"

    @property
    def alive(self) -> bool:
        """Whether any StorageImpl of this memory still exists; True while none is known."""
        impls = self.impls
        return not is_gone(impls[0]) if len(impls) == 1 else not impls or not all(map(is_gone, impls))


class TensorRecord(Watching):
    """One tensor or array of the program. The record is itself the weak reference to it: calling it returns the object
    or None.

    ``mark`` is the number in its label, ``key`` the object's id, ``kind`` ``tensor``, ``parameter`` or ``array``,
    ``born`` the step at which it was first seen, ``names`` its names in the program, ``records`` the tables that
    contain it. ``shadow`` is None for arrays and for opaque tensors (sparse, wrapped). ``searches`` counts how often a
    name was searched for: a parameter is used, by its initialization, before its module has a name. ``place`` is its
    StorageRecord, or just the weak reference to the StorageImpl while no StorageRecord has been needed (the common
    case).

    Most shadows are never needed either. Such a shadow is created on first access of :attr:`shadow`, from ``window``
    (its shape, strides, dtype and so on; None once the shadow exists) and ``node`` (its grad_fn); ``made`` is the
    shadow that exists.
    """

    __slots__ = (
        "born", "epoch", "form", "key", "kind", "made", "mark", "names", "node", "place", "records", "searches",
        "window",
    )  # fmt: skip

    key: int
    mark: int
    made: ShadowTensor | None
    window: Window | None
    node: Node | None
    kind: str
    born: int
    place: StorageRecord | int | None
    records: Records
    names: tuple[str, ...]
    searches: int
    form: Any
    """The cached form of the shadow, valid in ``epoch``."""
    epoch: int
    # A weak reference compares its referents with ==, which compares tensors element by element.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """The tensor's label, such as ``"t3"``."""
        return f"t{self.mark}"

    @property
    def shadow(self) -> ShadowTensor | None:
        """Return the shadow tensor, created now if it does not exist yet; None for arrays and opaque tensors."""
        if self.window is None:
            return self.made
        births = self.records.rows.births(self.born)
        self.shadow = shadow = self.window.tensor(self.records.graph, self.node)
        shadow.mark, shadow.storage.mark, shadow.counter.mark = births.t + 1, births.S + 1, births.C + 1  # type: ignore[union-attr]
        return shadow

    @shadow.setter
    def shadow(self, shadow: ShadowTensor | None) -> None:
        self.made, self.window, self.node = shadow, None, None

    @property
    def graph_node(self) -> Node | None:
        """The node of the tensor's grad_fn (None without one); it is read without creating the shadow."""
        return self.node if self.window is not None else self.made.node if self.made is not None else None

    @property
    def storage(self) -> StorageRecord | None:
        """The record of the memory that the tensor uses; None for an opaque tensor."""
        place = self.place
        return self.records.settle(self) if type(place) is int else place  # type: ignore[return-value]


def torch_key_of(node: Node) -> Any:
    """Return the key (:func:`.tensor_facts.node_key`) of the torch node that the shadow node ``node`` models, or None
    if it has none.

    The fast path stores only the node's sequence number.
    """
    torch_key = node.torch_key
    return (torch_key, full_name(node.name)) if type(torch_key) is int else torch_key


class Nodes:
    """A table of shadow nodes by the key of the torch node that each models (:func:`torch_key_of`).

    Nodes are referred to weakly; dead entries are removed whenever the table has doubled. Nodes created on the fast
    path are not entered at once: the first lookup that needs them enters them all, by walking the graph from the live
    tensors.
    """

    def __init__(self, living: dict[int, TensorRecord]) -> None:
        self._living = living
        self._refs: dict[Any, ref[Node]] = {}
        self._room = 1024
        self.latest = -1
        """The highest sequence number of a node that was created on the fast path and is not entered yet."""

    def get(self, key: Any) -> Node | None:
        """Return the live node with this key, or None."""
        found = self._refs.get(key)
        node = None if found is None else found()
        if node is None and type(key[0]) is int and key[0] <= self.latest:
            self._enter_all()
            found = self._refs.get(key)
            node = None if found is None else found()
        return node

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Any, node: Node) -> None:
        node.torch_key = key
        self._refs[key] = ref(node)
        if len(self._refs) > self._room:
            self._refs = {known: reference for known, reference in self._refs.items() if reference() is not None}
            self._room = max(1024, 2 * len(self._refs))

    def forget(self, key: Any) -> None:
        """Remove the entry of a key whose object no longer exists; another object may get the same key."""
        self._refs.pop(key, None)

    def _enter_all(self) -> None:
        self.latest = -1
        living = self._living.values()
        work: list[Any] = [record.node if record.window else record.made and record.made.node for record in living]
        seen: set[Node] = set()
        while work:
            node = work.pop()
            if node is not None and node not in seen:
                seen.add(node)
                key = torch_key_of(node)
                if key is not None:
                    self[key] = node
                work += node.children


class Records:
    """All tables of the program's live objects.

    Labels (``t3``, ``S2``, ``C1``, ``n5``) are numbered in order of creation, separately for tensors, storages, version
    counters and nodes. Each object stores its label's number as ``mark``. ``by_mark`` has the records of tensors and
    arrays by their marks, ``storages`` those of storages.
    """

    def __init__(self) -> None:
        self.by_mark: dict[int, TensorRecord] = {}
        self.storages: dict[int, StorageRecord] = {}
        self.nodes = Nodes(self.by_mark)
        self.died: list[TensorRecord] = []
        self.shared: dict[int, StorageRecord] = {}
        self.left: dict[int, StorageRecord] = {}
        self.by_id: dict[int, TensorRecord] = {}
        self.by_impl: dict[int, StorageRecord] = {}
        self.fresh: dict[int, TensorRecord] = {}
        """Tensors without a StorageRecord yet, by the weak reference to their StorageImpl."""
        self._by_pointer: dict[int, StorageRecord] = {}
        self.strange_gradients: dict[int, str] = {}
        """Marks of the tensors whose gradient has no strided memory (a sparse gradient), with the reason."""
        self.tensor_count = self.storage_count = self.counter_count = self.node_count = 0
        self.graph: Graph
        """The engine's graph; set by its owner."""
        self.rows: Rows
        """The trace's rows; set by its owner."""

    # ------------------------------------------------------------------ labels

    def counter_label(self, counter: Counter | None) -> str | None:
        """Return the label of a version counter (None for None); a counter without a label gets the next one."""
        if counter is None:
            return None
        if not counter.mark:
            self.counter_count += 1
            counter.mark = self.counter_count
        return f"C{counter.mark}"

    @staticmethod
    def node_label(node: Node | None) -> str | None:
        """Return the label of a node, or None if it is not in the trace."""
        return None if node is None or not node.mark else f"n{node.mark}"

    def label_node(self, node: Node) -> None:
        """Give a new node its label."""
        self.node_count += 1
        node.mark = self.node_count

    @staticmethod
    def shadow_label(shadow: ShadowTensor | None) -> str | None:
        """Return the label of the tensor that ``shadow`` models, or None."""
        return None if shadow is None or not shadow.mark else f"t{shadow.mark}"

    @staticmethod
    def storage_label(storage: Storage | None) -> str | None:
        """Return the label of a shadow storage, or None."""
        return None if storage is None or not storage.mark else f"S{storage.mark}"

    # ------------------------------------------------------------------ tensors

    def find(self, real: Any) -> TensorRecord | None:
        """Return the record of a live object; None if it has none."""
        record = self.by_id.get(id(real))
        return record if record is not None and record() is real else None

    def named(self, label: str | None) -> TensorRecord | None:
        """Return the record of the live tensor or array with this label; None for None, or if there is none."""
        return self.by_mark.get(int(label[1:])) if label else None

    def modelled_by(self, shadow: ShadowTensor | None) -> TensorRecord | None:
        """Return the record of the live tensor that ``shadow`` models; None if there is none."""
        return None if shadow is None else self.by_mark.get(shadow.mark)

    def enter(
        self, real: Any, shadow: ShadowTensor | None, kind: str, born: int, storage: StorageRecord | None
    ) -> TensorRecord:
        """Create and return a record, with the next label, for the tensor or array ``real``, seen for the first time at
        step ``born``.

        ``shadow`` and ``storage`` are None if it has none. ``kind`` is ``"tensor"``, ``"parameter"`` or ``"array"``.
        """
        self.tensor_count += 1
        return self.enter_as(self.tensor_count, real, shadow, kind, born, storage)

    def enter_as(  # noqa: PLR0917 - what a record is made of
        self, mark: int, real: Any, shadow: ShadowTensor | None, kind: str, born: int, storage: StorageRecord | None
    ) -> TensorRecord:
        """Create and return a record as :meth:`enter` does, with the label number ``mark``, which was already
        reserved.
        """
        record = TensorRecord(real, self.gone)
        record.key = key = id(real)
        record.mark, record.shadow, record.kind, record.born, record.place, record.records = (
            mark,
            shadow,
            kind,
            born,
            storage,
            self,
        )
        record.names, record.searches, record.form, record.epoch = (), 0, None, -1
        self.by_id[key] = self.by_mark[mark] = record
        if shadow is not None:
            shadow.mark = mark
        if storage is not None:
            storage.members.add(mark)
        return record

    def rebind(self, record: TensorRecord, shadow: ShadowTensor, storage: StorageRecord | None) -> None:
        """Connect a known object with another shadow and storage (after a change that was not modelled)."""
        if record.shadow is not None:
            record.shadow.mark = 0
        if record.storage is not None:
            record.storage.members.discard(record.mark)
        record.shadow, record.place = shadow, storage
        shadow.mark = record.mark
        if storage is not None:
            storage.members.add(record.mark)

    def exchange(self, one: TensorRecord, other: TensorRecord) -> None:
        """Swap the shadows, storages and kinds of two objects that torch.utils.swap_tensors swapped; labels and names
        are unchanged.
        """
        was = [
            (record.shadow, record.storage, record.kind, self.strange_gradients.pop(record.mark, None))
            for record in (one, other)
        ]
        for record in (one, other):
            self.nodes.forget(("leaf", record.key))
            if record.storage is not None:
                record.storage.members.discard(record.mark)
        for record, (shadow, storage, kind, strange) in zip((other, one), was, strict=True):
            record.shadow, record.place, record.kind, record.form, record.epoch = shadow, storage, kind, None, -1
            if storage is not None:
                storage.members.add(record.mark)
            if strange is not None:
                self.strange_gradients[record.mark] = strange
            if shadow is not None:
                shadow.mark = record.mark
                accumulator = shadow.accumulator() if shadow.accumulator is not None else None
                if accumulator is not None:
                    self.nodes["leaf", record.key] = accumulator

    def gone(self, record: Any) -> None:
        """Callback of the weak reference: the object no longer exists."""
        known: Any = self.by_id.get(record.key)
        if known is record:
            del self.by_id[record.key]
            if record.window is None and (record.made is None or record.made.accumulator is not None):
                # A leaf's AccumulateGrad is keyed by the leaf's address (`tensor_facts.node_key`),
                # which the next tensor may get.
                self.nodes.forget(("leaf", record.key))
        if self.by_mark.pop(record.mark, None) is not None:
            self.died.append(record)

    # ------------------------------------------------------------------ storages

    def storage_of(self, seen: TensorFacts) -> StorageRecord | None:
        """Return the record of the memory of a tensor with the facts ``seen``, found by its StorageImpl, else by its
        address; None if the memory is not known.
        """
        if seen.storage is None:
            return None
        record = self.by_impl.get(seen.storage) or self._settled(seen.storage)
        if record is not None:
            if record.pointer != seen.pointer and len(record.impls) == 1:
                self._move(record, seen)
            return record
        return self.covering(seen.pointer, seen.nbytes)

    def _move(self, record: StorageRecord, seen: TensorFacts) -> None:
        """Update the address and size of a StorageImpl whose memory was replaced (``resize_``, ``share_memory_``)."""
        if record.pointer is not None and self._by_pointer.get(record.pointer) is record:
            del self._by_pointer[record.pointer]
        record.pointer, record.nbytes = seen.pointer, seen.nbytes
        if seen.pointer and seen.nbytes:
            self._by_pointer[seen.pointer] = record

    def covering(self, pointer: int, nbytes: int) -> StorageRecord | None:
        """Return the record of the live memory that contains the ``nbytes`` bytes from the address ``pointer``, or
        None; memory that begins before this address is found only if NumPy shares it.
        """
        self._place_all()
        if not pointer or not nbytes:
            return None
        exact = self._by_pointer.get(pointer)
        if exact is not None and nbytes <= exact.nbytes and exact.alive:
            return exact
        # Only NumPy makes a second StorageImpl that begins inside other memory, so it is enough
        # to search the shared records.
        inside = (
            r
            for r in self.shared.values()
            if r.pointer and r.pointer <= pointer and pointer + nbytes <= r.pointer + r.nbytes
        )
        return next((record for record in inside if record.alive), None)

    def add_storage(self, shadow: Storage, seen: TensorFacts, real: Any) -> StorageRecord:
        """Create and return a record for memory seen for the first time."""
        self.storage_count += 1
        record = StorageRecord(self.storage_count, shadow, seen.pointer, seen.nbytes, seen.dtype, seen.itemsize)
        self.storages[record.mark] = record
        if seen.pointer and seen.nbytes:
            self._by_pointer[seen.pointer] = record
        shadow.mark = record.mark
        self.add_impl(record, seen, real)
        return record

    def settle(self, record: TensorRecord) -> StorageRecord:
        """Create, enter and return the StorageRecord of a tensor that had only a weak reference to its StorageImpl."""
        impl, storage = record.place, record.shadow.storage  # type: ignore[union-attr]
        nbytes, name = storage.size * storage.dtype.itemsize, storage.dtype[:]
        record.place = place = StorageRecord(storage.mark, storage, None, nbytes, name, storage.dtype.itemsize)
        if self.fresh.get(impl) is record:  # type: ignore[arg-type]
            del self.fresh[impl]  # type: ignore[arg-type]
            place.members.add(record.mark)
            self.add_new_storage(place, impl)  # type: ignore[arg-type]
        return place  # else the memory was freed with the tensor

    def _settled(self, impl: int) -> StorageRecord | None:
        record = self.fresh.get(impl)
        return None if record is None else self.settle(record)

    def memory(self, mark: int) -> StorageRecord | None:
        """Return the record of the storage with this mark, or None."""
        if mark not in self.storages:
            for record in list(self.fresh.values()):
                self.settle(record)
        return self.storages.get(mark)

    def lies_at(self, impl: int, storage: StorageRecord) -> bool:
        """Whether the StorageImpl belongs to this recorded storage."""
        return (self.by_impl.get(impl) or self._settled(impl)) is storage

    def knows(self, impl: int) -> bool:
        """Whether the StorageImpl belongs to a recorded storage."""
        return impl in self.fresh or impl in self.by_impl

    def add_new_storage(self, record: StorageRecord, impl: int) -> None:
        """Enter the storage ``record``, which is seen for the first time; ``impl`` is a weak reference to its
        StorageImpl.
        """
        self.storages[record.mark] = self.by_impl[impl] = record
        record.shadow.mark = record.mark
        record.impls = (impl,)

    def _place_all(self) -> None:
        """Read the addresses of the storages that were entered without one."""
        for tensor in list(self.fresh.values()):
            self.settle(tensor)
        for record in reversed(self.storages.values()):
            if record.pointer is not None:
                return
            record.pointer = 0
            storage = tensor_facts.storage_behind(record.impls[0])
            if storage is not None and record.nbytes:
                record.pointer = storage.data_ptr()
                self._by_pointer[record.pointer] = record

    def add_impl(self, record: StorageRecord, seen: TensorFacts, real: Any) -> None:
        """Add another StorageImpl to a known storage."""
        if seen.storage is not None and not self.knows(seen.storage):
            record.impls += (tensor_facts.weak_storage(real),)
            self.by_impl[seen.storage] = record

    def bury(self) -> Deaths:  # noqa: C901 - runs after every call
        """Return the marks of the tensors and those of the storages that died since the last call, and remove their
        records; if one tensor died together with its storage, only the step at which both were created.

        A graph may keep a storage alive after its last tensor died. Such storages are checked again after every call,
        those that waited longest first, but only :data:`LOOKS` of them: the cost of a call must not grow with the
        number of tensors created so far.
        """
        died = self.died
        if len(died) == 1 and not self.left:
            record = died[0]
            impl = record.place
            if type(impl) is int and is_gone(impl):
                # The usual case: a name was bound to another object.
                died.clear()
                del self.fresh[impl]
                let_go(impl)
                return record.born
        self.died = []
        gone = []
        for record in died:
            place = record.storage
            if place is not None:
                place.members.discard(record.mark)
                if not place.members:
                    if place.alive:
                        self.left[place.mark] = place
                    elif place.mark in self.storages:
                        gone.append(place.mark)
                        self._drop(place)
        for mark in list(itertools.islice(self.left, LOOKS)) if self.left else ():
            left = self.left.pop(mark)
            if not left.members:
                if left.alive:
                    self.left[mark] = left
                else:
                    gone.append(mark)
                    self._drop(left)
        return tuple([record.mark for record in died]), tuple(sorted(gone))

    def _drop(self, record: StorageRecord) -> None:
        del self.storages[record.mark]
        if record.shared:
            del self.shared[record.mark]
        if record.pointer is not None and self._by_pointer.get(record.pointer) is record:
            del self._by_pointer[record.pointer]
        for impl in record.impls:
            del self.by_impl[impl]
            let_go(impl)

    def __del__(self) -> None:
        for impl in (*self.by_impl, *self.fresh):
            let_go(impl)

    def share(self, record: StorageRecord) -> None:
        """Mark a storage as writable by NumPy code without torch's knowledge."""
        if not record.shared:
            record.shared = True
            self.shared[record.mark] = record
            record.shadow.share()

    def offset(self, seen: TensorFacts, storage: StorageRecord) -> int:
        """Return the offset, in elements from the start of the recorded memory, of a tensor with the facts ``seen``,
        even if its StorageImpl begins further inside.
        """
        own = seen.offset or 0
        return own + (seen.pointer - storage.pointer) // seen.itemsize if storage.pointer and seen.pointer else own

    @staticmethod
    def offset_of(real: Any, storage: StorageRecord) -> int:
        """Like :meth:`offset`, read from the tensor itself."""
        own: int = real.storage_offset()
        pointer = real.untyped_storage().data_ptr() if storage.pointer else 0
        return (
            own + (pointer - storage.pointer) // storage.itemsize
            if storage.pointer and pointer not in (0, storage.pointer)
            else own
        )

    def live(self, storage: StorageRecord) -> Iterator[tuple[TensorRecord, Any]]:
        """Yield the live tensors and arrays on a storage: for each its record and the object."""
        for mark in sorted(storage.members):
            record = self.by_mark.get(mark)
            real = record() if record is not None else None
            if record is not None and real is not None:
                yield record, real


def array_facts(array: np.ndarray) -> dict[str, Any]:
    """Return facts about a NumPy array, as a dict: its shape, strides (in elements) and dtype name, its range of
    addresses (``low``, ``high``: the first byte and the one after the last; 0 if it is empty), the address of its first
    element (``pointer``), and its ``itemsize`` and ``numel``.
    """
    item = max(array.itemsize, 1)
    low, high = byte_bounds(array) if array.size else (0, 0)
    return {
        "shape": list(array.shape),
        "stride": [step // item for step in array.strides],
        "dtype": array.dtype.name,
        "low": low,
        "high": high,
        "pointer": array.__array_interface__["data"][0],
        "itemsize": item,
        "numel": math.prod(array.shape),
    }
