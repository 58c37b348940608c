"""What a cell may cost the process that decides, whose time and memory have no limits of a cell's."""

from __future__ import annotations

import time
from typing import Any

from pitfall_lab.classroom.judge import MOST_PARTS, Limits, Room, judged
from pitfall_lab.classroom.unneeded import UNREAD, unneeded
from pitfall_lab.lessons.exercise import _loop
from pitfall_lab.lessons.exercises import exercises
from tests.classroom.eleventh_class import BRACES

NESTED = "".join(f"{' ' * n}def f{n}():\n" for n in range(90)) + f"{' ' * 90}x = {'1,' * 45_000}\n"
"""Ninety functions in one another, and a long line in the innermost."""


class _Full(Room):
    """A room whose report has more parts than are read."""

    def run(self, *_: Any) -> dict[str, Any]:
        return {"status": "done", "code": 0, "seconds": 1.0, "output": "", "report": "[" * (MOST_PARTS + 1)}


def test_a_text_of_braces_is_read_once() -> None:
    started = time.process_time()
    assert unneeded(f"x = {BRACES}") == (UNREAD,)
    assert unneeded("x = '{{0._y}'.format") == ("format",)
    assert time.process_time() - started < 5


def test_functions_in_one_another_are_searched_once_for_loops() -> None:
    started = time.process_time()
    assert _loop(NESTED) is None
    assert _loop(f"{NESTED}{' ' * 90}for y in x: pass\n") == 92
    assert time.process_time() - started < 4


def test_a_report_of_too_many_parts_is_not_read() -> None:
    outcome = judged(exercises()["12.1"], "reading = {}", _Full(), Limits())
    assert (outcome.status, outcome.detail, outcome.credit) == ("output", "more than a run may report", 0)
