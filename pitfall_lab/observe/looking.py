"""Makes it possible to read tensors without triggering the program's modes or methods of its tensor classes
(:func:`unseen`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pitfall_lab.observe.private import (
    dispatch_modes,
    has_dispatch_modes,
    pop_dispatch_mode,
    push_dispatch_mode,
    without_functions,
)


def unseen() -> AbstractContextManager[Any]:
    """Return a context in which ``__torch_function__`` of tensor classes and the program's function modes and dispatch
    modes are off; they could print or count our reads.

    Reading a node's saved tensor, for example, is an operation: torch detaches the tensor.
    """
    return _WithoutModes() if has_dispatch_modes and dispatch_modes() else without_functions()


def dispatching() -> bool:
    """Whether a dispatch mode (``TorchDispatchMode``) is on, which may handle operations in its own way; False if this
    release of torch does not show it.
    """
    return has_dispatch_modes and dispatch_modes() > 0


class _WithoutModes:
    """A context that removes the program's dispatch modes and restores them at its end."""

    def __enter__(self) -> None:
        self._functions = without_functions()
        self._functions.__enter__()
        self._modes = [pop_dispatch_mode(None) for _ in range(dispatch_modes())]

    def __exit__(self, *_: object) -> None:
        for mode in reversed(self._modes):
            push_dispatch_mode(mode)
        self._functions.__exit__(None, None, None)
