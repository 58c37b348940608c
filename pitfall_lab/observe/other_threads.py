"""Observes that other threads of the program use torch (:class:`OtherThreads`).

Their calls are not recorded; the trace gets a note.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import Call, Lane, Recorder, Verdict
from pitfall_lab.observe.regions import Region
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Span, T


class OtherThreads:
    """What other threads have done with torch since the last :meth:`look`.

    ``happened`` is set to True when a call of theirs begins and when it ends; ``busy`` are the idents (``get_ident``)
    of the threads that are inside a call; ``places`` are the name of the first call of each thread and its span (None
    if unknown), those that :meth:`look` has not returned yet.
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
        """Observe threads started from now on, unless the program is being profiled: Python has only one profile
        function.
        """
        if threading.getprofile() is None:
            threading.setprofile(self._hook)

    def stop(self) -> None:
        """Stop observing new threads."""
        self._is_over = True
        if threading.getprofile() is self._hook:
            threading.setprofile(None)

    def look(self) -> list[tuple[str, Span | None]]:
        """Return the entries of ``places``, as pairs of a call's name and its span in the program (None if unknown),
        and remove them; an empty list if there are none.

        Sets ``happened`` to False unless a thread is inside a call now.
        """
        self.happened = bool(self.busy)
        found, self.places = self.places, []
        return found

    def _born(self, _frame: FrameType, _event: str, _arg: Any) -> None:
        """Profile function, called first in a new thread: install a recorder there and remove itself."""
        sys.setprofile(None)
        if not self._is_over:
            Recorder(_ThreadListener(self), self._sources).__enter__()  # type: ignore[no-untyped-call]

    def note(self, op: str, span: Span | None) -> None:
        """Keep ``op`` (a call's name) and ``span`` for :meth:`look`; the same call at the same span only once."""
        if (op, span) not in self._known:
            self._known.add((op, span))
            self.places.append((op, span))

    def assume_writes(self) -> None:
        """Treat memory as changed at any time from now on, because another process shares some of it."""
        self.happened = True
        self.busy.add(0)

    def begin(self) -> None:
        """Called before a call of another thread: record that one has happened, and that this thread is inside it."""
        self.happened = True
        self.busy.add(threading.get_ident())

    def end(self) -> None:
        """Called after a call of another thread: record that the thread is no longer inside it."""
        self.busy.discard(threading.get_ident())
        self.happened = True


class _ThreadListener:
    """The :class:`pitfall_lab.observe.recorder.Listener` of another thread."""

    lane: Lane | None = None

    def __init__(self, other_threads: OtherThreads) -> None:
        self._other_threads = other_threads
        self._is_known = False

    def _note(self, op: str, span: Span | None) -> None:
        if not self._is_known:
            self._is_known = True
            self._other_threads.note(op, span)

    def before(self, call: Call) -> Verdict:
        self._note(call.name, call.span)
        self._other_threads.begin()
        # The graph that exists already; the nodes that the call adds to it are this thread's.
        call.memory["history"] = [
            tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs))
        ]
        return Verdict.RUN

    def after(self, call: Call, result: Any) -> None:
        tensor_facts.set_apart(
            [tensor_facts.node_of(real) for real in argument_values.tensors((call.args, call.kwargs, result))],
            call.memory["history"],
        )
        self._other_threads.end()

    def failed(self, _call: Call, _error: BaseException) -> None:
        self._other_threads.end()

    cut_short = failed

    def composed(self, _call: Call, _result: Any) -> None:
        """Nothing to do: composites are one call here."""

    def grad_fn_read(self, _real: Any) -> None:
        """Nothing to do: a grad_fn that is regenerated here belongs to a later call."""

    def given(self, *_given: Any) -> None:
        """Nothing to do: the optimizers of other threads are not observed."""

    def passed_over(self, region: Region, span: Span | None, _scope: tuple[str, ...]) -> None:
        self._note(region.name, span)
        self._other_threads.happened = True

    def paused(self, _reason: T, _span: Span | None) -> None:
        """Nothing to do: these calls are not recorded."""

    def goes_on(self, _span: Span | None) -> bool:
        """Return True: a recording without a limit never pauses."""
        return True

    def leaves_out(self) -> None:
        """Nothing to do: these calls are not recorded."""

    returns = leaves_out

    def missed(self, _span: Span | None) -> None:
        """Called when the thread uses torch after its observation has failed: memory may have changed."""
        self._other_threads.happened = True

    def stopped(self, *_why: Any) -> None:
        """Called when the observation of this thread has failed; recording ends."""
        self._other_threads.end()
