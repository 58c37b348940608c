"""Python numbers where a tensor is expected, and methods and attributes that are confused: ``x.size[0]``,
``x.shape(0)``, ``loss.item().backward()``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Given, T

METHODS = {"size", "stride", "dim", "numel", "item", "tolist", "mean", "sum", "t", "detach"}
"""Methods that are often written without calling them."""
ATTRIBUTES = {"shape", "dtype", "device", "ndim", "grad", "T", "data"}


def misused(refused: Refused) -> Given | None:
    """Return ``x.size[0]`` or ``x.shape(0)`` on the failed line, as an argument with only its source and a type filled
    in; None if there is neither.
    """
    node = _misused(refused)
    return Given("", refused.story.program.segment(node), "object") if node is not None else None


def _misused(refused: Refused) -> ast.Subscript | ast.Call | None:
    program = refused.story.program
    node = program.at(refused.span) if program.tree is not None else None
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Attribute) and each.value.attr in METHODS:
            return each
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in ATTRIBUTES:
            return each
    return None


def exchanged(error: Error) -> Remedy | None:
    """Return the remedy for a method that is indexed, or an attribute that is called, with the fix ``x.size(0)`` for
    ``x.size[0]``, or ``x.shape[0]`` for ``x.shape(0)``.

    None for other expressions, and for a call with several arguments or a keyword.
    """
    program, node = error.refused.story.program, _misused(error.refused)
    if isinstance(node, ast.Subscript):
        text = f"{program.segment(node.value)}({program.segment(node.slice)})"
    elif isinstance(node, ast.Call) and len(node.args) <= 1 and not node.keywords:
        inside = f"[{program.segment(node.args[0])}]" if node.args else ""
        text = f"{program.segment(node.func)}{inside}"
    else:
        return None
    return Remedy((Fix(T(en=f"Write `{text}`", zh=f"写成 `{text}`"), program.replace((node, text)), meaning="later"),))


def kept_as_tensor(error: Error) -> Remedy | None:
    """Return the remedy for a backward that starts from a Python number, with a fix that keeps the tensor: it removes
    ``item()``, ``tolist()`` or ``float()``.

    None if no assignment of that name in its function contains one of these.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    node = program.at(refused.span)
    node = node.func if isinstance(node, ast.Call) else node
    name = node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(name, ast.Name):
        return None
    function = program.function(name)
    changes: list[tuple[ast.AST, str]] = []
    for statement in program.nodes:
        if isinstance(statement, ast.Assign | ast.AugAssign) and program.function(statement) is function:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(t, ast.Name) and t.id == name.id for t in targets):
                changes += _taken_out(program, statement.value)
    if not changes:
        return None
    place = program.place(changes[0][0])
    where, here, code = at_line(story, place), at_line(story, refused.span), program.segment(changes[0][0])
    said = T(
        en=f"{capital(where.en)} takes a number out of a tensor (`{code}`), so `{name.id}` on {here.en} is a "
        f"{error.match[1]}: it has no record of how it was computed, and no `{error.match[2]}`.",
        zh=f"{where.zh}从张量中取出了数（`{code}`），所以{here.zh}的 `{name.id}` 是 {error.match[1]}：它没有计算记录，"
        f"也没有 `{error.match[2]}`。",
    )
    title = T(en=f"Keep the tensor: `{changes[0][1]}`", zh=f"保留张量：`{changes[0][1]}`")
    related = (Related("cut", place, None, T(en="the record of the computation ends here", zh="计算的记录在这里中断")),)
    return Remedy(
        unique(program.text, [Fix(title, program.replace(*changes), meaning="later")]), said, None, place, None, related
    )


def _taken_out(program: Program, value: ast.expr) -> Iterator[tuple[ast.AST, str]]:
    """Yield the expressions in ``value`` that convert a tensor to a number, each with the tensor's source."""
    for node in ast.walk(value):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("item", "tolist")
            and not node.args
        ):
            yield node, program.segment(node.func.value)
        elif (
            isinstance(node, ast.Call)
            and program.segment(node.func) == "float"
            and not isinstance(node.args[0], ast.Constant)
        ):
            yield node, program.segment(node.args[0])


def guarded(error: Error) -> Remedy | None:
    """Return the remedy for ``w.grad.zero_()`` before the first backward, with a fix that runs it only if the gradient
    is not None.

    None for other uses of the gradient.
    """
    refused, program = error.refused, error.refused.story.program
    statement = program.statement_at(refused.span)
    if error.wrong is None or error.match[1] not in ("zero_", "data", "detach_") or not isinstance(statement, ast.Expr):
        return None
    if not program.stands_alone(statement) or "zero_" not in program.segment(statement):
        return None
    text = f"if {error.wrong.text} is not None:\n{program.indent(statement)}    {program.segment(statement)}"
    title = T(
        en=f"Only where there is a gradient: `if {error.wrong.text} is not None:`",
        zh=f"有梯度时才做：`if {error.wrong.text} is not None:`",
    )
    return Remedy((Fix(title, program.replace((statement, text)), meaning="later"),))
