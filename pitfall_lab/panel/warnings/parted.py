"""Warns about tied weights that are no longer tied: two attributes of a module were one parameter, until a cell
replaced it in one of them (:func:`parted`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.parted_weights import PartedWeight


def parted(found: PartedWeight, ran: Ran) -> dict[str, Any] | None:
    """The warning that two attributes of a module are no longer the same weight; None if the cell that replaced one of
    them names both: then it is intended.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    here = ran.get(found.cell)
    if here is not None and all(_names(here) & words for words in found.words):
        return None
    where, since = called(found.cell), called(found.since)
    until = T(f" (so since {since})", f"（自 {since} 起）") if since else T("", "")
    root = found.path[0]
    said = Said(
        T(
            f"`{found.replaced}` and `{found.kept}` were one parameter{until.en}, until {where} put another one in "
            f"`{found.replaced}`. `{found.kept}` still has the old one: they are no longer tied.",
            f"`{found.replaced}` 与 `{found.kept}` 原来是同一个参数{until.zh}，直到 {where} 把 `{found.replaced}` "
            f"换成了另一个。`{found.kept}` 仍是旧的那个：两者不再绑定。",
        ),
        T(
            "Tied weights are one tensor in two attributes. An assignment to one of these attributes, or to a layer "
            f"that has it, changes this one only; the other keeps the old values, and `{root}` has "
            f"{found.more} numbers more to train.",
            "绑定的权重是两个属性中的同一个张量。给其中一个属性（或含有它的层）赋值只改变这一个；另一个继续使用旧的值，"
            f"而 `{root}` 要训练的数多了 {found.more} 个。",
        ),
        T(
            f"Tie them again in {where}: `{found.kept} = {found.replaced}`, before the optimizer is made. If they are "
            "to differ from now on, leave them as they are.",
            f"在 {where} 中、创建优化器之前重新绑定：`{found.kept} = {found.replaced}`。"
            "如果从此就要让它们不同，保持现状即可。",
        ),
        found.path,
    )
    cells = cell(ran, found.cell, "changed") + cell(ran, found.since, "made")
    return warning("weights-parted", "silent", said, cells, "PL713")


def _names(run: Cell) -> set[str]:
    """The names, attributes and string constants in a cell."""
    nodes = list(ast.walk(run.tree))
    found = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    found |= {each.id for each in nodes if isinstance(each, ast.Name)}
    return found | {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
