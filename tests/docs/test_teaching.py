"""The pages for teachers: each says what its notebook says, and what its exercises show."""

from __future__ import annotations

import re

import pytest

from pitfall_lab.lessons.chapters import CHAPTERS, Chapter
from pitfall_lab.lessons.exercises import exercises
from tests.docs import teaching


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.file)
def test_a_page_says_what_its_notebook_says(chapter: Chapter) -> None:
    text = teaching.page(chapter).read_text("utf-8")
    assert teaching.written(chapter, text) == text, "python -m tests.docs.teaching writes it"
    assert text.count("minutes alone") == 1
    (time,) = re.findall(r"^\*\*Time\.\*\* .*$", text, re.MULTILINE)
    assert "lesson" in time


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.file)
def test_a_page_speaks_of_each_exercise(chapter: Chapter) -> None:
    text = teaching.page(chapter).read_text("utf-8")
    (said,) = re.findall(r"^\*\*Exercises\.\*\* (?:.+\n?)+", text, re.MULTILINE)
    own = [key for key, exercise in exercises().items() if exercise.chapter == f"{chapter.number:02}"]
    assert [key for key in own if key not in said] == []


def test_the_courses_page_says_how_long_a_chapter_takes() -> None:
    text = (teaching.FOLDER.parent / "chapters.md").read_text("utf-8")
    least, most = map(int, re.findall(r"a chapter takes (\d+) to (\d+) minutes", text)[0])
    assert [least, most] == [min(map(teaching.minutes, CHAPTERS)), max(map(teaching.minutes, CHAPTERS))]
