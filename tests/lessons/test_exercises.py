"""Every exercise tells right from wrong by what the cell does; what was seen travels as data; an
unsolved exercise is no error.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.attempt import Observation, Opaque, Problem, Request, observe
from pitfall_lab.lessons.credit import earned
from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    alike,
    as_many_calls,
    equal,
    every,
    fails,
    finds,
    finds_nothing,
    grade,
    in_place,
    no_optimizer,
    not_shared,
    runs,
    shared,
    storages,
    surprises,
    true,
    unchanged,
    updated_once,
)
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.notebook import practice
from pitfall_lab.trace import T
from tests.lessons.cheats import CHEATS, UNUSUAL, made_of
from tests.lessons.spoken import reasons_of
from tests.turns import in_whole_runs, todays

KINDS = ("repair", "predict", "write", "make-it-fail", "find-and-fix")


# ---------------------------------------------------------------- every exercise of every chapter


@pytest.mark.parametrize("key", in_whole_runs(exercises(), of=3))
def test_an_exercise_tells_right_from_wrong(key: str) -> None:
    exercise = exercises()[key]
    number = list(exercises()).index(key)
    unsolved = grade(exercise, exercise.given)
    assert not unsolved.solved
    assert reasons_of(exercise, unsolved) == []
    for right in (exercise.right[0], *todays(exercise.right[1:], of=20, begin=number, every=3)):
        assert grade(exercise, right).solved, (right, str(grade(exercise, right)))
    # An answer that is commented out is none.
    commented = "".join(f"# {line}\n" for line in exercise.right[0].splitlines())
    for wrong in (
        commented,
        *todays(exercise.wrong, of=20, begin=number, every=3),
        *todays(made_of(exercise), of=24, begin=number, every=3),
    ):
        done = grade(exercise, wrong)
        assert not done.solved, wrong
        assert reasons_of(exercise, done) == []


FAILURES = [key for key, exercise in exercises().items() if exercise.kind == "make-it-fail"]


@pytest.mark.parametrize("key", FAILURES)
def test_each_check_of_a_program_that_has_to_fail_refuses_an_answer_that_runs(key: str) -> None:
    exercise = exercises()[key]
    graded = [grade(exercise, source) for source in (exercise.given, *exercise.wrong, *CHEATS.get(key, ()))]
    assert not all(mark.holds for mark in graded[0].marks)
    ran = [done.marks for done in graded if done.error is None]
    for number, prop in enumerate(exercise.properties):
        raised = prop.sentence.en == "nothing is raised"
        refused = [marks for marks in ran if not marks[number].holds]
        assert refused or raised, prop.sentence.en


@pytest.mark.parametrize(
    "answer", ["block[:2].clone()", "block[[0, 1]]", "torch.zeros(2)", "torch.from_numpy(block.numpy()[:2].copy())"]
)
def test_a_copy_is_not_said_to_keep_the_memory_of_its_block(answer: str) -> None:
    done = grade(exercises()["13.4"], f"def counterexample(block):\n    return {answer}\n")
    assert [mark.holds for mark in done.marks] == [True, False, False, True]
    assert done.marks[2].reason.en == "it does not keep all of the block's memory alive"  # type: ignore[union-attr]


@pytest.mark.parametrize("key", in_whole_runs(CHEATS, of=4))
def test_what_students_think_of_is_told_right_from_wrong_and_with_a_reason(key: str) -> None:
    exercise = exercises()[key]
    for source in UNUSUAL.get(key, ()):
        assert grade(exercise, source).solved, str(grade(exercise, source))
    for source in CHEATS[key]:
        done = grade(exercise, source)
        assert not done.solved, source
        assert all(mark.holds or mark.reason for mark in done.marks), str(done)
        assert reasons_of(exercise, done) == []


@pytest.mark.parametrize(
    ("key", "source", "said"),
    [
        (
            "1.4",
            (
                "def train(x, y, w, rate, steps):\n"
                "    ((x * w - y) ** 2).mean().backward()\n"
                "    w -= rate * w.grad\n"
                "    return w\n"
            ),
            "a leaf Variable",
        ),
        (
            "4.4",
            (
                "def drop_last(t):\n"
                "    if t.shape[-1] != 1:\n"
                "        raise ValueError(t.shape)\n"
                "    return t.flatten(-2)\n"
            ),
            "IndexError",
        ),
    ],
)
def test_where_a_cell_raises_the_reason_is_the_error_and_not_what_was_left_of_the_inputs(
    key: str, source: str, said: str
) -> None:
    reasons = [mark.reason.en for mark in grade(exercises()[key], source).marks if not mark.holds and mark.reason]
    assert said in reasons[0]
    assert set(reasons[1:]) <= {reasons[0]}, reasons


TRIED = re.findall(
    r"(?ms)^### ([+-]) (\S+)\n(.*?)(?=^### |\Z)", Path(__file__).with_name("tried.txt").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("key", in_whole_runs(dict.fromkeys(key for _, key, _ in TRIED), of=5))
def test_what_was_written_from_the_text_alone_is_told_right_from_wrong(key: str) -> None:
    for sign, source in ((sign, source) for sign, tried, source in TRIED if tried == key):
        done = grade(exercises()[key], source)
        assert done.solved == (sign == "+"), f"{source}\n{done}"
        assert all(mark.holds or mark.reason for mark in done.marks), str(done)


@pytest.mark.parametrize("key", exercises())
def test_an_exercise_is_complete(key: str) -> None:
    exercise = exercises()[key]
    assert exercise.kind in KINDS
    assert key == exercise.key
    assert len(exercise.hints) == 3
    assert len(set(exercise.right)) >= 2
    assert len({exercise.given, *exercise.wrong}) >= 3
    assert not set(exercise.right) & set(exercise.wrong)
    said = [exercise.title, exercise.task, *exercise.hints, *(p.sentence for p in exercise.properties)]
    assert all(text.en.strip() and text.zh.strip() for text in said)
    assert len({p.sentence.en for p in exercise.properties}) == len(exercise.properties) >= 2


# ---------------------------------------------------------------- what is seen

ROOT = Path(__file__).parents[2]


def test_a_run_leaves_no_trace_in_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    seen = observe(
        Request("print('hello')\ntorch.set_default_dtype(torch.float64)\nx = torch.rand(2)", expressions=("x.dtype",))
    )
    assert seen.values == {"x.dtype": "torch.float64"}
    assert seen.printed == "hello\n"
    assert capsys.readouterr().out == ""
    assert torch.get_default_dtype() == torch.float32
    assert (torch.rand(1), random.random()) == expected


def test_errors_are_answers_and_name_the_cells_line() -> None:
    assert observe(Request("x = 1\ny = = 2")).error == Problem("SyntaxError", "invalid syntax", 2)
    assert observe(Request("raise SystemExit(3)")).error == Problem("SystemExit", "3", 1)
    seen = observe(Request("def f(n):\n    return 1 / n\n", drive="a = 1\nb = f(0)", expressions=("a", "b")))
    assert (seen.error, seen.in_cell) == (Problem("ZeroDivisionError", "division by zero", 2), False)
    assert seen.values == {"a": 1, "b": seen.error}
    assert observe(Request("def f():\n    return g()\n", drive="f(1)")).error.line is None  # type: ignore[union-attr]
    hostile = "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E"
    assert observe(Request(hostile)).error == Problem("E", "", 4)


def test_an_interrupt_comes_out() -> None:
    with pytest.raises(KeyboardInterrupt):
        observe(Request("raise KeyboardInterrupt"))


def test_the_seed_decides_the_inputs_and_nothing_the_cell_draws_moves_them() -> None:
    first, other = (
        observe(Request(cell, inputs="x = torch.rand(2)", seed=1, expressions=("x",))) for cell in ("", "torch.rand(7)")
    )
    assert np.array_equal(first.values["x"], other.values["x"])
    assert not np.array_equal(
        observe(Request("", inputs="x = torch.rand(2)", seed=2, expressions=("x",))).values["x"], first.values["x"]
    )


VALUES = (
    "(1, [2.5, None], {'a': True})", "torch.arange(6).reshape(2, 3).t()", "torch.ones(2, dtype=torch.complex64) * 1j",
    "torch.ones(2).bfloat16()", "float('nan')", "1 + 2j", "'<b>'", "np.float32(3)", "torch.float16", "object()",
    "undefined", "torch.ones(2, device='meta')", "torch.eye(2).to_sparse()",
)  # fmt: skip


def test_what_was_seen_travels_as_text() -> None:
    request = Request(
        "h = torch.ones(2, requires_grad=True).exp()\n",
        drive="h.add_(1)\nh.sum().backward()",
        expressions=VALUES,
        watched=True,
    )
    assert Request.from_json(request.to_json()) == request
    seen = observe(request)
    back = Observation.from_json(json.dumps(json.loads(seen.to_json())))
    assert back.trace == seen.trace
    assert back.error == seen.error == Problem("RuntimeError", seen.error.message)  # type: ignore[union-attr]
    assert [repr(v) for v in back.values.values()] == [repr(v) for v in seen.values.values()]
    kinds = [type(value) for value in seen.values.values()]
    assert kinds == [
        tuple,
        *[np.ndarray] * 3,
        float,
        complex,
        str,
        np.ndarray,
        str,
        Opaque,
        Problem,
        Opaque,
        np.ndarray,
    ]


def test_alike_is_strict_but_for_rounding() -> None:
    one = np.ones(2, np.float32)
    assert alike({"a": [one, 0.30000001]}, {"a": (one.astype(np.float64), 0.3)})
    assert alike(None, None)
    assert alike(np.array(3), 3)
    assert alike(float("nan"), float("nan"))
    problem = Problem("E", "")
    pairs = (
        (one, one.astype(int)),
        (one, one[:1]),
        (1, True),
        ("1", 1),
        (problem, problem),
        (Opaque("f"), Opaque("f")),
        (None, 0),
        (1.0, "1"),
    )
    assert not [pair for pair in pairs if alike(*pair)]


# ---------------------------------------------------------------- ready-made checks


def exercise(*checks: object, inputs: str = "", drive: str = "", right: str = "pass") -> Exercise:
    text = T(en="t", zh="t")
    properties = tuple(Property(T(en=f"p{n}", zh=f"p{n}"), check) for n, check in enumerate(checks))  # type: ignore[arg-type]
    return Exercise(
        key="0.1", kind="write", title=text, task=text, given="", properties=properties, hints=(text,) * 3,
        right=(right,), wrong=(), inputs=inputs, drive=drive,
    )  # fmt: skip


def marks(cell: str, *checks: object, inputs: str = "x = torch.randn(4)", drive: str = "y = f(x)") -> list[bool]:
    return [mark.holds for mark in grade(exercise(*checks, inputs=inputs, drive=drive), cell).marks]


def test_a_prediction_may_be_typed_between_the_quotes_and_is_answered_in_words() -> None:
    meant = {"a": "-20.0", "b": "None", "c": "(2, 3)", "d": "'view'", "e": "0"}
    checks = [equal(f"said[{key!r}]", value, tell=False) for key, value in meant.items()]
    assert (
        marks('said = {"a": "-20", "b": "None", "c": "(2, 3)", "d": "view", "e": 0}', *checks, drive="") == [True] * 5
    )
    assert (
        marks(
            'said = {"a": "\N{MINUS SIGN}20.", "b": " none", "c": "(2,3)", "d": "VIEW ", "e": "0.0"}', *checks, drive=""
        )
        == [True] * 5
    )
    done = grade(exercise(*checks), 'said = {"a": "?", "b": 0, "c": "2, 3, 4", "d": torch.ones(2)}')
    reasons = [
        "no answer yet",
        "your answer is 0",
        "your answer is (2, 3, 4)",
        "your answer is [1., 1.]",
        "no answer yet",
    ]
    assert [mark.reason and mark.reason.en for mark in done.marks] == reasons


@pytest.mark.parametrize("key", ["3.1", "4.1", "11.1", "13.1"])
def test_none_is_no_answer_where_the_cell_was_given_with_it(key: str) -> None:
    exercise = exercises()[key]
    marks = grade(exercise, exercise.given).marks
    assert {mark.reason and mark.reason.en for mark in marks if not mark.holds} == {"no answer yet"}


def test_none_is_an_answer_where_another_mark_stands_for_none() -> None:
    exercise = exercises()["7.4"]
    marks = grade(exercise, exercise.given.replace('"?"', "None", 1)).marks
    assert [mark.reason and mark.reason.en for mark in marks[:2]] == ["your answer is None", "no answer yet"]


PREDICTED = [key for key, exercise in exercises().items() if exercise.kind == "predict"]


class _Written(ast.NodeTransformer):
    """Writes the texts that an answer gives in another way; those that the table has already stay."""

    def __init__(self, write: Callable[[str], str]) -> None:
        self.write, self.count = write, 0

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        node.values = [self.visit(value) for value in node.values]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            node.value, self.count = self.write(node.value), self.count + 1
        return node


@pytest.mark.parametrize("key", PREDICTED)
def test_capitals_and_space_in_a_prediction_do_not_matter(key: str) -> None:
    for write in (str.upper, lambda text: f"  {text.replace(' ', '  ')} "):
        tree, written = ast.parse(exercises()[key].right[0]), _Written(write)
        written.visit(tree)
        if written.count:
            done = grade(exercises()[key], ast.unparse(tree))
            assert done.solved, str(done)


def test_capitals_are_tried_where_there_are_texts() -> None:
    texts = [_Written(str.upper) for _ in PREDICTED]
    for written, key in zip(texts, PREDICTED, strict=True):
        written.visit(ast.parse(exercises()[key].right[0]))
    assert sum(written.count > 0 for written in texts) >= 8


@pytest.mark.parametrize("key", PREDICTED)
def test_a_prediction_cannot_be_asked_of_what_checks_it(key: str) -> None:
    """The cell has no more than the imports that each cell has, and what it defines does not change what is right."""
    exercise = exercises()[key]
    assert not exercise.setup
    helpers = [node.name for node in ast.parse(exercise.inputs).body if isinstance(node, ast.FunctionDef)]
    for name in helpers:
        assert (error := grade(exercise, f"{name}\n{exercise.right[0]}").error) is not None
        assert error.type == "NameError"


@pytest.mark.parametrize(
    ("key", "mine"),
    [
        ("5.2", "eval = lambda text, names: names['t']\nbelief = dict.fromkeys({keys}, 'same')"),
        ("18.4", "float = lambda text: 0.0\nbecomes = dict.fromkeys({keys}, 'zero')"),
        ("14.2", "sum = len\ncounts = dict.fromkeys({keys}, 0)\nsum = lambda numbers: 0"),
        ("17.4", "eval = lambda text, names: 0 * names['x']\nslopes = dict.fromkeys({keys}, 0.0)"),
    ],
)
def test_what_a_cell_defines_does_not_change_what_is_right(key: str, mine: str) -> None:
    exercise = exercises()[key]
    (table,) = (node for node in ast.walk(ast.parse(exercise.given)) if isinstance(node, ast.Dict))
    done = grade(exercise, mine.format(keys=[ast.literal_eval(each) for each in table.keys if each]))
    assert done.error is None, str(done)
    assert not done.solved, str(done)


def test_a_result_of_another_type_is_said_in_words() -> None:
    done = grade(exercise(true("y.data_ptr() == 0"), inputs="x = 1", drive="y = f(x)"), "def f(x):\n    return 2.5\n")
    assert [mark.reason and mark.reason.en for mark in done.marks] == ["a value of type float has no `data_ptr`"]


def test_a_slope_that_is_left_to_autograd_has_nothing_that_the_task_asks_for() -> None:
    autograd = (
        "    x = x.double().detach().requires_grad_(True)\n    return torch.autograd.grad(function(x), x)[0].item()\n"
    )
    done = grade(exercises()["8.4"], "def slope(function, x):\n" + autograd)
    assert [mark.holds for mark in done.marks] == [False, True, False, False, False]
    reasons = [mark.reason.en for mark in done.marks if mark.reason]
    assert "autograd computed it" in reasons[0], "its slopes are exact, and no reason says that they are not"
    assert not any("off by" in reason for reason in reasons)
    float32 = "    h = 1e-3\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n"
    said = [
        mark.reason.en for mark in grade(exercises()["8.4"], "def slope(function, x):\n" + float32).marks if mark.reason
    ]
    assert said
    assert all("the slope is off by up to" in reason and "1e-08 is allowed" in reason for reason in said)


def test_memory_is_looked_at() -> None:
    checks = (shared("x", "y"), not_shared("x", "y"), unchanged("x"), in_place("x"))
    assert marks("f = lambda x: x.view(2, 2)", *checks) == [True, False, True, False]
    assert marks("f = lambda x: x.mul_(2)", *checks) == [True, False, False, True]
    assert marks("f = lambda x: x * 2", *checks) == [False, True, True, False]
    assert marks("f = lambda x: x.numpy()", *checks) == [True, False, True, False]
    around = "def f(x):\n    x.untyped_storage().fill_(0)\n"
    assert marks(around, unchanged("x"), inputs="x = torch.randn(4)[:2]") == [False]


def test_storages_are_counted_while_driven() -> None:
    checks = (storages(0, elements=2), storages(1, elements=2), storages(2, elements=2))
    cell = "big = torch.randn(9)\ndef f(x):\n    {}\n"
    assert marks(cell.format("return x.mul_(x.mean())"), *checks) == [True, True, True]
    assert marks(cell.format("return x - 1"), *checks) == [False, True, True]
    assert marks(cell.format("return (x - 1) * 2"), *checks) == [False, False, True]
    assert marks(cell.format("return 1 / 0"), *checks) == [False, False, False]


TRAIN = """
def train(model, optimizer, data):
    for x in data:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step(){}
"""


@pytest.mark.parametrize("optimizer", ["SGD(model.parameters(), lr=0.1, momentum=0.9)", "AdamW(model.parameters())"])
def test_updates_are_counted(optimizer: str) -> None:
    inputs = f"model = nn.Linear(2, 1)\noptimizer = torch.optim.{optimizer}\ndata = torch.randn(3, 4, 2)"
    checks, drive = (
        (updated_once(None, 3), updated_once("model.weight", 3), updated_once("nobody", 3)),
        "train(model, optimizer, data)",
    )
    assert marks(TRAIN.format(""), *checks, inputs=inputs, drive=drive) == [True, True, False]
    assert marks(TRAIN.format("\n        optimizer.step()"), *checks, inputs=inputs, drive=drive) == [
        False,
        False,
        False,
    ]
    assert marks(TRAIN.format("\n        break"), *checks, inputs=inputs, drive=drive) == [False, False, False]


def test_errors_and_findings_are_told_apart() -> None:
    checks = (
        runs(),
        fails("saved-tensor-modified"),
        fails("RuntimeError"),
        finds("saved-tensor-overwritten"),
        finds_nothing(),
        finds_nothing("PL401"),
    )
    drive = "y = f(x)\ny.sum().backward()"
    inputs = "x = torch.randn(4, requires_grad=True)"
    assert marks("f = lambda x: x.exp().mul_(2)", *checks, inputs=inputs, drive=drive) == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert marks("f = lambda x: x.exp().mul(2)", *checks, inputs=inputs, drive=drive) == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    assert marks("raise RuntimeError", *checks, inputs=inputs, drive=drive) == [False] * 6


def test_what_always_raises_does_not_refuse() -> None:
    """A type is many errors: “refused” is what raises with the change, and does not without it."""
    check, drive = (
        fails("RuntimeError", drive="y = f(x)\nx.mul_(2)\ny.sum().backward()"),
        "y = f(x)\ny.sum().backward()",
    )
    inputs = "x = torch.rand(4, requires_grad=True) * 1"
    assert marks("f = lambda x: x.square()", check, inputs=inputs, drive=drive) == [True]
    assert marks("f = lambda x: x * 2", check, inputs=inputs, drive=drive) == [False]
    assert marks("f = lambda x: x.detach()", check, inputs=inputs, drive=drive) == [False]
    given = exercises()
    assert [m.holds for m in grade(given["17.1"], given["17.1"].given).marks] == [True, False, False, False, True]
    assert [m.holds for m in grade(given["19.2"], given["19.2"].wrong[0]).marks] == [
        False,
        True,
        False,
        True,
        True,
        False,
    ]


def test_what_surprises_a_belief_raises_on_torch_and_not_in_its_world() -> None:
    drive, check = "y = f(torch.ones(2, requires_grad=True))\ny.sum().backward()", surprises("no_grad_hides_versions")
    edit = "def f(x):\n    y = x.exp()\n    with torch.no_grad():\n        y.{}\n    return y\n"
    assert marks(edit.format("mul_(2)"), check, drive=drive) == [True]
    assert marks(edit.format("mul(2)"), check, drive=drive) == [False]
    assert marks("def f(x):\n    raise ValueError\n", check, drive=drive) == [False]
    elsewhere = "def f(x):\n    y = x.exp()\n    if 'torch' in repr(type(x))[:15]:\n        y.mul_(2)\n    return y\n"
    assert marks(elsewhere, check, drive=drive) == [False], "it asks where it runs"
    assert marks("f = = 2", check, drive=drive) == [False]
    assert marks("def f(x):\n    torch.linalg.eigvalsh(x)\n", check, drive=drive) == [False]


def test_a_property_about_random_inputs_is_not_met_by_a_constant() -> None:
    assert marks("f = lambda x: torch.zeros(4)", equal("y", "2 * x", seeds=(1, 2))) == [False]
    assert marks("f = lambda x: x + x", equal("y", "2 * x", seeds=(1, 2)), true("y.ndim == 1"), true("0 * y")) == [
        True,
        True,
        False,
    ]


def test_a_check_may_ask_step_by_step() -> None:
    def own(attempt):
        a = attempt.call("f", "torch.ones(2)")
        b = attempt.call("f", "torch.zeros(2)", seed=int(a[0]))
        assert attempt.solution.call("f", "2") is not None
        return bool(b[0] == 0) or T(en="no", zh="否")

    def broken(attempt):
        return attempt.value("y")["no such key"]

    done = grade(
        exercise(own, broken, inputs="x = 1", drive="y = f(x)", right="f = lambda x: x"), "f = lambda x: 2 * x"
    )
    assert [mark.holds for mark in done.marks] == [True, False]
    assert "TypeError" in done.marks[1].reason.en  # type: ignore[union-attr]


def arguments(exercise: Exercise) -> Iterator[tuple[ast.FunctionDef, str, object]]:
    """Each number that the exercise's own run hands to the function of the right answer: the function,
    the parameter and the number.
    """
    functions = {each.name: each for each in ast.parse(exercise.right[0]).body if isinstance(each, ast.FunctionDef)}
    calls = [
        node
        for node in ast.walk(ast.parse(exercise.drive))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for call in calls:
        if (function := functions.get(call.func.id)) and not function.args.vararg:  # type: ignore[attr-defined]
            texts = [ast.unparse(argument) for argument in call.args]
            request = Request(
                exercise.right[0], exercise.setup, exercise.inputs, exercise.drive, expressions=tuple(texts)
            )
            values = observe(request).values
            for parameter, text in zip(function.args.args, texts, strict=False):
                if type(values[text]) in (int, float):
                    yield function, parameter.arg, values[text]


@pytest.mark.parametrize("key", exercises())
def test_no_number_that_the_grader_uses_stands_for_an_argument(key: str) -> None:
    """An answer that has the number of the example in the place of its argument is not right."""
    exercise = exercises()[key]
    lines = exercise.right[0].splitlines(keepends=True)
    for function, name, value in arguments(exercise):
        first = function.body[0]
        fitted = [
            *lines[: first.lineno - 1],
            f"{' ' * first.col_offset}{name} = {value!r}\n",
            *lines[first.lineno - 1 :],
        ]
        assert not grade(exercise, "".join(fitted)).solved, (name, value)


def test_what_the_inputs_name_is_not_there_for_the_cells_functions() -> None:
    inputs = "x = torch.ones(2)\nsecret = torch.zeros(2)"
    assert marks("f = lambda x: secret", true("not y.any()"), inputs=inputs) == [False]
    assert marks(
        "def f(y):\n    global x\n    x = y * 2\n    return x", equal("x", "torch.ones(2)"), inputs=inputs
    ) == [True]
    assert marks(
        "calls = 0\ndef f(x):\n    global calls\n    calls += 1\n    return x", equal("calls", "1"), inputs=inputs
    ) == [True]


def test_loops_and_optimizers_are_seen() -> None:
    larger = "x = torch.randn(9)"
    assert marks("f = lambda x: x * 2", as_many_calls(larger)) == [True]
    assert marks("f = lambda x: torch.stack([a * 2 for a in x])", as_many_calls(larger)) == [False]
    assert marks("f = lambda x: 1 / 0", as_many_calls(larger)) == [False]
    for loop in (
        (
            "def f(x):\n"
            "    found = []\n"
            "    sorted(x.tolist(), key=lambda n: found.append(n * 2) or 0)\n"
            "    return torch.tensor(found)"
        ),
        "def f(x):\n    return torch.tensor(g(x.tolist()))\ndef g(x):\n    return [x[0] * 2, *g(x[1:])] if x else []",
        "for _ in (1,):\n    def f(x):\n        return torch.tensor([n * 2 for n in x.tolist()])",
    ):
        assert marks(loop, as_many_calls(larger)) == [False]


def test_all_of_several_checks_have_to_hold_and_the_first_says_why() -> None:
    assert marks("f = lambda x: x * 2", every(runs(), true("True"))) == [True]
    assert marks("f = lambda x: x * 2", every(runs(), true("False"), true("True"))) == [False]


def test_an_argument_is_as_it_was_before_backward_too() -> None:
    drive = "w = torch.ones(4, requires_grad=True)\ny = x.clone() * w\n"
    check = unchanged(
        "x", drive=f"{drive}x += 1\ny.register_hook(lambda g: x.sub_(1).sum() * 0 + g)\ny.sum().backward()"
    )
    assert marks("f = None", check) == [False]


def test_an_error_that_ends_an_iteration_has_its_own_type() -> None:
    assert marks("def f(x):\n    return next(iter([]))", fails("StopIteration"), fails("RuntimeError")) == [True, False]


def test_a_mode_that_is_not_left_is_an_error() -> None:
    cell = (
        "from torch.utils.flop_counter import FlopCounterMode\n"
        "FlopCounterMode(display=False).__enter__()\n"
        "f = lambda x: x"
    )
    program = f"from tests.lessons.test_exercises import marks, runs\nprint(marks({cell!r}, runs()))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert (
        done.stdout == "[False]\n"
    )  # in a process of its own: the hooks that this mode puts on all modules stay there
    assert marks("torch.set_default_device('cpu')\nf = lambda x: x", runs()) == [True]
    step = (
        "def f(x):\n    p = nn.Parameter(x)\n    p.grad = torch.ones(4)\n    torch.optim.SGD([p]).step()\n    return p"
    )
    assert marks(step, no_optimizer()) == [False]
    assert marks("f = lambda x: x", no_optimizer()) == [True]


def test_a_property_that_does_not_hold_says_why_and_keeps_the_answer() -> None:
    equal_to_all = "class Same:\n    def __eq__(self, other):\n        return True\nf = lambda x: Same()"
    assert marks(
        equal_to_all,
        true("y == 42"),
        true("x == 1 and y == 42"),
        true("y is not None"),
        inputs="x = 1",
        drive="y = f(x)",
    ) == [
        False,
        False,
        True,
    ]
    done = grade(
        exercise(true("y == 42"), true("y and x"), inputs="x = 1", drive="y = f(x)", right="f = lambda x: 42"),
        "f = lambda x: 0",
    )
    assert [mark.reason.en for mark in done.marks] == ["the result is 0", "this is not true of your cell"]  # type: ignore[union-attr]


def test_runs_that_differ_in_what_is_asked_of_them_are_one_run() -> None:
    calls = []

    def runner(requests):
        calls.extend(requests)
        return [observe(request) for request in requests]

    grade(
        exercise(true("x.ndim == 1", seeds=(0,)), true("x.sum() < 99", seeds=(0,)), inputs="x = torch.ones(2)"),
        "",
        runner,
    )
    assert len([r for r in calls if not r.watched]) == 1
    assert len([r for r in calls if r.watched]) == 1


# ---------------------------------------------------------------- what the learner sees


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from pitfall_lab.notebook import fix_runs, magic

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fix_runs.Bench, "warm", lambda self: None)
    shell.run_line_magic("load_ext", "pitfall_lab")
    yield shell
    magic.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


def test_the_magic_grades_hints_and_keeps(
    shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise = exercises()["5.1"]
    cell = "%%exercise 5.1\n{}"
    unsolved = shell.run_cell(cell.format(exercise.given)).result
    assert (unsolved.held, unsolved.hints) == (2, 0)
    assert progress.load(tmp_path).entries == ()
    assert [shell.run_cell(cell.format(exercise.wrong[n])).result.hints for n in range(4)] == [1, 2, 3, 3]
    solved = shell.run_cell(cell.format("print('I think')\n" + exercise.right[0])).result
    assert solved.solved
    assert "I think\n" in capsys.readouterr().out
    assert "stretch" not in shell.user_ns
    kept = progress.load(tmp_path).best()["05", "5.1"]
    assert kept.solved
    assert len(progress.load(tmp_path).entries) == 5


def test_a_name_of_an_exercise_is_said_to_be_elsewhere(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell(f"%%exercise 5.1\n{exercises()['5.1'].right[0]}")
    shell.run_cell("stretch(1)")
    assert "`stretch` was defined in the cell of exercise 5.1" in capsys.readouterr().out
    shell.run_cell("nothing_of_the_kind")
    assert "exercise 5.1" not in capsys.readouterr().out


def test_a_hint_can_be_asked_for_in_chinese(shell: InteractiveShell) -> None:
    exercise = exercises()["12.4"]
    result = shell.run_cell(f"%%exercise 12.4 --hint --language zh\n{exercise.given}").result
    assert f"提示 1/3：{exercise.hints[0].zh}" in str(result).replace(" ：", "：").replace("： ", "：")
    assert "4 项检查中有 0 项通过" in str(result)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("99.1", "there is no exercise 99.1; there are 1.1"),
        ("12,3", "there is no exercise 12,3; write 12.3"),
        ("", "required"),
        ("5.1 --colour", "unrecognized"),
        ("'5.1", "quotation"),
    ],
)
def test_words_that_are_not_understood_get_one_sentence(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert shell.run_cell(f"%%exercise {line}\nx = 1").success
    printed = capsys.readouterr().out
    assert printed.startswith("This cell was not graded: ")
    assert said in printed
    assert len(printed.splitlines()) == 1


def test_a_program_in_a_cell_is_checked_and_left_for_the_cells_below(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import torch\nw = torch.ones(2, requires_grad=True)\nw += 1\n"
    shell.run_cell(f"%%check leaf.py\n{program}")
    assert "leaf.py:3:1: error PL201" in capsys.readouterr().out
    assert shell.user_ns["program"] == program
    assert [finding.rule for finding in shell.user_ns["findings"]] == ["PL201"]
    assert "w" not in shell.user_ns
    shell.run_cell("%%check leaf.py\nw = = 2\n")
    shell.run_cell("%%check\nw = 2\n")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2, said
    assert said[1].startswith("This program was not checked: ")


def test_a_figure_with_sliders_has_its_first_drawing_for_a_page_without_a_kernel(shell: InteractiveShell) -> None:
    import matplotlib.pyplot as plt

    import pitfall_lab

    drawn = []

    def draw(height: int) -> object:
        figure, axes = plt.subplots()
        axes.plot([0, height])
        drawn.append(height)
        return pitfall_lab.show_figure(figure, f"A line that rises to {height}.")

    played = pitfall_lab.play(draw, height=(1, 5, 1))
    data, _ = played._repr_mimebundle_()
    assert "A line that rises to 3." in data["text/plain"]
    assert "<img" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data
    played._live.children[0].value = 5
    assert drawn == [3, 5]
    assert played._live.auto_display, "else the sliders move and nothing is drawn"

    figure, _ = plt.subplots()
    coloured = pitfall_lab.show_figure(figure, "A field of yellow.", as_drawn=True)
    assert 'class="pl-figure pl-as-drawn"' in coloured._repr_html_(), "its colours stay in a dark theme"
    assert 'class="pl-figure"' in data["text/html"]

    pictured = pitfall_lab.play(
        lambda rows: pitfall_lab.show_broadcast((rows,), (3, 1)) if rows > 1 else None, rows=(1, 3, 1)
    )
    assert pictured._live.result._repr_html_() in pictured._repr_mimebundle_()[0]["text/html"]
    assert not hasattr(pictured._live.result, "_repr_mimebundle_")
    pictured._live.children[0].value = 1
    assert pictured._live.result is None


def test_a_first_drawing_that_raises_is_an_error_and_one_that_prints_is_nothing(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib.pyplot as plt

    import pitfall_lab

    kept = plt.figure()

    def draw(height: int) -> object:
        plt.subplots()
        raise RuntimeError(f"no line of height {height}")

    with pytest.raises(RuntimeError, match="no line of height 3"):
        pitfall_lab.play(draw, height=(1, 5, 1))
    assert plt.get_fignums() == [kept.number], (
        "else the notebook shows an empty figure, or loses one that the drawing did not open"
    )
    plt.close(kept)
    capsys.readouterr()

    said = pitfall_lab.play(lambda height: print("height", height), height=(1, 5, 1))
    bundle = said._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert said._live.result is None


def test_a_result_is_shown_escaped_and_each_property_with_its_reason() -> None:
    asked = exercise(true("x == '<b>'"), true("x.y"), true("x.z"), right="x = '<b>'")
    done = grade(asked, "import warnings\nwarnings.warn('<i>')\nx = '<b>'\nundefined")
    shown = done._repr_mimebundle_()
    assert "&lt;i&gt;" in shown["text/html"]
    assert "<i>" not in shown["text/html"]
    reason = "line 4 raises NameError: name 'undefined' is not defined"
    assert [mark.reason and mark.reason.en for mark in done.marks] == [reason] * 3
    assert "UserWarning: <i>" in shown["text/plain"]


def test_a_progress_that_cannot_be_kept_is_said_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_entry: object) -> None:
        raise progress.ProgressError("The disk is full.")

    monkeypatch.setattr(progress, "keep", refuse)
    exercise = exercises()["5.2"]
    assert practice.Practice(None).grade(exercise, exercise.right[0]).solved
    assert "The disk is full." in capsys.readouterr().out


@pytest.mark.parametrize("key", [key for key, exercise in exercises().items() if exercise.hint_for])
def test_each_property_names_a_hint_or_none(key: str) -> None:
    exercise = exercises()[key]
    assert len(exercise.hint_for) == len(exercise.properties)
    assert set(exercise.hint_for) <= {0, 1, 2, 3}
    assert len(set(exercise.hint_for) - {0}) > 1


@pytest.mark.parametrize(
    ("key", "source", "first"),
    [
        (
            "2.2",
            (
                "def standardise(rows):\n"
                "    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True, correction=0)\n"
            ),
            "The standard deviations",
        ),
        ("2.2", "def standardise(rows):\n    return (rows - rows.mean(dim=1)) / rows.std(dim=1)\n", "Which shapes do"),
        (
            "2.2",
            (
                "def standardise(rows):\n    rows -= rows.mean(1, keepdim=True)\n"
                "    return rows / rows.std(1, keepdim=True)\n"
            ),
            "The standard deviations",
        ),
        ("1.4", exercises()["1.4"].wrong[0], "Only the first step is right?"),
        (
            "1.4",
            (
                "def train(x, y, w, rate, steps):\n    for _ in range(steps):\n        w.grad = None\n"
                "        ((x * w - y) ** 2).mean().backward()\n        with torch.no_grad():\n"
                "            w = w - rate * w.grad\n    return w\n"
            ),
            "Only the first step is right?",
        ),
        (
            "1.4",
            (
                "def train(x, y, w, rate, steps):\n    optimizer = torch.optim.SGD([w], lr=rate)\n"
                "    for _ in range(steps):\n        optimizer.zero_grad()\n"
                "        ((x * w - y) ** 2).mean().backward()\n        optimizer.step()\n    return w\n"
            ),
            "Three steps: a loss of one number",
        ),
        ("8.4", exercises()["8.4"].wrong[4], "`x = x.double()`"),
        ("8.4", exercises()["8.4"].right[0].replace(".item()", ""), "`x = x.double()`"),
        ("9.2", exercises()["9.2"].wrong[2], "A parameter whose `.grad` is None is skipped"),
        ("9.2", exercises()["9.2"].wrong[3], "A parameter whose `.grad` is None is skipped"),
        ("2.5", "def features(raw):\n    return torch.from_numpy(raw) / 255\n", "`batch / 255` makes new memory"),
        (
            "8.2",
            exercises()["8.2"].right[0].replace("create_graph", "retain_graph"),
            "Backward has to go through the slope",
        ),
        ("5.1", exercises()["5.1"].wrong[3], "Compute with `-` and `/`, which make new tensors, and return the last"),
        ("9.1", exercises()["9.1"].wrong[0], "What does `step` find in `.grad`, in the first round and in the second"),
        (
            "15.1",
            exercises()["15.1"].wrong[-1],
            "Go through the pieces in groups, `pieces[first : first + every]`. For",
        ),
        ("7.1", exercises()["7.1"].right[0].replace("whole.tolist()", "x.tolist()"), "Compute the loss from `x`"),
        ("10.4", exercises()["10.4"].wrong[0], "A leaf may be written under `torch.no_grad()`"),
        (
            "11.4",
            exercises()["11.4"].wrong[0],
            "`kept = kept * 0` makes a new tensor and moves a name; a write through",
        ),
        (
            "15.2",
            exercises()["15.2"].right[0].replace("w = w - lr", "w -= lr"),
            "Only the last line of the loop changes",
        ),
        ("15.3", exercises()["15.3"].wrong[2], "Three objects count or remember something"),
        ("18.1", "def activate(x, bias):\n    return 2 * torch.sigmoid(x) + bias\n", "sigmoid needs its result"),
    ],
)
def test_the_first_hint_is_about_what_failed(key: str, source: str, first: str) -> None:
    result = practice.Practice(None).grade(exercises()[key], source)
    assert not result.solved
    shown = [line for line in str(result).splitlines() if line.startswith("Hint ")]
    (number,) = [n for n, hint in enumerate(exercises()[key].hints, 1) if hint.en.startswith(first)]
    assert shown == [f"Hint {number} of 3: {exercises()[key].hints[number - 1].en}"]
    every = [line for line in str(replace(result, hints=3)).splitlines() if line.startswith("Hint ")]
    assert every == [f"Hint {n} of 3: {hint.en}" for n, hint in enumerate(exercises()[key].hints, 1)], "as before"


@pytest.mark.parametrize(
    ("key", "source", "reply"),
    [
        ("1.1", exercises()["1.1"].given, "no answer yet"),
        (
            "1.4",
            """def train(x, y, w, rate, steps):
    w = w.clone()
    for _ in range(steps):
        w = w - rate * torch.autograd.grad(((x * w - y) ** 2).mean(), w)[0]
    return w
""",
            "the returned w was computed from another tensor: a backward fills no `.grad` of it",
        ),
        ("5.3", "def move(t):\n    t.append(1)\n", "line 2 raises AttributeError"),
        (
            "9.3",
            """def counterexample():
    p = nn.Parameter(torch.ones(3))
    before, p.grad = p.detach().clone(), torch.zeros(3)
    torch.optim.LBFGS([p]).step(lambda: torch.zeros(()))
    return p, before
""",
            "the step of this optimizer cannot be repeated without a function (a closure): take another optimizer",
        ),
        (
            "10.1",
            exercises()["10.1"].right[0].replace("wrong gradient", "wrong"),
            'your answer is \'wrong\'; write "harmless", "raises" or "wrong gradient"',
        ),
        ("10.1", exercises()["10.1"].wrong[0].replace("raises", "Harmless. "), "your answer is 'Harmless. '"),
        (
            "11.4",
            "def spoil(kept):\n    kept.numpy()[:] = 0\n",
            "the version of h is still 0: nothing was written into",
        ),
        ("11.4", exercises()["11.4"].wrong[2], "the version of h is above 1"),
        ("12.1", exercises()["12.1"].right[0].replace("(16, 4)", "16"), "your answer is 16"),
        ("14.1", exercises()["14.1"].wrong[2], "two kinds give the same numbers: how many `nn.Linear(width, width)`"),
        (
            "14.1",
            """class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.places = {kind: n for n, kind in enumerate(kinds)}
        self.weights = nn.Parameter(torch.randn(len(kinds), width, width))
        self.biases = nn.Parameter(torch.zeros(len(kinds), width))
        self.head = nn.Linear(width, 1)

    def forward(self, x, kind):
        n = self.places[kind]
        return self.head(torch.tanh(x @ self.weights[n] + self.biases[n]))
""",
            "a parameter has another shape than the weights and biases of these linear layers",
        ),
        (
            "15.2",
            exercises()["15.2"].right[0].replace("w = w - lr", "w -= lr"),
            "your cell has written into it, as `w -= ...` does",
        ),
        (
            "17.1",
            "class Scale:\n    @staticmethod\n    def apply(t, factor, power):\n        return factor * t**power\n",
            "`Scale` is no subclass of `torch.autograd.Function` any more",
        ),
        (
            "18.2",
            exercises()["18.2"].wrong[0],
            "for 20 queries and 25 keys, 2 storages with at least 501 elements were",
        ),
        ("19.2", exercises()["19.2"].wrong[3], "it also raises where it should not: line 2 raises RuntimeError"),
    ],
)
def test_the_reply_names_what_is_the_matter(key: str, source: str, reply: str) -> None:
    said = [mark.reason.en for mark in grade(exercises()[key], source).marks if mark.reason]
    assert any(one.startswith(reply) for one in said), said
    assert not any("argument 'input'" in one for one in said), "that is the checker's own error"


def test_an_integer_in_place_of_a_tuple_of_one_is_a_question_of_form() -> None:
    given = exercises()["1.1"].right[0].replace("((4,), (1,), 4)", "(4, 1, 4)")
    assert "(write (4,), not 4: it is a tuple)" in str(grade(exercises()["1.1"], given))
    assert "look at the shape, the offset again" in str(
        grade(exercises()["1.1"], given.replace("(4, 1, 4)", "(4, (1,), 3)"))
    )
    assert "(write (3,), not 3: it is a tuple)" in str(
        grade(exercises()["2.1"], exercises()["2.1"].right[0].replace("(3,)", "3"))
    )


@pytest.mark.parametrize(
    ("key", "number", "share", "fails"),
    [
        ("5.1", 3, 2 / 3, {1}),  # solved but for the number to divide by
        ("5.4", 6, 3 / 4, {3}),  # right for a transposed view, and a slice with steps is as the given cell leaves it
        ("9.1", 0, 0.0, {0, 1, 2}),  # a reset between backward and step is no praise for its place
        ("9.2", 3, 2 / 3, {2}),  # the gradients that the others hold are part of the task
        ("9.2", 4, 1 / 3, {1, 2}),  # of several groups, the first alone
        ("9.2", 5, 2 / 3, {2}),  # several groups made one, with the options of the first
        ("8.3", 7, 2 / 3, {4}),  # the model stays in evaluation mode
        ("15.1", 2, 0.5, {2, 3, 6}),  # divided by `every`: other weights, but no leak
        ("15.1", 5, 2 / 3, {5, 6}),  # a leak
    ],
)
def test_what_is_said_to_fail_is_what_fails_and_the_rest_has_its_points(
    key: str, number: int, share: float, fails: set[int]
) -> None:
    exercise = exercises()[key]
    marks = grade(exercise, exercise.wrong[number]).marks
    assert {n for n, mark in enumerate(marks) if not mark.holds} == fails
    assert abs(earned(exercise, exercise.wrong[number], [mark.holds for mark in marks]) - share) < 0.01


def test_views_of_other_code_that_torch_cannot_give_a_node_do_not_fail_the_average():
    base = torch.randn(2, 3, requires_grad=True) * 1
    with torch.no_grad():
        view = base.view(6)
    base.mul_(2)
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        _ = view.grad_fn
    exercise = exercises()["11.2"]
    assert grade(exercise, exercise.right[0]).solved
