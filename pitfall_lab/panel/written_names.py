"""Finds, in the source of a cell or a statement, the names whose objects it changes: ``w -= …``, ``h[0] = …``,
``h.mul_()`` (:func:`written_into` and :func:`changed`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def written_into(statement: ast.AST) -> set[str]:
    """The names whose objects ``statement`` changes in place, as far as the source shows: ``w -= …``, ``h[0] = …``,
    ``h.mul_()``, ``opt.step()``.
    """
    found = set()
    for node in ast.walk(statement):
        targets: list[ast.expr] = []
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, (ast.Subscript, ast.Attribute))]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _changes(node.func.attr):
            is_function = _root(node.func) in MODULES  # ``nn.init.zeros_(w)``: what it is given changes, not ``nn``
            targets = node.args[:1] if is_function else [node.func.value]
        found |= {name for target in targets if (name := _root(target))}
    return found


MODULES = {"torch", "nn", "F", "init", "np"}
"""Python modules by their usual names."""
_CHANGING = {"step", "load_state_dict", "append", "extend", "pop", "update"}


def _changes(method: str) -> bool:
    return (method.endswith("_") and not method.endswith("__")) or method in _CHANGING


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed(cell: str) -> list[str]:
    r"""The names that the cell with the source ``cell`` reads from earlier cells and changes, sorted: when run again,
    it would start from other values. An empty list if the source is not valid Python.

    >>> changed("h.mul_(2)\ny = h + w\nw -= 1\nopt.step()")
    ['h', 'opt', 'w']
    >>> changed("nn.init.zeros_(h)")
    ['h']
    >>> changed("h = torch.ones(2)\nh.mul_(2)")
    []
    >>> changed("n = sum(p.numel() for p in net.parameters())")
    []
    """
    try:
        tree = ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError):
        return []
    made: set[str] = set()
    found: set[str] = set()
    for statement in _in_order(tree.body):
        reads = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        inner = set(_inner(statement))
        written = {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        } - inner
        found |= (written_into(statement) | (reads & written)) - made - inner
        made |= written
    return sorted(found)


def _inner(statement: ast.AST) -> Iterator[str]:
    """The variables of comprehensions and the arguments of lambdas in a statement, which no cell has."""
    for node in ast.walk(statement):
        if isinstance(node, ast.comprehension):
            yield from (n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Lambda):
            yield from (each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    """The simple statements and the targets of loops and ``with`` headers, in the order of the source; definitions are
    left out.
    """
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not hasattr(statement, "body"):
            yield statement
            continue
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            yield statement.target
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from (item.optional_vars for item in statement.items if item.optional_vars is not None)
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        for block in [*blocks, *(handler.body for handler in getattr(statement, "handlers", ()))]:
            yield from _in_order(block)
