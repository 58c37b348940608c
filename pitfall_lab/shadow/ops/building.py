"""What entries are built from: broadcasting, strides of results, and the three kinds of
operations that autograd records.

:func:`pure` makes a new tensor, :func:`in_place` writes an existing one, :func:`view` makes a view. Only these change
the graph; entries only say what is computed, what is saved and how gradients flow.
"""

# ruff: noqa: ARG001, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import BOOL, DType, can_cast, default_float, from_numpy, of_number, result_type
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.graph import Edge, Node, Saved, Vjp
from pitfall_lab.shadow.layout import (
    OVERLAP_LIMIT,
    layout,
    overlaps_itself,
    positions,
    preserved,
)
from pitfall_lab.shadow.registry import do
from pitfall_lab.shadow.storage import (
    Counter,
    ShadowTensor,
    Shape,
    Storage,
    ViewOf,
    contiguous_strides,
    is_dense,
)

Operand = ShadowTensor | bool | int | float | complex
NUMBERS = (bool, int, float, complex, np.number, np.bool_)


@dataclass(frozen=True, slots=True)
class Keep:
    """One tensor that an operation saves for backward.

    ``name`` is the node's attribute for it (``self``, ``result``); ``what`` the index of the operand, or ``"result"``.
    ``when``, for an operand: it is saved only if one of these edges leads to a node (the index of an operand that
    requires a gradient, or several); None: always. ``drawn``: it consists of random numbers.
    """

    name: str
    what: int | str
    when: int | tuple[int, ...] | None = None
    drawn: bool = False


@dataclass(frozen=True, slots=True)
class OpRule:
    """Forward and backward of an operation on NumPy arrays.

    ``node`` is torch's name of its node (empty: it has none, and results do not require grad); ``forward`` takes the
    operands' arrays and returns the result's (None: unknown values); ``keeps`` are the saved tensors in the order in
    which torch unpacks them. ``vjp(g, s)`` returns a gradient (or None) for each operand, from the gradient of the
    result and the saved arrays; None: the derivative is not modelled.
    """

    node: str
    forward: Callable[..., Any]
    keeps: tuple[Keep, ...] = ()
    vjp: Vjp | None = None
    edges: int | None = None
    """The number of operands that get an edge; None: all."""
    refused: str = ""
    """Torch's error for an unsuitable Python number, raised after the checks of the operands; empty: none."""


def refusing(rule: OpRule, text: str) -> OpRule:
    """Return ``rule`` with ``text`` as ``refused``, torch's error for an unsuitable Python number, raised when the rule
    is run; the rule itself if ``text`` is empty.
    """
    return replace(rule, refused=text) if text else rule


def of_finite(rule: OpRule) -> OpRule:
    """The rule, changed so that inf and NaN in its inputs make its result unknown (``forward`` returns None), and its
    ``vjp`` raises ``Unmodelled`` for them: the result then depends on the kernel's order of computing (0 * inf, inf -
    inf). Its ``vjp`` must not be None.
    """

    def forward(*given: Any) -> Any:
        return rule.forward(*given) if all(map(is_finite, given)) else None

    assert rule.vjp is not None
    return replace(rule, forward=forward, vjp=finite_vjp(rule.vjp))


def finite_vjp(vjp: Vjp) -> Vjp:
    """A ``vjp`` that raises ``Unmodelled`` for inf or NaN in the gradient or a saved array, and else returns what the
    given one does.
    """

    def careful(g: Any, s: Any) -> Sequence[Any]:
        if not all(map(is_finite, (g, *vars(s).values()))):
            raise Unmodelled("inf or NaN in a sum: the result depends on the order in which the kernel adds")
        return vjp(g, s)

    return careful


def is_finite(x: Any) -> bool:
    """Whether this is not an array, or one without inf and NaN."""
    return not isinstance(x, np.ndarray) or x.dtype.kind not in "fc" or bool(np.isfinite(x).all())


# -- shapes


def broadcast(*shapes: Shape) -> Shape:
    """The shape that shapes broadcast to; raises ``ShadowError`` (torch's error) when there is none.

    >>> broadcast((2, 1), (3,))
    (2, 3)
    """
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result:
            continue
        ndim = max(len(result), len(shape))
        a, b = (1,) * (ndim - len(result)) + result, (1,) * (ndim - len(shape)) + shape
        for dim in reversed(range(ndim)):
            if a[dim] != b[dim] and a[dim] != 1 and b[dim] != 1:
                raise runtime(
                    f"The size of tensor a ({a[dim]}) must match the size of tensor b ({b[dim]}) at "
                    f"non-singleton dimension {dim}",
                    "shape",
                )
        result = tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
    return result


def wrap_dim(dim: int, ndim: int) -> int:
    """The dimension ``dim``, which may be negative, counted from 0; raises ``ShadowError`` (torch's IndexError) when it
    is out of range for ``ndim`` dimensions.

    Without dimensions, -1 and 0 are allowed.
    """
    room = max(ndim, 1)
    if not -room <= dim < room:
        text = f"Dimension out of range (expected to be in range of [{-room}, {room - 1}], but got {dim})"
        raise errors.ShadowError("IndexError", text, "shape")
    return dim % room


def as_shape(sizes: Sequence[Any]) -> Shape:
    """The shape given by arguments, which may be ``(2, 3)`` or ``((2, 3),)``.

    Raises ``Unmodelled`` for sizes that are no integers.
    """
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = sizes[0]
    if not all(isinstance(n, int | np.integer) for n in sizes):
        raise Unmodelled(f"sizes {sizes!r}")
    return tuple(int(n) for n in sizes)


# -- tensors and numbers


C_NAMES = {
    "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex64": "c10::complex<float>",
}  # fmt: skip
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "complex64": 3.4028234663852886e38,
}


def overflows(value: Any, dtype: DType) -> bool:
    """Whether a Python number overflows ``dtype``, which must not be bool (``c10/util/TypeCast.h``); inf and NaN do so
    only in an integer dtype.

    A negative int may wrap around in an unsigned one. Of a complex number for a real dtype, any imaginary part but 0
    counts; for a complex dtype, either part. No finite number overflows float64, complex128 and the types that NumPy
    lacks (except bfloat16).
    """
    if isinstance(value, complex):
        if dtype.category < 3 and value.imag != 0:
            return True
        return overflows(value.real, dtype) or (value.imag != 0 and overflows(value.imag, dtype))
    if dtype.category > 1:
        return bool(np.isfinite(value) and abs(value) > LARGEST.get(dtype[:], np.inf))
    limits = np.iinfo(dtype.numpy)
    # A negative int wraps around in an unsigned dtype, a negative float does not.
    lowest = -limits.max if limits.min == 0 and isinstance(value, int) else limits.min
    return not lowest <= value <= limits.max


def check_word(value: Any) -> None:
    """Raise ``Unmodelled`` for a Python int that does not fit into 64 bits: the error is Python's own."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise Unmodelled("a Python int that does not fit into 64 bits")


def no_room(dtype: DType, *values: Any, wide: bool = False) -> str:
    """Torch's error text when one of the numbers in ``values`` overflows a dtype, else empty; other values do not
    count. Also empty for a dtype that is not in ``C_NAMES`` (bool, for one). ``wide``: the kernel computes half
    precision in float32. Raises ``Unmodelled`` for an int that does not fit into 64 bits.
    """
    if wide and dtype[:] in {"float16", "bfloat16"}:
        dtype = DType("float32")
    plain = [x for x in values if isinstance(x, (bool, int, float, complex))]
    for x in plain:
        check_word(x)
    if dtype[:] not in C_NAMES or not any(overflows(x, dtype) for x in plain):
        return ""
    return f"value cannot be converted to type {C_NAMES[dtype[:]]} without overflow"


def no_room_to_fill(dtype: DType, value: Any, elements: int) -> str:
    """Torch's error text when ``value`` overflows the ``dtype`` of a tensor that it is to fill, else empty.
    ``elements`` is how many the tensor has.

    As :func:`no_room`, except that torch fills a half-precision tensor of one element by way of float64, where only
    what overflows float64 is an error.
    """
    return no_room(DType("float64") if elements == 1 and dtype[:] in {"float16", "bfloat16"} else dtype, value)


def tensor_only(*values: Any) -> None:
    """Raise ``Unmodelled`` for a value that is no shadow tensor: a number, None, or a tensor that the shadow does not
    model.
    """
    for value in values:
        if not isinstance(value, ShadowTensor):
            raise Unmodelled(f"expected a tensor, got {type(value).__name__}")


def computed_in(dtype: DType) -> Any:
    """NumPy's dtype for computing: half precision is computed in float32 and rounded once, as in torch's kernels. None
    for a dtype that NumPy lacks.
    """
    return np.float32 if dtype == "float16" else dtype.numpy


def arrays(e: Engine, operands: Sequence[Operand | None], dtype: DType | None = None) -> list[Any] | None:
    """The operands' values as arrays (numbers stay numbers or 0-dim arrays), cast to ``dtype`` (None: each in its own);
    None when those of one tensor are unknown.

    An omitted operand (None) stays None. Half precision is returned as float32, in which it is computed.
    """
    found: list[Any] = []
    for x in operands:
        if x is None:
            found.append(None)
        elif isinstance(x, ShadowTensor):
            seen = x.window()
            if seen is None:
                return None
            kind = computed_in(x.dtype if dtype is None else dtype)
            found.append(
                seen
                if seen.dtype == kind
                else seen.astype(x.dtype.numpy if dtype is None else dtype.numpy).astype(kind)
            )
        else:
            found.append(np.asarray(x).astype(computed_in(dtype)) if dtype is not None else np.asarray(x))
    return found


def promoted(*operands: Operand) -> DType:
    """The result dtype of a pointwise operation on tensors and numbers, after type promotion.

    For two tensors of one dtype it is that dtype, whatever it is. Else ``Unmodelled`` is raised if the result is
    complex32, and ValueError where :func:`result_type` raises it.
    """
    first, last = operands[0], operands[-1]
    if (
        len(operands) == 2
        and isinstance(first, ShadowTensor)
        and isinstance(last, ShadowTensor)
        and first.dtype == last.dtype
    ):
        return first.dtype
    found = result_type(
        (x.dtype, x.ndim, x.number) if isinstance(x, ShadowTensor) else (of_number(x), 0, True) for x in operands
    )
    if found == "complex32":
        raise Unmodelled("complex32 (half-precision complex): torch has few kernels for it")
    return found


def as_float(dtype: DType) -> DType:
    """The result dtype of a function without integer results: the default float dtype for integers and bool."""
    return default_float() if dtype.category < 2 else dtype


def new(e: Engine, shape: Shape, dtype: DType, values: np.ndarray | None, stride: Shape | None = None) -> ShadowTensor:
    """A new tensor with its own storage and counter; ``values`` may be None (unknown) and are cast and broadcast.

    ``stride`` is in elements; None: contiguous. Of a tensor with more elements than the engine's limit, or of a dtype
    that NumPy lacks, the values are unknown even where ``values`` are given.
    """
    stride = contiguous_strides(shape) if stride is None else stride
    size = math.prod(shape)
    storage = Storage(size, dtype)
    tensor = ShadowTensor(e.graph, storage, shape, stride, 0, dtype, None if e.inference else Counter())
    if e.inference:
        tensor.inference = e.met_inference = True
    if values is not None and size <= e.value_limit and dtype.numpy is not None:
        storage.data = np.empty(size, dtype.numpy)
        if size:
            target = tensor.window()
            assert target is not None
            target[...] = values
    return tensor


def private(e: Engine, array: Any, dtype: DType) -> ShadowTensor:
    """A saved tensor that only its node has: a wrapped number, a mask drawn inside, a clone made before a write.

    It has a copy of ``array`` and its dtype. With ``array`` None its values are unknown, and it has one element of
    ``dtype``.
    """
    if array is None:
        return ShadowTensor(e.graph, Storage(1, dtype), (), (), 0, dtype, Counter())
    values = np.array(array)  # a copy, since it may be a view of the operand's data
    storage = Storage(values.size, dtype, data=values.reshape(-1))
    return ShadowTensor(
        e.graph, storage, values.shape, contiguous_strides(values.shape), 0, from_numpy(values.dtype), Counter()
    )


def drawn(
    e: Engine,
    shape: Shape,
    dtype: DType,
    draw: Callable[[np.random.Generator], np.ndarray],
    stride: Shape | None = None,
) -> ShadowTensor:
    """A new tensor of random numbers drawn inside an operation, for its node to save. ``stride`` is in elements (None:
    contiguous).

    Stand-alone, NumPy draws them (``draw`` gets the generator and returns them); in lockstep torch does, and they are
    unknown until they are read from torch.
    """
    return new(e, shape, dtype, None if e.random is None else draw(e.random), stride)


def copy_of(e: Engine, tensor: ShadowTensor) -> ShadowTensor:
    """A clone for one node to save, with the strides of ``clone()``; its grad_fn is CloneBackward0 where a clone of
    ``tensor`` is recorded (:func:`records`).
    """
    copy = new(e, tensor.shape, tensor.dtype, tensor.window(), preserved(tensor))
    if records(e, tensor):  # torch calls clone, which counts as an operation
        copy.node = e.graph.new_node("CloneBackward0", (e.graph.edge(tensor),), lambda g, _: (g,))
        copy.node.outputs.append((copy.shape, copy.dtype))
    return copy


# -- autograd


def records(e: Engine, *operands: Any) -> bool:
    """Whether an operation on these operands makes a node: grad mode is on, inference mode off, and one of them
    requires a gradient.

    Where these modes allow it, ``Unmodelled`` is raised for an operand that requires a gradient and is a leaf of
    inference mode, or an integer or bool; where all operands are inference tensors; and where :func:`check_base` raises
    it.
    """
    if not e.grad_enabled or e.inference:
        return False
    wanting = [x for x in operands if isinstance(x, ShadowTensor) and x.requires_grad]
    if any(x.inference and x.flag for x in wanting):
        raise Unmodelled("a leaf made in inference mode, used outside of it")
    if e.met_inference and wanting and all(x.inference for x in operands if isinstance(x, ShadowTensor)):
        raise Unmodelled(
            "an operation whose operands are all inference tensors, one of them with a grad_fn: torch "
            "records no node for it"
        )
    if any(x.dtype.category < 2 for x in wanting):
        raise Unmodelled("an integer or bool tensor with a grad_fn")
    for x in wanting:
        check_base(x)
    return bool(wanting)


def check_base(x: ShadowTensor) -> None:
    """Raise ``Unmodelled`` for a view of a tensor returned by ``autograd.grad`` and then made a leaf: torch may have
    another base for it.
    """
    if x.view is not None and x.view.base.received and x.view.base.flag:
        raise Unmodelled(
            "a view of a tensor returned by autograd.grad that was made a leaf: which tensor is its "
            "base is not modelled"
        )


def no_derivative(e: Engine, name: str, **arguments: Any) -> None:
    """Raise ``ShadowError`` (torch's error) if one of ``arguments`` (operands by torch's names for them) requires grad,
    grad mode is on and inference mode is off: the operation ``name`` has no derivative for these (torch's
    ``check_no_requires_grad``). Raises what :func:`records` raises.
    """
    for argument, x in arguments.items():
        if isinstance(x, ShadowTensor) and records(e, x):
            cannot = (
                f"is not differentiable with respect to argument '{argument}'. This input cannot "
                "have requires_grad True."
            )
            raise runtime(f"The function '{name}' {cannot}", tensor=x)


def check_history(e: Engine, *operands: Any) -> None:
    """Regenerate the grad_fn of those operands that are views whose base was written since, before shapes are checked
    (torch's order). Nothing is done where the operation is not recorded (:func:`records`). Raises ``ShadowError`` where
    torch refuses to make one, and what :func:`records` raises.
    """
    if records(e, *operands):
        for x in operands:
            if isinstance(x, ShadowTensor) and x.view is not None:
                e.graph.grad_fn(x)


def edges(e: Engine, operands: Sequence[Operand | None], count: int | None = None) -> tuple[Edge, ...]:
    """One edge per operand, from the node that is being made to the grad_fn of the operand or its AccumulateGrad; to no
    node for numbers and operands without gradient. With ``count``, only for the first so many.
    """
    return tuple(e.graph.edge(x) if isinstance(x, ShadowTensor) else (None, 0) for x in operands[:count])


def keep_inputs(
    e: Engine, node: Node, rule: OpRule, operands: Sequence[Operand | None], *, copies_self: bool = False
) -> None:
    """Save the operands listed in ``rule.keeps`` whose ``when`` holds. A number is saved as a tensor of the node's own.

    With ``copies_self``, a clone is saved of the first operand, which the operation is about to write.
    """
    for k in rule.keeps:
        needed = (k.when,) if isinstance(k.when, int) else k.when
        if not isinstance(k.what, int) or (needed is not None and all(node.children[edge] is None for edge in needed)):
            continue
        operand = operands[k.what]
        if operand is None:
            continue
        if not isinstance(operand, ShadowTensor):
            number = private(e, operand, of_number(operand))
            number.number = True
            node.keep(Saved(k.name, number, own=True))
        elif copies_self and k.what == 0:
            node.keep(Saved(k.name, copy_of(e, operand), own=True))
        else:
            node.keep(Saved(k.name, operand, drawn=k.drawn))


def pure(
    e: Engine,
    rule: OpRule,
    operands: Sequence[Operand | None],
    shape: Shape,
    dtype: DType,
    compute_in: DType | None = None,
    stride: Shape | None = None,
    hidden: Sequence[str] = (),
) -> ShadowTensor:
    """Run ``rule`` on ``operands``, converted to ``compute_in``, into a new tensor of this shape, dtype and stride
    (None: contiguous).

    Raises ``ShadowError`` (torch's error) if ``rule.refused`` has the text of one, for an unsuitable Python number, and
    what ``rule.forward`` and :func:`records` raise. The new tensor gets a node if the rule has one, the operation is
    recorded (:func:`records`) and ``dtype`` is no integer or bool. Its values are unknown if an operand's are, above
    the engine's limit, for a dtype that NumPy lacks, where the rule returns None, and where a reduction may overflow in
    float32. ``hidden`` names further results that are only saved for backward (statistics, buffers): then ``forward``
    returns a tuple.
    """
    node = None
    if rule.refused:
        raise runtime(rule.refused, "dtype")
    if rule.node and records(e, *operands) and dtype.category >= 2:
        node = e.graph.new_node(rule.node, edges(e, operands, rule.edges), rule.vjp)
        keep_inputs(e, node, rule, operands)
    followed = math.prod(shape) <= e.value_limit
    found = arrays(e, operands, compute_in) if followed else None
    if found is None and followed:
        try_with_zeros(rule, operands)
    values = None if found is None else rule.forward(*found)  # which may raise for these values
    if found is not None and overflows_on_the_way(found, shape, dtype):
        values = None
    first, *others = values if hidden and values is not None else (values, *(None for _ in hidden))
    result = new(e, shape, dtype, first, stride)
    if node is not None:
        own(node, result)
        node.keep(*(Saved(k.name, result, is_output=True) for k in rule.keeps if k.what == "result"))
        node.keep(*(Saved(name, private(e, x, dtype), own=True) for name, x in zip(hidden, others, strict=True)))
    return result


def try_with_zeros(rule: OpRule, operands: Sequence[Operand | None]) -> None:
    """Raise ``Unmodelled`` if values are unknown only because of bfloat16, and the rule fails on zeros in their place:
    the shapes of the operands do not fit.
    """
    if not any(isinstance(x, ShadowTensor) and x.dtype == "bfloat16" for x in operands):
        return
    found: list[Any] = []
    for x in operands:
        if not isinstance(x, ShadowTensor):
            found.append(None if x is None else np.asarray(x))
            continue
        seen = np.zeros(x.shape, np.float32) if x.dtype == "bfloat16" else x.window()
        if seen is None:
            return
        found.append(seen)
    try:
        rule.forward(*found)
    except Exception as problem:
        raise Unmodelled(f"operands of incompatible shapes: {problem}") from problem


LARGE = 1e18
"""Values above this have squares that overflow in float32."""


def overflows_on_the_way(found: Sequence[Any], shape: Shape, dtype: DType) -> bool:
    """Whether a reduction of the arrays ``found`` to a result of ``shape`` may overflow in a torch kernel that adds in
    float32; False for another ``dtype``.

    A kernel that scales first or adds in float64 does not overflow; which kernel torch uses is not modelled.
    """
    if dtype != "float32":
        return False
    count = math.prod(shape)
    for x in found:
        if isinstance(x, np.ndarray) and x.size > count and x.dtype == np.float32:
            size = np.abs(x)
            if not size.max() <= LARGE and bool((size[np.isfinite(size)] > LARGE).any()):
                return True
    return False


def underflow_on_the_way(sizes: np.ndarray, axes: tuple[int, ...], dtype: Any) -> bool:
    """Whether the squares in a reduction of ``sizes`` (absolute values) over ``axes`` underflow to zero in float32, in
    which only some of torch's kernels add. False for another ``dtype``.
    """
    largest = sizes.max(axis=axes, initial=0)
    return bool(dtype == np.float32 and ((largest > 0) & (largest < 1 / LARGE)).any())


def own(node: Node, *results: ShadowTensor) -> None:
    """Make ``node`` the grad_fn of its results."""
    for index, result in enumerate(results):
        result.node, result.output_nr = node, index
        node.outputs.append((result.shape, result.dtype))
        if result.graph.policy.grad_of_non_leaf_kept:
            node.retains += ((index, ref(result)),)


def _paired(e: Engine, operands: Sequence[Operand]) -> list[Operand]:
    """The operands under the belief ``equal_counts_pair_up``: those with as many elements as the
    first are reshaped to its shape.
    """
    first = next(x for x in operands if isinstance(x, ShadowTensor))
    return [
        do(e, "reshape", x, first.shape) if isinstance(x, ShadowTensor) and x.numel == first.numel else x
        for x in operands
    ]


def pointwise(
    e: Engine,
    rule: OpRule,
    operands: Sequence[Operand],
    dtype: DType,
    compute_in: DType | None = None,
    like: ShadowTensor | None = None,
    iterated: Sequence[Operand] | None = None,
) -> ShadowTensor:
    """Run ``rule`` on operands that are broadcast, into a new tensor of ``dtype`` with the strides
    that TensorIterator gives it.

    The operands are converted to ``compute_in`` before. Raises ``ShadowError`` (torch's error) if they do not
    broadcast, and what :func:`check_history` and :func:`pure` raise. ``like``: the operand from which ``empty_like``
    takes the result's strides; ``iterated``: the operands as passed to TensorIterator, if their order differs there, or
    the rule has a number built in.
    """
    if e.policy.equal_counts_pair_up:
        operands = _paired(e, operands)
    tensors = [x for x in operands if isinstance(x, ShadowTensor)]
    if rule.node:
        check_history(e, *tensors)
    shape = broadcast(*(t.shape for t in tensors))
    aligned = len(shape) > 1 or all(len(t.shape) == len(shape) for t in tensors)
    if like is not None and like.shape == shape:
        return pure(e, rule, operands, shape, dtype, compute_in, preserved(like))
    order = operands if iterated is None else iterated
    ordered = [x for x in order if isinstance(x, ShadowTensor)]
    stride = layout(shape, ordered, alone=len(ordered) == len(order), cast=compute_in) if aligned else None
    return pure(e, rule, operands, shape, dtype, compute_in, stride)


def in_place(  # noqa: C901, PLR0912 - torch's checks, one after the other
    e: Engine,
    rule: OpRule,
    operands: Sequence[Operand],
    compute_in: DType | None = None,
    *,
    elementwise: bool = True,
    copies_self: bool = True,
    overwrites: bool = False,
    separate: bool = False,
    overlapping: Callable[[], None] | None = None,
) -> ShadowTensor:
    """Run ``rule`` on ``operands`` (converted to ``compute_in``; None: each in its own dtype) into the first of them
    and return that, with torch's checks, in torch's order.

    ``elementwise``: the operands are broadcast to the target and computed element by element. ``copies_self``: where
    the rule saves the target, a clone is saved. ``overwrites``: the old values are not used (fill, copy), so that
    unknown values become known; ``separate``: every element must have its own address although the operation is not
    elementwise; ``overlapping`` is called to write once more, where elements share an address and the order of torch's
    writes decides.

    Raises ``ShadowError`` (torch's error) where torch refuses the write, and ``Unmodelled`` where a result is not
    modelled: among others for a view with another dtype than its base, elements that share an address, an integer
    tensor that would get a grad_fn.
    """
    target = operands[0]
    tensor_only(target)
    assert isinstance(target, ShadowTensor)
    recording = records(e, *operands)
    whole = recording and target.dtype.category < 2
    e.graph.check_inplace(
        target, recording and not (whole and rule.node == "CopyBackwards")
    )  # only copy_ handles integer targets
    if (recording or target.requires_grad) and target.view is not None and target.dtype != target.view.base.dtype:
        raise Unmodelled("an in-place write to a view whose dtype differs from its base's")
    recording = recording and not whole
    node = None
    if recording:
        node = e.graph.new_node(rule.node, edges(e, operands, rule.edges), rule.vjp)
        keep_inputs(e, node, rule, operands, copies_self=copies_self)
    if separate:
        check_overlap(target)
    if elementwise:
        check_overlap(target, operands)
        check_fits(target, operands, compute_in)
    if not (elementwise or overwrites or overlapping) and overlaps_itself(target):
        raise Unmodelled("a write to a tensor in which several elements share one memory location")
    if target.numel > OVERLAP_LIMIT and may_overlap(target.shape, target.stride):
        raise Unmodelled(
            "a write to many elements that may share memory locations: the result depends on the order of the writes"
        )
    if whole and rule.node not in {"", "CopyBackwards"}:
        raise Unmodelled(
            "an in-place operation that gives an integer tensor a grad_fn, which torch does not prevent here"
        )
    if rule.refused:
        raise runtime(rule.refused, "dtype")
    # If computed in another dtype, operands are cast to temporaries first, and results are
    # written after all are computed.
    if elementwise and (compute_in is None or compute_in == target.dtype) and reads_what_it_writes(target, operands):
        one_by_one(e, rule, target, operands)
    else:
        found = arrays(e, operands[overwrites:], compute_in)
        if found is None and target.numel <= e.value_limit:
            try_with_zeros(rule, operands)
        if overwrites and found is not None and target.dtype.numpy is not None and target.numel <= e.value_limit:
            found = [np.zeros(target.shape, target.dtype.numpy), *found]
        elif overwrites:
            found = None
        e.write(target, None if found is None else rule.forward(*found))
    if overlapping is not None:
        overlapping()
    finish_write(e, target, node, rule)
    return target


def may_overlap(shape: Shape, stride: Shape) -> bool:
    """Whether elements of a tensor with this shape and these strides may share an address: the stride of some axis is
    not larger than the distance of the last element along the axes with smaller strides from the first.
    """
    reach = 0
    for step, length in sorted(zip(stride, shape, strict=True)):
        if length > 1 and step <= reach:
            return True
        reach += step * (length - 1)
    return False


def reads_what_it_writes(target: ShadowTensor, operands: Sequence[Operand]) -> bool:
    """Whether an element that the write reads may already have been overwritten by it, in a
    way that torch does not refuse.

    True if several elements of the target share an address, or if another operand of the same dtype shares some
    elements with the target and is not the same view of them. False for a target of more than ``OVERLAP_LIMIT``
    elements, which is not examined, as operands of more are not.
    """
    if target.numel > OVERLAP_LIMIT:
        return False
    if overlaps_itself(target):
        return True
    for x in operands[1:]:
        if isinstance(x, ShadowTensor) and x is not target and x.storage is target.storage and x.dtype == target.dtype:
            same = (x.offset, x.shape, x.stride) == (target.offset, target.shape, target.stride)
            if not same and have_common_elements(target, x):
                return True
    return False


def have_common_elements(a: ShadowTensor, b: ShadowTensor) -> bool:
    """Whether two tensors have an element in common; False if one has more than ``OVERLAP_LIMIT`` elements."""
    if a.storage is not b.storage or a.numel > OVERLAP_LIMIT or b.numel > OVERLAP_LIMIT:
        return False
    here, there = (positions(x.offset, x.shape, x.stride) for x in (a, b))
    return bool(np.intersect1d(here, there).size)


def one_by_one(e: Engine, rule: OpRule, target: ShadowTensor, operands: Sequence[Operand]) -> None:
    """Compute and write one element of ``target`` after the other in memory order, each reading the results written
    before it. ``operands`` are all of the rule's, with ``target`` first; where values are unknown, the result is.

    In torch: ``TensorIteratorBase::reorder_dimensions``. Vectorised kernels take several elements at a time, so the
    numbers may differ for long rows.
    """
    live = [x.window() if isinstance(x, ShadowTensor) else np.asarray(x) for x in operands]
    known = [x for x in live if x is not None]
    out = live[0]
    e.write(target, out)
    if out is None or len(known) < len(live):
        target.storage.data = None
        return
    order = sorted(range(target.ndim), key=lambda dim: -target.stride[dim])
    spread = [x.transpose(order) for x in (out, *(np.broadcast_to(x, target.shape) for x in known[1:]))]
    for index in np.ndindex(spread[0].shape):
        spread[0][index] = rule.forward(*(x[index] for x in spread))


def finish_write(e: Engine, target: ShadowTensor, node: Node | None, rule: OpRule | None = None) -> None:
    """After a write: increase the version, set grad_fn (if there is a ``node``), save the result (if ``rule`` keeps
    it).

    Raises ``ShadowError`` (torch's error) for an inference tensor outside of inference mode, and what
    :meth:`Graph.rebase` raises.
    """
    if target.inference and target.counter is None and not e.inference:
        # torch raises when it increases the version, after the memory was written.
        raise runtime(errors.INFERENCE_WRITE, "inference-tensor", tensor=target)
    e.graph.bump(target.counter)
    if node is None:
        return
    node.outputs.append((target.shape, target.dtype))
    keeper = e.graph.rebase(target, node)
    if rule is not None:
        wanted = (k for k in rule.keeps if k.what == "result")
        keeper.keep(*(Saved(k.name, target, is_output=True, inplace_on_view=target.view is not None) for k in wanted))


def check_fits(target: ShadowTensor, operands: Sequence[Operand], dtype: DType | None) -> None:
    """Raise ``ShadowError`` (torch's error) unless the operands broadcast to the target's shape, and their ``dtype``
    (None: not checked) can be cast to the target's.
    """
    shape = broadcast(*(x.shape for x in operands if isinstance(x, ShadowTensor)))
    if shape != target.shape:
        text = f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}"
        raise runtime(text, "shape", tensor=target)
    if dtype is not None and dtype != target.dtype and not can_cast(dtype, target.dtype):
        text = f"result type {dtype.scalar_name} can't be cast to the desired output type {target.dtype.scalar_name}"
        raise runtime(text, "dtype", tensor=target)


def check_overlap(target: ShadowTensor, operands: Sequence[Operand] = ()) -> None:
    """Raise ``ShadowError`` (torch's error) if the target is expanded (a stride is 0, so elements share an address), or
    if an operand overlaps it partly in memory and torch's fast test finds it (:func:`overlaps_partly`).

    That test compares dense tensors only: ``x[:, :2].add_(x[:, 1:])`` overlaps and raises nothing.
    """
    if not is_dense(target.shape, target.stride) and target.is_expanded:
        raise runtime(errors.OVERLAP_SELF, "overlap", tensor=target)
    for other in operands:
        if isinstance(other, ShadowTensor) and overlaps_partly(target, other):
            raise runtime(errors.OVERLAP_INPUT, "overlap", tensor=target)


def overlaps_partly(a: ShadowTensor, b: ShadowTensor) -> bool:
    """Whether two tensors overlap partly, by torch's fast test: only dense tensors on one storage are
    compared, as ranges of addresses.
    """
    if a is b or a.storage is not b.storage or a.numel == 0 or b.numel == 0:
        return False
    if not (is_dense(a.shape, a.stride) and is_dense(b.shape, b.stride)):
        return False
    first, second = (a.offset, a.offset + a.numel), (b.offset, b.offset + b.numel)
    if first == second:
        return a.stride != b.stride
    return first[0] < second[1] and second[0] < first[1]


def check_no_overlap(target: ShadowTensor, *others: Any) -> None:
    """Raise ``ShadowError`` (torch's error) if an input of a scatter or index write is the target itself, or overlaps
    it in memory and torch's test finds it (``at::assert_no_overlap``).

    Raises ``Unmodelled`` for another overlap, as :func:`decline_overlap` finds it.
    """
    for other in others:
        if isinstance(other, ShadowTensor) and (
            other is target or overlaps_partly(target, other) or _same_place(target, other)
        ):
            raise runtime(errors.OVERLAP_INPUT, "overlap", tensor=target)
        decline_overlap(target, other)


def decline_overlap(target: ShadowTensor, other: Any) -> None:
    """Raise ``Unmodelled`` for a write whose source overlaps the target where torch does not detect it: the result
    depends on the order of writes. Tensors of more than ``OVERLAP_LIMIT`` elements are not examined.
    """
    if isinstance(other, ShadowTensor) and have_common_elements(target, other):
        raise Unmodelled(
            "a write whose source overlaps the target in memory: the result depends on the order of the writes"
        )


def _same_place(a: ShadowTensor, b: ShadowTensor) -> bool:
    same = (a.offset, a.shape, a.stride) == (b.offset, b.shape, b.stride)
    return a.storage is b.storage and a.numel > 0 and same and is_dense(a.shape, a.stride)


# -- views


def open_window(
    e: Engine, tensor: ShadowTensor, shape: Shape, stride: Shape, offset: int, creation: str | None = None
) -> ShadowTensor:
    """A view of the tensor with ``stride`` and ``offset`` in elements: it shares the storage, the version counter and
    the base. It has no grad_fn yet.

    ``creation`` is how the view was made (:class:`ViewOf`); None, and ``"multi"`` with grad mode on, follow the present
    modes. A view of an inference tensor is just another inference tensor.
    """
    counter = tensor.counter
    if e.policy.views_have_own_version:
        counter = Counter(tensor.version)
    result = ShadowTensor(e.graph, tensor.storage, shape, stride, offset, tensor.dtype, counter)
    if tensor.inference:
        result.inference, result.counter = True, None
        return result
    if creation is None or creation == "multi":
        creation = "inference" if e.inference else (creation or "default") if e.grad_enabled else "no_grad"
    base = tensor
    if tensor.view is not None:
        base = tensor.view.base
        creation = tensor.view.creation if creation == "default" or tensor.view.creation == "inference" else creation
    result.view = ViewOf(base, creation, result.version)
    return result


def view(
    e: Engine, name: str, tensor: ShadowTensor, shape: Shape, stride: Shape, offset: int, vjp: Vjp | None
) -> ShadowTensor:
    """A view of ``tensor``, with ``stride`` and ``offset`` in elements. Where autograd records, it gets a node called
    ``name`` as grad_fn; ``vjp`` maps the gradient of the view to that of the tensor.

    Under the belief ``views_copy`` it is a copy.
    """
    node = None
    if records(e, tensor):
        node = e.graph.new_node(name, (e.graph.edge(tensor),), vjp)
    result = open_window(e, tensor, shape, stride, offset)
    if node is not None:
        own(node, result)
    return copied(e, result) if e.policy.views_copy else result


def copied(e: Engine, tensor: ShadowTensor) -> ShadowTensor:
    """A copy in new memory, with the tensor's own grad_fn, for beliefs that an operation copies
    which in torch returns a view.
    """
    fresh = new(e, tensor.shape, tensor.dtype, tensor.window())
    fresh.node, fresh.output_nr, fresh.flag = tensor.node, tensor.output_nr, tensor.flag
    return fresh


def into_window(base_shape: Shape, place: Callable[[np.ndarray], np.ndarray]) -> Vjp:
    """A vjp that puts the gradient of a view into zeros of ``base_shape``, the tensor's shape; ``place`` maps an array
    of that shape to its part in the view.
    """
    return partial(put_back, base_shape, place)


def put_back(
    base_shape: Shape, place: Callable[[np.ndarray], np.ndarray], g: np.ndarray, s: object
) -> tuple[np.ndarray]:
    """Zeros of shape ``base_shape`` into which the gradient ``g`` is written, in a tuple; ``place`` maps these zeros to
    the part that the gradient belongs to. ``s`` is not used.
    """
    full = np.zeros(base_shape, g.dtype)
    place(full)[...] = g
    return (full,)


def has_values(*tensors: ShadowTensor) -> bool:
    """Whether the values of all operands are known."""
    return all(t.storage.data is not None for t in tensors)


def each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Return a function of an array that applies ``function``, a function of a float, to every element; the results are
    float64. Twice as fast as ``np.vectorize``.
    """

    def apply(x: Any) -> Any:
        array = np.asarray(x)
        result = np.empty_like(array, np.float64)  # with strides in the same order
        result[...] = np.fromiter(map(function, array.ravel().tolist()), np.float64, array.size).reshape(array.shape)
        return result

    return apply


def sign_of(x: Any) -> Any:
    """-1, 0 or 1; torch's sign of NaN is 0."""
    return np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype) if x.dtype.kind == "f" else np.sign(x)


def bool_of(dtype: DType) -> bool:
    """Whether this is torch.bool."""
    return dtype == BOOL


def index_grid(index: np.ndarray, at: int) -> tuple[np.ndarray, ...]:
    """A NumPy index, one array for each axis: at each place of ``index`` the place itself, but along axis ``at`` what
    ``index`` says.
    """
    grid: list[np.ndarray] = list(np.indices(index.shape))
    grid[at] = index
    return tuple(grid)
