"""What went wrong, as beats that can be walked through (saved → changed → raised), and the edits that help as lines before and after."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from pitfall_lab.trace import Event, Failure, T, Trace
from pitfall_lab.trace.text import place, source_lines

ORDER = ("other", "saved", "changed", "wrong", "raised")
CHANGES = 4
"""So many writes of one failure are beats of their own."""

_TITLES = {
    "saved": T("saved", "保存"),
    "changed": T("changed", "改写"),
    "raised": T("raised", "报错"),
    "wrong": T("wrong", "出错"),
    "other": T("see also", "另见"),
}
_ROLES = {
    "alias": T("same memory", "同一内存"),
    "leaf": T("leaf", "叶子"),
    "operand": T("operand", "操作数"),
    "forward": T("made here", "在此产生"),
}
_HERE = T("here", "在此")


def stories(trace: Trace, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One story per finding, or what the trace itself tells when no rule spoke, as plain data for the browser."""
    failure = trace.outcome.failure
    if not told and failure is not None:
        return [_of_failure(trace, failure)]
    return [_of_finding(trace, finding) for finding in told]


def _of_finding(trace: Trace, finding: dict[str, Any]) -> dict[str, Any]:
    beats = [_of_related(trace, related) for related in finding.get("related", ())]
    beats.sort(key=lambda beat: (ORDER.index(beat["role"]), beat["step"] or 0))
    if all(beat["role"] == "other" for beat in beats):
        beats.append(_own_place(trace, finding))
    lines = _lines(trace)
    return {
        **{key: finding.get(key) or "" for key in ("rule", "name", "message", "explanation")},
        "severity": finding.get("severity") or "info",
        "predicted": finding.get("predicted") is True,
        "beats": beats,
        "fixes": [
            {
                "title": fix.get("title") or "",
                "verified": fix.get("verified") is True,
                "rows": _rows(lines, fix.get("edits", ())),
                "edits": _edits(trace, fix.get("edits", ())),
            }
            for fix in finding.get("fixes", ())
        ],
    }


def _of_related(trace: Trace, related: dict[str, Any]) -> dict[str, Any]:
    role = _role(related.get("role", ""), raised=trace.outcome.kind == "raised")
    step = related.get("step")
    if step is None:
        step = _step_on(trace, related.get("line"), role)
    return _beat(trace, role, step, line=related.get("line"), title=_ROLES.get(related.get("role", "")), text=related.get("message") or "")


def _own_place(trace: Trace, finding: dict[str, Any]) -> dict[str, Any]:
    """A finding without related places still has its own."""
    step = finding.get("step")
    if step is None:
        step = _step_on(trace, finding.get("line"), "other")
    event = _event(trace, step)
    if event is not None and event.error:
        return _beat(trace, "raised", step, line=finding.get("line"))
    return _beat(trace, "other", step, line=finding.get("line"), title=_HERE)


def _of_failure(trace: Trace, failure: Failure) -> dict[str, Any]:
    steps = [("saved", failure.saved_at), *(("changed", step) for step in failure.changed_at[:CHANGES]), ("raised", failure.step)]
    beats = [_beat(trace, role, step) for role, step in steps if step is not None]
    message = f"{failure.type}: {failure.message}"
    return {
        "rule": "", "name": failure.kind, "message": message, "explanation": "", "severity": "error", "predicted": False,
        "beats": beats, "fixes": [],
    }  # fmt: skip


def _beat(trace: Trace, role: str, step: int | None, *, line: int | None = None, title: T | None = None, text: Any = "") -> dict[str, Any]:
    event = _event(trace, step)
    if line is None and event is not None and event.span:
        line = event.span.line
    lines = _lines(trace)
    code = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    title = title or _TITLES[role]
    where = place(trace, line) if line is not None else None
    return {
        "role": role, "title": {"en": title.en, "zh": title.zh}, "step": step, "line": line, "code": code, "text": text,
        "place": where and {"en": where.en, "zh": where.zh},
    }  # fmt: skip


def _role(role: str, *, raised: bool) -> str:
    if role in {"saved", "changed"}:
        return role
    if role in {"backward", "raised"}:
        return "raised" if raised else "wrong"
    return "other"


def _step_on(trace: Trace, line: int | None, role: str) -> int | None:
    """The step that a place in the source stands for: the first there, or the one that did what the role says."""
    here = [e for e in trace.events if line is not None and e.span and e.span.line == line and e.kind != "node"]
    best = (e for e in here if (role == "raised" and e.error) or (role == "changed" and e.writes))
    found = next(best, next(iter(here), None))
    return None if found is None else found.step


def _event(trace: Trace, step: int | None) -> Event | None:
    return trace.events[step] if step is not None and 0 <= step < len(trace.events) else None


def _lines(trace: Trace) -> list[str]:
    return source_lines(trace.sources[0].text) if trace.sources else []


def _rows(lines: list[str], edits: Any) -> list[tuple[str, str]]:
    """The edits of a fix as rows: ``(" ", line)`` stays, ``("−", line)`` goes, ``("+", line)`` comes."""
    rows: list[tuple[str, str]] = []
    for edit in sorted(edits, key=lambda edit: edit["line"]):
        old = lines[edit["line"] - 1 : edit["end_line"]]
        new = source_lines(edit["text"])
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        until = len(new) - tail
        rows += [(" ", line) for line in new[:head]]
        rows += [("−", line) for line in old[head : len(old) - tail]]
        rows += [("+", line) for line in new[head:until]]
        rows += [(" ", line) for line in new[until:]]
    return rows


def _edits(trace: Trace, edits: Any) -> list[dict[str, Any]]:
    """The edits of a fix for the page that makes them.

    Where cells make the program, each also has the ``cell`` (the notebook's id for it), its ``name``, and its ``own`` line in there.
    """
    out = []
    for edit in edits:
        part = trace.sources[0].part(edit["line"]) if trace.sources else None
        where = {"cell": part.cell, "name": part.name, "own": edit["line"] - part.line + part.own} if part is not None else {}
        out.append({**edit, **where})
    return out


def _common(one: list[str], other: list[str]) -> int:
    """How many lines both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
