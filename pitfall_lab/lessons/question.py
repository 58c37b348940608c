"""A question about a program: what happens, and because of which fact. Every answer is computed, none is keyed by hand.
:func:`pose` returns the :class:`Question`.

The right answer is what the real torch does. The wrong ones are the results of a mistake about this very program
(:mod:`~pitfall_lab.lessons.mistakes`): a belief, something overlooked, both. A reason is a fact about this program
(:mod:`~pitfall_lab.lessons.program_facts`): the right one holds on torch, and in the world of a mistake it does not;
the wrong ones do not hold on torch. Or a lesson offers sentences of its own, of which one is true
(:mod:`~pitfall_lab.lessons.offered`). Which wrong answers are offered is chosen so that nothing but the program tells
the right one (:mod:`~pitfall_lab.lessons.balance`).

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
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pitfall_lab import shadow
from pitfall_lab.lessons import balance, worlds
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception
from pitfall_lab.lessons.mistakes import Mistake, Slip, Taken, misread, single, slips, together
from pitfall_lab.lessons.offered import Offered, in_world, stated
from pitfall_lab.lessons.reasons import Reason, reasons
from pitfall_lab.lessons.run_here import ProgramRan, execute, failing_line
from pitfall_lab.lessons.separation import programs
from pitfall_lab.lessons.worlds import say
from pitfall_lab.trace import T

Kind = Literal["value", "shape", "gradient", "version", "line", "changes"]
KINDS: tuple[Kind, ...] = ("value", "shape", "gradient", "version", "line", "changes")
MOST_CHOICES = 4
ENOUGH_NATURAL = 2
"""So many natural mistakes make a question, without a refusal or a slip beside them."""
MOST_CELLS = 24
ENOUGH = 6
"""From this number of different wrong endings on, no further mistakes are tried."""
MOST_CAME = 4
MOST_LETTERS = 60
A = TypeVar("A")
_EXPRESSIONS: dict[Kind, str] = {
    "value": "{0}",
    "shape": "tuple({0}.shape)",
    "gradient": "None if {0}.grad is None else tuple({0}.grad.shape)",
    "version": "{0}._version",
}
_REFUSED: dict[str, T] = {
    "backward": T(
        en="backward() refuses to start from several numbers that have no weights, or from a tensor that does not "
        "require grad. On its way it stops where an earlier backward has freed what a node needs, or where a tensor "
        "was written after a node had saved it. None of this is the case here.",
        zh="从没有给出权重的多个数、或从不需要梯度的张量开始，backward() 会拒绝。途中，若节点所需的内容已被先前的 "
        "backward 释放，或者某个张量在被节点保存之后又被写入，它会停下。执行到这一行时都不是这样。",
    ),
    "step": T(
        en="step() moves each weight by what is in its .grad, and leaves out a weight that has none. It writes under "
        "no_grad(), where a leaf may be written.",
        zh="step() 按 .grad 里的内容移动每个权重，没有 .grad 的权重就跳过。它在 no_grad() 下写入，"
        "那里允许写入叶子张量。",
    ),
    "view": T(
        en="view() refuses where no strides lead through the cells in the new order. Here there are such strides.",
        zh="没有步长能按新的顺序走过这些单元时，view() 会拒绝。这里有这样的步长。",
    ),
    "item": T(
        en="item() refuses a tensor of more than one number. This one has one.",
        zh="对多于一个数的张量，item() 会拒绝。这个张量只有一个数。",
    ),
    "requires_grad_": T(
        en="requires_grad_(False) refuses a result in the graph. Here it is called for leaves.",
        zh="对计算图中的结果，requires_grad_(False) 会拒绝。这里是对叶子张量调用的。",
    ),
    "write": T(
        en="torch refuses a write into a leaf that requires grad, or into a view of one, while it records. It also "
        "refuses numbers whose shape does not fit, and arithmetic in place whose result is of a type that does not "
        "fit. None of this is the case here.",
        zh="在记录期间，torch 拒绝写入需要梯度的叶子张量或它的视图；形状不合的数，以及结果类型不合的就地算术，"
        "它也拒绝。执行到这一行时都不是这样。",
    ),
    "plain write": T(
        en="torch refuses to write numbers whose shape does not fit the place. It also refuses arithmetic in place "
        "whose result is of a type that does not fit, and most writes into a tensor of which several elements are one "
        "cell, as `expand` makes them. None of this is the case here.",
        zh="形状与所写之处不合的数，torch 拒绝写入；结果类型不合的就地算术，以及对有几个元素共用一个单元的张量"
        "（如 `expand` 所得的）的大多数写入，它也拒绝。这里都不是这样。",
    ),
    "arithmetic": T(
        en="torch refuses an operation whose shapes or types do not go together. These do.",
        zh="形状或类型不相配的运算，torch 会拒绝。这里它们相配。",
    ),
}
"""What torch would refuse, by the kind of operation, and that it does not here."""
_RECORDED = ("requires_grad", "backward", "nn.", "autograd")
"""What a program with a gradient has in its text: of one without, nothing is said of leaves and of recording."""
_WITHOUT = {"grad": "None", "requires_grad": "False"}
"""What torch gives for an attribute that is not among the values of a tensor."""
_LABELS: dict[Kind, str] = {
    "value": "{0}",
    "shape": "{0}.shape",
    "gradient": "{0}.grad.shape",
    "version": "{0}._version",
}


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ends.

    ``value`` is the value in question, as text; or ``error`` is the type of the exception that ended it, and ``line``
    the line that raised (empty and None if none did).
    """

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
class Choice:
    """One answer to choose.

    ``right``: torch does what it says. ``beliefs`` are the misconceptions that predict it. ``line`` is the number of
    the line of code that it is (None: it is no line). ``without`` is the slip that leads to it, or why torch does not
    refuse the line (None: neither). ``both``: only the beliefs together with the slip, or several beliefs together,
    lead to it. ``way`` is the mistake that leads to it (None: single beliefs do).
    """

    text: T
    right: bool
    beliefs: tuple[Misconception, ...] = ()
    line: int | None = None
    without: Slip | None = None
    both: bool = False
    way: Mistake | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A wrong answer, with what a learner who gives it believes or has overlooked.

    ``marks`` are the indices of its choices, ``beliefs`` the misconceptions that predict it, ``without`` what was
    overlooked or misread (None: nothing); ``both`` and ``way`` are as in :class:`Choice`. ``parting`` is the first
    difference between torch and the belief, if there is only one; ``separating`` is a program that distinguishes
    several beliefs (None: none is known). ``until`` is the first line at which torch does something else than was
    predicted (None: only the end shows it). ``against``: the right reason contradicts the mistake, so a learner who
    gives that reason has not made it, or does not see what follows from it. ``places`` is the answer to a learner who
    looked for the changed cells at the indices that they have in another tensor (None: that is not the mistake).
    """

    marks: frozenset[int]
    beliefs: tuple[Misconception, ...] = ()
    parting: worlds.Parting | None = None
    separating: str | None = None
    until: int | None = None
    without: Slip | None = None
    both: bool = False
    way: Mistake | None = None
    against: bool = False
    places: T | None = None


@dataclass(frozen=True, slots=True)
class StatementEffects:
    """What the statement that ends in ``line`` changed on the real torch.

    ``came`` has a sentence for each new value, at most ``MOST_CAME``, and then "…".
    """

    line: int
    came: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a program.

    ``ask`` is the expression in question and ``kind`` what is asked about it. ``choices`` are the answers in a fixed
    order, ``reasons`` likewise (empty: none are asked for); ``message`` is torch's error message (empty: none).
    ``predictions`` are the wrong answers with what leads to them. ``columns`` is the width of the grid when the choices
    are a tensor's cells, else 0. ``story`` is what each statement changes, which is shown after the answer.
    """

    program: str
    ask: str
    choices: tuple[Choice, ...]
    reasons: tuple[Reason, ...]
    message: str = ""
    kind: Kind = "value"
    predictions: tuple[Prediction, ...] = ()
    columns: int = 0
    story: tuple[StatementEffects, ...] = ()

    @property
    def answer(self) -> Choice:
        """The (first) choice that torch agrees with."""
        return next(c for c in self.choices if c.right)

    @property
    def key(self) -> str:
        """Return the question's key: it does not change unless the program, the kind or the expression does."""
        return key_of(self.kind, self.program, self.ask)


def key_of(kind: str, program: str, ask: str) -> str:
    """Return the key of the question of this kind about this program and expression (``ask``): eight hexadecimal
    digits.
    """
    program = program.strip("\n")
    return hashlib.sha256(f"{kind}\0{program}\0{ask}".encode()).hexdigest()[:8]


def pose(
    program: str,
    ask: str = "None",
    because: bool | Sequence[Offered] = True,
    beliefs: Iterable[str] | None = None,
    kind: Kind = "value",
    *,
    taken_for: Iterable[Taken] = (),
    draw: tuple[int, int] | None = None,
    learner: str = "",
) -> Question:
    """Compute a question: run ``program``, evaluate the expression ``ask``, and compute what each mistake predicts for
    it.

    ``because`` says whether to ask for the fact that decides the outcome; it may also be the reasons to choose from
    (:mod:`~pitfall_lab.lessons.offered`), if no fact that is known by itself decides. ``beliefs`` are the keys of the
    misconceptions that are used (None: all); the outcomes that they lead to are offered, as many as there is room for.
    ``taken_for`` are lines that many take for another: ``(6, "w.grad = g")`` is what line 6 is read as, and the outcome
    of that is offered next. The tuple may have two more sentences, in English and in Chinese: the answer to a learner
    who chooses that outcome, in place of "so it would be if line 6 were …". ``draw`` are the numbers by which outcomes
    and reasons are chosen (None: those of the course); each ``learner`` gets an order of their own.

    Raises ``SyntaxError`` for a program or expression that is not valid Python, ``KeyError`` for an unknown belief,
    ``ValueError`` for an unknown kind, for reasons of which not exactly one is true, and for a question about changes
    whose program raises or whose tensor has too many cells; and what the expression raises. All these are mistakes of
    the lesson.
    """
    program = program.strip("\n")  # so that lines count as the reader sees them
    compile(program, "<program>", "exec"), compile(ask, "<ask>", "eval")
    held = [MISCONCEPTIONS[key] for key in (MISCONCEPTIONS if beliefs is None else beliefs)]
    if kind not in KINDS:
        raise ValueError(f"there is no question of the kind {kind!r}; there are {', '.join(KINDS)}")
    numbers = draw or tuple(balance.draws().get(key_of(kind, program, ask), (0, 0)))
    what, why = (balance.Lots(f"{program}\0{number}", learner) for number in numbers)
    if kind == "changes":
        return _changes(program, ask, because, held, why, taken=list(misread(program, taken_for)))
    asked = ask if kind == "value" or ask.isidentifier() else f"({ask})"
    expression, label = (
        (_EXPRESSIONS[kind].format(asked), _LABELS[kind].format(asked)) if kind != "line" else ("None", "")
    )
    ran = execute(program, worlds.NAME)
    actual = _torch_outcome(ran, expression)
    endings = _mistaken(program, expression, actual, held, list(misread(program, taken_for)))
    if ran.error and kind != "line":  # what is so after the error, too, is offered only if a belief leads to it
        after = ProgramEnd(_asked_if_there(expression, ran.namespace))
        endings = {end: ways for end, ways in endings.items() if end != after or any(map(_believing, ways))}
    if kind == "line":
        choices = _lines(program, actual, endings, _refusals(program))
    else:
        near = _others(kind, actual, {} if ran.error else ran.namespace)
        near += _mixed(actual, endings) if len(endings) < MOST_CHOICES - 1 else []
        every = endings | {outcome: [] for outcome in near if outcome not in endings}
        wanted = [] if isinstance(because, bool) else _fit_no_other(program, because, endings, what)
        choices = _choices(label, actual, every, _refusals(program), what, wanted=wanted)
    message = str(ran.error) if ran.error else ""
    offered = {choice.text.en for choice in choices}
    made: tuple[list[list[Mistake]], list[list[Mistake]]] = ([], [])
    for outcome, ways in endings.items():
        made[kind != "line" and outcome.say(label).en not in offered].append(ways[:2])
    if isinstance(because, bool):
        found = reasons(program, ask, made[0], others=made[1], message=message, lots=why) if because else ()
    else:
        ways = [one for group in endings.values() for one in group]
        ways += single(program, [one for one in MISCONCEPTIONS.values() if one not in held])
        found = tuple(sorted(stated(program, because, ways), key=lambda reason: why.place(reason.text)))
    values = kind != "version" and "_version" not in program + ask
    wrong = _predictions(program, choices, values=values)
    predictions = tuple(replace(one, against=_against(program, one, found)) for one in wrong)
    return Question(program, ask, choices, found, message, kind, predictions, story=_story(program, ran))


def _against(program: str, one: Prediction, found: Sequence[Reason]) -> bool:
    """Whether the right reason is false under each mistake that explains this wrong answer.

    False if there is no right reason, or no mistake explains the answer.
    """
    right = next((reason for reason in found if reason.right), None)
    ways = [one.way] if one.way else [Mistake(program, (belief,)) for belief in one.beliefs]
    return right is not None and bool(ways) and not any(map(right.holds, ways))


def _fit_no_other(
    program: str, offered: Sequence[Offered], endings: dict[ProgramEnd, list[Mistake]], lots: balance.Lots
) -> list[ProgramEnd]:
    """The outcomes that must be offered so that each sentence of the lesson fits one of the answers.

    A learner who believes a sentence must find an answer that follows from it. Outcomes that natural mistakes lead to
    are offered anyway. Of the others only those count that come from overlooking an operation with a constant (``/
    2``); they are added in an order drawn by ``lots``, while they make more sentences fit.
    """

    def true(one: Mistake) -> set[int]:
        return {n for n, held in in_world(one, tuple(offered)).items() if held}

    def fits(outcome: ProgramEnd) -> set[int]:
        return {n for one in endings[outcome][:2] if _overlooks_number(one) for n in true(one)}

    natural = [outcome for outcome, ways in endings.items() if any(map(_natural, ways))]
    covered = {*true(Mistake(program)), *(n for outcome in natural for one in endings[outcome][:2] for n in true(one))}
    found = []
    for outcome in sorted(endings, key=lambda one: lots.number("fits", one.value)):
        if not outcome.error and (more := fits(outcome) - covered):
            found.append(outcome)
            covered |= more
    return found


def _overlooks_number(one: Mistake) -> bool:
    return one.slip is not None and bool(one.slip.call) and not one.slip.call.startswith(".") and not one.beliefs


def _predictions(program: str, choices: tuple[Choice, ...], *, values: bool) -> tuple[Prediction, ...]:
    """The wrong answers, each with the mistakes that lead to it.

    ``values``: the line at which a belief's run differs from torch's is looked for in values, not in version counters.
    """
    believed = [(frozenset({n}), c.beliefs) for n, c in enumerate(choices) if c.beliefs and not c.both]
    fitting = _fitting(program, believed, values=values)
    missed = [(n, c) for n, c in enumerate(choices) if c.both or (c.without and not c.beliefs)]
    slipped = [
        Prediction(
            frozenset({n}),
            c.beliefs,
            until=c.without.line if c.without else None,
            without=c.without,
            both=c.both,
            way=c.way,
        )
        for n, c in missed
    ]
    return (*fitting, *slipped)


def _torch_outcome(ran: ProgramRan, expression: str) -> ProgramEnd:
    """How the program ended on the real torch: the value of the expression, or the error."""
    if ran.error:
        return ProgramEnd(error=type(ran.error).__name__, line=ran.line)
    return ProgramEnd(value=_asked(expression, ran.namespace))


def _asked(expression: str, names: dict[str, Any]) -> str:
    """Return the value of the expression as text, without the warning that torch gives when
    ``.grad`` of a non-leaf is read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return say(eval(expression, names))  # noqa: S307 - the lesson's own expression


def _asked_if_there(expression: str, names: dict[str, Any]) -> str:
    """The value of the expression as text; "" if it raises, since the program ended too early for it."""
    try:
        return _asked(expression, names)
    except Exception:
        return ""


def _story(program: str, ran: ProgramRan) -> tuple[StatementEffects, ...]:
    """Return for each statement what it changed on real torch: the values that are new or
    differ from those before it.
    """
    steps, before = [], dict[str, str]()
    idle = {node.end_lineno for node in ast.parse(program).body if isinstance(node, (ast.Import, ast.ImportFrom))}
    for line, state in worlds.real_unfolded(program, ran):
        if line in idle:
            continue
        came = [_came(what, value, before) for what, value in state.items() if before.get(what) != value]
        said = [*filter(None, came), *_gone(before, state)]
        more = [T(en="…", zh="…")] if len(said) > MOST_CAME else []
        steps.append(StatementEffects(line, (*said[:MOST_CAME], *more)))
        before = state
    return tuple(steps)


def _came(what: str, value: str, before: dict[str, str]) -> T | None:
    """Return a sentence about one value that a statement changed; None for a value that every new tensor has."""
    if what == worlds.RAISED:
        return T(en=f"raises {value}", zh=f"抛出 {value}")
    if what == worlds.PRINTED:
        value = value.removeprefix(before.get(what, "")).strip("\n")
        return T(en=f"prints {_short(value)}", zh=f"输出 {_short(value)}")
    new = what.rpartition(".")[0] not in before
    if new and (what.endswith(".requires_grad") or (what.endswith("._version") and value == "0")):
        return None
    return T(en=f"{what} = {_short(value)}", zh=f"{what} = {_short(value)}")


def _gone(before: dict[str, str], state: dict[str, str]) -> Iterator[T]:
    """Yield a sentence for each ``.grad`` that a tensor has no more, and for each tensor that no longer
    requires grad.
    """
    for what in [what for what in before if what not in state]:
        name, _, part = what.rpartition(".")
        if part in _WITHOUT and f"{name}._version" in state:
            yield T(en=f"{what} = {_WITHOUT[part]}", zh=f"{what} = {_WITHOUT[part]}")


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 2] + " …"


def _shadow_outcome(program: str, expression: str, policy: shadow.Policy) -> ProgramEnd | None:
    """How the program ends on the shadow engine under ``policy``; None if the engine has no model of something in it.

    If the program finishes and the expression raises, that error is the end.
    """
    ran = worlds.run(program, policy)
    if ran is None:
        return None
    names, error, _ = ran
    if error is None:
        try:
            return ProgramEnd(value=_asked(expression, names))
        except Exception as raised:
            error = raised
    return ProgramEnd(error=type(error).__name__, line=failing_line(error, worlds.NAME))


def _endings(look: Callable[[Mistake], A | None], actual: A, *stages: Iterable[Mistake]) -> dict[A, list[Mistake]]:
    """The wrong endings of a program, each with the mistakes that lead to it.

    ``look`` returns how the program ends under a mistake (None: unknown). All of the first stage are tried; mistakes of
    later stages only until ``ENOUGH`` endings are found, and only for endings that are new.
    """
    found: dict[A, list[Mistake]] = {}
    for number, stage in enumerate(stages):
        for one in stage:
            if number and len(found) >= ENOUGH:
                break
            outcome = look(one)
            if outcome is not None and outcome != actual and (not number or outcome not in found):
                found.setdefault(outcome, []).append(one)
    return found


def _believed(
    look: Callable[[Mistake], A | None], actual: A, program: str, held: list[Misconception]
) -> dict[A, list[Mistake]]:
    """How the program ends under single misconceptions, each ending with the misconceptions that lead to it.

    Empty unless the engine under torch's rules ends as torch did: otherwise the belief would not be the cause of a
    difference.
    """
    return _endings(look, actual, single(program, held)) if look(Mistake(program)) == actual else {}


def _mistaken(
    program: str, expression: str, actual: ProgramEnd, held: list[Misconception], taken: list[Mistake]
) -> dict[ProgramEnd, list[Mistake]]:
    """How the program ends for learners who make a mistake, in the order in which the endings are to be offered.

    First come endings under a belief, then those of taking a line for another one, then those of a slip, then those of
    two mistakes. Empty if the engine under torch's rules does not end as torch did.
    """

    def look(one: Mistake) -> ProgramEnd | None:
        outcome = _shadow_outcome(one.program, expression, one.policy)
        # An error in no line is one of the lesson's own expression, and where something is overlooked an
        # error is what no one expects.
        overlooked = one.slip is not None and not one.slip.taken_for
        return None if outcome is None or (outcome.error and (outcome.line is None or overlooked)) else outcome

    believed = _believed(look, actual, program, held)
    if look(Mistake(program)) != actual:
        return {}
    missed = list(slips(program))
    firsts = [found[0] for found in believed.values()]
    more = (
        _endings(look, actual, (), missed, itertools.islice(together(firsts[:3], missed[:4]), 12))
        if len(believed) < ENOUGH
        else {}
    )
    found: dict[ProgramEnd, list[Mistake]] = {}
    for ways in (believed, _endings(look, actual, taken), more):
        found |= {outcome: mistakes for outcome, mistakes in ways.items() if outcome not in found}
    return found


def _choices(
    label: str,
    actual: ProgramEnd,
    endings: dict[ProgramEnd, list[Mistake]],
    refusals: dict[ProgramEnd, Slip],
    lots: balance.Lots,
    *,
    wanted: Sequence[ProgramEnd] = (),
) -> tuple[Choice, ...]:
    """The answers to choose from: torch's outcome and up to three wrong ones.

    First come outcomes of natural mistakes and the ``wanted`` ones, then one in which torch refuses a line, then
    outcomes of slips. Unless natural mistakes fill all places, an error is offered also for a program that does not
    raise. For some questions, drawn by ``lots``, natural outcomes are not filled up with others, so that an offered
    error does not show that none is raised.
    """
    places = MOST_CHOICES - 1
    natural = [outcome for outcome, mistakes in endings.items() if any(map(_natural, mistakes))]
    natural += [outcome for outcome in wanted if outcome not in natural][: max(0, places - len(natural))]
    believed = [outcome for outcome in natural if any(map(_believing, endings[outcome]))]

    def drawn(of: list[ProgramEnd], count: int, must: int = 0) -> list[ProgramEnd]:
        chosen = lots.pick(actual.say(label).en, [one.say(label).en for one in of], count, must=must)
        return [of[n] for n in chosen]

    if len(natural) > places:
        wrong = drawn([*believed, *(one for one in natural if one not in believed)], places, min(len(believed), places))
    else:
        errors = dict.fromkeys(
            outcome for outcome in (*endings, *refusals) if outcome.error and outcome not in (actual, *natural)
        )
        if len(natural) >= ENOUGH_NATURAL and lots.number(actual.value, "few") % 3 == 0:
            places = len(natural)
        raising = 0 if actual.error or any(outcome.error for outcome in natural) else 1
        wrong = [*natural, *list(errors)[:raising]][:places]
        values = [outcome for outcome in endings if not outcome.error and outcome not in natural]
        wrong = drawn([*wrong, *values], places, len(wrong))
        wrong += [outcome for outcome in errors if outcome not in wrong][: places - len(wrong)]
    choices = [
        Choice(actual.say(label), right=True),
        *(
            _choice(outcome.say(label), endings.get(outcome, []), _unfounded(refusals, outcome, actual))
            for outcome in wrong
        ),
    ]
    return tuple(sorted(choices, key=lambda choice: lots.place(choice.text)))


def _natural(one: Mistake) -> bool:
    """Whether a mistake is a single belief, or is reading a line as another line that the lesson names."""
    return _believing(one) or bool(one.slip and one.slip.taken_for)


def _believing(one: Mistake) -> bool:
    """Whether a mistake is a single belief."""
    return len(one.beliefs) == 1 and not one.slip


def _unfounded(refusals: dict[ProgramEnd, Slip], outcome: ProgramEnd, actual: ProgramEnd) -> Slip | None:
    """The slip with the answer to a learner who expects torch to refuse a line; None if ``outcome`` is no such
    refusal.
    """
    slip = refusals.get(outcome)
    if slip is None or not actual.error or actual.line is None or actual.line >= slip.line:
        return slip
    sooner = T(
        en=f"The program does not come as far as line {slip.line}: line {actual.line} raises before it.",
        zh=f"程序到不了第 {slip.line} 行：第 {actual.line} 行先抛出了错误。",
    )
    return Slip(slip.line, said=sooner)


def _choice(text: T, mistakes: list[Mistake], refused: Slip | None) -> Choice:
    """A wrong answer with what leads to it.

    That is each single belief that predicts it; if there is none, the first mistake; if there is no mistake at all, the
    expectation that torch refuses the line (``refused``).
    """
    alone = tuple(one.beliefs[0] for one in mistakes if _believing(one))
    if alone or not mistakes:
        return Choice(text, right=False, beliefs=alone, without=None if alone else refused)
    first = mistakes[0]
    return Choice(text, right=False, beliefs=first.beliefs, without=first.slip, both=bool(first.beliefs), way=first)


def _refusals(program: str) -> dict[ProgramEnd, Slip]:
    """Lines at which a learner could expect torch to refuse, the last line first, each with the answer to that.

    They are in-place writes, ``backward``, ``step``, views and the like; only if there are none, arithmetic without
    constants.
    """
    lines, arithmetic = dict[int, str](), dict[int, str]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        ):
            lines.setdefault(node.lineno, "write")
        if isinstance(node, ast.BinOp) and not any(isinstance(side, ast.Constant) for side in (node.left, node.right)):
            arithmetic[node.lineno] = "arithmetic"  # shapes or types need not fit
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _REFUSED:
                lines[node.lineno] = name
            elif name.endswith("_") and not name.startswith("_"):
                lines.setdefault(node.lineno, "write")
    found = lines or arithmetic
    if not any(word in program for word in _RECORDED):
        found = {line: "plain write" if kind == "write" else kind for line, kind in found.items()}
    return {
        ProgramEnd(error="RuntimeError", line=line): Slip(line, said=_REFUSED[found[line]])
        for line in sorted(found, reverse=True)
    }


def _mixed(actual: ProgramEnd, endings: Iterable[ProgramEnd]) -> list[ProgramEnd]:
    """Return further wrong answers for a tuple: combinations of the elements of the other
    answers, if no mistake gives them.
    """
    parts = [_parts(outcome.value) for outcome in (actual, *endings) if not outcome.error]
    if not parts or len(parts[0]) < 2:
        return []
    columns = [
        list(dict.fromkeys(column)) for column in zip(*(one for one in parts if len(one) == len(parts[0])), strict=True)
    ]
    known = {actual.value, *(outcome.value for outcome in endings)}
    mixed = (f"({', '.join(way)})" for way in itertools.product(*columns))
    return [ProgramEnd(value) for value in itertools.islice((value for value in mixed if value not in known), ENOUGH)]


def _parts(value: str) -> list[str]:
    """The elements of a tuple's text, each as text; empty if the text is no tuple."""
    tree = ast.parse(value, mode="eval").body if value.startswith("(") else None
    return [ast.get_source_segment(value, part) or "" for part in tree.elts] if isinstance(tree, ast.Tuple) else []


def _others(kind: Kind, actual: ProgramEnd, names: dict[str, Any]) -> list[ProgramEnd]:
    """Further wrong answers close to the right one: shapes of the program's tensors, or version numbers near the right
    one.

    Empty for questions about a value, and for a program that raises.
    """
    if actual.error or kind == "value":
        return []
    if kind == "version":
        version = int(actual.value)
        found = [str(n) for n in (version + 1, version - 1, version + 2) if n >= 0]
    else:
        shapes = {
            tuple(value.shape) for name, value in names.items() if hasattr(value, "shape") and not name.startswith("__")
        }
        ordered = sorted(
            shapes | ({()} if kind == "gradient" else set()), key=lambda shape: (len(shape), shape), reverse=True
        )
        found = [*(["None"] if kind == "gradient" else []), *map(say, ordered)]
    return [ProgramEnd(value) for value in found if value != actual.value]


def _lines(
    program: str, actual: ProgramEnd, endings: dict[ProgramEnd, list[Mistake]], refusals: dict[ProgramEnd, Slip]
) -> tuple[Choice, ...]:
    """The program's lines as choices, each with the mistakes by which it would fail, and a last choice that no line
    fails.
    """
    beliefs: dict[int | None, list[Misconception]] = {}
    for outcome, mistakes in endings.items():
        alone = [one.beliefs[0] for one in mistakes if one.beliefs and not one.slip]
        beliefs.setdefault(outcome.line if outcome.error else None, []).extend(alone)
    lines = program.splitlines()
    starts = {node.lineno for node in ast.walk(ast.parse(program)) if isinstance(node, ast.stmt)}
    refused = {slip.line: _unfounded(refusals, end, actual) for end, slip in refusals.items()}
    choices = [
        Choice(
            T(en=f"line {n}", zh=f"第 {n} 行"),
            n == actual.line,
            tuple(beliefs.get(n, ())),
            n,
            None if n == actual.line or beliefs.get(n) else refused.get(n),
        )
        for n in range(1, len(lines) + 1)
        if n in starts
    ]
    taken = {end.line: ways[0] for end, ways in endings.items() if end.error and ways[0].slip}
    choices = [
        one
        if one.right or one.beliefs or one.line not in taken
        else replace(one, without=taken[one.line].slip, way=taken[one.line])
        for one in choices
    ]
    none = T(en="no line fails", zh="没有哪一行失败")
    return (*choices, Choice(none, not actual.error, tuple(beliefs.get(None, ()))))


# ---------------------------------------------------------------- which of these change


def _changes(
    program: str,
    ask: str,
    because: bool | Sequence[Offered],
    held: list[Misconception],
    lots: balance.Lots,
    *,
    taken: list[Mistake],
) -> Question:
    """Compute a question about what the last statement changes; arguments are as for :func:`pose`, ``taken`` misread
    lines.

    Raises ``ValueError`` if the program raises or the tensor has too many cells.
    """
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

    def look(one: Mistake) -> frozenset[int] | None:
        start = "\n".join(one.program.splitlines()[: last.lineno - 1])
        ways = [worlds.run(part, one.policy) for part in (start, one.program)]
        if any(way is None or way[1] is not None for way in ways):
            return None
        try:
            values = [[say(eval(cell, way[0])) for cell in cells] for way in ways if way]  # noqa: S307 - as above
        except Exception:  # this world has no such cell
            return None
        return frozenset(n for n in range(len(cells)) if values[0][n] != values[1][n])

    believed = _believed(look, actual, program, held)
    # a slip counts only where the engine under torch's own rules ends as torch did, as a belief does
    slipped = _endings(look, actual, taken) if look(Mistake(program)) == actual else {}
    nothing = len(cells)
    choices = [
        Choice(T(en=f"{c} (now {v})", zh=f"{c}（现在是 {v}）"), n in actual)
        for n, (c, v) in enumerate(zip(cells, first, strict=True))
    ]
    choices.append(Choice(T(en="none of them", zh="都不变"), not actual))
    fitting = _fitting(
        program,
        [(marks or frozenset({nothing}), tuple(one.beliefs[0] for one in way)) for marks, way in believed.items()],
    )
    fitting += tuple(
        Prediction(marks or frozenset({nothing}), until=way[0].slip.line if way[0].slip else None, without=way[0].slip)
        for marks, way in slipped.items()
        if marks not in believed
    )
    if isinstance(because, bool):
        made = list(believed.values())
        why = reasons(program, ask, made, others=[], message="", lots=lots) if because else ()
    else:
        ways = [one for group in (*believed.values(), *slipped.values()) for one in group]
        ways += single(program, [one for one in MISCONCEPTIONS.values() if one not in held])
        why = tuple(sorted(stated(program, because, ways), key=lambda reason: lots.place(reason.text)))
    known = {actual or frozenset({nothing}), *(one.marks for one in fitting)}
    misplaced = _misplaced(names[0], ran.namespace, after.namespace) if columns else {}
    places = [Prediction(marks, places=said) for marks, said in misplaced.items() if marks not in known]
    fitting = tuple(replace(one, against=_against(program, one, why)) for one in fitting)
    return Question(
        program, ask, tuple(choices), why, "", "changes", (*fitting, *places), columns, _story(program, after)
    )


def _misplaced(name: str, before: dict[str, Any], after: dict[str, Any]) -> dict[frozenset[int], T]:
    """Sets of cells that a learner may take for the changed ones, each with the answer to that.

    The learner looks at the indices that the changed cells have in another tensor on the same memory with other
    strides: the same row or column, the same index, or the same position when it is read row by row.
    """
    own, shape = after[name], tuple(after[name].shape)
    number = {index: n for n, index in enumerate(itertools.product(*map(range, shape)))}
    changed = _changed(own, before[name])
    found: dict[frozenset[int], T] = {}
    for other, tensor in after.items():
        there = before.get(other)
        if (
            other == name
            or other.startswith("__")
            or not hasattr(tensor, "untyped_storage")
            or tensor.untyped_storage().data_ptr() != own.untyped_storage().data_ptr()
            or tuple(getattr(there, "shape", ())) != tuple(tensor.shape)
            or tensor.stride() == own.stride()
        ):
            continue
        places = _changed(tensor, there)
        if not places or len(places) == tensor.numel():  # all of it changes: no place is taken for another
            continue
        order = list(itertools.product(*map(range, tensor.shape)))
        alike = [
            *_lines_of(places, tuple(tensor.shape), shape),
            {place for place in places if place in number},
            {index for index, n in number.items() if n < len(order) and order[n] in places},
        ]
        for cells in alike:
            if cells and cells != changed:
                found.setdefault(frozenset(number[cell] for cell in cells), _elsewhere(name, other, places, changed))
    return found


def _changed(tensor: Any, before: Any) -> set[tuple[int, ...]]:
    """Return the indices at which a tensor has another value than before."""
    return {tuple(index) for index in (tensor != before).nonzero().tolist()}


def _lines_of(
    places: set[tuple[int, ...]], there: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[set[tuple[int, ...]]]:
    """Yield the rows or columns of a tensor of ``shape`` that have the same number as the row or column ``places``.

    ``places`` are indices of a tensor of the shape ``there``; nothing is yielded if they are no whole row or column of
    it.
    """
    for dim in range(len(there)):
        numbers = {place[dim] for place in places}
        if len(numbers) == 1 and len(places) * there[dim] == math.prod(there) and len(there) == len(shape):
            yield {index for index in itertools.product(*map(range, shape)) if index[dim] in numbers}


def _elsewhere(name: str, other: str, places: set[tuple[int, ...]], changed: set[tuple[int, ...]]) -> T:
    """The answer to a learner who takes the indices of the changed cells in ``other`` for those in the tensor
    ``name``.
    """

    def listed(of: str, cells: set[tuple[int, ...]], joint: str) -> str:
        return joint.join(f"`{of}[{', '.join(map(str, cell))}]`" for cell in sorted(cells))

    return T(
        en=f"In `{other}` the statement changes {listed(other, places, ', ')}. `{name}` reads the same memory with "
        f"other strides: these cells are {listed(name, changed, ', ')} there.",
        zh=f"在 `{other}` 中，这条语句改变的是 {listed(other, places, '、')}。`{name}` 以另外的步长读同一块内存："
        f"在那里，这些单元是 {listed(name, changed, '、')}。",
    )


def _cells(names: list[str], namespace: dict[str, Any]) -> tuple[list[str], int]:
    """The expressions that may change, and the number of columns of their grid.

    For several names these are the names, and 0; for one tensor its cells. Raises ``ValueError`` for a tensor with no
    dimensions, or with too many cells.
    """
    if len(names) > 1:
        return names, 0
    shape = tuple(eval(names[0], namespace).shape)  # noqa: S307 - the lesson's own expression
    cells = [f"{names[0]}[{', '.join(map(str, index))}]" for index in itertools.product(*map(range, shape))]
    if not 1 <= len(cells) <= MOST_CELLS or not shape:
        raise ValueError(f"a question about cells needs a tensor of 1 to {MOST_CELLS} of them, not {len(cells)}")
    return cells, shape[-1]


# ---------------------------------------------------------------- beliefs and facts


def _fitting(
    program: str, wrong: Iterable[tuple[frozenset[int], tuple[Misconception, ...]]], *, values: bool = True
) -> tuple[Prediction, ...]:
    """The wrong answers that misconceptions predict, with what is shown to a learner who chooses one.

    With ``values``, the first line at which two runs differ in a value is taken, not one at which only a version
    counter does.
    """
    found = []
    for marks, beliefs in wrong:
        partings = [worlds.parting(program, belief, values=values) for belief in beliefs]
        until = min((parting.line for parting in partings if parting), default=None)
        if len(beliefs) == 1:
            found.append(Prediction(marks, beliefs, parting=partings[0], until=until))
        else:
            keys, known = {m.key for m in beliefs}, programs()
            near = [source for key, source in known.items() if key in keys or key not in MISCONCEPTIONS]
            found.append(Prediction(marks, beliefs, separating=worlds.separating(near, beliefs), until=until))
    return tuple(found)
