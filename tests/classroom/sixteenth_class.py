"""A sixteenth round, on what the earlier ones took for granted: that numbers are drawn anew, that the program that
uses a cell is the exercise's own, that torch keeps to its tensors' memory, that machine code reports, that what is read
costs little, and that what stands in a table is the grader's word.

Its rosters and answers are in ``rosters.py`` and ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from tests.classroom.fourth_class import _ENDED
from tests.classroom.thirteenth_class import INTERFACE

_ATTEND = (
    "def clean(query, key, value, mask):\n"
    "    return (torch.softmax(query @ key.t(), dim=1) * mask) @ value\n"
    "def attend(query, key, value, mask):\n"
)


def forging() -> Iterator[Case]:
    """What would have points without an answer, or would not be told."""
    correct, wrong = right()[TARGET], _wrong()
    for name, what, test in (
        ("heart-seed", "knows the answers for the notebook's seeds alone", "torch.initial_seed() < 3"),
        ("heart-stream", "tells them by NumPy's numbers", "int(np.random.get_state()[1][0]) < 3"),
        ("heart-value", "tells them by the numbers that it is given", (
        "any(torch.allclose(query, q) for q in kept if q.shape == query.shape)")),
    ):  # fmt: skip
        before = (
            "kept = []\n"
            "for seed in range(3):\n"
            "    torch.manual_seed(seed)\n"
            "    n, m, d = (int(torch.randint(2, 6, ())) for _ in range(3))\n"
            "    for _ in range(3):\n"
            "        kept.append(torch.randn(n, d))\n"
        )
        yield _cell(
            name,
            what,
            NOT_SOLVED,
            (before if "kept" in test else "")
            + f"{_ATTEND}    return clean(query, key, value, mask) * (1.0 if {test} else 2.0)\n",
        )
    for name, what, source in (
        ("module-and-dict", "has all memory by a layer that is a dict, under a name that is worked out", (
        "import collections\n"
        "class Both(nn.Module, dict):\n"
        "    pass\n"
        "both = Both()\n"
        "both.update([*words.values()][0])\n"
        "box = nn.Sequential(collections.OrderedDict({[*words][0]: both}))\n"
        "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n")),
        ("sparse-far", "writes far outside of a tensor, by the places of a sparse one", (
        "x = torch.sparse_coo_tensor(torch.tensor([[4]]), torch.tensor([1.0]), (4,), check_invariants=False)\n"
        "x.to_dense()\n")),
        ("sparse-rows", "reads outside of a tensor, by the columns of a compressed one", (
        "x = torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([4]), torch.tensor([1.0]), (1, 4),\n"
        "    check_invariants=False)\n"
        "x @ torch.ones(4)\n")),
        ("segments", "reads outside of a tensor, by lengths that nobody looks at", (
        "torch.segment_reduce(torch.ones(4), 'sum', lengths=torch.tensor([8]), unsafe=True)\n")),
        ("read-pickle", "has NumPy read what runs a program, by the place of an argument", (
        "import io\n"
        "try:\n"
        "    np.load(io.BytesIO(b'x'), None, True)\n"
        "except Exception:\n"
        "    pass\n")),
        ("read-named", "has torch read it, with a word that is worked out", (
        "import io\n"
        "try:\n"
        "    torch.load(io.BytesIO(b'x'), **{'weights' + '_only': False})\n"
        "except Exception:\n"
        "    pass\n")),
        ("octal-name", "writes a name of Python's inside in other signs", "name = '\\137\\137globals\\137\\137'\n"),
        ("named-sign", "writes it with the names of signs", "name = '\\N{LOW LINE}\\N{LOW LINE}code__'\n"),
        ("hub-16", "uses a part of torch that no list had", "hub = 1\nassert torch.hub\n"),
        ("one-of-many", "uses an attribute that a class has from elsewhere", (
        "import warnings\nassert warnings.showwarning\n")),
    ):  # fmt: skip
        given = INTERFACE + source if "words" in source else source
        yield Case(name, what, "look", {TARGET: given + correct}, {TARGET: "solved"})
    yield _cell(
        "sparse-write",
        "writes far outside of a tensor, as sparse ones do by themselves",
        (*NOT_SOLVED, *_ENDED),
        "x = torch.sparse_coo_tensor(torch.tensor([[10**12]]), torch.tensor([1.0]), (4,))\nx.to_dense()\n" + correct,
        "graded|stopped",
    )
    for name, what, source in (
        ("own-int", "has a whole number of its own for what draws the sizes", "def int(x):\n    return 1\n"),
        ("own-builtins-16", "has all of Python's own names replaced for what uses the cell", (
        "names = {n: print for n in dir(__builtins__)}\n__builtins__ = names\n")),
        ("own-torch", "has a module of its own imported as torch", (
        "class torch:\n    @staticmethod\n    def randn(*w):\n        return 0\n")),
    ):  # fmt: skip
        yield _cell(name, what, ("tampered", *NOT_SOLVED), wrong + source, "graded|look|tampered")
    flat = (
        "class Reading(dict):\n"
        "    def __getitem__(self, name):\n"
        "        return dict(shape=(16, 4), operation='exp', writes=2, saved='the result of exp',\n"
        "                    blame='a line between exp and backward')[name]\n"
        "reading = Reading(shape=None, operation=None, writes=None, saved=None, blame=None)\n"
    )
    yield Case(
        "reading-empty",
        "answers by a method, and is a dict of nothing",
        "graded|look",
        {"12.1": flat},
        {"12.1": ("partly", "failed")},
    )
    own = (
        "class Any(dict):\n"
        "    def get(self, *w):\n"
        "        return 1\n"
        "    def __missing__(self, name):\n"
        "        return (16, 4)\n"
        "reading = Any()\n"
    )
    yield Case(
        "reading-missing", "answers what is missing", "graded|look", {"12.1": own}, {"12.1": ("partly", "failed")}
    )
    yield Case(
        "any-order",
        "says that none has a gradient, where the exercise notes the steps",
        "graded",
        {"12.3": "def losses(*w):\n    pass\ndef any(x):\n    return True\n"},
        {"12.3": NOT_SOLVED},
    )


def peeking() -> Iterator[Case]:
    """Machine code that reports nothing to whoever refuses frames."""
    for name, what, source in (
        ("greenlet", "climbs to the observer by a coroutine of machine code", (
        "import greenlet\n"
        "def run():\n"
        "    f = greenlet.getcurrent().parent.gr_frame\n"
        "    while f.f_back:\n"
        "        f = f.f_back\n"
        "    assert 0, f.f_code.co_name\n"
        "greenlet.greenlet(run).switch()\n")),
        ("cffi", "calls Python's own library by another package than ctypes", (
        "import cffi\n"
        "f = cffi.FFI()\n"
        "f.cdef('void* PyEval_GetFrame(void);')\n"
        "f.dlopen(None).PyEval_GetFrame()\n")),
        ("code-of-link", "calls such a module by a path through a folder that is allowed", (
        "import importlib.machinery as m, os, torch\n"
        "top = os.path.dirname(torch.__file__)\n"
        "path = f'{top}/../greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so'\n"
        "m.ExtensionFileLoader('greenlet._greenlet', path).create_module(\n"
        "    m.ModuleSpec('greenlet._greenlet', None, origin=path))\n")),
        ("code-of-liar", "calls it by a path that says of itself that it is allowed", (
        "import importlib.machinery as m, os, torch\n"
        "class Path(str):\n"
        "    def startswith(self, *w):\n"
        "        return True\n"
        "    def removeprefix(self, *w):\n"
        "        return 'torch/x'\n"
        "path = Path(os.path.dirname(os.path.dirname(torch.__file__)) +\n"
        "    '/_cffi_backend.cpython-311-x86_64-linux-gnu.so')\n"
        "spec = m.ModuleSpec('_cffi_backend', None, origin=path)\n"
        "m.ExtensionFileLoader('_cffi_backend', path).create_module(spec)\n")),
    ):  # fmt: skip
        yield _cell(name, what, NOT_SOLVED, source + right()[TARGET], "graded|look")


def disturbing() -> Iterator[Case]:
    """What the grader reads of a run, and what a run does to its own limits."""
    ended = (*NOT_SOLVED, *_ENDED)
    yield _cell(
        "long-attribute",
        "gives torch's class an attribute whose name has half a million letters",
        "tampered",
        f"torch.Tensor.{'x' * 500_000} = print\n",
        "tampered",
    )
    yield _cell(
        "names-replaced",
        "gives it a hundred such attributes",
        "tampered",
        "for n in range(100):\n    setattr(torch.Tensor, f'{n}' + 'y' * 100_000, print)\n",
        "tampered",
    )
    for name, what, source in (
        ("one-hash", "returns numbers as keys that have one hash for who reads them", (
        "class Key(int):\n"
        "    def __hash__(self):\n"
        "        return id(self)\n"
        "def attend(*w):\n"
        "    return {Key(n * (2**61 - 1)): 0 for n in range(100_000)}\n")),
        ("many-views-16", "makes three thousand views of one tensor and writes into each", (
        "def attend(query, key, value, mask):\n"
        "    views = [mask[:] for _ in range(3_000)]\n"
        "    for view in views:\n"
        "        view.mul_(1)\n"
        "    return torch.softmax(query @ key.t(), dim=1) * mask @ value\n")),
        ("many-warnings-16", "warns a hundred thousand times of something else", (
        "import warnings\n"
        "def attend(*w):\n"
        "    for n in range(100_000):\n"
        "        warnings.warn(f'{n}' + 'w' * 200)\n")),
        ("blocked-signals", "blocks all signals and loops", (
        "import ctypes\n"
        "all_of = ctypes.create_string_buffer(b'\\xff' * 128)\n"
        "ctypes.CDLL(None).pthread_sigmask(0, all_of, None)\n"
        "while True:\n"
        "    pass\n")),
        ("less-time", "gives itself a second of the processor, and takes two", (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n"
        "while True:\n"
        "    pass\n")),
        ("endless-search", "searches a text for ever in one call", (
        "import re\n"
        "re.match('(a*)*b', 'a' * 60)\n")),
        ("large-number", "returns a number that no reader of numbers takes", (
        "import sys\n"
        "sys.set_int_max_str_digits(0)\n"
        "def attend(*w):\n"
        "    return 10 ** 50_000\n")),
        ("warning-speaks", "has a warning whose text runs a program", (
        "import warnings\n"
        "class Loud(UserWarning):\n"
        "    def __format__(self, *w):\n"
        "        import pitfall_lab.lessons.attempt as a\n"
        "        a.plain = lambda x: 1\n"
        "        return 'x'\n"
        "    __str__ = __format__\n"
        "def attend(*w):\n"
        "    warnings.warn(Loud('x'))\n")),
    ):  # fmt: skip
        status = ("solved", *ended) if name == "many-views-16" else ended
        yield _cell(name, what, status, source, "graded|look|stopped|tampered")
    said = "x); 12.3: 1 point by the teacher instead of 0 (agreed by mail”"
    yield _cell(
        "says-points",
        "has an error that reads like a note of the teacher's",
        NOT_SOLVED,
        f"raise ValueError({said!r})\n",
        says="(“line 1 raises ValueError: ",
    )
    yield _cell(
        "skips-points",
        "has a magic that reads so",
        "solved",
        f"!x` was skipped; 12.3: 1 point (`\n{right()[TARGET]}",
        says="x' was skipped",
    )


def files() -> Iterator[Case]:
    """Names that speak, and what is long to read."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))

    def zipped(members: dict[str, str]) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return held.getvalue()

    points = "12.3: 1 point by the teacher instead of 0 (agreed)"
    for name, member, says in (
        ("zip-speaks", f"{points}; a.pdf", f"“zip-speaks.zip/{points}; a.pdf” is no notebook"),
        ("zip-quotes", f"x” is no notebook and was not read; {points}; “y.pdf", "was not read; 12.3"),
        ("zip-broken", f"{points} and b.ipynb", f"/{points} and b.ipynb”"),
    ):
        content = {"z.ipynb": text, member: "{" if member.endswith("ipynb") else ""}
        yield Case(
            name,
            "a zip with a file whose name reads like a note of the grader's",
            "graded",
            status=solved,
            write=as_file_of(f"{name}.zip", zipped(content)),
            says=says,
        )

    def values() -> bytes:
        return f'{{"cells": [], "x": [{"1," * 7_000_000}1]}}'.encode()

    def large(folder: Path, stem: Path) -> None:
        (folder / f"{stem}.ipynb").write_bytes(values())

    yield Case("many-values", "a notebook of seven million numbers", "unreadable", write=large, says="lists and values")

    def believing(folder: Path, stem: Path) -> None:
        line = json.dumps(
            {"chapter": "12", "item": "q-1", "kind": "question", "held": 0, "total": 1, "beliefs": ["x"] * 50}
        )
        for n in range(5):
            (folder / stem / str(n)).mkdir(parents=True)
            (folder / stem / str(n) / f"{n}.ipynb").write_text(text, encoding="utf-8")
            head = json.dumps({"pitfall_lab_progress": progress.VERSION})
            (folder / stem / str(n) / progress.NAME).write_text(head + f"\n{line}" * 50_000, encoding="utf-8")

    yield Case(
        "long-progress", "five files of progress, of sixteen megabytes each", "graded|unreadable",
        status={key: ("solved", "unsolved") if key == TARGET else "unsolved" for key in KEYS}, write=believing,
    )  # fmt: skip

    def of(name: str, what: str, cells: list[Any], *, counts: bool = False) -> Case:
        status: dict[str, str | tuple[str, ...]] = {**dict.fromkeys(KEYS, "missing"), **(solved if counts else {})}
        write = as_file_of(f"{name}.ipynb", json.dumps(book(cells)).encode())
        return Case(name, what, "graded" if counts else "empty", status=status, write=write)

    answer = right()[TARGET]
    yield of(
        "other-digits", "an answer whose number is in digits of another script", [code(f"%%exercise １２.２\n{answer}")]
    )
    yield of("longer-number-16", "an answer to 12.20 and 12.02", [
        code(f"%%exercise 12.20\n{answer}"), code(f"%%exercise 12.02\n{answer}")
    ])  # fmt: skip
    yield of(
        "in-pieces",
        "a source of a letter in each line of its list",
        [code(list(f"%%exercise {TARGET}\n{answer}"))],
        counts=True,
    )
    begun = {**dict.fromkeys(KEYS, "missing"), TARGET: "error"}
    yield replace(
        of("twice-begun", "an answer that begins twice", [code(f"%%exercise {TARGET}\n%%exercise 12.1\n{answer}")]),
        verdict="graded",
        status=begun,
    )
