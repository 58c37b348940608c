"""How often lines run: :func:`runs` finds the lines that are one round of a loop each time, and those that run parts of
themselves several times.

The browser counts how often the call of a step was seen; this says what the count is one of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypedDict

from pitfall_lab.trace import Trace

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
INNER = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


class LineRuns(TypedDict):
    """For each source, line numbers of statements that run repeatedly.

    ``rounds`` has, for each loop that is itself entered once, the first and the last line of each statement that runs
    exactly once in each iteration, in order. ``inner`` has lines with an expression that is computed several times each
    time the line runs, such as a comprehension.
    """

    rounds: list[list[list[tuple[int, int]]]]
    inner: list[list[int]]


def runs(trace: Trace) -> LineRuns:
    """For each source, the lines that run once per iteration of a loop, and those that compute an expression several
    times.

    Both are empty for a source that is not valid Python.
    """
    out: LineRuns = {"rounds": [], "inner": []}
    for number, source in enumerate(trace.sources):
        try:
            text = _Text(ast.parse(source.text))
        except (SyntaxError, ValueError, RecursionError):
            text = _Text(ast.Module([], []))
        failure = trace.outcome.failure
        here = failure is not None and failure.span is not None and failure.span.source == number
        out["rounds"].append(text.rounds(failure.span.line if here and failure and failure.span else None))
        out["inner"].append(text.inner())
    return out


class _Text:
    """A program's syntax tree with the parent of each node."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def inner(self) -> list[int]:
        """The lines of comprehensions and lambdas."""
        found = (node for node in ast.walk(self.tree) if isinstance(node, INNER))
        return sorted({line for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)})

    def rounds(self, raised: int | None) -> list[list[tuple[int, int]]]:
        """For each loop that is entered once, the lines of the statements that run once in each iteration.

        If the program raised in the loop at line ``raised``, statements behind that line are left out, since the last
        iteration did not reach them.
        """
        out = []
        for loop in (node for node in ast.walk(self.tree) if isinstance(node, LOOPS)):
            if self._is_entered_once(loop):
                inside = raised is not None and loop.lineno <= raised <= (loop.end_lineno or loop.lineno)
                lines = _certain(loop.body)
                out.append([(a, b) for a, b in lines if not inside or raised is None or a <= raised])
        return sorted(filter(None, out))

    def _is_entered_once(self, node: ast.AST, known: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a node runs only once: it is outside of all loops, and in functions that have one call, which runs
        once.
        """
        parent = self.parents.get(node)
        while parent is not None:
            if isinstance(parent, (*LOOPS, *INNER)):
                return False
            if isinstance(parent, FUNCTIONS):
                call = self._only_call(parent.name) if not isinstance(parent, ast.Lambda) else None
                return call is not None and parent not in known and self._is_entered_once(call, known | {parent})
            parent = self.parents.get(parent)
        return True

    def _only_call(self, name: str) -> ast.Call | None:
        """The call of the function ``name``, if nothing else in the program uses that name; else None."""
        named = [
            node
            for node in ast.walk(self.tree)
            if (isinstance(node, ast.Name) and node.id == name)
            or (isinstance(node, ast.Attribute) and node.attr == name)
        ]
        parent = self.parents.get(named[0]) if len(named) == 1 else None
        return parent if isinstance(parent, ast.Call) and parent.func is named[0] else None


def _certain(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each simple statement that every iteration reaches.

    None after a statement with a ``break``, ``continue`` or ``return``.
    """
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            if statement.lineno < statement.body[0].lineno:
                yield statement.lineno, statement.body[0].lineno - 1
            yield from _certain(statement.body)
        elif not isinstance(statement, ast.Match) and not hasattr(statement, "body"):
            yield statement.lineno, statement.end_lineno or statement.lineno
        if any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in ast.walk(statement)):
            return
