"""The Explorer's Python side: where it opens, what it sends, and what a page without a kernel gets."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

import pitfall_lab
from pitfall_lab import rules, views
from pitfall_lab.trace import Outcome, Trace
from pitfall_lab.views.stored import MARK
from pitfall_lab.widgets import Explorer
from pitfall_lab.widgets.explorer import opening_step
from tests.bench.drawing import CELL
from tests.frontend.sample import sample


def test_it_opens_at_the_write_that_breaks_backward():
    assert Explorer(sample()).step == 3


def test_a_forecast_that_never_came_true_opens_at_its_write_too():
    assert opening_step(replace(sample(), outcome=Outcome())) == 3


def test_it_opens_at_the_failure_when_nothing_was_overwritten():
    trace = sample()
    failure = replace(trace.outcome.failure, kind="other", changed_at=())
    events = tuple(replace(event, forecasts=()) for event in trace.events)
    assert opening_step(replace(trace, events=events, outcome=Outcome("raised", failure))) == 7


def test_it_opens_at_the_end_of_a_program_that_went_well_and_before_an_empty_one():
    trace = sample()
    events = tuple(replace(event, forecasts=(), error=None) for event in trace.events[:7])
    assert opening_step(replace(trace, events=events, outcome=Outcome())) == 6
    assert opening_step(Trace()) == -1


def test_it_opens_where_a_rule_points_when_nothing_was_overwritten():
    trace = sample()
    events = tuple(replace(event, forecasts=(), error=None) for event in trace.events[:7])
    well = replace(trace, events=events, outcome=Outcome())
    finding = replace(rules.find(trace)[0], step=5)
    assert opening_step(well, [replace(finding, span=events[5].span)]) == 5
    assert finding.span is not None
    assert finding.span.line == events[3].span.line != events[5].span.line
    assert opening_step(well, [finding]) == 3, (
        "what the step calls is on another line: the last call on the finding's own"
    )


def test_a_write_that_the_worst_finding_is_not_about_comes_after_its_own_step():
    trace = sample()
    assert opening_step(trace) == 3
    finding = rules.find(trace)[0]
    assert opening_step(trace, [finding]) == 3
    elsewhere = replace(finding, step=1, span=trace.events[1].span, related=())
    assert opening_step(trace, [elsewhere]) == 1


def test_a_step_that_is_asked_for_wins():
    explorer = Explorer(sample(), step=0)
    assert (explorer.step, explorer.focus) == (0, "")


def test_the_memory_that_was_overwritten_is_in_focus_from_the_start():
    assert Explorer(sample()).focus == "S2"


def test_what_it_sends_reads_back_as_the_same_trace():
    trace = sample()
    state = Explorer(trace).get_state()
    assert Trace.from_json(zlib.decompress(state["_trace"]).decode()) == trace
    assert json.loads(zlib.decompress(state["_scene"]))["events"]


def test_what_it_sends_is_small():
    trace = pitfall_lab.record(f"import torch\n{CELL}")
    state = Explorer(trace).get_state()
    assert len(state["_trace"]) + len(state["_scene"]) <= 400 * len(trace.events)


def test_a_page_without_a_kernel_gets_html_and_text():
    bundle, _ = Explorer(sample())._repr_mimebundle_()
    assert set(bundle) == {MARK, "application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert "RuntimeError" in bundle["text/html"]
    assert "RuntimeError" in bundle["text/plain"]


def test_a_fault_in_our_pictures_costs_only_the_pictures(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(views, "scene", broken)
    monkeypatch.setattr(views, "page", broken)
    explorer = Explorer(sample())
    assert zlib.decompress(explorer._scene) == b"{}"
    bundle, _ = explorer._repr_mimebundle_()
    assert "14 events" in bundle["text/plain"]
