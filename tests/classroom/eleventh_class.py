"""An eleventh round of hostile submissions, written against what held the tenth; its answers to all
chapters are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
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
from tests.classroom.eighth_class import LOST, _raw
from tests.classroom.fourth_class import _ENDED

BRACES = "'" + "{" * 95_000 + "'.format"
"""A text whose every sign may begin a field of a format."""


def disturbing() -> Iterator[Case]:
    """What costs the grader more than the cell, or breaks what is written of it."""
    correct = right()[TARGET]
    either, fine = "graded|stopped|tampered|look", ("solved", *_ENDED)
    yield Case(
        "braces",
        "a text of braces, for who reads its words",
        "graded",
        {TARGET: f"{correct}kept = {BRACES}\n"},
        {TARGET: "solved"},
    )
    for name, what, value in (
        ("million-dicts", "answers with a million dictionaries", "[{} for _ in range(1_000_000)]"),
        ("million-lists", "answers with a million lists in a list", "[[] for _ in range(1_200_000)]"),
    ):
        source = (
            f"x = {value}\n"
            "reading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'])\n"
            "reading['shape'] = x\n"
        )
        yield Case(name, what, "stopped", {"12.1": source}, {"12.1": ("output", "timeout", "memory")})
    marked = (
        "E = type('<img src=x onerror=alert(1)>`[x](javascript:1)', (Exception,), {})\n"
        "raise E('`</code><script>alert(1)</script>`\\n\\n# $x$ ![](//x)')\n"
    )
    yield _cell(
        "marked-error",
        "an error whose name and text are marked up in three languages",
        ("partly", "failed", "error"),
        marked,
    )
    left = (
        "import os\n"
        "for n in range(40):\n"
        "    os.mkdir(bytes([n + 200]) * 200)\n"
        "    os.symlink(b'..', bytes([n + 200]) * 200 + b'/\\n\\x1b[2J')\n"
        "os.symlink('loop', 'loop')\n"
        "os.mkdir('shut', 0o700)\n"
        "open('shut/-rf', 'w').close()\n"
        "os.umask(0o777)\n"
        "os.mkdir('dark')\n"
    )
    yield Case(
        "odd-leftovers",
        "leaves names that are no text, links in a ring, a dark folder",
        either,
        {TARGET: left + correct},
        {TARGET: fine},
    )
    thread = (
        "import threading, os\n"
        "def fill():\n"
        "    n = 0\n"
        "    while True:\n"
        "        n += 1\n"
        "        try:\n"
        "            os.mkdir(f'd{n % 400}')\n"
        "            os.rename(f'd{n % 400}', f'e{n % 300}')\n"
        "        except OSError:\n"
        "            pass\n"
        "threading.Thread(target=fill, daemon=True).start()\n"
    )
    yield Case(
        "late-folders", "makes and moves folders up to its end", either, {TARGET: thread + correct}, {TARGET: fine}
    )


def peeking(outside: Path) -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    memory = (
        "import ctypes, os, sys\nc, (ear, mouth) = ctypes.CDLL(None), os.pipe()\n"
        # its own memory never has the name the right way round
        f"backwards = {str(outside / 'submissions')[::-1].encode()!r}\n"
        "places = {id(m) >> 22 for m in [*sys.modules.values(), sys.argv, sys.path, os.environ]}\n"
        "for big in sorted({p + d for p in places for d in range(-1, 2)}):\n    for at in range(big << 22, (big + 1) << 22, 4096):\n"  # noqa: E501
        "        if c.write(mouth, ctypes.c_void_p(at), 4096) == 4096:\n            found = found or backwards in os.read(ear, 4096)[::-1]\n"  # noqa: E501
    )
    texts = (
        "import pathlib, sys\n"
        "words, found = 'scores = scores ' + '* mask', False\n"
        "import pitfall_lab, numpy\n"
        "for home in (pathlib.Path(pitfall_lab.__file__).parent, pathlib.Path(numpy.__file__).parent.parent / "
        "'pitfall_lab', pathlib.Path(sys.prefix, 'share', 'jupyter')):\n"
        "    for path in [*home.glob('*'), *home.glob('*/*'), *home.glob('*/*/*')]:\n"
        "        try:\n"
        "            found = found or (path.is_file() and words in path.read_text(errors='replace'))\n"
        "        except OSError:\n"
        "            pass\n"
    )
    again = (
        "import os\n"
        "for n in range(32):\n"
        "    try:\n"
        "        f = os.open(f'/proc/self/fd/{n}', os.O_RDONLY | os.O_NONBLOCK)\n"
        "    except OSError:\n"
        "        continue\n"
        "    try:\n"
        "        found = found or bool(os.read(f, 9))\n"
        "    except OSError:\n"
        "        pass\n"
        "    os.close(f)\n"
    )
    caches = (
        "import os, tempfile, sys\n"
        "places = [torch.hub.get_dir(), '/var/tmp', '/run', '/dev/shm', sys.prefix, os.path.expanduser('~/.cache'), "
        "'/tmp/torchinductor_' + str(os.getuid()), '/tmp']\n"
        "for place in places:\n"
        "    try:\n"
        "        os.makedirs(place, exist_ok=True)\n"
        "        mine = place.startswith(os.environ['HOME'])\n"
        "        found = found or os.path.exists(place + '/left')\n"
        "        open(place + '/left', 'w').close()\n"
        "        found = found or not mine\n"
        "    except OSError:\n"
        "        pass\n"
    )
    for name, what, search in (
        ("class-folder", "searches its memory for the name of the class's folder", memory),
        ("texts-of-package", "searches the package's files for the words of the answer", texts),
        ("pipes-again", "opens its pipes once more, to read what is in them", again),
        ("caches", "leaves a file where libraries keep theirs, for the next cell", caches),
    ):
        # A long search may be stopped, which earns nothing either.
        yield replace(peeks(name, what, search), verdict="graded|stopped", status={TARGET: (*NOT_SOLVED, *_ENDED)})


def files() -> Iterator[Case]:
    """Names, notebooks and archives."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    wrong = json.dumps(notebook({}))

    def zipped(members: dict[str, str], comment: bytes = b"", kind: int = zipfile.ZIP_DEFLATED) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", kind) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
            archive.comment = comment
        return held.getvalue()

    inner = zipped({"a.ipynb": wrong}, kind=zipfile.ZIP_STORED)
    yield Case(
        "zip-in-comment",
        "a zip whose comment is another zip",
        "graded|empty|unreadable",
        status={TARGET: ("solved", "unsolved", "missing")}
        | dict.fromkeys(set(KEYS) - {TARGET}, ("unsolved", "missing")),
        write=as_file_of("zip-in-comment.zip", zipped({"a.ipynb": text}, comment=inner[:60_000])),
    )
    parts = f'{{"cells": [{"[]," * 2_900_000}0]}}'
    yield Case(
        "zip-parts",
        "three notebooks of three million lists each, in twenty kilobytes",
        "graded",
        status=solved,
        write=as_file_of("zip-parts.zip", zipped({f"{n}.ipynb": parts for n in range(3)} | {"z.ipynb": text})),
    )

    def a_folder(folder: Path, stem: Path) -> None:
        (folder / stem / "12.ipynb").mkdir(parents=True)
        (folder / stem / "12.ipynb" / "a.ipynb").write_text(text, encoding="utf-8")
        (folder / stem / "roster.csv").write_text("student,received\nright-1,1999-01-01\n", encoding="utf-8")
        (folder / stem / "assignment.toml").write_text("format = 1\n", encoding="utf-8")

    yield Case(
        "folder-of-teachers",
        "a folder called as a notebook, with files called as the teacher's",
        "graded",
        status=solved,
        write=a_folder,
    )
    twice = (
        f'{{"cells": [], "cells": {json.dumps(json.loads(text)["cells"])}, "nbformat": 4, "metadata": {{"cells": []}}}}'
    )
    yield Case("two-lists", "a notebook with two lists of cells", "graded", status=solved, write=_raw(twice.encode()))
    kinds = book(
        [
            code(f"%%exercise {TARGET}\n{right()[TARGET]}"),
            {**code(f"%%exercise {TARGET}\nx = 1"), "cell_type": ["code"]},
            {"cell_type": "code", "source": {"0": "%%exercise 12.1\nx = 1"}},
        ]
    )
    missing = dict.fromkeys(KEYS, "missing")
    yield Case(
        "odd-kinds",
        "cells whose kind is a list, or whose text is an object",
        "graded",
        status={**missing, **solved},
        write=_raw(json.dumps(kinds).encode()),
    )
    name = "Points Possible\n\t=1+1\u2029"

    def named(folder: Path, _: Path) -> None:
        (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")

    yield Case(
        f"Points Possible{LOST}{LOST}=1+1{LOST}",
        "a line of a system's own, with a formula below it",
        "graded",
        status=solved,
        write=named,
    )
    assert os.sep not in name
