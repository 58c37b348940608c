"""Warns that an attribute of a data set was set through one subset of a split, and another subset was used with it
(:func:`shared_settings`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pitfall_lab.panel.calls import called_in, definitions
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.panel.warnings.shared_write import code_of, taken
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.shared_settings import SharedSetting

_DRAWS = re.compile(
    r"rand|jitter|augment|noise|flip|crop|mixup|cutout|erasing|shuffle|choice|normal_?\(", re.IGNORECASE
)
_MAKES = {"DataLoader", "Subset", "random_split", "len", "type", "id"}
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Set(NamedTuple):
    """A statement of a cell that sets the attribute: its source, the name of the subset through which it does so, the
    value, and the last line of the cell's own statement.
    """

    text: str
    through: str
    value: ast.AST
    line: int


def shared_settings(found: Sequence[SharedSetting], ran: Ran) -> list[dict[str, Any]]:
    """The warnings about attributes of data sets that were set through one subset of a split and also apply to the
    others; at most one for each of ``found``.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    return [said for each in found if (said := _shared_setting(each, ran)) is not None]


def _shared_setting(found: SharedSetting, ran: Ran) -> dict[str, Any] | None:
    """The warning about one attribute; None if the sources of the cells do not show that it is intended for one subset
    of the split, and that another subset was used with it.
    """
    run, runs = ran.get(found.cell), list(ran.since(0))
    if run is None:
        return None
    names = [{each.partition("[")[0].partition(".")[0] for each in part} for part in found.parts]
    sets = list(_sets(run, found.attribute, {name for part in names for name in part}, runs))
    last = sets[-1] if sets else None
    own = next((at for at, part in enumerate(names) if last is not None and last.through in part), None)
    if last is None or own is None or not any(names[own].isdisjoint(part) for part in names):
        return None
    several = {each.through for each in sets} != {last.through}
    if several and len({ast.unparse(each.value) for each in sets}) == 1:
        return None  # all parts were given the same
    others = [at for at, part in enumerate(names) if at != own and part.isdisjoint(names[own])]
    before = any(_used(each, names[at], runs) for each in runs if each.count < run.count for at in others)
    draws = _draws(found.attribute, last.value, runs)
    if not (draws or before or several or isinstance(last.value, ast.Constant)) or _is_computed(last.value):
        return None
    use = next(
        (
            (each, found.parts[at][0])
            for each in runs
            if each.count >= run.count and not (each is not run and _sets_again(each, found.attribute, runs))
            for at in others
            if _used(each, names[at], runs, after=last.line if each is run else 0)
        ),
        None,
    )
    return _said(found, last, found.parts[own][0], use, ran, draws=draws) if use is not None else None


def _said(
    found: SharedSetting, last: _Set, part: str, use: tuple[Cell, str], ran: Ran, *, draws: bool
) -> dict[str, Any]:
    later, other = use
    here, there = called(found.cell), called(later.count)
    said = Said(
        T(
            f"{here} set `{found.attribute}` of the data set of `{part}` (`{last.text}`), which is also the data set "
            f"of `{other}`: {there} used `{other}` with it.",
            f"{here} 设置了 `{part}` 的数据集的 `{found.attribute}`（`{last.text}`），而它也是 `{other}` 的数据集："
            f"{there} 使用 `{other}` 时它同样生效。",
        ),
        T(
            "`random_split` and `Subset` split the positions, not the data: each part has a list of indices and a "
            "reference to the one data set. What is set through one part holds for all.",
            "`random_split` 和 `Subset` 划分的是位置而不是数据：每个部分只有一个索引列表和对同一个数据集的引用。"
            "通过一个部分设置的内容对所有部分都生效。",
        ),
        T(
            f"Give `{part}` a data set of its own (`import copy`, then `{part}.dataset = copy.copy({part}.dataset)`), "
            f"set `{found.attribute}` of the data set of `{other}` back to what it was, and run {there} again.",
            f"给 `{part}` 一个自己的数据集（先 `import copy`，再 `{part}.dataset = copy.copy({part}.dataset)`），"
            f"把 `{other}` 的数据集的 `{found.attribute}` 恢复成原来的值，然后再运行 {there}。",
        ),
        (),  # a subset has no row
        (found.attribute,),
    )
    cells = cell(ran, found.cell, "changed") + (cell(ran, later.count, "stale") if later.count != found.cell else [])
    return warning("shared-setting", "silent" if draws else "note", said, cells, "PL738")


def _sets(run: Cell, attribute: str, names: set[str], runs: list[Cell]) -> Iterator[_Set]:
    """The statements that set this attribute on the data set of a subset (``train.dataset.transform = …``), in the cell
    and in the functions that it calls.

    ``names`` are the variables that hold the subsets.
    """
    functions, alias = definitions(runs), dict[str, str]()
    loops = [each for each in ast.walk(run.tree) if isinstance(each, (ast.For, ast.AsyncFor))]
    names = names - {each.id for loop in loops for each in _names(loop.target)}  # a loop sets it for all parts
    for statement in code_of(run).body:
        line = statement.end_lineno or statement.lineno
        yield from _in(statement, attribute, names, line, alias)
        for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
            function = functions.get(next(called_in(ast.Expr(call)), ""))
            if isinstance(function, _FUNCTIONS):
                arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
                arguments = arguments[arguments[:1] == ["self"] :]
                given = dict(zip(arguments, call.args, strict=False))
                given |= {each.arg: each.value for each in call.keywords if each.arg}
                meant = {name: _root(value) for name, value in given.items() if _root(value) in names}
                for each in _in(function, attribute, names | meant.keys(), line, {}):
                    yield each._replace(through=meant.get(each.through, each.through))


def _in(node: ast.AST, attribute: str, names: Collection[str], line: int, alias: dict[str, str]) -> Iterator[_Set]:
    """The statements of this code that set the attribute through one of the names, or through another name for its data
    set (``alias``, which is extended).
    """
    for each in ast.walk(node):
        value: ast.expr | None = None
        target: ast.expr | None = None
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            if _is_data(each.value) and _root(each.value) in names:
                alias[each.targets[0].id] = _root(each.value)
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute):
            if each.targets[0].attr == attribute:
                target, value = each.targets[0].value, each.value
        elif isinstance(each, ast.Call) and ast.unparse(each.func) == "setattr" and len(each.args) == 3:
            target, value = (
                (each.args[0], each.args[2]) if ast.unparse(each.args[1]) == repr(attribute) else (None, None)
            )
        root = _root(target) if target is not None else ""
        if target is not None and value is not None and (root in alias or (root in names and _is_data(target))):
            yield _Set(ast.unparse(each)[:80], alias.get(root, root), value, line)


def _is_data(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "dataset"


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_computed(value: ast.AST) -> bool:
    """Whether a value was computed from data, such as a mean: then it is intended for all subsets."""
    words = {each.attr for each in ast.walk(value) if isinstance(each, ast.Attribute)}
    return bool(words & {"mean", "std", "item", "max", "min", "median", "var", "quantile"})


def _draws(attribute: str, value: ast.AST, runs: list[Cell]) -> bool:
    """Whether the attribute makes the data set draw random numbers: according to its name or value, or as a function
    that reads it draws.
    """
    functions = definitions(runs)
    texts = [attribute, ast.unparse(value)]
    texts += [ast.unparse(functions[each.id]) for each in _names(value) if each.id in functions]
    for function in functions.values():
        for node in ast.walk(function):
            asked = node.test if isinstance(node, (ast.If, ast.IfExp)) else node
            if isinstance(node, (ast.If, ast.IfExp, *_SIMPLE)) and any(
                isinstance(each, ast.Attribute) and each.attr == attribute and isinstance(each.ctx, ast.Load)
                for each in ast.walk(asked)
            ):
                texts.append(ast.unparse(node))
    return any(_DRAWS.search(each) for each in texts)


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def _sets_again(run: Cell, attribute: str, runs: list[Cell]) -> bool:
    """Whether a cell, or a function that it calls, sets an attribute of this name or contains the name as a string."""
    functions, met = definitions(runs), set[str]()
    work: list[ast.AST] = [code_of(run)]
    for node in work:  # the list grows during the iteration
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and each.attr == attribute and isinstance(each.ctx, ast.Store):
                return True
            if isinstance(each, ast.Constant) and each.value == attribute:
                return True
        for name in set(called_in(node)) & functions.keys() - met:
            met.add(name)
            work.append(functions[name])
    return False


def _used(run: Cell, names: set[str], runs: list[Cell], after: int = 0) -> bool:
    """Whether a cell that succeeded reads one of these variables (subsets of a split) after this line, other than to
    make a loader of it or to read its length.
    """
    body = [each for each in code_of(run).body if each.lineno > after]
    if not body or not run.succeeded:
        return False
    part = Cell(run.count, run.id, "")
    part.__dict__["tree"] = _Without().visit(ast.parse("\n".join(ast.unparse(each) for each in body)))
    return not taken(part, runs).isdisjoint(names)


class _Without(ast.NodeTransformer):
    """Removes the calls that create a loader or subset, or only inspect an object."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call that creates a loader or subset, or only inspects an object, by ``None``."""
        name = next(called_in(ast.Expr(ast.Call(node.func, [], []))), "")
        return ast.Constant(None) if name in _MAKES else self.generic_visit(node)
