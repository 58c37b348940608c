"""Looking without being noticed: no mode of the program's, and no class of its own, hears of what we ask a tensor."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pitfall_lab.observe.private import dispatch_modes, has_dispatch_modes, pop_dispatch_mode, push_dispatch_mode, without_functions


def unseen() -> AbstractContextManager[Any]:
    """While we look, tensors of the program's own classes are not asked, and its modes do not see it: they could print or count.

    Reading what a node saved, for example, is an operation: torch detaches it.
    """
    return _WithoutModes() if has_dispatch_modes and dispatch_modes() else without_functions()


def dispatching() -> bool:
    """Whether a dispatch mode is on, which may handle each operation in its own way."""
    return has_dispatch_modes and dispatch_modes() > 0


class _WithoutModes:
    """The program's dispatch modes step aside for a while."""

    def __enter__(self) -> None:
        self._functions = without_functions()
        self._functions.__enter__()
        self._modes = [pop_dispatch_mode(None) for _ in range(dispatch_modes())]

    def __exit__(self, *_: object) -> None:
        for mode in reversed(self._modes):
            push_dispatch_mode(mode)
        self._functions.__exit__(None, None, None)
