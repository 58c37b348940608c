"""Why an embedding was given indices beyond its rows: which indices, which table, and what determined its size
(:func:`outside`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.name_flow import binds, simple
from pitfall_lab.panel.warnings.message import called
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.rows_asked import RowsAsked

_FUNCTIONS = {"embedding", "embedding_bag"}
_SIZED = (dict, list, tuple, set)


def looked_up(error: BaseException) -> tuple[Any, Any] | None:
    """The indices and the table of the call of torch's ``embedding`` or ``embedding_bag`` in which ``error`` was
    raised; None if it was another call.
    """
    step, found = error.__traceback__, None
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_name in _FUNCTIONS and PurePath(code.co_filename).parts[-3:] == ("torch", "nn", "functional.py"):
            found = step.tb_frame
        step = step.tb_next
    if found is None:
        return None
    return found.f_locals.get("input"), found.f_locals.get("weight")


def sizes_of(name: str, rows: int, ran: Ran, namespace: Mapping[str, Any]) -> tuple[str, int]:
    """The name whose length the cell that created ``name`` used, and its length now, if that differs from ``rows``, the
    number of rows that were created; an empty string and 0 otherwise. ``ran`` are the runs of cells; ``namespace`` has
    the notebook's names and their objects.
    """
    maker = next((run for run in reversed(list(ran.since(0))) if name in run.assigned), None)
    for statement in simple(maker.tree.body) if maker is not None else ():
        for node in ast.walk(statement) if name in set(binds(statement)) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
                of = ast.unparse(node.args[0])
                value: Any = namespace.get(of)
                if any(type(value) is each for each in _SIZED) and len(value) != rows:
                    return of, len(value)
    return "", 0


def outside(found: RowsAsked, ran: Ran, grown: tuple[str, int]) -> tuple[T, T, T]:
    """Sentence, explanation and fix for ``found``, indices beyond the rows of an embedding; ``grown`` is the result of
    :func:`sizes_of`: a name whose length has changed, and its length now. ``ran`` are the runs of cells.
    """
    root = found.table.partition(".")[0]
    runs = list(ran.since(0))
    made = next((called(run.count) for run in reversed(runs) if root and root in run.assigned), "")
    numbers = found.numbers.partition(".")[0].partition("[")[0]
    came = next((called(run.count) for run in reversed(runs) if numbers and numbers in run.assigned), "")
    asked = T(
        (f"the numbers in `{found.numbers}`" + (f" of {came}" if came else ""))
        if numbers
        else "the numbers of the lookup",
        ((f"{came} 的 " if came else "") + f"`{found.numbers}` 中的编号") if numbers else "查找用的编号",
    )
    table = T(
        (f"`{found.table}`" + (f" of {made}" if made else "")) if root else "the table",
        ((f"{made} 的 " if made else "") + f"`{found.table}`") if root else "表",
    )
    name, size = grown
    more = T("", "")
    if name:
        more = T(
            f" {made} made it for `len({name})`, and `{name}` has {size} entries now.",
            f"{made} 按 `len({name})` 创建了它，而 `{name}` 现在有 {size} 项。",
        )
    fix = T(
        "Make the table with one row more than the greatest number that can come, or map numbers that it does not know "
        "to one of its rows.",
        "让表的行数比可能出现的最大编号多一，或把它不认识的编号映射到已有的某一行。",
    )
    if name:
        fix = T(
            f"Look up without letting `{name}` grow (`{name}.get(word, unknown)`, with a row for unknown ones), or "
            f"make `{root}` again with {size} rows and train it again.",
            f"查找时不要让 `{name}` 变大（`{name}.get(word, unknown)`，为未知的词留一行），"
            f"或用 {size} 行重新创建 `{root}` 并重新训练。",
        )
    return (
        T(
            f"{asked.en} go from {found.low} to {found.high}, and {table.en} has {found.rows} rows (0 to "
            f"{found.rows - 1}): this is why the lookup failed.{more.en}",
            f"{asked.zh} 的范围是 {found.low} 到 {found.high}，而 {table.zh} 只有 {found.rows} 行"
            f"（0 到 {found.rows - 1}）：所以查找失败了。{more.zh}",
        ),
        T(
            "An embedding needs one row for each number that may come. Rows are counted when it is made; a vocabulary "
            "that grows later does not change it.",
            "嵌入层要为每个可能出现的编号各备一行。行数在创建时就定了；之后变大的词表不会改变它。",
        ),
        fix,
    )
