"""Converts the arguments of torch calls to values without torch, and finds the tensors in them (:func:`convert` and
:func:`tensors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

TEXT_LIMIT = 48
MOST_LEVELS = 6
_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))


class Unconvertible(Exception):
    """Raised for an argument that has no counterpart in the shadow (this package's own engine); its message names the
    argument's type.
    """


def convert(
    value: Any, tensor: Callable[[torch.Tensor], Any], dtype: Callable[[str], Any], device: Callable[[str], Any]
) -> Any:
    """Return ``value`` with every tensor, dtype and device in it (also inside lists, tuples, values of dicts, and
    slices) replaced by what the functions ``tensor``, ``dtype`` and ``device`` return for it.

    ``tensor`` gets the tensor, ``dtype`` and ``device`` the name as a string (``"float32"``, ``"cuda:0"``). Python
    numbers, strings and NumPy arrays are unchanged; a range becomes a list, a memory format its name, ``torch.strided``
    None.

    Raises:
        Unconvertible: for objects of all other types, such as generators, modules and named tuples.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if kind in _PLAIN or isinstance(value, (np.ndarray, np.generic)):
        return value
    if kind is tuple or kind is list or isinstance(value, torch.Size):
        items = [convert(item, tensor, dtype, device) for item in value]
        return items if kind is list else tuple(items)
    if kind is slice:
        return slice(*(convert(part, tensor, dtype, device) for part in (value.start, value.stop, value.step)))
    if kind is dict:
        return {key: convert(item, tensor, dtype, device) for key, item in value.items()}
    if kind is range:
        return list(value)
    if isinstance(value, torch.device):
        return device(str(value))
    if isinstance(value, (torch.dtype, torch.memory_format)):
        word = str(value).removeprefix("torch.")
        return dtype(word) if isinstance(value, torch.dtype) else word
    if value is torch.strided:
        return None
    raise Unconvertible(f"an argument of type {kind.__name__}")


def index_of(value: Any) -> Any:
    """The index ``value`` of a subscript, in whose slices integer 0-dim CPU tensors are replaced by Python integers, as
    torch itself does. Any other index is returned unchanged.

    >>> index_of((slice(torch.tensor(1), None), 0))
    (slice(1, None, None), 0)
    """
    if type(value) is tuple:
        return tuple([index_of(item) if type(item) is slice else item for item in value])
    if type(value) is not slice or not any(
        type(part) is torch.Tensor for part in (value.start, value.stop, value.step)
    ):
        return value
    return slice(*(int(part) if _is_whole(part) else part for part in (value.start, value.stop, value.step)))


def _is_whole(value: Any) -> bool:
    return type(value) is torch.Tensor and value.ndim == 0 and value.dtype in _WHOLE and value.device.type == "cpu"


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists and dicts (values only), at most ``MOST_LEVELS`` (6) levels deep; a
    tensor that occurs twice is yielded twice.
    """
    found: list[torch.Tensor] = []
    _collect((value,), found, MOST_LEVELS)
    return iter(found)


def _collect(items: Iterable[Any], found: list[torch.Tensor], levels: int) -> None:
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif type(item) not in _PLAIN and levels:
            if isinstance(item, (tuple, list)):
                _collect(item, found, levels - 1)
            elif isinstance(item, dict):
                _collect(item.values(), found, levels - 1)


def arrays(value: Any) -> Iterator[np.ndarray]:
    """Yield the NumPy arrays in nested tuples and lists."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays(item)


def text(value: Any, depth: int = 0) -> str:
    """A short text for an argument, at most ``TEXT_LIMIT`` (48) characters; of a list or tuple at most 16 items are
    written.

    Objects other than Python's own values, dtypes and devices are shown by their type, as ``repr`` may run code.
    ``depth`` is the number of lists around the value.

    >>> text([1.0, 2]), text(slice(None, 2)), text(torch.float32), text(object())
    ('[1.0, 2]', ':2', 'torch.float32', '<object>')
    """
    kind = type(value)
    if kind is slice:
        parts = ["" if part is None else text(part, depth + 1) for part in (value.start, value.stop, value.step)]
        out = ":".join(parts[:2] if value.step is None else parts)
    elif kind is type(Ellipsis):
        out = "..."
    elif kind in _PLAIN or isinstance(value, (torch.dtype, torch.device)):
        out = repr(value)
    elif (kind is tuple or kind is list or isinstance(value, torch.Size)) and depth < 3:
        inside = ", ".join(text(item, depth + 1) for item in list(value)[:16]) + (", …" if len(value) > 16 else "")
        out = f"[{inside}]" if kind is list else f"({inside},)" if len(value) == 1 else f"({inside})"
    else:
        out = f"<{kind.__name__}>"
    return out if len(out) <= TEXT_LIMIT else out[: TEXT_LIMIT - 1] + "…"
