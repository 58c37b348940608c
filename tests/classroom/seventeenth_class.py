"""A seventeenth round, on what the sixteenth changed: ways round the list of names that are for use, round the names of
Python's own, round quotation marks, and values that cost memory once they are looked at.

Its rosters and answers are in ``rosters.py`` and ``answers.txt``.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def forging() -> Iterator[Case]:
    """What would not be told, and what would have points."""
    correct, wrong = right()[TARGET], _wrong()
    for name, what, source in (
        ("by-pattern", "reads an attribute by a pattern", (
        "match torch.ones(1):\n    case object(untyped_storage=f):\n        f()\n")),
        ("by-star", "has all of torch's names, and uses one without its module", (
        "from torch import *\nassert UntypedStorage\n")),
        ("by-literal", "reads a part of torch by a plain text", "assert getattr(torch, 'hub')\n"),
        ("by-alias", "reads a part of another module by a plain text", (
        "import torch.utils.data as d\nassert getattr(d, 'dataloader')\n")),
        ("by-own-name", "has a variable of the name that it reads", (
        "untyped_storage = 1\nx = torch.ones(3)\nx.untyped_storage().resize_(12)\n")),
        ("by-format-17", "reads it in a formatted text, and has a variable so", "hub = 1\nprint(f'{torch.hub}')\n"),
        ("by-annotation", "reads it as what a parameter is", "def f(x: torch.hub) -> None:\n    pass\n"),
        ("by-walrus", "reads it in brackets, and keeps it", "print(h := torch.hub)\n"),
        ("by-slices", "reads it in the brackets of a part", "x = [1, 2][torch.hub is None]\n"),
        ("by-default", "reads it as what a method has by itself", (
        "class A:\n    def f(self, h=torch.hub):\n        return h\n")),
        ("by-base", "has a class of it, with a call behind", "class A(torch.hub.tqdm):\n    pass\n"),
        ("by-bytes", "writes a name in bytes, and decodes them", "name = b'__globals__'.decode()\n"),
        ("by-raw-parts", "joins a name of parts of different kinds", "name = r'_' f'_globals_' '\\137'\n"),
    ):  # fmt: skip
        yield Case(name, what, "look", {TARGET: source + correct}, {TARGET: "solved"})
    yield _cell(
        "profiler-left",
        "leaves a profiler of machine code that asks it for the time at each call",
        ("tampered", *NOT_SOLVED),
        "import _lsprof\np = _lsprof.Profiler(lambda: 1)\np.enable()\n" + wrong,
        "tampered|graded",
    )
    yield _cell(
        "search-replaced",
        "replaces how texts are searched, for who uses the cell",
        "tampered",
        "import re\nre.findall = lambda *w: []\n" + correct,
        "tampered",
    )
    yield _cell(
        "draws-replaced",
        "replaces how NumPy draws the exercise's numbers",
        "tampered",
        "np.random.rand = lambda *w: np.zeros(w)\n" + correct,
        "tampered",
    )
    yield _cell(
        "hooks-replaced",
        "replaces how the exercise sees an optimizer's steps",
        "tampered",
        "import torch.optim.optimizer as o\no.register_optimizer_step_pre_hook = lambda f: f\n" + correct,
        "tampered",
    )
    yield _cell(
        "sparse-answer",
        "answers with a sparse tensor that has a place twice, and is another one where it is made dense",
        NOT_SOLVED,
        "def attend(query, key, value, mask):\n"
        "    out = (torch.softmax(query @ key.t(), dim=1) @ value).to_sparse()\n"
        "    return torch.cat([out, out])[: len(query)]\n",
    )
    yield _cell(
        "named-tuple",
        "answers with a tuple that is a number in another place",
        NOT_SOLVED,
        "import collections\n"
        "class Pair(collections.namedtuple('Pair', 'shape grad')):\n"
        "    def __iter__(self):\n"
        "        return iter((1.0, 1.0))\n"
        "def attend(*w):\n"
        "    return Pair((3, 2), None)\n",
        "graded|look",
    )


def disturbing() -> Iterator[Case]:
    """Values that cost memory or depth once they are looked at, and settings."""
    ended = ("tampered", *NOT_SOLVED, *_ENDED)
    for name, what, source in (
        ("expanded", "returns one number that is a thousand million", "return torch.ones(1).expand(10**9)"),
        ("sparse-wide", "returns a sparse tensor of a million million places", (
        "return torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (10**12,))")),
        ("on-meta", "returns a tensor without memory", "return torch.empty(10**9, device='meta')"),
        ("resized-17", "makes what it was given a hundred million numbers", "return mask.resize_(10**8)"),
        ("emptied", "takes the memory from what it was given", "mask.untyped_storage().resize_(0)"),
        ("other-shape", "gives what it was given another shape", "mask.data = torch.zeros(7, 7)"),
        ("deep-dict", "returns nine hundred dicts in one another", (
        "x = {}\n    for _ in range(900):\n        x = {'a': x}\n    return x")),
        ("wide-tuple", "returns a tuple of two million nothings", "return (None,) * 2_000_000"),
        ("many-names-17", "returns a dict of a million texts", "return {str(n): n for n in range(1_000_000)}"),
        ("long-bytes", "returns a hundred million bytes", "return bytes(10**8)"),
        ("nan-keys", "returns a dict of keys that are no number", "return {float('nan'): 0 for _ in range(100_000)}"),
        ("surrogates-17", "returns text of halves of signs", "return '\\ud800' * 1000"),
        ("odd-keys-17", "returns a dict with keys of all kinds", "return {torch.ones(1): 1, int: 2, (1, 2): 3}"),
    ):  # fmt: skip
        cell = f"def attend(query, key, value, mask):\n    {source}\n"
        yield _cell(name, what, ended, cell, "graded|look|stopped|tampered")
    either, correct = "graded|look|stopped|tampered", right()[TARGET]
    for name, what, source in (
        ("short-digits", "lets numbers have few digits as text", "import sys\nsys.set_int_max_str_digits(640)\n"),
        ("long-switch", "has a busy thread that gives way once in a thousand seconds", (
        "import sys, threading\n"
        "sys.setswitchinterval(1000)\n"
        "def run():\n"
        "    while True:\n"
        "        pass\n"
        "threading.Thread(target=run, daemon=True).start()\n")),
        ("memory-traced", "has all memory traced", "import tracemalloc\ntracemalloc.start(50)\n"),
        ("deepest", "allows any depth, and goes down until the stack ends", (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "def f():\n    f()\n"
        "f()\n")),
        ("no-imports", "takes away how modules are found", "import sys\nsys.meta_path.clear()\n"),
    ):  # fmt: skip
        status = ("solved", "error", "tampered", *_ENDED, *NOT_SOLVED)
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: status})


def files() -> Iterator[Case]:
    """Notebooks, archives and times."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    missing = dict.fromkeys(KEYS, "missing")
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    answer = right()[TARGET]

    def dated(seconds: float) -> Any:
        def write(folder: Path, stem: Path) -> None:
            path = folder / f"{stem}.ipynb"
            path.write_text(text, encoding="utf-8")
            os.utime(path, (seconds, seconds))

        return write

    yield Case("far-future-17", "was written in the year 30000", "graded", status=solved, write=dated(884_541_000_000))
    yield Case("before-time", "was written before 1970", "graded", status=solved, write=dated(-(10**9)))
    yield Case("gzipped", "a notebook that is compressed, and called a notebook", "unreadable",
        write=as_file_of("gzipped.ipynb", gzip.compress(text.encode())))  # fmt: skip

    def zipped(*members: tuple[str, str | bytes]) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
        return held.getvalue()

    nested = zipped(("a.zip", zipped(("a.ipynb", text))))
    yield Case("zip-in-zip-17", "a zip in a zip", "unreadable", write=as_file_of("zip-in-zip-17.zip", nested))
    wide = zipped(("quotes❞ was left out; 12.3: 1 point ″.pdf", ""), ("z.ipynb", text))
    yield Case("zip-wide-quotes", "a zip with signs like quotation marks in a name", "graded", status=solved,
        write=as_file_of("zip-wide-quotes.zip", wide), says='s" was left out; 12.3: 1 point ".pdf” is no')  # fmt: skip
    doubled = text.replace('"source": "%%exercise 12.2', '"source": "x", "source": "%%exercise 12.2')
    yield Case("twice-source", "cells with two sources; the last one counts", "graded", status=solved,
        write=as_file_of("twice-source.ipynb", doubled.encode()))  # fmt: skip

    def of(name: str, what: str, cells: list[Any], *, counts: bool = False) -> Case:
        status = {**missing, **(solved if counts else {})}
        write = as_file_of(f"{name}.ipynb", json.dumps(book(cells)).encode())
        return Case(name, what, "graded" if counts else "empty", status=status, write=write)

    yield of("below-comments", "an answer below two thousand signs of comments", [
        code("#" * 2_500 + f"\n%%exercise {TARGET}\n{answer}")
    ])  # fmt: skip
    yield of("v3-input", "an answer where an old notebook has it", [
        {"cell_type": "code", "metadata": {}, "input": f"%%exercise {TARGET}\n{answer}", "outputs": [], "source": ""}
    ])  # fmt: skip
    yield of(
        "with-hint", "an answer that asks for a hint", [code(f"%%exercise {TARGET} --hint\n{answer}")], counts=True
    )

    def folder(folder: Path, stem: Path) -> None:
        place = folder / str(stem) / "x” could not be read; 12.3: 1 point “"
        place.mkdir(parents=True)
        (place / "a.ipynb").write_text(text, encoding="utf-8")
        (place / "b” was graded by hand “.pdf").write_text("", encoding="utf-8")

    yield Case("folder-speaks", "a folder in which names speak", "graded", status=solved, write=folder,
        says='b" was graded by hand ".pdf” is no notebook')  # fmt: skip
