"""Copies the values that a cell reads from earlier cells to another process: modules, optimizers, tensors and Python
values (:func:`pack` and :func:`unpack`).

All values are pickled together, so that those that share a storage (an optimizer and its module, a tensor and its view)
still do so. Only values that can be pickled without running the learner's code and are equal afterwards are copied; the
names of the others are returned. The bytes are written by this process and read by one that it has started, never
received from a browser.
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
"""The maximum size in bytes: the values are pickled before a cell runs, which must not take noticeable time."""
_KNOWN = {
    "builtins",
    "collections",
    "copyreg",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "math",
    "numpy",
    "operator",
}
_KNOWN |= {"pathlib", "random", "re", "torch", "torchvision", "types", "typing"}
_OWN_WAYS = (
    "__getstate__",
    "__reduce__",
    "__reduce_ex__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getattr__",
    "__getattribute__",
)


@dataclass(frozen=True, slots=True)
class Carried:
    """Values of earlier cells, to be sent to another process. ``data`` is the pickled dict of all copied values, by
    name, for :func:`unpack` (empty if none was copied); ``classes`` are the classes and functions of ``__main__`` that
    they need, as objects; ``left`` are the names of the values that could not be copied.
    """

    data: bytes = b""
    classes: tuple[Any, ...] = ()
    left: tuple[str, ...] = ()


def pack(values: Mapping[str, Any]) -> Carried:
    """Pickle ``values``, given by name; the names of those that cannot be copied are in ``left`` of the result, and all
    names if the values together exceed ``LIMIT`` bytes.

    >>> x = torch.ones(2)
    >>> back = {}
    >>> unpack(pack({"x": x, "view": x[0], "numbers": (n for n in ())}).data, back)
    >>> sorted(back), back["view"]._base is None, back["x"].data_ptr() == back["view"].data_ptr()
    (['view', 'x'], True, True)
    """
    taken = dict(values)
    try:
        return _written(taken, ())
    except Exception:  # some value cannot be pickled: try each one alone
        left = tuple(name for name, value in taken.items() if not _alone(value))
        taken = {name: value for name, value in taken.items() if name not in left}
    try:
        return _written(taken, left)
    except Exception:  # together they exceed the limit
        return Carried(left=tuple(values))


def unpack(data: bytes, namespace: dict[str, Any]) -> None:
    """Bind the names in ``namespace`` to the values pickled in ``data`` (``Carried.data``), with the gradients that
    tensors had; nothing is bound if ``data`` is empty. The classes of the values must exist in this process.
    """
    if not data:
        return
    # Storages that torch reads from a file look as if another library could write them, which a
    # recorder would have to watch.
    values, grads = torch.load(io.BytesIO(data), weights_only=False, map_location=lambda storage, _: storage.clone())  # type: ignore[attr-defined]
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
    if grads:  # a tensor is pickled without its gradient
        data, met = _saved(values, grads)
    return Carried(data, tuple(each for each in met if not isinstance(each, torch.Tensor)), left)


def _saved(values: dict[str, Any], grads: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[bytes, list[Any]]:
    """The values and gradients as pickled bytes, and a list of the tensors and of the program's classes and functions
    among the values.
    """
    found: dict[int, Any] = {}

    class CarryWriter(_Writer):
        met = found

    file = _Limited()
    torch.save((values, grads), file, pickle_module=types.SimpleNamespace(Pickler=CarryWriter, __name__="pickle"))
    return file.getvalue(), list(found.values())


class _Refused(Exception):
    """The value cannot be copied, or only by running the learner's code."""


class _Limited(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > LIMIT:
            raise _Refused
        return super().write(data)


class _Writer(pickle.Pickler):
    """A pickler that collects tensors and the program's classes, and refuses values whose pickling would run the
    learner's code or lose a part of them.

    Refused are objects with their own pickling methods, nested classes and lambdas, tensors with a graph, inference
    tensors, and subclasses of tensors.
    """

    met: ClassVar[dict[int, Any]]

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            if not obj.is_leaf or obj.is_inference() or type(obj) not in (torch.Tensor, torch.nn.Parameter):
                raise _Refused  # its graph would be lost, and without it the tensor is another one
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
    """Whether pickling an object of this class runs only code of Python, torch and NumPy."""
    for each in kind.__mro__:
        if _top(each.__module__) in _KNOWN:
            continue
        if each.__module__ != "__main__" or any(name in vars(each) for name in _OWN_WAYS):
            return False
    return True


def _top(module: str | None) -> str:
    """The top-level package of a module; NumPy's Cython functions report a module of Cython."""
    name = (module or "").partition(".")[0].lstrip("_")
    return "numpy" if name.startswith("cython") else name
