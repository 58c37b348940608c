"""Warns that gradients add up from step to step, as no cell clears them (:func:`stacked`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.stacked_gradients import Stacked

_CLEARS = re.compile(r"zero_|\bgrads?\b\s*=[^=]|setattr|set_to_none|\.grad\.\w+_\(|autograd\.grad\(|import \*")


_FIX = T(
    "Clear them once in each step: `optimizer.zero_grad()` before `backward()`.",
    "每一步清除一次：在 `backward()` 之前调用 `optimizer.zero_grad()`。",
)


def stacked(found: Stacked, ran: Ran) -> dict[str, Any] | None:
    """The warning that gradients add up from step to step; None if some cell's source may clear gradients, or if none
    calls backward (then a library trains).

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs = list(ran.since(0))
    if any(_CLEARS.search(run.text) for run in runs) or not any(run.backwards for run in runs):
        return None
    en = f"`{found.name}.grad`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.name}.grad`" + (f" 等 {found.others + 1} 个梯度" if found.others else "")
    said = Said(
        T(
            f"{en}: backward has added to gradients that a step had already used. No cell clears them.",
            f"{zh}：反向传播把新的梯度加到了已被更新用过的梯度上。没有单元格清除它们。",
        ),
        T(
            "`backward()` adds to `.grad`. Unless it is cleared, each step follows the sum of all gradients so "
            "far, not the newest one.",
            "`backward()` 会累加到 `.grad`。如果不清除，每次更新用的是到目前为止所有梯度之和，而不是最新的梯度。",
        ),
        _FIX,
        found.path,
    )
    return warning(
        "gradients-add-up",
        "silent",
        said,
        cell(ran, ran.last.count if ran.last is not None else None, "changed"),
        "PL601",
    )
