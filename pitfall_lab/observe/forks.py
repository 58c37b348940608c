"""Other processes that the program starts: a fork takes the recording along, which must end there; the trace says what it did not see.

Python's calls around a fork cannot be taken back, so they are registered once and do nothing where nothing is recorded. Processes that
multiprocessing starts anew pass no fork: they are noticed where it prepares what to send them.
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
    """Calls ``started(frame)`` in this process when the program has started another one, and ``forked()`` in a forked one, first of all.

    ``subprocess`` starts programs, not parts of this one: it is not heard of. Neither call raises anything.
    """

    def __init__(self, started: Callable[[FrameType], None], forked: Callable[[], None]) -> None:
        self.started, self.forked = started, forked
        self._prepare: Any = None

    def start(self) -> None:
        """Hear of each process from now on."""
        self._prepare, spawn.get_preparation_data = spawn.get_preparation_data, self._preparing
        _watching.append(self)

    def stop(self) -> None:
        """Hear of none any more."""
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
