"""Warns that a cell has read a name whose value was computed from an older value of another name
(:func:`out_of_order`).
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.stale_names import OutOfOrder
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T


def out_of_order(found: OutOfOrder, ran: Ran) -> dict[str, Any]:
    """The note that the value of a name was computed from an older value of another name. ``found`` is the finding of
    :class:`~pitfall_lab.panel.stale_names.Order`, ``ran`` are the runs of cells; the note is the dict of
    :func:`.message.warning`.
    """
    made, again = called(found.made), called(found.again)
    sentence = T(
        f"`{found.name}` of {made} was computed from the value that `{found.source}` had before {again}: "
        "run in order, the cells give another one.",
        f"{made} 的 `{found.name}` 是用 {again} 之前的 `{found.source}` 算出的：按顺序运行，笔记本会给出另一个结果。",
    )
    explanation = T(
        f"{again} ran again and gave `{found.source}` another value. What was computed from the old value "
        "was not computed again.",
        f"{again} 再次运行，给了 `{found.source}` 另一个值。由旧值算出的结果没有重新计算。",
    )
    fix = T(f"Run the cell of {made} again, then this one.", f"重新运行 {made} 的单元格，然后再运行这一个。")
    cells = cell(ran, found.again, "changed", found.source) + cell(ran, found.made, "stale", found.name)
    return warning("out-of-order", "note", Said(sentence, explanation, fix, (found.name,), (found.source,)), cells)
