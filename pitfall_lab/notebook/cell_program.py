"""A cell with the earlier cells' definitions that it uses, as one program, so that it is looked at, repaired and run
again: :func:`program` joins them.

A class in one cell and the loop in another are two texts to Python and one program to its author. Joined, they are to
the rules what they would be in one file; each place still names its cell and its line there.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pitfall_lab.check.workshop import AGAIN, THIS
from pitfall_lab.notebook.taken_names import taken
from pitfall_lab.trace import Part

MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a function or class of an earlier cell is defined: ``filename`` is the file that Python calls the cell by,
    ``first`` and ``last`` are its first and last line there, counted from 1.
    """

    filename: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CellProgram:
    """A cell as it can be run elsewhere.

    ``text`` are the definitions and the cell; ``parts`` say which lines are which cell's, ``places`` where the
    lines of Python's files are in it: ``(file, first line there, last line, first line here)``. ``imports`` is run
    before it, ``values`` are the other values that the cell uses (:mod:`pitfall_lab.observe.carry`), bound before
    its own first line; ``left`` are names that could not be carried. ``begins`` is the line of ``text`` at which
    the text that is run in the notebook begins.
    """

    text: str
    parts: tuple[Part, ...] = ()
    places: tuple[tuple[str, int, int, int], ...] = ()
    imports: str = ""
    values: bytes = b""
    left: tuple[str, ...] = ()
    begins: int = 1


@dataclass(frozen=True, slots=True)
class EarlierCells:
    """Earlier cells that are run again in front of a cell.

    ``lines`` are their lines of text, each cell below a comment line that names it; ``parts`` say at which of these
    lines which cell begins. Both are empty if there are none.
    """

    lines: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


def again(cells: Iterable[tuple[str, str, str]]) -> EarlierCells:
    """Earlier cells as they are run again in front of another; ``cells`` are (name, text, the notebook's id for it)."""
    lines: list[str] = []
    parts: list[Part] = []
    for name, text, cell_id in cells:
        lines.append(f"{AGAIN}{name} ──")
        parts.append(Part(name, len(lines) + 1, 1, cell_id))
        lines += text.rstrip("\n").split("\n")
    return EarlierCells((*lines, THIS) if lines else (), tuple(parts))


def program(
    cell: str,
    namespace: Mapping[str, Any],
    name_of: Callable[[str], Part | None],
    cell_id: str = "",
    before: EarlierCells | None = None,
) -> CellProgram:
    """Join ``cell`` with the definitions that it uses of earlier cells.

    ``namespace`` are the notebook's variables. ``name_of`` says which cell a file of Python's is, None for others.
    ``cell_id`` is the notebook's id for the cell; ``before`` are earlier cells that ``cell`` begins with. Names that
    begin with ``_`` are not taken along; definitions that these use are searched ``MOST_ROUNDS`` times.
    """
    from pitfall_lab.check import prelude
    from pitfall_lab.observe.carry import Carried, pack

    known = {name: value for name, value in namespace.items() if not name.startswith("_")}
    found: list[Definition] = []
    carried = Carried()
    for _ in range(MOST_ROUNDS):
        text, parts, places, begins = _joined(found, cell, name_of, cell_id, before or EarlierCells())
        names = taken(text) & known.keys()
        imports = prelude("\n".join(names), known)
        carried = pack({name: known[name] for name in names - taken_by(imports)})
        wanted = [definition(each, name_of) for each in (*(known[name] for name in names), *carried.classes)]
        new = dict.fromkeys(one for one in wanted if one is not None and one not in found)
        if not new:
            break
        found = sorted([*found, *new], key=lambda one: (_number(name_of(one.filename)), one.first))
    return CellProgram(text, parts, places, imports, carried.data, carried.left, begins)


def taken_by(imports: str) -> set[str]:
    """Return the names that import statements bind (of ``import a.b`` it is ``"a.b"``); none if ``imports`` cannot be
    parsed.
    """
    found = [node for node in _statements(imports) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {alias.asname or alias.name for node in found for alias in node.names}


def definition(value: Any, name_of: Callable[[str], Part | None]) -> Definition | None:
    """Where ``value`` is defined, if it is a function or class defined under its own name at the top level of an
    earlier cell; None for everything else, and for a class without a method of its own: a class is found by its
    methods' code.
    """
    if not isinstance(value, (type, types.FunctionType)) or getattr(value, "__module__", None) != "__main__":
        return None
    for code in _codes(value):
        if name_of(code.co_filename) is None:
            continue
        for statement in _statements("".join(linecache.getlines(code.co_filename))):
            first, last = _lines(statement)
            if first <= code.co_firstlineno <= last and getattr(statement, "name", None) == value.__name__:
                return Definition(code.co_filename, first, last)
    return None


def _codes(value: Any) -> Iterator[types.CodeType]:
    if isinstance(value, types.FunctionType):
        inner = inspect.unwrap(value)
        yield from (each.__code__ for each in (value, inner) if isinstance(each, types.FunctionType))
        return
    for each in list(vars(value).values()):
        function = getattr(each, "__func__", None) or getattr(each, "fget", None) or each
        if isinstance(function, types.FunctionType):
            yield inspect.unwrap(function).__code__


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def _lines(statement: ast.stmt) -> tuple[int, int]:
    decorators: Iterable[ast.expr] = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(each.lineno for each in decorators)]), statement.end_lineno or statement.lineno


def _text(one: Definition) -> str:
    return "".join(linecache.getlines(one.filename)[one.first - 1 : one.last])


def _number(part: Part | None) -> int:
    digits = "".join(c for c in part.name if c.isdigit()) if part is not None else ""
    return int(digits or 0)


def _joined(
    ordered: list[Definition], cell: str, name_of: Callable[[str], Part | None], cell_id: str, before: EarlierCells
) -> tuple[str, tuple[Part, ...], tuple[tuple[str, int, int, int], ...], int]:
    """The definitions under a line that names their cell, and the cell under one of its own; and the
    line at which the cell begins.
    """
    lines: list[str] = []
    parts: list[Part] = []
    places: list[tuple[str, int, int, int]] = []
    for one in ordered:
        part = name_of(one.filename)
        assert part is not None
        lines.append(heading(part.name))
        parts.append(Part(part.name, len(lines) + 1, one.first, part.cell))
        places.append((one.filename, one.first, one.last, len(lines) + 1))
        lines += _text(one).rstrip("\n").split("\n")
    if ordered and not before.lines:
        lines.append(THIS)
    begins = len(lines) + 1
    parts += (replace(part, line=part.line + begins - 1) for part in before.parts)
    parts.append(Part("", begins + len(before.lines), 1, cell_id))
    return "\n".join([*lines, cell]), tuple(parts), tuple(places), begins


def heading(name: str) -> str:
    """Return the comment line above a part of the program."""
    return f"# ── {name} ──"
