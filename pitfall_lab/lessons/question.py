"""A question about a program: what happens, and because of which fact. Every answer is computed, none is keyed by hand.

The right answer is what the real torch does. The wrong ones are what the misconceptions' policies predict for this very
program and, where these are few, what it would give without one of its statements or calls: the answer of somebody who
overlooked it. A fact is a *reason* when a world without it would end differently; other true facts stand beside it as
distractors.

Kinds of questions (``ask`` is an expression of the program's names):

============ ==================================================================================================
``value``    what ``ask`` is in the end, or which line raises what
``shape``    the shape of ``ask``
``gradient`` the shape of the gradient of the leaf ``ask``, or that it has none
``version``  the version counter of ``ask``
``line``     the line that fails, chosen in the program itself (``ask`` is not used)
``changes``  which of these does the last statement change: names (``"x, y, z"``), or the cells of one tensor (``"x"``)
============ ==================================================================================================
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pitfall_lab import shadow
from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.live import Ran, execute, failing_line
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception
from pitfall_lab.lessons.separation import programs
from pitfall_lab.lessons.worlds import say
from pitfall_lab.trace import T

Kind = Literal["value", "shape", "gradient", "version", "line", "changes"]
KINDS: tuple[Kind, ...] = ("value", "shape", "gradient", "version", "line", "changes")
MOST_CHOICES = 5
MOST_REASONS = 4
MOST_CELLS = 24
ENOUGH_WRONG = 2
"""With so many answers of beliefs, none is computed by leaving statements out."""
MOST_CAME = 4
MOST_LETTERS = 60
A = TypeVar("A")
_EXPRESSIONS: dict[Kind, str] = {
    "value": "{0}",
    "shape": "tuple({0}.shape)",
    "gradient": "None if {0}.grad is None else tuple({0}.grad.shape)",
    "version": "{0}._version",
}
_LABELS: dict[Kind, str] = {"value": "{0}", "shape": "{0}.shape", "gradient": "{0}.grad.shape", "version": "{0}._version"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ends: ``value`` is what was asked, as text; or an exception's type name left it at ``line``."""

    value: str = ""
    error: str = ""
    line: int | None = None

    def say(self, ask: str) -> T:
        """Return the outcome as an answer to choose."""
        if not self.error:
            if self.value == "None" and ask.endswith(".grad.shape"):
                ask = ask.removesuffix(".shape")
            return T(en=f"{ask} is {self.value}", zh=f"{ask} 是 {self.value}")
        if self.line is None:
            return T(en=f"it raises {self.error}", zh=f"抛出 {self.error}")
        return T(en=f"line {self.line} raises {self.error}", zh=f"第 {self.line} 行抛出 {self.error}")


@dataclass(frozen=True, slots=True)
class Slip:
    """What somebody overlooked: the statement in ``line``, or only the ``call`` of a method in it."""

    line: int
    call: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer: its text, whether torch agrees, and the misconceptions that predict it; ``line`` when it is a line of the program.

    ``without``: what has to be left out of the program to give this answer.
    """

    text: T
    right: bool
    beliefs: tuple[Misconception, ...] = ()
    line: int | None = None
    without: Slip | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact to pick: right when the program would end differently without it."""

    text: T
    right: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """A wrong answer (the indices of its choices) that misconceptions predict, or that comes of overlooking something.

    ``parting`` is where the world of the only belief leaves torch's; ``separating`` is a program that tells several apart. Up to line
    ``until`` torch does what was predicted; that line is the first that does something else (``None``: only the end shows it).
    """

    marks: frozenset[int]
    beliefs: tuple[Misconception, ...] = ()
    parting: worlds.Parting | None = None
    separating: str | None = None
    until: int | None = None
    without: Slip | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What came of the statement that ends in ``line``, on the real torch."""

    line: int
    came: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A program, what is asked about it, the answers in a fixed order, the reasons likewise, and torch's own message.

    ``columns`` is the width of the grid when the choices are a tensor's cells, else 0. ``story`` is what is revealed afterwards.
    """

    program: str
    ask: str
    choices: tuple[Choice, ...]
    reasons: tuple[Reason, ...]
    message: str = ""
    kind: Kind = "value"
    predictions: tuple[Prediction, ...] = ()
    columns: int = 0
    story: tuple[Step, ...] = ()

    @property
    def answer(self) -> Choice:
        """The (first) choice that torch agrees with."""
        return next(c for c in self.choices if c.right)

    @property
    def key(self) -> str:
        """A name that stays the same as long as the question does."""
        return key_of(self.kind, self.program, self.ask)


def key_of(kind: str, program: str, ask: str) -> str:
    """Return the name of the question that asks this."""
    program = program.strip("\n")
    return hashlib.sha256(f"{kind}\0{program}\0{ask}".encode()).hexdigest()[:8]


def pose(program: str, ask: str = "None", because: bool = True, beliefs: Iterable[str] | None = None, kind: Kind = "value") -> Question:
    """Compute a question: run ``program``, look at what is asked, and let every belief predict the same.

    ``beliefs`` narrows the misconceptions that are asked (keys of :data:`MISCONCEPTIONS`). Raises ``ValueError`` for a program or
    expression that is no Python, an unknown kind, or a question that has no answer, and ``KeyError`` for an unknown belief: all are
    mistakes of the lesson, not of the learner.
    """
    program = program.strip("\n")  # so that lines count as the reader sees them
    compile(program, "<program>", "exec"), compile(ask, "<ask>", "eval")
    held = [MISCONCEPTIONS[key] for key in (MISCONCEPTIONS if beliefs is None else beliefs)]
    if kind not in KINDS:
        raise ValueError(f"there is no question of the kind {kind!r}; there are {', '.join(KINDS)}")
    if kind == "changes":
        return _changes(program, ask, held, because)
    asked = ask if kind == "value" or ask.isidentifier() else f"({ask})"
    expression, label = (_EXPRESSIONS[kind].format(asked), _LABELS[kind].format(asked)) if kind != "line" else ("None", "")
    ran = execute(program, worlds.NAME)
    actual = _torch_outcome(ran, expression)
    predicted = _predictions(program, expression, actual, held)
    if kind == "line":
        choices = _lines(program, actual, predicted)
    else:
        wrong = set(predicted.values())
        slips = itertools.islice(_slips(program, expression, actual, wrong), max(0, ENOUGH_WRONG - len(wrong)))
        near: dict[Outcome, Slip | None] = dict(slips)
        choices = _choices(program, label, actual, predicted, near | _others(kind, actual, {} if ran.error else ran.namespace, near))
    fitting = _fitting(program, [(frozenset({n}), c.beliefs) for n, c in enumerate(choices) if c.beliefs])
    slipped = tuple(Prediction(frozenset({n}), until=c.without.line, without=c.without) for n, c in enumerate(choices) if c.without)
    message = str(ran.error) if ran.error else ""
    reasons = _reasons(program, held, predicted) if because else ()
    return Question(program, ask, choices, reasons, message, kind, (*fitting, *slipped), story=_story(program, ran))


def _torch_outcome(ran: Ran, expression: str) -> Outcome:
    """Return what the real torch did with the program."""
    if ran.error:
        return Outcome(error=type(ran.error).__name__, line=ran.line)
    return Outcome(value=_asked(expression, ran.namespace))


def _asked(expression: str, names: dict[str, Any]) -> str:
    """What the lesson's expression is, as text. Torch warns where ``.grad`` of a result is read; in a question that is no accident."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return say(eval(expression, names))  # noqa: S307 - the lesson's own expression


def _story(program: str, ran: Ran) -> tuple[Step, ...]:
    """Return what came of each statement on the real torch: what can be looked at and was not so before."""
    steps, before = [], dict[str, str]()
    idle = {node.end_lineno for node in ast.parse(program).body if isinstance(node, (ast.Import, ast.ImportFrom))}
    for line, state in worlds.real_unfolded(program, ran):
        if line in idle:
            continue
        came = [_came(what, value, before) for what, value in state.items() if before.get(what) != value]
        said = [text for text in came if text is not None]
        more = [T(en="…", zh="…")] if len(said) > MOST_CAME else []
        steps.append(Step(line, (*said[:MOST_CAME], *more)))
        before = state
    return tuple(steps)


def _came(what: str, value: str, before: dict[str, str]) -> T | None:
    """Return one thing that came of a statement; ``None`` for what every new tensor has."""
    if what == worlds.RAISED:
        return T(en=f"raises {value}", zh=f"抛出 {value}")
    if what == worlds.PRINTED:
        value = value.removeprefix(before.get(what, "")).strip("\n")
        return T(en=f"prints {_short(value)}", zh=f"输出 {_short(value)}")
    new = what.rpartition(".")[0] not in before
    if new and (what.endswith(".requires_grad") or (what.endswith("._version") and value == "0")):
        return None
    return T(en=f"{what} = {_short(value)}", zh=f"{what} = {_short(value)}")


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 2] + " …"


class _Without(ast.NodeTransformer):
    """Leaves one thing out of a program: a statement, or a method's call (``x.abs()`` becomes ``x``); ``slip`` says which, and where."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.slip: Slip | None = None

    def visit(self, node: ast.AST) -> ast.AST:
        """Count down to what is left out."""
        call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node, ast.stmt) or call:
            self.left -= 1
            if self.left == -1:
                self.slip = Slip(node.lineno, f".{node.func.attr}()" if call else "")  # type: ignore[attr-defined]
                return node.func.value if call else ast.copy_location(ast.Pass(), node)  # type: ignore[attr-defined]
        return self.generic_visit(node)


def _slips(program: str, expression: str, actual: Outcome, known: Iterable[Outcome]) -> Iterator[tuple[Outcome, Slip]]:
    """Yield what the program would give with something left out, as far as that is not known already: statements first, then calls.

    Only what ends without an error, and only when the engine under torch's own rules ends as torch did.
    """
    if _shadow_outcome(program, expression, shadow.TORCH) != actual:
        return
    seen = {actual, *known}
    cuts = []
    for n in itertools.count():
        cut = _Without(n)
        tree = cut.visit(ast.parse(program))
        if cut.slip is None:
            break
        cuts.append((bool(cut.slip.call), -n, ast.unparse(tree), cut.slip))
    for _, _, shorter, slip in sorted(cuts, key=lambda one: one[:2]):
        outcome = _shadow_outcome(shorter, expression, shadow.TORCH)
        if outcome is not None and not outcome.error and outcome not in seen:
            seen.add(outcome)
            yield outcome, slip


def _shadow_outcome(program: str, expression: str, policy: shadow.Policy) -> Outcome | None:
    """Return how the program ends in the world of ``policy``; ``None`` when the engine has no model of something in it."""
    ran = worlds.run(program, policy)
    if ran is None:
        return None
    names, error, _ = ran
    if error is None:
        try:
            return Outcome(value=_asked(expression, names))
        except Exception as raised:
            error = raised
    return Outcome(error=type(error).__name__, line=failing_line(error, worlds.NAME))


def _predictions(program: str, expression: str, actual: Outcome, held: list[Misconception]) -> dict[str, Outcome]:
    """Return, per belief that would be surprised, what it predicts.

    Only when the engine under torch's own rules ends as torch did: otherwise a difference could not be laid to the belief.
    """
    return _surprised(lambda policy: _shadow_outcome(program, expression, policy), actual, held)


def _surprised(look: Callable[[shadow.Policy], A | None], actual: A, held: list[Misconception]) -> dict[str, A]:
    if look(shadow.TORCH) != actual:
        return {}
    seen = {m.key: look(m(shadow.TORCH)) for m in held}
    return {key: outcome for key, outcome in seen.items() if outcome is not None and outcome != actual}


def _choices(
    program: str, label: str, actual: Outcome, predicted: dict[str, Outcome], near: dict[Outcome, Slip | None]
) -> tuple[Choice, ...]:
    """Return torch's outcome and the predicted ones; where there is room what lies ``near``, the opposite ending, another line."""
    wrong: dict[Outcome, list[Misconception]] = {}
    for key, outcome in predicted.items():
        wrong.setdefault(outcome, []).append(MISCONCEPTIONS[key])
    choices = [Choice(actual.say(label), right=True)]
    choices += [Choice(outcome.say(label), False, tuple(beliefs)) for outcome, beliefs in list(wrong.items())[: MOST_CHOICES - 2]]
    room = max(0, MOST_CHOICES - 1 - len(choices))
    nearest = {outcome: slip for outcome, slip in near.items() if outcome not in wrong}
    choices += [Choice(outcome.say(label), False, without=slip) for outcome, slip in itertools.islice(nearest.items(), room)]
    outcomes = (actual, *wrong, *nearest)
    if not any(o.error for o in outcomes):
        choices.append(Choice(T(en="it raises an error", zh="会抛出错误"), right=False))
    if all(o.error for o in outcomes):
        choices.append(Choice(T(en="it finishes without an error", zh="正常结束，没有错误"), right=False))
    if actual.line is not None:
        choices.append(Choice(T(en="another line raises an error", zh="另一行会抛出错误"), right=False))
    return tuple(sorted(choices, key=lambda c: _shuffled(program, c.text.en)))


def _others(kind: Kind, actual: Outcome, names: dict[str, Any], near: Container[Outcome]) -> dict[Outcome, Slip | None]:
    """Return more wrong answers that lie near: shapes that occur in the program, the versions beside the right one."""
    if actual.error or kind == "value":
        return {}
    if kind == "version":
        version = int(actual.value)
        found = [str(n) for n in (version + 1, version - 1, version + 2) if n >= 0]
    else:
        shapes = {tuple(value.shape) for name, value in names.items() if hasattr(value, "shape") and not name.startswith("__")}
        ordered = sorted(shapes | ({()} if kind == "gradient" else set()), key=lambda shape: (len(shape), shape), reverse=True)
        found = [*(["None"] if kind == "gradient" else []), *map(say, ordered)]
    return {Outcome(value): None for value in found if value != actual.value and Outcome(value) not in near}


def _lines(program: str, actual: Outcome, predicted: dict[str, Outcome]) -> tuple[Choice, ...]:
    """Return the program's lines as choices, and that none of them fails."""
    beliefs: dict[int | None, list[Misconception]] = {}
    for key, outcome in predicted.items():
        beliefs.setdefault(outcome.line if outcome.error else None, []).append(MISCONCEPTIONS[key])
    lines = program.splitlines()
    starts = {node.lineno for node in ast.walk(ast.parse(program)) if isinstance(node, ast.stmt)}
    choices = [
        Choice(T(en=f"line {n}", zh=f"第 {n} 行"), n == actual.line, tuple(beliefs.get(n, ())), n)
        for n in range(1, len(lines) + 1)
        if n in starts
    ]
    none = T(en="no line fails", zh="没有哪一行失败")
    return (*choices, Choice(none, not actual.error, tuple(beliefs.get(None, ()))))


# ---------------------------------------------------------------- which of these change


def _changes(program: str, ask: str, held: list[Misconception], because: bool) -> Question:
    """Compute a question about what the last statement changes."""
    last = ast.parse(program).body[-1]
    before = "\n".join(program.splitlines()[: last.lineno - 1])
    names = [name.strip() for name in ask.split(",")]
    ran, after = execute(before, worlds.NAME), execute(program, worlds.NAME)
    if ran.error or after.error:
        raise ValueError(f"a question about changes needs a program that finishes: {ran.error or after.error}")
    cells, columns = _cells(names, ran.namespace)
    first = [say(eval(cell, ran.namespace)) for cell in cells]  # noqa: S307 - the lesson's own expression
    second = [say(eval(cell, after.namespace)) for cell in cells]  # noqa: S307 - as above
    actual = frozenset(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)

    def look(policy: shadow.Policy) -> frozenset[int] | None:
        ways = [worlds.run(part, policy) for part in (before, program)]
        if any(way is None or way[1] is not None for way in ways):
            return None
        try:
            values = [[say(eval(cell, way[0])) for cell in cells] for way in ways if way]  # noqa: S307 - as above
        except Exception:  # this world has no such cell
            return None
        return frozenset(n for n in range(len(cells)) if values[0][n] != values[1][n])

    predicted = _surprised(look, actual, held)
    nothing = len(cells)
    choices = [Choice(T(en=f"{c} = {v}", zh=f"{c} = {v}"), n in actual) for n, (c, v) in enumerate(zip(cells, first, strict=True))]
    choices.append(Choice(T(en="none of them", zh="都不变"), not actual))
    wrong: dict[frozenset[int], list[Misconception]] = {}
    for key, marks in predicted.items():
        wrong.setdefault(marks or frozenset({nothing}), []).append(MISCONCEPTIONS[key])
    fitting = _fitting(program, [(marks, tuple(beliefs)) for marks, beliefs in wrong.items()])
    outcomes = dict.fromkeys(predicted, Outcome())
    reasons = _reasons(program, held, outcomes) if because else ()
    return Question(program, ask, tuple(choices), reasons, "", "changes", fitting, columns, _story(program, after))


def _cells(names: list[str], namespace: dict[str, Any]) -> tuple[list[str], int]:
    """Return the expressions that may change, and the columns of the grid when they are the cells of one tensor."""
    if len(names) > 1:
        return names, 0
    shape = tuple(eval(names[0], namespace).shape)  # noqa: S307 - the lesson's own expression
    cells = [f"{names[0]}[{', '.join(map(str, index))}]" for index in itertools.product(*map(range, shape))]
    if not 1 <= len(cells) <= MOST_CELLS or not shape:
        raise ValueError(f"a question about cells needs a tensor of 1 to {MOST_CELLS} of them, not {len(cells)}")
    return cells, shape[-1]


# ---------------------------------------------------------------- beliefs and facts


def _fitting(program: str, wrong: Iterable[tuple[frozenset[int], tuple[Misconception, ...]]]) -> tuple[Prediction, ...]:
    """Return the wrong answers that beliefs predict, with what is shown to somebody who gives them."""
    found = []
    for marks, beliefs in wrong:
        partings = [worlds.parting(program, belief) for belief in beliefs]
        until = min((parting.line for parting in partings if parting), default=None)
        if len(beliefs) == 1:
            found.append(Prediction(marks, beliefs, parting=partings[0], until=until))
        else:
            keys, known = {m.key for m in beliefs}, programs()
            near = [source for key, source in known.items() if key in keys or key not in MISCONCEPTIONS]
            found.append(Prediction(marks, beliefs, separating=worlds.separating(near, beliefs), until=until))
    return tuple(found)


def _reasons(program: str, held: list[Misconception], predictions: dict[str, Outcome]) -> tuple[Reason, ...]:
    """Return the facts whose loss changes the ending, and as many true but idle facts as fit; none when nothing is decided."""
    deciding = [Reason(MISCONCEPTIONS[key].fact, right=True) for key in predictions][: MOST_REASONS - 1]
    near = sorted((m for m in held if m.key not in predictions), key=lambda m: (-_nearness(m, program), _shuffled(program, m.fact.en)))
    idle = [Reason(m.fact, right=False) for m in near]
    chosen = deciding + idle[: MOST_REASONS - len(deciding)]
    return tuple(sorted(chosen, key=lambda r: _shuffled(program, r.text.en))) if deciding else ()


def _nearness(belief: Misconception, program: str) -> int:
    """Return how many operations a program has in common with the one that refutes a belief: its fact then sounds to the point."""
    calls, others = (set(re.findall(r"\.([a-z_]+)\b|(\+=|-=|\*=|\[)", text)) for text in (belief.check, program))
    return len(calls & others)


def _shuffled(program: str, text: str) -> str:
    """Return a sort key that looks random and is the same in every session."""
    return hashlib.sha256(f"{program}\0{text}".encode()).hexdigest()
