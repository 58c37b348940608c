"""What has been answered and solved so far, as one picture: ``pitfall_lab.progress()``. The function returns an
:class:`Overview`, which a notebook draws.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape

from pitfall_lab.lessons import boxes
from pitfall_lab.lessons.chapters import CHAPTERS
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.progress import Progress, ProgressError, load
from pitfall_lab.trace import Language, T

MOST_BELIEFS = 3

_TITLE = T(en="Your progress", zh="你的进度")
_HEAD = (T(en="chapter", zh="章"), T(en="exercises solved", zh="已解练习"), T(en="questions right", zh="答对的问题"))
_ELSEWHERE = T(en="elsewhere", zh="其他")
_NOTHING = T(en="Nothing has been answered yet.", zh="还没有作答。")
_BELIEFS = T(en="Beliefs that your answers fitted most often:", zh="你的回答最常符合的信念：")
_TORN = T(en="{n} lines of the file could not be read.", zh="文件中有 {n} 行无法读取。")
_KEPT = T(
    en="Kept in the file pitfall-lab-progress.jsonl beside the notebooks; nothing leaves this machine.",
    zh="保存在笔记本旁的 pitfall-lab-progress.jsonl 中；不会离开这台机器。",
)


@dataclass(frozen=True, slots=True)
class ChapterRow:
    """One chapter in the overview.

    ``number`` has two digits (empty for answers that belong to no chapter). ``exercises`` is the number of the
    chapter's exercises and ``solved`` how many of them are solved; ``answered`` is the number of answered questions and
    ``right`` how many of them were answered right.
    """

    number: str
    title: T
    solved: int
    exercises: int
    right: int
    answered: int

    @property
    def part(self) -> float:
        """The fraction of the chapter's exercises, from 0 to 1, that are solved; 0 if it has none."""
        return self.solved / self.exercises if self.exercises else 0.0


@dataclass(frozen=True, slots=True)
class Overview:
    """The learner's progress with a row for each chapter; it is shown as a table in a notebook.

    ``beliefs`` are misconceptions (keys) with how many answers fitted each, most frequent first; ``torn`` is the number
    of lines in the progress file that could not be read; ``problem`` is why the file could not be read at all (empty:
    it could).
    """

    rows: tuple[ChapterRow, ...]
    beliefs: tuple[tuple[str, int], ...] = ()
    torn: int = 0
    problem: str = ""
    language: Language = "en"

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        """Return the table as plain text and as HTML without scripts (escaped)."""
        return {"text/plain": str(self), "text/html": self._page()}

    def __str__(self) -> str:
        """Return the table as text."""
        if self.problem:
            return self.problem
        say = self.language
        lines = [_TITLE.say(say)]
        for row in self.rows:
            counted = f"{row.solved}/{row.exercises}" + (f"  {row.right}/{row.answered}" if row.answered else "")
            lines.append(f"{row.number}  {row.title.say(say):<44} {counted}")
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        say = self.language
        started = any(row.solved or row.answered for row in self.rows)
        notes = [] if started or self.beliefs else [_NOTHING.say(say)]
        if self.beliefs:
            notes.append(_BELIEFS.say(say))
            notes += [f"  {MISCONCEPTIONS[key].belief.say(say)} ({count}×)" for key, count in self.beliefs]
        if self.torn:
            notes.append(_TORN.say(say).format(n=self.torn))
        return notes

    def _page(self) -> str:
        say = self.language
        if self.problem:
            return boxes.box("progress", say, boxes.line(self.problem))
        head = "".join(
            f'<th scope="col" style="text-align:left;padding:2px 12px">{escape(text.say(say))}</th>' for text in _HEAD
        )
        body = "".join(_row(row, say) for row in self.rows)
        grid = f'<table style="margin:4px 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        notes = "".join(boxes.line(note) for note in self._notes())
        return boxes.box(
            "progress", say, boxes.line(_TITLE.say(say), strong=True), grid, notes, boxes.quiet(_KEPT.say(say))
        )


def _row(row: ChapterRow, language: Language) -> str:
    cell = '<td style="text-align:left;padding:2px 12px">'
    filled = f"background:linear-gradient(to right,#009E73 {row.part:.0%},transparent {row.part:.0%})"
    edge = "display:inline-block;width:6em;height:0.7em;margin-right:8px;border:1px solid var(--jp-border-color1,#888)"
    bar = f'<span aria-hidden="true" style="{edge};{filled}"></span>'
    right = f"{row.right}/{row.answered}" if row.answered else ""
    title = (
        f'<th scope="row" style="text-align:left;padding:2px 12px;font-weight:normal">{row.number} '
        f"{escape(row.title.say(language))}</th>"
    )
    return f"<tr>{title}{cell}{bar}{row.solved}/{row.exercises}</td>{cell}{right}</td></tr>"


def progress(folder: str | os.PathLike[str] = ".", language: Language = "en") -> Overview:
    """An overview of what has been answered and solved, from the progress file in ``folder``.

    It has the chapters that have exercises or answered questions. If the file cannot be read, nothing is raised: the
    overview says so.
    """
    try:
        kept = load(folder)
    except ProgressError as problem:
        return Overview((), problem=str(problem), language=language)
    beliefs = tuple((key, count) for key, count in kept.beliefs().items() if key in MISCONCEPTIONS)[:MOST_BELIEFS]
    return Overview(tuple(_rows(kept)), beliefs, kept.torn, language=language)


def _rows(kept: Progress) -> list[ChapterRow]:
    best = kept.best()
    rows = []
    chapters = [(f"{chapter.number:02}", chapter.title) for chapter in CHAPTERS]
    for number, title in (*chapters, ("", _ELSEWHERE)):
        keys = [key for key, exercise in exercises().items() if exercise.chapter == number]
        solved = sum((number, key) in best and best[number, key].solved for key in keys)
        asked = [entry for (where, _), entry in best.items() if where == number and entry.kind == "question"]
        if keys or asked:
            rows.append(ChapterRow(number, title, solved, len(keys), sum(entry.solved for entry in asked), len(asked)))
    return rows
