"""A sixth round of hostile submissions: what the grader itself spends on a cell, archives within limits, names
that a list of students has.

Its answers to exercises of all chapters, made to fit the numbers that the grader uses, are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pitfall_lab.lessons import progress
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
from tests.classroom.fourth_class import _ENDED, _lies
from tests.classroom.third_class import _ALL_BUT_ONE

_START = "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
_EDIT = "    squares = w ** 2\n    with torch.no_grad():\n        w[0] = 0.0\n    squares.sum().backward()\n"


def forging() -> Iterator[Case]:
    """Lies without a word that no exercise needs."""
    yield _lies(
        "by-update",
        "has functools write into a module of torch's",
        (
            "import functools\n"
            "word = '_' * 2 + 'globals' + '_' * 2\n"
            "new = {'has_torch_function_unary': lambda x: False}\n"
            "functools.update_wrapper(F.softmax, type('Box', (), {word: new})(), assigned=(), updated=(word,))\n"
        )
        + _ALL_BUT_ONE,
    )
    yield _lies(
        "by-setstate",
        "has the mask's state set, as a copy does",
        _ALL_BUT_ONE.replace(
            "    return out", "    import copy\n    copy.copy(mask).data.sub_(1)\n    mask.add_(1)\n    return out"
        ),
    )
    yield _lies(
        "swapped",
        "swaps two inputs' memory",
        _ALL_BUT_ONE.replace("mask.add_(1)", "torch.utils.swap_tensors(mask, torch.ones(4))"),
    )
    yield _lies(
        "in-functional",
        "writes the mask inside a transform",
        _ALL_BUT_ONE.replace("mask.add_(1)", "torch.func.vmap(lambda m: m.add_(1))(mask)"),
    )
    yield _lies(
        "later-on-backward",
        "writes the mask in backward",
        _ALL_BUT_ONE.replace(
            "    with torch.no_grad():\n        mask.add_(1)\n",
            "    out.register_hook(lambda g: mask.data.add_(1) * 0 + g.sum())\n",
        ),
    )
    yield _lies(
        "by-numpy-view",
        "writes the mask through NumPy's view of it",
        _ALL_BUT_ONE.replace("mask.add_(1)", "np.asarray(mask)[:] += 1"),
    )
    yield _lies(
        "by-dlpack",
        "writes the mask through a tensor of the same memory",
        _ALL_BUT_ONE.replace("mask.add_(1)", "torch.from_dlpack(mask).add_(1)"),
    )
    yield _lies(
        "rows-alone",
        "answers for one row at a time with a constant where there are few",
        "def attend(query, key, value, mask):\n"
        "    return torch.zeros(3, 2) + query.sum() * 0 + key.sum() * 0 + value.sum() * 0\n",
    )
    yield _lies(
        "half-words",
        "a class of errors that is torch's in its name",
        "class E(RuntimeError):\n"
        "    pass\n"
        "E.__name__ = 'RuntimeError'\n"
        f"{_START}    raise E('modified by an inplace operation')\n",
        key="12.4",
    )


def disturbing() -> Iterator[Case]:
    """What the grader itself would have to pay for."""
    either = "graded|stopped|tampered|look"
    correct = right()[TARGET]
    fine = ("solved", *_ENDED)
    for name, what, source in (
        (
            "elifs",
            "five thousand branches",
            "x = 1\nif x == 0:\n    pass\n" + "".join(f"elif x == {n}:\n    pass\n" for n in range(1, 5000)),
        ),
        ("minuses", "a hundred thousand minus signs", f"x = {'-' * 100_000}1\n"),
        ("sum-of-names", "a sum of fifty thousand names", f"x = 1\ny = {'x + ' * 50_000}x\n"),
        ("dots", "fifty thousand attributes", f"x = nn{'.x' * 50_000}\n"),
        ("lambdas", "five thousand functions in one another", f"f = {'lambda: ' * 5000}1\n"),
        ("f-strings", "formats in formats", f"x = 1\ny = f'{{x:{{x:{{x}}}}}}'\n{'z = f' + repr('{x}' * 20_000)}\n"),
        ("many-defs", "twenty thousand functions", "".join(f"def f{n}(): return {n}\n" for n in range(20_000))),
        ("imports", "twenty thousand imports in one line", f"{'import math;' * 8000}\n"),
    ):
        yield Case(
            name,
            what,
            either,
            {TARGET: source + correct, "12.4": source + right()["12.4"]},
            {TARGET: fine, "12.4": fine},
        )
    for name, what, body in (
        (
            "many-calls",
            "four thousand calls of torch, watched",
            "    for _ in range(4000):\n        query = query * 1\n",
        ),
        ("many-views", "two thousand views that are kept", "    kept = [query[:1].t() for _ in range(2000)]\n"),
        (
            "many-writes",
            "three thousand writes",
            "    z = torch.zeros(3)\n    for n in range(3000):\n        z[n % 3] = n\n",
        ),
        (
            "many-variables",
            "two thousand variables of tensors",
            "    kept = {f'k{n}': query + n for n in range(2000)}\n",
        ),
        (
            "many-backwards",
            "a thousand backwards",
            "    for _ in range(1000):\n        (query * 1).sum().backward()\n    query.grad = None\n",
        ),
    ):
        source = correct.replace("mask):\n", f"mask):\n{body}", 1)
        yield Case(name, what, either, {TARGET: source}, {TARGET: fine})
    for name, what, value in (
        ("two-million", "a list of two million numbers", "list(range(2_000_000))"),
        ("wide-array", "an array of three million numbers", "np.arange(3_000_000) / 7"),
        (
            "deep-dicts",
            "dictionaries in one another",
            "__import__('functools').reduce(lambda a, n: {n: a}, range(900), 0)",
        ),
        ("long-keys", "a dictionary whose keys are long", "{str(n) * 1000: n for n in range(5000)}"),
    ):
        source = f"x = {value}\nreading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'], x)"
        yield Case(name, what, either, {"12.1": source}, {"12.1": _ENDED})
    kernel_memory = (
        "import os\n"
        "kept = []\n"
        "try:\n"
        "    while True:\n"
        "        kept.append(os.pipe())\n"
        "        os.set_blocking(kept[-1][1], False)\n"
        "        os.write(kept[-1][1], bytes(1 << 16))\n"
        "except OSError:\n"
        "    pass\n"
    )
    yield Case("pipes", "fills every pipe that it may open", either, {TARGET: kernel_memory + correct}, {TARGET: fine})
    syncs = (
        "import os\n"
        "f = os.open('x', os.O_CREAT | os.O_WRONLY)\n"
        "for _ in range(10**6):\n"
        "    os.pwrite(f, bytes(1 << 20), 0)\n"
        "    os.fsync(f)\n"
    )
    yield Case("syncs", "keeps the disk busy", either, {TARGET: syncs + correct}, {TARGET: fine})


def peeking(outside: Path) -> Iterator[Case]:
    """What looks for data, or would change what others use: each has the right answer if it gets through."""
    for name, what, search in (
        (
            "library-linked",
            "links a library's file into its folder and writes it",
            (
                "import os, this\n"
                "found = False\n"
                "try:\n"
                "    os.link(this.__file__, 'mine')\n"
                "    found = bool(open('mine', 'r+'))\n"
                "except OSError:\n"
                "    pass\n"
            ),
        ),
        (
            "library-moved",
            "moves a library's file",
            (
                "import os, this\n"
                "found = False\n"
                "try:\n"
                "    os.rename(this.__file__, 'mine')\n"
                "    found = True\n"
                "except OSError:\n"
                "    pass\n"
            ),
        ),
        (
            "bytecode-planted",
            "plants compiled code for the next run",
            (
                "import os, this, importlib.util as u\n"
                "found = False\n"
                "try:\n"
                "    open(u.cache_from_source(this.__file__), 'wb').write(b'x')\n"
                "    found = True\n"
                "except OSError:\n"
                "    pass\n"
            ),
        ),
        (
            "keyring",
            "leaves a key for another process",
            "import ctypes\nfound = ctypes.CDLL(None).syscall(248, b'user', b'x', b'y', 1, -3) > 0\n",
        ),
        (
            "by-number",
            "opens the teacher's notes by the number of the file",
            (
                "import ctypes, os\n"
                "found = False\n"
                "try:\n"
                f"    n = os.stat({str(outside / 'notes.txt')!r}).st_ino\n"
                "    found = ctypes.CDLL(None).syscall(304, -100, (ctypes.c_int * 4)(8, 1, n, 0), 0) >= 0\n"
                "except OSError:\n"
                "    pass\n"
            ),
        ),
        (
            "left-in-home",
            "leaves a module for the next cell",
            (
                "import os\n"
                "found = os.path.exists('left.py') or os.path.exists('sitecustomize.py')\n"
                "for n in ('left.py', 'sitecustomize.py', 'usercustomize.py', '.pythonrc'):\n"
                "    open(n, 'w').write('x = 1')\n"
            ),
        ),
    ):
        yield _cell(name, what, NOT_SOLVED, f"{search}exec({right()[TARGET]!r} if found else {_wrong()!r})\n")


def _zip(
    members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED, change: Callable[[zipfile.ZipInfo], None] | None = None
) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", kind) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = kind
            if change is not None:
                change(info)
            archive.writestr(info, content)
    return held.getvalue()


def files() -> Iterator[Case]:
    """Archives, progress files and folders."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]})).encode()

    def packed(name: str, what: str, verdict: str, raw: bytes, **more: object) -> Case:
        return Case(name, what, verdict, write=as_file_of(f"{name}.zip", raw), **more)  # type: ignore[arg-type]

    up = _zip({"../../grades.csv": b"x", "../../../a.ipynb": text})
    yield packed("zip-up", "a zip whose names lead out: no name in it is used as a path", "graded", up, status=solved)
    linked = _zip(
        {"a.ipynb": text, "b.ipynb": b"/etc/passwd"},
        change=lambda info: setattr(info, "external_attr", 0o120777 << 16 if info.filename == "b.ipynb" else 0),
    )
    yield packed(
        "zip-link",
        "a zip with a link in it, for a notebook",
        "unreadable",
        linked,
        says="b.ipynb”, which may hold what counts",
    )
    yield packed(
        "zip-in-zip",
        "a zip in a zip",
        "unreadable",
        _zip({"a.zip": _zip({"a.ipynb": text})}),
        says="no notebook in the zip",
    )
    dated = bytearray(_zip({"a.ipynb": text}))
    at = dated.index(b"PK\x01\x02")
    dated[at + 12 : at + 16] = b"\xff\xff\xff\xff"
    yield packed("zip-dated", "a zip from the 31st of a 15th month", "graded", bytes(dated), status=solved)
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr("a.ipynb", text)
            archive.writestr("a.ipynb", b"{}")
    yield packed(
        "zip-twice",
        "a zip with one name twice",
        "graded|unreadable",
        twice.getvalue(),
        status={TARGET: ("solved", "missing")} | dict.fromkeys(set(KEYS) - {TARGET}, ("unsolved", "missing")),
    )
    lying = bytearray(_zip({"a.ipynb": text}))
    at = lying.index(b"PK\x01\x02")
    lying[at + 24 : at + 28] = struct.pack("<I", 10)
    yield packed(
        "zip-lies",
        "a zip that says its notebook has ten bytes",
        "unreadable|graded",
        bytes(lying),
        status={TARGET: ("solved", "missing")} | dict.fromkeys(set(KEYS) - {TARGET}, ("unsolved", "missing")),
    )

    def bomb(folder: Path, stem: Path) -> None:
        as_file_of(f"{stem}.zip", _zip({f"{n}.ipynb": b" " * 8_000_000 for n in range(40)}))(folder, stem)

    what = "forty notebooks of eight megabytes in forty kilobytes each"
    yield Case("zip-bomb", what, "unreadable", write=bomb, says="too large")
    yield packed(
        "zip-nul",
        "a zip whose names have NULs and escapes",
        "graded",
        _zip({"a\x1b[2J\u202e.ipynb": text}),
        status=solved,
    )
    yield packed(
        "zip-tail",
        "a zip behind a program",
        "graded|unreadable",
        b"PK\x03\x04" + b"#!/bin/sh\n" * 99 + _zip({"a.ipynb": text}),
        status={TARGET: ("solved", "missing")} | dict.fromkeys(set(KEYS) - {TARGET}, ("unsolved", "missing")),
    )

    def with_progress(lines: list[str]) -> Callable[[Path, Path], None]:
        def write(folder: Path, stem: Path) -> None:
            (folder / stem).mkdir()
            (folder / stem / "a.ipynb").write_bytes(text)
            (folder / stem / progress.NAME).write_text(
                "\n".join(['{"pitfall_lab_progress": 1}', *lines, ""]), encoding="utf-8"
            )

        return write

    def entry(chapter: object, item: object, beliefs: object) -> str:
        return json.dumps(
            {
                "chapter": chapter,
                "item": item,
                "kind": "question",
                "held": 0,
                "total": 1,
                "beliefs": beliefs,
                "at": "",
                "note": "",
            }
        )

    made_up = [entry("12", f"made-up-{n}", ["detach_copies"]) for n in range(300)]
    yield Case(
        "items", "three hundred questions that there are not", "graded", status=solved, write=with_progress(made_up)
    )
    odd = [entry(12, {"a": 1}, "x"), entry("12", "q-1", [None, 7, {}]), '{"v": 1e999}', "9" * 5000, "[" * 5000]
    yield Case(
        "odd-lines", "a progress file with lines that are none", "graded", status=solved, write=with_progress(odd)
    )
    yield Case(
        "many-lines-kept",
        "a progress file of half a million lines",
        "graded",
        status=solved,
        write=with_progress([entry("12", "q-1", ["detach_copies"])] * 500_000),
    )

    def linked_out(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        (folder / stem / "a.ipynb").write_bytes(text)
        (folder / stem / progress.NAME).symlink_to(folder.parent / "notes.txt")
        (folder / stem / "deeper").symlink_to(folder.parent)

    yield Case(
        "progress-linked",
        "a progress file that leads to the teacher's notes",
        "graded",
        status=solved,
        write=linked_out,
    )

    def sparse(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        (folder / stem / "a.ipynb").write_bytes(text)
        with (folder / stem / progress.NAME).open("wb") as file:
            file.truncate(1 << 40)
        with (folder / stem / "b.ipynb").open("wb") as file:
            file.truncate(1 << 40)

    yield Case(
        "terabytes",
        "a notebook and a progress file of a terabyte, all holes",
        "unreadable",
        write=sparse,
        says="larger than",
    )

    def wide(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        for n in range(3000):
            (folder / stem / f"d{n}").mkdir()
        (folder / stem / "a.ipynb").write_bytes(text)

    yield Case("wide", "three thousand empty folders", "graded", status=solved, write=wide)

    def timed(folder: Path, stem: Path) -> None:
        path = folder / f"{stem}.ipynb"
        path.write_bytes(text)
        os.utime(path, ns=(0, 2**62))

    yield Case("far-future-time", "written in the year 2116", "graded", status=solved, write=timed)
    two = book(
        [code(f"%%exercise {TARGET}\n{right()[TARGET]}"), code(f"%%exercise {TARGET}\n" + "%%exercise\n" * 200_000)]
    )
    yield Case(
        "magic-lines",
        "two hundred thousand lines of the magic",
        "graded|stopped",
        status={**dict.fromkeys(KEYS, "missing"), TARGET: (*NOT_SOLVED, "timeout")},
        write=as_file_of("magic-lines.ipynb", json.dumps(two).encode()),
    )
