"""Tensors that swap what they are: ``torch.utils.swap_tensors``, and a module's conversion by swapping.

Torch refuses to swap a tensor that anybody refers to weakly, and no mode sees a swap. So for as long as a program is recorded, torch's
question for weak references goes past our own, and the function that swaps tells of it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pitfall_lab.observe import private


class Watching(weakref.ref):  # type: ignore[type-arg]
    """A weak reference of ours to a tensor of the program's, which must not find it."""

    __slots__ = ()


class SwapWatch:
    """Calls ``before(one, other)`` and ``after(one, other)`` around each swap of this thread. Neither raises anything."""

    def __init__(self, before: Callable[[Any, Any], None], after: Callable[[Any, Any], None]) -> None:
        self._before, self._after = before, after
        self._thread = threading.get_ident()
        self._swap: Any = None
        self._references: Any = None

    def start(self) -> None:
        """Stand between torch and what it asks."""
        if private.swap is not None:
            self._swap, self._references = private.swap_by(self._swapping), torch.utils.weakref
            torch.utils.weakref = _References()

    def stop(self) -> None:
        """Put everything back."""
        if self._swap is not None:
            private.swap_by(self._swap)
            torch.utils.weakref, self._swap = self._references, None

    def _swapping(self, one: Any, other: Any) -> None:
        if threading.get_ident() != self._thread:
            self._swap(one, other)
            return
        self._before(one, other)
        self._swap(one, other)
        self._after(one, other)


class _References:
    """Python's module ``weakref``, as far as torch asks it."""

    @staticmethod
    def getweakrefs(value: Any) -> list[Any]:
        return [found for found in weakref.getweakrefs(value) if not isinstance(found, Watching)]

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)
