"""What the live panel knows of a cell that is explained: why it had failed before, and what is wrong in live objects
around it. :func:`completed` adds it to the findings of the recording.

A recording shows one run of a cell. What an earlier run, or another cell, has done is not in it, and a failed run may
have changed what the cell starts from: then the recorded run fails in another way, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pitfall_lab.rules import Finding, rule
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.panel.cause import Cause
    from pitfall_lab.panel.failures import Failed
    from pitfall_lab.rules.kit.finding import Severity

ELSEWHERE = "explained-by-earlier-cells"
_LEVELS: dict[str, Severity] = {"error": "error", "silent": "warning", "note": "info"}


def completed(
    found: Sequence[Finding], cause: Cause | None, before: Failed | None, warned: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """The findings of a recorded cell, with what the panel knows. ``found`` are those of the recording.

    ``cause`` is why the recorded run failed (None: it did not, or that is not known), ``before`` the failure of the run
    before it, if that was another one. ``warned`` are the panel's warnings about the cell, as plain data; they are
    added where the recording shows no mistake, so that the cell is not reported as correct.
    """
    if before is not None and before.cause is not None:
        return [_of_before(before, before.cause), *found]
    if cause is not None:
        return _with_cause(found, cause)
    if any(each.severity != "info" for each in found):
        return list(found)
    return [*found, *(_of_warning(each) for each in warned)]


def _with_cause(found: Sequence[Finding], cause: Cause) -> list[Finding]:
    """The findings, that about the error completed by the cells where it began; its own words follow,
    and its place and fixes stay.
    """
    explanation = T(f"{cause.explanation.en} {cause.fix.en}", cause.explanation.zh + cause.fix.zh)
    if any(each.fact("earlier") for each in found):
        return [_said(each, cause, explanation) if each.fact("earlier") else each for each in found]
    error = next((each for each in found if each.severity == "error"), None)
    if error is None:
        return [_finding((cause.rule, ELSEWHERE), "error", cause.sentence, explanation), *found]
    here = T(f"{explanation.en} Here: {error.message.en}", f"{explanation.zh}此处：{error.message.zh}")
    return [_said(each, cause, here) if each is error else each for each in found]


def _said(finding: Finding, cause: Cause, explanation: T) -> Finding:
    """The finding in the panel's words, and under the panel's rule unless it has fixes: these are tried
    by the rule that offers them.
    """
    said = replace(finding, message=cause.sentence, explanation=explanation)
    return replace(said, rule=cause.rule, name=rule(cause.rule).name) if cause.rule and not finding.fixes else said


def _of_before(before: Failed, cause: Cause) -> Finding:
    now = T(
        f"So it was in the run before, In [{before.run}]. That run had already used or changed what the cell starts "
        "from, so this recording shows something else.",
        f"这是上一次运行 In [{before.run}] 的情况。那次运行已经用掉或改变了此单元格的起点，所以这次记"
        "录显示的是别的情形。",
    )
    explanation = T(
        f"{now.en} {cause.explanation.en} {cause.fix.en}",
        f"{now.zh}{cause.explanation.zh}{cause.fix.zh}",
    )
    return _finding((cause.rule, ELSEWHERE), "error", cause.sentence, explanation)


def _of_warning(warning: Mapping[str, Any]) -> Finding:
    sentence, explanation, fix = (
        T(**warning[key]) if warning[key] else T("", "") for key in ("sentence", "explanation", "fix")
    )
    said = T(f"{explanation.en} {fix.en}".strip(), explanation.zh + fix.zh)
    return _finding((warning["rule"], warning["kind"]), _LEVELS[warning["level"]], sentence, said)


def _finding(named: tuple[str, str], severity: Severity, message: T, explanation: T) -> Finding:
    """A finding without a place in the recording; ``named`` is the code of a rule, and a name for where it is empty."""
    code, name = named
    return Finding(code, rule(code).name if code else name, severity, None, None, False, message, explanation)
