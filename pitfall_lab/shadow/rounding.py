"""An upper bound on the rounding error of a gradient, found by repeating its computation with disturbed values.
:class:`Rounding` returns it for each element.

Two engines add in different orders, and where large numbers cancel, mostly rounding error remains. Its size depends on
the formulas that computed the gradient. So each gradient refers to the formula that computed it, or to the two that it
is the sum of (:mod:`pitfall_lab.shadow.origins`). When two engines differ by more than a few units in the last place,
these formulas run again: a few times, in double precision, with every value changed by one rounding of its dtype. The
change in the result is what rounding can do. (Stochastic arithmetic, as in CESTAC and Monte Carlo arithmetic.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pitfall_lab.shadow.errors import ShadowError, Unmodelled
from pitfall_lab.shadow.gradient import sum_to
from pitfall_lab.shadow.graph import Arrays, Written
from pitfall_lab.shadow.origins import FormulaPart, Sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pitfall_lab.shadow.gradient import Gradient
    from pitfall_lab.shadow.origins import Step
    from pitfall_lab.shadow.storage import ShadowTensor, Storage

PROBES = 4
ROUNDINGS = 64
"""The bound is this many times the change of the disturbed runs.

A sum of n disturbed parts changes by about the root of n; the rounding error of adding may grow with n. The largest
arrays with modelled values have 4,096 elements by default.
"""
HALF = 1 / 16
"""The factor for half precision, which is added in single precision and so loses less."""


class Rounding:
    """The possible rounding errors of the gradients of one backward.

    ``made`` are pairs of a tensor that the backward filled (a ``.grad``, a result) and the gradient that it was made
    of.
    """

    def __init__(self, made: Iterable[tuple[ShadowTensor, Gradient]] = ()) -> None:
        self._made = list(made)
        self._probed: dict[int, list[np.ndarray]] = {}
        self._results: dict[int, list[Sequence[Any]]] = {}

    def knows(self, storage: Storage) -> bool:
        """Whether this backward has written a gradient into the storage."""
        return any(tensor.storage is storage for tensor, _ in self._made)

    def allowed(self, storage: Storage) -> np.ndarray:
        """For each element of a gradient's storage, the difference that rounding between two engines can cause, as a
        flat array; 0 where this backward is not known to have written a gradient.
        """
        flat = np.zeros(storage.size)
        for tensor, gradient in self._made:
            if (
                tensor.storage is storage
                and gradient.array is not None
                and gradient.shape == tensor.shape
                and tensor.numel
            ):
                step = flat.itemsize
                seen = np.ndarray(
                    tensor.shape, flat.dtype, flat, tensor.offset * step, [s * step for s in tensor.stride]
                )
                np.maximum(seen, self.bound(gradient), out=seen)
                if storage.data is not None:
                    self._beside(flat, storage.data, gradient)
        return flat

    def _beside(self, flat: np.ndarray, data: np.ndarray, gradient: Gradient) -> None:
        """Raise the differences to the bounds of the gradients of which this one is a view: the memory
        holds their other elements too.
        """
        for source in _viewed(gradient, data):
            array = source.array
            assert array is not None
            start = (array.__array_interface__["data"][0] - data.__array_interface__["data"][0]) // data.itemsize
            steps = [s // data.itemsize * flat.itemsize for s in array.strides]
            seen = np.ndarray(array.shape, flat.dtype, flat, start * flat.itemsize, steps)
            np.maximum(seen, self.bound(source), out=seen)

    def within(self, tensor: ShadowTensor) -> np.ndarray:
        """For each element of a tensor, the difference that rounding between two engines can cause."""
        flat = self.allowed(tensor.storage)
        return np.ndarray(
            tensor.shape, flat.dtype, flat, tensor.offset * flat.itemsize, [s * flat.itemsize for s in tensor.stride]
        )

    def bound(self, gradient: Gradient) -> np.ndarray:
        """For each element of a gradient that one node passes to another, the difference that rounding between two
        engines can cause. The gradient's values must be known.
        """
        array = gradient.array
        assert array is not None
        given = self._found(gradient)
        with np.errstate(all="ignore"):
            apart = np.max(given, axis=0) - np.min(given, axis=0)
        return ROUNDINGS * np.where(np.isfinite(apart), apart, 0)

    def _found(self, gradient: Gradient) -> list[np.ndarray]:
        """The gradient's array in each of the runs with disturbed values.

        Iterative, since a backward may be 100,000 nodes deep.
        """
        stack = [gradient]
        while stack:
            waiting = [g for g in _sources(stack[-1]) if id(g) not in self._probed]
            stack += waiting
            if not waiting:
                done = stack.pop()
                if done.array is not None and id(done) not in self._probed:
                    salt, found = PROBES * len(self._probed), self._probe(done, done.array)
                    self._probed[id(done)] = [
                        disturbed(x, done.array.dtype, salt + probe) for probe, x in enumerate(found)
                    ]
        return self._probed[id(gradient)]

    def _probe(self, gradient: Gradient, array: np.ndarray) -> list[np.ndarray]:
        origin = gradient.origin
        if isinstance(origin, Sum):
            return [a + b for a, b in zip(self._probed[id(origin.one)], self._probed[id(origin.other)], strict=True)]
        if origin is None:
            return [array] * PROBES
        step = origin.step
        results = self._results.get(id(step))
        if results is None:
            results = self._results[id(step)] = [self._again(step, probe) for probe in range(PROBES)]
        return [_fitted(made[origin.place], array) if made else array for made in results]

    def _again(self, step: Step, probe: int) -> Sequence[Any]:
        """Return the result of a formula when all its inputs and saved values are changed slightly."""
        given: list[Any] = [None if g is None or g.array is None else self._probed[id(g)][probe] for g in step.given]
        given += [None] * (step.width - len(given))
        read = {
            name: _reread(array, probe + PROBES * (name in step.own), cancelled=name in step.cancelled)
            for name, array in vars(step.saved).items()
        }
        assert step.vjp is not None
        try:
            with np.errstate(all="ignore"):
                saved = Arrays(read)
                saved.inside = lambda array: _moved(
                    array, np.dtype(np.float32), np.array(array, np.float64).view(np.uint64), probe
                )
                return step.vjp(given if step.width else given[0], saved)
        except (Unmodelled, ShadowError):  # the formula does not accept such values
            return ()


def _sources(gradient: Gradient) -> Sequence[Gradient]:
    """Return the gradients with known values from which this one was computed."""
    origin = gradient.origin
    behind = origin.step.given if isinstance(origin, FormulaPart) else origin or ()
    return [g for g in behind if g is not None and g.array is not None]


def _viewed(gradient: Gradient, data: np.ndarray) -> Iterable[Gradient]:
    """Yield the gradients in the storage ``data`` of which this one is a view: of that of a cat, it is a part."""
    while behind := [g for g in _sources(gradient) if g.array is not None and np.may_share_memory(g.array, data)]:
        gradient = behind[0]
        yield gradient


def _fitted(made: Any, array: np.ndarray) -> np.ndarray:
    """Return a disturbed gradient, summed to the shape of the engine's own."""
    found = np.asarray(made.array if isinstance(made, Written) else made)
    if found.shape != array.shape:
        found = np.asarray(sum_to(found, array.shape))
    return found.real if array.dtype.kind == "f" else found


def disturbed(numbers: Any, dtype: np.dtype[Any], salt: int) -> Any:
    """The values, each moved up or down by a half to one unit in the last place of ``dtype``; unchanged if that is no
    float dtype. Zeros and infinities stay.

    ``salt`` chooses the directions and sizes, the same for each call.
    """
    numbers = np.asarray(numbers)
    if dtype.kind != "f":
        return numbers
    return _moved(numbers, dtype, np.arange(numbers.size, dtype=np.uint64).reshape(numbers.shape), salt)


def _reread(array: Any, salt: int, *, cancelled: bool = False) -> Any:
    """A saved array, disturbed so that equal values stay equal (formulas find the maximum by
    comparing); unchanged without floats.

    ``cancelled``: the array is a difference of large numbers, so all its values change by what rounding does to the
    largest.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    bits = np.array(array, np.float64).view(np.uint64)
    finite = np.abs(array[np.isfinite(array)]) if cancelled else None
    return _moved(array, array.dtype, bits, salt, 0.0 if finite is None else float(finite.max(initial=0.0)))


def _moved(numbers: np.ndarray, dtype: np.dtype[Any], bits: np.ndarray, salt: int, least: float = 0.0) -> np.ndarray:
    """Each value changed by a half to one unit in the last place, up or down as ``bits`` decide; zeros
    and infinities are unchanged. Values below ``least`` change like this one.

    Runs with an odd ``salt`` return float64, so that the formula itself is computed in double precision: the difference
    to the other runs is what it loses by rounding inside. (Half precision: the other runs compute in float32.)
    """
    with np.errstate(all="ignore"):
        mixed = (bits + np.uint64(salt + 1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        part = (mixed >> np.uint64(11)).astype(np.float64) / 2**53
        kind = np.finfo(dtype)
        share = HALF if dtype == np.float16 else 1
        size = np.maximum(np.abs(numbers), least)
        still = (numbers == 0) | ~np.isfinite(numbers)
        unit = np.where(still, 0, np.maximum(size * float(kind.eps) * share, float(kind.smallest_subnormal)))
        moved = numbers + unit * np.where(part < 0.5, -0.5 - part, part)
        return np.asarray(moved, np.float64 if salt % 2 or dtype == np.float64 else np.float32)
