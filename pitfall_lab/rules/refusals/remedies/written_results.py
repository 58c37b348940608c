"""Errors of an in-place write: the result becomes a new tensor, and the allocation for it is removed."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.writing_repairs import new_value
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

FACTORIES = {"empty", "zeros", "ones", "empty_like", "zeros_like", "ones_like", "new_empty", "new_zeros", "full"}
"""Calls in the source that only allocate memory for a result."""


def as_new_tensor(error: Error) -> Remedy | None:
    """Return the remedy that rewrites the failed line without changing a tensor in place: ``x = x / 2`` for ``x /= 2``;
    None if there is no such form.
    """
    program = error.refused.story.program
    node, statement = program.at(error.refused.span), program.statement_at(error.refused.span)
    fix = new_value(program, node, statement) if node is not None and statement is not None else None
    return Remedy((fix,)) if fix is not None else None


def without_out(error: Error) -> Remedy | None:
    """Return the remedy for a call with ``out=``, with a fix that assigns the result to the name instead, and removes
    the line that only allocated memory for it.

    If ``out`` is no name, the remedy of :func:`as_new_tensor`. None if the line has no out-of-place form.
    """
    refused, program = error.refused, error.refused.story.program
    statement, call = program.statement_at(refused.span), refused.call
    room = next((k.value for k in call.keywords if k.arg == "out"), None) if call is not None else None
    found = as_new_tensor(error)
    if found is None or statement is None or not isinstance(room, ast.Name):
        return found
    made = _prepared(program, room, statement)
    edits = merge(found.fixes[0].edits, program.delete(made)) if made is not None else found.fixes[0].edits
    title = T(
        en=f"Give the result the name `{room.id}` instead of writing it there",
        zh=f"把结果命名为 `{room.id}`，而不是写入其中",
    )
    fix = Fix(title, edits or found.fixes[0].edits)
    related = (
        (
            Related(
                "made", program.place(made), None, T(en=f"`{room.id}` is prepared here", zh=f"`{room.id}` 在这里准备好")
            ),
        )
        if made is not None
        else ()
    )
    return Remedy((fix,), related=related)


def _prepared(program: Program, room: ast.Name, user: ast.stmt) -> ast.stmt | None:
    """The statement that only allocated memory for ``room``, if nothing reads it before the call; else None."""
    function = program.function(user)
    names = [
        n
        for n in program.nodes
        if isinstance(n, ast.Name) and n.id == room.id and n is not room and program.function(n) is function
    ]
    stores = [program.statement(n) for n in names if isinstance(n.ctx, ast.Store)]
    made = stores[0] if len(stores) == 1 else None
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call) or called(made.value) not in FACTORIES:
        return None
    reads = [n for n in names if isinstance(n.ctx, ast.Load)]
    inside = [n for n in reads if user in program.block(user) and _follows(program, user, n)]
    return made if len(inside) == len(reads) and program.stands_alone(made) else None


def _follows(program: Program, first: ast.stmt, node: ast.AST) -> bool:
    """Whether ``node`` is, or is inside, a statement after ``first`` in the same block."""
    block = program.block(first)
    later = block[block.index(first) + 1 :]
    return any(each in later for each in [node, *program.ancestors(node)])
