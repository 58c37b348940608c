"""The story of each finding: its beats, i.e. steps shown one after the other (saved → changed → raised), its picture,
and its fixes. :func:`stories` returns them as plain data.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Literal, NotRequired, TypedDict

from pitfall_lab.trace import Event, Failure, T, Trace
from pitfall_lab.trace.shown_numbers import worse
from pitfall_lab.trace.state_types import Text
from pitfall_lab.trace.text import place, source_lines
from pitfall_lab.views.encoding import clean_text
from pitfall_lab.views.finding_pictures import Beat, BeatRole, FindingPicture, moment, picture
from pitfall_lab.views.graph import Drawing
from pitfall_lab.views.graph.part import part
from pitfall_lab.views.label_history import Facts
from pitfall_lab.views.makers import makers
from pitfall_lab.views.slices import Slice, around

ORDER = ("other", "saved", "changed", "wrong", "raised")
CHANGES = 4
"""The maximal number of writes of one failure that are separate beats."""

_TITLES = {
    "saved": T("saved", "保存"),
    "changed": T("changed", "改写"),
    "raised": T("raised", "报错"),
    "wrong": T("wrong", "出错"),
    "other": T("here", "在此"),
}
_ROLES = {
    "alias": T("same memory", "同一内存"),
    "leaf": T("leaf", "叶子"),
    "operand": T("operand", "操作数"),
    "forward": T("called here", "在此调用"),
    "made": T("made", "产生"),
    "used": T("used", "使用"),
    "cut": T("cut off", "切断"),
    "freed": T("freed", "释放"),
    "kept": T("kept", "留下"),
    "copied": T("copied", "复制"),
    "cleared": T("cleared", "清零"),
    "step": T("updated", "更新"),
    "read": T("read", "读取"),
    "masked": T("masked", "遮住"),
    "gradient": T("gets a gradient", "得到梯度"),
    "left out": T("not updated", "没有更新"),
    "around": T("left out", "绕过"),
    "backward": T("backward", "反向传播"),
    "off": T("not recorded", "不记录"),
}
"""The name of a line's role on the card of its beat; without an entry, the name of the beat's role."""
DAMAGED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The exceptions that reading a malformed trace can raise."""


Sign = Literal[" ", "−", "+"]


class EditScene(TypedDict):
    """An edit that a fix makes in the program's first source: it replaces lines ``line`` to ``end_line`` (from 1).

    In a notebook, ``cell``, ``name`` and ``own`` are the id of the cell, its name, and the line within it.
    """

    line: int
    end_line: int
    text: str
    cell: NotRequired[str]
    name: NotRequired[str]
    own: NotRequired[int]


class PrintedScene(TypedDict):
    """What a fix changes in the output: a printed line, or the final value of the variable ``name``.

    ``note`` explains a number that looks worse (None: nothing to explain).
    """

    name: str
    before: str
    after: str
    note: Text | None


class FixScene(TypedDict):
    """A way to repair the program; in ``rows`` the sign " " marks lines that stay, "−" removed and "+" added lines."""

    title: str | Text
    verified: bool
    printed: PrintedScene | None
    rows: list[tuple[Sign, str]]
    edits: list[EditScene]


class Drawn(TypedDict):
    """What is drawn of a story.

    ``beats`` are its steps, shown one after the other; ``picture`` is its picture, and ``graph`` its nodes with a
    layout of their own, each None if there is none; ``slice`` has the labels and steps of the trace that it is about.
    ``makers`` are the lines (source number, line) that made the values of the finding.
    """

    beats: list[Beat]
    picture: FindingPicture | None
    makers: list[tuple[int, int]]
    slice: Slice
    graph: Drawing | None


class StoryScene(Drawn):
    """One finding, or the error of the trace itself."""

    severity: Literal["error", "warning", "info"]
    rule: str
    name: str
    message: str | Text
    explanation: str | Text
    advice: str | Text
    predicted: bool
    step: int | None
    fixes: list[FixScene]


def stories(facts: Facts, described: list[dict[str, Any]]) -> list[StoryScene]:
    """One story for each finding in ``described`` (findings as plain data), for the browser.

    Without findings, one story of the error that ended the program; empty if no error did.
    """
    facts.called(None)
    names = facts.names
    failure = facts.trace.outcome.failure
    if not described and failure is not None:
        return [_of_failure(facts, names, failure)]
    return [_of_finding(facts, names, finding) for finding in described]


def _of_finding(facts: Facts, names: dict[str, str], finding: dict[str, Any]) -> StoryScene:
    trace = facts.trace
    line = finding.get("line")
    beats = [_of_related(trace, related, line) for related in finding.get("related", ())]
    is_thin = all(beat["role"] == "other" for beat in beats) or (len(beats) == 1 and line is not None)
    if is_thin and all(beat["line"] != line for beat in beats):
        beats.append(_own_place(trace, finding))
    beats.sort(key=lambda beat: _order(trace, beat))
    return {
        "rule": finding.get("rule") or "",
        "name": finding.get("name") or "",
        "message": finding.get("message") or "",
        "explanation": finding.get("explanation") or "",
        "advice": finding.get("advice") or "",
        "severity": finding.get("severity") or "info",
        "predicted": finding.get("predicted") is True,
        "step": finding.get("step"),
        "fixes": fixes(trace, finding),
        **_drawn(facts, names, finding, beats),
    }


def _order(trace: Trace, beat: Beat) -> tuple[float, int]:
    """The sort key of a beat: its step; a line without a torch call comes before the next line with one.

    What was made without a torch call (a scheduler, a sampler) comes first, wherever its line is. The writing of a file
    comes at the step that the trace gives.
    """
    step, line = beat["step"], beat["line"]
    if step is None and beat["was"] == "made":
        return (-1.0, ORDER.index(beat["role"]))
    place: float = len(trace.events) if step is None else step
    files = [
        each.step
        for each in trace.beside.written
        if each.span is not None and (each.span.line, each.span.source) == (line, beat["source"])
    ]
    if step is None and files:
        return (files[-1] - 0.5, ORDER.index(beat["role"]))
    if step is None and line is not None:
        later = (
            e.step
            for e in trace.events
            if e.span and e.span.source == beat["source"] and e.span.line > line and e.kind != "node"
        )
        place = next(later, len(trace.events)) - 0.5
    return (place, ORDER.index(beat["role"]))


def _drawn(facts: Facts, names: dict[str, str], finding: dict[str, Any], beats: list[Beat]) -> Drawn:
    """The beats of a story with its picture, its makers, its slice of the trace and its graph.

    If the trace is damaged, the picture has the first four beats without memory, ``makers`` is empty, and ``graph``
    None.
    """
    try:
        drawn: FindingPicture = picture(facts, names, finding, beats)
    except DAMAGED:
        moments = [moment(beat, []) for beat in beats[:4]]
        drawn = {"kind": "time", "moments": moments, "keeper": None, "about": []}
    chosen = around(facts, drawn, beats)
    try:
        graph = part(facts, [*_roots(facts, beats), *chosen["nodes"]])
    except DAMAGED:
        graph = None
    try:
        made = makers(facts, finding, drawn, beats)
    except DAMAGED:
        made = []
    return {"beats": beats, "picture": drawn, "makers": made, "slice": chosen, "graph": graph}


def _roots(facts: Facts, beats: list[Beat]) -> list[str]:
    """The node at which each backward of the story begins."""
    events = [_event(facts.trace, beat["step"]) for beat in beats]
    labels = [(e.operands[0].label, e.step) for e in events if e is not None and e.name == "backward" and e.operands]
    return [root for label, step in labels if (root := facts.tensor(label, step).get("grad_fn"))]


def fixes(trace: Trace, finding: dict[str, Any]) -> list[FixScene]:
    """The fixes of a finding as plain data.

    The edits of each are given as rows to be read, and as edits of the program's first source to be applied.
    """
    lines = _lines(trace)
    return [
        {
            "title": fix.get("title") or "",
            "verified": fix.get("verified") is True,
            "printed": _printed(fix.get("printed")),
            "rows": _dedented(_rows(lines, fix.get("edits", ()))),
            "edits": _edits(trace, fix.get("edits", ())),
        }
        for fix in finding.get("fixes", ())
    ]


def _printed(printed: Any) -> PrintedScene | None:
    if not isinstance(printed, dict):
        return None
    name, before, after = (clean_text(printed.get(key) or "") for key in ("name", "before", "after"))
    note = worse(name, before, after)
    said: Text | None = None if note is None else {"en": note.en, "zh": note.zh}
    return {"name": name, "before": before, "after": after, "note": said}


def _of_related(trace: Trace, related: dict[str, Any], own: Any) -> Beat:
    """The beat of a related line of a finding.

    A backward that raised nothing is shown as wrong only if it is on the finding's ``own`` line or computed a wrong
    gradient; otherwise the mistake is elsewhere.
    """
    was = related.get("role", "")
    step = related.get("step")
    event = _event(trace, step)
    refused = was in ("changed", "used") and event is not None and event.error is not None
    role = _role("raised" if refused else was, raised=_raised(trace, step))
    if step is None:
        step = _step_on(trace, related.get("line"), role)
    if role == "wrong" and related.get("line") != own and all(harm.step != step for harm in trace.harms):
        role = "other"
    place = {"line": related.get("line"), "source": related.get("source")}
    beat = _beat(
        trace,
        role,
        step,
        **place,
        title=None if refused or role in ("raised", "wrong") else _ROLES.get(was),
        text=related.get("message") or "",
    )
    beat["was"] = was
    return beat


def _own_place(trace: Trace, finding: dict[str, Any]) -> Beat:
    """The beat of the finding's own place, for a finding whose related places do not show it."""
    step = finding.get("step")
    if step is None:
        step = _step_on(trace, finding.get("line"), "other")
    elif isinstance(line := finding.get("line"), int):
        step = step_on_line(trace, step, line, finding.get("source") or 0)
    event = _event(trace, step)
    if event is not None and event.error:
        return _beat(trace, "raised", step, line=finding.get("line"))
    writes = (
        event is not None and bool(event.writes) and event.span is not None and event.span.line == finding.get("line")
    )
    return _beat(trace, "changed" if writes else "other", step, line=finding.get("line"))


def _of_failure(facts: Facts, names: dict[str, str], failure: Failure) -> StoryScene:
    trace = facts.trace
    steps: list[tuple[BeatRole, int | None]]
    steps = [
        ("saved", failure.saved_at),
        *(("changed", step) for step in failure.changed_at[:CHANGES]),
        ("raised", failure.step),
    ]
    beats = [_beat(trace, role, step) for role, step in steps if step is not None]
    message = f"{failure.type}: {failure.message}"
    known = ("node", "saved", "tensor", "storage", "expected", "found")
    values = [{"name": key, "value": getattr(failure, key)} for key in known if getattr(failure, key) is not None]
    finding = {"step": failure.step, "facts": values}
    return {
        "rule": "",
        "name": failure.kind,
        "message": message,
        "explanation": "",
        "advice": "",
        "severity": "error",
        "predicted": False,
        "step": failure.step,
        "fixes": [],
        **_drawn(facts, names, finding, beats),
    }


def _beat(
    trace: Trace,
    role: BeatRole,
    step: int | None,
    *,
    line: int | None = None,
    source: int | None = None,
    title: T | None = None,
    text: Any = "",
) -> Beat:
    event = _event(trace, step)
    if event is not None and event.span and (line is None or source is None):
        line, source = (
            (event.span.line, event.span.source)
            if line is None
            else (line, event.span.source if event.span.line == line else 0)
        )
    lines = _lines(trace, source or 0)
    code = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    title = title or _TITLES[role]
    where = place(trace, line, source or 0) if line is not None else T("", "")
    return {
        "role": role, "was": role, "step": step, "line": line, "source": source or 0, "code": code, "text": text,
        "title": {"en": title.en, "zh": title.zh}, "place": {"en": where.en, "zh": where.zh},
    }  # fmt: skip


def _role(role: str, *, raised: bool) -> BeatRole:
    if role == "saved":
        return "saved"
    if role == "changed":
        return "changed"
    if role in {"backward", "raised"}:
        return "raised" if raised else "wrong"
    return "other"


def _raised(trace: Trace, step: int | None) -> bool:
    """Whether a step raised; for None, whether the program did."""
    event, failure = _event(trace, step), trace.outcome.failure
    if event is None:
        return trace.outcome.kind == "raised"
    return event.error is not None or (failure is not None and failure.step == step)


def _step_on(trace: Trace, line: int | None, role: str) -> int | None:
    """The step of an event on this line (runs of nodes do not count); None if there is none.

    For the role "raised" it is the first event that raised, for "changed" the first that wrote memory; for other roles,
    or if there is none of these, the first event on the line.
    """
    here = [e for e in trace.events if line is not None and e.span and e.span.line == line and e.kind != "node"]
    best = (e for e in here if (role == "raised" and e.error) or (role == "changed" and e.writes))
    found = next(best, next(iter(here), None))
    return None if found is None else found.step


def step_on_line(trace: Trace, step: int, line: int, source: int) -> int:
    """``step`` if its event is on this line of a source, else the step of the last call on the line before it.

    If there is none before, the first call on the line; ``step`` if the line has no call.
    """
    calls = [
        e.step
        for e in trace.events
        if e.span and e.kind != "node" and e.span.source == source and e.span.line <= line <= e.span.end_line
    ]
    return next((at for at in reversed(calls) if at <= step), next(iter(calls), step))


def _event(trace: Trace, step: int | None) -> Event | None:
    return trace.events[step] if step is not None and 0 <= step < len(trace.events) else None


def _lines(trace: Trace, source: int = 0) -> list[str]:
    return list(source_lines(trace.sources[source].text)) if 0 <= source < len(trace.sources) else []


def _rows(lines: list[str], edits: Any) -> list[tuple[Sign, str]]:
    """The edits of a fix as rows of a sign and a line of source: " " stays, "−" is removed, "+" is added."""
    rows: list[tuple[Sign, str]] = []
    for edit in sorted(edits, key=lambda edit: edit["line"]):
        old = lines[edit["line"] - 1 : edit["end_line"]]
        new = list(source_lines(edit["text"]))
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        until = len(new) - tail
        rows += [(" ", line) for line in new[:head]]
        rows += [("−", line) for line in old[head : len(old) - tail]]
        rows += [("+", line) for line in new[head:until]]
        rows += [(" ", line) for line in new[until:]]
    return rows


def _edits(trace: Trace, edits: Any) -> list[EditScene]:
    """The edits of a fix, as data for the browser, which applies them to the notebook's cells or to the program's text.

    If the program consists of notebook cells, each edit also has the ``cell`` (the notebook's id for it), the cell's
    ``name``, and ``own``, the line within the cell.
    """
    out: list[EditScene] = []
    for edit in edits:
        part = trace.sources[0].part(edit["line"]) if trace.sources else None
        made: EditScene = {"line": edit["line"], "end_line": edit["end_line"], "text": edit["text"]}
        if part is not None:
            made["cell"], made["name"], made["own"] = part.cell, part.name, edit["line"] - part.line + part.own
        out.append(made)
    return out


def _dedented(rows: list[tuple[Sign, str]]) -> list[tuple[Sign, str]]:
    """The rows without their common indentation."""
    deep = min((len(text) - len(text.lstrip()) for _, text in rows if text.strip()), default=0)
    return [(sign, text[deep:]) for sign, text in rows]


def _common(one: list[str], other: list[str]) -> int:
    """The number of lines that both have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
