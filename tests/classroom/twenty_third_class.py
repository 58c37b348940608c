"""The twenty-third round: code that the reader of words did not reach, names that were trusted, and what torch sets or
keeps by a name or an index of the cell's. Its answers to other exercises are in ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from tests.classroom.a_class import NOT_SOLVED, TARGET, Case, _cell, book, code, right

_NAME = """\
under = '_' * 2
name = under + 'array_' + 'interface' + under
mem = {'data': (8, False), 'shape': (1 << 44,), 'typestr': '=u8', 'version': 3}
"""
"""What NumPy asks an object for, of which no text of the cell has the name, and an answer to it: all memory."""
_READS = "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n"
_NORM = """\
from torch.nn.utils.weight_norm import WeightNorm
class Norm(WeightNorm):
    def compute_weight(self, module):
        return mem
"""
_PATCH = """\
import ctypes, dis
import pitfall_lab.lessons.attempt as a
c = {code}.__code__
o = dis.opmap
b = bytes([{bytes}])
ctypes.memmove(id(c) + type(c).__basicsize__, b, len(b))
"""
_TRUE = "o['RESUME'], 0, o['LOAD_FAST'], 1, o['UNARY_NOT'], 0, o['UNARY_NOT'], 0, o['RETURN_VALUE'], 0"
_NOT = "o['RESUME'], 0, o['LOAD_FAST'], 0, o['UNARY_NOT'], 0, o['RETURN_VALUE'], 0"
_CHANGED = """\
def attend(query, key, value, mask):
    kept = mask.clone()
    scores = torch.softmax(query @ key.t(), dim=1)
    scores = scores * kept
    mask.zero_()
    return scores @ value
"""
"""The right output, and a mask that it has changed."""


def forging() -> Iterator[Case]:
    """Attributes and classes under names that a cell works out, indices that it changes, instructions that it writes
    over.
    """
    correct = right()[TARGET]
    for name, what, source in (
        ("type-of-type", "makes a class by the type of a class that has a small name", (
        f"{_NAME}kind = int\nbox = [type(kind)][0]('Box', (), {{name: mem}})()\n{_READS}")),
        ("type-of-type-later", "makes it by what it has kept in a dict, with another of these names", (
        f"{_NAME}kind = int\nkept = {{'a': type(kind)}}\nname = name.replace('interface', 'struct')\n"
        f"box = kept['a']('Box', (), {{name: mem}})()\n")),
        ("type-derived", "makes it of a class of its own", (
        f"{_NAME}class Base:\n    pass\nkinds = [type(each) for each in (Base, 1)]\n"
        f"box = kinds[0]('Box', (Base,), {{name: mem}})()\n{_READS}")),
        ("set-by-weight-norm", "has torch's weight norm set what its compute_weight returns, under any name", (
        f"{_NAME}{_NORM}box = nn.Linear(1, 1)\nhook = Norm(name, 0)\nhook(box, None)\n{_READS}")),
        ("set-by-spectral-norm", "has torch's spectral norm do so", (
        f"{_NAME}from torch.nn.utils.spectral_norm import SpectralNorm\nclass Norm(SpectralNorm):\n"
        "    def compute_weight(self, module, do_power_iteration=False):\n        return mem\n"
        f"box = nn.Linear(1, 1)\nhook = Norm(name)\nhook(box, None)\n{_READS}")),
        ("set-on-no-module", "has it set on an object that is no module", (
        f"{_NAME}{_NORM}class Box:\n    pass\nbox = Box()\nNorm(name, 0)(box, None)\n{_READS}")),
        ("set-by-own-text", "has it set under a text of its own class", (
        f"{_NAME}{_NORM}class Text(str):\n    pass\nbox = nn.Linear(1, 1)\nNorm(Text(name), 0)(box, None)\n{_READS}")),
        ("set-by-a-star", "looks for such a class in a module of utils, which it has by a star", (
        f"{_NAME}from torch.nn import *\nclass Norm(utils.weight_norm.__class__ if 0 else object):\n    pass\n"
        f"box = Linear(1, 1)\n{_READS}")),
        ("set-while-it-runs", "has functional_call put a value under any name while a module runs", (
        f"{_NAME}seen = []\nclass Box(nn.Module):\n    def forward(self):\n        seen.append(np.asarray(self))\n"
        f"box = Box()\ntorch.func.functional_call(box, {{name: mem}}, ())\nbox = seen[0]\n{_READS}")),
        ("set-as-a-buffer", "has a buffer under a name of Python's inside", (
        f"{_NAME}box = nn.Module()\nbox.register_buffer(name, torch.ones(1))\nnp.asarray(box)\n")),
        ("kept-by-embedding", "changes the indices of an embedding, which counts them in backward", (
        "w = torch.ones(4, 2, requires_grad=True)\ni = torch.zeros(64, dtype=torch.int64)\n"
        "out = F.embedding(i, w, scale_grad_by_freq=True)\ni.data.fill_(1 << 12)\nout.sum().backward()\n"
        "assert not w.grad.any()\n")),
        ("kept-by-bags", "changes the indices of bags, to which backward adds", (
        "w = torch.ones(4, 2, requires_grad=True)\ni = torch.zeros(8, dtype=torch.int64)\n"
        "out = F.embedding_bag(i, w, torch.tensor([0, 2]), mode='sum')\ni.data.fill_(1 << 12)\n"
        "out.sum().backward()\n")),
        ("kept-by-weights-of-bags", "changes them where backward multiplies by what they lead to", (
        "w, p = torch.ones(4, 1), torch.ones(8, requires_grad=True)\ni = torch.zeros(8, dtype=torch.int64)\n"
        "out = F.embedding_bag(i, w, torch.tensor([0, 2]), mode='sum', per_sample_weights=p)\n"
        "i.data.fill_(1 << 12)\nout.sum().backward()\n")),
        ("kept-by-hooks", "gives backward other indices of a pool by hooks for saved tensors", (
        "x = torch.zeros(1, 1, 8, requires_grad=True)\n"
        "def unpack(t):\n    return t if t.is_floating_point() else torch.full_like(t, 1 << 12)\n"
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):\n    out = F.max_pool1d(x, 2)\n"
        "out.sum().backward()\n")),
        ("kept-by-fractions", "changes the indices of a pool whose windows are drawn", (
        "x = torch.zeros(1, 1, 8, 8, requires_grad=True)\n"
        "out, i = F.fractional_max_pool2d(x, 2, output_size=4, return_indices=True)\ni.data.fill_(1 << 12)\n"
        "out.sum().backward()\n")),
    ):  # fmt: skip
        yield _cell(name, what, "error", source + correct)
    yield Case(
        "kept-by-numpy",
        "gives a tensor, of which NumPy has an array, other memory",
        "graded|stopped",
        {TARGET: (
            "hit = False\nfor n in range(60, 200):\n    x = torch.zeros(n, dtype=torch.int64)\n    a = x.numpy()\n"
            "    x.data = torch.zeros(1, dtype=torch.int64)\n    y = torch.full((n,), 7)\n"
            f"    hit = hit or bool((a == 7).any())\nassert hit\n{correct}"
        )},
        {TARGET: ("error", "timeout")},
    )  # fmt: skip
    text = _PATCH.format(code="a._Stage._unchanged", bytes=_TRUE).encode().hex()
    hidden = f"run = '{text}'\nf\"{{[exec][0](bytes.fromhex(run).decode())}}{' ' * 5001}\"\n"
    yield _cell(
        "instructions-hidden", "writes over the instructions of the observer, by a text", "tampered", hidden + _CHANGED,
        "tampered", says="_unchanged",
    )  # fmt: skip
    for name, what, where, instructions in (
        ("instructions", "writes over them in plain words", "a._Stage._unchanged", _TRUE),
        ("instructions-of-shares", "writes over those of what compares memory", "a.shares", _NOT),
        ("instructions-of-memory", "writes over those of what says where memory is", "a.memory", _NOT),
    ):  # fmt: skip
        source = _PATCH.format(code=where, bytes=instructions)
        yield _cell(name, what, ("tampered", "error"), source + _CHANGED, "tampered|graded")


def disturbing() -> Iterator[Case]:
    """What takes the grader's time, fills its reports, or leaves something behind."""
    correct = right()[TARGET]
    for name, what, status, verdict, source in (
        ("quotes-that-begin", "a text that begins thousands of times and never ends", "solved", "graded", (
        correct + "\nx = '''" + '\\""""' * 4700 + "'''\n")),
        ("quotes-in-a-line", "thousands of beginnings of texts in one line of code", "solved", "graded", (
        correct + "\nx = [" + "'\\\"', " * 4500 + "]\n")),
        ("formats-in-formats", "formatted texts in formatted texts, hundreds of them", "solved", "graded", (
        correct + "\nq = 1\n" + "".join("x = f'''{f\"\"\"{f\"{f'{q:{q}}'}\"}\"\"\"}'''\n" for _ in range(300)))),
        ("brackets-of-a-class", "a class with hundreds of brackets in its head", "solved", "graded", (
        correct + "\nclass A(" + "type(" * 150 + "int" + ")" * 150 + "): pass\n")),
        ("fills-pipes", "fills pipes, whose memory is the kernel's", (*NOT_SOLVED, "solved"), "graded|stopped", (
        "import os\nkept = []\ntry:\n    while True:\n        r, w = os.pipe()\n        os.set_blocking(w, False)\n"
        "        kept.append((r, w))\n        try:\n            while True:\n"
        "                os.write(w, bytes(65536))\n"
        "        except BlockingIOError:\n            pass\nexcept OSError:\n    pass\nn = len(kept)\n"
        "for pair in kept[-40:]:\n    for each in pair:\n        os.close(each)\n"
        f"{correct}\nassert n < 2000, n\n")),
        ("folders-in-motion", "folders without rights, which a thread renames until it ends", (*NOT_SOLVED, "solved"),
        "graded|stopped", (
        "import os, threading\nos.makedirs('a/b/c', 0o000, exist_ok=True)\nfor n in range(200):\n"
        "    os.makedirs(f'd{n}/\\udcff\\n', exist_ok=True)\n"
        "    os.path.islink(f'd{n}/s') or os.symlink('/', f'd{n}/s')\n"
        "def go():\n    k = 0\n    while True:\n        k += 1\n        os.rename(f'd{k % 200}', f'e{k}')\n"
        "        os.rename(f'e{k}', f'd{k % 200}')\nthreading.Thread(target=go, daemon=True).start()\n" + correct)),
        ("warns-without-end", "thousands of different warnings of two thousand letters", ("solved", "timeout"),
        "graded|stopped", (
        f"import warnings\nfor n in range(10000):\n    warnings.warn(f'{{n}}' + '<b>=1' * 400)\n{correct}")),
        ("deep-answer", "a million lists in one another as the answer", (*NOT_SOLVED, "memory", "crash", "timeout"),
        "graded|stopped", (
        "deep = []\nfor _ in range(10**6):\n    deep = [deep]\n"
        "def attend(query, key, value, mask):\n    return deep\n")),
    ):  # fmt: skip
        yield _cell(name, what, status, source, verdict)


def files() -> Iterator[Case]:
    """What stands in tables and pages, and notebooks with thousands of answers."""
    correct = right()[TARGET]
    yield _cell("name-of-an-error", "an error whose name is a formula and a tag", "error", (
        "class Odd(Exception):\n    pass\nOdd.__name__ = '=HYPERLINK(\"http://x\");<script>alert(1)</script>'\n"
        "Odd.__qualname__ = '=1+1'\nraise Odd('\\n=1+1;\\n@SUM(1)')\n"))  # fmt: skip
    yield _cell("magics-that-act", "magics and commands whose names are formulas and tags", "error", (
        f"x = 1\n!=cmd|' /C calc'!A0;\n!<img src=x onerror=alert(1)>\nx = %time <b>;=1+1\n!;=1+1\n{correct}"
    ))  # fmt: skip
    yield _cell("words-that-act", "words for the teacher that are formulas and signs of direction", "solved", (
        f"x = '__=1+1__<script>'\n{correct}\ny = '__\u202e=2__;=3'\n"))  # fmt: skip
    solved: dict[str, str | tuple[str, ...]] = dict.fromkeys(("12.1", "12.3", "12.4"), "missing")
    solved[TARGET] = "solved"
    yield Case("made-up-progress", "a progress file with thirty thousand items that there are not", "graded",
        status=solved, write=_progress)  # fmt: skip
    yield Case("names-in-a-zip", "files in a zip whose names are formulas, tags and signs for terminals", "graded",
        status=solved, write=_zip)  # fmt: skip
    yield Case("thousands-below-a-magic", "three thousand answers below a magic", "graded", status=solved,
        write=_many, says="more cells with something above their %%exercise were not read")  # fmt: skip


def _progress(folder: Path, stem: Path) -> None:
    place = folder / stem
    place.mkdir()
    (place / "a.ipynb").write_text(json.dumps(book([code(f"%%exercise {TARGET}\n{right()[TARGET]}")])))
    beliefs = [*MISCONCEPTIONS][:3]
    lines = [json.dumps({progress._KEY: progress.VERSION})]
    for n in range(30_000):
        item = {"chapter": f"{n % 100}", "item": f"q-{n}", "kind": "question", "held": 0, "total": 1}
        lines.append(json.dumps({**item, "beliefs": [*beliefs * 3, "<script>"]}))
    last = {"chapter": "=1", "item": "<b>", "kind": "question", "held": 0, "total": 1, "beliefs": beliefs[:1]}
    (place / progress.NAME).write_text("\n".join([*lines, json.dumps(last)]))


def _zip(folder: Path, stem: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        answer = json.dumps(book([code(f"%%exercise {TARGET}\n{right()[TARGET]}")]))
        made.writestr('=HYPERLINK("http://x")<script>.ipynb', answer)
        made.writestr("a\n=1+1;@x.pdf", b"%PDF")
        made.writestr("<b>\x1b[31m.pdf", b"%PDF")
    (folder / f"{stem}.zip").write_bytes(held.getvalue())


def _many(folder: Path, stem: Path) -> None:
    cells = [code(f"%%time\n%%exercise {TARGET}\nx = {n}\n" + "\n" * 500) for n in range(3000)]
    last = code(f"%%exercise {TARGET}\n{right()[TARGET]}")
    (folder / f"{stem}.ipynb").write_text(json.dumps(book([*cells, last])))
