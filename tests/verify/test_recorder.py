"""The recorder by itself: what the program could notice, and what it must not."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import pitfall_lab
from pitfall_lab.observe import Recorder, Verdict, private, tensor_facts
from pitfall_lab.observe.recorder import clean_traceback, is_composite, private_copy
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.observe.torch_names import is_quiet, name_of
from pitfall_lab.verify import Session, trace_program


class Watching:
    """A listener that opens every composite and notes what it is told."""

    lane = None

    def __init__(self):
        self.names: list[str] = []

    def before(self, call):
        self.names.append(call.name)
        return Verdict.OPEN if call.composite else Verdict.RUN

    def after(self, call, result):
        pass

    def grad_fn_read(self, real):
        pass

    def given(self, optimizer, parameter, span, rate):
        pass

    def composed(self, call, result):
        pass

    def failed(self, call, error):
        pass

    def stopped(self, cause, reason, span):
        raise AssertionError(reason)

    def missed(self, span):
        raise AssertionError(span)


def run(source: str) -> Watching:
    listener = Watching()
    filename = "<test program>"
    with Recorder(listener, SourceMap(filename, "program.py", source)):
        exec(compile(source, filename, "exec"), {"__name__": "__main__"})
    return listener


def test_composites_are_opened_down_to_their_parts():
    seen = run("import torch\nimport torch.nn.functional as F\nF.normalize(torch.ones(2, 2))\n").names
    assert {"torch.nn.functional.normalize", "torch.linalg.vector_norm", "torch.Tensor.div"} <= set(seen)


def test_calls_of_library_code_outside_the_program_are_not_recorded():
    listener = Watching()
    with Recorder(listener, SourceMap("<nobody>", "program.py", "")):
        eval(compile("__import__('torch').ones(2)", "/usr/lib/python3/dist-packages/x.py", "eval"), {})
    recorded_by_this_file = [n for n in listener.names if n == "torch.ones"]
    assert len(recorded_by_this_file) <= 1


def test_a_backward_from_several_results_is_one_call_in_every_release():
    trace = trace_program(
        "import torch\nx = torch.ones(2, requires_grad=True)\ntorch.autograd.backward([x.sum(), (x * 2).sum()])\n"
    )
    assert [event.op for event in trace.events if event.kind == "call"][-1] == "torch.autograd.backward"
    assert "pitfall_lab" not in torch.autograd.backward.__code__.co_filename  # nothing of ours stays behind


def test_a_comprehension_beside_an_array_that_is_watched_brings_no_warning_of_python():
    """Python 3.12 takes its variable for one of the module's own where a trace function asks for them."""
    text = (
        "import torch\n"
        "t = torch.ones(3)\n"
        "a = t.numpy()\n"
        "u = [t * k for k in range(3)][1]\n"
        "a[0] = 5\n"
        "w = [m * 2 for m in range(3)]\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trace_program(text).outcome.failure is None


def test_a_warning_keeps_the_learners_file_line_and_registry():
    source = "import torch\nfor _ in range(3):\n    torch.ones(2, requires_grad=True).mul(2).grad\n"

    def plain():
        exec(compile(source, "<w>", "exec"), {"__name__": "w"})

    def watched():
        with Session("<w>", "w.py", source):
            plain()

    results = []
    for way in (plain, watched):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            way()
        results.append([(w.category, str(w.message), w.filename, w.lineno) for w in caught])
    assert results[0] == results[1]
    assert results[0][0][2:] == ("<w>", 3)


def test_the_traceback_shows_no_frame_of_ours():
    source = "import torch\nimport torch.nn.functional as F\nF.mse_loss(torch.ones(3), torch.ones(2))\n"
    texts = []
    for watched in (False, True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if watched:
                    with Session("<t>", "t.py", source):
                        exec(compile(source, "<t>", "exec"), {})
                else:
                    exec(compile(source, "<t>", "exec"), {})
        except RuntimeError as error:
            tb = clean_traceback(error.__traceback__)
            texts.append([(f.filename, f.name, f.line) for f in traceback.extract_tb(tb)][1:])
    assert texts[0] == texts[1]
    assert texts[0]


#: What functions of torch 2.13 do not pass on to ``handle_torch_function``, so that any
#: function mode would change them.
FORGOTTEN = {("l1_loss", "weight"), ("chain_matmul", "out"), ("Tensor.dim_order", "ambiguity_check")}
DISPATCHING = (
    "functional.py",
    "_tensor.py",
    "nn/functional.py",
    "nn/init.py",
    "_lobpcg.py",
    "_lowrank.py",
    "__init__.py",
)


def _passed_on(function: ast.FunctionDef, call: ast.Call) -> tuple[str, list[str], list[str]]:
    """What a dispatch call names, the parameters it leaves out, and the positional ones in
    another place than the signature's.
    """
    spec = function.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    rest = [a.arg for a in spec.kwonlyargs] + [a.arg for a in (spec.vararg, spec.kwarg) if a]
    words = [k.value for k in call.keywords]
    given = {n.id for part in (*call.args[2:], *words) for n in ast.walk(part) if isinstance(n, ast.Name)}
    plain = [
        part.id if isinstance(part, ast.Name) else "*" for part in call.args[2:] if not isinstance(part, ast.Starred)
    ]
    swapped = [k.arg for k in call.keywords if k.arg and not (isinstance(k.value, ast.Name) and k.value.id == k.arg)]
    moved = [] if plain == positional[: len(plain)] else plain
    return ast.unparse(call.args[0]), [name for name in positional + rest if name not in given], moved + swapped


def _dispatch_calls():
    for path in DISPATCHING:
        tree = ast.parse((Path(torch.__file__).parent / path).read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            inside = ast.walk(function) if isinstance(function, ast.FunctionDef) else ()
            for call in inside:
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id == "handle_torch_function"
                ):
                    yield function, call


def test_canary_every_argument_that_torch_forgets_to_dispatch_is_known():
    found, moved = set(), {}
    for function, call in _dispatch_calls():
        name, missing, elsewhere = _passed_on(function, call)
        # Three pass everything on by other means: __dlpack__ its args and kwargs, einsum a re-packed list, and the
        # wrapper of operators its inner function's.
        if function.name not in {
            "__dlpack__",
            "einsum",
            "_handle_torch_function_and_wrap_type_error_to_not_implemented",
            "wrapped",
        }:
            found |= {(name, parameter) for parameter in missing}
            moved |= {name: elsewhere} if elsewhere else {}
    assert found == FORGOTTEN
    assert moved == {}


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
def test_what_torch_forgets_to_dispatch_is_given_back():
    source = """
import torch
import torch.nn.functional as F
x, y, w = torch.ones(3, requires_grad=True), torch.zeros(3), torch.tensor([1.0, 2.0, 5.0])
by_name = F.l1_loss(x, y * 1, weight=w)
in_place = F.l1_loss(x, y, None, None, "sum", w)
without = F.l1_loss(x, y)
out = torch.empty(0)
product = torch.chain_matmul(torch.ones(2, 3), torch.ones(3, 2), out=out)
try:
    torch.empty(1, 2).dim_order(ambiguity_check=True)
    unclear = False
except RuntimeError:
    unclear = True
facts = [by_name.grad_fn.name(), in_place.item(), without.grad_fn.name(), product is out, tuple(out.shape), unclear]
"""
    plain: dict = {}
    exec(source, plain)
    expected = plain["facts"]
    assert expected == ["DivBackward0", 8.0, "MeanBackward0", True, (2, 2), True]
    seen = {"__name__": "__main__"}
    with Recorder(Watching(), SourceMap("<test program>", "program.py", source)):
        exec(compile(source, "<test program>", "exec"), seen)
    assert seen["facts"] == expected
    seen = {"__name__": "__main__"}
    trace = trace_program(source, namespace=seen)
    assert seen["facts"] == expected
    assert trace.disagreements == ()


def test_a_private_copy_leaves_the_module_as_it_was():
    before = dict(vars(functional))
    copy = private_copy(functional.relu)
    assert torch.equal(copy(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
    assert dict(vars(functional)) == before
    assert is_composite(functional.relu)
    assert not is_composite(torch.relu)


@pytest.mark.parametrize("attribute", ["shape", "dtype", "is_leaf", "requires_grad", "_version", "grad_fn", "device"])
def test_looking_at_a_tensor_is_quiet(attribute):
    assert is_quiet(name_of(getattr(torch.Tensor, attribute).__get__))


@pytest.mark.parametrize("name", ["add_", "grad.__get__", "data.__get__", "backward", "item"])
def test_what_matters_is_not_quiet(name):
    assert not is_quiet(f"torch.Tensor.{name}")


# ------------------------------------------------------------------ canaries: the private parts of
# torch that observe relies on


def test_canary_saved_tensors_are_read_from_the_node():
    x = torch.ones(2, requires_grad=True)
    assert [slot for slot, _ in tensor_facts.saved_tensors(x.exp().grad_fn)] == ["result"]


def test_canary_reading_a_stale_saved_tensor_runs_torchs_own_check():
    x = torch.ones(2, requires_grad=True)
    h = x.exp()
    node = h.grad_fn
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tensor_facts.saved_versions(node)


def test_canary_sequence_numbers_tell_nodes_apart_and_leaves_name_their_accumulator():
    x = torch.ones(2, requires_grad=True)
    a, b = x * 2, x * 3
    assert tensor_facts.node_key(a.grad_fn) != tensor_facts.node_key(b.grad_fn)
    [(accumulate, _), _] = tensor_facts.next_nodes(a.grad_fn)
    assert tensor_facts.node_key(accumulate) == ("leaf", id(x))


def test_canary_a_weak_storage_reference_keeps_no_memory_alive():
    t = torch.ones(1000)
    ref = tensor_facts.weak_storage(t)
    assert ref == torch.ones(0).set_(t).untyped_storage()._cdata
    assert not private.is_gone(ref)
    del t
    assert private.is_gone(ref)
    private.let_go(ref)


def test_canary_default_saved_tensor_hooks_can_be_asked_for():
    assert tensor_facts.may_read_saved()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not tensor_facts.may_read_saved()


def test_canary_function_modes_can_be_popped_and_pushed():
    assert callable(torch.overrides._pop_mode)
    assert callable(torch.overrides._push_mode)
    assert inspect.isfunction(torch.overrides.handle_torch_function)


def test_an_assignment_into_a_tensor_spans_the_whole_statement():
    source = "import torch\nx = torch.zeros(3)\nx[0] = 1.0; x[1:] += 2  # 两次\n"
    spans = []

    class Spans(Watching):
        def before(self, call):
            spans.append((call.name.split(".")[-1], call.span))
            return super().before(call)

    with Recorder(Spans(), SourceMap("<s>", "s.py", source)):
        exec(compile(source, "<s>", "exec"), {})
    text = source.splitlines()[2]
    assert [text[s.column : s.end_column] for name, s in spans if name == "__setitem__"] == ["x[0] = 1.0", "x[1:] += 2"]


def test_a_result_that_is_one_of_several_choices_has_its_name():
    source = (
        "import torch\nx = torch.ones(2)\na = x * 2 if len(x) else x\nb = None or (c := x.exp())\n"
        "d = x + 1 if False else (x - 1 if False else x / 2)\ne, f = (x.sin() if True else x), x.cos()\n"
    )
    trace = trace_program(source)
    named = {names[0]: event.name for event in trace.events for names in [_names_given(event)] if names}
    assert named == {"x": "ones", "a": "mul", "b": "exp", "d": "div", "e": "sin", "f": "cos"}


def _names_given(event):
    return next((effect.value for effect in event.effects if effect.path.endswith(".names")), [])


def test_recording_does_not_make_python_forget_which_warnings_it_has_shown(monkeypatch):
    forgot = []
    real = warnings._filters_mutated
    monkeypatch.setattr(warnings, "_filters_mutated", lambda: (forgot.append(traceback.format_stack()), real()))
    trace_program("import torch\nx = torch.linspace(0, 1, 3)\ny = torch.nn.functional.softsign(x).frac().erfinv()\n")
    assert forgot == []


def test_a_package_imported_through_a_link_does_not_take_itself_for_the_learner(tmp_path):
    home = Path(pitfall_lab.__file__).parent
    (tmp_path / "pitfall_lab").symlink_to(home)
    learner = "import torch\nx = torch.ones(2, requires_grad=True)\n(x * 2).sum().backward()\n"
    program = f"from pitfall_lab.verify import trace_program\nt = trace_program({learner!r})\n"
    program += "print(t.outcome.kind, len(t.disagreements), sorted({e.op for e in t.events if e.kind == 'call'}))\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "finished 0 ['torch.Tensor.backward', 'torch.Tensor.mul', 'torch.Tensor.sum', 'torch.ones']\n"


def test_packages_are_library_code_wherever_they_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, mine = tmp_path / "target", tmp_path / "mine"
    (target / "numpy-9.9.dist-info").mkdir(parents=True)
    mine.mkdir()
    packed = tmp_path / "packed.zip"
    packed.write_bytes(b"PK")
    for folder in (target, mine, packed):
        monkeypatch.syspath_prepend(str(folder))
    sources = SourceMap("<s>", "s.py", "")
    assert not sources.is_user(str(target / "numpy" / "core.py"))
    assert not sources.is_user(str(packed / "package" / "core.py"))
    assert sources.is_user(str(mine / "helpers.py"))


def test_a_tensor_made_from_an_array_is_seen_where_a_function_returns_it_and_where_an_attribute_keeps_it():
    trace = trace_program(
        "import numpy as np\n"
        "import torch\n"
        "\n"
        "\n"
        "class Rows:\n"
        "    def __init__(self, table):\n"
        "        self.table = table\n"
        "        self.whole = torch.from_numpy(table)\n"
        "\n"
        "    def __getitem__(self, at):\n"
        "        return torch.from_numpy(self.table[at])\n"
        "\n"
        "\n"
        "rows = Rows(np.ones((3, 2)))\n"
        "rows[1].add_(1)\n"
        "print(rows.whole.sum())\n"
    )
    made = [event for event in trace.events if event.op == "torch.from_numpy"]
    assert [event.span.line for event in made if event.span] == [8, 11]
    records = {effect.path: effect.value for event in made for effect in event.effects}
    first, second = (records[f"tensors.{event.results[0]}"] for event in made)
    assert first["storage"] == second["storage"]
    assert trace.disagreements == ()
