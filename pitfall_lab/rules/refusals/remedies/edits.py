"""Changes that several remedies make: add a keyword to a call, insert lines above a statement, replace the name of a
called function.
"""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Edit
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.trace import Span

Change = tuple[Span, str]


def with_keyword(program: Program, call: ast.Call, text: str) -> Change | None:
    """Return the change (span and new text) that adds the keyword ``text``, such as ``drop_last=True``, to a call; None
    if the call already has this keyword, or ``**arguments``.
    """
    name = text.partition("=")[0]
    if any(k.arg in (None, name) for k in call.keywords):
        return None
    arguments = sorted((program.place(each) for each in [*call.args, *call.keywords]), key=lambda s: (s.line, s.column))
    if not arguments:
        end = program.place(call)
        return Span(end.end_line, end.end_column - 1, end.end_line, end.end_column - 1), text
    last = arguments[-1]
    return Span(last.end_line, last.end_column, last.end_line, last.end_column), f", {text}"


def keyword_set(program: Program, call: ast.Call, text: str) -> Change | None:
    """Return the change (span and new text) that adds the keyword ``text`` (``"sparse=False"``) to a call, or replaces
    its value; None if the call lacks the keyword and has ``**arguments``.
    """
    name, _, value = text.partition("=")
    given = next((k.value for k in call.keywords if k.arg == name), None)
    return (program.place(given), value) if given is not None else with_keyword(program, call, text)


def before(program: Program, statement: ast.stmt, *lines: str) -> Change:
    """Return the change (span and new text) that inserts ``lines`` above a statement (above its first decorator), at
    its indentation.
    """
    place, indent = program.place(first_line(statement)), program.indent(statement)
    text = "".join(
        line + "\n" + (indent if nonempty else "")
        for line, nonempty in zip(lines, [*map(bool, lines[1:]), True], strict=True)
    )
    return Span(place.line, place.column, place.line, place.column), text


def first_line(statement: ast.stmt) -> ast.AST:
    """Return the node with which a statement begins: its first decorator, or the statement itself."""
    decorators = getattr(statement, "decorator_list", [])
    return decorators[0] if decorators else statement


def outermost(program: Program, node: ast.AST) -> ast.stmt | None:
    """Return the top-level statement that contains ``node``; None if there is none."""
    found = [each for each in [node, *program.ancestors(node)] if isinstance(each, ast.stmt)]
    return found[-1] if found else None


def renamed(program: Program, call: ast.Call, name: str) -> Change:
    """Return the change (span and new text) that replaces the last part of a called function's name by ``name``:
    ``nn.BCELoss(…)`` becomes ``nn.BCEWithLogitsLoss(…)``.
    """
    place = program.place(call.func)
    length = len(call.func.attr) if isinstance(call.func, ast.Attribute) else place.end_column - place.column
    return Span(place.end_line, place.end_column - length, place.end_line, place.end_column), name


def imported(program: Program, change: Change, call: ast.Call, name: str) -> tuple[Edit, ...]:
    """Return the edits that make ``change`` to ``call`` and, if it calls a function imported by its bare name, import
    ``name`` from the same module.

    Empty if that import is not found.
    """
    changes = [change]
    if isinstance(call.func, ast.Name):
        old = call.func.id
        for node in program.nodes:
            if isinstance(node, ast.ImportFrom) and any(
                alias.name == old and alias.asname is None for alias in node.names
            ):
                if not any(alias.name == name for alias in node.names):
                    last = program.place(node.names[-1])
                    changes.append((Span(last.end_line, last.end_column, last.end_line, last.end_column), f", {name}"))
                return program.splice(*changes)
        return ()
    return program.splice(*changes)
