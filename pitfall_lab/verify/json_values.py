"""Converts tensor contents to the trace's plain JSON values, abbreviated if they are long (:func:`cells`)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from pitfall_lab.trace import CELL_LIMIT
from pitfall_lab.trace.text import plain


def cells(values: np.ndarray | None, limit: int = CELL_LIMIT, keep: tuple[int, ...] = ()) -> Any:
    """Return the array's elements, flat, as a trace's Cells (plain values; NaN and infinity as strings); None for None
    (unknown values).

    An array with more than ``limit`` elements becomes a dict: ``count``, their number, and ``shown``, pairs of index
    and value: both ends, the first NaN, and the indices ``keep``; with ``mean``, ``low`` and ``high`` of its elements
    if they are real, their sum is finite, and there are at most ``SUMMED`` (2^17).

    >>> cells(np.array([0.5, np.nan])), cells(np.arange(40))["shown"][:2]
    ([0.5, 'nan'], [[0, 0], [1, 1]])
    """
    if values is None:
        return None
    flat = values.reshape(-1)
    if flat.size <= limit:
        return [plain(item) for item in flat.tolist()]
    half = limit // 2
    size = int(flat.size)
    chosen = [*range(half), *range(size - half, size)]
    keep = (*keep, *_first_nan(flat))
    if keep:
        chosen = sorted({*chosen, *(k for k in keep if 0 <= k < size)})
    shown = [[k, plain(item)] for k, item in zip(chosen, flat[chosen].tolist(), strict=True)]
    return {"count": size, "shown": shown, **_named(_gist(flat))}


SUMMED = 2**17
"""How many elements an array may have for its mean and extremes to be recorded: that takes a tenth of a millisecond."""

Gist = tuple[float, float, float] | tuple[()]
"""The mean, the lowest and the highest of many numbers; empty if they are unknown."""


def _gist(flat: np.ndarray) -> Gist:
    """The mean, the lowest and the highest element; empty for a long array, and if they are not finite numbers."""
    if flat.size > SUMMED or flat.dtype.kind not in "fiu":
        return ()
    # In float64 no sum of narrower numbers overflows; for the others the program sees no warning of ours.
    with np.errstate(all="ignore"):
        total = float(np.add.reduce(flat, dtype=np.float64))
    if not -math.inf < total < math.inf:
        return ()
    return total / flat.size, float(np.minimum.reduce(flat)), float(np.maximum.reduce(flat))


def _named(gist: Gist) -> dict[str, float]:
    """These three numbers as a trace stores them, with four digits: so few hardly depend on the order of summation."""
    return {key: float(f"{value:.4g}") for key, value in zip(("mean", "low", "high"), gist, strict=False)}


def _first_nan(flat: np.ndarray) -> tuple[int, ...]:
    """The index of the first NaN of a float array, in a tuple; empty if there is no NaN.

    NumPy's ``argmax`` returns it.
    """
    place = int(flat.argmax()) if flat.dtype.kind == "f" else 0
    return (place,) if flat.dtype.kind == "f" and flat[place] != flat[place] else ()


Look = np.ndarray[Any, np.dtype[Any]] | tuple[int, np.ndarray[Any, np.dtype[Any]], tuple[int, ...], Gist]
"""A copy of the elements of an array that a trace shows: all of a short array, else its size, the elements at both
ends, the index of the first NaN, and its mean and extremes.

An array is not scanned by Python's cyclic collector, as a list would be.
"""


def look(flat: np.ndarray) -> Look:
    """Copy the elements of a flat array that :func:`cells` would show, to be converted to JSON values later by
    :func:`as_json`. It returns :data:`Look`.
    """
    size = flat.size
    return flat.copy() if size <= CELL_LIMIT else (size, flat[_ends(size)], _first_nan(flat), _gist(flat))


def as_json(seen: Look | None) -> Any:
    """Return what :func:`cells` would have returned for the array."""
    if seen is None:
        return None
    if not isinstance(seen, tuple):
        return _plain(seen)
    size, ends, nan, gist = seen
    shown = dict(zip(_places(size), _plain(ends), strict=True)) | dict.fromkeys(nan, "nan")
    return {
        "count": size,
        "shown": [[k, shown[k]] for k in sorted(shown)] if nan else [[k, item] for k, item in shown.items()],
        **_named(gist),
    }


def _plain(values: np.ndarray) -> list[Any]:
    items = values.tolist()
    if values.dtype.kind == "f" and -math.inf < sum(items) < math.inf:  # no NaN and no infinity among them
        return [float(f"{item:.9g}") for item in items]
    return [plain(item) for item in items]


def alike(one: Look | None, other: Look | None) -> bool:
    """Whether :func:`as_json` returns the same for the values ``one`` and ``other`` of two tensors; None, for unknown
    values, is like None only.
    """
    if one is None or other is None:
        return one is other
    (size, first, nan, gist), (length, second, other_nan, other_gist) = (
        seen if isinstance(seen, tuple) else (seen.size, seen, (), ()) for seen in (one, other)
    )
    if size != length or nan != other_nan or _named(gist) != _named(other_gist):
        return False
    return identical(first, second) or all(
        plain(a) == plain(b) for a, b in zip(first.tolist(), second.tolist(), strict=True)
    )


@cache
def _places(size: int) -> tuple[int, ...]:
    half = CELL_LIMIT // 2
    return *range(half), *range(size - half, size)


@cache
def _ends(size: int) -> np.ndarray:
    return np.array(_places(size))


def identical(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same dtype, size and bytes: the usual case, and much cheaper to test than
    :func:`equal`.
    """
    return one.dtype == other.dtype and one.size == other.size and one.tobytes() == other.tobytes()


_TOLERANCE = {"float16": (2e-3, 1e-4), "bfloat16": (2e-2, 1e-3), "float32": (2e-5, 1e-6), "complex64": (2e-5, 1e-6)}


def beyond(observed: np.ndarray, modelled: np.ndarray, dtype: str, allowed: np.ndarray | float = 0.0) -> np.ndarray:
    """Return which elements of two arrays of one shape differ by more than ``allowed`` plus a relative tolerance for
    rounding in ``dtype`` (2e-5 for float32), as an array of bools.

    Equal infinities count as equal, and so do two NaN.
    """
    rtol = _TOLERANCE.get(dtype, (1e-9,))[0]
    with np.errstate(all="ignore"):
        same = np.abs(observed - modelled) <= allowed + rtol * np.abs(modelled)
        same &= np.isfinite(modelled)
    if not same.all():
        same |= (observed == modelled) | (np.isnan(observed) & np.isnan(modelled))
    return np.asarray(~same)


def near(observed: np.ndarray, modelled: np.ndarray, dtype: str, allowed: np.ndarray | float = 0.0) -> bool:
    """Whether each pair of elements of two arrays of one shape differs by at most ``allowed`` plus a relative tolerance
    for rounding in ``dtype`` (2e-5 for float32); equal infinities count as equal, and so do two NaN.
    """
    return not beyond(observed, modelled, dtype, allowed).any()


def equal(observed: np.ndarray, modelled: np.ndarray, dtype: str, scale: float | None = None) -> bool:
    """Whether the elements of both arrays are the same up to rounding in ``dtype``; integers and booleans must be
    equal. NaN equals NaN. False if the shapes differ.

    Torch and the shadow round every operation once, but may add in a different order, so results can differ by several
    units in the last place (2e-5 of the number is allowed for float32), relative to the largest number involved. There
    is also an absolute tolerance, proportional to ``scale``, the largest number among the operands, or, without it, to
    the largest finite number in ``observed``: when large operands cancel, their rounding error remains.
    """
    if observed.shape != modelled.shape:
        return False
    if observed.dtype.kind not in "fc":
        return bool(np.array_equal(observed, modelled))
    rtol, atol = _TOLERANCE.get(dtype, (1e-9, 1e-12))
    if scale is None:
        sizes = np.abs(observed)
        scale = float(sizes.max(initial=0.0))
        if not math.isfinite(scale):
            finite = sizes[np.isfinite(sizes)]
            scale = float(finite.max()) if finite.size else 1.0
    elif dtype == "float16":
        atol = max(atol, 2**-10)
    allowed = atol * max(scale, 1e-30)
    with np.errstate(all="ignore"):
        apart = np.abs(observed - modelled)
        if math.isfinite(apart.max(initial=0.0)) and bool((apart <= allowed + rtol * np.abs(modelled)).all()):
            return True  # the same as allclose for finite numbers, in a fraction of its time
    return bool(np.allclose(observed, modelled, rtol=rtol, atol=allowed, equal_nan=True))
