"""Warns that a second run of a cell has overwritten values that a later cell reads (:func:`overwritten`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.panel.warnings.shared_write import taken
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.overwritten_numbers import Overwritten

ROUNDING = 1e-6


def overwritten(found: Sequence[Overwritten], ran: Ran) -> list[dict[str, Any]]:
    """The warnings about values that a second run of a cell has overwritten: one for each object from which they are
    computed and each cell, once a later cell reads one of the values.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    groups: dict[tuple[str, int], list[Overwritten]] = {}
    for each in found:
        groups.setdefault((each.source, each.again), []).append(each)
    said = []
    for some in groups.values():
        runs = list(ran.since(0))
        last = next(
            (
                (run.count, names)
                for run in runs
                if run.count > some[0].again and (names := [e for e in some if e.name in taken(run, runs)])
            ),
            None,
        )
        if last is not None:
            said.append(_said(last[1], last[0], ran))
    return said


def _said(some: Sequence[Overwritten], reads: int, ran: Ran) -> dict[str, Any]:
    one = some[0]
    maker = next(
        (run for run in reversed(list(ran.since(0))) if one.source in run.assigned and run.count < one.first), None
    )
    first, again, here = called(one.first), called(one.again), called(reads)
    made = called(maker.count if maker is not None else None)
    of = T(f" of {made}", f"{made} 的") if made else T("", "")
    names = ", ".join(f"`{each.name}`" for each in some)
    now = [shown for each in some if (shown := _shown(each))]
    change = T(f" ({', '.join(now)})", f"（{'，'.join(now)}）") if now else T("", "")
    run = T(f"Run {made} again, then {again} once", f"重新运行 {made}，再把 {again} 运行一次")
    if maker is None:
        run = T(f"Make `{one.source}` anew and run {again} once", f"重新产生 `{one.source}`，再把 {again} 运行一次")
    said = Said(
        T(
            f"{again} computed {names} from `{one.source}` once more, as {first} had left it, not as it was "
            f"before{change.en}: the numbers of `{one.source}`{of.en} are lost, and {here} reads the new ones.",
            f"{again} 又一次由 `{one.source}` 计算 {names}，而它已经是 {first} 留下的结果，不再是原来的数据{change.zh}"
            f"：{of.zh}`{one.source}` 原来的这些数丢失了，{here} 读到的是新的。",
        ),
        T(
            f"The cell reads `{one.source}` and binds the same name to its result. The second run starts from that "
            f"result: it leaves `{one.source}` as it is, and finds only the numbers of data that is already changed.",
            f"这个单元格读取 `{one.source}`，又让同一个名字指向它的结果。第二次运行从这个结果开始：`{one.source}` 不再"
            "变化，算出的只是已经处理过的数据的数。",
        ),
        T(
            f"{run.en}, and {here} after it. Give the result another name than the data "
            f"(`{one.source}_new = …`), so that the cell can be run again.",
            f"{run.zh}，然后运行 {here}。给结果另起一个名字（`{one.source}_new = …`），这个单元格就可以重复运行。",
        ),
        (one.source,),
        (one.name,),
    )
    cells = cell(ran, one.again, "changed") + cell(ran, one.first, "changed") + cell(ran, reads, "stale")
    return warning("numbers-overwritten", "silent", said, cells)


def _shown(one: Overwritten) -> str:
    """A one-element value before and after; a new value that is only a rounding error is shown as 0. Empty if one is
    unknown.
    """
    if one.was is None or one.now is None:
        return ""
    return f"`{one.name}` {one.was:.4g} → {one.now if abs(one.now) > ROUNDING * abs(one.was) else 0:.4g}"
