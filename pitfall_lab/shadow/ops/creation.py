"""Functions that create tensors: filled, random, from Python numbers, and from NumPy arrays."""

# ruff: noqa: A002, ARG001, D103 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import INT64, DType, default_float, from_numpy, of_number, promote
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import INFERENCE_FLAG, ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.layout import Strided, element_strides, preserved
from pitfall_lab.shadow.memory_format import strides
from pitfall_lab.shadow.ops.building import NUMBERS, as_shape, copied, new, no_room_to_fill, tensor_only
from pitfall_lab.shadow.ops.views import alias
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, Storage

COPY_CONSTRUCT = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
)
FLOATS_ONLY = "Only Tensors of floating point and complex dtype can require gradients"

NEGATIVE_STRIDES = (
    "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
    "supported. (You can probably work around this by making a copy of your array  with array.copy().) "
)


def leaf(tensor: ShadowTensor, requires_grad: bool) -> ShadowTensor:
    """Set ``requires_grad`` of ``tensor`` and return it; raise ``ShadowError`` (torch's error) if it is to be True for
    an integer or bool dtype.
    """
    if requires_grad and tensor.dtype.category < 2:
        raise runtime(FLOATS_ONLY, "dtype")
    tensor.flag = bool(requires_grad)
    return tensor


def plain(device: Any, layout: Any = None, pin_memory: Any = None, memory_format: Any = None) -> None:
    """Raise Unmodelled, so that the engine makes no prediction, unless these arguments ask for an ordinary CPU tensor:
    strided, not pinned, in contiguous or preserved memory format.
    """
    if device is not None and str(device).split(":")[0] != "cpu":
        raise Unmodelled(f"device {device}")
    if layout is not None and "strided" not in str(layout):
        raise Unmodelled(f"layout {layout}")
    if pin_memory:
        raise Unmodelled("pinned memory")
    if memory_format is not None and "preserve" not in str(memory_format) and "contiguous" not in str(memory_format):
        raise Unmodelled(f"memory format {memory_format}")


def made(e: Engine, shape: Shape, dtype: Any, values: np.ndarray | None, requires_grad: bool = False) -> ShadowTensor:
    """Return a new contiguous tensor with these values (None: unknown), a leaf.

    Raises ``ShadowError`` (torch's error) for an integer or bool ``dtype`` with ``requires_grad``.
    """
    return leaf(new(e, shape, DType(dtype), values), requires_grad)


def _filled(name: str, value: Any) -> None:
    def run(e: Engine, *size: Any, dtype: Any = None, requires_grad: bool = False, out: Any = None, device: Any = None,
            layout: Any = None, pin_memory: Any = None, names: Any = None,
            memory_format: Any = None) -> ShadowTensor:  # fmt: skip
        plain(device, layout, pin_memory, memory_format)
        if out is not None or names is not None:
            raise Unmodelled("out= and names= are not modelled")
        shape = as_shape(size)
        return made(
            e,
            shape,
            dtype or default_float(),
            None if value is None and e.random is None else np.full((), value or 0),
            requires_grad,
        )

    def like(e: Engine, input: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None,
             layout: Any = None, memory_format: Any = None, pin_memory: Any = None) -> ShadowTensor:  # fmt: skip
        tensor_only(input)
        plain(device, layout, pin_memory)
        values = None if value is None else np.full((), value)
        kept = memory_format is None or "preserve" in str(memory_format)
        stride = preserved(input) if kept else strides(input.shape, memory_format)
        return leaf(new(e, input.shape, DType(dtype or input.dtype), values, stride), requires_grad)

    def new_method(e: Engine, self: Any, *size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None,
                   layout: Any = None, pin_memory: Any = None) -> ShadowTensor:  # fmt: skip
        return run(
            e,
            *size,
            dtype=dtype or self.dtype,
            requires_grad=requires_grad,
            device=device,
            layout=layout,
            pin_memory=pin_memory,
        )

    shown = value is not None
    add(
        f"torch.{name}",
        run,
        samples=(f"torch.{name}(2, 3)", f"torch.{name}((2,), dtype=torch.float64, requires_grad=True)")
        if shown
        else (),
    )
    add(f"torch.{name}_like", like, samples=(f"torch.{name}_like(a)", f"torch.{name}_like(a.t())") if shown else ())
    add(f".new_{name}", new_method, samples=(f"n.new_{name}(2)", f"a.new_{name}((2, 2))") if shown else ())


_filled("zeros", 0)
_filled("ones", 1)
_filled("empty", None)


def check_room(dtype: Any, value: Any, shape: Shape) -> None:
    """Raise ``ShadowError`` (torch's error) for a fill value that overflows the dtype, and ``Unmodelled`` for one that
    is not a Python number.
    """
    if not isinstance(value, bool | int | float | complex):
        raise Unmodelled("a fill value that is not a Python number")
    if refused := no_room_to_fill(DType(dtype), value, math.prod(shape)):
        raise runtime(refused, "dtype")


@op("torch.full", samples=("torch.full((2, 3), 1.5)", "torch.full((2,), 3)"))
def full(e: Engine, size: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None,
         layout: Any = None, pin_memory: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    if not isinstance(fill_value, bool | int | float | complex):
        raise Unmodelled("torch.full with a tensor as fill_value")
    check_room(dtype or of_number(fill_value), fill_value, as_shape((size,)))
    return made(e, as_shape((size,)), dtype or of_number(fill_value), np.asarray(fill_value), requires_grad)


@op("torch.full_like", samples=("torch.full_like(a, 2)",))
def full_like(e: Engine, input: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False,
              device: Any = None, layout: Any = None, memory_format: Any = None,
              pin_memory: Any = None) -> ShadowTensor:  # fmt: skip
    tensor_only(input)
    plain(device, layout, pin_memory, memory_format)
    check_room(dtype or input.dtype, fill_value, input.shape)
    return leaf(
        new(e, input.shape, DType(dtype or input.dtype), np.asarray(fill_value), preserved(input)), requires_grad
    )


@op(
    "torch.arange",
    samples=(
        "torch.arange(4)",
        "torch.arange(1.0, 4)",
        "torch.arange(0, 1, 0.25)",
        "torch.arange(6.0, requires_grad=True)",
    ),
)
def arange(e: Engine, *bounds: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None,
           layout: Any = None, pin_memory: Any = None, start: Any = None, end: Any = None, step: Any = None,
           out: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    given = [x for x in (start, end, step) if x is not None]
    if given or out is not None or not all(isinstance(x, NUMBERS) for x in bounds):
        raise Unmodelled("arange with start=, end=, step= or with tensors")
    first, last, by = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    kind = (
        DType(dtype)
        if dtype
        else (default_float() if any(isinstance(x, float | np.floating) for x in bounds) else INT64)
    )
    count = max(int(np.ceil((last - first) / by)), 0)
    return made(
        e,
        (count,),
        kind,
        first + np.arange(count, dtype=np.float64 if kind.category > 1 else np.int64) * by,
        requires_grad,
    )


@op("torch.linspace", samples=("torch.linspace(0, 1, 5)",))
def linspace(e: Engine, start: Any, end: Any, steps: int, *, dtype: Any = None, requires_grad: bool = False,
             device: Any = None, layout: Any = None, pin_memory: Any = None,
             out: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    return made(e, (steps,), dtype or default_float(), np.linspace(start, end, steps), requires_grad)


@op("torch.eye", samples=("torch.eye(3)", "torch.eye(2, 3)"))
def eye(e: Engine, n: int, m: int | None = None, *, dtype: Any = None, requires_grad: bool = False, device: Any = None,
        layout: Any = None, pin_memory: Any = None, out: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    return made(e, (n, n if m is None else m), dtype or default_float(), np.eye(n, m), requires_grad)


# -- random numbers: unknown in lockstep, NumPy's own when stand-alone


def _check_random(kernel: str, dtype: DType, shape: Shape) -> None:
    if dtype.category < 2 and not (
        kernel == "normal_kernel_cpu" and 0 in shape
    ):  # torch's random function is not called then
        raise no_kernel(kernel, dtype.scalar_name)


def _random(name: str, kernel: str, draw: Callable[[np.random.Generator, Shape], np.ndarray]) -> None:
    def run(e: Engine, *size: Any, dtype: Any = None, requires_grad: bool = False, generator: Any = None,
            device: Any = None, layout: Any = None, pin_memory: Any = None, out: Any = None,
            names: Any = None) -> ShadowTensor:  # fmt: skip
        plain(device, layout, pin_memory)
        shape = as_shape(size)
        _check_random(kernel, DType(dtype or default_float()), shape)
        return made(
            e, shape, dtype or default_float(), None if e.random is None else draw(e.random, shape), requires_grad
        )

    def like(e: Engine, input: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None,
             layout: Any = None, memory_format: Any = None, pin_memory: Any = None,
             generator: Any = None) -> ShadowTensor:  # fmt: skip
        tensor_only(input)
        plain(device, layout, pin_memory, memory_format)
        _check_random(kernel, DType(dtype or input.dtype), input.shape)
        values = None if e.random is None else draw(e.random, input.shape)
        return leaf(new(e, input.shape, DType(dtype or input.dtype), values, preserved(input)), requires_grad)

    add(f"torch.{name}", run, samples=(f"torch.{name}(2, dtype=torch.int64)",))
    add(f"torch.{name}_like", like, samples=(f"torch.{name}_like(n)", f"torch.{name}_like(m)"))


_random("rand", "check_uniform_bounds", lambda r, shape: r.random(shape))
_random("randn", "normal_kernel_cpu", lambda r, shape: r.standard_normal(shape))


@op("torch.randint")
def randint(e: Engine, *bounds: Any, size: Any = None, low: int = 0, high: int | None = None, dtype: Any = None,
            requires_grad: bool = False, generator: Any = None, device: Any = None, layout: Any = None,
            pin_memory: Any = None, out: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    given = list(bounds)
    if size is None:
        size = given.pop()
    if given:
        low, high = (0, given[0]) if len(given) == 1 else (given[0], given[1])
    if high is None:
        raise Unmodelled("randint without high")
    shape = as_shape((size,))
    return made(
        e, shape, dtype or INT64, None if e.random is None else e.random.integers(low, high, shape), requires_grad
    )


@op("torch.randperm")
def randperm(e: Engine, n: int, *, dtype: Any = None, requires_grad: bool = False, generator: Any = None,
             device: Any = None, layout: Any = None, pin_memory: Any = None,
             out: Any = None) -> ShadowTensor:  # fmt: skip
    plain(device, layout, pin_memory)
    return made(e, (n,), dtype or INT64, None if e.random is None else e.random.permutation(n), requires_grad)


@op("torch.random.manual_seed", "torch.manual_seed", kind="other")
def manual_seed(e: Engine, seed: int) -> None:
    if e.random is not None:
        e.random = np.random.default_rng(seed)


# -- from values


def _python_dtype(data: Any) -> DType | None:
    """The dtype that torch infers for nested lists of numbers: int64 for ints, the default
    float dtype if one is a float.

    None for an empty list.
    """
    if isinstance(data, np.generic):
        return from_numpy(data.dtype)
    if isinstance(data, bool | int | float | complex):
        return of_number(data)
    if isinstance(data, ShadowTensor):
        return data.dtype
    if isinstance(data, np.ndarray):
        return from_numpy(data.dtype)
    if not isinstance(data, list | tuple | range):
        raise Unmodelled(f"torch.tensor of {type(data).__name__}")
    kinds = [k for k in map(_python_dtype, data) if k is not None]
    result = kinds[0] if kinds else None
    for kind in kinds[1:]:
        result = promote(result, kind) if result is not None else kind
    return result


def _python_values(data: Any) -> np.ndarray | None:
    if isinstance(data, ShadowTensor):
        return data.values()
    if isinstance(data, list | tuple | range) and any(
        isinstance(x, ShadowTensor | np.ndarray | list | tuple | range) for x in data
    ):
        parts = [_number_of(x) if isinstance(x, ShadowTensor) else _python_values(x) for x in data]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            raise Unmodelled("torch.tensor of a list of tensors whose values are unknown")
        if len({p.shape for p in known}) > 1:
            raise Unmodelled("torch.tensor of a nested list with unequal lengths")
        return np.stack(known)
    return np.asarray(data)


def _number_of(element: ShadowTensor) -> np.ndarray | None:
    """The number in a tensor that is an element of a list, whatever the tensor's number of dimensions.

    As an array without dimensions; None if its value is unknown. Raises torch's error for a tensor of several elements,
    or of none.
    """
    if element.numel != 1:
        raise _value_error("only one element tensors can be converted to Python scalars")
    values = element.values()
    return None if values is None else values.reshape(())


@op(".new_tensor", samples=("a.new_tensor([1.0])", "n.new_tensor([1.5])"))
def new_tensor(
    e: Engine, self: Any, data: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None
) -> ShadowTensor:
    tensor_only(self)
    return tensor(e, data, dtype=dtype or self.dtype, requires_grad=requires_grad, device=device)


@op("torch.tensor", samples=("torch.tensor([1.0, 2.0])", "torch.tensor([1, 2])", "torch.tensor(3)",
    "torch.tensor([[True]])", "torch.tensor([1.0], requires_grad=True, dtype=torch.float64)", "torch.tensor([])",
    "torch.tensor([1, 2.5])", "torch.tensor([a[:1, :1], 2.5])", "torch.tensor([[a[0, 0]], [a[1, 1]]])"))  # fmt: skip
def tensor(
    e: Engine, data: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None, pin_memory: Any = None
) -> ShadowTensor:
    plain(device, None, pin_memory)
    if e.policy.torch_tensor_shares_memory and isinstance(data, ShadowTensor | np.ndarray):
        return alias(e, data, data.counter) if isinstance(data, ShadowTensor) else from_array(e, data)
    kind = DType(dtype) if dtype else (_python_dtype(data) or default_float())
    values = _python_values(data)
    if isinstance(data, ShadowTensor):
        e.warnings.append(COPY_CONSTRUCT)
    shape = tuple(data.shape if isinstance(data, ShadowTensor) else np.asarray(values).shape)
    stride = preserved(data) if isinstance(data, ShadowTensor) else _array_order(data)
    return leaf(new(e, shape, kind, values, stride), requires_grad)


def _array_order(data: Any) -> Shape | None:
    """The strides of a copy of an array, which keeps the order of its elements in memory; None for other data."""
    if not isinstance(data, np.ndarray):
        return None
    if any(s < 0 for s in data.strides):
        raise _value_error(NEGATIVE_STRIDES)
    if any(s % data.itemsize for s in data.strides):
        raise Unmodelled("an array whose strides are no multiples of an element")
    return preserved(Strided(data.shape, element_strides(data)))


@op("torch.as_tensor", "torch.asarray", kind="view", samples=("torch.as_tensor(a)", "torch.as_tensor([1.0])"))
def as_tensor(e: Engine, data: Any, dtype: Any = None, device: Any = None) -> ShadowTensor:
    plain(device)
    if isinstance(data, ShadowTensor):
        if dtype is None or data.dtype == dtype:
            return data
        raise Unmodelled("as_tensor with another dtype")
    if isinstance(data, np.ndarray) and (dtype is None or from_numpy(data.dtype) == dtype):
        return from_array(e, data)
    return tensor(e, data, dtype=dtype)


@op("torch.from_numpy", kind="view")
def from_array(e: Engine, ndarray: Any) -> ShadowTensor:
    """``torch.from_numpy``, which shares the array's memory.

    Raises ``ShadowError`` (torch's error) for negative strides, TypeError for a dtype that torch lacks, and
    ``Unmodelled`` in lockstep, where torch's tensor is taken over, for what is no array, and where :func:`memory_of`
    does. Under the belief ``from_numpy_copies`` it is a copy.
    """
    if not isinstance(ndarray, np.ndarray):
        raise Unmodelled("from_numpy of something that is not an array")
    kind = from_numpy(ndarray.dtype)
    if e.policy.from_numpy_copies:
        return made(e, ndarray.shape, kind, ndarray)
    if not e.standalone:
        raise Unmodelled("from_numpy beside a running torch: the array's memory is not the shadow's")
    if any(s < 0 for s in ndarray.strides):
        raise _value_error(NEGATIVE_STRIDES)
    base = memory_of(ndarray)
    storage = e.numpy_storage(base, kind)
    item = ndarray.itemsize
    offset = (ndarray.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // item
    counter = None if e.inference else Counter()
    tensor = ShadowTensor(
        e.graph, storage, ndarray.shape, tuple(s // item for s in ndarray.strides), offset, kind, counter
    )
    if e.inference:
        tensor.inference = e.met_inference = True
    return tensor


def memory_of(array: np.ndarray) -> np.ndarray:
    """Return the flat array that owns the memory of ``array``.

    Raises ``Unmodelled`` for memory of another dtype, or one that is not contiguous.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.dtype != array.dtype or not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        raise Unmodelled("a NumPy array that views memory of another dtype, or memory that is not contiguous")
    return owner.reshape(-1, order="A")


def _value_error(text: str) -> Exception:
    return ShadowError("ValueError", text, "other")


@op(".numpy", ".__array__", kind="view")
def numpy(e: Engine, self: Any, dtype: Any = None, *, force: bool = False) -> Any:
    """``Tensor.numpy``: an array that shares the memory when stand-alone; a copy of the values in lockstep, and under
    the belief ``from_numpy_copies``.

    Raises ``ShadowError`` (torch's error) for a tensor that requires grad, unless ``force`` or with grad mode off.
    Raises ``Unmodelled``, among others, for unknown values, and with a ``dtype``.
    """
    tensor_only(self)
    if self.requires_grad and e.grad_enabled and not force:
        raise runtime(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.", tensor=self
        )
    seen = self.window()
    if seen is None or dtype is not None:
        raise Unmodelled("values that are not modelled")
    if not e.standalone or e.policy.from_numpy_copies:
        return seen.copy()
    e.share(self.storage)
    return seen


def parameter(e: Engine, data: ShadowTensor, requires_grad: bool = True) -> ShadowTensor:
    """``nn.Parameter``: a leaf with the same storage and version counter.

    Raises ``ShadowError`` (torch's error) for an inference tensor outside of inference mode, and for an integer or bool
    dtype, unless ``requires_grad`` is False.
    """
    if requires_grad and data.inference and not e.inference:
        raise runtime(INFERENCE_FLAG, "inference-tensor", tensor=data)
    result = alias(e, data, data.counter)
    result.kind = "parameter"
    return leaf(result, requires_grad)


add("torch.nn.parameter.Parameter", parameter, "view")

__all__ = ["Storage", "copied", "leaf", "made", "parameter", "plain", "tensor"]
