"""The points of each student in several assignments: whose lines in their tables are one person's. :func:`totals`
returns them as a table.

Lines are joined by what identifies a person best: the id; where it is not in both, the login, then the e-mail address,
then the full name, and at last what the submission is called. Lines of which a better column differs are of two people.
What fits several people joins none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pitfall_lab.classroom.analysis import graded, table
from pitfall_lab.classroom.ledger import DIGITS
from pitfall_lab.classroom.roster import listed, shown
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.whose import by_name, exact
from pitfall_lab.cli import Refusal

_BY = {
    "id": "the id",
    "login": "the login",
    "email": "the e-mail address",
    "name": "the full name",
    "student": "the submission's name",
}
"""What lines are joined by, the best first."""
_CURE = "The same id, login or e-mail address in both rosters joins them, after grading with --resume."
_ROUNDED = 0.0051
"""The difference that rounding to two digits can make, with some room for the last digit."""
_SHOWN = ("student", "id", "name", "section", "login", "email")
_VERSIONS = ("pitfall_lab", "torch")


@dataclass(slots=True, eq=False)
class _Person:
    """The lines of one person in the tables of grades, by the index of the table."""

    lines: dict[int, dict[str, str]]

    def words(self, column: str) -> set[str]:
        return {word for line in self.lines.values() if (word := _word(line, column))}

    def known(self, column: str) -> str:
        return next((line[column] for line in reversed(self.lines.values()) if line.get(column)), "")

    def all_of(self, column: str) -> list[str]:
        """The different cells of a column, in the order of the tables."""
        return [cell for cell in dict.fromkeys(line.get(column, "") for line in self.lines.values()) if cell]

    def called(self) -> str:
        return self.known("name") or self.known("student")


def _word(line: dict[str, str], column: str) -> str:
    """A cell of the table in the form in which it is compared; "" if it is empty.

    Ids and submissions' names are unchanged; other texts are compared without case, and names with the first name
    first.
    """
    text = line.get(column) or ""
    if column == "name":
        last, _, first = text.partition(",")
        text = f"{first} {last}"
    return text if column in {"id", "student"} else exact(text)


def totals(paths: Iterable[Path]) -> tuple[list[list[str]], list[str]]:
    """The points of each student in several graded assignments as rows of cells, and sentences on how they were joined.

    ``paths`` are the assignments' folders or their ``grades.csv``. The first row has the titles. There is a column for
    each assignment, then the sum of the points before rounding. A student who is not in an assignment's table, or has
    no mark there, has an empty cell, which counts 0. The last columns are the versions that graded, all of them if they
    differ. Raises :class:`~pitfall_lab.cli.Refusal` if an assignment has not been graded or is named twice, or a table
    cannot be read, has two lines for one person, or has no number where points should be.
    """
    files = [graded(path, "grades.csv") for path in paths]
    places = [grades.resolve() for grades in files]
    if twice := next((str(path) for path, count in Counter(places).items() if count > 1), None):
        raise Refusal(f"{twice} is named twice: its points would count twice.")
    tables = [table(grades) for grades in files]
    for grades, lines in zip(files, tables, strict=True):
        _refuse_twice(grades, lines)
    names = [place.parent.name if place.name == "grades.csv" else place.stem for place in places]
    if len(set(names)) < len(names):  # spring/week-1 and autumn/week-1
        names = [str(grades.parent if grades.name == "grades.csv" else grades) for grades in files]
    most = sum(_number(grades, lines[0]["of"]) for grades, lines in zip(files, tables, strict=True))
    people, said = _joined(tables, names)
    rows = [[*_SHOWN, *names, "points", "of", "percent", *_VERSIONS]]
    for person in sorted(
        people,
        key=lambda each: (
            each.known("section"),
            *by_name(each.known("name") or each.known("student")),
            each.known("student"),
        ),
    ):
        points = {
            number: _number(files[number], line["points"]) for number, line in person.lines.items() if line["points"]
        }
        each = [f"{points[n]:g}" if n in points else "" for n in range(len(names))]
        exact = {number: _exact(files[number], person.lines[number], shown) for number, shown in points.items()}
        total = round(sum(exact.values()), DIGITS if exact == points else 2)
        share = f"{100 * sum(exact.values()) / most if most else 0:.1f}"
        by = [", ".join(person.all_of(name)) for name in _VERSIONS]
        rows.append([*(person.known(name) for name in _SHOWN), *each, f"{total:g}", f"{most:g}", share, *by])
    return [[plain(cell) for cell in row] for row in rows], said


def _refuse_twice(grades: Path, lines: Sequence[dict[str, str]]) -> None:
    """Raise :class:`~pitfall_lab.cli.Refusal` if two lines of a table have the same id, login or submission's name."""
    for column in ("id", "login", "student"):
        counts = Counter(word for line in lines if (word := _word(line, column)))
        if twice := next((word for word, count in counts.items() if count > 1), None):
            raise Refusal(f"{grades} has two lines for {shown(twice)}; grade it again with --resume.")


def _joined(tables: Sequence[Sequence[dict[str, str]]], names: Sequence[str]) -> tuple[list[_Person], list[str]]:
    """The people of all tables, and sentences that say by what they were joined and who could not be."""
    people = [_Person({number: line}) for number, lines in enumerate(tables) for line in lines]
    counts: dict[str, int] = {}
    doubtful: list[_Person] = []
    for column in _BY:
        for same in _alike(people, column):
            if _are_one(same, column):
                _merge(same)
                counts[column] = counts.get(column, 0) + 1
            elif column == "name" and len({number for person in same for number in person.lines}) > 1:
                doubtful += same
        people = [person for person in people if person.lines]
    said = [f"Joined by {', '.join(f'{_BY[column]}: {count}' for column, count in counts.items())}."] if counts else []
    partly = [person for person in people if len(person.lines) < len(tables)]
    unsure, apart = ([person for person in partly if (person in doubtful) == several] for several in (True, False))
    for group, why in (
        (unsure, "Not joined, since several people have the name"),
        (apart, "Not in every table, or there under another name"),
    ):
        if group:
            places = [f"{each.called()}: only in {', '.join(names[n] for n in each.lines)}" for each in group]
            said.append(f"{why}: {listed(places)}. {_CURE}")
    return people, said


def _alike(people: Sequence[_Person], column: str) -> Iterator[list[_Person]]:
    """Yield each group of two or more people who have the same word in ``column``."""
    by_word: dict[str, list[_Person]] = {}
    for person in people:
        for word in person.words(column):
            by_word.setdefault(word, []).append(person)
    for found in by_word.values():
        same = [person for person in found if person.lines]
        if len(same) > 1:
            yield same


def _merge(same: Sequence[_Person]) -> None:
    """Add the lines of all people in ``same`` to the first one; the others are left without lines."""
    first, *others = same
    for other in others:
        first.lines |= other.lines
        other.lines = {}
    first.lines = dict(sorted(first.lines.items()))


def _are_one(people: Sequence[_Person], column: str) -> bool:
    """Whether people who share a word in ``column`` are one person.

    They are if no table has lines of two of them, and they do not differ in a column that identifies people better.
    """
    numbers = [number for person in people for number in person.lines]
    better = list(_BY)[: list(_BY).index(column)]
    return len(numbers) == len(set(numbers)) and all(
        len(set().union(*(p.words(name) for p in people))) < 2 for name in better
    )


def _exact(grades: Path, line: dict[str, str], points: float) -> float:
    """The points of a line before rounding: the cell ``unrounded``.

    If that cell is missing, or differs from ``points`` by more than rounding since ``points`` was changed by hand, it
    is ``points``.
    """
    exact = _number(grades, line.get("unrounded") or line["points"])
    return exact if abs(exact - points) < _ROUNDED else points


def _number(grades: Path, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refusal(f"{grades} has {shown(text)} where points should be.") from None
