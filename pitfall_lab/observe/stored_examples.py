"""Reads some of the values that a data set stores, before and after an example is taken from it, to see whether taking
an example changes them (:func:`parts` and :class:`StoredPart`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.frame_variables import variables

FEW, NUMBERS = 8, 24
"""How many examples are read, and how many values of each."""
SERIES = 100
"""How many values a series must have to be examined."""
PARTS = 24
AROUND = 12
"""How many frames are examined at most, from a given one outwards."""
DEPTH = 2


@dataclass(frozen=True, slots=True)
class StoredPart:
    """An array or tensor that a data set stores, and a copy of some of its values.

    ``name`` is the attribute that refers to it (or to the list that contains it), ``held`` refers to it weakly,
    ``numbers`` are the copied values, as a NumPy array.
    """

    name: str
    held: weakref.ref[Any]
    numbers: Any
    is_series: bool = False
    """Whether it is one series of values, of which examples may be slices."""

    def change(self) -> tuple[Any, Any] | None:
        """Return the values that differ now, as two arrays of those before and after; None if none does, or the array
        no longer exists or has another shape.
        """
        now = _numbers(held) if (held := self.held()) is not None else None
        if now is None or now.shape != self.numbers.shape:
            return None
        differ = _differ(now, self.numbers)
        return (self.numbers[differ], now[differ]) if differ.any() else None

    def tells(self, frame: FrameType) -> bool:
        """Whether the values that differ now belong to examples; ``frame`` is the one that has changed them. True
        unless it is a series.

        For a series, True only if several neighbours differ, not from its beginning on, and not in a ``__getitems__``.
        Otherwise it may be memory that is filled for each example, or what the data set records about its examples.
        """
        now = _numbers(held) if (held := self.held()) is not None else None
        if not self.is_series or now is None:
            return not self.is_series
        places = np.flatnonzero(_differ(now, self.numbers))
        neighbours = len(places) > 1 and places[0] > 0 and bool((np.diff(places) == 1).all())
        own = (each.f_code for each in _around(frame) if not str(each.f_globals.get("__name__")).startswith("torch."))
        return neighbours and all(each.co_name != "__getitems__" for each in own)


def parts(dataset: Any, depth: int = DEPTH) -> list[StoredPart]:
    """Return the arrays and tensors in a data set's attributes, and in lists there, that store for each example several
    floating-point values or colours (uint8), and long series of such values; an empty list if there are none.

    At most ``PARTS`` (24). Data sets in its attributes are searched too, up to ``depth`` levels deep. Only tensors on
    the CPU that do not require grad are included.
    """
    try:
        attributes = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return []
    found = [
        StoredPart(name, weakref.ref(held), numbers, _is_array(attributes[name]) and held.ndim == 1)
        for name, held, numbers in _held(attributes)
    ]
    for value in list(attributes.values()) if depth else ():
        if isinstance(value, torch.utils.data.Dataset):
            found += parts(value, depth - 1)
    return found[:PARTS]


def _held(attributes: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, value in list(attributes.items()):
        if _is_array(value):
            if (value.ndim > 1 or (value.ndim and len(value) >= SERIES)) and (numbers := _numbers(value)) is not None:
                yield name, value, numbers
        elif type(value) in (list, tuple):
            for each in (item[0] if type(item) is tuple and item else item for item in value[:FEW]):
                if _is_array(each) and each.ndim > 0 and (numbers := _numbers(each)) is not None and numbers.size > 1:
                    yield name, each, numbers


def _is_array(value: Any) -> bool:
    if type(value) is np.ndarray:
        return bool(value.dtype.kind == "f" or value.dtype == np.uint8)
    return (
        type(value) is torch.Tensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.requires_grad
        and (value.is_floating_point() or value.dtype == torch.uint8)
    )


def _numbers(value: Any) -> Any:
    """A copy of the first ``NUMBERS`` values of each of the first ``FEW`` examples of an array; of a long series, of
    its first ``FEW * NUMBERS`` values.

    None if there are none, or for tensors with very large examples.
    """
    rows = value[None, : FEW * NUMBERS] if value.ndim == 1 and len(value) >= SERIES else value[:FEW]
    if type(value) is torch.Tensor:
        rows = rows.detach().to(torch.float64).numpy(force=True) if rows.numel() < FEW * 1 << 16 else None
    if rows is None or rows.size == 0:
        return None
    few = NUMBERS if len(rows) > 1 else FEW * NUMBERS
    return np.array(rows.reshape(len(rows), -1)[:, :few], dtype=np.float64)


def _differ(one: Any, other: Any) -> Any:
    return ~((one == other) | (np.isnan(one) & np.isnan(other)))


def is_making(frame: FrameType | None, dataset: Any) -> bool:
    """Whether a frame runs while an example of this data set, or of one in its attributes, is created: it, or one of
    ``AROUND`` frames around it, is a ``__getitem__`` or ``__getitems__`` of one of these.
    """
    for each in _around(frame):
        if each.f_code.co_name in ("__getitem__", "__getitems__"):
            owner = variables(each).get(each.f_code.co_varnames[0]) if each.f_code.co_argcount else None
            if owner is not None and (owner is dataset or any(value is owner for value in vars(dataset).values())):
                return True
    return False


def _around(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and the frames around it, at most ``AROUND``."""
    for _ in range(AROUND):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
