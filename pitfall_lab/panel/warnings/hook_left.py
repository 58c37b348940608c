"""Warns that a cell reads values that a hook stored from an earlier model: the new model has no such hook
(:func:`hooks_left`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.cuts import read_in_functions
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.left_hooks import LeftHook

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def hooks_left(found: Iterable[LeftHook], ran: Ran) -> Iterator[dict[str, Any]]:
    """Yield a warning for each list or dict that a hook on the earlier model filled, if a cell has read it after
    calling the new model, which has no such hook.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    for each in found:
        read = _read(each, ran)
        if read is not None:
            yield _said(each, read, ran)


def _said(found: LeftHook, read: Cell, ran: Ran) -> dict[str, Any]:
    filled, model, again, here = f"`{found.filled}`", f"`{found.model}`", called(found.again), called(read.count)
    since = called(found.since)
    said = Said(
        T(
            f"{filled} still holds what the hook `{found.function}` has stored of the earlier {model}: {again} made "
            f"{model} anew, without the hook, and {here} read {filled}.",
            f"{filled} 里仍是钩子 `{found.function}` 从之前的 {model} 中保存的内容：{again} 重新创建了 {model}，"
            f"而它没有这个钩子，{here} 又读取了 {filled}。",
        ),
        T(
            "A hook belongs to the module object on which it was registered. A new model under the same name has none; "
            "calling it stores nothing, and what was stored before stays.",
            "钩子属于注册它的那个模块对象。同一个名字下的新模型没有钩子；调用它不会保存任何内容，而之前保存的内容仍然在。",
        ),
        T(
            f"Run {since} again after {again}, which registers the hook on the new model, and then {here}. Where the "
            f"model is made anew, empty it: `{found.filled}.clear()`.",
            f"在 {again} 之后重新运行 {since}，把钩子注册到新的模型上，然后重新运行 {here}。重新创建模型时，"
            f"请清空它：`{found.filled}.clear()`。",
        ),
        (found.filled,),
        (found.place,),
    )
    cells = cell(ran, found.again, "changed", found.model) + cell(ran, found.since, "made")
    cells += cell(ran, read.count, "stale") if read.count != found.again else []
    return warning("hook-left", "silent", said, cells)


def _read(found: LeftHook, ran: Ran) -> Cell | None:
    """The first cell that read the filled list or dict after the new model was called; None if there is none."""
    runs = list(ran.since(0))
    functions = definitions(runs)
    is_called = False
    for run in runs:
        if run.count < found.again or not run.succeeded:
            continue
        for statement in run.tree.body:
            if isinstance(statement, _DEFINITIONS) or (
                run.count == found.again and not _is_after(statement, run, found)
            ):
                continue
            is_called = is_called or _calls(statement, found.model, functions)
            read = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and _is_use(each, statement)}
            if is_called and found.filled in read | read_in_functions(statement, ran):
                return run
    return None


def _is_after(statement: ast.stmt, run: Cell, found: LeftHook) -> bool:
    """Whether a statement comes after the one that created the model again."""
    made = [each.lineno for each in run.tree.body if _binds(each, found.model)]
    return bool(made) and statement.lineno > max(made)


def _binds(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
        for each in ast.walk(statement)
    )


def _is_use(name: ast.Name, statement: ast.stmt) -> bool:
    """Whether a statement reads the content of this name, and does not only empty it or read its length or keys."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            inner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if inner is name and isinstance(node.func, ast.Attribute) and node.func.attr in ("clear", "keys", "pop"):
                return False
            if isinstance(node.func, ast.Name) and node.func.id in ("len", "list", "type") and name in node.args:
                return False
    return isinstance(name.ctx, ast.Load)


def _calls(node: ast.AST, model: str, functions: dict[str, ast.AST]) -> bool:
    """Whether code, or a function of the notebook that it calls, calls the model, or passes it to a function of the
    notebook.
    """
    work, met = [node], set[str]()
    for each in work:  # the list grows during the iteration
        names = set(called_in(each))
        if model in names:
            return True
        given = (arg for call in ast.walk(each) if isinstance(call, ast.Call) for arg in call.args)
        if names & functions.keys() and any(isinstance(arg, ast.Name) and arg.id == model for arg in given):
            return True  # a function that is given the model
        work += [functions[name] for name in sorted(names - met) if name in functions]
        met |= names
    return False
