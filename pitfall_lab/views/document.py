"""The static page: self-contained HTML that needs no script, no kernel and no network. :func:`render` returns it as
text.

Pictures are ``<img>`` with data URIs, because an untrusted notebook strips inline SVG and keeps these with their
alternative text. The stepper is radio buttons and one stylesheet rule per step; without the stylesheet it is a list.
Every text passes through :func:`pitfall_lab.views.encoding.clean`.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pitfall_lab.trace import Event, Language, Span, T, Trace
from pitfall_lab.trace.extent import stop, stopped_at, whole
from pitfall_lab.trace.slice import behind_failures, story
from pitfall_lab.trace.text import source_lines
from pitfall_lab.views import code, storage
from pitfall_lab.views.encoding import clean
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.plain_text import render as plain_text
from pitfall_lab.views.spoken_names import spoken
from pitfall_lab.views.storage import svg as storage_svg
from pitfall_lab.views.stories import FixScene, PrintedScene
from pitfall_lab.views.stories import fixes as changes
from pitfall_lab.views.tabs import tabs
from pitfall_lab.views.two_languages import in_two_languages

STEPS = 60
CONTEXT = 3
"""Lines of source around the current one in the stepper."""

CSS = """
.pl-page{--pl-ink:#1c1c1c;--pl-paper:#fff;--pl-soft:#f3f3f1;--pl-edge:#8a8a8a;
--pl-red:color-mix(in srgb,#d32f2f 58%,currentColor);--pl-mark:color-mix(in srgb,#e69f00 26%,transparent);
color-scheme:light dark;color:var(--jp-content-font-color1,var(--pl-ink));background:var(--jp-layout-color0,var(--pl-paper));
max-width:960px;margin:0 auto;padding:8px 12px;font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif;overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){.pl-page{--pl-ink:#ececec;--pl-paper:#1b1b1d;--pl-soft:#2a2a2e;--pl-edge:#9a9a9a}}
.pl-page h2{font-size:1.15em;margin:1.1em 0 .4em}.pl-page h3{font-size:1em;margin:.9em 0 .3em}
.pl-page pre{background:var(--jp-layout-color1,var(--pl-soft));color:inherit;padding:8px;overflow:auto;margin:.3em 0;
font:13px/1.55 ui-monospace,"DejaVu Sans Mono",monospace}
.pl-page mark{background:var(--pl-mark);color:inherit;outline:1px solid var(--pl-edge)}
.pl-page mark.pl-raised,.pl-page mark.pl-wrong{outline:2px solid var(--pl-red)}
.pl-page .pl-tag{font:600 11px system-ui,sans-serif;opacity:.85}.pl-page .pl-bad{color:var(--pl-red);font-weight:600;opacity:1}
.pl-page figure{margin:.5em 0;overflow:auto}.pl-page img{display:block;max-width:none;border:1px solid var(--pl-edge)}
.pl-page code{font-size:.92em}
.pl-page ol.pl-story{padding-left:1.4em}.pl-page ol.pl-story>li{margin:.5em 0}
.pl-stepper input{position:absolute;opacity:0;width:1px;height:1px}
.pl-stepper .pl-step{display:none;border:1px solid var(--pl-edge);padding:8px}
.pl-stepper label{display:inline-block;min-width:28px;min-height:28px;line-height:28px;padding:0 8px;border:1px solid var(--pl-edge);
cursor:pointer;text-align:center}
.pl-stepper input:focus-visible+.pl-step{outline:3px solid #0072B2}.pl-page .pl-none{visibility:hidden}
.pl-page summary{cursor:pointer;min-height:28px}.pl-stepper input:checked+.pl-step{display:block}
"""  # noqa: E501

WINDOW = "<style>body{margin:0;background:#fff}@media(prefers-color-scheme:dark){body{background:#1b1b1d}}</style>"
"""When the page is a document of its own, its background extends to the edges of the window."""


def render(
    trace: Trace, findings: list[Any], language: Language = "en", key: str = "", facts: Facts | None = None
) -> str:
    """The page as a complete HTML document."""
    title = clean(trace.sources[0].name if trace.sources else "program")
    lang = "zh-CN" if language == "zh" else "en"
    return (
        "<!doctype html>\n"
        f'<html lang="{lang}"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title>{WINDOW}</head><body>'
        f"{fragment(trace, findings, language, key, facts)}</body></html>\n"
    )


def fragment(
    trace: Trace, findings: list[Any], language: Language = "en", key: str = "", facts: Facts | None = None
) -> str:
    """The page's content as one ``<div>`` with its stylesheet, to be put inside another document. ``key`` is the prefix
    of the ids in it (random when empty).
    """
    key = "".join(c for c in key if c.isalnum()) or secrets.token_hex(4)
    facts = replace(facts or gather(trace), labelled=False)
    described = [in_two_languages(finding) for finding in findings]
    said = facts.sentences()
    say = _Say(language)
    parts = [
        _stopped(trace, say),
        _outcome(trace, say),
        _findings(trace, described, say),
        _guarded(say, lambda: _code(trace, facts, say)),
        _guarded(say, lambda: _story(trace, facts, described, said, say)),
        _guarded(say, lambda: _pictures(facts, say)),
        _stepper(facts, said, say, key),
        f"<details><summary>{say('The same in words', '文字版')}</summary>",
        _guarded(say, lambda: f'<pre tabindex="0">{clean(plain_text(trace, language, facts))}</pre>'),
        "</details>",
        _notes(trace, say),
    ]
    return (
        '<div class="pl-page" '
        f'lang="{"zh-CN" if language == "zh" else "en"}"><style>{CSS}</style>{"".join(parts)}</div>'
    )


def _guarded(say: _Say, part: Callable[[], str]) -> str:
    """A section of the page; if making it raises, a sentence that says so instead.

    A damaged trace file must not prevent the whole page.
    """
    try:
        return part()
    except Exception as error:
        return f"<p>{say('This part could not be drawn', '这一部分无法绘制')} ({type(error).__name__}).</p>"


class _Say:
    """One language chosen for a whole page."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language

    def __call__(self, en: str, zh: str) -> str:
        return clean(zh if self.language == "zh" else en)

    def of(self, text: Any) -> str:
        """A finding's text: plain, or in two languages."""
        if isinstance(text, dict):
            text = text.get(self.language) or text.get("en", "")
        if isinstance(text, T):
            text = text.say(self.language)
        # Text between backticks becomes <code>; everything is escaped before, so no markup of the program gets in.
        return re.sub("`([^`]+)`", r"<code>\1</code>", clean(text or ""))


def _stopped(trace: Trace, say: _Say) -> str:
    """A notice for a program that was not observed to its end: the page is about the observed part only."""
    headline, why = stopped_at(trace), stop(trace)
    if headline is None or why is None:
        return ""
    return (
        f'<p role="status"><span class="pl-bad">■ {say(headline.en, headline.zh)}</span><br>{say(why.en, why.zh)}</p>'
    )


def _outcome(trace: Trace, say: _Say) -> str:
    failure = trace.outcome.failure
    if trace.outcome.kind == "raised" and failure is not None:
        line = f" · {_line_name(failure.span.line, say)}" if failure.span else ""
        return (
            f'<p><span class="pl-bad">✕ {clean(failure.type)}</span>{line}<br><code>{clean(failure.message)}</code></p>'
        )
    wrong = (
        [
            (
                '<p><span class="pl-bad">≠</span> '
                f"{say('A gradient is wrong, and no error said so.', '有梯度不对，却没有报错。')}</p>"
            )
        ]
        if trace.harms
        else []
    )
    extent = whole(trace)
    return "".join(wrong) or f"<p>{say('The program finished.', '程序正常结束。')} {say(extent.en, extent.zh)}</p>"


def _line_name(line: object, say: _Say) -> str:
    return clean(f"第 {line} 行" if say.language == "zh" else f"line {line}")


def retold(page: str, trace: Trace, before: list[Any], after: list[Any], language: Language = "en") -> str:
    """The HTML ``page``, made with the findings ``before``, with its list of findings replaced by one made with
    ``after``.

    ``after`` are the same findings once their fixes were tried. Nothing else in the page changes; it is returned
    unchanged if there were no findings.
    """
    say = _Say(language)
    old, new = (_findings(trace, [in_two_languages(each) for each in found], say) for found in (before, after))
    return page.replace(old, new, 1) if old else page


def _findings(trace: Trace, described: list[dict[str, Any]], say: _Say) -> str:
    return "".join(_finding(trace, each, say) for each in described)


def _finding(trace: Trace, finding: dict[str, Any], say: _Say) -> str:
    said, line = say.of(finding.get("message")), _line_name(finding.get("line") or "", say)
    where = f"{line} · " if finding.get("line") and not said.casefold().startswith(line) else ""
    head = f"<h2>{clean(finding.get('rule', ''))} {clean(finding.get('name', ''))}</h2><p>{where}{said}</p>"
    why = say.of(finding.get("explanation"))
    related = "".join(
        f"<li><b>{clean(r.get('role', ''))}</b> {_line_name(r.get('line') or '?', say)}: "
        f"{say.of(r.get('message'))}</li>"
        for r in finding.get("related", [])
    )
    fixes = "".join(_fix(fix, say) for fix in changes(trace, finding))
    advice = say.of(finding.get("advice")) if not finding.get("fixes") else ""
    todo = f"<h3>{say('What to do (not tried here)', '怎么办（此处未尝试）')}</h3><p>{advice}</p>" if advice else ""
    return head + (f"<p>{why}</p>" if why else "") + (f"<ul>{related}</ul>" if related else "") + fixes + todo


def _printed(printed: PrintedScene, say: _Say) -> str:
    name, before, after = (clean(printed[key]) for key in ("name", "before", "after"))
    what = say(f"{name} at the end", f"{name} 最后的值") if name else say("it prints", "打印")
    same = say("with the same random numbers", "用同样的随机数")
    added = f"<p>{say.of(printed['note'])}</p>" if printed["note"] is not None else ""
    return f'<p>{what} ({same}):</p><pre tabindex="0">− {before}\n+ {after}</pre>{added}'


def _fix(fix: FixScene, say: _Say) -> str:
    """A fix as HTML: its title, the lines that it removes and adds, and whether it was checked."""
    tried = f" ({say('applied and re-run: it works', '已应用并重新运行，有效')})" if fix["verified"] else ""
    lines = ", ".join(clean(line) for line in dict.fromkeys(edit["line"] for edit in fix["edits"]))
    rows = "\n".join(f"{sign} {clean(text)}" for sign, text in fix["rows"])
    edits = f'<pre tabindex="0">{say("line", "行")} {lines}:\n{rows}</pre>' if rows else ""
    printed = _printed(fix["printed"], say) if fix["printed"] is not None else ""
    return f"<h3>{say('Fix', '修改')}: {say.of(fix['title'])}{tried}</h3>{edits}{printed}"


_TAGS = {
    "saved": ("saved", "保存"),
    "written": ("changed", "改变"),
    "silent": ("changed, unseen", "改变，未被察觉"),
    "raised": ("✕ raised", "✕ 报错"),
    "wrong": ("≠ wrong", "≠ 不对"),
}


def _code(trace: Trace, facts: Facts, say: _Say) -> str:
    marks = facts.projected(code)["marks"]
    out = []
    for number, source in enumerate(trace.sources):
        here = [m for m in marks if m["source"] == number]
        lines = [_line(i, line, here, facts, say) for i, line in enumerate(source_lines(source.text), 1)]
        out.append(
            f'<h2>{clean(source.name)}</h2><pre tabindex="0" '
            f'aria-label="{say("source", "源代码")}">{chr(10).join(lines)}</pre>'
        )
    return "".join(out)


def _line(number: int, line: str, marks: list[dict[str, Any]], facts: Facts, say: _Say) -> str:
    """One numbered line of the source.

    The first mark that starts on it is drawn; the labels of all its marks are listed after it.

    At most two labels of each kind, and the number of the others.
    """
    here = [m for m in marks if m["line"] == number]
    body = clean(line)
    if here:
        start, end = here[0]["column"], here[0]["end_column"] if here[0]["end_line"] == number else len(line)
        body = (
            f"{clean(line[:start])}<mark "
            f'class="pl-{here[0]["kind"]}">{clean(line[start:end])}</mark>{clean(line[end:])}'
        )
    tags = []
    for kind in dict.fromkeys(m["kind"] for m in here):
        described = list(dict.fromkeys(spoken(say.of(m["text"]), facts) for m in here if m["kind"] == kind))
        more = f" +{len(described) - 2}" if len(described) > 2 else ""
        bad = " pl-bad" if kind in ("raised", "wrong") else ""
        tags.append(f'<span class="pl-tag{bad}">← {say(*_TAGS[kind])}: {", ".join(described[:2])}{more}</span>')
    return f"{number:4}  {body}" + (f"  {' '.join(tags)}" if tags else "")


def _image(svg: str, alt: str) -> str:
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return (
        f'<figure tabindex="0" aria-label="{clean(alt)}"><img src="data:image/svg+xml;base64,{data}" '
        f'alt="{clean(alt)}"></figure>'
    )


def _story(trace: Trace, facts: Facts, described: list[dict[str, Any]], texts: list[T], say: _Say) -> str:
    extra = [
        s
        for f in described
        for s in [*(r.get("step") for r in f.get("related", [])), f.get("step")]
        if isinstance(s, int)
    ]
    steps = story(trace, extra)
    projected = facts.projected(storage)
    items = []
    for step in steps:
        event = trace.events[step]
        only = _storages_of(event, facts)
        said = spoken(texts[step].say(say.language), facts, step)
        picture = _image(storage_svg.draw(projected, facts, say.language, step, only), said) if only else ""
        items.append(f"<li><p>{_where(event, say)}{say.of(said)}</p>{picture}</li>")
    return f'<h2>{say("What mattered", "关键几步")}</h2><ol class="pl-story">{"".join(items)}</ol>' if items else ""


def _where(event: Event, say: _Say) -> str:
    line = f"{_line_name(event.span.line, say)}, " if event.span else ""
    return f"<b>{line}{say('step', '步骤')} {event.step + 1}</b> · "


def _storages_of(event: Event, facts: Facts) -> list[str]:
    """At most two storages to draw beside a step.

    That is the storage of the step's error alone, if it has one; else those that the step wrote, saved for backward or
    used.
    """
    if event.error and event.error.storage:
        return [event.error.storage]
    labels = [*event.results, *(o.label for o in event.operands if o.label)]
    kept = [
        slot.get("storage")
        for node in nodes_of(event)
        for slot in (facts.nodes.get(node, [(0, {})])[0][1] or {}).get("saved", ())
    ]
    found = [*event.writes, *kept, *(facts.tensor(label, event.step).get("storage") for label in labels)]
    return list(dict.fromkeys(s for s in found if s))[:2]


def nodes_of(event: Event) -> list[str]:
    """Return the nodes that an event added to the graph."""
    return [p[1] for e in event.effects if len(p := e.path.split(".")) == 2 and p[0] == "nodes" and e.value is not None]


def _pictures(facts: Facts, say: _Say) -> str:
    """The picture of each view that has one and something to draw, in the order of the tabs."""
    note = say("described in words below", "下面有文字版")
    parts = []
    for name, tab in tabs().items():
        view = import_module(f"{__package__}.{name}")
        if find_spec(f"{view.__name__}.svg") is None:
            continue
        drawing, scene = import_module(f"{view.__name__}.svg"), facts.projected(view)
        if drawing.has(scene, facts):
            title = tab.title.say(say.language)
            parts.append(f"<h2>{title}</h2>{_image(drawing.draw(scene, facts, say.language), f'{title}: {note}')}")
    return "".join(parts)


def _stepper(facts: Facts, texts: list[T], say: _Say, key: str) -> str:
    """Radio buttons through which arrow keys walk step by step, with labels as previous and next buttons; "" without
    steps.

    If there are more than ``STEPS`` steps, only the last ones that matter for the outcome are there.
    """
    trace = facts.trace
    steps = list(range(len(trace.events)))
    left_out = 0
    if len(steps) > STEPS:
        wanted = sorted(behind_failures(trace) | set(story(trace)))[-STEPS:]
        left_out, steps = len(steps) - len(wanted), wanted
    if not steps:
        return ""
    panels = []
    for place, step in enumerate(steps):
        event = trace.events[step]
        before = _turn(key, place - 1, "◂", say("previous step", "上一步")) if place else ""
        after = _turn(key, place + 1, "▸", say("next step", "下一步")) if place + 1 < len(steps) else ""
        checked = " checked" if not place else ""
        name = f"{say('step', '步骤')} {step + 1}"
        said = spoken(texts[step].say(say.language), facts, step)
        panels.append(
            f'<input type="radio" name="pl{key}" id="pl{key}-{place}" aria-label="{name}"{checked}><div '
            f'class="pl-step">{before} {after} '
            f"{_where(event, say)}{say.of(said)}{_context(trace, event.span)}</div>"
        )
    more = ""
    if left_out:
        en, zh = (
            f"{left_out} steps that do not matter for the outcome are left out here.",
            f"这里略去 {left_out} 个与结果无关的步骤。",
        )
        more = f"<p>{say(en, zh)}</p>"
    return f'<h2>{say("Step by step", "逐步")}</h2>{more}<div class="pl-stepper">{"".join(panels)}</div>'


def _turn(key: str, place: int, sign: str, name: str) -> str:
    return f'<label for="pl{key}-{place}" title="{name}">{sign}</label>'


def _context(trace: Trace, span: Span | None) -> str:
    if span is None or not 0 <= span.source < len(trace.sources):
        return ""
    lines = source_lines(trace.sources[span.source].text)
    out = []
    for number in range(max(1, span.line - CONTEXT), min(len(lines), span.end_line + CONTEXT) + 1):
        line = lines[number - 1]
        if span.line <= number <= span.end_line:
            start = span.column if number == span.line else 0
            end = span.end_column if number == span.end_line else len(line)
            out.append(f"{number:4}  {clean(line[:start])}<mark>{clean(line[start:end])}</mark>{clean(line[end:])}")
        else:
            out.append(f"{number:4}  {clean(line)}")
    return f'<pre tabindex="0">{chr(10).join(out)}</pre>'


def _notes(trace: Trace, say: _Say) -> str:
    a = trace.agreement
    text = say(
        f"{a.checked} calls compared on two engines: {a.agreed} agreed, {a.mirrored} taken over from torch, "
        f"{a.disagreed} disagreed.",
        f"两个引擎比较了 {a.checked} 个调用：一致 {a.agreed}，取自 torch {a.mirrored}，不一致 {a.disagreed}。",
    )
    notes = "".join(f"<p>{say(note.en, note.zh)}</p>" for note in trace.notes if note.kind != "stopped")
    return f"<p><small>{text}</small></p>{notes}"
