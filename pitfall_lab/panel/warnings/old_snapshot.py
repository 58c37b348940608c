"""Warns that the best weights so far, which were loaded, come from a model that has been created again since
(:func:`old_snapshot`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, does, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.panel.warnings.shared_write import code_of, taken
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.old_snapshots import OldSnapshot

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def old_snapshot(found: OldSnapshot, ran: Ran) -> dict[str, Any] | None:
    """The warning about a copy of weights that comes from an earlier model of the same name; None if the sources of the
    cells do not show that a training of the new model should have replaced the copy, and that the copy was used after
    it.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    name, runs = found.path[0], list(ran.since(0))
    since = [run for run in runs if run.count >= found.again]
    rounds = next(((run, line) for run in since if (line := _replaces(run, name, runs))), None)
    if rounds is None:
        return None
    trained, line = rounds
    if any(_loads(run, name, runs) for run in since if run.count < trained.count):
        return None  # the new model began with the copy
    later = (run for run in since if run.count >= trained.count)
    used = next((run for run in later if _uses(run, found, runs, line if run is trained else 0)), None)
    if used is None:
        return None
    here, model = called(used.count), f"`{found.model}`"
    did = T(f"{here} loaded them into the new one", f"{here} 把它们载入了新的模型")
    if found.is_model:
        did = T(f"{here} used it", f"{here} 使用了它")
    before = "" if found.made == found.since else called(found.made)
    of = T(f" of {before}", f" {before} 的") if before else T("", "")
    said = Said(
        T(
            f"`{found.name}` of {called(found.since)} has the weights of the earlier {model}{of.en}: "
            f"{called(found.again)} made {model} anew, {called(trained.count)} trained it and did not replace "
            f"`{found.name}`, and {did.en}.",
            f"{called(found.since)} 的 `{found.name}` 保存的是之前{of.zh} {model} 的权重：{called(found.again)} "
            f"重新创建了 {model}，{called(trained.count)} 训练了它而没有替换 `{found.name}`，然后 {did.zh}。",
        ),
        T(
            "The loop keeps the weights only when they are better than the best so far, and the best so far is still "
            "that of the earlier model. The names and shapes agree, so loading gives no error.",
            "循环只在结果比目前最好的更好时才保存权重，而“目前最好的”仍是之前那个模型的。名称和形状都一致，"
            "所以载入时不会报错。",
        ),
        T(
            f"Set `{name}` and the best value so far anew where {model} is made ({called(found.again)}), and run "
            f"{called(trained.count)} and {here} again.",
            f"在创建 {model} 的地方（{called(found.again)}）也重新设置 `{name}` 和目前最好的值，再运行 "
            f"{called(trained.count)} 和 {here}。",
        ),
        found.path[:1],
    )
    cells = cell(ran, found.since, "made") + cell(ran, found.again, "changed") + cell(ran, used.count, "stale")
    return warning("old-snapshot", "note" if found.is_alike else "silent", said, cells)


def _bodies(run: Cell, runs: list[Cell]) -> Iterator[tuple[ast.AST, int]]:
    """The statements of a cell, and the functions that they call, each with the last line of the statement."""
    functions = definitions(runs)
    for statement in code_of(run).body:
        end = statement.end_lineno or statement.lineno
        yield statement, end
        work, met = [statement], set[str]()
        for node in work:  # the list grows during the iteration
            for name in set(called_in(node)) & functions.keys() - met:
                met.add(name)
                function = functions[name]
                if isinstance(function, _FUNCTIONS):
                    work.append(function)
                    yield function, end


def _replaces(run: Cell, name: str, runs: list[Cell]) -> int:
    """The last line of the statement of a cell that trains in a loop and binds the name there under a condition; 0 if
    there is none.
    """
    steps = reaching(".step(", runs)
    for node, end in _bodies(run, runs):
        is_global = not isinstance(node, _FUNCTIONS) or any(
            name in each.names for each in ast.walk(node) if isinstance(each, ast.Global)
        )
        for loop in ast.walk(node):
            trains = isinstance(loop, (ast.For, ast.While)) and does(loop, ".step(", steps)
            if trains and any(_binds(each, name, is_global) for each in ast.walk(loop) if isinstance(each, ast.If)):
                return end
    return 0


def _binds(node: ast.If, name: str, is_global: bool) -> bool:
    """Whether code under a condition binds the name, or an entry of it."""
    for each in (one for part in (*node.body, *node.orelse) for one in ast.walk(part)):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store) and is_global:
            return True
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == name:
            return True
    return False


def _loads(run: Cell, name: str, runs: list[Cell], after: int = 0) -> bool:
    """Whether a cell loads the copy into a model after this line, itself or by a function to which it passes the
    copy.
    """
    functions = definitions(runs)
    for node, end in _bodies(run, runs):
        if end <= after:
            continue
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            given = [*call.args, *(each.value for each in call.keywords)]
            reads = any(isinstance(each, ast.Name) and each.id == name for one in given for each in ast.walk(one))
            what = next(called_in(ast.Expr(call)), "")
            inner = functions.get(what)
            if reads and (
                what == "load_state_dict" or (inner is not None and "load_state_dict(" in ast.unparse(inner))
            ):
                return True
    return False


def _uses(run: Cell, found: OldSnapshot, runs: list[Cell], after: int) -> bool:
    name = found.path[0]
    if not found.is_model:
        return _loads(run, name, runs, after)
    body = [each for each in code_of(run).body if each.lineno > after]
    rest = Cell(run.count, run.id, "")
    rest.__dict__["tree"] = ast.Module(body, [])
    return bool(body) and name in taken(rest, runs) and not _replaces(rest, name, runs)
