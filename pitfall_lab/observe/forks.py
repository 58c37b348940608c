"""Observes processes that the program starts (:class:`ForkWatch`).

In a forked process the recording ends; in this process a note is added to the trace. Functions registered for forks
cannot be unregistered, so they are registered once and do nothing while nothing is recorded. Processes that
multiprocessing starts without a fork are observed at the function that prepares their data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing import spawn
from types import FrameType
from typing import Any

_watching: list[ForkWatch] = []


class ForkWatch:
    """Calls ``started(frame)`` in this process when the program has forked it, or when multiprocessing starts another
    process without a fork; ``frame`` is the Python frame that does so. Calls ``forked()`` in a forked process.

    Programs started by ``subprocess`` are not reported. Neither function may raise.
    """

    def __init__(self, started: Callable[[FrameType], None], forked: Callable[[], None]) -> None:
        self.started, self.forked = started, forked
        self._prepare: Any = None

    def start(self) -> None:
        """Start observing."""
        self._prepare, spawn.get_preparation_data = spawn.get_preparation_data, self._preparing
        _watching.append(self)

    def stop(self) -> None:
        """Stop observing."""
        if self._prepare is not None:
            _watching.remove(self)
            spawn.get_preparation_data, self._prepare = self._prepare, None

    def _preparing(self, name: str) -> Any:
        self.started(sys._getframe(1))
        return self._prepare(name)


def _in_parent() -> None:
    for watch in _watching:
        watch.started(sys._getframe(1))


def _in_child() -> None:
    for watch in _watching[::-1]:
        watch.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)
