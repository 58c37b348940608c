"""Pages for people: one for each student and one for the class. No script, no network; every text is escaped here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import SAYS, Outcome
from pitfall_lab.classroom.register import VERDICTS, Row, statuses
from pitfall_lab.cli import Refusal
from pitfall_lab.lessons.exercise import _THE_SAME
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.trace import Language, T

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --page: #fff; --quiet: #595959; --line: #bbb; --box: #f3f3f3; --good: 0, 114, 178; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eaeaea; --page: #161616; --quiet: #b0b0b0; --line: #555; --box: #242424; --good: 86, 180, 233; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: .6em 0 1.6em; }
th, td { border: 1px solid var(--line); padding: .25em .6em; text-align: left; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { background: var(--box); padding: .6em 1em; overflow-x: auto; white-space: pre; font-size: 13px; }
.quiet { color: var(--quiet); font-size: 90%; }
.wide { overflow-x: auto; }
li.no { list-style: "○ "; } li.yes { list-style: "✓ "; }
"""
_WORDS: dict[str, T] = {
    "class": T(en="The class", zh="全班"), "student": T(en="Student", zh="学生"), "points": T(en="Points", zh="得分"),
    "verdict": T(en="Verdict", zh="结论"), "remarks": T(en="Remarks", zh="备注"), "exercise": T(en="Exercise", zh="练习"),
    "property": T(en="Property", zh="性质"), "holds": T(en="Holds for", zh="成立的比例"),
    "why": T(en="Most frequent reason why not", zh="最常见的不成立原因"),
    "what": T(en="What holds, for how many", zh="哪些性质成立，在多少人中成立"), "cells": T(en="How the cells ended", zh="各单元格的结果"),
    "each": T(en="Each student", zh="每个学生"), "had": T(en="as given", zh="原题已有"), "answer": T(en="The cell", zh="单元格"),
    "back": T(en="back to the class", zh="返回全班"), "of": T(en="of", zh="/"),
    "beliefs": T(en="Misconceptions, by item", zh="各题目中的误解"), "belief": T(en="Misconception", zh="误解"),
    "beliefs_note": T(
        en="Counted from the progress files handed in with the notebooks: what the learners' own lessons wrote down, unchecked.",
        zh="统计自随笔记本提交的进度文件：由学习者自己的课程写下，未经任何核实。",
    ),
    "what_note": T(
        en="Of those who handed in a notebook that could be read. A cell that is missing, unchanged or was stopped has no property.",
        zh="以提交了可读笔记本的学生计。缺失、未改动或被终止的单元格不具有任何性质。",
    ),
}  # fmt: skip


def write_reports(folder: Path, assignment: Assignment, rows: Sequence[Row], language: Language = "en") -> Path:
    """Write the pages into ``folder`` and return the one for the class. Raises :class:`~pitfall_lab.cli.Refusal`."""
    rows = sorted(rows, key=lambda row: row.student)
    index = folder / "index.html"
    try:
        (folder / "students").mkdir(parents=True, exist_ok=True)
        for row in rows:
            _write(folder / "students" / page_name(row.student), student_page(assignment, row, language))
        _write(index, class_page(assignment, rows, language))
    except OSError as problem:
        raise Refusal(f"The reports cannot be written into {folder}: {problem.strerror}.") from None
    return index


def page_name(student: str) -> str:
    """A file name for a student's page: readable where it can be, unique always."""
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", student).strip("-")[:40]
    return f"{readable or 'student'}-{hashlib.sha256(student.encode('utf-8', 'replace')).hexdigest()[:8]}.html"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def student_page(assignment: Assignment, row: Row, language: Language) -> str:
    """The page of one student: each exercise with its properties, reasons and the cell."""
    parts = [f'<p><a href="../index.html">{_say("back", language)}</a></p>', _verdict(assignment, row, language)]
    parts += [_outcome(assignment, outcome, language) for outcome in row.outcomes]
    return _page(f"{row.student} · {assignment.name}", "".join(parts), language)


def _verdict(assignment: Assignment, row: Row, language: Language) -> str:
    most = sum(assignment.worth(key) for key in assignment.keys)
    score = f"{row.points(assignment):g} {_say('of', language)} {most:g}"
    head = f"<p><strong>{score}</strong> · {escape(VERDICTS[row.verdict].say(language))}</p>"
    return head + "".join(f"<p>{escape(remark)}</p>" for remark in row.remarks(language))


def _outcome(assignment: Assignment, outcome: Outcome, language: Language) -> str:
    at = 0 if language == "en" else 1
    worth = assignment.worth(outcome.key)
    title = f"{_say('exercise', language)} {escape(outcome.key)} · {outcome.credit * worth:.3g} {_say('of', language)} {worth:g}"
    detail = f": {escape(outcome.detail)}" if outcome.detail else ""
    lines = []
    for mark in outcome.marks:
        reason = f' <span class="quiet">({escape(mark.reason[at])})</span>' if mark.reason[at] else ""
        had = f' <span class="quiet">[{_say("had", language)}]</span>' if mark.had else ""
        lines.append(f'<li class="{"yes" if mark.holds else "no"}">{escape(mark.sentence[at])}{had}{reason}</li>')
    cell = (
        f"<details><summary>{_say('answer', language)}</summary><pre tabindex=0>{escape(outcome.source)}</pre></details>"
        if outcome.source
        else ""
    )
    return f"<h2>{title}</h2><p>{escape(SAYS[outcome.status].say(language))}{detail}</p><ul>{''.join(lines)}</ul>{cell}"


def class_page(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    """The page of the class: the heat map of properties, how the cells ended, misconceptions, and a line for each student."""
    readable = [row for row in rows if row.problem is None]
    parts = [f"<h2>{_say('what', language)}</h2><p class=quiet>{_say('what_note', language)}</p>", _heat(assignment, readable, language)]
    parts += [f"<h2>{_say('cells', language)}</h2>", _endings(assignment, readable, language)]
    if beliefs := {pair for row in rows for pair in row.beliefs}:
        parts += [
            f"<h2>{_say('beliefs', language)}</h2><p class=quiet>{_say('beliefs_note', language)}</p>",
            _beliefs(beliefs, rows, language),
        ]
    parts += [f"<h2>{_say('each', language)}</h2>", _students(assignment, rows, language)]
    return _page(f"{_WORDS['class'].say(language)} · {assignment.name}", "".join(parts), language)


def _heat(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    at = 0 if language == "en" else 1
    lines = []
    for key in assignment.keys:
        answers = [outcome for row in rows for outcome in row.outcomes if outcome.key == key]
        for n in range(len(answers[0].marks) if answers else 0):
            marks = [answer.marks[n] for answer in answers]
            reasons = [mark.reason[at] for mark in marks if mark.reason[at] not in {"", _THE_SAME.say(language)}]
            why = max(dict.fromkeys(reasons), key=reasons.count, default="")
            first = f'<th scope=rowgroup rowspan="{len(answers[0].marks)}">{escape(key)}</th>' if n == 0 else ""
            share = _shaded(sum(mark.holds for mark in marks), len(marks))
            lines.append(f"<tr>{first}<td>{escape(marks[0].sentence[at])}</td>{share}<td class=quiet>{escape(why)}</td></tr>")
    heads = _heads(("exercise", "property", "holds", "why"), language)
    return f"<div class=wide><table>{heads}{''.join(lines)}</table></div>"


def _endings(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    counts = {key: statuses(rows, key) for key in assignment.keys}
    seen = [status for status in SAYS if any(status in each for each in counts.values())]
    head = "".join(f"<th scope=col>{escape(key)}</th>" for key in assignment.keys)
    lines = []
    for status in seen:
        cells = "".join(_shaded(counts[key].get(status, 0), len(rows)) for key in assignment.keys)
        lines.append(f"<tr><th scope=row>{escape(SAYS[status].say(language))}</th>{cells}</tr>")
    return f"<div class=wide><table><tr><th></th>{head}</tr>{''.join(lines)}</table></div>"


def _beliefs(found: set[tuple[str, str]], rows: Sequence[Row], language: Language) -> str:
    items = sorted({item for _, item in found})
    head = "".join(f"<th scope=col>{escape(item)}</th>" for item in items)
    counts = {pair: sum(pair in row.beliefs for row in rows) for pair in found}
    totals = {key: sum(counts.get((key, item), 0) for item in items) for key, _ in sorted(found)}
    lines = []
    for key in sorted(totals, key=lambda key: -totals[key]):
        cells = "".join(_shaded(counts.get((key, item), 0), len(rows)) for item in items)
        lines.append(f"<tr><th scope=row>{escape(MISCONCEPTIONS[key].belief.say(language))}</th>{cells}</tr>")
    return f"<div class=wide><table><tr><th scope=col>{_say('belief', language)}</th>{head}</tr>{''.join(lines)}</table></div>"


def _students(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    heads = "".join(f"<th scope=col>{escape(key)}</th>" for key in assignment.keys)
    lines = []
    for row in rows:
        credit = {outcome.key: outcome for outcome in row.outcomes}
        cells = "".join(_credit(credit.get(key), language) for key in assignment.keys)
        name = f'<a href="students/{page_name(row.student)}">{escape(row.student)}</a>'
        verdict, remarks = escape(VERDICTS[row.verdict].say(language)), escape("; ".join(row.remarks(language)))
        points = f"<td class=n>{row.points(assignment):g}</td>"
        lines.append(f"<tr><th scope=row>{name}</th>{points}{cells}<td>{verdict}</td><td class=quiet>{remarks}</td></tr>")
    first = _heads(("student", "points"), language, row=False)
    last = _heads(("verdict", "remarks"), language, row=False)
    return f"<div class=wide><table><tr>{first}{heads}{last}</tr>{''.join(lines)}</table></div>"


def _credit(outcome: Outcome | None, language: Language) -> str:
    if outcome is None:
        return "<td></td>"
    title = escape(SAYS[outcome.status].say(language))
    return f'<td class=n style="background:rgba(var(--good),{outcome.credit * 0.5:.2f})" title="{title}">{outcome.credit:.2g}</td>'


def _shaded(count: int, total: int) -> str:
    """A cell of a heat map: the number is there too, the colour alone says nothing."""
    share = count / total if total else 0.0
    return f'<td class=n style="background:rgba(var(--good),{share * 0.5:.2f})">{count} <span class=quiet>({100 * share:.0f} %)</span></td>'


def _heads(names: Iterable[str], language: Language, *, row: bool = True) -> str:
    cells = "".join(f"<th scope=col>{_say(name, language)}</th>" for name in names)
    return f"<tr>{cells}</tr>" if row else cells


def _say(word: str, language: Language) -> str:
    return escape(_WORDS[word].say(language))


def _page(title: str, body: str, language: Language) -> str:
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
