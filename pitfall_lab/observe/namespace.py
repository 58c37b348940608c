"""Finds the names of tensors in the learner's frames (variables, attributes of modules), and the arrays that share a
tensor's memory (:class:`FrameNames`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.private import byte_bounds
from pitfall_lab.observe.swapping import Watching

_OPTIMIZED = 0x1
DEPTH = 8
NO_MODULES = frozenset(
    {
        torch.Tensor,
        torch.nn.Parameter,
        int,
        float,
        bool,
        str,
        bytes,
        dict,
        list,
        tuple,
        set,
        frozenset,
        type,
        type(None),
        np.ndarray,
        types.ModuleType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
    }
)
"""The most common types of variables that cannot be modules."""
NO_ARRAYS = NO_MODULES - {np.ndarray}


class FrameNames:
    """Looks up names in the frames of the learner's program."""

    def __init__(self) -> None:
        self._parameters: dict[int, tuple[Watching, str]] = {}

    def names(self, real: torch.Tensor, frame: FrameType | None) -> list[str]:
        """Return the name of the tensor ``real``, in a list: a variable of the innermost frame, from ``frame``
        outwards, that refers to it, or a path through a module (``net.0.weight``); an empty list if there is none.

        A path that was found once is preferred, even where a variable refers to the tensor; names that begin with ``_``
        do not count.
        """
        known = self._parameters.get(id(real))
        if known is not None and known[0]() is real:
            return [known[1]]
        modules: dict[int, tuple[str, torch.nn.Module]] = {}
        for scope in scopes(frame):
            for name, value in scope.items():
                if value is real and not name.startswith("_"):
                    return [name]
                if type(value) not in NO_MODULES and isinstance(value, torch.nn.Module) and not name.startswith("_"):
                    # torch's own frames call every module `self`
                    modules[id(value)] = modules.get(id(value), (name, value)) if name == "self" else (name, value)
        # Outer frames come last and longer paths win: "net.0.weight" is a better name than
        # "self.weight" or a loop's "layer.weight".
        for name, module in modules.values():
            if not _has(module, real):
                continue
            for part, tensor in _parts(module):
                way = f"{name}.{part}"
                old = self._parameters.get(id(tensor))
                if old is None or old[0]() is not tensor or way.count(".") >= old[1].count("."):
                    self._parameters[id(tensor)] = (Watching(tensor), way)
        known = self._parameters.get(id(real))
        return [known[1]] if known is not None and known[0]() is real else []

    def arrays(self, frame: FrameType, pointer: int, nbytes: int) -> list[tuple[np.ndarray, str]]:
        """Return the NumPy arrays in variables, from ``frame`` outwards and of the globals there, whose memory overlaps
        the ``nbytes`` bytes from the address ``pointer``; each with the variable's name.

        Arrays of objects and empty arrays do not count. An empty list if there are none, or the address or the number
        of bytes is 0.
        """
        if not pointer or not nbytes:
            return []
        found: dict[int, tuple[np.ndarray, str]] = {}
        for scope in scopes(frame):
            kinds = set(map(type, scope.values())) - NO_ARRAYS
            if not any(issubclass(kind, np.ndarray) for kind in kinds):
                continue
            for name, value in scope.items():
                if (
                    isinstance(value, np.ndarray)
                    and value.size
                    and not value.dtype.hasobject
                    and id(value) not in found
                ):
                    low, high = byte_bounds(value)
                    if low < pointer + nbytes and pointer < high:
                        found[id(value)] = (value, name)
        return list(found.values())


def _has(module: torch.nn.Module, real: torch.Tensor) -> bool:
    """Whether the tensor may be a parameter or buffer of the module. Much cheaper than listing all names."""
    if type(module).named_parameters is not torch.nn.Module.named_parameters:
        return True
    work, seen = [module], {id(module)}
    while work:
        inside = work.pop().__dict__
        tables: list[Any] = [inside.get("_parameters"), inside.get("_buffers"), inside.get("_modules")]
        if not all(type(table) is dict for table in tables):
            return True  # a class with tables of its own (a scripted module): its named_parameters decides
        for value in (*tables[0].values(), *tables[1].values()):
            if value is real:
                return True
        for child in tables[2].values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                work.append(child)
    return False


def _parts(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    try:
        return [*module.named_parameters(), *module.named_buffers()]
    except (AttributeError, RuntimeError):
        return []  # its __init__ has not called super().__init__() (yet)


def scopes(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yield the variables, by name, of each of the ``DEPTH`` (8) frames from ``frame`` outwards, each followed by the
    globals of its function (no globals twice), as copies. Yields nothing for None.

    Before Python 3.13, reading a function's ``f_locals`` creates a dictionary that keeps its variables alive. It is
    cleared again, so that ``del`` in the learner's function still frees objects. Not in a frame that is traced: there
    Python copies the dictionary *back* to the variables, and the trace function refreshes it (:mod:`.line_watch`).
    """
    seen: set[int] = set()
    for _ in range(DEPTH):
        if frame is None:
            return
        local = variables(frame)
        if id(local) not in seen:
            seen.add(id(local))
            copied = dict(local)
            if (
                frame.f_code.co_flags & _OPTIMIZED
                and type(local) is dict
                and (sys.gettrace() is None or frame.f_trace is None)
            ):
                local.clear()
            yield copied
        if id(frame.f_globals) not in seen and frame.f_globals is not local:
            seen.add(id(frame.f_globals))
            yield dict(frame.f_globals)
        frame = frame.f_back
