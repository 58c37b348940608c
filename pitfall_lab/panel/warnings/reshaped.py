"""Warns that a training runs with a tensor that has lost or gained an axis of size 1 since the same training ran before
(:func:`reshaped`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import does, reaching
from pitfall_lab.panel.calls_in_order import key_of
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.lost_axes import Reshaped, Shape

_TRAINS = ".backward("


def reshaped(found: Reshaped, ran: Ran) -> dict[str, Any] | None:
    """The note that a tensor has another shape than before, and the last cell trains with it; None unless the same code
    has also run with the earlier shape.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    last, runs = ran.last, list(ran.since(0))
    if last is None or last.count < found.changed:
        return None
    trains = reaching(_TRAINS, runs)
    code = _training_calls(last, found.name, trains)
    if not does(last.tree, _TRAINS, trains) or not (code or found.name in last.flow[0]):
        return None
    before = [run for run in runs if found.made <= run.count < found.changed and does(run.tree, _TRAINS, trains)]
    same = next((r for r in before if is_same_cell(r, last) or code & _training_calls(r, found.name, trains)), None)
    if same is None:
        return None
    changed, old, new = called(found.changed), _shape(found.before), _shape(found.after)
    said = Said(
        T(
            f"`{found.name}` had shape {old} when {called(same.count)} trained with it; {changed} made it anew with "
            f"shape {new}, and {called(last.count)} trains with that.",
            f"{called(same.count)} 用 `{found.name}` 训练时，它的形状是 {old}；{changed} 重新创建了它，形状是 {new}，"
            f"而 {called(last.count)} 用它训练。",
        ),
        T(
            "Where a tensor of one of these shapes meets one of the other, broadcasting compares each element with "
            "each: (n, 1) and (n,) give (n, n), without an error, and a loss over that is not the one that is meant.",
            "这两种形状的张量相遇时，广播会让每个元素与所有元素相比：(n, 1) 与 (n,) 得到 (n, n)，没有错误，但由此算出的"
            "损失不是想要的。",
        ),
        T(
            f"If the old shape is meant, give it back in {changed}: `{found.name} = {found.name}.reshape{old}`.",
            f"如果想要原来的形状，请在 {changed} 中恢复它：`{found.name} = {found.name}.reshape{old}`。",
        ),
        (found.name,),
    )
    return warning("shape-changed", "note", said, cell(ran, found.changed, "changed", found.name), "PL401")


def _training_calls(run: Cell, name: str, trains: set[str]) -> set[str]:
    """The functions that train and that the cell calls with this name as an argument."""
    return {
        key_of(call)
        for call in run.calls
        if key_of(call).lstrip(".") in trains
        and any(isinstance(each, ast.Name) and each.id == name for each in (*call.args, *_given(call)))
    }


def _given(call: ast.Call) -> list[ast.expr]:
    return [each.value for each in call.keywords]


def _shape(shape: Shape) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"
