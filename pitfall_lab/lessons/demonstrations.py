"""Finds calls that a learner adds below an answer to see a function fail, as the exercise says it must. :func:`without`
returns a cell without them.

Such a call ends the cell with the very error that the exercise requires, or writes a second time where one write is
required. So in an exercise that says "make it fail", the code below the last definition is left out, from the first
statement on that uses a name of the exercise.
"""

from __future__ import annotations

import ast
from functools import cache

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@cache
def defined(given: str) -> tuple[str, ...]:
    """The names of the functions and classes that are to be completed in a given cell."""
    return tuple(node.name for node in ast.parse(given).body if isinstance(node, _DEFINITIONS))


def demonstrates(cell: str, names: tuple[str, ...]) -> bool:
    """Whether a line at the top level of the cell may use one of ``names`` outside of a definition.

    This is a quick test of the text, which may be True where no such name is used.
    """
    lines = (
        line
        for line in cell.split("\n")
        if line[:1].strip() and not line.startswith(("def ", "async def ", "class ", "@", "#"))
    )
    return any(
        name in line or line.startswith(("try", "with", "for", "if", "while")) for line in lines for name in names
    )


def without(cell: str, names: tuple[str, ...]) -> str:
    r"""The cell up to the first statement below its last definition that uses one of ``names``.

    Definitions are of functions, classes, or by assignment to one of ``names``. The whole cell is returned if there is
    no such statement or no definition, or if it is not valid Python. Lines that stay keep their numbers.

    >>> without("def f():\n    return 1\n\nprint(f())\nx = 2\n", ("f",))
    'def f():\n    return 1\n\n'
    """
    try:
        body = ast.parse(cell).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return cell
    last = max((n for n, statement in enumerate(body) if _defines(statement, names)), default=-1)
    first = next((statement for statement in body[last + 1 :] if _uses(statement, names)), None)
    if first is None or last < 0:
        return cell
    return "".join(f"{line}\n" for line in cell.split("\n")[: first.lineno - 1])


def _defines(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    if isinstance(statement, _DEFINITIONS):
        return True
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names
        for node in ast.walk(statement)
    )


def _uses(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement))
