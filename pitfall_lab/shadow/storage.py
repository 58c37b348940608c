"""Storages, version counters, and the shadow tensors on them.

Three separate things that are easily confused:

- a :class:`Storage` is a one-dimensional block of elements;
- a :class:`Counter` counts in-place operations (``_version``). A base, its views and ``detach()`` share
  one; ``.data`` gets its own;
- a :class:`ShadowTensor` is storage + offset + shape + strides, and a place in the autograd graph.

A write through ``.data`` goes unnoticed because it is to the same storage with another counter.

Each of them, and each node of the graph, has a ``mark``: its number in the recorder of the engine (0: none yet). A
node also has a ``torch_key``: the key of the torch node that it models, when the engine runs in lockstep.
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
    """A version counter (``_version``).

    ``version`` is its present number; ``saved`` are the saved tensors whose version backward will compare with it, as
    weak references (None: none so far).

    In torch: ``VariableVersion`` in ``c10/core/TensorImpl.h``, a shared number only. That a write has made a saved
    tensor invalid is found only in backward; the list ``saved`` lets the engine find it at the write.
    """

    __slots__ = ("__weakref__", "mark", "saved", "version")

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.mark = 0
        self.saved: list[ref[Saved]] | None = None

    def watch(self, saved: Saved) -> None:
        """Add ``saved`` to the saved tensors that a change of this version makes invalid."""
        if self.saved is None:
            self.saved = [ref(saved)]
            return
        self.saved.append(ref(saved))
        count = len(self.saved)
        if count >= FORGET and not count & count - 1:
            # Every training step saves the parameters: from time to time, entries of freed graphs are removed.
            self.saved = [reference for reference in self.saved if reference() is not None]


class Storage:
    """A one-dimensional block of ``size`` elements of ``dtype`` on ``device``.

    ``data`` is a one-dimensional array, or None when the values are not modelled. ``shared`` is True once NumPy code
    outside the engine can write to it: such a write cannot be noticed, so saved values are copied when they are saved.
    ``saved`` are the saved tensors on it (None: none so far). ``links`` are other storages that follow its changes,
    each with the indices there and here (only under a false belief).

    In torch: ``c10/core/StorageImpl.h``, bytes without a dtype. Torch never keeps old values.
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
        """The data before and after the last change of strides by ``ShadowTensor.lay_out``."""

    def watch(self, saved: Saved) -> None:
        """Have ``saved`` copy its values before this storage is next written; at once if the storage is ``shared``."""
        if self.shared:
            saved.keep()
            return
        if self.saved is None:
            self.saved = WeakSet()
        self.saved.add(saved)

    def about_to_change(self) -> None:
        """Call before a write: every saved tensor on this storage copies its present values."""
        if self.saved:
            for saved in tuple(self.saved):
                saved.keep()

    def share(self) -> None:
        """From now on NumPy code outside the engine can write to this storage."""
        self.about_to_change()
        self.shared = True

    def changed(self) -> None:
        """Copy new values to linked storages (only beliefs such as "advanced indexing gives a view" link any)."""
        for other, there, here in self.links:
            if (
                self.data is not None
                and other.data is not None
                and not np.array_equal(other.data[there], self.data[here], equal_nan=True)
            ):
                other.data[there] = self.data[here]
                other.changed()

    def linked(self) -> list[Storage]:
        """Return this storage and all that are linked with it, directly or through others."""
        found = [self]
        for one in found:
            found += [other for other, _, _ in one.links if other not in found]
        return found


def contiguous_strides(shape: Shape) -> Shape:
    """Return the row-major strides of a shape, in elements.

    >>> contiguous_strides((2, 3)), contiguous_strides((2, 0, 3))
    ((3, 1), (3, 3, 1))
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, stride: Shape) -> bool:
    """Whether the elements of a tensor with this shape and these strides lie in row-major order without gaps; strides
    of dimensions of size 1 do not count. True without elements.
    """
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
    """Whether the elements of a tensor with this shape and these strides fill a block of memory without gaps, each at
    its own address, in any order. True for fewer than two elements.
    """
    if math.prod(shape) < 2:
        return True
    step = 1
    for s, size in sorted((s, size) for size, s in zip(shape, stride, strict=True) if size != 1):
        if s != step:
            return False
        step *= size
    return True


class ShadowTensor:
    """A tensor: a strided view of a storage, with its autograd state.

    ``stride`` and ``offset`` are in elements. ``counter`` is its version counter (None: an inference tensor). ``flag``
    is the ``requires_grad`` that was set on it as a leaf. ``node`` is its grad_fn as last made, and ``output_nr`` its
    index among the outputs of the node. ``gradient`` is its ``.grad``; ``view`` describes how it is a view (None: no
    view). ``requires_grad`` and ``grad_fn`` of a view depend on its base and are computed when they are read, as in
    torch (``torch/csrc/autograd/variable.cpp``).

    In torch: ``c10/core/TensorImpl.h`` (storage, shape, strides) and ``AutogradMeta`` in
    ``torch/csrc/autograd/variable.h`` (the graph).
    """

    __slots__ = (
        "__weakref__", "accumulator", "counter", "device", "dtype", "facade", "flag", "gradient", "graph", "hooked",
        "hooks", "inference", "kind", "loose", "mark", "node", "number", "offset", "output_nr", "received",
        "retains_grad", "shape", "storage", "stride", "view",
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
        """The node and output number that hold the tensor's hooks: its grad_fn when the first hook was registered."""
        self.retains_grad = False
        self.received = False
        """Whether ``autograd.grad`` returned this tensor: whether it is then a view is not modelled."""
        self.loose = False
        """A gradient of which neither strides nor version are predicted (see ``Gradient.loose``)."""
        self.inference = False
        self.number = False
        self.kind = "tensor"
        self.mark = 0
        self.facade: Any = None

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def is_expanded(self) -> bool:
        """Whether a dimension of more than one element has stride 0, so that several elements share one address."""
        return any(n > 1 and s == 0 for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def base(self) -> ShadowTensor | None:
        """Return the tensor that this one is a view of (``_base``), or None."""
        return self.view.base if self.view else None

    @property
    def requires_grad(self) -> bool:
        """Whether it has ``requires_grad`` set, has a grad_fn, or is a view of a tensor that requires grad."""
        return self.flag or self.node is not None or (self.view is not None and self.view.base.requires_grad)

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor has no grad_fn; tensors that do not require grad are leaves too.

        A grad_fn that is still to be made, for a view whose base was written, is not made here.
        """
        return self.node is None

    @property
    def has_stale_grad_fn(self) -> bool:
        """Whether reading ``grad_fn`` of this view makes a new one.

        That is the case if the view was written after its grad_fn was last made (the versions differ), has no grad_fn,
        was made in the ``"default"`` way, and has a base that requires grad. A view with a grad_fn counts only if
        making it again would fail an internal assert of torch (``has_lost_hook``).
        """
        view = self.view
        if view is None or view.version == self.version:
            return False
        return self.has_lost_hook if self.node is not None else view.creation == "default" and view.base.requires_grad

    @property
    def has_lost_hook(self) -> bool:
        """Whether ``retain_grad`` was called, but the current grad_fn has no retain_grad hook for this tensor."""
        return self.retains_grad and self.node is not None and all(kept() is not self for _, kept in self.node.retains)

    @property
    def grad_fn(self) -> Node | None:
        """The grad_fn; None if there is none.

        Reading it on a view whose base was written makes a new one. Raises :class:`ShadowError` if torch refuses to
        make one.
        """
        return self.graph.grad_fn(self)

    @property
    def grad(self) -> ShadowTensor | None:
        """Return the accumulated gradient; None before any."""
        return self.gradient

    @property
    def version(self) -> int:
        """The version (``_version``): the number of in-place operations so far; -1 for inference tensors."""
        return -1 if self.counter is None else self.counter.version

    _version = version

    def window(self) -> np.ndarray | None:
        """Return the elements as a NumPy view of the storage's data, or None if they are unknown.

        Writing to the array writes the storage.
        """
        return window(self.storage, self.offset, self.shape, self.stride, self.dtype)

    def become(self, other: ShadowTensor) -> None:
        """Take storage, layout, version counter and autograd state from ``other`` (``p.data = …``, ``out=``).

        These are storage, offset, shape, strides, dtype, device, counter, ``view``, grad_fn, ``flag`` and
        ``inference``. This object keeps its gradient and hooks.
        """
        if self.dtype != other.dtype:
            self.accumulator = None  # the next operation makes one for the new dtype (a new shape alone keeps it)
        place = "storage", "offset", "shape", "stride", "dtype", "device", "counter"
        for name in (*place, "view", "node", "output_nr", "flag", "inference"):
            setattr(self, name, getattr(other, name))

    def lay_out(self, stride: Shape, offset: int, size: int) -> None:
        """Set strides, offset and storage size (all in elements) to those observed in torch.

        The elements are copied to their new positions in the storage's data, so that the tensor keeps its values.
        """
        storage = self.storage
        if storage.laid is None and (self.stride, self.offset, storage.size) == (tuple(stride), offset, size):
            return  # the memory stays the same one, which other gradients may share
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
        """Return a copy of the elements, or None if they are unknown."""
        seen = self.window()
        return None if seen is None else seen.copy()

    def __repr__(self) -> str:
        return f"<ShadowTensor {list(self.shape)} {self.dtype} v{self.version} {self.values()}>"


class ViewOf:
    """How a tensor is a view: its base, and the state of its grad_fn.

    ``base`` is the tensor that it is a view of for autograd. ``version`` is the version for which the view's grad_fn
    was made. ``creation`` is how the view was made: ``"default"``, under ``"no_grad"``, in ``"inference"`` mode, by an
    operation with several outputs (``"multi"``) or by a ``"custom"`` Function.

    In torch: ``DifferentiableViewMeta`` in ``torch/csrc/autograd/variable.h``. It can also hold a function that
    recreates the view, for layouts without strides, which do not exist here.
    """

    __slots__ = ("base", "creation", "version")

    def __init__(self, base: ShadowTensor, creation: str, version: int) -> None:
        self.base = base
        self.creation = creation
        self.version = version


def window(storage: Storage, offset: int, shape: Shape, stride: Shape, dtype: DType) -> np.ndarray | None:
    """Return a NumPy view of ``storage`` with this offset, shape and stride (in elements).

    Returns None if the values are unknown or the view extends beyond the data, and a new empty array if it has no
    elements.
    """
    data = storage.data
    numpy_dtype = None if data is None else dtype.numpy
    if numpy_dtype is None:
        return None
    item = numpy_dtype.itemsize
    if 0 in shape:
        return np.empty(shape, numpy_dtype)
    try:
        return np.ndarray(shape, numpy_dtype, data, offset * item, tuple([s * item for s in stride]))
    except ValueError:  # a view with another dtype than its storage, or beyond its known part
        return None
