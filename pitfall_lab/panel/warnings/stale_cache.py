"""Warns that a cell has used cached results that were computed before their weights changed, or before the function
that computes them was redefined (:func:`stale_caches`).
"""

# ruff: noqa: PLC0415 - a notebook without torch does not import it

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cache_fills import Chain, Fill, chain, given_for, resolved
from pitfall_lab.panel.calls import called_in, definitions, does, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import statements
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.stale_caches import Asked, StaleCache


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def asked(ran: Ran) -> dict[Asked, Fill]:
    """The caches of the notebook (dicts, lists and attributes in which cells keep results), each with the code that
    fills it; for a function that was redefined, its newest code. An empty dict if the sources of the cells show none.
    """
    from pitfall_lab.observe.live.stale_caches import Asked

    runs = list(ran.since(0))
    newest: dict[tuple[str, str, Chain], Fill] = {}
    for run in runs:
        newest = {at: each for at, each in newest.items() if (each.owner or each.function) not in run.assigned}
        newest |= {(each.function, each.owner, each.holder): each for each in run.fills}
    if not newest:
        return {}
    functions, calls = definitions(runs), [each for run in runs for each in run.calls]
    return {
        Asked(each.holder, tuple(sorted(resolved(each, calls, functions))), _owner(each), each.default): each
        for each in newest.values()
    }


def _owner(fill: Fill) -> str:
    return fill.owner if fill.holder[0] == "self" else ""


def stale_caches(found: Sequence[StaleCache], fills: Mapping[Asked, Fill], ran: Ran) -> Iterator[dict[str, Any]]:
    """Yield the warnings about the caches in ``found`` whose results a cell has used again, at most one for each cache.
    ``fills`` is what :func:`asked` returns, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    said = set[tuple[str, ...]]()
    for each in found:
        if each.entries not in said and (one := _stale_cache(each, fills[each.asked], ran)) is not None:
            said.add(each.entries)
            yield one


def _stale_cache(found: StaleCache, fill: Fill, ran: Ran) -> dict[str, Any] | None:
    """The warning about cached results that are older than their weights or function; None if no cell has used the
    results since these changed.
    """
    used = next(
        (
            run
            for run in ran.since(found.moved)
            if run.count not in found.filled and _uses(run, found, fill, ran) and _asks(run, found, ran)
        ),
        None,
    )
    if used is None or found.hit is False or (found.is_function and not _returns(found.module, ran)):
        return None
    first, others = found.entries[0], len(found.entries) - 1
    what = T(f"`{first}`", f"`{first}`")
    if others:
        what = T(f"`{first}` and {others} more", f"`{first}` 等 {others + 1} 项")
    who = T(f"`{fill.function}`", f"`{fill.function}`") if fill.function else T("the cell", "该单元格")
    place = first.partition("(")[0] if fill.way in ("cache", "inner") else first.partition("[")[0]
    ways = {
        "cache": f"{place}.cache_clear()", "inner": f"{place}.__wrapped__.cache_clear()", "property": f"del {place}",
    }  # fmt: skip
    empty = ways.get(fill.way, f"{place}.clear()" if place != first else f"{place} = None")
    said = Said(
        *(_of_function if found.is_function else _of_weights)(found, what, who, called(used.count)),
        _fix(found, fill, place, empty, called(used.count)),
        (place,) if place.isidentifier() and not place.startswith("_") and not fill.way else (),
        (first,),
    )
    cells = cell(ran, found.moved, "changed") + cell(ran, found.since, "made") + cell(ran, used.count, "stale")
    return warning("stale-cache", "silent", said, cells)


def _of_weights(found: StaleCache, what: T, who: T, here: str) -> tuple[T, T]:
    """The sentence and the explanation if weights have changed."""
    since, moved, module = called(found.since), called(found.moved), found.module
    come = "come" if len(found.entries) > 1 else "comes"
    return T(
        f"{what.en} of {since} {come} from `{module}` as it was then. {moved} changed its "
        f"weights, and {here} used the old results: {who.en} computes only what is not kept yet.",
        f"{since} 的 {what.zh}是用当时的 `{module}` 算出来的。{moved} 改变了它的权重，而 {here} 用的仍是旧的结果："
        f"{who.zh} 只计算还没有保存的内容。",
    ), T(
        "What is kept does not follow the weights that it was computed from: the key names the data, not the "
        "state of the model.",
        "保存下来的结果不会跟着计算它的权重改变：键只说明是哪份数据，没有说明是哪个状态的模型。",
    )


def _of_function(found: StaleCache, what: T, who: T, here: str) -> tuple[T, T]:
    """The sentence and the explanation if a function was redefined."""
    since, moved, name = called(found.since), called(found.moved), found.module
    come = "come" if len(found.entries) > 1 else "comes"
    return T(
        f"{what.en} of {since} {come} from `{name}` as it was defined then. {moved} defined `{name}` anew, and {here} "
        f"used the old results: {who.en} computes only what is not kept yet.",
        f"{since} 的 {what.zh}是用当时定义的 `{name}` 算出来的。{moved} 重新定义了 `{name}`，而 {here} 用的仍是旧的"
        f"结果：{who.zh} 只计算还没有保存的内容。",
    ), T(
        f"A call of `{name}` looks the name up and takes the new function, but what is kept already is not computed "
        "again: it holds old and new results under their keys.",
        f"调用 `{name}` 时会查找这个名字并得到新的函数，但已经保存的结果不会重新计算：新旧结果会并存在各自的键下。",
    )


def _fix(found: StaleCache, fill: Fill, place: str, empty: str, here: str) -> T:
    """How the results can be computed again."""
    when, zh = (
        ("after the training", "训练之后") if not found.is_function else ("after the new definition", "重新定义之后")
    )
    if fill.default:
        first = T(
            f"Define `{fill.function}` again {when}, which makes `{place}` anew, and run {here} again",
            f"{zh}再定义一次 `{fill.function}`，这会重新创建 `{place}`，再运行 {here}",
        )
    else:
        first = T(f"Empty it {when} (`{empty}`), and run {here} again", f"{zh}清空它（`{empty}`），再运行 {here}")
    if found.is_function:
        return T(f"{first.en}, with what follows from it.", f"{first.zh} 和由它得出的单元格。")
    return T(
        f"{first.en}; or keep results only of weights that are not trained any more.",
        f"{first.zh}；或者只保存不再训练的权重的结果。",
    )


def _returns(name: str, ran: Ran) -> bool:
    """Whether a function of the notebook returns a value."""
    function = definitions(list(ran.since(0))).get(name)
    nodes = ast.walk(function) if function is not None else ()
    return any(isinstance(each, (ast.Return, ast.Yield)) and each.value is not None for each in nodes)


def _asks(run: Cell, found: StaleCache, ran: Ran) -> bool:
    """Whether a cell, or a function that it calls, contains the key of an old entry as a constant; True if the cache
    has only old entries.
    """
    if not found.filled:
        return True
    functions, met, keys = definitions(list(ran.since(0))), set[str](), set[str]()
    code = [each for each in run.tree.body if not isinstance(each, _DEFINITIONS)]
    work: list[ast.AST] = list(code)
    for node in work:  # the list grows during the iteration
        keys |= {repr(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)}
        for name in set(called_in(node)) & functions.keys() - met:
            met.add(name)
            work.append(functions[name])
    return any(each.endswith("]") and each.partition("[")[2][:-1] in keys for each in found.entries)


def _uses(run: Cell, found: StaleCache, fill: Fill, ran: Ran) -> bool:
    """Whether a cell reads the cached result after the weights or the function changed."""
    runs = list(ran.since(0))
    if not fill.function:
        return run.count > found.moved and any(not each.function and each.holder == fill.holder for each in run.fills)
    functions = definitions(runs)
    # the header of a loop or a ``with`` comes as an assignment without a line: what it evaluates has one
    nodes = (each if hasattr(each, "lineno") else getattr(each, "value", each) for each in statements(run.tree))
    ordered = sorted((each for each in nodes if not isinstance(each, _DEFINITIONS)), key=_line)
    if run.count == found.moved and found.is_function:
        made = [each for each in run.tree.body if isinstance(each, _DEFINITIONS) and each.name == found.module]
        ordered = [each for each in ordered if made and _line(each) > _line(made[-1])]
    elif run.count == found.moved:
        steps = reaching(".step(", runs)
        trains = next((_line(each) for each in ordered if does(each, ".step(", steps)), None)
        if trains is None:
            return False
        end = next(
            (each.end_lineno or 0 for each in run.tree.body if _line(each) <= trains <= (each.end_lineno or 0)), 0
        )
        ordered = [each for each in ordered if _line(each) > max(trains, end)]  # a loop goes on after its step
    return any(_reads(each, found, fill, functions) for each in ordered)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _reads(statement: ast.AST, found: StaleCache, fill: Fill, functions: Mapping[str, ast.AST]) -> bool:
    """Whether a statement calls the caching function, itself or in functions that it calls, and does not also compute
    the result directly (to compare them).
    """
    work: list[ast.AST] = [statement]
    met, calls, reads = set[str](), list[ast.Call](), False
    for node in work:  # the list grows during the iteration
        inner = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        calls += inner
        names = set(called_in(node))
        if fill.way == "property":
            names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        if fill.function in names:
            if any(chain(each.func)[: len(found.chain)] == found.chain for each in inner if node is statement):
                return False
            reads = True
        for name in names - met - {fill.function}:
            if name in functions:
                met.add(name)
                function = functions[name]
                work += function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    direct = resolved(fill, [], functions)
    if not reads or any(each[: len(found.chain)] == found.chain for each in direct):
        return reads
    given = {one for argument in fill.arguments if argument != "self" for one in given_for(fill, argument, calls)}
    return any(each[: len(found.chain)] == found.chain for each in given)
