"""Check one file: read it, run it, repair it if requested, and filter the findings by the settings (:func:`examine`,
:func:`repaired`, and :func:`check_file` as plain data).
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pitfall_lab.check import scripts
from pitfall_lab.check.ignores import without_ignored
from pitfall_lab.check.observed import as_data, nothing_observed, unobserved
from pitfall_lab.check.scripts import Script
from pitfall_lab.check.settings import Settings, near
from pitfall_lab.check.trials import recorded, tried
from pitfall_lab.check.workshop import TIMEOUT, Subject, Unchecked, Workshop
from pitfall_lab.rules import Finding, find
from pitfall_lab.trace import Failure, Language, Trace

MOST_ROUNDS = 50
"""The maximal number of fixes that ``--fix`` makes in one file."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking one file, called ``name``. ``script`` is its text as it was run (None: it could not be
    read), ``trace`` the recording of the run (None: it did not run), ``findings`` what was found and the settings do
    not leave out.

    ``problem``: why it could not be checked, or not to its end (None: it was). ``printed`` is what the program printed,
    ``fixed`` are the findings that were repaired, and ``before`` is the script before these repairs, which are made in
    ``script`` (None if no repair was asked for, or the file could not be read).
    """

    name: str
    script: Script | None = None
    trace: Trace | None = None
    findings: tuple[Finding, ...] = ()
    problem: Unchecked | None = None
    printed: str = ""
    fixed: tuple[Finding, ...] = ()
    before: Script | None = None

    @property
    def exit_code(self) -> int:
        """The exit code for this file alone.

        0 if there is nothing to act on, 1 for an error or a warning, 2 if it was not checked or not observed to its
        end, 3 if it was stopped at the time limit.
        """
        if self.problem is not None:
            return 3 if self.problem.kind == "Timeout" else 2
        return int(any(finding.severity in ("error", "warning") for finding in self.findings))


def examine(
    path: Path, shop: Workshop, settings: Settings, argv: Sequence[str] = (), *, name: str = "", fixes: bool = True
) -> Checked:
    """Check the file ``path``, called ``name`` in the report (by default its path). It runs in ``shop``, with ``argv``
    as its arguments.

    Errors in reading or running it are part of the result; none is raised.

    Findings that the settings or comments in the file leave out are not in the result. Without ``fixes``, no fix is
    tried, and findings have none.
    """
    name = name or str(path)
    try:
        script = scripts.read(path, name)
    except Unchecked as problem:
        return Checked(name, problem=problem)
    return _checked(script, shop, settings, argv, fixes=fixes)


def repaired(path: Path, shop: Workshop, settings: Settings, argv: Sequence[str] = (), *, name: str = "") -> Checked:
    """Check one file, and apply one verified fix after the other until no finding with such a fix is left.

    The file itself is not written: the result has the edited text in ``script``, and the findings that remain.
    Arguments are as for :func:`examine`. A fix is verified alone, so the program is checked again after each one, which
    is the first of the first finding that has one; at most ``MOST_ROUNDS`` (50) fixes are made. Findings of severity
    info are not fixed, nor are lines that the author did not write (a notebook's magics).
    """
    checked = examine(path, shop, settings, argv, name=name)
    before, fixed = checked.script, []
    for _ in range(MOST_ROUNDS):
        after = next(
            (
                (finding, edited)
                for finding in checked.findings
                if checked.script is not None and finding.severity != "info"
                for fix in finding.fixes
                if fix.verified and (edited := checked.script.edited(fix.edits)) is not None
            ),
            None,
        )
        if after is None:
            break
        fixed.append(after[0])
        checked = _checked(after[1], shop, settings, argv, fixes=True)
    return replace(checked, fixed=tuple(fixed), before=before)


def _checked(script: Script, shop: Workshop, settings: Settings, argv: Sequence[str], *, fixes: bool) -> Checked:
    shop.timeout, shop.memory = settings.timeout, settings.memory
    shop.steps, shop.every_round = settings.steps, settings.every_round
    path = os.path.realpath(script.path)
    subject = Subject(script.text, script.name, path, tuple(argv), script.prelude, script.forgiven)

    def wanted(code: str) -> bool:
        return settings.wants(code, script.path)

    try:
        trace = recorded(shop, subject)
    except Unchecked as problem:
        return Checked(script.name, script, problem=problem, printed=shop.printed)
    printed = shop.printed
    known = shop.found[1] if shop.found and shop.found[0] is trace and not script.cells else None
    everything = find(trace, tuple(cell.first for cell in script.cells)) if known is None else known
    chosen = [finding for finding in everything if wanted(finding.rule)]
    complete = trace.outcome.kind == "finished" and trace.stopped is None and not trace.unseen
    kept, notes = without_ignored(chosen, script.text, wanted=wanted, complete=complete)
    kept = tried(shop, subject, trace, kept) if fixes else [finding.with_fixes(()) for finding in kept]
    findings = sorted([*kept, *notes], key=lambda f: f.severity == "info")
    unfinished = unobserved(script.name, script, trace) or stopped_early(script, trace, everything, printed)
    return Checked(script.name, script, trace, tuple(findings), unfinished, printed)


def stopped_early(script: Script, trace: Trace, findings: Sequence[Finding], printed: str = "") -> Unchecked | None:
    """Why the program was not checked to its end: it ended with an error that no rule explains.

    ``findings`` are all that were found, ``printed`` is what the program printed. None if it ended without an error, or
    if there is a finding that is an error or a warning.
    """
    failure = trace.outcome.failure
    if failure is None or any(finding.severity != "info" for finding in findings):
        return None
    cell, line = script.place(failure.span.line if failure.span else None)
    where = f" in cell {cell}" if cell else ""
    where += f" on line {line}" if line else ""
    first = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
    said = f" ({textwrap.shorten(first, 200, placeholder=' …')})" if first else ""
    sentence = (
        f"{script.name} stopped with {failure.type}{where}{said}, so it could not be checked to its "
        f"end{_hint(failure, printed)}."
    )
    return Unchecked(failure.type, sentence, line)


def _hint(failure: Failure, printed: str) -> str:
    if failure.type == "ModuleNotFoundError":
        return "; install what it needs, or check it with the Python that has it"
    if failure.type == "SystemExit" and "usage:" in printed.lower():
        return "; pass arguments on to it after `--`"
    return ""


# --- as data ---------------------------------------------------------------------------------------------------------


def check_file(
    path: str | os.PathLike[str],
    argv: Sequence[str] = (),
    *,
    timeout: float = TIMEOUT,
    language: Language = "en",
    fixes: bool = True,
) -> dict[str, Any]:
    """Return the object that ``pitfall-lab check FILE --json`` prints; a file that cannot be checked has its reason
    under ``error``.

    ``timeout`` (seconds) takes the place of the one in the settings near the file; the other settings apply. ``argv``
    are the file's command line arguments; without ``fixes``, no fix is tried. Raises :class:`~pitfall_lab.cli.Refusal`
    for wrong settings, as :func:`~pitfall_lab.check.settings.near` does.
    """
    with Workshop() as shop:
        settings = replace(near(Path(path)), timeout=timeout)
        return document(examine(Path(path), shop, settings, argv, name=str(path), fixes=fixes), language)


def document(checked: Checked, language: Language = "en") -> dict[str, Any]:
    """The JSON object of a checked file, as dictionaries and lists, with texts in ``language``.

    Lines of a notebook count within their cell, and ``cell`` (of code cells, from 1) is added.
    """
    trace = checked.trace
    if trace is None:
        problem = checked.problem or Unchecked("Unknown", "")
        error: dict[str, Any] | None = {"type": problem.kind, "message": str(problem), "line": problem.line}
        outcome, torch, numbers = "raised", "", dict.fromkeys(("checked", "agreed", "mirrored", "disagreed"), 0)
        seen = nothing_observed(checked.problem, language)
    else:
        failure, agreement = trace.outcome.failure, trace.agreement
        outcome, torch = trace.outcome.kind, dict(trace.environment).get("torch", "")
        error, seen = None, as_data(trace, checked.script, language)
        if failure is not None:
            line = failure.span.line if failure.span else None
            error = {"type": failure.type, "message": failure.message, "line": line}
        numbers = {
            "checked": agreement.checked,
            "agreed": agreement.agreed,
            "mirrored": agreement.mirrored,
            "disagreed": agreement.disagreed,
        }
    found = [finding.to_dict(language) for finding in checked.findings]
    document = {
        "file": checked.name, "torch": torch, "outcome": outcome, "error": error, "observation": seen,
        "agreement": numbers, "findings": found,
    }  # fmt: skip
    if checked.script is not None and checked.script.cells:
        if trace is not None and error is not None:
            _in_cells(checked.script, error)
        for finding in found:
            _in_cells(checked.script, finding)
            for each in [*finding["related"], *(edit for fix in finding["fixes"] for edit in fix["edits"])]:
                _in_cells(checked.script, each)
    return document


def _in_cells(script: Script, place: dict[str, Any]) -> None:
    """Replace lines of the whole script by a cell and lines within that cell."""
    line = place["line"]
    cell, place["line"] = script.place(line)
    if place.get("end_line") is not None:
        place["end_line"] = place["line"] + place["end_line"] - line
    place["cell"] = cell
