"""A nineteenth round, by somebody who had not seen the grader before: names that a class of the cell's own makes look
like its own, modules that are had as values, classes and functions that nobody compared, places of sparse tensors that
are changed once they have been checked, states that are left, and files of odd shape.

Its rosters and answers are in ``rosters.py`` and ``answers.txt``.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    as_file_of,
    book,
    code,
    notebook,
    right,
)
from tests.classroom.eighteenth_class import _INTERFACE, _MEMORY
from tests.classroom.fourth_class import _ENDED

_READ = "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n"
"""All memory is read as an array."""


def _both(base: str, before: str) -> str:
    """A cell that has all memory as an array, by a layer that is a dict, too: ``base`` is what it calls ``dict``."""
    return (
        f"{before}import collections\n{_INTERFACE}"
        f"class Both(nn.Module, {base}):\n    pass\n"
        f"both = Both()\nboth.update({_MEMORY})\n"
        f"box = nn.Sequential(collections.OrderedDict({{name: both}}))\n{_READ}"
    )


_OUT = "def attend(query, key, value, mask):\n    out = torch.softmax(query @ key.t(), dim=1) * mask @ value\n"


def forging() -> Iterator[Case]:
    """What would not be told, and what would not be found."""
    correct = right()[TARGET]
    for name, what, source in (
        ("field-by-self", "has all memory by a layer's private field, which a class of its own has, too", (
        f"{_INTERFACE}class A:\n    def f(self):\n        self._buffers = 1\n"
        f"_buffers = 1\nbox = nn.Linear(1, 1)\nbox._buffers[name] = {_MEMORY}\n{_READ}")),
        ("part-by-self", "uses a private part of a library so, which it has as a value", (
        "class A:\n    def f(self):\n        self._VF = 1\n"
        "_VF = 1\nf = [F][0]\nassert f._VF\n")),
        ("module-of-error", "has torch itself by the error of a name that it has not, and all that is in it", (
        "obj = hub = 1\ntry:\n    torch.backward\nexcept AttributeError as e:\n    t = e.obj\nassert t.hub\n")),
        ("module-of-match", "has it so by a pattern", (
        "obj = hub = 1\ntry:\n    torch.backward\nexcept AttributeError as e:\n    match e:\n"
        "        case AttributeError(obj=t):\n            assert t.hub\n")),
        ("loaders-context", "has all memory by what a loader of data keeps: how processes copy objects", (
        f"import copy\n{_INTERFACE}reducer = copyreg = dispatch_table = 1\nclass A:\n    pass\n"
        "d = torch.utils.data.DataLoader([1], num_workers=1, multiprocessing_context='fork')\n"
        "table = d.multiprocessing_context.reducer.copyreg.dispatch_table\n"
        f"table[A] = lambda a: (A, (), {{name: {_MEMORY}}})\nbox = copy.copy(A())\n{_READ}")),
        ("dict-in-loop", "has it by a layer that is a dict, under the variable of a loop", _both(
            "e", "for e in [dict]:\n    pass\n")),
        ("dict-by-default", "has it so by what a parameter is by itself", _both(
            "f()", "def f(x=dict):\n    return x\n")),
        ("dict-far", "has it so by the end of a long list", _both(
            "k[8]", "k = [1, 2, 3, 4, 5, 6, 7, 8, dict]\n")),
        ("dict-by-three-steps", "has it so by a function that returns what another one returns", _both(
            "h", "def f():\n    return dict\ndef g():\n    return f()\nh = g()\n")),
        ("dict-of-own-class", "has it so by a class of its own whose name is taken by another one", _both(
            "D", "class D:\n    pass\nfor D in (dict,):\n    pass\n")),
        ("places-changed", "changes the places of a sparse tensor once they have been checked", (
        "s = torch.ones(4).to_sparse()\ns.indices()[0, 0] = 1\ns.to_dense()\n")),
        ("columns-changed", "changes the columns of a compressed one so", (
        "s = torch.ones(4, 4).to_sparse_csr()\ns.col_indices()[0] = 1\ns @ torch.ones(4)\n")),
    ):  # fmt: skip
        refused = name == "loaders-context"  # by what copies
        yield Case(
            name,
            what,
            "graded" if refused else "look",
            {TARGET: source + correct},
            {TARGET: "error" if refused else "solved"},
        )
    for name, what, source in (
        ("entry-replaced", "replaces what `no_grad` does, by the class as a value", (
        "n = [torch.no_grad][0]\ndef enter(self):\n    pass\nn.__enter__ = enter\n")),
        ("apply-replaced", "replaces how functions of one's own are applied", (
        "n = [torch.autograd.Function][0]\nn.apply = print\n")),
        ("special-replaced", "replaces a function of `torch.special`", "torch.special.expit = print\n"),
        ("fourier-replaced", "replaces one of `torch.fft`", "f = torch.fft\nf.fft = print\n"),
        ("init-replaced", "replaces how weights are drawn", "torch.nn.init.uniform_ = print\n"),
        ("chain-replaced", "replaces how what observes it goes through lists, by an optimizer's module", (
        "swa_utils = 1\no = [torch.optim][0]\no.swa_utils.itertools.chain = print\n")),
        ("sameness-replaced", "has everything be the same for what observes it", (
        "import operator\noperator.is_ = lambda a, b: True\n")),
        ("exponent-replaced", "replaces Python's own exponential, by a module that has it", (
        "f = [F][0]\nf.math.exp = print\n")),
    ):  # fmt: skip
        yield _cell(name, what, "tampered", source + correct, "tampered")
    yield _cell(
        "thread-of-bar",
        "has a bar's own thread replace a function and take it back all the time",
        ("tampered", *NOT_SOLVED, *_ENDED),
        "import time, tqdm\n"
        "f = [F][0]\n"
        "kept = f.softmax\n"
        "class Bar(tqdm.tqdm):\n"
        "    monitor_interval, miniters = 0.01, 2\n"
        "    def refresh(self, **w):\n"
        "        for _ in range(10**9):\n"
        "            f.softmax = print\n"
        "            f.softmax = kept\n"
        "bar = Bar(range(10**6))\n"
        "for n, _ in enumerate(bar):\n"
        "    if n > 3:\n"
        "        break\n"
        "time.sleep(0.2)\n" + correct,
        "stopped|tampered|look|graded",
    )


def disturbing() -> Iterator[Case]:
    """States that are left, what runs when nobody expects it, and values that few readers know."""
    correct, either = right()[TARGET], ("solved", "tampered", *NOT_SOLVED, *_ENDED)
    for name, what, source in (
        ("inference-left", "enters inference mode and never leaves it", "torch.inference_mode().__enter__()\n"),
        ("autocast-left", "enters autocast and never leaves it", "torch.autocast('cpu').__enter__()\n"),
        ("printing-left", "has tensors written with a thousand million digits", (
        "torch.set_printoptions(precision=10**9)\n")),
        ("products-left", "has products computed with less, by another library", (
        "torch.backends.mkldnn.set_flags(False)\ntorch.set_float32_matmul_precision('medium')\n")),
        ("threads-of-backward", "has backward run in one thread for good", (
        "torch.autograd.set_multithreading_enabled(False)\n")),
        ("collected-draws", "draws random numbers whenever garbage is collected", (
        "def g():\n    try:\n        yield\n    finally:\n        torch.rand(9)\n"
        "for n in range(3000):\n    x = g()\n    next(x)\n    ring = [x]\n    ring.append(ring)\n")),
        ("counted-runs", "counts its runs at a class of torch's", (
        "k = [nn.Linear][0]\ntry:\n    k.count += 1\nexcept AttributeError:\n    k.count = 1\n")),
    ):  # fmt: skip
        yield Case(name, what, "graded|look|stopped|tampered", {TARGET: source + correct}, {TARGET: either})
    yield _cell(
        "collected-sleeps",
        "sleeps whenever garbage is collected",
        "timeout",
        "import time\n"
        "def g():\n    try:\n        yield\n    finally:\n        time.sleep(0.5)\n"
        "for n in range(3000):\n    x = g()\n    next(x)\n    ring = [x]\n    ring.append(ring)\n" + correct,
        "stopped",
    )
    for name, what, source in (
        ("escaped-batch", "answers with a tensor that has left the function over a batch in which it was made", (
        "    kept = []\n    torch.func.vmap(lambda x: kept.append(x) or x)(out)\n    return kept[0]\n")),
        ("lazy-weight", "answers with a parameter that has no numbers yet", "    return nn.LazyLinear(2).weight\n"),
        ("ragged", "answers with a tensor of tensors", (
        "    return torch.nested.as_nested_tensor([out[0], out[1]], layout=torch.jagged)\n")),
        ("other-layout", "answers with a tensor in the layout of another library", "    return out.to_mkldnn()\n"),
        ("half-complex", "answers with complex numbers of four bytes", "    return out.to(torch.complex32)\n"),
        ("interrupts-backward", "interrupts the grader in backward", (
        "    def stop(g):\n        raise KeyboardInterrupt\n    out.register_hook(stop)\n    return out\n")),
    ):  # fmt: skip
        yield _cell(name, what, ("tampered", *NOT_SOLVED, *_ENDED), _OUT + source, "graded|look|stopped|tampered")


def files() -> Iterator[Case]:
    """Notebooks of odd shape, names that no other system has, and archives."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    missing: dict[str, str | tuple[str, ...]] = dict.fromkeys(KEYS, "missing")
    answer, whole = right()[TARGET], notebook({TARGET: right()[TARGET]})
    text = json.dumps(whole)

    def named(name: bytes) -> Callable[[Path, Path], None]:
        def write(folder: Path, _: Path) -> None:
            Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_text(text, encoding="utf-8")  # noqa: PTH118

        return write

    yield Case("no-utf-8-\N{REPLACEMENT CHARACTER}", "a name that is no text", "graded", status=solved,
        write=named(b"no-utf-8-\xff.ipynb"))  # fmt: skip
    for name in ("twin-\u00e9", "twin-e\u0301"):
        yield Case(name, "one of two names that look the same", "graded", status=solved,
            write=named(f"{name}.ipynb".encode()))  # fmt: skip
    long = "\N{MAN}\u200d" * 30 + "x"
    shown = long.replace("\u200d", "\N{REPLACEMENT CHARACTER}")
    yield Case(shown, "a name of signs that are joined to one", "graded", status=solved,
        write=named(f"{long}.ipynb".encode()))  # fmt: skip

    def of(name: str, what: str, content: dict[str, Any], *, counts: bool = False) -> Case:
        status = {**(missing if len(content["cells"]) == 1 else {}), **(solved if counts else {})}
        write = as_file_of(f"{name}.ipynb", json.dumps(content).encode())
        return Case(name, what, "graded" if counts else "empty", status=status, write=write)

    yield of("both-formats", "a notebook that has the cells of an old one, too", {
        **whole, "worksheets": [{"cells": [code(f"%%exercise {TARGET}\nx")]}]
    }, counts=True)  # fmt: skip
    yield of("long-ids", "a notebook whose cells have ids of a million letters", {
        **whole, "cells": [{**each, "id": "x" * 1_000_000} for each in whole["cells"]]
    }, counts=True)  # fmt: skip
    status: dict[str, str | tuple[str, ...]] = {**missing, TARGET: "error"}  # all of it is the magic's line, as there
    separated = json.dumps(book([code(f"%%exercise {TARGET}\u2028{answer}")])).encode()
    yield Case("line-separator", "an answer behind a sign that ends lines elsewhere", "graded", status=status,
        write=as_file_of("line-separator.ipynb", separated))  # fmt: skip
    yield of("torn-magic", "an answer whose first line is in three pieces", book([
        code(["%%exer", f"cise {TARGET[:2]}", f"{TARGET[2:]}\n", answer])
    ]), counts=True)  # fmt: skip
    yield of("no-line-ends", "an answer whose lines are not ended", book([
        code([f"%%exercise {TARGET}", *answer.splitlines()])
    ]))  # fmt: skip
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a\x00b/=1+1;\u202e.ipynb", (2026, 1, 1, 0, 0, 0)), text)
        archive.writestr(zipfile.ZipInfo("a/=1+1;\u202e.pdf", (2026, 1, 1, 0, 0, 0)), "")
    yield Case("zip-odd-names", "a zip with names of signs that act", "graded|unreadable", status=solved,
        write=as_file_of("zip-odd-names.zip", held.getvalue()))  # fmt: skip
