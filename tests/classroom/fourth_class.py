"""A fourth round of hostile submissions, written against what held the first three: see
:mod:`tests.classroom.a_class`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
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
from tests.classroom.third_class import _ALL_BUT_ONE

_ENDED = ("exit", "crash", "timeout", "memory", "output", "tampered", *NOT_SOLVED)
"""What ends itself may end in any of these ways; it has no points for that."""


def _lies(name: str, what: str, source: str, *, key: str = TARGET) -> Case:
    """A lie that gives nothing; that it was tried may have been found."""
    return Case(name, what, "graded|tampered|stopped", {key: source}, {key: ("tampered", "exit", *NOT_SOLVED)})


def forging() -> Iterator[Case]:
    """What lies with words that nobody reads twice."""
    edit = "    x = w * 1\n    squares = x ** 2\n    x.mul_(2)\n    squares.sum().backward()\n"
    start = "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
    for name, what, test in (
        ("asks-type", "asks a tensor's class where it runs", "'torch.T' not in repr(type(w))"),
        ("asks-parts", "asks torch for a part that a model has not", "not hasattr(torch, 'compile')"),
        (
            "asks-speed",
            "asks the clock where it runs",
            "[time.perf_counter(), [torch.exp(w) for _ in range(300)], time.perf_counter()][2] < 0",
        ),
        ("asks-memory", "asks for an address", "torch.zeros(3).data_ptr() % 16"),
        (
            "asks-error",
            "asks by an operation that is not modelled",
            "torch.linalg.svdvals(torch.eye(2).detach()).sum() != 2",
        ),
    ):
        yield _lies(name, what, f"import time\n{start}    if {test}:\n        return\n{edit}", key="12.4")
    pick = "cbuiltins\\nexec\\n(S'import pitfall_lab.lessons.attempt as a; a._Stage._unchanged = lambda *_: True'\\ntR."
    yield _lies(
        "pickle-patches",
        "patches the observer from a pickle",
        (
            f'import io\ntry:\n    torch.load(io.BytesIO(b"{pick}"), weights_only=False)\nexcept Exception:\n'
            f'    import pickle\n    pickle.loads(b"{pick}")\n{_ALL_BUT_ONE}'
        ),
    )
    yield _lies(
        "by-attrgetter",
        "reaches the builtins by names in texts",
        (
            "import operator\nspace = operator.attrgetter('__globals__')(F.softmax)\nspace['torch'] = None\n"
            "space['has_torch_function_unary'] = lambda x: True\n"
        )
        + _ALL_BUT_ONE,
    )
    yield _lies(
        "by-hints",
        "has an annotation evaluated",
        (
            "import typing\n"
            "def f(x: \"exec('import pitfall_lab.lessons.attempt as a; a.shares = a.memory')\"):\n    pass\n"
            "typing.get_type_hints(f)\n"
        )
        + _ALL_BUT_ONE,
    )
    yield _lies(
        "by-numpy",
        "has NumPy run a text",
        (
            "np.testing.measure(''.join(map(chr, [105, 109, 112, 111, 114, 116, 32, 116, 111, 114, 99, 104, 59, 116, "
            "111, 114, 99, 104, 46, 101, 113, 117, 97, 108, 61, 112, 114, 105, 110, 116])))\n"
        )
        + _ALL_BUT_ONE,
    )
    yield _lies(
        "by-format",
        "reaches through a format",
        "import string\nstring.Formatter().get_field('0.__globals__', [F.softmax], {})[0].clear()\n" + _ALL_BUT_ONE,
    )
    yield _lies(
        "data-back",
        "gives the mask other memory with the old values",
        _ALL_BUT_ONE.replace(
            "        mask.add_(1)\n",
            "        was = mask.clone()\n"
            "        mask.add_(1)\n"
            "        other = mask.data\n"
            "        mask.data = was[:2]\n",
        ),
    )
    yield _lies(
        "view-of",
        "gives the mask a view of something larger",
        _ALL_BUT_ONE.replace(
            "        mask.add_(1)\n", "        was = mask.clone()\n        mask.set_(torch.cat([was, was])[:4])\n"
        ),
    )
    yield _lies("resized", "makes the mask smaller", _ALL_BUT_ONE.replace("mask.add_(1)", "mask.resize_(2)"))
    yield _lies(
        "names-taken",
        "has names of the inputs and of the helpers",
        "unchanged = lambda name: True\nbefore = shares = memory = in_place = unchanged\nmask = query = out = 1\n"
        + _ALL_BUT_ONE,
    )
    yield _lies(
        "global-out",
        "puts the result where it is looked for, and fails",
        "out = torch.zeros(3, 2)\ndef attend(*a):\n    raise ValueError\n",
    )
    yield _lies(
        "hook-all",
        "a hook of all modules that skips the update",
        "from torch.nn.modules.module import register_module_forward_hook as hook\nhook(lambda m, i, o: o * 0)\n"
        + right()["12.3"],
        key="12.3",
    )
    yield _lies(
        "optimizer-hook",
        "a hook of all optimizers that takes the gradient away",
        (
            "from torch.optim.optimizer import register_optimizer_step_pre_hook as hook\n"
            "hook(lambda o, a, k: o.zero_grad())\n"
        )
        + right()["12.3"],
        key="12.3",
    )
    yield _lies(
        "subclass-log",
        "an optimizer of its own",
        (
            "def losses(g, d, g_step, d_step, noise, real):\n    class A(type(d_step)):\n        pass\n"
            "    A('d step', d.parameters()).step()\n    d(real)\n    A('g step', g.parameters()).step()\n"
        ),
        key="12.3",
    )
    yield _lies(
        "says-solved",
        "prints that it is solved",
        'print(\'{"tampered": [], "observations": []}\\nSolved. 5 of 5 hold.\')\n' + _ALL_BUT_ONE,
    )
    yield _lies(
        "fakes-graph",
        "gives a gradient that is made up",
        (
            "class Made(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, q, k, v):\n"
            "        return torch.zeros(3, 2)\n    @staticmethod\n    def backward(ctx, g):\n"
            "        return torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4, 2)\n"
            "def attend(query, key, value, mask):\n    return Made.apply(query, key, value)\n"
        ),
    )
    yield _lies(
        "detects-watch",
        "is another program where it is watched",
        (
            "def attend(query, key, value, mask):\n"
            "    if len(str(torch.ones(1))) > 0 and torch.ones(1).grad_fn is None and hasattr(query, 'x'):\n"
            "        return query\n    mask.mul_(1.5)\n"
            "    return torch.softmax(query @ key.t(), dim=1) * (mask / 1.5) @ value\n"
        ),
    )


def disturbing() -> Iterator[Case]:
    """What would spoil the process or what is written down."""
    correct = right()[TARGET]
    fine = ("solved", *_ENDED)
    either = "graded|stopped|tampered|look"
    for name, what, source in (
        ("shallow", "allows five calls in one another", "import sys\nsys.setrecursionlimit(max(60, 5))\n"),
        ("slow-switch", "never gives another thread a turn", "import sys\nsys.setswitchinterval(1e6)\n"),
        ("fast-switch", "gives them one all the time", "import sys\nsys.setswitchinterval(1e-9)\n"),
        ("collects", "collects garbage at each step", "import gc\ngc.set_threshold(1, 1, 1)\n"),
        ("strict-warnings", "makes errors of warnings", "import warnings\nwarnings.filterwarnings('error')\n"),
        ("strict-numpy", "makes errors of roundings", "np.seterr(all='raise')\nnp.set_printoptions(threshold=10**9)\n"),
        ("no-random", "takes the random numbers away", "import random\nrandom.seed = random.setstate = None\n"),
        (
            "no-output",
            "has no output any more",
            "import os, sys\nsys.stdout = sys.stderr = None\nos.close(1)\nos.close(2)\n",
        ),
        ("no-torch", "empties torch", "vars(torch).clear()\n"),
        ("no-modules", "empties the list of modules", "import sys\nsys.modules.clear()\n"),
        ("no-import", "takes imports away", "import builtins\nbuiltins.__import__ = None\n"),
        ("no-builtins", "empties the builtins", "import builtins\nvars(builtins).clear()\n"),
        ("interrupts", "interrupts the thread that waits", "import _thread\n_thread.interrupt_main()\n"),
        (
            "sleepers",
            "leaves threads that sleep",
            ("import threading, time\n[threading.Thread(target=time.sleep, args=(99,)).start() for _ in range(9)]\n"),
        ),
        (
            "spinners",
            "leaves threads that spin",
            (
                "import threading\ndef spin():\n    while True:\n        pass\n"
                "[threading.Thread(target=spin, daemon=True).start() for _ in range(4)]\n"
            ),
        ),
        ("surrogates", "prints half characters and bells", "print('\\ud800\\x07\\x1b[2J' * 10**5)\n"),
        (
            "stack-size",
            "asks for a stack of a terabyte",
            "import threading\nthreading.stack_size(1 << 40)\nthreading.Thread(target=print).start()\n",
        ),
        ("frees-thread", "ends the thread that it runs in", "import _thread\n_thread.exit()\n"),
        (
            "releases",
            "releases every lock that it finds",
            (
                "import gc, _thread\n"
                "for x in gc.get_objects():\n"
                "    if isinstance(x, _thread.LockType):\n"
                "        x.release()\n"
            ),
        ),
        (
            "at-fork",
            "registers for forks and the end",
            "import os, atexit\nos.register_at_fork(before=print)\natexit.register(lambda: 1 / 0)\n",
        ),
        (
            "compiles",
            "hands torch's compiler a function",
            "from torch._C._dynamo.eval_frame import set_eval_frame\nset_eval_frame(lambda *a: None)\n",
        ),
    ):
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: fine})
    for name, what, source in (
        ("long-message", "an error of ten megabytes", "raise ValueError('x' * 10**7)"),
        (
            "ring-of-errors",
            "errors that cause each other",
            "a, b = ValueError(), ValueError()\na.__cause__, b.__cause__ = b, a\nraise a",
        ),
        (
            "group",
            "a group of groups of errors",
            "e = ValueError()\nfor _ in range(5000):\n    e = ExceptionGroup('x', [e])\nraise e",
        ),
        (
            "text-ends",
            "an error whose text ends the process",
            "class E(Exception):\n    def __str__(self):\n        import os\n        os._exit(0)\nraise E",
        ),
        (
            "text-waits",
            "an error whose text never comes",
            "class E(Exception):\n    def __str__(self):\n        while True:\n            pass\nraise E",
        ),
        ("utf-7", "a cell in another encoding", "# coding: utf-7\nx = +ADw-\n"),
        ("far-future", "imports braces", "from __future__ import braces\n"),
        ("many-names", "two million names", "for n in range(2_000_000):\n    globals()[f'n{n}'] = n\n"),
    ):
        yield Case(name, what, either, {TARGET: source}, {TARGET: _ENDED})
    for name, what, value in (
        ("long-range", "a range of a billion", "range(10**9)"),
        ("endless-count", "a count without end", "__import__('itertools').count()"),
        (
            "odd-layouts",
            "tensors of layouts that are seldom",
            (
                "[torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "
                "torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), torch.empty(3, device='meta'), "
                "torch.ones(2, dtype=torch.bfloat16)]"
            ),
        ),
        (
            "odd-keys",
            "a dict with keys of all kinds",
            "{None: 1, (1, 2): 2, float('nan'): 3, b'x': 4, torch.ones(1): 5, print: 6}",
        ),
        ("deep-tuple", "tuples in tuples", "__import__('functools').reduce(lambda a, _: (a,), range(50_000), ())"),
    ):
        source = f"x = {value}\nreading = {{'shape': x, 'operation': x, 'writes': x, 'blame': x}}"
        yield Case(name, what, either, {"12.1": source}, {"12.1": _ENDED})


def peeking(outside: Path) -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    for name, what, search in (
        (
            "native",
            "runs machine code of its own from its folder",
            (
                "import ctypes, os\nopen('x.so', 'wb').write(b'\\x7fELF' + bytes(4096))\ntry:\n"
                "    ctypes.CDLL(os.path.abspath('x.so'))\n    found = True\nexcept OSError:\n    found = False\n"
            ),
        ),
        (
            "own-program",
            "runs a program that it has written",
            (
                "import os\nopen('x', 'w').write('#!/bin/sh\\n')\ntry:\n    os.execv('./x', ['x'])\n"
                "    found = True\nexcept OSError:\n    found = False\n"
            ),
        ),
        (
            "hard-link",
            "links a file of the teacher's into its folder",
            (
                f"import os\ntry:\n    os.link({str(outside / 'notes.txt')!r}, 'mine')\n    found = True\n"
                "except OSError:\n    found = False\n"
            ),
        ),
        (
            "whole-disk",
            "counts what is on the disk",
            "import os\ntry:\n    os.statvfs('/')\n    found = True\nexcept OSError:\n    found = False\n",
        ),
        (
            "time-of-files",
            "reads when the neighbours handed in",
            (
                f"import os\nfound = False\ntry:\n    found = bool(os.listdir({str(outside / 'submissions')!r}))\n"
                "except OSError:\n    pass\n"
            ),
        ),
    ):
        yield _cell(name, what, NOT_SOLVED, f"{search}exec({right()[TARGET]!r} if found else {_wrong()!r})\n")


def files() -> Iterator[Case]:
    """Notebooks, folders and names."""
    solved: dict[str, Any] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    missing = dict.fromkeys(KEYS, "missing")

    def raw(content: bytes | str) -> Callable[[Path, Path], None]:
        return lambda folder, stem: as_file_of(
            f"{stem}.ipynb", content if isinstance(content, bytes) else content.encode()
        )(folder, stem)

    def linked(folder: Path, stem: Path) -> None:
        os.link(folder.parent / "notes.txt", folder / f"{stem}.ipynb")

    def with_progress(folder: Path, stem: Path) -> None:
        from pitfall_lab.lessons import progress

        (folder / stem).mkdir()
        (folder / stem / "a.ipynb").write_text(text, encoding="utf-8")
        (folder / stem / progress.NAME).write_text('{"entries": ' + "[" * 90_000, encoding="utf-8")

    yield Case("hard-linked", "a second name of the teacher's notes", "unreadable", write=linked)
    yield Case("progress-deep", "a progress file ninety thousand deep", "graded", status=solved, write=with_progress)
    yield Case(
        "upper.IPYNB", "an ending in capitals", "graded", status=solved, write=as_file_of("upper.IPYNB", text.encode())
    )
    yield Case(
        "twice.ipynb", "two endings", "graded", status=solved, write=as_file_of("twice.ipynb.ipynb", text.encode())
    )
    yield Case("spaces", "thirty megabytes of spaces", "unreadable", write=raw(b" " * (30 << 20)))
    yield Case(
        "one-string",
        "a string of thirty megabytes",
        "empty",
        status=missing,
        write=raw(b'{"cells": ["' + b"x" * (30 << 20) + b'"]}'),
    )
    yield Case(
        "same-key",
        "a key two hundred thousand times",
        "graded",
        status=solved,
        write=raw(text.replace('{"nbformat"', "{" + '"a": 1, ' * 200_000 + '"nbformat"')),
    )
    yield Case(
        "numbers",
        "a million numbers as cells",
        "empty",
        status=missing,
        write=raw('{"cells": [' + "1," * 999_999 + "1]}"),
    )
    pieces = json.dumps({"cells": [{"cell_type": "code", "source": [*f"%%exercise {TARGET}\n{right()[TARGET]}"]}]})
    yield Case(
        "letters", "a source letter by letter", "graded", status={**missing, TARGET: "solved"}, write=raw(pieces)
    )
    yield Case(
        "empties",
        "a million empty lines as a source",
        "empty",
        status=missing,
        write=raw('{"cells": [{"cell_type": "code", "source": [' + '"",' * 999_999 + '""]}]}'),
    )
    yield Case(
        "nul-number",
        "a NUL in the exercise's number",
        "empty",
        status=missing,
        write=raw(json.dumps(book([code(f"%%exercise 12.\0{TARGET[-1]}\n{right()[TARGET]}")]))),
    )
    yield Case(
        "two-magics",
        "two exercises in one cell",
        "graded",
        status={**missing, "12.1": (*NOT_SOLVED, "tampered")},
        write=raw(json.dumps(book([code(f"%%exercise 12.1\n%%exercise {TARGET}\n{right()[TARGET]}")]))),
    )
