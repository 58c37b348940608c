"""Warns that a cell has changed, through another name, values on which an earlier cell had trained and that are used
again; or, while it computed another result from them, values on which a later cell trains (:func:`shared_writes`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, does, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds, reads, simple
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.panel.written_names import written_into
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.shared_writes import Shared


def shared_writes(
    found: Sequence[Shared], ran: Ran, known: Collection[tuple[str, ...]] = ()
) -> list[dict[str, Any] | None]:
    """The warnings about values that a cell has changed through another name, at most one for each name that holds
    them; ``known`` are the paths of objects about which there is another warning already.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    said: dict[str, dict[str, Any]] = {}
    for each in found:
        if each.path[0] not in said and each.path not in known and (one := _shared_write(each, found, ran)) is not None:
            said[each.path[0]] = one
    return list(said.values())


def _shared_write(found: Shared, all_found: Sequence[Shared], ran: Ran) -> dict[str, Any] | None:
    """The warning about values that a cell has changed through another name; None if the sources of the cells show that
    the storage was shared on purpose, or that nothing uses the values afterwards.
    """
    wrote, name = ran.get(found.cell), found.path[0]
    if wrote is None or found.blank:
        return None
    runs = list(ran.since(0))
    through = [each for each in found.others if each in _named(wrote, runs)]
    made = next((run for run in reversed(runs) if run.count <= wrote.count and name in run.assigned), None)
    if not through or made is None or made is wrote or not _is_unnamed(name, through, wrote, runs):
        return None
    before = [run for run in runs if made.count <= run.count < wrote.count]
    used = next(((run, trained) for run in before if (trained := _used(found, all_found, through, run, runs))), None)
    if used is None:
        return _by_the_way(found, made, wrote, through, ran)
    use, trained = used
    if any(name in written_into(run.tree) for run in before if run is not made):
        return None
    earlier = [run for run in runs if run.count <= use.count]
    if any(is_same_cell(run, wrote) for run in earlier) or _writers(wrote, through, runs) & _called(earlier):
        return None  # the memory is written every time
    if any(each.path == found.path and each.cell <= use.count for each in all_found):
        return None
    later = next((run for run in runs if run.count > wrote.count and name in taken(run, runs)), None)
    if later is None:
        return None
    target, where, again = through[0], called(wrote.count), called(later.count)
    numbers = T(
        f"{again} uses other numbers than {called(use.count)} did.",
        f"{again} 用到的数已经不是 {called(use.count)} 用过的那些了。",
    )
    if trained != name:
        numbers = T(
            f"{called(use.count)} had trained on `{trained}` as it was before, and {again} uses `{name}` as it is now.",
            f"{called(use.count)} 训练用的是修改之前的 `{trained}`，而 {again} 用到的是修改之后的 `{name}`。",
        )
    copy = ".copy()" if found.kind == "tensor" else ".clone()"
    said = Said(
        T(
            f"{where} changed `{target}` in place, and with it `{found.name}` of {called(made.count)}, which has the "
            f"same memory: {numbers.en}",
            f"{where} 就地修改了 `{target}`，也就修改了与它共用内存的 {called(made.count)} 的 `{found.name}`："
            f"{numbers.zh}",
        ),
        T(
            "`torch.from_numpy`, `.numpy()`, slices and views copy nothing: a write through one name is a write to "
            "all. `shuffle`, `sort`, `*=` and index assignments change the data itself.",
            "`torch.from_numpy`、`.numpy()`、切片和视图都不复制数据：通过一个名字写入，就是写入所有的名字。"
            "`shuffle`、`sort`、`*=` 和索引赋值修改的是数据本身。",
        ),
        T(
            f"Change a copy in {where} (`{target}{copy}`, or `rng.permutation({target})` in place of a shuffle). "
            f"Make `{found.name}` and what it comes from again, then run {again} again.",
            f"在 {where} 中修改副本（`{target}{copy}`，或用 `rng.permutation({target})` 代替 shuffle）。"
            f"重新产生 `{found.name}` 和它的来源，然后再运行 {again}。",
        ),
        found.path,
    )
    cells = cell(ran, wrote.count, "changed", target) + cell(ran, made.count, "made") + cell(ran, later.count, "stale")
    return warning("shared-write", "silent", said, cells, "PL701")


def _by_the_way(found: Shared, made: Cell, wrote: Cell, through: Sequence[str], ran: Ran) -> dict[str, Any] | None:
    """The warning about data that a cell changes while it computes another result from it, before a later cell trains
    on the data; None if the sources do not show this.

    The cell does not write to the data itself: it calls a function of the notebook that changes its argument in place
    and returns it, and keeps a copy of the result.
    """
    runs, name = list(ran.since(0)), found.path[0]
    sources = [each for each in through if each not in wrote.assigned]
    own = code_of(wrote)
    functions = definitions(runs)
    made_of = next(
        (
            (source, result, function)
            for source in sources
            for statement in simple(own.body)
            if isinstance(statement, ast.Assign) and source in set(reads(statement))
            for function in called_in(statement)
            if function in functions and _returns_written(functions[function])
            for result in binds(statement)
            if result not in found.others and result != name
        ),
        None,
    )
    if made_of is None or not written_into(own).isdisjoint((name, *found.others)):
        return None
    if any(is_same_cell(run, wrote) for run in runs if run.count < wrote.count):
        return None
    trains = reaching(".backward(", runs)
    later = next(
        (
            run
            for run in runs
            if run.count > wrote.count and name in taken(run, runs) and does(code_of(run), ".backward(", trains)
        ),
        None,
    )
    if later is None:
        return None
    source, result, function = made_of
    where, again = called(wrote.count), called(later.count)
    said = Said(
        T(
            f"{where} made `{result}` of `{source}` with `{function}`, which changes in place what it is given: "
            f"`{found.name}` of {called(made.count)} has the memory of `{source}`, so {again} trained on the changed "
            "numbers.",
            f"{where} 用 `{function}` 由 `{source}` 得到 `{result}`，而这个函数会就地修改传给它的数据："
            f"{called(made.count)} 的 `{found.name}` 与 `{source}` 共用内存，所以 {again} 训练用的是修改后的数。",
        ),
        T(
            f"`{function}` writes into its argument and returns the same object: the result looks like a new one, but "
            "the data has changed as well. `torch.from_numpy`, slices and views copy nothing.",
            f"`{function}` 写入它的参数并返回同一个对象：结果看起来是新的，但数据也变了。"
            "`torch.from_numpy`、切片和视图都不复制数据。",
        ),
        T(
            f"Give `{function}` a copy (`.copy()` of an array, `.clone()` of a tensor). Make `{source}` and "
            f"`{found.name}` again, and then run {again} again.",
            f"把副本交给 `{function}`（数组用 `.copy()`，张量用 `.clone()`）。重新产生 `{source}` 和 `{found.name}`，"
            f"然后再运行 {again}。",
        ),
        found.path,
    )
    cells = cell(ran, wrote.count, "changed", result) + cell(ran, made.count, "made") + cell(ran, later.count, "stale")
    return warning("shared-write", "silent", said, cells, "PL701")


def _returns_written(function: ast.AST) -> bool:
    """Whether a function changes an argument in place and returns it."""
    if not isinstance(function, ast.FunctionDef):
        return False
    body = ast.Module(function.body, [])
    bound = {each for statement in simple(function.body) for each in binds(statement)}
    given = {each.arg for each in (*function.args.posonlyargs, *function.args.args)} - bound
    returned = {
        each.value.id for each in ast.walk(body) if isinstance(each, ast.Return) and isinstance(each.value, ast.Name)
    }
    return not (given & returned).isdisjoint(written_into(body))


def _named(run: Cell, runs: list[Cell]) -> set[str]:
    """The names in a cell and in the functions that it calls, directly or indirectly."""
    functions, found = definitions(runs), set[str]()
    work: list[ast.AST] = [code_of(run)]
    met = set[str]()
    for node in work:  # the list grows during the iteration
        found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for name in called_in(node):
            if name in functions and name not in met:
                met.add(name)
                work.append(functions[name])
    return found


def _defines(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_unnamed(name: str, through: Collection[str], wrote: Cell, runs: list[Cell]) -> bool:
    """Whether a cell does not mention the name ``name``, except to give its storage another name."""
    rest = Cell(0, "", "")
    statements = [
        each
        for each in simple(wrote.tree.body)
        if not (
            isinstance(each, ast.Assign)
            and all(isinstance(one, ast.Name) and one.id in through for one in each.targets)
        )
    ]
    rest.__dict__["tree"] = ast.Module(list(statements), [])
    headers = {
        each.id
        for node in ast.walk(wrote.tree)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.With, ast.While, ast.If))
        for part in _headers(node)
        for each in ast.walk(part)
        if isinstance(each, ast.Name)
    }
    return name not in _named(rest, runs) | headers


def _headers(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.target, node.iter]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [each.context_expr for each in node.items]
    return [node.test] if isinstance(node, (ast.While, ast.If)) else []


def taken(run: Cell, runs: list[Cell]) -> set[str]:
    """The names whose values the cell ``run`` reads, itself or in the functions of ``runs`` that it calls; names that
    it binds before it reads them are left out.
    """
    own = run.assigned - run.flow[0]
    functions, found = definitions(runs), set(_read(code_of(run))) - own
    work, met = list(called_in(code_of(run))), set[str]()
    for name in work:  # the list grows during the iteration
        function = functions.get(name)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and name not in met:
            met.add(name)
            body = ast.Module(function.body, [])
            found |= set(_read(body)) - {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
            work.extend(called_in(body))
    return found


def _read(node: ast.AST) -> Iterator[str]:
    """The names whose values the code reads; names of which it only reads the shape or the type are left out."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _NOT_NUMBERS:
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NO_NUMBERS:
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _read(child)


_NOT_NUMBERS = {"shape", "dtype", "device", "ndim", "size", "dim", "numel"}
_NO_NUMBERS = {"len", "type", "isinstance", "id"}


def code_of(run: Cell) -> ast.Module:
    """The code that a cell runs itself: its statements without the definitions."""
    return ast.Module([each for each in run.tree.body if not _defines(each)], [])


def _used(
    found: Shared, all_found: Sequence[Shared], through: Collection[str], run: Cell, runs: list[Cell]
) -> str | None:
    """The name of the values on which a cell trains, if the write has changed them; else None.

    It is the finding's name, or another one whose values were changed with it (the training subset of the same data).
    If the values are only in another order, it may also be the finding's name if the cell computed a result from it
    that the writing cell does not read.
    """
    name, named = found.path[0], _named(run, runs)
    changed = [each.path[0] for each in all_found if each.cell == found.cell and each.path[0] not in through]
    names = [each for each in dict.fromkeys((name, *changed)) if each in named]
    if names and does(code_of(run), ".backward(", reaching(".backward(", runs)):
        return names[0]
    if not found.reordered or name not in names:
        return None
    reads = _named(next(each for each in runs if each.count == found.cell), runs)
    made = {each for each, sources in run.flow[1].items() if name in sources}
    return name if made - reads - {name, *found.others} else None


def _writers(wrote: Cell, through: Collection[str], runs: list[Cell]) -> set[str]:
    """The notebook's own functions that a cell calls and that mention, or are passed, what it changed."""
    functions = definitions(runs)
    found = set()
    for call in ast.walk(wrote.tree):
        if isinstance(call, ast.Call) and (name := next(called_in(ast.Expr(call)), "")) in functions:
            words = {each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)}
            words |= {each.id for argument in call.args for each in ast.walk(argument) if isinstance(each, ast.Name)}
            if not words.isdisjoint(through):
                found.add(name)
    return found


def _called(runs: Sequence[Cell]) -> set[str]:
    return {name for run in runs for name in called_in(code_of(run))}
