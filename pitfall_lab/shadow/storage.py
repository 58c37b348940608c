"""Memory, its version counters, and the tensors that look at it.

Three separate things that are easily taken for one:

- a :class:`Storage` is a flat run of elements;
- a :class:`Counter` counts in-place changes. A base, its views and ``detach()`` share one; ``.data`` gets its own;
- a :class:`ShadowTensor` is a window: storage + offset + shape + strides, and a place in the autograd graph.

Same storage with another counter is the whole secret of the ``.data`` bug.

Each of them, and each node of the graph, has a ``mark``: the number that whoever watches the engine calls it by (0: none yet). A
node also has a ``twin``: what the watcher knows the other engine's node by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

import numpy as np

from pitfall_lab.shadow.dtypes import CPU, Device, DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pitfall_lab.shadow.graph import Graph, Node, Saved

Shape = tuple[int, ...]
FORGET = 64


class Counter:
    """A version counter; ``saved`` are the saved tensors that will be compared with it in backward.

    In torch: ``VariableVersion`` in ``c10/core/TensorImpl.h``, a shared number that knows nobody. That a write has made a saved
    tensor useless is only found out in backward; knowing who watches is what lets the engine say it at once.
    """

    __slots__ = ("__weakref__", "mark", "saved", "version")

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.mark = 0
        self.saved: list[ref[Saved]] | None = None

    def watch(self, saved: Saved) -> None:
        """Tell ``saved`` when the version moves on."""
        if self.saved is None:
            self.saved = [ref(saved)]
            return
        self.saved.append(ref(saved))
        count = len(self.saved)
        if count >= FORGET and not count & count - 1:
            # A parameter is saved by every step of a training: from time to time, the graphs that are gone are forgotten.
            self.saved = [reference for reference in self.saved if reference() is not None]


class Storage:
    """A flat run of ``size`` elements.

    ``data`` is a one-dimensional array, or None when the numbers are not modelled. ``shared`` is True once NumPy code
    outside the engine can write into it: then nothing tells us of a write, and saved values are kept at once.

    In torch: ``c10/core/StorageImpl.h``, bytes without a type. Old numbers are never kept there.
    """

    __slots__ = ("__weakref__", "data", "device", "dtype", "laid", "links", "mark", "saved", "shared", "size")

    def __init__(self, size: int, dtype: DType, device: Device = CPU, data: np.ndarray | None = None) -> None:
        self.size = size
        self.dtype = dtype
        self.device = device
        self.data = data
        self.mark = 0
        self.shared = False
        self.saved: WeakSet[Saved] | None = None
        self.links: tuple[tuple[Storage, np.ndarray, np.ndarray], ...] = ()
        self.laid: tuple[np.ndarray, np.ndarray] | None = None
        """The numbers as they lay before somebody was moved (see ``ShadowTensor.lay_out``), and as they lie since."""

    def watch(self, saved: Saved) -> None:
        """Let ``saved`` keep the old numbers before they are overwritten."""
        if self.shared:
            saved.keep()
            return
        if self.saved is None:
            self.saved = WeakSet()
        self.saved.add(saved)

    def about_to_change(self) -> None:
        """Copy on write: every saved tensor that looks here keeps its numbers as they are now."""
        if self.saved:
            for saved in tuple(self.saved):
                saved.keep()

    def share(self) -> None:
        """NumPy code can write here from now on."""
        self.about_to_change()
        self.shared = True

    def changed(self) -> None:
        """Pass new numbers on to linked storages (only beliefs such as "advanced indexing gives a view" link any)."""
        for other, there, here in self.links:
            if self.data is not None and other.data is not None and not np.array_equal(other.data[there], self.data[here], equal_nan=True):
                other.data[there] = self.data[here]
                other.changed()


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides, in elements.

    >>> contiguous_strides((2, 3)), contiguous_strides((2, 0, 3))
    ((3, 1), (3, 3, 1))
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, stride: Shape) -> bool:
    """Whether the elements lie in row-major order without gaps; strides of dimensions of size 1 do not count."""
    if 0 in shape:
        return True
    step = 1
    for size, s in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1:
            if s != step:
                return False
            step *= size
    return True


def is_dense(shape: Shape, stride: Shape) -> bool:
    """Whether the elements fill one run of memory, each address once, in whatever order."""
    if math.prod(shape) < 2:
        return True
    step = 1
    for s, size in sorted((s, size) for size, s in zip(shape, stride, strict=True) if size != 1):
        if s != step:
            return False
        step *= size
    return True


class ShadowTensor:
    """A window into a storage, with its place in the graph.

    ``requires_grad`` and ``grad_fn`` of a view depend on its base and are worked out when they are asked for, as in torch
    (``torch/csrc/autograd/variable.cpp``).

    In torch: ``c10/core/TensorImpl.h`` is the window, ``AutogradMeta`` in ``torch/csrc/autograd/variable.h`` the place in the graph.
    """

    __slots__ = (
        "__weakref__", "accumulator", "counter", "device", "dtype", "facade", "flag", "gradient", "graph", "hooked", "hooks", "inference",
        "kind", "loose", "mark", "node", "number", "offset", "output_nr", "received", "retains_grad", "shape", "storage", "stride", "view",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - the window's parts, in the order everyone thinks of them
        self,
        graph: Graph,
        storage: Storage,
        shape: Shape,
        stride: Shape,
        offset: int = 0,
        dtype: DType | None = None,
        counter: Counter | None = None,
    ) -> None:
        self.graph = graph
        self.storage = storage
        self.shape = shape
        self.stride = stride
        self.offset = offset
        self.dtype = dtype or storage.dtype
        self.device = storage.device
        self.counter: Counter | None = counter
        self.flag = False
        self.node: Node | None = None
        self.output_nr = 0
        self.gradient: ShadowTensor | None = None
        self.view: ViewOf | None = None
        self.accumulator: ref[Node] | None = None
        self.hooks: tuple[tuple[int, Any], ...] | None = None
        self.hooked: tuple[Callable[[], Node | None], int] | None = None
        """The node, and its output, that runs the hooks of a result: its history at the first of them, until torch begins anew."""
        self.retains_grad = False
        self.received = False
        """Handed out by ``autograd.grad``: whether it is a view of another gradient is not modelled."""
        self.loose = False
        """A gradient of which neither strides nor version are predicted (see ``Gradient.loose``)."""
        self.inference = False
        self.number = False
        self.kind = "tensor"
        self.mark = 0
        self.facade: Any = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_expanded(self) -> bool:
        """Whether a dimension steps by 0, so that several elements lie at one address."""
        return any(n > 1 and s == 0 for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def base(self) -> ShadowTensor | None:
        """The root tensor that this is a view of, or None."""
        return self.view.base if self.view else None

    @property
    def requires_grad(self) -> bool:
        """True for a flagged leaf, for a result with a node, and for every view of such a tensor."""
        return self.flag or self.node is not None or (self.view is not None and self.view.base.requires_grad)

    @property
    def is_leaf(self) -> bool:
        """True when no node made this tensor (plain tensors are leaves too)."""
        return self.node is None

    @property
    def sleeps(self) -> bool:
        """Whether this is a view that passes for a leaf: its base has got a history since, and nobody has asked for its own.

        So is one that cannot be asked: torch has lost the hook that retains its gradient, and an assertion of its own would fail, once.
        """
        view = self.view
        if view is None or view.version == self.version:
            return False
        return self.has_lost_hook if self.node is not None else view.creation == "default" and view.base.requires_grad

    @property
    def has_lost_hook(self) -> bool:
        """Whether this retains its gradient, but its node knows nothing of it."""
        return self.retains_grad and self.node is not None and all(kept() is not self for _, kept in self.node.retains)

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; a view of a changed base gets a new one here, or raises ShadowError."""
        return self.graph.grad_fn(self)

    @property
    def grad(self) -> ShadowTensor | None:
        """The accumulated gradient."""
        return self.gradient

    @property
    def version(self) -> int:
        """The number of in-place changes so far; -1 for inference tensors, which have no counter."""
        return -1 if self.counter is None else self.counter.version

    _version = version

    def window(self) -> np.ndarray | None:
        """The elements as an array over the storage's own memory (writing to it writes there), or None."""
        return window(self.storage, self.offset, self.shape, self.stride, self.dtype)

    def become(self, other: ShadowTensor) -> None:
        """Look at other memory, with another history: the same object, for all that hold it (``p.data = …``, ``out=``)."""
        if self.dtype != other.dtype:
            self.accumulator = None  # the next operation makes one for the new type (a new shape alone does not count)
        place = "storage", "offset", "shape", "stride", "dtype", "device", "counter"
        for name in (*place, "view", "node", "output_nr", "flag", "inference"):
            setattr(self, name, getattr(other, name))

    def lay_out(self, stride: Shape, offset: int, size: int) -> None:
        """Move the elements within their own memory: where torch was seen to have them. Who else looks at it is moved in turn."""
        storage = self.storage
        if storage.data is not None and (storage.laid is None or storage.laid[1] is not storage.data):
            storage.laid = storage.data, np.zeros(size, storage.data.dtype)
        before, now = storage.laid if storage.data is not None and storage.laid is not None else (None, None)
        storage.data = before
        values = self.values()
        self.stride, self.offset, storage.size, storage.data = stride, offset, size, now
        target = self.window()
        if values is not None and target is not None:
            target[...] = values

    def values(self) -> np.ndarray | None:
        """A copy of the elements, or None when they are not modelled."""
        seen = self.window()
        return None if seen is None else seen.copy()

    def __repr__(self) -> str:
        return f"<ShadowTensor {list(self.shape)} {self.dtype} v{self.version} {self.values()}>"


class ViewOf:
    """What a view remembers: its base, how it was made, and the version its grad_fn belongs to.

    In torch: ``DifferentiableViewMeta`` in ``torch/csrc/autograd/variable.h``. It can also hold a function that makes the view anew,
    for layouts without strides; here the window says enough.
    """

    __slots__ = ("base", "creation", "version")

    def __init__(self, base: ShadowTensor, creation: str, version: int) -> None:
        self.base = base
        self.creation = creation
        self.version = version


def window(storage: Storage, offset: int, shape: Shape, stride: Shape, dtype: DType) -> np.ndarray | None:
    """An array of ``shape`` over ``storage`` at ``offset`` with ``stride`` (in elements), or None without numbers."""
    data = storage.data
    twin = None if data is None else dtype.numpy
    if twin is None:
        return None
    item = twin.itemsize
    if 0 in shape:
        return np.empty(shape, twin)
    try:
        return np.ndarray(shape, twin, data, offset * item, tuple([s * item for s in stride]))
    except ValueError:  # it reads its base as another type, or beyond what is known of it
        return None
