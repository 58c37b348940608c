"""Finds values that a call loses without an error: those that exceed the range of an integer dtype, or different ones
that become equal (:func:`out_of_range`, :func:`lost_by_conversion` and :func:`joined_whole_numbers`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace.operation_facts import spellings

Sign = Literal["+", "-", "*", "@", "to", "=", "cut", "#"]
_BY_SIGN: dict[str, tuple[Sign, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(spellings("add", in_place=True), ("+", operator.add)),
    **dict.fromkeys(spellings("sub", in_place=True), ("-", operator.sub)),
    **dict.fromkeys(("rsub", "__rsub__"), ("-", lambda a, b: b - a)),
    **dict.fromkeys(spellings("mul", in_place=True), ("*", operator.mul)),
}
ARITHMETIC = {f"{owner}.{name}": found for name, found in _BY_SIGN.items() for owner in ("torch.Tensor", "torch")}
PRODUCTS = frozenset(
    f"{owner}.{name}"
    for name in spellings("matmul", "mm") | {"bmm", "mv", "dot"}
    for owner in ("torch.Tensor", "torch")
)
"""Matrix products, whose sums exceed the range of a dtype sooner than their terms."""
CONVERSIONS = frozenset({
    "torch.tensor", "torch.as_tensor", "torch.asarray", "torch.Tensor.to", "torch.Tensor.float", "torch.Tensor.half",
    "torch.Tensor.bfloat16", "torch.Tensor.type", "torch.Tensor.type_as", "torch.Tensor.byte", "torch.Tensor.char",
    "torch.Tensor.short", "torch.Tensor.int", "torch.Tensor.long",
})  # fmt: skip
"""Conversions that may lose values, including those that make a tensor of Python numbers."""
TABLES = frozenset(f"torch.{name}" for name in spellings("cat") | {"stack"})
WRITES = {"torch.Tensor.__setitem__": 2, "torch.Tensor.copy_": 1}
"""Calls that may convert what they write, each with the index of the argument that is written."""
JOINING = CONVERSIONS | TABLES | WRITES.keys()
"""Calls that may make different integers equal."""
DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""The binary digits of the short dtypes' significands: up to 2 to that power, each integer is represented exactly."""
HELD = {"float32": 24, "float16": 11, "bfloat16": 8, "int16": 15, "uint8": 8, "int8": 7, "bool": 1}
LONGEST = 64
"""The binary digits that an integer may have in dtypes not listed in ``HELD``."""
LARGEST = 2.0**62
SMALL = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32})
SHORT = frozenset({torch.float32, torch.float16, torch.bfloat16})
IN_NUMPY = SMALL | {torch.bool, torch.int64, torch.float16, torch.float32, torch.float64}
PLAIN = (torch.Tensor, torch.nn.Parameter)
MOST = 1 << 18
"""How many elements are examined at most: larger results of arithmetic are skipped, of a conversion only the first ones
are examined.
"""
MOST_OPERANDS = MATRIX = 2
NEAR = 1e-9
"""Numbers with fractions that differ by less than this fraction of themselves count as equal apart from rounding."""


class LostNumbers(NamedTuple):
    """How many values (``lost`` of the ``of`` that were examined) a call changes without an error, with one example,
    all as floats.

    By ``sign``: ``+``, ``-``, ``*``: ``one`` and ``other`` are operands, ``meant`` the true result and ``got`` what
    torch returns. ``@``: an element of a matrix product; ``one`` bounds the terms of its sum and ``other`` is their
    number. ``to``: the value ``one`` became ``got`` in an integer dtype (``other`` and ``meant`` are ``one``). ``=``:
    the neighbours ``one`` and ``other`` became equal (``got``); ``lost`` and ``of`` are pairs of neighbours that
    differed before. ``cut``: ``one`` and ``other`` are the smallest and the largest of the fractions that were
    truncated to 0; ``lost`` counts the negative ones only. ``#``: the different integers ``one`` and ``other`` became
    equal (``got``); here ``of`` is how many different ones there were, and ``lost`` by how many there are fewer now.
    """

    sign: Sign
    one: float
    other: float
    meant: float
    got: float
    lost: int
    of: int


def concerns(call: Call) -> bool:
    """Whether a call is an addition, subtraction, multiplication or matrix product with a tensor of one of the dtypes
    ``SMALL`` (uint8, int8, int16, int32) among its positional arguments.
    """
    return (call.name in ARITHMETIC or call.name in PRODUCTS) and any(
        type(given) in PLAIN and given.dtype in SMALL for given in call.args
    )


def out_of_range(call: Call) -> LostNumbers | None:
    """Return the values that overflow in an integer sum, difference or product which is about to run; None if there are
    none, or the call is not checked.

    Checked are calls with two positional arguments and no keyword arguments, of Python integers and plain CPU tensors
    without a floating-point dtype, whose result has one of the dtypes ``SMALL`` and at most ``MOST`` (2^18) elements.
    Of a matrix product, as many rows are checked as need ``MOST`` multiplications.
    """
    if not concerns(call) or len(call.args) != MOST_OPERANDS or call.kwargs or call.dispatching:
        return None
    if not all(
        type(x) is int or (type(x) in PLAIN and x.device.type == "cpu" and not x.is_floating_point()) for x in call.args
    ):
        return None
    if call.name in PRODUCTS:
        return _product_outside(*call.args) if all(type(x) in PLAIN for x in call.args) else None
    sign, compute = ARITHMETIC[call.name]
    dtype = (
        call.args[0].dtype
        if call.name.endswith(("_", "__iadd__")) and type(call.args[0]) in PLAIN
        else torch.result_type(*call.args)
    )
    sides = [x.numpy(force=True).astype(np.int64) if type(x) in PLAIN else np.int64(x) for x in call.args]
    if dtype not in SMALL or np.broadcast(*sides).size > MOST:
        return None
    return _outside(sign, np.broadcast_arrays(*(sides[::-1] if "rsub" in call.name else sides)), compute(*sides), dtype)


def _product_outside(left: torch.Tensor, right: torch.Tensor) -> LostNumbers | None:
    if left.dtype != right.dtype or left.dtype not in SMALL or not (left.dim() and right.dim() and left.numel()):
        return None
    one, other = left.numpy(force=True), right.numpy(force=True)
    rows = max(1, MOST // max(1, other.size))
    if one.ndim > 1 and other.ndim <= MATRIX:
        one = one.reshape(-1, one.shape[-1])[:rows]
    elif one.size * other.size > MOST * rows:
        return None
    one, other = one.astype(np.int64), other.astype(np.int64)
    meant, limits = np.asarray(one @ other), torch.iinfo(left.dtype)
    outside = (meant < limits.min) | (meant > limits.max)
    if not outside.any():
        return None
    exact = int(meant.reshape(-1)[int(outside.reshape(-1).argmax())])
    got = (exact - limits.min) % (limits.max - limits.min + 1) + limits.min
    largest = float(abs(one).max() * abs(other).max())
    return LostNumbers("@", largest, float(one.shape[-1]), float(exact), float(got), int(outside.sum()), outside.size)


def _outside(sign: Sign, sides: Any, meant: Any, dtype: torch.dtype) -> LostNumbers | None:
    limits = torch.iinfo(dtype)
    outside = (meant < limits.min) | (meant > limits.max)
    if not outside.any():
        return None
    first = np.unravel_index(int(outside.argmax()), outside.shape)
    exact = int(meant[first])
    got = (exact - limits.min) % (limits.max - limits.min + 1) + limits.min
    one, other = (float(side[first]) for side in sides)
    return LostNumbers(sign, one, other, float(exact), float(got), int(outside.sum()), outside.size)


def lost_by_conversion(call: Call, result: Any) -> LostNumbers | None:
    """Return what a call of ``CONVERSIONS`` has lost of its first argument: floats outside the range of an integer
    dtype, fractions truncated to 0 among larger values of both signs, or neighbours along an axis that differed and are
    equal in a short floating-point dtype.

    Of many values, only about the first ``MOST`` (2^18) are examined; of several axes, the one with the largest share
    is returned. None if nothing was lost, or the values were not compared: ``result`` is not on the CPU, the values
    cannot be read, or a dispatch mode is on.
    """
    if (
        call.name not in CONVERSIONS
        or type(result) not in PLAIN
        or result.device.type != "cpu"
        or call.dispatching
        or not call.args
    ):
        return None
    before = _numbers(call.args[0])
    if before is None or before.size != result.numel() or before.size == 0:
        return None
    if result.dtype in SMALL or result.dtype == torch.int64:
        return _cut_off(before, result) or _cut_to_zero(before) if before.dtype.kind == "f" else None
    if result.dtype not in SHORT:
        return None
    wide = before.dtype == np.float64 or (before.dtype.kind in "iu" and before.dtype.itemsize > 1)
    after = result.detach().to(torch.float64).numpy(force=True).reshape(before.shape) if wide else None
    found = (
        [merged for axis in range(before.ndim) if (merged := _merged(before, after, axis)) is not None] if wide else []
    )
    return max(found, key=lambda numbers: numbers.lost / numbers.of, default=None)


def joined_whole_numbers(call: Call, result: Any) -> LostNumbers | None:
    """Return the different integers, too large for float32, float16 or bfloat16, that a call has made equal in one of
    these dtypes: in its ``result``, or in the tensor that a call of ``WRITES`` writes.

    None if there are none, the tensor is not on the CPU, or a dispatch mode is on. All values are compared, not only
    neighbours. The call's name is checked by the caller (:data:`JOINING`).
    """
    if call.dispatching or not call.args:
        return None
    place = WRITES.get(call.name)
    made = result if place is None else call.args[0]
    if (
        type(made) not in PLAIN
        or made.dtype not in DIGITS
        or made.device.type != "cpu"
        or len(call.args) <= (place or 0)
    ):
        return None
    given = call.args[place or 0]
    for each in given if call.name in TABLES and isinstance(given, list | tuple) else (given,):
        dtype = str(getattr(each, "dtype", "")).removeprefix("torch.")
        numbers = _table(each) if HELD.get(dtype, LONGEST) > DIGITS[made.dtype] else None
        found = _joined(numbers, made.dtype) if numbers is not None else None
        if found is not None:
            return found
    return None


def _table(given: Any) -> np.ndarray[Any, np.dtype[Any]] | None:
    """The values of a tensor, of an array or of nested lists; None for other objects."""
    if not (isinstance(given, list | tuple) and given and isinstance(given[0], list | tuple)):
        return _numbers(given)
    is_table = all(isinstance(row, list | tuple) and len(row) == len(given[0]) for row in given)
    numbers = [x for row in given for x in row] if is_table and len(given) * len(given[0]) <= MOST else []
    return np.asarray(numbers, dtype=np.float64) if all(type(x) in (int, float) for x in numbers) else None


def _joined(before: Any, dtype: torch.dtype) -> LostNumbers | None:
    """The integers too large for a dtype to represent all of them that become equal in it; None if there are none."""
    if before.dtype.kind not in "fiu":
        return None
    values = before.reshape(-1)[:MOST]
    with np.errstate(all="ignore"):
        sizes = np.abs(values.astype(np.float64))
        large = values[(sizes > 2.0 ** DIGITS[dtype]) & (sizes < LARGEST) & (values == np.trunc(values))]
    numbers = np.unique(large.astype(np.int64))
    after = torch.from_numpy(numbers).to(dtype).double().numpy(force=True)
    same = np.isfinite(after[1:]) & (after[1:] == after[:-1])
    if not same.any():
        return None
    first = int(same.argmax())
    one, other = float(numbers[first]), float(numbers[first + 1])
    return LostNumbers("#", one, other, other, float(after[first]), int(same.sum()), numbers.size)


def _numbers(given: Any) -> np.ndarray[Any, np.dtype[Any]] | None:
    if type(given) in PLAIN:
        plain = given.device.type == "cpu" and given.layout is torch.strided and given.dtype in IN_NUMPY
        return given.numpy(force=True) if plain else None
    if isinstance(given, list | tuple) and 0 < len(given) <= MOST and all(type(x) in (int, float) for x in given):
        return np.asarray(given) if all(abs(x) < 2.0**62 for x in given) else None
    return given if type(given) is np.ndarray and given.dtype.kind in "fiu" else None


def _cut_off(before: Any, result: torch.Tensor) -> LostNumbers | None:
    limits = torch.iinfo(result.dtype)
    values = before.reshape(-1)[:MOST]
    outside = np.isfinite(values) & ((np.trunc(values) < limits.min) | (np.trunc(values) > limits.max))
    if not outside.any():
        return None
    first = int(outside.argmax())
    value, got = float(values[first]), float(result.detach().reshape(-1)[first])
    return LostNumbers("to", value, value, value, got, int(outside.sum()), values.size)


def _cut_to_zero(before: Any) -> LostNumbers | None:
    """The values that a conversion to integers truncates to 0, if there are some of both signs, and larger values of
    both signs with fractions among the negative ones; else None.
    """
    values = before.reshape(-1)[:MOST]
    to_zero = (np.abs(values) < 1) & (values != 0)
    below, above = values <= -1, values >= 1
    if not (below.any() and above.any() and (to_zero & (values < 0)).any() and (to_zero & (values > 0)).any()):
        return None
    if (values[below] == np.trunc(values[below])).all():
        return None  # whole numbers, apart from those beside 0
    near = values[to_zero]
    return LostNumbers("cut", float(near.min()), float(near.max()), -1.0, 0.0, int((near < 0).sum()), values.size)


def _merged(before: Any, after: Any, axis: int) -> LostNumbers | None:
    """Neighbours along an axis that differed before (by more than rounding) and do not after; None if there are none.

    Of a large tensor, only the first indices of axis 0 are compared.
    """
    if before.shape[axis] == 1:
        return None
    rows = max(2, MOST * before.shape[0] // before.size) if axis == 0 else max(1, MOST * before.shape[0] // before.size)
    before, after = (np.moveaxis(x[:rows], axis, 0) for x in (before, after))
    one, other = before[:-1], before[1:]
    with np.errstate(all="ignore"):
        least = 0 if before.dtype.kind in "iu" or bool((before == np.trunc(before)).all()) else NEAR * np.abs(one)
        differ = np.abs(other.astype(np.float64) - one) > least
        same = differ & (after[:-1] == after[1:])
    if not same.any():
        return None
    first = np.unravel_index(int(same.argmax()), same.shape)
    return LostNumbers(
        "=",
        float(one[first]),
        float(other[first]),
        float(other[first]),
        float(after[1:][first]),
        int(same.sum()),
        int(differ.sum()),
    )
