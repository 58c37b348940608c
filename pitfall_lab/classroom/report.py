"""Pages for people: one for each student, to be handed out, and one for the class. :func:`write_reports`
writes them.

No script, no network; every text is escaped here.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from pitfall_lab.classroom import analysis, handback, similar
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import SAYS, CellOutcome
from pitfall_lab.classroom.ledger import LedgerLine, called, shown_points
from pitfall_lab.classroom.register import VERDICTS, Row, ending, statuses, unwritten, write_whole
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.tasks import coded, inline, paragraphs
from pitfall_lab.trace import Language, T

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --page: #fff; --quiet: #595959; --line: #bbb; --box: #f3f3f3; --good: 0, 114, 178; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eaeaea; --page: #161616; --quiet: #b0b0b0; --line: #555; --box: #242424; --good: 86, 180, 233; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: .6em 0 1.6em; }
th, td { border: 1px solid var(--line); padding: .25em .6em; text-align: left; vertical-align: top; overflow: clip; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { background: var(--box); padding: .6em 1em; overflow-x: auto; white-space: pre; font-size: 13px; }
.quiet { color: var(--quiet); font-size: 90%; }
.wide { overflow-x: auto; }
tr.differs td { background: rgba(var(--good), .18); } td code { white-space: pre-wrap; font-size: 13px; }
li.no { list-style: "○ "; } li.yes { list-style: "✓ "; }
"""  # noqa: E501
_POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
_TURNING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Signs that say in which direction text goes, and those to a terminal: a cell with them can look like another
program. Half a character is in no file of text.
"""
MOST_ITEMS = 40
"""Questions of which the misconceptions are shown: those with the most."""
DIGITS, ALL_DIGITS = 8, 64
"""Digits of a hash in a page's name; all of them where two names would be the same otherwise."""
_PAGE_NAME = re.compile(rf".+-[0-9a-f]{{{DIGITS}}}([0-9a-f]{{{ALL_DIGITS - DIGITS}}})?\.html")
_TO_STUDENT = {
    "look": VERDICTS["graded"],  # to read the cell is for the teacher
    "unfinished": T(en="not all could be graded; your teacher looks at the rest", zh="未能全部评分；其余由老师查看"),
}
_WORDS: dict[str, T] = {
    "no_mark": T(en="No mark yet", zh="尚无分数"),
    "hand_in": T(
        en="Hand in the notebook itself, as JupyterLab saves it (a file that ends in .ipynb), or "
        "write to your teacher.",
        zh="请提交笔记本本身（JupyterLab 保存的文件，以 .ipynb 结尾），或联系老师。",
    ),
    "class": T(en="The class", zh="全班"),
    "student": T(en="Student", zh="学生"),
    "points": T(en="Points", zh="得分"),
    "verdict": T(en="Verdict", zh="结论"),
    "remarks": T(en="Remarks", zh="备注"),
    "exercise": T(en="Exercise", zh="练习"),
    "property": T(en="Property", zh="性质"),
    "holds": T(en="Holds for", zh="成立的比例"),
    "why": T(en="Most frequent reason why not", zh="最常见的不成立原因"),
    "what": T(en="What holds, for how many", zh="哪些性质成立，在多少人中成立"),
    "cells": T(en="How the cells ended", zh="各单元格的结果"),
    "each": T(en="Each student", zh="每个学生"),
    "had": T(en="as given", zh="原题已有"),
    "answer": T(en="The cell", zh="单元格"),
    "spread": T(
        en="Points of {count}: mean {mean:g} of {most}, median {median:g}, lowest {low}, highest {high}.",
        zh="{count} 人的得分：平均 {mean:g}（满分 {most}），中位数 {median:g}，最低 {low}，最高 {high}。",
    ),
    "spread_section": T(en="Section {section}: ", zh="{section} 班："),
    "came": T(en="Handed in: {received}. Deadline: {due}.", zh="提交时间：{received}。截止时间：{due}。"),
    "of": T(en="of", zh="/"),
    "task": T(en="The task", zh="题目"),
    "had_note": T(
        en="✓ holds, ○ does not. What is marked [as given] held already in the cell as it was handed out, so it earns "
        "nothing by itself; it costs points where it does not hold any more.",
        zh="✓ 成立，○ 不成立。标有 [原题已有] 的性质在发下的单元格中已经成立，因此本身不得分；若不再成立则会扣分。",
    ),
    "maybe": T(en="Who may have handed in what is not clear whose it is", zh="可能已提交（无法确定提交者）"),
    "hints": T(en="Hints", zh="提示"),
    "absent": T(en="Who did not hand in", zh="未提交者"),
    "section": T(en="Section", zh="班级"),
    "separates": T(en="Separates", zh="区分度"),
    "alike": T(en="Answers that are alike", zh="相似的答案"),
    "separates_note": T(
        en="“Separates” is the point-biserial correlation with the points for the other exercises, from ten students "
        "on: near 1 the strong students have the property and the weak do not; near 0 both have it alike; below 0, "
        "look at the question.",
        zh="“区分度”是与其他练习得分的点二列相关系数（至少十名学生）：接近 1 表示强者具备而弱者不具备；"
        "接近 0 不说明什么；低于 0 则应检查题目。",
    ),
    "alike_note": T(
        en="Compared by difflib.SequenceMatcher over tokens, without comments, whatever the names are called. Two "
        "long rows of the same few tokens are compared by the runs of eight tokens that they share. Left "
        "out: answers that the course knows, that four or more have (they are listed below), or that add fewer than "
        "twelve tokens to what was given; beyond 400 different answers to an exercise the others are not compared. "
        "Where answers are predicted, only the same mistakes are listed. Alike is not copied: short exercises have "
        "few solutions. Read both before you judge.",
        zh="用 difflib.SequenceMatcher 按词元比较，忽略注释和命名；由少数几种词元组成的长答案，按共有的连续八个词元"
        "比较。不列出：课程已知的答案、四人以上相同的答案（列于下"
        "方）、比原题新增不足十二个词元的答案；每道练习超过 400 种不同答案时其余不再比较。预测题只列出相同的错误。相似"
        "不等于抄袭：短练习的解法本来就少。判断之前请阅读两份答案。",
    ),
    "together": T(en="Pairs, by the number of exercises in which they are alike", zh="按相似练习数排列的学生对"),
    "alike_in": T(en="Exercises alike", zh="相似的练习数"),
    "same_files": T(en="The same files, byte for byte", zh="逐字节相同的文件"),
    "alike_short": T(en="Answers left out here as too short: {count}.", zh="此处因过短而未列出的答案：{count} 份。"),
    "common": T(en="Answers that four or more have", zh="四人以上相同的答案"),
    "common_note": T(
        en="Equal but for names, space and comments. Most often it is the obvious answer; with an unusual "
        "one, it may be a group.",
        zh="除命名、空白和注释外完全相同。多数情况下这是显而易见的答案；若答案不寻常，也可能是一组人。",
    ),
    "none_alike": T(en="No two answers are alike in this sense.", zh="没有这种意义上的相似答案。"),
    "beliefs": T(en="Misconceptions, by item", zh="各题目中的误解"),
    "belief": T(en="Misconception", zh="误解"),
    "beliefs_note": T(
        en="Counted from the progress files handed in with the notebooks: what the learners' own lessons wrote down, "
        "unchecked. Of more than forty items, those with the most.",
        zh="统计自随笔记本提交的进度文件：由学习者自己的课程写下，未经任何核实。超过四十项时，只列出最多的。",
    ),
    "what_note": T(
        en="Of those who handed in a notebook that could be read. A cell that is missing, unchanged or was "
        "stopped has no property.",
        zh="以提交了可读笔记本的学生计。缺失、未改动或被终止的单元格不具有任何性质。",
    ),
}


def write_reports(
    folder: Path,
    assignment: Assignment,
    entries: Sequence[LedgerLine],
    language: Language = "en",
    files: handback.Files | None = None,
) -> Path:
    """Write the pages into ``folder``, with tables, and archives for handing the pages back; return the path of the
    page for the class. Students' pages of an earlier run that this one does not write are removed.

    Raises :class:`~pitfall_lab.cli.Refusal` if one cannot be written.

    ``files``: what each submission's files are called (default: as the submission), for handing the pages back.
    """
    index = folder / "index.html"
    rows = [entry.row for entry in entries if not entry.row.absent]
    try:
        students = folder / "students"
        students.mkdir(parents=True, exist_ok=True)
        names = page_names(entries)
        pages = {names[entry.row.student]: entry for entry in entries if entry.has_mark}
        _remove_others(students, pages)
        texts = {name: student_page(assignment, entry, language) for name, entry in pages.items()}
        for name, text in texts.items():
            _write(students / name, text)
        _list_pages(folder / "pages.csv", pages)
        handback.write(folder, texts, pages, files or {})
        _write(folder / "alike.html", alike_page(assignment, entries, language))
        _write(index, class_page(assignment, entries, language))
        analysis.write(folder / "analysis.csv", assignment, rows)
    except OSError as problem:
        raise unwritten(folder, problem, "The reports cannot be written into {}") from None
    return index


def _remove_others(folder: Path, pages: Iterable[str]) -> None:
    """Remove the pages of an earlier run for submissions that no longer exist; other files stay."""
    for path in folder.glob("*.html"):
        if path.name not in pages and _PAGE_NAME.fullmatch(path.name) and not path.is_symlink():
            with path.open(encoding="utf-8", errors="replace") as file:
                ours = _POLICY in file.read(1000)
            if ours:
                path.unlink()


def page_names(entries: Iterable[LedgerLine]) -> dict[str, str]:
    """The file name of each student's page, by the name of the submission; no two names are equal, also if case is
    ignored.

    A student can choose a submission's name whose hash begins like another's; such pages get the whole hash.
    """
    entries = list(entries)
    counts = Counter(page_name(entry).casefold() for entry in entries)
    return {
        entry.row.student: page_name(entry, ALL_DIGITS if counts[page_name(entry).casefold()] > 1 else DIGITS)
        for entry in entries
    }


def page_name(entry: LedgerLine, digits: int = DIGITS) -> str:
    """A file name for a student's page: the name and id in the roster, or what the submission is called, and ``digits``
    digits of a hash.

    Letters and digits of all scripts stay; everything else is a hyphen.
    """
    student = entry.row.student
    called = unicodedata.normalize("NFC", f"{entry.person.name} {entry.person.ident}" if entry.person.name else student)
    readable = "".join(sign if unicodedata.category(sign)[0] in "LMN" else "-" for sign in called)
    readable = re.sub("-+", "-", readable).strip("-")[:40]
    return f"{readable or 'student'}-{hashlib.sha256(student.encode('utf-8', 'replace')).hexdigest()[:digits]}.html"


def _list_pages(path: Path, pages: dict[str, LedgerLine]) -> None:
    """Write which page is whose, for handing them back: a table for the teacher, beside the folder of the pages."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["page", "student", "id", "name", "section", "email", "pitfall_lab", "torch"])
    for name, entry in pages.items():
        person = entry.person
        whose = (entry.row.student, person.ident, person.name, person.section, person.email)
        table.writerow(map(plain, (name, *whose, *entry.row.versions)))
    write_whole(path, text.getvalue(), for_spreadsheets=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def student_page(assignment: Assignment, entry: LedgerLine, language: Language) -> str:
    """The HTML page of one student: each exercise with its properties, reasons, hints and the cell.

    It has no link to the pages of others.
    """
    parts = [_verdict(assignment, entry, language)]
    if any(mark.had for outcome in entry.row.outcomes for mark in outcome.marks):
        parts.append(f"<p class=quiet>{_say('had_note', language)}</p>")
    parts += [_outcome(assignment, outcome, entry.points.get(outcome.key), language) for outcome in entry.row.outcomes]
    graded_with = " · ".join(
        f"{name} {version}"
        for name, version in zip(("pitfall_lab", "torch"), entry.row.versions, strict=True)
        if version
    )
    parts.append(f"<p class=quiet>{escape(graded_with)}</p>")
    return page(f"{entry.person.name or entry.row.student} · {assignment.name}", "".join(parts), language)


def _verdict(assignment: Assignment, entry: LedgerLine, language: Language) -> str:
    most = sum(assignment.worth(key) for key in assignment.keys)
    score = f"{entry.total:g} {_say('of', language)} {most:g}"
    if not entry.is_decided:
        score = _say("no_mark", language)
    verdict = _TO_STUDENT.get(entry.row.verdict) or VERDICTS[entry.row.verdict]
    head = f"<p><strong>{score}</strong> · {escape(verdict.say(language))}</p>"
    remarks = [*entry.remarks(language, to_student=True)]
    if entry.row.verdict == "unreadable" and not entry.is_decided:
        remarks.append(_WORDS["hand_in"].say(language))
    if entry.late and assignment.due is not None and entry.received is not None:
        times = {"received": assignment.clock(entry.received), "due": assignment.clock(assignment.due)}
        remarks.append(_WORDS["came"].say(language).format(**times))
    return head + "".join(f"<p>{escape(remark)}</p>" for remark in remarks)


def _outcome(assignment: Assignment, outcome: CellOutcome, points: float | None, language: Language) -> str:
    at = 0 if language == "en" else 1
    worth = assignment.worth(outcome.key)
    if points is None and outcome.status != "ungraded":
        points = shown_points(outcome.credit, worth)
    shown = "–" if points is None else f"{points:g}"
    exercise = exercises().get(outcome.key)
    called = f" · {inline(exercise.title.say(language))}" if exercise else ""
    title = f"{_say('exercise', language)} {escape(outcome.key)}{called} · {shown} {_say('of', language)} {worth:g}"
    task = (
        f"<details><summary>{_say('task', language)}</summary>{paragraphs(exercise.task.say(language))}</details>"
        if exercise
        else ""
    )
    detail = f": {escape(outcome.detail)}" if outcome.says_detail(to_student=True) else ""
    lines = []
    for mark in outcome.marks:
        reason = f' <span class="quiet">({coded(mark.reason[at])})</span>' if mark.reason[at] else ""
        had = f' <span class="quiet">[{_say("had", language)}]</span>' if mark.had else ""
        lines.append(f'<li class="{"yes" if mark.holds else "no"}">{coded(mark.sentence[at])}{had}{reason}</li>')
    cell = (
        f"<details><summary>{_say('answer', language)}</summary><pre "
        f"tabindex=0>{escape(outcome.source)}</pre></details>"
        if outcome.source
        else ""
    )
    hints = "" if outcome.status == "solved" else _hints(outcome.key, language)
    said = escape(ending(outcome.status, to_student=True).say(language))
    nothing = f"<p>{escape(why.say(language))}</p>" if (why := outcome.why_nothing) else ""
    return f"<h2>{title}</h2>{task}<p>{said}{detail}</p><ul>{''.join(lines)}</ul>{nothing}{hints}{cell}"


def _hints(key: str, language: Language) -> str:
    exercise = exercises().get(key)
    said = "".join(f"<li>{inline(hint.say(language))}</li>" for hint in exercise.hints) if exercise else ""
    return f"<details><summary>{_say('hints', language)}</summary><ol>{said}</ol></details>" if said else ""


def alike_page(assignment: Assignment, entries: Sequence[LedgerLine], language: Language) -> str:
    """The HTML page for the teacher on answers that are alike: the same files, pairs of students, and answers side by
    side.

    Lines that differ are marked by colour and by a sign. Answers that many students have are listed at the end.
    """
    parts = [f"<p class=quiet>{_say('alike_note', language)}</p>"]
    rows = [entry.row for entry in entries if not entry.row.absent]
    if short := similar.too_short(rows, assignment.keys):
        said = _WORDS["alike_short"].say(language).format(count=short)
        parts[0] = parts[0].replace("</p>", f" {escape(said)}</p>")
    names_of = called(entries)
    if same := similar.same_files(rows):
        groups = "".join(
            f"<li>{escape('; '.join(names_of[student] for student in students))}</li>" for students in same
        )
        parts.append(f"<h2>{_say('same_files', language)}</h2><ul>{groups}</ul>")
    alone = len(parts)
    found = similar.all_pairs(rows, assignment.keys)
    if several := similar.together(found, assignment.keys):
        lines = [
            f"<tr><td>{escape(names_of[one])}</td><td>{escape(names_of[other])}</td>"
            f"<td class=n>{len(of)}</td><td>{escape(', '.join(of))}</td></tr>"
            for one, other, of in several
        ]
        heads = _heads(("student", "student", "alike_in", "exercise"), language)
        parts.append(f"<h2>{_say('together', language)}</h2><table>{heads}{''.join(lines)}</table>")
    for pair in found[: similar.SHOWN]:
        names = [escape("; ".join(names_of[student] for student in students)) for students in (pair.one, pair.other)]
        head = "".join(f"<th scope=col>{name}</th>" for name in names)
        cells = "".join(
            f"<tr class={'same' if same else 'differs'}>{_side(mine, same)}{_side(theirs, same)}</tr>"
            for mine, theirs, same in similar.lines(*pair.sources)
        )
        parts.append(f"<h2>{escape(pair.key)} · {100 * pair.ratio:.0f} %</h2><table><tr>{head}</tr>{cells}</table>")
    if len(parts) == alone:
        parts.append(f"<p>{_say('none_alike', language)}</p>")
    common = [
        f"<h3>{escape(key)} · {len(students)}</h3><p>{escape('; '.join(names_of[student] for student in students))}</p>"
        f"<details><summary>{_say('answer', language)}</summary><pre tabindex=0>{escape(source)}</pre></details>"
        for key, students, source in similar.common(rows, assignment.keys)
    ]
    if common:
        parts += [f"<h2>{_say('common', language)}</h2><p class=quiet>{_say('common_note', language)}</p>", *common]
    return page(f"{_WORDS['alike'].say(language)} · {assignment.name}", "".join(parts), language)


def _side(text: str, same: bool) -> str:
    return f"<td><code>{'' if same else '≠ '}{escape(text)}</code></td>"


def class_page(assignment: Assignment, entries: Sequence[LedgerLine], language: Language) -> str:
    """The HTML page of the class: the points, how often each property holds, how the cells ended, and a line per
    student.

    It also has the misconceptions from progress files, if there are any, and those who handed in nothing.
    """
    rows = [entry.row for entry in entries if not entry.row.absent]
    readable = [row for row in rows if row.problem is None]
    parts = [_spread(assignment, entries, language)]
    parts += [
        f"<h2>{_say('what', language)}</h2><p class=quiet>{_say('what_note', language)}</p>",
        _heat(assignment, readable, language),
    ]
    parts += [f"<h2>{_say('cells', language)}</h2>", _endings(assignment, readable, language)]
    if any(row.beliefs for row in rows):
        parts += [
            f"<h2>{_say('beliefs', language)}</h2><p class=quiet>{_say('beliefs_note', language)}</p>",
            _beliefs(rows, language),
        ]
    parts += [f"<h2>{_say('each', language)}</h2>", _students(assignment, entries, language)]
    parts.append(f'<p><a href="alike.html">{_say("alike", language)}</a> · <a href="analysis.csv">analysis.csv</a></p>')
    names = called(entries)
    for what, maybe in (("absent", False), ("maybe", True)):
        if absent := [names[entry.row.student] for entry in entries if entry.row.absent and entry.maybe == maybe]:
            parts.append(f"<h2>{_say(what, language)} ({len(absent)})</h2><p>{escape('; '.join(absent))}</p>")
    return page(f"{_WORDS['class'].say(language)} · {assignment.name}", "".join(parts), language)


def _spread(assignment: Assignment, entries: Sequence[LedgerLine], language: Language) -> str:
    """A line on the points of those who have a mark (how many, mean, median, lowest, highest), and one
    for each of several sections.
    """
    marked = [entry for entry in entries if entry.is_decided]
    sections = sorted({entry.person.section for entry in marked} - {""})
    groups = [("", marked)]
    if len({entry.person.section for entry in marked}) > 1:
        groups += [(section, [entry for entry in marked if entry.person.section == section]) for section in sections]
    most = sum(assignment.worth(key) for key in assignment.keys)
    lines = []
    for section, group in groups:
        if totals := [entry.total for entry in group]:
            numbers = {
                "count": len(totals),
                "mean": round(statistics.fmean(totals), 2),
                "median": round(statistics.median(totals), 2),
            }
            said = (
                _WORDS["spread"]
                .say(language)
                .format(**numbers, most=f"{most:g}", low=f"{min(totals):g}", high=f"{max(totals):g}")
            )
            head = _WORDS["spread_section"].say(language).format(section=section) if section else ""
            lines.append(f"<p>{escape(head + said)}</p>")
    return "".join(lines)


def _heat(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    at = 0 if language == "en" else 1
    lines = []
    separates = {(item.key, item.name): item.separates for item in analysis.properties(assignment, rows, at)}
    for key in assignment.keys:
        # what could not be graded has no marks
        answers = [outcome for row in rows for outcome in row.outcomes if outcome.key == key and outcome.marks]
        for n in range(len(answers[0].marks) if answers else 0):
            marks = [answer.marks[n] for answer in answers]
            reasons = [reason for answer in answers if (reason := answer.marks[n].reason[at])]
            why = max(dict.fromkeys(reasons), key=reasons.count, default="")
            first = f'<th scope=rowgroup rowspan="{len(answers[0].marks)}">{escape(key)}</th>' if n == 0 else ""
            share = _shaded(sum(mark.holds for mark in marks), len(marks))
            power = separates.get((key, marks[0].sentence[at]))
            apart = f"<td class=n>{'' if power is None else f'{power:g}'}</td>"
            lines.append(
                f"<tr>{first}<td>{coded(marks[0].sentence[at])}</td>{share}{apart}<td "
                f"class=quiet>{coded(why)}</td></tr>"
            )
    heads = _heads(("exercise", "property", "holds", "separates", "why"), language)
    return (
        f"<div class=wide><table>{heads}{''.join(lines)}</table></div><p "
        f"class=quiet>{_say('separates_note', language)}</p>"
    )


def _endings(assignment: Assignment, rows: Sequence[Row], language: Language) -> str:
    counts = {key: statuses(rows, key) for key in assignment.keys}
    seen = [status for status in SAYS if any(status in each for each in counts.values())]
    head = "".join(f"<th scope=col>{escape(key)}</th>" for key in assignment.keys)
    lines = []
    for status in seen:
        cells = "".join(_shaded(counts[key].get(status, 0), len(rows)) for key in assignment.keys)
        lines.append(f"<tr><th scope=row>{escape(SAYS[status].say(language))}</th>{cells}</tr>")
    return f"<div class=wide><table><tr><th></th>{head}</tr>{''.join(lines)}</table></div>"


def _beliefs(rows: Sequence[Row], language: Language) -> str:
    counts = Counter(pair for row in rows for pair in row.beliefs)
    by_item: Counter[str] = Counter()
    for (_, item), count in counts.items():
        by_item[item] += count
    items = sorted(item for item, _ in by_item.most_common(MOST_ITEMS))  # what a progress file names, anybody can write
    head = "".join(f"<th scope=col>{escape(item)}</th>" for item in items)
    totals = {
        key: sum(counts[key, item] for item in items) for key in sorted({key for key, item in counts if item in items})
    }
    lines = []
    for key in sorted(totals, key=lambda key: -totals[key]):
        cells = "".join(_shaded(counts[key, item], len(rows)) for item in items)
        lines.append(f"<tr><th scope=row>{escape(MISCONCEPTIONS[key].belief.say(language))}</th>{cells}</tr>")
    return (
        "<div class=wide><table><tr><th "
        f"scope=col>{_say('belief', language)}</th>{head}</tr>{''.join(lines)}</table></div>"
    )


def _students(assignment: Assignment, entries: Sequence[LedgerLine], language: Language) -> str:
    heads = "".join(f"<th scope=col>{escape(key)}</th>" for key in assignment.keys)
    lines, names_of, pages = [], called(entries), page_names(entries)
    for entry in entries:
        row = entry.row
        credit = {outcome.key: outcome for outcome in row.outcomes}
        cells = "".join(
            _credit(credit.get(key), entry.points.get(key), assignment.worth(key), language) for key in assignment.keys
        )
        shown = escape(names_of[row.student])
        name = f'<a href="students/{escape(quote(pages[row.student]))}">{shown}</a>' if entry.has_mark else shown
        verdict, remarks = escape(VERDICTS[row.verdict].say(language)), escape("; ".join(entry.remarks(language)))
        points = f"<td>{escape(entry.person.section)}</td><td class=n>{entry.shown()}</td>"
        lines.append(
            f"<tr><th scope=row>{name}</th>{points}{cells}<td>{verdict}</td><td class=quiet>{remarks}</td></tr>"
        )
    first = _heads(("student", "section", "points"), language, row=False)
    last = _heads(("verdict", "remarks"), language, row=False)
    return f"<div class=wide><table><tr>{first}{heads}{last}</tr>{''.join(lines)}</table></div>"


def _credit(outcome: CellOutcome | None, points: float | None, worth: float, language: Language) -> str:
    """A table cell, as HTML, with the points, shown as in ``grades.csv`` ("" for None).

    The larger their share of what the exercise is ``worth``, the stronger the cell's colour; its
    tooltip says how the cell ended.
    """
    shown = "" if points is None else f"{points:g}"
    title = f' title="{escape(SAYS[outcome.status].say(language))}"' if outcome else ""
    share = min(1.0, (points or 0.0) / worth) if worth else 0.0
    return f'<td class=n style="background:rgba(var(--good),{share * 0.5:.2f})"{title}>{shown}</td>'


def _shaded(count: int, total: int) -> str:
    """A cell of a heat map, as HTML: ``count`` and its share of ``total`` in percent, with a colour of that strength.

    It contains the number, since not everybody can read colour.
    """
    share = count / total if total else 0.0
    return (
        f'<td class=n style="background:rgba(var(--good),{share * 0.5:.2f})">{count} <span '
        f"class=quiet>({100 * share:.0f} %)</span></td>"
    )


def _heads(names: Iterable[str], language: Language, *, row: bool = True) -> str:
    cells = "".join(f"<th scope=col>{_say(name, language)}</th>" for name in names)
    return f"<tr>{cells}</tr>" if row else cells


def _say(word: str, language: Language) -> str:
    return escape(_WORDS[word].say(language))


def page(title: str, body: str, language: Language) -> str:
    """A whole HTML page: the title, which is escaped, and below it ``body``, which is HTML already.

    Characters that change the direction of the text around them are replaced by their numbers, such as ``⟨U+202E⟩``.
    """
    title, body = (_TURNING.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text) for text in (title, body))
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width">{_POLICY}<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h'
        f"1>{escape(title)}</h1>{body}</body></html>\n"
    )
