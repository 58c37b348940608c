"""The results of rules: findings, their related lines, and fixes as edits of the source.

All classes are immutable and run nothing; their sentences are in both languages. A fix is ``verified`` only after
:mod:`pitfall_lab.check` applied it and ran the result on torch and on the shadow engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pitfall_lab.trace import By, Language, Span, T
from pitfall_lab.trace.shown_numbers import worse

if TYPE_CHECKING:
    from pitfall_lab.rules.kit.story import Story

Severity = Literal["error", "warning", "info"]
"""``error``: torch raised or will raise here; ``warning``: a wrong or lost result without an error; ``info``: legal,
but worth knowing.
"""

Role = Literal[
    "saved",
    "changed",
    "backward",
    "alias",
    "leaf",
    "operand",
    "forward",
    "made",
    "used",
    "cut",
    "freed",
    "kept",
    "copied",
    "cleared",
    "step",
    "read",
    "masked",
    "gradient",
    "left out",
    "around",
    "off",
]
"""The role of a line in a finding.

Saved for backward · memory written · backward ran · another way into the same memory · where a leaf was made · what was
compared · a call on the way to the saving line · where a tensor was made · used · where the graph was cut off · where a
graph was freed · kept alive · copied · gradients cleared · an optimizer's step · a value or gradient read · scores
masked · a right gradient that backward gave · left out of an optimizer's step · a backward that rightly leaves out ·
where the recording of graphs was switched off.
"""


@dataclass(frozen=True, slots=True)
class Related:
    """A line that a finding involves: ``role`` is its part in the finding ("saved", "changed", "backward", …),
    ``message`` a sentence about it in both languages.

    ``span`` is its position in the source, ``step`` the step of its event in the trace; each is None where unknown.
    """

    role: Role
    span: Span | None
    step: int | None
    message: T


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the whole lines ``line`` to ``end_line`` (from 1, both included) by ``text``; ``""`` deletes them.

    ``text`` ends with a newline unless it is empty. An insertion repeats the line it is put before or after, so that
    every edit replaces at least one line.
    """

    line: int
    end_line: int
    text: str


@dataclass(frozen=True, slots=True)
class Printed:
    """How a fix changes what the program prints or computes, both versions run with the same random numbers.

    ``before`` and ``after`` are texts: a printed line if ``name`` is empty, else the value of the global variable
    ``name`` at the end.
    """

    name: str
    before: str
    after: str

    @property
    def said(self) -> T:
        """A sentence, in both languages, with the value before and the value after the fix, and a second one where the
        new value looks worse.
        """
        en = f"With the same random numbers it prints “{self.after}” where it printed “{self.before}”."
        zh = f"用同样的随机数运行，它打印“{self.after}”，原来打印“{self.before}”。"
        if self.name:
            en = f"With the same random numbers, `{self.name}` is {self.after} at the end, and was {self.before}."
            zh = f"用同样的随机数运行，`{self.name}` 最后是 {self.after}，原来是 {self.before}。"
        note = worse(self.name, self.before, self.after)
        return T(en=en, zh=zh) if note is None else T(en=f"{en} {note.en}", zh=zh + note.zh)


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to repair a program: ``title`` says in both languages what it does, ``edits`` are the changed lines.
    Edits do not overlap and come last line first: applied one after the other they fit.

    ``verified`` is True once the changed program was run and the finding was gone. ``meaning`` says which values the
    fix may change besides removing the finding.

    - ``same``: every correct value stays the same, and wrong gradients become correct;
    - ``recompute``: what follows the failing backward is computed again from the values of that moment;
    - ``connect``: the backward of the finding starts from the same value and reaches more leaves; what follows is
      computed with them;
    - ``term``: the backward of the finding starts from the same value, of which one more part now requires grad;
    - ``root``: the backward of the finding starts from the same value, and fills the gradients of other leaves;
    - ``shape``: the value itself was wrong (a broadcast), so only what happened before it stays the same;
    - ``later``: a value was wrong or lost from the finding's step on, so the backwards before that step stay the same;
    - ``finite``: a gradient was NaN or infinite; what was finite up to that backward stays the same.

    Where the program stopped before it had computed what was meant, ``reference`` may have edits that get there in a
    way that is right but not good (``retain_graph=True``): the fix must then end with the same leaves and gradients as
    that program does. Empty where there are none.
    """

    title: T
    edits: tuple[Edit, ...]
    verified: bool = False
    meaning: Literal["same", "recompute", "connect", "term", "root", "shape", "later", "finite"] = "same"
    reference: tuple[Edit, ...] = ()
    printed: Printed | None = None
    """The change that a verified fix makes to what the program prints or leaves in a global variable; None if there is
    no such change or it was not compared.
    """

    def as_verified(self, *, raises: bool = False) -> Fix:
        """Return a copy of the fix marked as verified: it was applied, and the changed program was run and compared.

        If ``raises`` is True, the changed program gets further but ends with another error, and the title says so.
        """
        then = T(
            f"{self.title.en} (this error goes, another follows)", f"{self.title.zh}（这个错误消失，之后还有另一个）"
        )
        return replace(self, verified=True, title=then if raises else self.title)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact on which a finding is based: its ``name``, its ``value`` (of any type) and its origin ``by``: "observed"
    (torch), "modelled" (the shadow engine) or "agreed" (both).
    """

    name: str
    value: Any
    by: By = "observed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One pitfall at one position of a program.

    ``rule`` is the rule's code (``"PL101"``), ``name`` its name, ``severity`` "error", "warning" or "info". ``span`` is
    the position in the source, ``step`` the step of the trace; each is None where unknown. ``predicted`` is True if the
    shadow engine reported it before torch raised, or as well as torch. ``message`` is one sentence for a beginner,
    ``explanation`` says how it came about. ``related`` are further lines, ``fixes`` possible repairs, ``facts`` what
    the finding is based on.
    """

    rule: str
    name: str
    severity: Severity
    span: Span | None
    step: int | None
    predicted: bool
    message: T
    explanation: T
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()
    facts: tuple[Fact, ...] = ()
    advice: T | None = None
    """What to do, in a sentence that was not tested: for readers for whom there is no verified fix."""

    @property
    def key(self) -> tuple[Any, ...]:
        """A tuple that is equal for equal findings: the rule, the position, and the positions of the ``saved`` and
        ``operand`` lines.

        Steps are not part of it, as each iteration of a loop repeats the lines with other steps.
        """
        places = tuple((r.role, _place(r.span)) for r in self.related if r.role in ("saved", "operand"))
        return (self.rule, _place(self.span), places)

    def fact(self, name: str) -> Any:
        """Return the value of the first fact named ``name``; None if there is none."""
        return next((fact.value for fact in self.facts if fact.name == name), None)

    def line(self, role: Role) -> Related | None:
        """Return the first related line with the role ``role``; None if there is none."""
        return next((related for related in self.related if related.role == role), None)

    def with_fixes(self, fixes: tuple[Fix, ...]) -> Finding:
        """Return a copy of the finding with these fixes."""
        return replace(self, fixes=fixes)

    def to_dict(self, language: Language = "en") -> dict[str, Any]:
        """Return the finding, with texts in ``language``, as ``pitfall-lab check --json`` prints it; lines and columns
        count from 1 there.

        Explanation, facts, advice and step are left out. ``end_column`` is the column after the last character.
        Positions are None where the trace does not know them.
        """
        return {
            "rule": self.rule,
            "name": self.name,
            "severity": self.severity,
            **_position(self.span),
            "predicted": self.predicted,
            "message": self.message.say(language),
            "related": [
                {
                    "role": r.role,
                    "line": r.span.line if r.span else None,
                    "column": r.span.column + 1 if r.span else None,
                    "message": r.message.say(language),
                }
                for r in self.related
            ],
            "fixes": [
                {
                    "title": fix.title.say(language),
                    "edits": [{"line": e.line, "end_line": e.end_line, "text": e.text} for e in fix.edits],
                    "verified": fix.verified,
                    **({"printed": asdict(fix.printed)} if fix.printed is not None else {}),
                }
                for fix in self.fixes
            ],
        }


@dataclass(frozen=True, slots=True)
class Trap:
    """A wrong repair that only hides the mistake: the text ``old`` in the rule's bad program becomes ``new``; ``why``
    says in both languages why it is wrong.

    Never offered as a fix; explained on the rule's page. A test applies it and shows that it does not help: the program
    still draws a finding, raises, or computes something other than the good program does.
    """

    old: str
    new: str
    why: T


def _nothing(_: Story) -> Iterable[Finding]:
    return ()


def _as_it_is(_: Story, __: Finding) -> Finding | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pitfall: its code and name, how it is found in a trace, and the texts of its page.

    To add one, write ``pitfall_lab/rules/<name_with_underscores>.py`` with a function ``find`` and a ``RULE`` like
    this. Being in the folder is enough: the command, the pages, the table of recall and the tests pick it up; ``python
    -m pitfall_lab.reference.pages`` writes its page.

    - ``code``: ``PL`` and three digits, never given twice. 1 saved tensors, 2 leaves and views, 3 the counter
      bypassed, 4 broadcasting and
      shape, 5 the graph, 6 gradients and training order, 7 sharing, 8 numbers and dtype, 9
      losses, modes and randomness.
    - ``name``: the *bad thing* in kebab case, ``saved-tensor-overwritten``; the file has
      the same name with underscores.
    - ``severity``: what its findings are when they do not say otherwise.
    - ``title``: the bad thing in one line, without a full stop.
    - ``what``: what happens, in a beginner's words. Its first sentence uses no word of
      torch's that it does not explain.
    - ``why``: why torch works like this; here torch's words come in, each explained at its first use.
    - ``bad``, ``good``: two short, complete programs. The first draws exactly this one finding, with a
      fix that holds; the second is
      the first one repaired. They print what a learner should compare, and fix their seed when they draw
      numbers. In ``bad`` comments
      say which lines the finding must name: ``# PL101 changed`` on the finding's own line, ``# saved`` where a related
          line has that role (:mod:`.expected_marks`).
    - ``find``: reads a :class:`~pitfall_lab.rules.kit.story.Story` and yields findings. It never reads an
      error message, and finds nothing
      where it does not know.
    - ``refines``, ``refine``: codes of more general rules, and what this rule says *instead* of one of their findings
      (:meth:`instead`); ``None`` to keep that finding. So one mistake stays one finding, of the most specific rule.
    - ``traps``: repairs that only hide the mistake, at least one where learners commonly try one.
    - ``docs``: pages of torch's documentation.
    - ``advice``: what to do, in one sentence for a finding without a verified fix, with
      places for what the finding names
      (:func:`pitfall_lab.rules.kit.advice.names`). Without it, the last sentence of ``what`` is that: write it so.
    """

    code: str
    name: str
    severity: Severity
    title: T
    what: T
    why: T
    bad: str
    good: str
    find: Callable[[Story], Iterable[Finding]] = _nothing
    refines: tuple[str, ...] = ()
    refine: Callable[[Story, Finding], Finding | None] = _as_it_is
    traps: tuple[Trap, ...] = ()
    docs: tuple[str, ...] = ()
    advice: T | None = None

    def finding(
        self,
        span: Span | None,
        step: int | None,
        message: T,
        explanation: T,
        *,
        related: Iterable[Related] = (),
        fixes: Iterable[Fix] = (),
        facts: Iterable[Fact] = (),
        predicted: bool = False,
        severity: Severity | None = None,
        advice: T | None = None,
    ) -> Finding:
        """Return a finding of this rule: ``message`` is one sentence for a beginner, ``explanation`` how it came about;
        the other arguments are the fields of :class:`Finding`.

        If ``severity`` is None, the finding has the rule's own.
        """
        return Finding(
            self.code,
            self.name,
            severity or self.severity,
            span,
            step,
            predicted,
            message,
            explanation,
            tuple(related),
            tuple(fixes),
            tuple(facts),
            advice,
        )

    def instead(
        self,
        general: Finding,
        message: T,
        explanation: T,
        *,
        related: Iterable[Related] | None = None,
        fixes: Iterable[Fix] | None = None,
    ) -> Finding:
        """Return a finding of this rule that replaces ``general``, a finding of another rule: with its position and
        facts, this rule's severity, and a new ``message`` and ``explanation``.

        It also keeps the related lines and fixes of ``general`` unless others are given. The other rule's advice is
        dropped.
        """
        return replace(
            general,
            rule=self.code,
            name=self.name,
            severity=self.severity,
            message=message,
            explanation=explanation,
            related=general.related if related is None else tuple(related),
            fixes=general.fixes if fixes is None else tuple(fixes),
            advice=None,
        )


def _place(span: Span | None) -> tuple[int, int, int] | None:
    return (span.source, span.line, span.column) if span else None


def _position(span: Span | None) -> dict[str, int | None]:
    if span is None:
        return {"line": None, "column": None, "end_line": None, "end_column": None}
    return {"line": span.line, "column": span.column + 1, "end_line": span.end_line, "end_column": span.end_column + 1}
