"""A result with a graph that a module stores, so that ``copy.deepcopy`` of the module fails: fixes store it without the
graph, or remove it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called, is_name, operand
from pitfall_lab.rules.kit.text_origins import origins, owner, parameters
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedies.at_birth import birth
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

HOOKS = {"register_forward_hook", "register_forward_pre_hook"}
NORMS = {"weight_norm", "spectral_norm"}
"""Functions of ``torch.nn.utils`` that store a computed weight in the module, unlike those of
``torch.nn.utils.parametrizations``.
"""
DEEPEST = 3

Keeper = tuple[ast.stmt, ast.expr, ast.expr]
"""A statement that stores a result, the expression where it stores it (``self.h``, or the list of
``self.h.append(…)``), and the expression of the result.
"""


def detached(error: Error) -> Remedy | None:
    """Return the remedy for an object that stores a result with its graph and is copied by ``deepcopy``, with fixes
    that store ``result.detach()``, or remove the result from the object before the copy (in case a loss needs its
    graph).

    If the source does not show where it is stored, the remedy of :func:`_normed`, or None.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    keepers = list(dict.fromkeys(_keepers(error)))
    if not keepers:
        return _normed(error)
    statement, target, _ = keepers[0]
    name, place, found = program.segment(target), program.place(statement), birth(refused, error.wrong)
    where, here = at_line(story, place), at_line(story, refused.span)
    said = T(
        en=f"The deep copy on {here.en} fails: {where.en} keeps a computed tensor and its graph as `{name}`, and torch "
        "copies no tensor that has a `grad_fn`.",
        zh=f"{here.zh}的深拷贝失败：{where.zh}把计算得到的张量连同计算图存为 `{name}`，而 torch 不拷贝带有 "
        "`grad_fn` 的张量。",
    )
    form = f"{name} = ….detach()" if isinstance(statement, ast.Assign) else f"{name}.append(….detach())"
    form = form if _is_whole(statement, target) or isinstance(statement, ast.Expr) else f"{name}[…] = ….detach()"
    accepts = T(en=f"an attribute without the graph: `{form}`", zh=f"不带计算图的属性：`{form}`")
    step = found[2] if found is not None else None
    related = (Related("kept", place, step, T(en=f"`{name}` keeps its graph", zh=f"`{name}` 保留了计算图")),)
    fixes = [*(_fix(program, *each) for each in keepers), _let_go(refused, statement, target)]
    return Remedy(unique(program.text, fixes), said, accepts, place, step, related)


def _keepers(error: Error) -> Iterator[Keeper]:
    """The statements that store the result: by the expression that made it, by its name in that function, or in a hook
    that got it as a parameter.
    """
    refused, program = error.refused, error.refused.story.program
    found = birth(refused, error.wrong)
    stores = [keeper for node in program.nodes if isinstance(node, ast.stmt) and (keeper := _keeper(node)) is not None]
    if found is not None:
        yield from (keeper for keeper in stores if keeper[2] is found[0])
        record = refused.story.tensor(error.wrong.label) if error.wrong is not None else None
        names, function = set((record or {}).get("names") or ()), program.function(found[0])
        yield from (
            keeper
            for keeper in stores
            if program.function(keeper[0]) is function and program.segment(keeper[2]) in names
        )
    hooks = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in _hooks(program)}
    for keeper in stores:
        function = program.function(keeper[0])
        inner = function is not None and (function.name in hooks or _returned(program, function) & hooks)
        if inner and function is not None and isinstance(keeper[2], ast.Name) and keeper[2].id in parameters(function):
            yield keeper


def _keeper(node: ast.stmt) -> Keeper | None:
    """The statement that assigns a value to an attribute or an entry, or appends it to a list, with its target and the
    value; None for other statements.
    """
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        target = node.targets[0]
        return node, target.value if isinstance(target, ast.Subscript) else target, node.value
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and called(call) == "append"
        and isinstance(call.func, ast.Attribute)
        and len(call.args) == 1
    ):
        return node, call.func.value, call.args[0]
    return None


def _hooks(program: Program) -> Iterator[ast.expr]:
    """Yield the functions that the program registers as forward hooks; for ``make_hook(name)``, the function
    ``make_hook``.
    """
    for node in program.nodes:
        if isinstance(node, ast.Call) and called(node) in HOOKS and node.args:
            yield node.args[0].func if isinstance(node.args[0], ast.Call) else node.args[0]


def _returned(program: Program, function: Function) -> set[str]:
    """The name of the function that directly contains ``function``, and may return it, as a set; empty if there is
    none.
    """
    around = program.function(function)
    return {around.name} if around is not None else set()


def _is_whole(statement: ast.stmt, target: ast.expr) -> bool:
    """Whether the statement assigns to the attribute itself, not to an entry of it."""
    return isinstance(statement, ast.Assign) and statement.targets[0] is target


def _fix(program: Program, statement: ast.stmt, target: ast.expr, value: ast.expr) -> Fix:
    name, function = program.segment(target), program.function(statement)
    inside = list(ast.walk(function)) if function is not None else []
    direct = _is_whole(statement, target)
    reads = [
        n for n in inside
        if direct and isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and program.segment(n) == name
        and n.lineno > statement.lineno
    ]  # fmt: skip
    title = T(en=f"Keep `{name}` without its graph", zh=f"保存 `{name}`，但不带计算图")
    kept = (value, f"{operand(program, value)}.detach()")
    if not reads or isinstance(value, ast.Name):
        return Fix(title, program.replace(kept, *((read, program.segment(value)) for read in reads)))
    used = {n.id for n in inside if isinstance(n, ast.Name)} | (
        {a.arg for a in function.args.args} if function is not None else set()
    )
    attribute = name.rpartition(".")[2]
    local = attribute if attribute not in used else f"new_{attribute}"
    text = f"{local} = {program.segment(value)}\n{program.indent(statement)}{name} = {local}.detach()"
    return Fix(title, program.replace((statement, text), *((read, local) for read in reads)))


def _let_go(refused: Refused, statement: ast.stmt, target: ast.expr) -> Fix | None:
    """The fix that empties the attribute before the copy, as a loss may need its graph until then.

    None if the copied object is not given by a name, or the result is not stored in an attribute of ``self``.
    """
    program, call, copying = refused.story.program, refused.call, refused.story.program.statement_at(refused.span)
    whole = call.args[0] if call is not None and call.args else None
    own = owner(program, statement)
    if own is None or whole is None or copying is None or not is_name(whole) or not isinstance(target, ast.Attribute):
        return None
    if program.segment(target.value) != "self" or not program.stands_alone(copying):
        return None
    attribute = f"{target.attr} = None" if _is_whole(statement, target) else f"{target.attr}.clear()"
    classes = {called(each) for each in origins(program, whole) if isinstance(each, ast.Call)}
    paths = [path for name in classes if (path := _path(program, name, own.name)) is not None]
    text = program.segment(whole)
    if len(paths) == 1:
        lines = [f"{text}{paths[0]}.{attribute}"]
    else:
        lines = [
            f"for module in {text}.modules():",
            f"    if isinstance(module, {own.name}):",
            f"        module.{attribute}",
        ]
    title = T(en=f"Let go of `{target.attr}` before the copy", zh=f"在拷贝之前放开 `{target.attr}`")
    return Fix(title, program.insert_before(copying, *lines), meaning="later")


def _path(program: Program, name: str, wanted: str, depth: int = 0) -> str | None:
    """The attributes that lead from an object of the class ``name`` to its only object of the class ``wanted``:
    ``.pool``; None if the source does not show exactly one.
    """
    if name == wanted:
        return ""
    own = next((n for n in program.nodes if isinstance(n, ast.ClassDef) and n.name == name), None)
    found = []
    for node in ast.walk(own) if own is not None and depth < DEEPEST else ():
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and program.segment(node.targets[0]).startswith("self.")
        ):
            inner = _path(program, called(node.value), wanted, depth + 1)
            if inner is not None:
                found.append(f"{program.segment(node.targets[0]).removeprefix('self')}{inner}")
    return found[0] if len(found) == 1 else None


def _normed(error: Error) -> Remedy | None:
    """The remedy for ``torch.nn.utils.weight_norm`` (or ``spectral_norm``), which stores a computed weight: use the
    function of ``torch.nn.utils.parametrizations``.

    None if the program does not call it.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    calls = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and called(n) in NORMS and "parametriz" not in program.segment(n.func)
    ]
    imports = [n for n in program.nodes if isinstance(n, ast.ImportFrom) and n.module == "torch.nn.utils"]
    names = [n for n in imports if {alias.name for alias in n.names} <= NORMS]
    if not calls:
        return None
    functions = [n.func for n in calls if isinstance(n.func, ast.Attribute)]
    changes: list[tuple[ast.AST, str]] = [
        (each, f"{program.segment(each.value)}.parametrizations.{each.attr}") for each in functions
    ]
    changes += [
        (node, program.segment(node).replace("torch.nn.utils", "torch.nn.utils.parametrizations", 1)) for node in names
    ]
    place, name, function = program.place(calls[0]), called(calls[0]), program.segment(calls[0].func)
    where, here = at_line(story, place), at_line(story, refused.span)
    said = T(
        en=f"The deep copy on {here.en} fails: {where.en} normalises a weight with `{function}`, which keeps the "
        "computed weight in the layer, and torch copies no tensor that has a `grad_fn`.",
        zh=f"{here.zh}的深拷贝失败：{where.zh}用 `{function}` 规范化权重，它把计算出的权重存在层里，而 torch "
        "不拷贝带有 `grad_fn` 的张量。",
    )
    form = f"torch.nn.utils.parametrizations.{name}"
    accepts = T(en=f"a layer that computes the weight when it is read: `{form}`", zh=f"读取时才计算权重的层：`{form}`")
    title = T(en=f"Use `{form}`, whose layers can be copied", zh=f"改用 `{form}`，这样的层可以拷贝")
    related = (
        Related("made", place, None, T(en="the computed weight is kept from here on", zh="从这里起保存计算出的权重")),
    )
    fixes = [Fix(title, program.replace(*changes), meaning="later")] if changes else []
    return Remedy(unique(program.text, fixes), said, accepts, place, None, related)
