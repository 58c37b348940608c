"""What a cell takes from earlier cells, carried into another process: modules, optimizers, tensors and plain values as they are now.

They go there in one piece, so that what shares memory there shares it too (an optimizer and its module, a tensor and its view). Only what
can be taken along without running code of the learner's, and comes out as the same thing, is taken; the rest is named, with no guess.
The bytes are written by this process and read by one that it has started, never by anything that a browser has sent.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

LIMIT = 64 << 20
"""So many bytes are carried: the values are written down before a cell runs, which must not be noticed."""
_KNOWN = {"builtins", "collections", "copyreg", "datetime", "decimal", "enum", "fractions", "functools", "math", "numpy", "operator"}
_KNOWN |= {"pathlib", "random", "re", "torch", "torchvision", "types", "typing"}
_OWN_WAYS = ("__getstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__getattr__", "__getattribute__")


@dataclass(frozen=True, slots=True)
class Carried:
    """``data`` holds what could be written down; ``classes`` are the program's own classes and functions that it needs there."""

    data: bytes = b""
    classes: tuple[Any, ...] = ()
    left: tuple[str, ...] = ()


def pack(values: Mapping[str, Any]) -> Carried:
    """Write ``values`` down by name; what cannot be carried is ``left``.

    >>> x = torch.ones(2)
    >>> back = {}
    >>> unpack(pack({"x": x, "view": x[0], "numbers": (n for n in ())}).data, back)
    >>> sorted(back), back["view"]._base is None, back["x"].data_ptr() == back["view"].data_ptr()
    (['view', 'x'], True, True)
    """
    taken = dict(values)
    try:
        return _written(taken, ())
    except Exception:  # something in it refuses: what, is found one by one
        left = tuple(name for name, value in taken.items() if not _alone(value))
        taken = {name: value for name, value in taken.items() if name not in left}
    try:
        return _written(taken, left)
    except Exception:  # together they are too many
        return Carried(left=tuple(values))


def unpack(data: bytes, namespace: dict[str, Any]) -> None:
    """Bind the names again. The classes that the values are of must be there."""
    if not data:
        return
    # Memory that torch has read from a file looks like memory that another library may write, which a recorder has to watch.
    values, grads = torch.load(io.BytesIO(data), weights_only=False, map_location=lambda storage, _: storage.clone())
    for tensor, gradient in grads:
        tensor.grad = gradient
    namespace.update(values)


def _alone(value: Any) -> bool:
    try:
        _written({"": value}, ())
    except Exception:
        return False
    return True


def _written(values: dict[str, Any], left: tuple[str, ...]) -> Carried:
    if not values:
        return Carried(left=left)
    data, met = _saved(values, [])
    grads = [(each, each.grad) for each in met if isinstance(each, torch.Tensor) and each.grad is not None]
    if grads:  # a tensor is written down without its gradient
        data, met = _saved(values, grads)
    return Carried(data, tuple(each for each in met if not isinstance(each, torch.Tensor)), left)


def _saved(values: dict[str, Any], grads: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[bytes, list[Any]]:
    """The bytes, and the tensors, classes and functions that were met on the way."""
    found: dict[int, Any] = {}

    class Writer(_Writer):
        met = found

    file = _Limited()
    torch.save((values, grads), file, pickle_module=types.SimpleNamespace(Pickler=Writer, __name__="pickle"))
    return file.getvalue(), list(found.values())


class _Refused(Exception):
    """It cannot be carried, or must not be looked into."""


class _Limited(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > LIMIT:
            raise _Refused
        return super().write(data)


class _Writer(pickle.Pickler):
    """A pickler that takes objects only as Python itself writes them down, and notes the program's own classes."""

    met: ClassVar[dict[int, Any]]

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            if not obj.is_leaf or obj.is_inference() or type(obj) not in (torch.Tensor, torch.nn.Parameter):
                raise _Refused  # a history stays behind, and without it the tensor is another one
            self.met[id(obj)] = obj
        elif isinstance(obj, (type, types.FunctionType)):
            if obj.__module__ == "__main__":
                if "<" in obj.__qualname__ or "." in obj.__qualname__:
                    raise _Refused
                self.met[id(obj)] = obj
            elif _top(obj.__module__) not in _KNOWN and isinstance(obj, types.FunctionType) and "<" in obj.__qualname__:
                raise _Refused
        elif not isinstance(obj, (types.BuiltinFunctionType, types.ModuleType)) and not _is_plain(type(obj)):
            raise _Refused
        return NotImplemented


def _is_plain(kind: type) -> bool:
    """Whether writing an object of this class down runs nothing but Python's, torch's and NumPy's own code."""
    for each in kind.__mro__:
        if _top(each.__module__) in _KNOWN:
            continue
        if each.__module__ != "__main__" or any(name in vars(each) for name in _OWN_WAYS):
            return False
    return True


def _top(module: str | None) -> str:
    """The package; NumPy's functions that are written in Cython say that they are Cython's."""
    name = (module or "").partition(".")[0].lstrip("_")
    return "numpy" if name.startswith("cython") else name
