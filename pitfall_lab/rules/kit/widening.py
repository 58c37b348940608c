"""Rewrites a conversion to a short floating point type as one to float64."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.source import Program
from pitfall_lab.trace.operation_facts import spellings

DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}
"""The binary digits of the significand of the short types."""


def wider(program: Program, node: ast.AST | None) -> tuple[ast.AST, str] | None:
    """Return the syntax node to replace, and its new source, so that the call ``node`` makes float64; None for other
    calls, and if ``node`` is no call.

    The node is an argument that names a short type (``torch.float32``), else the method ``.float``, ``.half`` or
    ``.bfloat16``, else the only positional argument of ``torch.tensor(…)`` or ``torch.as_tensor(…)``, after which a
    ``dtype`` is added unless the call has one, or may have one in a ``**``.
    """
    if not isinstance(node, ast.Call):
        return None
    for each in (*node.args, *(k.value for k in node.keywords)):
        if isinstance(each, ast.Attribute) and each.attr in {*DIGITS, "float", "half"}:
            return each, f"{program.segment(each.value)}.float64"
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"float", "half", "bfloat16"}:
        return node.func, f"{program.segment(node.func.value)}.double"
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in spellings("as_tensor") | {"tensor"}
        and len(node.args) == 1
        and not any(keyword.arg in ("dtype", None) for keyword in node.keywords)
    ):
        return node.args[0], f"{program.segment(node.args[0])}, dtype={program.segment(node.func.value)}.float64"
    return None
