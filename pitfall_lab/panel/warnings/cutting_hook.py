"""Warns of a forward hook that returns a value not computed from the layer's output, so that nothing before the layer
gets a gradient (:func:`cutting_hook`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import definitions
from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.cutting_hooks import CuttingHook

_NOTHING = {"append", "extend", "add", "update", "insert", "clear", "print", "remove", "sort", "write", "put"}
"""Functions and methods that return None."""
_STORED = {"setdefault", "get", "pop"}
LONGEST = 60
_Function = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


def cutting_hook(found: CuttingHook, ran: Ran) -> dict[str, Any] | None:
    """The warning about a forward hook that replaces the layer's output and so cuts the graph; None if the sources of
    the hooks are not found, or they return nothing, or only values computed from the layer's output.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    for made, name, line in found.hooks:
        function = _function(made, name, line, ran)
        returned = _replacing(function) if function is not None else None
        if returned is not None:
            return _said(found, ran, made, returned)
    return None


def _said(found: CuttingHook, ran: Ran, made: int, returned: ast.expr) -> dict[str, Any]:
    where, text = called(found.cell), ast.unparse(returned)
    since = called(made)
    of = T(f" of {since}", f"{since} 的") if since else T("", "")
    text = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    en = f"`{found.first}`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.first}`" + (f" 等 {found.others + 1} 个参数" if found.others else "")
    them = "them" if found.others else "it"
    stored = T("", "")
    if isinstance(returned, ast.Call) and _last(returned.func) == "setdefault":
        stored = T(" `setdefault` returns what was stored first.", "`setdefault` 返回的是最先保存的值。")
    said = Said(
        T(
            f"The forward hook{of.en} on `{found.layer}` returns `{text}`, which takes the place of the layer's "
            f"output: {en}, in front of it, got no gradient in {where}, and `{found.optimizer}`, which holds {them}, "
            f"did not change {them}.",
            f"{of.zh}前向钩子（在 `{found.layer}` 上）返回 `{text}`，它取代了这一层的输出：在它前面的 {zh}在 {where} "
            f"中没有得到梯度，持有它们的 `{found.optimizer}` 也没有改变它们。",
        ),
        T(
            f"A forward hook that returns anything but None replaces the output.{stored.en} What is returned here was "
            "not computed from this output, so the layers behind it get other numbers, and no gradient flows through.",
            f"前向钩子只要返回 None 以外的值，就会取代输出。{stored.zh}这里返回的并不是由这次的输出算出的，"
            "所以模型用别的数继续计算，梯度也传不过去。",
        ),
        T(
            "Write the hook as a `def` that stores the tensor and returns nothing. Remove this one: keep the handle "
            f"(`handle = ….register_forward_hook(…)`, `handle.remove()`), or `{_indexed(found.layer)}._forward_hooks"
            ".clear()`. Then train again.",
            "把钩子写成 `def`，只保存张量而不返回任何值。移除现在的钩子：保存句柄"
            f"（`handle = ….register_forward_hook(…)`、`handle.remove()`），或用 `{_indexed(found.layer)}"
            "._forward_hooks.clear()`。然后重新训练。",
        ),
        found.path,
    )
    cells = cell(ran, made, "made") + cell(ran, found.cell, "changed")
    return warning("hook-replaces-output", "silent", said, cells)


def _indexed(name: str) -> str:
    """The expression for a layer: ``net[1]`` for ``net.1``."""
    first, *rest = name.split(".")
    return first + "".join(f"[{each}]" if each.isdecimal() else f".{each}" for each in rest)


def _function(made: int, name: str, line: int, ran: Ran) -> _Function | None:
    """The function of a hook in the sources: the only lambda on this line of the cell, or the newest function with this
    name; None if there is none.
    """
    run = ran.get(made)
    if name == "<lambda>":
        lambdas = [each for each in ast.walk(run.tree) if isinstance(each, ast.Lambda)] if run is not None else []
        found = [each for each in lambdas if each.lineno == line]
        return found[0] if len(found) == 1 else None
    function = definitions([each for each in ran.since(0) if each.count <= made]).get(name)
    return function if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _replacing(function: _Function) -> ast.expr | None:
    """The expression that a hook returns and that is neither None nor computed from the output; None if there is none.

    A plain ``output.detach()`` is computed from the output: it cuts the gradient on purpose.
    """
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    output = names[2] if len(names) > 2 else ""
    for each in _returned(function):
        words = {one.id for one in ast.walk(each) if isinstance(one, ast.Name)}
        last = _last(each.func) if isinstance(each, ast.Call) else ""
        if isinstance(each, ast.Constant) or last in _NOTHING:
            continue
        if not output or last in _STORED or output not in words:
            return each
    return None


def _returned(function: _Function) -> Iterator[ast.expr]:
    if isinstance(function, ast.Lambda):
        yield function.body
        return
    work: list[ast.AST] = list(function.body)
    for node in work:  # the list grows during the iteration
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            work.extend(ast.iter_child_nodes(node))


def _last(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""
