"""Warns that a loss has no graph: it was made from values without a graph, and no parameter gets a gradient from it
(:func:`leaf_loss`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.cuts import CutStatement, cut
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.leaf_losses import LeafLoss

_FIX = T(
    "Compute the loss from the model's output with torch alone, without numbers, NumPy or `no_grad` in between; keep "
    "`.item()` and `.detach()` for what is printed or plotted.",
    "只用 torch 由模型的输出计算损失，中间不经过数、NumPy 或 `no_grad`；`.item()` 和 `.detach()` 只用于打印和画图。",
)


def leaf_loss(found: LeafLoss, ran: Ran, is_module: Callable[[str], bool]) -> dict[str, Any] | None:
    """The warning about a loss that requires grad but is a leaf; None if it does not come from a model's output and no
    cell calls backward on it. ``is_module``: whether a name is a module with parameters.

    Before a cell calls backward on it, it may be a parameter to be trained: then the level is ``note``. ``found`` is
    the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of :func:`.message.warning`.
    """
    where = cut(found.name, ran, is_module)
    started = any(found.name in run.backwards for run in ran.since(0))
    if where is None and not started:
        return None
    why = _where(where) if where is not None else T("it is a tensor of its own", "它是一个独立的张量")
    sentence = T(
        f"`{found.name}` has no graph behind it: {why.en}. `{found.name}.backward()` gives no parameter a gradient.",
        f"`{found.name}` 背后没有计算图：{why.zh}。`{found.name}.backward()` 不会给任何参数梯度。",
    )
    said = Said(sentence, _why(found.name), _FIX, found.path)
    cells = cell(ran, where.cell, "changed", line=where.line) if where is not None else []
    return warning("cut-off", "silent" if started else "note", said, cells, "PL505")


def refused(name: str, ran: Ran, failed: Cell, is_module: Callable[[str], bool]) -> tuple[CutStatement, T, T, T] | None:
    """Why the backward of ``name`` in the cell ``failed`` failed for lack of a graph: the statement that ended the
    graph, a sentence, an explanation and a fix; None if no such statement is found. ``is_module``: whether a name is a
    module with parameters.
    """
    where = cut(name, ran, is_module, failed)
    if where is None:
        return None
    why = _where(where)
    sentence = T(
        f"{why.en[0].upper()}{why.en[1:]}: this is why `{name}.backward()` failed.",
        f"{why.zh}：所以 `{name}.backward()` 失败了。",
    )
    return where, sentence, _why(name), _FIX


def _why(name: str) -> T:
    return T(
        "A graph leads only through torch's operations. NumPy, Python numbers, `detach()` and `no_grad` leave it "
        f"behind; a tensor made from them is new, also with `requires_grad=True`: `{name}` itself would get the "
        "gradient, and the parameters none.",
        f"计算图只经过 torch 的运算。NumPy、Python 的数、`detach()` 和 `no_grad` 都会离开它；由它们产生的张量是新的，"
        f"加上 `requires_grad=True` 也一样：得到梯度的是 `{name}` 自己，参数没有梯度。",
    )


def _where(where: CutStatement) -> T:
    cell = called(where.cell)
    en, zh = (f"in {cell}", f"{cell} 中的") if cell else ("in this cell", "此单元格中的")
    words, output = f"`{where.words}`", f"`{where.module}`"
    if where.words.startswith(("with ", "@")):
        return T(f"{words} {en} recorded no graph of {output}'s output", f"{zh} {words} 没有记录 {output} 输出的计算图")
    return T(f"{words} {en} left the graph of {output}'s output behind", f"{zh} {words} 离开了 {output} 输出的计算图")
