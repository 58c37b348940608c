"""Reasons that a lesson offers in its own words: which of them is right is computed, by an expression about the program
after a line. :func:`stated` returns them as reasons of a question.

Such a reason is ``(line, English, Chinese, expression)``, as ``(5, "relu has saved y, and not h", "……", "savers(y) and
not savers(h)")``. Two sentences may follow, in English and in Chinese: what is answered to who gives it. An expression
sees the program's names as they are after the line, and:

- ``shares(a, b)``: whether two tensors share memory;
- ``savers(t)``: the names of the nodes that have saved a tensor (or one that shares its memory), of all graphs that the
  program can reach;
- ``slope(y, x)``: the gradient of ``y.sum()`` at ``x``, as a list; None without a way there, "freed" or "overwritten"
  where backward would refuse;
- ``begun(y, x)``: what a backward from ``y`` itself would bring to ``x``, as a list; "refused" where torch does not
  start;
- ``changed("t")``: the lines after which a tensor had other numbers than before;
- ``raised``: the type of the exception that ends the program in this line, as ``"RuntimeError"``; "" if the line runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.mistakes import Mistake
from pitfall_lab.lessons.program_facts import REFUSALS, after, loops
from pitfall_lab.lessons.reasons import Reason
from pitfall_lab.lessons.run_here import execute, failing_line
from pitfall_lab.lessons.worlds import say
from pitfall_lab.trace import T

Offered = tuple[int, str, str, str] | tuple[int, str, str, str, str, str]


def judged(program: str, offered: Sequence[Offered]) -> list[tuple[T, bool]]:
    """The sentences of ``offered``, each with whether it is true of ``program``.

    The form of ``offered`` is described in this module's docstring. Raises ``ValueError`` unless exactly one sentence
    is true, and if a sentence is about a line in which no statement ends, or that has not run. A line that raises
    counts only if the expression uses ``raised``.
    """
    look = Evaluations(offered)
    ran = execute(program, worlds.NAME, look)
    look.end(ran.error, ran.line, ran.namespace)
    if look.held.keys() != set(range(len(offered))):
        raise ValueError("a reason is about a line in which no statement ends, or that did not run")
    if list(look.held.values()).count(True) != 1:
        raise ValueError(f"one reason has to be true, not {[offered[n][1] for n, held in look.held.items() if held]}")
    rounds = loops(program)
    texts = [
        T(en=f"in line {line}, {en}", zh=f"在第 {line} 行，{zh}") if line == ran.line else after(line, rounds, en, zh)
        for line, en, zh, *_ in offered
    ]
    return [(text, look.held[n]) for n, text in enumerate(texts)]


def stated(program: str, offered: Sequence[Offered], mistakes: Iterable[Mistake]) -> list[Reason]:
    """The sentences of ``offered`` as reasons, in their order.

    A wrong one has the lesson's own answer, if there is one. If not, those of ``mistakes`` count under which the
    sentence is true, and that are either one belief or a misreading with an answer: if the first of them is a belief,
    the reason has that belief; if a misreading is the only one, the reason has its answer; otherwise it has none.
    Raises ``ValueError`` as :func:`judged` does.
    """
    texts, rights = zip(*judged(program, offered), strict=True)
    true = rights.index(True)
    ways = [one for one in mistakes if (len(one.beliefs) == 1) != bool(one.slip and one.slip.said)]
    return [
        Reason(
            text,
            right=n == true,
            instead=None if n == true else texts[true],
            holds=partial(_holds, tuple(offered), n),
            **({} if n == true else _held_by(ways, tuple(offered), n)),
        )
        for n, text in enumerate(texts)
    ]


def _held_by(ways: Sequence[Mistake], offered: tuple[Offered, ...], n: int) -> dict[str, Any]:
    """Fields of :class:`Reason` with the answer to the wrong sentence ``n``; empty if there is none.

    They have the lesson's own answer, else the first mistake under which the sentence is true: its belief, or its
    answer if it is a misreading and no other mistake makes the sentence true, since another one may be what the learner
    thought.
    """
    if own := offered[n][4:]:
        return {"said": T(*own), "own": True}
    held = [one for one in ways if in_world(one, offered).get(n)]
    if held and held[0].beliefs:
        return {"beliefs": held[0].beliefs}
    return {"said": held[0].slip and held[0].slip.said} if len(held) == 1 else {}


def _holds(offered: tuple[Offered, ...], n: int, mistake: Mistake) -> bool:
    """Whether sentence ``n`` is true under a mistake; True also if that is not known."""
    return in_world(mistake, offered).get(n, True)


@lru_cache(maxsize=256)
def in_world(mistake: Mistake, offered: tuple[Offered, ...]) -> dict[int, bool]:
    """Which of the sentences are true under ``mistake``, by their index.

    Sentences whose expression cannot be evaluated there are left out; empty if the engine has no model of the program.
    """
    look = Evaluations(offered, tolerant=True)
    ran = worlds.run(mistake.program, mistake.policy, look)
    if ran is None:
        return {}
    look.end(ran[1], failing_line(ran[1], worlds.NAME), ran[0])
    return look.held


class Evaluations:
    """Evaluates the expressions of ``offered`` while a program runs; it is called after each statement.

    ``held`` has the last result of each expression, by its index in ``offered``. If an expression raises, its result is
    removed with ``tolerant``; otherwise the exception is raised.
    """

    def __init__(self, offered: Sequence[Offered], *, tolerant: bool = False) -> None:
        self._tolerant = tolerant
        self.held: dict[int, bool] = {}
        self._offered = offered
        self._before: dict[str, str] = {}
        self._changed: dict[str, list[int]] = {}

    def end(self, error: BaseException | None, line: int | None, names: dict[str, Any]) -> None:
        """Evaluate the expressions about the line that ended the program with ``error``; nothing if it ended without
        one.

        Only expressions that use ``raised`` are evaluated: the others are about the state after a line that has run.
        """
        if error is not None and line is not None:
            self(line, names, "", type(error).__name__)

    def __call__(self, line: int, names: dict[str, Any], printed: str, raised: str = "") -> None:
        """Evaluate the expressions about this line."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensors = {name: value for name, value in names.items() if hasattr(value, "untyped_storage")}
            now = {name: say(value) for name, value in tensors.items()}
            for name in now.keys() & self._before.keys():
                if now[name] != self._before[name]:
                    self._changed.setdefault(name, []).append(line)
            self._before = now
            known = {
                **names,
                "shares": _shares,
                "savers": lambda t: sorted(_savers(tensors.values(), t)),
                "slope": lambda y, x: _slope(names["torch"], y, x),
                "begun": lambda y, x: _begun(names["torch"], y, x),
                "changed": lambda name: self._changed.get(name, []),
                "raised": raised,
            }
            for n, (about, _, _, expression, *_) in enumerate(self._offered):
                if about == line and (not raised or "raised" in expression):
                    self._judge(n, expression, known)

    def _judge(self, n: int, expression: str, known: dict[str, Any]) -> None:
        try:
            self.held[n] = bool(eval(expression, known))  # noqa: S307 - the lesson's own expression
        except Exception:
            if not self._tolerant:
                raise
            self.held.pop(n, None)


def _shares(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def _savers(tensors: Iterable[Any], saved: Any) -> Iterator[str]:
    """Yield the names of the nodes behind ``tensors`` that have saved ``saved``, or a tensor that shares its memory."""
    todo = [*map(_node, tensors)]
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [child for child, _ in node.next_functions]
        if any(_shares(kept, saved) for kept in _kept(node)):
            yield node.name()


def _node(tensor: Any) -> Any:
    """The ``grad_fn`` of a tensor; None if torch raises when it is read, as for a view written under ``no_grad``."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def _kept(node: Any) -> Iterator[Any]:
    """Yield the tensors that a node has saved and not freed, of those that are ``_saved_…`` attributes."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                kept = getattr(node, name)
            except RuntimeError:
                continue
            if hasattr(kept, "untyped_storage"):
                yield kept


def _slope(torch: Any, y: Any, x: Any) -> Any:
    """The gradient of ``y.sum()`` at ``x`` as a list; None if none flows there.

    "freed" or "overwritten" if backward refuses for that reason.
    """
    if not (y.requires_grad and x.requires_grad):
        return None
    try:
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)
    except RuntimeError as refused:
        return next(said for part, said in REFUSALS.items() if part in str(refused))
    return None if gradient is None else gradient.tolist()


def _begun(torch: Any, y: Any, x: Any) -> Any:
    """The gradient that a backward from ``y`` without an argument gives ``x``, as a list; "refused" if torch raises."""
    try:
        (gradient,) = torch.autograd.grad(y, x, retain_graph=True)
    except RuntimeError:
        return "refused"
    return gradient.tolist()
