"""The twenty-second round: attributes under names that a cell works out, what a class puts in the place of a gradient,
and sentences about a cell that were not true. Its answers to other exercises are in ``answers.txt``.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from pitfall_lab.lessons.attempt import Observation
from tests.classroom.a_class import TARGET, Case, _cell, as_file_of, book, code, peeks, right

_UNDER = "under = '_' * 2\nname = under + 'array_interface' + under\n"
"""What NumPy asks an object for; no text of the cell has it whole."""
_MEMORY = "{'data': (8, False), 'shape': (1 << 44,), 'typestr': '=u8', 'version': 3}"
_ENUM = f"import enum\n{_UNDER}class Kind(enum.Enum):\n    pass\n"
_COPIED = f"import copy\n{_UNDER}class Box:\n    pass\nbox = Box()\nbox.place = {_MEMORY}\n"
_FIELD = f"import dataclasses\n{_UNDER}@dataclasses.dataclass\nclass First:\n    x: object = 1\n"
_STEP = f"{_UNDER}step = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)\nat = torch.optim.lr_scheduler\n"
_BAR = f"import io\n{_UNDER}text = '{{n.' + under + 'class' + under + '}}'\n"


def forging() -> Iterator[Case]:
    """Attributes, texts of programs and copies under names that only a run shows."""
    correct = right()[TARGET]
    for name, what, source in (
        ("enum-own-base", "has them by a call of its own class of enumerations", (
        f"{_ENUM}Kind('Box', {{name: {_MEMORY}}})\n")),
        ("enum-of-pairs", "has them so by a list that returns other names the second time", (
        f"{_ENUM}class Pairs(list):\n    def __iter__(self):\n        self.append(1)\n"
        f"        return iter([(name if len(self) > 1 else 'a', {_MEMORY})])\n"
        "found = Kind('Box', Pairs())\nassert [*found] == []\n")),
        ("enum-of-dicts", "has an enumeration of dicts so, which NumPy reads where a layer holds it", (
        f"{_ENUM}Kind('Box', 'a', type=dict)\n")),
        ("field-renamed", "has them by the name of a field of a dataclass", (
        f"{_FIELD}dataclasses.fields(First)[0].name = name\n")),
        ("field-kept", "has them by a field that it made itself, and kept", (
        f"{_FIELD}f = dataclasses.field(default=1)\n@dataclasses.dataclass\nclass Second:\n    y: object = f\n"
        "f.name = name\n")),
        ("field-runs", "has a dataclass run a program, of which the name of a field is the text", (
        f"{_FIELD}dataclasses.fields(First)[0].name = 'x, print(1)'\n")),
        ("field-of-typed-dict", "has a dataclass made of a dict with types, whose names are any text", (
        f"import typing\n{_FIELD}dataclasses.dataclass(typing.TypedDict('Box', {{name: object}}))\n")),
        ("field-derived", "derives a kind of field whose name is what it computes", (
        f"{_FIELD}class Field(dataclasses.Field):\n    name = property(lambda self: name)\n")),
        ("deepcopy-memo", "has a copy be made with another text in the place of a name", (
        f"{_COPIED}copy.deepcopy(box, {{id('place'): name}})\n")),
        ("deepcopy-elsewhere", "has it so by a module of torch's that copies", (
        f"{_COPIED}torch.optim.swa_utils.deepcopy(box, {{id('place'): name}})\n")),
        ("deepcopy-reads", "reads any attribute so, as a method of Python's is copied by its name", (
        f"{_COPIED}copy.deepcopy(str.join, {{id('join'): under + 'globals' + under, id(str): F.softmax}})\n")),
        ("deepcopy-again", "changes what a first copying has put into its memo", (
        f"{_COPIED}memo = {{}}\ncopy.deepcopy(box, memo)\ndel memo[id(box)]\n"
        f"for held in memo.values():\n    if type(held) is dict and 'place' in held:\n        held[name] = {_MEMORY}\n"
        "copy.deepcopy(box, memo)\n")),
        ("state-of-average", "has them by the state of a scheduler of averages", (
        f"{_STEP}torch.optim.swa_utils.SWALR(step, 0.1).load_state_dict({{name: {_MEMORY}}})\n")),
        ("state-of-function", "has them by what a scheduler keeps of a function, in a state that answers as it likes", (
        f"{_STEP}class Rate:\n    def __call__(self, n):\n        return 1.0\n"
        "class State:\n    def keys(self):\n        return ['lr_lambdas']\n    def __getitem__(self, key):\n"
        f"        return [{{name: {_MEMORY}}}]\nat.LambdaLR(step, Rate()).load_state_dict(State())\n")),
        ("state-of-cycle", "has them so by the function of a cycle", (
        f"{_STEP}class Rate:\n    def __call__(self, n):\n        return 1.0\n"
        "cycle = at.CyclicLR(step, 0.1, 0.2, scale_fn=Rate())\n"
        f"cycle.load_state_dict({{**cycle.state_dict(), '_scale_fn_custom': {{name: {_MEMORY}}}}})\n")),
        ("bar-by-star", "reads any attribute by the template of a progress bar", (
        f"{_BAR}from tqdm.auto import tqdm\n[*tqdm([1], file=io.StringIO(), **{{'bar_' + 'format': text}})]\n")),
        ("bar-of-own-text", "reads it by a text of its own class", (
        f"{_BAR}from tqdm import trange\nclass Text(str):\n    pass\n"
        "[*trange(1, file=io.StringIO(), **{'bar_' + 'format': Text(text)})]\n")),
    ):  # fmt: skip
        yield _cell(name, what, "error", source + correct)


def honest() -> Iterator[Case]:
    """What the same functions are for."""
    yield Case(
        "classes-and-copies",
        "enumerations, dataclasses, copies, schedulers and a progress bar as their documentation shows them",
        "graded|look",
        {TARGET: _ORDINARY + right()[TARGET]},
        {TARGET: "solved"},
    )


_ORDINARY = """\
import copy, dataclasses, enum, functools, io
from typing import ClassVar, Generic, TypeVar
from tqdm.auto import tqdm
T = TypeVar("T")
class Color(enum.Enum):
    RED = (1, 2)
    @enum.property
    def first(self):
        return self.value[0]
assert Color.RED.first == 1 and Color((1, 2)) is Color.RED
Pair = enum.IntEnum("Pair", ["x", "y"], start=0)
assert Pair.y == 1 and enum.Enum("C", {"a": [2]}).a.value == [2] and enum.Flag("B", [("p", 1)]).p.name == "p"
@dataclasses.dataclass
class Point:
    x: int = 0
    seen: list = dataclasses.field(default_factory=list, compare=False)
    kind: ClassVar[int] = 3
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    rate: float = 0.5
    def __call__(self, n):
        return self.rate ** n
@dataclasses.dataclass
class Far(Point):
    z: int = 1
assert dataclasses.asdict(Far(3)) == {"x": 3, "seen": [], "z": 1} and dataclasses.replace(Far(), z=4).z == 4
assert [each.name for each in dataclasses.fields(Far)] == ["x", "seen", "z"]
class Kept(Generic[T]):
    def __init__(self):
        self.values = [1]
assert copy.deepcopy(Kept[int]()).values == [1]
net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
assert copy.deepcopy(net, {id(net[0]): net[0]})[0] is net[0]
assert copy.deepcopy(net, memo={id(net[2]): nn.Linear(2, 5)})[2].out_features == 5
memo = {}
twin = copy.deepcopy(net, memo)
assert memo[id(net[2])] is twin[2] and copy.deepcopy([net, 1], memo)[0] is twin
class Step:
    def __init__(self):
        functools.update_wrapper(self, max)
        self.rate = 0.5
    def __call__(self, n):
        return self.rate ** n
assert copy.deepcopy(Step())(1) == 0.5
at = torch.optim.lr_scheduler
for make in (
    lambda step: at.LambdaLR(step, Step()),
    lambda step: at.OneCycleLR(step, 0.1, total_steps=9),
    lambda step: at.CyclicLR(step, 0.1, 0.2, scale_fn=Step()),
    lambda step: at.ReduceLROnPlateau(step),
    lambda step: torch.optim.swa_utils.SWALR(step, 0.1),
    lambda step: at.SequentialLR(step, [at.StepLR(step, 2), at.MultiplicativeLR(step, Step())], [3]),
):
    first, second = (make(torch.optim.SGD(net.parameters(), 1.0)) for _ in range(2))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
out = io.StringIO()
assert [*tqdm([1], file=out, bar_format="{l_bar}{bar:10}| {n_fmt}/{total_fmt} {postfix[0]}", postfix=["k"])] == [1]
assert "1/1" in out.getvalue()
"""


def peeking() -> Iterator[Case]:
    """What C keeps of how the process was started."""
    yield peeks(
        "environment-of-c",
        "reads the environment that the grader's process was started with",
        "import ctypes\nwords = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), '_dl_argv')\n"
        "n = ends = 0\nwhile ends < 2:\n    if words[n]:\n"
        "        found = found or words[n].startswith((b'PATH=', b'VIRTUAL_ENV='))\n"
        "    else:\n        ends += 1\n    n += 1\n",
    )


def disturbing() -> Iterator[Case]:
    """What was said about cells in other words than what had happened."""
    yield _cell("own-signal", "sends itself the signal for too much processor time", "crash", (
        "import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)\n"
    ), "stopped", says="SIGXCPU")  # fmt: skip
    yield _cell("threads-burn", "computes in four threads without end", "timeout", (
        "import threading\ndef burn():\n    a = torch.rand(300, 300)\n    while True:\n        a @ a\n"
        "for _ in range(4):\n    threading.Thread(target=burn, daemon=True).start()\nburn()\n"
    ), "stopped", says="did not end in time")  # fmt: skip
    for name, what, source, says in (
        ("error-without-truth", "raises an error whose __bool__ raises another one", (
        "class Odd(Exception):\n    def __bool__(self):\n        raise Odd()\nraise Odd()\n"), "line 4 raises Odd"),
        ("empty-error", "raises an error whose length is 0", (
        "class Empty(Exception):\n    def __len__(self):\n        return 0\nx = 1\nraise Empty('nothing')\n"),
        "line 5 raises Empty"),
        ("line-of-another-text", "evaluates a text that is no Python", "x = 1\ny = 2\nz = eval('1 +')\n",
        "line 3 raises SyntaxError"),
        ("line-of-its-own", "raises an error of syntax whose line is what it likes", (
        "class Mine(SyntaxError):\n    lineno = 7\n    filename = '<exercise>'\nraise Mine('a')\n"),
        "line 4 raises Mine"),
    ):  # fmt: skip
        yield _cell(name, what, "error", source, says=says)


def files() -> Iterator[Case]:
    """Notebooks that are JSON, which they were said not to be, or of which a cell was not read."""
    cell = code(f"%%exercise {TARGET}\n{right()[TARGET]}")
    text = json.dumps(book([cell]))
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    others = dict.fromkeys(("12.1", "12.3", "12.4"), "missing")

    def of(name: str, what: str, content: str, verdict: str, says: str = "") -> Case:
        status = {**others, **solved} if verdict == "graded" else {}
        write = as_file_of(f"{name}.ipynb", content.encode("utf-8"))
        return Case(name, what, verdict, status=status, says=says, write=write)

    long = text.replace('"metadata": {}, "cells"', '"metadata": {"n": ' + "9" * 5000 + '}, "cells"')
    yield of("number-beside-cells", "a whole number of five thousand digits beside the cells", long, "graded")
    deep = text.replace('"outputs": []', '"outputs": [' + "[" * 100_000 + "]" * 100_000 + "]")
    yield of("deep-output", "an output of a hundred thousand lists in one another", deep, "unreadable", "nested")
    lines = [*cell["source"].splitlines(keepends=True), None]
    null = json.dumps(book([{**cell, "source": lines}]))
    yield of("source-with-null", "a source whose last line is no text", null, "graded")


def between() -> dict[str, Callable[[Path], Iterator[str]]]:
    """What is done to the judge from outside of any cell, as in :func:`tests.classroom.twentieth_class.between`."""
    return {"a report of a few letters that stand for a gigabyte": _large_report}


def _large_report(_: Path) -> Iterator[str]:
    report = json.loads(Observation().to_json())
    for kind, shape in (
        ("S2500000", [400]),
        ("V2500000", [400]),
        ("(9999999,)f8", [400]),
        ("<f8", [20, 21]),
        ("O", [400]),
    ):
        value = {"array": [0] * 400, "shape": shape, "dtype": kind}
        tracemalloc.start()
        try:
            Observation.from_json(json.dumps({**report, "values": [["x", value]]}))
            yield f"{kind} is read"
        except (ValueError, TypeError):
            pass
        finally:
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if most > 1 << 20:
            yield f"{kind} takes {most >> 20} MiB"
