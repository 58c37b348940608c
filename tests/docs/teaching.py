"""The head of each chapter's page for teachers: ``python -m tests.docs.teaching`` writes it from
the notebook and its exercises.

It has the notebook's link, the minutes that the notebook says (which ``python -m tests.notebooks.table`` counts), and
the exercises by title and kind. Everything below it is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from pitfall_lab.lessons.chapters import CHAPTERS, Chapter
from pitfall_lab.lessons.exercises import exercises
from tests.notebooks.books import read

FOLDER = Path(__file__).resolve().parents[2] / "pitfall_lab" / "docs" / "teaching"
_HEAD = re.compile(r"\A(# [^\n]*\n\n)(?:The notebook: .*?\n\n)?", re.DOTALL)


def page(chapter: Chapter) -> Path:
    """Where a chapter's page for teachers is."""
    return FOLDER / chapter.file.replace(".ipynb", ".md")


def minutes(chapter: Chapter) -> int:
    """How long a chapter takes alone with its exercises, as its notebook says."""
    said = re.search(r"about (\d+) minutes", read(chapter.file).cells[0].source)
    assert said, chapter.file
    return int(said[1])


def head(chapter: Chapter) -> str:
    """The paragraph below the title."""
    own = [exercise for exercise in exercises().values() if exercise.chapter == f"{chapter.number:02}"]
    titles = "; ".join(f"{each.key} {each.title.en.rstrip('?')} ({each.kind.replace('-', ' ')})" for each in own)
    link = f"[{chapter.file.removesuffix('.ipynb')}](../../../notebooks/{chapter.file})"
    return f"The notebook: {link}, about {minutes(chapter)} minutes alone, with its exercises: {titles}."


def written(chapter: Chapter, text: str) -> str:
    """The page with its head as it should be."""
    return _HEAD.sub(lambda found: f"{found[1]}{head(chapter)}\n\n", text, count=1)


if __name__ == "__main__":
    for each in CHAPTERS:
        page(each).write_text(written(each, page(each).read_text("utf-8")), "utf-8")
