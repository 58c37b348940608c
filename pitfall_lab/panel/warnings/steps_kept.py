"""Warns of a tensor that keeps the graphs of all steps so far, as results with graphs were written to it
(:func:`steps_kept`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeGuard

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds, simple
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.panel.written_names import written_into
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.spanning_graphs import Spanning

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def steps_kept(found: Spanning, ran: Ran) -> dict[str, Any] | None:
    """The warning about a tensor that keeps the graphs of all steps so far alive; ``None`` if no cell has run.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    now = ran.last
    if now is None:
        return None
    name, (run, line) = f"`{found.name}`", _writer(found, ran)
    weight = T(f"`{found.weight}`", f" `{found.weight}` ") if found.weight else T("a weight", "同一个权重")
    where = T(f" ({called(run.count)} writes it)", f"（由 {called(run.count)} 写入）") if run is not None else T("", "")
    here = T("where it is written", "写入的地方")
    if run is not None and line:
        at = T(f", line {line}", f" 第 {line} 行") if run.whole else T("", "")
        here = T(f"where it is written ({called(run.count)}{at.en})", f"写入的地方（{called(run.count)}{at.zh}）")
    said = Said(
        T(
            f"{name}{where.en} keeps the graphs of several steps: its graph has saved {weight.en} at one version after "
            "another, and each step adds to it.",
            f"{name}{where.zh}保留着多个步骤的计算图：它的计算图保存了{weight.zh}的一个又一个版本，每一步都会再增加。",
        ),
        T(
            "A tensor that is written with a result takes over its graph, with all that the graph has saved; detaching "
            "it where it is read does not change that. No backward can go through it, as the steps have changed what "
            "it has saved: it only takes memory, more with each step.",
            "把一个结果写入张量时，张量会接过它的计算图以及其中保存的一切；读取时再 `detach()` 并不改变这一点。"
            "反向传播无法经过它，因为各步已经修改了其中保存的内容：它只会占内存，而且每一步都更多。",
        ),
        T(
            f"Write the result without its graph {here.en}: `.detach()`, or compute it under `torch.no_grad()`. Then "
            f"cut off what is there: `{found.name} = {found.name}.detach()`.",
            f"在{here.zh}写入不带计算图的结果：用 `.detach()`，或在 `torch.no_grad()` 之下计算。"
            f"然后去掉已有的计算图：`{found.name} = {found.name}.detach()`。",
        ),
        found.path,
    )
    cells = cell(ran, run.count, "made", line=line) if run is not None else []
    cells += cell(ran, now.count, "changed") if run is None or run.count != now.count else []
    return warning("graph-grows", "note", said, cells, "PL511")


def _writer(found: Spanning, ran: Ran) -> tuple[Cell | None, int | None]:
    """The last cell whose source, including its functions and methods, writes to the tensor or binds it, and the line;
    ``(None, None)`` if there is none.
    """
    name, attribute = found.path[0], found.path[-1] if len(found.path) > 1 else ""
    for run in reversed(list(ran.since(0))):
        bodies = [run.tree.body, *(each.body for each in ast.walk(run.tree) if isinstance(each, _FUNCTIONS))]
        functions = [each for body in bodies[1:] for each in simple(body)]
        for each in [*functions, *simple(run.tree.body)]:
            again = name in binds(each) and (
                each in functions or any(_is_read(one) and one.id == name for one in ast.walk(each))
            )
            if _stores(each, attribute) if attribute else again or name in written_into(each):
                return run, each.lineno
    return None, None


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _stores(statement: ast.stmt, attribute: str) -> bool:
    """Whether a statement assigns an attribute of this name or an element of it, or calls an in-place method on it."""
    targets = [
        *getattr(statement, "targets", ()),
        *([statement.target] if isinstance(statement, ast.AugAssign) else []),
    ]
    call = getattr(statement, "value", None)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
        targets.append(call.func.value)
    return any(isinstance(node, ast.Attribute) and node.attr == attribute for one in targets for node in ast.walk(one))
