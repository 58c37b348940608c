"""The roster, ``roster.csv``: who is in the course, under which name a submission comes, who has more time.
:func:`read` returns its people.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pitfall_lab.cli import Refusal

NAME = "roster.csv"
_PARTS = ("last_name", "first_name")
COLUMNS = ("student", "id", "name", "section", "email", "login", "extra_days", "received")
_NUMBER = "number_in_canvas"
_WHO = ("student", "id", "login", "email", _NUMBER)
"""What a submission may be called; Canvas' list has no id and no login of who has not accepted the invitation yet."""
_EXPORTED = {
    "sis_user_id": "id",
    "id_number": "id",
    "student_id": "id",
    "sis_login_id": "login",
    "username": "login",
    "email_address": "email",
    "surname": "last_name",
}
"""What Canvas, Moodle and Blackboard call these columns in their lists of participants and in their gradebooks."""
_NO_PEOPLE = ("Points Possible", "Student, Test")
"""Lines that Canvas adds to its gradebook."""
_TOTAL = re.compile(r"\[Total Pts: *(?:up to +)?(\d+(?:\.\d+)?)")
"""How Blackboard's gradebook has the points of an item in the name of its column."""
MOST, MOST_FAULTS = 20_000, 20
SHOWN = 5
"""The largest number of names that are printed; the table has all of them."""
NEAR = 0.85
"""A column or setting that resembles a known one so much (difflib's ratio) is taken for a misspelling of it."""


@dataclass(frozen=True, slots=True)
class Person:
    """One line of the roster; a text is empty where the roster does not say it.

    ``student`` is what the submission is called; ``ident`` the student id, ``section`` the group of the course;
    ``name``, ``email`` and ``login`` are as the roster has them. ``extra_days`` are days that this person has beyond
    the deadline; ``received`` (seconds since 1970) replaces the files' own time (None: it does not). ``number`` is
    Canvas' own number of the student, which its names of submissions have.
    """

    student: str
    ident: str = ""
    name: str = ""
    section: str = ""
    email: str = ""
    login: str = ""
    extra_days: float = 0.0
    received: float | None = None
    number: str = ""


_END = "\ufdd0"
"""Written behind a table to see where it ends: a code point that is no character."""


class Faults:
    """Collects everything in the teacher's files that cannot be used, so that it is reported at once."""

    def __init__(self) -> None:
        self._said: list[str] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note a refusal instead of raising it."""
        try:
            yield
        except Refusal as problem:
            self.note(problem)

    def note(self, problem: Refusal) -> None:
        """Note a refusal."""
        self._said += str(problem).split("\n")

    def refuse(self) -> None:
        """Raise :class:`~pitfall_lab.cli.Refusal` with what was noted, a line for each (at most ``MOST_FAULTS``, and
        how many more there are); do nothing if nothing was.
        """
        if self._said:
            more = [f"… and {len(self._said) - MOST_FAULTS} more."] if len(self._said) > MOST_FAULTS else []
            raise Refusal("\n".join([*self._said[:MOST_FAULTS], *more]))


def read(path: Path, into: Faults | None = None) -> list[Person]:
    """The people in a roster (a CSV file), in its order.

    Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be read, and with all lines that cannot be used, or
    notes these lines in ``into``.
    """
    people: dict[str, Person] = {}
    words: set[str] = set()
    logins: set[str] = set()
    faults = into or Faults()
    for number, cells in table(path, (*COLUMNS, *_PARTS, _NUMBER), ("student", "id", "login", "email"), faults):
        if not cells["name"] and all(cells[part] for part in _PARTS):
            cells["name"] = ", ".join(cells[part] for part in _PARTS)
        if not cells["id"] and cells["name"] in _NO_PEOPLE:
            continue
        cells["student"] = student = next((cells[each] for each in _WHO if cells[each]), "")
        login = cells["login"].casefold()
        extra, received = 0.0, None
        with faults.noted():
            _refuse_twice(path, number, cells, words, logins)
        with faults.noted():
            extra = number_in(path, number, "extra_days", cells["extra_days"])
        with faults.noted():
            received = _moment(path, number, cells["received"])
        words |= {cells["id"], student} - {""}
        logins |= {login} - {""}
        known = {name: cells[name] for name in ("name", "section", "email", "login")}
        people.setdefault(
            student, Person(student, cells["id"], **known, extra_days=extra, received=received, number=cells[_NUMBER])
        )
    if into is None:
        faults.refuse()
    return [person for student, person in people.items() if student]


def titles(path: Path) -> list[str]:
    """The names of the columns in the first line of a roster; empty if the roster cannot be read.

    In an exported gradebook the graded items are among these columns.
    """
    try:
        first = path.read_bytes()[: 1 << 20].decode("utf-8-sig").partition("\n")[0]
        return [name.strip() for name in next(csv.reader([first], delimiter=_delimiter(first)), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def possible(path: Path) -> dict[str, float]:
    """The maximal points of the items of an exported gradebook, by the names of their columns.

    Canvas has them in the line “Points Possible”, Blackboard in the names. Empty if the roster has neither.
    """
    names = titles(path)
    found = {name: float(points[1]) for name in names if (points := _TOTAL.search(name))}
    with contextlib.suppress(OSError, UnicodeDecodeError, csv.Error):
        text = path.read_bytes()[: 1 << 20].decode("utf-8-sig", "replace")
        for line in itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)), 1, 3):
            if line and line[0].strip() == _NO_PEOPLE[0]:
                for name, cell in zip(names, line, strict=False):
                    with contextlib.suppress(ValueError):
                        found[name] = float(cell)
    return found


def _refuse_twice(path: Path, number: int, cells: dict[str, str], words: set[str], logins: set[str]) -> None:
    """Raise :class:`~pitfall_lab.cli.Refusal` for a line that names no student, or whose id, name or login is there
    already.

    ``words`` are the ids and names of submissions in earlier lines, ``logins`` their logins in lower case.
    """
    student = cells["student"]
    if not student:
        raise Refusal(f"{path}, line {number}: there is no student, id, login or email.")
    for word in dict.fromkeys((cells["id"], student)):
        if word in words:
            raise Refusal(f"{path}, line {number}: {shown(word)} is there twice.")
    if cells["login"].casefold() in logins:
        raise Refusal(f"{path}, line {number}: the login {shown(cells['login'])} is there twice.")


def table(
    path: Path, columns: Iterable[str], one_of: Iterable[str], faults: Faults, *, all_of: Iterable[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file, each as the number of its line and its values by the names of ``columns``.

    A value is ``""`` where the file has none; rows without any value are left out. ``faults`` gets lines with too many
    cells, which are left out. Raises :class:`~pitfall_lab.cli.Refusal` for a file that cannot be read or has more than
    ``MOST`` rows, that has none of the columns ``one_of`` or lacks one of ``all_of``, that has one of ``columns`` twice
    or a column whose name is nearly one of them, or in which a quotation mark is not closed.
    """
    columns = tuple(columns)
    try:
        text = path.read_bytes()[: 32 << 20].decode("utf-8-sig")
    except OSError as problem:
        raise Refusal(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise Refusal(f"{path} is not text in UTF-8; save it as CSV with that encoding.") from None
    found: list[tuple[int, dict[str, str]]] = []
    try:
        delimiter = _delimiter(text)
        # a row of its own behind the last one, unless a quotation mark that is not closed has swallowed it
        lines = csv.reader(io.StringIO(f"{text}\n{_END}", newline=""), delimiter=delimiter)
        first = next(lines, [])
        _refuse_open(path, 1, first)
        head = _head(path, [] if first == [_END] else first, columns, tuple(one_of), tuple(all_of))
        begin = lines.line_num + 1
        for line in lines:
            if line == [_END]:
                break
            _refuse_open(path, begin, line)
            begin = lines.line_num + 1
            try:
                _refuse_surplus(path, lines.line_num, head, line, delimiter)
            except Refusal as problem:
                faults.note(problem)
                continue
            cells = dict(zip(head, (cell.strip() for cell in line), strict=False))
            known = {name: cells.get(name, "") for name in columns}
            if any(known.values()):
                found.append((lines.line_num, known))
            if len(found) > MOST:
                raise Refusal(f"{path} has more than {MOST} lines.")
    except csv.Error as problem:
        raise Refusal(f"{path} is not a table that can be read: {problem}.") from None
    return found


def _head(
    path: Path, line: list[str], columns: tuple[str, ...], one_of: tuple[str, ...], all_of: tuple[str, ...]
) -> list[str]:
    """The names of a table's columns, in lower case, as the first line has them or translated to our names.

    Raises :class:`~pitfall_lab.cli.Refusal` if a needed column is missing, one is there twice, or one is nearly a known
    one.
    """
    written = [name.strip() for name in line]
    head = [name.lower().replace(" ", "_") for name in written]
    # Canvas writes "Student", and a teacher may put a "student" of her own beside it: the last one counts.
    if twice := [name for name, ours in zip(written, head, strict=True) if ours in columns and written.count(name) > 1]:
        raise Refusal(
            f"{path} has {written.count(twice[0])} columns {twice[0]}; which of them counts, it does not say."
        )
    head = _renamed(head) if "id" in columns else head
    if not set(one_of) & set(head):
        raise Refusal(f"{path} needs a first line with the names of its columns, one of them {' or '.join(one_of)}.")
    nears = {name: near for name in head if name not in columns and (near := nearest(name, set(columns) - set(head)))}
    if nears:
        said = [f"{path} has a column {shown(name)}, which is not read: is it {near}?" for name, near in nears.items()]
        raise Refusal("\n".join(f"{each} Give it that name, or another one." for each in said))
    if missing := [name for name in all_of if name not in head]:
        raise Refusal(f"{path} has no column {' and no column '.join(missing)}.")
    return head


def _refuse_open(path: Path, number: int, line: list[str]) -> None:
    """Raise :class:`~pitfall_lab.cli.Refusal` for a row that contains the end of the table: a quotation mark is not
    closed.
    """
    if line != [_END] and any(cell.endswith(_END) for cell in line):
        raise Refusal(f"{path}, line {number}: a quotation mark is not closed.")


def _refuse_surplus(path: Path, number: int, head: list[str], line: list[str], delimiter: str) -> None:
    """Raise for a line with more cells than there are columns: a comma in a name or a
    number has made two cells of one.
    """
    if any(cell.strip() for cell in line[len(head) :]):
        sign = {",": "comma", ";": "semicolon"}.get(delimiter, "tab")
        raise Refusal(
            f"{path}, line {number}: it has {len(line)} cells, and there are {len(head)} columns. "
            f"Put quotation marks around a cell that has a {sign} in it."
        )


def _renamed(head: list[str]) -> list[str]:
    """The columns of a roster by our names, where they are those of a list that a learning management system exports.

    >>> _renamed(["student", "id", "sis_user_id", "sis_login_id", "section"])
    ['name', 'number_in_canvas', 'id', 'login', 'section']
    >>> _renamed(["first_name", "last_name", "id_number", "email_address"]), _renamed(["student_id", "id"])
    (['first_name', 'last_name', 'id', 'email'], ['student_id', 'id'])
    """
    if {"sis_login_id", "sis_user_id"} & set(head):
        first = {head.index(name): ours for name, ours in (("student", "name"), ("id", _NUMBER)) if name in head}
        head = [first.get(place, name) for place, name in enumerate(head)]
    return [ours if (ours := _EXPORTED.get(name)) and ours not in head else name for name in head]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of ``known`` that is most like ``word`` and so may be meant by it; None if none is like it.

    >>> nearest("late_penality", ["late_penalty", "late_days"]), nearest("student_id", ["student", "id"])
    ('late_penalty', None)
    """
    return next(iter(difflib.get_close_matches(word, list(known), 1, NEAR)), None)


def _delimiter(text: str) -> str:
    """The character that separates columns in a table: the most frequent of comma, semicolon and tab in its
    first line.
    """
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def number_in(path: Path, line: int, column: str, text: str) -> float:
    """The number in a cell ``text`` of a table; an empty cell is 0.

    Raises :class:`~pitfall_lab.cli.Refusal` with the place (``path``, ``line``, ``column``) if it is no number from 0
    to a million.
    """
    try:
        value = float(text.replace(",", ".") or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e6:
        raise Refusal(f"{path}, line {line}: {column} must be a number from 0 on, not {shown(text)}.")
    return value


def _moment(path: Path, line: int, text: str) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Refusal(f"{path}, line {line}: received must be like 2026-11-20T23:59, not {shown(text)}.") from None


_QUOTES = re.compile("[“”„‟«»❝❞〝〞〟＂″‶ˮʺ״]")
"""Signs that look like those that we put around a text."""


def quoted(text: str) -> str:
    """A student's text in quotation marks, for a sentence of the grader; quotation marks in it become plain ones.

    So neither a file's name nor an error's text can end the quotation and look like a sentence of the grader.

    >>> quoted("x.pdf”; 1.2: 5 points by the teacher “y")
    '“x.pdf"; 1.2: 5 points by the teacher "y”'
    """
    return "“" + _QUOTES.sub('"', text) + "”"


def shown(text: str) -> str:
    """Return text from a file for quoting in a sentence: at most 60 characters, without control characters."""
    return quoted("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:60]))


def listed(names: Sequence[str]) -> str:
    """The number of ``names`` and the first ``SHOWN`` of them, as text, such as ``2 (“ada”, “bob”)``."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} ({', '.join(shown(name) for name in names[:SHOWN])}{more})"
