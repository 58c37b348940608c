"""A budget of processor time for what the grader itself does with a student's files, texts and values. :class:`within`
sets one for a block.

A cell's own run has limits of its process. What it leaves (a notebook, a text, a report) is read by processes that have
none: whatever in them takes the square of what is there, it ends here, and costs one submission and not the class.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable

SECONDS = 20.0
"""Processor time that the grader spends on one cell, or on reading one submission, beside the cell's own runs: a
hundred times what the largest of this course takes.
"""


class Spent(KeyboardInterrupt):
    """The budget of processor time is spent. It is a KeyboardInterrupt, so that what catches the errors of a cell does
    not catch it.
    """


class within:  # noqa: N801 - it is written like a function
    """Raise :class:`Spent` in what this surrounds once its thread has used so many ``seconds`` (default:
    :data:`SECONDS`) of processor time; waiting costs nothing.

    It is raised between two steps of Python, in whatever thread this is (Dask's workers grade in threads that take no
    signals). One call of a C function is not interrupted: these have inputs of bounded size.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = SECONDS if seconds is None else seconds
        self._over, self._lock, self._is_raised = threading.Event(), threading.Lock(), False

    def __enter__(self) -> None:
        thread = threading.get_ident()
        used = _clock(thread)
        threading.Thread(target=self._watch, args=(thread, used, used() + self._seconds), daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._over.set()
        if self._is_raised and kind is not Spent:
            # It comes at the next step. To take it back would leave Python looking for it at every step: where lines
            # are counted, 3.11 then looks for ever.
            with contextlib.suppress(Spent):
                for _step in range(_STEPS):
                    pass

    def _watch(self, thread: int, used: Callable[[], float], most: float) -> None:
        while not self._over.wait(max(most - used(), 0.05)):
            with self._lock:
                if used() >= most and not self._over.is_set():
                    self._is_raised = True
                    _raise(thread)
                    return


_STEPS = 1000


def _clock(thread: int) -> Callable[[], float]:
    """Return a function that reads the processor time of a thread in seconds; of the process where the system cannot
    tell.
    """
    of = getattr(time, "pthread_getcpuclockid", None)
    if of is None:
        return time.process_time
    number = of(thread)
    return lambda: time.clock_gettime(number)


def _raise(thread: int) -> None:
    """Have a thread raise :class:`Spent` at its next step."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Spent))
