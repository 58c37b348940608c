"""Reads from the source of a cell which data its statements change in place, so that a second run changes it again
(:func:`writes`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_ADDING = (ast.BitOr, ast.BitAnd)
"""Operators that change nothing more when they are applied a second time."""
_METHODS = {
    "add_", "sub_", "subtract_", "mul_", "multiply_", "div_", "divide_", "pow_", "neg_", "exp_", "expm1_", "log_",
    "log2_", "log10_", "log1p_", "sqrt_", "rsqrt_", "square_", "reciprocal_", "sigmoid_", "tanh_", "logit_",
    "bitwise_not_", "logical_not_", "cumsum_", "remainder_",
    "floor_divide_", "true_divide_", "t_", "transpose_", "squeeze_", "unsqueeze_",
}  # fmt: skip
"""Methods of tensors that change them again when they are called again."""


class RewriteStatement(NamedTuple):
    """A statement outside loops and functions that changes ``target`` (an expression) in place; ``root`` is the name
    with which the target begins, ``text`` the statement's source, ``line`` its line in the cell.

    ``key`` is the statement's dumped syntax tree, by which it is found again in an edited cell. ``made``: the cell has
    bound the root before, by a call. ``names`` are the other names that the statement reads.
    """

    target: str
    root: str
    key: str
    text: str
    line: int
    made: bool
    names: frozenset[str]


def writes(tree: ast.Module) -> list[RewriteStatement]:
    r"""The statements of a cell that change an object in place, so that each run changes it again; those inside loops,
    functions and classes are left out.

    >>> [(each.target, each.text, each.made) for each in writes(ast.parse("y = from_numpy(a)\ny -= 1\nx[:, 0] /= s\nz[0] = 1"))]
    [('y', 'y -= 1', True), ('x', 'x[:, 0] /= s', False)]
    """  # noqa: E501
    found: list[RewriteStatement] = []
    made: dict[str, bool] = {}
    for statement in _in_order(tree.body):
        target = _target(statement)
        while isinstance(target, ast.Subscript) and (
            isinstance(target.slice, (ast.Slice, ast.Tuple)) or _is_mask(target.slice)
        ):
            target = target.value
        root = _root(target) if target is not None else ""
        if target is not None and root and made.get(root, True):
            reads = {
                each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            }
            key, text = ast.dump(statement), ast.unparse(statement)
            names = frozenset(reads - {root})
            found.append(RewriteStatement(ast.unparse(target), root, key, text, statement.lineno, root in made, names))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            for each in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for name in ast.walk(each):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        made[name.id] = isinstance(statement.value, ast.Call)
    return found


def assigned(tree: ast.Module) -> frozenset[str]:
    """The names that a cell binds to another object, or deletes: ``x = …``, ``for x in …``, but not ``x += …``. Names
    bound inside its functions count; the names of definitions and imports do not.
    """
    kept = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    names = (
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del))
    )
    return frozenset(node.id for node in names if id(node) not in kept)


def repeated(
    found: Iterable[RewriteStatement], is_data: Callable[[str], bool], is_of: Callable[[str, str], bool]
) -> list[RewriteStatement]:
    """Those of ``found`` that are probably unintended when repeated, unlike a step of a state (such as a hand-written
    update): writes to an object that the cell created by a call; and writes by constants, or by values computed from
    the data, if this is true of all of the cell's writes to the same name.

    ``is_data``: whether a name is a tensor or an array. ``is_of``: whether a name was computed from another one in an
    earlier cell.
    """
    found = list(found)
    plain = {each: all(not is_data(name) or is_of(name, each.root) for name in each.names) for each in found}
    steps = {each.root for each in found if not plain[each] and not each.made}
    return [each for each in found if each.made or each.root not in steps]


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.With, ast.If, ast.Try)):
            yield from _in_order(statement.body)
        elif not hasattr(statement, "body"):
            yield statement


def _target(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.AugAssign) and not isinstance(statement.op, _ADDING):
        return statement.target
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in _METHODS:
        return called.value
    return None


def _is_mask(index: ast.expr) -> bool:
    return isinstance(index, (ast.Compare, ast.Name, ast.BinOp, ast.UnaryOp))


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
