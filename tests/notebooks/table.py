"""What each chapter holds, one row each: ``python -m tests.notebooks.table``; ends with 1 where a bound of the second edition is not kept.

``minutes`` are computed from what is there, for a reader who does everything once: prose at 180 words a minute, code at 20 lines, 2 for a
question, half a minute for any other prediction, 3 for an Explorer or a figure with sliders, 1 for a claim in the flow, 8 for an exercise,
4 for the program from practice. The ledger is not counted: it says itself how long it takes.
``screens`` is the longest stretch without something to do, where a screen is 45 lines of code or of prose (15 words to a line).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pitfall_lab.lessons import chapters
from pitfall_lab.lessons.exercises import exercises
from tests.notebooks.books import NAMES, code, read

TASKS = r"%%pitfall|%%exercise|%%check|pitfall_lab\.question\(|pitfall_lab\.play\(|pitfall_lab\.claims?\("
PREDICTIONS = r"\*\*(?:Predict|What if|Write down|Recall)"
DOING = r"\*\*(?:Predict|Investigate|Write down|Run it|Change|Try|Repair|What if)"
PICTURES = r"%%pitfall|pitfall_lab\.(?:show_\w+|play)\("
WORDS, SCREENS, EXERCISES, KINDS, LONG = 150, 2.0, 4, 3, 60
START = "00"


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one chapter."""

    name: str
    said: int
    minutes: int
    before: int
    screens: float
    pictures: int
    questions: int
    claims: int
    investigate: int
    kinds: Counter[str]
    asserts: int
    pauses: int

    def broken(self) -> list[str]:
        """The bounds that the chapter does not keep."""
        bounds = {
            f"{self.before} words before the first action": self.before <= WORDS,
            f"{self.screens:.1f} screens without something to do": self.screens <= SCREENS,
            f"says {self.said} minutes, has {self.minutes}": abs(self.said - self.minutes) <= max(5, 0.1 * self.minutes),
            f"{self.minutes} minutes and no pause": self.minutes <= LONG or self.pauses > 0,
            f"{self.kinds.total()} exercises of {len(self.kinds)} kinds": self._exercised(),
            "no Investigate": self.investigate > 0,
            f"{self.claims} claims in the flow": self.claims <= 8,
        }
        return [said for said, kept in bounds.items() if not kept]

    def _exercised(self) -> bool:
        """Whether there is enough to solve; the start has no exercises."""
        return self.name == START or (self.kinds.total() >= EXERCISES and len(self.kinds) >= KINDS)


def row(name: str) -> Row:
    """Count one chapter."""
    cells = read(name).cells
    flow = [c for c in cells[: next((n for n, c in enumerate(cells) if c.source.startswith("## The ledger")), len(cells))]]
    source = "\n".join(c.source for c in flow)
    stated = re.search(r"about (\d+) minutes", source)
    kinds = Counter(e.kind for e in exercises().values() if e.chapter == name[:2])
    asserts = sum(len(re.findall(r"^\s*assert ", c.source, re.MULTILINE)) for c in code(read(name)))
    claims = len(chapters.shown_in(source))
    questions = source.count("pitfall_lab.question(")
    return Row(
        name=name[:2],
        said=int(stated[1]) if stated else 0,
        minutes=round(_minutes(flow, questions, claims, kinds.total())),
        before=_before(cells),
        screens=_screens(flow),
        pictures=len(re.findall(PICTURES, source)),
        questions=questions,
        claims=claims,
        investigate=source.count("**Investigate"),
        kinds=kinds,
        asserts=asserts,
        pauses=source.count("**A pause.**"),
    )


def _minutes(flow: list[Any], questions: int, claims: int, tasks: int) -> float:
    shown = [c for c in flow if c.cell_type == "markdown" or not _quiet(c)]
    prose = sum(len(c.source.split()) for c in shown if c.cell_type == "markdown")
    lines = sum(_lines(c.source) for c in shown if c.cell_type == "code")
    played = len(re.findall(r"^%%pitfall|pitfall_lab\.play\(", "\n".join(c.source for c in flow), re.MULTILINE))
    predicted = sum(len(re.findall(PREDICTIONS, c.source)) for c in flow if c.cell_type == "markdown") - questions
    return prose / 180 + lines / 20 + 2 * questions + max(0, predicted) / 2 + 3 * played + claims + 8 * tasks + 4


def _quiet(cell: Any) -> bool:
    """A cell that is folded, or an exercise's or a claim's: its time is counted otherwise."""
    hidden = bool(cell.metadata.get("jupyter", {}).get("source_hidden"))
    return hidden or cell.source.startswith("%%exercise") or bool(chapters.shown_in(cell.source))


def _lines(source: str) -> int:
    return sum(bool(line.strip()) for line in source.splitlines())


def _before(cells: list[Any]) -> int:
    """Words from the title to the first thing to do; the setup is none."""
    words = 0
    for cell in cells:
        if cell.cell_type == "code" and re.search(TASKS, cell.source):
            break
        for paragraph in cell.source.split("\n\n") if cell.cell_type == "markdown" else ():
            words += len(paragraph.split())
            if re.search(DOING, paragraph):
                return words
    return words


def _screens(flow: list[Any]) -> float:
    """The longest stretch between two things to do, in screens."""
    at, places = 0.0, [0.0]
    for cell in flow:
        text = cell.source
        if cell.cell_type == "markdown":
            for paragraph in text.split("\n\n"):
                if re.search(DOING, paragraph):
                    places.append(at)
                at += 1 + len(paragraph.split()) / 15
        else:
            if re.search(TASKS, text):
                places.append(at)
            at += 0 if _quiet(cell) else 1 + _lines(text)
    return max(b - a for a, b in pairwise([*places, at])) / 45


def main() -> int:
    """Print the table and what is not kept."""
    print("    minutes said words screens pictures questions claims investigate asserts pauses exercises")
    rows = [row(name) for name in NAMES]
    for one in rows:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(one.kinds.items()))
        figures = (
            one.minutes,
            one.said,
            one.before,
            one.screens,
            one.pictures,
            one.questions,
            one.claims,
            one.investigate,
            one.asserts,
            one.pauses,
        )
        print("{:3s} {:7d} {:4d} {:5d} {:7.1f} {:8d} {:9d} {:6d} {:11d} {:7d} {:6d}".format(one.name, *figures), kinds)
    broken = [f"{one.name}: {said}" for one in rows for said in one.broken()]
    print("\n".join(broken) or "All bounds are kept.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
