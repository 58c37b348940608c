"""Warns of attributes that were set on parameters, modules or optimizers but that torch does not read
(:func:`unread`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.unread_attributes import Unread

_WHY = T(
    "Python lets any attribute be set on an object, so a slip raises nothing. torch goes by its own attributes only.",
    "Python 允许给对象设置任意属性，所以写错不会报错。torch 只看它自己的属性。",
)


def unread(found: Unread, ran: Ran) -> dict[str, Any]:
    """The warning about an attribute that torch does not read."""
    more = T(f" and {found.others} more", f" 等 {found.others + 1} 个对象") if found.others else T("", "")
    them = "it" if not found.others else "them"
    name, is_set = found.name, f"`{found.attribute} = {found.value}`"
    if found.kind == "tensor":
        meant = T(f"`requires_grad` is still {found.present}", f"`requires_grad` 仍是 {found.present}")
        said = T(
            f"{is_set} was set on `{name}`{more.en}, but torch does not read that name: {meant.en}.",
            f"给 `{name}`{more.zh}设置了 {is_set}，但 torch 不读取这个名字：{meant.zh}。",
        )
        fix = T(
            f"Write `requires_grad`: `p.requires_grad = {found.value}`, or "
            f"`requires_grad_({found.value})` on the module.",
            f"改写成 `requires_grad`：`p.requires_grad = {found.value}`，或对模块调用 "
            f"`requires_grad_({found.value})`。",
        )
    elif found.kind == "module":
        said = T(
            f"{is_set} was set on the module `{name}`{more.en}, which stores it and does nothing: its parameters "
            f"still have `requires_grad` {found.present}.",
            f"在模块 `{name}`{more.zh}上设置的 {is_set} 只是存了下来，没有任何作用：它的参数的 `requires_grad` 仍"
            f"是 {found.present}。",
        )
        fix = T(
            f"Call the method, which sets it on each parameter: `{name}.requires_grad_({found.value})`.",
            f"调用方法，它会设置每个参数：`{name}.requires_grad_({found.value})`。",
        )
    else:
        said = T(
            f"{is_set} was set on `{name}`{more.en}, but `step()` does not read it: `{found.meant}` is still "
            f"{found.present} in its parameter groups.",
            f"给 `{name}`{more.zh}设置了 {is_set}，但 `step()` 不读取它：参数组里的 `{found.meant}` 仍"
            f"是 {found.present}。",
        )
        fix = T(
            f"Set {them} in the groups: `for group in {name}.param_groups: group['{found.meant}'] = {found.value}`.",
            f"在参数组里设置：`for group in {name}.param_groups: group['{found.meant}'] = {found.value}`。",
        )
    return warning(
        f"unread-{found.kind}-{found.attribute}",
        "silent",
        Said(said, _WHY, fix, found.path),
        cell(ran, found.made, "made"),
    )
