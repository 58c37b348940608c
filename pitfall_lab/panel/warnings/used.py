"""Warns that a loss was computed from a result of the step before, whose graph was freed by a backward."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.used_graphs import Used


def used(found: Used, ran: Ran, *, failed: bool = False) -> dict[str, Any] | None:
    """The warning; ``None`` if no cell calls backward on this name: then it may be a sum that is only printed.

    ``failed``: the backward has raised.
    """
    if not _has_backward(found.name, ran):
        return None
    made = called(found.made)
    en, zh = (f" of {made}", f" {made} 的") if made else ("", "")
    wrong = T(f"`{found.name}.backward()` will fail", f"`{found.name}.backward()` 将会失败")
    if failed:
        wrong = T(f"this is why `{found.name}.backward()` failed", f"所以 `{found.name}.backward()` 失败了")
    sentence = T(
        f"`{found.name}` leads into {found.node}{en}, whose graph a backward has used: {wrong.en}.",
        f"`{found.name}` 通向{zh} {found.node}，而那个计算图已被一次反向传播用过：{wrong.zh}。",
    )
    explanation = T(
        "A backward frees what its graph has saved. Something that was computed in that step (a hidden state, a running sum) went into "
        "this one with its history, so backward would go through the used graph a second time.",
        "反向传播会释放计算图保存的内容。那一步算出的某个结果（隐藏状态、累加的和）连同历史一起进入了这一步，反向传播会第二次经过已用过的图。",
    )
    fix = T("Carry it from step to step without its history: `h = h.detach()`.", "把它传到下一步时去掉历史：`h = h.detach()`。")
    cells = cell(ran, found.made, "saved") + cell(ran, ran.last.count if ran.last is not None else None, "changed")
    return warning("used-graph", "error", Said(sentence, explanation, fix, found.path), cells, "PL502", failed=failed)


def _has_backward(name: str, ran: Ran) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "backward" and ast.unparse(node.value) == name
        for run in ran.since(0) if ".backward" in run.text
        for node in ast.walk(run.tree)
    )  # fmt: skip
