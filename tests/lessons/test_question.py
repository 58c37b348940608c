"""Questions are computed: torch gives the right answer, the misconceptions' policies the wrong ones, for any program."""

from __future__ import annotations

import json

import pytest

from pitfall_lab import shadow
from pitfall_lab.lessons.live import execute
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.question import Outcome, pose
from pitfall_lab.trace import T
from pitfall_lab.widgets.question import content, page, question, text

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
    "from_numpy_copies": ("import numpy as np\nimport torch\na = np.zeros(2)\nt = torch.from_numpy(a)\na[0] = 5.0\n", "t.tolist()"),
    "views_copy": ("import torch\nt = torch.zeros(4)\nt[1:3].fill_(9)\n", "t.tolist()"),
    "index_shares_memory": ("import torch\nt = torch.zeros(3)\np = t[[0, 1]]\np.fill_(9)\n", "t.tolist()"),
    "reshape_always_copies": ("import torch\nt = torch.zeros(2, 2)\nt.reshape(4).fill_(1)\n", "t.tolist()"),
    "reshape_never_copies": ("import torch\nt = torch.zeros(2, 2)\nt.t().reshape(4).fill_(1)\n", "t.tolist()"),
    "clone_cuts_graph": ("import torch\nt = torch.ones(2, requires_grad=True)\n(t.clone() * 2).sum().backward()\n", "t.grad"),
    "augmented_assignment_rebinds": ("import torch\ny = torch.zeros(2)\nold = y\ny += 1\n", "old.tolist()"),
    "views_have_own_version": (
        "import torch\nx = torch.ones(2, requires_grad=True)\nh = torch.sigmoid(x)\nv = h[0]\nv.zero_()\nh.sum().backward()\n",
        "x.grad.tolist()",
    ),
    "inplace_never_breaks_backward": (SAVED, "x.grad.tolist()"),
    "no_grad_hides_versions": (SAVED.replace("h.mul_(10)", "with torch.no_grad():\n    h.mul_(10)"), "x.grad.tolist()"),
    "backward_overwrites_grad": (
        "import torch\nw = torch.ones(1, requires_grad=True)\n(2 * w).backward()\n(2 * w).backward()\n",
        "w.grad.tolist()",
    ),
    "backward_sums_elements": ("import torch\nw = torch.ones(2, requires_grad=True)\n(w * 3).backward()\n", "w.grad.tolist()"),
    "star_multiplies_matrices": ("import torch\nm = torch.tensor([[1.0, 1.0], [0.0, 1.0]])\np = m * m\n", "p.tolist()"),
    "squeeze_keeps_batch": ("import torch\nscores = torch.ones(1, 3, 1)\nshape = tuple(scores.squeeze().shape)\n", "shape"),
    "equal_counts_pair_up": ("import torch\ncolumn, row = torch.ones(2, 1), torch.arange(2.0)\nd = column - row\n", "d.tolist()"),
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
    (wrong,) = [c for c in posed.choices if c.beliefs]
    assert wrong.beliefs == (MISCONCEPTIONS[key],)
    assert not wrong.right
    assert [r.text for r in posed.reasons if r.right] == [MISCONCEPTIONS[key].fact]


def test_right_and_wrong_answers_are_computed() -> None:
    posed = pose(BACKUP, "best.tolist()")
    assert posed.answer.text.en == "best.tolist() is [0.5, 1.5]"
    copies = next(c for c in posed.choices if MISCONCEPTIONS["detach_copies"] in c.beliefs)
    assert copies.text.en == "best.tolist() is [1, 2]"
    assert not copies.right
    assert any("raises" in c.text.en for c in posed.choices)


def test_changing_the_program_changes_the_answer() -> None:
    repaired = pose(BACKUP.replace("detach()", "detach().clone()"), "best.tolist()")
    assert repaired.answer.text.en == "best.tolist() is [1, 2]"
    assert not any(MISCONCEPTIONS["detach_copies"] in c.beliefs for c in repaired.choices)


def test_a_program_that_raises_names_the_line_and_keeps_the_message() -> None:
    posed = pose(SAVED, "x.grad.tolist()")
    assert posed.answer.text == T(en="line 6 raises RuntimeError", zh="第 6 行抛出 RuntimeError")
    assert SAVED.strip().splitlines()[5] == "h.sum().backward()"
    assert "another line raises an error" in {c.text.en for c in posed.choices}
    assert "modified by an inplace operation" in posed.message
    assert any(MISCONCEPTIONS["inplace_never_breaks_backward"] in c.beliefs and "x.grad.tolist() is [" in c.text.en for c in posed.choices)


def test_a_fact_is_a_reason_only_when_the_program_would_end_differently_without_it() -> None:
    posed = pose(BACKUP, "best.tolist()")
    right = {r.text for r in posed.reasons if r.right}
    assert MISCONCEPTIONS["detach_copies"].fact in right
    assert MISCONCEPTIONS["backward_overwrites_grad"].fact not in right
    assert any(not r.right for r in posed.reasons)


def test_the_order_is_shuffled_but_the_same_every_time() -> None:
    assert pose(BACKUP, "best.tolist()") == pose(BACKUP, "best.tolist()")
    first = [pose(*EXPOSES[key]).choices[0].right for key in EXPOSES]
    assert any(first)
    assert not all(first)


def test_a_program_the_engine_has_no_model_of_still_gets_its_right_answer() -> None:
    posed = pose("import torch\nt = torch.linalg.eigvalsh(torch.eye(2))\n", "t.tolist()")
    assert posed.answer.text.en == "t.tolist() is [1, 1]"
    assert len(posed.choices) == 2
    assert not posed.reasons


def test_a_mistake_in_the_lesson_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        pose("x = = 1", "x")
    with pytest.raises(KeyError):
        pose("x = 1", "x", beliefs=["no_such_belief"])


def test_outcomes_speak_both_languages() -> None:
    assert Outcome(error="RuntimeError").say("x") == T(en="it raises RuntimeError", zh="抛出 RuntimeError")
    assert Outcome(value="3").say("x") == T(en="x is 3", zh="x 是 3")


def test_asking_leaves_the_random_stream_alone() -> None:
    import torch

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    pose("import torch\nt = torch.rand(3)\n", "t.shape")
    assert torch.equal(torch.rand(1), expected)


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
    assert (shown.choice, shown.reason, shown.committed, shown.skipped) == (-1, -1, False, False)


def test_the_text_twin_ends_with_the_answer() -> None:
    assert text(pose(BACKUP, "best.tolist()"), "en").splitlines()[-1] == "✓ best.tolist() is [0.5, 1.5]"


def test_every_wrong_answer_that_fits_a_belief_carries_its_refutation() -> None:
    data = content(pose(BACKUP, "best.tolist()"), "en")
    refutations = [r for c in data["choices"] for r in c["refutations"]]
    assert {"belief", "tempting", "fact", "check"} == set(refutations[0])
    assert any(r["belief"] == "I think detach() gives me a copy." for r in refutations)
