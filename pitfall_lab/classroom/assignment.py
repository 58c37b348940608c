"""An assignment: which exercises of which chapters, what a cell may cost, and what each is worth. :func:`load` reads
one from its file ``assignment.toml``, :meth:`Assignment.to_toml` gives the text of such a file.
"""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

from pitfall_lab.classroom.judge import Limits
from pitfall_lab.classroom.roster import nearest, shown
from pitfall_lab.cli import Refusal

NAME = "assignment.toml"
SUBMISSIONS = "submissions"
FORMAT = 1
SETTINGS = ("format", "id", "name", "exercises", "due", "late_penalty", "late_days", "timeout", "memory", "points")
"""What the file may say."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What ``assignment.toml`` says.

    ``ident`` keeps the grades of two assignments apart; ``name`` is what people read. ``keys`` are the exercises
    (``"12.3"``), ``limits`` what one cell may cost; ``points`` is what an exercise is worth (1 where it has none).
    ``due`` is the deadline (seconds since 1970; None: there is none): each day that was begun after it costs
    ``late_penalty`` percent of the points, beyond the ``late_days`` that everyone has free. Times are shown in its
    ``zone`` (None: that of this machine).
    """

    ident: str
    name: str
    keys: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    points: dict[str, float] = field(default_factory=dict)
    due: float | None = None
    late_penalty: float = 0.0
    late_days: int = 0
    zone: tzinfo | None = None

    def clock(self, seconds: float) -> str:
        """A time (seconds since 1970) as text with its offset from UTC, in the assignment's zone; only the number of
        seconds where no calendar has such a date, since a file may have any time.
        """
        try:
            return f"{datetime.fromtimestamp(seconds, UTC).astimezone(self.zone):%Y-%m-%d %H:%M (UTC%z)}"
        except (ValueError, OverflowError, OSError):
            return f"1970 {seconds:+.0f} s"

    def worth(self, key: str) -> float:
        """The points for a right solution of an exercise."""
        return self.points.get(key, 1.0)

    @property
    def chapters(self) -> tuple[int, ...]:
        """The numbers of the chapters that the exercises belong to."""
        return tuple(dict.fromkeys(int(key.partition(".")[0]) for key in self.keys))

    def to_toml(self) -> str:
        """The text of ``assignment.toml``, with comments that explain what may be changed."""
        keys = ", ".join(f'"{key}"' for key in self.keys)
        worth = "\n".join(f'"{key}" = {self.worth(key):g}' for key in self.keys)
        return (
            "# An assignment of pitfall-lab. Change what you like but the first two lines.\n"
            f"format = {FORMAT}\n"
            f'id = "{self.ident}"\n'
            "\n"
            f"name = {_quoted(self.name)}\n"
            f"exercises = [{keys}]\n"
            "\n"
            "# The deadline, with your offset from UTC; percent of the points that each day begun after it costs; "
            "days free for everyone.\n"
            "# due = 2026-11-20T23:59:00+01:00\n"
            "# late_penalty = 10\n"
            "# late_days = 0\n"
            "\n"
            "# What one cell may cost: seconds for all its runs together, MiB beyond what torch itself needs.\n"
            f"timeout = {self.limits.timeout:g}\n"
            f"memory = {self.limits.memory}\n"
            "\n"
            "# What a right solution is worth.\n"
            "[points]\n"
            f"{worth}\n"
        )


def _quoted(text: str) -> str:
    signs = {'"': '\\"', "\\": "\\\\", "\n": " ", "\t": " "}
    return '"' + "".join(signs.get(sign, sign) for sign in text if sign in signs or sign.isprintable()) + '"'


@cache
def available() -> dict[int, tuple[str, ...]]:
    """The keys of the exercises that there are, by the number of their chapter."""
    from pitfall_lab.lessons.exercises import exercises

    found: dict[int, tuple[str, ...]] = {}
    for key in exercises():
        number = int(key.partition(".")[0])
        found[number] = (*found.get(number, ()), key)
    return found


def chosen(text: str) -> tuple[int, ...]:
    """The numbers of the chapters in ``"5,12"`` or ``"5-7"``, each once.

    Raises :class:`~pitfall_lab.cli.Refusal` if that is no list of chapters, or one has no exercises.
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,2})(?:\s*-\s*(\d{1,2}))?\s*", part)
        if not match:
            raise Refusal(f"{part.strip()!r} is not a chapter's number; write 5,12 or 5-7.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise Refusal(f"{part.strip()!r} is a range the wrong way round; write {last}-{first}.")
        numbers += range(first, last + 1)
    for number in numbers:
        if number not in available():
            there = ", ".join(map(str, available()))
            raise Refusal(f"Chapter {number} has no exercises; there are some in chapters {there}.")
    return tuple(dict.fromkeys(numbers))


def chosen_exercises(words: Iterable[str]) -> tuple[str, ...]:
    """The keys of the exercises in ``["4.1", "4.3,12.2"]``, each once.

    Raises :class:`~pitfall_lab.cli.Refusal` if one is no exercise, or none is named.
    """
    keys = [part.strip() for word in words for part in word.split(",") if part.strip()]
    known = {key for there in available().values() for key in there}
    for key in keys:
        if key not in known:
            there = available().get(int(key.partition(".")[0]) if re.fullmatch(r"\d{1,2}(\.\d*)?", key) else 0, ())
            if there and "." not in key:
                raise Refusal(
                    f"{key!r} is a chapter, not an exercise; write {' '.join(there)}, or --chapters "
                    f"{key} for all of them."
                )
            raise Refusal(
                f"{key!r} is not an exercise; "
                + (
                    f"there are {', '.join(there)}."
                    if there
                    else "write them as 4.1 4.3 12.2; `pitfall-lab classroom exercises` lists all."
                )
            )
    if not keys:
        raise Refusal("No exercise is named; write them as 4.1 4.3 12.2.")
    return tuple(dict.fromkeys(keys))


def of_chapters(chapters: Iterable[int], *, ident: str, name: str) -> Assignment:
    """The assignment ``ident``, called ``name``, with all exercises of some chapters. Each must have exercises:
    ``KeyError`` otherwise.
    """
    return Assignment(ident, name, tuple(key for number in chapters for key in available()[number]))


def load(path: Path) -> Assignment:
    """Read ``assignment.toml`` at ``path`` and return what it says.

    Raises :class:`~pitfall_lab.cli.Refusal` with one sentence for what is wrong with it.
    """
    text = ""
    try:
        values = tomllib.loads(text := path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise Refusal(f"{path} cannot be read: {problem.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        _refuse_due(path, text)
        raise Refusal(f"{path} is not valid TOML: {problem}.") from None
    if values.get("format") != FORMAT:
        raise Refusal(f"{path} is of format {values.get('format')!r}; this version reads format {FORMAT}.")
    ident, name, keys = values.get("id"), values.get("name", path.parent.name), values.get("exercises")
    if not isinstance(ident, str) or not re.fullmatch(r"[\w-]{4,64}", ident):
        raise Refusal(f"{path} has no usable id.")
    known = [key for there in available().values() for key in there]
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise Refusal(f'{path} must name its exercises: exercises = ["12.1", "12.2"].')
    if strangers := [key for key in keys if key not in known]:
        raise Refusal(f"{path} names the exercise {strangers[0]}, which does not exist.")
    _refuse_unknown(path, values)
    usual = Limits()
    timeout = _number(path, values, "timeout", usual.timeout, least=0.5, most=3600)
    memory = _number(path, values, "memory", usual.memory, least=64, most=1 << 20)
    points = _points(path, values, keys, known)
    penalty = _number(path, values, "late_penalty", 0.0, least=0, most=100)
    free = _number(path, values, "late_days", 0, least=0, most=1000)
    limits = Limits(timeout, int(memory))
    due = _due(path, values)
    zone = values["due"].tzinfo if due is not None else None
    return Assignment(ident, str(name), tuple(dict.fromkeys(keys)), limits, points, due, penalty, int(free), zone)


def _refuse_unknown(path: Path, values: dict[str, Any]) -> None:
    for key in values:
        if key not in SETTINGS:
            near = nearest(key, SETTINGS)
            said = f"{near} is meant" if near else f"there are {', '.join(SETTINGS)}"
            raise Refusal(f"{path}: “{key}” is no setting; {said}.")


def _points(path: Path, values: dict[str, Any], keys: list[str], known: list[str]) -> dict[str, float]:
    worth = values.get("points", {})
    if not isinstance(worth, dict):
        raise Refusal(f"{path}: points must be a table.")
    if unmeant := [key for key in worth if key not in known]:
        raise Refusal(
            f'{path}: points names “{unmeant[0]}”, which is no exercise; write "12.1" = 2, with the quotation marks.'
        )
    if others := [key for key in worth if key not in keys]:
        raise Refusal(
            f"{path}: points has a line for {others[0]}, which is not among its exercises: take it away, "
            "or add the exercise."
        )
    return {key: _number(path, worth, key, 1.0, least=0, most=1e6) for key in keys if key in worth}


_AS_DUE = "due must be a date with a time, such as 2026-11-20T23:59:00+01:00, without quotation marks"


def _refuse_due(path: Path, text: str) -> None:
    """Raise :class:`~pitfall_lab.cli.Refusal` if the line ``due = …`` in ``text`` is not valid TOML; else do nothing.

    The message of the TOML parser does not say that a time needs seconds, or must have no quotation marks.
    """
    for line in re.findall(r"^[ \t]*due[ \t]*=[^\n]*", text, flags=re.MULTILINE):
        try:
            tomllib.loads(line)
        except tomllib.TOMLDecodeError:
            seconds = " and with its seconds" if re.search(r"\d[T ]\d\d?:\d\d(?!:?\d)", line) else ""
            raise Refusal(f"{path}: {_AS_DUE}{seconds}; it is {shown(line.partition('=')[2].strip())}.") from None


def _due(path: Path, values: dict[str, Any]) -> float | None:
    due = values.get("due")
    if due is not None and not isinstance(due, datetime):
        raise Refusal(f"{path}: {_AS_DUE}.")
    try:
        return None if due is None else due.timestamp()
    except (ValueError, OverflowError, OSError):
        raise Refusal(f"{path}: due is too far away.") from None


def _number(path: Path, values: dict[str, Any], key: str, usual: float, *, least: float, most: float) -> float:
    value = values.get(key, usual)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise Refusal(f"{path}: {key} must be a number from {least:g} to {most:g}.")
    return value


def place(folder: Path) -> tuple[Path | None, Path, Path]:
    """Three paths: the assignment's file, the folder of its submissions, and the folder for the table of grades.

    ``folder`` may be an assignment's folder or its subfolder ``submissions``. For a folder that belongs to no
    assignment the first path is None and the other two are ``folder``. Raises :class:`~pitfall_lab.cli.Refusal` for
    another subfolder of an assignment: it may be handed out to students, and a table has names and marks.
    """
    above = folder.resolve().parent
    if (above / NAME).is_file() and folder.resolve().name == SUBMISSIONS:
        home = folder.parent if folder.name == SUBMISSIONS else above
    elif (folder / NAME).is_file():
        home = folder
    elif (above / NAME).is_file():
        raise Refusal(
            f"{folder} is a folder of the assignment in {above}, and not where its submissions are; grade {above}."
        )
    else:
        return None, folder, folder
    return home / NAME, home / SUBMISSIONS, home
