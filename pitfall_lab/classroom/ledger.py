"""From outcomes to marks: late days are deducted, the teacher's own marks replace the grader's, absent students get a
line too. :func:`settled` returns the lines, :func:`write_grades` writes the table.

``overrides.csv`` (``student,exercise,points,note``) is the teacher's and is never written here, so what is in it
survives every grading. An empty ``exercise`` is the sum.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.register import SHOWN_OF_DIGEST, Row, write_whole
from pitfall_lab.classroom.roster import Faults, Person, number_in, shown, table
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.whose import Directory, by_name, exact
from pitfall_lab.cli import Refusal
from pitfall_lab.trace import Language, T

NAME = "overrides.csv"
_STRANGER = T(en="not in the roster", zh="不在名单中")
_UNDECIDED = frozenset({"absent", "unreadable", "unfinished"})
DAY = 86_400
DIGITS = 6
"""Digits after the point to which a sum of points is rounded, so that it is 0.3 and not 0.30000000000000004."""


@dataclass(frozen=True, slots=True)
class Override:
    """A mark that the teacher gives, in place of the grader's: ``points`` for the exercise ``key``, or for the whole
    assignment if ``key`` is "". ``student`` is a word for whom (:func:`named`), ``note`` the reason.
    """

    student: str
    key: str
    points: float
    note: str


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One student's line in the table of grades.

    ``row`` is the graded submission, ``person`` the student; ``points`` has those of each exercise by key (without
    exercises that could not be graded and have no mark of the teacher's). ``total`` is their sum less ``deducted``, or
    the teacher's mark for the whole; ``unrounded`` is the same before rounding. ``late``: by how many days, and
    ``deducted``: the points lost by that. ``notes`` are for teacher and student, ``asides`` for the
    teacher alone. ``listed``: the student is in the roster, or there is none. ``own``: the teacher gave at least one
    mark. ``timed``: there is a deadline, and the time of the submission is known. ``maybe``: this person has no
    submission, but one whose owner is unknown may be theirs. ``in_part``: the submission could not be graded as a
    whole, and the teacher gave marks for some of its exercises: the others count 0.
    """

    row: Row
    person: Person
    points: dict[str, float]
    total: float
    unrounded: float = 0.0
    late: int = 0
    deducted: float = 0.0
    notes: tuple[T, ...] = ()
    listed: bool = field(default=True)
    own: bool = False
    asides: tuple[T, ...] = ()
    timed: bool = False
    maybe: bool = False
    in_part: bool = False

    @property
    def received(self) -> float | None:
        """The time at which the submission came (seconds since 1970): that in the roster, else that of its files; None
        if there is no submission, or its time is not known.
        """
        return _received(self.row, self.person)

    @property
    def has_mark(self) -> bool:
        """Whether there is something to hand back: the student handed in something, or the teacher gave a mark."""
        return self.own or not self.row.absent

    @property
    def is_decided(self) -> bool:
        """Whether the points of the line are a mark. Where nothing was handed in, or it could not be read, or not be
        graded as a whole, they are one only if the teacher gave a mark.
        """
        return self.own or self.row.verdict not in _UNDECIDED

    def shown(self, key: str = "") -> str:
        """The points for the exercise ``key`` ("": the sum), as text for tables; "" where there is no mark."""
        points = (
            self.points.get(key, 0.0 if self.is_decided else None) if key else self.total if self.is_decided else None
        )
        return "" if points is None else f"{points:g}"

    def remarks(self, language: Language = "en", *, to_student: bool = False) -> list[str]:
        """Everything there is to say about the student's line besides numbers, as sentences; ``to_student``: without
        what is for the teacher alone.
        """
        notes = self.notes if to_student else (*self.asides, *self.notes)
        return [*self.row.remarks(language, to_student=to_student), *(note.say(language) for note in notes)]


def read_overrides(path: Path, assignment: Assignment, into: Faults | None = None) -> list[Override]:
    """The teacher's own marks in the table ``overrides.csv`` at ``path``; empty if the table has no lines.

    Raises :class:`~pitfall_lab.cli.Refusal` if the table cannot be read, and with all lines that cannot be used, or
    notes these lines in ``into``.
    """
    found: dict[tuple[str, str], Override] = {}
    faults = into or Faults()
    for line, cells in table(
        path, ("student", "exercise", "points", "note"), ("student",), faults, all_of=("points", "note")
    ):
        student, key, note = cells["student"], cells["exercise"], cells["note"]
        with faults.noted():
            if key and key not in assignment.keys:
                raise Refusal(f"{path}, line {line}: {shown(key)} is no exercise of this assignment.")
            if missing := [name for name in ("student", "points", "note") if not cells[name]]:
                raise Refusal(
                    f"{path}, line {line}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing."
                )
            if (student, key) in found:
                raise Refusal(f"{path}, line {line}: {shown(student)} has two marks for {key or 'the sum'}.")
            found[student, key] = Override(student, key, number_in(path, line, "points", cells["points"]), note)
    if into is None:
        faults.refuse()
    return list(found.values())


def counted(points: float) -> str:
    """A number of points in words.

    >>> counted(1), counted(0.5)
    ('1 point', '0.5 points')
    """
    return f"{points:g} point{'s' * (points != 1)}"


def in_all(entry: LedgerLine) -> str:
    """The sum of the line's points in words (``3.5 points``), or ``no mark`` if it has none."""
    return counted(entry.total) if entry.is_decided else "no mark"


def settled(
    assignment: Assignment,
    rows: Iterable[Row],
    people: Sequence[Person] | None = None,
    overrides: Sequence[Override] = (),
    directory: Directory | None = None,
) -> list[LedgerLine]:
    """The final lines: one for each graded submission in ``rows``, and one for each of ``people`` (the roster; None:
    there is none) without a submission, sorted by section and name.

    Raises :class:`~pitfall_lab.cli.Refusal` if the teacher's own marks (``overrides``) fit no student or several, or a
    student has two for the same (:func:`meant`). ``directory`` says whose each submission is (default: decided by names
    alone); there must not be two rows for one person.
    """
    rows = list(rows)
    directory = directory or Directory(people or (), (row.student for row in rows))
    persons = everybody((row.student for row in rows), people, directory)
    there = {row.student for row in rows}
    rows += [Row(student, "", absent=True) for student in persons if student not in there]
    own = meant(overrides, persons, directory)
    unclear = {
        each.student
        for name in there
        if people is not None and not persons[name]
        for each in directory.candidates(name)
    }
    entries = []
    for row in rows:
        person = persons[row.student]
        entry = _entry(assignment, row, person or Person(row.student), own.get(row.student, []))
        stranger = people is not None and person is None
        asides = (directory.doubt(row.student) or _STRANGER,) if stranger else ()
        entries.append(replace(entry, asides=asides, listed=not stranger, maybe=row.absent and row.student in unclear))
    return sorted(
        entries,
        key=lambda entry: (entry.person.section, *by_name(entry.person.name or entry.row.student), entry.row.student),
    )


def called(entries: Iterable[LedgerLine]) -> dict[str, str]:
    """What each student is called in sentences, by the name of the submission: the name in the roster (else the
    submission's), with the id if several students have that name.
    """
    entries = list(entries)
    alone = {entry.row.student: entry.person.name or entry.row.student for entry in entries}
    with_id = {
        entry.row.student: f"{entry.person.name} ({entry.person.ident or entry.row.student})"
        if entry.person.name
        else entry.row.student
        for entry in entries
    }
    # who is called “Ada Lovelace (1001)” is called as one of two others is here: that one has the id twice
    many, also = Counter(map(exact, alone.values())), Counter(map(exact, with_id.values()))
    found = {}
    for student, name in alone.items():
        is_taken = many[exact(name)] > 1 or also[exact(name)] > (with_id[student] == name)
        found[student] = with_id[student] if is_taken else name
    return found


def everybody(names: Iterable[str], people: Iterable[Person] | None, directory: Directory) -> dict[str, Person | None]:
    """The person of each submission in ``names`` under the submission's name (None where the roster has no such
    person), then each of ``people`` (the roster) without a submission under their ``student``. ``directory`` says whose
    each submission is.
    """
    persons = {name: directory.person(name) for name in names}
    there = {person.student for person in persons.values() if person}
    return persons | {person.student: person for person in people or () if person.student not in there}


def meant(
    overrides: Sequence[Override], persons: dict[str, Person | None], directory: Directory
) -> dict[str, list[Override]]:
    """The teacher's own marks by the name of the submission that each is for; ``persons`` is as :func:`everybody`
    returns it.

    Raises :class:`~pitfall_lab.cli.Refusal` if one fits no student or several, or a student has two marks for the same.
    """
    found: dict[str, list[Override]] = {}
    faults = Faults()
    for each in overrides:
        with faults.noted():
            rows = named(each.student, persons, directory)
            if not rows:
                raise Refusal(
                    f"{NAME} has a mark for {shown(each.student)}, which is no submission and no id, "
                    "login or name in the roster."
                )
            if len(rows) > 1:
                raise Refusal(
                    f"{NAME} has a mark for {shown(each.student)}, which fits {len(rows)} students: write the id."
                )
            of = found.setdefault(rows[0], [])
            if each.key in {other.key for other in of}:
                raise Refusal(f"{NAME}: {shown(each.student)} has two marks for {each.key or 'the sum'}.")
            of.append(each)
    faults.refuse()
    return found


def named(word: str, persons: dict[str, Person | None], directory: Directory) -> list[str]:
    """The names of the submissions that a teacher means with ``word``: what the submission is called, or an id, login,
    address or name in the roster. Empty if it fits none.

    ``persons`` has the person of each submission, None where that person is not in the roster.
    """
    if word in persons:
        return [word]
    person = directory.person(word)
    meant = directory.known(word) or ({person.student} if person else set())
    return [row for row, person in persons.items() if person and person.student in meant]


def write_grades(grades: Path, assignment: Assignment, entries: Sequence[LedgerLine], *, roster: bool = False) -> None:
    """Write the table of grades to ``grades``: a line for each entry. ``roster``: with columns for the roster's id,
    name, section, e-mail address and login.

    Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be written.
    """
    who = ("id", "name", "section", "email", "login") if roster else ()
    late = ("late_days", "deducted") if assignment.due is not None else ()
    last = ("notes", "received", "sha256", "assignment", "pitfall_lab", "torch", "unrounded")
    most = sum(assignment.worth(key) for key in assignment.keys)
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["student", *who, "verdict", "points", "of", "percent", *assignment.keys, *late, *last])
    for entry in entries:
        row, person = entry.row, entry.person
        known = [person.ident, person.name, person.section, person.email, person.login] if roster else []
        share = f"{100 * entry.unrounded / most if most else 0:.1f}" if entry.is_decided else ""
        sums = [row.verdict, entry.shown(), f"{most:g}", share]
        each = [entry.shown(key) for key in assignment.keys]
        days = [str(entry.late), f"{entry.deducted:g}"] if late else []
        received = _received(row, person)
        when = "" if received is None else _moment(received)
        unrounded = str(round(entry.unrounded, DIGITS)) if entry.is_decided else ""
        end = [
            "; ".join(entry.remarks()),
            when,
            row.digest[:SHOWN_OF_DIGEST],
            assignment.ident,
            *row.versions,
            unrounded,
        ]
        table.writerow([plain(cell) for cell in (row.student, *known, *sums, *each, *days, *end)])
    write_whole(grades, text.getvalue(), for_spreadsheets=True)


def _moment(seconds: float) -> str:
    """A time as text for the table; "" if its year cannot be written, since an archive may give a file any time."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""


def _entry(assignment: Assignment, row: Row, person: Person, own: Sequence[Override]) -> LedgerLine:
    graded = [outcome for outcome in row.outcomes if outcome.status != "ungraded"]
    exact = {outcome.key: outcome.credit * assignment.worth(outcome.key) for outcome in graded}
    points = {outcome.key: shown_points(outcome.credit, assignment.worth(outcome.key)) for outcome in graded}
    notes = []
    for each in own:
        if each.key:
            notes.append(_given(f"{each.key}: ", f"{each.key}：", each, points.get(each.key)))
            points[each.key] = exact[each.key] = each.points
    unrounded = sum(exact.values())
    before = _rounded_sum(points, exact)
    late, lost = _lateness(assignment, row, person)
    deducted = round(unrounded * lost, 2)  # of the points before they are rounded, as the sum is
    unrounded *= 1 - lost
    total = round(unrounded, 2) if lost else before
    if late:
        notes.append(_late_note(late, min(late, assignment.late_days), person.extra_days, deducted))
    timed = assignment.due is not None and _received(row, person) is not None
    for each in own:
        if not each.key:
            decided = row.verdict not in _UNDECIDED or len(own) > 1
            notes.append(_given("in all: ", "总分：", each, total if decided else None))
            total = unrounded = each.points
    in_part = (
        row.verdict in _UNDECIDED
        and bool(own)
        and all(each.key for each in own)
        and not set(assignment.keys) <= set(points)
    )
    return LedgerLine(
        row, person, points, total, unrounded, late, deducted, tuple(notes), own=bool(own), timed=timed, in_part=in_part
    )


def _given(en: str, zh: str, mark: Override, was: float | None) -> T:
    """A note that the teacher gave ``mark``, with the points that it replaces (``was``; None if there were none).

    ``en`` and ``zh`` are the beginning of the note: the exercise, or the whole assignment.
    """
    before = T(en=f" instead of {was:g}", zh=f"，原为 {was:g} 分") if was is not None else T(en="", zh="")
    return T(
        en=f"{en}{counted(mark.points)} by the teacher{before.en} ({mark.note})",
        zh=f"{zh}教师给 {mark.points:g} 分{before.zh}（{mark.note}）",
    )


def _rounded_sum(points: dict[str, float], exact: dict[str, float]) -> float:
    """The sum of the ``exact`` points, rounded to two digits; to six if no exercise's shown points were rounded."""
    whole = all(math.isclose(points[key], value, abs_tol=1e-9) for key, value in exact.items())
    return round(sum(exact.values()), DIGITS if whole else 2)


def shown_points(credit: float, worth: float) -> float:
    """The points for an exercise: ``credit`` (from 0 to 1) times ``worth``, rounded to two digits; exactly ``worth``
    for a solved one.
    """
    return worth if credit >= 1 else round(credit * worth, 2)


def _late_note(late: int, free: int, extra: float, deducted: float) -> T:
    """Say how late it was, what of it was free, and what it cost."""
    en, zh = f"{late} days late" if late > 1 else "one day late", f"迟交 {late} 天"
    if extra:
        en, zh = f"{en}, after {extra:g} extra day{'s' if extra != 1 else ''}", f"{zh}（已计入额外的 {extra:g} 天）"
    if free:
        en, zh = f"{en}, {'which is' if late == 1 else f'{free} of them'} free", f"{zh}，其中 {free} 天免扣"
    if not deducted:
        return T(en=f"{en}; nothing deducted", zh=f"{zh}；不扣分")
    return T(en=f"{en}; {counted(deducted)} deducted", zh=f"{zh}；扣 {deducted:g} 分")


def _received(row: Row, person: Person) -> float | None:
    """The time at which a submission came: that in the roster, else that of its files; None if there is none."""
    return None if row.absent else row.received if person.received is None else person.received


def _lateness(assignment: Assignment, row: Row, person: Person) -> tuple[int, float]:
    """The days that were begun after the deadline, and the share of the points (0 to 1) that they cost.

    A student's extra days do not count as late; the assignment's free days are late, and cost nothing.
    """
    received = _received(row, person)
    if assignment.due is None or received is None or row.absent:
        return 0, 0.0
    late = max(0, math.ceil((received - assignment.due) / DAY - person.extra_days))
    charged = max(0, late - assignment.late_days)
    return late, min(1.0, charged * assignment.late_penalty / 100)
