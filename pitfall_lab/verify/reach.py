"""How far a recording reaches: where and why it stopped, and which calls of the program came after that."""

from __future__ import annotations

import contextlib

from pitfall_lab.trace import Cause, Note, Reach, Span, T
from pitfall_lab.verify.writer import Writer


class Extent:
    """Notes where observation ended and counts the calls after it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: set[tuple[int, int]] = set()
        self._missed = 0
        self._later: dict[int, None] = {}

    def stop(self, cause: Cause, reason: T, span: Span | None) -> None:
        """Note that observation ends here; without a ``span``, at the last place that was recorded."""
        en, zh = f"Observation stopped here, because {reason.en}.", f"从这里起停止观察，原因：{reason.zh}。"
        if cause == "never":
            en, zh = f"The program ran unobserved, because {reason.en}.", f"程序在没有观察的情况下运行，原因：{reason.zh}。"
        writer = self._writer
        with contextlib.suppress(Exception):  # the failure that stopped the recording may have left an unreadable row
            span = span or writer.last_span()
            self._known = writer.lines()
        writer.notes.append(Note("stopped", en, zh, max(len(writer.events) - 1, 0), span, cause))

    def missed(self, span: Span | None) -> None:
        """The program called torch after observation had stopped."""
        self._missed += 1
        if span is not None and span.source == 0 and (0, span.line) not in self._known:
            self._later[span.line] = None

    def reach(self) -> Reach:
        """The final numbers for the trace."""
        return Reach(len(self._writer.lines()), self._missed, tuple(sorted(self._later)))
