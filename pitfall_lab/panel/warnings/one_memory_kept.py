"""Warns of a list whose elements all share one storage, because what was appended is no copy
(:func:`one_memory_kept`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.one_memory import OneMemory

_WHY = T(
    "A list keeps references, and `from_numpy`, `detach()` and views keep the memory of what they were made from. "
    "What writes into that memory changes every element.",
    "列表保存的是引用，而 `from_numpy`、`detach()` 和视图都沿用原来的内存。写入这块内存会改变每一个元素。",
)


def one_memory_kept(found: OneMemory, ran: Ran) -> dict[str, Any] | None:
    """The warning about a list whose elements share one storage; None if no cell appends to a list: then the elements
    were created so on purpose.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    run = next((run for run in reversed(list(ran.since(0))) if ".append(" in run.text), None)
    if run is None:
        return None
    copy = "`.clone()`" if found.kind == "tensor" else "`.copy()`"
    said = Said(
        T(
            f"The {found.length} elements of `{found.name}` are one memory: none was copied when it was "
            "appended, and all are equal.",
            f"`{found.name}` 的 {found.length} 个元素是同一块内存：放入时都没有复制，它们全都相等。",
        ),
        _WHY,
        T(f"Append a copy: {copy}.", f"放入副本：{copy}。"),
        found.path,
    )
    lines = [number for number, line in enumerate(run.text.split("\n"), 1) if ".append(" in line]
    at = lines[0] if len(lines) == 1 else None
    return warning("one-memory", "silent", said, cell(ran, run.count, "changed", line=at), "PL709")
