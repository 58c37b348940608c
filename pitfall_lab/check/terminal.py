"""The report on a terminal (:func:`report`): for each finding its place, the lines involved, the explanation, and fixes
as diffs.

Plain text. Colours are used on a terminal only, and not when ``NO_COLOR`` is set; nothing in a checked file can send
control characters to the terminal.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from pitfall_lab.check.observed import unobserved
from pitfall_lab.check.scripts import Script
from pitfall_lab.rules import Finding, Fix, Related
from pitfall_lab.rules.kit.source import apply, split_lines
from pitfall_lab.trace import Language, Note, Span, T, Trace, extent

WIDTH = 100
COLOURS = {
    "error": "31;1",
    "warning": "33;1",
    "info": "36;1",
    "dim": "2",
    "bold": "1",
    "plus": "32",
    "minus": "31",
    "mark": "36",
}
MOST_NOTES = 5
SEVERITIES = {"error": T(en="error", zh="错误"), "warning": T(en="warning", zh="警告"), "info": T(en="note", zh="提示")}


class Paint:
    """Wraps text in terminal colour codes (``paint("error", text)``), or, without ``colours``, returns it unchanged."""

    def __init__(self, *, colours: bool = False) -> None:
        self.colours = colours

    def __call__(self, kind: str, text: str) -> str:
        """Return ``text`` in the colour of ``kind``."""
        return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m" if self.colours and text else text


def wants_colours(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that may be coloured: not if ``NO_COLOR`` is set (https://no-color.org), nor if
    ``TERM`` is ``dumb``.
    """
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a report: its ``language``, its colours (``paint``), and the ``script``, by which lines of a
    notebook are named by cell (None: plain lines).
    """

    language: Language = "en"
    paint: Paint = field(default_factory=Paint)
    script: Script | None = None

    def say(self, text: T) -> str:
        """Return the text in the report's language."""
        return text.say(self.language)

    def place(self, line: int) -> str:
        """A line number as shown to the user; for a notebook ``cell 3:2``."""
        return self.script.place_text(line) if self.script is not None else str(line)


def report(name: str, trace: Trace, findings: Sequence[Finding], style: Style | None = None) -> str:
    """Return the whole report of one file, called ``name``, ending in a one-line summary and notes. Without a ``style``
    it is in English, with colours if standard output is a terminal that wants them.

    Where observation stopped, that comes first.
    """
    style = style or Style(paint=Paint(colours=wants_colours(sys.stdout)))
    source = style.script.shown if style.script else trace.sources[0].text if trace.sources else ""
    parts = [finding_text(name, source, finding, style) for finding in findings]
    blind = unobserved(name, style.script, trace)
    if blind is not None:  # the rest of the report is about the observed part only
        parts.insert(0, "\n".join(style.paint("error", row) for row in wrapped(style.say(blind.said), "")) + "\n")
    parts.append(summary(name, trace, findings, style))
    return "\n".join(parts)


def finding_text(name: str, source: str, finding: Finding, style: Style = Style()) -> str:
    """One finding as text: headline, excerpt from ``source``, explanation, fixes; without a ``style`` in English and
    without colours. ``name`` is the file's name in the headline.
    """
    place = f"{name}:{style.place(finding.span.line)}:{finding.span.column + 1}" if finding.span else name
    severity = style.paint(finding.severity, style.say(SEVERITIES[finding.severity]))
    lines = [
        f"{style.paint('bold', shown(place))}: {severity} {finding.rule} {finding.name}",
        *wrapped(style.say(finding.message), "  "),
        "",
    ]
    lines += excerpt(source, finding, style)
    lines += ["", *wrapped(style.say(finding.explanation), "  ")]
    for number, fix in enumerate(finding.fixes, start=1):
        lines += ["", *fix_text(source, fix, number, style)]
    return "\n".join(lines) + "\n"


def excerpt(source: str, finding: Finding, style: Style) -> list[str]:
    """The lines of ``source`` that a finding is about, in the order of the file, as rows of the report: each with its
    span marked and its role named.

    Places in other modules are left out. A span of several lines is marked on its first one.
    """
    marks: dict[int, list[tuple[Span, str, str]]] = defaultdict(list)
    for related in _with_primary(finding):
        if related.span is not None and related.span.source == 0:
            marks[related.span.line].append(
                (related.span, "^" if related.span == finding.span else "-", style.say(related.message))
            )
    rows, previous = [], None
    width = max((len(style.place(number)) for number in marks), default=1)
    lines = split_lines(source)
    for number in sorted(marks):
        if previous is not None and number > previous + 1:
            rows.append(" " * (width + 2) + style.paint("dim", "⋮"))
        previous = number
        text = lines[number - 1].rstrip("\r\n") if number <= len(lines) else ""
        rows.append(f" {style.paint('dim', f'{style.place(number):>{width}} │')} {shown(text)}")
        for span, sign, message in marks[number]:
            end = span.end_column if span.end_line == span.line else len(text)
            gap, length = columns(text[: span.column]), max(1, columns(text[span.column : end]))
            kind = finding.severity if sign == "^" else "mark"
            marked = f"{' ' * gap}{style.paint(kind, sign * length)} {style.paint(kind, message)}"
            rows.append(f" {' ' * width} {style.paint('dim', '│')} {marked}")
    return rows


def _with_primary(finding: Finding) -> list[Related]:
    if any(related.span == finding.span for related in finding.related):
        return list(finding.related)
    return [*finding.related, Related("changed", finding.span, finding.step, T(en="here", zh="在这里"))]


def fix_text(source: str, fix: Fix, number: int, style: Style) -> list[str]:
    """One fix, counted as ``number``, as rows of the report: its title, whether it was verified, its diff against
    ``source``, and what it changes in what the program prints.
    """
    tried = (
        T(
            en="verified: applied and re-run on torch and on the shadow engine",
            zh="已验证：应用后在 torch 和影子引擎上重新运行过",
        )
        if fix.verified
        else T(en="not tried", zh="未试过")
    )
    title = style.paint("bold", style.say(T(en=f"Fix {number}", zh=f"修复 {number}")))
    rows = [
        "  " + style.say(T(en=f"{title}: {fix.title.en} ({tried.en})", zh=f"{title}：{fix.title.zh}（{tried.zh}）"))
    ]
    before, after = split_lines(source), split_lines(apply(source, fix.edits))
    for line in list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]:
        kind = {"+": "plus", "-": "minus", "@": "dim"}.get(line[:1], "")
        text = shown(line.rstrip("\r\n"))
        if kind == "dim" and style.script is not None and style.script.cells and fix.edits:
            text = f"@@ cell {style.script.place(fix.edits[-1].line)[0]} @@"
        rows.append("    " + (style.paint(kind, text) if kind else text))
    if fix.printed is not None:
        rows.append(f"    {shown(style.say(fix.printed.said))}")
    return rows


def summary(name: str, trace: Trace, findings: Sequence[Finding], style: Style) -> str:
    """The end of the report of the file ``name``: what was not observed, then one line with the number of findings and
    whether the engines (torch and the shadow engine) agreed.

    After it, notes: limits of what was recorded, disagreements of the engines, and cells that were left out. Of what
    was not observed and of the limits at most ``MOST_NOTES`` (5) are named. Where there is no finding, the line says
    how the program ended.
    """
    agreement, language = trace.agreement, style.language
    watched = agreement.mirrored
    more_en = (
        f"; {watched:,} {'has' if watched == 1 else 'have'} no model and "
        f"{'was' if watched == 1 else 'were'} only observed"
    )
    more_zh = f"；另有 {watched} 次没有模型，只是观察"
    engines = T(
        en=f"torch and the shadow engine agreed on {agreement.agreed:,} of {agreement.checked:,} calls compared"
        f"{more_en if watched else ''}",
        zh=f"torch 与影子引擎在比较过的 {agreement.checked} 次调用中有 {agreement.agreed} 次一"
        f"致{more_zh if watched else ''}",
    ).say(language)
    listed = counted(findings, language)
    failure, nothing = trace.outcome.failure, extent.nothing_found(trace)
    if failure is not None and not listed:
        line = style.place(failure.span.line) if failure.span else ""
        in_cell = T(en=f" in {line}", zh=f"（{line}）")
        in_file = T(en=f" on line {line}", zh=f"（第 {line} 行）")
        where = (in_cell if line.startswith("cell") else in_file) if line else T(en="", zh="")
        nothing = T(
            en=f"ended with {failure.type}{where.en}, an error that torch did not raise; {nothing.en}",
            zh=f"以 {failure.type} 结束{where.zh}，这个错误不是 torch 抛出的；{nothing.zh}",
        )
    verdict = listed or nothing.say(language)
    compared = T(en=f" ({engines})", zh=f"（{engines}）").say(language) if trace.calls else ""
    # What was not observed is named before the verdict, which is about the rest.
    lines = [style.paint("bold", shown(_note_text(note, name, style))) for note in trace.unseen[:MOST_NOTES]]
    lines.append(f"{shown(name)}: {style.paint('bold', verdict)}{compared}")
    notes = [
        _note_text(note, name, style) for note in [note for note in trace.notes if note.kind == "limit"][:MOST_NOTES]
    ]
    if trace.disagreements:
        how = (
            "from pitfall_lab.verify import disagreement_report, trace_program; "
            "print(disagreement_report(trace_program(source)))"
        )
        en = (
            "The engines disagreed, which is our mistake, not the program's. For a report to paste into "
            f"a bug tracker: {how}"
        )
        zh = f"两个引擎不一致，这是我们的错误，不是程序的错误。要得到可以贴到缺陷跟踪器的报告：{how}"
        notes.append(T(en=en, zh=zh).say(language))
    notes += [note.say(language) for note in (style.script.notes if style.script else ())]
    lines += [style.paint("dim", shown(note)) for note in notes]
    return "\n".join(lines) + "\n"


def _note_text(note: Note, name: str, style: Style) -> str:
    where = f"{name}:{style.place(note.span.line)}: " if note.span is not None and note.span.source == 0 else ""
    return where + style.say(T(note.en, note.zh))


def counted(findings: Sequence[Finding], language: Language) -> str:
    """Numbers of findings in words, ``1 error, 2 warnings``; empty if there are none."""
    counts = {kind: sum(f.severity == kind for f in findings) for kind in SEVERITIES}
    return (
        T(en=", ", zh="，")
        .say(language)
        .join(
            f"{count} "
            f"{'' if language == 'en' else '个'}{SEVERITIES[kind].say(language)}"
            f"{'s' if language == 'en' and count > 1 else ''}"
            for kind, count in counts.items()
            if count
        )
    )


def total(files: int, calls: int, findings: Sequence[Finding], unfinished: int, language: Language) -> str:
    """The last line after several files; ``unfinished`` of them could not be checked, or not to their end.

    ``calls``, the number of calls to torch in all of them, is named only if there is no finding.
    """
    nothing = T(en=f"nothing found in {calls:,} calls to torch", zh=f"在 {calls:,} 次 torch 调用中没有发现问题")
    listed = counted(findings, language) or nothing.say(language)
    en, zh = f"; {unfinished} could not be checked, or not to the end", f"；{unfinished} 个无法检查或未能检查到结尾"
    more = T(en=en, zh=zh).say(language) if unfinished else ""
    plural = "s" if files > 1 else ""
    return (
        T(en=f"Checked {files} file{plural}: {listed}{more}.", zh=f"检查了 {files} 个文件：{listed}{more}。").say(
            language
        )
        + "\n"
    )


def wrapped(text: str, indent: str) -> list[str]:
    """The lines of the text broken at ``WIDTH`` (100) terminal columns; Chinese, which has no spaces, is broken between
    characters. Control characters are made visible.

    ``indent`` begins each line, and counts towards its width.
    """
    if columns(text) == len(text):
        return textwrap.wrap(
            shown(text), WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    rows, row = [], ""
    for word in _UNBROKEN.findall(shown(text)):
        if columns(row + word) > WIDTH - len(indent) and word not in CLOSING:
            rows.append(indent + row.rstrip())
            row = ""
        row += word if row else word.lstrip()
    return [*rows, indent + row]


CLOSING = tuple("，。；：、）”！？")
_UNBROKEN = re.compile(r"[!-~]{1,40}|.", re.DOTALL)
"""A word or a short piece of code, or one character of a script that has no spaces."""


def shown(text: str) -> str:
    """The text with tabs as four spaces and control and format characters (except the zero-width joiner of emoji)
    replaced by ``�``, so that a file cannot send commands to the terminal.
    """
    return "".join(
        "    " if c == "\t" else "�" if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\u200d" else c
        for c in text
    )


def columns(text: str) -> int:
    """How many terminal columns the shown text takes: wide characters two, combining marks none."""
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) or c == "\u200d" else 1
        for c in shown(text)
    )
