"""Questions are computed: torch gives the right answer, the misconceptions' policies the
wrong ones, for any program.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pitfall_lab import shadow
from pitfall_lab.lessons import progress, worlds
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.mistakes import Slip, slips
from pitfall_lab.lessons.program_facts import ProgramFact, facts, real_facts
from pitfall_lab.lessons.question import ProgramEnd, Question, pose
from pitfall_lab.lessons.run_here import execute
from pitfall_lab.lessons.unexplained import programs, unexplained
from pitfall_lab.trace import T
from pitfall_lab.widgets.question_widget import content, page, question, text
from tests.lessons.unread import asked

BACKUP = """
import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
best = w.detach()
with torch.no_grad():
    w -= 0.5
"""

SAVED = """
import torch

x = torch.tensor([0.5, -1.0], requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
h.sum().backward()
"""

# Small programs that expose one misconception each, and what to ask. (That every one is exposed: test_separation.py.)
EXPOSES = {
    "detach_copies": (BACKUP, "best.tolist()"),
    "from_numpy_copies": (
        "import numpy as np\nimport torch\na = np.zeros(2)\nt = torch.from_numpy(a)\na[0] = 5.0\n",
        "t.tolist()",
    ),
    "views_copy": ("import torch\nt = torch.zeros(4)\nt[1:3].fill_(9)\n", "t.tolist()"),
    "index_shares_memory": ("import torch\nt = torch.zeros(3)\np = t[[0, 1]]\np.fill_(9)\n", "t.tolist()"),
    "reshape_always_copies": ("import torch\nt = torch.zeros(2, 2)\nt.reshape(4).fill_(1)\n", "t.tolist()"),
    "reshape_never_copies": ("import torch\nt = torch.zeros(2, 2)\nt.t().reshape(4).fill_(1)\n", "t.tolist()"),
    "clone_cuts_graph": (
        "import torch\nt = torch.ones(2, requires_grad=True)\n(t.clone() * 2).sum().backward()\n",
        "t.grad",
    ),
    "augmented_assignment_rebinds": ("import torch\ny = torch.zeros(2)\nold = y\ny += 1\n", "old.tolist()"),
    "views_have_own_version": (
        (
            "import torch\n"
            "x = torch.ones(2, requires_grad=True)\n"
            "h = torch.sigmoid(x)\n"
            "v = h[0]\n"
            "v.zero_()\n"
            "h.sum().backward()\n"
        ),
        "x.grad.tolist()",
    ),
    "inplace_never_breaks_backward": (SAVED, "x.grad.tolist()"),
    "no_grad_hides_versions": (SAVED.replace("h.mul_(10)", "with torch.no_grad():\n    h.mul_(10)"), "x.grad.tolist()"),
    "backward_overwrites_grad": (
        "import torch\nw = torch.ones(1, requires_grad=True)\n(2 * w).backward()\n(2 * w).backward()\n",
        "w.grad.tolist()",
    ),
    "backward_sums_elements": (
        "import torch\nw = torch.ones(2, requires_grad=True)\n(w * 3).backward()\n",
        "w.grad.tolist()",
    ),
    "star_multiplies_matrices": ("import torch\nm = torch.tensor([[1.0, 1.0], [0.0, 1.0]])\np = m * m\n", "p.tolist()"),
    "squeeze_keeps_batch": (
        "import torch\nscores = torch.ones(1, 3, 1)\nshape = tuple(scores.squeeze().shape)\n",
        "shape",
    ),
    "equal_counts_pair_up": (
        "import torch\ncolumn, row = torch.ones(2, 1), torch.arange(2.0)\nd = column - row\n",
        "d.tolist()",
    ),
}


@pytest.mark.parametrize("key", MISCONCEPTIONS)
def test_a_belief_is_another_policy_and_says_so_in_two_languages(key: str) -> None:
    m = MISCONCEPTIONS[key]
    assert m(shadow.TORCH) != shadow.TORCH
    assert m(m(shadow.TORCH)) == m(shadow.TORCH)
    assert m.belief.en.startswith("I think ")
    assert m.belief.zh.startswith("我以为")
    assert all(said.en and said.zh and said.en != said.zh for said in (m.belief, m.tempting, m.fact))


@pytest.mark.parametrize("key", MISCONCEPTIONS)
def test_the_program_that_refutes_a_belief_holds_on_torch(key: str) -> None:
    assert "assert " in MISCONCEPTIONS[key].check
    assert execute("import torch\n" + MISCONCEPTIONS[key].check).error is None


@pytest.mark.parametrize("key", EXPOSES)
def test_a_belief_predicts_another_ending_than_torch_where_it_is_exposed(key: str) -> None:
    posed = pose(*EXPOSES[key], beliefs=[key])
    wrong, *both = sorted((c for c in posed.choices if c.beliefs), key=lambda c: c.both)
    assert wrong.beliefs == (MISCONCEPTIONS[key],)
    assert not wrong.right
    assert not wrong.both
    assert all(c.both for c in both)
    assert sum(r.right for r in posed.reasons) == bool(posed.reasons)


def test_right_and_wrong_answers_are_computed() -> None:
    posed = pose(BACKUP, "best.tolist()")
    assert posed.answer.text.en == "best.tolist() is [0.5, 1.5]"
    copies = next(c for c in posed.choices if MISCONCEPTIONS["detach_copies"] in c.beliefs)
    assert copies.text.en == "best.tolist() is [1, 2]"
    assert not copies.right
    assert any("raises" in c.text.en for c in posed.choices)


def test_where_beliefs_are_few_what_somebody_overlooks_is_left_out_of_the_program() -> None:
    posed = pose("import torch\nx = torch.zeros(2)\ny = x[[0]]\ny.fill_(3)\n", "(x, y)", beliefs=())
    (slip, *_) = [c for c in posed.choices if c.without]
    assert (slip.text.en, slip.right, slip.without) == ("(x, y) is ([0, 0], [0])", False, Slip(4, ".fill_()"))
    assert [(p.until, p.without) for p in posed.predictions if p.without and p.without.call] == [
        (4, Slip(4, ".fill_()"))
    ]


def test_what_is_overlooked_may_be_a_call_a_factor_or_a_statement_and_lines_stay_where_they_are() -> None:
    left = {(one.slip, one.program) for one in slips("x = f(2)\ny = (x.abs() * 3).sum()\nfor n in (1, 2):\n    y += n")}
    assert {slip for slip, _ in left} == {
        Slip(2, "* 3"), Slip(2, ".sum()"), Slip(2, ".abs()"), Slip(1), Slip(2), Slip(3), Slip(4),
    }  # fmt: skip
    assert (Slip(2, "* 3"), "x = f(2)\ny = (x.abs()).sum()\nfor n in (1, 2):\n    y += n") in left
    assert (Slip(3), "x = f(2)\ny = (x.abs() * 3).sum()\npass\n") in left
    assert {program.count("\n") for _, program in left} == {3}
    bracketed = {(one.slip, one.program) for one in slips("y = ((x - 1) * 3).sum()")}
    assert (Slip(1, "* 3"), "y = ((x - 1)).sum()") in bracketed
    assert (Slip(1, ".sum()"), "y = ((x - 1) * 3)") in bracketed
    assert not list(slips("n = 1\nwhile n < 9:\n    n += 1"))  # without its last line it would not end


def test_the_story_is_what_came_of_each_statement_on_torch() -> None:
    assert [(step.line, [t.en for t in step.came]) for step in pose(SAVED, "x.grad").story] == [
        (3, ["x = [0.5, -1]"]),
        (4, ["h = [0.6225, 0.2689]"]),
        (5, ["h = [6.225, 2.689]", "h._version = 1"]),
        (6, ["raises RuntimeError"]),
    ]
    loop = "print('a')\nfor n in range(2):\n    print(n)\n"
    assert [t.en for step in pose(loop, "n").story for t in step.came] == ["prints a", "n = 1", "prints 0\n1"]
    named = "import torch\nerror = torch.ones(2)\nprint(error.sum())\n"
    assert [t.en for step in pose(named, "error").story for t in step.came] == ["error = [1, 1]", "prints tensor(2.)"]


def test_the_story_says_what_a_statement_has_taken_away() -> None:
    program = (
        "import torch\n"
        "w = torch.ones(1, requires_grad=True)\n"
        "(w * 4).sum().backward()\n"
        "torch.optim.SGD([w], lr=0.5).zero_grad()\n"
        "(w * 3).sum().backward()\n"
        "w.requires_grad_(False)\n"
        "gradient = w.grad.item()\n"
        "del w\n"
    )
    came = {step.line: [text.en for text in step.came] for step in pose(program, "gradient").story}
    assert (came[3], came[4], came[5]) == (["w.grad = [4]"], ["w.grad = None"], ["w.grad = [3]"])
    assert came[6] == ["w.requires_grad = False"]
    assert came[8] == []


def test_a_view_that_may_not_be_asked_for_its_graph_ends_no_question() -> None:
    program = (
        "import torch\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "s = torch.exp(w)\n"
        "with torch.no_grad():\n"
        "    v = s[0]\n"
        "s.mul_(2)\n"
        "v.grad_fn\n"
    )
    assert pose(program, kind="line").answer.text.en == "line 7"


def test_changing_the_program_changes_the_answer() -> None:
    repaired = pose(BACKUP.replace("detach()", "detach().clone()"), "best.tolist()")
    assert repaired.answer.text.en == "best.tolist() is [1, 2]"
    assert not any(MISCONCEPTIONS["detach_copies"] in c.beliefs for c in repaired.choices)


def test_a_program_that_raises_names_the_line_and_keeps_the_message() -> None:
    posed = pose(SAVED, "x.grad.tolist()")
    assert posed.answer.text == T(en="line 6 raises RuntimeError", zh="第 6 行抛出 RuntimeError")
    assert SAVED.strip().splitlines()[5] == "h.sum().backward()"
    assert "modified by an inplace operation" in posed.message
    assert any(
        MISCONCEPTIONS["inplace_never_breaks_backward"] in c.beliefs and "x.grad.tolist() is [" in c.text.en
        for c in posed.choices
    )


@pytest.mark.parametrize("program", [BACKUP, SAVED])
def test_one_reason_holds_on_torch_and_decides_and_the_others_do_not_hold(program: str) -> None:
    posed = pose(program, "best.tolist()" if program is BACKUP else "x.grad")
    held = {
        ProgramFact(line, about, value).text.en
        for line, state in real_facts(program.strip("\n"))
        for about, value in state.items()
    }
    assert [r.text.en in held for r in posed.reasons] == [r.right for r in posed.reasons]
    assert (len(posed.reasons), sum(r.right for r in posed.reasons)) == (4, 1)
    key = "detach_copies" if program is BACKUP else "inplace_never_breaks_backward"
    believed = facts(program.strip("\n"), MISCONCEPTIONS[key](shadow.TORCH))
    there = {ProgramFact(line, about, value).text.en for line, state in believed for about, value in state.items()}
    assert next(r.text.en for r in posed.reasons if r.right) not in there


def test_what_is_said_of_a_program_is_what_torch_and_the_engine_hold() -> None:
    program = (
        "import numpy as np\n"
        "import torch\n"
        "a = np.ones(2)\n"
        "t = torch.from_numpy(a)\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "layer = torch.nn.Linear(1, 1)\n"
        "weight = layer.weight\n"
        "h = (w * 2).exp()\n"
        "out = h.sum()\n"
        "out.backward(retain_graph=True)\n"
        "out.backward()\n"
        "kept = w.detach()\n"
        "h.mul_(3)\n"
        "number = out.item()\n"
    )
    true = real_facts(program)
    modelled = facts(program, shadow.TORCH)
    differ = {about for (_, a), (_, b) in zip(true, modelled, strict=True) for about, _ in a.items() ^ b.items()}
    assert {about[0] for about in differ} <= {"value"}  # the layer's random weights
    said = {ProgramFact(line, about, value).text.en for line, state in true for about, value in state.items()}
    assert {
        "after line 4, a and t share memory",
        "after line 5, t and w do not share memory",
        "after line 7, weight is a parameter of layer",
        "after line 7, w is not a parameter of layer",
        "after line 9, gradients flow from out back to w",
        "after line 9, w.grad is None",
        "after line 9, backward from out finds everything it needs",
        "after line 10, the number of backward passes added up in w.grad is 1",
        "after line 11, the number of backward passes added up in w.grad is 2",
        "after line 11, what backward from out needs is freed",
        "after line 12, no gradient flows from kept back to w",
        "after line 13, the version of h is 1",
        "after line 14, no gradient flows from number back to w",
        "after line 5, w is a leaf that requires grad",
    } <= said


def test_whether_an_error_is_offered_does_not_say_whether_one_comes() -> None:
    for program, ask in (*EXPOSES.values(), (BACKUP, "(best, w)")):
        choices = pose(program, ask).choices
        raises = [c for c in choices if "raises" in c.text.en]
        assert len(choices) <= 4
        assert all(re.fullmatch(r"line \d+ raises [A-Z]\w+", c.text.en) for c in raises)


def test_each_learner_gets_an_order_of_their_own_and_the_same_question() -> None:
    ada, bob = (pose(BACKUP, "(best, w)", learner=name) for name in ("ada", "bob"))
    assert ada == pose(BACKUP, "(best, w)", learner="ada")
    assert ada.key == bob.key
    assert set(ada.choices) == set(bob.choices)
    assert set(ada.reasons) == set(bob.reasons)
    orders = {tuple(c.text.en for c in pose(BACKUP, "(best, w)", learner=str(n)).choices) for n in range(8)}
    assert len(orders) > 4


def test_the_order_is_shuffled_but_the_same_every_time() -> None:
    assert pose(BACKUP, "best.tolist()") == pose(BACKUP, "best.tolist()")
    first = [pose(*EXPOSES[key]).choices[0].right for key in EXPOSES]
    assert any(first)
    assert not all(first)


def test_a_program_the_engine_has_no_model_of_still_gets_its_right_answer() -> None:
    posed = pose("import torch\nt = torch.linalg.eigvalsh(torch.eye(2))\n", "t.tolist()")
    assert posed.answer.text.en == "t.tolist() is [1, 1]"
    assert [c.text.en for c in posed.choices] == ["t.tolist() is [1, 1]"]
    assert not posed.reasons


def test_a_mistake_in_the_lesson_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        pose("x = = 1", "x")
    with pytest.raises(KeyError):
        pose("x = 1", "x", beliefs=["no_such_belief"])


def test_outcomes_speak_both_languages() -> None:
    assert ProgramEnd(error="RuntimeError").say("x") == T(en="it raises RuntimeError", zh="抛出 RuntimeError")
    assert ProgramEnd(value="3").say("x") == T(en="x is 3", zh="x 是 3")


def test_asking_leaves_the_random_stream_alone() -> None:
    import torch

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    pose("import torch\nt = torch.rand(3)\n", "t.shape")
    assert torch.equal(torch.rand(1), expected)


# ---------------------------------------------------------------- other kinds of questions

GRID = """
import torch

grid = torch.zeros(2, 3)
row = grid[0]
flat = grid.t().reshape(6)
row.add_(1)
"""


def said(posed: Question, *, right: bool = True) -> list[str]:
    return [c.text.en for c in posed.choices if c.right == right]


def test_a_shape_is_asked_for_among_the_shapes_of_the_program() -> None:
    posed = pose("import torch\nerror = torch.zeros(4, 1) - torch.ones(4)\n", "error", kind="shape")
    assert said(posed) == ["error.shape is (4, 4)"]
    paired = next(c for c in posed.choices if c.beliefs)
    assert (paired.text.en, paired.beliefs) == ("error.shape is (4, 1)", (MISCONCEPTIONS["equal_counts_pair_up"],))
    plain = pose(GRID, "grid - row", kind="shape")
    assert said(plain) == ["(grid - row).shape is (2, 3)"]
    assert {"(grid - row).shape is (3,)", "(grid - row).shape is (6,)"} <= set(said(plain, right=False))


def test_the_shape_of_a_gradient_is_that_of_its_leaf_whatever_was_broadcast() -> None:
    program = "import torch\nb = torch.zeros(3, requires_grad=True)\nout = torch.ones(4, 3) + b\nout.sum().backward()\n"
    posed = pose(program, "b", kind="gradient")
    assert said(posed) == ["b.grad.shape is (3,)"]
    drawn = [pose(program, "b", kind="gradient", draw=(n, 0)) for n in range(6)]
    assert {"b.grad is None", "b.grad.shape is (4, 3)"} <= {text for one in drawn for text in said(one, right=False)}
    none = pose(program.replace(".sum().backward()", ".sum()"), "b", kind="gradient")
    assert said(none) == ["b.grad is None"]


def test_a_version_is_asked_for_beside_its_neighbours() -> None:
    posed = pose(GRID, "grid", kind="version")
    assert said(posed) == ["grid._version is 1"]
    assert {"grid._version is 0", "grid._version is 2", "grid._version is 3"} & set(said(posed, right=False))
    (wrong,) = [c for c in posed.choices if c.beliefs]
    assert {m.key for m in wrong.beliefs} == {"views_copy", "views_have_own_version"}


def test_the_line_that_fails_is_chosen_among_all_lines() -> None:
    posed = pose(SAVED, kind="line")
    assert [c.line for c in posed.choices] == [1, 3, 4, 5, 6, None]
    assert posed.answer.line == 6
    assert MISCONCEPTIONS["inplace_never_breaks_backward"] in posed.choices[-1].beliefs
    assert pose(BACKUP, kind="line").answer.text.en == "no line fails"


def test_a_line_that_the_lesson_answers_for_is_answered_for_among_the_lines() -> None:
    posed = pose(SAVED, kind="line", beliefs=[], taken_for=[(5, "raise RuntimeError", "It is counted.", "只计数。")])
    said = {posed.choices[n].line: one.without for one in posed.predictions for n in one.marks if one.without}
    assert {line: slip.said for line, slip in said.items()} == {5: T("It is counted.", "只计数。")}
    assert posed.answer.without is None


def test_what_changes_is_several_names_and_beliefs_predict_other_ones() -> None:
    posed = pose(GRID, "grid, row, flat", kind="changes")
    assert said(posed) == ["grid (now [[0, 0, 0], [0, 0, 0]])", "row (now [0, 0, 0])"]
    fits = {tuple(m.key for m in p.beliefs): sorted(p.marks) for p in posed.predictions}
    assert fits["views_copy",] == [1]
    assert fits["reshape_never_copies",] == [0, 1, 2]
    assert posed.columns == 0


def test_who_marks_the_cells_of_a_line_that_the_lesson_names_is_answered() -> None:
    program = "import torch\ngrid = torch.zeros(2, 3)\nturned = grid.t()\ngrid[:, 1] = 9.0"
    line = (4, "turned[:, 1] = 9.0", "It is row 1 of turned.", "它是 turned 的第 1 行。")
    same = (4, "turned[1] = 9.0", "It is the right one.", "这是对的。")
    posed = pose(program, "turned", kind="changes", beliefs=["views_copy"], taken_for=[line, same])
    answered = {p.marks: (p.until, p.without.said) for p in posed.predictions if p.without}
    marks = frozenset(
        n for n, choice in enumerate(posed.choices) if choice.text.en.startswith("turned[") and ", 1]" in choice.text.en
    )
    assert len(marks) == 3
    assert answered == {marks: (4, T("It is row 1 of turned.", "它是 turned 的第 1 行。"))}
    assert [p.marks for p in posed.predictions if p.beliefs] == [frozenset({6})]


def test_what_changes_may_be_cells_or_nothing() -> None:
    posed = pose(GRID, "grid", kind="changes")
    assert said(posed) == [f"grid[0, {n}] (now 0)" for n in range(3)]
    assert posed.columns == 3
    (copied,) = [p for p in posed.predictions if MISCONCEPTIONS["views_copy"] in p.beliefs]
    assert copied.marks == {6}
    assert said(pose(GRID, "flat", kind="changes")) == ["none of them"]


@pytest.mark.parametrize(
    ("program", "ask", "kind"),
    [
        (SAVED, "x, h", "changes"),
        (GRID, "grid", "colour"),
        ("import torch\nx = torch.zeros(99)\nx += 1", "x", "changes"),
        (GRID, "1", "shape"),
    ],
)
def test_a_question_without_an_answer_is_a_mistake_of_the_lesson(program: str, ask: str, kind: str) -> None:
    with pytest.raises((ValueError, AttributeError)):
        pose(program, ask, kind=kind)  # type: ignore[arg-type]


# ---------------------------------------------------------------- diagnosis


def test_an_answer_that_fits_one_belief_shows_where_its_world_leaves_torchs() -> None:
    posed = pose(BACKUP, "best.tolist()", beliefs=["detach_copies", "backward_overwrites_grad"])
    (one,) = (p for p in posed.predictions if p.beliefs)
    assert [m.key for m in one.beliefs] == ["detach_copies"]
    assert one.parting is not None
    assert one.parting.line == 6
    assert one.parting.rows[0] == ("best", "[1, 2]", "[0.5, 1.5]")
    assert one.separating is None
    said = next(p for p in content(posed, "en")["predictions"] if p["refutations"])
    assert (said["line"], said["rows"][0]) == (6, ["best", "[1, 2]", "[0.5, 1.5]"])


def test_an_answer_that_fits_several_beliefs_gets_the_program_that_tells_them_apart() -> None:
    posed = pose(GRID, "grid", kind="version")
    (several,) = (p for p in posed.predictions if p.beliefs)
    assert several.parting is None
    assert several.separating is not None
    endings = {str(worlds.ending(several.separating, m(shadow.TORCH))) for m in several.beliefs}
    assert len(endings) == len(several.beliefs) == 2
    shown = next(p for p in content(posed, "zh")["predictions"] if p["refutations"])["separating"]
    assert [belief for belief, _ in shown["endings"]] == [m.belief.zh for m in several.beliefs]
    assert str(worlds.real(several.separating)) == shown["torch"]


def test_answers_are_kept_and_one_that_fits_no_belief_is_kept_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JPY_SESSION_NAME", "somewhere/05-copies-and-views.ipynb")
    posed = question(BACKUP, "best.tolist()").question
    index = {"right": posed.choices.index(posed.answer)}
    index["belief"] = next(n for n, c in enumerate(posed.choices) if c.beliefs)
    index["unknown"] = next(n for n, c in enumerate(posed.choices) if not c.right and not c.beliefs)
    fact = next(n for n, r in enumerate(posed.reasons) if r.right)
    for name, n in index.items():
        shown = question(BACKUP, "best.tolist()")
        shown.marks, shown.reason = [n], fact
        shown.committed = True
        assert progress.load(tmp_path).entries[-1].held == (2 if name == "right" else 0)
    question(BACKUP, "best.tolist()").skipped = True
    right, belief, unknown, skipped = progress.load(tmp_path).entries
    assert {e.item for e in (right, belief, unknown, skipped)} == {f"q-{posed.key}"}
    assert right.solved
    assert right.chapter == "05"
    assert "detach_copies" in belief.beliefs
    assert (belief.note, right.note, skipped.note) == ("", "", "skipped")
    assert unknown.note == posed.choices[index["unknown"]].text.en
    assert not unknown.beliefs


def test_a_belief_that_the_picked_reason_denies_is_not_kept_as_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "import torch\nw = torch.tensor([1.0, 2.0])\nbest = w.detach()\nw -= 1"
    offered = [
        (3, "best and w share memory", "best 与 w 共享内存", "shares(best, w)"),
        (3, "best has memory of its own", "best 有自己的内存", "not shares(best, w)"),
        (3, "best is a number", "best 是一个数", "best.dim() == 0"),
    ]
    kept = {}
    for n, (_, text_of, *_) in enumerate(offered):
        shown = question(program, "best", offered, ["detach_copies"])
        posed = shown.question
        [belief] = [p for p in posed.predictions if p.beliefs]
        shown.marks = sorted(belief.marks)
        shown.reason = next(k for k, r in enumerate(posed.reasons) if text_of in r.text.en)
        kept[n] = shown.entry()
    assert [kept[n].beliefs for n in range(3)] == [("detach_copies",), ("detach_copies",), ()]
    assert (kept[1].note, kept[2].note) == ("", "best is [1, 2]")


# ---------------------------------------------------------------- the widget

HOSTILE = "import torch\nname = '</script><img src=x onerror=alert(1)> `中文` 🔥'\nt = torch.zeros(2)\n"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_static_twin_escapes_everything_and_folds_the_answer(language: str) -> None:
    shown = page(pose(HOSTILE, "name"), language)  # type: ignore[arg-type]
    assert "<img" not in shown
    assert "</script>" not in shown
    assert "&lt;img" in shown
    assert shown.index("<details>") < shown.rindex("&lt;/script&gt;")


def test_the_widget_carries_its_twins_and_plain_data_only() -> None:
    shown = question(SAVED, ask="x.grad.tolist()", language="zh")
    bundle, _ = shown._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(bundle)
    data = json.loads(shown._content)
    assert data["language"] == "zh"
    assert data["words"]["commit"] == "提交"
    assert sum(c["right"] for c in data["choices"]) == 1
    assert (shown.marks, shown.choice, shown.reason, shown.committed, shown.skipped) == ([], -1, -1, False, False)


def test_the_text_twin_ends_with_the_answer() -> None:
    assert text(pose(BACKUP, "best.tolist()"), "en").splitlines()[-1] == "✓ best.tolist() is [0.5, 1.5]"


def test_every_wrong_answer_that_fits_a_belief_carries_its_refutation() -> None:
    data = content(pose(BACKUP, "best.tolist()"), "en")
    refutations = [r for p in data["predictions"] for r in p["refutations"]]
    assert {"belief", "tempting", "fact", "check"} == set(refutations[0])
    assert any(r["belief"] == "I think detach() gives me a copy." for r in refutations)


def test_answers_that_no_belief_predicts_are_there_for_the_author_with_their_program(tmp_path: Path) -> None:
    asked = question("\nimport torch\nx = torch.ones(2)\nx += 1\n", "x", beliefs=())
    for folder, marks in (("ada", [1]), ("bob", [1]), ("eve", [])):
        (tmp_path / folder).mkdir()
        wrong = [n for n, c in enumerate(asked.question.choices) if not c.right]
        asked.marks = wrong[:1] if marks else [n for n, c in enumerate(asked.question.choices) if c.right]
        progress.keep(asked.entry(), tmp_path / folder)
    ((_, item, note), count), *others = unexplained([tmp_path]).most_common()
    assert (count, others, bool(note)) == (2, [], True)
    cells = [
        {
            "cell_type": "code",
            "source": ["pitfall_lab.question(\n", '"""\nimport torch\nx = torch.ones(2)\nx += 1\n""", ask="x")'],
        }
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert programs(tmp_path)[item].startswith("import torch\nx = torch.ones(2)")


def test_who_believes_that_views_are_copies_knows_that_an_assignment_writes() -> None:
    program = "import torch\nx = torch.zeros(3)\npart = x[:2]\nx[0] = 5\npart[1] = 7"
    ran = worlds.run(program, MISCONCEPTIONS["views_copy"](shadow.TORCH))
    assert ran is not None
    assert [ran[0][name].tolist() for name in ("x", "part")] == [[5, 0, 0], [0, 7]]


def test_a_write_past_the_counter_is_not_denied() -> None:
    past = pose(
        "import torch\n"
        "x = torch.zeros(2, requires_grad=True)\n"
        "y = torch.sigmoid(x)\n"
        "y.data.mul_(4)\n"
        "y.sum().backward()",
        ask="x.grad",
    )
    wrong = [reason.text.en for reason in past.reasons if not reason.right]
    assert not any("written" in said for said in wrong), "it was written; only torch has not counted it"


def test_a_reason_is_more_than_the_ending_in_other_words() -> None:
    two_names = pose("import torch\ny = torch.zeros(2)\nold = y\ny += 1\ny = y + 1", ask="(old, y)")
    [why] = [reason.text.en for reason in two_names.reasons if reason.right]
    assert why in {"after line 4, y and old are one tensor", "after line 5, y and old are two tensors"}
    several = pose(
        "import torch\n"
        "x = torch.tensor(3.0, requires_grad=True)\n"
        "y = x ** 2\n"
        "with torch.no_grad():\n"
        "    x += 1\n"
        "y.backward()",
        ask="x.grad",
    )
    [why] = [reason.text.en for reason in several.reasons if reason.right]
    assert why == "after line 5, torch counted a write into a tensor saved for backward from y", (
        "the one that three of the four wrong answers deny"
    )


@pytest.mark.parametrize(
    ("program", "ask", "reason"),
    [
        (
            "t = torch.arange(4.0)\nhigh = t[t > 1]\nhigh.fill_(9)",
            "(t, high)",
            "after line 3, t and high do not share memory",
        ),
        (
            "side = torch.ones(1, requires_grad=True)\narea = side ** 2\narea.backward()",
            "area.grad",
            "after line 3, area is a result in the graph",
        ),
    ],
    ids=["a copy that a belief takes for a view", "the gradient of a result"],
)
def test_a_reason_says_why(program: str, ask: str, reason: str) -> None:
    [why] = [one.text.en for one in pose(f"import torch\n{program}", ask=ask).reasons if one.right]
    assert why == reason


def test_a_line_that_many_take_for_another_gives_an_outcome_with_what_it_was_taken_for() -> None:
    program = (
        "import torch\nw = torch.tensor([1.0], requires_grad=True)\nfor x in (1.0, 3.0):\n    (w * x).sum().backward()"
    )
    taken = ((4, "(w * x).sum().div(2).backward()"),)
    assert "w.grad is [2]" not in [c.text.en for c in pose(program, ask="w.grad").choices]
    natural = pose(program, ask="w.grad", taken_for=taken)
    assert len(natural.choices) == 4
    [mean] = [n for n, c in enumerate(natural.choices) if c.text.en == "w.grad is [2]"]
    [why] = [p for p in natural.predictions if p.marks == {mean}]
    assert why.without is not None
    assert (why.without.line, why.without.taken_for, why.until) == (4, taken[0][1], 4)
    said = content(natural, "en")["predictions"]
    assert [p["without"]["taken_for"] for p in said if p["marks"] == [mean]] == [taken[0][1]]


def test_an_answer_that_a_belief_leads_to_never_gives_way_to_another_one() -> None:
    program = (
        "import torch\nw = torch.tensor([1.0], requires_grad=True)\nfor x in (1.0, 3.0):\n    (w * x).sum().backward()"
    )
    for number in range(12):
        taken = [(4, f"(w * x).sum().div({n}).backward()") for n in (2, 4, 8)]
        posed = pose(program, ask="w.grad", beliefs=["backward_overwrites_grad"], taken_for=taken, draw=(number, 0))
        believed = {c.text.en: c.beliefs for c in posed.choices if not c.right}
        assert believed["w.grad is [3]"] == (MISCONCEPTIONS["backward_overwrites_grad"],)
        assert len(believed) == 3
        assert not [text for text in believed if "raises" in text], "three natural mistakes are enough"


def test_by_lot_two_natural_mistakes_are_not_filled_up() -> None:
    program = "import torch\nx = torch.zeros(2)\ny = x.clone()\ny += 1"
    taken = [(4, "x += 1")]
    drawn = [
        pose(program, ask="(x, y)", beliefs=["clone_shares_memory"], taken_for=taken, draw=(n, 0)) for n in range(12)
    ]
    assert {len(posed.choices) for posed in drawn} == {3, 4}
    for posed in drawn:
        assert {"(x, y) is ([1, 1], [1, 1])", "(x, y) is ([1, 1], [0, 0])"} < {c.text.en for c in posed.choices}
        assert len([c for c in posed.choices if "raises" in c.text.en]) == len(posed.choices) - 3


def test_a_lesson_says_in_its_own_words_what_it_answers_to_a_line_taken_for_another() -> None:
    program = "import torch\nx = torch.zeros(2)\nx.add_(1)"
    posed = pose(
        program, ask="x", beliefs=[], taken_for=[(3, "x.add(1)", "The underscore writes.", "下划线表示写入。")]
    )
    for language, said in (("en", "The underscore writes."), ("zh", "下划线表示写入。")):
        predictions = content(posed, language)["predictions"]  # type: ignore[arg-type]
        assert [p["without"]["said"] for p in predictions if p["without"] and p["without"]["taken_for"]] == [said]


# What is answered in the course to who takes a line, or a name, for something else: the question, the learner's answer
# or reason, and how the reply begins.
@pytest.mark.parametrize(
    ("cell", "answer", "reply"),
    [
        ("06 overview-nodes-predict", "line 7 raises RuntimeError", "Backward would refuse if nothing led from loss"),
        (
            "06 overview-nodes-predict",
            "after line 6, no path leads from loss to w, since p is another tensor",
            "Names are not in the graph",
        ),
        ("06 overview-nodes-predict", "after line 4, a clone has no path back to w", "clone() copies the memory and"),
        (
            "10 inplace-versions-predict",
            "after line 6, no node has saved w; backward reads what w is then",
            "The product has saved w",
        ),
        (
            "11 clone-keep-predict",
            "after line 8, w has not changed, and it shares memory with kept, not with copied",
            "`w -= …` writes into the memory of `w`",
        ),
        (
            "14 networks-registered-predict",
            "after line 14, model has registered attributes that forward uses",
            "Attributes are registered when they are assigned",
        ),
    ],
)
def test_an_answer_of_the_course_is_answered_by_what_it_is_about(cell: str, answer: str, reply: str) -> None:
    [posed] = [one.pose() for one in asked() if one.name == cell]
    said = {choice.text.en: choice.without and choice.without.said for choice in posed.choices}
    said |= {reason.text.en: reason.said for reason in posed.reasons}
    assert (answered := said[answer]) is not None
    assert answered.en.startswith(reply)


def test_who_takes_an_augmented_assignment_for_a_new_tensor_is_not_told_of_detach_alone() -> None:
    [posed] = [one.pose() for one in asked() if one.name == "11 clone-keep-predict"]
    [unwritten] = [c for c in posed.choices if c.text.en == "(kept, copied) is ([2], [2])"]
    keys = {key for key, belief in MISCONCEPTIONS.items() if belief in unwritten.beliefs}
    assert keys == {"detach_copies", "augmented_assignment_rebinds"}
    [found] = [p for p in posed.predictions if p.marks == {posed.choices.index(unwritten)}]
    assert found.separating, "a program tells the two apart"


def test_a_lesson_may_take_a_line_for_one_that_raises() -> None:
    program = "import torch\nx = torch.ones(1, requires_grad=True)\nwith torch.no_grad():\n    x += 1"
    posed = pose(program, ask="x", beliefs=[], taken_for=[(4, "raise RuntimeError", "It may.", "可以。")])
    [refused] = [c for c in posed.choices if c.without and c.without.said]
    assert refused.text.en == "line 4 raises RuntimeError"


def test_what_is_so_after_the_error_as_well_is_not_offered_as_wrong() -> None:
    program = "import torch\nspeed = torch.tensor([4.0, 5.0], requires_grad=True)\ntwice = speed * 2\ntwice.backward()"
    for number in range(6):
        assert "speed.grad is None" not in {
            c.text.en for c in pose(program, ask="speed.grad", draw=(number, 0)).choices
        }


def test_where_nothing_else_could_be_refused_arithmetic_could() -> None:
    program = "import torch\nscores = torch.ones(2, 2)\nsums = scores.sum(dim=1)\nshares = scores / sums"
    offered = {
        c.text.en for n in range(6) for c in pose(program, ask="shares", draw=(n, 0)).choices if "raises" in c.text.en
    }
    assert offered == {"line 4 raises RuntimeError"}


def test_a_place_in_another_tensor_on_the_same_memory_is_no_place_of_this_one() -> None:
    program = "import torch\ngrid = torch.arange(6.0).view(2, 3)\nturned = grid.t()\ngrid[:, 1] = 9.0\n"
    posed = pose(program, "turned", kind="changes")
    right = frozenset(n for n, choice in enumerate(posed.choices) if choice.right)
    places = {found.marks: found.places for found in posed.predictions if found.places}
    assert right == {2, 3}  # row 1
    assert {frozenset({1, 3, 5}), frozenset({1, 3}), frozenset({1, 4})} == places.keys()  # column, indices, numbers
    assert all("`turned[1, 0]`, `turned[1, 1]` there" in said.en for said in places.values() if said)
    same = program.replace("grid.t()", "grid[:]")  # the same strides: the same places
    assert [found for found in pose(same, "turned", kind="changes").predictions if found.places] == []
    whole = program.replace("grid[:, 1]", "grid[:]")
    assert [found for found in pose(whole, "turned", kind="changes").predictions if found.places] == []
