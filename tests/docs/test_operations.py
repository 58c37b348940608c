"""The table of operations is what torch does now, the shadow agrees with every row, and
``pitfall-lab saves`` prints rows.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pitfall_lab.cli import main
from pitfall_lab.reference import operations
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.verify.experiments import catalogue
from pitfall_lab.verify.experiments.saved_tensors import MODIFIED, CannotRun, Condition, demonstration, study

ALWAYS = Condition()
TOPICS = sorted({operation.topic for operation in catalogue.modelled()})


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of calls on six numbers: threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_page_is_what_would_be_written_now() -> None:
    text = operations.PAGE.read_text(encoding="utf-8")
    # Calls of operations without samples are taken from the page: finding them anew takes a
    # minute. All else is done again.
    assert operations.page(operations.written_calls(text)) == text, "run `python -m pitfall_lab.reference.operations`"


def test_every_public_function_of_torch_is_on_the_page() -> None:
    text = operations.PAGE.read_text(encoding="utf-8")
    named = {operations.titled(operation) for operation in (*catalogue.modelled(), *catalogue.mirrored())}
    assert [title for title in named if title not in text] == []


@pytest.mark.parametrize("topic", TOPICS)
def test_on_every_sample_the_shadow_saves_and_breaks_what_torch_does(topic: str) -> None:
    faults = []
    for code in {sample for o in catalogue.modelled() if o.topic == topic and o.entry for sample in o.entry.samples}:
        try:
            found = study(code, conditions=False)
        except CannotRun:
            continue  # a sample that is meant to raise
        faults += [f"{code}: {difference}" for difference in found.differences]
        faults += [f"{code}: {found.missing}"] if found.missing else []
    assert faults == []


@pytest.mark.parametrize(
    ("code", "breaking"),
    [
        ("torch.exp(a)", [("result", ALWAYS)]),
        ("torch.log(a)", [("a", ALWAYS)]),
        ("a + b", []),
        ("a * b", [("a", Condition(("b",))), ("b", Condition(("a",)))]),
        ("a * 2", []),
        ("a / b", [("a", Condition(("b",))), ("b", ALWAYS)]),
        ("h.mul_(b)", [("b", Condition(("h",)))]),
        ("h.exp_()", [("h", ALWAYS)]),
        ("h.log_()", []),
        ("a.max(0)", [("result.indices", ALWAYS)]),
        ("a[i]", [("i", ALWAYS)]),
        ("torch.where(m, a, b)", [("m", ALWAYS)]),
        ("F.mse_loss(a, b)", [("a", ALWAYS), ("b", ALWAYS)]),
        ("torch.cdist(a, b)", [("a", ALWAYS), ("b", ALWAYS), ("result", ALWAYS)]),
    ],
)
def test_known_rows_come_out_of_the_experiment(code: str, breaking: list[tuple[str, Condition]]) -> None:
    assert study(code).breaking() == breaking


def test_several_views_of_one_tensor_refuse_any_write() -> None:
    assert [name for name, _ in study("a.unbind(0)").refused()] == ["a", "result[0]", "result[1]"]


def test_an_operation_whose_backward_raises_by_itself_is_not_blamed_on_a_write() -> None:
    found = study("torch.vander(c)")  # torch overwrites its own saved tensor
    assert found.alone() is not None
    assert MODIFIED in found.alone()[0]
    assert found.breaking() == []


def test_an_operation_that_is_not_differentiable_in_one_operand_says_so() -> None:
    found = study("torch.igamma(a, b)")
    assert found.alone() is not None
    assert found.alone()[1] == Condition(("a",))
    assert found.breaking() == [("a", ALWAYS), ("b", ALWAYS)]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("a.t()", "view a"),
        ("a.contiguous()", "same a"),
        ("a.detach()", "memory a"),
        ("a.data", "memory a, own counter"),
        ("a.clone()", "new"),
    ],
)
def test_what_a_result_is(code: str, result: str) -> None:
    assert study(code).main.results == {"result": result}


def test_a_model_that_saves_something_else_is_noticed_and_no_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENTRIES, "torch.exp", ENTRIES["torch.log"])
    found = study("torch.exp(a)")
    assert any("LogBackward0" in difference for difference in found.differences)
    with pytest.raises(operations.ShadowDiffers, match="LogBackward0"):
        operations.table([(catalogue.Operation(("torch.exp",), "pointwise"), [found])])


@pytest.mark.parametrize(
    "code",
    [
        "torch.exp(a)",
        "a.max(0)",
        "h.mul_(b)",
        "F.mse_loss(a, b)",
        "torch.fft.fft(a) * s[:2]",
        "img * img",
        "h.__setitem__(i, b)",
    ],
)
def test_a_demonstration_is_a_program_that_raises_what_it_says(code: str) -> None:
    shown = demonstration(study(code))
    assert shown is not None
    program, error = shown
    assert MODIFIED in error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError) as raised:
            exec(program, {})
    assert str(raised.value) == error


# -- the command


def saves(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["saves", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_name_gives_its_row_and_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = saves(capsys, "exp")
    assert code == 0
    assert "torch.exp, torch.Tensor.exp\n" in out
    assert "ExpBackward0: result" in out
    assert "a later write to result\n" in out
    assert "modelled" in out
    assert "result.zero_()" in out
    assert "is at version 1; expected version 0 instead." in out


def test_several_names_and_an_expression_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = saves(capsys, "Tensor.mul_", "F.relu", "torch.linalg.svd(a)", "--lang", "zh")
    assert code == 0
    assert "当 h 需要梯度时" in out
    assert "torch.nn.functional.relu" in out
    assert "镜像" in out


def test_the_row_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = saves(capsys, "mul", "--json")
    assert code == 0
    (row, *_) = json.loads(out)["operations"]
    assert row["call"] == "a * b"
    assert row["modelled"] is True
    assert row["breaks"] == [
        {"tensor": "a", "requires_grad": {"any": ["b"]}},
        {"tensor": "b", "requires_grad": {"any": ["a"]}},
    ]
    assert row["nodes"][0]["name"] == "MulBackward0"
    assert "import torch" in row["program"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("expp", "Did you mean exp"),
        ("nn.Linear", "torch.nn.Linear(3, 2)(a)"),
        ("qqqqq", "pitfall-lab saves 'torch.cdist(a, b)'"),
        ("a @", "no Python expression"),
        ("a @ b", "mat1 and mat2 shapes cannot be multiplied"),
        ("3 + 4", "returns no tensor"),
        ("ctc_loss", "Write one"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = saves(capsys, word)
    assert (code, out) == (2, "")
    assert hint in err
    assert len(err.splitlines()) == 1


def test_a_model_that_differs_is_said_and_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENTRIES, "torch.exp", ENTRIES["torch.log"])
    code, out, _ = saves(capsys, "torch.exp(a)")
    assert code == 1
    assert "DIFFERS" in out


@pytest.mark.parametrize(
    ("word", "full"),
    [("T", "torch.Tensor.T.__get__"), ("F.layer_norm", "torch.nn.functional.layer_norm"), ("Tensor.view",
    "torch.Tensor.view"), ("torch.einsum", "torch.functional.einsum"), ("det", "torch.det")],
)  # fmt: skip
def test_names_are_found_as_people_write_them(word: str, full: str) -> None:
    found: Any = catalogue.find(word)
    assert any(full in operation.names for operation in found)
