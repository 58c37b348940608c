"""Determines how far a recording reaches (:class:`Extent`): where and why it stopped, and which calls of the program
came after that.
"""

from __future__ import annotations

import contextlib

from pitfall_lab.observe.rounds import Rounds
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Cause, Note, Reach, Span, T
from pitfall_lab.verify.writer import Writer

FURTHER = 0.1
"""How many more steps are recorded from a new line on, as a fraction of the limit."""
MOST_TIMES = 2
"""How many times as long as its limit a trace may thereby become."""


class Extent:
    """Records where observation ended, and counts the calls after it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: set[tuple[int, int]] = set()
        self._missed = self._most = 0
        self._later: dict[int, None] = {}

    def stop(self, cause: Cause, reason: T, span: Span | None) -> None:
        """Record that observation ends here, for the ``reason``; ``cause`` is the kind of reason. Without a ``span``,
        the last recorded source position is used.

        Only the first stop gets a note.
        """
        en, zh = f"Observation stopped here, because {reason.en}.", f"从这里起停止观察，原因：{reason.zh}。"
        if cause == "never":
            en, zh = (
                f"The program ran unobserved, because {reason.en}.",
                f"程序在没有观察的情况下运行，原因：{reason.zh}。",
            )
        writer = self._writer
        with contextlib.suppress(Exception):  # the failure that stopped the recording may have left an unreadable row
            span = span or writer.last_span()
            self._known = writer.lines()
        if not self._is_stopped():
            writer.notes.append(Note("stopped", en, zh, max(len(writer.events) - 1, 0), span, cause))

    def pause(self, reason: T, span: Span | None) -> None:
        """Record that observation pauses at ``span``: the first time with a note of the ``reason``; afterwards, only
        which lines are recorded by now.
        """
        if self._is_stopped():
            self._known |= self._writer.lines()
        else:
            self.stop("limit", reason, span)
            self._most = MOST_TIMES * len(self._writer.events)

    def _is_stopped(self) -> bool:
        return any(note.kind == "stopped" for note in self._writer.notes)

    def goes_on(self, span: Span | None) -> bool:
        """Whether a paused recording continues with a call from ``span``: the line is new, and more events are allowed.

        If so, the limit for the number of events is raised.
        """
        if span is None or (span.source, span.line) in self._known or len(self._writer.events) >= self._most:
            return False
        self._known.add((span.source, span.line))
        self._writer.limit = min(len(self._writer.events) + max(1, int(FURTHER * self._most / MOST_TIMES)), self._most)
        return True

    def missed(self, span: Span | None) -> None:
        """Count a call of torch that the program made after observation had stopped, or while it paused; store its line
        if it is one of the program itself and nothing was recorded there.
        """
        self._missed += 1
        if span is not None and span.source == 0 and (0, span.line) not in self._known:
            self._later[span.line] = None

    def reach(self) -> Reach:
        """Return how far the recording reached, for the trace: how many lines were recorded, how many calls were missed
        afterwards, and from which lines of the program that had not been recorded.
        """
        return Reach(len(self._writer.lines()), self._missed, tuple(sorted(self._later)))


def rounds_note(rounds: Rounds, sources: SourceMap) -> Note:
    """Return the note about iterations of loops that were not recorded, because all their calls had been recorded in
    earlier iterations; it names each such loop by its line.
    """
    en, zh, spans = [], [], []
    for loop in rounds.loops.values():
        if loop.rounds > loop.recorded:
            span = sources.line_span(loop.code.co_filename, loop.line)
            spans.append(span)
            file = "" if span is None or span.source == 0 else f"{sources.sources[span.source].name}, "
            en.append(f"{file}line {loop.line}: {loop.recorded:,} of {loop.rounds:,}")
            zh.append(f"{file}第 {loop.line} 行：{loop.rounds} 轮中的 {loop.recorded} 轮")
    counts_en, counts_zh = (f" ({'; '.join(en)})", f"（{'；'.join(zh)}）") if en else ("", "")
    text_en = (
        "Of loops whose rounds repeat, the first rounds, samples and all rounds with something new were "
        f"recorded{counts_en}."
    )
    text_en += f" At least {rounds.unseen:,} other calls came from the same places with the same shapes and modes."
    text_zh = f"对于重复的循环，只记录了最初几轮、抽样的几轮以及出现新情况的各轮{counts_zh}。"
    text_zh += f"其余至少 {rounds.unseen} 次调用来自相同的位置，形状和模式也相同。"
    if rounds.varied:
        text_en += f" Where shapes change all the time ({len(rounds.varied)} calls), they were not compared."
        text_zh += f"形状一直变化之处（{len(rounds.varied)} 个调用），没有比较形状。"
    return Note("unseen", text_en, text_zh, None, spans[0] if spans else None)
