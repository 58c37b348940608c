"""How often lines of a learner's cell are run: more of them for more elements is a loop, however it is written.
:class:`Turns` counts them.

A loop may be a recursion, a function that sorting calls for each element, or an object that is read one element
at a time. None of these makes a call of torch, and none has to have a word of Python's for loops in it. So the
lines are counted as they run.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any, Self


class Turns:
    r"""Counts, as a context manager, the lines of a file's code that this thread runs, and the calls of its functions.

    >>> names = {}
    >>> exec(compile("def f(n):\n    return n and f(n - 1)", "<cell>", "exec"), names)
    >>> with Turns("<cell>") as few:
    ...     few_result = names["f"](1)
    >>> with Turns("<cell>") as many:
    ...     many_result = names["f"](9)
    >>> few.count, many.count
    (4, 20)
    """

    def __init__(self, file: str) -> None:
        self.count = 0
        self._file = file
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._begun)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _begun(self, frame: FrameType, event: str, detail: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        self.count += 1
        return self._passed

    def _passed(self, frame: FrameType, event: str, detail: Any) -> Any:
        self.count += event == "line"
        return self._passed
