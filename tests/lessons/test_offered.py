"""Reasons in a lesson's own words: an expression judges each, exactly one is right, and it
decides between the outcomes.
"""

from __future__ import annotations

from typing import Any

import pytest

from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.misconceptions import Misconception
from pitfall_lab.lessons.mistakes import Mistake, misread
from pitfall_lab.lessons.offered import Evaluations, Offered, judged
from pitfall_lab.lessons.question import pose
from pitfall_lab.lessons.run_here import execute, failing_line
from pitfall_lab.shadow import TORCH
from tests.lessons.unread import Asked, asked

PROGRAM = """import torch
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = x * 3
y = torch.sigmoid(h)
for _ in range(2):
    z = h[:1]
with torch.no_grad():
    h.mul_(2)
y.sum().backward()"""


def holds(line: int, expression: str, program: str = PROGRAM) -> bool:
    """Return what the expression is after the line of the program."""
    look = Evaluations([(line, "", "", expression)])
    execute(program, worlds.NAME, look)
    return look.held[0]


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        (3, "not savers(h) and not savers(x)"),
        (4, 'savers(y) == ["SigmoidBackward0"] and not savers(h)'),
        (9, "not savers(y)"),  # backward has freed it
        (6, "shares(z, h) and not shares(h, x)"),
        (3, "slope(h, x) == [3, 3]"),
        (4, "slope(x.detach(), x) is None and slope(x * 1, y) is None"),
        (9, 'slope(y, x) == "freed"'),
        (8, 'changed("h") == [8] and changed("x") == []'),
    ],
)
def test_what_an_expression_sees(line: int, expression: str) -> None:
    assert holds(line, expression)


def test_a_slope_says_that_a_saved_tensor_was_written() -> None:
    assert holds(
        3,
        'slope(y, x) == "overwritten"',
        "import torch\nx = torch.ones(1, requires_grad=True); y = x.exp()\ny.detach().zero_()",
    )


def test_a_sentence_says_the_line_or_the_loop_that_it_is_about() -> None:
    offered: list[Offered] = [(3, "a", "甲", "True"), (6, "b", "乙", "False")]
    assert [(text.en, text.zh, right) for text, right in judged(PROGRAM, offered)] == [
        ("after line 3, a", "第 3 行之后，甲", True),
        ("after the loop of lines 5 to 6, b", "第 5 至 6 行的循环之后，乙", False),
    ]


def test_a_reason_may_be_about_the_line_that_raises_and_is_true_in_the_world_where_it_does_not() -> None:
    program = "import torch\ncounts = torch.tensor([3, 4])\ncounts *= 0.5\nafter = counts"
    offered: list[Offered] = [
        (3, "torch refuses", "torch 拒绝", 'raised == "RuntimeError" and counts.tolist() == [3, 4]'),
        (3, "a new tensor is made", "产生了新张量", 'raised == "" and counts.tolist() == [1.5, 2]'),
    ]
    assert [(text.en, right) for text, right in judged(program, offered)] == [
        ("in line 3, torch refuses", True),
        ("in line 3, a new tensor is made", False),
    ]
    question = pose(program, "counts", offered, ["augmented_assignment_rebinds"])
    wrong = next(reason for reason in question.reasons if not reason.right)
    assert [belief.key for belief in wrong.beliefs] == ["augmented_assignment_rebinds"]
    (belief,) = wrong.beliefs
    assert [reason.holds(Mistake(program, (belief,))) for reason in question.reasons if reason.right] == [False]


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ([(3, "a", "甲", "True"), (3, "b", "乙", "True")], "one reason has to be true"),
        ([(3, "a", "甲", "False"), (3, "b", "乙", "0")], "one reason has to be true"),
        ([(3, "a", "甲", "True"), (5, "b", "乙", "False")], "a line in which no statement ends"),
        ([(3, "a", "甲", "True"), (30, "b", "乙", "False")], "a line in which no statement ends"),
    ],
)
def test_a_mistake_of_the_lesson_is_said(offered: list[Offered], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        judged(PROGRAM, offered)


def test_a_reason_is_answered_by_the_lesson_or_by_the_only_misreading_that_makes_it_true() -> None:
    offered: list[Any] = [
        (3, "h is three times x", "h 是 x 的三倍", "h[0] == 3"),
        (3, "h is twice x", "h 是 x 的两倍", "h[0] == 2"),
        (3, "h is x", "h 就是 x", "h[0] == 1"),
        (3, "h is larger than 3", "h 大于 3", "h[0] > 3", "An answer of its own.", "自己的回答。"),
    ]
    taken: Any = [
        (3, "h = x * 2", "Not twice.", "不是两倍。"),
        (3, "h = x * 1", "Not x.", "不是 x。"),
        (3, "h = x / 1", "Not divided.", "没有除。"),
        (3, "h = x * 9", "Not nine times.", "不是九倍。"),
    ]
    question = pose(PROGRAM.partition("with")[0], "h", offered, beliefs=(), taken_for=taken)
    said = {r.text.en.partition(", ")[2]: (r.said and r.said.en, r.own) for r in question.reasons if not r.right}
    assert said == {
        "h is twice x": ("Not twice.", False),
        "h is x": (None, False),
        "h is larger than 3": ("An answer of its own.", True),
    }


def test_a_question_asks_for_the_offered_reasons_in_an_order_of_its_own() -> None:
    offered: list[Offered] = [(3, "no node has saved h", "没有节点保存 h", "not savers(h)")]
    offered += [(3, f"{n} nodes have saved h", f"{n} 个节点保存了 h", f"len(savers(h)) == {n}") for n in (1, 2, 3)]
    question = pose(PROGRAM, "x.grad", offered)
    assert {(r.text.en, r.right) for r in question.reasons} == {
        ("after line 3, no node has saved h", True),
        *((f"after line 3, {n} nodes have saved h", False) for n in (1, 2, 3)),
    }
    first = {pose(PROGRAM, "x.grad", offered, learner=str(n)).reasons[0].text.en for n in range(9)}
    assert len(first) > 1


# ---------------------------------------------------------------- the course

OFFERED = [one for one in asked() if "because" in one.named]


def believed(one: Asked, belief: Misconception, number: int) -> bool | None:
    """Return whether a reason is true for who has this belief; None where the engine has no model of it."""
    look, program = Evaluations(one.named["because"]), one.arguments[0].strip("\n")
    names, error, _ = worlds.run(program, belief(TORCH), look) or ({}, None, "")
    look.end(error, failing_line(error, worlds.NAME), names)
    return look.held.get(number)


def taken(one: Asked, line: int, text: str, number: int) -> bool | None:
    """Return whether a reason is true for who reads this line so; None if the statement does not run then."""
    (read,) = misread(one.arguments[0].strip("\n"), [(line, text)])
    look = Evaluations(one.named["because"])
    execute(read.program, worlds.NAME, look)
    return look.held.get(number)


def test_the_right_reason_is_false_for_each_natural_mistake_that_is_offered() -> None:
    ruled_out: dict[str, list[Any]] = {}
    for one in OFFERED:
        question = one.pose()
        right = next(n for n, (_, held) in enumerate(judged(question.program, one.named["because"])) if held)
        verdicts = ruled_out.setdefault(one.name, [])
        for prediction in question.predictions:
            if prediction.without and prediction.without.said:
                # the line stands for what a learner thinks of the whole program, and the lesson answers to that itself
                continue
            if prediction.without and prediction.without.taken_for:
                verdicts.append(taken(one, prediction.without.line, prediction.without.taken_for, right))
            elif not prediction.without:
                verdicts += [believed(one, belief, right) for belief in prediction.beliefs]
    assert {name: verdicts for name, verdicts in ruled_out.items() if True in verdicts} == {}
    assert len(ruled_out) > 15
    assert sum(verdict is False for verdicts in ruled_out.values() for verdict in verdicts) > 20


def test_the_offered_reasons_are_short_and_differ_in_both_languages() -> None:
    for one in OFFERED:
        reasons = one.pose().reasons
        assert len({r.text.en for r in reasons}) == len({r.text.zh for r in reasons}) == len(reasons) == 4, one.name
        assert all(len(r.text.en) < 110 and r.text.zh != r.text.en for r in reasons), one.name
