"""The names under which a program uses tensors that were never seen in a variable of their own: ``returns`` in
``predicted - returns`` (:func:`used_names` returns them).

Names are recorded where a result is assigned to one variable. What a function returns among others, or a module keeps
as a buffer, has a name only where it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import lru_cache

from pitfall_lab.trace.event_log import Trace
from pitfall_lab.trace.model import Event
from pitfall_lab.trace.text import excerpt

LONGEST = 200
"""Letters of the longest expression that is read."""


def used_names(trace: Trace, labels: Collection[str]) -> dict[str, str]:
    """For each of ``labels`` that is an operand which a line of the program writes as a name: that name. If several
    names are used for it, the first one in the outermost function.
    """
    found: dict[str, tuple[int, str]] = {}
    for event in trace.events:
        if event.kind != "call" or event.span is None:
            continue
        depth = len(event.scope)
        for place, operand in enumerate(event.operands):
            label = operand.label
            if label not in labels or label is None or (label in found and found[label][0] <= depth):
                continue
            name = operand_names(trace, event).get(operand.name or place)
            if name:
                found[label] = depth, name
    return {label: name for label, (_, name) in found.items()}


def operand_names(trace: Trace, event: Event) -> dict[int | str, str]:
    """Return the text of those operands of the call ``event`` that its line writes as names (``x``, ``self.scores``),
    by place (from 0) or keyword; with a list or a tuple as the first argument, its elements by place.

    Empty if the expression on the line is another call around it, has more than ``LONGEST`` (200) characters, or is not
    known.
    """
    text = excerpt(trace, event.span, LONGEST)
    names = _operands(text, event.name, event.op.startswith("torch.Tensor."))
    listed: dict[int | str, str] = {at: name for at, name in enumerate(_listed(text, event.name)) if name}
    return {**listed, **names} if listed else names


@lru_cache(maxsize=4096)
def _operands(text: str, operation: str, method: bool) -> dict[int | str, str]:
    """The operands written as names, by place or keyword, where the text is this very operation and not a
    call of something around it.

    >>> _operands("predicted - returns", "__sub__", True)
    {0: 'predicted', 1: 'returns'}
    >>> _operands("F.softmax(self.scores, dim=-1)", "softmax", False), _operands("model(x)", "linear", False)
    ({0: 'self.scores'}, {})
    """
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, ValueError, IndexError):
        return {}
    parts: dict[int | str, ast.expr] = dict(enumerate(_parts(statement, operation, method)))
    node = getattr(statement, "value", None)
    if parts and isinstance(node, ast.Call):
        parts |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    return {place: ast.unparse(part) for place, part in parts.items() if _is_name(part)}


@lru_cache(maxsize=4096)
def _listed(text: str, operation: str) -> tuple[str, ...]:
    """The tensors of a list that is the first argument of a call of this operation; an empty
    text for one that is no name.

    An empty tuple if the text is no such call.

    >>> _listed("torch.cat([skip, f(x)], dim=1)", "cat")
    ('skip', '')
    """
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return ()
    if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.List | ast.Tuple):
        return ()
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    parts = call.args[0].elts
    if name != operation or any(isinstance(part, ast.Starred) for part in parts):
        return ()
    return tuple(ast.unparse(part) if _is_name(part) else "" for part in parts)


def _parts(statement: ast.stmt, operation: str, method: bool) -> list[ast.expr]:
    match statement:
        case ast.AugAssign(target=ast.Subscript() as written) | ast.Assign(targets=[ast.Subscript() as written]) if (
            operation.strip("_") in ("getitem", "setitem")
        ):
            return _selected(written)
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case (
            ast.Expr(value=ast.BinOp(left=left, right=right))
            | ast.Expr(value=ast.Compare(left=left, comparators=[right]))
        ):
            return [] if operation == "__bool__" else [left, right]  # ``if a > b:`` decides by the result
        case ast.Expr(value=ast.Subscript() as read):
            return _selected(read)
        case ast.Expr(value=ast.UnaryOp(operand=one)):
            return [one]
        case ast.Expr(value=ast.Call(func=func, args=args)):
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if name.strip("_").lower() != operation.strip("_").lower():
                return []
            whole = args[
                : next(
                    (at for at, one in enumerate(args) if isinstance(one, ast.List | ast.Tuple | ast.Starred)),
                    len(args),
                )
            ]
            return [func.value, *whole] if method and isinstance(func, ast.Attribute) else whole
    return []


def _selected(node: ast.Subscript) -> list[ast.expr]:
    """The tensor, and the positions where all of them are written as names."""
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [node.value, *(index if all(map(_is_name, index)) else [])]


def _is_name(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
