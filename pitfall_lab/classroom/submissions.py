"""Submissions as hostile input: files that claim to be notebooks. What counts is the source of ``%%exercise`` cells, and nothing else.

Outputs, execution counts, tags, ids, kernels and every other piece of metadata are not looked at, so they cannot be forged to any use.
Nothing here runs or imports what a submission holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.notebook import practice
from pitfall_lab.trace import T

LARGEST = 32 << 20
"""Bytes of a notebook that are read: more than any notebook of this course with all its outputs."""
MOST_PARTS = 3_000_000
"""Lists and objects of a notebook: each takes some sixty bytes of memory once it is read."""
LONGEST = 1 << 22
"""Characters of a cell that can be an answer."""
MOST_FILES, DEEPEST, MOST_BELIEFS, MOST_PROGRESS = 50, 6, 200, 5
CELL = re.compile(r"\A\s*%%exercise[ \t]+(\d{1,2}\.\d{1,3})(?![\w.])[^\n]*(?:\n|\Z)")
FIRST_LINES = 2000
"""How many characters of a cell are searched for the magic; its options must be shorter."""
_AROUND = frozenset({"time", "timeit", "capture", "prun", "pitfall"})
"""Magics that run a cell as it is, so that an exercise below one is solved in the notebook."""
_ITEM = re.compile(r"[0-9]{1,2} [\w.-]{1,24}", re.ASCII)
_OURS = re.compile(r"readme(\.(md|txt|rst|html))?", re.IGNORECASE)
"""Files of the teacher's among the submissions, besides the generated tables; every other file gets a row."""
MOST_WRAPPED = 500
"""Cells of a notebook with something around the exercise that are read as IPython would: each takes a quarter of a millisecond."""
_HIDDEN = re.compile(r"\.(?!_).*\.ipynb", re.DOTALL)
"""A notebook is a submission even where its name begins with a full stop; what systems leave behind (``._ada.ipynb``) is none."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What one student handed in: a file, or a folder with notebooks in it."""

    student: str
    files: tuple[Path, ...]
    problem: T | None = None
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """What was read of a submission: the cells by the key of their exercise, what there is to say about them, a digest of the files.

    ``beliefs`` are the misconceptions in the progress files that came along, each with its item (``"12 q-3"``). ``problem`` is why nothing
    could be read at all. ``received`` is when the newest of the files was written, in seconds since 1970.
    """

    student: str
    cells: dict[str, str] = field(default_factory=dict)
    notes: tuple[T, ...] = ()
    digest: str = ""
    beliefs: tuple[tuple[str, str], ...] = ()
    problem: T | None = None
    received: float | None = None


class _Unreadable(Exception):
    """The file is not a notebook that can be read; ``sentence`` says why."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.sentence = T(en=en, zh=zh)


def found(folder: Path, grades: str = "grades") -> list[Submission]:
    """The submissions in ``folder``, by name: each file is one, and each folder is one. Links are never followed.

    ``grades`` is how the tables begin that are made beside them.
    """
    ours = re.compile(rf"{_OURS.pattern}|{re.escape(grades)}(\.[\w-]+)*\.(csv|jsonl)(\.part)?", re.IGNORECASE)
    out = []
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if (entry.name.startswith(".") and not _HIDDEN.fullmatch(entry.name)) or (entry.is_file() and ours.fullmatch(entry.name)):
            continue
        if entry.is_symlink():
            out.append(Submission(_name(entry), (), T(en="it is a link, and links are not followed", zh="这是一个链接，链接不会被跟随")))
        elif entry.is_dir():
            files = tuple(_below(entry, DEEPEST))[: MOST_FILES + 1]
            none = T(en="there is no notebook in the folder", zh="文件夹中没有笔记本")
            many = T(en=f"there are more than {MOST_FILES} notebooks in the folder", zh=f"文件夹中的笔记本超过 {MOST_FILES} 个")
            out.append(Submission(_name(entry), files, none if not files else many if len(files) > MOST_FILES else None, is_folder=True))
        else:
            out.append(Submission(_name(entry), (entry,)))
    return _with_unique_names(out)


def _with_unique_names(submissions: list[Submission]) -> list[Submission]:
    """``ada.ipynb`` and the folder ``ada`` are two submissions, and so are two names that look the same: each has a name of its own."""
    names = [submission.student for submission in submissions]
    named, taken = [], set()
    for submission in submissions:
        student = submission.student
        if names.count(student) > 1 and len(submission.files) == 1 and submission.files[0].stem == student:
            student = _printable(submission.files[0].name)
        numbered = (f"{student} ({n})" for n in itertools.count(2))
        unique = next(name for name in itertools.chain([student], numbered) if name not in taken)
        taken.add(unique)
        named.append(replace(submission, student=unique))
    return named


def _name(entry: Path) -> str:
    """A student's name: what the file or folder is called, without signs that no terminal and no table should have to show."""
    name = entry.name.removesuffix(".ipynb") if not entry.is_dir() else entry.name
    return _printable(name)


def _printable(name: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir() and depth:
            yield from _below(Path(entry.path), depth - 1)
        elif entry.is_file() and entry.name.endswith(".ipynb"):
            yield Path(entry.path)


def read(submission: Submission, keys: Iterable[str]) -> Sheet:
    """Read the cells of the exercises called ``keys``. Never raises for what a file holds."""
    keys = list(keys)
    if submission.problem is not None:
        return Sheet(submission.student, problem=submission.problem)
    cells: dict[str, list[str]] = {}
    notes: list[T] = []
    digest = hashlib.sha256()
    unreadable: list[T] = []
    received: float | None = None
    total = 0
    for path in submission.files:
        try:
            raw, written = _bytes(path)
            received = max(received or written, written)
            digest.update(hashlib.sha256(raw).digest())
            total += len(raw)
            _allow(total)
            for key, source in _cells(_notebook(raw, notes)):
                cells.setdefault(key, []).append(source)
        except _Unreadable as reason:
            unreadable.append(reason.sentence)
    if len(unreadable) == len(submission.files):
        return Sheet(submission.student, digest=digest.hexdigest(), problem=unreadable[0], received=received)
    notes += [T(en=f"one of the notebooks was left out: {why.en}", zh=f"有一个笔记本未计入：{why.zh}") for why in unreadable]
    for key in keys:
        if len(set(cells.get(key, ()))) > 1:
            count = len(cells[key])
            notes.append(
                T(
                    en=f"exercise {key} is there {count} times; the last one that is filled in counts",
                    zh=f"练习 {key} 出现了 {count} 次；以最后一个已作答的为准",
                )
            )
    taken = {key: _last_filled(key, cells[key]) for key in keys if key in cells}
    return Sheet(submission.student, taken, tuple(dict.fromkeys(notes)), digest.hexdigest(), _beliefs(submission), received=received)


def _last_filled(key: str, sources: list[str]) -> str:
    """The last cell in which something was done; the last one of all where nothing was: an emptied or untouched copy is no answer."""
    given = exercises()[key].given
    return next((source for source in reversed(sources) if _is_filled(source) and not same(source, given)), sources[-1])


def _is_filled(source: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in source.split("\n"))


def same(source: str, given: str) -> bool:
    """Whether a cell is what was given, but for space at the ends of lines and of the cell."""
    return _lines(source) == _lines(given)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().lstrip("\n").splitlines()]


def _beliefs(submission: Submission) -> tuple[tuple[str, str], ...]:
    """The misconceptions that the learner's own lessons wrote down, where a folder with that file was handed in."""
    found = set()
    for folder in sorted({path.parent for path in submission.files})[:MOST_PROGRESS] if submission.is_folder else ():
        path = folder / progress.NAME
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(progress.ProgressError):
                items = [(f"{entry.chapter} {entry.item}", entry.beliefs) for entry in progress.load(folder).entries]
                found |= {(key, item) for item, keys in items if _ITEM.fullmatch(item) for key in keys if key in MISCONCEPTIONS}
    return tuple(sorted(found)[:MOST_BELIEFS])


def _bytes(path: Path) -> tuple[bytes, float]:
    """What a file holds, and when it was last written."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as problem:
        raise _Unreadable(f"the file cannot be read: {problem.strerror}", f"文件无法读取：{problem.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _Unreadable("it is not an ordinary file", "这不是普通文件")
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise _Unreadable(f"the file is larger than {LARGEST >> 20} MiB", f"文件大于 {LARGEST >> 20} MiB")
    return raw, status.st_mtime


def _allow(total: int) -> None:
    """Raise when the notebooks of one student have so many bytes together."""
    if total > 2 * LARGEST:
        raise _Unreadable(f"together they are larger than {LARGEST >> 19} MiB", f"合计大于 {LARGEST >> 19} MiB")


def _notebook(raw: bytes, notes: list[T]) -> list[Any]:
    """Return the list of a notebook's cells as the file has them; raise if the file cannot be read as a notebook."""
    if not raw.strip():
        raise _Unreadable("the file is empty", "文件是空的")
    encoding = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as problem:
        en, zh = f"it is not text in UTF-8 (byte {problem.start})", f"它不是 UTF-8 文本（第 {problem.start} 字节）"
        raise _Unreadable(en, zh) from None
    if encoding not in {"utf-8", "utf-8-sig"}:
        name = encoding.upper()
        notes.append(
            T(
                en=f"the notebook is encoded in {name}, not in UTF-8; it was read all the same",
                zh=f"笔记本的编码是 {name} 而不是 UTF-8；仍已读取",
            )
        )
    if text.count("{") + text.count("[") > MOST_PARTS:
        raise _Unreadable(f"it has more than {MOST_PARTS} lists and objects", f"其中的列表和对象超过 {MOST_PARTS} 个")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        raise _Unreadable("it is not a notebook: it is no JSON", "它不是笔记本：不是 JSON") from None
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        if isinstance(document, dict) and "worksheets" in document:
            raise _Unreadable(
                "it is a notebook of an old format; open and save it in JupyterLab", "它是旧格式的笔记本；请在 JupyterLab 中打开并保存"
            )
        raise _Unreadable("it is not a notebook: it has no list of cells", "它不是笔记本：没有单元格列表")
    return cells


def _cells(cells: list[Any]) -> Iterator[tuple[str, str]]:
    """Each exercise cell: its key and what is below the line of the magic."""
    wrapped = 0
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if isinstance(source, str):
            source = source[: LONGEST + FIRST_LINES]
            # half of a surrogate pair is no character: no file and no compiler takes it
            source = source.replace("\r\n", "\n").replace("\r", "\n").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            wrapped += CELL.match(source) is None and "%%exercise" in source[:FIRST_LINES]
            if wrapped <= MOST_WRAPPED and (found := exercise_of(source)):
                yield found


def exercise_of(source: str) -> tuple[str, str] | None:
    """The exercise that a cell answers, and what is below the magic's line, as a notebook's kernel would read the cell.

    Around it there may be prompts, and magics that run the cell as it is.
    """
    if begin := CELL.match(source):
        return begin[1], source[begin.end() :]
    if "%%exercise" not in source[:FIRST_LINES]:
        return None
    from IPython.core.inputtransformer2 import TransformerManager

    for _ in range(len(_AROUND)):
        lines = source.splitlines(keepends=True)
        for change in cast("list[Any]", TransformerManager().cleanup_transforms):
            lines = change(lines)
        name, _, words = lines[0].removeprefix("%%").strip().partition(" ") if lines and lines[0].startswith("%%") else ("", "", "")
        source = "".join(lines[1:])
        if name == "exercise" and len(words) < FIRST_LINES:
            with contextlib.suppress(practice.Unreadable):
                return practice.options(words).key, source
        if name not in _AROUND:
            break
    return None
