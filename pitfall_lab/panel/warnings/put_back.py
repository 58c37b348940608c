"""Warns that a model was reset to its initial weights and trained again by an optimizer that kept its state from the
first training (:func:`begun_again`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, does, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.begun_again import BegunAgain

DEPTH = 4
_DRAWS = re.compile(r"\breset_parameters\b|\binit\.\w+_$")
_SCHEDULER = re.compile(r"(LR|LROnPlateau|WarmRestarts)$")
_HELPER = re.compile(r"opt|sched", re.IGNORECASE)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Functions = Mapping[str, ast.AST]


def begun_again(found: BegunAgain, ran: Ran) -> dict[str, Any] | None:
    """The warning that a model was reset and trained again with the old optimizer.

    None if the sources of the cells show no second training, do not show the reset (if the values alone do not), or
    show that the optimizer was reset, too. ``found`` is the finding in the live objects, ``ran`` are the runs of cells;
    the warning is the dict of :func:`.message.warning`.
    """
    runs, again, back = list(ran.since(0)), ran.get(found.again), ran.get(found.back)
    functions = definitions(runs)
    steps = reaching(".step(", runs)
    if again is None or not does(again.tree, ".step(", steps) or _is_anew(again, found, functions):
        return None
    if found.way == "written" and not (
        back is not None
        and _puts_back(back.tree, frozenset(), functions, ifs=True)
        and "load_state_dict" not in back.text
    ):
        return None
    if found.way == "cell" and not _in_order(again.tree.body, found.starts, functions, steps):
        return None
    if found.way == "rounds" and not any(
        _puts_back(loop, found.starts, functions) and does(loop, ".step(", steps) for loop in _loops(again, functions)
    ):
        return None
    return _said(found, ran)


def _said(found: BegunAgain, ran: Ran) -> dict[str, Any]:
    here, before, first = called(found.again), called(found.back), called(found.first)
    name = found.optimizer
    model = T(f"`{found.model}`", f"`{found.model}`") if found.model else T("the parameters", "参数")
    kept = T("", "")
    if found.steps:
        of = T(f"{found.steps} steps", f"{found.steps} 步") if found.steps > 0 else T("the steps before", "之前各步")
        kept = T(f", with the averages of {of.en}", f"，并带着{of.zh}的平均量")
    rates = T(
        f"at the rate {found.rate:.3g} (it began with {found.begin:.3g}){kept.en}",
        f"学习率为 {found.rate:.3g}（开始时是 {found.begin:.3g}）{kept.zh}",
    )
    if found.way == "rounds":
        sentence = T(
            f"{here} puts {model.en} back to its beginning and trains it again in a loop, but `{name}` goes on from "
            f"round to round: it ended {rates.en}.",
            f"{here} 在循环中把{model.zh}恢复到开始的状态再训练，但 `{name}` 一轮接一轮地延续下去：最后{rates.zh}。",
        )
    elif found.way == "cell":
        sentence = T(
            f"{here} put {model.en} back to its beginning and trained it again, but `{name}` went on where it was "
            f"before: {rates.en}.",
            f"{here} 把{model.zh}恢复到开始的状态并重新训练，但 `{name}` 从之前停下的地方继续：{rates.zh}。",
        )
    else:
        sentence = T(
            f"{before} put {model.en} back to its beginning, and {here} trained it again, but `{name}` went on from "
            f"the training before: {rates.en}.",
            f"{before} 把{model.zh}恢复到开始的状态，{here} 又重新训练，但 `{name}` 从之前的训练继续：{rates.zh}。",
        )
    said = Said(
        sentence,
        T(
            "The weights begin again; the optimizer's state and its rate do not, they are not in them. A scheduler has "
            "brought the rate down, and the second training begins with small steps. The two trainings cannot be "
            "compared.",
            "权重重新开始了，但优化器的状态和学习率不在权重里，没有重新开始。调度器已经把学习率降低，"
            "第二次训练一开始步子就很小。这两次训练不能相互比较。",
        ),
        T(
            f"Make `{name}` and its scheduler anew each time {model.en} {'is' if found.model else 'are'} put back (or "
            f"load states of both that were kept before the first step), and run {here} again.",
            f"每次恢复{model.zh}时都重新创建 `{name}` 和它的调度器（或者加载两者在第一步之前保存的状态），"
            f"再运行 {here}。",
        ),
        found.path,
    )
    cells = cell(ran, found.again, "changed")
    cells += cell(ran, found.back, "stale") if before else []
    cells += cell(ran, found.first, "made") if first and found.first != found.again else []
    return warning("begun-again", "silent", said, cells)


def _is_anew(run: Cell, found: BegunAgain, functions: Functions) -> bool:
    """Whether a cell sets a learning rate, creates an optimizer or a scheduler, or loads or accesses the state of
    one.
    """
    for node in _reached(run.tree, functions):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.slice, ast.Constant) and node.slice.value in ("lr", "initial_lr"):
                return True
        elif isinstance(node, ast.Attribute) and node.attr in ("state", "__init__"):
            return True
        elif isinstance(node, ast.Call):
            name = _called(node)
            if "optim." in ast.unparse(node.func) or _SCHEDULER.search(name):
                return True
            if name == "load_state_dict" and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner == found.optimizer or _HELPER.search(owner):
                    return True
    return False


def _reached(tree: ast.AST, functions: Functions) -> Iterator[ast.AST]:
    """Yield the nodes of the code and of the functions that it calls."""
    work, met = [tree], set[str]()
    for each in work:  # the list grows during the iteration
        yield from ast.walk(each)
        for name in set(called_in(each)) - met:
            met.add(name)
            if name in functions:
                work.append(functions[name])


def _loops(run: Cell, functions: Functions) -> Iterator[ast.AST]:
    return (node for node in _reached(run.tree, functions) if isinstance(node, (ast.For, ast.While)))


def _in_order(
    body: Sequence[ast.stmt], starts: frozenset[str], functions: Functions, steps: set[str], depth: int = DEPTH
) -> bool:
    """Whether the statements reset the parameters and then train; in the body of a loop, they may train first."""
    body = [each for each in body if not isinstance(each, (*_DEFINITIONS, ast.ClassDef))]
    at = next((at for at, each in enumerate(body) if _puts_back(each, starts, functions)), None)
    if at is None:
        return False
    if any(does(each, ".step(", steps) for each in body[at + 1 :]):
        return True
    one = body[at]
    if not does(one, ".step(", steps) or not depth:
        return False
    if isinstance(one, (ast.For, ast.While)):
        return True
    inner = [getattr(one, "body", [])]
    inner += [getattr(functions[name], "body", []) for name in sorted(set(called_in(one))) if name in functions]
    return any(_in_order(each, starts, functions, steps, depth - 1) for each in inner if each)


def _puts_back(
    node: ast.AST, starts: frozenset[str], functions: Functions, depth: int = DEPTH, *, ifs: bool = False
) -> bool:
    """Whether the code assigns to parameters the values that one of the names ``starts`` holds, or initializes them
    again.

    ``ifs``: also if it does so only under an ``if``.
    """
    if isinstance(node, ast.If) and not ifs:
        return False
    if isinstance(node, (ast.For, ast.AsyncFor)) and _has(node.iter, starts):
        text = ast.unparse(node)
        if ".copy_(" in text or ".data = " in text:
            return True
    if isinstance(node, ast.Call):
        name, given = _called(node), [*node.args, *(each.value for each in node.keywords)]
        reads = any(_has(each, starts) for each in given)
        if (name in ("load_state_dict", "copy_") and reads) or _DRAWS.search(ast.unparse(node.func)):
            return True
        named = {each.id for each in given if isinstance(each, ast.Name)} if name == "apply" else {name}
        for each in named & functions.keys() if depth else ():
            function = functions[each]
            if (reads and "load_state_dict" in ast.unparse(function)) or any(
                _puts_back(one, starts, functions, depth - 1, ifs=ifs) for one in getattr(function, "body", ())
            ):
                return True
    if isinstance(node, (*_DEFINITIONS, ast.ClassDef, ast.Lambda)):
        return False
    return any(_puts_back(child, starts, functions, depth, ifs=ifs) for child in ast.iter_child_nodes(node))


def _has(node: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def _called(node: ast.Call) -> str:
    func = node.func
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
