"""A ninth round of hostile submissions, written against what held the eighth; its answers to all
chapters are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    as_file_of,
    book,
    code,
    notebook,
    peeks,
    right,
)
from tests.classroom.eighth_class import _raw
from tests.classroom.fourth_class import _ENDED


def disturbing() -> Iterator[Case]:
    """What would take longer, say more, or end otherwise than it seems."""
    correct = right()[TARGET]
    either, fine = "graded|stopped|tampered|look", ("solved", *_ENDED)
    yield _cell(
        "waits-for-itself",
        "has sixty threads that keep the processor from it",
        ("timeout", "error"),  # an error where the stacks of sixty threads do not fit into the memory of a cell
        "import threading\n"
        "def spin():\n"
        "    while True:\n"
        "        pass\n"
        "[threading.Thread(target=spin, daemon=True).start() for _ in range(60)]\n"
        "spin()",
        "stopped|graded",
    )
    yield _cell(
        "carried-error",
        "raises StopIteration in the text of an error",
        NOT_SOLVED,
        "class E(Exception):\n    def __str__(self):\n        return next(iter([]))\nraise E",
    )
    for name, what, source in (
        ("dying-errors", "a hundred thousand objects that die with an error", ("class D:\n"
        "    def __del__(self):\n"
        "        raise ValueError('x' * 99)\n"
        "for _ in range(100_000):\n"
        "    D()\n")),
        ("left-trace", "traces itself in a generator that is kept", ("def g():\n"
        "    import sys\n"
        "    sys.setprofile(None)\n"
        "    yield\n"
        "kept = g()\n")),
        ("left-mode", "leaves a mode that counts on", ("from torch.utils.flop_counter import FlopCounterMode\n"
        "FlopCounterMode(display=False).__enter__()\n")),
        ("device-kept", "leaves the processor as the default device", "torch.set_default_device('cpu')\n"),
    ):  # fmt: skip
        yield Case(
            name, what, either, {TARGET: source + correct}, {TARGET: fine if name != "device-kept" else "solved"}
        )
    texts = "'\\0' * 1000", "'\\N{MINUS SIGN}' * 1000", "'1_0' + '_0' * 400", "b'x' * 10**6", "{('a',) * 500: 1}"
    for name, value in zip(("text-nuls", "text-signs", "text-lows", "bytes-many", "key-tuple"), texts, strict=True):
        source = f"reading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'], {value})"
        yield Case(name, f"answers with {value}", "graded", {"12.1": source}, {"12.1": ("partly", "failed")})


def peeking() -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    for name, what, search in (
        ("resources", "lists the answers as resources", ("import importlib.resources as r\n"
        "found = bool(list(r.files('pitfall_lab').joinpath('lessons', 'exercises').iterdir()))\n")),
        ("thread-self", "follows its thread's own folder", ("import os\n"
        "found = bool(os.listdir('/proc/thread-self/fd') or os.listdir('/proc'))\n")),
        ("standard-input", "reads what the grader is told", ("import os\n"
        "found = bool(os.read(0, 9) or os.read(os.open('/dev/fd/0', 0), 9))\n")),
    ):  # fmt: skip
        yield peeks(name, what, search)


def files() -> Iterator[Case]:
    """Names and files."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    yield Case("Upper", "a name in capitals", "graded", status=solved, write=as_file_of("Upper.ipynb", text.encode()))
    yield Case(
        "upper", "the same name without", "graded", status=solved, write=as_file_of("upper.ipynb", text.encode())
    )
    yield Case(
        "a; ;@SUM(1)",
        "formulas behind semicolons and space",
        "graded",
        status=solved,
        write=as_file_of("a; ;@SUM(1).ipynb", text.encode()),
    )
    yield Case(
        "two-marks",
        "two byte order marks",
        "unreadable",
        write=_raw(b"\xef\xbb\xbf\xef\xbb\xbf" + text.encode()),
        says="no JSON",
    )
    yield Case("nul-tail", "NULs behind its end", "unreadable", write=_raw(text.encode() + b"\0" * 99), says="no JSON")
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"PK\x01\x02" * 9000
        archive.writestr("/etc/a.ipynb", text)
    yield Case(
        "zip-comment",
        "a zip whose comment looks like nine thousand files",
        "unreadable",
        write=as_file_of("zip-comment.zip", held.getvalue()),
        says="files",
    )
    cut = _packed(text)[:-30]
    yield Case(
        "zip-cut", "a zip that is cut off", "unreadable", write=as_file_of("zip-cut.zip", cut), says="cannot be read"
    )

    def nested(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        for n in range(30):
            (folder / stem / f"{n}.zip").write_bytes(_packed(text))

    yield Case("many-zips", "thirty zips with the same notebook", "graded", status=solved, write=nested)
    worn = book(
        [
            {**code(f"%%exercise {TARGET}\n{right()[TARGET]}"), "cell_type": kind}
            for kind in ("CODE", "code ", "heading")
        ]
    )
    yield Case(
        "no-code",
        "kinds of cells that are nearly code",
        "empty",
        status=dict.fromkeys(KEYS, "missing"),
        write=_raw(json.dumps(worn).encode()),
    )


def _packed(text: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.ipynb", text)
    return held.getvalue()
