"""A claim is decided with one click, then comes the program, then the verdict; the decision is kept in the progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

import pitfall_lab
from pitfall_lab.lessons import progress
from pitfall_lab.lessons.claims import VERDICTS, ClaimBox, ledger
from pitfall_lab.widgets import claim_widget as widget
from tests.frontend.stage import MOUNT, Stage, browser

MODULE = Path(widget.__file__).with_name("claim.js").read_text(encoding="utf-8")
WRONG, RIGHT = "s1-2-h", next(key for key, found in ledger().items() if found.verdict == "correct" and not found.asked)


@pytest.fixture(scope="module")
def window() -> Iterator[Stage]:
    with browser() as running:
        yield Stage(running.new_page())


@pytest.fixture
def page(window: Stage) -> Iterator[Page]:
    with window.cleared(800):
        yield window.page


def draw(page: Page, *boxes: ClaimBox, **decisions: str) -> None:
    page.set_content('<!doctype html><html lang="en"><title>stage</title><main id="notebook"></main>')
    state = {"_content": json.dumps(widget.content(boxes)), "decisions": decisions, "at": 0}
    page.evaluate(MOUNT, {"code": MODULE, "states": [state]})


def test_every_verdict_bears_out_some_decision_and_none_bears_out_all() -> None:
    assert set(widget.FITTING) == set(VERDICTS)
    assert widget.FITTING["incomplete"] == (
        "wrong",
        "depends",
    )  # a sentence that leaves out what matters may be called wrong
    assert widget.FITTING["outdated"] == ("wrong",)
    assert all(0 < len(set(fits)) < 3 and set(fits) <= set(widget.DECISIONS) for fits in widget.FITTING.values())


def test_the_verdict_on_a_claim_is_said_in_the_words_of_the_buttons() -> None:
    for key, en, zh in (
        ("s2-5.1.1-f", "≠ wrong", "≠ 错"),
        ("s0-2.1.1-d", "≈ wrong, or it depends (misleading)", "≈ 错，或看情况（有误导）"),
        ("s4-3-i", "↺ wrong (outdated)", "↺ 错（已过时）"),
        ("s0-2.1.1-c", "⇵ it depends", "⇵ 看情况"),
    ):
        for language, said in (("en", en), ("zh", zh)):
            (claim,) = widget.content([ClaimBox(ledger()[key], language=language)])["claims"]  # type: ignore[arg-type]
            assert claim["verdict"] == said


@pytest.mark.parametrize(
    "key", ["s2-5.1.1-f", "s1-3.3-d", "s1-1-g", "s1-1-k", "s1-2-t", "s3-2.3-l", "s4-1-l", "s4-3-i", "s0-2.3.2-d"]
)
def test_what_is_said_of_every_case_is_wrong_where_one_program_contradicts_it(key: str) -> None:
    """It depends was borne out, though the program showed a case in which the sentence does not hold."""
    assert not ledger()[key].asked
    assert widget.FITTING[ledger()[key].judged] == ("wrong",)


def test_decisions_are_kept_and_say_whether_the_program_bears_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JPY_SESSION_NAME", "somewhere/05-copies-and-views.ipynb")
    for key, decision in ((WRONG, "right"), (WRONG, "wrong"), (RIGHT, "right"), (RIGHT, "perhaps")):
        pitfall_lab.claim(key).decisions = {key: decision}
    kept = [(e.chapter, e.item, e.kind, e.held, e.total, e.note) for e in progress.load(tmp_path).entries]
    assert kept == [
        ("05", WRONG, "claim", 0, 1, "right"), ("05", WRONG, "claim", 1, 1, ""), ("05", RIGHT, "claim", 1, 1, ""),
    ]  # fmt: skip


def test_a_widget_carries_its_twins_and_what_its_program_printed_here() -> None:
    shown = pitfall_lab.claim(WRONG).run()
    bundle, _ = shown._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(bundle)
    assert bundle["text/plain"] == str(shown)
    assert "✓ run just now" in str(shown)
    assert "✓ run just now" in json.loads(shown._content)["claims"][0]["ran"]
    assert "记录" in json.loads(pitfall_lab.claim(WRONG, "zh")._content)["claims"][0]["ran"]


def test_the_program_comes_after_the_click_and_the_verdict_after_the_program(page: Page) -> None:
    found = replace(ledger()[WRONG], truth="<img src=x onerror=alert(1)> `clone()` copies")
    draw(page, ClaimBox(found))
    root = page.locator(".pl-decide")
    assert root.locator("button").all_inner_texts() == ["right", "wrong", "it depends"]
    assert root.locator("pre").count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("window.widgets[0].get('decisions')") == {WRONG: "wrong"}
    assert root.locator("pre").first.inner_text() == found.snippet.rstrip()
    assert VERDICTS["wrong"].glyph not in root.inner_text()
    assert "<img" not in root.inner_text()
    page.keyboard.press("Enter")  # the button that shows the verdict has the focus
    said = root.locator("[aria-live=polite]").inner_text()
    assert "The program bears you out" in said
    assert "<img src=x" in said
    assert root.locator("img").count() == 0
    assert root.locator("code").last.inner_text() == "clone()"


def test_where_another_sentence_is_asked_the_decision_is_about_that_one(page: Page) -> None:
    found = replace(ledger()[RIGHT], asked="`rand` gives whole numbers.", holds=False, answer="It gives floats.")
    draw(page, ClaimBox(found))
    root = page.locator(".pl-decide")
    assert "rand gives whole numbers." in root.inner_text()
    assert found.claim not in root.inner_text()
    root.get_by_role("button", name="wrong").click()
    root.get_by_role("button", name="Show the verdict").click()
    said = root.locator("[aria-live=polite]").inner_text()
    assert "The program bears you out" in said
    assert said.index("It gives floats.") < said.index(found.claim)


def test_a_decision_that_was_made_is_shown_again_with_the_verdict(page: Page) -> None:
    draw(page, ClaimBox(ledger()[WRONG], language="zh"), **{WRONG: "right"})
    root = page.locator(".pl-decide")
    assert root.locator("button[aria-pressed=true]").all_inner_texts() == ["对"]
    assert root.locator("button:enabled").count() == 0
    assert "程序给出的结论不同" in root.inner_text()
    assert "≠ 错\n" in root.inner_text()


SEVERAL = ("s1-2-h", "s1-2-a", "s0-2-a")  # wrong, correct, incomplete
BOXES = [ClaimBox(ledger()[key]) for key in SEVERAL]


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_several_claims_come_one_at_a_time_with_a_count_and_end_in_a_summary(page: Page) -> None:
    draw(page, *BOXES)
    root = page.locator(".pl-decide")
    for number, (box, decision) in enumerate(zip(BOXES, ("right", "right", "it depends"), strict=True), 1):
        shown = root.inner_text()
        assert f"Claim {number} of 3" in shown
        assert [other.claim.claim in shown.replace("`", "") for other in BOXES] == [other is box for other in BOXES]
        assert box.claim.truth.split("`")[0] not in shown
        press(page, decision)
        assert ("≠ wrong", "✓ right", "◐ wrong, or it depends (incomplete)")[number - 1] in root.inner_text()
        assert root.locator("details").evaluate("fold => fold.open") == (
            number == 1
        )  # the program is open where it decides otherwise
        press(page, "Next claim" if number < 3 else "Summary")
    said = root.inner_text()
    assert "3 of 3 decided; in 2 of them the program agrees with you." in said
    assert [BOXES[0].claim.claim in said, BOXES[1].claim.claim in said] == [True, False]
    assert root.locator("button").count() == 0
    assert page.evaluate("window.widgets[0].get('decisions')") == dict(
        zip(SEVERAL, ("right", "right", "depends"), strict=True)
    )


def test_a_claim_can_be_skipped_and_the_rest_left_and_taken_up_again(page: Page) -> None:
    draw(page, *BOXES, **{SEVERAL[1]: "right"})
    root = page.locator(".pl-decide")
    press(page, "Skip")
    assert "Claim 3 of 3" in root.inner_text()  # the second is decided
    press(page, "Skip")
    assert "1 of 3 decided" in root.inner_text()
    press(page, "Go on with the others")
    assert "Claim 1 of 3" in root.inner_text()
    press(page, "Stop here")
    assert "1 of 3 decided" in root.inner_text()
    assert page.evaluate("window.widgets[0].get('at')") == 3


def test_several_claims_go_on_when_the_kernel_is_gone(page: Page, window: Stage) -> None:
    page.set_content('<!doctype html><html lang="en"><title>stage</title><main id="notebook"></main>')
    state = {"_content": json.dumps(widget.content(BOXES)), "decisions": {}, "at": 0, "dead": True}
    page.evaluate(MOUNT, {"code": MODULE, "states": [state]})
    press(page, "wrong")
    press(page, "Next claim")
    assert "Claim 2 of 3" in page.locator(".pl-decide").inner_text()
    assert all("the decision was not kept" in line for line in window.said)
    window.said.clear()


def test_without_a_script_each_claim_is_behind_the_verdict_of_the_one_before(page: Page) -> None:
    shown = pitfall_lab.claims(*SEVERAL).run()
    bundle, _ = shown._repr_mimebundle_()
    assert bundle["text/plain"].count("run just now") == 3  # of ids, CPython may give others each time
    page.set_content(f'<!doctype html><html lang="en"><title>page</title>{bundle["text/html"]}')
    for number, key in enumerate(SEVERAL, 1):
        visible = page.locator(".pl-claim").inner_text()
        assert [f"Claim {n} of 3" in visible for n in (1, 2, 3)] == [n <= number for n in (1, 2, 3)]
        page.locator("summary").nth(number - 1).click()
        assert VERDICTS[ledger()[key].verdict].word.en in page.locator(".pl-claim").inner_text()


def test_decisions_about_several_claims_are_kept_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = pitfall_lab.claims(*SEVERAL)
    shown.decisions = {SEVERAL[1]: "right"}
    shown.decisions = {SEVERAL[1]: "right", SEVERAL[0]: "right"}
    assert [(e.item, e.held, e.note) for e in progress.load(tmp_path).entries] == [
        (SEVERAL[1], 1, ""),
        (SEVERAL[0], 0, "right"),
    ]


def test_claims_without_an_id_or_with_an_unknown_one_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="at least one id"):
        pitfall_lab.claims()
    with pytest.raises(KeyError, match="s1-2-h"):
        pitfall_lab.claims("s1-2-h", "s1-2-hh")


@pytest.mark.parametrize(
    ("key", "decision"),
    [("s1-2-g", "depends"), ("s2-2.2.2-d", "wrong"), ("s4-2-h", "wrong"), ("s0-1.1-b", "wrong")],
)
def test_what_the_chapter_has_just_shown_is_borne_out(key: str, decision: str) -> None:
    """The article's own sentence refused who had read the cell above it, or could not be known from the course."""
    found = ledger()[key]
    assert found.asked
    assert decision in widget.FITTING[found.judged]
