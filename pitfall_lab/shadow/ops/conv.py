"""Convolutions in one, two and three dimensions, transposed ones, and unfold and fold."""

# ruff: noqa: A001, A002, ARG005, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.memory_format import any_channels_last, channels_last_strides, laid_out, lies_channels_last
from pitfall_lab.shadow.ops import views
from pitfall_lab.shadow.ops.building import Keep, OpRule, of_finite, pure, tensor_only
from pitfall_lab.shadow.ops.resample import pad
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, Shape, contiguous_strides


def per_dimension(value: Any, count: int, name: str = "size") -> Shape:
    """An option as ``count`` integers, one per dimension: a ``value`` of 3 becomes ``(3, 3)``, so does a sequence of
    one integer, and a sequence of ``count`` integers becomes a tuple.

    Raises ``Unmodelled`` for other options, with ``name`` in its message.
    """
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(n, int | np.integer) for n in given) or len(given) not in (1, count):
        raise Unmodelled(f"{name} {value!r}")
    return tuple(int(n) for n in given * (count if len(given) == 1 else 1))


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a convolution, in as many dimensions as the input has behind its channels: size of the kernel,
    stride, padding and dilation, one integer for each dimension.
    """

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    def count(self, size: Shape) -> Shape:
        """The number of windows along each dimension of an input of this size."""
        each = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each)

    def taps(self, size: Shape) -> Iterator[tuple[Shape, Any]]:
        """Yield each position in the kernel, and the NumPy index of the part of the padded input (with any leading
        dimensions) that it sees in all windows; ``size`` is the input's, without padding.
        """
        counts = self.count(size)
        for tap in itertools.product(*map(range, self.kernel)):
            each = zip(tap, self.dilation, self.stride, counts, strict=True)
            yield tap, (..., *(slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in each))

    def padded(self, x: np.ndarray, fill: float = 0) -> np.ndarray:
        """Return the input with its padding."""
        inner = [(p, p) for p in self.padding]
        return np.pad(x, [(0, 0)] * (x.ndim - len(inner)) + inner, constant_values=fill)

    def without_border(self, x: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`padded`."""
        inside: Any = (
            ...,
            *(slice(p, x.shape[x.ndim - len(self.padding) + k] - p) for k, p in enumerate(self.padding)),
        )
        result: np.ndarray = x[inside]
        return result


def at_tap(tap: Shape) -> Any:
    """Return the NumPy index of the kernel's element at position ``tap``, for all groups and channels."""
    return (slice(None), slice(None), slice(None), *tap)


def _correlate(x: np.ndarray, w: np.ndarray, windows: Windows, groups: int) -> np.ndarray:
    """The sums of a convolution: (N, C, *size) with filters (O, C / groups, *kernel) to (N, O, *count), the
    count of windows, in float64.
    """
    size = x.shape[2:]
    padded = windows.padded(x.astype(np.float64)).reshape(
        x.shape[0], groups, -1, *(n + 2 * p for n, p in zip(size, windows.padding, strict=True))
    )
    filters = w.reshape(groups, -1, *w.shape[1:])
    total = np.zeros((x.shape[0], groups, filters.shape[1], *windows.count(size)))
    for tap, seen in windows.taps(size):
        total += np.einsum("ngc...,goc->ngo...", padded[seen], filters[at_tap(tap)])
    return total.reshape(x.shape[0], w.shape[0], *windows.count(size))


def _spread(g: np.ndarray, w: np.ndarray, windows: Windows, groups: int, size: Shape) -> np.ndarray:
    """The gradient of :func:`_correlate` for ``x``; also a transposed convolution: (N, O, *count) to (N, C, *size)."""
    channels = w.shape[1] * groups
    full = np.zeros((g.shape[0], groups, w.shape[1], *(n + 2 * p for n, p in zip(size, windows.padding, strict=True))))
    split = g.astype(np.float64).reshape(g.shape[0], groups, -1, *g.shape[2:])
    filters = w.reshape(groups, -1, *w.shape[1:])
    for tap, seen in windows.taps(size):
        full[seen] += np.einsum("ngo...,goc->ngc...", split, filters[at_tap(tap)])
    return windows.without_border(full.reshape(g.shape[0], channels, *full.shape[3:]))


def _correlate_filters(x: np.ndarray, g: np.ndarray, windows: Windows, groups: int) -> np.ndarray:
    """The gradient of :func:`_correlate` for ``w``: (N, C, *size) and (N, O, *count) to (O, C / groups, *kernel)."""
    size = x.shape[2:]
    padded = windows.padded(x.astype(np.float64)).reshape(
        x.shape[0], groups, -1, *(n + 2 * p for n, p in zip(size, windows.padding, strict=True))
    )
    split = g.reshape(g.shape[0], groups, -1, *g.shape[2:])
    full = np.zeros((groups, split.shape[2], padded.shape[2], *windows.kernel))
    for tap, seen in windows.taps(size):
        full[at_tap(tap)] = np.einsum("ngcx,ngox->goc", _flat(padded[seen]), _flat(split))
    return full.reshape(g.shape[1], padded.shape[2], *windows.kernel)


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:3], -1)


def convolve(e: Engine, input: ShadowTensor, weight: ShadowTensor, bias: ShadowTensor | None, windows: Windows,
             groups: int, *, transposed: bool = False, output_padding: Shape = ()) -> ShadowTensor:  # fmt: skip
    """``aten::convolution`` of a batch: (N, C, *size) in, (N, O, *size) out; with ``transposed``, its transposed form,
    for which ``output_padding`` is. ``windows`` has the kernel's size, stride, padding and dilation; ``groups`` is the
    number of independent groups of channels.

    Operands must fit: only the callers check them. Inf or NaN in an operand makes the result's values unknown.
    """
    size = input.shape[2:]
    if transposed:
        each = zip(size, windows.kernel, windows.stride, windows.padding, windows.dilation, output_padding, strict=True)
        inner = tuple((n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, k, s, p, d, more in each)
        channels = weight.shape[1] * groups
    else:
        inner, channels = windows.count(size), weight.shape[0]
    axes, last = (0, *range(2, input.ndim)), any_channels_last(input, weight)
    if (
        len(size) == 1
    ):  # a 1-D input is made contiguous and unsqueezed to 2-D; the weight is unsqueezed with its own strides
        (rows, of, length), (step, along, by) = weight.shape, weight.stride
        last = lies_channels_last((rows, of, 1, length), (step, along, length * by, by))

    def forward(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
        total = _spread(x, w, windows, groups, inner) if transposed else _correlate(x, w, windows, groups)
        return total if b is None else total + b.reshape(1, -1, *(1,) * len(size))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any, Any]:
        if transposed:
            to_input, to_weight = (
                _correlate(g, s.weight, windows, groups),
                _correlate_filters(g, s.input, windows, groups),
            )
        else:
            to_input, to_weight = (
                _spread(g, s.weight, windows, groups, size),
                _correlate_filters(s.input, g, windows, groups),
            )
        return laid_out(to_input, last), laid_out(to_weight, last), g.sum(axis=axes, dtype=np.float64)

    rule = of_finite(OpRule("ConvolutionBackward0", forward, (Keep("input", 0), Keep("weight", 1)), vjp))
    shape = (input.shape[0], channels, *inner)
    stride = channels_last_strides(shape) if last else contiguous_strides(shape)
    return pure(e, rule, (input, weight, bias), shape, input.dtype, stride=stride)


# -- the functions


def _check(
    input: Any, weight: Any, bias: Any, rank: int, groups: int, transposed: bool, function: str, by_number: bool = True
) -> None:
    tensor_only(input, weight, *(() if bias is None else (bias,)))
    if bias is not None and bias.dtype != input.dtype and not transposed and by_number:
        raise runtime(
            f"Input type ({input.dtype.c_name}) and bias type ({bias.dtype.c_name}) should be the same", "dtype"
        )
    if input.ndim not in (rank + 1, rank + 2):
        if bias is not None and bias.dtype != input.dtype:
            raise Unmodelled("which of two errors torch raises first: for the dtypes, or for the number of dimensions")
        text = (
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {function}, but got input of "
            f"size: {list(input.shape)}"
        )
        raise runtime(text, "shape")
    if weight.ndim != rank + 2 or groups < 1:
        raise Unmodelled(f"{function} with a weight of {weight.ndim} dimensions or groups={groups}")
    if (
        not input.dtype.is_floating_point
        or input.dtype != weight.dtype
        or (bias is not None and bias.dtype != input.dtype)
    ):
        raise Unmodelled(f"{function} with operands of several dtypes, or not floating point")


def _check_channels(input: ShadowTensor, weight: ShadowTensor, bias: Any, groups: int, transposed: bool) -> None:
    """Raise torch's errors for channel counts; they show the batched (and padded) shape,
    also for an unbatched input.
    """
    shape = input.shape
    if weight.shape[0] % groups or weight.shape[0] < groups:
        least, shown = (
            ("at least", list(weight.shape)) if weight.shape[0] < groups else ("divisible by", [list(weight.shape)])
        )
        raise runtime(
            f"Given groups={groups}, expected weight to be {least} {groups} at dimension 0, but got weight of "
            f"size {shown} instead",
            "shape",
        )
    what = (
        f"Given {'transposed' if transposed else 'groups'}={1 if transposed else groups}, weight of size "
        f"{list(weight.shape)}, "
    )
    if transposed:
        if shape[1] != weight.shape[0]:
            raise runtime(
                what
                + (
                    f"expected input{list(shape)} to have {weight.shape[0]} channels, but got "
                    f"{shape[1]} channels instead"
                ),
                "shape",
            )
        wanted = weight.shape[1] * groups
        if shape[1] % groups:
            raise Unmodelled("a transposed convolution whose channels are not divisible by groups")
    else:
        if shape[1] != weight.shape[1] * groups:
            raise runtime(
                what
                + (
                    f"expected input{list(shape)} to have {weight.shape[1] * groups} channels, but got "
                    f"{shape[1]} channels instead"
                ),
                "shape",
            )
        wanted = weight.shape[0]
    if bias is not None and bias.shape != (wanted,):
        what = f"Given {'transposed=1, ' if transposed else ''}weight of size {list(weight.shape)}, "
        raise runtime(
            what
            + (
                f"expected bias to be 1-dimensional with {wanted} elements, but got bias of size "
                f"{list(bias.shape)} instead"
            ),
            "shape",
        )


def _batched(e: Engine, input: ShadowTensor, rank: int) -> tuple[ShadowTensor, bool]:
    return (input, True) if input.ndim == rank + 2 else (views.unsqueeze(e, input, 0), False)


def _register(rank: int, samples: tuple[str, ...]) -> None:
    function = f"conv{rank}d"

    def run(
        e: Engine,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> ShadowTensor:
        _check(
            input,
            weight,
            bias,
            rank,
            groups,
            transposed=False,
            function=function,
            by_number=not isinstance(padding, str),
        )
        steps, spread = per_dimension(stride, rank), per_dimension(dilation, rank)
        kernel = weight.shape[2:]
        batch, whole = _batched(e, input, rank)
        if padding == "same":
            if any(s != 1 for s in steps):
                raise runtime("padding='same' is not supported for strided convolutions")
            batch, border = _same(e, batch, kernel, spread)
        else:
            border = (0,) * rank if padding == "valid" else per_dimension(padding, rank)
        _check_channels(batch, weight, bias, groups, transposed=False)
        windows = Windows(kernel, steps, border, spread)
        _check_fits(batch.shape[2:], windows)
        result = convolve(e, batch, weight, bias, windows, groups)
        return result if whole else views.squeeze(e, result, 0)

    add(
        (f"F.{function}", f"torch.{function}"),
        run,
        "pure",
        "input, weight",
        samples,
        traits=("convolution", "products"),
    )


def _check_fits(size: Shape, windows: Windows) -> None:
    if any(
        n + 2 * p < d * (k - 1) + 1
        for n, p, d, k in zip(size, windows.padding, windows.dilation, windows.kernel, strict=True)
    ):
        padded = " x ".join(str(n + 2 * p) for n, p in zip(size, windows.padding, strict=True))
        reach = " x ".join(str(d * (k - 1) + 1) for d, k in zip(windows.dilation, windows.kernel, strict=True))
        raise runtime(
            f"Calculated padded input size per channel: ({padded}). Kernel size: ({reach}). Kernel size can't be "
            "greater than actual input size",
            "shape",
        )
    if (
        any(n < 1 for n in (*windows.stride, *windows.dilation))
        or any(p < 0 for p in windows.padding)
        or 0 in windows.kernel
    ):
        raise Unmodelled("a convolution with such a kernel size, stride, padding or dilation")


def _reach(kernel: Shape, dilation: Shape) -> list[int]:
    """Return, for each dimension, the extent of a dilated kernel minus one."""
    return [d * (k - 1) for d, k in zip(dilation, kernel, strict=False)]


def _same(e: Engine, input: ShadowTensor, kernel: Shape, dilation: Shape) -> tuple[ShadowTensor, Shape]:
    """The input, and the padding on each side of it, for ``padding="same"``.

    Where the total is odd, torch pads the input by one on the right first.
    """
    total = _reach(kernel, dilation)
    extra = [n % 2 for n in total]
    if any(extra):
        input = pad(e, input, tuple(x for n in reversed(extra) for x in (0, n)))
    return input, tuple(n // 2 for n in total)


def _register_transposed(rank: int, samples: tuple[str, ...]) -> None:
    function = f"conv_transpose{rank}d"

    def run(e: Engine, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
            output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> ShadowTensor:  # fmt: skip
        _check(input, weight, bias, rank, groups, transposed=True, function=function)
        windows = Windows(
            weight.shape[2:], per_dimension(stride, rank), per_dimension(padding, rank), per_dimension(dilation, rank)
        )
        more = per_dimension(output_padding, rank)
        if any(m >= max(s, d) for m, s, d in zip(more, windows.stride, windows.dilation, strict=True)):
            raise Unmodelled("an output_padding that is too large")
        if 0 in weight.shape[2:]:
            raise Unmodelled("a convolution with such a kernel size, stride, padding or dilation")
        batch, whole = _batched(e, input, rank)
        _check_channels(batch, weight, bias, groups, transposed=True)
        reach = (
            s * (n - 1) + r + 1 + m - 2 * p
            for n, s, r, m, p in zip(
                batch.shape[2:],
                windows.stride,
                _reach(windows.kernel, windows.dilation),
                more,
                windows.padding,
                strict=True,
            )
        )
        if min(reach) < 1:
            raise Unmodelled("a transposed convolution with an empty result")
        result = convolve(e, batch, weight, bias, windows, groups, transposed=True, output_padding=more)
        return result if whole else views.squeeze(e, result, 0)

    add(
        (f"F.{function}", f"torch.{function}"),
        run,
        "pure",
        "input, weight",
        samples,
        traits=("convolution", "products"),
    )


_register(
    1,
    (
        "F.conv1d(seq, k1)",
        "F.conv1d(seq, k1, c6, stride=2, padding=1)",
        "F.conv1d(seq, k1, padding='same', dilation=2)",
        "F.conv1d(seq[0], k1, c6)",
        "F.conv1d(seq.detach(), k1, padding='valid')",
        "F.conv1d(seq, k1[:, :2], groups=2)",
        "F.conv1d(seq, k1[:, :3])",
        "F.conv1d(a, k1)",
        "F.conv1d(c, k1)",
        "F.conv1d(seq, k1[:, :, :2], padding='same')",
        "F.conv1d(seq, k1, stride=2, padding='same')",
        "F.conv1d(seq.mT.contiguous().mT, k1)",
    ),
)
_register(
    2,
    (
        "F.conv2d(img, k2)",
        "F.conv2d(img, k2, c6, padding=1)",
        "F.conv2d(img, k2, None, (1, 2), (1, 0), 1)",
        "F.conv2d(img[0], k2)",
        "F.conv2d(cl, k2, c6)",
        "F.conv2d(img, k2[:4, :1], c4, groups=4)",
        "F.conv2d(img.detach(), k2, c6)",
        "F.conv2d(img, k2.detach())",
        "F.conv2d(img, k2, c4)",
        "F.conv2d(img[:, :, :2], k2)",
        "F.conv2d(img, k2.contiguous(memory_format=torch.channels_last))",
        "F.conv2d(img[:1], k2, padding='same')",
    ),
)
_register(3, ("F.conv3d(vol, k3)", "F.conv3d(vol, k3, c3, stride=2, padding=1)"))
_register_transposed(
    1,
    ("F.conv_transpose1d(seq, kt[:, :, 0])", "F.conv_transpose1d(seq[0], kt[:, :, 0], c3, stride=2, output_padding=1)"),
)
_register_transposed(
    2,
    (
        "F.conv_transpose2d(img, kt)",
        "F.conv_transpose2d(img, kt, c3, stride=2, padding=1, output_padding=1)",
        "F.conv_transpose2d(img, kt, None, 1, 0, 0, 2)",
        "F.conv_transpose2d(cl, kt)",
        "F.conv_transpose2d(vol[0], kt)",
    ),
)
_register_transposed(3, ("F.conv_transpose3d(vol, k3[:2, :1])",))


# -- unfold and fold


def _columns(input: ShadowTensor, windows: Windows) -> tuple[int, Shape]:
    return math.prod(windows.kernel), windows.count(input.shape[-2:])


@op("F.unfold", "torch._C._nn.im2col", samples=("F.unfold(img, 2)", "F.unfold(img[0], (2, 3), padding=1, stride=2)"))
def unfold(
    e: Engine, input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> ShadowTensor:
    """``F.unfold``: each window as a column, (N, C, H, W) to (N, C * elements of the kernel, windows). The options are
    torch's.

    Raises ``Unmodelled``, among others, for another number of dimensions (3, without N, is possible), and if not one
    window fits.
    """
    tensor_only(input)
    windows = Windows(
        per_dimension(kernel_size, 2), per_dimension(stride, 2), per_dimension(padding, 2), per_dimension(dilation, 2)
    )
    if input.ndim not in (3, 4) or any(n < 1 for n in windows.count(input.shape[-2:])):
        raise Unmodelled("F.unfold with an input of this shape or these options")
    taps, counts = _columns(input, windows)
    size, channels = input.shape[-2:], input.shape[-3]
    shape = (*input.shape[:-3], channels * taps, math.prod(counts))
    rule = OpRule(
        "Im2ColBackward0",
        lambda x: _unfolded(x, windows).reshape(shape),
        (),
        lambda g, s: (_folded(g, windows, channels, size).reshape(input.shape).copy(),),
    )
    return pure(e, rule, (input,), shape, input.dtype)


def _unfolded(x: np.ndarray, windows: Windows) -> np.ndarray:
    seen = [windows.padded(x)[where] for _, where in windows.taps(x.shape[-2:])]
    return np.stack(seen, -3)


def _folded(g: np.ndarray, windows: Windows, channels: int, size: Shape) -> np.ndarray:
    counts = windows.count(size)
    split = g.reshape(-1, channels, math.prod(windows.kernel), *counts)
    full = np.zeros(
        (split.shape[0], channels, *(n + 2 * p for n, p in zip(size, windows.padding, strict=True))), g.dtype
    )
    for k, (_, where) in enumerate(windows.taps(size)):
        full[where] += split[:, :, k]
    return np.ascontiguousarray(windows.without_border(full))


@op(
    "F.fold",
    "torch._C._nn.col2im",
    samples=("F.fold(F.unfold(img, 2), (4, 6), 2)", "F.fold(F.unfold(img[0], 2, stride=2), (4, 6), 2, stride=2)"),
)
def fold(
    e: Engine, input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> ShadowTensor:
    """``F.fold``: put each column back as a window, (N, C * elements of the kernel, windows) to (N, C, H, W). The
    options are torch's.

    Where windows overlap, they are added. Raises ``Unmodelled``, among others, for another number of dimensions (2,
    without N, is possible), and for columns that are not the windows of ``output_size``.
    """
    tensor_only(input)
    windows = Windows(
        per_dimension(kernel_size, 2), per_dimension(stride, 2), per_dimension(padding, 2), per_dimension(dilation, 2)
    )
    size = per_dimension(output_size, 2)
    taps = math.prod(windows.kernel)
    if input.ndim not in (2, 3) or input.shape[-2] % taps or math.prod(windows.count(size)) != input.shape[-1]:
        raise Unmodelled("F.fold with an input of this shape or these options")
    channels = input.shape[-2] // taps
    shape = (*input.shape[:-2], channels, *size)
    rule = OpRule(
        "Col2ImBackward0",
        lambda x: _folded(x, windows, channels, size).reshape(shape),
        (),
        lambda g, s: (_unfolded(g, windows).reshape(input.shape).copy(),),
    )
    return pure(e, rule, (input,), shape, input.dtype)
