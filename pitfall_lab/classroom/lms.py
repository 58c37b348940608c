"""The marks as learning management systems import them: Moodle, Canvas, Blackboard, each by its documented columns.
:func:`write` writes such a table and returns its path.

- Moodle, “Grade import”: any columns, of which the teacher maps one to the student (ID number or e-mail
  address), one to the grade item,
  and one to its feedback; a feedback without its grade would lose the grade. UTF-8. Its importer gives a line in which
  the column of the student is empty to the student of the line above, so such a line is left out.
- Canvas, its gradebook importer: ``Student``, ``ID``, ``SIS User ID``, ``SIS Login ID``, ``Section``, then
  assignments (``Name (number)``
  is an existing one); a second line ``Points Possible``. Whose numbers and logins it does not
  know is the first of that name.
- Blackboard Learn, “Upload grades”: ``Username`` identifies the student; a column ``Name [Total Pts: 4 Score]
  |number`` is an existing one,
  without the number it is new; every cell of a comma-delimited file is quoted.

None of them has a place for versions of packages: these are in ``grades.csv``. An empty cell takes away the mark that
is there (Moodle and Canvas write it as no mark), so who has none here has no line. Each person has one line at most:
whose a submission is, is settled before.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.ledger import NAME as OVERRIDES
from pitfall_lab.classroom.ledger import LedgerLine, called
from pitfall_lab.classroom.register import write_whole
from pitfall_lab.classroom.roster import NAME as ROSTER
from pitfall_lab.classroom.roster import listed, shown
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.whose import folded, last_and_first
from pitfall_lab.cli import Refusal

_NUMBERED = {
    "canvas": re.compile(r"(?P<name>.+) \(\d+\)"),
    "blackboard": re.compile(r"(?P<name>[^|]+?)(?: \[Total Pts:[^|]*\])? ?\|\d+"),
}
"""The names of columns that these systems have already, as their exports write them: with a number of their own."""
_TAKEN_BY_CANVAS = re.compile("(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")
_NO_STUDENT = ("Points Possible", "Points_Possible")
"""Canvas reads a line with this name as the maximal points of the assignment: a student of that
name would change them for all.
"""
_STUDENT = {"moodle": 0, "canvas": 2, "blackboard": 2}
"""The column by which a system knows a student."""
_MOODLE = ("ID number", "Username", "Email address")
"""The columns of Moodle's table that can identify a student."""
Table = list[list[str]]


@dataclass(frozen=True, slots=True)
class _Class:
    """The students whose marks go into the table (``entries``), and the roster columns by which Moodle or Canvas finds
    them.

    ``everybody``: all entries, also without a mark.
    """

    entries: Sequence[LedgerLine]
    everybody: Sequence[LedgerLine]

    def known(self, entry: LedgerLine, what: str) -> str:
        """The student's ``what``, a field of the roster such as ``"ident"``; "" if the roster does not have it.

        ``person.student`` takes the place of a missing name, and of a missing id or login if the roster has none for
        anybody.
        """
        known = str(getattr(entry.person, what))
        unnamed = what == "name" or (what in {"ident", "login"} and not self._has_ids)
        return known or (entry.person.student if unnamed else "")

    @property
    def _has_ids(self) -> bool:
        return any(entry.person.ident or entry.person.login for entry in self.everybody)

    def who(self, entry: LedgerLine) -> list[str]:
        """The cells for the columns by which Moodle can find a student, in the order of ``_MOODLE``: ID number,
        username, e-mail address; "" where it is not known.
        """
        person = entry.person
        ids = [person.ident, person.login] if person.email else [self.known(entry, "ident"), self.known(entry, "login")]
        return [*ids, person.email]

    @property
    def mapped(self) -> int:
        """The index in ``_MOODLE`` of the column by which Moodle finds students: the first that most students have."""
        filled = [sum(bool(self.who(entry)[at]) for entry in self.entries) for at in range(len(_MOODLE))]
        return filled.index(max(filled))

    def ids_in_canvas(self, entry: LedgerLine) -> list[str]:
        """The cells by which Canvas finds a student: its own number first, and the name where all of them are empty."""
        who = entry.person
        return (
            [who.number, who.ident, who.login]
            if who.number
            else ["", self.known(entry, "ident"), self.known(entry, "login")]
        )


def _moodle(column: str, _most: float, people: _Class) -> Table:
    rows = [[*people.who(each), people.known(each, "name"), _mark(each), _feedback(each)] for each in people.entries]
    return [[*_MOODLE, "Full name", column, f"{column} (feedback)"], *rows]


def _canvas(column: str, most: float, people: _Class) -> Table:
    if _TAKEN_BY_CANVAS.search(column):
        raise Refusal(f"Canvas keeps columns called like “{column}” for itself; give another name with --column.")
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column]
    possible = ["    Points Possible", "", "", "", "", f"{most:g}"]
    names = [" ".join(people.known(each, "name").split()).replace(*_NO_STUDENT) for each in people.entries]
    rows = [
        [name, *people.ids_in_canvas(each), each.person.section, _mark(each)]
        for name, each in zip(names, people.entries, strict=True)
    ]
    return [head, possible, *rows]


def _blackboard(column: str, most: float, people: _Class) -> Table:
    name, _, number = column.partition("|")
    title = name.strip() if "[Total Pts:" in name else f"{name.strip()} [Total Pts: {most:g} Score]"
    head = ["Last Name", "First Name", "Username", "Student ID", f"{title} |{number.strip()}" if number else title]
    rows = []
    for each in people.entries:
        login = people.known(each, "login") or each.person.student
        rows.append([*last_and_first(people.known(each, "name")), login, people.known(each, "ident"), _mark(each)])
    return [head, *rows]


SYSTEMS: dict[str, Callable[[str, float, _Class], Table]] = {
    "moodle": _moodle,
    "canvas": _canvas,
    "blackboard": _blackboard,
}


def _passed_on(system: str, entries: Sequence[LedgerLine]) -> tuple[_Class, list[LedgerLine]]:
    """The students whose marks go into the table, and those with a mark who are left out.

    Left out are students whom the system could confuse with another one: for Moodle those without the mapped column,
    for Canvas those with neither number, id nor login whose name others have, too.
    """
    everybody = [entry for entry in entries if entry.listed]
    people = _Class([entry for entry in everybody if entry.is_decided], everybody)
    left: list[LedgerLine] = []
    if system == "moodle":
        left = [entry for entry in people.entries if not people.who(entry)[people.mapped]]
    elif system == "canvas":
        names = Counter(folded(entry.person.name) for entry in everybody)
        left = [
            each
            for each in people.entries
            if not any(people.ids_in_canvas(each)) and names[folded(each.person.name)] > 1
        ]
    return _Class([entry for entry in people.entries if entry not in left], everybody), left


def about(system: str, entries: Sequence[LedgerLine], column: str = "", titles: Sequence[str] = ()) -> str:
    """Sentences for the teacher on the table of marks, as one text, each after a space: which column to map, who is not
    in it, and which students the system can find only by something less certain than an id, such as the name. Empty if
    there is nothing to say.

    ``column`` is what the marks' column is called, ``titles`` are the columns of the roster: it may be the system's own
    gradebook.
    """
    people, left = _passed_on(system, entries)
    names = called(entries)

    def those(some: Sequence[LedgerLine]) -> str:
        return listed([names[entry.row.student] for entry in some])

    said = []
    if system in _NUMBERED and column and not _NUMBERED[system].fullmatch(column):
        said.append(f"“{column}” is a new column there, having no number{_there(system, column, titles)}.")
    if system == "moodle":
        column = _MOODLE[_passed_on("", entries)[0].mapped]
        said.append(f"Map “{column}” to the same in Moodle.")
        said += [f"Not in it, since the roster has no {column} of theirs: {those(left)}."] if left else []
    elif left:
        said.append(
            f"Not in it, since Canvas would find them by the name alone, which others have, too: {those(left)}."
        )
    if system == "canvas" and (by_name := [each for each in people.entries if not any(people.ids_in_canvas(each))]):
        said.append(f"Found by the name, having neither number, id nor login: {those(by_name)}.")
    if system == "blackboard" and (other := [each for each in people.entries if not each.person.login]):
        said.append(f"Without a login, so that the id or what stands for it is the Username: {those(other)}.")
    if open_ := [entry for entry in entries if entry.listed and entry.has_mark and not entry.is_decided]:
        said.append(
            f"Not in it, since what they handed in could not be graded and {OVERRIDES} has no mark: {those(open_)}."
        )
    return "".join(f" {sentence}" for sentence in said)


def other_points(system: str, column: str, possible: Mapping[str, float], most: float) -> str:
    """A sentence if the gradebook that serves as roster has other points than ``most`` for the column that the marks
    are written into; "" if not. ``possible`` has the points of the gradebook's columns by their titles.
    """
    pattern = _NUMBERED.get(system)
    theirs = next((points for title, points in possible.items() if _same_column(pattern, title, column)), most)
    return f" In {ROSTER}, {shown(column)} is out of {theirs:g}: set the same points there." if theirs != most else ""


def _same_column(pattern: re.Pattern[str] | None, title: str, column: str) -> bool:
    """Whether two column titles name the same item of the gradebook: equal titles, or the same number in them."""
    numbers = [re.search(r"\|\s*(\d+)|\((\d+)\)$", text) for text in (title, column)]
    return title == column or bool(
        pattern and all(numbers) and numbers[0] and numbers[1] and numbers[0].groups() == numbers[1].groups()
    )


def _there(system: str, column: str, titles: Sequence[str]) -> str:
    """The end of a sentence that names the roster's column with this name, which a teacher may want to write into.

    "" if the roster's file has no such column.
    """
    named = [
        title for title in titles if (found := _NUMBERED[system].fullmatch(title)) and found["name"].strip() == column
    ]
    return (
        f"; {ROSTER} has {shown(named[0])} already: {shlex.join(['--column', named[0]])} writes into that one"
        if named
        else ""
    )


def _mark(entry: LedgerLine) -> str:
    return f"{entry.total:g}"


def _feedback(entry: LedgerLine) -> str:
    return "; ".join(entry.remarks(to_student=True))


def place(grades: Path, system: str) -> Path:
    """The path of the table for a learning management system."""
    return grades.with_suffix(f".{system}.csv")


def title(assignment: Assignment, column: str | None) -> str:
    """What the marks' column is called: ``column``, if the teacher has said it, else the name of the assignment."""
    return " ".join((column or assignment.name).split())


def write(
    grades: Path, system: str, assignment: Assignment, entries: Sequence[LedgerLine], column: str | None = None
) -> Path:
    """Write the table for the learning management system ``system`` beside ``grades`` and return its path. ``column``
    is what its column of marks is called (None: as the assignment).

    Raises :class:`~pitfall_lab.cli.Refusal` if two students would be found by one cell, if Canvas keeps columns of that
    name for itself, or if the file cannot be written.
    """
    path = place(grades, system)
    most = sum(assignment.worth(key) for key in assignment.keys)
    people, _ = _passed_on(system, entries)
    text = io.StringIO()
    quoting: Literal[0, 1] = csv.QUOTE_ALL if system == "blackboard" else csv.QUOTE_MINIMAL
    name = title(assignment, column)
    lines, all_lines = (
        SYSTEMS[system](name, most, each) for each in (people, _Class(people.everybody, people.everybody))
    )
    at = _passed_on("", entries)[0].mapped if system == "moodle" else _STUDENT[system]
    known = Counter(line[at] for line in all_lines if line[at])  # who has no mark could get another's
    if twice := next((word for word, count in known.items() if count > 1), None):
        raise Refusal(
            f"{path} would have two lines for {shown(twice)}; give each person of {ROSTER} an id and "
            "a login of their own."
        )
    csv.writer(text, quoting=quoting).writerows([[plain(cell) for cell in line] for line in lines])
    write_whole(path, text.getvalue())
    return path
