"""The cells that have run in this kernel (:class:`Ran`): their numbers, ids and sources, and what the sources show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pitfall_lab.panel.cache_fills import Fill, fills
from pitfall_lab.panel.name_flow import flow, simple
from pitfall_lab.panel.rewrites import RewriteStatement, assigned, writes
from pitfall_lab.panel.written_names import written_into

MOST = 1000
_FILLING = ("if ", "if(", "try:", "cache", "setdefault")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WITH = re.compile(r"%%pitfall\b[^\n]*\s--with\b")


@dataclass(frozen=True)
class Cell:
    """One run of a cell: ``count`` is its number (as in ``In [5]``), ``id`` the notebook's id of the cell (empty if
    there is none), ``text`` its Python source, ``succeeded`` False if it raised an error.

    ``whole`` is False if the source begins with the sources of earlier cells, so that its lines are not the cell's
    lines.
    """

    count: int
    id: str
    text: str
    succeeded: bool = True
    whole: bool = True

    @cached_property
    def tree(self) -> ast.Module:
        """Return the cell's syntax tree; an empty one if its text is not valid Python."""
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])

    @cached_property
    def bound(self) -> frozenset[str]:
        """Return the names that statements of the cell outside functions bind."""
        return frozenset(_bound(self.tree.body))

    @cached_property
    def flow(self) -> tuple[set[str], dict[str, set[str]]]:
        """The names that the cell reads from earlier cells, and, for each name that it binds, the names from earlier
        cells that its value was computed from.
        """
        return flow(self.tree)

    @cached_property
    def carried(self) -> frozenset[str]:
        """Return the names that the cell reads from earlier cells and binds again: a second run would start from the
        result of the first.
        """
        taken, made = self.flow
        return frozenset(taken & made.keys())

    @cached_property
    def written(self) -> frozenset[str]:
        """The names whose objects the cell's code changes in place (including code in its functions and classes), as
        far as the source shows it.
        """
        return frozenset(name for statement in self.tree.body for name in written_into(statement))

    @cached_property
    def backwards(self) -> tuple[str, ...]:
        """The expressions on which the cell's source calls ``backward``, including those inside its functions and
        classes; empty if there are none.
        """
        if ".backward" not in self.text:
            return ()
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute) and node.attr == "backward")
        return tuple(ast.unparse(node.value) for node in found)

    @cached_property
    def backwards_run(self) -> frozenset[str]:
        """Those of :attr:`backwards` outside the cell's top-level functions and classes: running the cell calls them,
        unless they are in a branch that was not taken.
        """
        if not self.backwards:
            return frozenset()
        bodies = (each for each in self.tree.body if not isinstance(each, _DEFINITIONS))
        found = (node for body in bodies for node in ast.walk(body) if isinstance(node, ast.Attribute))
        return frozenset(ast.unparse(node.value) for node in found if node.attr == "backward")

    @cached_property
    def writes(self) -> list[RewriteStatement]:
        """The statements outside loops and functions that change an object in place, so that each further run changes
        it again; empty for a cell that is not ``whole``.
        """
        return writes(self.tree) if self.whole else []

    @cached_property
    def fills(self) -> list[Fill]:
        """The code of the cell that fills a cache if something is missing in it (:func:`.cache_fills.fills`); an empty
        list if there is none.
        """
        return fills(self.tree) if any(word in self.text for word in _FILLING) else []

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the cell's source, including those in its functions and classes."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The names that the cell binds to another object or deletes, including those in its functions, and the names
        of its top-level definitions. ``x += …`` and imports do not count.
        """
        defined = {each.name for each in self.tree.body if isinstance(each, _DEFINITIONS)}
        return assigned(self.tree) | defined

    def line(self, name: str = "") -> int | None:
        """Return the line of the cell's only statement; if there are several, of the only one that changes the object
        of ``name`` in place (``w -= …``, ``w.mul_()``). Imports, functions and classes, with their contents, do not
        count.

        None if there is not exactly one, or the cell is not ``whole``.
        """
        statements = [each for each in simple(self.tree.body) if not isinstance(each, (ast.Import, ast.ImportFrom))]
        if not self.whole:
            return None
        if len(statements) != 1:
            statements = [each for each in statements if name and name in written_into(each)]
        return statements[0].lineno if len(statements) == 1 else None

    def line_writing(self, name: str) -> int | None:
        """The line of the only statement outside functions and classes that changes the object of ``name`` in place
        (``w -= …`` or ``w.mul_()``, but not ``w = …``), if nothing else is before it on that line.

        None if there is not exactly one, if the cell is not ``whole``, and for a ``name`` with a dot (``net.weight``).
        """
        found = [each for each in simple(self.tree.body) if name in written_into(each)]
        lines = self.text.split("\n")
        own = (
            self.whole
            and len(found) == 1
            and name.isidentifier()
            and not lines[found[0].lineno - 1][: found[0].col_offset].strip()
        )
        return found[0].lineno if own else None


def is_whole(raw: str) -> bool:
    """Whether a cell, as it was typed (``raw``), runs alone and not after the sources of earlier cells (``%%pitfall
    --with 2,3``).
    """
    return _WITH.match(raw) is None


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, _DEFINITIONS):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.alias):
                yield node.asname or node.name.partition(".")[0]
            elif isinstance(node, _DEFINITIONS):
                yield node.name


class Ran:
    """The last :data:`MOST` runs of cells, by number."""

    def __init__(self) -> None:
        self._cells: dict[int, Cell] = {}

    def add(self, cell: Cell) -> None:
        """Add a run; if there are more than :data:`MOST`, the oldest one is removed."""
        self._cells[cell.count] = cell
        if len(self._cells) > MOST:
            del self._cells[next(iter(self._cells))]

    def get(self, count: int | None) -> Cell | None:
        """Return the run with this number; None if it is unknown."""
        return self._cells.get(count) if count is not None else None

    @property
    def last(self) -> Cell | None:
        """Return the last run; None if there is none."""
        return self._cells[next(reversed(self._cells))] if self._cells else None

    def since(self, count: int) -> Iterator[Cell]:
        """Yield the runs from this number on, oldest first."""
        return (cell for number, cell in list(self._cells.items()) if number >= count)
