"""A thirteenth round of hostile submissions, written against what held the twelfth: torch's own ways to load, to
register and to keep, what the grader reads after a cell has earned points, and files that make the tables large.

Its rosters are in ``rosters.py``.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
import zipfile
from collections.abc import Iterator
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
    peeks,
    right,
)
from tests.classroom.eighth_class import _raw
from tests.classroom.fourth_class import _ENDED

INTERFACE = (
    "under = '_' * 2\n"
    "words = {under + 'array_interface' + under: "
    "{'data': (8, False), 'shape': (1 << 44,), 'typestr': '=u8', 'version': 3}}\n"
)
"""What makes all of a process's memory an array of NumPy's, under a name that is worked out."""


def forging() -> Iterator[Case]:
    """What would have points without an answer, or would not be told."""
    correct, wrong = right()[TARGET], _wrong()
    for name, what, source in (
        ("named-parts", "has all memory as an array, by a module that sets what it is told to", (
        "memory = np.asarray(nn.ParameterDict(words))\n")),
        ("named-state", "has it by the state of a scheduler", (
        "step = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)\n"
        "box = torch.optim.lr_scheduler.ConstantLR(step)\n"
        "box.load_state_dict(words)\n"
        "memory = np.asarray(box)\n")),
        ("named-scaler", "has it by the state of a scaler", (
        "from torch.optim import swa_utils as s\n"
        "box = s.SWALR(torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0), 0.1)\n"
        "box.load_state_dict(words)\n"
        "memory = np.asarray(box)\n")),
    ):  # fmt: skip
        checked = "assert int(memory[id([]) // 8]) == id(list)\n"
        yield Case(name, what, "look", {TARGET: INTERFACE + source + checked + correct}, {TARGET: "solved"})
    written = "import io\nfor n in range(3, 64):\n    try:\n        io.FileIO(n, 'w', closefd=False).write(b'x')\n"
    yield _cell(
        "file-io",
        "writes into what is open, by a class of io's",
        "tampered",
        f"{written}    except OSError:\n        pass\n{correct}",
        "tampered",
    )
    patch = "import pitfall_lab.lessons.attempt as a\\na._Stage._unchanged = lambda *w: True\\n"
    yield _cell(
        "package",
        "patches the observer from a package of torch's",
        ("tampered", *NOT_SOLVED),
        "import io, torch.package as p\n"
        "held = io.BytesIO()\n"
        "with p.PackageExporter(held) as out:\n"
        f"    out.save_source_string('mine', '{patch}')\n"
        "held.seek(0)\n"
        "p.PackageImporter(held).import_module('mine')\n" + wrong,
        "graded|tampered",
    )
    yield _cell(
        "hub",
        "patches it from a hub in its folder",
        ("tampered", *NOT_SOLVED),
        f"open('hubconf.py', 'w').write('{patch}def mine(): return 1\\n')\n"
        "torch.hub.load('.', 'mine', source='local')\n" + wrong,
        "graded|tampered",
    )
    yield _cell(
        "extension",
        "compiles an extension",
        NOT_SOLVED,
        "from torch.utils.cpp_extension import load_inline\n"
        "load_inline('mine', 'int one() { return 1; }', functions=['one'])\n" + correct,
    )
    kernel = (
        "import torch.library\n"
        "lib = torch.library.Library('aten', 'IMPL')\n"
        "lib.impl('softmax.int', lambda x, dim, dtype=None: torch._softmax(x, dim, False).clone(), 'AutogradCPU')\n"
    )
    yield Case(
        "own-kernel",
        "has softmax save something else, for all of torch",
        "look|graded|tampered",
        {TARGET: kernel + wrong},
        {TARGET: ("solved", "tampered", *NOT_SOLVED)},
    )
    yield Case(
        "own-equal",
        "has torch say that all is equal, below Python",
        "look|graded|tampered",
        {
            TARGET: "import torch.library\n"
            "lib = torch.library.Library('aten', 'IMPL')\n"
            "lib.impl('equal', lambda a, b: True, 'CPU')\n" + wrong
        },
        {TARGET: ("tampered", *NOT_SOLVED)},
    )
    later = (
        "def later(_):\n"
        "    import pitfall_lab.lessons.attempt as a\n"
        "    a._Stage._unchanged = lambda *w: True\n"
        "done = torch.futures.Future()\n"
        "done.then(later)\n"
        "def attend(query, key, value, mask):\n"
        "    done.set_result(1)\n"
        "    return query * 0\n"
    )
    yield _cell("future", "patches it when a future has a result", ("tampered", *NOT_SOLVED), later, "graded|tampered")
    hooks = (
        "from torch.optim import optimizer as o\n"
        "o.register_optimizer_step_post_hook(lambda step, *w: step.zero_grad())\n"
        "from torch.nn.modules import module as m\n"
        "m.register_module_forward_hook(lambda part, given, out: out * 1)\n"
    )
    early = right()["12.3"].replace("    d_step.step()\n", "", 1) + "    d_step.step()\n"
    yield Case(
        "hooks-of-all",
        "hooks of all modules and all optimizers",
        "graded|tampered|look",
        {"12.3": hooks + early},
        {"12.3": ("partly", "failed", "error", "tampered")},
    )
    wrapper = (
        "class Empty(torch.Tensor):\n"
        "    @staticmethod\n"
        "    def __new__(cls, size):\n"
        "        return torch.Tensor._make_wrapper_subclass(cls, size, requires_grad=True)\n"
        "    @classmethod\n"
        "    def __torch_dispatch__(cls, function, types, args=(), words=None):\n"
        "        return args[0]\n"
        "def attend(query, key, value, mask):\n"
        "    return Empty(query.shape)\n"
    )
    yield _cell("wrapper", "an output that has a shape and no numbers", NOT_SOLVED, wrapper)
    equal = (
        "class Equal(np.ndarray):\n"
        "    def __eq__(self, other):\n"
        "        return True\n"
        "    def __array_ufunc__(self, *words, **more):\n"
        "        return np.True_\n"
        "    def __iter__(self):\n"
        "        return iter([16, 4])\n"
        "x = np.zeros(2).view(Equal)\n"
        "reading = dict.fromkeys(['shape', 'operation', 'writes', 'saved', 'blame'], x)\n"
    )
    yield Case(
        "equal-array",
        "an array of a class that is equal to everything",
        "graded|look",
        {"12.1": equal},
        {"12.1": ("partly", "failed")},
    )
    form = (
        "class Kept(dict):\n"
        "    def clone(self):\n"
        "        return self\n"
        "    def numel(self):\n"
        "        return 1 << 60\n"
        "class Odd(torch.Tensor):\n"
        "    def detach(self):\n"
        "        return Kept(argument=NUMBER)\n"
        "def attend(query, key, value, mask):\n"
        "    scores = torch.softmax(query @ key.t(), dim=1)\n"
        "    out = (scores * mask.clone()) @ value\n"
        "    mask.zero_()\n"
        "    return out.as_subclass(Odd)\n"
    )
    for name, number in (("argument-below", "-1"), ("argument-far", "10**30")):
        yield Case(
            name,
            f"says that it returns argument {number}, to who asks whether it does anything",
            "graded|look|tampered",
            {TARGET: form.replace("NUMBER", number)},
            {TARGET: ("tampered", *NOT_SOLVED)},
        )


def disturbing() -> Iterator[Case]:
    """What is left behind, and what the grader fails at once a cell has earned its points."""
    correct = right()[TARGET]
    either, fine = "graded|stopped|tampered|look", ("solved", *_ENDED)
    long = "a" * 300
    for name, what, source in (
        ("long-part", "names a part of torch that no file can be called", f"if False:\n    torch.{long}\n"),
        ("long-import", "imports it", f"if False:\n    from torch import {long}\n"),
        ("wide-part", "names one in Chinese that is too long in bytes alone", f"if False:\n    np.{'注' * 90}.x\n"),
    ):
        yield Case(name, what, "graded", {TARGET: correct + source}, {TARGET: "solved"})
    for name, what, source in (
        ("denormals", "has small numbers become zero", "torch.set_flush_denormal(True)\n"),
        ("low-precision", "asks for low precision everywhere", ("torch.set_float32_matmul_precision('medium')\n"
        "torch.backends.mkldnn.flags(False).__enter__()\n")),
        ("mapped-level", "leaves a level of vmap open", "torch._C._functorch._vmap_increment_nesting(3, 'error')\n"),
        ("graded-level", "leaves a level of grad open", "torch._C._functorch._grad_increment_nesting()\n"),
        ("no-autograd", "switches autograd off below Python", (
        "torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU, True)\n")),
        ("profiled", "leaves a profiler running", "torch.autograd.profiler.profile().__enter__()\n"),
        ("printed-short", "prints tensors with no digits", "torch.set_printoptions(precision=0, threshold=0)\n"),
        ("lower-limits", "has no files and no memory any more", (
        "import resource\n"
        "for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK):\n"
        "    try:\n"
        "        resource.setrlimit(kind, (0, 0))\n"
        "    except (OSError, ValueError):\n"
        "        pass\n")),
        ("robust-list", "has the kernel follow a list that leads nowhere when its thread ends", (
        "import ctypes\n"
        "ctypes.CDLL(None).syscall(273, ctypes.c_void_p(8), 24)\n")),
        ("own-dispatcher", "defines operations of its own, and one again", (
        "@torch.library.custom_op('mine::one', mutates_args=())\n"
        "def one(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * 1\n"
        "kept = torch.library.Library('aten', 'FRAGMENT')\n"
        "kept.define('softmax.mine(Tensor x) -> Tensor')\n")),
        ("shared-tensor", "shares a tensor with processes", (
        "try:\n"
        "    torch.ones(3).share_memory_()\n"
        "except RuntimeError:\n"
        "    pass\n")),
        ("profile-hook", "has each new thread traced", (
        "import threading\n"
        "threading.setprofile(lambda *w: 1 / 0)\n"
        "threading.excepthook = lambda *w: 1 / 0\n")),
        ("breakpoints", "has breakpoints and errors call what is not there", (
        "import sys\n"
        "sys.breakpointhook = sys.displayhook = sys.excepthook = sys.unraisablehook = None\n")),
        ("file-system", "has other encodings for names and numbers", (
        "import sys, os\n"
        "os.environ['PYTHONHASHSEED'] = 'x'\n"
        "os.fsencode = os.fsdecode = None\n")),
        ("intern", "keeps ten million small objects until the end", (
        "kept = [(n,) for n in range(3_000_000)]\n")),
        ("ring-of-tensors", "tensors that hold each other by their hooks", (
        "a = torch.ones(3, requires_grad=True) * 1\n"
        "a.register_hook(lambda g, a=a: g)\n"
        "a.grad_fn.register_hook(lambda *w, a=a: None)\n")),
        ("left-context", "leaves a stream of CUDA's and a graph that there is not", (
        "try:\n"
        "    torch.cuda.set_stream(torch.cuda.Stream())\n"
        "except (RuntimeError, AssertionError, AttributeError):\n"
        "    pass\n"
        "torch.cuda.is_available = lambda: True\n")),
    ):  # fmt: skip
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: (*fine, "tampered")})
    yield _cell(
        "unmaps",
        "gives back the memory that torch's code is in",
        ("crash", "exit"),
        "import ctypes\n"
        "c = ctypes.CDLL(None)\n"
        "where = ctypes.cast(c.munmap, ctypes.c_void_p).value & ~4095\n"
        "c.munmap(ctypes.c_void_p(where - (64 << 20)), 128 << 20)\n",
        "stopped",
    )
    yield _cell(
        "process-group",
        "waits for other processes of its group",
        (*NOT_SOLVED, *_ENDED),
        "import torch.distributed as d, os\n"
        "d.init_process_group('gloo', init_method=f'file://{os.getcwd()}/x', rank=0, world_size=2)\n",
        "graded|stopped",
    )
    rows = "-++" * 248 + "+--" * 248, "+-" * 745, "".join("-++" if n % 2 else "+--" for n in range(496))
    for n, signs in enumerate(rows):
        yield _cell(
            f"alike-{n}",
            "fifteen hundred signs, which take minutes to compare with those of the others",
            NOT_SOLVED,
            f"x = {signs}1\n",
        )


def peeking() -> Iterator[Case]:
    """What looks for data: each has the right answer if it finds some."""
    for name, what, search in (
        ("library-mapped", "maps a file of torch's to write it", (
        "import os\n"
        "path = os.path.join(os.path.dirname(torch.__file__), 'version.py')\n"
        "t = torch.from_file(path, shared=True, size=4, dtype=torch.uint8)\n"
        "t[0] = int(t[0])\n"
        "found = True\n")),
        ("storage-mapped", "maps the answers as a storage", (
        "import os, pitfall_lab\n"
        "path = os.path.join(os.path.dirname(pitfall_lab.__file__), 'lessons/exercises/c12_inplace_errors.py')\n"
        "found = b'mask' in bytes(torch.UntypedStorage.from_file(path, False, 9999))\n")),
        ("array-mapped", "has NumPy read what the machine's users are called", (
        "found = np.fromfile('/etc/passwd', dtype=np.uint8).size > 0 or np.memmap('/etc/passwd').size > 0\n")),
        ("own-memory", "opens its own memory as a file", (
        "found = bool(open('/proc/self/mem', 'r+b') or open('/proc/self/maps').read())\n")),
        ("other-numbers", "calls by the numbers of another kind of program", (
        "import ctypes\n"
        "c = ctypes.CDLL(None)\n"
        "found = max(c.syscall(0x40000000 | 2, b'/etc/passwd', 0), c.syscall(0x40000000 | 57)) >= 0\n")),
        ("clone-apart", "begins a process by the call for threads", (
        "import ctypes\n"
        "c = ctypes.CDLL(None)\n"
        "flags = 17, 0x100 | 17, 0x4000 | 17, 0x3D0F00 ^ 0x400\n"
        "found = max(c.syscall(56, each, 0, 0, 0, 0) for each in flags) > 0\n")),
        ("store", "listens for the grader", (
        "import torch.distributed as d\n"
        "found = bool(d.TCPStore('127.0.0.1', 0, 1, True, wait_for_workers=False))\n")),
        ("compiler-left", "finds what a compiler has left for the class", (
        "import os, torch._inductor.config, torch.utils.cpp_extension as e\n"
        "os.environ.pop('HOME')\n"
        "found = any(os.listdir(p) for p in (e.get_default_build_root(), '/tmp/torchinductor_root'))\n")),
        ("counters", "asks torch for the memory that others had", (
        "from torch.utils.collect_env import get_pretty_env_info as told\n"
        "found = bool(torch.cuda.is_available() or told().count('Model name:'))\n")),
    ):  # fmt: skip
        yield peeks(name, what, search)
    yield _cell(
        "old-calls",
        "calls as programs of 32 bits do, by machine code",
        (*NOT_SOLVED, "crash"),
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
        "where = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "assert ctypes.CFUNCTYPE(ctypes.c_long)(where)() > 0\n" + _wrong(),
        "stopped|graded",
    )


def files() -> Iterator[Case]:
    """Names, notebooks and archives."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    missing = dict.fromkeys(KEYS, "missing")

    def named(row: str, name: str, what: str) -> Case:
        return Case(row, what, "graded", status=solved, write=as_file_of(name, text.encode()))

    yield named('y;"=1+1"', 'y;"=1+1".ipynb', "a formula in quotation marks behind a semicolon")
    yield named("y; '@SUM(1)", "y; '@SUM(1).ipynb", "one behind a single quotation mark")
    yield named('y;;"";"-1+1', 'y;;"";"-1+1.ipynb', "one behind several")
    yield named("\u3164", "\u3164.ipynb", "a name that is a letter without a shape")
    yield named("right\ufe0f", "right\ufe0f.ipynb", "a name with a sign that chooses a shape")
    yield named("index.html", "index.html.ipynb", "a name that the page of the class has")
    yield named("]]>&lt;!--", "]]>&lt;!--.ipynb", "a name with the ends of other languages' comments")
    for name in colliding():
        yield named(name, f"{name}.ipynb", "a name whose page would be called as another one's")

    def zipped(members: dict[str, str], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", kind) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return held.getvalue()

    long = {"a.ipynb": text, **{f"{n}{'x' * 60_000}.pdf": "" for n in range(20)}}
    yield Case(
        "zip-long-names",
        "a zip with twenty names of sixty thousand letters beside the notebook",
        "graded",
        status=solved,
        write=as_file_of("zip-long-names.zip", zipped(long)),
    )
    twice = {f"{n}{'y' * 64_000}.ipynb": text.replace("def attend", f"# {n}\\ndef attend") for n in range(3)}
    yield Case(
        "zip-long-books",
        "a zip with three notebooks whose names have sixty thousand letters",
        "graded",
        status=solved,
        write=as_file_of("zip-long-books.zip", zipped(twice)),
    )
    yield Case(
        "zip-long-broken",
        "a zip whose broken notebooks have names of sixty thousand letters",
        "unreadable",
        write=as_file_of("zip-long-broken.zip", zipped({f"{n}{'z' * 64_000}.ipynb": "{" for n in range(3)})),
        says="no JSON",
    )
    yield Case(
        "zip-cases",
        "a zip with names that differ in case alone, and in a folder called as a notebook",
        "graded",
        status=solved,
        write=as_file_of(
            "zip-cases.zip", zipped({"A.IPYNB": text, "a.ipynb": text, "a.ipynb/": "", "C:\\a.ipynb": text})
        ),
    )
    yield Case(
        "zip-two-names",
        "a zip that calls its file one thing in front and another behind",
        "unreadable",
        write=as_file_of("zip-two-names.zip", zipped({"a.ipynb": text}).replace(b"a.ipynb", b"b.ipynb", 1)),
        says="cannot be read",
    )
    raw = bytearray(zipped({"a.ipynb": text}, zipfile.ZIP_STORED))
    at = raw.index(b"PK\x01\x02")
    raw[at + 20 : at + 28] = struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0)
    yield Case(
        "zip-sizes",
        "a zip that says its file has four gigabytes",
        "graded|unreadable",
        status={key: ("solved", "unsolved") if key == TARGET else "unsolved" for key in KEYS},
        write=as_file_of("zip-sizes.zip", bytes(raw)),
    )
    state = {"state": {f"{n}": {"model_name": "HTMLModel", "state": {"value": "<script>" * 99}} for n in range(2000)}}
    claims = {**json.loads(text), "metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": state}}}
    claims["metadata"] |= {"otter": {"points": 9}, "grade_id": TARGET, "points": 1e308, "celltoolbar": "Create"}
    yield Case(
        "widgets", "two thousand widgets, and points", "graded", status=solved, write=_raw(json.dumps(claims).encode())
    )
    for name, cells in (("cells-true", "true"), ("cells-nan", "NaN"), ("cells-text", '"%%exercise 12.2"')):
        yield Case(
            name, f"cells that are {cells}", "unreadable", write=_raw(f'{{"cells": {cells}}}'.encode()), says="cells"
        )
    lines = book([code(f"%%exercise {TARGET}\u2028{right()[TARGET]}".replace("\n", "\u2028"))])
    yield Case(
        "line-separators",
        "lines that end as in typesetting",
        "graded|empty",
        status={**missing, TARGET: ("unsolved", "missing", *NOT_SOLVED)},
        write=_raw(json.dumps(lines).encode()),
    )
    hidden = f"%%exercise {TARGET}\n" + "#\n" * 30_000 + right()[TARGET]
    yield Case(
        "far-below",
        "an answer below thirty thousand lines of nothing",
        "graded",
        status={**missing, **solved},
        write=_raw(json.dumps(book([code(hidden)])).encode()),
    )

    def crowd(folder: Path, stem: Path) -> None:
        (folder / stem).mkdir()
        for n in range(40):
            (folder / stem / f"{n}{'w' * 240}.ipynb").write_text("no", encoding="utf-8")
        (folder / stem / "z.ipynb").write_text(text, encoding="utf-8")

    yield Case(
        "long-broken",
        "forty broken notebooks with long names beside the right one",
        "graded|unreadable",
        status={key: ("solved", "unsolved") if key == TARGET else "unsolved" for key in KEYS},
        write=crowd,
    )


def colliding() -> tuple[str, str]:
    """Two names with the same letters and other signs between, whose hashes begin with the same eight digits."""
    known: dict[str, str] = {}
    for signs in itertools.product("!#$%&()+,=@[]^{}~", repeat=5):
        name = f"ada{''.join(signs)}lovelace"
        begin = hashlib.sha256(name.encode()).hexdigest()[:8]
        if begin in known:
            return known[begin], name
        known[begin] = name
    raise AssertionError
