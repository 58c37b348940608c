"""A second round of hostile submissions, written against what held the first: see :mod:`tests.classroom.a_class`."""

from __future__ import annotations

import json
import os
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

_TRIES = "import pitfall_lab.lessons.attempt as a\na._Stage._unchanged = lambda *args: True\n"
"""What the first class is found out for; here something else is to hide it."""


def _told(name: str, what: str, source: str, *, key: str = TARGET) -> Case:
    """A case that has to be called tampered."""
    return Case(name, what, "tampered", {key: source}, {key: "tampered"})


def _refused(name: str, what: str, climb: str) -> Case:
    """A way to what the observer's frames hold: it gives nothing, and it is noted."""
    body = "\n".join(f"    {line}" for line in climb.splitlines())
    return _told(name, what, f"try:\n{body}\nexcept PermissionError:\n    pass\n{_wrong()}")


def forging() -> Iterator[Case]:
    """What hides that something was replaced, or reaches the observer's frames by a library."""
    wrong, room = _wrong(), "import pitfall_lab.classroom.room as r\n"
    yield _told(
        "looks-away",
        "replaces what looks for replaced functions",
        f"{room}{_TRIES}r.Originals.replaced = lambda self: []\n{wrong}",
    )
    swapped = "r.Originals.replaced.__code__ = (lambda self: []).__code__\n"
    yield _told("looks-away-code", "swaps the code of what looks for them", f"{room}{_TRIES}{swapped}{wrong}")
    forge = (
        "import json\ndef forge(obj, **more):\n    import json\n    if isinstance(obj, dict) and 'tampered' in obj:\n"
        "        obj = {**obj, 'tampered': []}\n    return json.JSONEncoder(**more).encode(obj)\n"
    )
    yield _told(
        "report-code",
        "swaps the code of what writes the report",
        f"{forge}json.dumps.__code__ = forge.__code__\n{_TRIES}{wrong}",
    )
    yield _told(
        "encoder",
        "puts a function into the encoder of reports",
        f"{forge}json._default_encoder.encode = forge\n{wrong}",
    )
    own = (
        f"{forge}old = json.JSONEncoder.iterencode\n"
        "json.JSONEncoder.iterencode = lambda self, o, **k: old(self, o, **k)\n"
        f"{wrong}"
    )
    yield _told("encoder-class", "replaces a method of the encoder", own)
    late = (
        f"{forge}import gc, linecache\ndef later(*_):\n    if '<exercise>' not in linecache.cache:\n"
        f"        json._default_encoder.encode = forge\ngc.callbacks.append(later)\ngc.set_threshold(1)\n{wrong}"
    )
    yield _told("collector", "waits in the garbage collector until its cell was observed", late)
    reader = _TRIES.splitlines()[0]
    said = (
        "class E(Exception):\n"
        "    def __str__(self):\n"
        f"        {reader}\n"
        "        a.shares = print\n"
        "        return ''\n"
        "raise E"
    )
    yield _told("error-text", "replaces a function when its error is read", said)
    yield _told(
        "setup-text",
        "rewrites what every cell finds imported",
        f"{_TRIES.splitlines()[0]}\na.SETUP = 'torch = None'\n{wrong}",
    )
    other = (
        "import sys, types\nreal = sys.modules['pitfall_lab.verify']\nfake = types.ModuleType(real.__name__)\n"
        "vars(fake).update(vars(real))\n"
        "class Session(real.Session):\n    pass\nfake.Session = Session\nsys.modules[real.__name__] = fake\n"
    )
    yield _told(
        "other-module",
        "puts a module of its own into the list of modules",
        other + right()["12.4"].replace("[0]", "[1]"),
        key="12.4",
    )
    hooked = (
        "import sys\nclass Finder:\n    def find_spec(self, name, *_):\n        print(name)\n"
        f"sys.meta_path.insert(0, Finder())\ndel sys.modules['pitfall_lab.verify']\n{wrong}"
    )
    yield _told("import-hook", "has a module imported again, by its own finder", hooked)
    yield _refused(
        "frames-unlisted",
        "empties the list of what is refused",
        "import pitfall_lab.classroom.frames as f\nf._EVENTS = frozenset()\nimport sys\nsys._getframe(1)",
    )
    yield _refused(
        "stack-texts",
        "reads the variables of all frames as texts",
        "import traceback as t\nt.StackSummary.extract(t.walk_stack(None), capture_locals=True)",
    )
    yield _refused(
        "task-stack",
        "asks asyncio for the stack of a task",
        "import asyncio.base_tasks as b\nclass Task:\n    pass\ntask = Task()\n"
        "async def go():\n    return b._task_get_stack(task, None)\ntask._coro = go()\ntask._coro.send(None)",
    )
    yield _refused(
        "jit-names",
        "asks TorchScript for a variable of the observer's",
        "import torch._jit_internal as j\n[j.createResolutionCallbackFromFrame(n)('word') for n in range(1, 5)]",
    )
    local = "import IPython.utils.frame as f\n[f.extract_module_locals(n) for n in range(1, 6)]"
    yield _refused("shell-names", "asks IPython for it", local)
    yield _refused("interpreter", "looks at the frames from a second interpreter", "import _xxsubinterpreters")
    yield _refused(
        "garbage", "has the collector keep frames that are garbage", "import gc\ngc.set_debug(gc.DEBUG_SAVEALL)"
    )
    mode = (
        "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n"
        "        return None if f is torch.Tensor.backward else f(*args, **(kwargs or {}))\nMode().__enter__()\n"
    )
    yield _cell("function-mode", "a mode, never left, in which backward does nothing", NOT_SOLVED, mode + wrong)
    same = "import torch.random as r\nclass G:\n    def manual_seed(self, seed):\n        return real.manual_seed(0)\n"
    fixed = (
        f"{same}    def __getattr__(self, name):\n        return getattr(real, name)\n"
        "real, r.default_generator = r.default_generator, G()\n"
    )
    yield _cell("one-seed", "has all random inputs alike", NOT_SOLVED, fixed + right()[TARGET])
    yield _cell(
        "mock",
        "an object that answers to everything",
        NOT_SOLVED,
        "from unittest.mock import MagicMock\nattend = MagicMock()",
    )
    kind = (
        "class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        return next((a for a in args if isinstance(a, T)), None)\n"
        "def attend(query, key, value, mask):\n    return torch.zeros(3, 2).as_subclass(T)\n"
    )
    yield _cell("tensor-kind", "a tensor whose class answers for torch", NOT_SOLVED, kind)
    leaving = (
        "import atexit, weakref, os\n"
        "def forge():\n"
        "    for fd in range(3, 64):\n"
        "        os.write(fd, b'{}')\n"
        "class A:\n"
        "    pass\n"
        "keep = A()\n"
        "atexit.register(forge)\n"
        "weakref.finalize(keep, forge)\n"
        f"{wrong}"
    )
    yield _cell("at-exit", "writes a report when its process ends", NOT_SOLVED, leaving)
    handler = (
        "import codecs\n"
        "codecs.register(lambda name: print)\n"
        "codecs.register_error('strict', lambda e: ('Solved', e.end))\n"
    )
    yield _cell(
        "codec", "answers for characters that cannot be encoded", NOT_SOLVED, f"{handler}print('\\ud800')\n{wrong}"
    )


def reaching(outside: Path) -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    wrong, correct = _wrong(), right()[TARGET]
    secret = "# " + "OF-A-NEIGHBOUR " * 200
    yield Case(
        "neighbour-1",
        "somebody else's answer",
        "graded",
        {key: f"{secret}\n{right()[key]}" for key in KEYS},
        dict.fromkeys(KEYS, "solved"),
    )
    search = (
        "import ctypes, os\nc, word, found, after = ctypes.CDLL(None), b'OF-A-' + b'NEIGHBOUR', False, b''\n"
        "c.sbrk.restype, ear, mouth = ctypes.c_void_p, *os.pipe()\nat = c.sbrk(0) - 4096\n"
        "while not found and c.write(mouth, ctypes.c_void_p(at), 4096) == 4096:\n"
        "    page = os.read(ear, 4096)\n    found, after, at = word in page + after, page[:20], at - 4096\n"
    )
    yield _cell(
        "neighbour-2", "searches its memory for somebody else's answer", NOT_SOLVED, search + _if_found(wrong, correct)
    )
    places = [
        *(
            "/proc/self/environ",
            "/proc/self/maps",
            "/proc/self/mem",
            "/proc/self/cmdline",
            "/proc/self/auxv",
            "/proc/self/stat",
        ),
        *(
            "/proc/1/cmdline",
            "/proc/net/tcp",
            "/proc/mounts",
            "/proc/self/root/etc/passwd",
            "/etc/passwd",
            "/etc/hostname",
        ),
        *(
            "/dev/tty",
            "/dev/mem",
            "/dev/pts/0",
            "/sys/class/net",
            "/home",
            "/root",
            "/tmp",
            str(outside / "submissions"),
        ),
    ]
    opened = (
        "import os\n"
        "found = []\n"
        f"for place in [*{places!r}, f'/proc/{{os.getppid()}}/environ', f'/proc/{{os.getppid()}}/cwd/..', '..', "
        "'../..']:\n"
        "    try:\n"
        "        os.close(os.open(place, os.O_RDONLY))\n"
        "        found.append(place)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    yield _cell("places", "looks where systems keep what others do", NOT_SOLVED, opened + _if_found(wrong, correct))
    words = (
        "import ctypes, os, sys\n"
        "c = ctypes.CDLL(None)\n"
        "c.getenv.restype = ctypes.c_char_p\n"
        "said = [*sys.orig_argv, *sys.argv, *os.environ.values(), *sys.path]\n"
        f"found = any({str(outside)!r} in word for word in said)\n"
        "found = found or any(c.getenv(n) for n in (b'PATH', b'USER', b'PWD', b'PYTHONPATH', "
        "b'SSH_AUTH_SOCK', b'LOGNAME'))\n"
    )
    yield _cell("started-with", "reads how the grader was started", NOT_SOLVED, words + _if_found(wrong, correct))
    files = (
        "import os\nfound = b''\nfor file in range(64):\n    try:\n        os.set_blocking(file, False)\n"
        "        found += os.read(file, 9)\n    except OSError:\n        pass\n"
    )
    yield _cell("open-files", "reads from every file that is open", NOT_SOLVED, files + _if_found(wrong, correct))
    copies = (
        "import importlib.util, os, pathlib, pkgutil, pitfall_lab\n"
        "found, folder = [], pathlib.Path(pitfall_lab.__file__).parent\n"
        "file = folder / 'lessons' / 'exercises' / 'c12_inplace_errors.py'\n"
        "for get in (lambda: pkgutil.get_data('pitfall_lab', 'lessons/exercises/c12_inplace_errors.py'),\n"
        "            lambda: open(importlib.util.cache_from_source(file), 'rb').read(), lambda: os.link(file, "
        "'mine'),\n"
        "            lambda: os.rename(file, 'mine'), lambda: os.open(file.name, 0, dir_fd=os.open(file.parent, "
        "os.O_PATH)),\n"
        "            lambda: [*(folder.parent / 'tests').iterdir()], lambda: (folder / 'docs' / 'teaching' / "
        "'12.md').read_text()):\n"
        "    try:\n"
        "        found.append(get())\n"
        "    except OSError:\n"
        "        pass\n"
    )
    yield _cell("copies-of-answers", "looks for copies of the answers", NOT_SOLVED, copies + _if_found(wrong, correct))


def _if_found(wrong: str, correct: str) -> str:
    return f"exec({correct!r} if found else {wrong!r})"


def exhausting() -> Iterator[Case]:
    """What takes more than it may, or leaves what cannot be written down."""
    wrong = _wrong()
    hides = (
        "import os, threading\n"
        "names = [['a', 'b'] for _ in range(6)]\n"
        "for pair in names:\n"
        "    os.mkdir(pair[0])\n"
        "    os.chdir(pair[0])\n"
        "def turn(folder, pair):\n"
        "    while True:\n"
        "        os.rename(pair[0], pair[1], src_dir_fd=folder, dst_dir_fd=folder)\n"
        "        pair.reverse()\n"
        "here = '.'\n"
        "for pair in reversed(names):\n"
        "    here += '/..'\n"
        "    threading.Thread(target=turn, args=(os.open(here, os.O_RDONLY), pair), daemon=True).start()\n"
        "for n in range(12):\n"
        "    open(f'f{n}', 'wb').write(bytes(8 << 20))\n"
        "import time\n"
        "time.sleep(9)\n"
    )
    yield _cell("hides", "fills folders that change their names all the time", "output", hides, "stopped")
    yield _cell(
        "warns",
        "warns of forty megabytes",
        ("output", "exit", "timeout"),
        f"import warnings\nfor n in '1234':\n    warnings.warn(n * 10**7)\n{wrong}",
        "stopped",
    )
    yield _cell(
        "warning-odd",
        "puts no warning among the warnings",
        "crash",
        f"import warnings\nwarnings._showwarnmsg_impl(7)\n{wrong}",
        "stopped",
    )
    yield _cell(
        "stdout-odd",
        "says that it printed a number",
        NOT_SOLVED,
        f"import sys\nsys.stdout.getvalue = lambda: 7\n{wrong}",
    )
    lost = (
        "import os\n"
        "here = os.open('mine', os.O_CREAT | os.O_WRONLY)\n"
        "for file in range(3, 64):\n"
        "    os.dup2(here, file)\n"
    )
    yield _cell(
        "report-lost", "has its report written into a file of its own", "exit", lost + right()[TARGET], "stopped"
    )
    masked = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(99)"
    yield _cell("masked", "blocks every signal, and waits", "timeout", masked, "stopped")
    sleepers = (
        "import threading, time\nfor n in range(5000):\n    threading.Thread(target=time.sleep, args=(99,)).start()\n"
    )
    yield _cell("threads", "starts five thousand threads", ("memory", *NOT_SOLVED), sleepers + wrong)
    deep = "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6):\n    x = [x]\nrepr(x)"
    yield _cell("deep-text", "writes out a list that is a million deep", "crash", deep, "stopped")
    reading = 'reading = {{"shape": (), "operation": "", "writes": {0}, "blame": {0}}}'
    endless = "type('L', (list,), {'__iter__': lambda s: iter(lambda: 'x' * 9**6 + str(id(s)), 1)})([1])"
    nameless = "type('M', (type,), {'__name__': property(lambda c: 7)})('C', (), {})()"
    some = ("partly", "failed")
    for name, what, value in (
        ("long-type", "a type whose name has three megabytes", "type('T' * 3_000_000, (), {})()"),
        ("deep-value", "a list a hundred thousand deep", "x"),
        ("endless", "a list that has no end", endless),
        ("odd-names", "a class without a name", nameless),
        ("long-literal", "a text that is a literal of eight megabytes", "'[' + '1,' * 4_000_000 + ']'"),
        ("many-arrays", "a list of twenty thousand arrays", "[np.zeros(1)] * 20_000"),
    ):
        source = f"x = []\nfor _ in range(10**5):\n    x = [x]\n{reading.format(value)}"
        yield Case(name, f"answers with {what}", "graded", {"12.1": source}, {"12.1": some})
    digits = f"import sys\nsys.set_int_max_str_digits(0)\n{reading.format('10**6000')}"
    yield Case(
        "digits-value", "answers with a number that no reader takes", "tampered", {"12.1": digits}, {"12.1": "tampered"}
    )
    odd = "e = SyntaxError()\ne.msg, e.lineno, e.filename = 5, -7, {1: 2}\nraise e"
    yield _cell("error-odd", "an error whose text is a number", "tampered", odd, "tampered")
    yield _cell(
        "long-name", "a variable whose name has fifty thousand letters", NOT_SOLVED, f"{wrong}{'x' * 50_000} = 1\n"
    )
    yield _cell("open-quotes", "twenty thousand quotation marks that are not closed", NOT_SOLVED, '"' + '\\"' * 10_000)


def files() -> Iterator[Case]:
    """Notebooks and other files."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    answered = json.dumps(notebook({TARGET: right()[TARGET]}))

    def at(seconds: float) -> Callable[[Path, Path], None]:
        def write(folder: Path, stem: Path) -> None:
            path = folder / f"{stem}.ipynb"
            path.write_text(answered, encoding="utf-8")
            os.utime(path, (seconds, seconds))

        return write

    yield Case("from-1901", "written in 1901", "graded", status=solved, write=at(-(2**31)))
    yield Case("from-3059", "written in 3059, as far as files go", "graded", status=solved, write=at(2**35))
    lone = json.dumps(code(f"%%time\n%%exercise {TARGET}\nx = 1"))
    missing: dict[str, str | tuple[str, ...]] = {**dict.fromkeys(KEYS, "missing"), TARGET: NOT_SOLVED}
    wrapped = f'{{"cells": [{",".join([lone] * 20_000)}]}}'.encode()
    yield Case(
        "wrapped",
        "twenty thousand answers below %%time",
        "graded",
        status=missing,
        write=lambda f, s: as_file_of(f"{s}.ipynb", wrapped)(f, s),
    )
    lines = json.dumps(book([code("%%exercise 12.2\n" + "x\n" * 3_000_000)])).encode()
    yield Case(
        "many-lines",
        "a cell of three million lines",
        "graded",
        status=missing,
        write=lambda f, s: as_file_of(f"{s}.ipynb", lines)(f, s),
        says="characters",
    )
    parts = f'{{"cells": [{"[]," * 4_000_000}0]}}'.encode()
    yield Case(
        "many-parts",
        "four million lists",
        "unreadable",
        write=lambda f, s: as_file_of(f"{s}.ipynb", parts)(f, s),
        says="lists and values",
    )
    same = book([code(f"%%exercise {key}\n{right()[key]}", id="x", metadata={"id": "x"}) for key in KEYS])
    same["cells"] += [
        {**same["cells"][0], "cell_type": kind, "source": f"%%exercise {TARGET}\nx = 1"}
        for kind in ("raw", "markdown", "Code")
    ]
    yield Case(
        "same-ids",
        "cells that all have one id, and copies that are no code",
        "graded",
        status=dict.fromkeys(KEYS, "solved"),
        write=lambda f, s: as_file_of(f"{s}.ipynb", json.dumps(same).encode())(f, s),
    )
    for name, table in (
        ("overrides.csv", "student,exercise,points,note\nwarns,,4,mine\n"),
        ("roster.csv", "student,id\nwarns,1\n"),
        ("assignment.toml", "format = 1"),
    ):
        yield Case(
            name,
            "a file called as one of the teacher's",
            "unreadable",
            write=as_file_of(name, table.encode()),
            says="no JSON",
        )
