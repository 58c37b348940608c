"""Observes ``torch.utils.swap_tensors``, also where a module conversion uses it (:class:`SwapWatch`).

Torch refuses to swap a tensor that has weak references, and no mode sees a swap. So while a program is recorded,
torch's check for weak references ignores those of this package, and the function that swaps is wrapped.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pitfall_lab.observe import private

_UTILS: Any = torch.utils
"""The module whose name ``weakref`` is replaced while a program is recorded."""


class Watching(weakref.ref):  # type: ignore[type-arg]
    """A weak reference of this package to a tensor of the program; torch's check before a swap ignores it."""

    __slots__ = ()


class SwapWatch:
    """Calls ``before(one, other)`` and ``after(one, other)`` around each swap of two tensors
    (``torch.utils.swap_tensors``) in this thread. Neither may raise.
    """

    def __init__(self, before: Callable[[Any, Any], None], after: Callable[[Any, Any], None]) -> None:
        self._before, self._after = before, after
        self._thread = threading.get_ident()
        self._swap: Any = None
        self._references: Any = None

    def start(self) -> None:
        """Replace torch's swap function and its check for weak references."""
        if private.swap is not None:
            self._swap, self._references = private.swap_by(self._swapping), _UTILS.weakref
            _UTILS.weakref = _References()

    def stop(self) -> None:
        """Restore torch's swap function and its check for weak references."""
        if self._swap is not None:
            private.swap_by(self._swap)
            _UTILS.weakref, self._swap = self._references, None

    def _swapping(self, one: Any, other: Any) -> None:
        if threading.get_ident() != self._thread:
            self._swap(one, other)
            return
        self._before(one, other)
        self._swap(one, other)
        self._after(one, other)


class _References:
    """A stand-in for the module ``weakref`` in ``torch.utils`` that does not list :class:`Watching` references."""

    @staticmethod
    def getweakrefs(value: Any) -> list[Any]:
        return [found for found in weakref.getweakrefs(value) if not isinstance(found, Watching)]

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)
