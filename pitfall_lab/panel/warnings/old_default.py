"""Warns that a function still uses an old model or optimizer, which was the default of its parameter when it was
defined (:func:`old_defaults`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.old_defaults import OldDefault


def old_defaults(found: Sequence[OldDefault], ran: Ran) -> Iterator[dict[str, Any]]:
    """Yield a warning for each function that was called without its parameter after the name of the default was bound
    to another object.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    for each in found:
        used = next((run for run in ran.since(0) if run.count >= each.since and _calls(run, each)), None)
        if used is not None:
            yield _said(each, used, ran)


def _calls(run: Cell, found: OldDefault) -> bool:
    """Whether a cell called the function without the parameter; in the cell that bound the name, only calls after that
    count.
    """
    body = list(run.tree.body)
    if run.count == found.since:
        line = max((each.lineno for each in body if found.name in binds(each)), default=0)
        body = [each for each in body if each.lineno > line]
    calls = (node for each in body for node in ast.walk(each) if isinstance(node, ast.Call))
    own = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == found.function]
    return run.succeeded and any(_leaves_out(each, found) for each in own)


def _leaves_out(node: ast.Call, found: OldDefault) -> bool:
    spread = any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords)
    by_place = found.place is not None and len(node.args) > found.place
    return not spread and not by_place and all(each.arg != found.parameter for each in node.keywords)


def _said(found: OldDefault, used: Cell, ran: Ran) -> dict[str, Any]:
    defined = max((run.count for run in ran.since(0) if found.function in run.assigned and run.count < found.since),
                  default=None)  # fmt: skip
    made, since, here = called(found.made), called(found.since), called(used.count)
    there = called(defined) if defined is not None else ""
    name, function = found.name, found.function
    said = Said(
        T(
            f"`{function}` still works with the `{name}` of {made}: its default `{found.parameter}={name}` was taken "
            f"when {there or 'its cell'} ran, and {since} has made another `{name}`. {here} used the old one.",
            f"`{function}` 用的仍是 {made} 的 `{name}`：默认值 `{found.parameter}={name}` 是在"
            f" {there or '定义它的单元格'} 运行时取得的，而 {since} 又创建了另一个 `{name}`。{here} 用的是旧的那个。",
        ),
        T(
            "The default of a parameter is computed once, when the `def` runs, and the function keeps that object. "
            f"Binding `{name}` to a new one does not reach it.",
            f"参数的默认值只在 `def` 运行时计算一次，函数一直保存那个对象。让 `{name}` 指向新的对象，并不会影响它。",
        ),
        T(
            f"Pass it: `{function}(…, {found.parameter}={name})`; or run {there or 'the cell of the function'} again "
            f"after {since}.",
            f"请传入：`{function}(…, {found.parameter}={name})`；或在 {since} 之后再运行一次"
            f"{there or '定义函数的单元格'}。",
        ),
        (name,),
        (function,),
    )
    cells = cell(ran, found.since, "changed", name)
    cells += cell(ran, defined, "made", function) if defined is not None else []
    cells += cell(ran, used.count, "stale") if used.count != found.since else []
    return warning("old-default", "silent", said, cells)
