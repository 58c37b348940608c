"""Warns of a parametrization that is registered twice on one weight, as the cell that registers it ran again
(:func:`parametrized_again`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.moved_before import expression
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.repeated_parametrizations import ParametrizedAgain


def parametrized_again(found: ParametrizedAgain, ran: Ran) -> dict[str, Any] | None:
    """The warning that a weight goes through one parametrization several times.

    None unless both cells have the same source, or a statement with a call in common (otherwise both are assumed to be
    intended), and if the module's name is a loop variable in one of them. ``found`` is the finding in the live objects,
    ``ran`` are the runs of cells; the warning is the dict of :func:`.message.warning`.
    """
    first, again = ran.get(found.first), ran.get(found.again)
    if first is None or again is None or not (is_same_cell(first, again) or _in_common(first, again)):
        return None
    if found.path[0] in _loop_names(first) | _loop_names(again):
        return None  # the variable of a loop still holds a layer of a network that has been made anew
    module, before, now = expression(found.module), called(found.first), called(found.again)
    times = T("twice" if found.times == 2 else f"{found.times} times", f"{found.times} 次")
    more = T(f" and {found.others} more", f" 等 {found.others + 1} 个权重") if found.others else T("", "")
    goes = "go" if found.others else "goes"
    said = Said(
        T(
            f"`{module}.{found.attribute}`{more.en} {goes} through `{found.type}` {times.en}: {before} registered it, "
            f"and {now} did so again.",
            f"`{module}.{found.attribute}`{more.zh}要经过 `{found.type}` {times.zh}："
            f"{before} 注册了它，{now} 又注册了一次。",
        ),
        T(
            "Registering adds one more function on the way from the stored numbers to the weight; it replaces none. "
            "The weight is now another one, and so are all results of the module.",
            "注册会在从所存的数到权重的路上再加一个函数，而不会替换已有的。权重现在已经不同，模块的所有结果也随之不同。",
        ),
        T(
            f"Make `{found.path[0]}` anew and register once. To be able to run the cell again, ask first: "
            f'`if not parametrize.is_parametrized({module}, "{found.attribute}")`.',
            f"重新创建 `{found.path[0]}`，只注册一次。要使单元格可以重复运行，请先询问："
            f'`if not parametrize.is_parametrized({module}, "{found.attribute}")`。',
        ),
        found.path,
    )
    return warning(
        "parametrized-again", "silent", said, [*cell(ran, found.first, "made"), *cell(ran, found.again, "made")]
    )


def _loop_names(run: Cell) -> set[str]:
    loops = [node.target for node in ast.walk(run.tree) if isinstance(node, ast.For)]
    return {each.id for target in loops for each in ast.walk(target) if isinstance(each, ast.Name)}


def _in_common(first: Cell, again: Cell) -> bool:
    """Whether two cells have a top-level statement with a call in common, such as a call of a function that
    registers.
    """
    texts = [
        {ast.unparse(each) for each in one.tree.body if any(isinstance(node, ast.Call) for node in ast.walk(each))}
        for one in (first, again)
    ]
    return bool(texts[0] & texts[1])
