"""Which false facts about a program can be believed by who has read it: the others would leave the right reason standing alone.

That two tensors share memory is believed where one was made from the other and has its numbers; that a gradient flows from a tensor back
to another, where it was computed from it; that a counter has missed a write, and not that it has counted one too many.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from itertools import pairwise

from pitfall_lab.lessons.program_facts import Fact, State, Watched
_TAKEN = {("int64", "float32"), ("int64", "int32"), ("float32", "float64")}
"""Types that are taken for others: torch's defaults, and Python's and NumPy's."""


def believable(program: str, true: dict[int, State], real: Watched) -> Callable[[Fact], bool]:
    """Return a test for false facts: whether a reader of the program could believe them."""
    lines, made = program.splitlines(), dict[str, int]()
    for line, state in true.items():
        for _, *names in state:
            for name in names:
                made.setdefault(name, line)
    origins = _origins(program)
    arrived = {line for (_, a), (line, b) in pairwise([(0, 0), *real.passes.items()]) if b > a}

    def known(fact: Fact, kind: str, name: str, line: int | None = None) -> str:
        return true.get(fact.line if line is None else line, {}).get((kind, name), "")

    def stems(name: str, other: str, line: int) -> bool:
        """Whether the first was made from the second, by this line."""
        return any(other in names for target, number, names, _ in origins if target == name and number <= line)

    def alike(fact: Fact) -> bool:
        """Whether two tensors were made from one another or from the same, without arithmetic, and one has the other's numbers.

        They have one type, and those that are one also one shape.
        """
        a, b = fact.about[1:]
        before = [each for each in origins if each[1] <= fact.line]
        sources = [{one}.union(*(names for target, _, names, _ in before if target == one)) for one in (a, b)]
        new = {a, b} if not ({a} & sources[1] or {b} & sources[0]) else {max(a, b, key=lambda one: made.get(one, 0))}
        if not sources[0] & sources[1] or any(worked for target, *_, worked in before if target in new):
            return False
        same = ["type", "shape", "value"] if fact.value == "one" else ["type"]
        if any(known(fact, kind, a) != known(fact, kind, b) for kind in same):
            return False
        both = max(made.get(a, 0), made.get(b, 0))
        pairs = ([set(re.findall(r"[-\w.]+", known(fact, "value", name, line))) for name in (a, b)] for line in (both, fact.line))
        return any(x <= y or y <= x for x, y in pairs)

    def elsewhere(fact: Fact) -> bool:
        """Whether another tensor of the program has this value."""
        return any(value == fact.value for (kind, *_), value in true.get(fact.line, {}).items() if kind == fact.about[0])

    def test(fact: Fact) -> bool:
        kind, *names = fact.about
        held = known(fact, kind, names[0])
        if fact.value in ("shared", "one"):
            return alike(fact)
        if kind == "path":
            return fact.value == "cut" or stems(names[0], names[1], fact.line)
        if kind == "version":
            number, right = int(fact.value), int(held or 0)
            return number in (0, right - 1) or (right == 0 and number == 1)
        if kind in ("elements", "shape"):
            return elsewhere(fact)
        if kind == "type":
            return elsewhere(fact) or (held, fact.value) in _TAKEN
        if kind == "role":
            return not (held == "leaf" and "requires_grad=True" in lines[made.get(names[0], 1) - 1])
        if kind == "sum":
            return fact.value not in ("None", "zeros") or fact.line not in arrived
        return not (kind == "held" and fact.value == "in" and known(fact, "role", names[0]) == "result")

    return test


def _origins(program: str) -> list[tuple[str, int, set[str], bool]]:
    """Return for each assignment the target, its line, the names that it was made from, at however many steps, and whether by arithmetic."""
    found: list[tuple[str, int, set[str], bool]] = []
    nodes = [node for node in ast.walk(ast.parse(program)) if isinstance(node, (ast.Assign, ast.AugAssign, ast.For))]
    for node in sorted(nodes, key=lambda node: node.lineno):
        value = node.iter if isinstance(node, ast.For) else node.value
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)}
        names |= {one for target, _, earlier, _ in found if target in names for one in earlier}
        worked = any(isinstance(inner, (ast.BinOp, ast.Compare)) for inner in ast.walk(value))
        for target in targets:
            stored = [inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)]
            found += [(one, node.lineno, names - {"torch", "np", "nn", "F"}, worked) for one in stored]
    return found
