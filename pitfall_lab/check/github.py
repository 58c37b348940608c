"""Findings as workflow commands, which GitHub shows beside the lines of a pull request (:func:`github`)."""

from __future__ import annotations

from collections.abc import Sequence

from pitfall_lab.check.examine import Checked
from pitfall_lab.check.terminal import shown
from pitfall_lab.trace import Language

LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def github(checked: Sequence[Checked], language: Language = "en") -> str:
    """Return the workflow commands as text: one line for each finding and for each file with a problem; empty if there
    are none.

    A log is read on terminals, too: control characters of a file or of its errors are made visible.
    """
    rows = []
    for each in checked:
        for finding in each.findings:
            place = {"file": each.name}
            message = finding.message.say(language)
            if finding.span is not None and each.script is not None and each.script.cells:
                message = f"{each.script.place_text(finding.span.line)}: {message}"
            elif finding.span is not None:
                span = finding.span
                place |= {"line": str(span.line), "endLine": str(span.end_line)}
                if span.line == span.end_line:
                    place |= {"col": str(span.column + 1), "endColumn": str(span.end_column)}
            place["title"] = f"{finding.rule} {finding.name}"
            rows.append(_command(LEVELS[finding.severity], place, message))
        if each.problem is not None:
            place = {"file": each.problem.file or each.name}
            if each.problem.line and not (each.script and each.script.cells):
                place["line"] = str(each.problem.line)
            rows.append(_command("error", place, each.problem.said.say(language)))
    return "".join(row + "\n" for row in rows)


def _command(level: str, place: dict[str, str], message: str) -> str:
    properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in place.items())
    return f"::{level} {properties}::{_escaped(message, '')}"


def _escaped(text: str, more: str) -> str:
    text = "%0A".join(shown(line) for line in text.replace("%", "%25").split("\n"))
    for character in more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
