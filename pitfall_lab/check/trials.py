"""Tries the fixes of findings (:func:`tried`): each is applied and the result run on plain torch and on both engines
(torch and the shadow engine); only working ones are kept.
"""

from __future__ import annotations

import ast
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pitfall_lab.check import shown_results
from pitfall_lab.check.improvement import RunFacts, found_of, is_better
from pitfall_lab.check.workshop import LARGE_VALUE_LIMIT, NO_NUMBERS, Subject, Unchecked, Workshop
from pitfall_lab.rules import Fact, Finding, Fix, Printed, Related, find
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import cells
from pitfall_lab.rules.kit.wording import called, capital, flat, gradient_of, numbers
from pitfall_lab.trace import Note, T, Trace

BACKWARDS = ("backward", "around")
"""The roles of the lines on which a backward ran."""
MOST_FIXES = 2
"""The maximal number of verified fixes of a finding: the smallest ones."""
MOST_TRIALS = 12
MOST_WORK = 200_000
"""The maximal number of torch calls for all trials of one program: counted, not timed, so that a busy
machine finds the same fixes.
"""
WORK_OF_ONE = 1_000
"""The fixed cost of a trial, in torch calls."""


def recorded(shop: Workshop, subject: Subject) -> Trace:
    """Record the program ``subject`` in ``shop`` and return the trace, with values if they are needed.

    A program without a loop is recorded without values first, which is fastest. Values are needed to describe the
    effect of a finding, where a rule needs them to decide, where a gradient became NaN or infinite, and where memory
    may have been written without a change of version; then it is recorded again. A program with a loop may be long: it
    is recorded once, with values, and most iterations are not recorded (unless ``shop.every_round``). Raises
    :class:`Unchecked` if a run did not end by itself, or could not be observed.
    """
    if not shop.every_round and has_loop(subject.source):
        return large_harm(shop, subject, _with_what_led_to_it(shop, subject, shop.trace(subject, whole=False)))
    trace = shop.trace(subject, value_limit=NO_NUMBERS, whole=False)
    if not shop.needs_values and not shop.spoiled:
        return trace
    if shop.spoiled:
        return _with_what_led_to_it(shop, subject, trace)
    numbers = shop.trace(subject, whole=False)
    return large_harm(shop, subject, numbers) if numbers.stopped is None else _longer(trace, numbers)


def _with_what_led_to_it(shop: Workshop, subject: Subject, trace: Trace) -> Trace:
    """Record the program again if it raised in iterations that were not recorded, or computed numbers that are not
    finite.

    The new trace shows what led to that. ``trace`` itself is returned if neither happened, or if the new run ended in
    another way. If the new run cannot be checked, :class:`Unchecked` is raised; but if numbers were not finite,
    ``trace`` is returned with a note instead.
    """
    if shop.again is None and not shop.spoiled:
        return trace
    closely = shop.spoiled
    try:
        again = shop.trace(subject, whole=False, inside=shop.again, closely=closely)
        if closely and shop.again is not None:
            again = shop.trace(subject, whole=False, inside=shop.again, closely=True)
    except Unchecked as problem:
        if not closely:
            raise
        return replace(trace, notes=(*trace.notes, _not_looked_at(problem)))
    return again if again.outcome.kind == trace.outcome.kind else trace


def _not_looked_at(problem: Unchecked) -> Note:
    en = f"The program computed NaN or infinite numbers; where they come from is not known: {problem.said.en}"
    zh = f"程序算出了 NaN 或无穷大的数，但不知道它们从何而来：{problem.said.zh}"
    return Note("unseen", en, zh)


def has_loop(source: str) -> bool:
    """Whether a program has a ``for`` or ``while`` statement; comprehensions do not count.

    False if it cannot be parsed.
    """
    try:
        return any(isinstance(node, (ast.For, ast.AsyncFor, ast.While)) for node in ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return False


def _longer(trace: Trace, numbers: Trace) -> Trace:
    """``numbers``, the recording with more values; if observation stopped early only there, ``trace`` with a note."""
    stopped = numbers.stopped
    if stopped is None or trace.stopped is not None:
        return numbers
    en, zh = f"Numbers were followed only up to this line. {stopped.en}", f"数值只跟踪到这一行。{stopped.zh}"
    return replace(trace, notes=(*trace.notes, Note("unseen", en, zh, span=stopped.span)))


def large_harm(shop: Workshop, subject: Subject, trace: Trace) -> Trace:
    """``trace``, or a new trace with the values of large tensors if a gradient is found to be wrong.

    Values of large tensors are not modelled, so a write to one that torch does not count would go unnoticed. A run on
    torch whose saved tensors are cloned shows whether there was one; only then the slower trace is made. Nothing is run
    if there was no large tensor or no way to write uncounted, if a rule finds something, or if the program raised. If
    one of these runs cannot be checked, ``trace`` is returned.
    """
    if not (shop.was_large and shop.was_opened) or trace.outcome.kind != "finished":
        return trace
    shop.found = (trace, find(trace))
    if shop.found[1]:
        return trace
    try:
        if keeps_what_was_right(shop.witness(subject, meant=True), shop.witness(subject), "same"):
            return trace
        return _longer(trace, shop.trace(subject, value_limit=LARGE_VALUE_LIMIT))
    except Unchecked:
        return trace


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Progress of the search for fixes: ``done`` trials of ``total`` possible ones, and ``findings``, each with the
    fixes that work so far.

    ``done`` jumps past those of a finding that needed no more trials.
    """

    done: int
    total: int
    findings: tuple[Finding, ...]


class Runs(Protocol):
    """The part of :class:`Workshop` that trials use. ``spoiled``: the last recorded run had numbers that are not
    finite; ``said`` is what the last run printed.
    """

    spoiled: bool
    said: str

    def facts(self, subject: Subject) -> RunFacts:
        """Run a program on torch and the shadow; return its findings, error and disagreements, to
        compare it with another program.
        """

    def witness(self, subject: Subject, *, meant: bool = False) -> dict[str, Any]:
        """Run a program on torch alone, and return what it computed. With ``meant``, saved tensors are cloned, so that
        later writes do not change them.
        """


def tried(shop: Runs, subject: Subject, trace: Trace, wanted: list[Finding] | None = None) -> list[Finding]:
    """Return the findings of ``trace``, the recording of ``subject`` (or those ``wanted``), each with only the fixes
    that work when applied and run.
    """
    return list(deque(trying(shop, subject, trace, wanted), maxlen=1)[0].findings)


def trying(
    shop: Runs, subject: Subject, trace: Trace, wanted: list[Finding] | None = None, found: list[Finding] | None = None
) -> Iterator[SearchProgress]:
    """Do what :func:`tried` does, and yield the progress before the first trial, after each, and at the end.

    ``found``: what :func:`find` returns for ``trace``; without it, this is called here. The other arguments are those
    of :func:`tried`.
    """
    findings = find(trace) if found is None else found
    chosen = findings if wanted is None else wanted
    trial = Trial(shop, subject, trace, findings)
    kept = [finding.with_fixes(()) for finding in chosen]
    sizes = [min(len(finding.fixes), MOST_TRIALS) for finding in chosen]
    yield SearchProgress(0, sum(sizes), tuple(kept))
    for place, finding in enumerate(chosen):
        before = sum(sizes[:place])
        for number, fixes in trial.attempts(finding):
            kept[place] = finding.with_fixes(fixes)
            yield SearchProgress(before + number, sum(sizes), tuple(kept))
        kept[place] = trial.with_meant(trial.with_rest(finding, kept[place]))
    yield SearchProgress(sum(sizes), sum(sizes), tuple(kept))


class Trial:
    """Tries the fixes of the findings in ``trace``, the recording of ``subject``. Runs of the unrepaired program are
    made once and shared.
    """

    def __init__(self, shop: Runs, subject: Subject, trace: Trace, findings: list[Finding]) -> None:
        self.shop, self.subject, self.trace, self.findings = shop, subject, trace, findings
        self._before: dict[bool, dict[str, Any] | None] = {}
        self._printed: dict[bool, str] = {}
        self._after: tuple[dict[str, Any], str, str] | None = None
        """What the last repaired program that worked computed and printed, and what its recorded run printed."""
        self._work = 0
        self._story = Story(trace)
        self._facts = RunFacts.of(self._story, findings)

    def kept(self, finding: Finding) -> tuple[Fix, ...]:
        """The first few fixes of ``finding`` that work, at most ``MOST_FIXES`` (2), in their order;
        empty if none does.
        """
        fixes: tuple[Fix, ...] = ()
        for _, fixes in self.attempts(finding):  # noqa: B007 - the last ones
            pass
        return fixes

    def attempts(self, finding: Finding) -> Iterator[tuple[int, tuple[Fix, ...]]]:
        """Try the fixes of ``finding`` in order, and yield after each the number of fixes looked at and those that work
        so far.

        At most ``MOST_TRIALS`` (12) fixes are tried, until ``MOST_FIXES`` (2) work or the work for the program is used
        up. A fix after which the program raises another error is kept only if no fix works yet. A second fix of meaning
        ``"recompute"`` is not tried.
        """
        kept: list[Fix] = []
        for number, fix in enumerate(finding.fixes[:MOST_TRIALS], 1):
            if len(kept) >= MOST_FIXES or not self._affordable:
                break
            if fix.meaning == "recompute" and any(other.meaning == "recompute" for other in kept):
                continue  # a fix that repeats more of the same lines is not a different one
            self._work += self._price
            ending = self.ending(finding, fix)
            if ending == "finished" or (ending == "raised" and not kept):
                silent = ending == "finished" and finding.severity != "error"
                shown = replace(fix, printed=self._shown()) if silent else fix
                kept.append(shown.as_verified(raises=ending == "raised" and finding.severity == "error"))
            yield number, tuple(kept)

    @property
    def _price(self) -> int:
        return self.trace.calls + WORK_OF_ONE

    @property
    def _affordable(self) -> bool:
        """Whether one more trial is within the limit of work (``MOST_WORK`` torch calls); the first always is."""
        return not self._work or self._work + self._price <= MOST_WORK

    def with_rest(self, finding: Finding, kept: Finding) -> Finding:
        """Return ``kept``, the finding with the fixes that work.

        If none works and the work for all trials is used up, so that some fixes may not have been tried, its
        explanation gets a sentence on that.
        """
        if kept.fixes or not finding.fixes or self._affordable:
            return kept
        text = T(
            en=f"{kept.explanation.en} Not every repair was tried: the program is long, and each has to be run.",
            zh=f"{kept.explanation.zh}并非每种修改都试过：程序较长，每种都要运行一次。",
        )
        return replace(kept, explanation=text)

    def with_meant(self, finding: Finding) -> Finding:
        """The finding with torch's gradient and the correct one as facts and in its explanation, if a wrong one raised
        no error.

        The correct gradient is computed by the program with the finding's first fix of meaning ``"same"``. The finding
        is returned unchanged if it is no warning about a backward, has the fact already, has no such fix, or if the two
        gradients cannot be compared.
        """
        tells = finding.severity == "warning" and _backward(finding) is not None and finding.fact("meant") is None
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
        """Apply ``fix``, run the result, and return how the program ends if the fix works.

        A fix works if the finding is gone and every correct value is unchanged. Returns ``"finished"``, ``"raised"``
        (the program reaches its next mistake), or ``""``: the fix does not work, a run could not be checked, or numbers
        are not finite in a way that this recording cannot explain. Values are compared with those of the unrepaired
        program, for the meaning ``"same"`` with cloned saved tensors; if the fix has a ``reference``, with those of the
        program after the reference's edits.
        """
        repaired = replace(self.subject, source=apply(self.subject.source, fix.edits))
        before = None if fix.reference else self._witness(meant=fix.meaning == "same")
        if before is None and not fix.reference:
            return ""
        try:
            # the fast run first: most wrong candidates compute other values, or raise
            after, printed = self.shop.witness(repaired), self.shop.said
            if before is None:
                dearer = self.shop.witness(replace(self.subject, source=apply(self.subject.source, fix.reference)))
                same = ends_alike(dearer, after)
            else:
                same = keeps_what_was_right(before, after, fix.meaning, self._number(finding, fix.meaning, before))
            if same and before is not None and finding.severity == "error" and fix.meaning == "same":
                same = same_names(before, after, read_later(self.subject.source, fix))
            now = self.shop.facts(repaired) if same else None
            self._after = after, printed, self.shop.said
        except Unchecked:
            return ""
        if now is None or (self.trace.beside.unfinite and self.shop.spoiled):
            return (
                ""  # where a number comes from that is not finite was seen in a closer recording, which this one is not
            )
        return now.ended if is_better(found_of(self._story, finding), self._facts, now) else ""

    def _number(self, finding: Finding, meaning: str, before: dict[str, Any]) -> int | None:
        """How many backwards ran before the one that the finding is about; None if it is about none.

        ``meaning`` is the fix's: for ``"later"``, those before the finding's own step are counted; for ``"root"``,
        those before the backward that freed the graph. Loops are recorded in part, so for ``"connect"``, ``"term"`` and
        ``"root"`` a backward that ended the program is counted in ``before``, what the whole program computed: it is
        the last one there.
        """
        number, ended = backwards_before(self.trace, finding, meaning), self.trace.outcome.failure
        own = {each.step for each in finding.related if each.role in BACKWARDS}
        last = before["backwards"][-1:]
        is_last = ended is not None and ended.step in own and bool(last) and bool(last[0]["raised"])
        return len(before["backwards"]) - 1 if is_last and meaning in ("connect", "term", "root") else number

    def _shown(self) -> Printed | None:
        """What the repair that has just worked changes in what the program shows: a printed line, else a
        number that a variable ends with.

        None if that is nothing, if the program raised before the repair, or if the number is not the same
        in a second run of the program.
        """
        before = self._witness(meant=False)
        if before is None or self._after is None or before["error"] is not None:
            return None
        after, printed, again = self._after
        found = shown_results.line(self._printed[False], printed, again)
        if found is not None or not shown_results.number(before["numbers"], after["numbers"], before["numbers"]):
            return found
        try:
            repeated = self.shop.witness(self.subject)
        except Unchecked:
            return None
        return shown_results.number(before["numbers"], after["numbers"], repeated["numbers"])

    def _witness(self, *, meant: bool) -> dict[str, Any] | None:
        if meant not in self._before:
            try:
                self._before[meant] = self.shop.witness(self.subject, meant=meant)
                self._printed[meant] = self.shop.said
            except Unchecked:
                self._before[meant] = None
        return self._before[meant]


def _both_gradients(trace: Trace, finding: Finding, was: dict[str, Any], now: dict[str, Any]) -> Finding:
    """The finding with the first gradient that differs in the repaired program, in its explanation and as facts.

    ``was`` and ``now`` are what one backward computed in the program and in the repaired one. The finding is returned
    unchanged if the leaves differ, if no gradient does, or if the trace has no tensor whose ``.grad`` held the wrong
    one.
    """
    story, line = Story(trace), _backward(finding)
    alike = _same_list(was["leaves"], now["leaves"]) and len(was["gradients"]) == len(now["gradients"])
    if not alike or line is None or line.step is None:
        return finding
    for got, meant in zip(was["gradients"], now["gradients"], strict=True):
        if got is None or meant is None or _same(got, meant):
            continue
        heads = [digest["numbers"][3:] for digest in (got, meant)]
        for label in story.leaves:
            gradient = [
                value
                for step, value in story.history("tensors", label, "grad")
                if step >= line.step and value is not None
            ]
            storage = (story.tensor(gradient[0]) or {}).get("storage") if gradient else None
            held = [value for _, value in flat(cells(story, storage, line.step))] if storage else []
            if held and all(_close(a, b, 0.0) for a, b in zip(held, heads[0], strict=False)):
                name, (wrong, right) = gradient_of(called(story, label, None, line.step)), map(numbers, heads)
                text = T(
                    en=f"{finding.explanation.en} {capital(name.en)} is {wrong}; it should be {right}.",
                    zh=f"{finding.explanation.zh}{name.zh} 是 {wrong}，本应是 {right}。",
                )
                return replace(
                    finding,
                    explanation=text,
                    facts=(*finding.facts, Fact("gradient", heads[0]), Fact("meant", heads[1])),
                )
    return finding


def _backward(finding: Finding) -> Related | None:
    """The first related line of the finding on which a backward ran, rightly or not; None if it names none."""
    return next((each for each in finding.related if each.role in BACKWARDS), None)


def backwards_before(trace: Trace, finding: Finding, meaning: str = "same") -> int | None:
    """How many recorded backwards (also calls of ``torch.autograd.grad``) ran before the one that the finding names;
    None if it names none.

    With the meaning ``"later"``, those before the finding's own step are counted; with ``"root"``, those before the
    backward that freed the graph, if the finding names it. A backward inside another one is not counted.
    """
    roles = (
        ("freed", *BACKWARDS, "gradient") if meaning == "root" else (*BACKWARDS, "gradient")
    )  # an earlier backward freed the graph
    step = finding.step if meaning == "later" else next((r.step for r in finding.related if r.role in roles), None)
    if step is None:
        return None
    names = ("torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad")
    steps = {event.step for event in trace.events[:step] if event.kind == "call" and event.op in names}
    return sum(trace.events[at].parent not in steps for at in steps)


def keeps_what_was_right(
    before: dict[str, Any], after: dict[str, Any], meaning: str, number: int | None = None
) -> bool:
    """Whether roots, gradients and leaves of the repaired program agree with those that were right, or intended,
    before. ``before`` and ``after`` are what the two programs computed
    (:func:`~pitfall_lab.verify.experiments.witness.witness`).

    ``meaning`` is the fix's, and says what it may change: ``"shape"`` all but the roots' shapes; ``"later"`` everything
    from backward ``number`` (from 0) on; ``"connect"``, ``"term"`` and ``"root"`` gradients of that backward (for
    ``"term"``, of the first one from there on whose gradients differ) and all that follows; ``"finite"`` what was NaN
    or infinite, and all after backward ``number``; ``"recompute"`` what follows backward ``number``, as a repeated
    forward pass does; any other one nothing. False if there is a warning that was not there before.
    """
    if set(after["warnings"]) - set(before["warnings"]):
        return False
    if meaning == "shape":
        ends = after["error"] is None or after["error"] == before["error"]
        return ends and _shapes(before) == _shapes(after)[: len(_shapes(before))]
    if meaning == "later":
        pairs = list(zip(before["backwards"], after["backwards"], strict=False))[: number or 0]
        return (after["error"] is None or before["error"] is not None) and all(
            _same_backward(was, now) for was, now in pairs
        )
    if meaning == "connect":
        return _connected(before["backwards"], after["backwards"], number or 0)
    if meaning == "term":
        return _completed(before["backwards"], after["backwards"], number or 0)
    if meaning == "root":
        return _same_root(before["backwards"], after["backwards"], number or 0)
    if meaning == "finite":
        return after["error"] is None and _same_where_finite(
            before["backwards"][: (number or 0) + 1], after["backwards"]
        )
    if meaning == "recompute" and after["error"] is not None and before["error"] is None:
        return False
    return _same_history(before, after, number if meaning == "recompute" else None)


def _connected(before: list[dict[str, Any]], after: list[dict[str, Any]], number: int) -> bool:
    """Whether all backwards before ``number`` are the same, and that one has the same root values
    and gradients of more leaves.

    It must not raise in the repaired program; if it did not raise before, each of its gradients must still be there.
    """
    if len(before) <= number or len(after) <= number or not all(map(_same_backward, before[:number], after[:number])):
        return False
    was, now = before[number], after[number]
    if now["raised"] or not _same_list(was["roots"], now["roots"]) or len(now["leaves"]) <= len(was["leaves"]):
        return False
    return was["raised"] or all(any(_same(old, new) for new in now["gradients"]) for old in was["gradients"])


def _completed(before: list[dict[str, Any]], after: list[dict[str, Any]], number: int) -> bool:
    """Whether all backwards before the first one (from ``number`` on) whose gradients differ are the same, and that one
    starts from the same root values and does not raise after the repair. False if no gradients differ.
    """
    while _same_root(before, after, number):
        if not _same_set(before[number]["gradients"], after[number]["gradients"]):
            return True
        number += 1
    return False


def _same_root(before: list[dict[str, Any]], after: list[dict[str, Any]], number: int) -> bool:
    """Whether backwards before ``number`` are the same, and that one starts from the same values and
    does not raise after the repair.
    """
    if len(before) <= number or len(after) <= number or not all(map(_same_backward, before[:number], after[:number])):
        return False
    return not after[number]["raised"] and _same_list(before[number]["roots"], after[number]["roots"])


def ends_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two programs (what they computed: ``one`` and ``other``, see :func:`keeps_what_was_right`) end without an
    error and with equal leaves, and the last backward of ``other`` gave the gradients of ``one``.

    ``other`` may give more. False if one of them ran no backward, or the last backward of ``one`` gave no gradient.
    """
    if one["error"] is not None or other["error"] is not None or not (one["backwards"] and other["backwards"]):
        return False
    wanted, given = (each["backwards"][-1].get("gradients") or [] for each in (one, other))
    found = all(
        any(_same(gradient, each) for each in given) for gradient in wanted
    )  # one backward may do the work of two
    return found and bool(wanted) and _same_set(one["leaves"], other["leaves"])


def _same_history(before: dict[str, Any], after: dict[str, Any], until: int | None) -> bool:
    """Whether both programs ran the same backwards with the same gradients and end with equal leaves.

    At a backward that raised in one of them, or at backward ``until``, only the leaves are compared, and nothing after
    it. If one of the programs ended with another error, the repaired one must have run at least as many backwards
    instead.
    """
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
    """Whether the global tensors and arrays called ``names`` end with the same values in both runs (``before`` and
    ``after`` a repair, see :func:`keeps_what_was_right`).

    A write that other lines rely on must reach them. True if one of the runs raised, as then there is nothing to
    compare. Used only where torch raised; ``before`` is then the program with its saved tensors cloned, which runs to
    its end. Where torch did not raise, some of these values are the mistake itself.
    """
    if before["error"] is not None or after["error"] is not None:
        return True
    return all(_same(before["names"][name], after["names"].get(name)) for name in names & set(before["names"]))


def read_later(source: str, fix: Fix) -> set[str]:
    """The names that ``source`` reads after the lines that ``fix`` edits; if these are in a loop, the whole loop counts
    as after.
    """
    tree = ast.parse(source)
    lines = {line for edit in fix.edits for line in range(edit.line, edit.end_line + 1)}
    last = max(lines, default=0)
    loops = [
        n
        for n in ast.walk(tree)
        if isinstance(n, (ast.For, ast.While)) and any(n.lineno <= line <= (n.end_lineno or 0) for line in lines)
    ]
    first = min([loop.lineno for loop in loops], default=last + 1)
    return {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.lineno >= first
    }


def _shapes(record: dict[str, Any]) -> list[Any]:
    return [[root and root["shape"] for root in entry["roots"]] for entry in record["backwards"]]


def _same_backward(was: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether two backwards have the same roots and results, in order, and the same gradients, in any order.

    The leaves may differ at this moment: a write that was moved behind the backward has not happened yet.
    """
    if not _same_list(was["roots"], now["roots"]) or not _same_list(was["results"], now["results"]):
        return False
    return _same_set(was["gradients"], now["gradients"])


def _same_where_finite(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Whether each backward of ``before`` has the same roots, gradients and results in ``after``,
    except where they were not finite.
    """
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
    """A sort key for a digest of values, rounded to three digits so that rounding errors rarely change the order."""
    return json.dumps(item and [item["shape"], [f"{n:.3g}" if isinstance(n, float) else n for n in item["numbers"]]])


def _same_list(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(one: Any, other: Any) -> bool:
    """Whether two digests have the same shape and the same numbers, up to rounding; also if both are None."""
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
