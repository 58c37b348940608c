"""The calls and assignments of a cell in the order in which they run, through the notebook's own functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pitfall_lab.panel.calls import definitions
from pitfall_lab.panel.cells_run import Cell

DEEP = 5
"""So many calls of own functions inside each other are followed."""


def in_order(tree: ast.AST, runs: list[Cell]) -> Iterator[ast.Call | ast.Assign]:
    """Yield the calls and assignments of the code, each loop once, and those of the functions where they are called.

    A function that is given to another one (``opt.step(closure)``) counts as called there.

    >>> cells = [Cell(1, "", "def f():\\n    b()")]
    >>> [ast.unparse(each) for each in in_order(ast.parse("for x in a():\\n    f()\\n    c(d())"), cells)]
    ['a()', 'f()', 'b()', 'd()', 'c(d())']
    """
    yield from _events(tree, definitions(runs), DEEP)


def name_called(call: ast.Call) -> str:
    """The name of the function or method that is called; empty if it has none."""
    function = call.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _events(node: ast.AST, functions: Mapping[str, ast.AST], depth: int) -> Iterator[ast.Call | ast.Assign]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, (ast.For, ast.AsyncFor)):
        inner: list[ast.AST] = [node.iter, *node.body, *node.orelse]
    elif isinstance(node, ast.Call):
        inner = [node.func, *node.args, *node.keywords]
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        inner = [node.value]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        inner = [*node.generators, node.elt]
    else:
        inner = list(ast.iter_child_nodes(node))
    for each in inner:
        yield from _events(each, functions, depth)
    if isinstance(node, ast.Assign):
        yield node
    if isinstance(node, ast.Call):
        yield node
        given = [each.id for each in node.args if isinstance(each, ast.Name)]
        for name in (name_called(node), *given):
            if depth and isinstance(function := functions.get(name), (ast.FunctionDef, ast.AsyncFunctionDef)):
                for statement in function.body:
                    yield from _events(statement, functions, depth - 1)
