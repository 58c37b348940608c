"""The reasons of a question: facts about its program, of which one is true and decides the ending, and the others are
false. :func:`reasons` returns them; none where nothing is known to decide.

A fact decides if the program ends in another way in a world where it does not hold. The false ones are what such worlds
hold instead, and what else could be thought about the same names behind the same lines.

Where no single one of these facts decides between the outcomes, a lesson offers sentences of its own
(:mod:`~pitfall_lab.lessons.offered`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from pitfall_lab.lessons import balance
from pitfall_lab.lessons.doubts import Doubts
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception
from pitfall_lab.lessons.mistakes import Mistake, single
from pitfall_lab.lessons.program_facts import About, ProgramFact, State, Watched, facts, loops, watched
from pitfall_lab.shadow import TORCH
from pitfall_lab.trace import T

MOST = 4
_STRONG = 8
"""So many wrong reasons that can be believed are chosen from."""
_LETTERS = 90
_CAUSES = {"scalar outputs": "elements", "a leaf Variable": "role", "can't be cast": "type"}
"""What torch's message names, and the kind of fact that it is about."""
_WHY = ("memory", "object", "path", "needs", "sum", "held", "role", "elements", "type", "shape")
"""The facts that say why, the best first; the others only say what."""
_BOTH_HOLD = {("role", "view", "result")}
"""A kind of fact and two of its values that hold together: a view of a leaf is a result in the graph, too."""
_PLAIN = ("role", "leaf", "constant")
"""A false fact that the line itself contradicts: what it makes with ``requires_grad=True`` requires grad."""
_TEMPTING = ("memory", "object", "path", "needs", "sum")
"""Facts that are offered for any program; others are offered where they matter, or if there are too few of these."""
_UNLIKELY = ("version", "type", "elements")
"""Facts that are easily seen to be wrong where the program is not about them: they are offered
after all others, in this order.
"""
_IDLE = 1
"""The rank after which facts are offered only where there are too few others: those on versions,
types and numbers of elements.
"""
_PARTED = 2
"""The number of lines of a mistaken world that are compared with torch's, from the first that differs."""
_ALIKE = {"one": "together", "shared": "together", "two": "apart", "separate": "apart"}
"""The values of the kinds "object" and "memory", which say nearly the same of two names: one
object also shares its memory.
"""
OTHERWISE: dict[str, tuple[str, ...]] = {
    "memory": ("shared", "separate"),
    "object": ("one", "two"),
    "path": ("open", "cut"),
    "needs": ("whole", "overwritten", "freed"),
    "sum": ("None", "1", "2", "zeros"),
    "held": ("in", "out"),
    "role": ("leaf", "result", "constant"),
    "version": ("0", "1", "2"),
    "elements": ("1", "2", "3"),
    "type": ("int64", "int32", "float32", "float64"),
}
"""What could be thought instead of a fact, by its kind."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence to choose as the reason for an outcome; ``right`` if it holds and decides the outcome.

    A wrong one does not hold: ``instead`` is what holds in its place (None for the right one), and ``beliefs`` has the
    misconception (at most one) under which it would hold. ``said`` is the lesson's answer to a learner who reads the
    program so that it holds (None: there is none); ``own``: the lesson gives that answer to this very reason.
    """

    text: T
    right: bool
    instead: T | None = None
    beliefs: tuple[Misconception, ...] = ()
    said: T | None = None
    own: bool = False
    holds: Callable[[Mistake], bool] = field(default=lambda _: True, compare=False, repr=False)
    """Whether it holds in the world of a mistake; also where that is not known."""


def reasons(
    program: str,
    ask: str,
    mistakes: list[list[Mistake]],
    *,
    others: list[list[Mistake]],
    message: str,
    lots: balance.Lots,
) -> tuple[Reason, ...]:
    """One fact that decides how ``program`` ends and three that do not hold, in an order drawn by ``lots``.

    Empty if no deciding fact is known. ``ask`` is the expression in question. Each group of ``mistakes`` leads to one
    wrong outcome that is offered as an answer; each group of ``others`` to one that is not. ``message`` is torch's
    error message (empty: none).
    """
    real = watched(program)
    true = _agreed(program, real)
    case = _Case(program, true, real, mistakes, others, _near(program, ask), Doubts(program, true, real).believable)
    certain = list(_named(program, message, true)), list(_no_leaf(ask, true))
    # Where nothing else decides, the question's own answer may be a reason.
    ways = (_among(case, certain, worth=worth, lots=lots) for worth in (_worth(ask, true), _readable))
    lines = loops(program)
    found = [
        Reason(
            fact.said(lines),
            right=not n,
            instead=_instead(fact, true).said(lines) if n else None,
            beliefs=(belief,) if belief and n else (),
            holds=partial(_holds, fact),
        )
        for n, (fact, belief) in enumerate(next(filter(None, ways), []))
    ]
    return tuple(sorted(found, key=lambda reason: lots.place(reason.text)))


def _instead(fact: ProgramFact, true: dict[int, State]) -> ProgramFact:
    """The fact that holds on torch in place of a false fact, after the same line."""
    return ProgramFact(fact.line, fact.about, true[fact.line][fact.about])


def _holds(fact: ProgramFact, mistake: Mistake) -> bool:
    """Whether a fact holds under a mistake; True also if the program then does not reach its line, or nothing
    is known.
    """
    state = dict(facts(mistake.program, mistake.policy)).get(fact.line, {})
    return state.get(fact.about, fact.value) == fact.value


@dataclass(frozen=True, slots=True)
class _Case:
    """A program with the facts that hold on torch, and mistakes about it, grouped by how the program then ends.

    ``near`` are the names in the question and those in the last write.
    """

    program: str
    true: dict[int, State]
    real: Watched
    mistakes: list[list[Mistake]]
    others: list[list[Mistake]]
    near: tuple[set[str], set[str]]
    believable: Callable[[ProgramFact], bool]

    def false(self, fact: ProgramFact) -> bool:
        """Whether a fact with another value than torch's is really false: two values of one kind may both hold."""
        return (fact.line, fact.about, fact.value) not in self.real.also


def _among(
    case: _Case,
    certain: tuple[list[ProgramFact], list[ProgramFact]],
    *,
    worth: Callable[[ProgramFact], bool],
    lots: balance.Lots,
) -> list[tuple[ProgramFact, Misconception | None]]:
    """The right reason and then three wrong ones among the facts that ``worth`` accepts; empty if there are not enough.

    Each has the belief under which it holds, or None. ``certain`` has two lists of facts that torch's message names:
    the right reason is taken from the first list if it has any facts, else from the facts on which mistaken worlds
    differ from torch's, else from the second list. Wrong ones are first what learners think who give an offered answer
    because of a belief, then others that can be believed, and the rest only if there are too few of these.
    """
    every = [one for group in (*case.mistakes, *case.others) for one in group]
    apart = {one: [pair for pair in _apart(one, case.true) if all(map(worth, pair))] for one in every}
    deciding = _deciding(case, certain, apart)
    best = _strongest(deciding, case.near)
    if not best:
        return []
    if (
        best[0].value == "whole"
    ):  # that nothing is missing is only that backward does not raise; a write that is not counted is why
        counted = (best[0].line, "version", *best[0].about[1:])
        best = [fact for group in deciding for fact in group if (fact.line, *fact.about) == counted] or best
    right = best[lots.number("right") % len(best)]
    others = single(
        case.program, [one for one in MISCONCEPTIONS.values() if Mistake(case.program, (one,)) not in apart]
    )
    further = {one: [pair for pair in _apart(one, case.true) if all(map(worth, pair))] for one in others}
    believed = [pair for found in further.values() for pair in found]
    who: dict[ProgramFact, Misconception] = {}
    for one, found in (*apart.items(), *further.items()):
        if len(one.beliefs) == 1 and one.slip is None:
            for _, fact in found:
                who.setdefault(fact, one.beliefs[0])
    pairs = [pair for one in every for pair in apart[one] if not _overlooked(case.program, one, pair[0])]
    believed = [pair for pair in believed if pair[0].about[0] not in _UNLIKELY]
    false = [fact for held, fact in (*pairs, *believed) if not _both_hold(held, fact) and case.false(fact)]
    tempting = _tempting(case, right, apart)
    near = [fact for fact in _otherwise(case.true, case.real) if worth(fact) and case.false(fact)]
    subject = {right.about[:1], *(fact.about for _, fact in pairs)}
    near.sort(key=lambda fact: (_offered(fact, subject), lots.number(fact.text.en)))
    likely = [fact for fact in near if _offered(fact, subject) <= _IDLE]
    wrong = _different(
        list(filter(case.believable, [*false[:5], *likely[:6], *false[5:], *likely[6:]])), right, case.true
    )[:_STRONG]
    if len(wrong) < MOST - 1:
        more = list(filter(case.believable, [*near, *filter(_readable, _before(case.true))]))
        wrong = _different([*wrong, *more[: MOST + 1 - len(wrong)]], right, case.true)
    wrong = _different([*tempting, *wrong], right, case.true)
    weak = [fact for fact in [*false, *near] if not case.believable(fact)]
    weak = [fact for fact in weak if fact.about[0] in _TEMPTING] or weak
    weak.sort(key=lambda fact: lots.number("weak", fact.text.en))
    strong, given = {fact.text.en for fact in wrong}, {fact.text.en for fact in tempting}
    wrong = _different([*wrong, *weak], right, case.true)
    wrong.sort(key=lambda fact: (fact.text.en not in given, fact.text.en not in strong))
    must = sum(fact.text.en in given for fact in wrong)
    label = {fact.text.en: "".join((fact.about[0], fact.value)) for fact in (right, *wrong)}
    texts = [fact.text.en for fact in wrong]
    chosen = lots.pick(right.text.en, texts, MOST - 1, must=must, labels=label, weak=lambda text: text not in strong)
    picked = [right, *(wrong[n] for n in chosen)] if len(chosen) == MOST - 1 else []
    return [(fact, who.get(fact)) for fact in picked]


def _deciding(
    case: _Case,
    certain: tuple[list[ProgramFact], list[ProgramFact]],
    apart: dict[Mistake, list[tuple[ProgramFact, ProgramFact]]],
) -> list[list[ProgramFact]]:
    """The facts of which one will be the right reason, in groups by the wrong outcome that they rule out.

    They are taken from the first of these sources that has a fact of a kind in ``_WHY``: those that torch's message
    names; those that the beliefs behind the offered outcomes get wrong; those that any belief gets wrong; the second
    list of ``certain``. If none has one: from the first source with any facts, and last from what a reader who
    overlooks something gets wrong.
    """
    every = [*case.mistakes, *case.others]
    ways: list[list[list[ProgramFact]]] = [[certain[0]]]
    ways += [
        [[fact for one in group if not one.slip for fact, _ in apart[one]] for group in groups]
        for groups in (case.mistakes, every)
    ]
    why = (way for way in (*ways, [certain[1]]) if any(fact.about[0] in _WHY for group in way for fact in group))
    missed = [[fact for one in group for fact, _ in apart[one] if fact.value != "freed"] for group in every]
    return next(why, next((way for way in (*ways, missed) if any(way)), []))


def _tempting(
    case: _Case, right: ProgramFact, apart: dict[Mistake, list[tuple[ProgramFact, ProgramFact]]]
) -> list[ProgramFact]:
    """For each offered outcome that a belief leads to, the false fact by which its holder would explain it; at most
    three.

    That is the opposite of the right fact if the belief denies that fact, else the fact that says most about why. If a
    fact taken for one outcome holds under the beliefs of another outcome as well, it serves both.
    """
    ways = [[one for one in group if len(one.beliefs) == 1 and not one.slip] for group in case.mistakes]
    worlds = [
        [
            {fact for held, fact in apart[one] if not _both_hold(held, fact) and case.false(fact)} - {right}
            for one in group
        ]
        for group in ways
    ]
    often = Counter(fact for held in worlds for fact in set().union(*held))

    def merit(fact: ProgramFact, held: list[set[ProgramFact]]) -> tuple[bool, bool, int, int, int, int, str]:
        same = fact.about == right.about
        believers = sum(fact in one for one in held)
        return (
            not (same and fact.line == right.line),
            not same,
            -believers,
            -often[fact],
            _rank(fact),
            fact.line,
            fact.text.en,
        )

    found: list[ProgramFact] = []
    for held in worlds:
        every = set().union(*held)
        if every and every.isdisjoint(found):
            found.append(min(every, key=lambda fact: merit(fact, held)))
    return found[: MOST - 1]


def _both_hold(fact: ProgramFact, other: ProgramFact) -> bool:
    return (fact.about[0], fact.value, other.value) in _BOTH_HOLD


def _overlooked(program: str, one: Mistake, fact: ProgramFact) -> bool:
    """Whether a reader believes the false fact only after overlooking a statement, call or operation that it is about.

    ``one`` is the mistake of overlooking it. True if it is in the fact's line, or in the line that made one of its
    names.
    """
    if one.slip is None or one.slip.taken_for:
        return False
    made = re.match(r"\s*(\w+) =", program.splitlines()[one.slip.line - 1])
    return one.slip.line == fact.line or bool(made and made[1] in fact.about[1:])


def _different(wrong: list[ProgramFact], right: ProgramFact, true: dict[int, State]) -> list[ProgramFact]:
    """The wrong facts, with one of each group that say the same of the same tensors, or of which one implies the other.

    Of each group the fact about the line of the right fact is kept, else the first: a learner who sees that the right
    fact holds would rule out all of them at once.
    """
    kept: dict[tuple[str, ...], ProgramFact] = {}
    for fact in wrong:
        kind, *names = fact.about
        says = _ALIKE.get(fact.value, fact.value) if kind in ("object", "memory") else f"{kind} {fact.value}"
        one = (
            [("object", "one"), ("memory", "shared")] if kind == "version" else [("object", "one")]
        )  # a shared counter
        first = {
            b: a for (what, a, *rest), value in true.get(fact.line, {}).items() if (what, value) in one for b in rest
        }
        tensors = [first.get(name, name) for name in names]
        key = (says, *(tensors if len(set(tensors)) == len(tensors) else names))
        if key not in kept or (fact.line, fact.about) == (right.line, right.about):
            kept[key] = fact
    return list(kept.values())


def _offered(fact: ProgramFact, subject: set[About]) -> int:
    """Return the rank of a false fact as a wrong answer: 0 if the question is about it, more if few would believe it.

    ``subject`` is what the question is about: a kind of fact, or a kind and names.
    """
    kind = fact.about[0]
    if kind in _TEMPTING or not subject.isdisjoint({(kind,), fact.about}):
        return 0
    return _UNLIKELY.index(kind) + 2 if kind in _UNLIKELY else 1


def _agreed(program: str, real: Watched) -> dict[int, State]:
    """For each line the facts after it that hold on the real torch and that the engine predicts, too.

    Facts about what backward needs are left out after the last backward.
    """
    modelled, over = dict(facts(program, TORCH)), _over(program)
    return {
        line: {
            a: v for a, v in state.items() if modelled.get(line, {}).get(a) == v and (line < over or a[0] != "needs")
        }
        for line, state in real.states
    }


def _apart(mistake: Mistake, true: dict[int, State]) -> Iterator[tuple[ProgramFact, ProgramFact]]:
    """Yield pairs of a fact on torch and the differing fact under a mistake, at the first two lines with a
    difference.
    """
    parted = 0
    for line, state in facts(mistake.program, mistake.policy):
        known = true.get(line, {})
        found = [about for about, value in state.items() if about in known and known[about] != value]
        yield from ((ProgramFact(line, about, known[about]), ProgramFact(line, about, state[about])) for about in found)
        parted += bool(found)
        if parted == _PARTED:
            return


def _strongest(deciding: list[list[ProgramFact]], near: tuple[set[str], set[str]]) -> list[ProgramFact]:
    """The facts that rule out most: those that are false in the most wrong outcomes, then under the most mistakes.

    Facts that say why come before those that only say what. Among equals those count that are about both a name in the
    question and a name in the last write, and of these those whose kind comes first in ``_WHY``.
    """
    every = [fact for group in deciding for fact in group]
    why = [fact for fact in every if fact.about[0] in _WHY] or every[:1]
    often = Counter(why)
    endings = Counter(fact for group in deciding for fact in {*group} & {*why})
    asked, written = near

    def strength(fact: ProgramFact) -> tuple[int, int, int]:
        return endings[fact], often[fact], -_rank(fact)

    def joined(fact: ProgramFact) -> int:
        names = set(fact.about[1:])
        return bool(names & asked) + bool(names & (written - asked))

    most = [fact for fact in often if strength(fact) == max(map(strength, often))]
    return [fact for fact in most if joined(fact) == max(map(joined, most))]


def _near(program: str, ask: str) -> tuple[set[str], set[str]]:
    """The names in the expression ``ask``, and the names in the last statement that writes into a tensor (empty: none
    does).
    """
    asked = {node.id for node in ast.walk(ast.parse(ask)) if isinstance(node, ast.Name)}
    writes = [node for node in ast.walk(ast.parse(program)) if _writes(node)]
    last = max(writes, key=lambda node: getattr(node, "lineno", 0), default=None)
    written = {node.id for node in ast.walk(last) if isinstance(node, ast.Name)} if last else set()
    return asked, written


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Subscript)
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return isinstance(node, ast.AugAssign) or (name.endswith("_") and not name.startswith("_"))


def _rank(fact: ProgramFact) -> int:
    return _WHY.index(fact.about[0]) if fact.about[0] in _WHY else len(_WHY)


def _over(program: str) -> int:
    """The line of the last ``backward`` in the program; ``sys.maxsize`` if there is none."""
    calls = [
        node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Attribute) and node.attr == "backward"
    ]
    return max((node.lineno for node in calls), default=sys.maxsize)


def _worth(ask: str, true: dict[int, State]) -> Callable[[ProgramFact], bool]:
    """Make a test for facts that can be reasons: not the question's own answer, and not too long to read."""
    tree = ast.parse(ask)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shown = names - {
        node.value.id for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    last = max(true, default=0)

    def worth(fact: ProgramFact) -> bool:
        kind = fact.about[0]
        asked = bool(set(fact.about[1:]) & names)
        if asked and fact.line == last and (kind in ("value", "shape", "elements") or fact.value in ("None", "zeros")):
            return False  # that is the question's own answer
        if kind == "value" and fact.about[1] in shown and fact.value == true.get(last, {}).get(fact.about):
            return False  # and so is what a name holds already and keeps
        return _readable(fact)

    return worth


def _readable(fact: ProgramFact) -> bool:
    return len(fact.text.en) < _LETTERS


def _named(program: str, message: str, true: dict[int, State]) -> Iterator[ProgramFact]:
    """Yield the facts of the kind that torch's message is about, of the names in the line that raises."""
    kind = next((kind for part, kind in _CAUSES.items() if part in message), None)
    if kind is None or not true:
        return
    line, state = list(true.items())[-1]
    failing = next((node for node in ast.parse(program).body if node.lineno > line), None)
    names = [node.id for node in ast.walk(failing) if isinstance(node, ast.Name)] if failing else []
    yield from (
        ProgramFact(line, about, value) for about, value in state.items() if about[0] == kind and about[1] in names
    )


def _no_leaf(ask: str, true: dict[int, State]) -> Iterator[ProgramFact]:
    """Yield the fact that a tensor is a result in the graph, for each tensor whose ``.grad`` the question reads.

    Torch keeps no ``.grad`` there. The fact is given after the first line at which it holds.
    """
    attributes = [node for node in ast.walk(ast.parse(ask)) if isinstance(node, ast.Attribute) and node.attr == "grad"]
    asked = [node.value.id for node in attributes if isinstance(node.value, ast.Name)]
    for about in (("role", name) for name in asked):
        yield from (
            ProgramFact(line, about, "result")
            for line in [n for n, state in true.items() if state.get(about) == "result"][:1]
        )


def _otherwise(true: dict[int, State], real: Watched) -> Iterator[ProgramFact]:
    """Yield, for each fact and the line after which it first holds, false facts that a learner could believe instead.

    Facts about roles in the graph are left out if nothing in the program requires grad, and for integer tensors.
    Effects of a backward pass or a write are left out where there was none: nothing is freed before the first pass, and
    no ``.grad`` is the sum over two passes before the second.
    """
    before: State = {}
    passes = 0
    graph = any(about[0] == "role" and value != "constant" for state in true.values() for about, value in state.items())
    for line, state in true.items():
        now = real.passes.get(line, passes)
        brought = {"freed": now > passes, "overwritten": _written(before, state)}
        for about, value in state.items():
            kind, changed = about[0], before.get(about) != value
            idle = (
                kind in ("sum", "version") and about not in before and value in ("None", "0")
            )  # nothing has happened to it yet
            if idle or (
                kind == "role" and not (graph and state.get(("type", *about[1:]), "float").startswith("float"))
            ):
                continue
            for other in OTHERWISE.get(kind, ()):
                few = kind == "sum" and other.isdigit() and int(other) > now
                possible = brought.get(other, changed) if kind == "needs" else changed and not few
                if possible and other != value and (kind, value, other) not in {*_BOTH_HOLD, _PLAIN}:
                    yield ProgramFact(line, about, other)
        before, passes = state, now


def _written(before: State, state: State) -> bool:
    """Whether a value or version of any name changed: a write, or an assignment that can be taken for one."""
    return any(about[0] in ("value", "version") and before.get(about, value) != value for about, value in state.items())


def _before(true: dict[int, State]) -> Iterator[ProgramFact]:
    """Yield false facts that a value is still the one from before the line that changed it."""
    known: State = {}
    for line, state in true.items():
        yield from (
            ProgramFact(line, about, known[about])
            for about in state
            if about[0] == "value" and known.get(about, state[about]) != state[about]
        )
        known = state
