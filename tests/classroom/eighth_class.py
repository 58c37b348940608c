"""An eighth round of hostile submissions: files that stop the tables of a whole class, and
processes that stop themselves.

Its answers to exercises of all chapters are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    _wrong,
    as_file_of,
    book,
    code,
    notebook,
    right,
)
from tests.classroom.fourth_class import _ENDED

LOST = "\N{REPLACEMENT CHARACTER}"


def disturbing() -> Iterator[Case]:
    """What stops, ends or waits in ways that are seldom."""
    correct = right()[TARGET]
    either, fine = "graded|stopped|tampered|look", ("solved", *_ENDED)
    yield _cell(
        "stops-itself",
        "stops its process by a signal, for ever",
        "timeout",
        "import os\nos.kill(os.getpid(), 19)",
        "stopped",
    )
    yield _cell("empty-search", "raises StopIteration", "error", "next(iter([]))", says="StopIteration")
    yield _cell(
        "generator-exit",
        "raises GeneratorExit",
        ("crash", "error", "exit"),
        "raise GeneratorExit('x')",
        "graded|stopped",
    )
    yield _cell(
        "late-search",
        "raises StopIteration where it is used",
        NOT_SOLVED,
        "def attend(query, key, value, mask):\n    return next(iter([]))\n",
        says="",
    )
    for name, what, source in (
        ("many-parameters", "three thousand parameters and a step of Adam", ("net = nn.ModuleList(nn.Linear(1, 1) for "
        "_ in range(1500))\n"
        "sum(p.sum() for p in net.parameters()).backward()\n"
        "torch.optim.Adam(net.parameters()).step()\n")),
        ("deep-graph", "a graph of thirty thousand nodes in a row", ("z = torch.ones(1, requires_grad=True)\n"
        "for _ in range(30_000):\n"
        "    z = z * 1\n"
        "z.backward()\n"
        "del z\n")),
        ("forward-level", "leaves a level of forward mode open", "torch.autograd.forward_ad.enter_dual_level()\n"),
        ("no-saved-hooks", "refuses hooks of saved tensors for good", "torch.autograd.graph.disable_saved_tensors_hooks('no').__enter__()\n"),  # noqa: E501
        ("forked-numbers", "never leaves its own random numbers", "torch.random.fork_rng().__enter__()\n"),
        ("decimal-traps", "has decimal numbers trap everything", ("import decimal\n"
        "decimal.setcontext(decimal.Context(prec=1, traps=list(decimal.Context().flags)))\n")),
        ("shared-map", "maps four gigabytes that processes would share", ("import mmap\n"
        "try:\n"
        "    mmap.mmap(-1, 4 << 30)[::4096] = bytes(1 << 20)\n"
        "except (OSError, MemoryError):\n"
        "    pass\n")),
        ("far-write", "writes at the far end of a file", ("import os\n"
        "try:\n"
        "    os.pwrite(os.open('x', os.O_CREAT | os.O_RDWR), b'x', 1 << 42)\n"
        "except OSError:\n"
        "    pass\n")),
        ("hard-links", "gives one file nine hundred names", ("import os\n"
        "open('a', 'w').write('x' * 60_000)\n"
        "for n in range(900):\n"
        "    os.link('a', f'b{n}')\n")),
        ("weak-end", "runs at the end by a weak reference", ("import weakref\n"
        "class A:\n"
        "    pass\n"
        "a = A()\n"
        "kept = weakref.ref(a, lambda _: 1 / 0)\n")),
        ("kept-generator", "keeps a generator that ends with an error", ("def g():\n"
        "    try:\n"
        "        yield\n"
        "    finally:\n"
        "        raise SystemExit\n"
        "kept = g()\n"
        "next(kept)\n")),
    ):  # fmt: skip
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: fine})
    answers = "'{[]: 1}'", "'(' * 999", "'-' * 999 + '1'", "'[' * 99 + ']' * 99", "'1 if 1 is 1 else 2'"
    for name, value in zip(
        ("text-unhashable", "text-open", "text-minuses", "text-nested", "text-warns"), answers, strict=True
    ):
        source = f"reading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'], {value})"
        yield Case(name, f"answers with the text {value}", "graded", {"12.1": source}, {"12.1": ("partly", "failed")})


def peeking(outside: Path) -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    for name, what, search in (
        ("uninitialised", "looks for words in memory that torch does not clear", "found = any(b'NEIGHBOUR' in bytes(torch.empty(1 << 20, dtype=torch.uint8).numpy()) for _ in range(40))\n"),  # noqa: E501
        ("main-module", "reads what the grader's own module knows", ("import sys\n"
        "main = vars(sys.modules['__main__'])\n"
        "found = any(type(v) in (list, dict, bytes, bytearray, tuple) and 'mask' in str(v) "
        "for v in main.values())\n")),
        ("threads-locals", "looks at the threads that there are", ("import threading\n"
        "found = any('request' in str(vars(t)) for t in threading.enumerate())\n")),
        ("parents-folder", "follows a descriptor of its parent's", ("import os\n"
        "found = False\n"
        "for n in range(40):\n"
        "    try:\n"
        "        found = found or bool(os.readlink(f'/proc/{os.getppid()}/fd/{n}'))\n"
        "    except OSError:\n"
        "        pass\n")),
        ("pycache-prefix", "looks where compiled answers could be kept elsewhere", ("import sys, os\n"
        "found = False\n"
        f"for place in (sys.pycache_prefix or '/var/cache', {str(outside)!r}):\n"
        "    try:\n"
        "        found = found or bool(os.listdir(place))\n"
        "    except OSError:\n"
        "        pass\n")),
    ):  # fmt: skip
        yield _cell(name, what, NOT_SOLVED, f"{search}exec({right()[TARGET]!r} if found else {_wrong()!r})\n")


def files() -> Iterator[Case]:
    """Names and files that a table or a page of the whole class would fail at."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))

    def named(row: str, name: str | bytes, what: str) -> Case:
        def write(folder: Path, _: Path) -> None:
            (folder / os.fsdecode(name)).write_text(text, encoding="utf-8")

        return Case(row, what, "graded", status=solved, write=write)

    yield named(f"caf{LOST}ada_77_912_x", b"caf\xe9ada_77_912_x.ipynb", "a name of Canvas' form that is not UTF-8")
    yield named(f"caf{LOST}bob_78_913_x", b"caf\xe9bob_78_913_x.ipynb", "another one")
    yield named(
        f"Caf{LOST} Eve_79_assignsubmission_file_x",
        b"Caf\xe9 Eve_79_assignsubmission_file_x.ipynb",
        "one of Moodle's form",
    )
    yield named("x;=1+1", "x;=1+1.ipynb", "a formula behind a semicolon, which separates columns in half of Europe")
    yield named(
        "up\\..\\..\\x_80_914_x",
        "up\\..\\..\\x_80_914_x.ipynb",
        "a name of Canvas' form that leads out on another system",
    )
    inside = code(f"%%exercise {TARGET}\nx =")

    def left_out(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        (folder / stem / "a.ipynb").write_text(text, encoding="utf-8")
        (folder / stem / ";=1+1.ipynb").write_text("no", encoding="utf-8")

    yield Case(
        "formula-inside",
        "a file inside its folder that is called as a formula behind a semicolon",
        "unreadable",
        write=left_out,
        says="=1+1.ipynb”, which may hold what counts",
    )
    for name, place in (("zip-far", 2**64 - 1), ("zip-farther", 2**63)):
        yield Case(
            name,
            "a zip whose file begins beyond all files",
            "unreadable",
            write=as_file_of(f"{name}.zip", _far(place)),
            says="cannot be read",
        )
    turned = right()[TARGET].replace("def attend", "# right \u202e\u2066 gnorw\ndef attend", 1)
    yield Case("turned-code", "a comment that turns the code around it", "graded", {TARGET: turned}, solved)
    returns = json.dumps(book([code(f"%%exercise {TARGET}\r{right()[TARGET]}".replace("\n", "\r"))]))
    missing = dict.fromkeys(KEYS, "missing")
    yield Case(
        "returns",
        "lines that end as on old systems",
        "graded",
        status={**missing, **solved},
        write=_raw(returns.encode()),
    )
    yield Case(
        "utf-16-bare",
        "UTF-16 without a mark",
        "graded",
        status=solved,
        write=_raw(text.encode("utf-16-le")),
        says="UTF-16",
    )
    back = io.BytesIO()
    with zipfile.ZipFile(back, "w") as archive:
        archive.writestr("week\\..\\..\\a.ipynb", text)
        archive.writestr("__MACOSX/._a.ipynb", b"\0\5\26\7")
    yield Case(
        "zip-back",
        "a zip with another system's paths, and what a Mac adds",
        "graded",
        status=solved,
        write=as_file_of("zip-back.zip", back.getvalue()),
    )
    yield Case(
        "broken-last",
        "an answer that is cut off below the right one",
        "graded",
        status={**missing, TARGET: "error"},
        write=_raw(json.dumps(book([code(f"%%exercise {TARGET}\n{right()[TARGET]}"), inside])).encode()),
    )
    statements = code("%%exercise 12.4\n" + "x=1;" * 1_000_000)
    yield Case(
        "statements",
        "a million statements in one line, where something has to fail",
        "stopped|graded",
        status={**missing, "12.4": _ENDED},
        write=_raw(json.dumps(book([statements])).encode()),
    )


def _raw(content: bytes) -> Callable[[Path, Path], None]:
    return lambda folder, stem: as_file_of(f"{stem}.ipynb", content)(folder, stem)


def _far(place: int) -> bytes:
    """A zip whose only file is said to begin at ``place``."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a.ipynb", b'{"cells": []}')
    raw = bytearray(held.getvalue())
    start, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    raw[start + 30 : start + 32] = struct.pack("<H", 12)
    raw[start + 42 : start + 46] = b"\xff" * 4
    raw[end + 12 : end + 16] = struct.pack("<I", end - start + 12)
    name = start + 46 + len("a.ipynb")
    return bytes(raw[:name] + struct.pack("<HHQ", 1, 8, place) + raw[name:])
