"""The marks as learning management systems import them: Moodle, Canvas, Blackboard, each by its documented columns.

- Moodle, “Grade import”: any columns, of which the teacher maps one to the student (ID number or e-mail address), one to the grade item,
  and one to its feedback; a feedback without its grade would lose the grade. UTF-8.
- Canvas, its gradebook importer: ``Student``, ``ID``, ``SIS User ID``, ``SIS Login ID``, ``Section``, then assignments (``Name (number)``
  is an existing one); a second line ``Points Possible``. An empty cell changes nothing.
- Blackboard Learn, “Upload grades”: ``Username`` identifies the student; a column ``Name [Total Pts: 4 Score] |number`` is an existing one,
  without the number it is new; every cell of a comma-delimited file is quoted.

None of them has a place for versions of packages: these are in ``grades.csv``. Who did not hand in has an empty
cell, but for a mark that the teacher gave. Each person has one line: whose a submission is, is settled before.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.ledger import Entry
from pitfall_lab.classroom.register import plain, write_whole
from pitfall_lab.classroom.roster import NAME as ROSTER
from pitfall_lab.classroom.roster import shown
from pitfall_lab.cli import Refusal

_TAKEN_BY_CANVAS = re.compile("(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")
_STUDENT = {"moodle": 0, "canvas": 2, "blackboard": 2}
"""The column by which a system knows a student."""
_MAPPED = 3
"""The number of columns of Moodle's table that can identify a student."""
Table = list[list[str]]


def _moodle(column: str, _most: float, entries: Sequence[Entry]) -> Table:
    head = ["ID number", "Username", "Email address", "Full name", column, f"{column} (feedback)"]
    rows = []
    for entry in entries:
        # an address is in a column of its own, by which Moodle can find the student
        who = [entry.person.ident, entry.person.login] if entry.person.email else [_known(entry, "ident"), _known(entry, "login")]
        rows.append([*who, entry.person.email, _known(entry, "name"), _mark(entry), _feedback(entry)])
    return [head, *rows]


def to_map(entries: Sequence[Entry]) -> str:
    """A sentence on the column by which Moodle finds students: the first that all have, else the one that most have."""
    listed = [entry for entry in entries if entry.listed]
    head, *lines = _moodle("", 0, listed)
    filled = {head[at]: sum(bool(line[at]) for line in lines) for at in range(_MAPPED)}
    column = max(filled, key=lambda name: filled[name])
    lacking = len(lines) - filled[column]
    more = f" {lacking} of {len(lines)} have none, and are left out there." if lacking else ""
    return f"Map “{column}” to the same in Moodle.{more}"


def _canvas(column: str, most: float, entries: Sequence[Entry]) -> Table:
    if _TAKEN_BY_CANVAS.search(column):
        raise Refusal(f"Canvas keeps columns called like “{column}” for itself; give another name with --column.")
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column]
    possible = ["    Points Possible", "", "", "", "", f"{most:g}"]
    rows = []
    for entry in entries:
        # Canvas finds a student by its own number first, and by the name where nothing else fits: two may have it
        who = entry.person
        ids = [who.number, who.ident, who.login] if who.number else ["", _known(entry, "ident"), _known(entry, "login")]
        rows.append([_known(entry, "name"), *ids, who.section, _mark(entry)])
    return [head, possible, *rows]


def _blackboard(column: str, most: float, entries: Sequence[Entry]) -> Table:
    name, _, number = column.partition("|")
    title = name.strip() if "[Total Pts:" in name else f"{name.strip()} [Total Pts: {most:g} Score]"
    head = ["Last Name", "First Name", "Username", "Student ID", f"{title} |{number.strip()}" if number else title]
    rows = []
    for entry in entries:
        last, first = _last_and_first(_known(entry, "name"))
        rows.append([last, first, _known(entry, "login") or entry.person.student, _known(entry, "ident"), _mark(entry)])
    return [head, *rows]


SYSTEMS: dict[str, Callable[[str, float, Sequence[Entry]], Table]] = {"moodle": _moodle, "canvas": _canvas, "blackboard": _blackboard}


def _known(entry: Entry, what: str) -> str:
    """A field of the roster for a student. Where the roster has neither id nor login, and for the name, the submission's name is used."""
    person = entry.person
    known = str(getattr(person, what))
    unnamed = what == "name" or (what in {"ident", "login"} and not person.ident and not person.login)
    return known or (person.student if unnamed else "")


def _mark(entry: Entry) -> str:
    return f"{entry.total:g}" if entry.has_mark else ""


def _feedback(entry: Entry) -> str:
    return "; ".join(entry.remarks(to_student=True)) if entry.has_mark else ""


def _last_and_first(name: str) -> tuple[str, str]:
    """The last and the first name: split at the comma of “Müller, Max”; without a comma the last word is the last name."""
    if "," in name:
        last, _, first = name.partition(",")
    else:
        first, _, last = name.rpartition(" ")
    return last.strip(), first.strip()


def place(grades: Path, system: str) -> Path:
    """The path of the table for a learning management system."""
    return grades.with_suffix(f".{system}.csv")


def write(grades: Path, system: str, assignment: Assignment, entries: Sequence[Entry], column: str | None = None) -> Path:
    """Write the table beside ``grades`` and return where. Raises :class:`~pitfall_lab.cli.Refusal`."""
    path = place(grades, system)
    most = sum(assignment.worth(key) for key in assignment.keys)
    listed = [entry for entry in entries if entry.listed]
    text = io.StringIO()
    quoting: Literal[0, 1] = csv.QUOTE_ALL if system == "blackboard" else csv.QUOTE_MINIMAL
    lines = SYSTEMS[system](" ".join((column or assignment.name).split()), most, listed)
    at = _STUDENT[system]
    known = Counter(line[at] for line in lines if line[at])
    if twice := next((word for word, count in known.items() if count > 1), None):
        raise Refusal(f"{path} would have two lines for {shown(twice)}; give each person of {ROSTER} an id and a login of their own.")
    csv.writer(text, quoting=quoting).writerows([[plain(cell) for cell in line] for line in lines])
    write_whole(path, text.getvalue())
    return path
