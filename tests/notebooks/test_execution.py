"""The committed notebooks as they run: right from top to bottom on a fresh kernel (tests/conftest.py hands them out one by one)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebooks.books import ANNOUNCED, NAMES, code, read, run, said, shown_claims, tags


@pytest.fixture(scope="module", params=NAMES)
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One notebook after execution, once per module."""
    book = run(read(request.param), tmp_path_factory.mktemp(request.param.split(".")[0]))
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
    boxes = [o.data["text/plain"] for c in code(executed) for o in c.outputs if "pl-claim" in str(o.get("data", {}).get("text/html", ""))]
    assert len(boxes) == len(shown_claims(executed))
    assert all("✓ run just now" in box for box in boxes), [box for box in boxes if "✓ run just now" not in box]


def test_nothing_is_written_to_the_error_stream(executed: Any) -> None:
    for cell in code(executed):
        assert not [o.text for o in cell.outputs if o.get("name") == "stderr"], cell.id


def test_unsolved_exercises_are_graded_and_not_solved(executed: Any) -> None:
    for cell in (c for c in code(executed) if "exercise" in tags(c)):
        assert "Edit the cell and run it again" in said(cell), cell.id
