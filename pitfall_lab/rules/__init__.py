"""Pitfalls, one file each. A rule is found by being in this folder: nothing else has to be edited to add one.

A file that defines ``RULE`` is a rule; how to write one is said at :class:`~pitfall_lab.rules.kit.finding.Rule`. The
others (:mod:`.finding`, :mod:`.story`, :mod:`.wording`, :mod:`.source`, :mod:`.syntax`, :mod:`.call_stack`,
:mod:`.expected_marks`, :mod:`.repairs` with :mod:`.writing_repairs`, :mod:`.saving_repairs`, :mod:`.reordering`) are
what rules are written with. Rules are pure: they read a :class:`~pitfall_lab.trace.Trace` and nothing else, so a saved
trace can be examined without torch, and no rule parses an error message. What torch refuses and no rule is about is
explained by :mod:`.refusals`.
"""

from __future__ import annotations

import importlib
import pkgutil

from pitfall_lab.rules.kit.advice import advised
from pitfall_lab.rules.kit.call_stack import at_home
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Printed, Related, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.refusals import FAMILIES, Family, as_note, is_caught, refusals
from pitfall_lab.trace import Trace

__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "RULES",
    "Edit",
    "Fact",
    "Family",
    "Finding",
    "Fix",
    "Printed",
    "Related",
    "Rule",
    "Trap",
    "find",
    "rule",
]


def _discover() -> tuple[Rule, ...]:
    found = []
    for module in pkgutil.iter_modules(__path__):
        candidate = getattr(importlib.import_module(f"{__name__}.{module.name}"), "RULE", None)
        if isinstance(candidate, Rule):
            found.append(candidate)
    return tuple(sorted(found, key=lambda rule: rule.code))


RULES: tuple[Rule, ...] = _discover()
_BY_CODE = {each.code: each for each in RULES}
CATALOGUE: tuple[Rule | Family, ...] = (*RULES, *FAMILIES)
"""All that a finding can be called: the pitfalls (Rule), and the groups of errors that torch raises (Family)."""


def rule(code: str) -> Rule | Family:
    """Return the rule, or the group of torch's errors (Family), with this code (``"PL101"``) or name; raises
    ``KeyError`` when there is none.
    """
    for candidate in CATALOGUE:
        if code in (candidate.code, candidate.name):
            return candidate
    raise KeyError(code)


def _refined(story: Story, finding: Finding) -> Finding:
    """The finding in the words of the most specific rule that refines it; the finding itself if no rule does."""
    if finding.fact("earlier"):  # the special rule needs the line that saved, which no recording has
        return finding
    for candidate in RULES:
        if finding.rule in candidate.refines and (special := candidate.refine(story, finding)) is not None:
            return _refined(story, special)
    return finding


def find(trace: Trace, cells: tuple[int, ...] = ()) -> list[Finding]:
    """Return what all rules find in ``trace``, and what :mod:`.refusals` says of torch's errors that no rule explains,
    in the order of their steps; each finding once, however often a loop passes its place. Findings without a step come
    last.

    ``cells`` are the first lines of the code cells where the program is a notebook: findings then name lines by their
    cell.

    Fixes are candidates here: none is verified before it was applied and re-run (:func:`pitfall_lab.check.check`).
    """
    return found_in(Story(trace, cells))


def found_in(story: Story) -> list[Finding]:
    """Return what all rules find in the trace of which ``story`` is the :class:`Story` (its look-ups), and what
    :mod:`.refusals` says of torch's errors that no rule explains; each finding once, in the order of their steps.
    """
    seen: set[tuple[object, ...]] = set()
    findings = []
    for candidate in RULES:
        for general in candidate.find(story):
            finding = at_home(story, _refined(story, general))
            if finding.key not in seen:
                seen.add(finding.key)
                findings.append(finding)
    for refusal in refusals(story, findings):
        finding = at_home(story, refusal)
        if finding.key not in seen:
            seen.add(finding.key)
            findings.append(finding)
    findings = [as_note(finding) if is_caught(story, finding) else finding for finding in findings]
    findings = [advised(story, finding, _BY_CODE.get(finding.rule)) for finding in findings]
    return sorted(findings, key=lambda finding: (finding.step if finding.step is not None else 1 << 60, finding.rule))
