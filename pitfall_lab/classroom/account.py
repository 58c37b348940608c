"""The last lines of ``pitfall-lab grade``: what became of everything that was there, and what is left to do. Nothing is lost silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.ledger import NAME as OVERRIDES
from pitfall_lab.classroom.ledger import Entry, Override
from pitfall_lab.classroom.roster import NAME as ROSTER
from pitfall_lab.classroom.roster import shown
from pitfall_lab.classroom.submissions import Submission

SHOWN = 5
"""So many names are printed; all of them are in the table."""


def tell(grades: Path, entries: Sequence[Entry], found: Sequence[Submission], skipped: Sequence[str], *, fenced: bool) -> None:
    """Print how many submissions have which verdict, and each kind of thing that a teacher has to look at."""
    handed = [entry for entry in entries if not entry.row.absent]
    counts = Counter(entry.row.verdict for entry in handed).most_common()
    kept = "" if fenced else " Nothing kept the submissions from your files."
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    print(f"{len(handed)} submission{'s' * (len(handed) != 1)}: {said}. The table is in {grades}.{kept}")
    if skipped:
        print(f"Not read, since these are no submissions: {_names(skipped)}.")
    for line in _people(entries, found):
        print(line)


def _people(entries: Sequence[Entry], found: Sequence[Submission]) -> Iterable[str]:
    names = {entry.row.student: entry.person.name or entry.row.student for entry in entries}
    if several := [names[submission.student] for submission in found if submission.parts]:
        yield f"Several files of one person, read as one submission: {_names(several)}. The notes in the table say which."
    if strangers := [entry.row.student for entry in entries if not entry.listed]:
        yield (
            f"Not in the roster, and so in no table for another system: {_names(strangers)}. Who is in the class under another name: "
            f"write what the submission is called into the column student of {ROSTER}, and grade with --resume."
        )
    absent = [entry for entry in entries if entry.row.absent]
    if without := [entry.person.name or entry.row.student for entry in absent if not entry.has_mark]:
        yield f"Handed in nothing, and have no mark: {_names(without)}."
    if marked := [entry.person.name or entry.row.student for entry in absent if entry.has_mark]:
        yield f"Handed in nothing, and have a mark of yours: {_names(marked)}."


def warn(assignment: Assignment, overrides: Sequence[Override]) -> None:
    """Print what is allowed in the teacher's files and may be a slip, and how the deadline was read."""
    if assignment.due is not None:
        print(f"The deadline is {datetime.fromtimestamp(assignment.due).astimezone():%Y-%m-%d %H:%M (UTC%z)}.")
    if assignment.points and (without := [key for key in assignment.keys if key not in assignment.points]):
        print(f"[points] has no line for {_names(without)}: each counts 1.")
    most = sum(assignment.worth(key) for key in assignment.keys)
    for each in overrides:
        worth = assignment.worth(each.key) if each.key else most
        if each.points > worth:
            print(f"{OVERRIDES} gives {shown(each.student)} {each.points:g} points for {each.key or 'all'}, which is worth {worth:g}.")


def _names(names: Sequence[str]) -> str:
    """How many, and the first of them."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} ({', '.join(shown(name) for name in names[:SHOWN])}{more})"
