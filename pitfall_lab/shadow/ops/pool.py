"""Max pooling, average pooling, power-average pooling, and max unpooling.

One-dimensional pooling is two-dimensional pooling between an unsqueeze and a squeeze, as in torch.
"""

# ruff: noqa: A002, ARG001, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import INT64
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.graph import Saved
from pitfall_lab.shadow.memory_format import any_channels_last, channels_last_strides, laid_out, suggested
from pitfall_lab.shadow.ops import pointwise, reduce, views
from pitfall_lab.shadow.ops.building import Keep, OpRule, arrays, edges, new, own, pure, records, tensor_only
from pitfall_lab.shadow.ops.conv import per_dimension
from pitfall_lab.shadow.registry import ENTRIES, Trait, add, op
from pitfall_lab.shadow.storage import ShadowTensor, Shape

Spans = tuple[tuple[tuple[int, int, int], ...], ...]
"""For each dimension, and each window along it: where it starts, where it ends, and its step, all inside the input."""


def count(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows fit along a dimension of ``size`` elements (``aten/src/ATen/native/Pool.h``,
    ``pooling_output_shape``).

    With ``ceil_mode`` a last window that reaches beyond the padded input counts, if it begins inside the input or its
    left border.
    """
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    number = -(-room // stride) + 1 if ceil_mode else room // stride + 1
    # the last window must begin inside the input or its left border
    return number - 1 if ceil_mode and (number - 1) * stride >= size + padding else number


def sliding(size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool) -> Spans:
    """For each dimension, the windows of a kernel with stride, padding and dilation, as (start, stop, step), cut to the
    part inside the input of ``size``. ``ceil_mode`` is as in :func:`count`.
    """
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        row = []
        for w in range(count(n, k, s, p, d, ceil_mode)):
            start = w * s - p
            while start < 0:
                start += d
            row.append((start, min(w * s - p + d * (k - 1) + 1, n), d))
        found.append(tuple(row))
    return tuple(found)


def adaptive(size: Shape, output: Shape) -> Spans:
    """For each dimension of an input of ``size``, ``output`` windows of nearly equal length that cover it, as (start,
    stop, step).
    """
    return tuple(
        tuple(((w * n) // out, -(-(w + 1) * n // out), 1) for w in range(out))
        for n, out in zip(size, output, strict=True)
    )


def cells(spans: Spans) -> Iterator[tuple[Any, Any]]:
    """Yield for each window in ``spans`` the index of its result in the output, and the NumPy index of the part of the
    input that it covers (after any leading dimensions).
    """
    for place in itertools.product(*(range(len(row)) for row in spans)):
        yield (..., *place), (..., *(slice(*row[k]) for row, k in zip(spans, place, strict=True)))


# -- max


def max_pool(
    e: Engine, name: str, input: ShadowTensor, spans: Spans, *, shown: bool
) -> tuple[ShadowTensor, ShadowTensor]:
    """Max pooling over the windows ``spans`` of the last dimensions: return ``(values, indices)``, where an index
    counts within these dimensions (H and W, say) of the input. ``shown``: the program gets the indices too; ``name`` is
    the node's.

    Of equal numbers the first one is taken, of several NaN the last.
    """
    rank = len(spans)
    size, outer = input.shape[input.ndim - rank :], input.shape[: input.ndim - rank]
    shape = (*outer, *(len(row) for row in spans))
    last = any_channels_last(input)

    def vjp(gs: list[Any], s: Any) -> tuple[Any]:
        g = gs[0]
        if g is None:
            return (None,)
        full = np.zeros((math.prod(outer), math.prod(size)), g.dtype)
        rows = np.arange(full.shape[0])[:, None]
        np.add.at(full, (rows, s.result1.reshape(full.shape[0], -1)), g.reshape(full.shape[0], -1))
        return (laid_out(full.reshape(input_shape), last),)

    input_shape = input.shape
    node = None
    if records(e, input):
        node = e.graph.new_node(name, edges(e, (input,)), vjp)
        node.multiple = True
        node.keep(Saved("self", input))
    found = arrays(e, (input,)) if math.prod(shape) <= e.value_limit else None
    values, index = (None, None) if found is None else _largest(found[0], spans, shape)
    stride = suggested(shape, input)
    pair = new(e, shape, input.dtype, values, stride), new(e, shape, INT64, index, stride)
    if node is not None:
        own(node, pair[0])
        node.outputs.append((shape, INT64))
        node.keep(Saved("result1", pair[1], is_output=shown, own=not shown))
    return pair


def _largest(x: np.ndarray, spans: Spans, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    rank = len(spans)
    numbers = np.arange(math.prod(x.shape[x.ndim - rank :])).reshape(x.shape[x.ndim - rank :])
    values, index = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    for place, where in cells(spans):
        seen = x[where].reshape(*x.shape[: x.ndim - rank], -1)
        # torch goes through a window in order and takes every NaN, else the first of equal numbers
        missing = np.isnan(seen)
        last = seen.shape[-1] - 1 - np.argmax(missing[..., ::-1], -1)
        best = np.where(missing.any(-1), last, np.argmax(seen, -1))
        values[place] = np.take_along_axis(seen, best[..., None], -1)[..., 0]
        index[place] = numbers[where].reshape(-1)[best]
    return values, index


def _windows(
    input: Any, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, function: str
) -> Spans:
    tensor_only(input)
    if input.ndim not in (rank + 1, rank + 2):
        raise Unmodelled(f"{function} of {input.ndim} dimensions")
    if not input.dtype.is_floating_point:
        raise Unmodelled(f"{function} of a tensor that is not floating point")
    kernel = per_dimension(kernel_size, rank)
    steps = kernel if stride is None or stride == [] else per_dimension(stride, rank)
    border = per_dimension(padding, rank)
    if any(p > k // 2 for p, k in zip(border, kernel, strict=True)):
        raise runtime(_border_text(border, kernel, function), "shape")
    spread = per_dimension(dilation, rank)
    if any(n < 1 for n in (*kernel, *steps, *spread)) or any(p < 0 for p in border):
        raise Unmodelled(f"{function} with such a kernel size, stride, padding or dilation")
    size = input.shape[input.ndim - rank :]
    if 0 in input.shape:
        raise Unmodelled(f"{function} of an empty input")
    counts = [count(*row, ceil_mode) for row in zip(size, kernel, steps, border, spread, strict=True)]
    if min(counts) < 1:
        raise _too_small(input, counts, function)
    return sliding(size, kernel, steps, border, spread, ceil_mode)


def _border_text(border: Shape, kernel: Shape, function: str) -> str:
    if function == "max_pool1d":
        return (
            f"max_pool1d() padding should be at most half of kernel size, but got padding={border[0]} and "
            f"kernel_size={kernel[0]}"
        )
    if function != "max_pool2d":
        raise Unmodelled(f"{function} with a padding larger than half the kernel size")
    bad = next((p, k) for p, k in zip(border, kernel, strict=True) if p > k // 2)
    return (
        f"pad should be at most half of effective kernel size, but got pad={bad[0]}, "
        f"kernel_size={bad[1]} and dilation=1"
    )


def _too_small(input: ShadowTensor, counts: Sequence[int], function: str) -> Exception:
    if function == "max_pool1d":
        return runtime(f"max_pool1d() Invalid computed output size: {counts[0]}", "shape")
    if len(counts) != 2:
        return Unmodelled(f"{function} with a kernel larger than the padded input")
    size, out = ("x".join(map(str, sizes)) for sizes in (input.shape[-3:], (input.shape[-3], *counts)))
    return runtime(f"Given input size: ({size}). Calculated output size: ({out}). Output size is too small", "shape")


def _flattened(e: Engine, input: ShadowTensor, rank: int, run: Callable[[ShadowTensor], Any], function: str) -> Any:
    """Run a one-dimensional pooling (``rank`` 1) as a two-dimensional one:
    ``squeeze(run(unsqueeze(input)))``; any other as it is.
    """
    if rank != 1:
        return run(input)
    if input.ndim not in (2, 3):
        what = f"{input.ndim}-dimensional tensor for argument #1 'self' (while checking arguments for {function})"
        raise runtime(f"Expected 2 to 3 dimensions, but got {what}", "shape")
    result = run(views.unsqueeze(e, input, -2))
    if isinstance(result, tuple):
        return tuple(views.squeeze(e, x, -2) for x in result)
    return views.squeeze(e, result, -2)


def _as_two(rank: int, given: Any, fill: int) -> Any:
    """An option of one-dimensional pooling (kernel size, stride, ...) as that of the two-dimensional
    pooling by which it is computed.
    """
    return (fill, *per_dimension(given, 1)) if rank == 1 else given


def _register_max(rank: int, samples: tuple[str, ...]) -> None:
    function = f"max_pool{rank}d"

    def pooled(
        e: Engine, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, shown: bool
    ) -> Any:
        tensor_only(input)
        spans = (
            _windows(input, 1, kernel_size, stride, padding, dilation, ceil_mode, function)
            if rank == 1 and not shown
            else None
        )
        if spans is not None and not records(e, input):
            # without a graph torch has a kernel of its own that keeps no indices
            shape = (*input.shape[:-1], len(spans[0]))
            result = pure(e, OpRule("", lambda x: _largest(x, spans, shape)[0]), (input,), shape, input.dtype)
            if input.ndim == rank + 1:
                e.graph.bump(result.counter)  # one picture: its leading dimension is squeezed in place
            return result

        def run(picture: ShadowTensor) -> Any:
            steps = stride if stride is None or stride == [] else _as_two(rank, stride, 1)
            options = (_as_two(rank, kernel_size, 1), steps, _as_two(rank, padding, 0), _as_two(rank, dilation, 1))
            windows = _windows(picture, max(rank, 2), *options, ceil_mode, "max_pool2d" if rank == 1 else function)
            pair = max_pool(e, f"MaxPool{max(rank, 2)}DWithIndicesBackward0", picture, windows, shown=shown)
            return pair if shown else pair[0]

        return _flattened(e, input, rank, run, function)

    def run(e: Engine, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
            ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
        return pooled(e, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def with_indices(e: Engine, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                     ceil_mode: bool = False, return_indices: bool = True) -> Any:  # fmt: skip
        return pooled(e, input, kernel_size, stride, padding, dilation, ceil_mode, shown=True)

    names = (f"F.{function}", f"torch.{function}")
    traits: tuple[Trait, ...] = ("deterministic",) if rank == 1 else ()
    add(names, run, "pure", "self; the indices", samples, traits=traits)
    deep = (f"torch.{function}_with_indices",) if rank == 1 else (f"torch._C._nn.{function}_with_indices",)
    add((f"F.{function}_with_indices", *deep), with_indices, "pure", "self; the indices", (), traits=traits)


_register_max(
    1,
    (
        "F.max_pool1d(seq, 2)",
        "F.max_pool1d(seq[0], 3, 1, 1)",
        "F.max_pool1d(seq.detach(), 2)",
        "F.max_pool1d(seq, 2, return_indices=True)",
        "F.max_pool1d(seq, 4, ceil_mode=True)",
    ),
)
_register_max(
    2,
    (
        "F.max_pool2d(img, 2)",
        "F.max_pool2d(cl, 2)",
        "F.max_pool2d(img[0], (2, 3), 1)",
        "F.max_pool2d(img, 3, 2, 1)",
        "F.max_pool2d(img, 2, dilation=2)",
        "F.max_pool2d(img, 2, return_indices=True)",
        "F.max_pool2d(img, 3, stride=2, ceil_mode=True)",
        "F.max_pool2d(img, 8)",
        "F.max_pool2d(img, 2, padding=2)",
        "F.max_pool2d(img.detach(), 2)",
    ),
)
_register_max(3, ("F.max_pool3d(vol, 2)",))


def _register_adaptive_max(rank: int, samples: tuple[str, ...]) -> None:
    function = f"adaptive_max_pool{rank}d"

    def run(e: Engine, input: Any, output_size: Any, return_indices: bool = False) -> Any:
        tensor_only(input)

        def pool(picture: ShadowTensor) -> Any:
            size = picture.shape[picture.ndim - max(rank, 2) :]
            wanted = _output_size((1, *per_dimension(output_size, 1)) if rank == 1 else output_size, size)
            pair = max_pool(
                e, f"AdaptiveMaxPool{max(rank, 2)}DBackward0", picture, adaptive(size, wanted), shown=return_indices
            )
            return pair if return_indices else pair[0]

        _adaptive_input(input, rank, function)
        return _flattened(e, input, rank, pool, function)

    def both(e: Engine, input: Any, output_size: Any, return_indices: bool = True) -> Any:
        return run(e, input, output_size, return_indices=True)

    add(f"F.{function}", run, "pure", "self; the indices", samples)
    add(
        (f"F.{function}_with_indices", f"torch.{function}" if rank == 1 else f"torch._C._nn.{function}"),
        both,
        "pure",
        "self; the indices",
        (),
    )


def _adaptive_input(input: ShadowTensor, rank: int, function: str) -> None:
    if input.ndim not in (rank + 1, rank + 2) or 0 in input.shape or not input.dtype.is_floating_point:
        raise Unmodelled(f"{function} of {input.ndim} dimensions")


def _output_size(wanted: Any, size: Shape) -> Shape:
    given = wanted if isinstance(wanted, tuple | list) else (wanted,) * len(size)
    if len(given) != len(size):
        raise Unmodelled(f"output size {wanted!r}")
    return tuple(n if out is None else int(out) for out, n in zip(given, size, strict=True))


_register_adaptive_max(1, ("F.adaptive_max_pool1d(seq, 4)",))
_register_adaptive_max(
    2,
    (
        "F.adaptive_max_pool2d(img, 3)",
        "F.adaptive_max_pool2d(img, (2, None))",
        "F.adaptive_max_pool2d(img, 2, return_indices=True)",
    ),
)
_register_adaptive_max(3, ("F.adaptive_max_pool3d(vol, 2)",))


# -- mean


def mean_pool(e: Engine, name: str, input: ShadowTensor, spans: Spans, divisors: np.ndarray) -> ShadowTensor:
    """The sum of each window's elements divided by its entry in ``divisors``; ``spans`` are the windows along each of
    the last dimensions, ``name`` is the node's.
    """
    rank = len(spans)
    size, outer = input.shape[input.ndim - rank :], input.shape[: input.ndim - rank]
    shape = (*outer, *divisors.shape)
    axes = tuple(range(-rank, 0))
    last, before = any_channels_last(input), input.shape

    def forward(x: np.ndarray) -> np.ndarray:
        total = np.empty(shape)
        for place, where in cells(spans):
            total[place] = x[where].sum(axis=axes, dtype=np.float64)
        result: np.ndarray = total / divisors
        return result

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        full = np.zeros((*outer, *size))
        share = g / divisors
        for place, where in cells(spans):
            full[where] += share[place].reshape(*outer, *(1,) * rank)
        return (laid_out(full.reshape(before), last),)

    return pure(
        e, OpRule(name, forward, (Keep("self", 0),), vjp), (input,), shape, input.dtype, stride=suggested(shape, input)
    )


def _areas(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, spans: Spans, include_pad: bool, override: int | None
) -> np.ndarray:
    """The divisor of each window: the number of its elements, with those of the padding if
    ``include_pad``; ``override`` replaces it.
    """
    total = np.ones(tuple(len(row) for row in spans))
    if override is not None:
        return total * override
    for d, row in enumerate(spans):
        if include_pad:
            starts = [w * stride[d] - padding[d] for w in range(len(row))]
            lengths = [min(start + kernel[d], size[d] + padding[d]) - start for start in starts]
        else:
            lengths = [stop - start for start, stop, _ in row]
        total *= np.asarray(lengths, float).reshape([-1 if k == d else 1 for k in range(len(spans))])
    return total


def _register_avg(rank: int, samples: tuple[str, ...]) -> None:
    function = f"avg_pool{rank}d"

    def run(e: Engine, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
            count_include_pad: bool = True, divisor_override: int | None = None) -> ShadowTensor:  # fmt: skip
        tensor_only(input)

        def pool(picture: ShadowTensor) -> ShadowTensor:
            deep = max(rank, 2)
            kernel = per_dimension(_as_two(rank, kernel_size, 1), deep)
            steps = kernel if stride is None or stride == [] else per_dimension(_as_two(rank, stride, 1), deep)
            border = per_dimension(_as_two(rank, padding, 0), deep)
            spans = _windows(picture, deep, kernel, steps, border, 1, ceil_mode, function)
            size = picture.shape[picture.ndim - deep :]
            divisors = _areas(size, kernel, steps, border, spans, count_include_pad, divisor_override)
            return mean_pool(e, f"AvgPool{deep}DBackward0", picture, spans, divisors)

        result: ShadowTensor = _flattened(e, input, rank, pool, function)
        return result

    add((f"F.{function}", f"torch.{function}") if rank == 1 else f"F.{function}", run, "pure", "self", samples)


_register_avg(1, ("F.avg_pool1d(seq, 2)", "F.avg_pool1d(seq[0], 3, 1, 1)"))
_register_avg(
    2,
    (
        "F.avg_pool2d(img, 2)",
        "F.avg_pool2d(cl, 2)",
        "F.avg_pool2d(img, 3, 2, 1)",
        "F.avg_pool2d(img, 3, 2, 1, count_include_pad=False)",
        "F.avg_pool2d(img, 3, 2, 1, True)",
        "F.avg_pool2d(img[0], 2, divisor_override=3)",
        "F.avg_pool2d(img, 9)",
    ),
)
_register_avg(3, ("F.avg_pool3d(vol, 2)",))


def _register_adaptive_avg(rank: int, samples: tuple[str, ...]) -> None:
    function = f"adaptive_avg_pool{rank}d"

    def run(e: Engine, input: Any, output_size: Any) -> ShadowTensor:
        tensor_only(input)

        def pool(picture: ShadowTensor) -> ShadowTensor:
            deep = max(rank, 2)
            size = picture.shape[picture.ndim - deep :]
            wanted = _output_size((1, *per_dimension(output_size, 1)) if rank == 1 else output_size, size)
            if set(wanted) == {1}:
                return _mean_of_all(e, picture, deep)
            spans = adaptive(size, wanted)
            divisors = np.ones(wanted)
            for d, row in enumerate(spans):
                divisors *= np.asarray([b - a for a, b, _ in row], float).reshape(
                    [-1 if k == d else 1 for k in range(deep)]
                )
            return mean_pool(e, f"AdaptiveAvgPool{deep}DBackward0", picture, spans, divisors)

        _adaptive_input(input, rank, function)
        result: ShadowTensor = _flattened(e, input, rank, pool, function)
        return result

    names = (f"F.{function}", f"torch.{function}") if rank == 1 else (f"F.{function}", f"torch._C._nn.{function}")
    add(names, run, "pure", "self; nothing when everything is averaged", samples)


def _mean_of_all(e: Engine, input: ShadowTensor, rank: int) -> ShadowTensor:
    """``adaptive_avg_pool`` to size 1: the mean of each channel, which torch computes with ``mean``.

    A channels_last input gives a channels_last result, with another node; one of five dimensions (channels_last_3d) is
    declined.
    """
    mean = reduce.mean(e, input, tuple(range(-rank, 0)), keepdim=True)
    if not any_channels_last(input):
        return mean
    if input.ndim != 4:
        raise Unmodelled("adaptive_avg_pool to size 1 of a channels_last input without a batch dimension")
    before = mean.shape

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        return (g.reshape(before),)

    # torch restrides the result in place
    return views.reshape_in_place(e, mean, "AsStridedBackward1", mean.shape, channels_last_strides(mean.shape), vjp)


_register_adaptive_avg(1, ("F.adaptive_avg_pool1d(seq, 4)", "F.adaptive_avg_pool1d(seq[0], 1)"))
_register_adaptive_avg(
    2,
    (
        "F.adaptive_avg_pool2d(img, (2, 5))",
        "F.adaptive_avg_pool2d(img, 1)",
        "F.adaptive_avg_pool2d(cl, 1)",
        "F.adaptive_avg_pool2d(cl, 3)",
        "F.adaptive_avg_pool2d(img[0], (None, 3))",
    ),
)
_register_adaptive_avg(3, ("F.adaptive_avg_pool3d(vol, 2)", "F.adaptive_avg_pool3d(vol, 1)"))


# -- power means


def _lp(
    e: Engine, rank: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> ShadowTensor:
    tensor_only(input)
    kernel = per_dimension(kernel_size, rank)
    mean = ENTRIES[f"torch.nn.functional.avg_pool{rank}d"].run(
        e, pointwise.pow(e, input, norm_type), kernel_size, stride, 0, ceil_mode
    )
    relu, absolute, sign = (pointwise.RUNS[name][0] for name in ("relu", "abs", "sign"))
    signed = sign(e, mean)
    rectified = pointwise.mul(e, signed, relu(e, absolute(e, mean)))
    return pointwise.pow(e, pointwise.mul(e, rectified, math.prod(kernel)), 1.0 / norm_type)


@op("F.lp_pool1d", saves="as pow, avg_pool1d, mul", samples=("F.lp_pool1d(seq, 2, 2)",))
def lp_pool1d(
    e: Engine, input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> ShadowTensor:
    return _lp(e, 1, input, norm_type, kernel_size, stride, ceil_mode)


@op(
    "F.lp_pool2d",
    saves="as pow, avg_pool2d, mul",
    samples=("F.lp_pool2d(img, 2.0, 2)", "F.lp_pool2d(img, 2, (2, 3), 1)"),
)
def lp_pool2d(
    e: Engine, input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> ShadowTensor:
    return _lp(e, 2, input, norm_type, kernel_size, stride, ceil_mode)


# -- unpooling


def _register_unpool(rank: int, samples: tuple[str, ...]) -> None:
    function = f"max_unpool{rank}d"

    def run(
        e: Engine,
        input: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> ShadowTensor:
        tensor_only(input, indices)
        kernel = per_dimension(kernel_size, rank)
        steps = kernel if stride is None else per_dimension(stride, rank)
        border = per_dimension(padding, rank)
        sizes = input.shape[input.ndim - rank :]
        usual = tuple((n - 1) * s + k - 2 * p for n, s, k, p in zip(sizes, steps, kernel, border, strict=True))
        wanted = usual if output_size is None else tuple(output_size)[-rank:]
        if indices.dtype != INT64 or indices.shape != input.shape or input.ndim not in (rank + 1, rank + 2):
            raise Unmodelled(f"{function} with operands of incompatible shapes or dtypes")
        if rank == 1:
            flat = _unpool(e, views.unsqueeze(e, input, -1), views.unsqueeze(e, indices, -1), (*wanted, 1), 2)
            return views.squeeze(e, flat, -1)
        return _unpool(e, input, indices, wanted, rank)

    add(f"F.{function}", run, "pure", "indices", samples, traits=("deterministic",))


def _unpool(e: Engine, input: ShadowTensor, indices: ShadowTensor, wanted: Shape, rank: int) -> ShadowTensor:
    outer = input.shape[: input.ndim - rank]
    rows, before = math.prod(outer), input.shape

    def forward(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        full = np.zeros((rows, math.prod(wanted)), x.dtype)
        np.put_along_axis(full, k.reshape(rows, -1), x.reshape(rows, -1), 1)
        return full.reshape(*outer, *wanted)

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        return (np.take_along_axis(g.reshape(rows, -1), s.indices.reshape(rows, -1), 1).reshape(before),)

    shape = (*outer, *wanted)
    rule = OpRule(f"MaxUnpool{rank}DBackward0", forward, (Keep("indices", 1),), vjp, edges=1)
    return pure(e, rule, (input, indices), shape, input.dtype, stride=suggested(shape, input))


_register_unpool(1, ("F.max_unpool1d(*F.max_pool1d(seq, 2, return_indices=True), 2)",))
_register_unpool(
    2,
    (
        "F.max_unpool2d(*F.max_pool2d(img, 2, return_indices=True), 2)",
        "F.max_unpool2d(*F.max_pool2d(img, 2, return_indices=True), 2, output_size=(5, 7))",
    ),
)
