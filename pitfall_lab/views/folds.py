"""Finds loops in the event log: repeated sequences of the same operations from the same places in the source.
:func:`folds` returns each as its first step, the length of a turn and the number of turns.
"""

from __future__ import annotations

from typing import Any, TypedDict

from pitfall_lab.trace import Trace

LONGEST = 400
FEWEST = 3
"""A block must repeat at least this often: folding twice the same saves nothing."""


class Fold(TypedDict):
    """A repeated run of events: its ``first`` step, the number of events in one iteration (``length``), and of
    iterations.
    """

    first: int
    length: int
    times: int


def folds(trace: Trace) -> list[Fold]:
    """Repeated runs of events, in order and without overlap: first step, events per iteration, number of iterations.

    A run has at least ``FEWEST`` iterations and six events in all, and at most ``LONGEST`` events per iteration. A
    program of 700 events that does the same seven operations a hundred times is one fold of length 7, times 100.
    """
    keys = [_key(event) for event in trace.events]
    found: list[Fold] = []
    i = 0
    following = _next_same(keys)
    while i < len(keys):
        best = (0, 0)
        j = following[i]
        while j is not None and j - i <= LONGEST:
            length, times = j - i, _turns(keys, i, j - i)
            if times >= FEWEST and length * times > best[0] * best[1]:
                best = (length, times)
                break  # the shortest period that repeats is the loop's body; longer ones are multiples of it
            j = following[j]
        if best[0] * best[1] >= 6:
            found.append({"first": i, "length": best[0], "times": best[1]})
            i += best[0] * best[1]
        else:
            i += 1
    return found


def _key(event: Any) -> tuple[Any, ...]:
    span = event.span
    return (event.kind, event.op, (span.source, span.line, span.column) if span else None)


def _next_same(keys: list[tuple[Any, ...]]) -> list[int | None]:
    last: dict[tuple[Any, ...], int] = {}
    out: list[int | None] = [None] * len(keys)
    for i in range(len(keys) - 1, -1, -1):
        out[i] = last.get(keys[i])
        last[keys[i]] = i
    return out


def _turns(keys: list[tuple[Any, ...]], start: int, length: int) -> int:
    times = 1
    while keys[start + times * length : start + (times + 1) * length] == keys[start : start + length]:
        times += 1
    return times
