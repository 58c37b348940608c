"""What the code of a cell does through the notebook's functions that it calls (:func:`reaching` and :func:`does`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.panel.cells_run import Cell


def definitions(runs: list[Cell]) -> dict[str, ast.AST]:
    """The functions and methods in the cells ``runs`` by name, as syntax trees; of several with one name, the
    newest.
    """
    nodes = (node for run in runs for node in ast.walk(run.tree))
    return {node.name: node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def reaching(words: str, runs: list[Cell]) -> set[str]:
    """The names of functions and methods in the cells ``runs`` whose source contains ``words``, and of those that call
    one of them, directly or indirectly.
    """
    calls = {name: set(called_in(node)) for name, node in definitions(runs).items()}
    found = {name for name, node in definitions(runs).items() if words in ast.unparse(node)}
    while more := {name for name, inner in calls.items() if inner & found} - found:
        found |= more
    return found


def called_in(node: ast.AST) -> Iterator[str]:
    """Yield the name of the function or method of each call in the code; an empty string for a call of any other
    expression.
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            yield (
                each.func.id
                if isinstance(each.func, ast.Name)
                else each.func.attr
                if isinstance(each.func, ast.Attribute)
                else ""
            )


def does(node: ast.AST, words: str, through: set[str]) -> bool:
    """Whether the code contains ``words``, or calls one of the functions named in ``through``."""
    return words in ast.unparse(node) or not through.isdisjoint(called_in(node))


def loops_reached(last: Cell, runs: list[Cell]) -> Iterator[ast.For | ast.While]:
    """The ``for`` and ``while`` loops of the cell ``last`` and of the functions of ``runs`` that it calls directly."""
    functions = definitions(runs)
    reached = [last.tree, *(functions[name] for name in sorted(set(called_in(last.tree))) if name in functions)]
    return (node for tree in reached for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)))
