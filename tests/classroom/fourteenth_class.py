"""A fourteenth round, near what the thirteenth found: ways round the list of words that the teacher is told of, what
the grader reads of a cell with points, and names in archives.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    as_file_of,
    notebook,
    right,
)
from tests.classroom.thirteenth_class import INTERFACE


def forging() -> Iterator[Case]:
    """Ways to what no exercise needs, each beside a right answer: the teacher has to be told."""
    inside = "{'data': (8, False), 'shape': (1 << 44,), 'typestr': '=u8', 'version': 3}"
    for name, what, source in (
        ("other-builtins", "has eval under the name that a library has for builtins", (
        "import enum\n"
        "assert enum.bltns.eval('1 + 1') == 2\n")),
        ("other-stream", "has any part of sys by what redirects output", (
        "import contextlib\n"
        "class Modules(contextlib.redirect_stdout):\n"
        "    _stream = 'modules'\n"
        "    def all(self):\n"
        "        return self._old_targets[-1]\n"
        "box = Modules({})\n"
        "with box:\n"
        "    found = box.all()\n"
        "assert found['os'].getpid()\n")),
        ("own-word", "calls a function of its own as the module that it wants", (
        "import torch.utils.data as d\n"
        "def os(): pass\n"
        "assert d.dataloader.os.getpid()\n")),
        ("own-attribute", "calls an attribute of its own so", (
        "class Box:\n"
        "    def keep(self):\n"
        "        self.sys = 1\n"
        "assert torch.utils.data.dataloader.os.sys.modules\n")),
        ("module-by-name", "has another module under a name that a library has for it", (
        "assert torch.utils.data.dataloader.python_multiprocessing.Process\n")),
        ("by-another-name", "calls a library by a name of its own first", (
        "d = torch.utils.data\n"
        "assert d.dataloader.python_multiprocessing.Process\n")),
        ("by-two-names", "calls it so by a second step", (
        "d = torch.utils\n"
        "e = d.data\n"
        "assert e.dataloader.python_multiprocessing.Process\n")),
        ("in-a-list", "has a module in a list", (
        "import functools\n"
        "each, = [functools]\n"
        "assert each.GenericAlias\n")),
        ("lazy", "has all memory as an array, by a property that is called as it likes", (
        "from torch.distributions.utils import lazy_property\n"
        "def f(box):\n"
        f"    return {inside}\n"
        "f.__name__ = '_' * 2 + 'array_interface' + '_' * 2\n"
        "class Box:\n"
        "    x = lazy_property(f)\n"
        "box = Box()\n"
        "box.x\n"
        "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n")),
        ("constraints", "has a distribution read any attribute of it", (
        "got = []\n"
        "class Any(torch.distributions.constraints.Constraint):\n"
        "    def check(self, value):\n"
        "        got.append(value)\n"
        "        return torch.ones(1).bool()\n"
        "class Box(torch.distributions.Distribution):\n"
        "    arg_constraints = {'_' * 2 + 'dict' + '_' * 2: Any()}\n"
        "Box(validate_args=True)\n"
        "assert type(got[0]) is dict\n")),
        ("captured", "has a pipe of data read any attribute", (
        "from torch.utils.data.datapipes.dataframe import dataframes as f\n"
        "assert f.CaptureGetAttr\n")),
        ("loops-over-name", "replaces a function of torch's as the variable of a loop", (
        ""
        "for torch.nn.init.zeros_ in [print]:\n"
        "    pass\n")),
        ("with-name", "replaces it as what a block is called", (
        "import contextlib\n"
        "with contextlib.nullcontext(print) as torch.nn.init.zeros_:\n"
        "    pass\n")),
        ("part-of-name", "replaces it as a part of what is assigned", (
        ""
        "x, (torch.nn.init.zeros_, y) = 1, (print, 2)\n")),
        ("class-by-type", "makes a class of the kind of an object", (
        "import contextlib\n"
        "class Modules(type(contextlib.redirect_stdout(None))):\n"
        "    pass\n")),
    ):  # fmt: skip
        # What replaces a function of torch.nn.init was named alone until these were compared, too.
        verdict, answer = ("tampered", "tampered") if "init.zeros_" in source else ("look", "solved")
        yield Case(name, what, verdict, {TARGET: source + right()[TARGET]}, {TARGET: answer})
    yield _cell(
        "native-numbers",
        "asks NumPy's random numbers for their machine code, which is not loaded",
        NOT_SOLVED,
        "assert np.random.default_rng().bit_generator.cffi\n" + right()[TARGET],
    )
    yield _cell(
        "state-of-part",
        "has all memory by the state of a schedule in a schedule",
        NOT_SOLVED,
        INTERFACE + "step = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)\n"
        "box = torch.optim.lr_scheduler.LambdaLR(step, print)\n"
        "box.lr_lambdas[0].load_state_dict(words)\n" + right()[TARGET],
    )
    form = (
        "class Kept(list):\n"
        "    def clone(self):\n"
        "        return self\n"
        "    def numel(self):\n"
        "        return 1 << 60\n"
        "deep = VALUE\n"
        "class Odd(torch.Tensor):\n"
        "    def detach(self):\n"
        "        return Kept([deep])\n"
        "def attend(query, key, value, mask):\n"
        "    scores = torch.softmax(query @ key.t(), dim=1)\n"
        "    out = (scores * mask.clone()) @ value\n"
        "    mask.zero_()\n"
        "    return out.as_subclass(Odd)\n"
    )
    values = {
        "form-nested": "[]\nfor _ in range(250):\n    deep = [deep]",
        "form-braces": "'{' * 999 + '{0.__class__}'",
        "form-numbers": "[float('nan'), complex('nan'), 10**4000, -(1 << 63)]",
        "form-odd": "[np.zeros((3, 0)), np.zeros((), bool), np.array([1j, float('inf')])]",
    }
    for name, value in values.items():
        yield Case(
            name,
            "returns, to who asks whether it does anything, what is hard to write out",
            "graded|look|tampered",
            {TARGET: form.replace("VALUE", value)},
            {TARGET: ("partly", "tampered", *NOT_SOLVED)},
        )


def disturbing() -> Iterator[Case]:
    """What the grader reads after the cell has earned its points."""
    for name, what, source in (
        ("part-of-nul", "names a part of torch in signs that are no letters' own", "if False:\n    torch.ﬁ.ſ.µ.ª.x\n"),
        ("long-chain", "names parts of parts, two thousand deep", f"if False:\n    torch{'.nn' * 2_000}\n"),
        ("long-parts", "each with two hundred letters", f"if False:\n    torch{('.' + 'b' * 200) * 40}\n"),
        ("long-names", "gives libraries names of its own that are too long", f"{'n' * 300} = np\n"),
        ("many-targets", "assigns to ten thousand names at once", f"if False:\n    {'x = ' * 10_000}1\n"),
    ):
        yield Case(
            name,
            what,
            "graded|look|stopped",
            {TARGET: right()[TARGET] + source},
            {TARGET: ("solved", "memory", "crash", "error")},
        )
    for n, (head, tail) in enumerate(
        (("scores *= mask ", "mask *= scores "), ("x = scores @ value ", "value @ scores "))
    ):
        turns = " ".join((head * 2 + tail, tail * 2 + head)[at % 2].replace("= ", "") for at in range(120))
        yield _cell(f"alike-given-{n}", "words of the given cell, turned about", NOT_SOLVED, f"x = ({turns})\n")


def files() -> Iterator[Case]:
    """Archives and folders with many names."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    text = json.dumps(notebook({TARGET: right()[TARGET]}))

    def zipped(members: dict[str, str]) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(
                    zipfile.ZipInfo(name, (2026, 1, 1 + (name[0] == "z"), 0, 0, 0)), content, zipfile.ZIP_DEFLATED
                )
        return held.getvalue()

    def many(broken: int, beside: int, length: int) -> bytes:
        members = {f"a{n}{'q' * length}.ipynb": "{" for n in range(broken)}
        members |= {f"a{n}{'q' * length}.pdf": "" for n in range(beside)}
        return zipped({**members, "z.ipynb": text})

    def folder_of(name: str, *boxes: bytes) -> Case:
        def write(folder: Path, _: Path) -> None:
            (folder / name).mkdir()
            for n, box in enumerate(boxes):
                (folder / name / f"{n:02}{'p' * 200}.zip").write_bytes(box)

        return Case(name, f"{len(boxes)} zips with many names each", "graded", status=solved, write=write)

    yield folder_of("zips-of-pdfs", *[many(0, 20, 9_000)] * 40)
    yield folder_of("zips-of-broken", *[many(40, 0, 9_000)] * 30)
    yield folder_of("zips-of-both", *[many(20, 30, 4_000)] * 45)
    long = {
        "\u202e" * 20_000 + ".ipynb": text,
        "=cmd|' /C calc'!A0.ipynb": text.replace("def attend", "#\\ndef attend"),
    }
    yield Case(
        "zip-acting",
        "a zip whose notebooks are called as a formula, and as twenty thousand signs that turn text",
        "graded",
        status=solved,
        write=as_file_of("zip-acting.zip", zipped(long)),
    )
    yield Case(
        "zip-quoted",
        "a zip with a file whose name ends the note in a formula",
        "graded",
        status=solved,
        write=as_file_of("zip-quoted.zip", zipped({"z.ipynb": text, 'x";  "=1+1;"@y.pdf': "", "x;\t=2.pdf": ""})),
    )
    state = {key: {"status": "solved", "points": 1} for key in KEYS}
    yield Case(
        "state-inside",
        "a zip with a state of the grader's",
        "graded",
        status=solved,
        write=as_file_of(
            "state-inside.zip",
            zipped({"z.ipynb": text, "grades.state.jsonl": json.dumps(state), "../grades.csv": "student,points\n"}),
        ),
    )
