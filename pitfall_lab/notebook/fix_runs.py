"""Runs of changed programs behind an Explorer that is drawn already: fixes one by one, and
what the reader wants to try.

They run in one process per kernel, which is kept warm and ends with the kernel; a thread waits for it, so the notebook
does not. Between two runs the newest request comes first: a cell that the reader runs, or a change that the reader
tries, does not wait until the fixes of all other cells were tried, and these continue afterwards.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pitfall_lab.trace import T, Trace

if TYPE_CHECKING:
    from pitfall_lab.check import Subject, Workshop
    from pitfall_lab.check.improvement import RunFacts
    from pitfall_lab.check.trials import SearchProgress
    from pitfall_lab.rules import Finding

R = TypeVar("R")
NOT_CARRIED = T(
    en="No fix was tried: {names} of an earlier cell cannot be taken along into another process.",
    zh="没有尝试修改：前面单元格中的 {names} 无法带到另一个进程里。",
)


class Stopped(Exception):
    """Raised when the reader has stopped the runs."""

    text = T(en="it was stopped.", zh="已停止。")


class Bench:
    """The process in which changed programs run, and the files with the values that these programs take from earlier
    cells.

    ``lock`` is held while that process is used; ``running`` is the request whose run is in progress (None: none is).
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: Turn | None = None
        #: The requests in progress, the newest last, and the condition under which this list changes.
        self._turns: list[Turn] = []
        self._changed = threading.Condition()
        self._shop: Workshop | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def start(self) -> None:
        """Start the process in the background, and nothing else: a cell may be running.

        It imports torch with low priority.
        """
        threading.Thread(target=self._start, name="pitfall_lab start", daemon=True).start()

    def _start(self) -> None:
        with self.lock, contextlib.suppress(OSError):
            self.shop().warm()

    def warm(self) -> None:
        """Start the process in the background: it takes as long as importing torch.

        What this process will need is imported meanwhile.
        """
        threading.Thread(target=self._warm, name="pitfall_lab warm-up", daemon=True).start()

    def _warm(self) -> None:
        from pitfall_lab.check import Subject, Unchecked

        with self.lock, contextlib.suppress(Unchecked, OSError):
            self.shop().warm()
            import pitfall_lab.rules
            import pitfall_lab.views.document
            import pitfall_lab.widgets.explorer  # noqa: F401

            # An optimizer makes torch import more, for a second and longer. Where one was made, programs
            # that are tried make one too.
            late = ".optim" if "torch._dynamo" in sys.modules else ""
            self.shop().witness(Subject(f"import torch{late}", "warm-up"))

    def shop(self) -> Workshop:
        """The workshop of this kernel; call it with the lock held."""
        from pitfall_lab.check import Workshop
        from pitfall_lab.observe.rounds import SHOWN

        shop = self._shop  # closing the bench takes it away at any moment
        if shop is None:
            shop = self._shop = Workshop(behind=True, every_round=False, after=SHOWN)
            shop.__enter__()
        return shop

    def enter(self, turn: Turn) -> None:
        """Begin a request; it comes before all earlier ones."""
        with self._changed:
            self._turns.append(turn)

    def leave(self, turn: Turn) -> None:
        """End a request: the newest of the others continues."""
        with self._changed:
            self._turns.remove(turn)
            self._changed.notify_all()

    def wait(self, turn: Turn) -> None:
        """Return when no newer request than ``turn`` is in progress, or when this one was stopped or has ended."""
        with self._changed:
            self._changed.wait_for(lambda: turn.is_over or turn not in self._turns or turn is self._turns[-1])

    def wake(self) -> None:
        """Wake the threads in :meth:`wait`, so that each tests again whether it may run: a request was stopped."""
        with self._changed:
            self._changed.notify_all()

    def keep(self, values: bytes) -> str:
        """Write the values that a program takes from earlier cells to a file that the process can read.

        Return its path, empty for no values.
        """
        if not values:
            return ""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pitfall-lab-")
        self._files += 1
        path = Path(self._folder.name) / f"{self._files}.values"
        path.write_bytes(values)
        return str(path)

    def interrupt(self) -> None:
        """End the run that is in progress in the other process, and start a new process for the next run; do nothing if
        there is no process yet.
        """
        if self._shop is not None:
            self._shop.interrupt()
            self.warm()

    def close(self) -> None:
        """End the process."""
        shop, self._shop = self._shop, None
        if shop is not None:
            shop.interrupt()
            with self.lock:
                shop.__exit__(None, None, None)
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def forget(self) -> None:
        """In a forked process: forget the process and the files, which belong to the parent,
        without ending or deleting them.
        """
        shop = self._shop
        for folder in (self._folder, shop.folder if shop is not None else None):
            if folder is not None:
                folder._finalizer.detach()  # type: ignore[attr-defined]  # noqa: SLF001 - tempfile has no other way
        self.lock, self.running, self._shop, self._folder = threading.Lock(), None, None, None
        self._turns, self._changed = [], threading.Condition()


@cache
def bench() -> Bench:
    """The bench of this process; its worker process ends when this one does."""
    made = Bench()
    atexit.register(made.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.forget)
    return made


class Lab:
    """What one Explorer can try: the fixes of its findings, and other texts of its program.

    ``subject`` is the program and ``trace`` its recorded run, with the findings ``found``. ``left`` are names that
    could not be taken along from earlier cells: if there are any, nothing can be tried.
    """

    def __init__(
        self, bench: Bench, subject: Subject, trace: Trace, found: Sequence[Finding], left: tuple[str, ...] = ()
    ) -> None:
        self._bench, self._subject, self._trace, self._found = bench, subject, trace, list(found)
        self._turns: set[Turn] = set()
        names = ", ".join(f"`{name}`" for name in left)
        self.said = T(NOT_CARRIED.en.format(names=names), NOT_CARRIED.zh.format(names=names)) if left else None
        """Why nothing can be tried, if so."""
        self.stopped = False

    def trials(self) -> Iterator[SearchProgress]:
        """Try the fixes of the findings one by one, and yield the progress after each, with the findings and the fixes
        that work so far.

        Raises :class:`Stopped` if the runs were stopped, and :class:`~pitfall_lab.check.workshop.Unchecked` if the run
        did not end by itself, or could not be observed.
        """
        from pitfall_lab.check.trials import trying

        with self._turn() as turn:
            yield from trying(turn, self._subject, self._trace, found=self._found)

    def rerun(self, text: str) -> Trace:
        """Run the program with ``text`` in place of its own, and return the trace.

        Raises :class:`Stopped` if the runs were stopped, and :class:`~pitfall_lab.check.workshop.Unchecked` if the run
        did not end by itself, or could not be observed.
        """
        with self._turn() as turn:
            return turn.trace(replace(self._subject, source=text))

    def stop(self) -> None:
        """End all runs of this Explorer; called from another thread."""
        self.stopped = True
        for turn in list(self._turns):
            turn.stop()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Turn]:
        turn = Turn(self._bench)
        self._turns.add(turn)
        self._bench.enter(turn)
        try:
            yield turn
        finally:
            self._turns.discard(turn)
            self._bench.leave(turn)


class Turn:
    """The runs that one request of the reader needs: they are stopped together.

    Each run waits while a newer request is in progress. The methods are those of a workshop
    (:class:`~pitfall_lab.check.workshop.Workshop`).
    """

    spoiled = False
    """No recording here looks closely for numbers that are not finite."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._over = bench, threading.Event()
        self.said = ""
        """What the last run printed."""

    def stop(self) -> None:
        """End these runs now."""
        self._over.set()
        self._bench.wake()
        if self._bench.running is self:
            self._bench.interrupt()

    @property
    def is_over(self) -> bool:
        """Whether these runs were stopped."""
        return self._over.is_set()

    def trace(self, subject: Subject, *, whole: bool = True) -> Trace:
        """Run ``subject`` on both engines and return the trace. Unless ``whole``, a trace in which no rule finds
        anything has no events.

        Raises :class:`Stopped` if the runs were stopped, and :class:`~pitfall_lab.check.workshop.Unchecked` if the run
        did not end by itself, or could not be observed.
        """
        return self._run(lambda shop: shop.trace(subject, whole=whole))

    def facts(self, subject: Subject) -> RunFacts:
        """Run ``subject`` on both engines and return what decides whether it is better than another version.

        Raises :class:`Stopped` if the runs were stopped, and :class:`~pitfall_lab.check.workshop.Unchecked` if the run
        did not end by itself, or could not be observed.
        """
        return self._run(lambda shop: shop.facts(subject))

    def witness(self, subject: Subject, *, meant: bool = False) -> dict[str, Any]:
        """Run ``subject`` on torch alone and return what it computed. With ``meant``, saved tensors are cloned, so that
        later writes do not change them.

        Raises :class:`Stopped` if the runs were stopped, and :class:`~pitfall_lab.check.workshop.Unchecked` if the run
        did not end by itself, or could not be observed.
        """
        return self._run(lambda shop: shop.witness(subject, meant=meant))

    def _run(self, run: Callable[[Workshop], R]) -> R:
        self._bench.wait(self)
        with self._bench.lock:
            if self._over.is_set():
                raise Stopped
            self._bench.running = self
            try:
                shop = self._bench.shop()
                found = run(shop)
            except Exception:
                if self._over.is_set():
                    raise Stopped from None
                raise
            finally:
                self._bench.running = None
            self.said = shop.said
            return found
