"""Reads facts about tensors and graph nodes from torch, without keeping any of them alive (:func:`read`)."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import private
from pitfall_lab.trace import T

UNINITIALIZED: Any = torch.nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
"""The class of parameters of lazy modules before their first forward."""
ACCUMULATE = "torch::autograd::AccumulateGrad"
_SAVED: dict[type, tuple[str, ...]] = {}
_CREATIONS = {
    "DEFAULT": "default", "IN_CUSTOM_FUNCTION": "custom", "MULTI_OUTPUT_NODE": "multi", "NO_GRAD_MODE": "no_grad",
    "INFERENCE_MODE": "inference",
}  # fmt: skip
"""The trace's names for the ways in which a view is created, by torch's ``CreationMeta``."""


class TensorFacts(NamedTuple):
    """What torch reports about one tensor now.

    ``dtype`` and ``device`` are names (``"float32"``, ``"cuda:0"``), ``kind`` is ``"tensor"`` or ``"parameter"``;
    ``shape``, ``requires_grad``, ``stride`` and ``offset`` are torch's, the last two in elements. ``storage`` is a
    number that identifies the StorageImpl; ``pointer`` is the address of its memory (0 if that is not CPU memory),
    ``nbytes`` its size and ``itemsize`` that of an element, in bytes. ``version`` is None for an inference tensor
    (``inference``); ``is_view``: autograd knows it as a view. An opaque tensor (see :func:`is_opaque`) has ``storage``
    None, and all fields that need its memory have their defaults; its ``shape`` is empty if it has no shape of plain
    integers.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool | None
    """None where torch raises (a view created under no_grad and written since), or where it was not read
    (``stale``).
    """
    kind: str
    stride: tuple[int, ...] | None = None
    offset: int | None = None
    storage: int | None = None
    pointer: int = 0
    nbytes: int = 0
    itemsize: int = 1
    version: int | None = None
    is_view: bool = False
    inference: bool = False
    foreign: bool = False
    """Whether the memory belongs to something other than torch (a NumPy array, a file), which can write it without
    torch's knowledge.
    """


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a torch tensor."""
    return isinstance(value, torch.Tensor)


def read(tensor: torch.Tensor, *, stale: bool = False) -> TensorFacts:
    """Read the facts of ``tensor``. Never raises for unusual layouts: facts that cannot be read keep their defaults.

    ``stale``: True if the tensor is a view with a stale grad_fn. Reading is_leaf would regenerate it, which changes
    what the program can do (torch then refuses to write such a view in place), so is_leaf is None.
    """
    kind = "parameter" if type(tensor) is not torch.Tensor and isinstance(tensor, torch.nn.Parameter) else "tensor"
    device = tensor.device
    first = (
        dtype_name(tensor.dtype),
        device_name(device),
        tensor.requires_grad,
        None if stale else _is_leaf(tensor),
        kind,
    )
    if is_opaque(tensor):
        shapeless = tensor.is_nested or isinstance(tensor, UNINITIALIZED)
        return TensorFacts(() if shapeless else _sizes(tensor.shape), *first)
    storage = tensor.untyped_storage()
    inference = tensor.is_inference()
    return TensorFacts(
        tuple(tensor.shape), *first, tensor.stride(), _offset(tensor), storage._cdata,
        storage.data_ptr() if device.type == "cpu" else 0, storage.nbytes(), tensor.element_size(),
        _version(tensor), tensor._is_view(), inference, not storage.resizable(),
    )  # fmt: skip


def _offset(tensor: torch.Tensor) -> int:
    return tensor.storage_offset()  # type: ignore[return-value] # no symbolic sizes outside of tracing


def _sizes(shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape as plain integers; empty if a size is not one (nested tensors; tracers, which record each use of a
    size).
    """
    sizes = tuple(shape)
    return sizes if all(type(n) is int for n in sizes) else ()


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor that was given a normal tensor's storage
        return None


def _is_leaf(tensor: torch.Tensor) -> bool | None:
    try:
        return bool(_of_history(tensor, "is_leaf"))
    except RuntimeError:
        return None


def _of_history(tensor: torch.Tensor, name: str) -> Any:
    """Read an attribute that regenerates the grad_fn of a view whose base was written in place.

    In inference mode torch 2.13 fails at that for complex views and the tensor loses its history. So for normal tensors
    the attribute is read outside inference mode.
    """
    if torch.is_inference_mode_enabled() and tensor._is_view() and not tensor.is_inference():
        with torch.inference_mode(mode=False):
            return getattr(tensor, name)
    return getattr(tensor, name)


def is_at_version(tensor: torch.Tensor, version: int) -> bool:
    """Whether the tensor's version is ``version``; always True for inference tensors, which have no version."""
    return tensor.is_inference() or _version(tensor) == version


def is_opaque(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no strided memory that can be read: a sparse, nested, quantized, wrapped or lazy tensor,
    and the like.
    """
    if isinstance(tensor, UNINITIALIZED):
        return True  # a parameter of a lazy module: it has no shape yet
    if tensor.layout is not torch.strided or _is_wrapped(tensor):
        return True
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and hasattr(kind, "__torch_dispatch__"):
        return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not isinstance(
            tensor, torch.nn.Parameter
        )
    # The storage of a conjugated or negated view has other values than the view; a zero tensor (the
    # gradient of sgn) has no storage.
    return bool(
        tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg() or private.is_zerotensor(tensor)
    )


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a function transform has wrapped the tensor; the wrapper of ``gradcheck(check_batched_grad=True)`` is
    recognised only by its missing storage.
    """
    lacks = tensor.layout is torch.strided and not (tensor.is_nested or private.has_storage(tensor))
    return lacks or private.is_wrapped(tensor)


def is_immutable(tensor: torch.Tensor) -> bool:
    """Whether this is a zero tensor without memory (the gradient of ``sgn``), which cannot be written in place."""
    return private.is_zerotensor(tensor)


def own_class(tensor: torch.Tensor) -> str:
    """Return the name of the tensor's class if the program, or a library, defines it with a ``__torch_function__`` that
    may run, its own or an inherited one.

    Empty for torch's classes, and for classes that switch ``__torch_function__`` off.
    """
    kind = type(tensor)
    if kind.__torch_function__ is torch.nn.Parameter.__torch_function__ or kind.__module__.partition(".")[0] == "torch":
        return ""  # for torch's own classes (nested tensors, parameters) see `opacity`
    return kind.__name__


def opacity(tensor: torch.Tensor) -> str:
    """Return why the tensor's memory cannot be read, in English; empty if it can be read."""
    reason = why_opaque(tensor)
    return reason.en if reason else ""


def why_opaque(tensor: torch.Tensor) -> T | None:
    """Return why the tensor's memory cannot be read; ``None`` if it can be read."""
    if not is_opaque(tensor):
        return None
    if isinstance(tensor, UNINITIALIZED):
        return T("a parameter without a shape yet", "还没有形状的参数")
    if _is_wrapped(tensor):
        return T("a tensor that a function transform has wrapped", "被函数变换包裹的张量")
    if tensor.is_nested:
        return T("a nested tensor: each of its rows has its own size", "嵌套张量，各行大小不同")
    if tensor.layout is not torch.strided:
        kind = "mkldnn" if tensor.is_mkldnn else str(tensor.layout).removeprefix("torch.")
        return T(f"a tensor of layout {kind}: it has no strides", f"布局为 {kind} 的张量，没有步长")
    if tensor.is_quantized:
        return T(
            "a quantized tensor: its memory holds quantized codes, not its values", "量化张量，内存里是编码而不是数值"
        )
    if tensor.is_conj() or tensor.is_neg():
        return T(
            "a conjugated or negated view: the values in its memory differ from its own",
            "共轭或取负的视图，内存里的数与它的值不同",
        )
    if is_immutable(tensor):
        return T(
            "a zero tensor of torch, which has no memory and cannot be changed",
            "torch 自己的全零张量，没有内存，也不能改",
        )
    kind = type(tensor).__name__
    return T(f"a tensor of class {kind}, which handles operations itself", f"{kind} 类的张量，自行处理运算")


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype as text: ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


@cache
def device_name(device: torch.device) -> str:
    """Return a device as text: ``"cpu"``, ``"cuda:0"``."""
    return str(device)


def weak_storage(tensor: torch.Tensor) -> int:
    """Return a weak reference to the tensor's StorageImpl, as a number; it keeps the StorageImpl's address unique but
    not its memory alive.

    ``private.let_go`` ends it.
    """
    reference: Any = tensor.untyped_storage()._weak_ref()  # an address, whatever the stubs say
    return int(reference)


def storage_behind(reference: int) -> torch.UntypedStorage | None:
    """Return the storage to which a weak reference (of :func:`weak_storage`) refers; None if it was freed."""
    return None if private.is_gone(reference) else private.new_with_weak_ptr(reference)


def bytes_in(memory: torch.UntypedStorage, count: int) -> bytes:
    """Return the first ``count`` bytes of a storage, which must have that many.

    They are read without a torch operation: see :func:`flat_values`.
    """
    return ctypes.string_at(memory.data_ptr(), count) if count else b""


def flat_values(tensor: torch.Tensor, limit: int) -> np.ndarray | None:
    """Copy the whole storage of ``tensor``, flat, as a NumPy array of its dtype (bfloat16 as float32).

    ``None`` if that is impossible: an opaque or meta tensor, more than ``limit`` elements, another device, or a dtype
    that NumPy does not have. The bytes are read from memory and not by a torch operation, so that the learner's
    dispatch modes and profilers do not see it.
    """
    if is_opaque(tensor) or tensor.device.type != "cpu":
        return None
    storage = tensor.untyped_storage()
    nbytes, item = storage.nbytes(), max(tensor.element_size(), 1)
    address = storage.data_ptr() if nbytes else 0
    dtype = numpy_dtype(tensor.dtype)
    if nbytes // item > limit or (nbytes and not address) or dtype is None:
        return None
    if not nbytes:
        return np.empty(0, np.float32 if tensor.dtype == torch.bfloat16 else dtype)
    flat = np.frombuffer(ctypes.string_at(address, nbytes // item * item), dtype).copy()
    if tensor.dtype == torch.bfloat16:
        return (flat.astype(np.uint32) << 16).view(np.float32)
    return flat


def window_values(tensor: torch.Tensor, limit: int) -> np.ndarray | None:
    """Copy only the values of ``tensor``, as a NumPy array of its shape (bfloat16 as float32); None if that is
    impossible, see :func:`flat_values`.

    ``limit`` counts the elements from its first to its last one in memory. Does not access ``untyped_storage()``: torch
    does not accumulate in place into a gradient whose storage has a Python object.
    """
    dtype = None if is_opaque(tensor) or tensor.device.type != "cpu" else numpy_dtype(tensor.dtype)
    shape, stride, item = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    if dtype is None or extent > limit or (tensor.numel() and not tensor.data_ptr()):
        return None
    if not tensor.numel():
        return np.empty(shape, np.float32 if tensor.dtype == torch.bfloat16 else dtype)
    flat = np.frombuffer(ctypes.string_at(tensor.data_ptr(), extent * item), dtype).copy()
    if tensor.dtype == torch.bfloat16:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return np.ndarray(shape, flat.dtype, flat, 0, tuple(step * flat.itemsize for step in stride))


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return NumPy's dtype with the byte layout of a torch dtype (uint16 for bfloat16: the upper halves of float32);
    None if there is none.
    """
    if dtype == torch.bfloat16:
        return np.dtype(np.uint16)
    try:
        return np.dtype(dtype_name(dtype))
    except TypeError:
        return None


def autocasting() -> bool:
    """Whether torch.autocast is on for any device, so that operations may convert their operands to other dtypes."""
    return private.any_autocast()


def deterministic() -> bool:
    """Whether ``torch.use_deterministic_algorithms`` is on."""
    return torch.are_deterministic_algorithms_enabled()


def distributed() -> bool:
    """Whether torch.distributed is initialized: ``DistributedDataParallel`` then adds C++ hooks where gradients are
    accumulated.
    """
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def checks_nan() -> bool:
    """Whether anomaly mode checks for NaN after each node of a backward."""
    return torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()


def default_dtype() -> str:
    """Return the name of the default dtype."""
    return str(torch.get_default_dtype()).removeprefix("torch.")


def grad_of(tensor: torch.Tensor, *, stale: bool = False) -> torch.Tensor | None:
    """Return the tensor's ``.grad``, without the warning that reading it on a non-leaf gives; None without a gradient,
    and for a non-leaf that does not retain its gradient.

    ``stale``: see :func:`read`.
    """
    return tensor.grad if stale or _is_leaf(tensor) or tensor.retains_grad else None


def are_finite(found: Iterable[torch.Tensor]) -> bool:
    """Whether no element is NaN or infinite; True if there are no elements.

    Tensors that are not dense, not floating point, empty or on the meta device are left out.
    """
    dense = [
        x.detach()
        for x in found
        if x.layout is torch.strided and x.is_floating_point() and x.numel() and x.device.type != "meta"
    ]
    return all(math.isfinite(torch.linalg.vector_norm(x, math.inf).item()) for x in dense)


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the base of a view that autograd tracks; None for any other tensor, and for opaque tensors and inference
    tensors.
    """
    return tensor._base if not is_opaque(tensor) and not tensor.is_inference() and tensor._is_view() else None


def creation_of(view: torch.Tensor) -> str:
    """Return how a view was created, which decides whether it may be written in place (``CreationMeta`` in
    ``torch/csrc/autograd/variable.h``): ``"default"``, ``"custom"`` (in a custom Function), ``"multi"`` (an operation
    with several results), ``"no_grad"`` or ``"inference"``. Always ``"default"`` if this release of torch does not show
    it.
    """
    return _CREATIONS[private.creation_meta(view).name] if private.creation_meta is not None else "default"


def shares_counter(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors, neither of them an inference tensor, share one version counter; False also if torch does not
    let a version be changed.

    Torch does not show which counter a tensor has. So the version of one is changed, that of the other is read, and the
    first is restored before anything else can run.
    """
    version = one._version
    if other._version != version or private.set_versions is None:
        return False
    try:
        set_version(one, version + 1)
        return other._version == version + 1
    finally:
        set_version(one, version)


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Set the tensor's version. The caller must restore the old version."""
    write: Any = private.set_versions
    try:
        write((tensor,), (version,))
    except TypeError:  # torch before 2.7 takes one tensor
        write(tensor, version)


def node_of(tensor: torch.Tensor) -> Any | None:
    """Return the tensor's ``grad_fn``; None for a leaf.

    Reading it regenerates a stale grad_fn of a view, as torch does at the next use anyway. Also ``None`` if torch
    raises (a view created under no_grad and written since).
    """
    try:
        return _of_history(tensor, "grad_fn")
    except RuntimeError:
        return None


def node_name(node: Any) -> str:
    """Return the name of an autograd node, such as ``"SigmoidBackward0"``, without the C++ namespace that some have."""
    return str(node.name()).split("::")[-1]


LAST = 2**64 - 1
_NOTES, _NOTE = itertools.count(), "pitfall_lab"
_APART: list[bool] = []
"""Not empty if a thread other than the recorded one has created nodes."""


def node_key(node: Any) -> tuple[Any, ...]:
    """Return a key that identifies the node within one thread and keeps nothing alive.

    Sequence numbers are unique, except that some nodes all have the largest one: an AccumulateGrad is identified by its
    leaf, and a node without a derivative (of ``x // 2``) by a number of ours in its ``metadata``.
    """
    if node.name() == ACCUMULATE:
        return ("leaf", id(node.variable))
    number = node._sequence_nr() if private.has_sequence else LAST
    if number == LAST:
        return ("note", node.metadata.setdefault(_NOTE, next(_NOTES)))
    if _APART and (note := node.metadata.get(_NOTE)) is not None:
        return ("note", note)
    return (number, node.name())


def set_apart(made: Iterable[Any], known: Iterable[Any]) -> None:
    """Give each new node in the graph of the nodes ``made`` (None is ignored), but no AccumulateGrad, a number of ours:
    another thread created it, so its sequence number may not be unique.

    ``known`` are nodes that existed before; they are skipped, with the nodes that only they lead to.
    """
    seen = set(known)
    stack = [node for node in made if node is not None]
    while stack:
        node = stack.pop()
        if node in seen or node.name() == ACCUMULATE:
            continue
        seen.add(node)
        if _NOTE not in node.metadata:
            node.metadata[_NOTE] = next(_NOTES)
            _APART[:] = [True]
            stack += [child for child, _ in next_nodes(node) if child is not None]


def is_freed(node: Any) -> bool:
    """Whether a backward has freed saved tensors of the node; False if it has none, or hooks have packed them all."""
    return any(slot.state == "freed" for slot in slots_of(node))


def sequence_of(node: Any) -> int:
    """Return the node's sequence number: greater for nodes created later; 0 for all if torch does not have it."""
    return int(node._sequence_nr()) if private.has_sequence else 0


def is_of_engine(error: BaseException) -> bool:
    """Whether torch's engine itself raised an error in a backward, not Python code that it called (a hook, a custom
    Function).

    Errors about what a hook returned do not count as the engine's either: they are TypeErrors, or say what hooks should
    return.
    """
    if isinstance(error, TypeError) or "hooks should return" in str(error):
        return False
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    return walk is not None and walk.tb_frame.f_code.co_name == private.ENGINE


def leaf_of(node: Any) -> torch.Tensor | None:
    """Return the leaf of an AccumulateGrad node; None for other nodes."""
    return node.variable if node.name() == ACCUMULATE else None


def next_nodes(node: Any) -> list[tuple[Any | None, int]]:
    """Return the node's edges: ``(node or None, index)``."""
    return list(node.next_functions)


def packs() -> bool:
    """Whether saved-tensor hooks are on (the program's or checkpointing's); True if torch does not show it."""
    return private.saved_tensor_hooks is None or private.saved_tensor_hooks(True) is not None


def may_read_saved() -> bool:
    """Whether the attributes ``_saved_*`` of nodes can be read: torch has them, and no saved-tensor hooks are on, whose
    unpack function would run the learner's code.
    """
    return private.has_saved and not packs()


def saved_tensors(node: Any) -> list[tuple[str, torch.Tensor]]:
    """Return ``(slot, tensor)`` for each tensor that the node saved; slots are torch's names without ``_saved_``,
    numbered in lists.

    Values other than tensors (sizes, flags) are left out, and so are slots that torch does not unpack (freed, or
    changed since: torch's version check runs here).
    """
    kind = type(node)
    slots = _SAVED.get(kind)
    if slots is None:
        slots = tuple(name for name in dir(node) if name.startswith("_saved_"))
        _SAVED[kind] = slots
    found: list[tuple[str, torch.Tensor]] = []
    for slot in slots:
        try:
            value = getattr(node, slot)
        except RuntimeError:
            continue
        if isinstance(value, torch.Tensor):
            found.append((slot.removeprefix("_saved_"), value))
        elif isinstance(value, tuple):
            name = slot.removeprefix("_saved_")
            found.extend((f"{name}{index}", item) for index, item in enumerate(value) if isinstance(item, torch.Tensor))
    return found + _saved_by_custom_function(node)


class Slot(NamedTuple):
    """One saved tensor of a node. ``name`` is torch's name for it without ``_saved_`` (``"result"``), numbered in
    lists.

    ``state`` is ``kept``, ``stale`` (torch's version check fails), ``freed`` (by a backward) or ``hooked`` (a
    saved-tensor hook has packed it). ``version`` is the version at which it was saved, ``now`` the present one;
    ``None`` where unknown. ``tensor`` is None if it is freed or hooked. ``message`` is torch's error message if it is
    stale, else empty.
    """

    name: str
    state: str
    tensor: torch.Tensor | None = None
    version: int | None = None
    now: int | None = None
    message: str = ""


def slots_of(node: Any) -> list[Slot]:
    """Return a node's saved tensors with their states; an empty list if it has none. No hook of the learner is run."""
    out = []
    for raw_name in [name for name in dir(node) if name.startswith("_raw_saved_")]:
        name = raw_name.removeprefix("_raw_saved_")
        try:
            raw = getattr(node, raw_name)
        except RuntimeError:  # a custom Function's node has one list for all, which raises once it is freed
            out.append(Slot(name, "freed"))
            continue
        for index, saved in enumerate(raw if isinstance(raw, tuple) else (raw,)):
            slot = _slot(node, name, index if isinstance(raw, tuple) else None, saved)
            if slot is not None:
                out.append(slot)
    return out


def _slot(node: Any, name: str, index: int | None, saved: Any) -> Slot | None:
    full = name if index is None else f"{name}{index}"
    if getattr(saved, "unpack_hook", None) is not None:
        return Slot(full, "hooked")

    def unpack() -> Any:
        return saved.unpack() if index is not None else getattr(node, f"_saved_{name}")

    tensor = getattr(saved, "data", None)
    try:
        value = unpack()
    except RuntimeError as error:
        if tensor is None:
            return Slot(full, "freed")
        now = tensor._version
        return Slot(full, "stale", tensor, saved_version(tensor, unpack), now, str(error))
    if not isinstance(value, torch.Tensor):
        return None  # an optional tensor that was not passed
    tensor = value if tensor is None else tensor
    version = None if tensor.is_inference() else tensor._version
    return Slot(full, "kept", tensor, version, version)


_EXPECTED = re.compile(r"expected version (\d+) instead")


def saved_version(tensor: torch.Tensor, unpack: Callable[[], Any]) -> int | None:
    """Return the version at which a tensor was saved, which ``unpack()`` returns; None if it cannot be determined.

    If unpacking fails, torch's error message names the version; if it does not, each of the last 64 versions before the
    present one is set until unpacking succeeds, and the present one is restored.
    """
    try:
        unpack()
    except RuntimeError as error:
        if named := _EXPECTED.search(str(error)):
            return int(named[1])
    now = tensor._version
    try:
        for version in range(now - 1, max(now - 65, -1), -1):
            set_version(tensor, version)
            try:
                unpack()
            except RuntimeError:
                continue
            return version
    finally:
        set_version(tensor, now)
    return None


def outputs_of(node: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape and the name of the dtype of each result of the node's operation; an empty list if this release
    of torch does not store them.

    A shape is empty if torch has none of plain integers.
    """
    return [(_shape_in(seen), dtype_name(seen.dtype)) for seen in node._input_metadata] if private.has_metadata else []


def _shape_in(metadata: Any) -> tuple[int, ...]:
    try:
        return _sizes(metadata.shape)
    except RuntimeError:  # a nested tensor of the strided layout has no sizes for Python
        return ()


def is_custom(node: Any) -> bool:
    """Whether the node belongs to a ``torch.autograd.Function`` written in Python."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _saved_by_custom_function(node: Any) -> list[tuple[str, torch.Tensor]]:
    """``(slot, tensor)`` for each tensor that a custom ``torch.autograd.Function`` passed to ``save_for_backward``.

    Empty for other nodes, and if torch refuses (freed, or changed since).
    """
    if not is_custom(node):
        return []
    try:
        kept = node.saved_tensors
    except RuntimeError:
        return []
    return [(f"saved_tensors[{index}]", item) for index, item in enumerate(kept) if isinstance(item, torch.Tensor)]


def saved_versions(node: Any) -> None:
    """Run torch's version check of each saved tensor of ``node``; returns nothing, and raises RuntimeError if backward
    would.

    What a custom ``torch.autograd.Function`` has saved is not checked.
    """
    for slot in [name for name in dir(node) if name.startswith("_saved_")]:
        getattr(node, slot)


def environment() -> tuple[tuple[str, str], ...]:
    """Return the versions of torch, NumPy, Python and CUDA, as pairs of name and version (``none`` without CUDA)."""
    cuda = torch.version.cuda or "none"
    return (
        ("torch", str(torch.__version__)),
        ("numpy", np.__version__),
        ("python", platform.python_version()),
        ("cuda", cuda),
    )
