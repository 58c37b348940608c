"""Where the source gives a name its value: through loops over containers, and through assignments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called, is_name, root

DEEP = 6
VIEWS = {"items", "values", "keys", "copy"}
"""Methods of a dictionary or list whose result has elements of it."""


class NameAssigned(NamedTuple):
    """One assignment of a name: ``statement`` is the statement, ``value`` the expression that it assigns to the
    name.
    """

    statement: ast.Assign
    value: ast.expr


def given(program: Program, node: ast.expr | None) -> NameAssigned | None:
    """Return the last assignment, on a line above ``node``, of the variable that ``node`` starts from; None if the
    source shows none.

    For a loop variable it is the assignment of what is iterated: that of ``old`` for ``q`` in ``for p, q in
    zip(parameters, old)``. Assignments (with ``=``) in the same function are preferred, then those at the top level;
    for an attribute, those anywhere. None for a parameter that its function does not assign.
    """
    here = node
    for _ in range(DEEP):
        if here is None:
            return None
        here = _start(here)
        if not is_name(here):
            return None
        iterated = _iterated(program, here)
        if iterated is None:
            return _assigned(program, here)
        here = iterated
    return None


def _start(node: ast.expr) -> ast.expr:
    """The expression that subscripts, views and calls of ``VIEWS`` start from: ``old`` for ``old[0].view(-1)`` and
    ``old.values()``.
    """
    while True:
        node = root(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in VIEWS:
            node = node.func.value
        else:
            return node


def _iterated(program: Program, name: ast.expr) -> ast.expr | None:
    """The expression over which the loop or comprehension that assigns ``name`` iterates; None if ``name`` is no plain
    name, or not a variable of a loop around it in its function.
    """
    if not isinstance(name, ast.Name):
        return None
    for around in program.ancestors(name):
        if isinstance(around, Function):
            return None
        loops: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(around, ast.For):
            loops = [(around.target, around.iter)]
        elif isinstance(around, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            loops = [(each.target, each.iter) for each in around.generators]
        for target, iterable in loops:
            if name not in ast.walk(iterable) and (found := _part(target, iterable, name.id)) is not None:
                return found
    return None


def _part(target: ast.expr, iterable: ast.expr, name: str) -> ast.expr | None:
    """The container from which the loop variable ``name`` is taken: ``b`` for ``q`` in ``for p, q in zip(a, b)``.

    Other iterables than ``zip`` and ``enumerate`` are returned whole. None if ``target`` does not contain the name.
    """
    if name not in {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}:
        return None
    if isinstance(iterable, ast.Call) and isinstance(target, ast.Tuple):
        place = next(
            i for i, each in enumerate(target.elts) if name in {n.id for n in ast.walk(each) if isinstance(n, ast.Name)}
        )
        if called(iterable) == "zip" and len(iterable.args) == len(target.elts):
            return _part(target.elts[place], iterable.args[place], name)
        if called(iterable) == "enumerate" and iterable.args and place == 1:
            return _part(target.elts[1], iterable.args[0], name)
    return iterable


def _assigned(program: Program, name: ast.expr) -> NameAssigned | None:
    text, inside = program.segment(name), program.function(name)
    found = [each for each in _assignments(program, text) if each.statement.lineno < name.lineno]
    near = [each for each in found if program.function(each.statement) is inside]
    if (
        not near
        and isinstance(inside, Function)
        and text in {a.arg for a in (*inside.args.args, *inside.args.kwonlyargs)}
    ):
        return None
    near = near or [
        each for each in found if program.function(each.statement) is None or isinstance(name, ast.Attribute)
    ]
    return max(near, key=lambda each: each.statement.lineno, default=None)


def _assignments(program: Program, text: str) -> Iterator[NameAssigned]:
    for node in program.nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
                for one, value in zip(target.elts, node.value.elts, strict=False):
                    if is_name(one) and program.segment(one) == text:
                        yield NameAssigned(node, value)
            elif is_name(target) and program.segment(target) == text:
                yield NameAssigned(node, node.value)
