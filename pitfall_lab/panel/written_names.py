"""Finds, from the text of a statement, the names whose objects it changes: ``w -= …``, ``h[0] = …``, ``h.mul_()``."""

from __future__ import annotations

import ast


def written_into(statement: ast.AST) -> set[str]:
    """The names whose objects ``statement`` changes, as far as its text shows: ``w -= …``, ``h[0] = …``, ``h.mul_()``, ``opt.step()``."""
    found = set()
    for node in ast.walk(statement):
        targets: list[ast.expr] = []
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, (ast.Subscript, ast.Attribute))]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _changes(node.func.attr):
            targets = [node.func.value]
        found |= {name for target in targets if (name := _root(target))}
    return found


_CHANGING = {"step", "load_state_dict", "append", "extend", "pop", "update"}


def _changes(method: str) -> bool:
    return (method.endswith("_") and not method.endswith("__")) or method in _CHANGING


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
