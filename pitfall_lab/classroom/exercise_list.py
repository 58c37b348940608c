"""The exercises that a teacher can choose from: ``pitfall-lab classroom exercises``, and the page
``docs/exercises.md``. :func:`listing` returns the former as text, :func:`page` the latter.

``python -m pitfall_lab.classroom.exercise_list`` writes the page; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable

from pitfall_lab.lessons.chapters import CHAPTERS, Chapter
from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.resources import DOCS
from pitfall_lab.trace import Language

PAGE = DOCS / "exercises.md"
WORDS, LINES, SOLVING = 180, 20, 8
"""Words and lines that are read in a minute, and minutes to solve an exercise: as the chapters' minutes are counted."""

_HEAD = """\
# Exercises

What there is for `pitfall-lab classroom init --exercises 4.1 12.2` ([for teachers](classroom.md)). `pitfall-lab classroom exercises`
prints the same list, `pitfall-lab classroom preview` writes the tasks and answers of an assignment. A chapter's title leads to its page
for teachers.

*predict*: say what code does before it runs. *repair*: a given function is wrong. *write*: complete a function. *make it fail*: write
what breaks a belief. *find and fix*: a longer program has a pitfall. Minutes are an estimate for who works alone: {solving} for solving,
and the time to read task and cell.
"""  # noqa: E501


def minutes(exercise: Exercise) -> int:
    """How long an exercise takes alone: an estimate from its task and its cell, not a measurement."""
    return round(len(exercise.task.en.split()) / WORDS + exercise.given.count("\n") / LINES + SOLVING)


def by_chapter(numbers: Iterable[int] | None = None) -> list[tuple[Chapter, list[Exercise]]]:
    """Pairs of a chapter and its exercises, both in the order of their numbers.

    Only the chapters with these ``numbers`` (None: all). Chapters without exercises are left out.
    """
    found = []
    for chapter in CHAPTERS:
        own = [exercise for exercise in exercises().values() if exercise.chapter == f"{chapter.number:02}"]
        if own and (numbers is None or chapter.number in numbers):
            found.append((chapter, sorted(own, key=lambda exercise: int(exercise.key.partition(".")[2]))))
    return found


def listing(numbers: Iterable[int] | None = None, language: Language = "en") -> str:
    """The exercises of the chapters with these ``numbers`` (None: all), as lines for a terminal: key, kind, minutes and
    title of each.
    """
    lines = []
    for chapter, own in by_chapter(numbers):
        lines += ["", f"{chapter.number:02} {chapter.title.say(language)}"]
        lines += [f"  {each.key:5} {_kind(each):14} {minutes(each):2} min  {each.title.say(language)}" for each in own]
    return "\n".join(lines[1:])


def page() -> str:
    """The Markdown text of ``docs/exercises.md``: a table of exercises for each chapter."""
    lines = [_HEAD.format(solving=SOLVING)]
    for chapter, own in by_chapter():
        place = chapter.file.replace(".ipynb", ".md")
        lines += [
            f"## [{chapter.number:02} {chapter.title.en}](teaching/{place})\n",
            "| | exercise | kind | minutes |",
            "|---|---|---|---|",
        ]
        lines += [f"| {each.key} | {each.title.en} | {_kind(each)} | {minutes(each)} |" for each in own]
        lines.append("")
    return "\n".join(lines)


def _kind(exercise: Exercise) -> str:
    return exercise.kind.replace("-", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
