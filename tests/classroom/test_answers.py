"""Answers to exercises of all chapters: made to fit the grader, or right and unusual; a ninth of them
each day, some of each sort.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pitfall_lab.classroom.judge import Room
from tests.classroom.table import Answer, answers
from tests.turns import todays


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with Room() as made:
        yield made


@pytest.mark.parametrize(
    "answer",
    todays(answers(), of=24, kind=lambda answer: (answer.right, answer.worthless), every=3),
    ids=lambda answer: f"{answer.key} {answer.what}",
)
def test_an_answer_made_to_fit_is_not_solved_and_an_unusual_one_is(room: Room, answer: Answer) -> None:
    assert answer.faults(room) == ""
