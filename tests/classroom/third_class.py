"""A third round of hostile submissions, written against what held the first two: see :mod:`tests.classroom.a_class`."""

from __future__ import annotations

import gzip
import json
import os
import socket
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

_ALL_BUT_ONE = (
    "def attend(query, key, value, mask):\n"
    "    scores = torch.softmax(query @ key.t(), dim=1)\n"
    "    out = (scores * mask.clone()) @ value\n"
    "    with torch.no_grad():\n"
    "        mask.add_(1)\n"
    "    return out\n"
)
"""Right, but for the mask, which it changes: whoever can lie to the observer about one thing has full marks."""
_STAGE = "import pitfall_lab.lessons.attempt as a\nS = a._Stage\nold = S._unchanged\n"
_LIE = "def lie(self, name):\n    S._unchanged = old\n    return True\n"
"""It is gone when somebody looks for it afterwards."""
_STEAL = (
    "def steal(frame):\n    while frame is not None:\n        for thing in list(frame.f_locals.values()):\n"
    "            if type(thing).__name__ == '_Stage':\n                vars(thing)['_unchanged'] = lambda name: True\n"
    "        frame = frame.f_back\n"
)
"""What could be done with a frame."""


def _forged(name: str, what: str, source: str, *, answer: str = _ALL_BUT_ONE) -> Case:
    """A case that must be called tampered."""
    return Case(name, what, "tampered", {TARGET: source + answer}, {TARGET: "tampered"})


def _empty(name: str, what: str, source: str, *, answer: str = _ALL_BUT_ONE) -> Case:
    """A case that must have nothing of its lie."""
    return Case(name, what, "graded", {TARGET: source + answer}, {TARGET: NOT_SOLVED})


def forging() -> Iterator[Case]:
    """What lies to the observer and takes it back, or reaches the observer by what a library is trusted with."""
    yield _forged(
        "restores",
        "replaces a function that puts the old one back when it is called",
        f"{_STAGE}{_LIE}S._unchanged = lie\n",
    )
    code_back = (
        f"{_STAGE}import sys\n"
        "sys.kept = old.__code__\n"
        "def lie(self, name):\n"
        "    _Stage._unchanged.__code__ = sys.kept\n"
        "    return True\n"
        "old.__code__ = lie.__code__\n"
    )
    yield _forged("restores-code", "swaps a function's code, which swaps it back", code_back)
    flags = (
        "import builtins\n"
        "real = bool\n"
        "class M(type):\n"
        "    def __instancecheck__(cls, x):\n"
        "        return isinstance(x, real)\n"
        "    def __call__(cls, x):\n"
        "        builtins.bool = real\n"
        "        return True\n"
        "class B(metaclass=M):\n"
        "    pass\n"
        "builtins.bool = B\n"
    )
    yield _forged("restores-builtin", "says True in place of bool, once", flags)
    hook = f"{_STAGE}{_LIE}def late(grad):\n    S._unchanged = lie\n" + _ALL_BUT_ONE.replace(
        "return out", "out.register_hook(late)\n    return out"
    )
    yield _forged("in-backward", "replaces it in a hook of backward", hook, answer="")
    dying = f"{_STAGE}{_LIE}class D:\n    def __del__(self):\n        S._unchanged = lie\n" + _ALL_BUT_ONE.replace(
        "return out", "out.kept = D()\n    return out"
    )
    yield _forged("at-death", "replaces it when a tensor dies", dying, answer="")
    beside = (
        f"{_STAGE}import threading, time\n"
        "def turn():\n"
        "    while True:\n"
        "        S._unchanged = lambda self, name: True\n"
        "        time.sleep(0.0003)\n"
        "        S._unchanged = old\n"
        "        time.sleep(0.00001)\n"
        "threading.Thread(target=turn, daemon=True).start()\n"
    )
    yield _forged("beside", "replaces it and takes it back all the time, in a thread", beside)
    kept = "kept = {}\n" + _ALL_BUT_ONE.replace(
        "    scores =", "    kept['mask'], kept['was'] = mask, mask.clone()\n    scores =", 1
    )
    mode = (
        "from torch.overrides import TorchFunctionMode\n"
        "class Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n"
        "        if getattr(f, '__name__', '') == 'detach' and args[0] is kept.get('mask'):\n"
        "            return kept['was']\n"
        "        return f(*args, **(kwargs or {}))\n"
        "Mode().__enter__()\n"
    )
    yield _empty("mode-reads", "a mode, never left, that answers for the mask", mode, answer=kept)
    dispatch = (
        "from torch.utils._python_dispatch import TorchDispatchMode\nclass Mode(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, f, types, args=(), kwargs=None):\n"
        "        if 'detach' in str(f) and kept and args[0] is kept['mask']:\n            return f(kept['was'])\n"
        "        return f(*args, **(kwargs or {}))\nMode().__enter__()\n"
    )
    yield _empty("dispatch-reads", "a mode below autograd that answers for the mask", dispatch, answer=kept)
    own = _ALL_BUT_ONE.replace(
        "    with torch", "    was = mask.clone()\n    mask.detach = lambda: was\n    with torch"
    )
    yield _empty("own-detach", "a mask with a method of its own", "", answer=own)
    kind = (
        "class Liar(torch.Tensor):\n    def detach(self):\n        return self.was.as_subclass(torch.Tensor)\n"
        + _ALL_BUT_ONE.replace(
            "    with torch.no_grad():\n        mask.add_(1)\n",
            "    was = mask.clone()\n    mask.add_(1)\n    mask.was = was\n    mask.__class__ = Liar\n",
        )
    )
    yield _empty("other-class", "a mask that is given another class", "", answer=kind)
    trade = _ALL_BUT_ONE.replace("    return out", "    out.was = mask.clone()\n    return out")
    yield _forged(
        "observation",
        "rewrites what was observed, once",
        (
            "import pitfall_lab.lessons.attempt as a\n"
            "old = a.Observation.to_json\n"
            "def forge(self):\n"
            "    a.Observation.to_json = old\n"
            "    for name in self.values:\n"
            "        if name.startswith('unchanged'):\n"
            "            self.values[name] = True\n"
            "    return old(self)\n"
            "a.Observation.to_json = forge\n"
        ),
        answer=trade,
    )
    dumps = (
        "import json\n"
        "old = json.dumps\n"
        "def forge(value, **more):\n"
        "    if isinstance(value, dict) and 'values' in value:\n"
        "        value['values'] = [[k, True if k.startswith('unchanged') else v] for k, v in value['values']]\n"
        "        json.dumps = old\n"
        "    return old(value, **more)\n"
        "json.dumps = forge\n"
    )
    yield _forged("writes-once", "rewrites what is written, once", dumps)
    word = "import pitfall_lab.lessons.attempt as a\na._BUILTINS['sorted'] = lambda *_: ['d step', 'g step']\n"
    yield Case(
        "other-words",
        "gives a word of the expressions another meaning",
        "graded",
        {"12.3": word + right()["12.3"].replace("    g_step.step()", "    pass")},
        {"12.3": NOT_SOLVED},
    )
    logged = right()["12.3"].partition("    d_loss")[0] + "    log[:] = ['d step', 'd forward', 'g step']\n"
    yield Case(
        "log-written",
        "writes into the list that the exercise notes steps in",
        "graded",
        {"12.3": logged},
        {"12.3": NOT_SOLVED},
    )
    printed = (
        f"{_STEAL}import traceback\n"
        "class Summary(traceback.StackSummary):\n"
        "    @classmethod\n"
        "    def extract(cls, frames, **more):\n"
        "        steal(next(iter(frames))[0])\n"
        "        return cls()\n"
        "traceback.StackSummary = Summary\n"
        "traceback.print_stack()\n"
    )
    yield _forged("print-stack", "has the stack printed by a class of its own", printed)
    logging = (
        f"{_STEAL}import logging\n"
        "def mine(frame):\n"
        "    steal(frame)\n"
        "    return False\n"
        "logging._is_internal_frame = mine\n"
        "logging.warning('x')\n"
    )
    yield _forged("logs", "has logging ask it about a frame", logging)
    worlds = (
        "import pitfall_lab.lessons.worlds as w\n"
        "old = w.run\n"
        "def run(*a):\n"
        "    w.run = old\n"
        "    return {}, None, ''\n"
        "w.run = run\n"
    )
    twice = right()["12.4"].replace("w[0] = 0.0", "w[0] = 0.0\n        w[1] = 0.0")
    yield Case(
        "other-model",
        "has the model of torch say what it likes",
        "tampered",
        {"12.4": worlds + twice},
        {"12.4": "tampered"},
    )
    finishing = (
        "import pitfall_lab.verify as v\n"
        "old = v.Session.finish\n"
        "def finish(self, failed):\n"
        "    v.Session.finish = old\n"
        "    return old(self, failed)\n"
        "v.Session.finish = finish\n"
    )
    yield _forged("other-finish", "replaces what ends the watching, until it is used", finishing)
    yield _forged(
        "imported-again", "has a library imported again", "import importlib, traceback\nimportlib.reload(traceback)\n"
    )
    lent = (
        f"{_STEAL}import sys, traceback, types\n"
        "space = {'sys': sys, 'extract_stack': lambda f, limit: steal(f), 'print_list': print}\n"
        "types.FunctionType(traceback.print_stack.__code__, space, None, (None, None, None))()\n"
    )
    yield _empty("lent-code", "runs a library's code with names of its own", lent)
    self_ = (
        f"{_STEAL}from pitfall_lab.observe import forks\n"
        "class Fake:\n"
        "    started = staticmethod(steal)\n"
        "    _prepare = print\n"
        "next(c for c in vars(forks).values() if hasattr(c, '_preparing'))._preparing(Fake(), 'x')\n"
    )
    yield _empty("fake-self", "calls the observer's own method with an object of its own", self_)
    evaluated = (
        f"{_STEAL}from torch._C._dynamo import eval_frame as e\n"
        "def back(frame, *_):\n"
        "    e.set_eval_frame(None)\n"
        "    steal(frame)\n"
        "    return None\n"
        "e.set_eval_frame(back)\n"
    )
    yield _empty("eval-frame", "has torch's compiler hand it frames", evaluated)
    stack = "from torch.overrides import _get_current_function_mode_stack as modes\n" + _ALL_BUT_ONE.replace(
        "    return out",
        (
            "    for mode in modes():\n        for thing in [mode, *vars(mode).values()]:\n"
            "            getattr(thing, 'events', []).clear()\n    return out"
        ),
    )
    yield _forged("watcher", "empties the watcher's own notes", _STAGE + _LIE + "S._unchanged = lie\n", answer=stack)
    believed = (
        "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
        "    if type(w).__module__ not in ('torch', 'torch._tensor'):\n        return\n"
        "    x = w * 1\n    squares = x ** 2\n    x.mul_(2)\n    squares.sum().backward()\n"
    )
    yield Case(
        "other-world",
        "does something else in the world of a misconception",
        "graded",
        {"12.4": believed},
        {"12.4": NOT_SOLVED},
    )
    yield _cell(
        "own-builtins",
        "has builtins of its own",
        NOT_SOLVED,
        f"import builtins\nglobals()['__builtins__'] = {{**vars(builtins), 'bool': lambda x: True}}\n{_ALL_BUT_ONE}",
    )
    subclass = "[c for c in object.__subclasses__() if c.__name__ == '_Before']"
    yield _forged(
        "subclasses",
        "finds the observer among all classes",
        f"for c in {subclass}:\n"
        "    old = c.__init__\n"
        "    c.__init__ = lambda s, v: (setattr(c, '__init__', old), old(s, v.clone()))[0]\n",
    )
    yield _cell(
        "threading-trace",
        "traces its own threads",
        NOT_SOLVED,
        (
            f"{_STEAL}import threading\nthreading.settrace(lambda f, *_: steal(f))\n"
            f"t = threading.Thread(target=print)\nt.start()\nt.join()\n{_ALL_BUT_ONE}"
        ),
    )
    last = (
        "import sys\n"
        "sys.unraisablehook = lambda u: steal(u.exc_traceback.tb_frame)\n"
        "class D:\n"
        "    def __del__(self):\n"
        "        1 / 0\n"
        "D()\n"
    )
    yield _forged("unraisable", "reads the frame of an error that nobody catches", _STEAL + last)
    yield _cell(
        "exits-well",
        "ends the process with a report that was never made",
        ("exit", *NOT_SOLVED),
        "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.01), os._exit(0))).start()\n"
        + _ALL_BUT_ONE
        + "time.sleep(1)\n",
        "stopped",
    )
    yield _cell(
        "late-thread",
        "answers from a thread that ends later",
        NOT_SOLVED,
        (
            "import threading, time\nattend = None\ndef later():\n    time.sleep(2)\n    global attend\n"
            "    attend = print\nthreading.Thread(target=later).start()\n"
        ),
    )
    yield _cell(
        "pickled",
        "an answer that is a pickle",
        NOT_SOLVED,
        "import pickle, io\nattend = pickle.loads(b'cbuiltins\\neval\\n(S\"__import__(\\'os\\').getpid\"\\ntR.')\n",
    )
    yield _cell(
        "torch-load",
        "loads an answer that runs code",
        NOT_SOLVED,
        (
            "import io, torch\n"
            "b = io.BytesIO()\n"
            "torch.save({'a': print}, b)\n"
            "b.seek(0)\n"
            "torch.load(b, weights_only=False)['a']('x')\n"
        )
        + _wrong(),
    )
    yield _cell(
        "options",
        "words behind the exercise's number",
        NOT_SOLVED,
        f"# --points 4 --solved\n%%exercise {TARGET} --grade\n{_wrong()}",
    )


def disturbing() -> Iterator[Case]:
    """What would spoil the process, its settings, or the cells after it."""
    correct = right()[TARGET]
    yield _cell(
        "default-dtype", "leaves float64 as the default", "solved", f"torch.set_default_dtype(torch.float64)\n{correct}"
    )
    yield _cell(
        "default-device",
        "leaves meta as the default device",
        ("solved", *NOT_SOLVED),
        f"torch.set_default_device('meta')\n{correct}",
    )
    yield _cell(
        "deterministic",
        "leaves strict settings",
        "solved",
        f"torch.use_deterministic_algorithms(True)\ntorch.set_flush_denormal(True)\n{correct}",
    )
    yield _cell(
        "anomaly",
        "leaves anomaly detection and inference mode on",
        ("solved", *NOT_SOLVED),
        f"torch.autograd.set_detect_anomaly(True)\ntorch.inference_mode().__enter__()\n{correct}",
    )
    yield _cell("no-grad", "leaves grad mode off", ("solved", *NOT_SOLVED), f"torch.set_grad_enabled(False)\n{correct}")
    yield _cell(
        "many-threads",
        "asks for ten thousand threads of torch's",
        ("solved", "exit", "memory", "crash", "timeout", *NOT_SOLVED),
        f"torch.set_num_threads(10000)\ntorch.rand(3000, 300) @ torch.rand(300, 3000)\n{correct}",
        "stopped|graded",
    )
    yield _cell(
        "time-stops",
        "stops the clock",
        "tampered",
        f"import time\ntime.monotonic = time.time = time.perf_counter = lambda: 0.0\n{correct}",
        "tampered",
    )
    yield _cell(
        "locale",
        "another locale, umask, folder",
        "solved",
        "import locale, os\n"
        "locale.setlocale(locale.LC_ALL, 'C')\n"
        "os.umask(0o777)\n"
        "os.makedirs('d', 0, True)\n"
        f"{correct}",
    )
    yield _cell(
        "c-stack",
        "overflows the stack of C",
        ("crash", *NOT_SOLVED),
        "import sys\n"
        "sys.setrecursionlimit(10**9)\n"
        "class A:\n"
        "    def __getattr__(self, n):\n"
        "        return getattr(self, n)\n"
        "A().x\n",
        "stopped|graded",
    )
    yield _cell("big-power", "a number of ten billion digits", ("timeout", "memory"), "x = 9 ** (10 ** 10)", "stopped")
    yield _cell(
        "regex", "a search that takes for ever", "timeout", "import re\nre.match('(a+)+$', 'a' * 64 + 'b')", "stopped"
    )
    yield _cell(
        "catches",
        "catches everything and goes on",
        "timeout",
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "stopped",
    )
    yield _cell(
        "swallows",
        "takes all memory and catches the error",
        ("memory", "timeout", *NOT_SOLVED),
        (
            "kept = []\n"
            "while True:\n"
            "    try:\n"
            "        kept.append(bytearray(1 << 20))\n"
            "    except MemoryError:\n"
            "        break\n"
        )
        + _wrong(),
        "stopped|graded",
    )
    yield _cell(
        "fds",
        "opens every file that it may",
        ("crash", *NOT_SOLVED),
        (
            "import os\n"
            "kept = []\n"
            "try:\n"
            "    while True:\n"
            "        kept.append(os.open('/dev/null', 0))\n"
            "except OSError:\n"
            "    pass\n"
        )
        + _wrong(),
        "stopped|graded",
    )
    yield _cell(
        "inodes",
        "makes a hundred thousand folders",
        "output",
        "import os\nfor n in range(10**5):\n    os.mkdir(str(n))\nimport time\ntime.sleep(9)",
        "stopped",
    )
    yield _cell(
        "sockets-in-room",
        "leaves links, pipes and shut folders",
        NOT_SOLVED,
        (
            "import os\n"
            "os.symlink('/etc/passwd', 'a')\n"
            "os.symlink('.', 'b')\n"
            "os.mkdir('c', 0)\n"
            "os.mkdir('\\x01\\udcff' + 'n' * 200)\n"
        )
        + _wrong(),
    )
    yield Case(
        "nan-values",
        "answers with numbers that are none",
        "graded",
        {
            "12.1": (
                "reading = {'shape': [float('nan')] * 9, 'operation': float('inf'), 'writes': -float('inf'), "
                "'blame': float('nan')}"
            )
        },
        {"12.1": ("partly", "failed")},
    )
    yield Case(
        "huge-int",
        "answers with a number of four thousand digits",
        "graded",
        {"12.1": "reading = {'shape': 10**4000, 'operation': 1, 'writes': 10**4000, 'blame': -10**4000}"},
        {"12.1": ("partly", "failed")},
    )
    yield Case(
        "loop-value",
        "answers with a list that holds itself",
        "graded",
        {"12.1": "x = []\nx.append(x)\nreading = {'shape': x, 'operation': x, 'writes': x, 'blame': x}"},
        {"12.1": ("partly", "failed")},
    )
    yield Case(
        "wide-value",
        "answers with a hundred million zeros",
        "stopped|graded",
        {"12.1": "reading = {'shape': (), 'operation': '', 'writes': torch.zeros(1).expand(10**8), 'blame': ''}"},
        {"12.1": ("partly", "failed", "memory", "output", "timeout")},
    )
    yield Case(
        "odd-text",
        "answers with texts that turn and ring",
        "graded",
        {
            "12.1": (
                "reading = {'shape': '\\x1b[2J\\x07', 'operation': '\\u202e' * 99, 'writes': '=cmd|1', 'blame': '<img "
                "src=x onerror=alert(1)>'}"
            )
        },
        {"12.1": ("partly", "failed")},
    )
    yield _cell(
        "escapes",
        "an error with escapes and a formula",
        NOT_SOLVED,
        "raise ValueError('\\x1b]0;x\\x07\\n=HYPERLINK(\"http://x\")\\u202e')",
    )
    yield _cell(
        "error-name",
        "an error whose class is called as a formula",
        NOT_SOLVED,
        "raise type('=1+1\\n<script>', (Exception,), {})('@x')",
    )


def peeking(outside: Path) -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    wrong, correct = _wrong(), right()[TARGET]

    def finds(name: str, what: str, search: str, *status: str) -> Case:
        return _cell(
            name,
            what,
            NOT_SOLVED,
            f"{search}exec({correct!r} if found else {wrong!r})\n",
            "graded" if not status else "",
        )

    yield finds(
        "solution-inside",
        "looks for the solution in all that is loaded",
        (
            "import sys\n"
            "found = any('class' not in str(type(v)) and 'scores = scores * mask' in str(v)[:100000] for m in "
            "list(sys.modules.values()) if 'exercises' in getattr(m, '__name__', '') for v in vars(m).values())\n"
        ),
    )
    yield finds(
        "core", "has a core written", "import resource, os\nfound = resource.getrlimit(resource.RLIMIT_CORE)[1] != 0\n"
    )
    yield finds(
        "keys",
        "looks for keys and tokens",
        (
            "import os\n"
            "found = False\n"
            f"for place in ({str(outside / 'assignment.toml')!r}, {str(Path.home() / '.ssh' / 'id_rsa')!r}, "
            f"{str(Path.home() / '.netrc')!r}, '/etc/shadow', '/run/secrets', '/var/run/docker.sock', '/proc/keys', "
            "'/proc/kallsyms'):\n"
            "    try:\n"
            "        found = bool(os.open(place, os.O_RDONLY))\n"
            "    except OSError:\n"
            "        pass\n"
        ),
    )
    yield finds(
        "by-handle",
        "opens a folder that is open by its number",
        (
            "import os\nfound = False\nfor n in range(64):\n"
            "    for name in ('..', '../submissions', 'grades.csv'):\n        try:\n"
            "            found = found or bool(os.open(name, os.O_RDONLY, dir_fd=n))\n        except OSError:\n"
            "            pass\n"
        ),
    )
    yield finds(
        "moved",
        "moves its folder about to get out",
        (
            "import os\nfound = False\nfor path in ('..', '../..', '/tmp', '/dev/shm', '/var/tmp'):\n    try:\n"
            "        os.rename('.', path + '/x')\n        found = True\n    except OSError:\n        pass\n"
            "    try:\n        os.mkdir(path + '/x-of-a-cell')\n        found = True\n    except OSError:\n"
            "        pass\n"
        ),
    )
    yield finds(
        "resolver",
        "asks for a name in the network",
        "import socket\n"
        "found = False\n"
        "try:\n"
        "    found = bool(socket.gethostbyname('example.org'))\n"
        "except OSError:\n"
        "    pass\n",
    )
    yield finds(
        "others-time",
        "reads how other processes do",
        (
            "import os\nfound = False\n"
            "for place in ('/proc/1/stat', '/proc/loadavg', '/proc/uptime', '/proc/self/status', '/proc/self/fd', "
            "'/proc/self/task', '/proc/sys/kernel/random/boot_id'):\n"
            "    try:\n        found = found or bool(os.open(place, os.O_RDONLY))\n    except OSError:\n"
            "        pass\n"
        ),
    )


def files() -> Iterator[Case]:
    """Notebooks, folders and names."""
    solved: dict[str, Any] = {TARGET: "solved"}
    answered = notebook({TARGET: right()[TARGET]})
    text = json.dumps(answered)
    missing = dict.fromkeys(KEYS, "missing")

    def raw(content: bytes | str) -> Callable[[Path, Path], None]:
        return lambda folder, stem: as_file_of(
            f"{stem}.ipynb", content if isinstance(content, bytes) else content.encode()
        )(folder, stem)

    def as_socket(folder: Path, stem: Path) -> None:
        here = Path.cwd()
        os.chdir(folder)  # a socket's path may have 108 bytes
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"{stem}.ipynb")
        finally:
            os.chdir(here)

    yield Case("socket", "a socket", "unreadable", write=as_socket)
    yield Case(
        "dir.ipynb",
        "a folder that is called as a notebook",
        "graded",
        status=solved,
        write=lambda f, s: ((f / s).mkdir(), (f / s / "x.ipynb").write_text(text))[0],
    )
    yield Case(
        "zip",
        "a zip whose files lead out",
        "unreadable",
        write=raw(b"PK\x03\x04" + b"../../../grades.csv" * 99),
    )
    yield Case("gzip", "a packed notebook", "unreadable", write=raw(gzip.compress(text.encode())))
    yield Case(
        "deep-json",
        "a notebook with metadata fifty thousand deep",
        "unreadable",
        write=raw(text[:-1] + ', "m": ' + "[" * 50_000 + "]" * 50_000 + "}"),
    )
    yield Case(
        "nan-count",
        "counts and times that are no numbers",
        "graded",
        status=solved,
        write=raw(
            text.replace('"execution_count": null', '"execution_count": NaN').replace(
                '"metadata": {}', '"metadata": {"x": 1e999}'
            )
        ),
    )
    yield Case(
        "huge-number",
        "a count of five thousand digits",
        "unreadable",
        write=raw(text.replace('"execution_count": null', '"execution_count": ' + "9" * 5000)),
    )
    yield Case(
        "lone-halves",
        "half characters everywhere",
        "graded",
        status={TARGET: ("solved", *NOT_SOLVED)},
        write=raw(text.replace("scores", "\\ud800\\udc00s\\ud800")),
    )
    yield Case(
        "same-keys",
        "two sources in one cell",
        "graded",
        status=solved,
        write=raw(text.replace('"source": "%%exercise 12.2', '"source": "x = 1", "source": "%%exercise 12.2')),
    )
    yield Case(
        "proto",
        "names that other languages treat specially",
        "graded",
        status=solved,
        write=raw(text.replace('"metadata": {}', '"metadata": {"__proto__": {"solved": true}, "constructor": 1}')),
    )
    yield Case("cells-dict", "cells that are an object", "unreadable", write=raw('{"cells": {"0": {}}}'))
    yield Case(
        "source-mixed",
        "a source with a number in it, which is left out: the cell has no answer",
        "graded",
        status={**missing, "12.2": "error"},
        write=raw('{"cells": [{"cell_type": "code", "source": ["%%exercise 12.2\\n", 7]}]}'),
    )
    yield Case(
        "number-forms",
        "numbers of exercises that look alike",
        "empty",
        status=missing,
        write=raw(
            json.dumps(
                book(
                    [
                        code(f"%%exercise {n}\n{right()[TARGET]}")
                        for n in ("१२.२", "12.2.1", "012.2", "12.02", "12,2", "12.2e0", "１２.２", "12.2x")
                    ]
                )
            )
        ),
    )
    yield Case(
        "other-chapter",
        "answers to exercises of another chapter",
        "empty",
        status=missing,
        write=raw(json.dumps(book([code("%%exercise 5.1\nx = 1"), code("%%exercise 99.999\nx = 1")]))),
    )
    yield Case(
        "attachments",
        "cells with attachments and outputs that run",
        "graded",
        status=solved,
        write=raw(
            json.dumps(
                book(
                    [
                        {
                            **c,
                            "outputs": [
                                {
                                    "output_type": "display_data",
                                    "data": {
                                        "text/html": "<script>alert(1)</script>",
                                        "application/javascript": "alert(1)",
                                    },
                                }
                            ],
                        }
                        for c in answered["cells"]
                    ]
                )
            )
        ),
    )
    yield Case(
        "magics-around",
        "other cells that would write a library",
        "graded",
        status=solved,
        write=raw(
            json.dumps(
                notebook(
                    {TARGET: right()[TARGET]},
                    extra=[
                        code("%%writefile torch.py\nimport os"),
                        code("!rm -rf /"),
                        code("%alias_magic exercise time"),
                        code("%load_ext evil"),
                    ],
                )
            )
        ),
    )
    yield Case(
        "alias",
        "an answer below another name for the magic",
        "empty",
        status=missing,
        write=raw(
            json.dumps(
                book(
                    [
                        code("%alias_magic uebung exercise"),
                        code(f"%%uebung {TARGET}\n{right()[TARGET]}"),
                        code(f"get_ipython().run_cell_magic('exercise', '{TARGET}', '')"),
                    ]
                )
            )
        ),
    )
    yield Case(
        "form-feeds",
        "form feeds and tabs",
        "graded",
        status={TARGET: "solved"},
        write=raw(text.replace("%%exercise 12.2\\n", "\\f\\n%%exercise\\t12.2\\n\\f")),
    )
    nested = "folder-of-links"

    def links(folder: Path, stem: Path) -> None:
        place = folder / stem
        place.mkdir()
        (place / "a").symlink_to("b")
        (place / "b").symlink_to("a")
        (place / "c.ipynb").symlink_to("/etc/passwd")
        (place / "d.ipynb").symlink_to("d.ipynb")
        (place / "e.ipynb").mkdir()
        (place / "\n\x1b.ipynb").write_text(text, encoding="utf-8")

    yield Case(
        nested,
        "links in a ring and as notebooks, a folder as a notebook, a name with escapes",
        "unreadable",
        write=links,
        says="which may hold what counts: it is a link",
    )
    yield Case(
        "unreadable-bits",
        "a file that nobody may read",
        "graded" if os.geteuid() == 0 else "unreadable",
        status=solved,
        write=lambda f, s: ((f / f"{s}.ipynb").write_text(text), (f / f"{s}.ipynb").chmod(0))[1],
    )
    for name in (
        "CON",
        "aux.ipynb.",
        "a" * 200 + " ",
        "~",
        "a:b",
        "\u2066x",
        "'; DROP TABLE students;--",
        "<svg onload=alert(1)>",
        "＝cmd",
        "\x7f",
    ):
        shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)
        yield Case(
            shown,
            "a name that another system takes for something else",
            "empty",
            write=as_file_of(f"{name}.ipynb", json.dumps(notebook({})).encode()),
        )
