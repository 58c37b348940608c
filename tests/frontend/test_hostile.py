"""Traces that come from anywhere: nothing in them is run, and what cannot be shown is
one sentence inside the widget.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pitfall_lab import rules
from pitfall_lab.trace import SCHEMA, Effect, Source, Trace
from tests.frontend.sample import TEXT, sample, tensor
from tests.frontend.stage import Stage, state_of

INJECTIONS = [
    "<script>window.broken.push(1)</script>",
    "<img src=x onerror=window.broken.push(2)>",
    "`${window.broken.push(3)}`",
    '"><svg onload=window.broken.push(4)>',
    "javascript:window.broken.push(5)",
    "__proto__",
]


def poisoned(text: str) -> Trace:
    """The sample with ``text`` wherever a name, a message or a value can stand."""
    trace = sample()
    extra = (
        Effect("tensors.t1", {**tensor("S1", name=text, born=0), "names": [text], "dtype": text}, "agreed"),
        Effect("storages.S1.cells", [text, text, text], "agreed"), Effect("nodes.n9", {"name": text}, "observed"),
    )  # fmt: skip
    first = replace(
        trace.events[0], op=f"torch.{text}", scope=(text,), reason=text, effects=trace.events[0].effects + extra
    )
    failure = replace(trace.outcome.failure, type=text, message=text, node=text, saved=text)
    source = Source(text, f"# {text}\n" * 2 + TEXT.split("\n", 2)[2])
    return replace(
        trace, sources=(source,), events=(first, *trace.events[1:]), outcome=replace(trace.outcome, failure=failure)
    )


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("bare", [True, False], ids=["without scene", "with scene"])
def test_text_stays_text(stage: Stage, text: str, bare: bool):
    trace = poisoned(text)
    state = state_of(trace, rules.find(trace))
    story = {"rule": text, "name": text, "severity": text, "message": text, "explanation": text,
             "beats": [{"role": text, "title": text, "line": 3, "step": 2, "code": text, "text": text}],
             "fixes": [{"title": text, "rows": [["+", text], [text, text]]}]}  # fmt: skip
    texts = {"keys": [[text, text]], "signs": [[text, text]], "agreement": text}
    scene = {} if bare else {**json.loads(state["_scene"]), "stories": [story], "help": texts}
    root = stage.show({**state, "_scene": json.dumps(scene), "step": 0, "focus": "t1"})
    root.locator("input[type=range]").focus()
    for key in ["ArrowRight"] * len(trace.events) + ["t", "?", "e"]:
        stage.page.keyboard.press(key)
    stage.page.wait_for_timeout(50)
    assert stage.page.evaluate("window.broken") == []
    assert root.locator("script, img, iframe, object").count() == 0
    assert stage.page.evaluate("({}).polluted === undefined && Object.prototype.name === undefined")
    assert text in root.locator(".pl-name").inner_text()


def test_paths_cannot_reach_javascripts_own_objects(stage: Stage):
    trace = sample()
    paths = ("__proto__.polluted", "constructor.prototype.polluted", "tensors.__proto__.polluted")
    bad = tuple(Effect(path, 1, "observed") for path in paths)
    events = (replace(trace.events[0], effects=trace.events[0].effects + bad), *trace.events[1:])
    root = stage.show(state_of(replace(trace, events=events), step=0))
    assert root.is_visible()
    assert stage.page.evaluate("({}).polluted === undefined")


WHOLE = sample().to_json()
NEWER = f'{{"schema": {SCHEMA + 1}, "outcome": {{}}}}'
REFUSED: dict[str, str] = {
    "empty": "",
    "not JSON": "hello",
    "truncated": WHOLE[: len(WHOLE) // 2],
    "a number": "7",
    "null": "null",
    "a list": "[]",
    "no schema": "{}",
    "wrong types": '{"schema": 1, "events": 5}',
    "an event without a step": '{"schema": 1, "events": [{"kind": "call", "op": "x"}]}',
    "steps out of order": WHOLE.replace('"step":3,', '"step":4,', 1),
    "unknown kind": WHOLE.replace('"kind":"call"', '"kind":"spell"', 1),
    "damaged effect": WHOLE.replace('"counters.C1",0,"a"', '"counters.C1",0,"z"', 1),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize(
    ("language", "start"), [("en", "This is not a complete trace"), ("zh", "这不是一份完整的轨迹")]
)
def test_what_is_no_trace_gets_one_sentence(stage: Stage, text: str, language: str, start: str):
    root = stage.show({"_trace": text, "_scene": "{}", "step": 0, "focus": "", "language": language})
    assert root.inner_text().startswith(start)
    assert root.locator("button").count() == 0


def test_a_newer_trace_says_that_an_update_is_needed(stage: Stage):
    root = stage.show({"_trace": NEWER, "_scene": "{}", "step": 0, "focus": "", "language": "en"})
    assert root.inner_text().startswith(f"This trace has schema {SCHEMA + 1}")


@pytest.mark.parametrize(
    "scene",
    [
        *("", "{", "7", "null", "[]"),
        '{"events": 5, "stories": [7, {"beats": 7}], "help": 7, "palette": "x"}',
        '{"graph": null, "storage": [], "versions": 1}',
    ],
)
def test_a_damaged_scene_costs_only_the_pictures(stage: Stage, scene: str):
    root = stage.show({**state_of(sample()), "_scene": scene, "step": 3})
    assert "".join(root.locator(".pl-text .pl-now").all_inner_texts()) == "h.mul_(10)"
    assert root.locator(".pl-sentence").inner_text()


@pytest.mark.parametrize(("step", "shown"), [(10**9, 14), (-(10**9), 0), (None, 0), ("x", 0), (2.6, 4)])
def test_an_impossible_step_is_brought_back_into_range(stage: Stage, step: Any, shown: int):
    root = stage.show({**state_of(sample()), "step": step})
    assert root.locator(".pl-count").inner_text() == f"{shown} / 14"


def test_a_trace_without_events_says_so_much(stage: Stage):
    root = stage.show({**state_of(Trace()), "step": -1})
    assert root.locator(".pl-sentence").inner_text() == "Before the first operation."
    assert root.locator(".pl-count").inner_text() == "0 / 0"
