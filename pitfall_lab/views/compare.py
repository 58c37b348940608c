"""Two traces side by side, from the first step in which they differ: :func:`compare` gives the comparison as plain
data, :func:`text` and :func:`html` show it.
"""

from __future__ import annotations

from typing import Any, TypedDict

from pitfall_lab.trace import Event, Language, T, Trace
from pitfall_lab.trace.extent import stopped_at
from pitfall_lab.trace.replay import advance
from pitfall_lab.trace.state_types import Text
from pitfall_lab.trace.text import cells_text, excerpt, sentences
from pitfall_lab.views.encoding import clean
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.memory import bytes_text
from pitfall_lab.views.memory import project as memory

STEPS = 8
_NUMBERS = frozenset({"cells", "gradient", "name", "names"})


def first_difference(before: Trace, after: Trace) -> int | None:
    """The first step at which the two traces differ; None if they do not.

    If one trace is the beginning of the other, it is the number of steps of the shorter one. Values, names and spans
    are not compared: two runs may draw other random numbers and still count as equal.
    """
    for step, (one, other) in enumerate(zip(before.events, after.events, strict=False)):
        if _done(one) != _done(other):
            return step
    shorter, longer = sorted((len(before.events), len(after.events)))
    return shorter if shorter != longer else None


def _done(event: Event) -> Any:
    failure = event.error.kind if event.error else None
    changed: dict[str, Any] = {}  # folded: one record may be written at once or field by field
    for effect in event.effects:
        advance(changed, effect)
    return event.kind, event.op, event.results, event.writes, failure, _bare(changed)


def _bare(value: Any) -> Any:
    return {k: _bare(v) for k, v in value.items() if k not in _NUMBERS} if isinstance(value, dict) else value


class SaidStep(TypedDict):
    """A step of a trace: its number, its line and code in the program, and a sentence that says what it did."""

    step: int
    line: int | None
    code: str
    sentence: Text


class ComparedSide(TypedDict):
    """One of two programs from their first difference on.

    ``more`` is the number of steps after those in ``steps``; ``raised`` is the program's error (empty: none);
    ``wrong``: a gradient was silently wrong.
    """

    steps: list[SaidStep]
    more: int
    raised: str
    wrong: bool
    stopped: Text | None


class ComparedRuns(TypedDict):
    """Two compared programs.

    ``gradients`` are (name, before, after) of named tensors, ``peaks`` the peak of memory of each program.
    """

    first: int | None
    same: Text
    sides: list[ComparedSide]
    gradients: list[tuple[str, str, str]]
    peaks: list[str]


def compare(before: Trace, after: Trace) -> ComparedRuns:
    """The comparison of two traces as plain data.

    For each trace: up to ``STEPS`` steps in words from the first difference on, the error that ended it, and its peak
    of memory; and the last gradients of the first named tensors. Without a difference there are no steps.
    """
    first = first_difference(before, after)
    facts = gather(before), gather(after)
    alike = same(before, after)
    return {
        "first": first,
        "same": {"en": alike.en, "zh": alike.zh},
        "sides": [_side(trace, first) for trace in (before, after)],
        "gradients": _gradients(*facts),
        "peaks": [bytes_text((memory(f.trace, f)["peak"] or {"bytes": 0})["bytes"]) for f in facts],
    }


def _side(trace: Trace, first: int | None) -> ComparedSide:
    steps: list[SaidStep] = []
    for event, text in sentences(trace):
        if first is not None and first <= event.step < first + STEPS:
            line = event.span.line if event.span else None
            steps.append(
                {
                    "step": event.step,
                    "line": line,
                    "code": excerpt(trace, event.span),
                    "sentence": {"en": text.en, "zh": text.zh},
                }
            )
    failure, stopped = trace.outcome.failure, stopped_at(trace)
    return {
        "steps": steps,
        "more": max(0, len(trace.events) - first - STEPS) if first is not None else 0,
        "raised": f"{failure.type}: {failure.message.partition(' Hint: ')[0]}"[:400]
        if trace.outcome.kind == "raised" and failure
        else "",
        "wrong": bool(trace.harms),
        "stopped": None if stopped is None else {"en": stopped.en, "zh": stopped.zh},
    }


def _gradients(before: Facts, after: Facts) -> list[tuple[str, str, str]]:
    """``(name, gradient before, gradient after)`` of named tensors, with "–" for no gradient.

    They are the first 12 tensors that have a gradient at the end of either run.
    """
    found = [_gradients_of(facts) for facts in (before, after)]
    names = list(dict.fromkeys([*found[0], *found[1]]))[:12]
    return [(name, found[0].get(name, "–"), found[1].get(name, "–")) for name in names]


def _gradients_of(facts: Facts) -> dict[str, str]:
    out = {}
    for label in facts.tensors:
        record = facts.tensor(label)
        held = facts.tensor(record.get("grad"))
        cells = facts.final["storages"].get(held.get("storage"), {}).get("cells") if held else None
        if held and record.get("name") and record.get("alive", True):
            out[str(record["name"])] = cells_text(cells, 6)
    return out


def text(compared: ComparedRuns, language: Language = "en") -> str:
    """The comparison in words."""
    zh = language == "zh"
    if compared["first"] is None:
        return f"{compared['same'][language]}\n"
    lines = [
        f"从第 {compared['first'] + 1} 步开始不同" if zh else f"The runs differ from step {compared['first'] + 1} on"
    ]
    for title, side in zip(("修改前", "修改后") if zh else ("Before", "After"), compared["sides"], strict=True):
        lines += ["", f"{title}: {_ending(side).say(language)}"]
        lines += [
            f"  {('L' + str(s['line'])) if s['line'] else '':>5}  {s['sentence'][language]}" for s in side["steps"]
        ]
        if side["more"]:
            lines.append(f"         … {side['more']}")
    lines += [f"{name}.grad: {one}  →  {other}" for name, one, other in compared["gradients"]]
    lines.append(f"{'内存峰值' if zh else 'peak of memory'}: {compared['peaks'][0]}  →  {compared['peaks'][1]}")
    return "\n".join(lines) + "\n"


def same(*runs: Trace) -> T:
    """The sentence for two runs without a difference; it is about the observed parts only."""
    if any(trace.stopped is not None for trace in runs):
        return T("Both runs do the same, as far as they were observed.", "就观察到的部分而言，两次运行做的事相同。")
    return T("Both runs do the same.", "两次运行做的事相同。")


def _ending(side: ComparedSide) -> T:
    if side["stopped"]:
        return T(f"■ {side['stopped']['en']}", f"■ {side['stopped']['zh']}")
    if side["raised"]:
        return T(f"✕ {side['raised']}", f"✕ {side['raised']}")
    if side["wrong"]:
        return T("≠ a gradient is wrong, and no error says so", "≠ 有梯度不对，却没有报错")
    return T("✓ finished", "✓ 正常结束")


def html(compared: ComparedRuns, language: Language = "en") -> str:
    """Return the steps of two compared runs, before and after a change, as HTML in two columns that needs no script."""
    zh = language == "zh"
    if compared["first"] is None:
        return f"<p>{clean(text(compared, language))}</p>"
    heads = ("修改前", "修改后") if zh else ("before", "after")
    columns = "".join(
        f"<section><h3>{head}</h3><p>{clean(_ending(side).say(language))}</p><ol>"
        + "".join(
            f"<li>{'L' + str(s['line']) + ' ' if s['line'] else ''}{clean(s['sentence'][language])}</li>"
            for s in side["steps"]
        )
        + "</ol></section>"
        for head, side in zip(heads, compared["sides"], strict=True)
    )
    rows = "".join(
        f"<tr><th>{clean(n)}.grad</th><td>{clean(a)}</td><td>{clean(b)}</td></tr>" for n, a, b in compared["gradients"]
    )
    peak = (
        f"<tr><th>{'内存峰值' if zh else 'peak'}</th><td>{compared['peaks'][0]}</td><td>"
        f"{compared['peaks'][1]}</td></tr>"
    )
    return f'<div class="pl-sides">{columns}</div><table>{rows}{peak}</table>'
