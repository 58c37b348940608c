"""Reads from the sources of the cells whether a list or dict collects results (:func:`is_collected`), and whether a
loop that fills it also empties it (:func:`adds`, :func:`empties`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable

from pitfall_lab.panel.cells_run import Ran

_ADDS = {"append", "extend", "insert", "add", "setdefault", "appendleft"}
_EMPTIES = {"clear", "pop", "popleft"}


def list_of(element: str) -> str:
    """The expression of the list or dict that contains an element; empty if the expression is no element.

    >>> list_of("net.losses[0]"), list_of("h")
    ('net.losses', '')
    """
    return element.rpartition("[")[0] if element.endswith("]") else ""


def is_collected(element: str, ran: Ran) -> bool:
    """Whether the cells in ``ran`` add to the list or dict of this element (an expression such as ``losses[0]``), and
    no assignment replaces it, or an entry of it, by a value computed from it. False if the expression is no element.

    A list of hidden states that each step replaces is not a collection.
    """
    name = _last(list_of(element))
    if not name:
        return False
    trees = [run.tree for run in ran.since(0) if name in run.text]
    return any(adds(tree, name) for tree in trees) and not any(_carries(tree, name) for tree in trees)


def adds(code: ast.AST, name: str) -> bool:
    """Whether the code adds to a list or dict whose expression ends with ``name``."""
    for node in ast.walk(code):
        if _is_call(node, _ADDS, name) or (isinstance(node, ast.AugAssign) and _last(ast.unparse(node.target)) == name):
            return True
        if isinstance(node, ast.Assign) and any(_is_slot(each, name) for each in node.targets):
            return True
    return False


def empties(code: ast.AST, name: str) -> bool:
    """Whether the code assigns a new object to the list or dict whose expression ends with ``name``, or removes
    something from it.
    """
    for node in ast.walk(code):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_whole(each, name) for target in targets for each in _parts(target)):
                return True
        elif _is_call(node, _EMPTIES, name) or (
            isinstance(node, ast.Delete) and any(name in _names(each) for each in node.targets)
        ):
            return True
    return False


def _is_call(node: ast.AST, methods: Container[str], name: str) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in methods and _last(ast.unparse(called.value)) == name


def _carries(code: ast.AST, name: str) -> bool:
    """Whether an assignment replaces the list, or an entry of it, by a value computed from it."""
    for node in ast.walk(code):
        if isinstance(node, ast.Assign) and name in _names(node.value):
            targets = [each for target in node.targets for each in _parts(target)]
            if any(_is_slot(each, name) or _is_whole(each, name) for each in targets):
                return True
    return False


def _parts(target: ast.expr) -> Iterable[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,)


def _is_slot(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and not isinstance(target.slice, ast.Slice)
        and _last(ast.unparse(target.value)) == name
    )


def _is_whole(target: ast.expr, name: str) -> bool:
    """Whether the target is the list itself, or any slice of it (``losses[:]``)."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
        target = target.value
    return isinstance(target, (ast.Name, ast.Attribute)) and _last(ast.unparse(target)) == name


def _names(code: ast.AST) -> set[str]:
    words = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    return words | {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}


def _last(expression: str) -> str:
    """The last name in an expression: of ``data['kept']`` it is ``kept``."""
    return next(reversed(re.findall(r"[^\W\d]\w*", expression)), "")
