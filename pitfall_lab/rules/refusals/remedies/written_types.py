"""Values of the wrong dtype that are written by an index or a mask: fixes convert the values, or create the tensor with
their dtype.
"""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import called, is_name, operand, root, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedies.at_birth import CASTS, birth
from pitfall_lab.rules.refusals.remedies.edits import keyword_set
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Given, T

POSITIONS = {
    "index_put": 1, "masked_scatter": 1, "put": 1, "index_add": 2, "index_copy": 2, "index_reduce": 2, "scatter": 2,
    "scatter_add": 2, "scatter_reduce": 2,
}  # fmt: skip
"""The position of the argument that these methods write."""
KEYWORDS = {"values", "source", "src"}
MAKERS = {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros",
          "new_ones", "new_empty", "new_full", "tensor", "arange"}  # fmt: skip
"""Calls in the source that accept a ``dtype``."""


def converted(error: Error) -> Remedy | None:
    """Return the remedy for written values of the wrong dtype, with a fix that converts them to the dtype of the tensor
    that they are written to.

    If that would lose information (such as fractions), the fix creates the tensor with the values' dtype instead;
    without a fix if the source does not show where it is created. None if the values or the tensor are unknown or, if
    the values are to be converted, the line does not show them.
    """
    refused, program = error.refused, error.refused.story.program
    if error.wrong is None or error.other is None:
        return None
    written = _written(refused)
    said = _said(error, written[0]) if written is not None else None
    if _kind(error.wrong.dtype) > _kind(error.other.dtype):
        return Remedy(unique(program.text, [_made(refused, error.other, error.wrong.dtype)]), said)
    if written is None:
        return None
    value, into = written
    name = root(into) if into is not None else None
    cast = (
        f".to({program.segment(name)}.dtype)"
        if name is not None and is_name(name)
        else CASTS.get(error.other.dtype, "")
    )
    text = f"{operand(program, value)}{cast}"
    shown = " ".join(text.split())
    shown = (
        shown if len(shown) <= 60 else f"….to({cast.removeprefix('.to(')}" if cast.startswith(".to(") else f"…{cast}"
    )
    title = T(en=f"Convert what is written: `{shown}`", zh=f"转换要写入的数：`{shown}`")
    return Remedy(unique(program.text, [Fix(title, program.replace((value, text)))]), said)


def _said(error: Error, value: ast.expr) -> T | None:
    refused, wrong, other = error.refused, error.wrong, error.other
    if wrong is None or other is None:
        return None
    text, here, name = (
        " ".join(refused.story.program.segment(value).split()),
        at_line(refused.story, refused.span),
        refused.name(other),
    )
    call = T(en=f"`{refused.called}`", zh=f" `{refused.called}` ")
    write = T(en="such an assignment", zh="这样的赋值") if refused.called == "__setitem__" else call
    text = text if len(text) <= 48 else f"{text[:47]}…"
    return T(
        en=f"{capital(here.en)} writes `{text}`, numbers of type {wrong.dtype}, into {name.en}, which holds "
        f"{other.dtype}; {write.en} converts nothing.",
        zh=f"{here.zh}把 {wrong.dtype} 类型的数 `{text}` 写入 {name.zh}，而后者存的是 {other.dtype}；"
        f"{write.zh.strip()}不做转换。",
    )


def _kind(dtype: str) -> int:
    """The kind of a dtype: 0 for bool, 1 for integers, 2 for floating point, 3 for complex numbers."""
    return 0 if dtype == "bool" else 3 if "complex" in dtype else 2 if "float" in dtype else 1


def _written(refused: Refused) -> tuple[ast.expr, ast.expr | None] | None:
    """The expression that is written, and the expression of the tensor that it is written to; None if the line does not
    show them.
    """
    program, call = refused.story.program, refused.call
    name = refused.failure.op.rsplit(".", 1)[-1].removesuffix("_")
    if name in POSITIONS and call is not None and called(call).removesuffix("_") == name:
        method = refused.failure.op.startswith("torch.Tensor.")
        at = POSITIONS[name] + (not method)
        value = next(
            (k.value for k in call.keywords if k.arg in KEYWORDS), call.args[at] if at < len(call.args) else None
        )
        first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "input"), None)
        into = call.func.value if method and isinstance(call.func, ast.Attribute) else first
        return (value, into) if value is not None else None
    statement = program.statement_at(refused.span)
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, ast.AugAssign)
        else []
    )
    if (
        len(targets) == 1
        and isinstance(targets[0], ast.Subscript)
        and isinstance(statement, ast.Assign | ast.AugAssign)
    ):
        return statement.value, targets[0].value
    return None


def _made(refused: Refused, memory: Given, dtype: str) -> Fix | None:
    """The fix that creates the tensor ``memory`` with the dtype ``dtype``; None if the source does not show where it is
    created.
    """
    program, found = refused.story.program, birth(refused, memory)
    torch, call = torch_name(program), found[0] if found is not None else None
    if torch is None or not isinstance(call, ast.Call) or called(call) not in MAKERS:
        return None
    change = keyword_set(program, call, f"dtype={torch}.{dtype}")
    name = memory.text or refused.name(memory).en.strip("`")
    title = T(
        en=f"Make `{name}` for such numbers: `dtype={torch}.{dtype}`",
        zh=f"让 `{name}` 装得下这样的数：`dtype={torch}.{dtype}`",
    )
    return Fix(title, program.splice(change), meaning="later") if change is not None else None
