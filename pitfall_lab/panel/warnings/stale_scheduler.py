"""Warns of a scheduler whose optimizer the notebook has replaced by a new one (:func:`stale_scheduler`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.stale_schedulers import Stale


def stale_scheduler(found: Stale, ran: Ran) -> dict[str, Any]:
    """The warning about a scheduler that does not change the learning rate of the optimizer that trains.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs = [run for run in ran.since(0) if run.count <= found.cell]
    made = next((run for run in reversed(runs) if found.path[0] in run.assigned), None)
    newer = next((run for run in reversed(runs) if found.optimizer_path[0] in run.assigned), None)
    since = called(newer.count if newer is not None else None)
    of = called(made.count if made is not None else None)
    en, zh = f" of {since}" if since else "", f"{since} 的 " if since else ""
    made_en, made_zh = f" of {of}" if of else "", f"{of} 的 " if of else ""
    said = Said(
        T(
            f"`{found.name}`{made_en} ({found.type}) still belongs to an earlier optimizer, not to "
            f"`{found.optimizer}`{en}, which trains: its rate stays {found.rate:.4g}. What `{found.name}` shows "
            f"({found.old:.4g} now) is the rate of the old one.",
            f"{made_zh}`{found.name}`（{found.type}）仍属于之前的优化器，而不是正在训练的 {zh}`{found.optimizer}`："
            f"后者的学习率一直是 {found.rate:.4g}。`{found.name}` 显示的（现在是 {found.old:.4g}）是旧优化器的学习率。",
        ),
        T(
            f"A scheduler keeps the optimizer that it was made with. Binding `{found.optimizer}` to a new optimizer "
            f"does not change that: `{found.name}.step()` moves the rate of the old one, which trains nothing any "
            "more.",
            f"调度器保存着创建时得到的优化器。让 `{found.optimizer}` 指向新的优化器并不会改变这一点："
            f"`{found.name}.step()` 改变的是旧优化器的学习率，而它已经不再训练任何东西。",
        ),
        T(
            f"Make the scheduler again after `{found.optimizer}`, in the same cell "
            f"(`{found.name} = {found.type}({found.optimizer}, …)`), and train again.",
            f"在同一个单元格里，在 `{found.optimizer}` 之后重新创建调度器"
            f"（`{found.name} = {found.type}({found.optimizer}, …)`），然后重新训练。",
        ),
        found.optimizer_path,
    )
    cells = cell(ran, found.cell, "changed")
    cells += cell(ran, made.count, "stale") if made is not None else []
    cells += cell(ran, newer.count, "made") if newer is not None and newer is not made else []
    return warning("stale-scheduler", "silent", said, cells, "PL617")
