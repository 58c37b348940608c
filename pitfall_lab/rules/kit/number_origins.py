"""Finds in the source the calls of ``item()`` and ``float()`` whose sum or average a Python number is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import parameters, passed

AVERAGES = {"average", "fmean", "mean", "round", "sum"}
"""Functions of numbers whose result rises with each of them."""
SAME = {"cpu", "detach", "numpy"}
"""Calls that keep a tensor's value."""
DEEPEST = 8

Seen = frozenset[tuple[str, Function | None]]


def conversions(program: Program, node: ast.expr, seen: Seen = frozenset(), deep: int = 0) -> list[ast.Call] | None:
    """Return the calls in the source that convert tensors to the Python numbers of which ``node`` is a sum, mean or
    multiple; followed through names, lists, and functions of the program.

    Empty if ``node`` is a constant. None if it contains anything else, or if it may fall when one of the numbers rises.
    """
    if deep > DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        return []
    if isinstance(node, ast.BinOp):
        return _combined(program, node, seen, deep + 1)
    if isinstance(node, ast.Call):
        return _of_call(program, node, seen, deep + 1)
    if isinstance(node, ast.List):
        return _all(program, node.elts, seen, deep + 1)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return conversions(program, node.elt, seen, deep + 1)
    if isinstance(node, ast.Name):
        return _of_name(program, node, seen, deep + 1)
    return None


def _all(program: Program, nodes: list[ast.expr], seen: Seen, deep: int) -> list[ast.Call] | None:
    found: list[ast.Call] = []
    for node in nodes:
        each = conversions(program, node, seen, deep)
        if each is None:
            return None
        found += each
    return found


def _combined(program: Program, node: ast.BinOp, seen: Seen, deep: int) -> list[ast.Call] | None:
    """The conversions in both terms of a sum, in the only factor of a product that has some, or in the numerator of a
    quotient; None for other operations, for a minus sign, and if both factors have some.
    """
    if any(isinstance(each, ast.USub) for each in ast.walk(node)):
        return None
    if isinstance(node.op, ast.Add):
        return _all(program, [node.left, node.right], seen, deep)
    if isinstance(node.op, ast.Div):
        return conversions(program, node.left, seen, deep)
    if isinstance(node.op, ast.Mult):
        known = [each for side in (node.left, node.right) if (each := conversions(program, side, seen, deep))]
        return known[0] if len(known) == 1 else None
    return None


def _of_call(program: Program, node: ast.Call, seen: Seen, deep: int) -> list[ast.Call] | None:
    name = called(node)
    if name == "item" and not node.args:
        return [node]
    if name == "float" and len(node.args) == 1:
        return conversions(program, node.args[0], seen, deep) or [node]
    if name in SAME and isinstance(node.func, ast.Attribute):
        return conversions(program, node.func.value, seen, deep)
    if name in AVERAGES and node.args:
        return conversions(program, node.args[0], seen, deep)
    values = _returned(program, name)
    return _all(program, values, seen, deep) if values else None


def _returned(program: Program, name: str) -> list[ast.expr]:
    """The expressions that the program's function named ``name`` returns; empty if there is no such function or
    several.
    """
    functions = [each for each in program.nodes if isinstance(each, Function) and each.name == name]
    if len(functions) != 1:
        return []
    returns = (n for n in ast.walk(functions[0]) if isinstance(n, ast.Return) and program.function(n) is functions[0])
    return [each.value for each in returns if each.value is not None]


def _of_name(program: Program, node: ast.Name, seen: Seen, deep: int) -> list[ast.Call] | None:
    function = program.function(node)
    if (node.id, function) in seen:
        return []
    seen |= {(node.id, function)}
    values = list(_given(program, node.id, function))
    if not values and function is not None and node.id in parameters(function):
        values = list(passed(program, function, node.id))
    if not values or any(each is None for each in values):
        return None
    return _all(program, [each for each in values if each is not None], seen, deep)


def _given(program: Program, name: str, function: Function | None) -> Iterator[ast.expr | None]:
    """The values that statements of a function (None: of the top level) assign, add or append to ``name``; None instead
    of a value that cannot be determined.
    """
    for node in program.nodes:
        if program.function(node) is not function:
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(program, target, node.value, name)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            if not isinstance(node.op, ast.Div):  # by their number
                yield node.value if isinstance(node.op, ast.Add) else None
        elif isinstance(node, ast.Call) and called(node) == "append" and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name and node.args:
                yield node.args[0]
        elif isinstance(node, ast.For) and name in {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            yield None


def _assigned(program: Program, target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr | None]:
    if isinstance(target, ast.Name):
        if target.id == name:
            yield value
    elif isinstance(target, ast.Tuple | ast.List):
        places = [place for place, each in enumerate(target.elts) if isinstance(each, ast.Name) and each.id == name]
        for place in places:
            tuples = [value] if not isinstance(value, ast.Call) else _returned(program, called(value))
            parts = [each.elts for each in tuples if isinstance(each, ast.Tuple) and len(each.elts) == len(target.elts)]
            yield from [each[place] for each in parts] if len(parts) == len(tuples) and parts else [None]
