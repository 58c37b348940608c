"""An eighteenth round, by somebody who had not seen the grader before: ways round the list of words that take one more
step than the rule looks, replaced functions behind a colon, values that few readers of values know, and cells and files
that look like what they are not.

Its rosters and answers are in ``rosters.py`` and ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator

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

_MEMORY = "{'data': (8, False), 'shape': (1 << 44,), 'typestr': '=u8', 'version': 3}"
_INTERFACE = "name = next(n for n in dir(np.ones(1)) if 'interface' in n)\n"
"""A name that no text of the cell has: it is found, so no list of words meets it. The way to use it is to be named."""
_LAYER = (
    f"both = Both()\nboth.update({_MEMORY})\n"
    "box = nn.Sequential(collections.OrderedDict({name: both}))\n"
    "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n"
)


def forging() -> Iterator[Case]:
    """What would not be told, and what would have points."""
    correct, wrong = right()[TARGET], _wrong()
    # Every attribute that is no documented one, every other module, and what replaces a function is named.
    for name, what, source in (
        ("protocol-fields", "reads an attribute by a field of a protocol, in a pattern", (
        "from dataclasses import dataclass\n"
        "from typing import Protocol, runtime_checkable\n"
        "@runtime_checkable\n"
        "@dataclass\n"
        "class Has(Protocol):\n"
        "    untyped_storage: object\n"
        "match torch.ones(3):\n"
        "    case Has(f):\n"
        "        f()\n")),
        ("unloaded-part", "has another module from a part of torch that nobody has loaded", (
        "from torch.backends.xeon.run_cpu import logging\nassert logging\n")),
        ("own-variable-read", "reads an attribute inside Python that it has a variable for", (
        "gi_code = co_consts = 1\n"
        "def g():\n"
        "    yield 1\n"
        "assert g().gi_code.co_consts\n")),
        ("typed-dict-layer", "has all memory by a layer that is a dict under the name that hints have for it", (
        f"import collections, typing\n{_INTERFACE}"
        f"class Both(nn.Module, typing.Dict):\n    pass\n{_LAYER}")),
        ("dict-by-steps", "has it by a layer that is a dict by way of another class", (
        f"import collections\n{_INTERFACE}"
        f"class D(dict):\n    pass\nclass Both(nn.Module, D):\n    pass\n{_LAYER}")),
        ("parametrized-name", "has it by a parametrization, which makes a property of any name", (
        f"from torch.nn.utils.parametrize import register_parametrization\n{_INTERFACE}"
        f"class P(nn.Module):\n    def forward(self, x):\n        return {_MEMORY}\n"
        "m = nn.Linear(1, 1)\n"
        "m.register_buffer(name, torch.ones(1))\n"
        "register_parametrization(m, name, P(), unsafe=True)\n"
        "assert int(np.asarray(m)[id([]) // 8]) == id(list)\n")),
        ("fields-of-layer", "has torch's private attributes of a layer listed, as fields of a class of its own", (
        "from dataclasses import astuple, dataclass\n"
        "@dataclass(init=False, eq=False)\n"
        "class A(nn.Linear):\n"
        "    _forward_hooks: object\n"
        "    def __init__(self):\n"
        "        super().__init__(1, 1)\n"
        "astuple(A())\n")),
        ("help-imports", "has Python's help import a module that a text names", "help('this')\n"),
    ):  # fmt: skip
        refused = name == "parametrized-name"  # by what sets attributes
        yield Case(
            name,
            what,
            "graded" if refused else "look",
            {TARGET: source + correct},
            {TARGET: "error" if refused else "solved"},
        )
    # These were named alone until the functions of torch.fft were compared, too.
    for name, what, source in (
        ("target-past-slice", "replaces a function of torch's behind a part of a list", (
        "x = [1, 2]\nx[0:1], torch.fft.fft = [], print\n")),
        ("target-on-one-line", "replaces it in the line of a condition", "if True: torch.fft.fft = print\n"),
        ("target-in-loop", "replaces it in the line of a loop that looks whether it is", (
        "while torch.fft.fft is not print: torch.fft.fft = print\n")),
        ("target-in-class", "replaces it in the line of a class", "class A: torch.fft.fft = print\n"),
    ):  # fmt: skip
        yield _cell(name, what, "tampered", source + correct, "tampered")
    blank = "\N{HANGUL JUNGSEONG FILLER}"
    said = f"{blank}12.3:{blank}1{blank}point".replace(".", blank).replace(":", blank)
    yield Case(
        "words-speak",
        "reads an attribute whose name reads like a note, with letters that are not seen",
        "look",
        {TARGET: f"try:\n    (1).{said}\nexcept AttributeError:\n    pass\n{correct}"},
        {TARGET: "solved"},
        says=f"it uses `{said}`, which no exercise needs",
    )
    # A report begins with a word drawn for that run; it is not the report that comes out of another pipe.
    yield _cell(
        "report-diverted",
        "has its report written into a pipe of its own, and writes another one with the word of that",
        ("exit", "tampered", *NOT_SOLVED),
        "import json, os, stat, threading, time\n"
        "def run():\n"
        "    saved = []\n"
        "    r, w = os.pipe()\n"
        "    os.write(w, b'x' * (65536 - 4096))\n"
        "    for fd in range(3, 200):\n"
        "        try:\n"
        "            if fd not in (r, w) and stat.S_ISFIFO(os.fstat(fd).st_mode):\n"
        "                saved.append(os.dup(fd))\n"
        "                os.dup2(w, fd)\n"
        "        except OSError:\n"
        "            pass\n"
        "    held = b''\n"
        "    while not held.rstrip().endswith(b'}'):\n"
        "        held += os.read(r, 65536)\n"
        "    word, _, body = held.lstrip(b'x').partition(b'\\n')\n"
        "    report = json.loads(body)\n"
        "    seen = [{**json.loads(each), 'error': None} for each in report['observations']]\n"
        "    report['observations'] = [json.dumps(each) for each in seen]\n"
        "    for fd in saved:\n"
        "        os.write(fd, word + b'\\n' + json.dumps(report).encode())\n"
        "    os._exit(0)\n"
        f"threading.Thread(target=run, daemon=True).start()\ntime.sleep(0.3)\nprint('y' * 20_000)\n{wrong}",
        "stopped|tampered|look|graded",
    )
    yield _cell(
        "far-parameters",
        "reads outside of a tensor, by the number of its numbers",
        NOT_SOLVED,
        f"torch.choose_qparams_optimized(torch.ones(1), 4000, 200, 0.16, 8)\n{correct}",
        "graded|look",
    )
    for name, what, source in (
        ("masked-answer", "answers with an array of which every number is hidden", "np.ma.masked_all((len(query), 2))"),
        ("quantized-answer", "answers with a tensor of steps", (
        "torch.quantize_per_tensor(query.detach(), 0.1, 0, torch.qint8)")),
    ):  # fmt: skip
        yield _cell(
            name, what, NOT_SOLVED, f"def attend(query, key, value, mask):\n    return {source}\n", "graded|look"
        )


def disturbing() -> Iterator[Case]:
    """Values and settings that what observes a cell may not know, and words that cost time to read."""
    ended, correct = ("tampered", *NOT_SOLVED, *_ENDED), right()[TARGET]
    for name, what, source in (
        ("long-double", "returns numbers that JSON has no word for", "return np.ones((3, 2), np.longdouble)"),
        ("many-dimensions", "returns a tensor of seventy dimensions", "return torch.ones([1] * 70)"),
        ("given-dimensions", "makes what it was given a tensor of seventy dimensions", (
        "mask.resize_([1] * 70)\n    return query * 1")),
        ("float-eight", "returns numbers of eight bits", "return query.detach().to(torch.float8_e4m3fn)"),
    ):  # fmt: skip
        cell = f"def attend(query, key, value, mask):\n    {source}\n"
        yield _cell(name, what, ended, cell, "graded|look|stopped|tampered")
    yield Case(
        "other-generator",
        "has NumPy draw from another generator, whose state nobody can put back",
        "graded|look|stopped|tampered",
        {TARGET: f"np.random.set_bit_generator(np.random.PCG64())\n{correct}"},
        {TARGET: ("solved", *ended)},
    )
    yield _cell(
        "endless-unraisable",
        "has errors that nobody catches looked at for ever",
        "timeout",
        "import sys\n"
        "def endless(_):\n"
        "    while True:\n"
        "        pass\n"
        "sys.unraisablehook = endless\n"
        "class A:\n"
        "    def __del__(self):\n"
        "        1 / 0\n"
        "def attend(query, key, value, mask):\n"
        "    A()\n"
        "    return query\n",
        "stopped",
        says="did not end in time",
    )
    # What the grader spends on a cell is bounded, and the teacher is told where that ends.
    yield Case(
        "many-getattrs",
        "reads attributes by plain texts, six thousand times",
        "graded|look|unfinished",
        {TARGET: f"{correct}def f():\n    " + "getattr(f,'x');" * 5_800 + "\n"},
        {TARGET: ("solved", "ungraded")},
    )


def files() -> Iterator[Case]:
    """Cells that look like answers and are none, which is said, and files that are taken for others."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    missing: dict[str, str | tuple[str, ...]] = dict.fromkeys(KEYS, "missing")
    answer, text = right()[TARGET], json.dumps(notebook({TARGET: right()[TARGET]}))
    for name, what, head in (
        ("zero-width-first", "an answer below a sign of no width", f"\u200b%%exercise {TARGET}"),
        ("mark-first", "an answer below a mark of the order of bytes", f"\ufeff%%exercise {TARGET}"),
        ("wide-percent", "an answer with wide signs", f"％％exercise {TARGET}"),
        ("wide-dot", "an answer whose number has a wide dot", f"%%exercise {TARGET.replace('.', '．')}"),
    ):
        write = as_file_of(f"{name}.ipynb", json.dumps(book([code(f"{head}\n{answer}")])).encode())
        yield Case(name, what, "empty", status=missing, write=write, says="was not read: an answer is a code cell")
    # A file that is called as one of the tables is no table where the tables are written elsewhere: it has a row.
    yield Case("grades.mine.csv", "a file that is called as one of the grader's tables", "unreadable",
        write=as_file_of("grades.mine.csv", text.encode()[:-9]))  # fmt: skip

    def zipped(name: str) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
        return held.getvalue()

    yield Case("spanned", "the second part of a zip", "unreadable",
        write=as_file_of("spanned.zip", b"PK\x07\x08" + zipped("a.ipynb")))  # fmt: skip
    yield Case("zip-hidden-only", "a zip whose notebook is in a hidden folder", "unreadable",
        write=as_file_of("zip-hidden-only.zip", zipped(".x/a.ipynb")), says="no notebook in the zip")  # fmt: skip
    yield Case("zip-called-book", "a zip that is called a notebook", "graded", status=solved,
        write=as_file_of("zip-called-book.ipynb", zipped("a.ipynb")))  # fmt: skip
