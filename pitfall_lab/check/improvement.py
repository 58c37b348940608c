"""Whether a repaired program is better than the program (:func:`is_better`), from a few facts of both recordings.

The facts are found where the repaired program has run: a recording of many calls takes longer to write and to read than
it took to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from pitfall_lab.rules import Finding, Rule, found_in, rule
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import difference, snippet
from pitfall_lab.trace import Failure, Trace


class FoundFinding(NamedTuple):
    """A finding, identified by the source of its lines, since line numbers differ between two versions of a program.

    ``rule`` is its code, ``severity`` ``error``, ``warning`` or ``info``, ``step`` its step in the trace (0 if it has
    none). ``texts`` are the source of its span, and role and source of each related span that counts
    (:func:`found_of`).
    """

    rule: str
    severity: str
    step: int
    texts: tuple[str, ...]


class EndingError(NamedTuple):
    """The error that ended a program: ``type`` is the name of its class, ``text`` the source of the expression that
    raised it (None: not known), ``step`` the event of the trace (None: not known), ``line`` the line (0: not known).
    """

    type: str
    text: str | None
    step: int | None
    line: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a recording that are compared with those of another one.

    ``ended`` is how the program ended (``"finished"`` or ``"raised"``), ``error`` the error if it raised (else None),
    ``stopped`` the step at which observation ended early (None: it did not; 0 also where the step is not known),
    ``found`` the findings. ``disagreements`` is the number of values, gradients, saved tensors and errors on which
    torch and the shadow engine differ; differences in strides and versions are not counted.
    """

    ended: str
    error: EndingError | None
    stopped: int | None
    disagreements: int
    found: tuple[FoundFinding, ...]

    @classmethod
    def of(cls, story: Story, findings: Sequence[Finding] | None = None) -> Self:
        """The facts about the recording in ``story`` by which :func:`is_better` compares two recordings.

        ``findings`` are those that :func:`found_in` returns for it; if None, it is called here.
        """
        trace = story.trace
        failure, stopped = trace.outcome.failure, trace.stopped
        raised = _error(story, failure) if failure is not None else None
        found = found_in(story) if findings is None else findings
        ended_early = (stopped.step or 0) if stopped is not None else None
        return cls(
            trace.outcome.kind,
            raised,
            ended_early,
            _disagreements(trace),
            tuple(found_of(story, each) for each in found),
        )

    def to_json(self) -> dict[str, Any]:
        """The facts as a dictionary that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The facts that :meth:`to_json` has written."""
        found = tuple(FoundFinding(kind, severity, step, tuple(texts)) for kind, severity, step, texts in data["found"])
        return cls(**{**data, "error": data["error"] and EndingError(*data["error"]), "found": found})


def _error(story: Story, failure: Failure) -> EndingError:
    span = failure.span
    return EndingError(
        failure.type,
        snippet(story, span) if span is not None else None,
        failure.step,
        span.line if span is not None else 0,
    )


def found_of(story: Story, finding: Finding) -> FoundFinding:
    """The finding as a :class:`FoundFinding`, which is equal in the program and in a repaired version if the finding
    is.

    Its texts are those of its own lines and of the related ones with the role saved, operand, backward or around.
    Severity and step are added, but do not decide whether two findings are the same.
    """
    places = [
        f"{r.role}:{snippet(story, r.span)}"
        for r in finding.related
        if r.role in ("saved", "operand", "backward", "around")
    ]
    return FoundFinding(finding.rule, finding.severity, finding.step or 0, (snippet(story, finding.span), *places))


def is_better(finding: FoundFinding, was: RunFacts, now: RunFacts) -> bool:
    """Whether ``finding`` of the original program is gone in the repaired program, and nothing else became worse.

    ``was`` and ``now`` are the facts of the original and the repaired run. False if the engines disagree on more values
    than before, or if observation of the repaired program ended early (unless that of the original did as well, and the
    repaired one reached the finding's step). If the repaired program finished (or fails as the original did, and the
    finding is no error), it must have fewer findings of the finding's rule, and not more of any other rule, infos
    apart. Otherwise it must raise at a later step than the original and on another line, and a rule must find an error
    in it.
    """
    if now.disagreements > was.disagreements:
        return False
    if now.stopped is not None and (was.stopped is None or now.stopped < finding.step):
        return False  # no finding where nothing was observed proves nothing
    known, left = ({(each.rule, each.texts) for each in facts.found} for facts in (was, now))
    if (finding.rule, finding.texts) in left:
        return False
    old_ones, new_ones = (sum(each.rule == finding.rule for each in facts.found) for facts in (was, now))
    strangers = [
        each
        for each in now.found
        if each.severity != "info" and (each.rule, each.texts) not in known and _is_more(each, was, now)
    ]
    if now.ended == "finished" or (finding.severity != "error" and _fails_alike(was.error, now.error)):
        return new_ones < old_ones and not strangers
    return _got_further(was.error, now)


def _is_more(finding: FoundFinding, was: RunFacts, now: RunFacts) -> bool:
    """Whether the repaired program has more findings of this finding's rule than the original; infos are not counted.

    Findings are counted and not compared, because an edited line gives the same finding another text.
    """
    before, after = (
        sum(each.rule == finding.rule and each.severity != "info" for each in facts.found) for facts in (was, now)
    )
    return after > before


def _fails_alike(one: EndingError | None, other: EndingError | None) -> bool:
    """Whether both programs end with an error of the same type on a line of the same text;
    False if a text is not known.

    Then the error is another mistake than the one that a warning's fix repairs.
    """
    if one is None or other is None or one.text is None or other.text is None:
        return False
    return (one.type, one.text) == (other.type, other.text)


def _got_further(error: EndingError | None, now: RunFacts) -> bool:
    """Whether the repaired program raises at a later step than the original, on another line,
    and a rule finds an error in it.

    ``error`` is the original's. False if one of them did not raise, or its step is not known.
    """
    later = now.error
    if error is None or later is None or error.step is None or later.step is None:
        return False
    explained = any(each.severity == "error" and isinstance(rule(each.rule), Rule) for each in now.found)
    return explained and (later.step, later.line) > (error.step, error.line) and later.line != error.line


def _disagreements(trace: Trace) -> int:
    """The number of values, gradients, saved tensors and errors on which the engines differ; strides
    and versions are not counted.

    A repaired program runs further than the original. The additional part may show an error of the shadow engine in a
    stride or version there; such a disagreement is reported with the trace but does not count against the repair.
    """
    return sum(
        d.path.startswith(("outcome", "result"))
        or d.path.endswith((".grad", ".grad_fn"))
        or ".saved." in d.path
        or (d.path.endswith(".cells") and bool(difference(d.observed, d.modelled)))
        for d in trace.disagreements
    )
