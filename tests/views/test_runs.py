"""What the count of a line's runs is one of: rounds of a loop, or times that it ran."""

from __future__ import annotations

import pytest

from pitfall_lab.trace import Failure, Outcome, Source, Span, Trace
from pitfall_lab.views.runs import LineRuns, runs

TRAINING = """def train(model):
    for epoch in range(3):
        with open("log") as log:
            loss = model(epoch)
        if loss > 1:
            print(loss)
        loss.backward(
        )
model = lambda x: x
train(model)
"""


def of(text: str, raised: int | None = None) -> LineRuns:
    span = Span(raised, 0, raised, 4) if raised is not None else None
    outcome = Outcome("raised", Failure("RuntimeError", "no", "other", span=span)) if raised is not None else Outcome()
    return runs(Trace(sources=(Source("program.py", text),), outcome=outcome))


def test_what_stands_straight_in_a_loop_that_is_entered_once_runs_once_a_round():
    assert of(TRAINING) == {"rounds": [[[(3, 3), (4, 4), (7, 8)]]], "inner": [[9]]}


@pytest.mark.parametrize(
    "text",
    [
        f"{TRAINING}train(model)\n",
        TRAINING.replace("train(model)\n", "for fold in range(2):\n    train(model)\n"),
        TRAINING.replace("train(model)\n", "runs = [train(model) for fold in range(2)]\n"),
        TRAINING.replace("train(model)\n", "def main():\n    train(model)\nmain()\nmain()\n"),
        TRAINING.replace("train(model)\n", "list(map(train, [1, 2]))\n"),
        "for a in range(2):\n    for b in range(2):\n        print(a, b)\n",
        "while True:\n    if done():\n        break\n    work()\n",
        "for kind in kinds:\n    match kind:\n        case 1:\n            work()\n",
        "this is no program",
    ],
)
def test_where_a_count_may_be_of_several_loops_no_line_is_a_round(text):
    last = text.count("\n") if "fold in range(2):\n" in text else 0  # the outer loop has rounds of its own
    assert of(text)["rounds"] == [[[(last, last)]] if last else []]


def test_a_loop_in_a_function_of_a_function_that_runs_once_has_rounds():
    text = TRAINING.replace("train(model)\n", "def main():\n    train(model)\nmain()\n")
    assert of(text)["rounds"] == [[[(3, 3), (4, 4), (7, 8)]]]


def test_behind_the_line_that_raised_the_last_round_is_missing():
    assert of(TRAINING, raised=4)["rounds"] == [[[(3, 3), (4, 4)]]]
    assert of(TRAINING, raised=10)["rounds"] == [[[(3, 3), (4, 4), (7, 8)]]]


def test_the_statements_of_two_loops_are_told_apart_and_a_with_on_one_line_has_no_head():
    text = "for a in range(2):\n    one(a)\n    with two(a): three(a)\nfor b in range(3):\n    four(b)\n"
    assert of(text)["rounds"] == [[[(2, 2), (3, 3)], [(5, 5)]]]
