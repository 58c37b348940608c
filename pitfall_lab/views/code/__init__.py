"""The source with its marks: where something was saved, changed, raised or went silently wrong. :func:`project` returns
the marks as plain data.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from pitfall_lab.trace import Span, Trace
from pitfall_lab.trace.slice import failures
from pitfall_lab.trace.state_types import Text
from pitfall_lab.views.label_history import Facts, gather

MarkKind = Literal["saved", "written", "raised", "silent", "wrong"]


class CodeMark(TypedDict):
    """A span of the source at which something was saved, written, or found to be wrong."""

    kind: MarkKind
    step: int
    source: int
    line: int
    column: int
    end_line: int
    end_column: int
    utf16: list[int]
    text: Text


class CodeScene(TypedDict):
    """The marks of the source, in its order."""

    marks: list[CodeMark]


def project(trace: Trace, facts: Facts | None = None) -> CodeScene:
    """The marks of the source as plain data, each with its exact span.

    Lines count from 1, columns from 0 in code points; ``utf16`` has the columns in the browser's units. ``saved`` and
    ``written`` are marked only where a failure or a wrong value depends on it.
    """
    facts = facts or gather(trace)
    wanted: dict[tuple[MarkKind, int], Text] = {}
    for failure in failures(trace):
        if failure.saved_at is not None:
            wanted.setdefault(
                ("saved", failure.saved_at), _text("saved", failure.node, failure.saved, failure.expected)
            )
        for step in failure.changed_at:
            wanted.setdefault(("written", step), _text("written", failure.counter, None, failure.found))
        if failure.step is not None:
            wanted.setdefault(("raised", failure.step), {"en": failure.type, "zh": failure.type})
    for harm in trace.harms:
        for cause in harm.causes:
            if cause.saved_at is not None:
                wanted.setdefault(("saved", cause.saved_at), _text("saved", cause.node, cause.saved, None))
            for step in cause.changed_at:
                wanted.setdefault(
                    ("silent", step),
                    {"en": f"{cause.storage} written, no counter moved", "zh": f"写入 {cause.storage}，计数器未变"},
                )
        wanted.setdefault(
            ("wrong", harm.step),
            {"en": f"gradient of {facts.name(harm.leaf)}", "zh": f"{facts.name(harm.leaf)} 的梯度不对"},
        )
    marks = [mark for (kind, step), text in wanted.items() if (mark := _mark(facts, kind, step, text))]
    return {"marks": sorted(marks, key=lambda m: (m["source"], m["line"], m["column"], m["step"]))}


def _text(kind: str, who: str | None, slot: str | None, version: int | None) -> Text:
    if kind == "saved":
        at = "" if version is None else f" v{version}"
        return {"en": f"for {who}.{slot}{at}", "zh": f"供 {who}.{slot} 使用{at}"}
    return {"en": f"{who} is v{version} from here", "zh": f"{who} 从此为 v{version}"}


def _mark(facts: Facts, kind: MarkKind, step: int, text: Text) -> CodeMark | None:
    events = facts.trace.events
    span: Span | None = events[step].span if 0 <= step < len(events) else None
    if span is None:
        return None
    return {
        "kind": kind,
        "step": step,
        "source": span.source,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "utf16": list(span.utf16),
        "text": text,
    }
