"""Finds data of another cell that a statement has changed in place once more: the statement's cell was run again, but
not the cell that creates the data (:meth:`Rewrites.compare`).

A few values of the data are stored: they show whether the second run has changed anything, and whether the data had
been changed back before. Statements whose second run changes nothing (a mask, a clamp, a mean that is subtracted) are
not reported. Only CPU memory is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.tensor_facts import dtype_name, is_opaque

SAMPLED = 256
LEAST = 8
"""How many elements data must have; fewer are a counter or a state."""
NEAR = 1e-3
"""A change by less than this fraction of the largest value is rounding."""
_SPREAD = 0.6180339887


class WrittenAgain(NamedTuple):
    """A tensor or array that a statement has changed in place once more: cell ``again`` has changed ``name``, as cell
    ``first`` had done before (numbers of cells).

    ``name`` is the expression for the tensor or array (``kind``), ``path`` the names and keys that lead to it. ``text``
    is the statement, ``line`` its line in the cell, ``target`` what it writes: an expression for the same memory.
    """

    name: str
    path: Path
    kind: str
    target: str
    text: str
    line: int
    first: int
    again: int


class _Tracked(NamedTuple):
    """An object that was written: its address, a sample of its values, and the cell in which each statement wrote it
    first.
    """

    address: int
    sample: np.ndarray
    writes: Mapping[str, int]


class Rewrites:
    """Remembers the ids of the objects before a cell, and samples of those that statements have written in place."""

    def __init__(self) -> None:
        self._before: dict[Path, int] = {}
        self._tracked: dict[Path, _Tracked] = {}
        #: What each object had in it when it was first seen.
        self._began: dict[Path, np.ndarray] = {}
        self._found: dict[Path, WrittenAgain] = {}
        self._cell = 0

    def compare(
        self, found: Found, writes: Sequence[Any], assigned: Collection[str], now: int, budget: Budget
    ) -> list[WrittenAgain]:
        """The tensors and arrays that a statement of the last cell has changed as the same statement had done in an
        earlier run; ``now`` is the number of the last cell.

        An empty list if there are none. ``writes`` are the cell's statements that change data
        (:class:`~pitfall_lab.panel.rewrites.RewriteStatement`). ``assigned`` are the names that the cell has bound to
        another object. ``found`` is what the notebook's names lead to, ``budget`` the time limit.
        """
        if now == self._cell:
            return list(self._found.values())
        things = {thing.path: thing for thing in (*found.arrays, *found.tensors)}
        kept = {
            path: thing
            for path, thing in things.items()
            if path[0] not in assigned and self._before.get(path) == id(thing.value)
        }
        self._tracked = {path: each for path, each in self._tracked.items() if path in kept}
        self._began = {path: each for path, each in self._began.items() if path in kept}
        self._found = {path: each for path, each in self._found.items() if path in kept}
        self._before = {path: id(thing.value) for path, thing in things.items()}
        self._cell = now
        if writes:
            self._search(_places(found, budget), kept, writes, now)
        for path, tracked in list(self._tracked.items()):
            place = place_of(things[path])
            if place is None or place[0] != tracked.address:
                del self._tracked[path]
            else:
                self._tracked[path] = tracked._replace(sample=sample_of(place))
        for path, thing in things.items():
            if (
                path not in self._began
                and path not in kept
                and budget.goes_on()
                and (place := place_of(thing)) is not None
            ):
                self._began[path] = sample_of(place)
        return list(self._found.values())

    def began(self, path: Path) -> np.ndarray | None:
        """Return a sample of the values of the object at ``path`` when it was first seen; ``None`` if it was not seen,
        or could not be read.
        """
        return self._began.get(path)

    def _search(
        self, places: Mapping[Path, tuple[Thing, Place]], kept: Collection[Path], writes: Sequence[Any], now: int
    ) -> None:
        by_text = {thing.text: place for thing, place in places.values()}
        for write in writes:
            place = by_text.get(write.target)
            for path in sorted(places.keys() & set(kept), key=len) if place is not None else ():
                thing, whole = places[path]
                if place is None or not whole[0] <= place[0] < whole[0] + whole[1]:
                    continue
                was, sample = self._tracked.get(path), sample_of(whole)
                began = self._began.get(path)
                if was is not None and began is not None and not differs(was.sample, began):
                    was = None  # it was as it had been before the first write
                first = was.writes.get(write.key) if was is not None else None
                if was is not None and first is not None and first != now and differs(was.sample, sample):
                    self._found[path] = WrittenAgain(
                        thing.text, path, thing.kind, write.target, write.text, write.line, first, now
                    )
                known = was.writes if was is not None else {}
                before = was.sample if was is not None else sample
                self._tracked[path] = _Tracked(whole[0], before, {**known, write.key: known.get(write.key, now)})
                break


Place = tuple[int, int, np.dtype]
"""The address, number of bytes and dtype of memory without gaps."""


def _places(found: Found, budget: Budget) -> dict[Path, tuple[Thing, Place]]:
    return {
        thing.path: (thing, place)
        for thing in data(found)
        if budget.goes_on() and (place := place_of(thing)) is not None
    }


def data(found: Found) -> list[Thing]:
    """Return a list of the tensors and arrays in ``found`` (what the notebook's names lead to) that are no parameters,
    buffers, or gradients.
    """
    weights = {
        thing.value.data_ptr() for thing in found.parameters if is_own(thing.value) and not is_opaque(thing.value)
    }
    leaves = (
        thing.value
        for thing in (*found.parameters, *found.tensors)
        if is_own(thing.value) and thing.value.requires_grad
    )
    gradients = {
        id(leaf.grad) for leaf in leaves if not leaf._is_view() and leaf.grad_fn is None and leaf.grad is not None
    }
    return [
        thing
        for thing in (*found.arrays, *found.tensors)
        if id(thing.value) not in gradients
        and not (thing.kind == "tensor" and is_own(thing.value) and _pointer(thing.value) in weights)
    ]


def _pointer(tensor: Any) -> int:
    return 0 if is_opaque(tensor) else int(tensor.data_ptr())


def place_of(thing: Thing, least: int = LEAST) -> Place | None:
    """Return the memory of a numeric tensor or array on the CPU (address, number of bytes, dtype) that has no gaps and
    at least ``least`` elements; ``None`` for all others (also bool, complex and bfloat16), and for tensors that require
    grad.
    """
    value = thing.value
    if thing.kind == "array":
        if (
            type(value) is not np.ndarray
            or value.dtype.kind not in "fiu"
            or not (value.flags.c_contiguous or value.flags.f_contiguous)
        ):
            return None
        kind, address, count = value.dtype, int(value.__array_interface__["data"][0]), int(value.size)
    else:
        if (
            not is_own(value)
            or value.requires_grad
            or value.device.type != "cpu"
            or is_opaque(value)
            or not value.is_contiguous()
        ):
            return None
        if value.is_complex() or dtype_name(value.dtype) in ("bfloat16", "bool"):
            return None
        if value.is_floating_point() and value.element_size() < 2:  # float8
            return None
        kind, address, count = (
            np.dtype(f"{'f' if value.is_floating_point() else 'i'}{value.element_size()}"),
            value.data_ptr(),
            value.numel(),
        )
    return (address, count * kind.itemsize, kind) if count >= least and address else None


def samples(thing: Thing) -> np.ndarray | None:
    """Return some values of a tensor or an array; ``None`` if it cannot be read or has fewer than :data:`LEAST` (8)
    elements.

    Two samples of unchanged memory are equal.
    """
    where = place_of(thing)
    return sample_of(where) if where is not None else None


def sample_of(place: Place) -> np.ndarray:
    """Return a copy, as float64, of up to :data:`SAMPLED` (256) of the values in this memory, spread over all of it;
    equal memory gives an equal copy.
    """
    address, size, kind = place
    memory = (ctypes.c_char * size).from_address(address)
    numbers: np.ndarray = np.frombuffer(memory, dtype=kind)  # type: ignore[call-overload] # no copy: an object with a buffer
    if len(numbers) > SAMPLED:
        numbers = numbers[(np.arange(SAMPLED) * _SPREAD % 1 * len(numbers)).astype(np.int64)]
    return numbers.astype(np.float64)


def differs(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a value in the second sample differs from the first by more than :data:`NEAR` (0.001) times the largest
    absolute value of both; True if their lengths differ. NaN counts as no difference.
    """
    if before.shape != after.shape:
        return True
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.abs(np.concatenate([before, after]))) if len(before) else 0.0
        return bool((np.abs(after - before) > NEAR * scale).any())
