"""``# pitfall: ignore[PL101]`` on a line: findings there are not reported; a comment that ignores nothing is reported
(:func:`without_ignored`).
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable
from dataclasses import dataclass

from pitfall_lab.check.settings import UNUSED
from pitfall_lab.rules import CATALOGUE, Family, Finding, Rule
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.trace import Span, T

_COMMENT = re.compile(r"#\s*pitfall:\s*ignore(?:\s*\[([^\]]*)\])?(?=\s|$|#|[.,;:])")

UNUSED_NAME = "unused-ignore"
UNUSED_TITLE = T(en="A `# pitfall: ignore` comment ignores nothing", zh="`# pitfall: ignore` 注释什么也没有忽略")
UNUSED_WHY = T(
    en="A comment that ignores nothing can hide the next real finding on its line; it can go.",
    zh="什么也不忽略的注释会掩盖这一行下一个真正的发现；可以删掉它。",
)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One ignore comment.

    ``span`` is the position of the comment itself, ``codes`` are the codes that it names, as they are written (empty:
    it ignores all findings).
    """

    span: Span
    codes: tuple[str, ...]

    def covers(self, finding: Finding) -> bool:
        """Whether the comment names the finding's rule, by code, by prefix or by name; True if it names none."""
        return not self.codes or any(
            finding.rule.startswith(code.upper()) or finding.name == code.lower() for code in self.codes
        )


def ignores(text: str) -> list[Ignore]:
    """The ignore comments of a program; if Python cannot tokenize it, those before the error.

    >>> [each.codes for each in ignores("h += 1  # pitfall: ignore[PL101, PL2]")]
    [('PL101', 'PL2')]
    """
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            comment = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if comment:
                codes = tuple(word.strip() for word in (comment[1] or "").split(",") if word.strip())
                line, column = token.start
                found.append(Ignore(Span(line, column + comment.start(), line, column + comment.end()), codes))
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def without_ignored(
    findings: list[Finding], text: str, *, wanted: Callable[[str], bool], complete: bool
) -> tuple[list[Finding], list[Finding]]:
    """The findings that no ignore comment in ``text`` covers, and notes about comments that ignore nothing.

    A comment applies to findings in its statement; if that is a compound statement (a loop, a function), only to
    findings on its own line. Findings without a span, or in another module, are always kept. Notes are findings, too. A
    note is made only if the program ran to its end (``complete``), and ``wanted`` is true of the note's own code and of
    the code of at least one rule that the comment names (or the comment names no existing rule).
    """
    comments = ignores(text)
    if not comments:
        return findings, []
    program = Program(text)
    used: set[Ignore] = set()
    kept = []
    for finding in findings:
        lines = _lines(program, finding.span)
        covering = [each for each in comments if each.span.line in lines and each.covers(finding)]
        used.update(covering)
        if not covering:
            kept.append(finding)
    notes = [
        _unused(each)
        for each in comments
        if each not in used and complete and wanted(UNUSED) and _is_selected(each, wanted)
    ]
    return kept, [*notes]


def _lines(program: Program, span: Span | None) -> range:
    """The lines on which an ignore comment applies to ``span``.

    They are those of its statement, or of the span alone if the statement is compound; empty without a span, or for a
    span in another module.
    """
    if span is None or span.source != 0:
        return range(0)
    statement = program.statement_at(span)
    if statement is not None and not hasattr(statement, "body"):
        place = program.place(statement)
        return range(place.line, place.end_line + 1)
    return range(span.line, span.end_line + 1)


def _is_selected(comment: Ignore, wanted: Callable[[str], bool]) -> bool:
    """Whether the settings report a rule that the comment names (any rule, if it names none); True also if
    no rule has the codes in it.
    """
    known = [rule for rule in CATALOGUE if not comment.codes or any(_names(code, rule) for code in comment.codes)]
    return not known or any(wanted(rule.code) for rule in known)


def _names(code: str, rule: Rule | Family) -> bool:
    return rule.code.startswith(code.upper()) or rule.name == code.lower()


def _unused(comment: Ignore) -> Finding:
    named = ", ".join(comment.codes)
    unknown = [code for code in comment.codes if not any(_names(code, rule) for rule in CATALOGUE)]
    if unknown:
        message = T(
            en=f"No rule has the code {unknown[0]}, so this comment ignores nothing.",
            zh=f"没有代码为 {unknown[0]} 的规则，这条注释什么也没有忽略。",
        )
    elif named:
        message = T(
            en=f"Nothing of {named} was found here: this comment ignores nothing.",
            zh=f"这里没有发现 {named}：这条注释什么也没有忽略。",
        )
    else:
        message = T(
            en="Nothing was found here: this comment ignores nothing.",
            zh="这里什么也没有发现：这条注释什么也没有忽略。",
        )
    return Finding(UNUSED, UNUSED_NAME, "info", comment.span, None, False, message, UNUSED_WHY)
