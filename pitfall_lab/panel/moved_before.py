"""Why a cell failed with an object that an earlier cell has stepped, filled or converted: a scheduler without remaining
steps, an inference tensor kept by a layer, a module of another dtype. Each function returns the sentence, explanation
and fix of a warning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import called
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.kept_inference import KeptInference
    from pitfall_lab.observe.live.module_dtypes import ConvertedModule
    from pitfall_lab.observe.live.stale_schedulers import Stepped


def kept_from(found: KeptInference, cell: Cell) -> tuple[T, T, T]:
    """Sentence, explanation and fix for ``found``, an inference tensor that is kept; ``cell`` is the first cell that
    ran code in inference mode since the object that keeps it was created.
    """
    where, name = called(cell.count), f"`{expression(found.name)}`"
    sentence = T(
        f"{name} was made in inference mode, in {where}, and has been kept since. What inference mode has made can "
        "take no part in gradients: this is why the cell failed.",
        f"{name} 是在 {where} 的推理模式中产生的，并一直保留至今。推理模式产生的张量不能参与求梯度："
        "所以此单元格失败了。",
    )
    if not found.module:
        return (
            sentence,
            T(
                "`no_grad()` leaves out the graph as well, but makes ordinary tensors.",
                "`no_grad()` 同样不记录计算图，但产生普通张量。",
            ),
            T(
                f"Write `torch.no_grad()` in place of `torch.inference_mode()` in {where} and run it again, with what "
                f"fills `{found.root}`.",
                f"在 {where} 中用 `torch.no_grad()` 代替 `torch.inference_mode()`，并重新运行它和填充 `{found.root}` 的"
                "单元格。",
            ),
        )
    module = expression(found.module)
    attribute = f"{module}.{found.attribute}"
    return (
        sentence,
        T(
            f"`{module}` keeps it from one forward to the next, and the first forward ran in inference mode. "
            "`no_grad()` leaves out the graph as well, but makes ordinary tensors.",
            f"`{module}` 把它从一次前向保留到下一次，而第一次前向在推理模式中运行。`no_grad()` 同样不记录计算图，"
            "但产生普通张量。",
        ),
        T(
            f"Write `torch.no_grad()` in place of `torch.inference_mode()` in {where}. Then make `{found.root}` anew, "
            f"or clear what is kept (`{attribute} = None`, if the forward fills it again), and run this cell again.",
            f"在 {where} 中用 `torch.no_grad()` 代替 `torch.inference_mode()`。然后重新创建 `{found.root}`，或清除"
            f"保留的内容（`{attribute} = None`，如果前向会重新填充它），再运行此单元格。",
        ),
    )


def stepped_before(found: Stepped, ran: Ran) -> tuple[T, T, T]:
    """Sentence, explanation and fix for ``found``, a scheduler that earlier cells have stepped; ``ran`` are the runs of
    cells.
    """
    name = f"`{found.name}`"
    made = next((run.count for run in reversed(list(ran.since(0))) if found.name in run.assigned), None)
    cells, left = ", ".join(called(cell) for cell, _ in found.cells), found.total - found.at
    none = T("none was left", "已经没有剩余的步数") if left <= 0 else T(f"{left} were left", f"只剩下 {left} 步")
    sentence = T(
        f"{cells} had already taken {found.at} of the {found.total} steps of {name} ({found.type}), and {none.en} for "
        "this cell: this is why it failed.",
        f"{cells} 已经走了 {name}（{found.type}）全部 {found.total} 步中的 {found.at} 步，对此单元格而言{none.zh}："
        "所以它失败了。",
    )
    again = (
        T(f"Run {called(made)} again", f"重新运行 {called(made)}")
        if made
        else T(f"Make {name} anew", f"重新创建 {name}")
    )
    return (
        sentence,
        T(
            f"A {found.type} counts each `step()`, from whichever cell, and each changes the learning rate of its "
            "optimizer: with the steps that are used up, a part of the schedule is missing from the training.",
            f"{found.type} 会数每一次 `step()`，不论由谁调用，而每次都会改变其优化器的学习率：用掉的步数"
            "对应的那段学习率变化，训练中就没有了。",
        ),
        T(
            f"{again.en}, which makes {name} anew, with the optimizer and the model if they have trained since. To "
            "look at a schedule, or to try a step, use a scheduler of its own on an optimizer of its own: "
            "`torch.optim.SGD([torch.zeros(1)], lr=…)`.",
            f"{again.zh}，从头得到新的 {name}；如果优化器和模型已经训练过，也一并重新创建。"
            "要查看学习率的变化或试走一步，请在单独的优化器上建立单独的调度器："
            "`torch.optim.SGD([torch.zeros(1)], lr=…)`。",
        ),
    )


def converted_before(found: ConvertedModule) -> tuple[T, T, T]:
    """Sentence, explanation and fix for ``found``, a module that an earlier cell has converted to another dtype."""
    name, where = f"`{found.name}`", called(found.cell)
    others = ", ".join(f"`{each}`" for each in found.also)
    also = T("", "")
    if found.also:
        verb = "is" if len(found.also) == 1 else "are"
        also = T(f" ({others} {verb} the same module)", f"（{others} 是同一个模块）")
    return (
        T(
            f"{where} converted {name} from {found.before} to {found.after}{also.en}, and this cell gives it another "
            "number type: this is why it failed.",
            f"{where} 把 {name} 从 {found.before} 转换成了 {found.after}{also.zh}，"
            "而此单元格给它的是另一种数值类型：所以它失败了。",
        ),
        T(
            "`to(…)`, `half()`, `bfloat16()` and `double()` of a module change the module itself and return it; those "
            "of a tensor return another tensor.",
            "模块的 `to(…)`、`half()`、`bfloat16()` 和 `double()` 改变模块本身并返回它；张量的同名方法返回另一个张量。",
        ),
        T(
            f"Convert it back: `{found.name}.to(torch.{found.before})`. For a second module of another type, convert a "
            f"copy in {where}: `copy.deepcopy({found.name}).to(torch.{found.after})`.",
            f"把它转换回来：`{found.name}.to(torch.{found.before})`。如果需要另一种类型的第二个模块，"
            f"请在 {where} 中转换副本：`copy.deepcopy({found.name}).to(torch.{found.after})`。",
        ),
    )


def expression(name: str) -> str:
    """The name of a submodule or tensor, as torch writes it, as a Python expression.

    >>> expression("net.blocks.0.table")
    'net.blocks[0].table'
    """
    return re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", name)
