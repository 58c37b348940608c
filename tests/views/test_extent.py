"""What a view says of a program comes after what it says of how much of it was seen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pitfall_lab import views
from pitfall_lab.notebook.what_if import what_if
from pitfall_lab.trace import Agreement, Gap, Note, Reach, Span, Trace
from pitfall_lab.trace.extent import headline, nothing_found, seen, stop, stopped_at
from pitfall_lab.verify import trace_program
from pitfall_lab.views import compare

PROGRAM = (
    "import torch\nx = torch.ones(2, requires_grad=True)\nfor _ in range(9):\n    y = (x * 2).sum()\ny.backward()\n"
)
SHORT = trace_program(PROGRAM, limit=5)
WHOLE = trace_program(PROGRAM)
PARTLY = replace(WHOLE, notes=(Note("unseen", "A thread ran unseen.", "有一个线程未被观察。"),))


def test_a_stop_is_counted_and_has_its_place():
    assert SHORT.stopped is not None
    assert (SHORT.stopped.cause, SHORT.stopped.span.line, SHORT.calls, SHORT.reach) == ("limit", 4, 6, Reach(3, 14))
    assert (WHOLE.stopped, WHOLE.unseen, WHOLE.calls, WHOLE.reach) == (None, (), 20, Reach(3))
    assert Trace.from_json(SHORT.to_json()) == SHORT


def test_a_trace_of_the_time_before_says_where_it_stopped():
    old = {
        "schema": 2,
        "notes": [{"kind": "stopped", "en": "Observation stopped here, because X.", "zh": "…", "step": 3}],
    }
    trace = Trace.from_json(json.dumps(old))
    assert stopped_at(trace).en == "observation stopped"
    assert stop(trace).en.startswith("Observation stopped here, because X. Seen before that: no call to torch.")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_page_text_and_scene_begin_with_it(language):
    why, head = stop(SHORT).say(language), headline(SHORT).say(language)
    page, text = views.page(SHORT, (), language, key="k"), views.text(SHORT, language)
    assert text.startswith(f"{head}\n{why}\n")
    assert page.index(head) < page.index("<h2>")
    assert why in page
    scene = views.scene(SHORT)
    assert (scene["head"][language], scene["why"][language]) == (head, why)
    for other in (views.page(WHOLE, (), language, key="k"), views.text(WHOLE, language)):
        assert "■" not in other
        assert seen(WHOLE).say(language) in other
    assert views.scene(WHOLE)["why"] is None


def test_the_headline_is_no_more_than_what_was_seen():
    assert [headline(trace).en for trace in (SHORT, WHOLE, PARTLY, Trace())] == [
        "■ the recording reached its limit at line 4",
        "✓ finished without an error",
        "✓ finished; not everything was seen",
        "no call to torch was seen",
    ]
    sampled = replace(PARTLY, reach=replace(PARTLY.reach, gaps=(Gap(3, 90),)))
    assert headline(sampled).en == "✓ finished; rounds that repeat are left out"
    assert headline(replace(sampled, notes=sampled.notes * 2)).en == "✓ finished; not everything was seen"
    assert nothing_found(PARTLY).en == "nothing found in what was seen: 20 calls to torch, on 3 lines"
    assert (
        nothing_found(Trace(agreement=Agreement(mirrored=1), reach=Reach(1))).en
        == "nothing found: 1 call to torch, on 1 line, was seen"
    )
    failed = trace_program("import torch\ntorch.ones(2) @ torch.ones(3)\n")
    assert headline(failed).en == "✕ RuntimeError in line 2"


@pytest.mark.parametrize(
    ("cause", "says"), [("removed", "observation stopped after line 4"), ("never", "was not observed")]
)
def test_the_headline_names_the_cause(cause, says):
    note = Note("stopped", "…", "…", 0, Span(4, 0, 4, 1), cause)
    assert stopped_at(Trace(notes=(note,))).en == says


def test_two_runs_that_were_not_seen_to_their_end_are_not_said_to_be_the_same():
    told = compare.compare(SHORT, SHORT)
    assert compare.text(told) == "Both runs do the same, as far as they were observed.\n"
    assert compare.text(compare.compare(WHOLE, WHOLE)) == "Both runs do the same.\n"
    other = compare.compare(WHOLE, SHORT)
    assert "After: ■ the recording reached its limit at line 4" in compare.text(other)
    assert "■ the recording reached its limit at line 4" in compare.html(other)


def test_a_changed_program_that_was_not_observed_to_its_end_says_so():
    after = "import torch\nx = torch.ones(2)\ntorch.overrides._pop_mode()\ny = x * 2\n"
    assert "After: ■ observation stopped after line 2" in repr(what_if(WHOLE, after))
