"""The shadow names a failure before torch raises it, and asks nothing of torch's own bookkeeping when it does."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.recorder import Call, Verdict
from pitfall_lab.observe.release import numbers
from pitfall_lab.rules import RULES
from pitfall_lab.rules.kit.expected_marks import expected
from pitfall_lab.shadow import Engine, ShadowError
from pitfall_lab.trace import Trace
from pitfall_lab.verify import lockstep, prediction, program, trace_program
from pitfall_lab.verify.experiments.witness import witness
from pitfall_lab.verify.fastpath.plans import forget_plans
from tests.corpus import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
CHECKED = sorted((ROOT / "tests/check/programs").glob("*.py"))
FILES = {path.relative_to(ROOT / "tests").with_suffix("").as_posix(): path for path in (*PROGRAMS, *CHECKED)}

#: Programs in which a call of torch's raises, whether or not the program catches it.
RAISING = (
    "error_", "broadcast_error", "custom_function", "empty_and_scalar", "gan", "requires_grad_switch", "try_except",
    "unicode", "view_error",
)  # fmt: skip
#: The rules that speak of something torch refuses: the programs of check that are marked with one raise.
REFUSALS = {rule.code for rule in RULES if rule.severity == "error"}
#: Some programs say otherwise: a call raises though the rule is one of warnings; Python or an optimizer
#: refuses, not a call; nobody does.
REFUSED = {"expanded_in_place", "keepdim_does_not_fit", "overlapping_shift"}
REFUSED_ELSEWHERE = {
    "encoder_without_a_record", "fake_detached_before_both_losses",
    "generator_on_detached_samples", "hard_choice_of_a_gate", "meta_learning_copies", "optimizer_of_a_result",
    "optimizer_of_converted_weights", "penalty_cut_off", "penalty_without_record", "penalty_without_recording",
    "prompt_in_front_of_a_frozen_model", "rebound_in_a_list", "rebound_in_a_module", "rebound_loop_variable",
}  # fmt: skip

#: Programs in which torch does what no call shows beforehand: a dispatch mode handles operations, objects swap what
#: they are under a graph, another thread writes. And one gives out= a tensor of another size, for the warning: such a
#: call has no model. Another process works on shared memory. In alive_after_errors the program writes on nodes: hooks
#: may be on them which nothing shows.
UNFORESEEN = {
    "programs/dispatch_modes", "programs/swapping", "programs/threads_backward", "programs/warnings_places",
    "programs/processes", "programs/alive_after_errors",
}  # fmt: skip


def raises(path: Path) -> bool:
    """Whether a call of torch's raises in the program."""
    if path in CHECKED:
        marked = {code for code, _ in expected(path.read_text("utf-8"))[0]} & REFUSALS
        return path.stem in REFUSED or (bool(marked) and path.stem not in REFUSED_ELSEWHERE)
    return path.name.startswith(RAISING)


FAILING = [name for name, path in FILES.items() if raises(path)]
HARMLESS = {"numpy_roundtrip", *(path.stem for path in CHECKED if "PL301" not in path.read_text("utf-8"))}
SILENT = [
    name for name, path in FILES.items() if path.name.startswith(("silent_", "numpy_")) and path.stem not in HARMLESS
]

#: Of what is read from torch, all that a prediction may ask: the settings, and classes of the program's own, that
#: change what every operation means.
SETTINGS = {"autocasting", "default_dtype", "deterministic", "distributed", "may_read_saved", "own_class"}


def sentence(message: str) -> str:
    """The first sentence of an error, with its versions: everything before the hint."""
    return message.split(" Hint:", maxsplit=1)[0].split("\n", maxsplit=1)[0].strip()


@dataclass
class Said:
    """What the shadow had said of a call when torch had not yet begun it, and what torch then did."""

    call: str
    error: tuple[str, str] | None
    versions: tuple[int | None, int | None]
    raised: BaseException | None = None


LEARNT = {"programs/beside_calls": 4, "check/programs/windows_of_a_spectrogram": 1}
"""Each pass over a DataLoader fills two seeds with ``random_``, and a write into a view whose elements overlap: neither
has a model, so their versions are read from torch.
"""


@dataclass
class Watched:
    """A trace, with what was said before each call, and how often a version was learnt
    from torch instead of counted.
    """

    trace: Trace
    said: list[Said] = field(default_factory=list)
    learnt: int = 0

    @property
    def failures(self) -> list[Said]:
        """The calls that raised."""
        return [said for said in self.said if said.raised is not None]


def watch(source: str, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Trace a program and note, at the end of every ``before``, what had been predicted."""
    watched = Watched(Trace())

    class Noting(lockstep.Lockstep):
        def before(self, call: Call) -> Verdict:
            verdict = super().before(call)
            if verdict is not Verdict.OPEN:
                found: ShadowError | None = call.memory.get("predicted")
                if (
                    found is None and "listening" in call.memory
                ):  # what a custom Function gets when it asks for what it saved
                    found = call.memory["listening"].refusal
                error = (found.type_name, sentence(found.message)) if found else None
                said = Said(call.name, error, (found.expected, found.found) if found else (None, None))
                call.memory["said"] = said
                watched.said.append(said)
            return verdict

        def failed(self, call: Call, error: BaseException) -> None:
            call.memory["said"].raised = error.with_traceback(None)
            super().failed(call, error)

    bump = Engine.bump

    def learn(engine: Engine, *args: Any) -> Any:
        watched.learnt += 1  # the entries count through their graph; only lockstep catches up in this way
        return bump(engine, *args)

    monkeypatch.setattr(program, "Lockstep", Noting)
    monkeypatch.setattr(Engine, "bump", learn)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        watched.trace = trace_program(source)
    return watched


class Forbidden(TorchDispatchMode):
    """Any operation of torch's is an error."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"torch ran {func}")


def poison(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """While a call is predicted, torch can neither compute nor tell anything.

    Returns the calls that were predicted in this way.
    """
    predicted: list[str] = []
    state = {"predicting": False}

    def forbid(name: str, original: Any) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            assert not state["predicting"], f"a prediction asks facts.{name}"
            return original(*args, **kwargs)

        return refuse

    def version(tensor: torch.Tensor) -> int:
        assert not state["predicting"], "a prediction reads _version"
        return torch._C.TensorBase._version.__get__(tensor)  # type: ignore[attr-defined]

    def predict(world: Any, call: Call) -> str:
        state["predicting"] = True
        try:
            with Forbidden():
                reason = prediction.predict(world, call)
        finally:
            state["predicting"] = False
        if not reason:
            predicted.append(call.name)
        return reason

    for name, value in vars(tensor_facts).items():
        if isinstance(value, FunctionType) and value.__module__ == tensor_facts.__name__ and name not in SETTINGS:
            monkeypatch.setattr(tensor_facts, name, forbid(name, value))
    monkeypatch.setattr(torch.Tensor, "_version", property(version), raising=False)
    monkeypatch.setattr(lockstep, "predict", predict)
    return predicted


@pytest.mark.parametrize("name", [name for name in FILES if name not in UNFORESEEN])
def test_every_failure_and_no_other_is_named_before_torch_raises_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(FILES[name].read_text("utf-8"), monkeypatch)
    for said in watched.failures:
        assert said.error == (type(said.raised).__name__, sentence(str(said.raised))), said.call
        expected, found = said.versions
        if expected is not None:
            assert f"is at version {found}; expected version {expected} instead" in str(said.raised)
    assert [said for said in watched.said if said.error is not None and said.raised is None] == []
    assert watched.learnt == LEARNT.get(name, 0)
    assert bool(watched.failures) == (name in FAILING), "FAILING is the list of programs in which a call raises"


def test_a_version_that_is_learnt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = (
        "import torch\n"
        "x = torch.ones(2)\n"
        "with torch.autograd._unsafe_preserve_version_counter(x):\n"
        "    x.add_(1)\n"
        "x.add_(1)\n"
    )
    assert watch(hidden, monkeypatch).learnt > 0


@pytest.mark.parametrize("name", FAILING)
def test_a_prediction_neither_runs_torch_nor_reads_its_versions_and_saved_tensors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted = poison(monkeypatch)
    watched = watch(FILES[name].read_text("utf-8"), monkeypatch)
    assert [note.en for note in watched.trace.notes if note.kind == "stopped"] == []
    assert all(said.error is not None for said in watched.failures)
    assert {said.call for said in watched.failures} <= set(predicted)


def test_a_prediction_that_asked_torch_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def curious(engine: Engine, name: str, *args: Any) -> Any:
        torch.ones(2)
        return call(engine, name, *args)

    call = Engine.call
    monkeypatch.setattr(Engine, "call", curious)
    poison(monkeypatch)
    forget_plans()  # a call that was predicted before is not predicted again
    assert [note.kind for note in watch("import torch\nx = torch.ones(2)\n", monkeypatch).trace.notes] == ["stopped"]


def test_the_code_of_a_prediction_names_nothing_of_torchs_bookkeeping() -> None:
    files = [Path(inspect.getfile(prediction)), *sorted((ROOT / "pitfall_lab/shadow").rglob("*.py"))]
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {
            node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level
        }
        assert not {name for name in imported if name.split(".")[0] == "torch"}, path
    read = {node.attr for node in ast.walk(ast.parse(inspect.getsource(prediction))) if isinstance(node, ast.Attribute)}
    assert not {attribute for attribute in read if attribute.startswith("_") or attribute in {"grad_fn", "data_ptr"}}


ALONE = """
import json, sys
sys.modules["torch"] = None
from pitfall_lab.shadow import run
release, sources = json.load(sys.stdin)
errors = {name: run(source, release=tuple(release))[1] for name, source in sources.items()}
json.dump({name: error and [type(error).__name__, str(error)] for name, error in errors.items()}, sys.stdout)
"""

#: Failing programs that need more of torch than the facade has, and what.
NOT_ALONE = {
    "check/programs/detached_pair_of_a_module": "nn.LSTM", "check/programs/detached_state_of_a_module": "nn.GRU",
    "check/programs/unpacked_state_of_a_module": "nn.LSTM",
}  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> dict[str, list[str] | None]:
    """How each failing program ends on the facade, in a process that cannot import torch."""
    sources = {name: FILES[name].read_text("utf-8") for name in FAILING if name not in NOT_ALONE}
    command = [sys.executable, "-W", "ignore", "-c", ALONE]
    given = json.dumps([numbers(torch.__version__), sources])
    done = subprocess.run(command, input=given, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", [name for name in FAILING if name not in NOT_ALONE])
def test_without_any_torch_the_shadow_names_the_same_failure(name: str, alone: dict[str, list[str] | None]) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            exec(compile(FILES[name].read_text("utf-8"), name, "exec"), {"__name__": "__main__"})
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            expected: list[str] | None = [type(error).__name__, sentence(str(error))]
        else:
            expected = None
    found = alone[name]
    assert (found and [found[0], sentence(found[1])]) == expected


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_harm_is_told_with_torchs_gradient_and_the_meant_one(name: str) -> None:
    """Both are compared with torch itself: as it is, and with saved tensors cloned when they are saved."""
    source = FILES[name].read_text("utf-8")
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        trace = trace_program(source)
        known = [_gradients(witness(source, name, {"__name__": "__main__"}, meant=meant)) for meant in (False, True)]
    assert trace.harms
    for harm in trace.harms:
        for told, computed in zip((harm.torch, harm.meant), known, strict=True):
            assert any(_starts_with(told, numbers) for numbers in computed), (told, computed)
        assert harm.torch != harm.meant


def _gradients(found: dict[str, Any]) -> list[list[float]]:
    """The first elements of every gradient that a program's backwards left."""
    every = (gradient for backward in found["backwards"] for gradient in (*backward["gradients"], *backward["results"]))
    return [gradient["numbers"][3:] for gradient in every if gradient]


def _starts_with(told: Any, numbers: list[float]) -> bool:
    flat = (
        [value for _, value in told["shown"]]
        if isinstance(told, dict)
        else np.asarray(told, dtype=float).reshape(-1).tolist()
    )
    return flat[: len(numbers)] == pytest.approx(numbers[: len(flat)], rel=1e-4)
