"""The questions of the course cannot be answered without reading, and each has exactly one right
outcome and one right reason.
"""

from __future__ import annotations

import inspect
import re

import pytest

from pitfall_lab.lessons import balance, worlds
from pitfall_lab.lessons import question as asking
from pitfall_lab.lessons.doubts import Doubts
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception
from pitfall_lab.lessons.mistakes import Mistake, misread, slips
from pitfall_lab.lessons.offered import Evaluations, in_world, judged
from pitfall_lab.lessons.program_facts import ProgramFact, facts, loops, watched
from pitfall_lab.lessons.question import Prediction, Question, pose
from pitfall_lab.lessons.reasons import OTHERWISE
from pitfall_lab.lessons.run_here import execute
from pitfall_lab.shadow import TORCH
from tests.lessons.unread import (
    POINTS,
    STRATEGIES,
    Asked,
    Seen,
    always_the_same,
    asked,
    borne_out,
    clicked,
    scores,
    seen,
    sheets,
)

Posed = list[tuple[Asked, Question]]


@pytest.fixture(scope="module")
def posed() -> Posed:
    return [(one, one.pose()) for one in asked()]


@pytest.mark.parametrize("part", [0, 1])
def test_a_student_who_does_not_read_gets_no_further_than_by_guessing(posed: Posed, part: int) -> None:
    found = [sheet for one in posed if (sheet := sheets(*one)[part]) is not None]
    assert len(found) >= 70
    above = scores([seen(sheet) for sheet in found])
    assert max(above.values()) <= POINTS, above


def test_who_clicks_the_same_for_every_claim_gets_at_most_half() -> None:
    decided = clicked()
    assert len(decided) == 20
    assert sum(map(len, decided.values())) > 120
    assert always_the_same(decided) == []


def test_the_student_who_always_clicks_the_same_is_seen() -> None:
    assert borne_out(["wrong", "misleading", "depends", "correct"]) == {"right": 1, "wrong": 2, "depends": 2}
    halves = {"05": ["wrong", "correct"], "06": ["correct", "wrong", "depends"]}
    assert always_the_same(halves) == []
    assert always_the_same({**halves, "06": ["wrong", "misleading", "correct"]}) == [
        "all: always “wrong” is borne out by 3 of 5"
    ]
    assert always_the_same({**halves, "07": ["correct"] * 3}) == [
        "all: always “right” is borne out by 5 of 8",
        "07: always “right” is borne out by 3 of 3",
    ]


def test_a_question_has_one_right_outcome_and_one_right_reason_of_four(posed: Posed) -> None:
    for one, question in posed:
        assert [r.right for r in question.reasons].count(True) == 1, one.name
        assert len({r.text.en for r in question.reasons}) == len({r.text.zh for r in question.reasons}) == 4, one.name
        if question.kind == "value":
            assert [c.right for c in question.choices].count(True) == 1, one.name
            assert len({c.text.en for c in question.choices}) == len(question.choices) in (3, 4), one.name


def _natural(found: Prediction) -> bool:
    return bool((found.beliefs and not found.both) or (found.without and found.without.taken_for))


def test_a_natural_mistake_is_among_the_outcomes(posed: Posed) -> None:
    assert [one.name for one, question in posed if not any(map(_natural, question.predictions))] == []


def natural_endings(one: Asked) -> list[str]:
    """Return the answers that a single belief or a line that the lesson names leads to."""
    names = inspect.signature(pose).bind(*one.arguments, **one.named).arguments
    program, ask = names["program"].strip("\n"), names.get("ask", "None")
    ran = execute(program, worlds.NAME)
    held = [MISCONCEPTIONS[key] for key in names.get("beliefs", MISCONCEPTIONS)]
    wrong = list(misread(program, names.get("taken_for", ())))
    found = asking._mistaken(program, ask, asking._torch_outcome(ran, ask), held, wrong)
    return [end.say(ask).en for end, ways in found.items() if any(map(asking._natural, ways))]


def test_every_answer_that_a_question_is_about_is_among_its_outcomes(posed: Posed) -> None:
    counted = 0
    for one, found in posed:
        if found.kind == "value":
            offered, natural = [choice.text.en for choice in found.choices], natural_endings(one)
            assert not [text for text in natural if text not in offered], one.name
            counted += len(natural)
    assert counted > 130


def test_half_of_one_world_and_half_of_another_is_offered_only_where_mistakes_are_few(posed: Posed) -> None:
    known = {
        one.name: {choice for p in found.predictions for choice in p.marks}
        for one, found in posed
        if found.kind == "value"
    }
    unexplained = {
        one.name: [
            c.text.en
            for n, c in enumerate(found.choices)
            if not c.right and n not in known[one.name] and "raises" not in c.text.en
        ]
        for one, found in posed
        if one.name in known
    }
    assert sum(map(len, unexplained.values())) <= 4, unexplained
    assert not [name for name, texts in unexplained.items() if texts and name < "10"]


def test_a_slip_is_offered_only_where_natural_mistakes_leave_a_place(posed: Posed) -> None:
    for one, found in posed:
        slipped = [c.text.en for c in found.choices if c.without and not (c.without.taken_for or c.without.said)]
        assert len(slipped) <= max(0, 3 - sum(map(_natural, found.predictions))), (one.name, slipped)
        needed = "because" in one.named  # by a reason that fits no other answer
        assert not slipped or needed or one.name >= "10", (one.name, slipped)


def test_an_error_is_offered_as_it_would_be_right(posed: Posed) -> None:
    wrong = [c.text.en for _, question in posed for c in question.choices if not c.right and "raises" in c.text.en]
    assert len(wrong) > 25
    assert all(re.fullmatch(r"line \d+ raises RuntimeError", text) for text in wrong)


def test_a_prompt_fits_the_program_that_follows(posed: Posed) -> None:
    for one, question in posed:
        *_, said = re.split(r"\*\*predict", one.prompt, flags=re.IGNORECASE)
        assert said != one.prompt, one.name
        named = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", said)
        # what is asked for may be an attribute that the program does not read
        shown = f"{question.program}\n{question.ask}"
        assert not [name for name in named if name.rpartition(".")[2] not in shown], one.name
        lines = [int(n) for n in re.findall(r"\bline (\d+)", said)]
        assert all(n <= question.program.count("\n") + 1 for n in lines), one.name


def held_in(one: Asked, question: Question, belief: Misconception) -> set[str] | None:
    """Return which of a question's reasons are true for who has this belief.

    None where the engine has no model, or where the belief is about the line that raises alone: up to there its world
    is torch's.
    """
    policy, rounds = belief(TORCH), loops(question.program)
    if worlds.run(question.program, policy) is None:
        return None
    if "because" not in one.named:
        world, last = facts(question.program, policy), max(line for line, _ in watched(question.program).states)
        if question.message and [state for state in world if state[0] <= last] == facts(question.program, TORCH):
            return None
        said = {ProgramFact(line, a, v).said(rounds).en for line, state in world for a, v in state.items()}
        return said & {reason.text.en for reason in question.reasons}
    look = Evaluations(one.named["because"])
    worlds.run(question.program, policy, look)
    texts = [text.en for text, _ in judged(question.program, one.named["because"])]
    if not look.held:
        return None  # in this world the program ends before the lines that the reasons are about
    return {texts[n] for n, held in look.held.items() if held}


def test_the_reason_of_who_has_the_belief_under_test_is_among_the_reasons(posed: Posed) -> None:
    """Otherwise who has it could only strike out: the right reason, and with it the outcome, would be left."""
    missing, counted = [], 0
    for one, question in posed:
        wrong = {reason.text.en for reason in question.reasons if not reason.right}
        for found in question.predictions:
            if found.beliefs and not found.both and found.without is None:
                known = [held for belief in found.beliefs if (held := held_in(one, question, belief)) is not None]
                counted += len(known)
                if known and not any(held & wrong for held in known):
                    missing.append((one.name, [belief.key for belief in found.beliefs]))
    assert missing == []
    assert counted > 70


def test_who_expects_torch_to_refuse_a_line_is_answered(posed: Posed) -> None:
    counted = 0
    for one, question in posed:
        answered = {mark for found in question.predictions for mark in found.marks}
        for number, choice in enumerate(question.choices):
            if "raises" in choice.text.en and not choice.right:
                assert number in answered, (one.name, choice.text.en)
                counted += 1
    assert counted > 25


def test_what_is_answered_fits_the_kind_of_the_line() -> None:
    program = "import torch\nx = torch.ones(2, requires_grad=True)\nh = x * 2\nh.add_(1)\nh.sum().backward()"
    lines = {choice.line: choice.without for choice in pose(program, beliefs=(), kind="line").choices}
    said = {line: slip.said.en.split()[0] for line, slip in lines.items() if slip and slip.said}
    assert said == {4: "torch", 5: "backward()"}
    late = pose("import torch\nx = torch.ones(2).view(3)\nx.add_(1)", kind="line")
    [slip] = [choice.without for choice in late.choices if choice.without]
    assert slip.said is not None
    assert slip.said.en == "The program does not come as far as line 3: line 2 raises before it."


def test_every_question_draws_by_a_number_of_its_own_and_no_other_does(posed: Posed) -> None:
    assert {question.key for _, question in posed} == set(balance.draws())


# ---------------------------------------------------------------- the student


def student(looks: list[list[str]], right: list[int]) -> dict[str, float]:
    """Return the scores where every strategy sees these looks of four answers."""
    names = [look.__name__ for look in STRATEGIES]
    return scores(
        [
            Seen(dict.fromkeys(names, look), tuple(n == one for n in range(4)))
            for look, one in zip(looks, right, strict=True)
        ]
    )


def test_the_student_learns_what_gives_answers_away_and_nothing_from_noise() -> None:
    right = [n % 4 for n in range(12)]
    assert set(student([["longest" if n == one else "other" for n in range(4)] for one in right], right).values()) == {
        75.0
    }
    assert set(student([["other"] * 4 for _ in right], right).values()) == {0.0}
    assert max(student([[str(n) for n in range(4)] for _ in right], right).values()) <= 0


def test_the_student_sees_neither_names_nor_numbers_of_a_wording() -> None:
    one = next(asked())
    question = one.pose()
    what, why = sheets(one, question)
    assert what is not None
    assert why is not None
    assert all("best" not in re.sub(r"`[^`]*`", "", answer) for answer in (*what.answers, *why.answers))


def test_no_reason_that_is_called_wrong_holds(posed: Posed) -> None:
    for one, question in posed:
        if "because" in one.named:
            continue  # tests/lessons/test_offered.py
        real, rounds = watched(question.program), loops(question.program)
        held = {
            ProgramFact(line, about, value).said(rounds).en
            for line, state in real.states
            for about, value in state.items()
        }
        views = [
            (line, about)
            for line, state in real.states
            for about, value in state.items()
            if about[0] == "role" and value == "view"
        ]
        held |= {
            ProgramFact(line, about, "result").said(rounds).en for line, about in views
        }  # a view of a leaf is a result in the graph, too
        held |= {ProgramFact(*also).said(rounds).en for also in real.also}
        calls = [n for n, line in enumerate(question.program.splitlines(), 1) if ".backward" in line]
        for reason in question.reasons:
            assert (reason.text.en in held) == reason.right, (one.name, reason.text.en)
            said = re.match(r"after (?:line|the loop of lines \d+ to) (\d+), .*\bbackward from", reason.text.en)
            assert not said or int(said[1]) < max(calls, default=99), (
                one.name
            )  # what another backward would find is of no account


def test_each_wrong_reason_is_answered_by_what_holds_on_torch_in_its_place(posed: Posed) -> None:
    for one, question in posed:
        real, rounds = watched(question.program), loops(question.program)
        held = {
            ProgramFact(line, about, value).said(rounds): about
            for line, state in real.states
            for about, value in state.items()
        }
        right = next(reason for reason in question.reasons if reason.right)
        assert (right.instead, right.beliefs, right.said) == (None, (), None), one.name
        for reason in question.reasons:
            if reason.right:
                continue
            assert reason.instead is not None, (one.name, reason.text.en)
            assert reason.instead.zh
            if "because" in one.named:
                assert reason.instead == right.text, one.name
                continue
            assert reason.instead in held, (one.name, reason.instead.en)
            names = held[reason.instead][1:]
            assert all(re.search(rf"\b{re.escape(name)}\b", reason.text.en) for name in names), (
                one.name,
                reason.text.en,
            )


def test_a_belief_that_refutes_a_reason_is_one_in_whose_world_the_reason_holds(posed: Posed) -> None:
    refuted = 0
    for one, question in posed:
        for reason in question.reasons:
            refuted += len(reason.beliefs)
            assert all(reason.holds(Mistake(question.program, (belief,))) for belief in reason.beliefs), one.name
            assert not any(reason.holds(Mistake(question.program)) for _ in reason.beliefs), (
                one.name
            )  # without the belief it does not
    assert refuted >= 60


def test_each_reason_of_a_lesson_fits_an_answer_that_is_offered(posed: Posed) -> None:
    """Who believes a reason must find the answer that follows from it: of a reason that holds for who reads a line
    as another one or overlooks an operation with a number, such an ending is offered, unless natural mistakes take all
    the places.
    """
    for one, question in posed:
        if "because" not in one.named or sum(map(_natural, question.predictions)) >= 3:
            continue
        ways = [found.way or Mistake(question.program, found.beliefs[:1]) for found in question.predictions]
        ways = [way for way in ways if way.beliefs or way.slip]
        known = [way for way in slips(question.program) if way.slip and way.slip.call[:1] not in ("", ".")]
        known += misread(question.program, one.named.get("taken_for", ()))
        for reason in question.reasons:
            leads = [
                way
                for way in known
                if reason.holds(way) and in_world(way, tuple(one.named["because"])) and ends_otherwise(one, way)
            ]
            assert reason.right or not leads or any(map(reason.holds, ways)), (one.name, reason.text.en)


def ends_otherwise(one: Asked, way: Mistake) -> bool:
    """Whether the program ends for who makes this mistake, and with another value than torch's."""
    ran = worlds.run(way.program, way.policy)
    if ran is None or ran[1] is not None:
        return False
    names = inspect.signature(pose).bind(*one.arguments, **one.named).arguments
    real = execute(one.arguments[0].strip("\n"), worlds.NAME)
    try:
        values = [worlds.say(eval(names["ask"], scope)) for scope in (ran[0], real.namespace)]
    except Exception:
        return False
    return real.error is None and values[0] != values[1]


def test_the_right_reason_denies_an_explanation_only_where_it_is_false_in_its_world(posed: Posed) -> None:
    denied = 0
    for one, question in posed:
        right = next(reason for reason in question.reasons if reason.right)
        for found in question.predictions:
            ways = [found.way] if found.way else [Mistake(question.program, (belief,)) for belief in found.beliefs]
            assert found.against == (bool(ways) and not any(map(right.holds, ways))), one.name
            denied += found.against and bool(found.without)
    assert denied >= 10


def test_no_wrong_reason_is_about_a_backward_or_a_write_that_has_not_come(posed: Posed) -> None:
    about = []
    for one, question in posed:
        lines = question.program.splitlines()
        for reason in question.reasons:
            said = re.match(r"(?:after|in) (?:line|the loop of lines \d+ to) (\d+), (.*)", reason.text.en)
            assert said, reason.text.en
            before = lines[: int(said[1])]
            ran = sum(".backward(" in line or "autograd.grad(" in line for line in before)
            again = any(line.startswith(("for ", "while ")) for line in before)
            named = [
                name
                for line in before
                for found in re.findall(r"^ *(\w+(?:, \w+)*) = ", line)
                for name in found.split(", ")
            ]
            wrote = (
                again
                or len(set(named)) < len(named)
                or any(re.search(r"_\(|[-+*/]=|\] = |\.step\(", line) for line in before)
            )
            plain = re.fullmatch(r"(\w+) does not require grad", said[2])
            made = rf"{plain[1]} = .*requires_grad=True\)" if plain else "(?!)"
            assert not re.fullmatch(made, before[-1]), (one.name, reason.text.en)
            sums = re.search(r"backward passes added up in .* is ([2-9])", said[2])
            if reason.right or not (sums or re.search("is freed|counted a write|was counted", said[2])):
                continue
            about.append(one.name)
            assert not sums or ran >= int(sums[1]) or (ran and again), (one.name, reason.text.en)
            assert "is freed" not in said[2] or ran, (one.name, reason.text.en)
            assert "counted" not in said[2] or wrote, (one.name, reason.text.en)
    assert len(about) > 5


def test_no_two_wrong_reasons_say_the_same_after_different_lines(posed: Posed) -> None:
    for one, question in posed:
        wrong = [reason.text.en.partition(", ")[2] for reason in question.reasons if not reason.right]
        assert len(set(wrong)) == 3, (one.name, wrong)
        pairs = [re.findall(r"^(\w+) and (\w+) (?:are one tensor|(share memory))$", said) for said in wrong]
        joined = [found[0][:2] for found in pairs if found]
        assert len(set(joined)) == len(joined), (one.name, wrong)


def test_a_gradient_of_zeros_is_that_of_a_pass_as_well() -> None:
    start = "import torch\nx = torch.tensor([1.0, 2.0], requires_grad=True)\nh = x * 3\nh.detach().zero_()\n"
    program = start + "(h ** 2).sum().backward()\n(x * 0).sum().backward()"
    assert {(5, ("sum", "x"), "zeros"), (5, ("sum", "x"), "1"), (6, ("sum", "x"), "2")} <= watched(program).also
    assert watched(program).passes == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 2}
    posed = [pose(program, "x.grad", draw=(0, n)) for n in range(12)]
    said = {reason.text.en.partition(", ")[2] for question in posed for reason in question.reasons if not reason.right}
    assert len(said) > 4
    assert not {one for one in said if "backward passes" in one}


def test_a_reason_after_a_loop_is_not_one_after_a_round(posed: Posed) -> None:
    program = "import torch\nw = torch.ones(1, requires_grad=True)\nfor _ in range(2):\n    (w * w).sum().backward()"
    assert loops(program) == {4: 3}
    rounds = [(question, line) for _, question in posed for line in loops(question.program)]
    assert len(rounds) > 5
    for question, line in rounds:
        assert not [reason for reason in question.reasons if reason.text.en.startswith(f"after line {line},")]
        assert not [reason for reason in question.reasons if reason.text.zh.startswith(f"第 {line} 行之后")]
    assert any("after the loop of lines " in reason.text.en for question, _ in rounds for reason in question.reasons)


def test_the_reason_of_a_write_that_is_not_counted_is_the_counter() -> None:
    start = "import torch\nx = torch.zeros(2, requires_grad=True)\ny = torch.sigmoid(x)\n"
    for line, why in (
        ("y.data.mul_(4)", "the version of y is 0"),
        ("y.detach().mul_(4)", "torch counted a write into a tensor saved for backward from y"),
    ):
        question = pose(f"{start}{line}\ny.sum().backward()", ask="x.grad")
        assert why in next(reason.text.en for reason in question.reasons if reason.right)


def test_the_reason_of_a_refusal_is_what_the_message_names() -> None:
    question = pose("import torch\nw = torch.ones(4, requires_grad=True)\nhead = w[:2]\nhead.zero_()", ask="w")
    assert (
        next(r.text.en for r in question.reasons if r.right)
        == "after line 3, head is a view of a leaf that requires grad"
    )
    assert "after line 3, head is a result in the graph" not in {r.text.en for r in question.reasons}


def test_a_wrong_reason_can_be_believed_or_is_the_only_one_that_cannot(posed: Posed) -> None:
    """Otherwise the right one would stand alone: who sees that three cannot be would not
    have to understand the fourth.
    """
    weak = []
    for one, question in posed:
        real = watched(question.program)
        true, rounds = dict(real.states), loops(question.program)
        doubts = Doubts(question.program, true, real)
        texts = {reason.text.en for reason in question.reasons if not reason.right}
        facts = [
            ProgramFact(line, a, v) for line, state in true.items() for a in state for v in OTHERWISE.get(a[0], ())
        ]
        known = {fact.said(rounds).en: fact for fact in facts}
        unlikely = [text for text in texts if text in known and not doubts.believable(known[text])]
        weak += [(one.name, unlikely)] if len(unlikely) > 1 else []
    assert len(weak) <= 12, weak


def test_the_right_reason_speaks_of_what_is_asked() -> None:
    numpy = (
        "import numpy as np\n"
        "import torch\n"
        "a = np.ones(3)\n"
        "whole = torch.from_numpy(a)\n"
        "tail = torch.from_numpy(a[1:])\n"
        "tail[0] = -9.0"
    )
    for program, ask, why in (
        (numpy, "whole", "whole and tail share memory"),
        (
            "import torch\nx = torch.zeros(4)\nstart = x[0:2]\nend = x[[2, 3]]\nend.add_(1)",
            "x",
            "x and end do not share memory",
        ),
    ):
        right = {
            next(r.text.en for r in pose(program, ask, draw=(0, n)).reasons if r.right).partition(", ")[2]
            for n in range(6)
        }
        assert right == {why}, right


def test_two_tensors_on_one_array_share_memory_wherever_they_begin() -> None:
    state = dict(
        watched(
            "import numpy as np\nimport torch\na = np.ones(3)\nw = torch.from_numpy(a)\nt = torch.from_numpy(a[1:])"
        ).states
    )[5]
    assert {state["memory", "a", "w"], state["memory", "a", "t"], state["memory", "w", "t"]} == {"shared"}
