"""Which words of an answer the teacher is told of."""

from __future__ import annotations

import doctest
import json
import time

import pytest
import torch  # noqa: F401 - the grader has it when it asks: what torch calls its modules is read there

from pitfall_lab.classroom import unneeded as module
from pitfall_lab.classroom.judge import CellOutcome, JudgedProperty
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.unneeded import MOST, unneeded
from pitfall_lab.lessons.exercises import exercises

HONEST = '''\
from torch.utils.data import DataLoader, TensorDataset
import torch.nn.functional as F, math


class Net(nn.Module):
    """Keeps the mean from x; opens nothing, and sys is not in it.

    >>> import torch
    """

    __slots__ = ()

    def __init__(self):
        super().__init__()
        self._seen = []

    def _note(self, x):
        self._seen.append(x.detach())  # not through __code__

    def forward(self, x):
        self._note(x)
        return getattr(x, "data") if x._version else x.grad_fn


net = Net()
print(f"{net._seen} {type(net).__name__}")
net.eval()
torch.backends.cudnn.deterministic = True
if __name__ == "__main__":
    w = torch.as_strided(torch.ones(4), (2,), (1,))
print("{:.2f} of {0.shape}".format(w), type(w), w.type(torch.float64, True), torch.__version__, type(net)(), np.testing.assert_allclose)
'''  # noqa: E501


def test_no_answer_that_comes_with_the_course_is_named_and_no_ordinary_one() -> None:
    for exercise in exercises().values():
        for source in (exercise.given, *exercise.right, *exercise.wrong):
            assert unneeded(source, (exercise.given, *exercise.right)) == (), exercise.key
    assert unneeded(HONEST) == ()
    assert unneeded(f"%time 1\n!pip list\n{HONEST}torch.cat?\n") == ()


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("import sys", "sys"),
        ("x = 1; import torch._C", "torch._C"),
        ("from torch import overrides as o", "torch.overrides"),
        ("from . import x", "..x"),
        ("torch.sys.modules", "sys"),
        ("f.__globals__", "__globals__"),
        ("a._Stage", "_Stage"),
        ("class A:\n    def __eq__(self, other):\n        return True", "__eq__"),
        ("class A(torch.Tensor):\n    pass", "class … (Tensor)"),
        ("class A[T, *U](nn.Module, dict):\n    pass", "class … (dict)"),
        ("class A[T: (int, str)](nn.Module, dict):\n    pass", "class … (dict)"),
        ("torch.Tensor.detach = f", "torch.Tensor.detach"),
        ("getattr(f, '__co' + 'de__')", "getattr"),
        ("list(map(getattr, [f], ['x']))", "getattr"),
        ("operator.attrgetter(name)(f)", "attrgetter"),
        ("x = '{0.__code__}'", "'__code__'"),
        ("torch.load(b, weights_only=False)", "weights_only"),
        ("exec(text)", "exec"),
        ("x = 1\n" * 20_000, "…"),
        ("%time 1\nimport os\n!ls", "os"),
        ("def f(:\n    import gc", "gc"),
        ("from operator import attrgetter as a", "operator.attrgetter"),
        ("functools.update_wrapper(box, f, (), (word,))", "update_wrapper"),
        ("@functools.wraps(f, assigned=words)\ndef g(): pass", "wraps"),
        ("type('Box', (), {word: 1})", "type"),
        ("('{0._' + '_globals_' + '_}').format(f)", "format"),
        ("x = f'{attrgetter(name)(f)}'", "attrgetter"),
        ("𝐞𝐯𝐚𝐥(text)", "eval"),
        ("torch.load(b, weights＿only=False)", "weights_only"),
        (">>> import ctypes", "ctypes"),
        ('!echo """\nimport ctypes', "ctypes"),
        ("if x: import ctypes", "ctypes"),
        ("torch.library.Library('aten', 'IMPL')", "torch.library"),
        ("import torch as t\nt.fx.Graph()", "torch.fx"),
        ("from torch.utils import benchmark", "torch.utils.benchmark"),
        ("import dataclasses\ndataclasses.types.FunctionType", "dataclasses.types"),
        ("t = torch\nt.jit", "torch"),
        ("np.testing.runstring(text, names)", "runstring"),
        ("from numpy.testing import *", "numpy.testing.*"),
        ("@functools.singledispatch\ndef f(x): pass", "singledispatch"),
        ("x = '_' '_code_' + '_'", "'__code__'"),
        ("type(int)('Box', (), {name: 1})", "type"),
        ("class A(metaclass=f): pass", "metaclass"),
        ('x = """', "…"),
        ("box = nn.ParameterDict(words)", "ParameterDict"),
        ("io.FileIO(3, 'w')", "FileIO"),
        ("schedule.load_state_dict(words)", "load_state_dict"),
        ("class A(contextlib.redirect_stdout):\n    _stream = 'modules'", "_stream"),
        ("class A(type(x)): pass", "class … (type)"),
        ("import enum\nenum.bltns.eval(text)", "enum.bltns"),
        ("import torch.utils.data as d\ndef os(): pass\nd.dataloader.os.write(3, b)", "os"),
        ("class A:\n    def f(self):\n        self.sys = 1\ntorch.utils.data.dataloader.sys", "sys"),
        ("d = torch.utils.data\nd.dataloader.queue", "torch.utils.data.dataloader.queue"),
        ("import copy\nc, = [copy]", "copy"),
        ("o = nn.Linear\no.forward = f", "o.forward"),
        ("for torch.optim.adam.adam in [f]: pass", "torch.optim.adam.adam"),
        ("x = torch.exp = f", "torch.exp"),
        (f"if False:\n    torch.{'a' * 300}", f"{'a' * 40}…"),
        (f"if False:\n    from torch import {'a' * 300}", f"torch.{'a' * 34}…"),
        ("hub = 1\ntorch.hub", "hub"),
        ("import torch.utils.data as d\nqueue = 1\nd.queue", "queue"),
        ("import warnings\nwarnings.showwarning", "showwarning"),
        ("np.load(b, None, True)", "load"),
        ("from numpy import load as read", "numpy.load"),
        ("x.tensor_from_memory(3)", "tensor_from_memory"),
        ("(x, torch.exp), y = (1, f), 2", "torch.exp"),
        ("with f() as torch.exp: pass", "torch.exp"),
        ("del torch.exp", "torch.exp"),
        ("torch.exp, x = f, 1", "torch.exp"),
        ("any(0 for torch.exp in [f])", "torch.exp"),
        ("t = [*{torch: 0}][0]", "torch"),
        ("f = lambda t=torch: t", "torch"),
        ("x, = [nn]", "nn"),
        ("for g in (torch.autograd.graph,): pass", "torch.autograd.graph"),
        ("type(*('Box', (), words))", "type"),
        ("kind = type(x)\nkind('Box', (), words)", "kind"),
        ("kind = type(x)\nkind.forward = f", "kind"),
        ("type(nn.Linear(1, 1)).forward = f", "type"),
        ("f(type(abc.ABC))", "type"),
        ("class A(**{name: f}): pass", "class … (**)"),
        ("import enum\nenum.Enum(**words)", "Enum"),
        ("getattr(f(x, 'y'), name)", "getattr"),
        ("p.attrname = name", "attrname"),
        ("class A:\n    def f(self):\n        self._buffers = 1\n_buffers = 1\nnet._buffers[name] = x", "_buffers"),
        ("class A:\n    def _VF(self): pass\n_VF = 1\nf._VF", "_VF"),
        ("obj = 1\ne.obj", "obj"),
        ("x = [1, 2]\nx[0:1], torch.fft.fft = [], print", "torch.fft.fft"),
        ("if True: torch.fft.fft = print", "torch.fft.fft"),
        ("while torch.fft.fft is not print: torch.fft.fft = print", "torch.fft.fft"),
        ("class A: torch.fft.fft = print", "torch.fft.fft"),
        ("d.multiprocessing_context", "multiprocessing_context"),
        ("to_sparse_csr = 1\nx.to_sparse_csr()", "to_sparse_csr"),
        ("for D in (dict,): pass\nclass A(nn.Module, D): pass", "class … (dict)"),
        ("class A(nn.Module, f()): pass", "class … (dict)"),
        ("class A(*b): pass", "class … (dict)"),
        ("class D(e): pass\nclass A(nn.Module, D): pass", "class … (dict)"),
        ("class D: pass\nD = f()\nclass A(nn.Module, D): pass", "class … (dict)"),
        ("class D: pass\ndef f(x: int, D=dict):\n    class A(nn.Module, D): pass", "class … (dict)"),
        ("@lambda c: dict\nclass D: pass\nclass A(nn.Module, D): pass", "class … (dict)"),
        ("import typing as t\nclass A(nn.Module, t.Dict): pass", "class … (dict)"),
        ("import typing as t\nclass A(nn.Module, t.Annotated[dict, 1]): pass", "class … (dict)"),
        # what was not read
        ('x = f"{1:{[exec][0](t)}}"', "exec"),
        ('x = f"{[exec][0](t)}' + " " * 6000 + '"', "exec"),
        ('x = f"{' + "1+" * 400 + 'exec(t)}"', "exec"),
        ("x = f'''{f\"\"\"{f'{exec(t)}'}\"\"\"}'''", "exec"),
        ("x = f'{{{exec(t)}}}'", "exec"),
        ('x = f"""{\n exec(t)\n}"""', "exec"),
        ("import enum as e\nbltns = 1\nx = f'{e.bltns.eval(t)}'", "enum.bltns"),
        ('f"{{0.\\137\\137globals\\137\\137[x]}}".format(f)', "format"),
        ("x = '" + "a" * 6000 + "\\137\\137code\\137\\137'", "'__code__'"),
        ("x = '' " + "'' " * 150 + "'_' '_code_' '_'", "'__code__'"),
        ("import " + "math, " * 300 + "os", "os"),
        ("class A(x[1:2][0], torch.Tensor): pass", "class … (Tensor)"),
        ("class A((lambda: nn.Module)(), torch.Tensor): pass", "class … (Tensor)"),
        ("class A(" + "object," * 150 + "torch.Tensor): pass", "…"),
        ("import enum\nenum.Enum((" + "1," * 150 + "), names)", "Enum"),
        ("importlib = 1\nF.relu" + ".real" * 30 + ".importlib", "importlib"),
        ('importlib = 1\ngetattr({"real": x}["real"], "importlib")', "getattr"),
        ("match x:\n    case [{1: _}, object(importlib=i)]: pass", "importlib"),
        ("match x:\n    case " + "1 | " * 90 + "object(importlib=i): pass", "importlib"),
        ("match x:\n    case object(importlib=i) if (lambda: i)(): pass", "importlib"),
        # what was trusted
        ("bltns = 0\nf().bltns", "bltns"),
        ("x = [F][0]", "F"),
        ("def g(F=F): return F", "F"),
        ("def g(): return F", "F"),
        ("if x: F = 1\ny = [F]", "F"),
        ("y = [F]\nF = 1", "F"),
        ("for F in []: pass\ny = [F]", "F"),
        ("try:\n    F = 1 / 0\nexcept ValueError: pass\ny = [F]", "F"),
        ("class A:\n    F = 1\n    def g(self): return F", "F"),
        ("def g():\n    F = 1\n    return F\ny = [F]", "F"),
        ("y = [F for F in [F]]", "F"),
        ("def g(): return [G][0]\nG = F", "G"),
        ("class A:\n    G = F\nA.G", "F"),
        ("G: object = F", "F"),
        ("x = [nn.functional]", "torch.nn.functional"),
        ("from torch import optim\nx = [optim]", "optim"),
        ("from torch.nn.functional import *", "torch.nn.functional.*"),
        ("from torch.nn import *\nx = [functional]", "functional"),
        ("self = F\ngetattr(self, 'impo' + 'rtlib')", "getattr"),
        ("g = lambda self: getattr(self, 'impo' + 'rtlib')", "getattr"),
        ("class A:\n    def g(self):\n        for self in [x]: getattr(self, 'impo' + 'rtlib')", "getattr"),
        ("class A:\n    def g(a, self): return getattr(self, f'impo{a}')", "getattr"),
    ],
)
def test_what_no_exercise_needs_is_named(cell: str, word: str) -> None:
    assert word in unneeded(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "def f(a: torch.Tensor = None, b=torch.float32) -> torch.Tensor:\n    return torch.exp(a)",
        "y: torch.Tensor = torch.pi\nx = z = torch.pi\na, b = torch.ones(2), torch.pi",
        "x[torch.argmax(y)] = 1\nx[torch.long] = 2\nx.data += torch.pi\nd = {torch.float: 1}",
        "if x == torch.pi: y = 3\nfor k in torch.arange(3): z = k\nwith torch.no_grad() as g: pass",
        "act, m, opt = nn.ReLU, nn.functional, torch.optim\nact = nn.ReLU\nact()\nm = nn.functional\nm.relu(x)",
        "torch.backends.cudnn.benchmark = False\nF.relu(x, inplace=True)\nf(torch.pi, out=x)",
        "import time, random\nt = time.time()\nrandom.seed(0)",
        "F = m * a\nprint(F, type(F), type(F).__name__)\nkind = type(F)\nprint(kind, kind is type(a), {F: 1})",
        "self.W = X\nprint(type(X), type(W1), type(self.W))",
        "getattr(x[0], 'grad')\nprint(type(x).__name__ == 'Tensor', *[type(k) for k in x])\nf(**{'a': 1})",
        "class A:\n    def __init__(self):\n        self.kept = 1\nprint(A().kept, f'{A().kept}', A().x)\nx = 2",
        "class M: pass\ndef f(x: nn.Module, y: M) -> M: pass\nm: nn.Module = f(M)\nclass A(nn.Module, M): pass",
        "import abc\n@dataclass\nclass M: pass\nclass C(M): pass\nclass A(nn.Module, C, abc.ABC): pass",
        "class E(ValueError, KeyError): pass",
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass A(nn.Module, Generic[T]): pass",
        "class A(nn.Module):\n    def __init__(self):\n        self._weights = 1\n        self._mask = self._weights",
        "P = collections.namedtuple('P', 'first second')\nfirst = P(1, 2).first",
        "values, places = torch.max(x, 0)\nprint(torch.linalg.eigh(x).eigenvalues, torch.max(x, 0).indices)",
        "act = getattr(F, 'relu')\nx = act(x)\nfn = F\nfn.relu(x)",
        "def f(F, d):\n    return F * d\nF = 3.0 * 2\nprint(F, f(F, 2))",
        "for t in range(3):\n    F = -k * x\n    v = v + F * t",
        "while True:\n    with y as F:\n        print(F)\n    if x:\n        F = 2\n        print([F])",
        "def g(x):\n    F = torch.fft.fft(x)\n    return F, [F for _ in range(2)], lambda: F",
        "def loss(F, x): return F * x\ndef other(x): return F.relu(x)",
        "match y:\n    case {'a': F}: print(F)\n    case torch.Size([n]): pass",
        "class N(nn.Module):\n    def forward(self, x, kind): return getattr(self, 'layer_' + kind)(F.relu(x))",
        "x = f'{a!r:>{w}} {{b}} {c[\"d\"]} {1 != 2} {(lambda q: q)(1)}'",
        "queue = [1]\nqueue.append(2)\nclass T:\n    token: int = 3\nprint(T().token)",
        "from torch.nn import *\nm = Linear(2, 2)\nfunctional.relu(x)",
    ],
)
def test_what_an_ordinary_program_says_is_not(cell: str) -> None:
    assert unneeded(cell) == ()


@pytest.mark.parametrize(
    "cell",
    [
        "(" * 100_000,
        '"""' + "x" * 99_999,
        "\\\n" * 50_000,
        "1_" * 50_000,
        "\0" * 99,
        "import " * 14_000,
        "class " * 16_000,
        "a = " * 25_000,
        "(" * 200 + "x." * 49_000,
        "torch." * 16_000 + "x = 1",
        "x.y, " * 20_000,
        "f'{" * 6_000,
        "\n".join(["for F in x: [F]"] * 1_200),
        "type(" * 3_900,
        "F," * 9_900,
    ],
)
def test_no_text_takes_long(cell: str) -> None:
    started = time.process_time()
    assert len(unneeded(cell)) <= MOST
    assert time.process_time() - started < 5


def test_a_cell_with_such_words_is_a_verdict_of_its_own_and_costs_nothing() -> None:
    mark = JudgedProperty(("a", "b"), True)
    row = Row("ada", "", (CellOutcome("5.1", "solved", (mark,), unneeded=("sys", "__code__")),))
    assert row.verdict == "look"
    assert row.outcomes[0].credit == 1
    assert row.remarks() == ["5.1: it uses `sys`, `__code__`, which no exercise needs: read the cell"]
    assert Row.from_values(json.loads(row.to_json())).verdict == "look"


def test_the_examples_in_the_docstring_hold() -> None:
    assert doctest.testmod(module).failed == 0
