"""Padding, interpolation, pixel_shuffle and the like."""

# ruff: noqa: A002, ARG001, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.gradient import laid_like
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.memory_format import (
    any_channels_last,
    channels_last_strides,
    is_channels_last,
    laid_out,
    suggested,
)
from pitfall_lab.shadow.ops import mutate, views
from pitfall_lab.shadow.ops.building import Keep, OpRule, new, pure, tensor_only
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, Shape


def _along(x: np.ndarray, matrices: Sequence[np.ndarray], *, transposed: bool = False) -> np.ndarray:
    """Apply one (out, in) matrix to each of the last dimensions, or their transposes."""
    result = x.astype(np.float64)
    for axis, matrix in enumerate(matrices, x.ndim - len(matrices)):
        result = np.moveaxis(np.tensordot(matrix.T if transposed else matrix, result, (1, axis)), 0, axis)
    return result


def _separable(
    e: Engine, node: str, input: ShadowTensor, matrices: Sequence[np.ndarray], keeps: tuple[Keep, ...] = ()
) -> ShadowTensor:
    shape = (*input.shape[: input.ndim - len(matrices)], *(len(m) for m in matrices))
    last = any_channels_last(input)
    rule = OpRule(
        node,
        lambda x: _along(_finite(x), matrices),
        keeps,
        lambda g, s: (laid_out(_along(_finite(g), matrices, transposed=True), last),),
    )
    return pure(e, rule, (input,), shape, input.dtype, stride=suggested(shape, input))


def _finite(x: np.ndarray) -> np.ndarray:
    """Return ``x``; decline NaN and infinity: torch leaves out elements whose weight is zero,
    and 0 times infinity is NaN.
    """
    if not np.isfinite(x).all():
        raise Unmodelled("inf or NaN in a weighted sum")
    return x


# -- borders


def _places(size: int, before: int, after: int, mode: str) -> np.ndarray:
    """For padding one dimension: a matrix (out, in) of zeros and ones that says which input element each
    output element is a copy of.
    """
    where = np.arange(-before, size + after)
    if mode == "reflect":
        where = np.abs(where)
        where = np.where(where >= size, 2 * (size - 1) - where, where)
    return np.eye(size)[np.clip(where, 0, size - 1)]


def pad_with(e: Engine, input: ShadowTensor, pad: Sequence[int], mode: str) -> ShadowTensor:
    """``F.pad`` with a ``mode`` that is no constant: reflect, replicate or circular. ``pad`` has two numbers for each
    dimension, before and after it, from the last dimension on.

    Raises ``ShadowError`` (torch's error) where a border of reflect is not smaller than its dimension, or one of
    circular is larger; ``Unmodelled``, among others, for negative paddings, other modes, an empty input and other
    numbers of dimensions.
    """
    rank = len(pad) // 2
    if (
        mode not in ("reflect", "replicate", "circular")
        or len(pad) % 2
        or rank not in (1, 2, 3)
        or input.ndim not in (rank + 1, rank + 2)
        or 0 in input.shape
    ):
        raise Unmodelled(f"pad with {mode} of {input.ndim} dimensions")
    if any(n < 0 for n in pad):
        raise Unmodelled("pad with a negative padding")
    pairs = [(pad[2 * k], pad[2 * k + 1]) for k in reversed(range(rank))]
    sizes = input.shape[input.ndim - rank :]
    if mode == "circular":
        return _circular(e, input, pairs)
    if mode == "reflect":
        for k in range(rank):
            before, after, size = pad[2 * k], pad[2 * k + 1], sizes[rank - 1 - k]
            if before >= size or after >= size:
                raise _too_wide(input, pad, rank, k)
    title = {"reflect": "Reflection", "replicate": "Replication"}[mode]
    matrices = [_places(size, before, after, mode) for size, (before, after) in zip(sizes, pairs, strict=True)]
    return _separable(e, f"{title}Pad{rank}DBackward0", input, matrices, (Keep("self", 0),))


def _too_wide(input: ShadowTensor, pad: Sequence[int], rank: int, k: int) -> Exception:
    at = input.ndim - 1 - k
    widths = f"({pad[2 * k]}, {pad[2 * k + 1]})"
    text = (
        f"Argument #{4 + 2 * k}: Padding size should be less than the corresponding input dimension, but got: padding "
        f"{widths} at dimension {at} of input {list(input.shape)}"
    )
    return runtime(text, "shape")


@op(
    "F.pad",
    "torch._C._nn.pad",
    samples=(
        "F.pad(a, (1, 0))",
        "F.pad(a, (0, 1, 2, 0), value=1.5)",
        "F.pad(p, (0, 0))",
        "F.pad(cl, (1, 1))",
        "F.pad(seq, (1, 2), mode='reflect')",
        "F.pad(a, (1, 1), 'reflect')",
        "F.pad(img, (1, 2, 0, 1), mode='reflect')",
        "F.pad(cl, (1, 2, 0, 1), mode='replicate')",
        "F.pad(vol, (1, 1, 1, 1, 1, 1), mode='replicate')",
        "F.pad(seq, (1, 2), mode='circular')",
        "F.pad(img, (1, 0, 2, 1), mode='circular')",
        "F.pad(seq, (6, 0), mode='reflect')",
    ),
)
def pad(e: Engine, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> ShadowTensor:
    tensor_only(input)
    if mode != "constant":
        return pad_with(e, input, pad, mode)
    if any(n < 0 for n in pad) or len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise Unmodelled(
            "pad with a negative padding, an odd number of sizes, or more than the input has dimensions for"
        )
    widths = [(0, 0)] * (input.ndim - len(pad) // 2) + [
        (pad[2 * k], pad[2 * k + 1]) for k in reversed(range(len(pad) // 2))
    ]
    inner = tuple(slice(before, before + n) for (before, _), n in zip(widths, input.shape, strict=True))
    shape = tuple(n + x + y for n, (x, y) in zip(input.shape, widths, strict=True))
    last = any_channels_last(input)
    fill = value or 0

    def cut(g: np.ndarray) -> np.ndarray:
        return np.asarray(
            laid_like(laid_out(g.copy(), last), g)
        )  # a clone: where the window is dense it has its strides

    rule = OpRule(
        "ConstantPadNdBackward0", lambda x: np.pad(x, widths, constant_values=fill), (), lambda g, s: (cut(g[inner]),)
    )  # fmt: skip
    stride = preserved(input) if shape == input.shape else suggested(shape, input)  # nothing to add: a clone
    return pure(e, rule, (input,), shape, input.dtype, stride=stride)


def _circular(e: Engine, input: ShadowTensor, pairs: Sequence[tuple[int, int]]) -> ShadowTensor:
    """``F.pad(mode="circular")``: copies the input into the middle, then each border from the opposite side."""
    rank = len(pairs)
    first = input.ndim - rank
    sizes = [n + a + b for n, (a, b) in zip(input.shape[first:], pairs, strict=True)]
    if any(a > n or b > n for n, (a, b) in zip(input.shape[first:], pairs, strict=True)):
        raise runtime("Padding value causes wrapping around more than once.", "shape")
    result = new(e, (*input.shape[:first], *sizes), input.dtype, np.zeros(()))
    inner, source = result, input
    for d in reversed(range(rank)):
        before, after = pairs[d]
        inner = views.slice_window(e, inner, first + d, before, sizes[d] - after)
        source = views.slice_window(e, source, first + d, 0, input.shape[first + d])
    mutate.copy_(e, inner, source)
    for d in range(rank):
        before, after = pairs[d]
        if before:
            target = views.slice_window(e, result, first + d, 0, before)
            mutate.copy_(
                e, target, views.slice_window(e, result, first + d, sizes[d] - before - after, sizes[d] - after)
            )
        if after:
            target = views.slice_window(e, result, first + d, sizes[d] - after, sizes[d])
            mutate.copy_(e, target, views.slice_window(e, result, first + d, before, before + after))
    return result


# -- other sizes


def _step(size: int, out: int, factor: float | None) -> float:
    return 1 / factor if factor is not None and factor > 0 else size / out


def _nearest(size: int, out: int, factor: float | None, *, exact: bool = False) -> np.ndarray:
    step = np.float32(_step(size, out, factor))
    where = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step).astype(int)
    result: np.ndarray = np.eye(size)[np.minimum(where, size - 1)]
    return result


def _sources(size: int, out: int, factor: float | None, align_corners: bool) -> np.ndarray:
    """For each output element the position in the input, not rounded, at which it is interpolated."""
    if align_corners:
        return np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (np.arange(out) + 0.5) * _step(size, out, factor) - 0.5


def _linear(size: int, out: int, factor: float | None, align_corners: bool) -> np.ndarray:
    where = np.maximum(_sources(size, out, factor, align_corners), 0)
    low = np.minimum(where.astype(int), size - 1)
    share = np.clip(where - low, 0, 1)[:, None]
    result: np.ndarray = np.eye(size)[low] * (1 - share) + np.eye(size)[np.minimum(low + 1, size - 1)] * share
    return result


def _cubic(size: int, out: int, factor: float | None, align_corners: bool) -> np.ndarray:
    where = _sources(size, out, factor, align_corners)
    low = np.floor(where).astype(int)
    t = where - low
    matrix = np.zeros((out, size))
    for k in range(-1, 3):
        x = np.abs(t - k)
        near, far = (1.25 * x - 2.25) * x * x + 1, ((-0.75 * x + 3.75) * x - 6) * x + 3
        np.add.at(matrix, (np.arange(out), np.clip(low + k, 0, size - 1)), np.where(x <= 1, near, far))
    return matrix


def _sizes(input: ShadowTensor, size: Any, factors: Any, rank: int) -> tuple[Shape, Sequence[float | None]]:
    """The size of the output and the scale factor of each dimension; without ``factors``, all factors are None.

    Declines an input of another number of dimensions than ``rank`` + 2, and one that is empty or not floating point.
    """
    inner = input.shape[2:]
    if input.ndim != rank + 2 or 0 in input.shape or not input.dtype.is_floating_point:
        raise Unmodelled("upsampling of an input that is empty, not floating point, or of another number of dimensions")
    if size is not None:
        wanted = tuple(int(n) for n in (size if isinstance(size, tuple | list) else (size,) * rank))
        return wanted, (tuple(factors) if factors is not None else (None,) * rank)
    given = tuple(factors if isinstance(factors, tuple | list) else (factors,) * rank)
    return tuple(math.floor(n * f) for n, f in zip(inner, given, strict=True)), given


def upsample(
    e: Engine,
    node: str,
    input: ShadowTensor,
    size: Any,
    factors: Any,
    row: Callable[[int, int, float | None], np.ndarray],
    rank: int,
) -> ShadowTensor:
    """Interpolation of (N, C, *inner) to (N, C, *size); without a ``size``, to the inner sizes times ``factors``,
    rounded down.

    ``node`` is the name of its node, ``rank`` the number of inner dimensions; ``row(n, out, factor)`` returns the
    matrix that maps a dimension of size n to one of size out. Raises ``Unmodelled``, among others, for an input that is
    empty, not floating point or of another number of dimensions, and for an empty result.
    """
    wanted, scale = _sizes(input, size, factors, rank)
    if any(n < 1 for n in wanted):
        raise Unmodelled("upsampling to an empty result")
    matrices = [row(n, out, f) for n, out, f in zip(input.shape[2:], wanted, scale, strict=True)]
    return _separable(e, node, input, matrices)


def _register(function: str, title: str, rank: int, row: Callable[..., np.ndarray], *, corners: bool) -> None:
    node = f"{title}{rank}DBackward0"

    def plain(e: Engine, input: Any, output_size: Any, scale_factors: Any = None) -> ShadowTensor:
        tensor_only(input)
        return upsample(e, node, input, output_size, scale_factors, row, rank)

    def aligned(
        e: Engine, input: Any, output_size: Any, align_corners: bool, scale_factors: Any = None
    ) -> ShadowTensor:
        tensor_only(input)
        return upsample(
            e, node, input, output_size, scale_factors, lambda n, out, f: row(n, out, f, align_corners), rank
        )

    add(f"torch._C._nn.{function}{rank}d", aligned if corners else plain, "pure")


for _rank in (1, 2, 3):
    _register("upsample_nearest", "UpsampleNearest", _rank, _nearest, corners=False)
    _register(
        "_upsample_nearest_exact",
        "UpsampleNearestExact",
        _rank,
        lambda n, out, f: _nearest(n, out, f, exact=True),
        corners=False,
    )
for _function, _rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3)):
    _register(f"upsample_{_function}", f"Upsample{_function.capitalize()}", _rank, _linear, corners=True)
_register("upsample_bicubic", "UpsampleBicubic", 2, _cubic, corners=True)


@op("F.interpolate", "F.upsample", samples=(
    "F.interpolate(img, scale_factor=2)", "F.interpolate(cl, scale_factor=1.5)", "F.interpolate(seq, 4)",
    "F.interpolate(vol, size=(2, 5, 3))", "F.interpolate(img, scale_factor=2, mode='bilinear')",
    "F.interpolate(img, (3, 5), mode='bilinear', align_corners=True)", "F.interpolate(cl, (3, 5), mode='bilinear')",
    "F.interpolate(seq, scale_factor=1.7, mode='linear')", "F.interpolate(vol, 3, mode='trilinear')",
    "F.interpolate(img, 7, mode='bicubic')", "F.interpolate(img, 3, mode='nearest-exact')",
    "F.interpolate(img, 3, mode='bicubic', align_corners=True)"))  # fmt: skip
def interpolate(e: Engine, input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: Any = None, recompute_scale_factor: Any = None,
                antialias: bool = False) -> ShadowTensor:  # fmt: skip
    tensor_only(input)
    rank = input.ndim - 2
    kinds: dict[str, tuple[str, Callable[..., np.ndarray], tuple[int, ...]]] = {
        "nearest": ("UpsampleNearest", _nearest, (1, 2, 3)),
        "nearest-exact": ("UpsampleNearestExact", lambda n, out, f: _nearest(n, out, f, exact=True), (1, 2, 3)),
        "linear": ("UpsampleLinear", _linear, (1,)),
        "bilinear": ("UpsampleBilinear", _linear, (2,)),
        "trilinear": ("UpsampleTrilinear", _linear, (3,)),
        "bicubic": ("UpsampleBicubic", _cubic, (2,)),
    }
    if (
        recompute_scale_factor
        or antialias
        or (size is None) == (scale_factor is None)
        or mode not in kinds
        or rank not in kinds[mode][2]
    ):
        raise Unmodelled("interpolate with these options")
    title, row, _ = kinds[mode]
    if mode.startswith("nearest"):
        if align_corners is not None:
            raise Unmodelled("align_corners with mode='nearest'")
        return upsample(e, f"{title}{rank}DBackward0", input, size, scale_factor, row, rank)
    aligned = bool(align_corners)
    return upsample(
        e, f"{title}{rank}DBackward0", input, size, scale_factor, lambda n, out, f: row(n, out, f, aligned), rank
    )


# -- pixels and channels


def _moved(
    e: Engine,
    node: str,
    input: ShadowTensor,
    shape: Shape,
    there: Callable[[np.ndarray], np.ndarray],
    back: Callable[[np.ndarray], np.ndarray],
) -> ShadowTensor:
    last = is_channels_last(input)
    rule = OpRule(node, there, (), lambda g, s: (laid_out(back(g), last),))
    return pure(e, rule, (input,), shape, input.dtype, stride=channels_last_strides(shape) if last else None)


def _spread_channels(x: np.ndarray, r: int) -> np.ndarray:
    *outer, channels, height, width = x.shape
    split = x.reshape(*outer, channels // (r * r), r, r, height, width)
    n = len(outer)
    return split.transpose(*range(n + 1), n + 3, n + 1, n + 4, n + 2).reshape(
        *outer, channels // (r * r), height * r, width * r
    )


def _gather_pixels(x: np.ndarray, r: int) -> np.ndarray:
    *outer, channels, height, width = x.shape
    split = x.reshape(*outer, channels, height // r, r, width // r, r)
    n = len(outer)
    return split.transpose(*range(n + 1), n + 2, n + 4, n + 1, n + 3).reshape(
        *outer, channels * r * r, height // r, width // r
    )


@op(
    "F.pixel_shuffle",
    samples=(
        "F.pixel_shuffle(img, 2)",
        "F.pixel_shuffle(cl, 2)",
        "F.pixel_shuffle(img[0], 2)",
        "F.pixel_shuffle(img, 3)",
    ),
)
def pixel_shuffle(e: Engine, input: Any, upscale_factor: int) -> ShadowTensor:
    """``F.pixel_shuffle`` of (..., C * r * r, H, W) to (..., C, H * r, W * r), where r is ``upscale_factor``.

    Raises ``ShadowError`` (torch's error) if ``r * r`` does not divide the channels, and ``Unmodelled``, among others,
    for an empty input, fewer than 3 dimensions and a factor below 1.
    """
    tensor_only(input)
    r = upscale_factor
    if input.ndim < 3 or r < 1:
        raise Unmodelled("pixel_shuffle with fewer than 3 dimensions, or with a factor below 1")
    if 0 in input.shape:
        raise Unmodelled("pixel_shuffle of an empty input, whose gradient has another shape in torch")
    *outer, channels, height, width = input.shape
    if channels % (r * r):
        text = (
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
        raise runtime(text, "shape")
    shape = (*outer, channels // (r * r), height * r, width * r)
    return _moved(
        e, "PixelShuffleBackward0", input, shape, lambda x: _spread_channels(x, r), lambda g: _gather_pixels(g, r)
    )


@op("F.pixel_unshuffle", samples=("F.pixel_unshuffle(img, 2)", "F.pixel_unshuffle(cl, 2)"))
def pixel_unshuffle(e: Engine, input: Any, downscale_factor: int) -> ShadowTensor:
    """``F.pixel_unshuffle`` of (..., C, H * r, W * r) to (..., C * r * r, H, W), where r is ``downscale_factor``.

    Raises ``Unmodelled``, among others, if ``r`` does not divide the height and the width or is below 1, for fewer than
    3 dimensions, and for an empty input.
    """
    tensor_only(input)
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r or not input.numel:
        raise Unmodelled(
            "pixel_unshuffle of an input whose height or width the factor does not divide, or of an empty one"
        )
    *outer, channels, height, width = input.shape
    shape = (*outer, channels * r * r, height // r, width // r)
    return _moved(
        e, "PixelUnshuffleBackward0", input, shape, lambda x: _gather_pixels(x, r), lambda g: _spread_channels(g, r)
    )


@op("F.channel_shuffle", samples=("F.channel_shuffle(img, 2)",))
def channel_shuffle(e: Engine, input: Any, groups: int) -> ShadowTensor:
    """``F.channel_shuffle``: channels numbered (group, place) are put into the order (place, group).

    Raises ``Unmodelled``, among others, if ``groups`` does not divide the channels, and for an input that is empty,
    channels_last, or of fewer than 3 dimensions.
    """
    tensor_only(input)
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups or is_channels_last(input) or not input.numel:
        raise Unmodelled(
            "channel_shuffle of an input that is empty or channels_last, or whose channels groups does not divide"
        )
    count, channels = input.shape[:2]
    inner, shape = input.shape[2:], input.shape

    def swap(x: np.ndarray, first: int) -> np.ndarray:
        return np.swapaxes(x.reshape(count, first, channels // first, *inner), 1, 2).reshape(shape)

    return _moved(
        e, "ChannelShuffleBackward0", input, shape, lambda x: swap(x, groups), lambda g: swap(g, channels // groups)
    )
