"""Warns that a statement has changed data of another cell a second time, as its cell ran again (:func:`rewritten`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.written_again import WrittenAgain


def rewritten(found: WrittenAgain, ran: Ran, *, failed: bool = False) -> dict[str, Any]:
    """The warning about data that a statement has changed twice; ``failed``: the cell has raised because of that.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    maker = next(
        (run for run in reversed(list(ran.since(0))) if found.path[0] in run.assigned and run.count <= found.first),
        None,
    )
    made, first, again = called(maker.count if maker is not None else None), called(found.first), called(found.again)
    of = T(f" of {made}", f" {made} 的") if made else T("", "")
    shared = found.target != found.name
    same = (
        T(f" `{found.target}` has the memory of `{found.name}`.", f"`{found.target}` 与 `{found.name}` 共用内存。")
        if shared
        else T("", "")
    )
    why = T(", which is why this cell failed", "，所以此单元格失败了") if failed else T("", "")
    copy = ".copy()" if found.kind == "array" and not shared else ".clone()"
    run = T(
        f"Run {made} again, which makes `{found.name}`, and then {again}.",
        f"重新运行产生 `{found.name}` 的 {made}，然后再运行 {again}。",
    )
    if maker is None:
        run = T(f"Make `{found.name}` anew, and then run {again}.", f"重新产生 `{found.name}`，然后再运行 {again}。")
    said = Said(
        T(
            f"`{found.text}` in {again} has changed `{found.name}`{of.en} once more: {first} had already done "
            f"so{why.en}.{same.en}",
            f"{again} 中的 `{found.text}` 又一次修改了{of.zh} `{found.name}`：{first} 已经改过一次{why.zh}。{same.zh}",
        ),
        T(
            "A write in place changes the data itself, not a copy. The cell that makes the data has not run in "
            "between, so the second run began from what the first had left.",
            "就地写入修改的是数据本身，而不是副本。产生数据的单元格在两次之间没有运行过，所以第二次运行从"
            "第一次留下的结果开始。",
        ),
        T(
            f"{run.en} So that it can be run again: change a copy (`{copy}` where `{found.target}` is made), or make "
            f"a new tensor (`{found.target} = {found.target} - …`, not `-=`).",
            f"{run.zh}要使它可以重复运行：修改副本（在产生 `{found.target}` 的地方用 `{copy}`），"
            f"或产生新的张量（`{found.target} = {found.target} - …`，而不是 `-=`）。",
        ),
        found.path,
    )
    cells = cell(ran, found.again, "changed", line=found.line) + cell(ran, found.first, "changed")
    cells += cell(ran, maker.count, "made") if maker is not None else []
    return warning(
        "written-again", "silent" if shared else "note", said, cells, "PL701" if shared else "", failed=failed
    )
