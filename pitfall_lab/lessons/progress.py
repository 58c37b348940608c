"""What a learner has answered and solved, in a plain file beside the notebooks. Nothing leaves the machine.
:func:`keep` adds an answer to the file, :func:`load` reads it.

JSON lines: the first line names the format and its version, every other line is one :class:`Entry`. Entries are only
ever appended, whole, under a lock and flushed to the disk: two notebooks may write at once, and a crash in the middle
of a line loses that line and no other. A file that is not ours, or whose beginning is damaged, is set aside under
another name and never overwritten; one of a later version is left alone.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

NAME = "pitfall-lab-progress.jsonl"
VERSION = 1
_KEY = "pitfall_lab_progress"
_LIMIT = 16 << 20
"""Bytes of a file that are read: forty years of lessons, and no more than a page can hold."""

Kind = Literal["question", "exercise", "claim"]


class ProgressError(Exception):
    """The progress cannot be read or kept; the message is one sentence for the learner."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer of a learner, or a decision about a claim.

    ``item`` is ``"12.3"`` for an exercise, ``"q-"`` and its key for a question, or a claim's id, in ``chapter``
    (``"12"``). The answer earned ``held`` of ``total``: of an exercise these are properties; of a question one for the
    answer and one for the reason, if the question has reasons; a right decision has 1 of 1. ``beliefs`` are the
    keys of the misconceptions that a wrong answer fits; ``at`` is the time in UTC, ISO 8601 (empty: not set yet).
    ``note`` is ``"skipped"``, the text of a wrong answer that fits no misconception, or a wrong decision; else empty.
    """

    chapter: str
    item: str
    kind: Kind
    held: int
    total: int
    beliefs: tuple[str, ...] = ()
    at: str = ""
    note: str = ""

    @property
    def solved(self) -> bool:
        """Whether the answer earned everything: all properties, or the right answer and reason."""
        return self.held == self.total > 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything in one progress file.

    ``entries`` are its answers, oldest first; ``torn`` is the number of lines that could not be read, which stay in the
    file.
    """

    entries: tuple[Entry, ...] = ()
    torn: int = 0

    def best(self) -> dict[tuple[str, str], Entry]:
        """The best answer to each item, by (chapter, item).

        It is the one that earned the largest share of its total; of equal ones the first.
        """
        found: dict[tuple[str, str], Entry] = {}
        for entry in self.entries:
            known = found.get((entry.chapter, entry.item))
            if known is None or entry.held * known.total > known.held * entry.total:
                found[entry.chapter, entry.item] = entry
        return found

    def beliefs(self) -> dict[str, int]:
        """How many answers fitted each misconception, by its key, most frequent first."""
        counts: dict[str, int] = {}
        for key in itertools.chain.from_iterable(entry.beliefs for entry in self.entries):
            counts[key] = counts.get(key, 0) + 1
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def chapter_here() -> str:
    """The number of the chapter whose notebook this kernel runs (``"05"``), from the name of the Jupyter session.

    "" if Jupyter does not give a name, or the name does not begin with a number.
    """
    found = re.match(r"\d\d(?=-)", Path(os.environ.get("JPY_SESSION_NAME", "")).name)
    return found[0] if found else ""


def learner() -> str:
    """Return a text that identifies the learner on this machine: it decides the order of a question's answers."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"{getpass.getuser()}@{platform.node()}"
    return platform.node()


def load(folder: str | os.PathLike[str] = ".") -> Progress:
    """The progress in ``folder``; empty if there is no progress file.

    Raises :class:`ProgressError`, and changes nothing, if the file cannot be read or is not a progress file.
    """
    path = Path(folder) / NAME
    try:
        with path.open("rb") as file:
            lines = file.read(_LIMIT).splitlines()
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        raise ProgressError(f"The progress in {path} cannot be read: {error.strerror}.") from error
    if lines:
        _check_header(path, lines[0])
    entries = [_entry(line) for line in lines[1:] if line.strip()]
    return Progress(tuple(entry for entry in entries if entry is not None), sum(entry is None for entry in entries))


def keep(entry: Entry, folder: str | os.PathLike[str] = ".") -> Path | None:
    """Append ``entry`` to the progress in ``folder``, stamped with the time if it has none.

    Returns the new name of a damaged file that had to be set aside, else None. Raises :class:`ProgressError` when
    nothing can be written, or when the file belongs to a later version.
    """
    path = Path(folder) / NAME
    values = asdict(entry) | {"at": entry.at or datetime.now(UTC).isoformat(timespec="seconds")}
    line = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        with _locked(path) as (file, aside):
            end = os.lseek(file, 0, os.SEEK_END)
            if end == 0:
                line = json.dumps({_KEY: VERSION}).encode() + b"\n" + line
            elif _last_byte(path) != b"\n":
                line = b"\n" + line  # a crash tore the last line: it stays, alone
            _write(file, line)
            return aside
    except OSError as error:
        raise ProgressError(f"The progress in {path} cannot be kept: {error.strerror}.") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[tuple[int, Path | None]]:
    """Yield the progress file, open for appending and locked, and the name under which a damaged
    one was set aside (else None).
    """
    aside = None
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(file)
            if not _is_still(path, file):
                continue  # another notebook set it aside while this one waited
            try:
                if os.fstat(file).st_size:
                    _check_header(path, _first_line(file))
            except _DamagedError:
                aside = _free_name(path)
                path.rename(aside)
                continue
            yield file, aside
            return
        finally:
            os.close(file)  # releases the lock


def _lock(file: int) -> None:
    if sys.platform == "win32":
        os.lseek(file, 0, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_still(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _first_line(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 200).partition(b"\n")[0]


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]
    os.fsync(file)


class _DamagedError(ProgressError):
    """The beginning of the progress file was not written by this package."""


def _check_header(path: Path, line: bytes) -> None:
    try:
        version = json.loads(line)[_KEY]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _DamagedError(f"{path} does not begin as a progress file does; it is left as it is.") from None
    if not isinstance(version, int) or version < 1:
        raise _DamagedError(f"{path} names no version that there ever was; it is left as it is.")
    if version > VERSION:
        raise ProgressError(
            f"{path} was written by a later version of pitfall_lab (format {version}); this one reads up to {VERSION}."
        )


def _free_name(path: Path) -> Path:
    for number in itertools.count(1):
        name = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        if not name.exists():
            return name
    raise AssertionError


def _entry(line: bytes) -> Entry | None:
    try:
        values: Any = json.loads(line)
        held, total = values["held"], values["total"]
        beliefs: Sequence[Any] = values.get("beliefs", ())
        texts = [values[key] for key in ("chapter", "item", "kind")] + [
            values.get("at", ""),
            values.get("note", ""),
            *beliefs,
        ]
        whole = all(isinstance(text, str) for text in texts) and all(
            isinstance(n, int) and n >= 0 for n in (held, total)
        )
        if not whole or held > total or values["kind"] not in {"question", "exercise", "claim"}:
            return None
        told = tuple(beliefs), values.get("at", ""), values.get("note", "")
        return Entry(values["chapter"], values["item"], values["kind"], held, total, *told)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
