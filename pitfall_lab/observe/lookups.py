"""Observes calls of methods of torch's objects that no function mode observes, such as ``scheduler.step``, and reports
each to a function (:class:`LookupWatch`).

While a program is recorded, a descriptor replaces each of these methods in its class. It returns the original method,
bound as usual. So the call that follows contains no frame of this package: warnings keep their line, tracebacks their
frames, and reading the method from the class (``LRScheduler.step``) gives torch's function.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from pitfall_lab.observe.private import file_writers

Kind = Literal["scheduler", "loading", "saving", "restoring", "pass", "clearing", "writing"]
Tell = Callable[[Kind, Any, FrameType], None]


class _Lookup:
    """A descriptor that replaces a method in a class of torch and reports each object on which the method is
    looked up.
    """

    __slots__ = ("_tell", "kind", "method")

    def __init__(self, kind: Kind, method: Any, tell: Tell) -> None:
        self.kind, self.method, self._tell = kind, method, tell

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is not None:
            self._tell(self.kind, owner, sys._getframe(1))
        return self.method.__get__(owner, cls)


class LookupWatch:
    """Calls ``tell(kind, owner, frame)`` when this thread looks up one of these methods on the object ``owner``, as it
    does to call it; ``frame`` is the Python frame that looks it up.

    ``kind`` is ``scheduler`` for ``step`` of a learning-rate scheduler, ``loading`` and ``saving`` for
    ``load_state_dict`` and ``state_dict`` of a module, ``restoring`` for ``__setstate__`` of an optimizer, ``pass`` for
    ``__iter__`` of a ``DataLoader``, ``clearing`` for ``zero_grad`` of an optimizer or a module, ``writing`` for
    ``__exit__`` of what ``torch.save`` writes with; methods that a class of the program overrides are not observed.
    ``tell`` must not raise.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._thread = threading.get_ident()
        self._replaced: list[tuple[type, str, _Lookup]] = []

    def start(self) -> None:
        """Replace torch's methods by the descriptors."""
        for kind, cls, name in _methods():
            lookup = _Lookup(kind, vars(cls)[name], self._here)
            setattr(cls, name, lookup)
            self._replaced.append((cls, name, lookup))

    def stop(self) -> None:
        """Restore torch's methods, except those that the program has replaced."""
        for cls, name, lookup in self._replaced:
            if vars(cls).get(name) is lookup:
                setattr(cls, name, lookup.method)
        self._replaced.clear()

    def _here(self, kind: Kind, owner: Any, frame: FrameType) -> None:
        if threading.get_ident() == self._thread:
            self._tell(kind, owner, frame)


def _methods() -> Iterator[tuple[Kind, type, str]]:
    for cls in _with_subclasses(LRScheduler):
        if cls.__module__.startswith("torch.") and "step" in vars(cls):
            yield "scheduler", cls, "step"
    yield "loading", torch.nn.Module, "load_state_dict"
    yield "saving", torch.nn.Module, "state_dict"
    yield "restoring", torch.optim.Optimizer, "__setstate__"
    yield "pass", DataLoader, "__iter__"
    yield "clearing", torch.optim.Optimizer, "zero_grad"
    yield "clearing", torch.nn.Module, "zero_grad"
    for cls in file_writers:
        if cls is not None and "__exit__" in vars(cls):
            yield "writing", cls, "__exit__"


def _with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for each in type.__subclasses__(cls):
        yield from _with_subclasses(each)
