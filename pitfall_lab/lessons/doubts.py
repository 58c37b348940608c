"""Which false facts about a program can be believed by who has read it: the others would leave the right reason
standing alone. :meth:`Doubts.believable` says it of one.

That two tensors share memory is believed where one was made from the other and has its shape or its numbers; that a
gradient flows from a tensor back to another, where it was computed from it; that a counter has missed a write, and not
that it has counted one too many.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.lessons.program_facts import ProgramFact, State, Watched

_TAKEN = {("int64", "float32"), ("int64", "int32"), ("float32", "float64")}
"""Types that are taken for others: torch's defaults, and Python's and NumPy's."""
_MODULES = {"torch", "np", "nn", "F"}


@dataclass(frozen=True, slots=True)
class _Origin:
    """An assignment to ``name`` in ``line``.

    ``sources`` are the names from which the value was made, directly or through other names; ``computed`` says whether
    the assigned expression has arithmetic or a comparison.
    """

    name: str
    line: int
    sources: frozenset[str]
    computed: bool


class Doubts:
    """Decides whether a reader of a program could believe a false fact about it. ``true`` has what holds after each
    line, by line number; ``real`` is what was found on torch (:func:`~pitfall_lab.lessons.program_facts.watched`).
    """

    def __init__(self, program: str, true: dict[int, State], real: Watched) -> None:
        self._lines = program.splitlines()
        self._true = true
        self._origins = _origins(program)
        self._made: dict[str, int] = {}
        for line, state in true.items():
            for name in (name for about in state for name in about[1:]):
                self._made.setdefault(name, line)
        self._arrived = {line for (_, a), (line, b) in pairwise([(0, 0), *real.passes.items()]) if b > a}
        self._tests: dict[str, Callable[[ProgramFact], bool]] = {
            "object": lambda fact: fact.value == "two" or self._alike(fact),
            "memory": lambda fact: fact.value == "separate" or self._alike(fact),
            "path": lambda fact: fact.value == "cut" or fact.about[2] in self._sources(fact.about[1], fact.line),
            "version": self._miscounted,
            "elements": self._elsewhere,
            "shape": self._elsewhere,
            "type": lambda fact: (
                self._elsewhere(fact) or (self._known(fact, "type", fact.about[1]), fact.value) in _TAKEN
            ),
            "role": self._of_another_role,
            "sum": lambda fact: fact.value not in ("None", "zeros") or fact.line not in self._arrived,
            "held": lambda fact: fact.value == "out" or self._known(fact, "role", fact.about[1]) != "result",
        }

    def believable(self, fact: ProgramFact) -> bool:
        """Whether a reader of the program could believe a false fact."""
        test = self._tests.get(fact.about[0])
        return test is None or test(fact)

    def _known(self, fact: ProgramFact, kind: str, name: str, line: int | None = None) -> str:
        return self._true.get(fact.line if line is None else line, {}).get((kind, name), "")

    def _sources(self, name: str, line: int) -> set[str]:
        """The names from which the value of ``name`` was made, by this line."""
        return {source for one in self._origins if one.name == name and one.line <= line for source in one.sources}

    def _alike(self, fact: ProgramFact) -> bool:
        """Whether a reader could take two tensors for one object, or for sharing memory.

        They must have one dtype and a common origin: one was made from the other, or both from one tensor without
        arithmetic. Also, the numbers of one must all be among those of the other, or one was made from the other and
        they have the same shape (not that of a scalar). If the false fact says that they are one object, shape and
        values must be equal.
        """
        a, b = fact.about[1:]
        sources = {name: {name} | self._sources(name, fact.line) for name in (a, b)}
        derived = a in sources[b] or b in sources[a]
        computed = any(one.computed for one in self._origins if one.name in (a, b) and one.line <= fact.line)
        same = ["type", "shape", "value"] if fact.value == "one" else ["type"]
        if not (derived or (sources[a] & sources[b] and not computed)):
            return False
        if any(self._known(fact, kind, a) != self._known(fact, kind, b) for kind in same):
            return False
        if derived and self._known(fact, "shape", a) == self._known(fact, "shape", b) != "()":
            return True
        both = max(self._made.get(name, 0) for name in (a, b))
        numbers = (
            [set(re.findall(r"[-\w.]+", self._known(fact, "value", n, line))) for n in (a, b)]
            for line in (both, fact.line)
        )
        return any(x <= y or y <= x for x, y in numbers)

    def _elsewhere(self, fact: ProgramFact) -> bool:
        """Whether some tensor of the program, after that line, has the value of the false fact, so that it may be
        confused.

        Facts of one kind are compared: elements, shape or dtype.
        """
        state = self._true.get(fact.line, {})
        return any(about[0] == fact.about[0] and value == fact.value for about, value in state.items())

    def _miscounted(self, fact: ProgramFact) -> bool:
        """Whether a reader could arrive at the false version by miscounting writes: one too few, none,
        or one where none was counted.
        """
        number, right = int(fact.value), int(self._known(fact, "version", fact.about[1]) or 0)
        return number in (0, right - 1) or (right == 0 and number == 1)

    def _of_another_role(self, fact: ProgramFact) -> bool:
        """Whether a reader could believe that the tensor has another role (leaf, result, constant).

        Not if it is a leaf and the line that made it says ``requires_grad=True``.
        """
        leaf = self._known(fact, "role", fact.about[1]) == "leaf"
        return not (leaf and "requires_grad=True" in self._lines[self._made.get(fact.about[1], 1) - 1])


def _origins(program: str) -> list[_Origin]:
    found: list[_Origin] = []
    nodes = [node for node in ast.walk(ast.parse(program)) if isinstance(node, (ast.Assign, ast.AugAssign, ast.For))]
    for node in sorted(nodes, key=lambda node: node.lineno):
        value = node.iter if isinstance(node, ast.For) else node.value
        names = {inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)} - _MODULES
        names |= {source for one in found if one.name in names for source in one.sources}
        computed = any(isinstance(inner, (ast.BinOp, ast.Compare)) for inner in ast.walk(value))
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            stored = [
                inner.id
                for inner in ast.walk(target)
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
            ]
            found += [_Origin(name, node.lineno, frozenset(names), computed) for name in stored]
    return found
