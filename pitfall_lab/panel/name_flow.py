"""Reads from the source of a cell which names it reads from earlier cells, and from which names each name is computed
(:func:`flow`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_NOT_NUMBERS = {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "parameters", "state_dict"}
_LOOKS = {"len", "type", "isinstance", "print"}


def simple(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that contain no other statements, in order, including those inside blocks; the bodies of functions
    and classes are left out.
    """
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        blocks = [
            block
            for name in ("body", "orelse", "finalbody")
            if isinstance(block := getattr(statement, name, None), list)
        ]
        blocks += [handler.body for handler in getattr(statement, "handlers", ())]
        if not blocks:
            yield statement
        for block in blocks:
            yield from simple(block)


def flow(tree: ast.Module) -> tuple[set[str], dict[str, set[str]]]:
    r"""The names that a cell reads from earlier cells and, for each name that it binds, the names of earlier cells from
    which its value was computed.

    >>> taken, made = flow(ast.parse("a = x * 2\nb = a + y\nc = b.shape"))
    >>> sorted(taken), {name: sorted(names) for name, names in made.items()}
    (['x', 'y'], {'a': ['x'], 'b': ['x', 'y'], 'c': []})
    """
    taken: set[str] = set()
    made: dict[str, set[str]] = {}
    for statement in statements(tree):
        read = set(reads(statement))
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            read.add(statement.target.id)
        taken |= read - made.keys()
        behind = {each for name in read for each in made.get(name, {name})}
        for name in binds(statement):
            made[name] = behind
    return taken, made


def statements(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a cell, in this order: the definitions, the headers of loops and ``with`` as assignments (``x =
    xs`` for ``for x in xs``), and the simple statements.
    """
    return [*_definitions(tree), *_headers(tree), *simple(tree.body)]


def _definitions(tree: ast.Module) -> Iterator[ast.stmt]:
    return (each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)))


def _headers(tree: ast.Module) -> Iterator[ast.stmt]:
    """Loops and with statements as assignments: ``for x in xs:`` as ``x = xs``, ``with a as b:`` as ``b = a``."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            yield ast.Assign([node.target], node.iter)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            yield from (
                ast.Assign([each.optional_vars], each.context_expr)
                for each in node.items
                if each.optional_vars is not None
            )


def reads(node: ast.AST) -> Iterator[str]:
    """The names whose values a statement uses, except where only a shape or type is read. What functions, classes and
    lambdas read is left out: their definitions give no names.
    """
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
        yield from reads(child)


def binds(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
