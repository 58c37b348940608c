"""Item analysis: how often each property holds, what separates strong answers from weak ones, and the same across
terms. :func:`write` makes ``analysis.csv`` of one assignment, :func:`terms` a table of several terms.

What separates is the point-biserial correlation between having the property and the points for the *other* exercises:
near 1 it is the strong students who have it, near 0 strong and weak students have it alike, below 0 the question
misleads those who know most. With few students it is a guess, so it is given only for ten or more.
"""

from __future__ import annotations

import csv
import io
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.register import SHOWN_OF_DIGEST, Row, kept, write_whole
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.cli import Refusal

ENOUGH = 10
_KIND = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """A property of an exercise, or a misconception at a question, counted over the students.

    ``key`` is the exercise or question and ``name`` the property's sentence or the misconception's key. ``handed_in``
    is how many students have a graded cell for this exercise, missing and unchanged cells included (misconception: how
    many progress files name at least one misconception). ``answered`` is how many of these cells are neither missing
    nor unchanged (misconception: the same number as ``handed_in``). ``holds`` is how many students have the property or
    misconception. ``separates`` is the correlation, from -1 to 1, between having it and the points (property: those for
    the other exercises), as :func:`point_biserial` computes it; it may be None.
    """

    key: str
    name: str
    handed_in: int
    answered: int
    holds: int
    separates: float | None

    @property
    def share(self) -> float:
        """The fraction of students, from 0 to 1, who have the property or misconception; 0 if no student handed in
        anything.
        """
        return self.holds / self.handed_in if self.handed_in else 0.0


def properties(assignment: Assignment, rows: Sequence[Row], at: int = 0) -> list[Item]:
    """One item for each property of each exercise, counted over the students who handed in something readable and whose
    answer to that exercise could be graded.

    ``at`` is the language of the properties' sentences: 0 for English, 1 for Chinese.
    """
    found = []
    for key in assignment.keys:
        answers = [(row, outcome) for row in rows for outcome in row.outcomes if outcome.key == key and outcome.marks]
        rest = [sum(o.credit * assignment.worth(o.key) for o in row.outcomes if o.key != key) for row, _ in answers]
        answered = sum(outcome.status not in {"missing", "unsolved"} for _, outcome in answers)
        for n, mark in enumerate(answers[0][1].marks if answers else ()):
            has = [n < len(outcome.marks) and outcome.marks[n].holds for _, outcome in answers]
            found.append(Item(key, mark.sentence[at], len(has), answered, sum(has), point_biserial(has, rest)))
    return found


def misconceptions(assignment: Assignment, rows: Sequence[Row]) -> list[Item]:
    """One item for each misconception at each question, counted over the students whose progress file names at least
    one misconception.
    """
    with_beliefs = [row for row in rows if row.beliefs]
    sums = [row.points(assignment) for row in with_beliefs]
    pairs: list[_KIND] = sorted({pair for row in with_beliefs for pair in row.beliefs})
    marked = [(pair, [pair in row.beliefs for row in with_beliefs]) for pair in pairs]
    return [
        Item(item, belief, len(has), len(has), sum(has), point_biserial(has, sums)) for (belief, item), has in marked
    ]


def point_biserial(has: Sequence[bool], points: Sequence[float]) -> float | None:
    """The correlation, rounded to two digits, between having a property (``has``) and the ``points``.

    None for fewer than ten students, if all or none of them have the property, or if all have the same points.

    >>> point_biserial([True] * 6 + [False] * 6, [3.0] * 6 + [1.0] * 6), point_biserial([True] * 12, range(12))
    (1.0, None)
    """
    if len(has) < ENOUGH or len(set(has)) < 2 or len(set(points)) < 2:
        return None
    return round(statistics.correlation([float(each) for each in has], points), 2)


def write(path: Path, assignment: Assignment, rows: Sequence[Row]) -> None:
    """Write ``analysis.csv`` to ``path``: a line for each property of each exercise that someone handed in, and for
    each misconception at each question where a student has it, with how many students have it.

    Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be written.
    """
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(
        [
            "kind",
            "item",
            "what",
            "handed_in",
            "answered",
            "holds",
            "share",
            "separates",
            "assignment",
            "pitfall_lab",
            "torch",
        ]
    )
    by = _newest(rows)
    for kind, items in (
        ("property", properties(assignment, rows)),
        ("misconception", misconceptions(assignment, rows)),
    ):
        for item in items:
            separates = "" if item.separates is None else f"{item.separates:g}"
            cells = [
                kind,
                item.key,
                plain(item.name),
                item.handed_in,
                item.answered,
                item.holds,
                f"{item.share:.3f}",
                separates,
            ]
            table.writerow([*cells, assignment.ident, *by])
    write_whole(path, text.getvalue(), for_spreadsheets=True)


@dataclass(frozen=True, slots=True)
class _Term:
    """A graded assignment: its items, how many students' files were read, and the versions that graded them."""

    items: dict[tuple[str, str, str], Item]
    read: int
    with_beliefs: int
    versions: tuple[str, str]


def terms(paths: Iterable[Path]) -> list[list[str]]:
    """A table, as rows of cells, of how often each property and misconception was found in several terms.

    ``paths`` are graded folders or their state files. Each term has two columns: the share of its students who have the
    property or misconception, under a title with the number ``n`` of readable submissions, and the correlation with the
    points (:class:`Item`), where each exercise counts 1, since a state file has no points. The last lines are the
    number of students with a progress file and the versions of pitfall_lab and torch. Raises
    :class:`~pitfall_lab.cli.Refusal` if a folder has not been graded, or its state file cannot be read.
    """
    paths = list(paths)
    names = [path.name or str(path) for path in paths]
    if len(set(names)) < len(names):  # spring/week-1 and autumn/week-1
        names = [str(path) for path in paths]
    found = [_term(graded(path, "grades.state.jsonl")) for path in paths]
    every = dict.fromkeys(what for term in found for what in term.items)
    lines = [["kind", "item", "what"]]
    for name, term in zip(names, found, strict=True):
        lines[0] += [plain(f"{name} (n={term.read})"), plain(f"{name} separates")]
    for what in sorted(every, key=_in_order):
        line = [*map(plain, what)]
        for term in found:
            item = term.items.get(what)
            separates = "" if item is None or item.separates is None else f"{item.separates:g}"
            line += ["" if item is None else f"{item.share:.3f}", separates]
        lines.append(line)
    lines.append(["students", "", "with a progress file", *(c for term in found for c in (f"{term.with_beliefs}", ""))])
    for number, package in enumerate(("pitfall_lab", "torch")):
        lines.append(["version", package, "", *(cell for term in found for cell in (plain(term.versions[number]), ""))])
    return lines  # numbers as they are: a minus sign begins no formula


def _in_order(what: tuple[str, str, str]) -> tuple[bool, list[int], tuple[str, ...]]:
    """Sort key: properties by exercise number (ties: as found); then misconceptions, by their question."""
    kind, item, _ = what
    return (False, [int(n) for n in item.split(".")], ()) if kind == "property" else (True, [], what)


def _term(state: Path) -> _Term:
    try:
        head, rows = kept(state)
    except OSError as problem:
        raise Refusal(f"{state} cannot be read: {problem.strerror}.") from None
    listed = _listed(state)
    keys = head.get("exercises")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Refusal(f"{state} is no state file of `pitfall-lab grade`.")
    last = list({row.student: row for row in rows if _is_there(row, listed)}.values())
    assignment = Assignment("", "", tuple(keys))
    kinds = (("property", properties(assignment, last)), ("misconception", misconceptions(assignment, last)))
    items = {(kind, item.key, item.name): item for kind, found in kinds for item in found}
    read = sum(row.problem is None for row in last)
    return _Term(items, read, sum(bool(row.beliefs) for row in last), _newest(last))


def _newest(rows: Iterable[Row]) -> tuple[str, str]:
    """The highest versions (pitfall_lab, torch) that graded one of the rows, compared as text; two empty strings if
    none did.
    """
    return max((row.versions for row in rows if row.versions[0]), default=("", ""))


def _listed(state: Path) -> set[tuple[str, str]] | None:
    """The submissions (name, beginning of the digest) in the ``.csv`` table beside a state file; None if there is no
    table.
    """
    grades = state.with_name(state.name.removesuffix(".state.jsonl") + ".csv")
    if not grades.is_file() or grades == state:
        return None
    return {(line["student"], line["sha256"]) for line in table(grades)}


def _is_there(row: Row, listed: set[tuple[str, str]] | None) -> bool:
    """Whether a row of a state file is still in the table.

    The state file keeps what was graded once, also after the file was removed.
    """
    return listed is None or (plain(row.student), row.digest[:SHOWN_OF_DIGEST]) in listed


def graded(path: Path, name: str) -> Path:
    """The file ``name`` in the graded folder ``path``, or ``path`` itself if it is a file.

    Raises :class:`~pitfall_lab.cli.Refusal` if there is no such file.
    """
    if not path.exists():
        raise Refusal(f"There is no {path}; name the folder of a graded assignment.")
    if path.is_dir() and not (path / name).exists():
        raise Refusal(
            f"{path} has not been graded: there is no {path / name}. Run `pitfall-lab grade "
            f"{shlex.quote(str(path))}` first."
        )
    return path / name if path.is_dir() else path


def table(grades: Path) -> list[dict[str, str]]:
    """The lines of a ``grades.csv``, each a dict of cells by column.

    Raises :class:`~pitfall_lab.cli.Refusal` if it cannot be read, or is no such table.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(grades.read_text(encoding="utf-8-sig"), newline=""), restval=""))
    except OSError as problem:
        raise Refusal(f"{grades} cannot be read: {problem.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise Refusal(f"{grades} cannot be read: {problem}.") from None
    if not lines or not {"student", "points", "of", "sha256"} <= lines[0].keys():
        raise Refusal(f"{grades} is no table of `pitfall-lab grade`.")
    return lines
