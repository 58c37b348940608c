"""The committed notebooks as they run, a quarter of them each day: right from top to bottom on a fresh kernel.

tests/conftest.py hands them out one by one.
"""

from __future__ import annotations

import copy
import re
import sys
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import pytest

from pitfall_lab.commands import book as pages
from tests.notebooks.books import ANNOUNCED, NAMES, code, read, run, said, shown_claims, tags
from tests.turns import todays

COLD = ("00-start-here.ipynb", "09-autograd-in-training.ipynb")
"""Notebooks whose kernels, like a reader's, import everything themselves; the second one makes an optimizer."""


@pytest.fixture(scope="module", params=todays(NAMES, of=len(NAMES)))
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One notebook after execution, once per module."""
    python = sys.executable if request.param in COLD else request.getfixturevalue("warm_python")
    book = run(read(request.param), tmp_path_factory.mktemp(request.param.split(".")[0]), python)
    book.metadata["name"] = request.param
    return book


def test_it_runs_from_top_to_bottom(executed: Any) -> None:
    for cell in code(executed):
        failed = [o for o in cell.outputs if o.output_type == "error"]
        assert bool(failed) == (ANNOUNCED in tags(cell)), (cell.id, said(cell)[:300])


def test_announced_errors_are_the_ones_the_chapter_speaks_of(executed: Any) -> None:
    prose = "\n".join(c.source for c in executed.cells if c.cell_type == "markdown")
    for cell in (c for c in code(executed) if ANNOUNCED in tags(c)):
        error = next(o for o in cell.outputs if o.output_type == "error")
        told = "modified by an inplace operation" in error.evalue and "modified by an inplace operation" in prose
        assert told or error.ename in prose, (cell.id, error.ename, error.evalue)


def test_every_observed_cell_shows_an_explorer(executed: Any) -> None:
    for cell in (c for c in code(executed) if c.source.startswith("%%pitfall")):
        shown = [o.data for o in cell.outputs if "data" in o]
        explorers = [data for data in shown if "application/vnd.jupyter.widget-view+json" in data and "text/html" in data]
        assert len(explorers) == 1, cell.id
        report = explorers[0]["text/plain"]
        assert ", 0 disagreed" in report, (cell.id, report)
        assert "Observation stopped" not in report, (cell.id, report)


def test_every_question_was_computed_with_a_belief_against_it(executed: Any) -> None:
    for cell in (c for c in code(executed) if c.source.startswith("pitfall_lab.question(")):
        shown = said(cell)
        assert shown.count("( ) ") + shown.count("[ ] ") >= 4, (cell.id, shown)
        assert "Because" in shown, (cell.id, shown)


def test_every_claim_was_confirmed_live(executed: Any) -> None:
    texts = [o.data["text/plain"] for c in code(executed) for o in c.outputs if "pl-claim" in str(o.get("data", {}).get("text/html", ""))]
    boxes = re.split(r"^(?=s\d-[\w.]+-[a-z]+ · )", "\n".join(texts), flags=re.MULTILINE)[1:]
    assert len(boxes) == len(shown_claims(executed))
    assert all("✓ run just now" in box for box in boxes), [box for box in boxes if "✓ run just now" not in box]


def test_nothing_is_written_to_the_error_stream(executed: Any) -> None:
    for cell in code(executed):
        assert not [o.text for o in cell.outputs if o.get("name") == "stderr"], cell.id


def test_unsolved_exercises_are_graded_and_not_solved(executed: Any) -> None:
    for cell in (c for c in code(executed) if "exercise" in tags(c)):
        assert "Edit the cell and run it again" in said(cell), cell.id


def test_the_program_from_practice_is_told_what_is_wrong_with_it(executed: Any) -> None:
    for cell in (c for c in code(executed) if c.id.endswith("practice-check")):
        assert re.search(r"\.py:\d+:\d+: (error|warning|note) PL\d+", said(cell)), cell.id


class Page(HTMLParser):
    """What is asked of a page: its headings' levels, its links and anchors, and the pictures that say nothing to who cannot see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.mute: list[str] = []
        self._nameless = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {str(found[key]) for key in ("id", "name") if found.get(key)}
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag == "img" and ("alt" not in found or str(found["alt"]).startswith("No description")):
            self.mute.append(str(found)[:200])
        if tag == "svg" and not ({"aria-label", "aria-labelledby"} & found.keys() or found.get("aria-hidden") == "true"):
            self.mute.append(str(found)[:200])
            self._nameless = True
        if tag == "title" and self._nameless:
            self.mute.pop()

    def handle_endtag(self, tag: str) -> None:
        self._nameless &= tag != "svg"


def test_the_page_of_a_notebook_has_ordered_headings_links_that_lead_somewhere_and_words_for_every_picture(executed: Any) -> None:
    page = Page(pages.page(copy.deepcopy(executed), executed.metadata["name"]))
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
    known = {"index.html", *(name.replace(".ipynb", ".html") for name in NAMES)}
    for link in page.links:
        file, _, anchor = link.partition("#")
        assert file in known if file else {anchor, unquote(anchor)} & page.anchors, link
    assert page.mute == []
