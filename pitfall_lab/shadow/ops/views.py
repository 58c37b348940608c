"""Operations that return views: view, transpose, expand, split, detach, ``.data`` - and
reshape, which sometimes copies.
"""

# ruff: noqa: A002, ARG001, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import DType, type_name
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.gradient import reshaped, sum_to, unsqueezed
from pitfall_lab.shadow.graph import Vjp, as_strided_vjp
from pitfall_lab.shadow.layout import positions, preserved
from pitfall_lab.shadow.memory_format import follows
from pitfall_lab.shadow.memory_format import strides as memory_format_strides
from pitfall_lab.shadow.ops.building import (
    OpRule,
    as_shape,
    broadcast,
    check_history,
    copied,
    into_window,
    new,
    open_window,
    own,
    pure,
    records,
    tensor_only,
    view,
    wrap_dim,
)
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, contiguous_strides, is_contiguous

CLONE = OpRule("CloneBackward0", lambda a: a, (), lambda g, s: (g,))


# -- shape arithmetic


def infer_size(sizes: Shape, numel: int) -> Shape:
    """Return ``sizes`` with a -1 replaced by the size that ``numel`` elements leave for it; raises ``ShadowError``
    (torch's error) if they do not fit.

    >>> infer_size((2, -1), 6)
    (2, 3)
    """
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) > 1:
        raise runtime("only one dimension can be inferred", "shape")
    if -1 in sizes:
        if known == 0:
            text = (
                f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size "
                "-1 can be any value and is ambiguous"
            )
            raise runtime(text, "shape")
        if numel % known == 0:
            return tuple(numel // known if n == -1 else n for n in sizes)
    if -1 in sizes or known != numel:
        raise runtime(f"shape '{list(sizes)}' is invalid for input of size {numel}", "shape")
    return sizes


def view_strides(shape: Shape, stride: Shape, wanted: Shape) -> Shape | None:
    """The strides with which a tensor with ``shape`` and ``stride`` can be seen as ``wanted`` (a shape with as many
    elements) in the same memory, or None when that is impossible.

    Works through runs of dimensions that lie contiguously in memory (``aten/src/ATen/TensorUtils.cpp``,
    ``computeStride``).

    >>> view_strides((2, 3), (3, 1), (6,)), view_strides((3, 2), (1, 3), (6,))
    ((1,), None)
    """
    if math.prod(shape) == 0:
        return stride if shape == wanted else contiguous_strides(wanted)
    result = [0] * len(wanted)
    at = len(wanted) - 1
    base = stride[-1] if stride else 1
    run, seen = 1, 1
    for dim in reversed(range(len(shape))):
        run *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and stride[dim - 1] != run * base):
            while at >= 0 and (seen < run or wanted[at] == 1):
                result[at] = seen * base
                seen *= wanted[at]
                at -= 1
            if seen != run:
                return None
            if dim > 0:
                base, run, seen = stride[dim - 1], 1, 1
    while not shape and at >= 0:
        result[at] = 1
        at -= 1
    return tuple(result) if at == -1 else None


def _as_view(e: Engine, name: str, self: ShadowTensor, wanted: Shape) -> ShadowTensor | None:
    stride = view_strides(self.shape, self.stride, wanted)
    if stride is None:
        return None
    shape = self.shape
    return view(e, name, self, wanted, stride, self.offset, lambda g, s: (reshaped(g, shape),))


NO_VIEW = (
    "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
    "contiguous subspaces). Use .reshape(...) instead."
)


@op(
    ".view",
    kind="view",
    samples=("a.view(6)", "a.view(3, -1)", "h.view((1, 6))", "a[:, None].view(2, 3)", "a.view(2, 3)"),
)
def view_(e: Engine, self: Any, *size: Any) -> ShadowTensor:
    tensor_only(self)
    if len(size) == 1 and isinstance(size[0], DType):
        return _view_dtype(e, self, size[0])
    check_history(e, self)
    wanted = infer_size(as_shape(size), self.numel)
    result = _as_view(e, "ViewBackward0", self, wanted)
    if result is None:
        raise runtime(NO_VIEW, "shape", tensor=self)
    return result


def _view_dtype(e: Engine, self: ShadowTensor, dtype: DType) -> ShadowTensor:
    """``view(dtype)``: the same storage and version counter, without grad_fn.

    Declined for a dtype of another element size, for an inference tensor outside of inference mode, and for a tensor
    that requires grad unless ``dtype`` is an integer or bool.
    """
    if (
        dtype.itemsize != self.dtype.itemsize
        or (self.requires_grad and dtype.category >= 2)
        or (self.inference and not e.inference)
    ):
        raise Unmodelled(
            "view(dtype) of a tensor that requires grad, of an inference tensor, or to a dtype of another element size"
        )
    result = alias(e, self, self.counter)
    result.dtype = dtype
    return result


@op(".view_as", kind="view", samples=("a.view_as(b)",))
def view_as(e: Engine, self: Any, other: Any) -> ShadowTensor:
    tensor_only(other)
    return view_(e, self, *other.shape)


@op(
    "reshape",
    kind="view",
    samples=(
        "a.reshape(6)",
        "a.t().reshape(6)",
        "torch.reshape(h, (3, 2))",
        "a.reshape(2, 3)",
        "a[:, :2].reshape(4)",
        "c.expand(2, 3).reshape(-1)",
    ),
)
def reshape(e: Engine, input: Any, *shape: Any) -> ShadowTensor:
    tensor_only(input)
    wanted = infer_size(as_shape(shape), input.numel)
    if e.policy.reshape_always_copies:
        return copied(e, clone(e, input) if wanted == input.shape else _flattened(e, input, wanted))
    result = _as_view(
        e, "ViewBackward0" if is_contiguous(input.shape, input.stride) else "ReshapeAliasBackward0", input, wanted
    )
    if result is not None:
        return result
    result = _flattened(e, input, wanted)
    if e.policy.reshape_never_copies:
        link(result, input)
    return result


def _flattened(e: Engine, input: ShadowTensor, wanted: Shape) -> ShadowTensor:
    """The copy that reshape makes: CloneBackward0, then UnsafeViewBackward0."""
    fresh = pure(e, CLONE, (input,), input.shape, input.dtype, stride=contiguous_strides(input.shape))
    shape = fresh.shape
    result = ShadowTensor(e.graph, fresh.storage, wanted, contiguous_strides(wanted), 0, fresh.dtype, fresh.counter)
    result.inference = fresh.inference
    if records(e, fresh):
        node = e.graph.new_node("UnsafeViewBackward0", (e.graph.edge(fresh),), lambda g, s: (reshaped(g, shape),))
        own(node, result)
    return result


def link(copy: ShadowTensor, source: ShadowTensor, places: np.ndarray | None = None) -> None:
    """Link two storages so that a write to one also changes the other, for beliefs in which a copy is a view.

    ``places`` are the indices in the source's storage of the elements of ``copy``; None: ``source`` has the same number
    of elements, in the same order.
    """
    there = (positions(source.offset, source.shape, source.stride) if places is None else places).reshape(-1)
    here = positions(copy.offset, copy.shape, copy.stride).reshape(-1)
    copy.storage.links += ((source.storage, there, here),)
    source.storage.links += ((copy.storage, here, there),)


@op("flatten", kind="view", samples=("a.flatten()", "a.t().flatten()", "c.flatten()", "a[None].flatten(1)"))
def flatten(e: Engine, input: Any, start_dim: int = 0, end_dim: int = -1) -> ShadowTensor:
    tensor_only(input)
    start, end = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if start > end:
        raise runtime("flatten() has invalid args: start_dim cannot come after end_dim", "shape")
    if input.ndim == 0:
        return reshape(e, input, 1)
    if start == end:
        result: ShadowTensor = input
        return result
    merged = math.prod(input.shape[start : end + 1])
    return reshape(e, input, *input.shape[:start], merged, *input.shape[end + 1 :])


@op("ravel", kind="view", samples=("a.ravel()", "a.t().ravel()"))
def ravel(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if input.inference and not e.inference and not is_contiguous(input.shape, input.stride):
        raise Unmodelled("the version of the copy that ravel makes of an inference tensor")
    return reshape(e, contiguous(e, input), -1)


# -- moving dimensions


def _permute(e: Engine, name: str, self: ShadowTensor, dims: Sequence[int], vjp: Vjp | None = None) -> ShadowTensor:
    back = np.argsort(dims)
    shape, stride = tuple(self.shape[d] for d in dims), tuple(self.stride[d] for d in dims)
    return view(e, name, self, shape, stride, self.offset, vjp or (lambda g, s: (g.transpose(back),)))


@op("permute", kind="view", samples=("a.permute(1, 0)", "torch.permute(a, (1, 0))"))
def permute(e: Engine, input: Any, *dims: Any) -> ShadowTensor:
    tensor_only(input)
    if not dims:
        raise Unmodelled("permute without dims")
    wanted = as_shape(dims)
    if len(wanted) != input.ndim:
        raise runtime(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(wanted)}",
            "shape",
        )
    order = [wrap_dim(d, input.ndim) for d in wanted]
    if len(set(order)) != len(order):
        raise runtime("permute(): duplicate dims are not allowed.", "shape")
    return _permute(e, "PermuteBackward0", input, order)


@op(
    "transpose",
    "torch.swapaxes",
    ".swapaxes",
    "torch.swapdims",
    ".swapdims",
    kind="view",
    samples=("a.transpose(0, 1)", "torch.transpose(h, 0, -1)", "a.swapaxes(0, 1)"),
)
def transpose(e: Engine, input: Any, dim0: int, dim1: int) -> ShadowTensor:
    tensor_only(input)
    i, j = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    order = list(range(input.ndim))
    if order:
        order[i], order[j] = order[j], order[i]
    return _permute(e, "TransposeBackward0", input, order, (lambda g, s: (np.swapaxes(g, i, j),)) if order else None)


@op("t", kind="view", samples=("a.t()", "c.t()", "h.t()"))
def t(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if input.ndim > 2:
        raise runtime(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D", "shape")
    return _permute(e, "TBackward0", input, list(reversed(range(input.ndim))), lambda g, s: (g.T,))


@op(".T.__get__", kind="view", samples=("a.T", "h.T"))
def capital_t(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    return _permute(e, "PermuteBackward0", self, list(reversed(range(self.ndim))))


@op(".mT.__get__", kind="view", samples=("a.mT",))
def matrix_t(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if self.ndim < 2:
        raise Unmodelled("mT of a tensor with fewer than 2 dimensions")
    return transpose(e, self, -2, -1)


@op(".adjoint", kind="view", samples=("a.adjoint()",))
def adjoint(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if self.ndim < 2 or self.dtype.is_complex:
        raise Unmodelled("adjoint of a complex tensor, or of one with fewer than 2 dimensions")
    return transpose(e, self, -2, -1)


@op("unflatten", kind="view", samples=("a.unflatten(1, (3, 1))",))
def unflatten(e: Engine, input: Any, dim: int, sizes: Any) -> ShadowTensor:
    tensor_only(input)
    at, wanted = wrap_dim(dim, input.ndim), as_shape((sizes,))
    try:
        inner = infer_size(wanted, input.shape[at])
    except errors.ShadowError:
        text = (
            f"unflatten: Provided sizes {list(wanted)} don't multiply up to the size of dim {at} "
            f"({input.shape[at]}) in the input tensor"
        )
        raise runtime(text, "shape") from None
    return view_(e, input, *input.shape[:at], *inner, *input.shape[at + 1 :])


@op("torch.functional.atleast_1d", "torch.atleast_1d", kind="view", samples=("torch.atleast_1d(a)",))
def atleast_1d(e: Engine, tensor: Any) -> ShadowTensor:
    tensor_only(tensor)
    return reshape(e, tensor, 1) if tensor.ndim == 0 else tensor


@op(
    "torch.functional.atleast_2d",
    "torch.atleast_2d",
    kind="view",
    samples=("torch.atleast_2d(c)", "torch.atleast_2d(a)"),
)
def atleast_2d(e: Engine, tensor: Any) -> ShadowTensor:
    tensor_only(tensor)
    if tensor.ndim == 0:
        return reshape(e, tensor, 1, 1)
    return unsqueeze(e, tensor, 0) if tensor.ndim == 1 else tensor


@op("torch.functional.atleast_3d", "torch.atleast_3d", kind="view", samples=("torch.atleast_3d(a)",))
def atleast_3d(e: Engine, tensor: Any) -> ShadowTensor:
    tensor_only(tensor)
    if tensor.ndim == 0:
        return reshape(e, tensor, 1, 1, 1)
    if tensor.ndim == 1:
        return unsqueeze(e, unsqueeze(e, tensor, 0), -1)
    return unsqueeze(e, tensor, -1) if tensor.ndim == 2 else tensor


@op("torch.functional.meshgrid", "torch.meshgrid", kind="view", samples=("torch.meshgrid(c, c * 2, indexing='ij')[0]",))
def meshgrid(e: Engine, *tensors: Any, indexing: str | None = None) -> tuple[ShadowTensor, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    tensor_only(*given)
    if indexing == "xy" or any(t.ndim != 1 for t in given):
        raise Unmodelled("meshgrid with indexing='xy', or of tensors that are not 1-D")
    shape = tuple(t.shape[0] for t in given)
    count = len(given)
    return tuple(
        expand(e, view_(e, t, *(shape[k] if d == k else 1 for d in range(count))), *shape) for k, t in enumerate(given)
    )


@op("positive", kind="view", samples=("a.positive()",))
def positive(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    result: ShadowTensor = input
    return result


@op(".real.__get__", "torch.real", kind="view", samples=("torch.real(a)",))
def real(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if self.dtype.is_complex:
        raise Unmodelled("the real part of a complex tensor")
    result: ShadowTensor = self
    return result


@op("resolve_conj", kind="view", samples=("a.resolve_conj()",))
@op("conj", kind="view", samples=("a.conj()",))
def conj(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if input.dtype.is_complex:
        raise Unmodelled("conjugate views")
    result: ShadowTensor = input
    return result


@op(".sum_to_size", kind="pure", samples=("a.sum_to_size(2, 3)",))
def sum_to_size(e: Engine, self: Any, *size: Any) -> ShadowTensor:
    tensor_only(self)
    if as_shape(size) != self.shape:
        raise Unmodelled("sum_to_size to a smaller size")
    result: ShadowTensor = self
    return result


@op("movedim", kind="view", samples=("a.movedim(0, 1)",))
def movedim(e: Engine, input: Any, source: Any, destination: Any) -> ShadowTensor:
    tensor_only(input)
    if not isinstance(source, int) or not isinstance(destination, int):
        raise Unmodelled("movedim with several dimensions")
    order = [d for d in range(input.ndim) if d != wrap_dim(source, input.ndim)]
    order.insert(wrap_dim(destination, input.ndim), wrap_dim(source, input.ndim))
    return _permute(e, "PermuteBackward0", input, order)


# -- sizes of one


@op("unsqueeze", kind="view", samples=("a.unsqueeze(0)", "a.unsqueeze(-1)", "torch.unsqueeze(c, 1)"))
def unsqueeze(e: Engine, input: Any, dim: int) -> ShadowTensor:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim + 1)
    step = input.shape[at] * input.stride[at] if at < input.ndim else 1
    shape, stride = (*input.shape[:at], 1, *input.shape[at:]), (*input.stride[:at], step, *input.stride[at:])
    return view(e, "UnsqueezeBackward0", input, shape, stride, input.offset, lambda g, s: (np.squeeze(g, at),))


@op("squeeze", kind="view", samples=("a[:1].squeeze()", "a[:1].squeeze(0)", "a.squeeze()", "a.squeeze(0)"))
def squeeze(e: Engine, input: Any, dim: Any = None) -> ShadowTensor:
    tensor_only(input)
    if isinstance(dim, tuple | list):
        name, gone = "SqueezeBackward2", {wrap_dim(d, input.ndim) for d in dim}
    elif dim is None:
        name, gone = "SqueezeBackward0", set(range(int(e.policy.squeeze_keeps_batch), input.ndim))
    else:
        name, gone = "SqueezeBackward1", {wrap_dim(dim, input.ndim)}
    left = [d for d in range(input.ndim) if not (d in gone and input.shape[d] == 1)]
    lost = tuple(d for d in range(input.ndim) if d not in left)
    shape, stride = tuple(input.shape[d] for d in left), tuple(input.stride[d] for d in left)
    return view(e, name, input, shape, stride, input.offset, lambda g, s: (unsqueezed(g, lost) if lost else g,))


@op(
    ".expand",
    "torch.broadcast_to",
    ".broadcast_to",
    kind="view",
    samples=("c.expand(2, 3)", "c.expand(2, -1)", "a.expand(2, 3)", "a.broadcast_to(2, 2, 3)", "a[:, :1].expand(2, 4)"),
)
def expand(e: Engine, self: Any, *size: Any, implicit: bool = False) -> ShadowTensor:
    tensor_only(self)
    shape, stride = expanded(self, as_shape(size))
    before = self.shape
    result = view(
        e, "ExpandBackward0", self, shape, stride, self.offset, lambda g, s: (sum_to(g, before) if before else g.sum(),)
    )
    return copied(e, result) if e.policy.expand_copies else result


def expanded(self: ShadowTensor, wanted: Shape) -> tuple[Shape, Shape]:
    """Shape and strides (in elements) of ``self`` expanded to ``wanted``, where -1 keeps a size; raises ``ShadowError``
    (torch's error) when it does not fit.
    """
    if not self.ndim and -1 in wanted:
        raise runtime("numel: integer multiplication overflow", "shape")
    if len(wanted) < self.ndim:
        raise runtime(
            f"expand({type_word(self)}{{{list(self.shape)}}}, size={list(wanted)}): the number of sizes provided "
            f"({len(wanted)}) must be greater or equal to the number of dimensions in the tensor ({self.ndim})",
            "shape",
        )
    if not self.ndim:
        return wanted, (0,) * len(wanted)
    missing = len(wanted) - self.ndim
    shape, stride = list(wanted), [0] * len(wanted)
    for dim in reversed(range(len(wanted))):
        have = self.shape[dim - missing] if dim >= missing else 1
        step = (
            self.stride[dim - missing]
            if dim >= missing
            else (stride[dim + 1] * shape[dim + 1] if dim + 1 < len(shape) else 1)
        )
        want = wanted[dim]
        if want == -1:
            if dim < missing:
                text = (
                    f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {dim}"
                )
                raise runtime(text, "shape")
            want = shape[dim] = have
        if have != want:
            if have != 1:
                raise expand_error(want, have, dim, wanted, self.shape)
            step = 0
        stride[dim] = step
    return tuple(shape), tuple(stride)


def expand_error(want: int, have: int, dim: int, wanted: Shape, sizes: Shape) -> errors.ShadowError:
    """Return the ``ShadowError`` for a failed ``expand``, with torch's message (its two double spaces included):
    ``want`` is the size that was asked for along ``dim``, ``have`` the tensor's; ``wanted`` and ``sizes`` are all of
    them.
    """
    return runtime(
        f"The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton dimension "
        f"{dim}.  Target sizes: {list(wanted)}.  Tensor sizes: {list(sizes)}",
        "shape",
    )


def type_word(tensor: ShadowTensor) -> str:
    """The type of a tensor as torch's error messages name it, such as ``torch.FloatTensor``."""
    return type_name(tensor.dtype)


@op(".expand_as", kind="view", samples=("c.expand_as(a)",))
def expand_as(e: Engine, self: Any, other: Any) -> ShadowTensor:
    tensor_only(other)
    return expand(e, self, *other.shape)


@op(
    "torch.functional.broadcast_tensors",
    "torch.broadcast_tensors",
    kind="view",
    samples=("torch.broadcast_tensors(a, c)[1]",),
)
def broadcast_tensors(e: Engine, *tensors: Any) -> tuple[ShadowTensor, ...]:
    tensor_only(*tensors)
    shape = broadcast(*(x.shape for x in tensors))
    return tuple(x if x.shape == shape else expand(e, x, *shape) for x in tensors)


# -- pieces


def slice_window(e: Engine, self: ShadowTensor, dim: int, start: int, stop: int, step: int = 1) -> ShadowTensor:
    """The view ``self[..., start:stop:step, ...]`` along ``dim``, with bounds that are already clamped."""
    length = max(0, -((start - stop) // step)) if stop > start else 0
    shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
    stride = (*self.stride[:dim], self.stride[dim] * step, *self.stride[dim + 1 :])
    place = (*(slice(None),) * dim, slice(start, stop, step))
    return view(
        e,
        "SliceBackward0",
        self,
        shape,
        stride,
        self.offset + start * self.stride[dim],
        into_window(self.shape, lambda x: x[place]),
    )


def select_window(e: Engine, self: ShadowTensor, dim: int, index: int) -> ShadowTensor:
    """The view ``self[..., index, ...]`` along ``dim``; both count from 0 and are not checked."""
    shape, stride = self.shape[:dim] + self.shape[dim + 1 :], self.stride[:dim] + self.stride[dim + 1 :]
    place: tuple[Any, ...] = (*(slice(None),) * dim, index, ...)
    return view(
        e,
        "SelectBackward0",
        self,
        shape,
        stride,
        self.offset + index * self.stride[dim],
        into_window(self.shape, lambda x: x[place]),
    )


@op("select", kind="view", samples=("a.select(0, 1)", "a.select(1, -1)"))
def select(e: Engine, input: Any, dim: int, index: int) -> ShadowTensor:
    tensor_only(input)
    if input.ndim == 0:
        raise errors.ShadowError("IndexError", "select() cannot be applied to a 0-dim tensor.", "shape")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    if not -size <= index < size:
        text = f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {at}"
        raise errors.ShadowError("IndexError", text, "shape")
    return select_window(e, input, at, index % size)


@op("narrow", kind="view", samples=("a.narrow(1, 1, 2)",))
def narrow(e: Engine, input: Any, dim: int, start: Any, length: int) -> ShadowTensor:
    tensor_only(input)
    if not input.ndim:
        raise runtime("narrow() cannot be applied to a 0-dim tensor.", "shape")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    if isinstance(start, ShadowTensor) or not -size <= start <= size:
        raise Unmodelled("narrow with a start out of range")
    start = start + size if start < 0 else start
    if start + length > size:
        raise runtime(f"start ({start}) + length ({length}) exceeds dimension size ({size}).", "shape")
    return slice_window(e, input, at, start, start + length)


@op("diagonal", kind="view", samples=("a.diagonal()", "a.diagonal(1)"))
def diagonal(e: Engine, input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ShadowTensor:
    tensor_only(input)
    check_history(e, input)
    i, j = wrap_dim(dim1, input.ndim), wrap_dim(dim2, input.ndim)
    rows, columns = input.shape[i], input.shape[j]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = input.offset + (offset * input.stride[j] if offset >= 0 else -offset * input.stride[i]) * (length > 0)
    left = [d for d in range(input.ndim) if d not in (i, j)]
    shape = (*(input.shape[d] for d in left), length)
    stride = (*(input.stride[d] for d in left), input.stride[i] + input.stride[j])
    before = input.shape

    def place(full: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.einsum("...ii->...i", _square(full, i, j, offset, length))
        return result

    return view(e, "DiagonalBackward0", input, shape, stride, start, into_window(before, place))


def _square(full: np.ndarray, i: int, j: int, offset: int, length: int) -> np.ndarray:
    moved = np.moveaxis(full, (i, j), (-2, -1))
    top, left = max(-offset, 0), max(offset, 0)
    return moved[..., top : top + length, left : left + length]


@op("as_strided", kind="view", samples=("a.as_strided((2,), (1,))", "h.as_strided((2, 2), (3, 1), 1)"))
def as_strided(e: Engine, input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> ShadowTensor:
    tensor_only(input)
    shape, strides = as_shape((size,)), as_shape((stride,))
    offset = input.offset if storage_offset is None else storage_offset
    item, held = input.dtype.itemsize, input.storage
    need = 0 if 0 in shape else item * (offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1)
    if need > held.size * held.dtype.itemsize:
        raise Unmodelled(
            "as_strided beyond the part of the storage that is known"
        )  # a result may lie in more memory than it needs

    vjp = as_strided_vjp((input.offset, input.shape, input.stride), (offset, shape, strides))
    return view(e, "AsStridedBackward0", input, shape, strides, offset, vjp)


@op(".unfold", kind="view", samples=("a.unfold(1, 2, 1)",))
def unfold(e: Engine, self: Any, dimension: int, size: int, step: int) -> ShadowTensor:
    tensor_only(self)
    at = wrap_dim(dimension, self.ndim)
    if size > self.shape[at] or step <= 0:
        raise Unmodelled("unfold with a size larger than the dimension, or a step below 1")
    count = (self.shape[at] - size) // step + 1
    shape = (*self.shape[:at], count, *self.shape[at + 1 :], size)
    stride = (*self.stride[:at], self.stride[at] * step, *self.stride[at + 1 :], self.stride[at])
    before = self.shape
    plain = contiguous_strides(before)

    def vjp(g: np.ndarray, s: object) -> tuple[np.ndarray]:
        full = np.zeros(before, g.dtype)
        where = positions(0, shape, (*plain[:at], plain[at] * step, *plain[at + 1 :], plain[at]))
        np.add.at(full.reshape(-1), where.reshape(-1), g.reshape(-1))
        return (full,)

    return view(e, "UnfoldBackward0", self, shape, stride, self.offset, vjp)


# -- several views at once


def _joined(before: Shape, dtype: DType, places: Sequence[Any]) -> Vjp:
    """The vjp of a split: a gradient of shape ``before``, with each piece's gradient at its place and 0 elsewhere."""

    def vjp(gs: list[Any], s: object) -> tuple[np.ndarray]:
        full = np.zeros(before, dtype.numpy)
        for g, place in zip(gs, places, strict=True):
            if g is not None:
                full[place] = g
        return (full,)

    return vjp


def several(
    e: Engine, name: str, self: ShadowTensor, windows: Sequence[tuple[Shape, Shape, int]], places: Sequence[Any]
) -> tuple[ShadowTensor, ...]:
    """Views of ``self`` as the outputs of one node called ``name``, as of split, chunk and unbind; such views may not
    be changed in place where autograd records it.

    ``windows`` are (shape, stride, offset) of each, in elements; ``places`` the NumPy index of each in ``self``.
    """
    node = None
    before, dtype = self.shape, self.dtype
    if records(e, self):
        node = e.graph.new_node(name, (e.graph.edge(self),), _joined(before, dtype, places))
        node.multiple = True
    results = tuple(open_window(e, self, *w, "multi") for w in windows)
    if node is not None:
        own(node, *results)
    return tuple(copied(e, r) for r in results) if e.policy.views_copy else results


@op("unbind", kind="view", samples=("a.unbind()[1]", "torch.unbind(h, 1)[0]"))
def unbind(e: Engine, input: Any, dim: int = 0) -> tuple[ShadowTensor, ...]:
    tensor_only(input)
    at = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        raise errors.ShadowError("IndexError", f"Dimension specified as {at} but tensor has no dimensions", "shape")
    shape, stride = input.shape[:at] + input.shape[at + 1 :], input.stride[:at] + input.stride[at + 1 :]
    windows = [(shape, stride, input.offset + i * input.stride[at]) for i in range(input.shape[at])]
    return several(e, "UnbindBackward0", input, windows, [(*(slice(None),) * at, i) for i in range(input.shape[at])])


def _pieces(e: Engine, name: str, self: ShadowTensor, at: int, sizes: Sequence[int]) -> tuple[ShadowTensor, ...]:
    windows, places, start = [], [], 0
    for n in sizes:
        windows.append(
            ((*self.shape[:at], n, *self.shape[at + 1 :]), self.stride, self.offset + start * self.stride[at])
        )
        places.append((*(slice(None),) * at, slice(start, start + n)))
        start += n
    return several(e, name, self, windows, places)


@op(
    ".split",
    "torch.functional.split",
    "torch.split",
    kind="view",
    samples=("a.split(1)[1]", "a.split([1, 2], dim=1)[1]", "torch.split(a, 2, 1)[1]"),
)
def split(e: Engine, tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[ShadowTensor, ...]:
    tensor_only(tensor)
    if not tensor.ndim:
        raise runtime("split expects at least a 1-dimensional tensor", "shape")
    at, size = wrap_dim(dim, tensor.ndim), split_size_or_sections
    length = tensor.shape[at]
    if isinstance(size, tuple | list):
        if sum(size) != length:
            raise runtime(
                f"split_with_sizes expects split_sizes to sum exactly to {length} (input tensor's size at dimension "
                f"{at}), but got split_sizes={list(size)}",
                "shape",
            )
        return _pieces(e, "SplitWithSizesBackward0", tensor, at, size)
    if size <= 0:
        raise Unmodelled("split with a split_size below 1")
    return _pieces(e, "SplitBackward0", tensor, at, [min(size, length - i) for i in range(0, max(length, 1), size)])


@op("chunk", kind="view", samples=("a.chunk(2)[1]", "torch.chunk(h, 3, dim=1)[2]"))
def chunk(e: Engine, input: Any, chunks: int, dim: int = 0) -> tuple[ShadowTensor, ...]:
    tensor_only(input)
    if not input.ndim:
        raise runtime("chunk expects at least a 1-dimensional tensor", "shape")
    at = wrap_dim(dim, input.ndim)
    length = input.shape[at]
    if chunks <= 0:
        raise Unmodelled("chunk with chunks below 1")
    if length == 0:  # torch uses split_with_sizes for an empty dimension
        return _pieces(e, "SplitWithSizesBackward0", input, at, [0] * chunks)
    return split(e, input, -(-length // chunks), dim)


@op(
    "tensor_split",
    kind="view",
    samples=("a.tensor_split(2)[1]", "a.tensor_split(2, dim=1)[0]", "a.tensor_split((1,), dim=1)[1]"),
)
def tensor_split(e: Engine, input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[ShadowTensor, ...]:
    """``torch.tensor_split`` along ``dim``: into so many parts, or at these indices. Its results are ordinary slices,
    unlike those of ``split``, and may be changed in place.

    Raises ``ShadowError`` (torch's error) for a tensor without dimensions, and for a ``dim`` out of range, among
    others.
    """
    tensor_only(input)
    if not input.ndim:
        raise runtime("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims", "shape")
    at = wrap_dim(dim, input.ndim)
    length = input.shape[at]
    if isinstance(indices_or_sections, int):
        big, parts = length % indices_or_sections, indices_or_sections
        sizes = [length // parts + (k < big) for k in range(parts)]
        cuts = [0, *np.cumsum(sizes).tolist()]
    else:
        cuts = [0, *as_shape((tuple(indices_or_sections),)), length]
    parts_of = [slice(*pair).indices(length)[:2] for pair in pairwise(cuts)]
    return tuple(slice_window(e, input, at, start, max(start, stop)) for start, stop in parts_of)


@op("hsplit", kind="view", samples=("a.hsplit(3)[1]",))
def hsplit(e: Engine, input: Any, indices_or_sections: Any) -> tuple[ShadowTensor, ...]:
    tensor_only(input)
    if not input.ndim:
        raise runtime(
            "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!",
            "shape",
            tensor=input,
        )
    return _even_split(e, "hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


@op("vsplit", kind="view", samples=("a.vsplit(2)[1]",))
def vsplit(e: Engine, input: Any, indices_or_sections: Any) -> tuple[ShadowTensor, ...]:
    tensor_only(input)
    if input.ndim < 2:
        text = (
            f"torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with {input.ndim} dimensions!"
        )
        raise runtime(text, "shape", tensor=input)
    return _even_split(e, "vsplit", input, indices_or_sections, 0)


def _even_split(e: Engine, name: str, input: ShadowTensor, sections: Any, at: int) -> tuple[ShadowTensor, ...]:
    """Split into so many pieces of equal size, or at the given indices.

    Raises torch's error (which calls the size of the dimension a dimension) if the pieces cannot be equal.
    """
    if isinstance(sections, int) and (not sections or input.shape[at] % sections):
        text = (
            f"torch.{name} attempted to split along dimension {at}, but the size of the dimension {input.shape[at]} "
            f"is not divisible by the split_size {sections}!"
        )
        raise runtime(text, "shape", tensor=input)
    return tensor_split(e, input, sections, at)


def _unsafe(e: Engine, self: ShadowTensor, at: int, size: int) -> tuple[ShadowTensor, ...]:
    """unsafe_split: the results have their own version counters; the caller must not use the input any more."""
    length, before, dtype = self.shape[at], self.shape, self.dtype
    starts = range(0, length, size)
    places = [(*(slice(None),) * at, slice(i, min(i + size, length))) for i in starts]
    results = []
    for i in starts:
        shape = (*before[:at], min(size, length - i), *before[at + 1 :])
        counter = None if self.inference else Counter()
        results.append(
            ShadowTensor(e.graph, self.storage, shape, self.stride, self.offset + i * self.stride[at], dtype, counter)
        )
        results[-1].inference = self.inference
    if records(e, self):
        node = e.graph.new_node("UnsafeSplitBackward0", (e.graph.edge(self),), _joined(before, dtype, places))
        node.multiple = True
        own(node, *results)
    return tuple(results)


@op("unsafe_split", kind="view", samples=("a.unsafe_split(1)[1]",))
def unsafe_split(e: Engine, tensor: Any, split_size: int, dim: int = 0) -> tuple[ShadowTensor, ...]:
    tensor_only(tensor)
    if not isinstance(split_size, int) or split_size <= 0:
        raise Unmodelled("unsafe_split with a list of sizes, or with a size below 1")
    return _unsafe(e, tensor, wrap_dim(dim, tensor.ndim), split_size)


@op("unsafe_chunk", kind="view", samples=("a.unsafe_chunk(2)[0]",))
def unsafe_chunk(e: Engine, input: Any, chunks: int, dim: int = 0) -> tuple[ShadowTensor, ...]:
    tensor_only(input)
    return _unsafe(e, input, wrap_dim(dim, input.ndim), -(-input.shape[wrap_dim(dim, input.ndim)] // chunks))


# -- in-place view operations: the tensor keeps its storage and gets other strides


def reshape_in_place(e: Engine, self: ShadowTensor, name: str, shape: Shape, stride: Shape, vjp: Any) -> ShadowTensor:
    """Give ``self`` another shape and strides in place, as ``t_``, ``squeeze_`` and the like do, and return it: the
    version increases, although no memory is written. Where autograd records, it gets a node called ``name`` with this
    ``vjp``.

    A view gets the node as its grad_fn until its base is written; the base's grad_fn does not change (in torch
    ``set_history``).

    Raises ``Unmodelled``, among others, for an inference tensor outside of inference mode, and ``ShadowError`` (torch's
    error) where autograd refuses an in-place operation (a leaf that requires grad).
    """
    if self.inference and not e.inference:
        raise Unmodelled("an in-place view operation (t_, squeeze_, ...) on an inference tensor outside inference_mode")
    recording = records(e, self)
    e.graph.check_inplace(self, recording)
    e.graph.reshaped |= not recording and self.node is not None
    node = e.graph.new_node(name, (e.graph.edge(self),), vjp) if recording else None
    self.shape, self.stride = shape, stride
    e.graph.bump(self.counter)
    if node is not None:
        node.outputs.append((shape, self.dtype))
        self.node, self.output_nr = (
            node,
            0,
        )  # torch does not move the hook of ``retain_grad`` here, and stumbles over that later
        if self.view is not None:
            self.view.version = self.version
    return self


@op(".squeeze_", kind="inplace", samples=("torch.ones(1, 3).squeeze_()", "(a[:1] * 1).squeeze_(0)"))
def squeeze_(e: Engine, self: Any, dim: Any = None) -> ShadowTensor:
    tensor_only(self)
    if isinstance(dim, tuple | list):
        raise Unmodelled("squeeze_ with several dimensions")
    gone = set(range(self.ndim)) if dim is None else {wrap_dim(dim, self.ndim)}
    left = [d for d in range(self.ndim) if not (d in gone and self.shape[d] == 1)]
    lost = tuple(d for d in range(self.ndim) if d not in left)
    name = "SqueezeBackward3" if dim is None else "SqueezeBackward4"
    shape, stride = tuple(self.shape[d] for d in left), tuple(self.stride[d] for d in left)
    return reshape_in_place(e, self, name, shape, stride, lambda g, s: (unsqueezed(g, lost) if lost else g,))


@op(".unsqueeze_", kind="inplace", samples=("(c * 1).unsqueeze_(0)", "p.unsqueeze_(1)"))
def unsqueeze_(e: Engine, self: Any, dim: int) -> ShadowTensor:
    tensor_only(self)
    at = wrap_dim(dim, self.ndim + 1)
    step = self.shape[at] * self.stride[at] if at < self.ndim else 1
    shape, stride = (*self.shape[:at], 1, *self.shape[at:]), (*self.stride[:at], step, *self.stride[at:])
    return reshape_in_place(e, self, "UnsqueezeBackward1", shape, stride, lambda g, s: (np.squeeze(g, at),))


@op(".t_", kind="inplace", samples=("h.t_()", "p.t_()"))
def t_in_place(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    e.graph.check_inplace(self, records(e, self))
    if self.ndim > 2:
        raise runtime(f"t_() expects a tensor with <= 2 dimensions, but self is {self.ndim}D", "shape")
    return reshape_in_place(e, self, "TBackward1", self.shape[::-1], self.stride[::-1], lambda g, s: (g.T,))


@op(".transpose_", ".swapaxes_", ".swapdims_", kind="inplace", samples=("h.transpose_(0, 1)", "h.swapaxes_(0, 1)"))
def transpose_in_place(e: Engine, self: Any, dim0: int, dim1: int) -> ShadowTensor:
    tensor_only(self)
    i, j = wrap_dim(dim0, self.ndim), wrap_dim(dim1, self.ndim)
    order = list(range(self.ndim))
    order[i], order[j] = order[j], order[i]
    shape, stride = tuple(self.shape[d] for d in order), tuple(self.stride[d] for d in order)
    return reshape_in_place(e, self, "TransposeBackward1", shape, stride, lambda g, s: (g.transpose(order),))


# -- aliases that autograd does not follow, and real copies


def alias(e: Engine, tensor: ShadowTensor, counter: Counter | None) -> ShadowTensor:
    """A tensor on the same storage without grad_fn, as ``detach()`` and ``.data`` return it; its version counter is
    ``counter``.

    An alias of an inference tensor is one too, and has no counter in inference mode, else a new one.
    """
    result = ShadowTensor(e.graph, tensor.storage, tensor.shape, tensor.stride, tensor.offset, tensor.dtype, counter)
    if tensor.inference:
        # Outside inference_mode the alias may be written (it has a version counter, which is not
        # readable), views of it may not.
        result.inference, result.counter = True, None if e.inference else Counter()
    return result


@op("detach", kind="view", samples=("a.detach()", "torch.detach(h)"))
def detach(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if e.policy.detach_copies:
        return new(e, input.shape, input.dtype, input.window())
    return alias(e, input, Counter() if e.policy.detach_has_own_version else input.counter)


@op(".data.__get__", kind="view", samples=("a.data", "h.data"))
def data(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if e.policy.data_copies:
        return new(e, self.shape, self.dtype, self.window())
    return alias(e, self, self.counter if e.policy.data_shares_version else Counter())


@op(".data.__set__", kind="other")
def set_data(e: Engine, self: Any, value: Any) -> None:
    tensor_only(self, value)
    if self.dtype != value.dtype and self.requires_grad and not value.dtype.category >= 2:
        raise Unmodelled("assigning to .data a tensor of a dtype that cannot require grad")
    if self.inference or value.inference:
        raise Unmodelled("assigning to .data an inference tensor, or to the .data of one")
    if self.dtype != value.dtype:
        self.accumulator = None  # the next operation makes one for the new type (a new shape alone does not count)
    e.graph.reshaped |= self.node is not None and self.shape != value.shape
    self.storage, self.offset, self.shape, self.stride, self.dtype = (
        value.storage,
        value.offset,
        value.shape,
        value.stride,
        value.dtype,
    )


@op(
    "clone",
    samples=(
        "a.clone()",
        "a.t().clone()",
        "torch.clone(h)",
        "c.expand(2, 3).clone()",
        "img.clone(memory_format=torch.channels_last)",
        "cl.clone()",
    ),
    traits=("elementwise", "fresh"),
)
def clone(e: Engine, input: Any, *, memory_format: Any = None) -> ShadowTensor:
    tensor_only(input)
    if memory_format is not None and "preserve" not in str(memory_format):
        result = pure(
            e, CLONE, (input,), input.shape, input.dtype, stride=memory_format_strides(input.shape, memory_format)
        )
    elif e.policy.clone_shares_memory:
        return view(e, "CloneBackward0", input, input.shape, input.stride, input.offset, lambda g, s: (g,))
    elif e.policy.clone_cuts_graph:
        return new(e, input.shape, input.dtype, input.window(), preserved(input))
    else:
        result = pure(e, CLONE, (input,), input.shape, input.dtype, stride=preserved(input))
    if input.inference and result.counter is not None:
        result.counter.version = 1
    return result


@op(".contiguous", samples=("a.contiguous()", "a.t().contiguous()", "c.expand(2, 3).contiguous()",
    "img.contiguous(memory_format=torch.channels_last)", "cl.contiguous(memory_format=torch.channels_last)",
    "cl.contiguous()", "a.contiguous(memory_format=torch.channels_last)"))  # fmt: skip
def contiguous(e: Engine, self: Any, memory_format: Any = None) -> ShadowTensor:
    tensor_only(self)
    wanted = memory_format or "contiguous_format"
    memory_format_strides(self.shape, wanted)  # which refuses another number of dimensions
    if follows(self.shape, self.stride, wanted) and not e.policy.contiguous_always_copies:
        result: ShadowTensor = self
        return result
    return pure(e, CLONE, (self,), self.shape, self.dtype, stride=memory_format_strides(self.shape, wanted))
