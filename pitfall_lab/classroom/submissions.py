"""Submissions as hostile input: files that claim to be notebooks. :func:`found` lists them, :func:`read` returns the
cells of one as a :class:`Sheet`.

What counts is the source of ``%%exercise`` cells, and nothing else.

Outputs, execution counts, tags, ids, kernels and every other piece of metadata are not looked at, so they cannot be
forged to any use. Nothing here runs or imports what a submission holds.
"""

# ruff: noqa: PLC0415 - IPython is imported for submissions with its syntax only

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import re
import stat
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pitfall_lab.classroom import archives
from pitfall_lab.classroom import grading_budget as budget
from pitfall_lab.classroom.archives import UnreadableArchive
from pitfall_lab.classroom.roster import nearest, quoted
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.whose import Directory, attempted, form, in_order, tells_order
from pitfall_lab.lessons import progress
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.notebook import practice
from pitfall_lab.trace import T

LARGEST = 32 << 20
"""Bytes of a notebook that are read: more than any notebook of this course with all its outputs."""
MOST_PARTS = 3_000_000
"""Lists and objects of a notebook, and pairs of values: each takes some sixty bytes of memory or more once it
is read.
"""
LONGEST = 1 << 22
"""Characters of a cell that can be an answer."""
MOST_FILES, DEEPEST, MOST_BELIEFS, MOST_PROGRESS, MOST_DATED = 50, 6, 200, 5, 1000
CELL = re.compile(r"\A\s*%%exercise[ \t]+(\d{1,2}\.\d{1,3})(?![\w.])[^\n]*(?:\n|\Z)")
_ALMOST = re.compile(
    r"^[ \t>#]*%{1,3}[ \t]*(?P<word>[^\W\d_]{5,12})[^\w\n]{0,3}(?P<number>\d{1,2}[.,:;_ -]{0,2}\d{0,3})(?!\w)",
    re.MULTILINE,
)
"""A line that may be meant as the magic's: with a comma, a capital, a letter that is missing."""
FIRST_LINES = 2000
"""How many characters of a cell are searched for the magic; its options must be shorter."""
_AROUND = frozenset({"time", "timeit", "capture", "prun", "pitfall"})
"""Magics that run a cell as it is, so that an exercise below one is solved in the notebook."""
_ITEM = re.compile(r"[0-9]{1,2} [\w.-]{1,24}", re.ASCII)
_OURS = re.compile(r"readme(\.(md|txt|rst|html))?", re.IGNORECASE)
"""Files of the teacher's among the submissions, besides the generated tables; every other file gets a row."""
_READ = (".ipynb", ".zip")
_INSTEAD = (
    *(".pdf", ".py", ".txt", ".json", ".html", ".htm", ".doc", ".docx", ".odt", ".rtf"),
    *(".rar", ".7z", ".tar", ".tgz", ".png", ".jpg", ".jpeg", ".heic"),
)
"""Endings of what is handed in instead of a notebook; beside one, it is not read, and this is said."""
MOST_BESIDE = 20
MOST_NOTES, LONGEST_NOTE, LONGEST_NAME = 50, 1000, 120
"""Notes of a submission, characters of one, and of the name that a file has inside a zip, where names may have sixty
thousand: no spreadsheet, and no reader of CSV, takes a cell of any length.
"""
_LINK = T(en="it is a link, and links are not followed", zh="这是一个链接，链接不会被跟随")
_LONG = T(
    en=f"reading it takes more than {budget.SECONDS:g} s of processor time",
    zh=f"读取它需要超过 {budget.SECONDS:g} 秒的处理器时间",
)
MOST_ALMOST = 20
"""Cells that look like an answer and are none, of which a note may speak."""
MOST_WRAPPED, MOST_SIGNS_WRAPPED = 500, 300_000
"""Cells of a submission with something around the exercise that are read as IPython would, and their characters: a cell
takes a quarter of a millisecond, one of four million empty lines half a minute.
"""
_LEFT_BEHIND = re.compile(r"\..*|__MACOSX|Thumbs\.db|desktop\.ini", re.IGNORECASE | re.DOTALL)
"""What systems leave behind in folders, and hidden files: they are no submissions, and it
is said that they are there.
"""


@dataclass(frozen=True, slots=True)
class Submission:
    """What one student handed in, before it is read.

    ``student`` is what it is called; ``files`` are the notebooks (and zips) in it, or the one file that was handed in,
    whatever it is. ``is_folder``: it is a folder;
    ``parts`` are the names of the files and folders that were put together to one submission (empty: it is a single
    one). ``problem`` is why it cannot be read (None: nothing known). ``notes`` are for teacher and student, ``asides``
    for the teacher alone. ``received`` is when the newest file was written of a folder that cannot be read. ``beside``
    are names of files in a folder that may have been handed in instead of a notebook. ``dated``: times in names of
    Blackboard's form are taken as when it was handed in. ``is_shut``: this folder, or one in it, cannot be read, and
    whether there are notebooks in it is not known.
    """

    student: str
    files: tuple[Path, ...]
    problem: T | None = None
    is_folder: bool = False
    parts: tuple[str, ...] = ()
    notes: tuple[T, ...] = ()
    asides: tuple[T, ...] = ()
    received: float | None = None
    beside: tuple[str, ...] = ()
    dated: bool = True
    is_shut: bool = False

    def names(self, folder: Path) -> tuple[str, ...]:
        """The names under which a submission appears directly in ``folder``, the folder of all submissions.

        These are its own name (or those of its parts), and those of its files in that folder; files in subfolders are
        left out.
        """
        return (*(self.parts or (self.student,)), *(path.name for path in self.files if path.parent == folder))


@dataclass(frozen=True, slots=True)
class Sheet:
    """What was read of a submission.

    ``student`` is the submission's name; ``cells`` are the answers by the key of their exercise, ``notes`` are
    sentences about the files and cells, ``digest`` is a hash of the files. ``beliefs`` are the misconceptions in the
    progress files that were handed in, each with its item (``"12 q-3"``). ``problem`` is why the submission has no
    mark: nothing, or not all that may count, could be read (None: all was read). ``received`` is when it came, in
    seconds since 1970 (None: not known): the time in Blackboard's file names, else the time of the newest file.
    """

    student: str
    cells: dict[str, str] = field(default_factory=dict)
    notes: tuple[T, ...] = ()
    digest: str = ""
    beliefs: tuple[tuple[str, str], ...] = ()
    problem: T | None = None
    received: float | None = None
    asides: tuple[T, ...] = ()
    """Notes for the teacher alone."""
    beside: tuple[str, ...] = ()
    """Files beside the notebooks that are none, and were not read."""


def found(folder: Path, grades: str | None = "grades") -> tuple[list[Submission], list[str]]:
    """The submissions in ``folder``, sorted by name, and the names of other files that are left out.

    Each file and each folder is a submission; a link is one that cannot be read, and is not followed. ``grades`` is the
    beginning of the file names of tables that an earlier run wrote there (None: there are none): these are neither
    submissions nor named. Raises ``OSError`` if ``folder`` itself cannot be listed.
    """
    begin = r"(?!)" if grades is None else re.escape(grades)
    generated = re.compile(rf"{begin}(\.[\w-]+)*\.(csv|jsonl)(\.part)?", re.IGNORECASE)
    out: list[Submission] = []
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    skipped = [entry for entry in entries if _LEFT_BEHIND.fullmatch(entry.name)] + _receipts(entries)
    skipped += [entry for entry in entries if entry not in skipped and entry.is_file() and _OURS.fullmatch(entry.name)]
    for entry in entries:
        if entry in skipped or (entry.is_file() and generated.fullmatch(entry.name)):
            continue
        if entry.is_symlink():
            out.append(Submission(_name(entry), (), _LINK))
        elif entry.is_dir():
            shut: list[OSError] = []
            files = tuple(_below(entry, DEEPEST, shut=shut))[: MOST_FILES + 1]
            problem = _shut(entry, shut) or _unusable(entry, files)
            received = _newest(entry) if problem else None
            others = [path.name for path in _below(entry, DEEPEST, endings=_INSTEAD)] if files else []
            beside = _beside(others)
            notes = tuple(map(_not_read, beside))
            out.append(
                Submission(
                    _name(entry),
                    files,
                    problem,
                    is_folder=True,
                    notes=notes,
                    received=received,
                    beside=beside,
                    is_shut=bool(shut),
                )
            )
        else:
            out.append(Submission(_name(entry), (entry,)))
    return _with_unique_names(out), [_printable(entry.name) for entry in skipped if not generated.fullmatch(entry.name)]


def _receipts(entries: Sequence[Path]) -> list[Path]:
    """The text files that Blackboard adds to each attempt, which are no submission.

    Such a text is kept as a submission if the student has no other file, since something was handed in.
    """
    forms = [(entry, said) for entry in entries if (said := form(entry.name))]
    files = {said.who for _, said in forms if not said.note}
    return [entry for entry, said in forms if said.note and said.who in files]


def _unusable(folder: Path, files: Sequence[Path]) -> T | None:
    """The reason why a folder cannot be read as a submission, or None."""
    if not files:
        said = _contents(folder)
        return T(
            en=f"there is no notebook in the folder{said and f', but {said}'}",
            zh=f"文件夹中没有笔记本{said and f'，只有 {said}'}",
        )
    if len(files) > MOST_FILES:
        return T(
            en=f"there are more than {MOST_FILES} notebooks in the folder", zh=f"文件夹中的笔记本超过 {MOST_FILES} 个"
        )
    return _of_several([str(file.relative_to(folder)) for file in files])


def _shut(folder: Path, problems: Sequence[OSError]) -> T | None:
    """Why a submission with folders that cannot be listed gets no mark, since answers may be in them; None without
    problems.
    """
    if not problems:
        return None
    why, place = problems[0].strerror, Path(os.fsdecode(problems[0].filename))
    en, zh = f"the folder cannot be read: {why}", f"文件夹无法读取：{why}"
    return T(en=en, zh=zh) if place == folder else _in_part(_inside(str(place.relative_to(folder))), T(en=en, zh=zh))


def _newest(folder: Path) -> float | None:
    """The latest time at which a file in a folder was written, in seconds since 1970; None if there is none.

    At most the first ``MOST_DATED`` files are looked at.
    """
    files = itertools.islice(_below(folder, DEEPEST, endings=("",)), MOST_DATED)
    times = []
    for file in files:
        with contextlib.suppress(OSError):
            times.append(file.lstat().st_mtime)
    return max(times, default=None)


def _contents(folder: Path) -> str:
    """The names of up to three files in a folder, for a message; hidden ones only if there are no others.

    "" if the folder is empty or cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, MOST_FILES))
    except OSError:
        return ""
    names = [name for name in names if not _LEFT_BEHIND.fullmatch(name)] or names
    return ", ".join(quoted(_printable(name[:40])) for name in names[:3]) + " …" * (len(names) > 3)


def _of_several(paths: Iterable[str]) -> T | None:
    """Why files are no submission, if their names are a learning management system's names for several people; else
    None.
    """
    if len({said.who for path in paths for part in re.split(r"[\\/]", path) if (said := form(part))}) < 2:
        return None
    en = "it holds files of several people: put each of them beside the other submissions"
    return T(en=en, zh="其中有多人的文件：请将它们逐一放到其他提交旁边")


def merged(submissions: Iterable[Submission], directory: Directory) -> list[Submission]:
    """One submission for each person: several submissions of one person are merged, and their files read oldest first.

    ``directory`` says whose each submission is. A student who chooses a file's name can write any time into it as
    Blackboard does; so these times count only if at least half of all names have Blackboard's form.
    """
    submissions = list(submissions)
    forms = [form(each.student) for each in submissions]
    dated = 2 * sum(said is not None and said.system == "blackboard" for said in forms) >= len(forms)
    groups: dict[tuple[bool, Hashable], list[Submission]] = {}
    for each in submissions:
        person = directory.person(each.student)
        key = person.student if person else directory.one_person(each.student)
        groups.setdefault((person is not None, key), []).append(each)
    return [replace(_one(of, key[1] if key[0] else None), dated=dated) for key, of in groups.items()]


def _one(of: list[Submission], student: Hashable) -> Submission:
    """The submissions of one person, merged into one. ``student`` is the person's name in the roster, or None."""
    if len(of) == 1:
        return of[0]
    of = [of[n] for n in in_order([(each.student, 0.0) for each in of])]
    names = tuple(each.student for each in of)
    usable = [each for each in of if each.problem is None]
    said = ", ".join(map(quoted, names))
    asides = (T(en=f"read as one submission: {said}", zh=f"合并为一份提交：{said}"),)
    beside = tuple(
        each.student for each in of if each.problem and each.is_folder and not each.files and not each.is_shut
    )
    notes = tuple(_left_out(each.student, each.problem) for each in of if each.problem and each.student in beside)
    notes += tuple(note for each in usable for note in each.notes)
    files = tuple(file for each in usable for file in each.files)
    bad = [each for each in of if each.problem and each.student not in beside]
    problem = (
        of[-1].problem
        if not usable
        else _in_part(bad[-1].student, bad[-1].problem)
        if bad and bad[-1].problem
        else None
    )
    received = max((each.received for each in of if each.received is not None), default=None) if problem else None
    beside += tuple(name for each in usable for name in each.beside)
    folder = any(each.is_folder for each in of)
    return Submission(str(student or names[-1]), files, problem, folder, names, notes, asides, received, beside)


def _with_unique_names(submissions: list[Submission]) -> list[Submission]:
    """The submissions with names of their own, where ``ada.ipynb`` and the folder ``ada`` would both be ``ada``.

    The file then keeps its ending, or a number is added. Names that look the same in a table count as equal.
    """
    names = [submission.student for submission in submissions]
    named, taken = [], set()
    for submission in submissions:
        student = submission.student
        if names.count(student) > 1 and len(submission.files) == 1 and submission.files[0].stem == student:
            student = _printable(submission.files[0].name)
        numbered = (f"{student} ({n})" for n in itertools.count(2))
        unique = next(name for name in itertools.chain([student], numbered) if plain(name) not in taken)
        taken.add(plain(unique))
        named.append(replace(submission, student=unique))
    return named


def _name(entry: Path) -> str:
    """The name of a submission: that of its file or folder, without ``.ipynb`` and ``.zip``, in printable
    characters.
    """
    name = entry.name.removesuffix(".ipynb").removesuffix(".zip") if not entry.is_dir() else entry.name
    return _printable(name)


def _printable(name: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)


def _below(
    folder: Path, depth: int, endings: tuple[str, ...] = _READ, shut: list[OSError] | None = None
) -> Iterator[Path]:
    """The files in a folder and its subfolders (at most ``depth`` levels) whose names end with one of ``endings``.

    Links are yielded only where notebooks are looked for, and are never followed. The errors of folders that cannot be
    listed are appended to ``shut``.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as problem:
        if shut is not None:
            shut.append(problem)
        return
    for entry in entries:
        if _LEFT_BEHIND.fullmatch(entry.name):
            continue
        if entry.is_symlink():
            if entry.name.lower().endswith(endings) and endings == _READ:  # it is not followed, and this is said
                yield Path(entry.path)
        elif entry.is_dir() and depth:
            yield from _below(Path(entry.path), depth - 1, endings, shut)
        elif entry.is_file() and entry.name.lower().endswith(endings):
            yield Path(entry.path)


@dataclass(frozen=True, slots=True)
class _Book:
    """A file that should be a notebook: what it is called, its bytes, when it was written."""

    name: str
    raw: bytes
    written: float


@dataclass(frozen=True, slots=True)
class _Broken:
    """A file that cannot be read: its ``name``, ``why``, and its ``place`` in the order of notebooks, oldest first.

    ``is_other``: it is known to be no notebook, a PDF for instance.
    """

    name: str
    why: T
    place: float
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class _Cell:
    """An answer: its text, the file that it is in, and when that was written."""

    source: str
    file: str
    written: float


@dataclass(slots=True)
class _Left:
    """How many more cells, and characters of them, may be read with IPython's parser, and how many were not read."""

    cells: int = MOST_WRAPPED
    signs: int = MOST_SIGNS_WRAPPED
    unread: int = 0

    def allows(self, source: str) -> bool:
        """Whether this cell may be read with IPython's parser; counts the cell, also if it may not."""
        self.cells -= 1
        self.signs -= len(source)
        allowed = self.cells >= 0 and self.signs >= 0
        self.unread += not allowed
        return allowed


@dataclass(frozen=True, slots=True)
class _Almost:
    """A cell that looks like an answer and is not read as one.

    ``number`` is the number in it, ``text`` and ``line`` are the text and number of the line that has it, ``is_code``
    is whether it is a code cell.
    """

    number: str
    text: str
    line: int
    is_code: bool


def read(submission: Submission, keys: Iterable[str]) -> Sheet:
    """Read a submission's cells of the exercises called ``keys``, with what was noticed about its files.

    Whatever the files hold, nothing is raised: a submission that cannot be read gives a Sheet with a ``problem``.
    """
    try:
        with budget.within():
            sheet = _read(submission, list(keys))
    except budget.Spent:
        sheet = Sheet(submission.student, problem=_LONG, received=submission.received, asides=submission.asides)
    return replace(sheet, notes=_few(sheet.notes), asides=_few(sheet.asides), beside=sheet.beside[:MOST_BESIDE])


def _few(notes: Sequence[T]) -> tuple[T, ...]:
    """The first ``MOST_NOTES`` notes, long ones cut, and one that says how many more there are."""
    kept = [T(en=_cut(note.en), zh=_cut(note.zh)) for note in notes[:MOST_NOTES]]
    if (more := len(notes) - MOST_NOTES) > 0:
        kept.append(T(en=f"and {more} more notes", zh=f"另有 {more} 条备注"))
    return tuple(kept)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]} …"


def _read(submission: Submission, keys: Sequence[str]) -> Sheet:
    names = submission.parts or (submission.student,)
    named = attempted(names) if submission.dated else None
    if submission.problem is not None:
        received = named or submission.received
        return Sheet(submission.student, problem=submission.problem, received=received, asides=submission.asides)
    cells: dict[str, list[_Cell]] = {}
    almost: list[_Almost] = []
    left = _Left()
    notes = list(submission.notes)
    broken: list[_Broken] = []
    files = _files(submission, broken)
    digest = hashlib.sha256(b"".join(hashlib.sha256(file.raw).digest() for file in files)).hexdigest()
    received = named or max((file.written for file in files), default=None)
    asides = submission.asides
    if any((said := form(name)) and said.late for name in names):
        asides += (T(en="Canvas calls it late", zh="Canvas 标记为迟交"),)
    total, readable, place = 0, 0, 0
    newest: dict[str, int] = {}
    for file in files:
        try:
            books = _books(file)
        except Exception as problem:  # a slip of ours costs one submission, not the class
            broken.append(_broken(file.name, problem, place))
            continue
        for book in books:
            place += 1
            try:
                total += len(book.raw)
                _allow(total)
                for key, source, around in _cells(_notebook(book.raw, notes), almost, left):
                    notes += [_around(key, around)] if around and key in keys else []
                    cells.setdefault(key, []).append(_Cell(source, book.name, book.written))
                    newest[key] = place
                readable += 1
            except Exception as problem:
                broken.append(_broken(book.name, problem, place))
    zipped = (
        [f"{file.name}/{name}" for file in files for name in _beside(archives.others(file.raw, _INSTEAD))][:MOST_BESIDE]
        if readable
        else []
    )
    beside = (*submission.beside, *zipped, *(each.name for each in broken if each.is_other and readable))
    lost = [each for each in broken if not each.is_other and not all(newest.get(key, 0) > each.place for key in keys)]
    if not readable or lost:
        why = _in_part(lost[-1].name, lost[-1].why) if readable else broken[0].why
        return Sheet(
            submission.student,
            digest=digest,
            notes=tuple(notes),
            problem=why,
            received=received,
            asides=asides,
            beside=beside,
        )
    notes += [_left_out(each.name, each.why) for each in broken]
    notes += map(_not_read, zipped)
    taken = {key: _last_filled(key, cells[key]) for key in keys if key in cells}
    notes += _which(cells, taken)
    notes += [_passed_over(left.unread)] if left.unread else []
    answers = {key: cell.source for key, cell in taken.items()}
    open_ones = [key for key in keys if key not in answers or same(answers[key], exercises()[key].given)]
    notes += [note for each in almost if (note := _meant(each, open_ones))]
    notes = list(dict.fromkeys(notes))
    return Sheet(
        submission.student,
        answers,
        tuple(notes),
        digest,
        _beliefs(submission),
        received=received,
        asides=asides,
        beside=beside,
    )


def _broken(name: str, problem: Exception, place: float) -> _Broken:
    if isinstance(problem, UnreadableArchive):
        return _Broken(name, problem.sentence, place, problem.is_other)
    kind = type(problem).__name__
    return _Broken(name, T(en=f"it cannot be read ({kind})", zh=f"无法读取（{kind}）"), place)


def _in_part(name: str, why: T) -> T:
    """Why a submission whose other files can be read gets no mark: the file ``name``, which cannot, may hold what
    counts.
    """
    said = quoted(name)
    return T(en=f"{said}, which may hold what counts: {why.en}", zh=f"{said}（其中可能有应计分的答案）：{why.zh}")


def _beside(names: Iterable[str]) -> tuple[str, ...]:
    """The names of files beside notebooks, without the teacher's README; at most ``MOST_BESIDE``."""
    own = (name for name in names if not _OURS.fullmatch(name))
    return tuple(_inside(name) for name in itertools.islice(own, MOST_BESIDE))


def _inside(name: str) -> str:
    """The name of a file inside an archive or folder, for a message; of a long name only its end."""
    return _printable(name) if len(name) <= LONGEST_NAME else f"…{_printable(name[-LONGEST_NAME:])}"


def _not_read(name: str) -> T:
    return T(en=f"{quoted(name)} is no notebook and was not read", zh=f"{quoted(name)} 不是笔记本，未读取")


def _left_out(name: str, why: T) -> T:
    return T(en=f"{quoted(name)} was left out: {why.en}", zh=f"{quoted(name)} 未计入：{why.zh}")


def _files(submission: Submission, broken: list[_Broken]) -> list[_Book]:
    """The files of a submission that can be opened, oldest first; the others are appended to ``broken``."""
    files = []
    total = 0
    for path in submission.files:
        try:
            raw, written = _bytes(path)
            total += len(raw)
            _allow(total)
            files.append(_Book(_printable(path.name), raw, written))
        except UnreadableArchive as reason:
            broken.append(_broken(_printable(path.name), reason, math.inf))
    return [files[n] for n in in_order([(file.name, file.written) for file in files])]


def _books(file: _Book) -> list[_Book]:
    """The notebooks of a file, oldest first: the file itself, or those in a zip.

    Raises ``UnreadableArchive`` for other archives and documents, and for a zip with files of several people.
    """
    archives.refuse_others(file.raw)
    if not archives.is_zip(file.raw):
        archives.refuse_documents(file.name, file.raw)
        return [file]
    inside = archives.unpacked(file.raw, most=MOST_FILES, largest=LARGEST)
    if several := _of_several(name for name, _, _ in inside):
        raise UnreadableArchive(several.en, several.zh)
    order = in_order([(name, written) for name, _, written in inside])
    return [_Book(f"{file.name}/{_inside(inside[n][0])}", inside[n][1], inside[n][2]) for n in order]


def _which(cells: dict[str, list[_Cell]], taken: dict[str, _Cell]) -> list[T]:
    """Notes for exercises with several different answers: which answer counts."""
    notes = []
    places: dict[tuple[int, str, bool], list[str]] = {}
    for key, counts in taken.items():
        others = [cell for cell in cells[key] if cell.file != counts.file]
        if len({cell.source for cell in cells[key]}) < 2:
            continue
        if others:
            tied = [cell for cell in others if cell.written == counts.written]
            same_time = bool(tied) and not any(tells_order(cell.file) for cell in (counts, *tied))
            places.setdefault((len({cell.file for cell in cells[key]}), counts.file, same_time), []).append(key)
        else:
            en = f"exercise {key} is there {len(cells[key])} times; the last one that is filled in counts"
            notes.append(T(en=en, zh=f"练习 {key} 出现了 {len(cells[key])} 次；以最后一个已作答的为准"))
    return notes + [_placed(keys, *place) for place, keys in places.items()]


def _passed_over(cells: int) -> T:
    """A note that ``cells`` cells were not read: too many have something above their ``%%exercise``, which is slow to
    read.
    """
    return T(
        en=f"{cells} more cells with something above their %%exercise were not read: there are too many of them",
        zh=f"另有 {cells} 个在 %%exercise 之上还有内容的单元格未读取：这样的单元格太多",
    )


def _placed(keys: Sequence[str], files: int, file: str, same_time: bool) -> T:
    """A sentence for a student whose answers to the exercises ``keys`` are in several ``files`` (their
    number): those in ``file`` count.

    ``same_time``: the sentence adds that another of these files has the same time, so that the order is uncertain.
    """
    one = len(keys) == 1
    said = (
        ("exercise", "is", "the one", "counts", "another was")
        if one
        else ("exercises", "are", "those", "count", "others were")
    )
    en = f"{said[0]} {', '.join(keys)} {said[1]} in {files} files; {said[2]} in {quoted(file)} {said[3]}"
    zh = f"练习 {'、'.join(keys)} 出现在 {files} 个文件中；以{quoted(file)}中的为准"
    return (
        T(en=f"{en}, and {said[4]} written at the same time", zh=f"{zh}，另有文件的写入时间相同")
        if same_time
        else T(en=en, zh=zh)
    )


def _last_filled(key: str, found: list[_Cell]) -> _Cell:
    """The last cell that is neither empty nor the unchanged given cell; if there is none, the last cell."""
    given = exercises()[key].given
    return next(
        (each for each in reversed(found) if _is_filled(each.source) and not same(each.source, given)), found[-1]
    )


def _is_filled(source: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in source.split("\n"))


def same(source: str, given: str) -> bool:
    """Whether the cell ``source`` is what was ``given``, apart from space at the end of each line and empty lines
    before and after the text.
    """
    return _lines(source) == _lines(given)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().lstrip("\n").splitlines()]


def _beliefs(submission: Submission) -> tuple[tuple[str, str], ...]:
    """Pairs (misconception, question) from the progress files in a handed-in folder, sorted.

    Empty if a single file was handed in, or if there is no progress file that can be read.
    """
    found = set()
    for folder in sorted({path.parent for path in submission.files})[:MOST_PROGRESS] if submission.is_folder else ():
        path = folder / progress.NAME
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(progress.ProgressError):
                items = [(f"{entry.chapter} {entry.item}", entry.beliefs) for entry in progress.load(folder).entries]
                found |= {
                    (key, item)
                    for item, keys in items
                    if _ITEM.fullmatch(item)
                    for key in keys
                    if key in MISCONCEPTIONS
                }
    return tuple(sorted(found)[:MOST_BELIEFS])


def _bytes(path: Path) -> tuple[bytes, float]:
    """The content of a file, and the time at which it was last written, in seconds since 1970.

    Raises ``UnreadableArchive`` for a link, for what is no ordinary file, and for a file above ``LARGEST`` bytes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise UnreadableArchive(_LINK.en, _LINK.zh) from None
        raise UnreadableArchive(
            f"the file cannot be read: {problem.strerror}", f"文件无法读取：{problem.strerror}"
        ) from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableArchive("it is not an ordinary file", "这不是普通文件")
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise UnreadableArchive(f"the file is larger than {LARGEST >> 20} MiB", f"文件大于 {LARGEST >> 20} MiB")
    return raw, status.st_mtime


def _allow(total: int) -> None:
    """Raise if ``total``, the bytes of all notebooks of one student, is above the limit."""
    if total > 2 * LARGEST:
        raise UnreadableArchive(f"together they are larger than {LARGEST >> 19} MiB", f"合计大于 {LARGEST >> 19} MiB")


def _notebook(raw: bytes, notes: list[T]) -> list[Any]:
    """The list of a notebook's cells as the file has them; ``notes`` gets a remark if the file is not in UTF-8.

    Raises ``UnreadableArchive`` if the file cannot be read as a notebook.
    """
    if not raw.strip():
        raise UnreadableArchive("the file is empty", "文件是空的")
    encoding = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as problem:
        en, zh = f"it is not text in UTF-8 (byte {problem.start})", f"它不是 UTF-8 文本（第 {problem.start} 字节）"
        raise UnreadableArchive(en, zh) from None
    if encoding not in {"utf-8", "utf-8-sig"}:
        name = encoding.upper()
        notes.append(
            T(
                en=f"the notebook is encoded in {name}, not in UTF-8; it was read anyway",
                zh=f"笔记本的编码是 {name} 而不是 UTF-8；仍已读取",
            )
        )
    if text.count("{") + text.count("[") + text.count(",") // 2 > MOST_PARTS:
        raise UnreadableArchive(
            f"it has more than {MOST_PARTS:,} lists and values", f"其中的列表和值超过 {MOST_PARTS:,} 个"
        )
    try:
        document = json.loads(text, parse_int=_whole)
    except RecursionError:
        raise UnreadableArchive("its lists are nested too deeply", "其中的列表嵌套过深") from None
    except MemoryError:
        raise UnreadableArchive("reading it takes too much memory", "读取它需要过多内存") from None
    except ValueError:
        raise UnreadableArchive("it is not a notebook: it is no JSON", "它不是笔记本：不是 JSON") from None
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        if isinstance(document, dict) and "worksheets" in document:
            raise UnreadableArchive(
                "it is a notebook of an old format; open and save it in JupyterLab",
                "它是旧格式的笔记本；请在 JupyterLab 中打开并保存",
            )
        raise UnreadableArchive("it is not a notebook: it has no list of cells", "它不是笔记本：没有单元格列表")
    return cells


def _whole(digits: str) -> float:
    """The integer written by ``digits``; infinity if it has 1000 digits or more, since no notebook needs its value."""
    return int(digits) if len(digits) < _DIGITS else math.inf


_DIGITS = 1000


def _around(key: str, names: Sequence[str]) -> T:
    """A sentence for a student: these magics above the exercise do nothing here."""
    what, one = ", ".join(f"`%%{name}`" for name in names), len(names) == 1
    en = (
        f"{key}: {what} above the exercise {'has' if one else 'have'} a meaning in a notebook only and "
        f"{'was' if one else 'were'} skipped"
    )
    return T(en=en, zh=f"{key}：练习之上的 {what} 只在笔记本中有意义，已跳过")


def _cells(cells: list[Any], almost: list[_Almost], left: _Left) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield for each cell of an exercise its key, the source below its first line, and the magics above that line.

    Cells that only look like one are appended to ``almost``.
    """
    for cell in cells:
        source = cell.get("source") if isinstance(cell, dict) else None
        if isinstance(source, list):  # a program may have put something else between the lines
            source = "".join(line for line in source if isinstance(line, str))
        if isinstance(source, str):
            source = source[: LONGEST + FIRST_LINES]
            # half of a surrogate pair is no character: no file and no compiler takes it
            source = (
                source.replace("\r\n", "\n")
                .replace("\r", "\n")
                .encode("utf-16", "surrogatepass")
                .decode("utf-16", "replace")
            )
            is_code = cell.get("cell_type") == "code"
            wrapped = is_code and CELL.match(source) is None and "%%exercise" in source[:FIRST_LINES]
            found = exercise_of(source) if is_code and (not wrapped or left.allows(source)) else None
            if found:
                yield found
            if (found is None or found[0] not in exercises()) and len(almost) < MOST_ALMOST:
                line = next(
                    (
                        line
                        for line in _ALMOST.finditer(_as_seen(source[:FIRST_LINES]))
                        if nearest(line["word"].lower(), ["exercise"])
                    ),
                    None,
                )
                almost += (
                    [_Almost(line["number"], _first(line[0]), line.string.count("\n", 0, line.start()) + 1, is_code)]
                    if line
                    else []
                )


def _as_seen(text: str) -> str:
    """A text as a reader sees it: without characters of no width, and with wide letters, digits and signs as plain
    ones.
    """
    return unicodedata.normalize("NFKC", "".join(sign for sign in text if unicodedata.category(sign) != "Cf"))


def _first(text: str) -> str:
    """The beginning of a cell's line for a message: at most forty characters, in printable form."""
    return _printable(text.strip()[:40])


def _meant(almost: _Almost, keys: Sequence[str]) -> T | None:
    """A note on a cell that looks like an answer to one of the exercises ``keys`` and was not read; None if it does
    not.
    """
    number = ".".join(re.findall(r"\d+", almost.number))
    key = number if number in keys else None if number in exercises() else nearest(number, keys)
    if key is None:  # it is like none of them, or means another exercise of the course
        return None
    what = T(en="cell", zh="单元格") if almost.is_code else T(en="cell that is no code", zh="非代码单元格")
    said = quoted(almost.text)
    en = f"{key}: the {what.en} with {said} in line {almost.line} was not read: an answer is a code cell"
    en = f"{en} that begins with “%%exercise {key}”"
    zh = f"{key}：第 {almost.line} 行为{said}的{what.zh}未被读取：答案须是以“%%exercise {key}”开头的代码单元格"
    return T(en=en, zh=zh)


def exercise_of(source: str) -> tuple[str, str, tuple[str, ...]] | None:
    """A triple for a cell that answers an exercise: the exercise's key, the cell's text below ``%%exercise``, and the
    names of the cell magics above that line; None if the cell answers none.

    The cell is read as a notebook's kernel would read it: around the magic there may be prompts, and magics that run
    the cell as it is.
    """
    if begin := CELL.match(source):
        return begin[1], source[begin.end() :], ()
    if "%%exercise" not in source[:FIRST_LINES]:
        return None
    from IPython.core.inputtransformer2 import TransformerManager

    around: list[str] = []
    while len(around) < len(_AROUND):
        lines = source.splitlines(keepends=True)
        for change in cast("list[Any]", TransformerManager().cleanup_transforms):
            lines = change(lines)
        name, _, words = (
            lines[0].removeprefix("%%").strip().partition(" ") if lines and lines[0].startswith("%%") else ("", "", "")
        )
        source = "".join(lines[1:])
        if name == "exercise" and len(words) < FIRST_LINES:
            with contextlib.suppress(practice.Unreadable):
                return practice.options(words).key, source, tuple(around)
        if name not in _AROUND:
            break
        around.append(name)
    return None
