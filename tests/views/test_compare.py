"""Two runs side by side: the first difference, how each ends, and nothing that the page
could ask for but a known change.
"""

from __future__ import annotations

import json
import zlib

import pytest

import pitfall_lab
from pitfall_lab.rules import find
from pitfall_lab.views.compare import compare, first_difference, html, text
from pitfall_lab.widgets import Explorer

PROGRAM = """import torch
x = torch.tensor([0.5, 1.0], requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
h.sum().backward()
print(x.grad)
"""
CHANGED = PROGRAM.replace("h.mul_(10)", "h = h * 10")


class FakeLab:
    """Runs other texts at once, and has no fixes to try."""

    said = None

    def __init__(self, rerun):
        self.rerun = rerun


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(Explorer, "_behind", staticmethod(lambda work: work()))


@pytest.fixture(scope="module")
def runs():
    return pitfall_lab.record(PROGRAM), pitfall_lab.record(CHANGED)


def test_the_first_difference_is_the_changed_line(runs):
    before, after = runs
    told = compare(before, after)
    assert before.events[told["first"]].span.line == after.events[told["first"]].span.line == 4
    assert told["sides"][0]["raised"].startswith("RuntimeError: one of the variables")
    assert told["sides"][1]["raised"] == ""
    assert told["gradients"] == [("x", "–", "[2.35, 1.966]")]
    assert json.loads(json.dumps(told)) == {**told, "gradients": [["x", "–", "[2.35, 1.966]"]]}
    for language in ("en", "zh"):
        assert "x.grad" in text(told, language)
        assert "<section>" in html(told, language)


def test_numbers_alone_are_no_difference(runs):
    other = pitfall_lab.record(PROGRAM.replace("0.5, 1.0", "0.25, 3.0"))
    assert first_difference(runs[0], runs[0]) is None
    assert first_difference(runs[0], other) is None
    assert "do the same" in text(compare(runs[0], other))


def test_the_page_gets_what_it_asks_for_by_id_and_nothing_else_is_run(runs, monkeypatch):
    before, after = runs
    asked, sent = [], []

    def rerun(source):
        asked.append(source)
        return after

    explorer = Explorer(before, find(before), lab=FakeLab(rerun))
    monkeypatch.setattr(explorer, "send", lambda content, buffers=(): sent.append((content, buffers)))
    offered = json.loads(zlib.decompress(explorer._scene))["changes"]
    assert offered[0]["title"]["en"] == "Make a new tensor instead of overwriting `h` (line 4)"
    for hostile in ("import os", {"what_if": "import os"}, {"what_if": ["fix-1"]}, {"what_if": "fix-99"}, None):
        explorer._received(explorer, hostile, [])
    assert asked == sent == []
    explorer._received(explorer, {"what_if": "fix-1"}, [])
    assert asked == [CHANGED]
    ((content, buffers),) = sent
    assert content == {"what_if": "fix-1", "compared": compare(before, after)}
    assert zlib.decompress(buffers[0]).decode() == after.to_json()


def test_a_run_that_fails_is_one_sentence(runs, monkeypatch):
    def rerun(_):
        raise RuntimeError("it did not end within 8 s")

    sent = []
    explorer = Explorer(runs[0], find(runs[0]), lab=FakeLab(rerun))
    monkeypatch.setattr(explorer, "send", lambda content, buffers=(): sent.append(content))
    explorer._received(explorer, {"what_if": "fix-1"}, [])
    assert sent == [{"what_if": "fix-1", "failed": "it did not end within 8 s"}]


def test_without_a_way_to_run_nothing_is_offered(runs):
    assert json.loads(zlib.decompress(Explorer(runs[0])._scene))["changes"] == []


def test_what_if_runs_the_changed_program_elsewhere():
    comparison = pitfall_lab.what_if(PROGRAM, "fix-1")
    assert comparison.compared["gradients"] == [("x", "–", "[2.35, 1.966]")]
    assert "The runs differ from step 3 on" in repr(comparison)
    assert "<section>" in comparison._repr_mimebundle_()["text/html"]
    with pytest.raises(ValueError, match="There is no change 'fix-9' of this program; there is: fix-1"):
        pitfall_lab.what_if(comparison.before, "fix-9")
