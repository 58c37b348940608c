"""Warns that a gradient which a cell reads is the sum of its own backward's and an earlier cell's (:func:`summed`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import simple
from pitfall_lab.panel.warnings.leftover import adds_first
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.summed_gradients import Summed

_STEPS = (".step(", "autograd.grad(")
Loop = ast.For | ast.AsyncFor | ast.comprehension


def summed(found: Summed, ran: Ran) -> dict[str, Any] | None:
    """The warning that a gradient is the sum of the backwards of two cells.

    None unless both cells read gradients of this name's tensors: code that reads them after each backward expects
    single gradients, code that reads once may expect the sum. None, too, if the second cell clears gradients before its
    backward, if one of them takes a step or calls ``autograd.grad``, or if both divide the loss by the same number,
    which shows that the sum is intended. ``found`` is the finding in the live objects, ``ran`` are the runs of cells;
    the warning is the dict of :func:`.message.warning`.
    """
    runs, first, now = list(ran.since(0)), ran.get(found.first), ran.get(found.now)
    if first is None or now is None or not adds_first(now, runs):
        return None
    if any(_uses_steps(each, runs) for each in (first, now)) or _is_accumulation(first, now):
        return None
    if not all(_reads(each, found.path[0], len(found.path) > 1, runs) for each in (first, now)):
        return None
    en = f"`{found.name}.grad`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.name}.grad`" + (f" 等 {found.others + 1} 个梯度" if found.others else "")
    one, other, root = called(first.count), called(now.count), found.path[0]
    clear = f"{root}.zero_grad()" if len(found.path) > 1 else f"{root}.grad = None"
    said = Said(
        T(
            f"`backward()` in {other} added to {en} of {one}: what {other} reads is the sum of both gradients.",
            f"{other} 中的 `backward()` 累加到了 {one} 留下的 {zh} 上：{other} 读到的是两者之和。",
        ),
        T(
            "`backward()` adds to `.grad`; only clearing it, or setting it to None, begins a new gradient.",
            "`backward()` 会累加到 `.grad`；只有清零或设为 None 之后，才会得到新的梯度。",
        ),
        T(
            f"Call `{clear}` before the backward of {other} and run it again, or ask for the gradient alone: "
            "`torch.autograd.grad(loss, …)` writes no `.grad`."
            if len(found.path) > 1
            else f"Write `{clear}` before the backward of {other} and run it again.",
            f"在 {other} 的反向传播之前调用 `{clear}` 再运行一次，或者单独求梯度：`torch.autograd.grad(loss, …)` "
            "不写入 `.grad`。"
            if len(found.path) > 1
            else f"在 {other} 的反向传播之前写上 `{clear}`，再运行一次。",
        ),
        found.path,
    )
    cells = cell(ran, first.count, "made") + cell(ran, now.count, "changed")
    return warning("gradients-of-two-cells", "silent", said, cells, "PL601")


def _is_accumulation(first: Cell, now: Cell) -> bool:
    """Whether both cells divide the loss of their backward by the same number."""
    parts = _divisors(first)
    return bool(parts) and parts == _divisors(now)


def _divisors(run: Cell) -> set[str]:
    """The numbers or names by which the cell divides the losses whose backward it calls."""
    known = {
        each.targets[0].id: each.value
        for each in simple(run.tree.body)
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    found = set()
    for node in ast.walk(run.tree):
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            loss = known.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            if (
                isinstance(loss, ast.BinOp)
                and isinstance(loss.op, ast.Div)
                and (isinstance(loss.right, (ast.Constant, ast.Name)) or _is_of_the_whole(loss))
            ):
                found.add(ast.unparse(loss.right))
    return found


def _is_of_the_whole(loss: ast.BinOp) -> bool:
    """Whether a loss is computed from slices of what its divisor counts, as in ``error(net(x[rows])) / len(x)``."""
    counted = {each.id for each in ast.walk(loss.right) if isinstance(each, ast.Name)}
    parts = {
        id(each.value): each.value.id
        for each in ast.walk(loss.left)
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name)
    }
    used = [each for each in ast.walk(loss.left) if isinstance(each, ast.Name) and each.id in counted]
    return any(each in counted for each in parts.values()) and all(id(each) in parts for each in used)


def _uses_steps(run: Cell, runs: list[Cell]) -> bool:
    return any(words in run.text or not reaching(words, runs).isdisjoint(called_in(run.tree)) for words in _STEPS)


def _reads(run: Cell, root: str, is_module: bool, runs: list[Cell]) -> bool:
    """Whether the cell, or a function to which it passes the name, reads ``.grad`` of the name's tensors."""
    own = [each for each in run.tree.body if not isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    if any(_is_of(node, tree, {root}, is_module) for tree in own for node in _gradients(tree)):
        return True
    reading = _reading(is_module, runs)
    return any(
        any(isinstance(each, ast.Name) and each.id == root for each in node.args)
        and not reading.isdisjoint(called_in(node))
        for tree in own
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    )


def _reading(is_module: bool, runs: list[Cell]) -> set[str]:
    """The functions that read ``.grad`` of their arguments, and those that call one of them."""
    functions = definitions(runs)
    found = {
        name
        for name, function in functions.items()
        if any(_is_of(node, function, _parameters(function), is_module) for node in _gradients(function))
    }
    while more := {name for name, each in functions.items() if not found.isdisjoint(called_in(each))} - found:
        found |= more
    return found


def _gradients(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The expressions ``….grad`` that the code reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load):
            yield node


def _parameters(function: ast.AST) -> set[str]:
    return (
        {each.arg for each in (*function.args.posonlyargs, *function.args.args)}
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        else set()
    )


def _is_of(node: ast.Attribute, tree: ast.AST, roots: set[str], is_module: bool) -> bool:
    """Whether ``….grad`` is that of one of the names, of an attribute of it, or of a loop variable over a module's
    parameters.

    False if it is only compared with None.
    """
    if any(
        isinstance(each, ast.Compare) and each.left is node and isinstance(each.ops[0], (ast.Is, ast.IsNot))
        for each in ast.walk(tree)
    ):
        return False
    owner = node.value
    while isinstance(owner, (ast.Attribute, ast.Subscript)):
        owner = owner.value
    if not isinstance(owner, ast.Name):
        return False
    if owner.id in roots:
        return True
    loops = (each for each in ast.walk(tree) if isinstance(each, Loop))
    return is_module and any(
        any(isinstance(target, ast.Name) and target.id == owner.id for target in ast.walk(each.target))
        and any(isinstance(name, ast.Name) and name.id in roots for name in ast.walk(each.iter))
        for each in loops
    )
