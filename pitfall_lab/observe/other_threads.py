"""Elsewhere: torch used in threads that the program starts. It is heard, not followed: the trace says what it did not see."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import Call, Lane, Recorder, Verdict
from pitfall_lab.observe.regions import Region
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Span


class Elsewhere:
    """What other threads have done with torch since somebody looked.

    ``happened`` is set when a call of theirs begins and when it ends; ``busy`` are the threads that are inside one; ``places`` what was
    called first in each thread, and where, as far as it has not been noted.
    """

    def __init__(self, sources: SourceMap) -> None:
        self._sources = sources
        self.happened = False
        self.busy: set[int] = set()
        self.places: list[tuple[str, Span | None]] = []
        self._known: set[tuple[str, Span | None]] = set()
        self._hook = self._born
        self._is_over = False

    def start(self) -> None:
        """Hear of the threads that are started from now on, unless the program is being profiled: Python has one place for both."""
        if threading.getprofile() is None:
            threading.setprofile(self._hook)

    def stop(self) -> None:
        """Hear of none any more."""
        self._is_over = True
        if threading.getprofile() is self._hook:
            threading.setprofile(None)

    def look(self) -> list[tuple[str, Span | None]]:
        """What is to be noted; from here on, only what comes now has happened."""
        self.happened = bool(self.busy)
        found, self.places = self.places, []
        return found

    def _born(self, _frame: FrameType, _event: str, _arg: Any) -> None:
        """The first thing that runs in a new thread."""
        sys.setprofile(None)
        if not self._is_over:
            Recorder(_Hearing(self), self._sources).__enter__()

    def hear(self, op: str, span: Span | None) -> None:
        """Another thread uses torch for the first time."""
        if (op, span) not in self._known:
            self._known.add((op, span))
            self.places.append((op, span))

    def go_on(self) -> None:
        """From now on, something happens all the time: another process has part of the memory."""
        self.happened = True
        self.busy.add(0)

    def begin(self) -> None:
        """A call of another thread begins."""
        self.happened = True
        self.busy.add(threading.get_ident())

    def end(self) -> None:
        """It has ended."""
        self.busy.discard(threading.get_ident())
        self.happened = True


class _Hearing:
    """A :class:`pitfall_lab.observe.recorder.Listener` in another thread."""

    lane: Lane | None = None

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere
        self._is_known = False

    def _hear(self, op: str, span: Span | None) -> None:
        if not self._is_known:
            self._is_known = True
            self._elsewhere.hear(op, span)

    def before(self, call: Call) -> Verdict:
        self._hear(call.name, call.span)
        self._elsewhere.begin()
        # The history that is there already: what the call adds to it is this thread's.
        call.memory["history"] = [tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs))]
        return Verdict.RUN

    def after(self, call: Call, result: Any) -> None:
        tensor_facts.set_apart(
            [tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs, result))], call.memory["history"]
        )
        self._elsewhere.end()

    def failed(self, _call: Call, _error: BaseException) -> None:
        self._elsewhere.end()

    cut_short = failed

    def composed(self, _call: Call, _result: Any) -> None:
        """Composites run as one call here."""

    def asked(self, _real: Any) -> None:
        """What it is asked for, it makes."""

    def given(self, *_given: Any) -> None:
        """The optimizers of another thread are not followed."""

    def passed_over(self, region: Region, span: Span | None, _scope: tuple[str, ...]) -> None:
        self._hear(region.name, span)
        self._elsewhere.happened = True

    def missed(self, _span: Span | None) -> None:
        """After such a failure this thread still uses torch."""
        self._elsewhere.happened = True

    def stopped(self, *_why: Any) -> None:
        """A failure of ours: what this thread does is not heard any more."""
        self._elsewhere.end()
