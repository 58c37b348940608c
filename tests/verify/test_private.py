"""The private names of torch and NumPy that are read: each is there, and without any one of them a trace
says what it does not observe.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from pitfall_lab.observe import private, release
from tests.turns import todays
from tests.warm import warmed

ROOT = Path(__file__).resolve().parents[2]
LAYERS = [path for layer in ("observe", "verify") for path in sorted((ROOT / "pitfall_lab" / layer).rglob("*.py"))]
PATHS = [name.path for name in private.NAMES]
#: What older releases of torch lack that this package supports: the name, and the first release that has it.
SINCE: dict[str, tuple[int, ...]] = {}

# A backward, a view, writes in place (one of them makes the backward fail), memory that NumPy shares, a
# view from before the recording.
PROGRAM = """\
w = torch.ones(3, requires_grad=True)
h = (w * 2).exp()
part = h[1:]
loss = part.sum() + late.sum()
loss.backward()
n = before.numpy()
before.add_(1)
y = w.sigmoid()
y.mul_(2)
try:
    y.sum().backward()
except RuntimeError as error:
    print(error)
"""

#: Torch needs its names itself: one is away while ours are looked up, by themselves, and then it is there again.
TAKEN_AWAY = """
import importlib.util, sys, types
torch.overrides._get_overridable_functions()  # torch keeps what this finds
way, _, last = path.rpartition(".")
above, _, name = way.rpartition(".")
class Without:
    def __init__(self, whole):
        self.whole = whole
    def __getattr__(self, name):
        if name == last:
            raise AttributeError(name)
        return getattr(self.whole, name)
def at(path):
    found = sys.modules[path.split(".")[0]]
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found
layer = types.ModuleType("pitfall_lab.observe")
layer.__path__ = list(importlib.util.find_spec("pitfall_lab").submodule_search_locations)
layer.__path__[0] += "/observe"
sys.modules["pitfall_lab.observe"] = layer
whole = at(way)
setattr(at(above), name, Without(whole))
from pitfall_lab.observe import private
setattr(at(above), name, whole)
del sys.modules["pitfall_lab.observe"]
assert [n.path for n in private.MISSING] == [path], private.MISSING
"""
RECORDED = """
import json
from pitfall_lab.verify import trace_program
before, late = torch.ones(4), torch.ones(3, requires_grad=True).exp().split(2)[0]
space = dict(torch=torch, before=before, late=late, __name__="__main__")
trace = trace_program(program, namespace=space)
print(json.dumps(dict(
    calls=[e.op for e in trace.events if e.kind == "call"], notes=[[n.kind, n.en, n.zh] for n in trace.notes],
    disagreements=[str(d) for d in trace.disagreements], w=space["w"].grad.tolist(), outcome=trace.outcome.kind,
    counters=[[e.path, e.value] for event in trace.events for e in event.effects if e.path.startswith("counters")],
)))
"""


def recorded(python: str, path: str | None, before: str = "") -> dict:
    """What is recorded of the program in a process of its own, without the name at ``path``; ``before`` runs first."""
    code = f"import torch\n{before}path, program = {path!r}, {PROGRAM!r}\n" + TAKEN_AWAY * (path is not None) + RECORDED
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    # The layers that read torch's names are imported anew in each process; what is below them is there.
    with warmed(tmp_path_factory.mktemp("warm"), ("pitfall_lab.shadow.ops", "pitfall_lab.trace")) as command:
        yield command


@pytest.fixture(scope="module")
def whole(python):
    return recorded(python, None)


@pytest.mark.parametrize("path", PATHS)
def test_canary_the_name_is_there(path):
    assert (private.found(path) is not None) == (release.numbers(torch.__version__) >= SINCE.get(path, (0,)))


@pytest.mark.parametrize("path", todays([path for path in PATHS if private.found(path) is not None], of=8))
def test_without_the_name_the_recording_goes_on_and_says_what_it_does_not_observe(python, whole, path):
    name = next(name for name in private.NAMES if name.path == path)
    seen = recorded(python, path)
    assert (seen["outcome"], seen["w"], seen["disagreements"]) == ("finished", whole["w"], [])
    if name.lost is private.VITAL:
        assert seen["calls"] == []
        [(kind, en, zh)] = seen["notes"]
        assert (kind, path in en, path in zh) == ("stopped", True, True)
        return
    assert seen["calls"] == whole["calls"]
    if name.lost is None:
        assert seen == whole
    else:
        here = torch.__version__
        assert seen["notes"] == [
            ["limit", f"Not observed with torch {here}: {name.lost.en}.", f"torch {here} 下未观察：{name.lost.zh}。"]
        ]


def test_the_program_of_these_tests_is_observed_as_a_whole(whole):
    assert (whole["notes"], whole["disagreements"]) == ([], [])
    assert "torch.Tensor.backward" in whole["calls"]


# ------------------------------------------------------------------ nothing private is read anywhere else


def _private(word: str) -> bool:
    return word.startswith("_") and not word.startswith("__")


#: Attributes of tensors, storages and nodes that torch keeps to itself.
ATTRIBUTES = {
    word
    for owner in (torch.Tensor, torch.UntypedStorage, torch._C._functions.ExpBackward0)
    for word in dir(owner)
    if _private(word)
}
LISTED = {path.rpartition(".")[2] for path in PATHS}


def _reads(tree: ast.AST) -> set[str]:
    """What a module reads that is private to torch or NumPy: names on the way from them, and
    attributes of tensors and nodes.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            way = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = {way + alias.name for alias in node.names}
            found |= {
                name
                for name in names
                if name.split(".")[0] in {"torch", "numpy"} and any(map(_private, name.split(".")))
            }
        if isinstance(node, ast.Attribute):
            way = ast.unparse(node).split(".")
            if way[0] in {"torch", "np", "numpy"} and _private(node.attr):
                found.add(".".join(way))
            elif node.attr in ATTRIBUTES and way[0] not in {"self", "cls"}:
                found.add(node.attr)
            if way[0] in {"np", "numpy"} and way[1:2] == ["lib"]:
                found.add(".".join(way))
    return found


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_private_names_are_read_in_one_place(path):
    reads = _reads(ast.parse(path.read_text(encoding="utf-8")))
    if path.name != "private.py":
        assert reads - LISTED == set()


def test_the_search_for_private_names_finds_them():
    text = (
        "import torch._dynamo\n"
        "from torch.overrides import _pop_mode\n"
        "torch._C._x()\n"
        "np.lib.a.y\n"
        "t._typed_storage()\n"
        "self._version"
    )
    assert _reads(ast.parse(text)) == {
        "torch._dynamo",
        "torch.overrides._pop_mode",
        "torch._C._x",
        "torch._C",
        "np.lib.a.y",
        "np.lib.a",
        "np.lib",
        "_typed_storage",
    }


@pytest.mark.parametrize(("file", "function", "name"), private.ENTRIES)
def test_canary_the_functions_in_which_regions_begin(file, function, name):
    """The files are there, and so are the functions that are looked for by name."""
    text = (Path(torch.__file__).parent.parent / file).read_text(encoding="utf-8")
    called = function.split(".")[0] or name.format("vmap").rpartition(".")[2]
    begins = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert any(word.startswith(called) for word in begins) or called == "vmap"


def test_canary_what_torch_compile_counts():
    compiler = importlib.import_module("torch._dynamo.convert_frame")
    assert isinstance(compiler.FRAME_COUNTER, int)
    assert importlib.import_module("torch._dynamo.compiled_autograd").compiled_autograd_enabled is False


@pytest.mark.parametrize(("known", "said"), [((2, 5), 1), (release.numbers(torch.__version__), 0)])
def test_a_torch_that_is_newer_than_the_newest_known_is_said_once_and_recorded(python, whole, known, said):
    before = (
        "import warnings\n"
        "warnings.simplefilter('error')\n"
        "from pitfall_lab.observe import release\n"
        f"release.NEWEST = {known}\n"
    )
    seen, version = recorded(python, None, before), torch.__version__
    assert [(kind, version in en, version in zh) for kind, en, zh in seen.pop("notes")] == [
        ("limit", True, True)
    ] * said
    assert seen == {key: value for key, value in whole.items() if key != "notes"}
