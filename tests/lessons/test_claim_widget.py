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
WRONG, RIGHT = "s1-2-h", next(key for key, found in ledger().items() if found.verdict == "correct")


@pytest.fixture(scope="module")
def window() -> Iterator[Stage]:
    with browser() as running:
        yield Stage(running.new_page())


@pytest.fixture
def page(window: Stage) -> Iterator[Page]:
    with window.cleared(800):
        yield window.page


def draw(page: Page, box: ClaimBox, decision: str = "") -> None:
    page.set_content('<!doctype html><html lang="en"><title>stage</title><main id="notebook"></main>')
    page.evaluate(MOUNT, {"code": MODULE, "states": [{"_content": json.dumps(widget.content(box)), "decision": decision}]})


def test_every_verdict_bears_out_some_decision_and_none_bears_out_all() -> None:
    assert set(widget.FITTING) == set(VERDICTS)
    assert widget.FITTING["incomplete"] == ("wrong", "depends")  # a sentence that leaves out what matters may be called wrong
    assert all(0 < len(set(fits)) < 3 and set(fits) <= set(widget.DECISIONS) for fits in widget.FITTING.values())


def test_decisions_are_kept_and_say_whether_the_program_bears_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JPY_SESSION_NAME", "somewhere/05-copies-and-views.ipynb")
    for key, decision in ((WRONG, "right"), (WRONG, "wrong"), (RIGHT, "right"), (RIGHT, "perhaps")):
        pitfall_lab.claim(key).decision = decision
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
    assert "✓ run just now" in json.loads(shown._content)["ran"]
    assert "记录" in json.loads(pitfall_lab.claim(WRONG, "zh")._content)["ran"]


def test_the_program_comes_after_the_click_and_the_verdict_after_the_program(page: Page) -> None:
    found = replace(ledger()[WRONG], truth="<img src=x onerror=alert(1)> `clone()` copies")
    draw(page, ClaimBox(found))
    root = page.locator(".pl-decide")
    assert root.locator("button").all_inner_texts() == ["right", "wrong", "it depends"]
    assert root.locator("pre").count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("window.widgets[0].get('decision')") == "wrong"
    assert root.locator("pre").first.inner_text() == found.snippet.rstrip()
    assert VERDICTS["wrong"].glyph not in root.inner_text()
    assert "<img" not in root.inner_text()
    page.keyboard.press("Enter")  # the button that shows the verdict has the focus
    said = root.locator("[aria-live=polite]").inner_text()
    assert "The program bears you out" in said
    assert "<img src=x" in said
    assert root.locator("img").count() == 0
    assert root.locator("code").last.inner_text() == "clone()"


def test_a_decision_that_was_made_is_shown_again_with_the_verdict(page: Page) -> None:
    draw(page, ClaimBox(ledger()[WRONG], language="zh"), "right")
    root = page.locator(".pl-decide")
    assert root.locator("button[aria-pressed=true]").all_inner_texts() == ["对"]
    assert root.locator("button:enabled").count() == 0
    assert "程序给出的结论不同" in root.inner_text()
    assert VERDICTS["wrong"].word.zh in root.inner_text()
