"""The calls and assignments of a cell in the order in which they run, including those in the notebook's functions that
it calls (:func:`in_order`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pitfall_lab.panel.cells_run import Cell

DEEP = 5
"""How many nested calls of the notebook's functions are followed."""


def in_order(tree: ast.AST, runs: list[Cell]) -> Iterator[ast.Call | ast.Assign]:
    r"""Yield the calls and assignments of ``tree`` in the order in which they run, each loop once, including those in
    the notebook's functions (from the cells ``runs``) where these are called.

    A function that is passed to another one (``opt.step(closure)``) counts as called there.

    >>> cells = [Cell(1, "", "def f():\n    b()")]
    >>> [ast.unparse(each) for each in in_order(ast.parse("for x in a():\n    f()\n    c(d())"), cells)]
    ['a()', 'f()', 'b()', 'd()', 'c(d())']
    """
    yield from _events(tree, own_functions(runs), DEEP)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_functions(runs: list[Cell]) -> dict[str, Function]:
    """The functions in the cells ``runs`` by name, and the methods of their classes by name with a dot before it, so
    that ``opt.step()`` is not taken for a call of a function ``step``; of several with one name, the newest.
    """
    found: dict[str, Function] = {}
    for node in (each for run in runs for each in ast.walk(run.tree)):
        methods = node.body if isinstance(node, ast.ClassDef) else ()
        found |= {f".{each.name}": each for each in methods if isinstance(each, Function)}
    inside = {id(each) for each in found.values()}
    for node in (each for run in runs for each in ast.walk(run.tree)):
        if isinstance(node, Function) and id(node) not in inside:
            found[node.name] = node
    return found


def key_of(call: ast.Call) -> str:
    """The key in :func:`own_functions` of the function that is called."""
    return ("." if isinstance(call.func, ast.Attribute) else "") + name_called(call)


def keys_called(node: ast.AST) -> Iterator[str]:
    """The keys in :func:`own_functions` of all functions that the code calls."""
    return (key_of(each) for each in ast.walk(node) if isinstance(each, ast.Call))


def name_called(call: ast.Call) -> str:
    """The name of the function or method that is called; empty for a call of any other expression."""
    function = call.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _events(node: ast.AST, functions: Mapping[str, Function], depth: int) -> Iterator[ast.Call | ast.Assign]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    for each in _inner(node):
        yield from _events(each, functions, depth)
    if isinstance(node, ast.Assign):
        yield node
    if isinstance(node, ast.Call):
        yield node
        given = [each.id for each in node.args if isinstance(each, ast.Name)]
        bodies = [functions[name].body for name in (key_of(node), *given) if depth and name in functions]
        for statement in (each for body in bodies for each in body):
            yield from _events(statement, functions, depth - 1)


def _inner(node: ast.AST) -> list[ast.AST]:
    """The inner syntax nodes of a node in the order in which they run."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter, *node.body, *node.orelse]
    if isinstance(node, ast.Call):
        return [node.func, *node.args, *node.keywords]
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        return [node.value]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [*node.generators, node.elt]
    return list(ast.iter_child_nodes(node))
