"""Warns that a cell has changed a saved tensor of a live graph: backward will raise, or compute a wrong gradient
without an error (:func:`changed`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.broken import Broken


def changed(broken: Broken, ran: Ran, *, failed: bool = False) -> dict[str, Any] | None:
    """The warning that a saved tensor of a live graph was changed (``broken``); None if the program has already run
    this backward with ``retain_graph``, or keeps the losses of a training only to print them.

    ``failed``: the backward has raised because of the change. ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    if _has_been_run(broken, ran) or (broken.collected and not failed):
        return None
    cells = cell(ran, broken.made, "saved", line=broken.line) + cell(ran, broken.changed, "changed", broken.name)
    why_and_fix = (_silently if broken.silent else _counted)(broken)
    row = broken.among_path or broken.path or broken.root_path
    said = Said(_sentence(broken, failed=failed), *why_and_fix, row, broken.root_path)
    if broken.silent:
        return warning("changed-silently", "silent", said, cells, "PL301")
    rule = "PL104" if broken.is_parameter else "PL101"
    return warning("changed-after-saving", "error", said, cells, rule, failed=failed, copy=_copy(broken, ran))


def each_once(found: Sequence[Broken], ran: Ran) -> list[Broken]:
    """The records of ``found`` with each change only once, for the first root whose backward it breaks; roots whose
    backward has been run with ``retain_graph`` are left out.

    Roots with several elements are left out, too, if a root that has been run has the same changes.
    """
    chosen: list[Broken] = []
    done: set[int] = set()
    for each in found:
        run = _has_been_run(each, ran)
        if not each.changes <= done and not run:
            chosen.append(each)
            done |= each.changes
    harmless = {change for each in found if _has_been_run(each, ran) for change in each.changes}
    return [each for each in chosen if each.is_scalar or not each.changes <= harmless]


def _copy(broken: Broken, ran: Ran) -> dict[str, Any] | None:
    """The cell and the line of the statement before which copying the changed tensor would help; None if there is
    none.
    """
    run = ran.get(broken.changed)
    line = run.line_writing(broken.name) if run is not None and not broken.is_parameter else None
    return {"cell": run.id, "line": line, "name": broken.name} if run is not None and line is not None else None


def _has_been_run(broken: Broken, ran: Ran) -> bool:
    """Whether a cell that ran since the graph was created calls this backward with ``retain_graph``; then it may not be
    called again.
    """
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
        and ast.unparse(node.func.value) == broken.root and any(each.arg == "retain_graph" for each in node.keywords)
        for run in ran.since(broken.made or 0) if "retain_graph" in run.text
        for node in ast.walk(run.tree)
    )  # fmt: skip


def _sentence(broken: Broken, *, failed: bool) -> T:
    name, where = f"`{broken.name}`" if broken.name else "", called(broken.changed)
    en = (name or "a tensor without a name") + (f" and {broken.others} more" if broken.others else "")
    zh = (name or "一个没有名字的张量") + (f" 等 {broken.others + 1} 个张量" if broken.others else "")
    en += " changed" + (f" in {where}" if where else "") + (", without a new version" if broken.silent else "")
    zh += (f" 在 {where} 中" if where else "") + ("被修改，而版本计数器没有变" if broken.silent else "被修改了")
    held, wrong = _held(broken), _wrong(broken, failed=failed)
    return T(f"{en[0].upper()}{en[1:]}; {held.en}: {wrong.en}.", f"{zh}；{held.zh}：{wrong.zh}。")


def _held(broken: Broken) -> T:
    made = called(broken.made)
    en, zh = (f" from {made}", f" {made} 的") if made else ("", "")
    if broken.silent or broken.at is None:
        return T(f"{broken.node}{en} needs the values that it saved", f"{broken.node} 还需要它保存的数")
    return T(f"{broken.node} still holds v{broken.at}{en}", f"{broken.node} 仍持有{zh} v{broken.at}")


def _wrong(broken: Broken, *, failed: bool) -> T:
    en = f"`{broken.root}.backward()`" if broken.is_scalar else f"a backward through `{broken.root}`"
    zh = f"`{broken.root}.backward()`" if broken.is_scalar else f"经过 `{broken.root}` 的反向传播"
    if broken.among:
        en, zh = f"a backward through an entry of `{broken.among}`", f"经过 `{broken.among}` 中元素的反向传播"
    if failed:
        return T(f"this is why {en} failed", f"所以 {zh} 失败了")
    return (
        T(f"{en} will compute with the new ones", f"{zh} 会用新的数计算")
        if broken.silent
        else T(f"{en} will fail", f"{zh} 将会失败")
    )


def _counted(broken: Broken) -> tuple[T, T]:
    explanation = T(
        f"{broken.node} saved the tensor when the result was computed, because backward needs its values. It has "
        f"been changed in place since: its version is now {broken.now}. In backward, torch compares the two "
        "versions and raises an error.",
        f"{broken.node} 在计算结果时保存了这个张量，因为反向传播需要它的数。之后它被就地修改：版本计数器现在是 "
        f"{broken.now}。torch 在反向传播时比较两个版本，然后报错。",
    )
    name, root = f"`{broken.name}`" if broken.name else "", f"`{broken.among or broken.root}`"
    parts = broken.name.split(".")
    plain = broken.name if all(part.isidentifier() for part in parts) else "t"  # `rows[0] = …` would be a write too
    if broken.is_parameter:
        return explanation, T(
            f"Run the backward of {root} before {name or 'it'} is updated, or compute {root} again after the update.",
            f"在更新 {name or '它'} 之前先对 {root} 做反向传播，或在更新之后重新计算 {root}。",
        )
    made = called(broken.made)
    return explanation, T(
        f"Make a new tensor instead of changing {name or 'it'} in place (`{plain} = {plain} * 2`, not "
        f"`{plain} *= 2`), or change a copy "
        f"(`.clone()`). Then run the cells from {made or 'the forward pass'} on again.",
        f"不要就地修改 {name or '它'}，而是产生一个新的张量"
        f"（`{plain} = {plain} * 2`，不用 `{plain} *= 2`），或修改副本（`.clone()`）。"
        f"然后从 {made or '前向计算'} 起重新运行。",
    )


def _silently(broken: Broken) -> tuple[T, T]:
    name, root = f"`{broken.name}`" if broken.name else "", f"`{broken.among or broken.root}`"
    return T(
        f"The numbers in memory are no longer those that {broken.node} saved, but the version counter has not moved: "
        "`.data`, a NumPy array on the same memory, or other code that torch does not count has written them. Torch "
        "cannot notice. The gradient will not be that of what the forward pass computed.",
        f"内存中的数已不是 {broken.node} 保存的那些，但版本计数器没有变：写入者是 `.data`、共享内存的 NumPy 数组，"
        "或 torch 不计数的其他代码。torch 无法察觉。得到的梯度不是前向计算的梯度。",
    ), T(
        f"Write {name or 'it'} where torch counts it (under `torch.no_grad()`, without `.data`), or write into a copy "
        f"(`.clone()`, `.copy()`); then compute {root} again.",
        f"用 torch 会计数的方式写 {name or '它'}（在 `torch.no_grad()` 下，不用 `.data`），或写入副本（`.clone()`、"
        f"`.copy()`）；然后重新计算 {root}。",
    )
