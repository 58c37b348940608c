"""Finds names whose value was computed from an older value of another name, so that running all cells in order gives something else.

Found by reading the texts of the cells that ran, statement by statement. A name is out of date if the cell that bound its source has
run again with another value, and the name was not computed again. It is not out of date if *another* cell has bound the source's name
(names are often reused), nor if only a shape or dtype of the source was used.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pitfall_lab.panel.cells_run import Cell, simple

_NOT_NUMBERS = {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "parameters", "state_dict"}
DEPTH = 8
_PLAIN = (int, float, str, bool, bytes, type(None))
_LOOKS = {"len", "type", "isinstance", "print"}


class Value(NamedTuple):
    """What a name was bound to by a ``cell``, and a number (``mark``) that identifies the value.

    ``made_from`` has, for each name that it was computed from, the mark of its value and the id of the cell that had bound it.
    """

    cell: Cell
    mark: int
    made_from: Mapping[str, tuple[int, str]]


class OutOfOrder(NamedTuple):
    """``name``, bound in run ``made``, was computed from a value of ``source`` that run ``again`` has replaced."""

    name: str
    source: str
    made: int
    again: int


class Order:
    """Tracks which name was computed from which, from cell to cell. Cells without an id are ignored, as no re-run can be recognised."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._seen: dict[str, Any] = {}
        self._marks = 0

    def ran(self, cell: Cell, namespace: Mapping[str, Any], *, succeeded: bool) -> list[OutOfOrder]:
        """Called after a cell has run; return the out-of-date names that it has read."""
        taken, made = flow(cell.tree)
        if not succeeded or not cell.id:
            for name in made:  # which statements ran is unknown
                self._values.pop(name, None)
            return []
        stale = [found for name in sorted(taken) if (found := self._stale(name)) is not None]
        before = {name: (value.mark, value.cell.id) for name, value in self._values.items()}
        for name, sources in made.items():
            seen = _look(namespace.get(name), cell, name)
            if name not in self._values or seen != self._seen.get(name):
                self._marks += 1
                mark = self._marks
            else:
                mark = self._values[name].mark
            self._seen[name] = seen
            self._values[name] = Value(cell, mark, {each: before[each] for each in sources if each in before and each != name})
        return stale

    def _stale(self, name: str, depth: int = DEPTH) -> OutOfOrder | None:
        value = self._values.get(name)
        if value is None:
            return None
        for source, (mark, binder) in value.made_from.items():
            now = self._values.get(source)
            if now is None:
                continue
            if now.mark != mark and now.cell.id == binder:
                return OutOfOrder(name, source, value.cell.count, now.cell.count)
            if now.mark == mark and depth and (behind := self._stale(source, depth - 1)) is not None and behind.again > value.cell.count:
                return behind._replace(name=name, made=value.cell.count)
        return None


def _look(value: Any, cell: Cell, name: str) -> Any:
    """A key that stays equal while the value is the same.

    For a value that cannot be compared without running its class's code, it is the statements that bind the name: the same statements
    are taken to give the same value. A module is a different one each time, with its own parameters.
    """
    if any(type(value) is each for each in _PLAIN):  # compared by identity: a metaclass may define __eq__
        return type(value), value
    if "torch" in sys.modules:
        from pitfall_lab.observe.live.sums import mark

        found = mark(value)
        if found is not None:
            return found
    return tuple(ast.dump(each) for each in _statements(cell.tree) if name in _binds(each))


def flow(tree: ast.Module) -> tuple[set[str], dict[str, set[str]]]:
    r"""The names that a cell reads from earlier cells; and, for each name that it binds, the names that it was computed from.

    >>> taken, made = flow(ast.parse("a = x * 2\\nb = a + y\\nc = b.shape"))
    >>> sorted(taken), {name: sorted(names) for name, names in made.items()}
    (['x', 'y'], {'a': ['x'], 'b': ['x', 'y'], 'c': []})
    """
    taken: set[str] = set()
    made: dict[str, set[str]] = {}
    for statement in _statements(tree):
        reads = set(_reads(statement))
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            reads.add(statement.target.id)
        taken |= reads - made.keys()
        behind = {each for name in reads for each in made.get(name, {name})}
        for name in _binds(statement):
            made[name] = behind
    return taken, made


def _statements(tree: ast.Module) -> list[ast.stmt]:
    return [*_definitions(tree), *_headers(tree), *simple(tree.body)]


def _definitions(tree: ast.Module) -> Iterator[ast.stmt]:
    return (each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)))


def _headers(tree: ast.Module) -> Iterator[ast.stmt]:
    """Loops and with statements as assignments: ``for x in xs:`` as ``x = xs``, ``with a as b:`` as ``b = a``."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            yield ast.Assign([node.target], node.iter)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            yield from (ast.Assign([each.optional_vars], each.context_expr) for each in node.items if each.optional_vars is not None)


def _reads(node: ast.AST) -> Iterator[str]:
    """The names whose values a statement uses; reading only a shape or type does not count."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, ast.Attribute) and node.attr in _NOT_NUMBERS and isinstance(node.value, ast.Name):
        if node.attr in ("parameters", "state_dict"):
            yield node.value.id
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOKS:
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
        return
    for child in ast.iter_child_nodes(node):
        yield from _reads(child)


def _binds(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
