"""A tenth round of hostile submissions, written against what held the ninth; its answers to all
chapters are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.classroom.a_class import KEYS, TARGET, Case, _cell, as_file_of, book, code, notebook, peeks, right
from tests.classroom.eighth_class import LOST, _raw
from tests.classroom.fourth_class import _ENDED


def disturbing() -> Iterator[Case]:
    """What breaks its process in ways of the machine's, or takes its own ground away."""
    correct = right()[TARGET]
    either, fine = "graded|stopped|tampered|look", ("solved", *_ENDED)
    truncated = (
        "import mmap, os\n"
        "f = os.open('x', os.O_CREAT | os.O_RDWR)\n"
        "os.ftruncate(f, 1 << 20)\n"
        "m = mmap.mmap(f, 1 << 20)\n"
        "os.ftruncate(f, 0)\n"
        "m[9]\n"
    )
    yield _cell(
        "cut-memory", "reads memory of a file that it has shortened", "crash", truncated, "stopped", says="SIGBUS"
    )
    jumps = "import ctypes\nctypes.CFUNCTYPE(None)(8)()\n"
    yield _cell("jumps", "calls a function at an address where none is", "crash", jumps, "stopped", says="SIGSEGV")
    ground = "import os\nos.mkdir('x')\nos.chdir('x')\nos.rmdir('../x')\n"
    yield Case("no-ground", "removes the folder that it is in", either, {TARGET: ground + correct}, {TARGET: fine})
    calls = (
        "import ctypes\n"
        "c = ctypes.CDLL(None)\n"
        "for n in {*range(470)} - {0, 1, 3, 7, 15, 20, 23, 34, 35, 60, 61, 130, 202, 230, 231, 232, 247, 270, 271, "
        "281, 436}:\n"
        "    c.syscall(n, -1, 0, 0, 0, 0, 0)\n"
    )
    yield Case("all-calls", "tries every system call", either, {TARGET: calls + correct}, {TARGET: fine})
    for name, what, source in (
        ("division", "divides the smallest number by minus one", ("np.array([-(2**63)]) // np.array([-1])\n"
        "torch.tensor([-(2**63)]) // torch.tensor([-1])\n")),
        ("write-only", "makes NumPy's numbers for its inputs unwritable", ("np.zeros(3).setflags(write=False)\n"
        "torch.from_numpy(np.zeros(3)).requires_grad_()\n")),
        ("big-indices", "indexes far outside", ("try:\n"
        "    torch.ones(3)[torch.tensor([2**62])]\n"
        "except IndexError:\n"
        "    pass\n")),
        ("own-round", "calls names of the grader's in its own cell", "before = unchanged = turns = Turns = in_place = lambda *_: True\n"),  # noqa: E501
    ):  # fmt: skip
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: fine})
    values = (
        "iter([16, 4])",
        "np.array([16, 4], dtype=object)",
        "type('S', (), {'__iter__': lambda s: next(iter([]))})()",
        "torch.nn.Parameter(torch.tensor([16.0, 4.0]))",
    )
    for name, value in zip(("value-iterator", "value-objects", "value-stops", "value-parameter"), values, strict=True):
        source = f"x = {value}\nreading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'], x)"
        yield Case(
            name,
            f"answers with {value}",
            "graded|tampered",
            {"12.1": source},
            {"12.1": ("partly", "failed", "tampered")},
        )


def peeking() -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    for name, what, search in (
        ("events", "counts what others do, by events of the processor", ("import ctypes\n"
        "found = ctypes.CDLL(None).syscall(298, bytes(128), -1, 0, -1, 0) >= 0\n")),
        ("page-faults", "handles faults of memory itself", ("import ctypes\n"
        "found = ctypes.CDLL(None).syscall(323, 0) >= 0\n")),
        ("other-roots", "has another root, or a namespace of its own", ("import ctypes\n"
        "c = ctypes.CDLL(None)\n"
        "found = c.chroot(b'.') == 0 or c.unshare(0x10000000) == 0\n")),
        ("left-socket", "leaves a socket's name for the next", ("import socket\n"
        "found = bool(socket.socket(socket.AF_UNIX).bind('s') or 1)\n")),
    ):  # fmt: skip
        yield peeks(name, what, search)


def files() -> Iterator[Case]:
    """Names and files."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))

    def named(row: str, name: str | bytes, what: str) -> Case:
        def write(folder: Path, _: Path) -> None:
            (folder / os.fsdecode(name)).write_text(text, encoding="utf-8")

        return Case(row, what, "graded", status=solved, write=write)

    yield named("e" + "\u0301" * 100, "e" + "\u0301" * 100 + ".ipynb", "a letter with a hundred accents")
    yield named("dots.. ", "dots.. .ipynb", "a name that ends with dots and a space")
    yield named(
        f"Anna{LOST}_9_assignsubmission_file_;=1",
        "Anna\u200f_9_assignsubmission_file_;=1.ipynb",
        "a name of Moodle's form with a formula and a mark of direction",
    )
    yield named("％00", "％00.ipynb", "a wide per cent sign")
    long = json.dumps({**json.loads(text), "metadata": {"n": int("9" * 4000), "k" * 100_000: [[]] * 10_000}})
    yield Case(
        "wide-metadata", "metadata with long numbers and long keys", "graded", status=solved, write=_raw(long.encode())
    )
    empty = book(
        [
            {"cell_type": "code", "source": None},
            {"cell_type": "code", "source": [None]},
            code(f"%%exercise {TARGET} --hint --hint\n{right()[TARGET]}"),
        ]
    )
    missing = dict.fromkeys(KEYS, "missing")
    yield Case(
        "none-sources",
        "cells whose source is nothing",
        "graded",
        status={**missing, **solved},
        write=_raw(json.dumps(empty).encode()),
    )
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for n in range(1500):
            archive.writestr(f"f{n}.txt", b"")
        archive.writestr("a.ipynb", text)
    yield Case(
        "zip-crowd",
        "a zip with fifteen hundred files beside the notebook",
        "graded",
        status=solved,
        write=as_file_of("zip-crowd.zip", many.getvalue()),
    )
    kinds = io.BytesIO()
    with zipfile.ZipFile(kinds, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.ipynb", text)
    yield Case(
        "zip-lzma",
        "a zip that is packed in a way that takes what memory it likes",
        "unreadable",
        write=as_file_of("zip-lzma.zip", kinds.getvalue()),
        says="unusual kind",
    )
