"""A budget of processor time for what the grader itself does with a student's files, texts and values.

A cell's own run has limits of its process. What it leaves (a notebook, a text, a report) is read by processes that have
none: whatever in them takes the square of what is there, it ends here, and costs one submission and not the class.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator

SECONDS = 20.0
"""Processor time that the grader spends on one cell, or on reading one submission, beside the cell's own runs: a
hundred times what the largest of this course takes.
"""


class Spent(KeyboardInterrupt):
    """The budget is spent. Like a Ctrl-C, it goes through everything that catches the errors of a cell."""


@contextlib.contextmanager
def within(seconds: float | None = None) -> Iterator[None]:
    """Raise :class:`Spent` here once this thread has used so many ``seconds`` (default: :data:`SECONDS`) of processor
    time; waiting costs nothing.

    It is raised between two steps of Python, in whatever thread this is (Dask's workers grade in threads that take no
    signals). One call of a C function is not interrupted: these have inputs of bounded size.
    """
    thread = threading.get_ident()
    used, over, lock = _clock(thread), threading.Event(), threading.Lock()
    most = used() + (SECONDS if seconds is None else seconds)

    def watch() -> None:
        while not over.wait(max(most - used(), 0.05)):
            with lock:
                if used() >= most and not over.is_set():
                    _raise(thread, Spent)
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            over.set()
            _raise(thread, None)  # what was raised too late for this is not raised in what comes next
        watcher.join()


def _clock(thread: int) -> Callable[[], float]:
    """Reads the processor time of a thread, in seconds; of the process where the system has no such clock."""
    of = getattr(time, "pthread_getcpuclockid", None)
    if of is None:
        return time.process_time
    number = of(thread)
    return lambda: time.clock_gettime(number)


def _raise(thread: int, kind: type[BaseException] | None) -> None:
    """Have a thread raise an exception of this kind at its next step; None: none that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind and ctypes.py_object(kind))
