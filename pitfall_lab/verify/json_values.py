"""Numbers as the trace writes them: plain JSON values, and few of them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from pitfall_lab.trace import CELL_LIMIT
from pitfall_lab.trace.text import plain


def cells(values: np.ndarray | None, limit: int = CELL_LIMIT, keep: tuple[int, ...] = ()) -> Any:
    """Return the array's elements, flat, as a trace's Cells; long ones are abbreviated to both ends (and ``keep``).

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
    if keep:
        chosen = sorted({*chosen, *(k for k in keep if 0 <= k < size)})
    return {"count": size, "shown": [[k, plain(item)] for k, item in zip(chosen, flat[chosen].tolist(), strict=True)]}


Look = np.ndarray | tuple[int, np.ndarray]
"""The numbers of an array that a trace shows, as they were: all of a short one, else its size and both ends. The cyclic collector does not
look at them."""


def look(flat: np.ndarray) -> Look:
    """Take the numbers of a flat array that :func:`cells` would tell, to be written out when somebody reads them."""
    size = flat.size
    return flat.copy() if size <= CELL_LIMIT else (size, flat[_ends(size)])


def told(seen: Look | None) -> Any:
    """What :func:`cells` would have said of the array."""
    if seen is None:
        return None
    if type(seen) is not tuple:
        return _plain(seen)
    size, ends = seen
    return {"count": size, "shown": [[k, item] for k, item in zip(_places(size), _plain(ends), strict=True)]}


def _plain(values: np.ndarray) -> list[Any]:
    items = values.tolist()
    if values.dtype.kind == "f" and -math.inf < sum(items) < math.inf:  # no NaN and no infinity among them
        return [float(f"{item:.9g}") for item in items]
    return [plain(item) for item in items]


def alike(one: Look | None, other: Look | None) -> bool:
    """Whether :func:`told` says the same of both; most that differ do so in their first number."""
    if one is None or other is None:
        return one is other
    (size, first), (length, second) = (seen if type(seen) is tuple else (seen.size, seen) for seen in (one, other))
    if size != length:
        return False
    return identical(first, second) or all(plain(a) == plain(b) for a, b in zip(first.tolist(), second.tolist(), strict=True))


@cache
def _places(size: int) -> tuple[int, ...]:
    half = CELL_LIMIT // 2
    return *range(half), *range(size - half, size)


@cache
def _ends(size: int) -> np.ndarray:
    return np.array(_places(size))


def identical(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two flat arrays hold the same bits: the usual case, and much cheaper to see than equality up to rounding."""
    return one.dtype == other.dtype and one.size == other.size and one.tobytes() == other.tobytes()


_TOLERANCE = {"float16": (2e-3, 1e-4), "bfloat16": (2e-2, 1e-3), "float32": (2e-5, 1e-6), "complex64": (2e-5, 1e-6)}


def near(observed: np.ndarray, modelled: np.ndarray, dtype: str, allowed: np.ndarray | float = 0.0) -> bool:
    """Whether each number is the same up to a few units in the last place of ``dtype`` and what is ``allowed`` beyond that."""
    rtol = _TOLERANCE.get(dtype, (1e-9,))[0]
    with np.errstate(all="ignore"):
        same = np.abs(observed - modelled) <= allowed + rtol * np.abs(modelled)
        same &= np.isfinite(modelled)
    if same.all():
        return True
    return bool((same | (observed == modelled) | (np.isnan(observed) & np.isnan(modelled))).all())


def equal(observed: np.ndarray, modelled: np.ndarray, dtype: str, scale: float | None = None) -> bool:
    """Whether two engines' numbers are the same up to rounding of ``dtype``.

    Both engines round every operation once, in a possibly different order of additions: a few units in the last place,
    relative to the largest number involved. The absolute part is scaled by that number for the same reason: ``scale``, or
    the largest result. Where what went in is known (``scale``) and cancels, a unit in the last place of it is what remains.
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
            return True  # what allclose says of finite numbers, in a fraction of its time
    return bool(np.allclose(observed, modelled, rtol=rtol, atol=allowed, equal_nan=True))
