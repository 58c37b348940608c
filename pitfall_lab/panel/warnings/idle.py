"""Warns of modules that get gradients from the training of another module, while no optimizer holds their parameters
(:func:`idle`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.idle_gradients import Idle

_BY_HAND = re.compile(r"\.grad\b|autograd\.grad|import \*")


def idle(found: Idle, ran: Ran) -> dict[str, Any] | None:
    """The warning about a module that gets gradients while no optimizer holds its parameters; None if its weights
    changed and some cell reads gradients: then the program may update them by hand.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    if found.moved and any(_BY_HAND.search(run.text) for run in ran.since(0)):
        return None
    name, optimizer = found.name, found.optimizer
    said = T(
        f"`{found.loss}.backward()` adds gradients to the {found.parameters} parameters of `{name}`, "
        f"which no optimizer holds: `{optimizer}.step()` does not change them, and "
        f"`{optimizer}.zero_grad()` does not clear them.",
        f"`{found.loss}.backward()` 会给 `{name}` 的 {found.parameters} 个参数累加梯度，但没有优化器持有它们："
        f"`{optimizer}.step()` 不改变它们，`{optimizer}.zero_grad()` 也不清除它们。",
    )
    why = T(
        "Gradients that nothing uses cost time and as much memory as the weights. If the module was "
        "to learn, it does not.",
        "没有人使用的梯度既费时间，又占与权重同样多的内存。如果这个模块本应学习，它并没有学到东西。",
    )
    fix = T(
        f"If `{name}` is to learn, give its parameters to an optimizer. If not (a teacher, an average of weights), "
        f"freeze it with `{name}.requires_grad_(False)`, or compute its outputs under `torch.no_grad()`.",
        f"如果 `{name}` 应当学习，把它的参数交给优化器。否则（教师网络、权重的平均）用 `{name}.requires_grad_(False)` "
        "冻结它，或在 `torch.no_grad()` 之下计算它的输出。",
    )
    last = ran.last.count if ran.last is not None else None
    return warning("idle-gradients", "note", Said(said, why, fix, found.path), cell(ran, last, "changed"), "PL611")
