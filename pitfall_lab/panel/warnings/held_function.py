"""Warns that an object still holds an old function although a cell has defined another one under its name
(:func:`held_functions`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pitfall_lab.panel.calls import called_in, definitions
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds
from pitfall_lab.panel.warnings.hooked_twice import CALLED
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.found import Path
    from pitfall_lab.observe.live.held_functions import HeldFunction
    from pitfall_lab.observe.live.outdated_objects import OutdatedObject

Holder = TypeVar("Holder", "HeldFunction", "OutdatedObject")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOKS = frozenset({"len", "print", "type", "isinstance", "id", "repr", "display", "hasattr", "getattr", "setattr"})
_ASKS = frozenset(
    {
        "parameters", "named_parameters", "modules", "named_modules", "children", "buffers", "state_dict", "eval",
        "train", "load_state_dict", "requires_grad_", "zero_grad", "get_last_lr", "to", "apply",
    }
)  # fmt: skip
"""Methods that do not call the functions that a module or scheduler holds."""


def held_functions(found: Sequence[HeldFunction], ran: Ran, said: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the warnings about objects that hold an old function and were used since it was redefined, one for each
    function; ``said`` are the paths of objects about which there is another warning already. ``ran`` are the runs of
    cells; each warning is a dict of :func:`.message.warning`.
    """
    spoken, about = frozenset(said), set[tuple[str, int | None]]()
    for each in (dated(one, ran) for one in found):
        if (each.name, each.made) in about or each.path[:-1] in spoken:
            continue
        used = used_since(each, ran) if not is_meant(each, ran) else None
        if used is not None:
            about.add((each.name, each.made))
            yield _said(each, used, ran)


def dated(found: Holder, ran: Ran) -> Holder:
    """The finding with the cells that bind the name, instead of the cells after which the check saw each function: the
    check may have run only after later cells.
    """
    bound = [run.count for run in ran.since(0) if found.name in run.assigned]
    since = max((count for count in bound if count <= found.since), default=found.since)
    again = max((count for count in bound if count <= found.again), default=found.again)
    before = found.made if found.made is not None and found.made < since else since - 1
    return found._replace(
        made=max((count for count in bound if count <= before), default=None), since=since, again=again
    )


def _said(found: HeldFunction, used: Cell, ran: Ran) -> dict[str, Any]:
    made = ran.get(found.made)
    of = called(made.count) if made is not None else ""
    again, here, name = called(found.again), called(used.count), found.name
    hook = CALLED.get(found.path[-1])
    where = re.sub(r"\.(\d+)", r"[\1]", found.text.partition("._")[0] if hook is not None else found.text)
    what = T(f"`{where}`", f"`{where}`")
    if hook is not None:
        what = T(f"The {hook.en} of `{where}`", f"`{where}` 的{hook.zh}")
    elif found.type == "partial":
        what = T(f"`{where}` (a partial)", f"`{where}`（partial）")
    more = T("", "")
    if len(found.others) == 1 and hook is None:
        more = T(f" (like `{found.others[0]}`)", f"（还有 `{found.others[0]}`）")
    elif found.others:
        more = T(f" (and {len(found.others)} more)", f"（还有 {len(found.others)} 处）")
    root = found.path[0]
    fix = T(
        f"Make `{root}` anew after {again}{', and the others too' if found.others else ''}, and run {here} again.",
        f"在 {again} 之后重新创建 `{root}`{'，其他的也一样' if found.others else ''}，再运行 {here}。",
    )
    if hook is not None:
        fix = T(
            f"Remove the old hook (`handle.remove()`), register `{name}` again, and run {here} again.",
            f"移除旧的钩子（`handle.remove()`），重新注册 `{name}`，再运行 {here}。",
        )
    said = Said(
        T(
            f"{what.en}{more.en} still has the `{name}`{f' of {of}' if of else ' of before'}: {again} defined another "
            f"`{name}`, which does not reach it. {here} used the old one.",
            f"{what.zh}{more.zh}仍是{f' {of} 的' if of else '之前的'} `{name}`：{again} 用这个名字定义了另一个函数，"
            f"但它没有换过去。{here} 用的是旧的那个。",
        ),
        T(
            f"An object keeps the function that it was given, not the name. Defining `{name}` again binds the name to "
            "a new function; what was made before goes on calling the old one.",
            f"对象保存的是交给它的那个函数，而不是名字。重新定义 `{name}` 只是让这个名字指向新的函数；"
            "之前创建的对象仍然调用旧的函数。",
        ),
        fix,
        (),  # of loaders, data sets and schedulers there are no rows
        (found.text,),
    )
    cells = cell(ran, found.again, "changed", name)
    cells += cell(ran, made.count, "made", name) if made is not None else []
    cells += cell(ran, used.count, "stale") if used.count != found.again else []
    return warning("old-function", "silent", said, cells)


def is_meant(found: HeldFunction | OutdatedObject, ran: Ran) -> bool:
    """Whether the new function is probably for another object, as far as the sources of the cells and ``newer`` show
    it: then the old holder is intended to keep its own.
    """
    runs = list(ran.since(0))
    if found.is_lambda and any(_reads(found.name, run, found.since) for run in runs if run.count >= found.since):
        return True
    if not found.is_data:
        return bool(found.newer)
    before = {name for run in runs if run.count < found.since for name in run.assigned}
    bound = {name for run in runs if run.count >= found.since for name in run.assigned}
    return any(path[0] not in before or (len(path) > 2 and path[0] not in bound) for path in found.newer)


def _reads(name: str, run: Cell, since: int) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for statement in _after(run, name, since)
        for node in ast.walk(statement)
    )


def used_since(found: HeldFunction | OutdatedObject, ran: Ran) -> Cell | None:
    """The first cell that ran without an error since the name was bound to another function, and used a holder without
    binding it again; None if there is none.
    """
    runs = list(ran.since(0))
    functions = definitions(runs)
    for run in runs:
        if run.count < found.since or not run.succeeded or found.roots & run.assigned:
            continue
        if any(_uses(each, found.roots, functions) for each in _after(run, found.name, found.since)):
            return run
    return None


def _after(run: Cell, name: str, since: int) -> list[ast.stmt]:
    """The statements of a cell; of the cell that bound the name again, only those after that."""
    body = [each for each in run.tree.body if not isinstance(each, _DEFINITIONS)]
    if run.count != since:
        return body
    line = max((each.lineno for each in run.tree.body if name in binds(each)), default=0)
    return [each for each in body if each.lineno > line]


def _uses(statement: ast.stmt, roots: frozenset[str], functions: Mapping[str, ast.AST]) -> bool:
    """Whether a statement, or the functions that it calls, use one of the names (:func:`_names_used`)."""
    work: list[ast.AST] = [statement]
    met = set[str]()
    for node in work:  # the list grows during the iteration
        local = _locals(node)
        if any(_names_used(each, roots - local) for each in _parts(node)):
            return True
        for name in set(called_in(node)) - met:
            met.add(name)
            if name in functions:
                work.append(functions[name])
    return False


def _parts(node: ast.AST) -> list[ast.AST]:
    return list(node.body) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else [node]


def _locals(node: ast.AST) -> set[str]:
    """The local names of a function; empty for other code."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    inner = list(ast.walk(node))
    shared = {name for each in inner if isinstance(each, ast.Global) for name in each.names}
    made = {each.arg for each in inner if isinstance(each, ast.arg)}
    made |= {each.id for each in inner if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return made - shared


def _names_used(node: ast.AST, roots: frozenset[str]) -> bool:
    """Whether the code calls, iterates over, indexes or passes on one of the names; only inspecting it, or giving it
    another name, does not count.
    """
    if isinstance(node, ast.Name):
        return node.id in roots and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return not _is_chain(node) and _names_used(node.value, roots)
    if isinstance(node, ast.Call):
        given = [*node.args, *(each.value for each in node.keywords)]
        if isinstance(node.func, ast.Name) and node.func.id in _LOOKS:
            return any(not _is_chain(each) and _names_used(each, roots) for each in given)
        if isinstance(node.func, ast.Attribute) and _is_chain(node.func):
            return (_root(node.func) in roots and node.func.attr not in _ASKS) or any(
                _names_used(each, roots) for each in given
            )
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Name):
        return False
    return any(_names_used(child, roots) for child in ast.iter_child_nodes(node))


def _is_chain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
