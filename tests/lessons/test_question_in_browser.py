"""The Question in a real Chromium, without server or kernel: answered by keyboard, judged in
the page, safe with any text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

import pitfall_lab.widgets.question_widget as widget
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.question import pose
from tests.frontend.stage import MOUNT, Stage, browser
from tests.lessons.unread import asked as course

MODULE = Path(widget.__file__).with_name("question.js").read_text(encoding="utf-8")
PROGRAM = """
import torch

x = torch.tensor([0.5, -1.0], requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
h.sum().backward()
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Stage]:
    with browser() as running:
        yield Stage(running.new_page())


@pytest.fixture
def page(window: Stage) -> Iterator[Page]:
    with window.cleared(800):
        yield window.page


@pytest.fixture
def show(page: Page) -> Callable[..., Locator]:
    """Draw the question about a program and return its root."""

    def draw(
        program: str = PROGRAM,
        ask: str = "x.grad",
        language: str = "en",
        kind: str = "value",
        taken_for: Any = (),
        *,
        because: Any = True,
        beliefs: Any = None,
        **state: Any,
    ) -> Locator:
        page.set_content('<!doctype html><html lang="en"><title>stage</title><main id="notebook"></main>')
        content = json.dumps(widget.content(pose(program, ask, because, beliefs, kind, taken_for=taken_for), language))  # type: ignore[arg-type]
        start = {
            "_content": content,
            "marks": [],
            "choice": -1,
            "reason": -1,
            "committed": False,
            "skipped": False,
            **state,
        }
        page.evaluate(MOUNT, {"code": MODULE, "states": [start]})
        return page.locator(".pl-question")

    return draw


def state(page: Page) -> dict[str, Any]:
    """What Python would see."""
    names = ["marks", "choice", "reason", "committed", "skipped"]
    return dict(
        zip(names, page.evaluate("names => names.map(name => window.widgets[0].get(name))", names), strict=True)
    )


def index_of(group: Locator, text: str) -> int:
    """The row of a radio group that contains a text."""
    rows = group.locator("label").all_inner_texts()
    return rows.index(text) if text in rows else next(n for n, row in enumerate(rows) if text in row)


def choose(page: Page, group: Locator, text: str) -> None:
    """Choose a row with keys only: the group has the focus."""
    page.keyboard.press("Space")
    for _ in range(index_of(group, text)):
        page.keyboard.press("ArrowDown")


def answer(page: Page, root: Locator, what: str, why: str) -> None:
    """Answer both parts and commit, with keys only."""
    first, second = root.locator("fieldset").nth(0), root.locator("fieldset").nth(1)
    root.locator("pre").first.focus()
    page.keyboard.press("Tab")
    choose(page, first, what)
    page.keyboard.press("Tab")
    choose(page, second, why)
    page.keyboard.press("Enter")


def test_a_right_answer_by_keyboard_is_confirmed_and_kept(page: Page, show: Callable[..., Locator]) -> None:
    root = show()
    answer(page, root, "line 6 raises RuntimeError", fact_of(PROGRAM, "x.grad", "value"))
    live = root.locator("[aria-live=polite]")
    assert "and that is why" in live.inner_text()
    assert "modified by an inplace operation" in live.inner_text()
    kept = state(page)
    assert kept["committed"]
    assert not kept["skipped"]
    assert kept["choice"] == index_of(root.locator("fieldset").nth(0), "line 6 raises")
    assert kept["marks"] == [kept["choice"]]


def test_a_wrong_answer_that_fits_a_belief_is_refuted(page: Page, show: Callable[..., Locator]) -> None:
    root = show()
    answer(page, root, "x.grad is [2.35, 1.966]", fact_of(PROGRAM, "x.grad", "value"))
    refutation = root.locator(".pl-refutation").first.inner_text()
    assert "I think backward remembers the values as they were." in refutation
    assert "Why it is tempting:" in refutation
    assert "assert" in root.locator(".pl-refutation pre").first.inner_text()
    marks = root.locator("label", has=page.locator(".pl-mark")).all_inner_texts()
    assert any("line 6" in m and "✓ torch" in m for m in marks)
    assert any("x.grad is" in m and "your prediction" in m for m in marks)


GRID = """
import torch

grid = torch.zeros(2, 3)
row = grid[0]
flat = grid.t().reshape(6)
row.add_(1)
"""
BACKUP = """
import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
best = w.detach()
with torch.no_grad():
    w.sub_(0.5)
"""


def fact_of(program: str, ask: str, kind: str) -> str:
    """A fact that decides the question."""
    return next(r.text.en for r in pose(program, ask, kind=kind).reasons if r.right)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        (("import torch\nerror = torch.zeros(4, 1) - torch.ones(4)\n", "error", "shape"), "(4, 4)"),
        ((PROGRAM.replace("h.mul_", "h = h.mul"), "x", "gradient"), "(2,)"),
        ((GRID, "grid", "version"), "is 1"),
        ((PROGRAM, "None", "line"), "h.sum().backward()"),
    ],
)
def test_each_kind_of_one_answer_is_answered_by_keyboard(
    page: Page, show: Callable[..., Locator], asked: tuple[str, str, str], right: str
) -> None:
    program, ask, kind = asked
    root = show(program, ask=ask, kind=kind)
    first, second = root.locator("fieldset").nth(0), root.locator("fieldset").nth(1)
    first.locator("input").first.focus()
    choose(page, first, right)
    if second.count():
        page.keyboard.press("Tab")
        choose(page, second, fact_of(program, ask, kind))
    page.keyboard.press("Enter")
    assert root.locator("[aria-live=polite] p").first.inner_text().startswith("✓"), root.inner_text()
    assert state(page)["committed"]


@pytest.mark.parametrize("ask", ["grid", "grid, row, flat"])
def test_what_changes_is_ticked_by_keyboard_and_nothing_excludes_the_others(
    page: Page, show: Callable[..., Locator], ask: str
) -> None:
    root = show(GRID, ask=ask, kind="changes")
    boxes = root.locator("input[type=checkbox]")
    boxes.first.focus()
    count, right = boxes.count(), [n for n, c in enumerate(pose(GRID, ask, kind="changes").choices) if c.right]
    for n in range(count):
        if n in right or n == count - 1:
            page.keyboard.press("Space")
        if n < count - 1:
            page.keyboard.press("Tab")
    assert [n for n in range(count) if boxes.nth(n).is_checked()] == [count - 1]
    for n in reversed(range(count)):
        page.keyboard.press("Shift+Tab") if n < count - 1 else None
        if n in right:
            page.keyboard.press("Space")
    assert [n for n in range(count) if boxes.nth(n).is_checked()] == right
    for _ in range(count):
        page.keyboard.press("Tab")
    choose(page, root.locator("fieldset").nth(1), fact_of(GRID, ask, "changes"))
    page.keyboard.press("Enter")
    assert "and that is why" in root.locator("[aria-live=polite]").inner_text()
    assert state(page)["marks"] == right


def test_a_world_is_shown_up_to_the_line_where_it_leaves_torchs_with_the_prediction_as_a_ghost(
    page: Page, show: Callable[..., Locator]
) -> None:
    root = show(BACKUP, ask="best")
    answer(page, root, "best is [1, 2]", fact_of(BACKUP, "best", "value"))
    live = root.locator("[aria-live=polite]")
    assert "From line 6 on" in live.inner_text()
    row = live.locator("tbody tr").first
    assert row.locator("th").inner_text() == "best"
    assert row.locator("td.pl-ghost").inner_text() == "[1, 2]"
    assert row.locator("td").last.inner_text() == "[0.5, 1.5]"


def test_the_future_is_hatched_until_it_was_predicted_and_shown_up_to_the_line_that_contradicts(
    page: Page, show: Callable[..., Locator]
) -> None:
    root = show(BACKUP + "later = w * 2\n", ask="best")
    came = root.locator(".pl-came")
    assert came.count() == 4
    assert came.all_inner_texts() == [""] * 4
    assert (
        root.locator(".pl-legend").inner_text()
        == "Each hatched box hides what its line gives, until you commit to an answer or skip."
    )
    assert "[0.5, 1.5]" not in root.locator("pre").first.inner_text()
    answer(page, root, "best is [1, 2]", fact_of(BACKUP + "later = w * 2\n", "best", "value"))
    shown = came.all_inner_texts()
    assert root.locator(".pl-legend").count() == 0
    assert shown[1].splitlines() == ["best = [1, 2]"]
    assert shown[2].splitlines()[0] == "w = [0.5, 1.5]"
    assert "your prediction: best = [1, 2]" in shown[2]
    assert root.locator(".pl-came.pl-parts").inner_text() == shown[2]
    assert shown[3] == ""
    root.get_by_role("button", name="Show the rest").press("Enter")
    assert came.last.inner_text() == "later = [1, 3]"
    assert root.locator(".pl-hidden").count() == 0


def test_an_overlooked_statement_is_named(page: Page, show: Callable[..., Locator]) -> None:
    program = "import torch\nx = torch.tensor([-1.0])\ny = x.abs() * 1 + 1"
    root = show(program, ask="y")
    answer(page, root, "y is [0]", next(r.text.en for r in pose(program, "y").reasons if not r.right))
    assert "That would be right without .abs() in line 3." in root.locator("[aria-live=polite]").inner_text()
    assert "No known mistake" not in root.locator("[aria-live=polite]").inner_text()


def test_what_a_lesson_answers_in_its_own_words_takes_the_place_of_the_line(
    page: Page, show: Callable[..., Locator]
) -> None:
    program, taken = (
        "import torch\nx = torch.zeros(2)\nx.add_(1)",
        (3, "x.add(1)", "The underscore writes.", "下划线表示写入。"),
    )
    root = show(program, ask="x", taken_for=[taken])
    answer(page, root, "x is [0, 0]", fact_of(program, "x", "value"))
    shown = root.locator("[aria-live=polite]").inner_text()
    assert "The underscore writes." in shown
    assert "That would be right if" not in shown


def test_an_answer_that_fits_several_beliefs_gets_the_program_that_separates_them(
    page: Page, show: Callable[..., Locator]
) -> None:
    root = show(GRID, ask="grid", kind="version")
    root.locator("fieldset").nth(0).locator("label", has_text="is 0").click()
    root.locator("fieldset").nth(1).locator("label", has_text="grid and row share memory").click()
    took = page.evaluate(
        """() => { const start = performance.now(); document.querySelector(".pl-question form").requestSubmit();
        const height = document.querySelector("[aria-live=polite]").getBoundingClientRect().height;
        return height && performance.now() - start; }"""
    )
    assert 0 < took < 150
    live = root.locator("[aria-live=polite]")
    assert "fits more than one belief" in live.inner_text()
    assert live.locator(".pl-refutation").count() == 2
    assert not live.locator("td").first.is_visible()
    live.locator("summary").focus()
    page.keyboard.press("Enter")
    assert live.locator("tbody tr").count() == 2
    assert live.locator("td").first.is_visible()


def test_an_answer_that_no_known_mistake_gives_leads_to_the_fact_that_decides(
    page: Page, show: Callable[..., Locator]
) -> None:
    root = show(BACKUP, ask="w", kind="version")
    answer(page, root, "w._version is 2", "after line 6, the version of w is 0")
    assert "The fact marked above decides" in root.locator("[aria-live=polite]").inner_text()


def test_who_expects_torch_to_refuse_a_line_reads_what_it_refuses(page: Page, show: Callable[..., Locator]) -> None:
    root = show(BACKUP, ask="best")
    answer(page, root, "raises RuntimeError", fact_of(BACKUP, "best", "value"))
    said = root.locator("[aria-live=polite]").inner_text()
    assert "torch refuses a write into a leaf" in said
    assert "No known mistake" not in said


def test_a_false_reason_for_the_right_outcome_is_refuted(page: Page, show: Callable[..., Locator]) -> None:
    root = show(BACKUP, ask="best")
    posed = pose(BACKUP, "best")
    false = next(r for r in posed.reasons if r.beliefs)
    answer(page, root, posed.answer.text.en, false.text.en)
    said = root.locator("[aria-live=polite]").inner_text()
    assert "The result is right, but your reason isn't." in said
    assert false.instead is not None
    assert f"Instead of the reason that you picked, this holds: {false.instead.en}." in said
    assert false.beliefs[0].fact.en in said
    assert false.beliefs[0].check in said


def test_who_gives_the_right_reason_is_not_said_to_have_overlooked_what_it_denies(
    page: Page, show: Callable[..., Locator]
) -> None:
    program = "import torch\nx = torch.tensor([1.0, 3.0])\nm = x.mean()\ny = x.detach().clone().sub_(m * 2)\nx.mul_(2)"
    posed = pose(program, "(x, y)", beliefs=())
    found = [one for one in posed.predictions if one.against and one.without and not one.without.said]
    assert found
    (mark,) = found[0].marks
    why = next(r.text.en for r in posed.reasons if r.right)
    root = show(program, ask="(x, y)", beliefs=())
    answer(page, root, posed.choices[mark].text.en, why)
    said = root.locator("[aria-live=polite]").inner_text()
    assert "Your reason is right, but this result does not follow from it." in said
    assert "Did you overlook it?" not in said
    assert root.locator(".pl-came.pl-hidden").count() == 0


def test_of_two_beliefs_the_one_that_the_reason_tells_is_answered(page: Page, show: Callable[..., Locator]) -> None:
    program = "import torch\nw = torch.tensor([1.0, 2.0])\nbest = w.detach()\nw -= 1"
    beliefs = ["detach_copies", "augmented_assignment_rebinds"]
    offered = [
        (3, "best and w share memory", "best 与 w 共享内存", "shares(best, w)"),
        (3, "best has memory of its own", "best 有自己的内存", "not shares(best, w)"),
    ]
    posed = pose(program, "best", offered, beliefs)
    (both,) = [one for one in posed.predictions if len(one.beliefs) == 2]
    (mark,) = both.marks
    for why, several in ((False, False), (True, True)):
        root = show(program, ask="best", beliefs=beliefs, because=offered)
        reason = next(r.text.en for r in posed.reasons if r.right is why)
        answer(page, root, posed.choices[mark].text.en, reason)
        said = root.locator("[aria-live=polite]").inner_text()
        assert ("Which is yours?" in said) is several
        assert MISCONCEPTIONS["detach_copies"].fact.en in said
        assert (MISCONCEPTIONS["augmented_assignment_rebinds"].fact.en in said) is several


@pytest.mark.parametrize(
    ("cell", "picked", "replies"),
    [
        (
            "09 training-none-predict",
            ("w is [0.5]", "w.grad is None, so step moves w by its weight decay alone"),
            ("None is not a zero", "zero_grad_leaves_zeros"),
        ),
        (
            "03 tools-underscore-predict",
            ("([1, 1], [3, 3])", "because append has copied total"),
            ("append() copies nothing", "augmented_assignment_rebinds"),
        ),
        (
            "02 core-integers-predict",
            ("[1.5, 2]", "makes float32 of the memory of counts"),
            ("A write in place never changes the type", "augmented_assignment_rebinds"),
        ),
        (
            "08 control-detach-predict",
            ("line 6 raises", "no longer leads back to x"),
            ("detach() takes nothing away from h", "detach_copies"),
        ),
    ],
)
def test_a_belief_is_not_shown_beside_a_reason_that_is_false_in_its_world(
    page: Page, show: Callable[..., Locator], cell: str, picked: tuple[str, str], replies: tuple[str, str]
) -> None:
    [one] = [one for one in course() if one.name == cell]
    root = show(*one.arguments, **one.named)
    answer(page, root, *picked)
    shown = root.locator("[aria-live=polite]").inner_text()
    own, denied = replies
    assert own in shown
    assert MISCONCEPTIONS[denied].belief.en not in shown
    assert root.locator(".pl-worlds").count() == 0
    assert root.locator(".pl-ghost").count() == 0, "nothing is called the learner's prediction that they denied"


def test_where_the_reason_denies_the_belief_and_nothing_is_known_of_it_that_is_said(
    page: Page, show: Callable[..., Locator]
) -> None:
    program = "import torch\nw = torch.tensor([1.0, 2.0])\nbest = w.detach()\nw -= 1"
    offered = [
        (3, "best and w share memory", "best 与 w 共享内存", "shares(best, w)"),
        (3, "best is a number", "best 是一个数", "best.dim() == 0"),
    ]
    root = show(program, ask="best", beliefs=["detach_copies"], because=offered)
    answer(page, root, "best is [1, 2]", "best is a number")
    shown = root.locator("[aria-live=polite]").inner_text()
    assert "No known mistake gives this result for this reason." in shown
    assert MISCONCEPTIONS["detach_copies"].belief.en not in shown


def test_the_lessons_own_sentence_follows_a_right_reason_on_its_own(page: Page, show: Callable[..., Locator]) -> None:
    program = "import torch\nt = torch.ones(2)\nt.mul_(3)"
    taken = [(3, "t = t", "That would be mul().", "那是 mul()。")]
    offered = [
        (3, "mul_ has written into t", "mul_ 写入了 t", "t[0] == 3"),
        (2, "t has one element", "t 有一个元素", "t.numel() == 1"),
    ]
    root = show(program, ask="t", beliefs=(), taken_for=taken, because=offered)
    answer(page, root, "t is [1, 1]", "after line 3, mul_ has written into t")
    said = root.locator("[aria-live=polite]").inner_text()
    assert "but this result does not follow from it.\n" in said
    assert "It follows from this" not in said
    assert "That would be mul()." in said


def test_a_place_taken_for_that_of_another_tensor_is_answered(page: Page, show: Callable[..., Locator]) -> None:
    program = "import torch\ngrid = torch.arange(6.0).view(2, 3)\nturned = grid.t()\ngrid[:, 1] = 9"
    root = show(program, ask="turned", kind="changes")
    cells = root.locator(".pl-cells input")
    for place in (1, 3, 5):
        cells.nth(place).check()
    root.locator("fieldset").nth(1).locator("input").first.check()
    root.locator("button[type=submit]").click()
    said = root.locator("[aria-live=polite]").inner_text()
    assert "In grid the statement changes grid[0, 1], grid[1, 1]." in said.replace("`", "")
    assert "No known mistake" not in said


def test_nothing_can_be_committed_before_both_parts_are_chosen(page: Page, show: Callable[..., Locator]) -> None:
    root = show()
    commit = root.locator("button[type=submit]")
    assert commit.is_disabled()
    root.locator("fieldset").nth(0).locator("input").first.check()
    assert commit.is_disabled()
    page.keyboard.press("Enter")
    assert root.locator("[aria-live=polite]").inner_text() == ""
    root.locator("fieldset").nth(1).locator("input").first.check()
    assert commit.is_enabled()


def test_skipping_shows_the_answer_and_is_kept_as_a_skip(page: Page, show: Callable[..., Locator]) -> None:
    root = show()
    root.get_by_role("button", name="Skip").press("Enter")
    assert "Skipped" in root.locator("[aria-live=polite]").inner_text()
    assert state(page) == {"marks": [], "choice": -1, "reason": -1, "committed": False, "skipped": True}
    assert root.locator(".pl-came").last.inner_text() == "raises RuntimeError"
    assert root.locator(".pl-hidden").count() == 0


def test_a_question_shown_again_remembers_its_answer(page: Page, show: Callable[..., Locator]) -> None:
    root = show(committed=True, marks=[0], choice=0, reason=0)
    assert root.locator("fieldset").nth(0).locator("input").first.is_checked()
    assert root.locator("[aria-live=polite]").inner_text()
    assert root.locator("button[type=submit]").is_disabled()


def test_it_can_be_answered_when_the_kernel_is_gone(window: Stage, page: Page, show: Callable[..., Locator]) -> None:
    root = show(dead=True)
    answer(page, root, "line 6 raises", fact_of(PROGRAM, "x.grad", "value"))
    assert "and that is why" in root.locator("[aria-live=polite]").inner_text()
    assert "the answer was not kept Error: the kernel is gone" in window.said.pop()


def test_the_notebook_gets_none_of_its_keys(show: Callable[..., Locator]) -> None:
    # JupyterLab tests the focused element itself before it looks at an ancestor.
    focusable = show().locator("input, button, [tabindex]")
    assert focusable.count() >= 8
    assert all(one.get_attribute("data-lm-suppress-shortcuts") == "true" for one in focusable.all())


def test_texts_are_texts(page: Page, show: Callable[..., Locator]) -> None:
    program = "import torch\nname = '</pre><img src=x onerror=\"window.hit = 1\"> `中文` 🔥'\nt = torch.zeros(2)\n"
    root = show(program, ask="name")
    assert root.locator("img").count() == 0
    assert page.evaluate("window.hit === undefined")
    assert "`中文` 🔥" in root.locator("pre").first.inner_text()


def test_it_speaks_chinese(show: Callable[..., Locator]) -> None:
    root = show(language="zh")
    assert root.get_attribute("lang") == "zh"
    assert "会发生什么？" in root.inner_text()
    assert "提交" in root.inner_text()


def test_it_fits_a_narrow_window(page: Page, show: Callable[..., Locator]) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    for options in ({}, {"program": GRID, "ask": "grid", "kind": "changes"}, {"kind": "line"}):
        show(**options)
        assert page.evaluate("document.documentElement.scrollWidth <= 360")
        heights = page.locator(".pl-question label, .pl-question button").evaluate_all(
            "rows => rows.map(row => row.getBoundingClientRect().height)"
        )
        assert min(heights) >= 24
