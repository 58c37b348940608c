"""Warns of a hook that is registered twice on one module or tensor, as the cell that registers it ran again
(:func:`hooked_twice`).
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, does, loops_reached, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import simple
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.repeated_hooks import Twice

CALLED = {
    "_forward_hooks": T("forward hook", "前向钩子"),
    "_forward_pre_hooks": T("forward pre-hook", "前向预钩子"),
    "_backward_hooks": T("backward hook", "反向钩子"),
    "_backward_pre_hooks": T("backward pre-hook", "反向预钩子"),
    "_post_accumulate_grad_hooks": T("post-accumulate-grad hook", "梯度累加后钩子"),
}
_WHY = T(
    "Registering adds a hook; it replaces none. Only its handle can remove it: the name that held the first handle "
    "now has the new one, or never had one. What the hook adds, scales or collects happens once for each.",
    "注册只会增加一个钩子，不会替换已有的。只有它的句柄能移除它：保存第一个句柄的名字现在指向新的句柄，或者从来没有保"
    "存过。钩子所加、所缩放、所收集的内容，每个钩子都会做一遍。",
)


def hooked_twice(found: Twice, ran: Ran) -> dict[str, Any] | None:
    """The warning that a hook is registered twice.

    None if one run of a cell registered both, unless a loop in it registers and trains in each iteration; and, for two
    runs, if the hooks hold different values, unless the sources of the cells show that the second should replace the
    first. ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    first, again = ran.get(found.first), ran.get(found.again)
    if found.first == found.again:
        if first is None or not _in_each_round(first, ran):
            return None
    elif found.differ and not (first is not None and again is not None and _is_again(found, first, again, ran)):
        return None
    what, times = CALLED[found.table], T("twice" if found.times == 2 else f"{found.times} times", f"{found.times} 次")
    before, now = called(found.first), called(found.again)
    en, zh = f" from {before}, and again from {now}" if before else "", f"（{before}，又在 {now} 中）" if before else ""
    if found.first == found.again:
        en, zh = f" from {now}, which registers it in each round of a loop", f"（{now} 在循环的每一轮都注册一次）"
    where = re.sub(r"\.(\d+)", r"[\1]", found.name)
    more = T(f" and {found.others} more", f" 等 {found.others + 1} 个张量") if found.others else T("", "")
    each = T(" and each of the others in the same way", "，其他张量同样处理") if found.others else T("", "")
    has = "have" if found.others else "has"
    gone = T(" No name holds the first one's handle.", "没有名字保存着第一个的句柄。") if found.lost else T("", "")
    said = Said(
        T(
            f"`{found.name}` ({found.type}){more.en} {has} one {what.en} {times.en}{en}: each of them runs.{gone.en}",
            f"`{found.name}`（{found.type}）{more.zh}上同一个{what.zh}注册了 {times.zh}{zh}：每一个都会运行。{gone.zh}",
        ),
        _WHY,
        T(
            f"Remove the first one now with `{where}.{found.table}.pop({found.key})`{each.en}. In the cell that "
            "registers it, call `handle.remove()` on the handle of the run before, or when the hook has done its work.",
            f"现在用 `{where}.{found.table}.pop({found.key})` 移除第一个{each.zh}。"
            "在注册它的单元格里，先对上一次的句柄调用 `handle.remove()`，或在钩子用完之后调用。",
        ),
        found.path,
    )
    cells = cell(ran, found.first, "made")
    cells += cell(ran, found.again, "made") if found.again != found.first else []
    return warning("hooked-twice", "silent", said, cells, "PL616")


def _is_again(found: Twice, first: Cell, again: Cell, ran: Ran) -> bool:
    """Whether two hooks that hold different values come from one cell that was edited and run again.

    For gradient hooks, which run one after the other, one function that both cells call, or statements that differ only
    in their constants, are enough.
    """
    if is_same_cell(first, again):
        return True
    if found.type not in ("Tensor", "Parameter"):
        return False
    if found.one_function:
        functions = reaching("register_", list(ran.since(0)))
        return not functions.isdisjoint(called_in(first.tree)) and not functions.isdisjoint(called_in(again.tree))
    return not _registering(first).isdisjoint(_registering(again))


def _registering(run: Cell) -> set[str]:
    """The statements of a cell that register hooks (dumped syntax trees), without their constants."""
    found = (each for each in simple(run.tree.body) if "register_" in ast.unparse(each))
    return {re.sub(r"Constant\(.*?\)", "", ast.dump(each)) for each in found}


def _in_each_round(run: Cell, ran: Ran) -> bool:
    """Whether a loop of the cell, or of a function that it calls, both registers hooks and trains in each iteration."""
    runs = list(ran.since(0))
    adds, trains = reaching("register_", runs), reaching(".backward(", runs)
    known = definitions(runs).keys()
    return any(
        does(loop, "register_", adds & known) and does(loop, ".backward(", trains & known)
        for loop in loops_reached(run, runs)
    )
