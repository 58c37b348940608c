"""Calls a function after each line of the learner's program, to find effects that are not torch calls (NumPy writes,
``from_numpy``) (:class:`LineWatch`).

Switched on only once NumPy and torch share memory, only in the learner's files, and not if another tool (a debugger, a
coverage tool) is tracing. ``missed`` then says why some lines were not watched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.spans import STAND_IN, SourceMap
from pitfall_lab.trace import Span, T

TRACED = T(
    en="something else traces the program's lines (a debugger, a coverage tool, or the program itself)",
    zh="另有工具在跟踪程序的行（调试器、覆盖率工具或程序自己）",
)


class LineWatch:
    """Calls ``tell(frame, span, returned)`` after each line of the learner's program: with the frame, the span of the
    line (None if it has no source), and the value that the frame returns if it returned on this line (else None).

    ``sources`` determines which files are the learner's. ``missed`` is the reason why some lines were not watched, in
    English and Chinese; None if there is none.
    """

    def __init__(self, sources: SourceMap, tell: Callable[[FrameType, Span | None, Any], None]) -> None:
        self._sources = sources
        self._tell = tell
        self._on = False
        self._last: dict[int, int] = {}
        self._others: set[str] = set()
        """The files that are not the learner's: most functions that are entered are in one of these."""
        self.missed: T | None = None

    def start(self, frame: FrameType | None) -> None:
        """Watch ``frame``, the frames that called it, and frames entered later, as far as they are in the learner's
        files.

        Does nothing if it is already watching. If another tool traces, sets ``missed`` and watches nothing.
        """
        if self._on:
            return
        if sys.gettrace() is not None:
            self.missed = TRACED
            return
        self._on = True
        walk = frame
        while walk is not None:
            if self._is_ours(walk):
                walk.f_trace = self._line
                self._last[id(walk)] = walk.f_lineno
            walk = walk.f_back
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Stop watching."""
        if self._on:
            self._on = False
            if sys.gettrace() == self._enter:
                sys.settrace(None)
            else:
                self.missed = TRACED
            self._last.clear()

    def _is_ours(self, frame: FrameType) -> bool:
        # Generated code (the methods of a dataclass) has no source lines to show; the line that calls it is watched.
        name = frame.f_code.co_filename
        return frame.f_code.co_name != STAND_IN and self._sources.is_user(name) and self._sources.has_text(name)

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name in self._others or not self._on:
            return None
        if self._is_ours(frame):
            return self._line
        if not self._sources.is_user(name):
            self._others.add(name)
        return None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self._on:
            frame.f_trace = None
            return None
        before = self._last.get(id(frame))
        if event == "line":
            self._last[id(frame)] = frame.f_lineno
            variables(
                frame
                # before Python 3.13 this refreshes f_locals, which would keep a variable alive that the line deleted
            ).keys()
        elif event == "return":
            self._last.pop(id(frame), None)
        if before is not None and event in ("line", "return"):
            try:
                with unseen():
                    self._tell(
                        frame,
                        self._sources.line_span(frame.f_code.co_filename, before),
                        arg if event == "return" else None,
                    )
            except Exception as error:  # it would be raised in the learner's program
                self.stop()
                self.missed = T(
                    en=f"pitfall_lab failed ({type(error).__name__})",
                    zh=f"pitfall_lab 内部出错（{type(error).__name__}）",
                )
        return self._line
