"""Warns that a model was run in training mode without being trained, which has changed its running statistics
(:func:`looked_at`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.statistics import Looked

_ON_PURPOSE = re.compile(
    r"\.train\(|\.training\s*=|running_|num_batches_tracked|momentum|update_bn|load_state_dict|import \*"
)
"""Words that show that a cell changes the statistics on purpose: it recomputes them, or sets training mode itself."""


def looked_at(found: Looked, ran: Ran) -> dict[str, Any] | None:
    """The warning that running statistics changed although the model was not trained.

    Only the cells after the last one whose source shows that it changed them on purpose count; None if there are none.
    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs = [run for count in found.cells if (run := ran.get(count)) is not None]
    purpose = max((at for at, run in enumerate(runs) if _is_on_purpose(run, ran)), default=-1)
    runs = runs[purpose + 1 :]
    if not runs:
        return None
    name, where, trained = found.name, ", ".join(called(run.count) for run in runs), called(found.trained)
    en = f"`{found.layer}`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.layer}`" + (f" 等 {found.others + 1} 层" if found.others else "")
    said = Said(
        T(
            f"{where} ran `{name}` in training mode and trained nothing: the running statistics of {en} moved, and in "
            f"evaluation mode `{name}` no longer computes what {trained} had trained.",
            f"{where} 在训练模式下运行了 `{name}`，却没有训练：{zh}的运行统计量被改动了，"
            f"评估模式下的 `{name}` 不再是 {trained} 训练出来的那个。",
        ),
        T(
            "In training mode batch normalization normalizes each batch by its own mean and variance, and "
            "mixes these into the running statistics that evaluation mode uses. `torch.no_grad()` switches "
            "gradients off, not this.",
            "在训练模式下，批归一化用每个批次自己的均值和方差做归一化，并把它们混入评估模式所用的运行统计量。"
            "`torch.no_grad()` 只关闭梯度，不影响这一点。",
        ),
        T(
            f"Call `{name}.eval()` before it is run to look at its outputs, and `{name}.train()` before training goes "
            f"on. The statistics of before are gone: run again what trains it ({trained}), or load a copy that was "
            "kept (`load_state_dict`).",
            f"在只为查看输出而运行它之前调用 `{name}.eval()`，继续训练之前调用 `{name}.train()`。"
            f"之前的统计量已经没有了：重新运行训练它的单元格（{trained}），或载入保存过的副本（`load_state_dict`）。",
        ),
        found.path,
    )
    cells = [each for run in runs for each in cell(ran, run.count, "changed")] + cell(ran, found.trained, "made")
    return warning("statistics-moved", "silent", said, cells, "PL904")


def _is_on_purpose(run: Cell, ran: Ran) -> bool:
    runs = list(ran.since(0))
    functions = definitions(runs)
    names = {each for each in called_in(run.tree) if each in functions}
    for words in (".train(", "update_bn", "reset_running_stats", "momentum"):
        if names & reaching(words, runs):
            return True
    return _ON_PURPOSE.search(run.text) is not None
