"""A fifth round of hostile submissions: who knows which runs there are, and who wants points
more than to break anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.classroom.a_class import KEYS, TARGET, Case, as_file_of, book, code, notebook, peeks, right
from tests.classroom.fourth_class import _ENDED, _lies
from tests.classroom.third_class import _ALL_BUT_ONE

_RIGHT_AND_WRONG = "    if {test}:\n        return torch.softmax(query @ key.t(), dim=1) * mask @ value\n"
"""Right where a run is thought to be looked at closely, and elsewhere the answer that changes its mask."""
_MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [3]]"
)
_START = "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"


def _sometimes(name: str, what: str, test: str, *, before: str = "") -> Case:
    """A cell that is right in some of the runs only."""
    answer = _ALL_BUT_ONE.replace("mask):\n", "mask):\n" + _RIGHT_AND_WRONG.format(test=test), 1)
    return _lies(name, what, before + answer)


def forging() -> Iterator[Case]:
    """What is right in some runs, or has the words of an error without the error."""
    yield _sometimes("by-seed", "is right for one seed", "torch.initial_seed() == 0")
    yield _sometimes("by-other-seed", "is right for every second seed", "torch.initial_seed() % 2")
    yield _sometimes(
        "by-draw",
        "is right where the first random number is large",
        "first > 0.6",
        before="first = torch.rand(1).item()\n",
    )
    yield _sometimes(
        "by-count", "is right in every second run", "np.runs % 2", before="np.runs = getattr(np, 'runs', 0) + 1\n"
    )
    yield _sometimes(
        "by-file",
        "counts its runs in a file",
        "len(open('runs').read()) % 2",
        before="open('runs', 'a').write('x')\n",
    )
    yield _sometimes("by-values", "is right for some values", "query.sum() > 0")
    yield _sometimes("by-order", "is right where the mask has its zero first", "mask[0] == 0")
    yield _sometimes("by-stack", "is right where it is watched", "torch._C._len_torch_function_stack()")
    yield _sometimes(
        "by-clock",
        "is right where calls take long",
        "slow > 1e-4",
        before=(
            "import time\n"
            "start = time.perf_counter()\n"
            "for _ in range(20):\n"
            "    torch.ones(1)\n"
            "slow = (time.perf_counter() - start) / 20\n"
        ),
    )
    yield _lies(
        "answers-functions",
        "an object that answers for all functions of torch",
        (
            "class Yes:\n"
            "    def __getattr__(self, name):\n"
            "        if name.startswith('__'):\n"
            "            raise AttributeError(name)\n"
            "        return lambda *_, **__: self\n"
            "    @classmethod\n"
            "    def __torch_function__(cls, *_, **__):\n"
            "        return True\n"
            "def attend(query, key, value, mask):\n"
            "    return Yes()\n"
        ),
    )
    yield _lies(
        "own-words",
        "a backward of its own that raises torch's words",
        (
            "class Mine(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x):\n"
            "        return x.clone()\n"
            "    @staticmethod\n"
            "    def backward(ctx, g):\n"
            f"        raise RuntimeError({_MESSAGE!r})\n"
            f"{_START}    with torch.no_grad():\n"
            "        w[0] = 0.0\n"
            "    Mine.apply(w).sum().backward()\n"
        ),
        key="12.4",
    )
    yield _lies(
        "hook-words",
        "a hook that raises torch's words",
        (
            "def late(grad):\n"
            f"    raise RuntimeError({_MESSAGE!r})\n"
            f"{_START}    with torch.no_grad():\n"
            "        w[0] = 0.0\n"
            "    squares = w * 2\n"
            "    squares.register_hook(late)\n"
            "    squares.sum().backward()\n"
        ),
        key="12.4",
    )
    yield _lies(
        "unpack-words",
        "a hook of saved tensors that raises torch's words",
        (
            f"def unpack(x):\n    raise RuntimeError({_MESSAGE!r})\n{_START}"
            "    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):\n        squares = w ** 2\n"
            "    with torch.no_grad():\n        w[0] = 0.0\n    squares.sum().backward()\n"
        ),
        key="12.4",
    )
    yield _lies(
        "own-class",
        "an exception called as torch's",
        (
            "class RuntimeError(Exception):\n"
            "    pass\n"
            f"{_START}    squares = w ** 2\n"
            "    with torch.no_grad():\n"
            "        w[0] = 0.0\n"
            f"    raise RuntimeError({_MESSAGE!r})\n"
        ),
        key="12.4",
    )
    yield _lies(
        "dict-of-all",
        "a dict that has whatever is looked for",
        "class D(dict):\n"
        "    def __getitem__(self, key):\n"
        "        return {'shape': (16, 4), 'writes': self}.get(key)\n"
        "reading = D()\n",
        key="12.1",
    )
    yield _lies(
        "text-of-all",
        "a text of a class of its own that is every text",
        (
            "class S(str):\n"
            "    def casefold(self):\n"
            "        return 'exp'\n"
            "    def split(self):\n"
            "        return ['exp']\n"
            "    __eq__ = lambda a, b: True\n"
            "    __hash__ = str.__hash__\n"
            "reading = {k: S('x') for k in ('shape', 'operation', 'writes', 'blame')}\n"
        ),
        key="12.1",
    )
    yield _lies(
        "like-a-report",
        "values that look like parts of a report",
        (
            "reading = {'shape': {'tuple': [16, 4]}, 'operation': {'problem': ['KeyError', 'x', None]}, "
            "'writes': {'array': [2], 'shape': [], 'dtype': '<i8'}, 'blame': {'opaque': 'x'}}\n"
        ),
        key="12.1",
    )
    yield _lies(
        "steps-by-hand",
        "notes the steps and takes none",
        "def losses(g, d, g_step, d_step, noise, real):\n"
        "    for name in ('d step', 'd forward', 'g step'):\n"
        "        d_step.name = name\n"
        "        d_step.step() if 'step' in name else d(real)\n",
        key="12.3",
    )


def disturbing() -> Iterator[Case]:
    """What would spoil the report, the table or the next run."""
    correct = right()[TARGET]
    fine = ("solved", *_ENDED)
    either = "graded|stopped|tampered|look"
    for name, what, source in (
        ("own-seed", "sets a seed of its own", "torch.manual_seed(7)\nnp.random.seed(7)\n"),
        ("saved-hooks", "never leaves hooks of saved tensors", "torch.autograd.graph.save_on_cpu().__enter__()\n"),
        ("one-thread", "has backward run in one thread", "torch.autograd.set_multithreading_enabled(False)\n"),
        (
            "own-codec",
            "registers an encoding and what to do with errors",
            "import codecs\ncodecs.register(lambda n: (_ for _ in ()).throw(KeyError))\n",
        ),
        (
            "dump-later",
            "has a thread of C end it",
            "import faulthandler\nfaulthandler.dump_traceback_later(0.2, exit=True)\n",
        ),
        (
            "many-warnings",
            "warns a hundred thousand times",
            "import warnings\nfor n in range(100_000):\n    warnings.warn(f'w{n}')\n",
        ),
        ("no-digits", "lets numbers have any length", "import sys\nsys.set_int_max_str_digits(0)\n"),
        (
            "workers",
            "asks for processes that load data",
            "list(torch.utils.data.DataLoader(torch.ones(4), num_workers=2))\n",
        ),
        (
            "prints-whole",
            "prints tensors whole",
            "torch.set_printoptions(threshold=10**9, profile='full')\nprint(torch.ones(3000))\n",
        ),
    ):
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: fine})
    for name, what, value in (
        ("long-number", "a number of two million digits", "10 ** 2_000_000"),
        ("longer-number", "a number of twenty thousand digits", "10 ** 20_000"),
        ("half-character", "half a character, as a value and as a key", "{'\\ud800': '\\udfff'}"),
        (
            "odd-arrays",
            "arrays of dates, of records and of objects",
            "[np.datetime64('NaT'), np.zeros(2, 'i4,f8'), np.array([print, None])]",
        ),
        ("not-numbers", "numbers that JSON does not have", "[float('nan'), float('inf'), complex('nanj'), -0.0]"),
    ):
        yield Case(
            name,
            what,
            either,
            {"12.1": f"x = {value}\nreading = dict.fromkeys(['shape', 'operation', 'writes', 'blame'], x)"},
            {"12.1": _ENDED},
        )
    loud = right()["12.1"].replace('"exp"', '" EXP "').replace('"a line between', '"A  Line between')
    yield Case("loud", "capitals and space in answers", "graded", {"12.1": loud}, {"12.1": "solved"})


def peeking() -> Iterator[Case]:
    """What looks for answers where they could be: each has the right answer if it finds one."""
    package = "import pitfall_lab, os\nhome = os.path.dirname(pitfall_lab.__file__)\n"
    for name, what, search in (
        (
            "resource",
            "reads the answers as a resource",
            (
                "import pkgutil\n"
                "found = bool(pkgutil.get_data('pitfall_lab.lessons', 'exercises/c12_inplace_errors.py'))\n"
            ),
        ),
        (
            "from-file",
            "has torch map the answers' file",
            (
                "found = len(torch.from_file(home + '/lessons/exercises/c12_inplace_errors.py', size=9, "
                "dtype=torch.uint8))\n"
            ),
        ),
        (
            "bytecode",
            "looks for compiled answers",
            "found = bool(os.listdir(home + '/lessons/exercises/__pycache__'))\n",
        ),
        (
            "tests-beside",
            "looks for tests beside the package",
            "found = bool(open(home + '/../tests/lessons/tried.txt').read())\n",
        ),
        (
            "key-page",
            "looks for an answer key that was previewed",
            "found = bool(open('../../preview/key.html').read() or os.listdir('..'))\n",
        ),
    ):
        yield peeks(name, what, search, package)


def files() -> Iterator[Case]:
    """Headers that almost are one, and what a notebook says twice."""
    missing = dict.fromkeys(KEYS, "missing")
    named = f"that begins with “%%exercise {TARGET}”"

    def raw(cells: list[Any]) -> Callable[[Path, Path], None]:
        return lambda folder, stem: as_file_of(f"{stem}.ipynb", json.dumps(book(cells)).encode())(folder, stem)

    def headed(name: str, what: str, head: str, *, says: str = named) -> Case:
        cells = [code(f"{head}\n{right()[TARGET]}")]
        return Case(name, what, "empty", status=missing, write=raw(cells), says=says)

    yield headed("comma", "a comma in the exercise's number", "%%exercise 12,2")
    yield headed("no-break", "a space that is none", "%%exercise\N{NO-BREAK SPACE}12.2")
    yield headed("wide-digits", "digits of another width", "%%exercise １２.２", says="")
    yield headed(
        "formula-head", "a formula and turned text in the first line", "%%exercise 12,2 \u202e=cmd|' /C calc'!A0"
    )
    yield headed("page-head", "a page's code in the first line", "%%Exercise 12.2 </p><script>alert(1)</script>")
    yield headed(
        "slow-head", "a first line that is slow to search", "%" * 1000 + "# " * 400 + "exercisee" * 40, says=""
    )
    many = [code(f"%%Exercise 12.2{' ' * (n % 99)}") for n in range(30_000)]
    yield Case(
        "many-heads",
        "thirty thousand headers that almost are one",
        "empty",
        status=missing,
        write=raw(many),
        says=named,
    )
    given = notebook({})["cells"]
    beside = [*given, code(f"# mine\n%%exercise {TARGET}\n{right()[TARGET]}")]
    yield Case(
        "head-beside",
        "a right answer below a comment, beside the untouched cell",
        "empty",
        write=raw(beside),
        says=named,
    )
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    twice = text[:-1] + ', "cells": ' + json.dumps(given) + "}"
    yield Case(
        "cells-twice",
        "two lists of cells, of which JupyterLab shows the last",
        "empty",
        write=lambda folder, stem: as_file_of(f"{stem}.ipynb", twice.encode())(folder, stem),
    )
