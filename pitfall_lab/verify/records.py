"""Who is who: the live objects of the program, their shadows, and the labels that the trace calls both by.

Nothing here keeps an object of the program alive: tensors and arrays are held weakly, storages by a reference that
keeps their number unique but not their memory.
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
from pitfall_lab.observe.tensor_facts import Facts
from pitfall_lab.shadow import Counter, Node, ShadowTensor, Storage
from pitfall_lab.shadow.graph import Graph, full_name
from pitfall_lab.shadow.recipes import Window
from pitfall_lab.verify.fastpath.event_rows import Deaths, Rows

LOOKS = 16
"""How many of the storages that lost their last tensor are asked after each call whether they are gone."""


class StorageRecord:
    """One piece of memory: torch may have several StorageImpls for it (NumPy round trips), the shadow has one Storage.

    ``impls`` are weak references to the StorageImpls, as :func:`facts.weak_storage` makes them; ``members`` the marks of the living
    tensors and arrays on this memory; ``shared`` says whether NumPy code can write here without torch knowing. ``pointer`` is None
    until somebody asks for memory by its address (:meth:`Records.covering`).
    """

    __slots__ = ("dtype", "impls", "itemsize", "mark", "members", "nbytes", "pointer", "shadow", "shared")

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

    @property
    def label(self) -> str:
        """``"S2"``."""
        return f"S{self.mark}"

    @property
    def alive(self) -> bool:
        """Whether any StorageImpl on this memory still exists."""
        impls = self.impls
        return not is_gone(impls[0]) if len(impls) == 1 else not impls or not all(map(is_gone, impls))


class TensorRecord(Watching):
    """One tensor or array of the program, held weakly: the record *is* the weak reference.

    ``shadow`` is None for arrays and for opaque tensors (sparse, wrapped). ``searches`` says of a parameter how often its name was looked
    for: it is used (by its initialisation) before its module has a name. ``place`` is its memory: most results have memory of their own
    that goes when they go, and of which nobody asks; there it is only the weak reference to the StorageImpl, kept by ``records``, and the
    event of their birth is a row.

    Of most results nobody asks for the shadow either. Then it is only ``made`` when somebody does: until then there are the ``window``
    that it will be (None once there is a shadow) and the ``node`` that it comes from.
    """

    __slots__ = (
        "born", "epoch", "form", "key", "kind", "made", "mark", "names", "node", "place", "records", "searches", "window",
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
    """The form of the shadow (metadata mode), as of ``epoch``."""
    epoch: int
    # A weak reference would compare what it refers to: tensors, number by number.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """``"t3"``."""
        return f"t{self.mark}"

    @property
    def shadow(self) -> ShadowTensor | None:
        """What stands for it in the shadow."""
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
    def storage(self) -> StorageRecord | None:
        """The memory that it lies in; None for an opaque tensor."""
        place = self.place
        return self.records.settle(self) if type(place) is int else place  # type: ignore[return-value]


def twin_of(node: Node) -> Any:
    """The key of torch's node that a shadow node stands for, or None. The express lane notes only its sequence number."""
    twin = node.twin
    return (twin, full_name(node.name)) if type(twin) is int else twin


class Nodes:
    """Shadow nodes by the key of torch's node (:func:`twin_of`).

    Nothing is kept alive; what died is forgotten when the table has doubled. Nodes made in the express lane know their twin and are
    entered here when somebody asks for one, by walking the graph from the tensors that live.
    """

    def __init__(self, living: dict[int, TensorRecord]) -> None:
        self._living = living
        self._refs: dict[Any, ref[Node]] = {}
        self._room = 1024
        self.latest = -1
        """The highest sequence number of torch's that a node was made with in the express lane and not entered."""

    def get(self, key: Any) -> Node | None:
        """The living node with this key, or None."""
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
        node.twin = key
        self._refs[key] = ref(node)
        if len(self._refs) > self._room:
            self._refs = {known: reference for known, reference in self._refs.items() if reference() is not None}
            self._room = max(1024, 2 * len(self._refs))

    def forget(self, key: Any) -> None:
        """What had this key is gone; something else may get it."""
        self._refs.pop(key, None)

    def _enter_all(self) -> None:
        self.latest = -1
        living = self._living.values()
        work = [record.node if record.window else record.made and record.made.node for record in living]
        seen: set[Node] = set()
        while work:
            node = work.pop()
            if node is not None and node not in seen:
                seen.add(node)
                key = twin_of(node)
                if key is not None:
                    self[key] = node
                work += node.children


class Records:
    """The tables. Labels count up in order of birth, one series each for tensors, storages, counters and nodes.

    The number of a label is kept on the shadow's object itself, as its ``mark``.
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
        """The tensors of whose memory no record has been made yet, by their StorageImpl."""
        self._by_pointer: dict[int, StorageRecord] = {}
        self.strange_gradients: dict[int, str] = {}
        """Marks of the tensors whose gradient has no strided memory (a sparse one), with the reason."""
        self.tensor_count = self.storage_count = self.counter_count = self.node_count = 0
        self.graph: Graph
        """The engine's."""
        self.rows: Rows
        """The trace's."""

    # ------------------------------------------------------------------ labels

    def counter_label(self, counter: Counter | None) -> str | None:
        """The label of a counter, made on first sight."""
        if counter is None:
            return None
        if not counter.mark:
            self.counter_count += 1
            counter.mark = self.counter_count
        return f"C{counter.mark}"

    @staticmethod
    def node_label(node: Node | None) -> str | None:
        """The label of a node, or None when the trace does not know it."""
        return None if node is None or not node.mark else f"n{node.mark}"

    def label_node(self, node: Node) -> None:
        """Give a new node its label."""
        self.node_count += 1
        node.mark = self.node_count

    @staticmethod
    def shadow_label(shadow: ShadowTensor | None) -> str | None:
        """The label of the tensor that ``shadow`` models, or None."""
        return None if shadow is None or not shadow.mark else f"t{shadow.mark}"

    @staticmethod
    def storage_label(storage: Storage | None) -> str | None:
        """The label of a shadow storage, or None."""
        return None if storage is None or not storage.mark else f"S{storage.mark}"

    # ------------------------------------------------------------------ tensors

    def find(self, real: Any) -> TensorRecord | None:
        """The record of a live object."""
        record = self.by_id.get(id(real))
        return record if record is not None and record() is real else None

    def named(self, label: str | None) -> TensorRecord | None:
        """The record of the living tensor or array with this label."""
        return self.by_mark.get(int(label[1:])) if label else None

    def modelled_by(self, shadow: ShadowTensor | None) -> TensorRecord | None:
        """The record of the living tensor that ``shadow`` models."""
        return None if shadow is None else self.by_mark.get(shadow.mark)

    def enter(self, real: Any, shadow: ShadowTensor | None, kind: str, born: int, storage: StorageRecord | None) -> TensorRecord:
        """Make a record for an object seen for the first time."""
        self.tensor_count += 1
        return self.enter_as(self.tensor_count, real, shadow, kind, born, storage)

    def enter_as(  # noqa: PLR0917 - what a record is made of
        self, mark: int, real: Any, shadow: ShadowTensor | None, kind: str, born: int, storage: StorageRecord | None
    ) -> TensorRecord:
        """Make a record with a label that has been counted."""
        record = TensorRecord(real, self.gone)
        record.key = key = id(real)
        record.mark, record.shadow, record.kind, record.born, record.place, record.records = mark, shadow, kind, born, storage, self
        record.names, record.searches, record.form, record.epoch = (), 0, None, -1
        self.by_id[key] = self.by_mark[mark] = record
        if shadow is not None:
            shadow.mark = mark
        if storage is not None:
            storage.members.add(mark)
        return record

    def rebind(self, record: TensorRecord, shadow: ShadowTensor, storage: StorageRecord | None) -> None:
        """Let another shadow stand for a known object (after something happened that was not modelled)."""
        if record.shadow is not None:
            record.shadow.mark = 0
        if record.storage is not None:
            record.storage.members.discard(record.mark)
        record.shadow, record.place = shadow, storage
        shadow.mark = record.mark
        if storage is not None:
            storage.members.add(record.mark)

    def exchange(self, one: TensorRecord, other: TensorRecord) -> None:
        """Two objects have swapped what they are; their labels and names stay with them."""
        was = [(record.shadow, record.storage, record.kind, self.strange_gradients.pop(record.mark, None)) for record in (one, other)]
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
        """An object has died."""
        if self.by_id.get(record.key) is record:
            del self.by_id[record.key]
            if record.window is None and (record.made is None or record.made.accumulator is not None):
                # A leaf's AccumulateGrad is known by the leaf's address (`facts.node_key`), which the next tensor may get.
                self.nodes.forget(("leaf", record.key))
        if self.by_mark.pop(record.mark, None) is not None:
            self.died.append(record)

    # ------------------------------------------------------------------ storages

    def storage_of(self, seen: Facts) -> StorageRecord | None:
        """The record of the memory a tensor lies in, if it is known: by StorageImpl, else by address."""
        if seen.storage is None:
            return None
        record = self.by_impl.get(seen.storage) or self._settled(seen.storage)
        if record is not None:
            if record.pointer != seen.pointer and len(record.impls) == 1:
                self._move(record, seen)
            return record
        return self.covering(seen.pointer, seen.nbytes)

    def _move(self, record: StorageRecord, seen: Facts) -> None:
        """Follow one StorageImpl to the place where it has its memory now (``resize_``, ``share_memory_``)."""
        if self._by_pointer.get(record.pointer) is record:
            del self._by_pointer[record.pointer]
        record.pointer, record.nbytes = seen.pointer, seen.nbytes
        if seen.pointer and seen.nbytes:
            self._by_pointer[seen.pointer] = record

    def covering(self, pointer: int, nbytes: int) -> StorageRecord | None:
        """The living memory that contains the byte range, if any."""
        self._place_all()
        if not pointer or not nbytes:
            return None
        exact = self._by_pointer.get(pointer)
        if exact is not None and nbytes <= exact.nbytes and exact.alive:
            return exact
        # Only NumPy makes a second StorageImpl that begins inside other memory, so few records need the look.
        inside = (r for r in self.shared.values() if r.pointer and r.pointer <= pointer and pointer + nbytes <= r.pointer + r.nbytes)
        return next((record for record in inside if record.alive), None)

    def add_storage(self, shadow: Storage, seen: Facts, real: Any) -> StorageRecord:
        """Make a record for memory seen for the first time."""
        self.storage_count += 1
        record = StorageRecord(self.storage_count, shadow, seen.pointer, seen.nbytes, seen.dtype, seen.itemsize)
        self.storages[record.mark] = record
        if seen.pointer and seen.nbytes:
            self._by_pointer[seen.pointer] = record
        shadow.mark = record.mark
        self.add_impl(record, seen, real)
        return record

    def settle(self, record: TensorRecord) -> StorageRecord:
        """Make the record of a tensor's own memory, after all."""
        impl, storage = record.place, record.shadow.storage  # type: ignore[union-attr]
        nbytes, name = storage.size * storage.dtype.itemsize, storage.dtype[:]
        record.place = place = StorageRecord(storage.mark, storage, None, nbytes, name, storage.dtype.itemsize)
        if self.fresh.get(impl) is record:  # type: ignore[arg-type]
            del self.fresh[impl]  # type: ignore[arg-type]
            place.members.add(record.mark)
            self.add_new_storage(place, impl)  # type: ignore[arg-type]
        return place  # else the memory has gone, with the tensor

    def _settled(self, impl: int) -> StorageRecord | None:
        record = self.fresh.get(impl)
        return None if record is None else self.settle(record)

    def memory(self, mark: int) -> StorageRecord | None:
        """The memory with this mark, if it is known."""
        if mark not in self.storages:
            for record in list(self.fresh.values()):
                self.settle(record)
        return self.storages.get(mark)

    def lies_at(self, impl: int, storage: StorageRecord) -> bool:
        """Whether a StorageImpl is a known one of this memory."""
        return (self.by_impl.get(impl) or self._settled(impl)) is storage

    def knows(self, impl: int) -> bool:
        """Whether a StorageImpl is known."""
        return impl in self.fresh or impl in self.by_impl

    def add_new_storage(self, record: StorageRecord, impl: int) -> None:
        """Enter memory that nobody has seen before; ``impl`` is a weak reference to its StorageImpl."""
        self.storages[record.mark] = self.by_impl[impl] = record
        record.shadow.mark = record.mark
        record.impls = (impl,)

    def _place_all(self) -> None:
        """Find where storages lie that were entered without looking."""
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

    def add_impl(self, record: StorageRecord, seen: Facts, real: Any) -> None:
        """Note one more StorageImpl on known memory."""
        if seen.storage is not None and not self.knows(seen.storage):
            record.impls += (tensor_facts.weak_storage(real),)
            self.by_impl[seen.storage] = record

    def bury(self) -> Deaths:  # noqa: C901 - runs after every call
        """Return the marks of tensors and storages that died since the last call, and forget them.

        A graph may keep memory that no tensor of the program names any more. Such storages are asked again after every call, the
        ones that waited longest first, but only a few of them: what a call costs must not grow with what a program has made.
        """
        died = self.died
        if len(died) == 1 and not self.left:
            record = died[0]
            impl = record.place
            if type(impl) is int and is_gone(impl):
                # The usual case, when a name is bound to something else.
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
        """From now on NumPy code can write this memory without torch knowing."""
        if not record.shared:
            record.shared = True
            self.shared[record.mark] = record
            record.shadow.share()

    def offset(self, seen: Facts, storage: StorageRecord) -> int:
        """The tensor's offset in elements of the labelled memory, also when its StorageImpl begins further inside."""
        own = seen.offset or 0
        return own + (seen.pointer - storage.pointer) // seen.itemsize if storage.pointer and seen.pointer else own

    @staticmethod
    def offset_of(real: Any, storage: StorageRecord) -> int:
        """The same, of a tensor."""
        pointer = real.untyped_storage().data_ptr() if storage.pointer else 0
        own: int = real.storage_offset()
        return own + (pointer - storage.pointer) // storage.itemsize if pointer and pointer != storage.pointer else own

    def live(self, storage: StorageRecord) -> Iterator[tuple[TensorRecord, Any]]:
        """Yield the living tensors and arrays on a piece of memory."""
        for mark in sorted(storage.members):
            record = self.by_mark.get(mark)
            real = record() if record is not None else None
            if record is not None and real is not None:
                yield record, real


def array_facts(array: np.ndarray) -> dict[str, Any]:
    """Shape, strides in elements, dtype and address range of a NumPy array."""
    item = max(array.itemsize, 1)
    low, high = byte_bounds(array) if array.size else (0, 0)
    return {
        "shape": list(array.shape), "stride": [step // item for step in array.strides], "dtype": array.dtype.name, "low": low, "high": high,
        "pointer": array.__array_interface__["data"][0], "itemsize": item, "numel": math.prod(array.shape),
    }
