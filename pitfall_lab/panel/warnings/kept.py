"""Warns of weights that were stored without a copy, so that the stored values change as training continues
(:func:`kept`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.cuts import functions_of
from pitfall_lab.panel.name_flow import binds, statements
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.kept_references import KeptReference

_COMPARING = {"equal", "allclose", "sub", "isclose", "array_equal", "dist"}
"""Calls that compare weights with stored ones, by their name in a cell's source."""
_REFERRING = {"state_dict", "detach", "data", "numpy", "parameters", "named_parameters"}
_COPYING = {"deepcopy", "copy", "clone"}


def kept(found: KeptReference, ran: Ran) -> dict[str, Any] | None:
    """The warning about weights that were stored without a copy; None if the sources of the cells do not show that
    their values at that moment are needed.

    They are if the name was bound in a loop under a condition (the best so far). Unless the name is just another name
    of a module, they also are if nothing has read it before the weights changed, or if it is loaded back, or compared,
    afterwards. ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    run = ran.get(found.since)
    if run is None:
        return None
    best = any(_is_best(each, found, name) for each, name in _binding(run, found.name, ran))
    if found.kind == "module" and not best:
        return None
    if best or _steps_after(run, found.name, ran):
        found = found._replace(changed=None if best else found.since)
    if not best and (found.changed is None or not _is_wanted(found, ran)):
        return None
    fix = _fix(found)
    rule = "PL702" if found.kind in ("tensor", "array") else "PL703"
    cells = cell(ran, found.since, "made", found.name) + cell(ran, found.changed, "changed")
    return warning("kept-by-reference", "silent", Said(_sentence(found), _WHY, fix, found.path), cells, rule)


_WHY = T(
    "`state_dict()`, `detach()`, `.data` and `numpy()` give no copy: their tensors have the same memory as the "
    "parameters, and `optimizer.step()` writes into it. Whatever was kept shows the newest weights.",
    "`state_dict()`、`detach()`、`.data` 和 `numpy()` 都不产生副本：它们的张量与参数共用内存，而 `optimizer.step()` 写"
    "入这块内存。保留下来的总是最新的权重。",
)


def _sentence(found: KeptReference) -> T:
    since, changed = called(found.since), called(found.changed)
    if found.kind == "module":
        en = f"`{found.name}` is `{found.module}` itself, not a copy: further training changes it too."
        return T(en, f"`{found.name}` 就是 `{found.module}` 本身，不是副本：继续训练也会改变它。")
    en = f"`{found.weight}`" + (f" and {found.others} more" if found.others else "")
    zh = f"`{found.weight}`" + (f" 等 {found.others + 1} 个张量" if found.others else "")
    if found.changed is None:
        return T(
            f"`{found.name}` of {since} is not a copy: it shares memory with {en}, and has their newest values, "
            "not those of an earlier step.",
            f"{since} 的 `{found.name}` 不是副本：它与 {zh} 共用内存，保存的是最新的值，而不是之前某一步的值。",
        )
    return T(
        f"`{found.name}` of {since} is not a copy: it shares memory with {en}. {changed} changed them, and "
        f"`{found.name}` with them.",
        f"{since} 的 `{found.name}` 不是副本：它与 {zh} 共用内存。{changed} 修改了它们，`{found.name}` 也随之改变。",
    )


def _fix(found: KeptReference) -> T:
    if found.kind == "module":
        way = f"`{found.name} = copy.deepcopy({found.module})`"
    elif found.kind == "group":
        way = f"`copy.deepcopy({found.module}.state_dict())`"
    else:
        way = "`.copy()`" if found.kind == "array" else "`.clone()`"
    return T(f"Keep a copy: {way}.", f"请保存副本：{way}。")


def _binding(run: Cell, name: str, ran: Ran) -> Iterator[tuple[list[ast.stmt], str]]:
    """The bodies whose statements gave a name its value, each with the name in it: the cell's, and those of the
    notebook's functions from which the value was computed.
    """
    yield run.tree.body, name
    sources = run.flow[1].get(name, set())
    for other in ran.since(0):
        for node in other.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in sources:
                yield from ((node.body, each) for each in _returned(node))


def _returned(function: ast.FunctionDef) -> set[str]:
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    return {node.id for value in returns for node in ast.walk(value) if isinstance(node, ast.Name)}


def _is_best(body: list[ast.stmt], found: KeptReference, name: str) -> bool:
    """Whether the code binds the name to weights in a loop under a condition (the best so far), and does not pass it to
    a function in a loop (to be saved at once).
    """
    loops = [node for statement in body for node in ast.walk(statement) if isinstance(node, (ast.For, ast.While))]
    return any(
        name in binds(each) and _refers(each, found) for each in _conditional(body, looped=False, conditional=False)
    ) and not any(
        _is_passed_on(node, name)
        for node in loops  # to be saved at once
    )


def _is_passed_on(loop: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Call) and name in map(_root, node.args) for node in ast.walk(loop))


def _refers(statement: ast.stmt, found: KeptReference) -> bool:
    value = getattr(statement, "value", None)
    if value is None:
        return False
    if found.kind == "module":
        return isinstance(value, ast.Name)
    words = {node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    words |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return bool(words & _REFERRING) and not words & _COPYING


def _conditional(body: list[ast.stmt], *, looped: bool, conditional: bool) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner = [
            block
            for name in ("body", "orelse", "finalbody")
            if isinstance(block := getattr(statement, name, None), list)
        ]
        if not inner and conditional:
            yield statement
        loop = looped or isinstance(statement, (ast.For, ast.While))
        for block in inner:
            yield from _conditional(
                block, looped=loop, conditional=conditional or (looped and isinstance(statement, ast.If))
            )


def _steps_after(run: Cell, name: str, ran: Ran) -> bool:
    """Whether the cell calls ``step`` after the statement that binds the name, itself or in a function of the
    notebook.
    """
    at = next((at for at, each in enumerate(run.tree.body) if name in binds(each)), len(run.tree.body))
    rest = run.tree.body[at + 1 :]
    return any(_steps(each) or any(_steps(function) for _, function in functions_of(each, ran)) for each in rest)


def _steps(code: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "step" for node in ast.walk(code))


def _is_wanted(found: KeptReference, ran: Ran) -> bool:
    changed = found.changed or 0
    first = [run for run in ran.since(found.since) if run.count < max(changed, found.since + 1)]
    before = any(_reads(each, found.name) for run in first for each in statements(run.tree))
    return not before or any(_restores(run.tree, found) for run in ran.since(changed))


def _reads(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(statement)
    )


def _restores(tree: ast.AST, found: KeptReference) -> bool:
    """Whether the code loads the name back into its module, or compares it or computes with it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and found.name in (_root(node.left), _root(node.right)):
            return True
        if isinstance(node, ast.Compare) and found.name in map(_root, (node.left, *node.comparators)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and found.name in map(_root, node.args):
            restores = node.func.attr == "load_state_dict" and _root(node.func.value) == found.module
            if restores or node.func.attr in _COMPARING:
                return True
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
