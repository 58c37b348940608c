"""Explains whatever torch refuses (raises an error for): the catalogue of torch's errors that no rule is about.

Only here is torch's error message read, and only to know which of its checks refused a call. The explanation is made
from the arguments of the call: their names, shapes, dtypes, devices and values. Each family of errors has a page, whose
title is torch's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pitfall_lab.rules.kit.finding import Finding
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.refusals import dtypes_and_devices, gradients, parts_of_training, positions, programs, shapes
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.explained import explained, quoted
from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.general import GENERAL, OWN, own
from pitfall_lab.rules.refusals.short import short
from pitfall_lab.trace import Failure, Span

__all__ = ["FAMILIES", "Case", "Family", "Refused", "as_note", "family_of", "is_caught", "refusals", "short"]

FAMILIES: tuple[Family, ...] = tuple(
    sorted(
        (
            *shapes.FAMILIES,
            *positions.FAMILIES,
            *dtypes_and_devices.FAMILIES,
            *gradients.FAMILIES,
            *programs.FAMILIES,
            *parts_of_training.FAMILIES,
            GENERAL,
            OWN,
        ),
        key=lambda f: f.code,
    )
)
SILENT = (
    "SystemExit",
    "KeyboardInterrupt",
    "SyntaxError",
    "IndentationError",
    "ModuleNotFoundError",
    "ImportError",
    "GeneratorExit",
)
"""Types of exceptions that do not concern tensors and get no finding: the report has a sentence of its own for them."""


def refusals(story: Story, known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one finding for each error of the program (:func:`errors`) that none of the findings ``known`` of severity
    ``error`` explains.

    A finding explains the errors at its steps and, of errors for which no call was recorded, those on its lines.
    """
    reported = {
        at
        for finding in known
        if finding.severity == "error"
        for at in (finding.step, *(r.step for r in finding.related))
    }
    lines = {
        _line(span)
        for finding in known
        if finding.severity == "error"
        for span in (finding.span, *(r.span for r in finding.related))
    }
    for step, failure in errors(story):
        outer = story.outer_call(step)
        if failure.step is None and _line(failure.span) in lines - {None}:
            continue  # no call is recorded for it: a finding about its line explains it
        if not {step, outer.step if outer is not None else step} & reported:
            yield refusal(story, failure, step)


def _line(span: Span | None) -> tuple[int, int] | None:
    return (span.source, span.line) if span is not None else None


def errors(story: Story) -> Iterator[tuple[int, Failure]]:
    """Yield the errors of the program, each once, as pairs of step and failure: those of the calls that raised, and the
    one that ended the program.

    Of nested calls only the outermost; none of the types in ``SILENT``.
    """
    ended = story.trace.outcome.failure
    for event in story.events:
        if event.error is not None and event.kind == "call" and event.error.type not in SILENT:
            parent = story.event(event.parent)
            if parent is None or parent.error is None:
                own = event.error.origin == "program" and ended is not None and ended.step == event.step
                yield event.step, ended if own and ended is not None else event.error
    if ended is not None and ended.step is None and ended.type not in SILENT:
        yield max(len(story.events) - 1, 0), ended


def refusal(story: Story, failure: Failure, step: int) -> Finding:
    """Return the finding that explains the error ``failure``, raised at ``step``: that of the first case of the
    catalogue that fits and whose sentences can be filled in, else one that quotes the message.

    For an error that torch did not raise, only cases whose ``wrong`` begins with ``!`` are tried; if none fits, the
    result is the note of :func:`own`.
    """
    refused = Refused(story, failure, step)
    for family, case, match in _fitting(refused):
        if failure.origin in ("program", "library") and not case.wrong.startswith("!"):
            continue
        finding = explained(refused, family, case, match)
        if finding is not None:
            return finding
    return own(refused) if failure.origin in ("program", "library") else quoted(refused, GENERAL)


def _fitting(refused: Refused) -> Iterator[tuple[Family, Case, re.Match[str]]]:
    for family in (*parts_of_training.FAMILIES, *FAMILIES):  # the more precise ones first
        for case in family.cases:
            if (not case.op or refused.failure.op.endswith(case.op)) and (match := case.regex.search(refused.message)):
                yield family, case, match


def family_of(message: str) -> tuple[Family, Case, re.Match[str]] | None:
    """Return the family and the case of the catalogue to which the error message ``message`` belongs, with the match of
    the case's pattern; None if no case fits.

    For errors of which only the message is known: cases for one function only are left out.
    """
    for family in FAMILIES:
        for case in family.cases:
            if not case.op and (match := case.regex.search(message)):
                return family, case, match
    return None


def is_caught(story: Story, finding: Finding) -> bool:
    """Whether a finding of severity ``error`` is about an error that the program caught, so that it did not end the
    program.

    False for other severities, and if no call at the finding's steps raised.
    """
    if finding.severity != "error":
        return False
    steps = {at for at in (finding.step, *(r.step for r in finding.related)) if at is not None}
    raised = {at for at in steps if (event := story.event(at)) is not None and event.error is not None}
    ended = story.trace.outcome.failure
    if ended is not None and ended.step is None and any(_is_same(story.events[at].error, ended) for at in raised):
        return False  # the end has no step of its own: the call that raised is part of one that was recorded
    return bool(raised) and (ended is None or not _around(story, ended.step) & _all_around(story, raised))


def _is_same(error: Failure | None, ended: Failure) -> bool:
    return error is not None and (error.type, error.message) == (ended.type, ended.message)


def _all_around(story: Story, steps: Iterable[int]) -> set[int | None]:
    return {at for step in steps for at in _around(story, step)}


def _around(story: Story, step: int | None) -> set[int | None]:
    """The step, and the step of the outermost call around it, as a set; empty if there is no such event."""
    outer = story.outer_call(step)
    return {step, outer.step} if outer is not None else set()


def as_note(finding: Finding) -> Finding:
    """Return a copy of ``finding`` with the severity ``info``: the program catches the error, so it is no mistake."""
    return replace(finding, severity="info")
