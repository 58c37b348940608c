"""What has been graded: a state file from which a run can continue, and the form that a table must have."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import itertools
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import SAYS, CellOutcome, Status
from pitfall_lab.classroom.roster import quoted
from pitfall_lab.classroom.spreadsheet import LONGEST_CELL
from pitfall_lab.cli import Refusal, installed_version
from pitfall_lab.trace import Language, T

_KEY, VERSION = "pitfall_lab_grading", 1
SHOWN_OF_DIGEST = 16
"""The number of characters of a digest that the table shows."""
VERDICTS: dict[str, T] = {
    "graded": T(en="graded", zh="已评分"),
    "stopped": T(en="graded; something in it had to be stopped", zh="已评分；其中有内容被终止"),
    "tampered": T(en="graded; it reached for the grader", zh="已评分；其中有内容试图接触评分程序"),
    "look": T(
        en="graded; it uses what no exercise needs: read the cell", zh="已评分；使用了练习不需要的内容：请阅读该单元格"
    ),
    "unfinished": T(en="not all could be graded; look at it yourself", zh="未能全部评分；请人工查看"),
    "empty": T(en="nothing was done", zh="没有作答"),
    "unreadable": T(en="could not be read", zh="无法读取"),
    "absent": T(en="did not hand in", zh="未提交"),
}
_SKIPPED = T(en="{what} {has} a meaning in a notebook only and {was} skipped", zh="{what} 只在笔记本中有意义，已跳过")
_UNNEEDED = T(
    en="it uses {what}, which no exercise needs: read the cell", zh="使用了 {what}，这是练习不需要的：请阅读该单元格"
)
_UNGRADED = T(
    en="the grader itself failed here; your teacher looks at the cell", zh="评分程序本身在此出错；老师会查看此单元格"
)
_STOPPED = ("timeout", "memory", "output", "exit", "crash")


@dataclass(frozen=True, slots=True)
class Row:
    """One submission, graded.

    ``student`` is what it is called, ``digest`` a hash of what was handed in; ``outcomes`` are those of its cells, and
    ``problem`` is why it could not be read (None: it could). ``notes`` are for teacher and student, ``asides`` for the
    teacher alone. ``beliefs`` are the misconceptions that the learner's own progress file names, each with its item
    (``"12 q-3"``). ``received`` is when the newest of its files was written (seconds since 1970; None: not known),
    ``versions`` those of pitfall_lab and torch that graded it. ``absent``: nothing was handed in. ``beside`` are files
    beside the notebooks that are none and were not read.
    """

    student: str
    digest: str
    outcomes: tuple[CellOutcome, ...] = ()
    notes: tuple[T, ...] = ()
    beliefs: tuple[tuple[str, str], ...] = ()
    problem: T | None = None
    received: float | None = None
    versions: tuple[str, str] = ("", "")
    absent: bool = False
    asides: tuple[T, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Return the status of the submission, one of :data:`VERDICTS`."""
        seen = {outcome.status for outcome in self.outcomes}
        if self.absent:
            return "absent"
        if self.problem is not None:
            return "unreadable"
        if "ungraded" in seen:
            return "unfinished"
        if "tampered" in seen:
            return "tampered"
        if any(outcome.unneeded for outcome in self.outcomes):
            return "look"
        if self.was_stopped:
            return "stopped"
        return "empty" if seen <= {"missing", "unsolved"} else "graded"

    @property
    def was_stopped(self) -> bool:
        """Whether a cell was stopped at a limit, or ended or crashed its process; :attr:`verdict` may name something
        else.
        """
        return any(outcome.status in _STOPPED for outcome in self.outcomes)

    def points(self, assignment: Assignment) -> float:
        """The sum of the points that the outcomes earn in all exercises, rounded to two digits."""
        return round(sum(outcome.credit * assignment.worth(outcome.key) for outcome in self.outcomes), 2)

    def remarks(self, language: Language = "en", *, to_student: bool = False) -> list[str]:
        """Everything but numbers that is reported about the submission; ``to_student``: without the
        notes for the teacher alone.
        """
        said = [self.problem.say(language)] if self.problem else []
        said += [note.say(language) for note in (*(() if to_student else self.asides), *self.notes)]
        for outcome in self.outcomes:
            if outcome.status not in {"solved", "partly", "failed"}:
                detail = f" ({quoted(outcome.detail)})" if outcome.says_detail(to_student=to_student) else ""
                said.append(f"{outcome.key}: {ending(outcome.status, to_student=to_student).say(language)}{detail}")
            for sentence, words in ((_SKIPPED, outcome.skipped), (_UNNEEDED, () if to_student else outcome.unneeded)):
                if words:
                    verbs = {"has": "has" if len(words) == 1 else "have", "was": "was" if len(words) == 1 else "were"}
                    what = ", ".join(f"`{each.replace('`', chr(39))}`" for each in words)
                    said.append(f"{outcome.key}: {sentence.say(language).format(what=what, **verbs)}")
        return said

    def to_json(self) -> str:
        """The row as one line of the state file, in JSON."""
        pairs, asides = ([[note.en, note.zh] for note in notes] for notes in (self.notes, self.asides))
        values = {
            "student": self.student,
            "digest": self.digest,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
            "notes": pairs,
            "asides": asides,
            "beliefs": self.beliefs,
            "problem": [self.problem.en, self.problem.zh] if self.problem else None,
            "received": self.received,
            "versions": self.versions,
            "beside": self.beside,
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Row:
        """The row from the JSON data of one line of the state file; raises ``KeyError``, ``TypeError``, ``ValueError``,
        ``IndexError`` or ``AttributeError`` if the data are something else.
        """
        return cls(
            str(values["student"]),
            str(values["digest"]),
            tuple(CellOutcome.from_dict(each) for each in values["outcomes"]),
            tuple(T(en=note[0], zh=note[1]) for note in values["notes"]),
            tuple((str(key), str(item)) for key, item in values["beliefs"]),
            T(en=values["problem"][0], zh=values["problem"][1]) if values["problem"] else None,
            None if values.get("received") is None else float(values["received"]),
            (str(values["versions"][0]), str(values["versions"][1])) if "versions" in values else ("", ""),
            asides=tuple(T(en=note[0], zh=note[1]) for note in values.get("asides", ())),
            beside=tuple(map(str, values.get("beside", ()))),
        )


class StateFile:
    """The state file beside ``grades.csv``: a line for the assignment, then a line for each submission once it is
    graded.

    With ``resume``, what an earlier run left is in ``known``: its rows by (submission, digest). An earlier file is
    renamed to ``aside`` (None if there was none) without ``resume``, and also if it is damaged or belongs to another
    assignment or other exercises; then ``why`` says so. A line that a crash cut off is left out, so its submission is
    graded again. ``draw`` is a random number of this grading, which no student knows and a resumed run keeps
    (:class:`pitfall_lab.classroom.judge.Limits`). Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be read
    or written.
    """

    def __init__(self, grades: Path, assignment: Assignment, *, resume: bool) -> None:
        self.path = _place(grades)
        self.known: dict[tuple[str, str], Row] = {}
        self.aside: Path | None = None
        self.why = ""
        self.draw = 0
        head = _head(assignment)
        try:
            if self.path.exists():
                word, self.why = self._read(head)
                if word != "earlier" or self.why or not resume:
                    self.aside = _free(self.path, word)
                    self.path.rename(self.aside)
                    self.known.clear()
                    self.draw = 0
            fresh = not self.path.exists()
            self._file = self.path.open("ab")
            torn = not fresh and self.path.read_bytes()[-1:] != b"\n"
        except OSError as problem:
            raise unwritten(self.path, problem) from None
        try:
            if fresh:
                self._write(json.dumps(head))
            elif torn:
                self._write("")
            if not self.draw:
                self.draw = _LEAST + secrets.randbelow(MOST_DRAWS)
                self._write(json.dumps({"draw": self.draw}))
        except Refusal:
            self.close()
            raise

    def _read(self, head: dict[str, Any]) -> tuple[str, str]:
        """Read the file, and return a word for its name if it is set aside, and why it cannot be continued.

        If it can be continued, the reason is "" and ``known`` and ``draw`` are set from the file.
        """
        found, rows = kept(self.path)
        if found.get(_KEY) != VERSION:
            return "damaged", "It is damaged."
        if found.get("assignment") != head["assignment"]:
            return "other", "It is of another assignment."
        if found != head:
            return "earlier", "The exercises are others since, so everything is graded anew."
        self.known.update({(row.student, row.digest): row for row in rows})
        self.draw = _draw(self.path)
        return "earlier", ""

    def keep(self, row: Row) -> None:
        """Append a row to the state file and write it to the disk.

        Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be written.
        """
        self._write(row.to_json())

    def remember(self, options: dict[str, Any]) -> None:
        """Keep ``options``, what the run writes besides the table, for the run that continues this one
        (:func:`remembered`).

        Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot be written.
        """
        self._write(json.dumps({"options": options}))

    def _write(self, line: str) -> None:
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as problem:
            raise unwritten(self.path, problem) from None

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # what could not be written has been said
            self._file.close()


def kept(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """The first line of a state file as a dictionary ({} if it is damaged), and its rows.

    Lines that are not a row are left out, such as one that a crash cut off. Raises ``OSError`` if the file cannot be
    read.
    """
    first, *lines = path.read_bytes().split(b"\n")
    rows = []
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        head = {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            rows.append(Row.from_values(json.loads(line)))
    return head if isinstance(head, dict) else {}, rows


_LEAST, MOST_DRAWS = 1000, 1 << 31
"""A draw is a number from the first on, so many at most: NumPy's seeds have 32 bits."""


def _draw(path: Path) -> int:
    """The last valid ``draw`` in a state file; 0 if it has none."""
    found = 0
    for line in path.read_bytes().split(b"\n"):
        if line.startswith(b'{"draw"'):
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                number = json.loads(line)["draw"]
                found = number if type(number) is int and _LEAST <= number < _LEAST + MOST_DRAWS else found
    return found


def _place(grades: Path) -> Path:
    return grades.with_suffix(".state.jsonl")


def _head(assignment: Assignment) -> dict[str, Any]:
    return {_KEY: VERSION, "assignment": assignment.ident, "exercises": list(assignment.keys)}


def remembered(grades: Path, assignment: Assignment) -> dict[str, Any]:
    """The options that the last run of the assignment stored in the state file beside ``grades``
    (:meth:`StateFile.remember`).

    They say what that run wrote besides the table. Empty if there are none, or if the file cannot be read.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, IndexError, RecursionError):
        first, *lines = _place(grades).read_bytes().split(b"\n")
        if {**json.loads(first), "exercises": None} == {
            **_head(assignment),
            "exercises": None,
        }:  # the exercises may be others since
            options = json.loads([line for line in lines if line.startswith(b'{"options"')][-1])["options"]
            return options if isinstance(options, dict) else {}
    return {}


def _free(path: Path, word: str) -> Path:
    names = (path.with_name(f"{path.name.removesuffix('.jsonl')}.{word}-{n}.jsonl") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


# --- grades.csv ------------------------------------------------------------------------------------------------------


def refuse_strangers(grades: Path, assignment: Assignment) -> None:
    """Raise :class:`~pitfall_lab.cli.Refusal` if ``grades`` exists and is not a readable table of this assignment."""
    if not grades.exists():
        return
    try:
        rows = list(csv.DictReader(io.StringIO(grades.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        rows = []
    if not rows or any(row.get("assignment") != assignment.ident for row in rows):
        raise Refusal(
            f"{grades} is there already and does not hold grades of this assignment; choose another name with "
            "-o, or move it away."
        )


def write_whole(path: Path, text: str, *, for_spreadsheets: bool = False) -> None:
    """Write ``text`` to ``path`` completely or not at all. Raises :class:`~pitfall_lab.cli.Refusal` if the file cannot
    be written.

    ``for_spreadsheets``: with a byte order mark, without which Excel reads the accents of UTF-8 as other letters.
    """
    partial = path.with_name(f"{path.name}.part")
    try:
        partial.write_text(text, encoding="utf-8-sig" if for_spreadsheets else "utf-8", errors="replace", newline="")
        partial.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):  # half a table on a full disk is of no use, and takes room
            partial.unlink(missing_ok=True)
        raise unwritten(path, problem) from None


def unwritten(path: Path, problem: OSError, what: str = "{} cannot be written") -> Refusal:
    """A refusal (returned, not raised) that says why ``path`` could not be written, from the error ``problem``; if room
    is missing, also how to go on. ``what`` is the beginning of its sentence, with ``{}`` for the path.
    """
    full = problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    then = " Make room, and grade with --resume: what has been graded is kept." if full else ""
    return Refusal(f"{what.format(path)}: {problem.strerror}.{then}")


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line for the teacher, on standard output or to ``file``.

    Characters that cannot be printed (a file's name may contain codes that a terminal obeys) are replaced, and what is
    longer than ``LONGEST_CELL`` is cut.
    """
    line = line if len(line) <= LONGEST_CELL else f"{line[:LONGEST_CELL]} …"
    print(
        "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in line), file=file
    )


def ending(status: Status, *, to_student: bool = False) -> T:
    """How a cell with this ``status`` ended, in words; ``to_student``: a failure of the grader is worded for the
    student.
    """
    return _UNGRADED if to_student and status == "ungraded" else SAYS[status]


def versions() -> tuple[str, str]:
    """The installed versions of pitfall_lab and torch."""
    return installed_version(), metadata.version("torch")


def statuses(rows: Sequence[Row], key: str) -> dict[str, int]:
    """The number of submissions for each status in the exercise ``key``, the most frequent status first."""
    counts: dict[str, int] = {}
    for row in rows:
        for outcome in row.outcomes:
            if outcome.key == key:
                counts[outcome.status] = counts.get(outcome.status, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))
