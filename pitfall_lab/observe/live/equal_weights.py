"""Finds weights whose units are equal, or all zero, and get equal gradients, so that no step can make the units
different (:meth:`SeenWeights.compare`).

Initially equal or zero weights are often right (a last layer, a branch that should start as zero): the first step makes
them differ. So a tensor is reported only if it was written since it was first seen, and if the units of its gradient
are equal as well; if the gradient was cleared, only if one cell wrote it several times. Only CPU memory is read, and of
most tensors only one element of two units.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import held_by, is_own
from pitfall_lab.observe.tensor_facts import dtype_name, is_opaque

WHOLE = 1 << 18
"""Tensors of more bytes are not examined."""
FEWEST = 4
ROUNDS = 3
NEAR = 1e-5
"""How far apart equal values may be, as a fraction of the largest: sums of the same values in another order differ in
the last bits.
"""
_DTYPES = {"float32": "f4", "float64": "f8", "float16": "f2"}


class Equal(NamedTuple):
    """A tensor whose units (rows; for a tensor outside modules, columns) have equal weights and equal gradients.

    ``name`` is the expression for it, ``path`` the names and keys that lead to it, ``units`` the number of its units.
    ``zero``: all weights are zero, and so is the gradient if there is one. ``cleared``: there is no gradient or (unless
    ``zero``) it is zero, so that it was not compared. ``others`` counts further such tensors.
    """

    name: str
    path: Path
    units: int
    zero: bool
    cleared: bool
    others: int


class SeenWeights:
    """Remembers the version at which each leaf was first seen: a higher one shows that it was written since."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int]] = {}
        self._last: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._found: dict[int, int] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> Equal | None:
        """The first tensor whose units are equal although it was written since it was first seen, and whose gradient's
        units are equal too (or it was cleared, and one cell wrote the tensor several times); tensors of zeros come
        first.

        Only contiguous floating-point CPU tensors of at most :data:`WHOLE` bytes are examined, those of a module only
        if an optimizer holds them. None if there is none, or the time limit ``budget`` is exceeded. ``now`` is the
        number of the last cell, ``found`` is what the notebook's names lead to.
        """
        if now != self._cell:
            self._before, self._last, self._cell = self._last, {}, now
        first: dict[int, tuple[int, int]] = {}
        equal: list[Equal] = []
        at: dict[int, int] = {}
        holders = {id(each) for optimizer in found.optimizers for each in held_by(optimizer.value)}
        for thing, columns in _leaves(found):
            if not budget.goes_on():
                return None
            tensor = thing.value
            version = tensor._version
            came = first[id(tensor)] = self._first.get(id(tensor), (now, version))
            self._last[id(tensor)] = version
            if came[0] == now or version == came[1] or not (columns or id(tensor) in holders):
                continue
            rounds = self._found.get(id(tensor)) == version or version - self._before.get(id(tensor), version) >= ROUNDS
            one = _equal(thing, columns=columns, rounds=rounds)
            if one is not None:
                equal.append(one)
                at[id(tensor)] = version
        self._first, self._found = first, at
        equal.sort(key=lambda one: not one.zero)
        return equal[0]._replace(others=sum(one.zero == equal[0].zero for one in equal) - 1) if equal else None


def _leaves(found: Found) -> Iterable[tuple[Thing, bool]]:
    """The leaves that require grad, each once, and whether it is outside any module, so that its units may be its
    columns.
    """
    seen = set()
    for thing, own in (*((each, False) for each in found.parameters), *((each, True) for each in found.tensors)):
        tensor = thing.value
        if id(tensor) not in seen and is_own(tensor) and not tensor.is_inference() and is_leaf(tensor):
            seen.add(id(tensor))
            yield thing, own


def _equal(thing: Thing, *, columns: bool, rounds: bool) -> Equal | None:
    """The record of a tensor whose units are equal to each other (or all zero) and have equal gradients (or zeros);
    else None.

    ``columns``: the units are its columns, not its rows. ``rounds``: several steps have written the tensor, so that it
    is reported even if its gradient was cleared and cannot be compared.
    """
    tensor = thing.value
    where = _bytes(tensor) if tensor.dim() > 1 and tensor.numel() >= FEWEST else None
    if where is None or not _may_be_equal(*where, columns=columns):
        return None
    gradient = tensor.grad
    numbers = _numbers(tensor)
    slopes = _numbers(gradient) if gradient is not None and is_own(gradient) else None
    if numbers is None:
        return None
    known = slopes is not None and slopes.shape == numbers.shape and bool(np.isfinite(slopes).all())
    cleared = gradient is None or (slopes is not None and not slopes.any())
    made = Equal(
        thing.text,
        thing.path,
        numbers.shape[1] if columns else len(numbers),
        zero=False,
        cleared=gradient is None,
        others=0,
    )
    if not numbers.any():
        return made._replace(zero=True) if cleared and (known or rounds) else None
    if made.units < 2 or not (rounds if cleared else known) or not _is_one(numbers, columns=columns):
        return None
    return (
        made._replace(cleared=cleared) if cleared or (slopes is not None and _is_one(slopes, columns=columns)) else None
    )


def _bytes(tensor: Any) -> tuple[int, int, int, int] | None:
    """The address of a tensor's data, the number of its rows, and the bytes of a row and of an element; None if it
    should not be read.
    """
    if (
        tensor.device.type != "cpu"
        or is_opaque(tensor)
        or not tensor.is_contiguous()
        or dtype_name(tensor.dtype) not in _DTYPES
    ):
        return None
    item, rows = tensor.element_size(), tensor.shape[0]
    size = tensor.numel() * item
    return (tensor.data_ptr(), rows, size // rows, item) if size and size <= WHOLE and tensor.data_ptr() else None


def _may_be_equal(address: int, rows: int, row: int, item: int, *, columns: bool) -> bool:
    """Whether the first elements of the first two units differ at most by rounding: a quick test before all elements
    are read.

    The tensor has ``rows`` rows of ``row`` bytes, and elements of ``item`` bytes. ``columns``: the units are its
    columns.
    """
    columns = columns and row > item
    if not columns and rows == 1:
        return False
    kind = f"f{item}"
    [first] = np.frombuffer(ctypes.string_at(address, item), kind)
    [second] = np.frombuffer(ctypes.string_at(address + (item if columns else row), item), kind)
    return bool(abs(first - second) <= NEAR * abs(first))


def _is_one(numbers: np.ndarray, *, columns: bool) -> bool:
    first = numbers[:, :1] if columns else numbers[:1]
    return bool((np.abs(numbers - first) <= NEAR * np.abs(numbers).max()).all())


def _numbers(tensor: Any) -> np.ndarray | None:
    """A copy of a tensor's values, one row for each index of its first dimension; None if they should not be read."""
    where = _bytes(tensor)
    if where is None:
        return None
    address, rows, row, _ = where
    return np.frombuffer(ctypes.string_at(address, rows * row), dtype=_DTYPES[dtype_name(tensor.dtype)]).reshape(
        rows, -1
    )
