"""A trace as plain text, for a terminal, a log or a screen reader: :func:`render`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pitfall_lab.trace import Language, Trace
from pitfall_lab.trace.extent import stop, stopped_at, whole
from pitfall_lab.trace.text import cells_text, source_lines
from pitfall_lab.views import versions
from pitfall_lab.views.encoding import clean_text
from pitfall_lab.views.folds import Fold, folds
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.spoken_names import spoken

STEPS = 200
STORAGES = 40


def render(trace: Trace, language: Language = "en", facts: Facts | None = None, *, labels: bool = False) -> str:
    """The whole trace in words: source, steps, storages, counters, outcome; steps and storages left out are counted.

    Tensors and storages have the program's names; with ``labels``, also the labels of the trace.
    """
    zh = language == "zh"
    facts = replace(facts or gather(trace), labelled=labels)
    said = [text.say(language) for text in facts.sentences()]
    parts = [
        _stopped(trace, language),
        _source(trace, zh),
        _steps(trace, language, said, None if labels else facts),
        _storages(facts, zh),
        _counters(facts, zh),
        _outcome(trace, language),
    ]
    return clean_text("\n\n".join(part for part in parts if part)) + "\n"


def _stopped(trace: Trace, language: Language) -> str:
    """The notice, printed first, that the text is about the observed part of the program only."""
    headline, why = stopped_at(trace), stop(trace)
    return "" if headline is None or why is None else f"■ {headline.say(language)}\n{why.say(language)}"


def _source(trace: Trace, zh: bool) -> str:
    lines = []
    for source in trace.sources:
        lines.append(f"{'程序' if zh else 'Program'} {source.name}")
        lines += [f"{number:4} | {line}" for number, line in enumerate(source_lines(source.text), 1)]
    return "\n".join(lines)


def _steps(trace: Trace, language: Language, said: list[str], unlabelled: Facts | None) -> str:
    """The sentence of each step that is listed; without labels where there are facts of the program's names."""
    zh = language == "zh"
    hidden: dict[int, Fold] = {}
    for fold in folds(trace):
        for step in range(fold["first"] + fold["length"], fold["first"] + fold["length"] * fold["times"]):
            event = trace.events[step]
            if not (event.error or event.forecasts or event.harms):
                hidden[step] = fold
    lines, left_out = ["步骤" if zh else "Steps"], 0
    for event, text in zip(trace.events, said, strict=True):
        if event.step in hidden:
            fold = hidden[event.step]
            if event.step == fold["first"] + fold["length"]:
                turns, length = fold["times"] - 1, fold["length"]
                lines.append(
                    f"       … 再重复 {turns} 次，同样的 {length} 步"
                    if zh
                    else f"       … ×{turns} more, the same {length} steps"
                )
            continue
        if len(lines) > STEPS and not (event.error or event.forecasts or event.harms):
            left_out += 1
            continue
        line = f"L{event.span.line}" if event.span else ""
        lines.append(
            f"{event.step:5} {line:>5}  {text if unlabelled is None else spoken(text, unlabelled, event.step)}"
        )
    if left_out:
        lines.append(f"       另有 {left_out} 步未列出" if zh else f"       {left_out} more steps are not listed")
    return "\n".join(lines) if len(lines) > 1 else ""


def _storages(facts: Facts, zh: bool) -> str:
    lines = ["存储" if zh else "Storages"]
    for label in list(facts.storages)[:STORAGES]:
        record: dict[str, Any] = next((r for _, r in reversed(facts.storages[label]) if r), {})
        who = "; ".join(f"{facts.name(t)} {'/'.join(_where(facts, t))}" for t in facts.of_storage(label)[:6])
        called = label if facts.labelled else facts.called(label)
        lines.append(
            f"  {called}  {record.get('size')} × {record.get('dtype')}  {cells_text(record.get('cells'))}  {who}"
        )
    more = len(facts.storages) - STORAGES
    if more > 0:
        lines.append(f"  另有 {more} 个" if zh else f"  {more} more")
    return "\n".join(lines) if len(lines) > 1 else ""


def _where(facts: Facts, tensor: str) -> list[str]:
    record = facts.tensor(tensor)
    return [
        f"shape {tuple(record.get('shape') or ())}",
        f"stride {tuple(record.get('stride') or ())}",
        f"offset {record.get('offset', 0)}",
    ]


def _counters(facts: Facts, zh: bool) -> str:
    lines = ["版本计数器" if zh else "Version counters"]
    for track in facts.projected(versions)["tracks"]:
        if not track["bumps"] and not track["pins"]:
            continue
        path = " → ".join(
            [
                f"v{track['start']}",
                *(f"v{b['to']} ({'第' if zh else 'step '}{b['step']}{'步' if zh else ''})" for b in track["bumps"][:8]),
            ]
        )
        read = ", ".join(facts.name(t) for t in track["tensors"][:4])
        pins = "; ".join(_pin(p, facts, zh) for p in track["pins"][:6])
        if facts.labelled:
            read = f"{track['counter']} ({read})"
        lines.append(f"  {read}: {path}" + (f"; {pins}" if pins else ""))
    return "\n".join(lines[: STORAGES + 1]) if len(lines) > 1 else ""


def _pin(pin: dict[str, Any], facts: Facts, zh: bool) -> str:
    fate = ""
    if pin["broken"] is not None:
        fate = "，已失效，torch 引发错误" if zh else ", stale, torch raised"
    elif pin["wrong"] is not None:
        fate = "，内存已变，梯度不对" if zh else ", memory changed, wrong gradient"
    elif pin["stale"] is not None:
        fate = "，已失效" if zh else ", stale"
    node = pin["node"] if facts.labelled else facts.called(pin["node"])
    return (
        f"{node}.{pin['slot']} 保存于 v{pin['version']}{fate}"
        if zh
        else f"saved at v{pin['version']} by {node}.{pin['slot']}{fate}"
    )


def _outcome(trace: Trace, language: Language) -> str:
    zh = language == "zh"
    failure = trace.outcome.failure
    if trace.outcome.kind == "raised" and failure is not None:
        where = (
            f"（第 {failure.span.line} 行）"
            if failure.span and zh
            else f" (line {failure.span.line})"
            if failure.span
            else ""
        )
        said = f"结果：引发 {failure.type}{where}：" if zh else f"Outcome: raised {failure.type}{where}: "
        lines = [said + failure.message]
    else:
        lines = ["结果：正常结束" if zh else "Outcome: finished"]
    a = trace.agreement
    lines.append(
        f"两个引擎比较了 {a.checked} 个调用：一致 {a.agreed}，取自 torch {a.mirrored}，不一致 {a.disagreed}"
        if zh
        else (
            f"Two engines compared on {a.checked} calls: {a.agreed} agreed, {a.mirrored} taken over from torch, "
            f"{a.disagreed} disagreed"
        )
    )
    lines.append(whole(trace).say(language))
    lines += [note.zh if zh else note.en for note in trace.notes if note.kind != "stopped"]
    return "\n".join(lines)
