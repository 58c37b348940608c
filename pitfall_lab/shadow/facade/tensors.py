"""The facade's classes: tensors that look like torch's and run on the shadow engine.

There is no table of methods here: whatever has an entry in :mod:`pitfall_lab.shadow.ops` can be called.
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType, TracebackType
from typing import Any, NoReturn, Self
from weakref import ref

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import Device
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ANOMALY_HINT, HINT, OLD_HINT, Absent, ShadowError, Unmodelled
from pitfall_lab.shadow.facade.display import show
from pitfall_lab.shadow.graph import Node, Saved
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.building import view
from pitfall_lab.shadow.ops.creation import parameter
from pitfall_lab.shadow.ops.reduce import Pair
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.shadow.releases import NEWEST, Release
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Storage, is_contiguous

_ERRORS = {
    "RuntimeError": RuntimeError,
    "AssertionError": AssertionError,
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TypeError": TypeError,
    "NotImplementedError": NotImplementedError,
}
_engine = Engine(TORCH, value_limit=1 << 20, standalone=True)


def engine() -> Engine:
    """Return the engine on which the facade's tensors run."""
    return _engine


def reset(policy: Policy = TORCH, value_limit: int = 1 << 20, release: Release = NEWEST) -> Engine:
    """Start a new engine and return it; modes, beliefs (``policy``) and random state of the old one are dropped.

    ``release`` is the release of torch that it models. Tensors with more than ``value_limit`` elements have no values.
    Older tensors must not be combined with new ones; this is not checked.
    """
    global _engine  # noqa: PLW0603 - one engine for the module, as torch has one global state
    _engine = Engine(policy, value_limit, standalone=True, release=release)
    return _engine


NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
    "the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more information."
)
"""The warning of ``.grad`` on a tensor that keeps none."""


REVERSED = (
    "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an "
    "error in a future release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - "
    "1, -1, -1))` to reverse the dimensions of a tensor."
)


class Size(tuple[int, ...]):
    """The shape of a tensor, ``torch.Size``."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self))

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the operation with this full torch name and return its result.

    Errors are raised and warnings given as torch does. Raises NotImplementedError if the operation has no entry or the
    call is not modelled.
    """
    shadow_kwargs = {k: unwrap(v) for k, v in kwargs.items()}
    with speaking():
        result = _engine.call(name, [unwrap(a) for a in args], shadow_kwargs).result
    for text in _engine.warnings:
        warnings.warn(text, UserWarning, stacklevel=3)
    if isinstance(result, Pair):
        return structure(name.rsplit(".", 1)[-1], result.fields)(*map(wrap, result))
    return wrap(result)


@contextmanager
def speaking() -> Iterator[None]:
    """A context manager that raises the engine's errors as torch's exceptions, and
    NotImplementedError for what is not modelled.
    """
    try:
        yield
    except ShadowError as error:
        raised = as_raised(error)
    except Unmodelled as error:
        raised = NotImplementedError(error.reason)
        raised.__cause__ = error.__cause__
    else:
        return
    try:
        raise raised
    finally:
        del raised  # else the frame keeps the error, and with it the nodes of the call, alive


def as_raised(error: ShadowError) -> Exception:
    """Return the exception of torch for an error of the engine, with torch's class and message.

    The class is RuntimeError if ``type_name`` is an unknown class. The attribute ``shadow`` of the exception is the
    engine's error. In anomaly mode, an error at a node also gives a warning and has another hint.
    """
    message = error.message
    if _engine.anomaly and error.node is not None:
        message = message.replace(HINT, ANOMALY_HINT).replace(OLD_HINT, ANOMALY_HINT)
        text = f"Error detected in {error.node.name}. Traceback of forward call that caused the error:\n(not kept)"
        warnings.warn(text, UserWarning, stacklevel=4)
    raised: Exception = _ERRORS.get(error.type_name, RuntimeError)(message)
    raised.shadow = error  # type: ignore[attr-defined]
    return raised


def raise_as_torch(error: ShadowError) -> NoReturn:
    """Raise torch's exception for an error of the engine."""
    raise as_raised(error) from None


def unwrap(value: Any) -> Any:
    """Return ``value`` with facade tensors replaced by their shadow tensors, also inside tuples, lists and slices.

    A callable that is not a class, such as a hook, is wrapped: the engine calls the wrapper with a shadow tensor, the
    program's function receives a facade tensor, and its result is unwrapped.
    """
    if isinstance(value, Tensor):
        return value.shadow
    if type(value) in (tuple, list):
        return type(value)(unwrap(v) for v in value)
    if callable(value) and not isinstance(value, type):
        return lambda gradient: unwrap(value(wrap(gradient)))
    if isinstance(value, slice):
        return slice(unwrap(value.start), unwrap(value.stop), unwrap(value.step))
    return value


def wrap(value: Any) -> Any:
    """Return ``value`` with shadow tensors replaced by facade tensors, also inside tuples and lists.

    The same shadow tensor gives the same facade object as long as the program holds a reference to it.
    """
    if isinstance(value, ShadowTensor):
        facade = value.facade() if value.facade is not None else None
        if facade is None:
            facade = (Parameter if value.kind == "parameter" else Tensor).of(value)
            value.facade = ref(facade)
        return facade
    if type(value) in (tuple, list):
        return type(value)(wrap(v) for v in value)
    return value


@cache
def structure(name: str, fields: tuple[str, ...]) -> type[Any]:
    """Return a named tuple class with these fields, such as ``values`` and ``indices``.

    It replaces the ``torch.return_types`` class of the operation ``name``.
    """
    return namedtuple(name, fields)  # noqa: PYI024 - the fields are data


class GradFn:
    """A node of the graph as a program sees it in ``grad_fn``; its class has the node's name."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def name(self) -> str:
        """Return torch's name for the node, such as ``"MulBackward0"``."""
        return QUALIFIED.get(self.node.name, self.node.name)

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The edges of the node: pairs of the next node (None: no gradient is sent) and the index of the output of that
        node.
        """
        return tuple((function(n), i) for n, i in self.node.next)

    @next_functions.setter
    def next_functions(self, value: object) -> None:
        raise AttributeError(f"attribute 'next_functions' of '{type(self).__name__}' objects is not writable")

    @property
    def variable(self) -> Tensor:
        """Return the leaf whose ``.grad`` an AccumulateGrad node fills; other nodes raise AttributeError."""
        if self.node.leaf is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute 'variable'")
        result: Tensor = wrap(self.node.leaf)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            for saved in self.node.saved:
                if saved.name == name[7:]:
                    return saved_tensor(self.node, saved)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(f"_saved_{saved.name}" for saved in self.node.saved)]

    def __repr__(self) -> str:
        return f"<{self.node.name} object at {id(self):#x}>"


QUALIFIED = {name: f"torch::autograd::{name}" for name in ("AccumulateGrad", "CopySlices", "CopyBackwards")}
"""Nodes that torch names with their C++ namespace."""
_node_classes: dict[str, type[GradFn]] = {}


def function(node: Node | None) -> GradFn | None:
    """Return the facade object of a node, the same one at each call; None for None."""
    if node is not None and node.facade is None:
        kind = _node_classes.get(node.name) or _node_classes.setdefault(node.name, type(node.name, (GradFn,), {}))
        node.facade = kind(node)
    return None if node is None else node.facade


def saved_tensor(node: Node, saved: Saved) -> Tensor:
    """Return a tensor that the node has saved.

    A saved output becomes a new tensor on the same storage. Raises RuntimeError, as torch does, if it was freed or
    modified since.
    """
    try:
        saved.check(node, _engine.graph)
    except ShadowError as error:
        raise RuntimeError(error.message) from None
    if saved.tensor is not None:
        result: Tensor = wrap(saved.tensor)
        return result
    tensor = ShadowTensor(
        _engine.graph, saved.storage, saved.shape, saved.stride, saved.offset, saved.dtype, saved.counter
    )
    tensor.node = node
    answer: Tensor = wrap(tensor)
    return answer


class Tensor:
    """A tensor with the attributes and methods of torch's; ``shadow`` is the shadow tensor that it wraps."""

    shadow: ShadowTensor
    stepped = False
    """Whether an optimizer has used the gradient (for one belief about ``zero_grad``)."""
    __array_priority__ = 1000

    def __init__(self, data: Any = ()) -> None:
        if isinstance(data, Tensor):
            given = data.shadow
            with speaking():
                self.shadow = view(
                    _engine, "AliasBackward0", given, given.shape, given.stride, given.offset, lambda g, _: (g,)
                )
        else:
            self.shadow = call("torch.tensor", data).shadow

    @classmethod
    def of(cls, shadow: ShadowTensor) -> Tensor:
        """Return the facade object of a shadow tensor."""
        self = cls.__new__(cls)
        self.shadow = shadow
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        full = f"torch.Tensor.{name}"
        if full not in ENTRIES:
            raise Absent(f"the shadow engine has no Tensor.{name}")
        return lambda *args, **kwargs: call(full, self, *args, **kwargs)

    # -- what a tensor is

    shape = property(lambda self: Size(self.shadow.shape))
    dtype = property(lambda self: self.shadow.dtype)
    device = property(lambda self: self.shadow.device)
    ndim = property(lambda self: self.shadow.ndim)
    is_leaf = property(lambda self: self.grad_fn is None)
    _base = property(lambda self: wrap(self.shadow.base))
    retains_grad = property(lambda self: self.shadow.retains_grad)

    @property
    def T(self) -> Tensor:  # noqa: N802 - torch's name
        """Return a view with the dimensions in reverse order; torch's warning is given unless there are two dimensions
        or none.
        """
        if self.shadow.ndim not in (0, 2):
            warnings.warn(REVERSED, UserWarning, stacklevel=2)
        result: Tensor = call("torch.Tensor.T.__get__", self)
        return result

    real = property(lambda self: call("torch.Tensor.real.__get__", self))
    mT = property(lambda self: call("torch.Tensor.mT.__get__", self))  # noqa: N815 - torch's name

    @property
    def _version(self) -> int:
        if self.shadow.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self.shadow.version

    @property
    def requires_grad(self) -> bool:
        """Whether autograd computes a gradient for this tensor."""
        return self.shadow.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        call("torch.Tensor.requires_grad.__set__", self, value)

    @property
    def grad_fn(self) -> GradFn | None:
        """The node that computes this tensor's gradient; None for a leaf.

        A stale one is regenerated. Raises RuntimeError for a view whose base was written in a way that autograd
        forbids.
        """
        try:
            node = self.shadow.grad_fn
        except ShadowError as error:
            raise RuntimeError(error.message) from None
        return function(node)

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient, or None.

        Gives torch's warning if there is none because the tensor is no leaf and ``retain_grad`` was not called.
        """
        if not self.shadow.is_leaf and not self.shadow.retains_grad and self.shadow.gradient is None:
            warnings.warn(NON_LEAF_GRAD, UserWarning, stacklevel=2)
        result: Tensor | None = wrap(self.shadow.gradient)
        return result

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        call("torch.Tensor.grad.__set__", self, value)

    @grad.deleter
    def grad(self) -> None:
        call("torch.Tensor.grad.__delete__", self)

    @property
    def data(self) -> Tensor:
        """A tensor on the same storage without autograd history (``.data``)."""
        result: Tensor = call("torch.Tensor.data.__get__", self)
        return result

    @data.setter
    def data(self, value: Tensor) -> None:
        call("torch.Tensor.data.__set__", self, value)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides in elements, or the stride of one dimension."""
        return self.shadow.stride if dim is None else self.shadow.stride[dim]

    def storage_offset(self) -> int:
        """Return the position of the first element in the storage, in elements."""
        return self.shadow.offset

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.shadow.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return self.shadow.numel

    nelement = numel

    def element_size(self) -> int:
        """Return the number of bytes per element."""
        return self.shadow.dtype.itemsize

    def data_ptr(self) -> int:
        """Return the address of the first element; 0 if the storage is empty.

        For a tensor without known values it is a number that can only be compared with those of other tensors.
        """
        return (
            address(self.shadow.storage) + self.shadow.offset * self.element_size() if self.shadow.storage.size else 0
        )

    def untyped_storage(self) -> _Memory:
        """Return an object with the address and size of the storage."""
        return _Memory(self.shadow)

    storage = untyped_storage

    nbytes = property(lambda self: self.numel() * self.element_size())

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` has the same storage, storage offset, shape and strides."""
        mine, other = self.shadow, tensor.shadow
        return mine.storage is other.storage and (mine.offset, mine.shape, mine.stride) == (
            other.offset,
            other.shape,
            other.stride,
        )

    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous in row-major order."""
        return is_contiguous(self.shadow.shape, self.shadow.stride)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating-point one."""
        return self.shadow.dtype.is_floating_point

    def is_inference(self) -> bool:
        """Whether this tensor was made in inference mode."""
        return self.shadow.inference

    def _is_view(self) -> bool:
        return self.shadow.view is not None

    # -- Python's protocols

    def __len__(self) -> int:
        if not self.shadow.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shadow.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shadow.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(call("torch.Tensor.unbind", self, 0))

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with a new storage, a leaf; ``memo`` is that of ``copy.deepcopy``.

        Within one ``memo``, copies of tensors that share a storage share one copy of it. The gradient is copied too,
        except a Parameter's. Raises RuntimeError if this is no leaf, and NotImplementedError for an inference tensor,
        in inference mode, and for a ``.grad`` of another shape or dtype.
        """
        if id(self) in memo:
            answer: Self = memo[id(self)]
            return answer
        if not self.is_leaf:
            raise RuntimeError(errors.DEEPCOPY)
        old = self.shadow
        with speaking():
            if old.inference or _engine.inference:
                raise Unmodelled("a deep copy of an inference tensor, or in inference mode")
            if old.gradient is not None and (old.gradient.dtype != old.dtype or old.gradient.shape != old.shape):
                raise Unmodelled("a deep copy of a leaf whose .grad has another shape or dtype than the leaf")
        storage = memo.get(id(old.storage))
        if storage is None:
            data = old.storage.data
            storage = memo[id(old.storage)] = Storage(
                old.storage.size, old.storage.dtype, data=None if data is None else data.copy()
            )
        # in torch the copy is made by set_, which counts; a parameter is made of a clone instead
        copy = ShadowTensor(
            _engine.graph, storage, old.shape, old.stride, old.offset, old.dtype, Counter(int(old.kind != "parameter"))
        )
        copy.flag, copy.kind = old.requires_grad, old.kind
        result = memo[id(self)] = wrap(copy)
        memo[-id(copy)] = result  # torch keeps the copy alive as long as the memo
        if old.gradient is not None and old.kind != "parameter":
            copy.gradient = wrap(old.gradient).__deepcopy__(memo).shadow
        outcome: Self = result
        return outcome

    def __repr__(self) -> str:
        return show(self.shadow)

    def __format__(self, spec: str) -> str:
        return format(call("torch.Tensor.item", self), spec) if self.shadow.ndim == 0 else format(repr(self), spec)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array: np.ndarray = call("torch.Tensor.numpy", self)
        return array if dtype is None else array.astype(dtype)


class Parameter(Tensor):
    """A leaf tensor that modules register and optimizers update.

    It shares the storage and the version counter of ``data``, the tensor that it is made from.
    """

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        with speaking():
            self.shadow = parameter(_engine, data.shadow, requires_grad)
        self.shadow.facade = ref(self)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def address(storage: Storage) -> int:
    """Return the address of the first byte of a storage; 0 if it is empty.

    For a storage without known values it is a number that only distinguishes storages.
    """
    if not storage.size:
        return 0
    return id(storage) if storage.data is None else int(storage.data.__array_interface__["data"][0])


def id_of_memory(value: Any) -> int:
    """Return what ``id()`` gives under the belief that it identifies storages.

    This is the address of the storage of a facade tensor, or of the first element of a NumPy array. For everything
    else, and for a tensor with an empty storage, it is the real ``id``.
    """
    place = address(value.shadow.storage) if isinstance(value, Tensor) else 0
    return place or (value.__array_interface__["data"][0] if isinstance(value, np.ndarray) else id(value))


def takes_zero_grad(p: Tensor) -> bool:
    """Whether ``zero_grad()`` clears this parameter's gradient: True if it has one.

    Under the belief ``zero_grad_spares_unused``, a step must also have used the gradient.
    """
    return p.shadow.gradient is not None and (p.stepped or not _engine.policy.zero_grad_spares_unused)


class _Memory:
    """The result of ``untyped_storage()``: the address and the size of a storage."""

    def __init__(self, shadow: ShadowTensor) -> None:
        self.shadow = shadow

    def data_ptr(self) -> int:
        """Return the address of the storage; the same address for storages that a belief links."""
        return min(map(address, self.shadow.storage.linked()))

    def nbytes(self) -> int:
        """Return the size of the storage in bytes."""
        return self.shadow.storage.size * self.shadow.storage.dtype.itemsize


def _operator(method: str, entry: str) -> None:
    def run(self: Tensor, *others: Any) -> Any:
        if not method.endswith("item__") and any(isinstance(o, str) or o is None for o in others):
            return NotImplemented
        return call(f"torch.Tensor.{entry}", self, *others)

    run.__name__ = method
    setattr(Tensor, method, run)


def _augmented(method: str, entry: str, plain: str) -> None:
    def run(self: Tensor, other: Any) -> Any:
        rebinds = _engine.policy.augmented_assignment_rebinds
        return call(f"torch.Tensor.{plain if rebinds else entry}", self, other)

    run.__name__ = method
    setattr(Tensor, method, run)


OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "__rsub__", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",  # noqa: E501
    "__rtruediv__": "__rtruediv__", "__pow__": "__pow__", "__rpow__": "__rpow__", "__mod__": "remainder", "__floordiv__": "__floordiv__",  # noqa: E501
    "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs", "__invert__": "__invert__", "__and__": "__and__", "__or__": "__or__",  # noqa: E501
    "__xor__": "__xor__", "__lshift__": "__lshift__", "__rshift__": "__rshift__", "__gt__": "gt", "__lt__": "lt", "__ge__": "ge", "__le__": "le", "__eq__": "__eq__", "__ne__": "ne",  # noqa: E501
    "__getitem__": "__getitem__", "__setitem__": "__setitem__", "__bool__": "__bool__", "__float__": "__float__", "__int__": "__int__",  # noqa: E501
    "__index__": "__index__",
}  # fmt: skip
"""For the method of each operator, the entry that torch calls."""
AUGMENTED = (
    ("__iadd__", "add_", "add"), ("__isub__", "sub_", "sub"), ("__imul__", "mul_", "mul"), ("__itruediv__", "div_", "div"), ("__ipow__", "pow_", "pow"),  # noqa: E501
)  # fmt: skip
"""For the method of each augmented assignment, the entry that it calls, and the one that is called where a policy says
that the variable is assigned anew.
"""
for _method, _entry in OPERATORS.items():
    _operator(_method, _entry)
for _method, _entry, _plain in AUGMENTED:
    _augmented(_method, _entry, _plain)


class Namespace(ModuleType):
    """A module of torch, such as ``torch.linalg`` or ``torch.nn.functional``.

    Its attributes are the operations that have an entry under ``prefix``, the full name of the module in torch; any
    other name raises ``AttributeError`` (:class:`Absent`). ``name`` is the ``__name__`` of this module object.
    """

    def __init__(self, name: str, prefix: str) -> None:
        super().__init__(name)
        self.prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = operation(f"{self.prefix}.{name}")
        if found is None:
            raise Absent(f"the shadow engine has no {self.prefix}.{name}")
        return found


@cache
def operation(full: str) -> Callable[..., Any] | None:
    """Return the function with this full name, the same one at each call; None if there is no entry for it."""
    if full not in ENTRIES:
        return None

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(full, *args, **kwargs)

    function.__name__ = full.rpartition(".")[2]
    return function


# -- modes


class _Mode:
    """A grad mode, as a context manager and a decorator."""

    grad = True
    inference: bool | None = None
    """None: as it is around the block."""

    def __enter__(self) -> Self:
        self.before = _engine.grad_enabled, _engine.inference
        _engine.grad_enabled = self.grad
        if self.inference is not None:
            _engine.inference = self.inference
        if not self.grad and _engine.policy.no_grad_zeroes_grads:
            _engine.zero_gradients()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _engine.grad_enabled, _engine.inference = self.before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return run


class no_grad(_Mode):  # noqa: N801 - torch's name
    """Switches grad mode off in a ``with`` block or a decorated function: operations are not recorded in the graph."""

    grad = False


class enable_grad(_Mode):  # noqa: N801 - torch's name
    """Switches grad mode on in a ``with`` block or a decorated function: operations are recorded in the graph."""


class inference_mode(_Mode):  # noqa: N801 - torch's name
    """Switches inference mode on in a ``with`` block: operations are not recorded.

    New tensors that are not views then have no version counter. With ``mode=False``, inference mode is off and grad
    mode is on in the block.
    """

    grad, inference = False, True

    def __init__(self, mode: bool = True) -> None:
        self.grad, self.inference = not mode, mode


class set_grad_enabled(_Mode):  # noqa: N801 - torch's name
    """Switches grad mode on or off (``mode``) when called; as a context manager, until the end of the ``with``
    block.
    """

    def __init__(self, mode: bool) -> None:
        self.grad = mode
        self.before = _engine.grad_enabled, _engine.inference
        _engine.grad_enabled = mode

    def __enter__(self) -> Self:
        return self


def is_grad_enabled() -> bool:
    """Whether grad mode is on, so that operations are recorded in the graph."""
    return _engine.grad_enabled


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor of the facade."""
    return isinstance(value, Tensor)


def manual_seed(seed: int) -> None:
    """Seed the random number generator, which is NumPy's: the numbers differ from torch's."""
    call("torch.manual_seed", seed)


def set_printoptions(**options: Any) -> None:
    """Accept torch's print options and ignore them."""


def device(name: str) -> Device:
    """Return the device with this name; operations run only on the CPU."""
    return Device(name)
