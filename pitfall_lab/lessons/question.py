"""A question about a program: what happens, and because of which fact. Every answer is computed, none is keyed by hand.

The right answer is what the real torch does. The wrong ones are what the misconceptions' policies predict for this very
program. A fact is a *reason* when a world without it would end differently; other true facts stand beside it as
distractors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pitfall_lab import shadow
from pitfall_lab.lessons.live import execute, failing_line
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception
from pitfall_lab.trace import T

MOST_CHOICES = 5
MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ends: ``value`` is the asked expression as text; or an exception's type name left it at ``line``."""

    value: str = ""
    error: str = ""
    line: int | None = None

    def say(self, ask: str) -> T:
        """Return the outcome as an answer to choose."""
        if not self.error:
            return T(en=f"{ask} is {self.value}", zh=f"{ask} 是 {self.value}")
        if self.line is None:
            return T(en=f"it raises {self.error}", zh=f"抛出 {self.error}")
        return T(en=f"line {self.line} raises {self.error}", zh=f"第 {self.line} 行抛出 {self.error}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer: its text, whether torch agrees, and the misconceptions that predict it."""

    text: T
    right: bool
    beliefs: tuple[Misconception, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact to pick: right when the program would end differently without it."""

    text: T
    right: bool


@dataclass(frozen=True, slots=True)
class Question:
    """A program, what is asked about it, the answers in a fixed shuffled order, the reasons likewise, and torch's own message."""

    program: str
    ask: str
    choices: tuple[Choice, ...]
    reasons: tuple[Reason, ...]
    message: str = ""

    @property
    def answer(self) -> Choice:
        """The choice that torch agrees with."""
        return next(c for c in self.choices if c.right)


def pose(program: str, ask: str, because: bool = True, beliefs: Iterable[str] | None = None) -> Question:
    """Compute a question: run ``program``, evaluate ``ask`` after it, and let every belief predict the same.

    ``beliefs`` narrows the misconceptions that are asked (keys of :data:`MISCONCEPTIONS`). Raises ``ValueError`` for a program or
    expression that is no Python, and ``KeyError`` for an unknown belief: both are mistakes of the lesson, not of the learner.
    """
    program = program.strip("\n")  # so that lines count as the reader sees them
    compile(program, "<program>", "exec"), compile(ask, "<ask>", "eval")
    held = [MISCONCEPTIONS[key] for key in (MISCONCEPTIONS if beliefs is None else beliefs)]
    actual, message = _torch_outcome(program, ask)
    predictions = _predictions(program, ask, actual, held)
    choices = _choices(program, ask, actual, predictions)
    reasons = _reasons(program, held, predictions) if because else ()
    return Question(program, ask, choices, reasons, message)


def _torch_outcome(program: str, ask: str) -> tuple[Outcome, str]:
    """Return what the real torch does with the program, and its message when it raises."""
    ran = execute(program, "<question>")
    if ran.error:
        return Outcome(error=type(ran.error).__name__, line=ran.line), str(ran.error)
    return Outcome(value=_say(eval(ask, ran.namespace))), ""  # noqa: S307 - the lesson's own expression


def _shadow_outcome(program: str, ask: str, policy: shadow.Policy) -> Outcome | None:
    """Return how the program ends in the world of ``policy``; ``None`` when the engine has no model of something in it."""
    names, error, _ = shadow.run(program, policy, name="<shadow>")
    if error is None:
        try:
            return Outcome(value=_say(eval(ask, names)))  # noqa: S307 - the lesson's own expression
        except Exception as raised:
            error = raised
    if isinstance(error, (shadow.Unmodelled, ModuleNotFoundError)) or not isinstance(error, Exception):
        return None
    return Outcome(error=type(error).__name__, line=failing_line(error, "<shadow>"))


def _predictions(program: str, ask: str, actual: Outcome, held: list[Misconception]) -> dict[str, Outcome]:
    """Return, per belief that would be surprised, what it predicts.

    Only when the engine under torch's own rules ends as torch did: otherwise a difference could not be laid to the belief.
    """
    if _shadow_outcome(program, ask, shadow.TORCH) != actual:
        return {}
    outcomes = {m.key: _shadow_outcome(program, ask, m(shadow.TORCH)) for m in held}
    return {key: outcome for key, outcome in outcomes.items() if outcome not in (None, actual)}


def _choices(program: str, ask: str, actual: Outcome, predictions: dict[str, Outcome]) -> tuple[Choice, ...]:
    """Return torch's outcome and the predicted ones; the opposite kind of ending and another line where nobody predicts them."""
    wrong: dict[Outcome, list[Misconception]] = {}
    for key, outcome in predictions.items():
        wrong.setdefault(outcome, []).append(MISCONCEPTIONS[key])
    choices = [Choice(actual.say(ask), right=True)]
    choices += [Choice(outcome.say(ask), False, tuple(beliefs)) for outcome, beliefs in list(wrong.items())[: MOST_CHOICES - 2]]
    outcomes = (actual, *wrong)
    if not any(o.error for o in outcomes):
        choices.append(Choice(T(en="it raises an error", zh="会抛出错误"), right=False))
    if all(o.error for o in outcomes):
        choices.append(Choice(T(en="it finishes without an error", zh="正常结束，没有错误"), right=False))
    if actual.line is not None:
        choices.append(Choice(T(en="another line raises an error", zh="另一行会抛出错误"), right=False))
    return tuple(sorted(choices, key=lambda c: _shuffled(program, c.text.en)))


def _reasons(program: str, held: list[Misconception], predictions: dict[str, Outcome]) -> tuple[Reason, ...]:
    """Return the facts whose loss changes the ending, and as many true but idle facts as fit; none when nothing is decided."""
    deciding = [Reason(MISCONCEPTIONS[key].fact, right=True) for key in predictions][: MOST_REASONS - 1]
    idle = [Reason(m.fact, right=False) for m in held if m.key not in predictions]
    idle.sort(key=lambda r: _shuffled(program, r.text.en))
    chosen = deciding + idle[: MOST_REASONS - len(deciding)]
    return tuple(sorted(chosen, key=lambda r: _shuffled(program, r.text.en))) if deciding else ()


def _shuffled(program: str, text: str) -> str:
    """Return a sort key that looks random and is the same in every session."""
    return hashlib.sha256(f"{program}\0{text}".encode()).hexdigest()


def _say(value: Any) -> str:
    """Return a value as text that two engines agree on and a person can read: tensors as lists, floats to four digits."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_say(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)
