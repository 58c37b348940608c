"""Finds the tensors whose gradients were read by the expression at which a cell failed (:func:`gradients_read`)."""

# ruff: noqa: PLC0415 - a notebook without torch does not import it

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any


def gradients_read(error: BaseException, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield, for each ``….grad`` in the expression that failed with ``error``, in the innermost frame of the notebook's
    own code, the expression before ``.grad`` and its object.

    Only names and attributes that can be looked up without running code are resolved; others are left out.
    ``namespace`` has the notebook's names and their objects.
    """
    last: TracebackType | None = None
    step = error.__traceback__
    while step is not None:
        last, step = (step if step.tb_frame.f_globals is namespace else last), step.tb_next
    if last is None:
        return
    frame = last.tb_frame
    begin, end, first, stop = next(islice(frame.f_code.co_positions(), last.tb_lasti // 2, None), (None,) * 4)
    if begin is None or end is None or first is None or stop is None:
        return
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Attribute)
            or node.attr != "grad"
            or node.end_lineno is None
            or node.end_col_offset is None
        ):
            continue
        if (begin, first) <= (node.lineno, node.col_offset) and (node.end_lineno, node.end_col_offset) <= (end, stop):
            value = _value(node.value, frame.f_locals, frame.f_globals)
            if value is not None:
                yield ast.unparse(node.value), value


def _value(node: ast.expr, inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Any:
    """The object of a name, or of an attribute of a module or of an object of the notebook's own classes; None if it is
    unknown.
    """
    if isinstance(node, ast.Name):
        return inner.get(node.id, outer.get(node.id))
    if not isinstance(node, ast.Attribute):
        return None
    from pitfall_lab.observe.live.object_kinds import Kinds, inside, tables

    owner = _value(node.value, inner, outer)
    kind = Kinds().of(owner)
    if kind == "module":
        return next((table[node.attr] for table in (*tables(owner), inside(owner, kind)) if node.attr in table), None)
    return inside(owner, kind).get(node.attr) if kind == "object" else None
