"""Warns that a loss was computed from a result of an earlier step, whose graph was freed by a backward
(:func:`used`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.collected import is_collected, list_of
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.used_graphs import Used


_WHY = T(
    "A backward frees what its graph has saved. Something that was computed in that step (a hidden state, a running "
    "sum) went into this one with its history, so backward would go through the used graph a second time.",
    "反向传播会释放计算图保存的内容。那一步算出的某个结果（隐藏状态、累加的和）连同历史一起进入了这一步，反向传播会第"
    "二次经过已用过的图。",
)


_SHARED = T(
    "A backward frees what its graph has saved. Two losses of one forward share a part of their graphs, which the "
    "second backward needs again.",
    "反向传播会释放计算图保存的内容。同一次前向计算的两个损失共用计算图的一部分：第二次反向传播还需要它。",
)
_ONCE = T(
    "Add the losses and call backward once: `(a + b).backward()`. Or keep the graph in all backwards but the last: "
    "`backward(retain_graph=True)`.",
    "把损失加起来，只调用一次反向传播：`(a + b).backward()`。或者除最后一次以外都保留计算图："
    "`backward(retain_graph=True)`。",
)


def used(found: Used, ran: Ran, *, failed: bool = False, last: Cell | None = None) -> dict[str, Any] | None:
    """The warning about a loss whose graph contains a freed graph; None if no cell calls backward on its name (it may
    be a sum that is only printed), or if the loss was created in the same run as the freed node and a cell has run its
    backward since.

    ``failed``: the backward has raised, in the cell ``last`` if this is not yet among the runs; then there is always a
    warning. ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    backwards = last.backwards if last is not None else ()
    known = found.name in backwards or any(found.name in run.backwards for run in ran.since(0))
    if not failed and (not known or _is_done(found, ran)):
        return None
    if is_collected(found.carrier, ran):
        why, fix = _collected(list_of(found.carrier))
    elif not found.shared and _is_made_once(found, ran, last):
        why, fix = _made_once(found, ran)
    else:
        why, fix = (_SHARED, _ONCE) if found.shared else (_WHY, _fix(found.carrier))
    said = Said(_sentence(found, known=known, failed=failed), why, fix, found.path or found.carrier_path)
    cells = cell(ran, found.made, "saved") + cell(ran, ran.last.count if ran.last is not None else None, "changed")
    return warning("used-graph", "error", said, cells, "PL501" if found.shared else "PL502", failed=failed)


def _is_done(found: Used, ran: Ran) -> bool:
    """Whether this loss shares its graph with another result and its own backward has been run since it was created:
    then it is not needed again.
    """
    if not found.shared or found.made is None:
        return False
    return any(run.succeeded and found.name in run.backwards_run for run in ran.since(found.made))


def again(found: Used, ran: Ran) -> dict[str, Any] | None:
    """The note that the last cell, if run again, would start from a graph whose backward has run; None if its source
    shows no backward that leads there.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    now, name = ran.last, found.carrier_path[0]
    made = now.flow[1] if now is not None else {}
    loss = (
        next((each for each in now.backwards if name != each and name in made.get(each, ())), "")
        if now is not None
        else ""
    )
    if now is None or not loss:
        return None
    said = T(
        f"This cell begins from `{name}` and ends with a new `{name}`, whose graph backward has used: "
        f"run again, `{loss}.backward()` will fail.",
        f"此单元格从 `{name}` 开始，又产生新的 `{name}`，而它的计算图已被反向传播用过：再次运行时 "
        f"`{loss}.backward()` 将会失败。",
    )
    return warning(
        "used-again",
        "note",
        Said(said, _WHY, _fix(found.carrier), found.carrier_path),
        cell(ran, now.count, "made"),
        "PL502",
    )


def _sentence(found: Used, *, known: bool, failed: bool) -> T:
    made, via = called(found.made), f"`{found.carrier}`" if found.carrier else ""
    en, zh = (f" of {made}", f" {made} 的") if made else ("", "")
    call = (
        T(f"`{found.name}.backward()`", f"`{found.name}.backward()`") if known else T("this backward", "这次反向传播")
    )
    wrong = T(f"{call.en} will fail", f"{call.zh} 将会失败")
    if failed:
        wrong = T(f"this is why {call.en} failed", f"所以 {call.zh} 失败了")
    if found.shared:
        return T(
            f"`{found.name}` shares {found.node}{en} with a result whose backward has been run, and "
            f"freed it: {wrong.en}.",
            f"`{found.name}` 与另一个结果共用{zh} {found.node}，那个结果的反向传播已经运行并释放了它：{wrong.zh}。",
        )
    if not known:
        begin = T(f"{via} leads into", f"{via} 通向")
    elif via and found.carrier != found.name:
        begin = T(f"`{found.name}` leads through {via} into", f"`{found.name}` 经过 {via} 通向")
    else:
        begin = T(f"`{found.name}` leads into", f"`{found.name}` 通向")
    return T(
        f"{begin.en} {found.node}{en}, whose graph a backward has used: {wrong.en}.",
        f"{begin.zh}{zh} {found.node}，而那个计算图已被一次反向传播用过：{wrong.zh}。",
    )


def _collected(name: str) -> tuple[T, T]:
    """Why a loss computed from a list fails if entries of an earlier iteration are still in the list, and the fix."""
    return T(
        f"A backward frees what its graph has saved. `{name}` still has the entries of an earlier round, whose graphs "
        "have been used, and the loss was computed from all of them.",
        f"反向传播会释放计算图保存的内容。`{name}` 里还留着前一轮的元素，它们的计算图已经用过，而损失由全部元素算出。",
    ), T(
        f"Empty it before each round: `{name}.clear()`, or a new list. Detaching the entries would cut the loss off "
        "from the parameters.",
        f"在每一轮之前清空它：`{name}.clear()`，或新建一个列表。如果对元素用 `.detach()`，损失就与参数断开了。",
    )


def _is_made_once(found: Used, ran: Ran, last: Cell | None) -> bool:
    """Whether an earlier cell computed the variable with the freed graph from trained leaves, and no later cell did."""
    runs = [*ran.since(0), *([last] if last is not None else [])]
    makes = [run for run in runs if found.carrier in run.assigned]
    return bool(found.learns and makes) and makes[-1] is not runs[-1] and found.carrier not in makes[-1].carried


def _made_once(found: Used, ran: Ran) -> tuple[T, T]:
    """Why a loss fails that was computed from a value which depends on trained leaves but is not computed in each step,
    and the fix.
    """
    makes = [run for run in ran.since(0) if found.carrier in run.assigned]
    where = called(makes[-1].count if makes else found.made)
    name, leaf = f"`{found.carrier}`", f"`{found.learns}`"
    en = leaf + (f" and {found.more} more" if found.more else "")
    zh = leaf + (f" 等 {found.more + 1} 个张量" if found.more else "")
    return T(
        f"{name} was computed once, in {where}, from {en}, which `{found.optimizer}` trains. The first backward "
        "through it frees what its graph has saved, and the first step makes its numbers those of before.",
        f"{name} 只在 {where} 中计算过一次，由 `{found.optimizer}` 训练的 {zh} 得出。经过它的第一次反向传播会释放"
        "计算图保存的内容，而第一次更新之后，它的数也已经过时。",
    ), T(
        f"Compute {name} anew in each step, before the loss. `retain_graph=True` would keep the old numbers, and "
        f"`{found.carrier}.detach()` would stop {en} from learning through it.",
        f"在每一步计算损失之前重新计算 {name}。`retain_graph=True` 会保留旧的数，而 `{found.carrier}.detach()` "
        f"会使 {zh} 不再经过它学习。",
    )


def _fix(carrier: str) -> T:
    if carrier.isidentifier():
        return T(
            f"Carry it from step to step without its history: `{carrier} = {carrier}.detach()`.",
            f"把它传到下一步时去掉历史：`{carrier} = {carrier}.detach()`。",
        )
    en, zh = (f"`{carrier}`", f"`{carrier}` ") if carrier else ("it", "它")
    return T(
        f"Carry {en} from step to step without its history: `.detach()`.", f"把{zh}传到下一步时去掉历史：`.detach()`。"
    )
