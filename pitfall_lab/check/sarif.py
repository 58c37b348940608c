"""Findings as SARIF 2.1.0, the format that code hosts and editors read: rules with help, results with code flows and
fixes (:func:`sarif`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pitfall_lab.check.examine import Checked
from pitfall_lab.check.scripts import Script
from pitfall_lab.cli import installed_version
from pitfall_lab.rules import CATALOGUE, Family, Finding, Fix, Rule
from pitfall_lab.trace import Language, Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(checked: Sequence[Checked], language: Language = "en") -> dict[str, Any]:
    """Return the log of one run of the checker: a result for each finding, and a notification
    for each file with a problem.
    """
    numbers = {rule.code: index for index, rule in enumerate(CATALOGUE)}
    results = [_result(each, finding, numbers, language) for each in checked for finding in each.findings]
    refused = [_notification(each, language) for each in checked if each.problem is not None]
    run = {
        "tool": {
            "driver": {
                "name": "pitfall-lab",
                "version": installed_version(),
                "rules": [_rule(rule, language) for rule in CATALOGUE],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "invocations": [{"executionSuccessful": not refused, "toolExecutionNotifications": refused}],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule | Family, language: Language) -> dict[str, Any]:
    what, why = rule.what.say(language), rule.why.say(language) if isinstance(rule, Rule) else ""
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title.say(language)},
        "fullDescription": {"text": what},
        "help": {
            "text": f"{what}\n\n{why}".strip(),
            "markdown": f"{what}\n\n```python\n{rule.bad}```\n\n{why}\n\n```python\n{rule.good}```".replace(
                "\n\n\n\n", "\n\n"
            ),
        },
        **({"helpUri": rule.docs[0]} if isinstance(rule, Rule) and rule.docs else {}),
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(checked: Checked, finding: Finding, numbers: dict[str, int], language: Language) -> dict[str, Any]:
    name, script = checked.name, checked.script
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        **({"ruleIndex": numbers[finding.rule]} if finding.rule in numbers else {}),
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding.message.say(language)} {finding.explanation.say(language)}"},
        "locations": [_location(name, script, finding.span)],
    }
    related = [
        {"id": number, **_location(name, script, each.span), "message": {"text": each.message.say(language)}}
        for number, each in enumerate(finding.related)
        if each.span is not None and each.span.source == 0
    ]
    if related:
        result["relatedLocations"] = related
    # a notebook is JSON on disk: an edit of lines in its cells cannot be expressed as an edit of lines in the file
    fixes = [
        _fix(name, fix, language)
        for fix in finding.fixes
        if fix.verified and fix.edits and not (script and script.cells)
    ]
    if fixes:
        result["fixes"] = fixes
    return result


def _location(name: str, script: Script | None, span: Span | None) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(name)}}
    cell, line = script.place(span.line) if script and span else (None, span.line if span else None)
    if cell is not None:
        location["logicalLocations"] = [
            {"name": f"cell {cell}", "fullyQualifiedName": f"cell {cell}:{line}", "kind": "member"}
        ]
    elif span is not None:
        location["physicalLocation"]["region"] = {
            "startLine": span.line,
            "startColumn": span.column + 1,
            "endLine": span.end_line,
            "endColumn": span.end_column + 1,
        }
    return location


def _fix(name: str, fix: Fix, language: Language) -> dict[str, Any]:
    """A fix as replaced regions of whole lines: from column 1 of the first line to
    column 1 of the line after the last.
    """
    replacements = [
        {
            "deletedRegion": {"startLine": edit.line, "startColumn": 1, "endLine": edit.end_line + 1, "endColumn": 1},
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    return {
        "description": {"text": fix.title.say(language)},
        "artifactChanges": [{"artifactLocation": _artifact(name), "replacements": replacements}],
    }


def _artifact(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.is_absolute():
        if not path.is_relative_to(Path.cwd()):
            return {"uri": path.as_uri()}
        path = path.relative_to(Path.cwd())
    return {"uri": quote(path.as_posix()), "uriBaseId": "SRCROOT"}


def _notification(checked: Checked, language: Language) -> dict[str, Any]:
    assert checked.problem is not None
    place: dict[str, Any] = {"artifactLocation": _artifact(checked.problem.file or checked.name)}
    if checked.problem.line and not (checked.script and checked.script.cells):
        place["region"] = {"startLine": checked.problem.line}
    return {
        "level": "error",
        "message": {"text": checked.problem.said.say(language)},
        "locations": [{"physicalLocation": place}],
    }
