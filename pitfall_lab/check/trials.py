"""Trying the fixes: each is applied, run on torch and on both engines, and kept only when it holds."""

from __future__ import annotations

import ast
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pitfall_lab.check.workshop import LARGE_VALUE_LIMIT, NO_NUMBERS, Subject, Unchecked, Workshop
from pitfall_lab.rules import Fact, Finding, Fix, Rule, find, rule
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import cells
from pitfall_lab.rules.kit.wording import called, capital, difference, flat, gradient_of, numbers, snippet
from pitfall_lab.trace import Note, T, Trace

MOST_FIXES = 2
"""So many verified fixes a finding is given: the smallest ones."""
MOST_TRIALS = 12
MOST_WORK = 200_000
"""So many calls of torch the trials of one program may take together: work, not time, so that a busy machine finds the same fixes."""
WORK_OF_ONE = 1_000
"""What a trial takes beyond the program's own calls, in calls."""


def recorded(shop: Workshop, subject: Subject) -> Trace:
    """Record a program: without numbers, which costs least, and with them where they are needed. Raises :class:`Unchecked`.

    Numbers are needed for whatever is found, to say what it did; where a rule asks for them before it says something; where a gradient
    became NaN; and where memory may have been written that no version counts. Most programs are right and need none.
    """
    trace = shop.trace(subject, value_limit=NO_NUMBERS, whole=False)
    if not shop.asks:
        return trace
    numbers = shop.trace(subject, whole=False)
    return large_harm(shop, subject, numbers) if numbers.stopped is None else _longer(trace, numbers)


def _longer(trace: Trace, numbers: Trace) -> Trace:
    """The recording with more numbers, unless observation stopped in it alone: then the other one, with a note."""
    stopped = numbers.stopped
    if stopped is None or trace.stopped is not None:
        return numbers
    en, zh = f"Numbers were followed only up to this line. {stopped.en}", f"数值只跟踪到这一行。{stopped.zh}"
    return replace(trace, notes=(*trace.notes, Note("unseen", en, zh, span=stopped.span)))


def large_harm(shop: Workshop, subject: Subject, trace: Trace) -> Trace:
    """Return ``trace``, or one with the numbers of large tensors too, where torch itself says that a gradient is not the meant one.

    Numbers of large tensors are not modelled, so a write into one that no version counts would go unnoticed. Torch tells, by a run
    with saved tensors cloned, whether there was one; only then the more costly trace is made.
    """
    if not (shop.was_large and shop.was_opened) or find(trace) or trace.outcome.kind != "finished":
        return trace
    try:
        if keeps_what_was_right(shop.witness(subject, meant=True), shop.witness(subject), "same"):
            return trace
        return _longer(trace, shop.trace(subject, value_limit=LARGE_VALUE_LIMIT))
    except Unchecked:
        return trace


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the search for fixes has come: so many trials of so many that there may be, and the findings with what holds so far."""

    done: int
    total: int
    findings: tuple[Finding, ...]


class Runs(Protocol):
    """What trials need of a :class:`Workshop`."""

    def trace(self, subject: Subject, *, whole: bool = True) -> Trace:
        """Run a program on both engines."""

    def witness(self, subject: Subject, *, meant: bool = False) -> dict[str, Any]:
        """Run it on plain torch."""


def tried(shop: Runs, subject: Subject, trace: Trace, wanted: list[Finding] | None = None) -> list[Finding]:
    """Return the findings of ``trace`` (or those that are ``wanted``), keeping the fixes that hold when they are applied and run."""
    return list(deque(trying(shop, subject, trace, wanted), maxlen=1)[0].findings)


def trying(
    shop: Runs, subject: Subject, trace: Trace, wanted: list[Finding] | None = None, found: list[Finding] | None = None
) -> Iterator[Progress]:
    """Do what :func:`tried` does, and say after each trial how far it is. ``found`` is what :func:`find` says of ``trace``, where known."""
    findings = find(trace) if found is None else found
    asked = findings if wanted is None else wanted
    trial = Trial(shop, subject, trace, findings)
    kept = [finding.with_fixes(()) for finding in asked]
    sizes = [min(len(finding.fixes), MOST_TRIALS) for finding in asked]
    yield Progress(0, sum(sizes), tuple(kept))
    for place, finding in enumerate(asked):
        before = sum(sizes[:place])
        for number, fixes in trial.attempts(finding):
            kept[place] = finding.with_fixes(fixes)
            yield Progress(before + number, sum(sizes), tuple(kept))
        kept[place] = trial.with_meant(trial.with_rest(finding, kept[place]))
    yield Progress(sum(sizes), sum(sizes), tuple(kept))


class Trial:
    """Tries the fixes of one program's findings. Runs of the unrepaired program are made once and shared."""

    def __init__(self, shop: Runs, subject: Subject, trace: Trace, findings: list[Finding]) -> None:
        self.shop, self.subject, self.trace, self.findings = shop, subject, trace, findings
        self._before: dict[bool, dict[str, Any] | None] = {}
        self._work = 0

    def kept(self, finding: Finding) -> tuple[Fix, ...]:
        """The first few fixes of ``finding`` that hold, in order: smallest first."""
        fixes: tuple[Fix, ...] = ()
        for _, fixes in self.attempts(finding):  # noqa: B007 - the last ones
            pass
        return fixes

    def attempts(self, finding: Finding) -> Iterator[tuple[int, tuple[Fix, ...]]]:
        """Try one fix after the other, as many as the work allows, and say how many were tried and which hold so far."""
        kept: list[Fix] = []
        for number, fix in enumerate(finding.fixes[:MOST_TRIALS], 1):
            if len(kept) >= MOST_FIXES or not self._affordable:
                break
            if fix.meaning == "recompute" and any(other.meaning == "recompute" for other in kept):
                continue  # a longer run of the same lines is no other fix
            self._work += self._price
            ending = self.ending(finding, fix)
            if ending == "finished" or (ending == "raised" and not kept):
                kept.append(fix.as_verified())
            yield number, tuple(kept)

    @property
    def _price(self) -> int:
        return self.trace.calls + WORK_OF_ONE

    @property
    def _affordable(self) -> bool:
        """Whether one more trial is within the limit; the first always is."""
        return not self._work or self._work + self._price <= MOST_WORK

    def with_rest(self, finding: Finding, kept: Finding) -> Finding:
        """Say it where no fix was found, and not all were tried."""
        if kept.fixes or not finding.fixes or self._affordable:
            return kept
        text = T(
            en=f"{kept.explanation.en} Not every repair was tried: the program is long, and each has to be run.",
            zh=f"{kept.explanation.zh}并非每种修改都试过：程序较长，每种都要运行一次。",
        )
        return replace(kept, explanation=text)

    def with_meant(self, finding: Finding) -> Finding:
        """Say both gradients where a wrong one came without an error and the rule could not tell the meant one: a repair can."""
        tells = finding.severity == "warning" and finding.line("backward") is not None and finding.fact("meant") is None
        first = next((fix for fix in finding.fixes if fix.meaning == "same"), None) if tells else None
        before = self._witness(meant=False) if first is not None else None
        if first is None or before is None:
            return finding
        try:
            after = self.shop.witness(replace(self.subject, source=apply(self.subject.source, first.edits)))
        except Unchecked:
            return finding
        number = backwards_before(self.trace, finding)
        was, now = (record["backwards"][number : (number or 0) + 1] for record in (before, after))
        return _both_gradients(self.trace, finding, was[0], now[0]) if was and now else finding

    def ending(self, finding: Finding, fix: Fix) -> str:
        """Apply ``fix`` and run the result: how does it end, if the finding is gone and every value that was right is the same?

        Returns ``"finished"``, ``"raised"`` (the program got further, to its next mistake) or ``""`` (the fix does not hold).
        """
        repaired = replace(self.subject, source=apply(self.subject.source, fix.edits))
        before = None if fix.reference else self._witness(meant=fix.meaning == "same")
        if before is None and not fix.reference:
            return ""
        try:
            # the cheap run first: most candidates that are wrong compute something else, or stop
            after = self.shop.witness(repaired)
            if before is None:
                dearer = self.shop.witness(replace(self.subject, source=apply(self.subject.source, fix.reference)))
                same = ends_alike(dearer, after)
            else:
                same = keeps_what_was_right(before, after, fix.meaning, backwards_before(self.trace, finding, fix.meaning))
            if same and before is not None and finding.severity == "error" and fix.meaning == "same":
                same = same_names(before, after, read_later(self.subject.source, fix))
            trace = self.shop.trace(repaired, whole=False) if same else None
        except Unchecked:
            return ""
        return trace.outcome.kind if trace is not None and is_better(finding, self.trace, self.findings, trace) else ""

    def _witness(self, *, meant: bool) -> dict[str, Any] | None:
        if meant not in self._before:
            try:
                self._before[meant] = self.shop.witness(self.subject, meant=meant)
            except Unchecked:
                self._before[meant] = None
        return self._before[meant]


def _both_gradients(trace: Trace, finding: Finding, was: dict[str, Any], now: dict[str, Any]) -> Finding:
    """The finding with the first gradient that a backward computed otherwise than the repaired program's does."""
    story, line = Story(trace), finding.line("backward")
    alike = _same_list(was["leaves"], now["leaves"]) and len(was["gradients"]) == len(now["gradients"])
    if not alike or line is None or line.step is None:
        return finding
    for got, meant in zip(was["gradients"], now["gradients"], strict=True):
        if got is None or meant is None or _same(got, meant):
            continue
        heads = [digest["numbers"][3:] for digest in (got, meant)]
        for label in story.leaves:
            gradient = [value for step, value in story.history("tensors", label, "grad") if step >= line.step and value is not None]
            storage = (story.tensor(gradient[0]) or {}).get("storage") if gradient else None
            held = [value for _, value in flat(cells(story, storage, line.step))] if storage else []
            if held and all(_close(a, b, 0.0) for a, b in zip(held, heads[0], strict=False)):
                name, (wrong, right) = gradient_of(called(story, label, None, line.step)), map(numbers, heads)
                text = T(
                    en=f"{finding.explanation.en} {capital(name.en)} is {wrong}; meant was {right}.",
                    zh=f"{finding.explanation.zh}{name.zh} 是 {wrong}，本应是 {right}。",
                )
                return replace(finding, explanation=text, facts=(*finding.facts, Fact("gradient", heads[0]), Fact("meant", heads[1])))
    return finding


def is_better(finding: Finding, trace: Trace, findings: list[Finding], after: Trace) -> bool:
    """Is ``finding`` gone in the repaired program's trace, with no new disagreement, no new finding and no earlier end?"""
    if _value_disagreements(after) > _value_disagreements(trace):
        return False
    if after.stopped is not None and (trace.stopped is None or (after.stopped.step or 0) < (finding.step or 0)):
        return False  # where nothing was seen, that nothing is found says nothing
    now = find(after)
    if _text_key(trace, finding) in {_text_key(after, other) for other in now}:
        return False
    old_ones = sum(f.rule == finding.rule for f in findings)
    new_ones = sum(f.rule == finding.rule for f in now)
    others = {_text_key(trace, f) for f in findings}
    strangers = [f for f in now if f.severity != "info" and _text_key(after, f) not in others]
    if after.outcome.kind == "finished":
        return new_ones < old_ones and not strangers
    return _got_further(trace, after, now)


def _value_disagreements(trace: Trace) -> int:
    """On how many numbers, gradients, saved tensors or errors the engines differ.

    A repaired program runs further than the one that stopped. What it meets there may show a slip of the shadow engine about a
    stride or a version of something else; such a slip is reported with the trace but says nothing about the repair.
    """
    return sum(
        d.path.startswith(("outcome", "result"))
        or d.path.endswith((".grad", ".grad_fn"))
        or ".saved." in d.path
        or (d.path.endswith(".cells") and bool(difference(d.observed, d.modelled)))
        for d in trace.disagreements
    )


def _got_further(trace: Trace, after: Trace, now: list[Finding]) -> bool:
    """A program with two mistakes stops at the second when the first is repaired: later, and for a reason that a rule explains."""
    failure, later = trace.outcome.failure, after.outcome.failure
    if failure is None or later is None or failure.step is None or later.step is None:
        return False
    explained = any(f.severity == "error" and isinstance(rule(f.rule), Rule) for f in now)
    line = failure.span.line if failure.span else 0
    later_line = later.span.line if later.span else 0
    return explained and (later.step, later_line) > (failure.step, line) and later_line != line


def _text_key(trace: Trace, finding: Finding) -> tuple[str, ...]:
    """What tells findings apart in two versions of a program, whose lines have moved: the texts of the places, not their numbers."""
    story = Story(trace)
    places = [
        snippet(story, finding.span),
        *(f"{r.role}:{snippet(story, r.span)}" for r in finding.related if r.role in ("saved", "operand", "backward")),
    ]
    return (finding.rule, *places)


def backwards_before(trace: Trace, finding: Finding, meaning: str = "same") -> int | None:
    """How many backwards ran before the one that the finding is about, or before its own step; ``None`` when it is about none."""
    step = finding.step if meaning == "later" else next((r.step for r in finding.related if r.role == "backward"), None)
    if step is None:
        return None
    names = ("torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad")
    steps = {event.step for event in trace.events[:step] if event.kind == "call" and event.op in names}
    return sum(trace.events[at].parent not in steps for at in steps)


def keeps_what_was_right(before: dict[str, Any], after: dict[str, Any], meaning: str, number: int | None = None) -> bool:
    """Do the roots, gradients and leaves of the repaired program agree with those that were right, or meant, before?

    A forward pass that is run again changes what comes after it on purpose: backward ``number`` (from 0) is where that begins.
    """
    if set(after["warnings"]) - set(before["warnings"]):
        return False
    if meaning == "shape":
        return after["error"] == before["error"] and _shapes(before) == _shapes(after)[: len(_shapes(before))]
    if meaning == "later":
        pairs = list(zip(before["backwards"], after["backwards"], strict=False))[: number or 0]
        return (after["error"] is None or before["error"] is not None) and all(_same_backward(was, now) for was, now in pairs)
    if meaning == "connect":
        return _connected(before["backwards"], after["backwards"], number or 0)
    if meaning == "term":
        return _completed(before["backwards"], after["backwards"], number or 0)
    if meaning == "finite":
        return after["error"] is None and _same_where_finite(before["backwards"][: (number or 0) + 1], after["backwards"])
    if meaning == "recompute" and after["error"] is not None and before["error"] is None:
        return False
    return _same_history(before, after, number if meaning == "recompute" else None)


def _connected(before: list[dict[str, Any]], after: list[dict[str, Any]], number: int) -> bool:
    """The same backwards up to ``number``; that one starts from the same values, reaches more leaves, and the old ones as before."""
    if len(before) <= number or len(after) <= number or not all(map(_same_backward, before[:number], after[:number])):
        return False
    was, now = before[number], after[number]
    if now["raised"] or not _same_list(was["roots"], now["roots"]) or len(now["leaves"]) <= len(was["leaves"]):
        return False
    return was["raised"] or all(any(_same(old, new) for new in now["gradients"]) for old in was["gradients"])


def _completed(before: list[dict[str, Any]], after: list[dict[str, Any]], number: int) -> bool:
    """The same backwards up to ``number``; that one starts from the same values and gives other gradients."""
    if len(before) <= number or len(after) <= number or not all(map(_same_backward, before[:number], after[:number])):
        return False
    was, now = before[number], after[number]
    return not now["raised"] and _same_list(was["roots"], now["roots"]) and not _same_set(was["gradients"], now["gradients"])


def ends_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Do two programs end without an error, with the same leaves and the same gradients after their last backward?"""
    if one["error"] is not None or other["error"] is not None or not (one["backwards"] and other["backwards"]):
        return False
    gradients = [each["backwards"][-1].get("gradients") or [] for each in (one, other)]
    return _same_set(gradients[0], gradients[1]) and _same_set(one["leaves"], other["leaves"])


def _same_history(before: dict[str, Any], after: dict[str, Any], until: int | None) -> bool:
    """The same backwards with the same gradients, as far as both programs got, or as far as backward ``until``."""
    for index, (was, now) in enumerate(zip(before["backwards"], after["backwards"], strict=False)):
        if was["raised"] or now["raised"] or index == until:
            # what follows was never computed before; the leaves show that everything up to here happened as it did
            return _same_set(was["leaves"], now["leaves"])
        if not _same_backward(was, now):
            return False
    if after["error"] is None and before["error"] is None:
        return len(before["backwards"]) == len(after["backwards"]) and _same_set(before["leaves"], after["leaves"])
    return len(after["backwards"]) >= len(before["backwards"])


def same_names(before: dict[str, Any], after: dict[str, Any], names: set[str]) -> bool:
    """Do the global tensors and arrays called ``names`` end with the same values? A write that other lines rely on must still reach them.

    Only asked where torch refused to go on: where it did not, some of these values are the mistake.
    """
    if before["error"] is not None or after["error"] is not None:
        return True
    return all(_same(before["names"][name], after["names"].get(name)) for name in names & set(before["names"]))


def read_later(source: str, fix: Fix) -> set[str]:
    """The names that ``source`` reads after the lines that ``fix`` edits; all of a loop comes after its own lines."""
    tree = ast.parse(source)
    lines = {line for edit in fix.edits for line in range(edit.line, edit.end_line + 1)}
    last = max(lines, default=0)
    loops = [
        n for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While)) and any(n.lineno <= line <= (n.end_lineno or 0) for line in lines)
    ]
    first = min([loop.lineno for loop in loops], default=last + 1)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.lineno >= first}


def _shapes(record: dict[str, Any]) -> list[Any]:
    return [[root and root["shape"] for root in entry["roots"]] for entry in record["backwards"]]


def _same_backward(was: dict[str, Any], now: dict[str, Any]) -> bool:
    """The same roots and the same gradients, whatever the order in which the graph is walked.

    The leaves may differ at this moment: a write that was moved behind the backward has not happened yet.
    """
    if not _same_list(was["roots"], now["roots"]) or not _same_list(was["results"], now["results"]):
        return False
    return _same_set(was["gradients"], now["gradients"])


def _same_where_finite(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """The same values of roots and gradients, number by number, except where there was none (NaN, infinite) before."""
    if len(after) < len(before):
        return False
    for was, now in zip(before, after, strict=False):
        for key in ("roots", "gradients", "results"):
            digests = list(zip(was[key], now[key], strict=False))
            if len(was[key]) != len(now[key]) or any((a is None) != (b is None) for a, b in digests):
                return False
            pairs = [pair for a, b in digests if a and b for pair in zip(a["numbers"], b["numbers"], strict=False)]
            if not all(_close(a, b, 0.0) for a, b in pairs if isinstance(a, (int, float))):
                return False
    return True


def _same_set(one: list[Any], other: list[Any]) -> bool:
    return _same_list(sorted(one, key=_rank), sorted(other, key=_rank))


def _rank(item: Any) -> str:
    """A sort key that rounding does not disturb much: what a digest says to three digits."""
    return json.dumps(item and [item["shape"], [f"{n:.3g}" if isinstance(n, float) else n for n in item["numbers"]]])


def _same_list(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(one: Any, other: Any) -> bool:
    """Two digests of the same values, up to rounding."""
    if one is None or other is None:
        return one is other
    if one["shape"] != other["shape"] or len(one["numbers"]) != len(other["numbers"]):
        return False
    scale = max([abs(n) for n in one["numbers"][1:2] if isinstance(n, float)], default=0.0)
    return all(_close(a, b, scale) for a, b in zip(one["numbers"], other["numbers"], strict=True))


def _close(a: Any, b: Any, scale: float) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-4 * max(abs(a), abs(b)) + 1e-5 * scale + 1e-7
    return bool(a == b)
