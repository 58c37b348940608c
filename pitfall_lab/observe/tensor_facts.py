"""Reading facts from live tensors and graph nodes, without keeping any of them alive."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import private
from pitfall_lab.trace import T

ACCUMULATE = "torch::autograd::AccumulateGrad"
_SAVED: dict[type, tuple[str, ...]] = {}
_CREATIONS = {
    "DEFAULT": "default", "IN_CUSTOM_FUNCTION": "custom", "MULTI_OUTPUT_NODE": "multi", "NO_GRAD_MODE": "no_grad",
    "INFERENCE_MODE": "inference",
}  # fmt: skip
"""torch's words and ours for how a view was made."""


class Facts(NamedTuple):
    """What torch says of one tensor now. ``stride`` and ``offset`` count elements; ``storage`` identifies a StorageImpl.

    ``grad_fn`` is the node's key (see :func:`node_key`). An opaque tensor (sparse, nested, functorch-wrapped, a subclass
    that hides its storage) has ``storage is None``.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool | None
    """None where torch refuses to say (a view made under no_grad and written since) and where it was not asked."""
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
    """Whether the memory is somebody else's (a NumPy array's, a file's): it can change without torch knowing."""


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a torch tensor."""
    return isinstance(value, torch.Tensor)


def read(tensor: torch.Tensor, *, asleep: bool = False) -> Facts:
    """Read the facts of ``tensor``. Never raises for exotic layouts: what cannot be read is left out.

    ``asleep``: it passes for a leaf until it is asked whether it is one (a view of which the base has got a history since). A program
    can tell: torch refuses to write such a view in place. So it is not asked.
    """
    kind = "parameter" if type(tensor) is not torch.Tensor and isinstance(tensor, torch.nn.Parameter) else "tensor"
    device = tensor.device
    first = dtype_name(tensor.dtype), device_name(device), tensor.requires_grad, None if asleep else _is_leaf(tensor), kind
    if is_opaque(tensor):
        shapeless = tensor.is_nested or isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
        return Facts(() if shapeless else _sizes(tensor.shape), *first)
    storage = tensor.untyped_storage()
    inference = tensor.is_inference()
    return Facts(
        tuple(tensor.shape), *first, tensor.stride(), tensor.storage_offset(), storage._cdata,
        storage.data_ptr() if device.type == "cpu" else 0, storage.nbytes(), tensor.element_size(),
        _version(tensor), tensor._is_view(), inference, not storage.resizable(),
    )  # fmt: skip


def _sizes(shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape in plain numbers; empty where it has sizes without one (ragged rows; a tracer's, which notes who asks)."""
    sizes = tuple(shape)
    return sizes if all(type(n) is int for n in sizes) else ()


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # it was made in inference mode, and has got the memory of an ordinary one since
        return None


def _is_leaf(tensor: torch.Tensor) -> bool | None:
    try:
        return _of_history(tensor, "is_leaf")
    except RuntimeError:
        return None


def _of_history(tensor: torch.Tensor, name: str) -> Any:
    """An attribute that makes the node of a view anew if its base has been written since.

    In inference mode torch (2.13) fails at that for views of complex numbers, and the tensor has lost its history for good: we ask
    outside of it, so that nothing happens that the program did not ask for.
    """
    if torch.is_inference_mode_enabled() and tensor._is_view() and not tensor.is_inference():
        with torch.inference_mode(mode=False):
            return getattr(tensor, name)
    return getattr(tensor, name)


def is_at_version(tensor: torch.Tensor, version: int) -> bool:
    """Whether the tensor's counter still stands at ``version`` (inference tensors have none and stand still)."""
    return tensor.is_inference() or _version(tensor) == version


def is_opaque(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no strided memory of its own to look at."""
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return True  # a parameter of a lazy module: it has no shape yet
    if tensor.layout is not torch.strided or _is_wrapped(tensor):
        return True
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and hasattr(kind, "__torch_dispatch__"):
        return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not isinstance(tensor, torch.nn.Parameter)
    # A conjugated or negated view reads other numbers than lie in its memory; a tensor of torch's own zeros (the gradient of sgn) has none.
    return bool(tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg() or private.is_zerotensor(tensor))


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a function transform has wrapped it; an old one (``gradcheck(check_batched_grad=True)``) only shows in its storage."""
    lacks = tensor.layout is torch.strided and not (tensor.is_nested or private.has_storage(tensor))
    return lacks or private.is_wrapped(tensor)


def is_immutable(tensor: torch.Tensor) -> bool:
    """Whether these are zeros that torch has made without memory (the gradient of ``sgn``): nothing can be added to them in place."""
    return private.is_zerotensor(tensor)


def own_class(tensor: torch.Tensor) -> str:
    """The name of the tensor's class if it is one of the program's and may handle operations (``__torch_function__``); else empty."""
    kind = type(tensor)
    if kind.__torch_function__ is torch.nn.Parameter.__torch_function__ or kind.__module__.partition(".")[0] == "torch":
        return ""  # what torch's own classes are (nested, parameters) is told by `opacity`
    return kind.__name__


def opacity(tensor: torch.Tensor) -> str:
    """Why the tensor's memory cannot be looked at, in English; empty where it can."""
    reason = why_opaque(tensor)
    return reason.en if reason else ""


def why_opaque(tensor: torch.Tensor) -> T | None:
    """Why the tensor's memory cannot be looked at; ``None`` where it can."""
    if not is_opaque(tensor):
        return None
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return T("a parameter without a shape yet", "还没有形状的参数")
    if _is_wrapped(tensor):
        return T("a tensor that a function transform has wrapped", "被函数变换包裹的张量")
    if tensor.is_nested:
        return T("a nested tensor: its rows have sizes of their own", "嵌套张量，各行大小不同")
    if tensor.layout is not torch.strided:
        kind = "mkldnn" if tensor.is_mkldnn else str(tensor.layout).removeprefix("torch.")
        return T(f"a tensor of layout {kind}: it has no strides", f"布局为 {kind} 的张量，没有步长")
    if tensor.is_quantized:
        return T("a quantized tensor: its memory holds codes, not numbers", "量化张量，内存里是编码而不是数值")
    if tensor.is_conj() or tensor.is_neg():
        return T("a conjugated or negated view: its memory holds other numbers than it has", "共轭或取负的视图，内存里的数与它的值不同")
    if is_immutable(tensor):
        return T("a tensor of torch's own zeros, which has no memory and cannot be changed", "torch 自己的全零张量，没有内存，也不能改")
    kind = type(tensor).__name__
    return T(f"a tensor of class {kind}, which handles operations itself", f"{kind} 类的张量，自行处理运算")


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


@cache
def device_name(device: torch.device) -> str:
    """``"cpu"``, ``"cuda:0"``."""
    return str(device)


def weak_storage(tensor: torch.Tensor) -> int:
    """A reference that keeps the storage's number unique but not its memory alive: the number itself. To be given to ``private.let_go``."""
    return tensor.untyped_storage()._weak_ref()


def storage_behind(reference: int) -> torch.UntypedStorage | None:
    """The storage that a weak reference refers to, if it still exists."""
    return None if private.is_gone(reference) else private.new_with_weak_ptr(reference)


def bytes_in(memory: torch.UntypedStorage, count: int) -> bytes:
    """The first bytes of a piece of memory, which must have so many. No operation of torch's reads them: see :func:`flat_values`."""
    return ctypes.string_at(memory.data_ptr(), count) if count else b""


def flat_values(tensor: torch.Tensor, limit: int) -> np.ndarray | None:
    """Copy the whole storage of ``tensor``, flat, as a NumPy array of its dtype (bfloat16 as float32).

    ``None`` when there is nothing to read: an opaque or meta tensor, more than ``limit`` elements, another device, or a
    dtype that NumPy lacks. The bytes are read from memory, not by a torch operation: dispatch modes and profilers of
    the learner's must not see us look.
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
    """The numbers of ``tensor`` alone, with its strides, or None (see :func:`flat_values`).

    The storage is not asked for: torch does not add in place into a gradient whose storage Python has seen.
    """
    dtype = None if is_opaque(tensor) or tensor.device.type != "cpu" else numpy_dtype(tensor.dtype)
    shape, stride, item = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    if dtype is None or extent > limit or (tensor.numel() and not tensor.data_ptr()):
        return None
    if not tensor.numel():
        return np.empty(shape, dtype)
    flat = np.frombuffer(ctypes.string_at(tensor.data_ptr(), extent * item), dtype).copy()
    if tensor.dtype == torch.bfloat16:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return np.ndarray(shape, flat.dtype, flat, 0, tuple(step * flat.itemsize for step in stride))


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    """NumPy's type for the bytes of a torch type; for bfloat16, which NumPy lacks, the upper halves of float32 numbers."""
    if dtype == torch.bfloat16:
        return np.dtype(np.uint16)
    try:
        return np.dtype(dtype_name(dtype))
    except TypeError:
        return None


def autocasting() -> bool:
    """Whether torch.autocast may change the types of operands on their way."""
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def deterministic() -> bool:
    """Whether torch must use algorithms that give the same in every run (``torch.use_deterministic_algorithms``)."""
    return torch.are_deterministic_algorithms_enabled()


def distributed() -> bool:
    """Whether this process is one of several: ``DistributedDataParallel`` puts its own hooks, in C++, where gradients arrive."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def checks_nan() -> bool:
    """Whether anomaly mode looks for NaN after each node of a backward."""
    return torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()


def default_dtype() -> str:
    """The type of new floats."""
    return str(torch.get_default_dtype()).removeprefix("torch.")


def grad_of(tensor: torch.Tensor, *, asleep: bool = False) -> torch.Tensor | None:
    """The tensor's ``.grad`` without the warning that asking a non-leaf gives. ``asleep``: see :func:`read`."""
    return tensor.grad if asleep or _is_leaf(tensor) or tensor.retains_grad else None


def are_finite(found: Iterable[torch.Tensor]) -> bool:
    """Whether no number in dense tensors of floating point numbers is NaN or infinite. Of others nothing is said."""
    dense = [x.detach() for x in found if x.layout is torch.strided and x.is_floating_point() and x.numel() and x.device.type != "meta"]
    return all(math.isfinite(torch.linalg.vector_norm(x, math.inf).item()) for x in dense)


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that ``tensor`` is a view of, if autograd knows one."""
    return tensor._base if not is_opaque(tensor) and not tensor.is_inference() and tensor._is_view() else None


def creation_of(view: torch.Tensor) -> str:
    """How a view was made, which decides whether it may be changed in place (``CreationMeta`` in ``torch/csrc/autograd/variable.h``)."""
    return _CREATIONS[private.creation_meta(view).name] if private.creation_meta is not None else "default"


def shares_counter(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one version counter counts the writes to both tensors.

    torch does not say which counter a tensor has. So the version of one is moved, the other is watched, and the version is put back
    before anything else can run.
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
    """Set the tensor's version. Only for looking: whoever calls this puts the old one back."""
    try:
        private.set_versions((tensor,), (version,))
    except TypeError:  # torch before 2.7 takes one tensor
        private.set_versions(tensor, version)


def node_of(tensor: torch.Tensor) -> Any | None:
    """The tensor's ``grad_fn``. Reading it regenerates a view's node, as torch does on the next use anyway.

    ``None`` as well where torch refuses to say (a view made under no_grad and written since).
    """
    try:
        return _of_history(tensor, "grad_fn")
    except RuntimeError:
        return None


def node_name(node: Any) -> str:
    """``"SigmoidBackward0"``; torch's C++ names are cut to their last part."""
    return str(node.name()).split("::")[-1]


LAST = 2**64 - 1
_NOTES, _NOTE = itertools.count(), "pitfall_lab"
_APART: list[bool] = []
"""Not empty when a thread other than the recorded one has made nodes."""


def node_key(node: Any) -> tuple[Any, ...]:
    """A key that is unique in one thread's lifetime and holds nothing alive.

    Sequence numbers are unique except for nodes that all carry the largest one: AccumulateGrad is named by its leaf, and a node without
    a derivative (of ``x // 2``) gets a number of ours, kept where torch lets programs keep notes about a node.
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
    """Note on each node behind ``made`` that another thread made it: its number may be taken. ``known`` were there before."""
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
    """Whether a backward has freed what a node saved."""
    return any(slot.state == "freed" for slot in slots_of(node))


def sequence_of(node: Any) -> int:
    """A number that is greater for nodes that were made later; 0 for all where torch does not say."""
    return int(node._sequence_nr()) if private.has_sequence else 0


def is_of_engine(error: BaseException) -> bool:
    """Whether torch's engine itself ended a backward, and no Python code that it had called (a hook, a custom Function).

    Nor what that code returned: of errors of the engine's only those about a hook's result are a TypeError, or say what it should return.
    """
    if isinstance(error, TypeError) or "hooks should return" in str(error):
        return False
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    return walk is not None and walk.tb_frame.f_code.co_name == private.ENGINE


def leaf_of(node: Any) -> torch.Tensor | None:
    """The leaf that an AccumulateGrad node accumulates into."""
    return node.variable if node.name() == ACCUMULATE else None


def next_nodes(node: Any) -> list[tuple[Any | None, int]]:
    """The node's edges: ``(node or None, index)``."""
    return list(node.next_functions)


def packs() -> bool:
    """Whether saved-tensor hooks are on (the program's, or those of checkpointing), as far as torch says."""
    return private.saved_tensor_hooks is None or private.saved_tensor_hooks(True) is not None


def may_read_saved() -> bool:
    """Whether ``_saved_*`` can be read, and reading it runs no code of the learner's."""
    return private.has_saved and not packs()


def saved_tensors(node: Any) -> list[tuple[str, torch.Tensor]]:
    """Return ``(slot, tensor)`` for each tensor the node saved; slots are torch's names without ``_saved_``, numbered in lists.

    Values that are no tensors (sizes, flags) are left out. A slot that torch refuses to unpack (freed, or already
    invalid: its own version check runs here) is left out as well.
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
    """One saved tensor of a node as it is now: ``state`` is ``kept``, ``stale`` (torch refuses it), ``freed`` or ``hooked``.

    ``version`` is the one it was saved at, ``now`` the one its memory is at; ``None`` where that cannot be told.
    """

    name: str
    state: str
    tensor: torch.Tensor | None = None
    version: int | None = None
    now: int | None = None
    message: str = ""


def slots_of(node: Any) -> list[Slot]:
    """What a node saved, and whether torch would still take it; no hook of the learner's is run."""
    out = []
    for raw_name in [name for name in dir(node) if name.startswith("_raw_saved_")]:
        name = raw_name.removeprefix("_raw_saved_")
        raw = getattr(node, raw_name)
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
        return None  # an optional tensor that was not there
    tensor = value if tensor is None else tensor
    version = None if tensor.is_inference() else tensor._version
    return Slot(full, "kept", tensor, version, version)


def saved_version(tensor: torch.Tensor, unpack: Callable[[], Any]) -> int | None:
    """The version that torch would take: the counter is set back step by step until it does, and then put right again."""
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
    """Shape and dtype of what the node's operation returned in forward, as far as torch remembers."""
    return [(_shape_in(seen), dtype_name(seen.dtype)) for seen in node._input_metadata] if private.has_metadata else []


def _shape_in(metadata: Any) -> tuple[int, ...]:
    try:
        return _sizes(metadata.shape)
    except RuntimeError:  # a nested tensor of the strided layout has no sizes that Python could be given
        return ()


def is_custom(node: Any) -> bool:
    """Whether the node is a ``torch.autograd.Function`` of somebody's, written in Python."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _saved_by_custom_function(node: Any) -> list[tuple[str, torch.Tensor]]:
    """What a ``torch.autograd.Function`` of the learner's passed to ``save_for_backward``."""
    if not is_custom(node):
        return []
    try:
        kept = node.saved_tensors
    except RuntimeError:
        return []
    return [(f"saved_tensors[{index}]", item) for index, item in enumerate(kept) if isinstance(item, torch.Tensor)]


def saved_versions(node: Any) -> None:
    """Run torch's own version check of every saved tensor of ``node``: raises RuntimeError exactly when backward would."""
    for slot in [name for name in dir(node) if name.startswith("_saved_")]:
        getattr(node, slot)


def environment() -> tuple[tuple[str, str], ...]:
    """The versions that a trace was recorded with."""
    import platform

    cuda = torch.version.cuda or "none"
    return (("torch", str(torch.__version__)), ("numpy", np.__version__), ("python", platform.python_version()), ("cuda", cuda))
