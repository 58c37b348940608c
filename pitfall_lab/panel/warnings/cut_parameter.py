"""Warns that an optimizer's state, or a gradient, still has the shape that its parameter had before a cell changed it
(:func:`cut_parameter`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.cut_parameters import CutParameter


def cut_parameter(found: CutParameter, ran: Ran) -> dict[str, Any] | None:
    """The warning about a parameter whose shape a cell has changed while its gradient or its optimizer state still has
    the old shape.

    None if it is the gradient, the last cell succeeded, and some cell sets gradients to None (``zero_grad()``): the
    next training step will probably do so as well. ``found`` is the finding in the live objects, ``ran`` are the runs
    of cells; the warning is the dict of :func:`.message.warning`.
    """
    of_gradient = found.kept == "grad"
    last = ran.last
    if of_gradient and (last is None or last.succeeded) and any(_clears(run.tree) for run in ran.since(0)):
        return None
    where, was, now = called(found.cell), _shape(found.was), _shape(found.now)
    more = T(
        f" (and {found.others} more)" if found.others else "", f"（还有 {found.others} 个）" if found.others else ""
    )
    holds = T(f"`{found.kept}` of it in `{found.optimizer}`", f" `{found.optimizer}` 中它的 `{found.kept}` ")
    if of_gradient:
        holds = T("its gradient", "它的梯度")
    said = Said(
        T(
            f"{where} changed the shape of `{found.parameter}`{more.en} from {was} to {now}, but {holds.en} still has "
            f"the shape {was}: `{found.optimizer}.step()` will fail.",
            f"{where} 把 `{found.parameter}`{more.zh}的形状从 {was} 改成了 {now}，但{holds.zh}仍是 {was} 的形状："
            f"`{found.optimizer}.step()` 将会失败。",
        ),
        T(
            "An assignment to `.data` gives the same parameter other numbers, and nothing else: its gradient, and what "
            "the optimizer has kept for it from earlier steps (moments, momentum), stay as they were.",
            "对 `.data` 赋值只是给同一个参数换上别的数：它的梯度，以及优化器在之前的更新中为它保存的状态（矩、动量），"
            "都保持原样。",
        ),
        _fix(found),
        found.path,
    )
    return warning("parameter-cut", "error", said, cell(ran, found.cell, "changed"))


def _fix(found: CutParameter) -> T:
    if found.kept == "grad":
        return T(
            f"Clear the gradients after the change (`{found.optimizer}.zero_grad()`), and compute them anew.",
            f"改变形状之后清除梯度（`{found.optimizer}.zero_grad()`），再重新计算。",
        )
    return T(
        f"Make `{found.optimizer}` anew after the change, with the parameters as they are now; or cut the tensors in "
        f"`{found.optimizer}.state` in the same way.",
        f"改变形状之后，用现在的参数重新创建 `{found.optimizer}`；或者以同样的方式裁剪 `{found.optimizer}.state` "
        "中的张量。",
    )


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _clears(tree: ast.AST) -> bool:
    """Whether the code sets gradients to None, and not only to zero."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad":
            words = [*node.args, *(each.value for each in node.keywords)]
            if not any(isinstance(each, ast.Constant) and each.value is False for each in words):
                return True
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "None" and "grad" in map(_last, node.targets):
            return True
    return False
