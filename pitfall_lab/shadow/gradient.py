"""How torch stores gradients: their strides, reference counts, in-place addition, and which tensor becomes ``.grad``.

Source in torch: ``torch/csrc/autograd/input_buffer.cpp`` and ``functions/accumulate_grad.h``. None of this changes a
value; it determines ``.grad._version``, ``.grad.stride()`` and the storage of ``.grad``.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.graph import Written
from pitfall_lab.shadow.layout import element_strides, made_of
from pitfall_lab.shadow.origins import Sum
from pitfall_lab.shadow.storage import (
    Counter,
    ShadowTensor,
    Shape,
    Storage,
    contiguous_strides,
    is_contiguous,
    is_dense,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pitfall_lab.shadow.dtypes import DType
    from pitfall_lab.shadow.engine import Engine
    from pitfall_lab.shadow.graph import Graph, Meta, Node, Vjp
    from pitfall_lab.shadow.origins import Origin


class Held:
    """The storage of a gradient, which its views share.

    ``holders`` is the number of references to it. ``counter`` and ``storage`` are those that it has when it becomes a
    ``.grad``; ``storage`` is None until one is needed. In torch: the reference count of the gradient's tensor
    (``input_buffer.cpp``, ``functions/accumulate_grad.h``).
    """

    __slots__ = ("counter", "holders", "storage")

    def __init__(self, version: int = 0) -> None:
        self.holders = 0
        self.counter = Counter(version)
        self.storage: Storage | None = None


class Gradient:
    """A gradient passed between nodes; ``array`` is None if its values are unknown.

    torch adds in place into a gradient with no other reference, which is visible in ``.grad._version``. ``holders``
    therefore counts the references to this gradient, and ``held.holders`` those to its storage, including references by
    views of it (the gradient of a transpose, of a sum). ``origin`` is the formula that computed it, or the two
    gradients that were added (None: unknown).
    """

    __slots__ = ("array", "held", "holders", "loose", "origin", "outline", "shape", "tensor")

    def __init__(
        self, array: np.ndarray | None, shape: Shape, held: Held | None = None, tensor: ShadowTensor | None = None
    ) -> None:
        self.array = array
        self.shape = shape
        self.tensor = tensor
        """The tensor of this gradient, when one exists: one that the caller passed in, or with
        ``create_graph`` every gradient.
        """
        self.held = held or Held()
        self.holders = 0
        self.loose = False
        """Whether its strides in torch, and so whether ``.grad`` is a copy, are not modelled (it was
        computed from transposed arrays).
        """
        self.origin: Origin = None
        self.outline: np.ndarray | None = None
        """For a gradient with unknown values that the caller passed in: an int8 array with the same shape and strides,
        used to see whether a vjp returns a view of its input.
        """

    def hold(self, by: int = 1) -> None:
        """Add ``by`` to the number of references; -1 removes one."""
        self.holders += by
        self.held.holders += by

    def plus(self, other: Gradient) -> Gradient:
        """The sum, in place where torch adds in place: if this gradient has no other holder and is
        neither a view nor has gaps.

        Not in place either where a recorder has read the gradient's memory (a hook or a backward of the program was
        given it): to read it gives torch's storage a Python object, which is a holder. The numbers are the same.
        """
        # A view (the gradient of a transpose, of a reshape) keeps its base alive, so it never is the only holder.
        owned = self.array is None or (not isinstance(self.array.base, np.ndarray) and dense_array(self.array))
        memory = self.held.storage
        in_place = self.held.holders <= 1 and owned and (memory is None or not memory.mark)
        array = None if self.array is None or other.array is None else _sum(self.array, other.array, in_place=in_place)
        total = Gradient(array, self.shape)
        if in_place:
            self.held.counter.version += 1
            total.held = self.held
            if self.tensor is None:
                total.held.storage = None  # the storage that a hook saw held the values before the sum
        total.loose = self.loose or other.loose
        total.origin = Sum(self, other)
        return total


def outline_of(tensor: ShadowTensor) -> np.ndarray | None:
    """An int8 array with the tensor's shape, strides and offset, for a tensor without
    values (see ``Gradient.outline``).

    None if the tensor is empty or reaches beyond its storage.
    """
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
    if not tensor.numel or tensor.offset + last >= tensor.storage.size:
        return None
    return np.ndarray(tensor.shape, np.int8, np.zeros(tensor.storage.size, np.int8), tensor.offset, tensor.stride)


def handed_through(
    node: Node, incoming: Sequence[Gradient | None], metas: Sequence[Meta | None]
) -> list[Gradient | None]:
    """The outgoing gradients of ``node`` where values are unknown: a Gradient without values for each of ``metas``,
    None where that is None.

    One that is the incoming gradient, or a view of it, shares its memory.
    """
    made = [None if meta is None else Gradient(None, meta[0]) for meta in metas]
    given = incoming[0]
    if (
        given is None
        or given.outline is None
        or node.vjp is None
        or node.saved
        or node.mirrored
        or node.multiple
        or not node.outputs
    ):
        return made
    try:
        results = node.vjp(given.outline, SimpleNamespace())
    except (ArithmeticError, TypeError, ValueError, Unmodelled):  # the formula needs real values
        return made
    for k, (result, meta) in enumerate(zip(results, metas, strict=False)):
        if (
            meta is None
            or not isinstance(result, np.ndarray)
            or meta[1] != node.outputs[0][1]
            or result.dtype != np.int8
        ):
            continue
        seen = np.asarray(sum_to(result, meta[0]))
        if memory(seen) is memory(given.outline):
            handed = made[k] = given if seen is given.outline else Gradient(None, meta[0], given.held)
            handed.outline = seen
    return made


def swapped(old: Gradient | None, new: Gradient | None) -> Gradient | None:
    """Return ``new``, which a hook returned in place of ``old`` (either may be None: no
    gradient), and count its holder.

    The node now holds ``new`` and not ``old``.
    """
    if new is not old:
        for gradient, by in ((old, -1), (new, 1)):
            if gradient is not None:
                gradient.hold(by)
        if old is not None and new is not None:
            new.loose |= old.loose  # what was computed from it has its strides
    return new


def _sum(a: np.ndarray, b: np.ndarray, *, in_place: bool) -> np.ndarray:
    """``a + b``, in place with the strides of ``a``, or in new memory with the strides
    that TensorIterator gives a sum.
    """
    if in_place:
        return np.asarray(laid_like(a + b, a))
    total = made_of(a, b)
    np.add(a, b, out=total)
    return total


def plus(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    """``a + b``; None when either is unknown."""
    return None if a is None or b is None else a + b


def sum_to(g: Any, shape: Shape) -> Any:
    """Undo broadcasting: sum the gradient ``g`` over the dimensions that were added or stretched, to ``shape``
    (``aten/src/ATen/ExpandUtils.h``).

    A gradient with fewer dimensions than ``shape`` is broadcast to it instead; one that has the shape is returned
    itself.
    """
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if extra < 0:
        return np.broadcast_to(g, shape)
    if not shape:
        return g.sum()
    axes = (*range(extra), *(extra + i for i, n in enumerate(shape) if n == 1 and g.shape[extra + i] != 1))
    if not axes:
        return g.reshape(shape) if extra else g
    if not isinstance(g, np.ndarray):  # a gradient that has a grad_fn (create_graph)
        added = g.sum(axis=axes, keepdims=True)
        return added.reshape(shape) if extra else added
    # torch's sum has row-major strides; NumPy's would have those of ``g``.
    total = np.empty(tuple(1 if axis in axes else n for axis, n in enumerate(g.shape)), g.dtype)
    g.sum(axis=axes, keepdims=True, out=total)
    return total.reshape(shape) if extra else total


def as_tensor(engine: Engine, leaf: ShadowTensor, gradient: Gradient, dtype: DType) -> ShadowTensor:
    """The new ``.grad`` of a leaf: the gradient's own memory when nothing else holds it and
    its strides fit, else a copy.

    ``dtype`` is the leaf's when the graph was made; ``leaf.data = …`` may have changed it since. Raises Unmodelled if
    the shapes differ, unless the gradient is one element of known value that nothing else holds.
    """
    dense = is_dense(leaf.shape, leaf.stride)
    stride = leaf.stride if dense else contiguous_strides(leaf.shape)
    if dtype.numpy is None:
        gradient.array = None  # bfloat16: the array is a float32 copy
    array, outline = gradient.array, gradient.outline
    fits = gradient.shape == leaf.shape
    if not fits and (array is None or array.size != 1 or gradient.holders > 1):
        raise Unmodelled("a gradient whose shape differs from its leaf's: the leaf's .data was replaced after forward")
    lying = outline if array is None else array
    if gradient.holders <= 1 and (lying is None or not fits or _same_layout(lying, leaf, stride)):
        storage, offset = stolen(gradient, dtype)
        lying = outline if gradient.array is None else gradient.array
        own = stride if lying is None or not leaf.numel else element_strides(lying)
        result = ShadowTensor(leaf.graph, storage, gradient.shape, own, offset, dtype, gradient.held.counter)
    else:
        # The copy is made by writing into fresh memory, which counts as a change.
        storage = Storage(leaf.numel, dtype)
        result = ShadowTensor(leaf.graph, storage, leaf.shape, stride, 0, dtype, Counter(int(dense)))
        if array is not None:
            storage.data = np.empty(leaf.numel, array.dtype)
            target = result.window()
            if leaf.numel and target is not None:
                target[...] = array
    # NumPy's strides of an empty array differ from torch's.
    result.loose = ((gradient.loose or (array is None and outline is None)) and gradient.holders <= 1) or not leaf.numel
    engine.graph.gradients.add(result)
    return result


def retained(tensor: ShadowTensor, gradient: Gradient, dtype: DType) -> ShadowTensor:
    """The ``.grad`` of a tensor with ``retain_grad``: a contiguous copy, or a new sum
    (``VariableHooks::retain_grad`` in ``variable.cpp``).

    ``dtype`` is the tensor's when the graph was made.
    """
    held = tensor.gradient
    array, shape = (
        (gradient.array, gradient.shape) if held is None else (plus(held.window(), gradient.array), held.shape)
    )
    storage = Storage(math.prod(shape), dtype)
    result = ShadowTensor(tensor.graph, storage, shape, contiguous_strides(shape), 0, dtype, Counter())
    if held is not None:
        # A sum has the order of dimensions of its first operand; the second decides where that is
        # ambiguous (dimensions of size 1).
        turned = held.stride != contiguous_strides(shape)
        result.loose = turned or (
            1 in shape and (gradient.loose or gradient.array is None or is_permuted(gradient.array))
        )
    if array is not None:
        result.storage.data = np.empty(storage.size, array.dtype)
        target = result.window()
        if storage.size and target is not None:
            target[...] = array
    return result


def in_memory(gradient: Gradient, graph: Graph, dtype: DType) -> ShadowTensor:
    """The gradient as a tensor of ``dtype``, on the memory that itself becomes ``.grad`` if nothing else holds it. It
    needs values, or an ``outline``.
    """
    storage, offset = stolen(gradient, dtype)
    lying = gradient.outline if gradient.array is None else gradient.array
    assert lying is not None
    made = not lying.size and lying.flags.owndata  # NumPy's strides of an empty array mean nothing
    stride = contiguous_strides(gradient.shape) if made else element_strides(lying)
    return ShadowTensor(graph, storage, gradient.shape, stride, offset, dtype, gradient.held.counter)


def stolen(gradient: Gradient, dtype: DType) -> tuple[Storage, int]:
    """The storage on which a gradient's memory is, and the offset of the gradient in it, in elements.

    Gradients that are parts of one array (``cat``) share the storage. A gradient without a storage gets one from its
    array, with ``dtype``, or a new one without values.
    """
    held, array = gradient.held, gradient.array
    if array is None and gradient.outline is not None and held.storage is not None:
        return held.storage, _distance(gradient.outline, memory(gradient.outline))
    if array is None:
        return Storage(math.prod(gradient.shape), dtype), 0
    whole = memory(array)
    if whole.dtype != array.dtype or not dense_array(whole):
        whole = array = gradient.array = array.copy(order="K")
    if held.storage is None:
        flat = in_memory_order(whole)
        held.storage = Storage(whole.size, dtype, data=flat if whole.flags.writeable else flat.copy())
    return held.storage, _distance(array, whole)


def _distance(array: np.ndarray, whole: np.ndarray) -> int:
    """The offset, in elements, at which an array begins in its memory."""
    return int(array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) // array.itemsize


def memory(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def in_memory_order(array: np.ndarray) -> np.ndarray:
    """The elements of a dense array in memory order, as a flat array without a copy."""
    return array.transpose(sorted(range(array.ndim), key=lambda d: -array.strides[d])).reshape(-1)


def dense_array(array: np.ndarray) -> bool:
    """Whether the array's elements fill one run of memory without gaps and without sharing an address."""
    return is_dense(array.shape, element_strides(array))


def laid_like(made: Any, like: Any) -> Any:
    """``made`` with the strides of ``like``, copied if they differ; unchanged if ``like`` is
    not dense or has another shape.
    """
    if not isinstance(like, np.ndarray) or made.shape != like.shape or not like.size or not dense_array(like):
        return made
    strides = element_strides(like)
    if element_strides(made) == strides:
        return made
    own = np.ndarray(made.shape, made.dtype, bytearray(made.nbytes), 0, [s * made.itemsize for s in strides])
    own[...] = made
    return own


def converted(array: Any, dtype: Any) -> Any:
    """Return the array converted to another dtype, with its strides if it is dense; of complex numbers, the
    real parts for a real dtype.
    """
    return laid_like(without_imaginary(array, dtype).astype(dtype, copy=False), array)


def without_imaginary(array: Any, dtype: Any) -> Any:
    """The real parts when ``dtype`` is not complex, else the array; a plain NumPy cast would
    warn inside the user's program.
    """
    return array.real if array.dtype.kind == "c" and np.dtype(dtype).kind in "fiu" else array


def average(array: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The mean of ``array`` along ``axis`` (None: of all elements), as NumPy's; NaN where there are no elements, of
    which NumPy would warn in the learner's program.

    >>> float(average(np.ones((0, 2))))
    nan
    """
    if array.size:
        return array.mean(axis=axis, keepdims=keepdims)
    return np.full_like(np.sum(array, axis=axis, keepdims=keepdims), np.nan)


def zeros_like(array: Any) -> Any:
    """Return zeros with the shape and strides of the array."""
    return laid_like(np.zeros_like(array), array)


def reshaped(array: Any, shape: Shape) -> Any:
    """A view of the array with another shape; a one-element array keeps its stride, as with torch's ``view``."""
    if isinstance(array, np.ndarray) and array.size == 1 and array.ndim:
        return np.ndarray(shape, array.dtype, in_memory_order(array), 0, array.strides[-1:] * len(shape))
    return array.reshape(shape)


def unsqueezed(g: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The array ``g`` with dimensions of size 1 inserted at ``dims``, with the strides of torch's ``unsqueeze``: 0
    before an expanded one.

    An array that is not dense gets NumPy's strides.
    """
    if not isinstance(g, np.ndarray) or not dense_array(g):
        return np.expand_dims(g, dims)
    shape, strides = list(g.shape), list(g.strides)
    for d in sorted(dims):
        strides.insert(d, shape[d] * strides[d] if d < len(shape) else g.itemsize)
        shape.insert(d, 1)
    return np.ndarray(shape, g.dtype, in_memory_order(g), 0, strides)


def is_permuted(array: Any) -> bool:
    """Whether an array is not row-major, or has a dimension of size 1 with another stride than a
    contiguous array has (0 excepted).

    False for an array of fewer than two dimensions.
    """
    if not isinstance(array, np.ndarray) or array.ndim < 2:
        return False
    plain = contiguous_strides(array.shape)
    strides = element_strides(array)
    if strides == plain:
        return False
    if any(n == 1 and s not in {0, p} for n, s, p in zip(array.shape, strides, plain, strict=True)):
        return True
    long = [s for n, s in zip(array.shape, strides, strict=True) if n != 1 and s]
    return long != sorted(long, reverse=True)


def _same_layout(array: np.ndarray, leaf: ShadowTensor, stride: Shape) -> bool:
    own = element_strides(array)
    if is_dense(leaf.shape, leaf.stride):
        # A stride of 0 shows that the gradient was expanded, even in a dimension of size 1: torch copies it.
        return all(a != 0 if n == 1 else a == b for n, a, b in zip(leaf.shape, own, stride, strict=True))
    return is_contiguous(leaf.shape, own)


def rounded_once(
    vjp: Vjp, given: Any, saved: Any, results: Sequence[Any], arrays: list[np.ndarray | None]
) -> list[Any]:
    """``results`` of the formula ``vjp`` as torch computes them in half precision: in float32, with only the results
    rounded.

    ``given`` and ``saved`` are what the formula was called with. Results on the memory of one of ``arrays`` (incoming
    gradients that were passed through), and those only converted, stay unchanged.

    Raises Unmodelled where ``results``, rounded after every step, differ so much that intermediate values must have
    overflowed or underflowed.
    """

    def wide(x: Any) -> Any:
        if isinstance(x, list):
            return [wide(item) for item in x]
        return widened(x) if getattr(x, "dtype", None) == np.float16 else x

    given = wide(given)
    exact = vjp(given, type(saved)({name: wide(value) for name, value in vars(saved).items()}))
    owners = [memory(a) for a in arrays if a is not None]
    rounded = []
    for result, better in zip(results, exact, strict=True):
        array, value = (x.array if isinstance(x, Written) else x for x in (result, better))
        if array is None or value is None or any(memory(np.asarray(array)) is owner for owner in owners):
            rounded.append(result)
        else:
            once = converted(np.asarray(value), np.asarray(array).dtype)  # another operand may have promoted it
            if any(
                isinstance(x, np.ndarray) and np.may_share_memory(once, x)
                for x in (given if isinstance(given, list) else [given])
            ):
                rounded.append(result)  # only converted
                continue
            if not _is_settled(np.asarray(array), once):
                raise Unmodelled(
                    "a backward formula in half precision whose intermediate results overflow or underflow"
                )
            times, seen_through = (result.times, result.seen_through) if isinstance(result, Written) else (0, False)
            seen_through |= isinstance(np.asarray(array).base, np.ndarray)
            rounded.append(Written(once, times, seen_through) if times or seen_through else once)
    return rounded


def widened(array: np.ndarray) -> np.ndarray:
    """A half-precision array converted to float32 with the same strides: expanded dimensions stay expanded."""
    if not array.size or dense_array(array) or min(array.strides) < 0:
        return np.asarray(converted(array, np.float32))
    strides = element_strides(array)
    span = 1 + sum((n - 1) * step for n, step in zip(array.shape, strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,)).astype(np.float32)
    return np.lib.stride_tricks.as_strided(flat, array.shape, [step * flat.itemsize for step in strides])


def _is_settled(stepwise: np.ndarray, once: np.ndarray) -> bool:
    """Whether it makes less than a tenth of the values if a formula rounds after every step or only
    once; True if the shapes differ.
    """
    size = np.abs(once[np.isfinite(once)]).max(initial=0)
    return stepwise.shape != once.shape or bool(np.allclose(stepwise, once, rtol=0.1, atol=0.1 * size, equal_nan=True))


def is_rounding(found: np.ndarray, meant: np.ndarray) -> bool:
    """Whether the gradients ``found`` and ``meant`` differ by rounding at most; integers, and arrays of different
    shapes, must be equal.

    They may differ, although nothing is wrong: gradients that passed through hooks have torch's values, the others the
    engine's own.
    """
    if found.shape != meant.shape or found.dtype.kind not in "fc":
        return bool(np.array_equal(found, meant, equal_nan=found.dtype.kind in "fc"))
    size = float(np.abs(meant[np.isfinite(meant)]).max(initial=0.0))
    unit = float(np.finfo(found.dtype).eps)
    return bool(np.allclose(found, meant, rtol=4 * unit, atol=4 * unit * size, equal_nan=True))
