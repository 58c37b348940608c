"""The budget of processor time for what the grader itself does."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pitfall_lab.classroom import grading_budget as budget
from pitfall_lab.classroom.judge import Limits, Room, judged
from pitfall_lab.classroom.submissions import Submission, read
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.turns import Turns


def test_what_takes_longer_is_ended_in_any_thread_and_what_waits_is_not() -> None:
    ended: list[bool] = []

    def work() -> None:
        try:
            with budget.within(0.2):
                while True:
                    pass
        except budget.Spent:
            ended.append(True)

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert ended == [True, True]
    with budget.within(0.2):
        time.sleep(0.5)


def test_nothing_is_raised_once_it_is_over() -> None:
    for _ in range(50):
        began = time.thread_time()
        try:
            with budget.within(0.02):
                while time.thread_time() < began + 0.02:
                    pass
        except budget.Spent:
            pass
        assert sum(range(10_000))


def test_lines_can_be_counted_afterwards() -> None:
    """Python 3.11 goes round for ever at a traced function's first step while it is told that something waits."""
    with budget.within(30):
        pass
    names: dict[str, Any] = {}
    exec(compile("def f():\n    return 1\n", "<cell>", "exec"), names)
    with Turns("<cell>") as turns:
        names["f"]()
    assert turns.count == 2


class _Told(Room):
    """A room whose report is as given."""

    def __init__(self, *values: Any) -> None:
        super().__init__()
        self.values, self.is_ended = values, False

    def run(self, requests: Any, *_: Any) -> dict[str, Any]:
        seen = {"error": None, "in_cell": False, "printed": "", "warned": [], "trace": None, "made": 0, "driven": 0}
        observed = [
            json.dumps({**seen, "values": [[e, v] for e, v in zip(r.expressions, self.values, strict=False)]})
            for r in requests
        ]
        report = json.dumps({"tampered": [], "skipped": [], "observations": observed})
        return {"status": "done", "code": 0, "seconds": 0.1, "output": "", "report": report}

    def end(self) -> None:
        self.is_ended = True


def test_keys_of_one_hash_cost_a_cell_and_not_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that differ by a multiple of Python's modulus have one hash, and a dict of them takes the square."""
    monkeypatch.setattr(budget, "SECONDS", 1.0)
    room = _Told({"dict": [[n * (2**61 - 1), 0] for n in range(60_000)]})
    judged(exercises()["12.1"], exercises()["12.1"].right[0], _Told(1), Limits())
    began = time.process_time()
    outcome = judged(exercises()["12.1"], "reading = {}", room, Limits())
    assert (outcome.status, room.is_ended) == ("ungraded", True)
    assert time.process_time() - began < 6


def test_a_submission_that_takes_too_long_to_read_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("pitfall_lab.classroom.submissions._read", endless)
    monkeypatch.setattr(budget, "SECONDS", 0.2)
    sheet = read(Submission("eve", (tmp_path / "eve.ipynb",)), ["12.1"])
    assert sheet.problem is not None
    assert "processor time" in sheet.problem.en
