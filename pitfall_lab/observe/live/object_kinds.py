"""Determines the kind of an object without running code of its class: no attribute is read through the object
(:class:`Kinds`).

A class may define ``__class__``, ``__getattr__`` or a metaclass with its own ``__eq__``; none of these is called, as
the descriptors of Python's, torch's and NumPy's classes are used instead.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import Any, Literal

import numpy as np
import torch

Kind = Literal["tensor", "array", "module", "optimizer", "group", "object", ""]

_mro = type.__dict__["__mro__"].__get__
_class_name = type.__dict__["__name__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_module_dict = torch.nn.Module.__dict__["__dict__"].__get__
_optimizer_dict = torch.optim.Optimizer.__dict__["__dict__"].__get__
_MEANT: tuple[tuple[type, Kind], ...] = (
    (torch.Tensor, "tensor"), (np.ndarray, "array"), (torch.nn.Module, "module"), (torch.optim.Optimizer, "optimizer"),
)  # fmt: skip
_GROUPS = (list, tuple, dict, OrderedDict)
_PLAIN = (int, float, str, bool, type(None), bytes, complex, set, frozenset, type, types.ModuleType, types.FunctionType)


class Kinds:
    """Caches the kinds of classes during one examination of a namespace."""

    def __init__(self) -> None:
        self._known: dict[int, Kind] = {id(cls): "" for cls in _PLAIN}
        self._known.update((id(cls), "group") for cls in _GROUPS)

    def of(self, value: Any) -> Kind:
        """Return the kind of an object: ``tensor``, ``array``, ``module``, ``optimizer``, ``group`` (a list, tuple or
        dict) or ``object`` (of a class of the notebook); an empty string for all others, which are not shown.
        """
        cls = type(value)
        known = self._known.get(id(cls))
        if known is None:
            known = self._known[id(cls)] = _kind(cls)
        return known


def _kind(cls: type) -> Kind:
    for each in _mro(cls):
        for meant, kind in _MEANT:
            if each is meant:
                return kind
    return "object" if _class_dict(cls).get("__module__") == "__main__" else ""


def class_name(value: Any) -> str:
    """Return the name of the object's class."""
    return str(_class_name(type(value)))


def class_origin(value: Any) -> str:
    """Return the name of the Python module in which the object's class was defined."""
    return str(_class_dict(type(value)).get("__module__"))


def methods_name(value: Any, attribute: str) -> bool:
    """Whether a method of the object's class, or of a base class outside torch, uses ``attribute`` as the name of an
    attribute or global variable. Only plain methods are examined, without functions nested in them.
    """
    for each in _mro(type(value)):
        table = _class_dict(each)
        if not str(table.get("__module__")).startswith(("torch.", "builtins")):
            functions = (one for one in list(table.values()) if type(one) is types.FunctionType)
            if any(attribute in one.__code__.co_names for one in functions):
                return True
    return False


def is_own(tensor: Any) -> bool:
    """Whether the object's class is exactly Tensor or Parameter, so that reading any attribute runs only torch's
    code.
    """
    return type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter


def dispatches(tensor: Any) -> bool:
    """Whether the tensor's class defines ``__torch_dispatch__``, so that reading even the attributes that torch defines
    may run its code.
    """
    return any("__torch_dispatch__" in _class_dict(each) for each in _mro(type(tensor)) if each is not torch.Tensor)


def inside(value: Any, kind: Kind) -> dict[str, Any]:
    """Return the attributes of a module, an optimizer or an object of a class of the notebook; an empty dict if it has
    no ``__dict__``.
    """
    if kind == "module":
        return _module_dict(value) or {}
    if kind == "optimizer":
        return _optimizer_dict(value) or {}
    for each in _mro(type(value)):
        table = _class_dict(each).get("__dict__")
        if type(table) is types.GetSetDescriptorType:
            return table.__get__(value) or {}
    return {}


def tables(module: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return a module's parameters, buffers and submodules; an empty dict for each that the module lacks or does not
    store as a plain dict.
    """
    table = inside(module, "module")
    found = [table.get(name) for name in ("_parameters", "_buffers", "_modules")]
    first, second, third = (each if type(each) is dict else {} for each in found)
    return first, second, third


def has_parameters(value: Any) -> bool:
    """Whether a value is a module with parameters, its own or those of its submodules."""
    work, seen = ([value] if Kinds().of(value) == "module" else []), set[int]()
    for module in work:  # the list grows during the iteration
        if id(module) in seen or Kinds().of(module) != "module":
            continue
        seen.add(id(module))
        parameters, _, children = tables(module)
        if parameters:
            return True
        work.extend(children.values())
    return False


def held_by(optimizer: Any) -> list[Any]:
    """Return the tensors in an optimizer's parameter groups; an empty list if these cannot be read."""
    groups = inside(optimizer, "optimizer").get("param_groups")
    if type(groups) is not list:
        return []
    return [
        each
        for group in groups
        if type(group) is dict and type(group.get("params")) is list
        for each in group["params"]
    ]
