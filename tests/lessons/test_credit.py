"""What does not depend on the input earns nothing, in any exercise; a quarter of the bodies each day."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pitfall_lab.classroom.judge import known
from pitfall_lab.lessons.attempt import Observation
from pitfall_lab.lessons.credit import earned, had, had_beside, idle
from pitfall_lab.lessons.exercise import Exercise, Runner, grade
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.notebook import practice
from tests.turns import in_whole_runs, todays

BODIES = (
    "pass",
    "return True",
    "return 1",
    "return 0.0",
    "return []",
    "return torch.zeros(1)",
    "return torch.randn(3, 3)",
    "return torch.randn(5, 3, requires_grad=True)",
    "return torch.zeros(2), torch.ones(2)",
    "return {first}",
    "return {last}",
    "return torch.zeros_like({first})",
    "return torch.full_like({last}, 2.0)",
)
"""What each function of a cell may do instead of its work.

``first`` and ``last`` are its parameters, where it has some.
"""
TRIED = tuple(
    each
    for each in exercises().values()
    if any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(each.given)))
)


def with_bodies(given: str, body: str) -> str:
    """A cell whose functions, methods too, have this body; what a function without parameters
    would do with them is ``pass``.
    """
    tree = ast.parse(given)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            names = [each.arg for each in node.args.args if each.arg not in ("self", "ctx")]
            text = body.format(first=names[0], last=names[-1]) if names else "pass" if "{" in body else body
            node.body = ast.parse(f"def f():\n    {text}").body[0].body  # type: ignore[attr-defined]
    return ast.unparse(tree) + "\n"


def ignores_parameters(source: str) -> bool:
    """Whether each function of a cell with parameters is a single `return` of something
    without a name of the cell's.
    """
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.args.args]
    returned = [
        node.body[0].value for node in functions if len(node.body) == 1 and isinstance(node.body[0], ast.Return)
    ]
    names = {node.id for each in returned if each for node in ast.walk(each) if isinstance(node, ast.Name)}
    return bool(functions) and len(returned) == len(functions) and names <= {"torch", "True", "False"}


def points(exercise: Exercise, source: str) -> float:
    return earned(exercise, source, [mark.holds for mark in grade(exercise, source).marks])


@pytest.mark.parametrize("exercise", in_whole_runs(TRIED, of=4), ids=lambda exercise: exercise.key)
def test_what_does_not_depend_on_the_input_earns_nothing(exercise: Exercise) -> None:
    # Each exercise has other bodies today: all of them are tried, each in some exercises.
    cells = {
        body: with_bodies(exercise.given, body) for body in todays(BODIES, of=18, begin=TRIED.index(exercise), every=4)
    }
    assert {body: got for body, cell in cells.items() if (got := points(exercise, cell))} == {}
    assert points(exercise, exercise.given) == 0.0


CONSTANT = [(each, source) for each in exercises().values() for source in each.wrong if ignores_parameters(source)]


def test_the_answer_key_lists_no_constant_with_points() -> None:
    assert len(CONSTANT) > 5
    assert [(exercise.key, source) for exercise, source in CONSTANT if known(exercise, source).credit] == []


@pytest.mark.parametrize(
    ("key", "source", "share"),
    [
        (
            "6.2",
            "def leaves(result):\n    return sum(node is not None for node, _ in result.grad_fn.next_functions)\n",
            0.4,
        ),
        (
            "18.3",
            (
                "def scaled_gradient(w, loss_of, scale):\n"
                "    return torch.autograd.grad(loss_of(w) * scale, w)[0].float()\n"
            ),
            1 / 3,
        ),
        (
            "4.3",
            "def counterexamples():\n    return torch.zeros(1, 3, 1), torch.zeros(1, 1, 1)\n",
            0.5,
        ),  # it has no input
        # The given cell raises, so nothing has left `x.grad` alone.
        ("7.3", "def row(f, x, k):\n    f(x)[k].backward()\n    return x.grad\n", 1 / 2),
        # The given cell does nothing, so no gradient has memory of its own yet.
        (
            "19.3",
            (
                "def average(replicas, sizes):\n    for together in zip(*(net.parameters() for net in replicas)):\n"
                "        mean = sum(p.grad for p in together) / len(together)\n"
                "        for p in together:\n            p.grad = mean\n"
            ),
            1 / 3,
        ),
    ],
)
def test_an_answer_that_does_something_keeps_its_share_where_a_constant_would_be_right_in_the_same_cases(
    key: str, source: str, share: float
) -> None:
    assert points(exercises()[key], source) == pytest.approx(share)


def test_what_a_given_cell_that_works_has_is_lost_with_it() -> None:
    exercise = exercises()["5.1"]  # its function works on what it gets
    assert had(exercise)[:2] == (True, True)
    assert had_beside(exercise, [not it for it in had(exercise)]) == had(exercise)
    exercise = exercises()["7.3"]  # its function raises
    assert had(exercise) == had_beside(exercise, [False, True, True, True]) == (False, False, True, True)
    assert had_beside(exercise, [True, True, False, True]) == (False, False, False, True)


def test_the_notebook_says_why_what_holds_earns_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # tries are kept beside the notebook
    exercise = exercises()["8.3"]
    tried = practice.Practice(None)
    said = str(tried.grade(exercise, "def sensitivity(model, batch):\n    return torch.zeros(1)\n"))
    assert "✓" in said
    assert "What holds here also holds for an answer that does nothing, so it earns nothing." in said
    assert "(0 % of the points, if your teacher grades this)" in said
    half = (
        "def sensitivity(model, batch):\n"
        "    batch.requires_grad_(True)\n"
        "    return torch.autograd.grad(model(batch).sum(), batch)[0]\n"
    )
    assert "earns nothing." not in str(tried.grade(exercise, half))
    assert "什么都不做" in str(
        tried.grade(exercise, "def sensitivity(model, batch):\n    return torch.zeros(1)\n", "zh")
    )


def test_work_on_an_argument_counts_also_where_nothing_is_returned() -> None:
    exercise = exercises()["7.2"]
    silent = exercise.right[0].replace("    return ", "    result = ")
    assert silent != exercise.right[0]
    assert 0 < points(exercise, silent) < 1


def test_what_a_learners_process_says_that_it_returned_is_only_taken_as_data() -> None:
    exercise = exercises()["8.3"]
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    forged: list[object] = [
        "no list",
        [["sensitivity"]],
        [["sensitivity", {"argument": "0.__class__"}]],
        [["sensitivity", deep]],
    ]
    forged += [[["sensitivity", {"stored": "many", "values": 1}]], [["other", 1]], [["sensitivity", "'{0}' {x} \" \\"]]]
    holds = [True, False, True, True, True, True, True]

    def says(answer: object) -> Runner:
        return lambda requests: [Observation(values={"_returned": answer}) for _ in requests]

    for answer in forged:
        assert len(idle(exercise, "", holds, says(answer))) == len(holds)
