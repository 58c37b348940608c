"""What to do about a finding where no edit was verified: the rule's advice, in the program's own names and lines."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import replace
from string import Formatter
from typing import TYPE_CHECKING

from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import LANGUAGES, Span, T

if TYPE_CHECKING:
    from pitfall_lab.rules.kit.finding import Finding, Rule
    from pitfall_lab.rules.kit.source import Program
    from pitfall_lab.rules.kit.story import Story

CODE = re.compile(r"`([^`]*\W[^`]*)`")
KNOWN = {
    "torch",
    "nn",
    "np",
    "copy",
    "self",
    "ctx",
    "float",
    "range",
    "model",
    "optimizer",
    "scheduler",
    *keyword.kwlist,
}
"""Words in the code of an advice that are not the program's own variables, or that need no explanation (``model``)."""
VARIABLE = re.compile(r"(?<![\w.\"'])[a-zA-Z_]\w*(?!\w|\(|\s*=(?!=)|[\"'])")


def advised(story: Story, finding: Finding, rule: Rule | None) -> Finding:
    """Return ``finding`` with its ``advice`` filled in; unchanged if it already has advice, or if ``rule`` (the
    finding's rule) is None.

    The advice is ``rule.advice`` with its ``{placeholders}`` replaced by the program's names and lines, looked up in
    ``story``. If the rule has no advice, or a placeholder has no value for this finding, the advice is the last
    sentence of ``rule.what``, preceded by the finding's line if that is known.
    """
    if finding.advice is not None or rule is None:
        return finding
    words = _words(story, finding)
    if rule.advice is not None and names(rule.advice) <= words.keys():
        en, zh = (
            capital(rule.advice.say(one).format(**{key: word.say(one) for key, word in words.items()}))
            for one in LANGUAGES
        )
        return replace(finding, advice=T(en=en, zh=zh))
    last, where = last_sentence(rule.what), words.get("line")
    own = (
        T(en=" (names as in the rule's example)", zh="（名称取自规则的例子）")
        if _foreign(last, story.program)
        else T(en="", zh="")
    )
    en, zh = (f"{last.say(one).rstrip('.。')}{own.say(one)}" for one in LANGUAGES)
    if where is None:
        return replace(finding, advice=T(en=f"{en}.", zh=f"{zh}。"))
    return replace(finding, advice=T(en=f"{capital(where.en)}: {en[:1].lower() + en[1:]}.", zh=f"{where.zh}：{zh}。"))


def _foreign(text: T, program: Program) -> bool:
    """Whether code in backticks in the English text contains a variable that neither occurs in the program nor is in
    ``KNOWN``.
    """
    known = {node.id for node in program.nodes if isinstance(node, ast.Name)} | KNOWN
    return any(name not in known for code in CODE.findall(text.en) for name in VARIABLE.findall(code))


def names(advice: T) -> set[str]:
    """Return the names of the ``{placeholders}`` in the text ``advice``, in either language.

    Possible are ``line`` and ``code`` (of the finding), ``tensor``, the role of a related line (``saved``) and the code
    of that line (``saved_code``).
    """
    return {field for one in LANGUAGES for _, field, _, _ in Formatter().parse(advice.say(one)) if field}


def last_sentence(text: T) -> T:
    """Return the last sentence of a text; the last sentence of a rule's page says what to do.

    >>> last_sentence(T(en="It is 0.5. Use `a.b()`.", zh="它是 0.5。用 `a.b()`。")).zh
    '用 `a.b()`。'
    """
    return T(
        en=re.split(r"(?<=[.!?]) (?=[A-Z`])", text.en)[-1], zh=re.split(r"(?<=[。！？])(?=.)", text.zh.rstrip())[-1]
    )


def _words(story: Story, finding: Finding) -> dict[str, T]:
    places: dict[str, Span] = {
        related.role: related.span for related in reversed(finding.related) if related.span is not None
    }
    if finding.span is not None:
        places["line"] = finding.span
    words: dict[str, T] = {}
    for name, span in places.items():
        words[name] = at_line(story, span)
        if code := statement_text(story, span):
            words["code" if name == "line" else f"{name}_code"] = T(en=f"`{code}`", zh=f"`{code}`")
    tensor, storage = finding.fact("tensor"), finding.fact("storage")
    if tensor is not None or storage is not None:
        words["tensor"] = called(story, tensor, storage, finding.step)
    return words
