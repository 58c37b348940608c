"""A saved trace that somebody has changed: it is drawn, or refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pitfall_lab import rules, views
from pitfall_lab.cli import main
from pitfall_lab.trace import Trace, TraceError
from pitfall_lab.verify import trace_program

PROGRAM = (
    "import torch\n"
    "x = torch.ones(3, requires_grad=True)\n"
    "h = torch.sigmoid(x)\n"
    "v = h[:2]\n"
    "v.mul_(10)\n"
    "h.sum().backward()\n"
)
STRANGE = (None, 10**30, "x", [], {"a": 1})
"""Put in the place of every number, word, list and object in turn."""
PAGES = 8
"""Of so many that are accepted, one is drawn as a page as well, which takes ten times as long as the text."""


@pytest.fixture(scope="module")
def saved() -> str:
    return trace_program(PROGRAM, name="p.py").to_json()


def _changed(saved: str) -> Iterator[tuple[str, str]]:
    """Yield (what was changed, the changed text): each value replaced by each strange one, each left out."""
    whole = json.loads(saved)
    yield from ((f"{path}: {json.dumps(new)[:20]}", json.dumps(whole)) for path, new in _each_change(whole, "trace"))


def _each_change(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Change a part in place in all ways, one after the other, and yield the path and the new value while it is so."""
    if not isinstance(part, list | dict):
        return
    for key in list(part) if isinstance(part, dict) else range(len(part)):
        old = part[key]
        yield from _each_change(old, f"{path}.{key}")
        for new in STRANGE:
            part[key] = new
            yield f"{path}.{key}", new
        part[key] = old


def test_a_changed_trace_is_drawn_or_refused_in_one_sentence(saved: str) -> None:
    refused, drawn = {}, 0
    for where, text in _changed(saved):
        try:
            trace = Trace.from_json(text)
        except TraceError as error:
            refused[str(error)] = where
            continue
        drawn += 1
        try:
            views.text(trace)
            if drawn % PAGES == 0:
                views.page(trace, rules.find(trace), "en")
        except Exception as error:
            raise AssertionError(where) from error
    assert len(refused) > 100
    assert [where for said, where in refused.items() if "\n" in said or not said.endswith(".")] == []
    assert drawn > 200


def test_what_does_not_fit_together_is_refused_in_one_sentence(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be decoded and makes a drawing fail is no reason for a traceback."""
    file = tmp_path / "saved.json"
    file.write_text(saved, encoding="utf-8")
    monkeypatch.setattr(views, "text", lambda trace: [][trace.events[0].step])
    assert main(["show", "--text", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{file} cannot be shown: it is a trace whose parts do not fit together" in said
    program = tmp_path / "p.py"
    program.write_text(PROGRAM, encoding="utf-8")
    with pytest.raises(IndexError):  # a program's own trace: the mistake is ours, and is not hidden
        main(["show", "--text", str(program)])
