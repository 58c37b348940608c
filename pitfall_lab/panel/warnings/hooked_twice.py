"""Warns of a hook that is registered twice on one module or tensor, because the cell
that registers it was run again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.repeated_hooks import Twice

_CALLED = {
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
    """The warning; ``None`` for hooks with other values in them that no handle shows to be one instead of the other."""
    first, again = ran.get(found.first), ran.get(found.again)
    if found.differ and not (first is not None and again is not None and is_same_cell(first, again)):
        return None
    what, times = _CALLED[found.table], T("twice" if found.times == 2 else f"{found.times} times", f"{found.times} 次")
    before, now = called(found.first), called(found.again)
    en, zh = f" from {before}, and again from {now}" if before else "", f"（{before}，又在 {now} 中）" if before else ""
    where = re.sub(r"\.(\d+)", r"[\1]", found.name)
    gone = T(" No name holds the first one's handle.", "没有名字保存着第一个的句柄。") if found.lost else T("", "")
    said = Said(
        T(
            f"`{found.name}` ({found.type}) has one {what.en} {times.en}{en}: each of them runs.{gone.en}",
            f"`{found.name}`（{found.type}）上同一个{what.zh}注册了 {times.zh}{zh}：每一个都会运行。{gone.zh}",
        ),
        _WHY,
        T(
            f"Remove the first one now with `{where}.{found.table}.pop({found.key})`. In the cell that registers it, "
            "call `handle.remove()` on the handle of the run before, or when the hook has done its work.",
            f"现在用 `{where}.{found.table}.pop({found.key})` 移除第一个。在注册它的单元格里，先对上一次的句柄调用 "
            "`handle.remove()`，或在钩子用完之后调用。",
        ),
        found.path,
    )
    cells = cell(ran, found.first, "made") + cell(ran, found.again, "made")
    return warning("hooked-twice", "silent", said, cells, "PL616")
