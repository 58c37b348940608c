"""Warns that the first step of a training cell used gradients that an earlier cell had left in ``.grad``
(:func:`leftover`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import does, loops_reached, reaching
from pitfall_lab.panel.calls_in_order import in_order, name_called
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.leftover_gradients import Leftover

_BACKWARD = ".backward("


def leftover(found: Leftover, ran: Ran) -> dict[str, Any] | None:
    """The warning that a training cell's first step used gradients left over from an earlier cell.

    None if the source of the training cell clears gradients before its first backward, or calls none; if the source of
    the earlier cell calls none; if both are runs of the same cell, or one is unknown; and if the training cell trains
    in no loop and was not run before the earlier one, so that the step may use the sum of two cells' losses on purpose.
    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs, left, stepped = list(ran.since(0)), ran.get(found.left), ran.get(found.stepped)
    if left is None or stepped is None or is_same_cell(left, stepped):
        return None
    through = reaching(_BACKWARD, runs)
    if not does(left.tree, _BACKWARD, through) or not adds_first(stepped, runs):
        return None
    if not any(does(loop, _BACKWARD, through) for loop in loops_reached(stepped, runs)) and not any(
        is_same_cell(run, stepped) for run in runs if run.count < left.count
    ):
        return None  # one step of a sum: the losses of two cells
    en = f"`{found.name}.grad`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.name}.grad`" + (f" 等 {found.others + 1} 个梯度" if found.others else "")
    one, other, opt = called(left.count), called(stepped.count), found.optimizer
    said = Said(
        T(
            f"The `backward()` of {one} left {en} behind, and the first `backward()` of {other} added to them: its "
            f"first `{opt}.step()` used both.",
            f"{one} 的 `backward()` 留下了 {zh}，而 {other} 的第一次 `backward()` 又累加到它们上面："
            f"第一次 `{opt}.step()` 用的是两者之和。",
        ),
        T(
            "`backward()` adds to the `.grad` of every parameter on its way, also when only the gradient of an input "
            f"was wanted. {other} clears gradients after a step or never, so what was there before is part of its "
            "first step; momentum and Adam carry it on.",
            f"`backward()` 会累加到途中每个参数的 `.grad`，即使只想要输入的梯度。{other} "
            "在更新之后才清除梯度（或从不清除），所以之前留下的梯度成了第一步的一部分；动量和 Adam 还会把它带下去。",
        ),
        T(
            f"Call `{opt}.zero_grad()` before `backward()` in each step, or once before {other}; for a look at an "
            "input's gradient, `torch.autograd.grad(output, input)` fills no parameter's `.grad`. Then train again "
            "from where it was.",
            f"在每一步的 `backward()` 之前、或在 {other} 之前调用一次 `{opt}.zero_grad()`；只想查看输入的梯度时，"
            "`torch.autograd.grad(output, input)` 不会写入参数的 `.grad`。然后从之前的状态重新训练。",
        ),
        found.path,
    )
    cells = cell(ran, left.count, "made") + cell(ran, stepped.count, "changed")
    return warning("gradients-left", "silent", said, cells, "PL601")


def adds_first(run: Cell, runs: list[Cell]) -> bool:
    """Whether the first backward of the cell ``run`` comes before any code that clears gradients, including code in the
    functions of ``runs`` that it calls; False if it calls no backward.
    """
    for each in in_order(run.tree, runs):
        if isinstance(each, ast.Assign):
            if any(isinstance(target, ast.Attribute) and target.attr == "grad" for target in each.targets):
                return False
        elif (name := name_called(each)) in ("zero_grad", "setattr") or (
            name.endswith("_") and ".grad." in ast.unparse(each.func)
        ):
            return False
        elif name == "backward":
            return True
    return False
