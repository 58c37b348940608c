"""Warns of parameters on which a loss depends but which no optimizer holds: they are never updated, without an error
(:func:`left_out`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.unheld_parameters import LeftOut


def left_out(left: LeftOut, ran: Ran) -> dict[str, Any]:
    """The warning about parameters that no optimizer holds."""
    en = f"`{left.name}`" + (f" and {left.others} more" if left.others else "")
    zh = f"`{left.name}`" + (f" 等 {left.others + 1} 个参数" if left.others else "")
    new, old = called(left.made), called(left.taken)
    step = f"`{left.optimizer}.step()`"
    it, are = ("it", "is") if not left.others else ("them", "are")
    given = T(f"`{left.optimizer}` was made in {old}.", f"`{left.optimizer}` 在 {old} 中创建。")
    cells = cell(ran, left.taken, "made" if left.why in ("behind", "unfrozen") else "stale")
    if left.why == "behind":
        sentence = T(
            f"{en} {are} part of the loss, but no optimizer holds {it}: {step} changes only what comes before.",
            f"{zh} 是损失的一部分，但没有优化器持有它：{step} 只改变它前面的部分。",
        )
        fix = T(
            f"Give {it} to the optimizer as well, or freeze {it} (`requires_grad_(False)`). {given.en}",
            f"把它也交给优化器，或冻结它（`requires_grad_(False)`）。{given.zh}",
        )
    elif left.why == "unfrozen":
        sentence = T(
            f"{en} {are} no longer frozen, but `{left.optimizer}` was made before and does not hold {it}: {step} "
            f"does not change {it}.",
            f"{zh} 已不再冻结，但 `{left.optimizer}` 创建时它还是冻结的，没有持有它：{step} 不会改变它。",
        )
        fix = T(
            f"Make `{left.optimizer}` anew after unfreezing, or give {it} to it with "
            f"`{left.optimizer}.add_param_group`. {given.en}",
            f"解冻之后重新创建 `{left.optimizer}`，或用 `{left.optimizer}.add_param_group` 把它交给优化器。{given.zh}",
        )
    else:
        cells += cell(ran, left.made, "made")
        sentence = T(
            f"{en} came in {new}, after `{left.optimizer}` had been given its parameters in {old}: {step} "
            f"does not change {it}.",
            f"{zh} 在 {new} 中出现，而 `{left.optimizer}` 早在 {old} 中就拿到了它的参数：{step} 不会改变它。",
        )
        fix = T(f"Run {old} again, which makes `{left.optimizer}`.", f"重新运行创建 `{left.optimizer}` 的 {old}。")
    explanation = T(
        "An optimizer keeps the tensors that it was given when it was made, not the names of modules. Other tensors "
        "get gradients but are never updated, and there is no error.",
        "优化器保存的是创建时交给它的张量，而不是模块的名字。其他张量会得到梯度，却从不更新，也不会报错。",
    )
    said = Said(sentence, explanation, fix, left.path, left.optimizer_path)
    return warning("left-out", "silent", said, cells, "PL606" if left.why in ("replaced", "later") else "PL611")
