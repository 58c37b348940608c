"""Warns that a model is trained in evaluation mode, because nothing has set it back to training mode
(:func:`evaluating`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import does, loops_reached, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.module_modes import Evaluating

_BACK = re.compile(r"\.train\(|\.training\s*=|import \*")
_BACKS = (".train(", ".training =", "'training'")
_TRAINS, _EVALUATES = ".backward(", ".eval("


def evaluating(found: Evaluating, ran: Ran) -> dict[str, Any] | None:
    """The warning that a model is trained in evaluation mode; None if it may have been set back to training mode, or if
    the cell that changed its parameters does not train it.

    If a dropout was in evaluation mode before and after the cell, only the cell's own code, or a function that it
    calls, counts as setting it back. Otherwise any cell's source that may do so counts, as a fixed batch normalization
    may be intended. A model that was not in evaluation mode before the cell must have been set to it in a loop that
    also trains. ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs, last = list(ran.since(0)), ran.get(found.cell)
    if last is None or "import *" in "".join(run.text for run in runs):
        return None
    somewhere = any(_BACK.search(run.text) for run in runs)
    if somewhere and not (found.before and found.drops and not _switches(last, runs)):
        return None
    trains, evaluates = reaching(_TRAINS, runs), reaching(_EVALUATES, runs)
    if not does(last.tree, _TRAINS, trains) or not (found.before or _in_one_loop(last, runs, trains, evaluates)):
        return None
    earlier = [run for run in runs if run is not last] if found.before else runs
    switched = next((run for run in reversed(earlier) if _EVALUATES in run.text), None)
    now, where = called(found.cell), called(switched.count) if switched is not None else ""
    verb = "they do" if found.others else "it does"
    en = f"`{found.part}` ({found.type})" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.part}`（{found.type}）" + (f" 等 {found.others + 1} 层" if found.others else "")
    how = (
        T(f"was in evaluation mode while {now} trained it", f"在 {now} 训练它时处于评估模式")
        if found.before
        else T(
            f"went into evaluation mode while {now} trained it, and stayed in it",
            f"在 {now} 训练它的途中进入评估模式，之后没有离开",
        )
    )
    by = (
        T(
            f" `.eval()` was called in {where}, and {now} does not call `.train()`.",
            f"{where} 调用了 `.eval()`，而 {now} 没有调用 `.train()`。",
        )
        if somewhere
        else T(
            f" `.eval()` is called in {where}, `.train()` nowhere.",
            f"{where} 调用了 `.eval()`，没有单元格调用 `.train()`。",
        )
    )
    said = Said(
        T(
            f"`{found.name}` {how.en}: {en} did not do what {verb} in training.{by.en}",
            f"`{found.name}` {how.zh}：{zh}没有像训练时那样工作。{by.zh}",
        ),
        T(
            "`eval()` stays in force until `train()` is called. In evaluation mode dropout drops nothing, and batch "
            "normalization uses its stored statistics and no longer updates them.",
            "`eval()` 一直有效，直到调用 `train()`。在评估模式下，dropout 不丢弃任何数，批归一化使用已存的统计"
            "量而且不再更新它们。",
        ),
        T(
            f"Call `{found.name}.train()` at the beginning of each round of training, or at the end of what evaluates.",
            f"在每一轮训练开始时，或在评估结束时，调用 `{found.name}.train()`。",
        ),
        found.path,
    )
    cells = cell(ran, switched.count, "changed", line=_line(switched)) if switched is not None else []
    return warning("evaluation-left-on", "silent", said, cells, "PL903")


def _switches(last: Cell, runs: list[Cell]) -> bool:
    """Whether the cell's code, or one of the notebook's functions that it calls, may set the mode of a module."""
    return any(does(last.tree, words, reaching(words, runs)) for words in _BACKS)


def _line(run: Cell) -> int | None:
    lines = [number for number, line in enumerate(run.text.split("\n"), 1) if _EVALUATES in line]
    return lines[0] if len(lines) == 1 else None


def _in_one_loop(last: Cell, runs: list[Cell], trains: set[str], evaluates: set[str]) -> bool:
    """Whether one loop of the cell, or of a function that it calls, both trains and sets evaluation mode."""
    loops = loops_reached(last, runs)
    return any(does(loop, _TRAINS, trains) and does(loop, _EVALUATES, evaluates) for loop in loops)
