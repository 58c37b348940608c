"""``x[...]`` and ``x[...] = v``: an index of integers and slices gives a view, one of lists,
masks or index tensors a copy.

Source: ``torch/csrc/autograd/python_variable_indexing.cpp``. Integers, slices, ``None`` and ``...`` are
applied one after another, each a view with a node of its own; what is left (tensors, lists) becomes one
IndexBackward0 or IndexPutBackward0.
"""

# ruff: noqa: A002, ARG001, ARG005, D103 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import BOOL, INT64, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import laid_like, sum_to
from pitfall_lab.shadow.graph import Saved, Written
from pitfall_lab.shadow.layout import OVERLAP_LIMIT, layout, made_of, positions, preserved
from pitfall_lab.shadow.ops import creation, views
from pitfall_lab.shadow.ops.building import (
    NUMBERS,
    Keep,
    OpRule,
    bool_of,
    broadcast,
    check_history,
    check_no_overlap,
    check_overlap,
    edges,
    finish_write,
    new,
    open_window,
    overflows,
    own,
    private,
    pure,
    records,
    tensor_only,
    view,
    wrap_dim,
)
from pitfall_lab.shadow.ops.mutate import copy_, fill_
from pitfall_lab.shadow.ops.pointwise import masked_fill_in_place
from pitfall_lab.shadow.registry import do, op
from pitfall_lab.shadow.releases import NUMBERS_ARE_FILLED_IN
from pitfall_lab.shadow.storage import ShadowTensor, Shape, contiguous_strides, is_contiguous


def _index_error(text: str, kind: str = "shape") -> ShadowError:
    return ShadowError("IndexError", text, kind)


def _consumes(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, ShadowTensor) and bool_of(item.dtype):
        return item.ndim
    return 1


_PARTS = (slice, tuple, list, range, np.ndarray, ShadowTensor)


def _expanded(self: ShadowTensor, index: Any) -> list[Any]:
    """The index as a list, with ``...`` replaced by full slices (as Ellipsis).

    A short list that holds slices or lists counts as a tuple.

    Raises for more indices than dimensions; declines uint8 masks and two ellipses.
    """
    if (
        isinstance(index, list)
        and len(index) < 32
        and any(isinstance(x, _PARTS) or x is None or x is Ellipsis for x in index)
    ):
        index = tuple(index)  # as NumPy once did (``treatSequenceAsTuple`` in ``python_variable_indexing.cpp``)
    items = list(index) if isinstance(index, tuple) else [index]
    refuse_bytes(items)
    if isinstance(index, slice) and not self.ndim:
        raise _index_error("slice() cannot be applied to a 0-dim tensor.")
    wanted = sum(_consumes(i) for i in items)
    if wanted > self.ndim and (isinstance(index, tuple) or not isinstance(index, int)):
        raise _index_error(f"too many indices for tensor of dimension {self.ndim}")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise Unmodelled("two ellipses")
    if dots:
        items[dots[0] : dots[0] + 1] = [Ellipsis] * (self.ndim - wanted)
    return items


def _is_integer_scalar(item: Any) -> bool:
    return isinstance(item, ShadowTensor) and item.ndim == 0 and item.dtype.category == 1


def _integer(item: ShadowTensor) -> int:
    seen = item.window()
    if seen is None:
        raise Unmodelled("an index with unknown value")
    return int(seen)


def _slice_bounds(item: slice, size: int) -> tuple[int, int, int]:
    if any(isinstance(x, ShadowTensor) for x in (item.start, item.stop, item.step)):
        raise Unmodelled("a slice whose bounds are tensors")
    step = 1 if item.step is None else int(item.step)
    if step == 0:
        raise ShadowError("ValueError", "slice step cannot be zero", "other")
    if step < 0:
        raise ShadowError("ValueError", "step must be greater than zero", "other")
    start, stop, _ = slice(item.start, item.stop, step).indices(size)
    return start, max(start, stop), step


def _reaches_the_end(item: slice, size: int) -> bool:
    """Whether the slice's written stop reaches the end of the dimension; torch decides by that
    number, before it is clamped.
    """
    return item.stop is None or int(item.stop) >= size


def _written_at(index: Any, count: int) -> list[int]:
    """For each of the ``count`` expanded items, its position in the index as the program wrote
    it: error messages count these.
    """
    written = list(index) if isinstance(index, tuple) else [index]
    dots = next((k for k, item in enumerate(written) if item is Ellipsis), len(written))
    extra = count - len(written)
    return [k if k < dots else max(dots, k - extra) for k in range(count)]


def basic(e: Engine, self: ShadowTensor, index: Any, items: list[Any]) -> tuple[ShadowTensor, list[Any]]:
    """Apply the integers, slices, ``None`` and ``...`` among ``items``, the parts of ``index``. Return the view that
    these give, and an entry for each of its dimensions up to the last index tensor: that index tensor, or None (also
    where a bool mask covers several dimensions).

    Raises ``ShadowError`` (torch's error) for an index out of range, too many indices, what is no index, and steps
    below 1; ``Unmodelled``, among others, for an index whose value is unknown, a bare True or False, and tensors as
    bounds.
    """
    result, dim = self, 0
    rest: list[Any] = []
    for item, written_at in zip(items, _written_at(index, len(items)), strict=True):
        if isinstance(item, bool) or (isinstance(item, ShadowTensor) and bool_of(item.dtype) and item.ndim == 0):
            raise Unmodelled("a bare True or False as index")
        if item is Ellipsis:
            dim += 1
        elif item is None:
            result = views.unsqueeze(e, result, dim)
            dim += 1
        elif isinstance(item, int | np.integer) or _is_integer_scalar(item):
            number = _integer(item) if isinstance(item, ShadowTensor) else int(item)
            result = _select(e, result, dim, number, (self, written_at))
        elif isinstance(item, slice):
            start, stop, step = _slice_bounds(item, result.shape[dim])
            if item.start not in (None, 0) or not _reaches_the_end(item, result.shape[dim]) or step != 1:
                result = views.slice_window(e, result, dim, start, stop, step)
            dim += 1
        else:
            places = _as_index(e, item)
            while len(rest) < dim:
                rest.append(None)
            rest.append(places)
            dim += places.ndim if bool_of(places.dtype) else 1
            rest += [None] * (dim - len(rest)) if bool_of(places.dtype) else []
    return result, rest


def _select(e: Engine, result: ShadowTensor, dim: int, index: int, written: tuple[ShadowTensor, int]) -> ShadowTensor:
    """Return the part of ``result`` at ``index`` along ``dim``; errors name the tensor and the axis in
    ``written``, the original index.
    """
    whole, written_at = written
    if not whole.ndim and index:
        raise _index_error(f"index {index} is out of bounds for dimension 0 with size 0")
    if not result.ndim:
        text = (
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
            "0-dim tensor to a number"
        )
        raise _index_error(text)
    if dim >= result.ndim:
        raise _index_error(f"too many indices for tensor of dimension {whole.ndim}")
    size = result.shape[dim]
    if not -size <= index < size:
        raise _index_error(f"index {index} is out of bounds for dimension {written_at} with size {size}")
    return views.select_window(e, result, dim, index % size)


INDICES = frozenset({"int64", "int32", "bool"})
NO_INDEX = "tensors used as indices must be long, int, byte or bool tensors"


def _as_index(e: Engine, item: Any) -> ShadowTensor:
    if isinstance(item, np.ndarray | list | tuple | range):
        item = creation.tensor(e, list(item) if isinstance(item, range) else item)
        if item.numel == 0:
            item.dtype = DType("int64")
    if not isinstance(item, ShadowTensor):
        raise _index_error(NO_INDEX, "dtype")
    return item


def refuse_bytes(items: Iterable[Any]) -> None:
    """Raise ``Unmodelled`` for uint8 indices: deprecated masks, which not all functions accept."""
    if any(isinstance(item, ShadowTensor) and item.dtype == "uint8" for item in items):
        raise Unmodelled("a uint8 tensor as mask")


@op(".__getitem__", kind="view", saves="the index tensors", samples=(
    "a[0]", "a[1, 2]", "a[-1]", "a[:, 1]", "a[0:1]", "a[:]", "a[...]", "a[None]", "a[..., 0]", "a[:, None, 1:]",
    "a[:, ::2]", "h[0][1]", "a[torch.tensor(1)]", "a[[0, 1]]", "a[i]", "a[:, i]", "a[m]", "a[0, [0, 2]]",
    "a[[0, 1], [1, 2]]", "a[i, :2]", "a[[1]] * 2", "a[m[:, 0]]", "a[5:]", "a.t()[i]"))  # fmt: skip
def getitem(e: Engine, self: Any, index: Any) -> Any:
    tensor_only(self)
    if isinstance(index, slice) and self.ndim:
        return views.slice_window(e, self, 0, *_slice_bounds(index, self.shape[0]))
    items = _expanded(self, index)
    result, rest = basic(e, self, index, items)
    if rest:
        return gather_index(e, result, rest)
    if result is self:  # x[...] and x[:, :] still give a new tensor object
        return _alias_view(e, self)
    return result


def _alias_view(e: Engine, self: ShadowTensor) -> ShadowTensor:
    return view(e, "AliasBackward0", self, self.shape, self.stride, self.offset, lambda g, s: (g,))


def _places(rest: list[ShadowTensor | None], ndim: int) -> tuple[Any, ...]:
    """The index tensors as a NumPy index; declined where their values are unknown."""
    found: list[Any] = []
    skip = 0
    for item in rest:
        if skip:
            skip -= 1
            continue
        if item is None:
            found.append(slice(None))
            continue
        seen = item.window()
        if seen is None:
            raise Unmodelled("an index with unknown values")
        found.append(seen)
        skip = item.ndim - 1 if bool_of(item.dtype) else 0
    return tuple(found)


def _check_masks(self: ShadowTensor, rest: list[ShadowTensor | None]) -> None:
    if any(t is not None and t.dtype not in INDICES for t in rest):
        raise _index_error(NO_INDEX, "dtype")
    for dim, item in enumerate(rest):
        for k, n in enumerate(item.shape if item is not None and bool_of(item.dtype) else ()):
            if n != self.shape[dim + k]:
                mask = list(item.shape)  # type: ignore[union-attr]
                raise _index_error(
                    f"The shape of the mask {mask} at index {k} does not match the shape of the indexed tensor "
                    f"{list(self.shape)} at index {dim + k}"
                )


def _out_of_range(self: ShadowTensor, rest: list[ShadowTensor | None]) -> tuple[int, ShadowError] | None:
    """The position of the first index out of range in torch's order, and torch's error (whose
    "dimension" counts index tensors).

    None if all are in range, as far as their values are known.
    """
    found: list[tuple[int, int, int]] = []
    indexed = [d for d, t in enumerate(rest) if t is not None]
    for dim in indexed:
        item = rest[dim]
        seen = None if item is None or bool_of(item.dtype) else item.window()
        if seen is not None:
            bad = np.flatnonzero((seen < -self.shape[dim]) | (seen >= self.shape[dim]))
            found += [(int(bad[0]), dim, int(seen.reshape(-1)[bad[0]]))] if bad.size else []
    shape = index_shape(self, rest) if found else ()
    if found and any(self.shape[d] == 0 for d in indexed) and 0 not in _index_places(self, rest, shape)[2]:
        return 0, _index_error("index is out of bounds for dimension with size 0")
    if not found or 0 in shape:
        return None  # nothing is looked up
    at, dim, value = min(found)
    return at, _index_error(
        f"index {value} is out of bounds for dimension {indexed.index(dim)} with size {self.shape[dim]}"
    )


def index_shape(self: ShadowTensor, rest: list[ShadowTensor | None]) -> Shape:
    if any(t is not None and bool_of(t.dtype) for t in rest):
        return np.empty(self.shape, bool)[_places(rest, self.ndim)].shape if self.numel < 1 << 24 else _too_large()
    at = [d for d, t in enumerate(rest) if t is not None]
    shapes = [t.shape for t in rest if t is not None]
    try:
        common = broadcast(*shapes)
    except ShadowError:
        raise _index_error(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{', '.join(str(list(n)) for n in shapes)}"
        ) from None
    adjacent = at == list(range(at[0], at[-1] + 1))
    kept = [n for d, n in enumerate(self.shape) if d not in at]
    first = at[0] if adjacent else 0
    return (*kept[:first], *common, *kept[first:])


def _too_large() -> Shape:
    raise Unmodelled("a mask on a very large tensor")


def _index_places(self: ShadowTensor, rest: list[ShadowTensor | None], shape: Shape) -> tuple[int, list[int], Shape]:
    """The number of the result's dimensions before those of the index, the strides of the dimensions
    without one, and the index's shape.

    The index's shape is that to which all index tensors broadcast.
    """
    at = [d for d, t in enumerate(rest) if t is not None or _inside_mask(rest, d)]
    before = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    kept = [self.stride[d] for d in range(self.ndim) if d not in at]
    return before, kept, shape[before : before + len(shape) - len(kept)]


def _index_layout(self: ShadowTensor, rest: list[ShadowTensor | None], shape: Shape) -> Shape:
    """The strides of ``self[index tensors]``: TensorIterator's, with the source (stride 0 along the indexed
    dimensions) and the indices.

    Source: ``make_info``, ``restride_src`` and ``reshape_indexer`` in
    ``aten/src/ATen/native/TensorAdvancedIndexing.cpp``.
    """
    before, kept, common = _index_places(self, rest, shape)
    windows = [(shape, (*kept[:before], *(0,) * len(common), *kept[before:]))]
    for index in rest:
        if index is None:
            continue
        # A mask becomes the places of its elements: for each of its dimensions a run of numbers.
        run = index if not bool_of(index.dtype) else ShadowTensor(self.graph, index.storage, common[-1:], (1,))
        wide, stride = views.expanded(run, common)
        if index.dtype == "int32":  # made int64 once it is expanded
            stride = preserved(ShadowTensor(self.graph, index.storage, wide, stride))
        wanted = (*(1,) * before, *common, *(1,) * (len(kept) - before))
        windows += [(wanted, views.view_strides(wide, stride, wanted) or contiguous_strides(wanted))] * (
            index.ndim if run is not index else 1
        )
    return layout(shape, [ShadowTensor(self.graph, self.storage, *window) for window in windows])


def gather_index(e: Engine, self: ShadowTensor, rest: list[ShadowTensor | None]) -> ShadowTensor:
    """``self[index tensors]``: a copy, with IndexBackward0; ``rest`` has an index tensor or None for each dimension, as
    :func:`basic` returns it.

    Raises ``ShadowError`` (torch's error) for an index out of range, as far as values are known, a mask of another
    shape, and index tensors of inference mode that would be saved; ``Unmodelled``, among others, for a mask whose
    values are unknown.
    """
    if records(e, self) and any(t is not None and t.inference for t in rest):
        raise runtime(errors.INFERENCE_SAVED, "inference-tensor", tensor=self)  # before the kernel looks at the index
    _check_masks(self, rest)
    shape = index_shape(self, rest)
    outside = _out_of_range(self, rest)
    if outside is not None:
        raise outside[1]
    before = self.shape
    node = None
    if records(e, self):

        def vjp(g: np.ndarray, s: Any) -> tuple[Any]:
            full = np.zeros(before, g.dtype)
            np.add.at(full, _saved_places(node_indices, s), g)
            return (Written(full),)

        node = e.graph.new_node("IndexBackward0", edges(e, (self,)), vjp)
        node_indices = save_indices(e, node, rest)
    seen = self.window()
    places = (
        _places(rest, self.ndim)
        if seen is not None and all(t is None or t.window() is not None for t in rest)
        else None
    )
    result = new(
        e, shape, self.dtype, None if places is None or seen is None else seen[places], _index_layout(self, rest, shape)
    )
    if node is not None:
        own(node, result)
    if e.policy.index_shares_memory and places is not None:
        views.link(result, self, positions(self.offset, self.shape, self.stride)[places])
    return result


def save_indices(e: Engine, node: Any, rest: list[ShadowTensor | None]) -> list[Any]:
    """Save each index tensor in ``rest`` (which has one or None for each dimension) at ``node``, as ``indices0``,
    ``indices1``, …; return a list from which backward rebuilds the index: these names, and a full slice for a dimension
    without an index tensor.
    """
    template: list[Any] = []
    for k, item in enumerate(t for d, t in enumerate(rest) if not _inside_mask(rest, d)):
        if item is None:
            template.append(slice(None))
            continue
        name = f"indices{k}"
        # A bool mask is turned into integer indices for the kernel; what is saved is the mask itself.
        node.keep(Saved(name, item))
        template.append(name)
    return template


def _inside_mask(rest: list[ShadowTensor | None], dim: int) -> bool:
    return any(t is not None and bool_of(t.dtype) and d < dim < d + t.ndim for d, t in enumerate(rest))


def _saved_places(template: list[Any], s: Any) -> tuple[Any, ...]:
    return tuple(getattr(s, x) if isinstance(x, str) else x for x in template)


# -- assignment


@op(".__setitem__", kind="inplace", saves="the index tensors", samples=(
    "h.__setitem__(0, 1.0)", "h.__setitem__(0, c)", "h.__setitem__(slice(None), 2.0)", "h.__setitem__(slice(None), c)",
    "h.__setitem__(Ellipsis, b)", "h.__setitem__((slice(None), 0), 1.0)", "h.__setitem__(m, 0.0)",
    "h.__setitem__(h > 0, 5.0)", "h.__setitem__([0, 1], 3.0)", "h.__setitem__(i, c)", "h.__setitem__((0, [0, 2]), 1.0)",
    "p.__setitem__(0, 1.0)", "p.__setitem__(0, c)", "n.__setitem__(0, 1.7)",
    "p.__setitem__((slice(None), slice(1, None)), 0)", "p.__setitem__(None, 1.0)"), traits=("unchecked",))  # fmt: skip
def setitem(e: Engine, self: Any, index: Any, value: Any) -> None:
    tensor_only(self)
    if not isinstance(value, (ShadowTensor, *NUMBERS)):
        raise Unmodelled(f"assignment of {type(value).__name__}")
    items = _expanded(self, index)
    whole = len(items) == 0 or (
        all(i is Ellipsis or i == slice(None) for i in items if not isinstance(i, ShadowTensor))
        and not any(isinstance(i, ShadowTensor | list | np.ndarray) for i in items)
    )
    if whole:
        assign(e, self, value)
        return
    try:
        target, rest = _written(e, self, index, items)
    except ShadowError as error:
        if error.kind == "dtype":  # which the kernel finds out, when autograd has looked at the tensor
            e.graph.check_inplace(self, records(e, self, value))
        if isinstance(value, complex) and not self.dtype.is_complex:
            raise Unmodelled(
                "an index out of range and a value that overflows the dtype: torch checks the value first"
            ) from error
        raise
    if rest:
        put(e, target, rest, value)
    else:
        assign(e, target, value)


def _written(e: Engine, self: ShadowTensor, index: Any, items: list[Any]) -> tuple[ShadowTensor, list[Any]]:
    """Return the view that ``x[index] = value`` writes into and, for each of its dimensions, an index tensor or None.

    It is a view also under the belief that slices are copies: those who hold it still expect
    ``x[0] = 1`` to change ``x``.
    """
    policy = e.policy
    e.policy = replace(policy, views_copy=False)
    try:
        return basic(e, self, index, items)
    finally:
        e.policy = policy


def _filled(e: Engine, target: ShadowTensor, rest: list[ShadowTensor | None], value: Any) -> bool:
    """Assign a Python number by ``masked_fill_`` or ``index_fill_``, for one index tensor of bool
    or int64; else return False.
    """
    [(dim, index), *more] = [(d, t) for d, t in enumerate(rest) if t is not None]
    if more or not (bool_of(index.dtype) or index.dtype == INT64):
        return False
    if index.dtype == INT64:
        if _out_of_range(target, rest) is not None:
            raise Unmodelled("an index out of range, where one number is assigned")
        do(e, "Tensor.index_fill_", target, dim, views.view_(e, index, -1) if index.ndim > 1 else index, value)
        return True
    places_to_write(target, rest)
    for _ in range(target.ndim - dim - index.ndim):
        index = views.unsqueeze(e, index, -1)
    masked_fill_in_place(e, target, index, value)
    return True


def assign(e: Engine, target: ShadowTensor, value: Any) -> None:
    """Write ``value`` (a tensor or a number) into ``target``, the view that an assignment ``x[...] = value`` selects.

    A number is written by fill_ (in older releases it is made a tensor first); a tensor of the target's shape by copy_,
    another one without dimensions by fill_, and all others by copy_ after their leading dimensions of size 1 were
    dropped and they were expanded. Raises ``ShadowError`` if a number or a shape does not fit, among others, and what
    these operations raise.
    """
    if not isinstance(value, ShadowTensor):
        if e.does(NUMBERS_ARE_FILLED_IN):
            fill_(e, target, value)
            return
        value = private(e, number_as(value, target.dtype), target.dtype)
    if value.shape == target.shape:
        copy_(e, target, value)
    elif value.ndim == 0:
        fill_(e, target, value)
    else:
        seen = views.view_(e, value, value.shape[_leading_ones(value) :])
        copy_(e, target, seen if seen.shape == target.shape else views.expand(e, seen, *target.shape))


CTYPES = {"uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t",
          "float32": "float", "float64": "double", "float16": "double", "bfloat16": "double",
          "complex64": "c10::complex<float>"}  # fmt: skip
"""What torch converts a plain number to, on its way into a tensor of a type."""


def number_as(value: Any, dtype: DType) -> np.ndarray:
    """A plain number as an element of ``dtype``; raises ``ShadowError`` (torch's error) for one that does not fit
    (``c10/util/TypeCast.h``, ``overflow``), and ``Unmodelled`` for a dtype that NumPy lacks.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ShadowError("ValueError", "Overflow when unpacking long long", "dtype")
    if dtype[:] in CTYPES and overflows(value, DType("float64") if dtype[:] in {"float16", "bfloat16"} else dtype):
        raise runtime(f"value cannot be converted to type {CTYPES[dtype[:]]} without overflow", "dtype")
    if dtype.numpy is None:
        raise Unmodelled(f"assigning numbers to a tensor of dtype {dtype[:]}")
    return np.asarray(value.real if isinstance(value, complex) and dtype.category < 3 else value).astype(dtype.numpy)


def _leading_ones(value: ShadowTensor) -> int:
    """Return how many leading dimensions have size 1: torch drops them, by a view that shows in the
    graph, before it broadcasts.
    """
    return next((d for d, n in enumerate(value.shape) if n != 1), value.ndim)


def check_broadcasts(value: ShadowTensor, shape: Shape) -> None:
    try:
        fits = broadcast(value.shape, shape) == shape
    except ShadowError:
        fits = False
    if not fits:
        text = (
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        )
        raise runtime(text, "shape")


def places_to_write(
    target: ShadowTensor, rest: list[ShadowTensor | None]
) -> tuple[Shape, tuple[int, ShadowError] | None]:
    """The shape of what an index selects, and a number out of range with torch's error: the pair of its position in the
    index tensor and the error, None if all that are known are in range. ``rest`` has an index tensor or None for each
    dimension.

    Torch raises for that number while it writes. Raises ``ShadowError`` (torch's error) for masks of a wrong shape,
    index tensors that do not broadcast, and numbers for an empty dimension; ``Unmodelled``, among others, for a bare
    True or False.
    """
    if any(t is not None and not t.ndim and bool_of(t.dtype) for t in rest):
        raise Unmodelled("a bare True or False as index")
    _check_masks(target, rest)
    shape = index_shape(target, rest)
    outside = _out_of_range(target, rest)
    if outside is not None and any(t is not None and target.shape[d] == 0 for d, t in enumerate(rest)):
        raise outside[1]  # that there is nothing to look up is seen before the value is
    return shape, outside


def put(e: Engine, target: ShadowTensor, rest: list[ShadowTensor | None], value: Any, *, assigned: bool = True) -> None:
    """``target[index tensors] = value``, with IndexPutBackward0; ``rest`` has an index tensor or None for each
    dimension.

    Only where it is ``assigned`` (not for ``index_put_``) are a value's leading dimensions of size 1 dropped.

    Raises ``ShadowError`` (torch's error) where torch does: for an index out of range, after the rows before it are
    written. Raises ``Unmodelled``, among others, for a value of another dtype, and where it is not modelled what was
    written before an error.
    """
    # Torch's order: first Python's number becomes a tensor, or a view is taken, then what autograd forbids, then
    # the overlap, then the shapes.
    if not isinstance(value, ShadowTensor):
        if assigned and e.does(NUMBERS_ARE_FILLED_IN) and _filled(e, target, rest, value):
            return
        value = private(e, number_as(value, target.dtype), target.dtype)
    first = _leading_ones(value) if assigned else 0
    source = views.view_(e, value, value.shape[first:]) if first else value
    recording = records(e, target, value)
    e.graph.check_inplace(target, recording)
    if value.dtype != target.dtype:
        raise Unmodelled("index_put with a value of another dtype")
    if not (value.numel == 1 and any(t is not None and bool_of(t.dtype) for t in rest)):
        check_no_overlap(target, source)
    shape, outside = places_to_write(target, rest)
    check_broadcasts(source, shape)
    if outside is not None:
        seen = source.window()
        _write_up_to(e, target, rest, None if seen is None else np.broadcast_to(seen, shape), outside[0])
        raise outside[1]
    if target.is_expanded:
        e.warnings.append(
            "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before "
            "performing this operation."
        )
    node = None
    if recording:

        def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray]:
            places = _saved_places(template, s)
            kept = g.copy()
            kept[places] = 0
            return kept, g[places]

        node = e.graph.new_node("IndexPutBackward0", edges(e, (target, source)), vjp)
        template = save_indices(e, node, rest)
    seen, new_values = target.window(), source.window()
    known = seen is not None and new_values is not None and all(t is None or t.window() is not None for t in rest)
    if known:
        e.write_at(target, _places(rest, target.ndim), new_values)
    else:
        e.write(target, None)
    finish_write(e, target, node)


def _write_up_to(
    e: Engine, target: ShadowTensor, rest: list[ShadowTensor | None], values: np.ndarray | None, count: int
) -> None:
    """Write the rows before an index out of range: torch raises while writing, without increasing the version.

    Declines all but one 1-D index into the first dimension of a contiguous tensor of at
    most ``OVERLAP_LIMIT`` elements.
    """
    if not count:
        return
    index = rest[0]
    if (
        len(rest) > 1
        or index is None
        or index.ndim != 1
        or not is_contiguous(target.shape, target.stride)
        or target.numel > OVERLAP_LIMIT
    ):
        raise Unmodelled("a write that raises after it has written some elements")
    places = index.window()
    if places is not None and values is not None and target.window() is not None:
        e.write_at(target, (places[:count],), values[:count])
    else:
        e.write(target, None)


# -- named functions


def integer_index(index: Any) -> None:
    """Raise ``Unmodelled`` for an index tensor that is neither int64 nor int32."""
    tensor_only(index)
    if index.dtype not in ("int64", "int32"):
        raise Unmodelled("an index that is not int64")


def check_rows(shape: Shape, at: int, index: ShadowTensor) -> None:
    """Raise ``ShadowError`` (torch's error) for a number in ``index`` that is out of range for dimension ``at`` of
    ``shape`` (``index_select_out_cpu_``); not if the values are unknown.
    """
    seen = index.window()
    if seen is None:
        return
    if seen.size and not shape[at] and len(shape) > 1:
        raise runtime("index_select(): self indexing axis dim should be positive", "shape")
    wrong = seen[(seen < 0) | (seen >= shape[at])]
    if wrong.size and len(shape) > 1 and (at == 1 or 0 in shape):
        raise runtime(f"INDICES element is out of DATA bounds, id={wrong[0]} axis_dim={shape[at]}", "shape")
    if wrong.size:
        raise ShadowError("IndexError", "index out of range in self", "shape")


@op("index_select", saves="index", samples=("a.index_select(0, i)", "torch.index_select(a, 1, i)"))
def index_select(e: Engine, input: Any, dim: int, index: Any, *, out: Any = None) -> ShadowTensor:
    tensor_only(input)
    integer_index(index)
    at = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise _index_error("index_select(): Index is supposed to be a vector")
    places: tuple[Any, ...] = (slice(None),) * at
    before = input.shape

    def vjp(g: np.ndarray, s: Any) -> tuple[Any]:
        full = np.zeros(before, g.dtype)
        np.add.at(full, (*places, s.index.reshape(-1)), g)
        return (Written(full),)

    if not before:
        if index.numel != 1:
            raise runtime(f"index_select(): Index to scalar can have only 1 value, got {index.numel} value(s)", "shape")
        check_rows((1,), 0, index)
        rule = OpRule(
            "IndexSelectBackward0", lambda x, k: x, (Keep("index", 1),), lambda g, s: (Written(g.copy()),), edges=1
        )
        return pure(e, rule, (input, index), (), input.dtype)
    check_rows(before, at, index)
    shape = (*before[:at], index.numel, *before[at + 1 :])
    rule = OpRule("IndexSelectBackward0", lambda x, k: x[(*places, k.reshape(-1))], (Keep("index", 1),), vjp, edges=1)
    result = pure(e, rule, (input, index), shape, input.dtype)
    seen = index.window()
    if e.policy.index_shares_memory and seen is not None:
        views.link(result, input, positions(input.offset, input.shape, input.stride)[(*places, seen.reshape(-1))])
    return result


@op(
    "gather",
    saves="index, self",
    samples=("a.gather(1, torch.tensor([[0, 2], [1, 1]]))", "torch.gather(a, 0, torch.tensor([[1, 0, 1]]))"),
)
def gather(e: Engine, input: Any, dim: int, index: Any, *, sparse_grad: bool = False, out: Any = None) -> ShadowTensor:
    tensor_only(input)
    integer_index(index)
    at = wrap_dim(dim, input.ndim)
    if index.ndim != input.ndim or sparse_grad:
        raise Unmodelled("gather with sparse_grad, or where input and index differ in their number of dimensions")
    check_history(e, input)
    large = [d for d, (n, m) in enumerate(zip(index.shape, input.shape, strict=True)) if d != at and n > m]
    if large and index.numel:
        sizes = (
            f"expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
            f"apart from dimension {at}"
        )
        raise runtime(f"Size does not match at dimension {large[0]} {sizes}", "shape")

    def vjp(g: np.ndarray, s: Any) -> tuple[Any]:
        full = np.zeros(s.self.shape, g.dtype)
        np.add.at(full, _along(s.index, at), g)
        return (Written(full),)

    def forward(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        check_elements(k, at, input.shape, inplace=False)
        result: np.ndarray = x[_along(k, at)]
        return result

    rule = OpRule("GatherBackward0", forward, (Keep("index", 1), Keep("self", 0)), vjp, edges=1)
    return pure(e, rule, (input, index), index.shape, input.dtype)


def check_elements(index: np.ndarray, at: int, shape: Shape, *, inplace: bool) -> None:
    """Raise ``ShadowError`` (torch's error) for a number in ``index`` that is out of range for dimension ``at`` of
    ``shape`` (or negative) in gather and scatter.

    Raises ``Unmodelled`` for several such numbers, of which torch names one, and ``inplace``, where torch has written
    before.
    """
    size = shape[at] if shape else 1
    outside = np.unique(index[(index < 0) | (index >= size)])
    if outside.size > 1 or (outside.size and inplace):
        raise Unmodelled("indices out of range: which of several torch reports, or what was written before the error")
    if outside.size:
        raise runtime(f"index {outside[0]} is out of bounds for dimension {at} with size {size}", "shape")


def _along(index: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    grid: list[np.ndarray] = list(np.indices(index.shape))
    grid[axis] = index
    return tuple(grid)


@op("masked_select", saves="mask, self", samples=("a.masked_select(m)", "torch.masked_select(a, a > 0)"))
def masked_select(e: Engine, input: Any, mask: Any, *, out: Any = None) -> ShadowTensor:
    tensor_only(input, mask)
    if mask.dtype != BOOL:
        raise runtime("masked_select: expected BoolTensor for mask", "dtype")
    shape = broadcast(mask.shape, input.shape)
    seen = mask.window()
    if seen is None:
        raise Unmodelled("a mask with unknown values")
    count = int(np.broadcast_to(seen, shape).sum())

    def vjp(g: np.ndarray, s: Any) -> tuple[Any]:
        full = made_of(np.broadcast_to(s.self, shape))
        full[...] = 0
        full[np.broadcast_to(s.mask, shape)] = g
        return (Written(laid_like(full, s.self)) if shape == s.self.shape else sum_to(full, s.self.shape),)

    def forward(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.broadcast_to(x, shape)[np.broadcast_to(k, shape)]
        return result

    return pure(
        e,
        OpRule("MaskedSelectBackward0", forward, (Keep("mask", 1), Keep("self", 0)), vjp, edges=1),
        (input, mask),
        (count,),
        input.dtype,
    )


__all__ = ["assign", "check_overlap", "getitem", "math", "open_window", "setitem"]
