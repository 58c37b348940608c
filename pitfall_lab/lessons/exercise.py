r"""Exercises: what a learner's cell must do, and what decides whether it does. :func:`grade` says it of a cell.

How to write one
    The exercises of a chapter are in one file, ``exercises/c05_copies_and_views.py``, as ``EXERCISES = (Exercise(...),
    ...)``; being there is enough. In the notebook the cell is ``%%exercise 5.1`` and below it the text of ``given``,
    with the tag ``exercise``. Grading runs the cell in a namespace of its own, where ``torch``, ``nn``, ``F`` and
    ``np`` are imported, then ``inputs`` (which make what the cell is tried on, from a seed that changes), then
    ``drive`` (which uses what the cell defines)::

        Exercise(
            key="5.1",
            kind="repair",
            title=T(en="A function that keeps its argument", zh="不改动参数的函数"),
            task=T(en="`standardise` also changes the batch it was given. Repair it.", zh="……"),
            given="def standardise(batch):\n    batch -= batch.mean()\n    return batch / batch.std()\n",
            inputs="batch = torch.randn(6) * 3 + 1",
            drive="result = standardise(batch)",
            properties=(
                Property(T(en="the result is right", zh="结果正确"), as_solved("result")),
                Property(T(en="the argument is unchanged", zh="参数没有改变"), unchanged("batch")),
                Property(
                    T(en="a slice leaves its base unchanged", zh="……"),
                    unchanged("batch", inputs="batch = torch.randn(9)[2:6]"),
                ),
            ),
            hint_for=(0, 1, 2),  # the hint that helps where a property fails comes first
            hints=(T(...), T(...), T(...)),
            # at least two right ones, different, and two wrong ones: constant, hard-coded, half done
            right=("def standardise(batch):\n    return (batch - batch.mean()) / batch.std()\n", ...),
            wrong=("def standardise(batch):\n    return torch.zeros(6)\n", ...),
        )

    Tests hold every exercise to this: ``given`` and each of ``wrong`` fail, each of ``right`` passes, there are three
    hints, everything is there in both languages, and the notebook's cell is ``given``.

What decides
    A property's check gets an :class:`Attempt` and returns ``True``, ``False``, or a :class:`T` that says why not. It
    sees nothing of the learner's objects but what expressions evaluate to, as plain data (tensors come as arrays), so
    the answers are data, and the cell can run in another process. Ready-made checks; ``inputs=``, ``drive=`` replace
    the exercise's own, ``seeds=`` are the random inputs:

    - ``as_solved("result", "w.grad")``: the expressions are, on random inputs, what they are with the first right
      solution in its place;
    - ``equal("belief['a']", "kind(a)")``: two expressions are alike (``tell=False``: the reason does not give the
      answer away);
    - ``chosen("answer", "copy", reason)``: a text is this one of several; capitals and space do not matter;
    - ``true("loss.ndim == 0", reason)``: an expression is true;
    - ``gradient_as_solved("w", "x")``: backward runs, and these leaves have the gradients that they have with the
      solution;
    - ``runs()``: nothing is raised;
    - ``fails("saved-tensor-modified")``: it raises, and this is the kind (:class:`pitfall_lab.trace.Failure`), the
      exception's type, or torch's function that raised it (``fails("backward")``); with ``inputs`` or ``drive`` of its
      own: there, and not in the exercise's own run;
    - ``surprises("detach_copies")``: torch raises where that misconception predicts no error;
    - ``finds("loss-broadcast")``: a rule finds its pitfall (name or code);
    - ``finds_nothing("PL101", ...)``: none of these rules does (without arguments: no rule of severity error or
      warning);
    - ``shared("a", "b")``: two tensors share memory; ``not_shared("a", "b")``: they do not;
    - ``unchanged("batch")``: what ``inputs`` made under this name, and all of its storage, is as it was before
      ``drive``;
    - ``in_place("t")``: it is the same object on the same memory, with other values;
    - ``storages(1, elements=2)``: while driven, at most one storage with two or more elements was made;
    - ``as_many_calls(inputs)``: these larger ``inputs`` take no more calls of torch and lines of the cell than the
      exercise's own;
    - ``every(as_solved("a"), runs())``: all of these checks hold;
    - ``no_optimizer()``: no optimizer of torch takes a step;
    - ``updated_once("model.weight", 3)``: the parameter was written once in each of three steps (``None``: all
      parameters).

    In expressions ``shares(a, b)``, ``memory(t)``, ``before["x"].value`` (a copy of what ``inputs`` made),
    ``unchanged("x")`` and ``in_place("x")`` are available, and everything that setup, cell, inputs and drive define.

    A check of your own works in the same way: ``attempt.value("w.grad", seed=1)``, ``attempt.call("standardise",
    "torch.randn(4)")``, ``attempt.error()``, ``attempt.trace()``, ``attempt.findings()``, ``attempt.solution`` (the
    same of the first right solution). It must be a pure function of what it gets: it is called again when an answer
    has arrived.
"""

# ruff: noqa: PLC0415 - few exercises ask for findings: the rules are imported by those

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pitfall_lab.lessons import boxes, demonstrations
from pitfall_lab.lessons.attempt import AS_TORCH, NAME, UNMODELLED, Observation, Opaque, Problem, Request, observe
from pitfall_lab.trace import Language, Note, T, Trace
from pitfall_lab.trace.replay import states

SEEDS = (0, 1, 2)
"""Seeds of random inputs.

A check that runs the cell once takes the first; :func:`as_solved` compares values at all of them.
"""

Kind = Literal["repair", "predict", "write", "make-it-fail", "find-and-fix"]
Check = Callable[["Attempt"], "bool | T"]
Runner = Callable[[Sequence[Request]], Sequence[Observation]]


@dataclass(frozen=True, slots=True)
class Property:
    """One thing that a solution must do: ``sentence`` says it; ``check`` is called with an :class:`Attempt` and returns
    True, False, or the reason why it does not hold.
    """

    sentence: T
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """An exercise; how to write one is in the docstring of this module.

    ``key`` is ``"chapter.number"``, ``kind`` what is to be done, ``task`` what the learner reads, ``given`` the cell as
    it is handed out. ``properties`` decide whether an answer is right, in their order; ``hints`` are given one after
    the other. ``right`` and ``wrong`` are answers (cells) that must pass and must fail. ``setup`` is run before the
    cell, ``inputs`` and then ``drive`` after it (empty: nothing).
    """

    key: str
    kind: Kind
    title: T
    task: T
    given: str
    properties: tuple[Property, ...]
    hints: tuple[T, T, T]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    setup: str = ""
    inputs: str = ""
    drive: str = ""
    hint_for: tuple[int, ...] = ()
    """For each property the number (from 1) of the hint that helps where it fails; 0 where none does in particular."""

    @property
    def chapter(self) -> str:
        """Return the number of the exercise's chapter, as two digits."""
        return self.key.partition(".")[0].zfill(2)

    @property
    def demonstrated(self) -> tuple[str, ...]:
        """The names of the functions that must fail; empty unless the kind is ``"make-it-fail"``.

        Calls of these functions that the learner adds below the answer are left out.
        """
        return demonstrations.defined(self.given) if self.kind == "make-it-fail" else ()


class _Missing(BaseException):  # no Exception: a check's own `except` must not swallow it
    """Raised when a check asks for a run that has not been made yet."""


@dataclass(slots=True)
class _Wishes:
    """The runs that checks asked for, and their observations.

    Requests that differ only in their expressions are one run. ``wanted`` are runs that have still to be made.
    """

    seen: dict[Request, Observation] = field(default_factory=dict)
    wanted: dict[Request, dict[str, None]] = field(default_factory=dict)

    def ask(self, run: Request, expressions: tuple[str, ...]) -> Observation:
        known = self.seen.get(run)
        if known is not None and all(e in known.values for e in expressions):
            return known
        self.wanted.setdefault(run, {}).update(dict.fromkeys(expressions))
        raise _Missing

    def fulfil(self, runner: Runner) -> None:
        runs = list(self.wanted)
        requests = [replace(run, expressions=(*self._known(run), *self.wanted[run])) for run in runs]
        self.wanted.clear()
        self.seen.update(zip(runs, runner(requests), strict=True))

    def _known(self, run: Request) -> Iterator[str]:
        known = self.seen.get(run)
        return (e for e in (known.values if known else ()) if e not in self.wanted[run])


class Attempt:
    """A learner's cell ``source`` as the checks of an exercise see it: its methods run it and return what was observed.

    ``inputs`` and ``drive`` of a run are the exercise's unless a check gives others. ``draw`` is added to every seed,
    so that an answer that has memorized the notebook's random numbers fails.
    """

    def __init__(
        self, exercise: Exercise, source: str, wishes: _Wishes, solution: Attempt | None = None, draw: int = 0
    ) -> None:
        self.exercise = exercise
        self.source = source
        self._draw = draw
        self._wishes = wishes
        self._solution = solution

    @property
    def solution(self) -> Attempt:
        """The attempt with the exercise's first right solution in place of the learner's cell."""
        return self._solution or self

    def look(self, *expressions: str, **run: Any) -> Observation:
        """Return the observation of a run of the learner's cell, with the values that ``expressions`` have after it.

        ``run`` are fields of :class:`Request` (``inputs``, ``drive``, ``seed``, ``watched``, ``believing``) in place of
        the exercise's own. A learner's run that is ``watched`` (recorded) is repeated unwatched. If the two compute
        different numbers, the cell acts differently when it is recorded, and the observation is an error that says so.
        """
        own = {"inputs": self.exercise.inputs, "drive": self.exercise.drive, "without": self.exercise.demonstrated}
        request = Request(self.source, self.exercise.setup, **{**own, **run, "seed": run.get("seed", 0) + self._draw})
        if not request.watched or self._solution is None:
            return self._wishes.ask(request, expressions)
        names = tuple(_named(f"{request.inputs}\n{request.drive}"))
        with contextlib.suppress(_Missing):
            self._wishes.ask(replace(request, watched=False), names)
        seen = self._wishes.ask(request, (*expressions, *names))
        alone = self._wishes.ask(replace(request, watched=False), names)
        return seen if _is_the_same(seen, alone, names) else _OTHERWISE

    def foresee(self, seeds: Iterable[int], *expressions: str, **run: Any) -> None:
        """Note that :meth:`look` will be called with these expressions for each of ``seeds``: runs that are noted
        together are made in one process.
        """
        for seed in seeds:
            with contextlib.suppress(_Missing):
                self.look(*expressions, seed=seed, **run)

    def value(self, expression: str, **run: Any) -> Any:
        """The value of ``expression`` after a run (``inputs=``, ``drive=``, ``seed=``); a :class:`Problem` if that
        raised.
        """
        return self.look(expression, **run).values[expression]

    def call(self, name: str, *arguments: str, seed: int = 0) -> Any:
        """What the cell's function ``name`` returns for ``arguments`` after a run of the cell alone; a :class:`Problem`
        if it raised.

        ``arguments`` are expressions, as strings.
        """
        return self.value(f"{name}({', '.join(arguments)})", inputs="", drive="", seed=seed)

    def error(self, **run: Any) -> Problem | None:
        """Return the exception that ended a run, or None."""
        return self.look(**run).error

    def trace(self, **run: Any) -> Trace:
        """The trace of a run of the cell, the inputs and the drive; if nothing was recorded, an empty trace with a
        note.
        """
        found = self.look(watched=True, **run).trace
        return found or Trace(notes=(Note("stopped", "The cell was not observed.", "没有观察此单元格。"),))

    def findings(self, **run: Any) -> frozenset[str]:
        """The codes and names of the rules that find something in the trace of a run."""
        return frozenset(word for finding in _found(self.trace(**run)) for word in (finding.rule, finding.name))


def _found(trace: Trace) -> list[Any]:
    from pitfall_lab.rules import find

    return find(trace)


_OTHERWISE = Observation(error=Problem("Watched", "the cell does something else while it is watched"))


def _is_the_same(seen: Observation, alone: Observation, names: tuple[str, ...]) -> bool:
    """Whether two runs ended with the same type of error (or none) and gave ``names`` the same numbers.

    Values that are not numbers must only have the same type, since addresses and objects may differ.
    """
    errors = [each.error and each.error.type for each in (seen, alone)]
    pairs = [(seen.values[name], alone.values[name]) for name in names]
    return errors[0] == errors[1] and all(_has_same_numbers(a, b) for a, b in pairs)


def _has_same_numbers(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_has_same_numbers, a, b))
    arrays = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
    return alike(a, b) if arrays or (isinstance(a, float) and isinstance(b, float)) else type(a) is type(b)


# ---------------------------------------------------------------- ready-made checks


def as_solved(*expressions: str, seeds: Iterable[int] = SEEDS, tell: bool = True, **run: Any) -> Check:
    """Check that each expression has the value that it has with the first right solution, for each of ``seeds``.

    The reason shows the right value unless ``tell`` is False. ``run`` are fields of a run, as in :meth:`Attempt.look`.
    """
    seeds = tuple(seeds)

    def check(attempt: Attempt) -> bool | T:
        attempt.foresee(seeds, *expressions, **run)
        attempt.solution.foresee(seeds, *expressions, **run)
        for seed in seeds:
            seen, solved = (
                attempt.look(*expressions, seed=seed, **run),
                attempt.solution.look(*expressions, seed=seed, **run),
            )
            got, meant = seen.values, solved.values
            for expression in expressions:
                if not alike(got[expression], meant[expression]):
                    if seen.error is not None and solved.error is None:  # what it left behind is no answer
                        return seen.error.say()
                    if seen.error is None and _is_ours(got[expression]):
                        return _absent(_spoken(expression, attempt.exercise))
                    right = meant[expression] if tell else None
                    return _differs(_spoken(expression, attempt.exercise), got[expression], right)
        return True

    return check


def equal(expression: str, meant: str, *, seeds: Iterable[int] = (0,), tell: bool = True, **run: Any) -> Check:
    """Check that ``expression`` and ``meant`` have the same value, for each seed.

    With ``tell=False``, the reason does not show the answer, and a string that denotes it is accepted, too: ``"-20"``
    for -20. In a *predict* exercise ``meant`` is evaluated after a run of the first right solution, so the learner's
    cell cannot change what is right.
    """
    seeds = tuple(seeds)

    def check(attempt: Attempt) -> bool | T:
        if attempt.exercise.kind == "predict":
            attempt.foresee(seeds, expression, **run)
            attempt.solution.foresee(seeds, meant, **run)
        else:
            attempt.foresee(seeds, expression, meant, **run)
        for seed in seeds:
            if attempt.exercise.kind == "predict":
                value, right = (
                    attempt.value(expression, seed=seed, **run),
                    attempt.solution.value(meant, seed=seed, **run),
                )
            else:
                values = attempt.look(expression, meant, seed=seed, **run).values
                value, right = values[expression], values[meant]
            got = value if tell else _unquoted(value, right)
            if isinstance(right, Problem) or not alike(got, right):
                place = _spoken(expression, attempt.exercise)
                return _differs(place, got, right) if tell else _answered(got, right, attempt.exercise)
        return True

    return check


def chosen(expression: str, right: str, reason: T) -> Check:
    """Check that the value of ``expression`` is the string ``right``, one of several that the task names.

    Case, white space and a full stop at the end do not matter. ``reason`` is shown for a wrong string.
    """

    def check(attempt: Attempt) -> bool | T:
        got = attempt.value(expression)
        return _unquoted(got, right) == right or (UNANSWERED if unanswered(got, attempt.exercise) else reason)

    return check


def _answered(got: Any, right: Any, exercise: Exercise) -> T:
    """A sentence with what the learner answered, without the right answer.

    If the right answer is a tuple of one number and the learner wrote the number, it says how such a tuple is written.
    If the task names several strings, and the answer is none of them, it lists them.
    """
    if isinstance(right, tuple) and right == (got,) and type(got) is int:
        return T(en=f"write ({got},), not {got}: it is a tuple", zh=f"请写 ({got},)，而不是 {got}：这是元组")
    if isinstance(got, Problem) and got.type != "KeyError":
        return got.say()
    if unanswered(got, exercise):
        return UNANSWERED
    said = T(en=f"your answer is {_short(got)}", zh=f"你的回答是 {_short(got)}")
    words = _words(exercise)
    # Of a task that names one text, this would be the answer.
    if len(words) < 2 or right not in words or any(_unquoted(got, word) == word for word in words):
        return said
    quoted = [f'"{word}"' for word in words]
    return T(
        en=f"{said.en}; write {', '.join(quoted[:-1])} or {quoted[-1]}",
        zh=f"{said.zh}；请填写 {'、'.join(quoted[:-1])} 或 {quoted[-1]}",
    )


def _words(exercise: Exercise) -> list[str]:
    """The strings among which the task lets the learner choose; empty if it names none."""
    return re.findall(r'`"([^"`]+)"`', exercise.task.en)


UNANSWERED = T(en="no answer yet", zh="还没有回答")


def unanswered(got: Any, exercise: Exercise) -> bool:
    """Whether the value ``got`` of an expression is no answer yet.

    That is ``"?"``, a missing key of the learner's dictionary, or None (or a list of None) if the given cell has None
    in it.
    """
    missing = isinstance(got, Problem) and got.type == "KeyError"
    return missing or (isinstance(got, str) and got == "?") or (_blank(got) and _open(exercise.given))


def _blank(got: Any) -> bool:
    return got is None or (isinstance(got, (tuple, list)) and bool(got) and all(each is None for each in got))


def _open(given: str) -> bool:
    """Whether a cell has None in place of its answers."""
    return any(isinstance(node, ast.Constant) and node.value is None for node in ast.walk(ast.parse(given)))


def _unquoted(got: Any, meant: Any) -> Any:
    """The value that a string denotes if the right answer ``meant`` is not a string; any other answer unchanged.

    A string that differs from the right answer only in case, white space or a full stop at its end is returned as the
    right answer. A minus sign (as the hints write it) is read as a hyphen, and the name of a dtype may be without its
    module.

    >>> _unquoted("−20", -20.0), _unquoted("none", None), _unquoted("view", "copy"), _unquoted("an error", 1)
    (-20, None, 'view', 'an error')
    >>> _unquoted(" Wrong  gradient.", "wrong gradient"), _unquoted("wronggradient", "wrong gradient")
    ('wrong gradient', 'wronggradient')
    >>> _unquoted("float32", "torch.float32"), _unquoted("float64", "torch.float32")
    ('torch.float32', 'float64')
    """
    if not isinstance(got, str) or len(got) > 1000:
        return got
    said = (meant if isinstance(meant, str) else repr(meant)).casefold()
    if got.casefold().rstrip(" .").split() in (said.split(), said.removeprefix("torch.").split()):
        return meant
    if isinstance(meant, str):
        return got
    try:
        return ast.literal_eval(got.strip().replace("\N{MINUS SIGN}", "-"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return got


def true(expression: str, reason: T | None = None, *, seeds: Iterable[int] = SEEDS, **run: Any) -> Check:
    """Check that an expression is true (of an array: all its elements), for each seed; ``reason`` is shown if it is
    not.

    If it compares two sides by ``==``, they must also be equal as plain values, since a learner's class may define
    that.
    """
    seeds, sides = tuple(seeds), _compared(expression)

    def check(attempt: Attempt) -> bool | T:
        attempt.foresee(seeds, expression, *(side for pair in sides for side in pair), **run)
        for seed in seeds:
            seen = attempt.look(expression, *(side for pair in sides for side in pair), seed=seed, **run)
            values, value = seen.values, seen.values[expression]
            if isinstance(value, Problem):
                return reason if reason and seen.error is None and _is_ours(value) else value.say()
            held = all(_as_said(values[left], values[right]) for left, right in sides)
            if not held or not (value.all() if isinstance(value, np.ndarray) else value) or isinstance(value, Opaque):
                return reason or _unmet(expression, attempt, {"seed": seed, **run})
        return True

    return check


_OURS = frozenset({"KeyError", "IndexError", "ValueError"})
"""Errors of an exercise's own expression that looks up what it has noted during the run; their
messages are not shown to learners.
"""


def _is_ours(value: Any) -> bool:
    return isinstance(value, Problem) and value.type in _OURS and value.line is None


def _compared(expression: str) -> list[tuple[str, str]]:
    """The pairs of expressions that ``expression`` compares by ``==``, alone or joined by ``and``.

    Their values are compared once more as plain data, because a learner's class may define ``__eq__``.
    """
    tree = ast.parse(expression, mode="eval").body
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    alone = [
        part
        for part in parts
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq)
    ]
    return [(ast.unparse(part.left), ast.unparse(part.comparators[0])) for part in alone]


def _as_said(left: Any, right: Any) -> bool:
    """Whether the sides of a ``==`` that was true are also equal as plain values: a learner's class may define
    ``__eq__``.

    True without a comparison if a side is an array, or the right side cannot be sent between processes or raised.
    """
    if isinstance(left, np.ndarray) or isinstance(right, (np.ndarray, Opaque, Problem)):
        return True
    try:
        return bool(left == right)
    except ValueError:  # arrays inside
        return alike(left, right)


def _unmet(expression: str, attempt: Attempt, run: dict[str, Any]) -> T:
    """The reason why an expression is not true, without the value that it is compared with, which may be the answer."""
    tree = ast.parse(expression, mode="eval").body
    tree = tree.operand if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not) else tree
    compared = isinstance(tree, ast.Compare) and len(tree.ops) == 1 and not isinstance(tree.left, ast.Constant)
    left = ast.unparse(tree.left if compared and isinstance(tree, ast.Compare) else tree)
    if compared or _place(left):
        return _differs(_spoken(left, attempt.exercise), attempt.value(left, **run), None)
    return T(en="this is not true of your cell", zh="你的单元格不是这样")


def runs(*, seeds: Iterable[int] = SEEDS, **run: Any) -> Check:
    """Check that no run, one for each of ``seeds``, raises."""
    seeds = tuple(seeds)

    def check(attempt: Attempt) -> bool | T:
        attempt.foresee(seeds, **run)
        errors = [attempt.error(seed=seed, **run) for seed in seeds]
        return next((error.say() for error in errors if error is not None), True)

    return check


def gradient_as_solved(*leaves: str, **options: Any) -> Check:
    """Check that nothing is raised and that the ``leaves`` (names in the cell) have the gradients that they have with
    the solution.
    """
    grads = tuple(f"{leaf}.grad" for leaf in leaves)
    raised, same = runs(**options), as_solved(*grads, **options)

    def check(attempt: Attempt) -> bool | T:
        verdict = raised(attempt)
        return same(attempt) if verdict is True else verdict

    return check


def fails(kind: str, **run: Any) -> Check:
    """Check that the run raises an error of this ``kind``, after the cell itself has ended.

    The error is raised in ``inputs`` or ``drive``, or in a function of the cell that these call. ``kind`` is the kind
    of failure (:class:`pitfall_lab.trace.Failure`), the type of the exception, or the name of the torch function that
    raised it. If ``run`` has ``inputs`` or ``drive`` of its own, a cell that raises in the exercise's own run as well
    is not right.
    """

    def check(attempt: Attempt) -> bool | T:
        always = attempt.error(seed=SEEDS[0]) if run else None
        if always is not None:
            said = always.say()
            return T(en=f"it also raises where it should not: {said.en}", zh=f"不该报错时它也报错：{said.zh}")
        seen = attempt.look(watched=True, **run)
        failure = seen.trace.outcome.failure if seen.trace else None
        if seen.error is None or failure is None:
            return T(en="nothing was raised", zh="没有抛出错误")
        if kind in (failure.kind, failure.type, failure.op.rpartition(".")[2]) and not seen.in_cell:
            return True
        return seen.error.say()

    return check


def surprises(misconception: str, **run: Any) -> Check:
    """Check that the run raises on torch although ``misconception`` (its key) predicts no error on the shadow engine.

    It must raise after the cell itself has ended, and also on the shadow engine without that belief: a cell that finds
    out where it runs could do something else there.
    """

    def check(attempt: Attempt) -> bool | T:
        seen, believed = attempt.look(**run), attempt.look(believing=misconception, **run).error
        if seen.error is None:
            return T(en="nothing was raised", zh="没有抛出错误")
        if seen.in_cell:
            return seen.error.say()
        if believed is None and attempt.look(believing=AS_TORCH, **run).error is None:
            return T(
                en="it does something else when it is run on a model of torch",
                zh="在 torch 的模型上运行时，它做的是另一件事",
            )
        if believed is None:
            return True
        if believed.type == UNMODELLED:
            return T(
                en="what this belief predicts for this program could not be computed",
                zh="无法算出持此信念者会对这段程序作何预测",
            )
        en = f"this belief predicts an error here, too ({believed.type})"
        return T(en=en, zh=f"持此信念者也会预料到错误({believed.type})")

    return check


def finds(rule: str, **run: Any) -> Check:
    """Check that a rule, given by name or code, finds its pitfall in the run."""

    def check(attempt: Attempt) -> bool | T:
        found = attempt.findings(**run)
        return rule in found or T(en=f"nothing of {rule} was found", zh=f"没有发现 {rule}")

    return check


def finds_nothing(*rules: str, **run: Any) -> Check:
    """Check that nothing is raised, that the run was observed to its end, and that none of the ``rules`` (codes or
    names; without any, no rule above ``info``) finds anything.
    """

    def check(attempt: Attempt) -> bool | T:
        trace = attempt.trace(**run)
        if trace.outcome.failure is not None:
            error = attempt.look(watched=True, **run).error
            return error.say() if error else False
        if trace.stopped is not None:
            return T(
                en=f"it could not be watched to its end: {trace.stopped.en}", zh=f"未能观察到结尾：{trace.stopped.zh}"
            )
        for finding in _found(trace):
            wanted = finding.rule in rules or finding.name in rules if rules else finding.severity != "info"
            if wanted:
                return finding.message if isinstance(finding.message, T) else False
        return True

    return check


def shared(a: str, b: str, **run: Any) -> Check:
    """Check that two tensors or arrays (expressions) share memory."""
    return true(f"shares({a}, {b})", T(en=f"{a} and {b} share no memory", zh=f"{a} 与 {b} 不共享内存"), **run)


def not_shared(a: str, b: str, **run: Any) -> Check:
    """Check that two tensors or arrays (expressions) do not share memory."""
    return true(f"not shares({a}, {b})", T(en=f"{a} and {b} share their memory", zh=f"{a} 与 {b} 共享内存"), **run)


def unchanged(name: str, **run: Any) -> Check:
    """Check that the drive changes neither the value that ``inputs`` gave to ``name`` nor the rest of its storage.

    If the drive has several lines and calls no ``backward`` before the last one, this must also hold before the last
    line: in a backward, a hook could undo a change.
    """
    reason = T(en=f"{name} (or the memory that it is on) was changed", zh=f"{name}(或其所在的内存)被改动了")

    def check(attempt: Attempt) -> bool | T:
        forward, _, _ = run.get("drive", attempt.exercise.drive).rpartition("\n")
        drives: list[dict[str, str]] = [{}, {"drive": forward}] if ".backward(" not in forward and forward else [{}]
        return every(*(true(f"unchanged({name!r})", reason, **{**run, **drive}) for drive in drives))(attempt)

    return check


def in_place(name: str, **run: Any) -> Check:
    """Check that the drive writes new values into what ``inputs`` assigned to ``name``: same object, same memory."""
    return true(f"in_place({name!r})", T(en=f"{name} was not written in place", zh=f"{name} 没有被就地写入"), **run)


def storages(at_most: int, *, elements: int = 1, made_for: T | None = None, **run: Any) -> Check:
    """Check that at most ``at_most`` storages with at least ``elements`` elements are made while the drive runs.

    Storages that the cell's functions make count wherever torch calls them, also in backward and as hooks for saved
    tensors. ``made_for`` says in the reason what they were made for, where the task has no numbers.
    """

    def check(attempt: Attempt) -> bool | T:
        drive = _MAKING.format(
            elements=elements, file=NAME, drive=textwrap.indent(run.get("drive", attempt.exercise.drive), "    ")
        )
        parts = ("large.count", "large.inside")
        try:
            seen = attempt.look(watched=True, **run)
        except _Missing:  # one process answers both
            attempt.look(*parts, **{**run, "drive": drive})
            raise
        if seen.error is not None or seen.trace is None:
            return seen.error.say() if seen.error else False
        ours = _before(seen)
        events = [event for event in seen.trace.events if event.step not in ours]
        made = {
            event.step: [
                effect.value["size"]
                for effect in event.effects
                if effect.path.startswith("storages.")
                and effect.path.count(".") == 1
                and effect.value["size"] >= elements
            ]
            for event in events
        }
        count = sum(map(len, made.values()))
        if count <= at_most:
            unwatched = attempt.look(*parts, **{**run, "drive": drive})
            every_one, inside = (unwatched.values[part] for part in parts)
            if not isinstance(every_one, int) or not isinstance(inside, int):
                return every_one.say() if isinstance(every_one, Problem) else False
            if any(event.op.startswith(_TRANSFORMS) for event in events):
                count = max(count, every_one)
            # what is made in backward is in the trace, and is inside of a call, too
            count = max(count, inside + sum(len(made[event.step]) for event in events if event.parent is None))
        large, wide = (f" with at least {elements} elements", f"至少 {elements} 个元素的") if elements > 1 else ("", "")
        for_en, for_zh = (f"for {made_for.en}, ", f"对于 {made_for.zh}，") if made_for else ("", "")
        return count <= at_most or T(
            en=for_en + (f"1 storage{large} was made" if count == 1 else f"{count} storages{large} were made"),
            zh=f"{for_zh}新建了 {count} 块{wide}存储",
        )

    return check


_TRANSFORMS = ("torch.func.", "torch.compile", "torch.jit.")
"""Calls that a recording has as one, whatever is made inside."""
_MAKING = """\
from pitfall_lab.verify.large_results import LargeResults

with LargeResults({elements}, {file!r}) as large:
{drive}
"""


def _before(seen: Observation) -> set[int]:
    """The steps of the trace up to the last one that belongs to the cell's own run or to the inputs.

    Nodes that a backward runs have no line and scope of their own; they belong to the call of backward.
    """
    assert seen.trace is not None
    found: set[int] = set()
    last = -1
    for event in seen.trace.events:
        of_outer = event.parent in found
        of_cell = event.span is not None and (
            (event.span.line < seen.made and not event.scope) or seen.made <= event.span.line < seen.driven
        )
        if of_outer or (event.parent is None and of_cell):
            found.add(event.step)
            last = max(last, event.step)
    return {event.step for event in seen.trace.events if event.step <= last}


def as_many_calls(larger: str, **run: Any) -> Check:
    """Check that ``larger`` inputs take no more torch calls and executed lines than the exercise's own: there is no
    loop.

    A loop in one of the cell's functions is refused at once. An answer that is right for the exercise's own inputs must
    be right for these, too, since it could leave out work for large inputs.
    """

    def check(attempt: Attempt) -> bool | T:
        names = _named(run.get("drive", attempt.exercise.drive))
        for inputs in ({}, {"inputs": larger}) if names else ():
            right = as_solved(*names, seeds=SEEDS[:1], **{**run, **inputs})(attempt)
            if right is not True and inputs:
                return right
            if right is not True:
                break
        if line := _loop(attempt.source):
            return T(en=f"there is a loop in line {line}", zh=f"第 {line} 行有循环")
        few, many = (_calls(attempt.look(watched=True, **{**run, **inputs})) for inputs in ({}, {"inputs": larger}))
        if few is None or many is None:
            return T(en="it could not be run on both inputs", zh="无法在两种输入上运行")
        if many > few:
            return T(
                en=f"{few} calls for small inputs, {many} for larger ones",
                zh=f"小输入调用 {few} 次，大输入调用 {many} 次",
            )
        drive = _COUNTING.format(drive=textwrap.indent(run.get("drive", attempt.exercise.drive), "    "))
        lines = [
            attempt.value("turns.count", **{**run, **inputs, "drive": drive}) for inputs in ({}, {"inputs": larger})
        ]
        most = min(lines[0], _LINES + 2 * attempt.source.count("\n")) if isinstance(lines[0], int) else -1
        if isinstance(lines[1], int) and lines[1] <= most:
            return True
        en = f"{lines[0]} lines of the cell run for small inputs, {lines[1]} for larger ones: that is a loop"
        return T(en=en, zh=f"小输入运行单元格的 {lines[0]} 行，大输入运行 {lines[1]} 行：这是循环")

    return check


_LINES = 40
"""A cell may run this number of lines, plus twice the number that it has, before it counts as a loop without end."""
_COUNTING = """\
from pitfall_lab.lessons.turns import Turns

with Turns("<exercise>") as turns:
{drive}
"""


def _named(drive: str) -> list[str]:
    r"""The names that a drive's own lines assign.

    >>> _named("out = attend(q)\na, b = out\nfor _ in range(2):\n    c = 1\nx.y = 2")
    ['out', 'a', 'b']
    """
    targets = [target for line in ast.parse(drive).body if isinstance(line, ast.Assign) for target in line.targets]
    names = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [name.id for name in names if isinstance(name, ast.Name)]


_LONGEST_SEARCHED = 100_000
"""Characters of a cell that are searched for loops; a longer one takes seconds and gigabytes.

Its lines are counted all the same.
"""
_LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPING = frozenset(
    {
        "map",
        "filter",
        "reduce",
        "accumulate",
        "starmap",
        "product",
        "groupby",
        "vectorize",
        "frompyfunc",
        "fromfunction",
        "fromiter",
    }
)
_LOOPING |= {"apply_along_axis", "nditer", "ndenumerate", "apply_", "map_"}
"""Functions that go through elements in Python."""


def _loop(source: str) -> int | None:
    r"""The line of the first loop in a function of a cell, or of a looping function that is stored for a later call.

    Looping functions are ``map`` and the like. None if there is no loop, or if the cell is too long or is not valid
    Python.

    >>> _loop("def f(x):\n    return [v + 1 for v in x.tolist()]\n"), _loop("def f(x):\n    return x\nfor n in (1, 2):\n    f(n)\n")
    (2, None)
    """  # noqa: E501
    if len(source) > _LONGEST_SEARCHED:
        return None
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines: list[int] = []
    names = _looping_names(body)
    waiting: list[tuple[ast.AST, bool, bool]] = [(each, False, False) for each in body]
    while waiting:  # each part once, however deep functions are in one another
        node, inside, called = waiting.pop()
        goes = (isinstance(node, _LOOPS) and inside) or (_goes_through(node, names) and (inside or not called))
        if goes and isinstance(node, ast.expr | ast.stmt):
            lines.append(node.lineno)
        inside = inside or isinstance(node, _FUNCTIONS)
        waiting += [
            (inner, inside, isinstance(node, ast.Call) and inner is node.func) for inner in ast.iter_child_nodes(node)
        ]
    return min(lines, default=None)


def _looping_names(body: list[ast.stmt]) -> set[str]:
    """The names by which a cell can call functions that loop over elements: ``map``, ``filter``, and those that it
    imports.
    """
    found = {"map", "filter"}
    for node in (each for statement in body for each in ast.walk(statement) if isinstance(each, ast.ImportFrom)):
        for each in node.names:
            found |= _LOOPING if each.name == "*" else {each.asname or each.name} if each.name in _LOOPING else set()
    return found


def _goes_through(node: ast.AST, names: set[str]) -> bool:
    """Whether this node reads a function that loops over elements, by its name, as an attribute, or with
    ``getattr``.
    """
    if isinstance(node, ast.Name):
        return node.id in names and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return any(isinstance(each, ast.Constant) and each.value in _LOOPING for each in node.args[1:])
    return isinstance(node, ast.Attribute) and node.attr in _LOOPING


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _calls(seen: Observation) -> int | None:
    """The number of torch calls after the cell and the inputs had run; None if the run raised or has no trace.

    Calls within another torch call are not counted.
    """
    if seen.error is not None or seen.trace is None:
        return None
    ours = _before(seen)
    return sum(event.kind == "call" and event.parent is None and event.step not in ours for event in seen.trace.events)


def every(*checks: Check) -> Check:
    """Check that all of ``checks`` hold; the reason is that of the first which does not."""

    def check(attempt: Attempt) -> bool | T:
        verdicts, waits = [], False
        for each in checks:
            try:
                verdicts.append(each(attempt))
            except _Missing:
                waits = True
        if waits:
            raise _Missing
        return next((verdict for verdict in verdicts if verdict is not True), True)

    return check


def no_optimizer(**run: Any) -> Check:
    """Check that no optimizer of torch takes a step."""
    reason = T(en="an optimizer of torch took a step", zh="torch 的优化器走了一步")

    def check(attempt: Attempt) -> bool | T:
        drive = textwrap.indent(run.get("drive", attempt.exercise.drive), "    ")
        return true("not stepped", reason, seeds=(0,), **{**run, "drive": _NOTING.format(drive=drive)})(attempt)

    return check


_NOTING = """\
from torch.optim.optimizer import register_optimizer_step_pre_hook

stepped = []
noting = register_optimizer_step_pre_hook(lambda *_: stepped.append(1))
try:
{drive}
finally:
    noting.remove()
"""


def updated_once(parameter: str | None, steps: int, **run: Any) -> Check:
    """Check that a parameter was written exactly ``steps`` times: once in each step.

    ``parameter`` is its first name in the trace; None: each leaf that requires grad and has a name. Writes before the
    first backward (initial values) do not count; writes by one line between two backwards are one update.
    """

    def check(attempt: Attempt) -> bool | T:
        seen = attempt.look(watched=True, **run)
        if seen.error is not None or seen.trace is None:
            return seen.error.say() if seen.error else False
        counts = {name: n for name, n in _updates(seen.trace).items() if parameter in (None, name)}
        if not counts:
            return T(en="no parameter was seen", zh="没有看到参数")
        for name, count in counts.items():
            if count != steps:
                en = f"{name} was updated {count} times in {steps} steps"
                return T(en=en, zh=f"{name} 在 {steps} 步中更新了 {count} 次")
        return True

    return check


def _updates(trace: Trace) -> dict[str, int]:
    """Return how often each leaf that requires grad was updated after the first backward, by name.

    Writes by one line between two backwards count as one update.
    """
    updates: dict[str, set[tuple[int, int | None]]] = {}
    backwards = 0
    final: dict[str, Any] = {}
    for event, state in states(trace):
        final = state["tensors"]
        backwards += event.kind == "call" and event.name in ("backward", "grad") and event.parent is None
        if backwards and event.kind == "call":
            for label in event.writes:
                updates.setdefault(label, set()).add((backwards, event.span.line if event.span else None))
    leaves = {t["storage"]: t["names"][0] for t in final.values() if t["requires_grad"] and t["is_leaf"] and t["names"]}
    return {name: len(updates.get(label, ())) for label, name in leaves.items()}


def alike(a: Any, b: Any) -> bool:
    """Whether two plain values (see :class:`Observation`) are equal, floating-point numbers up to rounding.

    Types must agree, except that a list may equal a tuple, and an array of one element without dimensions equals a
    number. A :class:`Problem` or :class:`Opaque` equals nothing.

    >>> alike([0.1 + 0.2, "x"], (0.3, "x")), alike(True, 1), alike(np.ones(2), np.ones((2, 1)))
    (True, False, False)
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype.kind == b.dtype.kind:
        return (
            bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
            if a.dtype.kind in "fc"
            else bool(np.array_equal(a, b))
        )
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    a, b = (x.item() if isinstance(x, np.ndarray) and x.shape == () else x for x in (a, b))
    if isinstance(a, float) or isinstance(b, float):
        numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (a, b))
        return numbers and bool(np.isclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
    return type(a) is type(b) and not isinstance(a, (Problem, Opaque, np.ndarray)) and bool(a == b)


def _absent(place: str) -> T:
    """A sentence that something which the check looks up in the run's notes is not there.

    ``place`` is what the learner calls it, "" if it has no name for the learner.
    """
    if place:
        return T(en=f"there is no {place}", zh=f"没有 {place}")
    return T(en="your cell did not get that far", zh="你的单元格没有走到这一步")


def _differs(place: str, got: Any, meant: Any) -> T:
    """A sentence with the value that was found, and the right one unless ``meant`` is None.

    ``place`` is what the learner calls the value, "" if there is no name.
    """
    if isinstance(got, Problem):
        return got.say()
    what = T(en=place or "the result", zh=place or "结果")
    is_ = T(en=f"{what.en} is {_short(got)}", zh=f"{what.zh} 是 {_short(got)}")
    if meant is None or isinstance(meant, (Problem, Opaque)):
        return is_
    if _short(got) == _short(meant):
        return _differs_inside(what, got, meant)
    return T(en=f"{is_.en}, not {_short(meant)}", zh=f"{is_.zh}，而不是 {_short(meant)}")


def _differs_inside(what: T, got: Any, meant: Any) -> T:
    """Return a sentence on what differs in two values whose shortened texts are equal."""
    if isinstance(got, np.ndarray) and isinstance(meant, np.ndarray):
        if got.dtype.kind != meant.dtype.kind:
            kinds = got.dtype.name, meant.dtype.name
            return T(
                en=f"{what.en} holds {kinds[0]}, not {kinds[1]}",
                zh=f"{what.zh} 的元素类型是 {kinds[0]}，而不是 {kinds[1]}",
            )
        if got.shape == meant.shape and got.dtype.kind in "fc":
            wrong = ~np.isclose(got, meant, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            wrong = got != meant if got.shape == meant.shape else np.ones(1, bool)
        count, first = (
            int(wrong.sum()),
            tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() and got.shape == meant.shape else (),
        )
        if first:
            at = f"[{', '.join(map(str, first))}]"
            one = f"{got[first]:.5g}", f"{meant[first]:.5g}"
            return T(
                en=f"{count} of the {got.size} elements of {what.en} are wrong: the one at {at} is "
                f"{one[0]}, not {one[1]}",
                zh=f"{what.zh} 的 {got.size} 个元素中有 {count} 个不对：{at} 处是 {one[0]}，而不是 {one[1]}",
            )
    if type(got) is not type(meant):
        return T(
            en=f"{what.en} has the right values and another type than was meant",
            zh=f"{what.zh} 的值正确，但类型与所要的不同",
        )
    return T(en=f"{what.en} is not what was meant", zh=f"{what.zh} 不是所要的")


_LOOKS = frozenset({"detach", "item", "tolist", "clone"})
_TURNS = frozenset({"float", "int", "list", "tuple", "str", "bool"})


def _place(expression: str) -> str:
    """Return the name, attribute or entry in the learner's cell whose value the expression is; empty if there is none.

    >>> _place("w.grad.detach()"), _place("float(seen['loss'])"), _place("[p.grad for p in ps]")
    ('w.grad', "seen['loss']", '')
    """
    tree = ast.parse(expression, mode="eval").body
    while isinstance(tree, ast.Call) and not tree.keywords:
        if isinstance(tree.func, ast.Attribute) and tree.func.attr in _LOOKS and not tree.args:
            tree = tree.func.value
        elif isinstance(tree.func, ast.Name) and tree.func.id in _TURNS and len(tree.args) == 1:
            tree = tree.args[0]
        else:
            return ""
    inner: ast.expr = tree
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        if isinstance(inner, ast.Subscript) and not all(isinstance(n, _LITERAL) for n in ast.walk(inner.slice)):
            return ""
        inner = inner.value
    return ast.unparse(tree) if isinstance(inner, ast.Name) else ""


def _spoken(expression: str, exercise: Exercise) -> str:
    """Like :func:`_place`, but "" if the learner has not read the name, because it is a variable of the drive.

    The learner has read the exercise's texts and the given cell. Names of attributes count as known.
    """
    place = _place(expression)
    texts = (exercise.title, exercise.task, *(each.sentence for each in exercise.properties))
    read = "\n".join((exercise.given, *(text.en for text in texts))).replace('"', "'")
    for node in ast.walk(ast.parse(place or "None", mode="eval")):
        if isinstance(node, ast.Name) and not re.search(rf"(?<![\w.]){re.escape(node.id)}(?!\w)", read):
            return ""
        if isinstance(node, ast.Subscript) and ast.unparse(node) not in read:
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if not isinstance(key, str) or repr(key) not in read:
                return ""
    return place


_LITERAL = (ast.Constant, ast.Tuple, ast.Slice, ast.Load, ast.UnaryOp, ast.USub)


def _short(value: Any) -> str:
    if isinstance(value, Opaque):
        return f"a {value.kind[:80]}"
    if isinstance(value, np.ndarray):
        numbers = np.array2string(value, precision=4, separator=", ", threshold=6, edgeitems=1, suppress_small=True)
        said = " ".join(numbers.split())
        return f"{said} (shape {value.shape})" if value.size > 6 else said
    if isinstance(value, (list, tuple)) and any(isinstance(part, (np.ndarray, float, Opaque)) for part in value):
        parts = ", ".join(map(_short, value[:50]))
        ends = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return textwrap.shorten(f"{ends[0]}{parts}{ends[1]}", 100, placeholder=" …")
    if isinstance(value, str) and re.fullmatch(r"torch\.\w+", value):  # a dtype, which travels as text
        return value
    return textwrap.shorten(f"{value:.5g}" if isinstance(value, float) else repr(value)[:1000], 100, placeholder=" …")


# ---------------------------------------------------------------- grading


@dataclass(frozen=True, slots=True)
class Mark:
    """One property of one attempt: its ``sentence``, whether it ``holds``, and the ``reason`` why not (None if it
    holds, or no reason is known).
    """

    sentence: T
    holds: bool
    reason: T | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an attempt at an exercise.

    ``marks`` are its properties, each with whether it holds; ``error`` is the exception that ended the cell (None:
    none), ``printed`` and ``warned`` what it printed and its warnings. ``hints`` is how many hints the learner gets.
    ``had``: which properties the given cell has; ``earned``: the share of the points from 0 to 1
    (:mod:`pitfall_lab.lessons.credit`); ``why_nothing``: why that share is 0 although properties hold. :func:`grade`
    leaves these three empty or None; the code that shows a result to a learner sets them.
    """

    exercise: Exercise
    marks: tuple[Mark, ...]
    error: Problem | None = None
    printed: str = ""
    warned: tuple[str, ...] = ()
    hints: int = 0
    language: Language = "en"
    had: tuple[bool, ...] = ()
    earned: float | None = None
    why_nothing: T | None = None

    @property
    def held(self) -> int:
        """Return the number of properties that hold."""
        return sum(mark.holds for mark in self.marks)

    @property
    def solved(self) -> bool:
        """Whether every property holds."""
        return self.held == len(self.marks) > 0

    def __str__(self) -> str:
        """Return the graded exercise as text: its title, and each property with whether it holds."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        say = self.language
        lines = [f"{_EXERCISE.say(say)} {self.exercise.key} · {self.exercise.title.say(say)}"]
        given = self.had or itertools.repeat(False)
        lines += [_mark(mark, say, had=had) for mark, had in zip(self.marks, given, strict=False)]
        lines += [self.why_nothing.say(say)] if self.why_nothing else []
        lines += [f"! {text}" for text in self.warned[:3]]
        lines += [_MORE_WARNINGS.say(say)] if len(self.warned) > 3 else []
        lines += self._hints()
        closing = _SOLVED if self.solved else _PARTLY
        return [
            *lines,
            closing.say(say).format(
                held=self.held, total=len(self.marks), verb="passes" if self.held == 1 else "pass", worth=self._worth()
            ),
        ]

    def _worth(self) -> str:
        """The end of a sentence that says what the properties that hold are worth; "" if ``earned`` is None."""
        if self.earned is None:
            return ""
        held = [had for mark, had in zip(self.marks, self.had, strict=False) if mark.holds]
        if not self.earned and held and all(held):
            return (_HELD_ONE if len(held) == 1 else _HELD_BEFORE).say(self.language)
        return _WORTH.say(self.language).format(percent=f"{100 * self.earned:.0f}")

    def _hints(self) -> list[str]:
        say = self.language
        shown = [] if self.solved else sorted(self._in_order()[: self.hints])
        return [f"{_HINT.say(say).format(n=n + 1)} {self.exercise.hints[n].say(say)}" for n in shown]

    def _in_order(self) -> list[int]:
        """The indices of the hints in the order in which they are given.

        First comes the hint for the first failing property that has one, then the others as they are written.
        """
        places = range(len(self.exercise.hints))
        first = [n - 1 for n, mark in zip(self.exercise.hint_for, self.marks, strict=False) if n and not mark.holds][:1]
        return [*first, *(place for place in places if place not in first)]

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        """Return the result as plain text and as HTML (escaped)."""
        say = self.language
        first, *middle, closing = self._lines()
        rows = [boxes.line(text) for text in middle]
        page = boxes.box("grade", say, boxes.line(first, strong=True), *rows, boxes.line(closing, strong=True))
        return {"text/plain": str(self), "text/html": page}


_EXERCISE = T(en="Exercise", zh="练习")
_SOLVED = T(en="Solved.", zh="已解决。")
_MORE_WARNINGS = T(en="! and more warnings", zh="! 还有更多警告")
_PARTLY = T(
    en="{held} of {total} checks {verb}{worth}. Edit the cell and run it again; with --hint after the number you get a "
    "hint.",
    zh="{total} 项检查中有 {held} 项通过{worth}。修改单元格后再运行；在编号后加上 --hint 可得到提示。",
)
_WORTH = T(en=" ({percent} % of the points, if your teacher grades this)", zh="（若老师评分，得 {percent} % 的分）")
_HELD_BEFORE = T(
    en="; they passed before you changed anything, so they earn no points", zh="；它们在你改动之前就通过，所以不得分"
)
_HELD_ONE = T(
    en="; it passed before you changed anything, so it earns no points", zh="；它在你改动之前就通过，所以不得分"
)
_AS_GIVEN = T(en="passed before your change", zh="改动之前已通过")
_WAS_GIVEN = T(en="it passed before your change", zh="改动之前是通过的")
_HINT = T(en="Hint {n} of 3:", zh="提示 {n}/3：")


def _mark(mark: Mark, language: Language, *, had: bool) -> str:
    given = f" [{(_AS_GIVEN if mark.holds else _WAS_GIVEN).say(language)}]" if had else ""
    reason = f" ({mark.reason.say(language)})" if mark.reason else ""
    return f"{'✓' if mark.holds else '○'} {mark.sentence.say(language)}{given}{reason}"


def _here(requests: Sequence[Request]) -> list[Observation]:
    return [observe(request) for request in requests]


_SOLVED_ONCE = _Wishes()
"""What was seen of right solutions: it does not change while a process lives."""


def grade(
    exercise: Exercise, source: str, runner: Runner = _here, language: Language = "en", *, draw: int = 0
) -> Result:
    """Run ``source`` as the cell of ``exercise`` and return which properties hold.

    ``runner`` runs requests of the learner's cell, by default in this process; the right solution always runs here.
    ``draw`` is added to the seeds of all runs.
    """
    wishes, solved = _Wishes(), _SOLVED_ONCE
    attempt = Attempt(exercise, source, wishes, Attempt(exercise, exercise.right[0], solved, draw=draw), draw)
    verdicts: dict[int, bool | T] = {}
    first: Observation | None = None
    whole = Observation()
    while first is None or len(verdicts) < len(exercise.properties):
        for n, prop in enumerate(exercise.properties):
            if n not in verdicts:
                _try(prop, attempt, verdicts, n)
        try:
            first = attempt.look(watched=True)
            whole = attempt.look(without=()) if demonstrations.demonstrates(source, exercise.demonstrated) else first
        except _Missing:
            first = None
        solved.fulfil(_here)
        wishes.fulfil(runner)
    return Result(
        exercise, tuple(_marks(exercise, verdicts)), first.error, whole.printed, whole.warned, language=language
    )


def _try(prop: Property, attempt: Attempt, verdicts: dict[int, bool | T], n: int) -> None:
    """Store in ``verdicts`` whether property ``n`` holds; nothing if a run that its check needs has not been made yet.

    A check that raises is a property that does not hold.
    """
    try:
        verdicts[n] = prop.check(attempt)
    except _Missing:
        return
    except Exception as error:  # a check that meets a value it did not expect: the attempt does not have the property
        kind = type(error).__name__
        verdicts[n] = T(en=f"what the cell made cannot be compared ({kind})", zh=f"单元格产生的内容无法比较（{kind}）")


def _marks(exercise: Exercise, verdicts: dict[int, bool | T]) -> Iterator[Mark]:
    """Return the marks, each with its own reason."""
    for n, prop in enumerate(exercise.properties):
        verdict = verdicts[n]
        yield Mark(prop.sentence, verdict is True, verdict if isinstance(verdict, T) else None)
