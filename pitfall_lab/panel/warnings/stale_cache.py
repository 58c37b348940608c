"""Warns that a cell has used cached results again that were computed before the weights that they come from had
changed.
"""

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
    """What the cells keep results in, with the code that fills it; of a function that was defined again the newest."""
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
    """Yield the warnings, at most one for each cache."""
    said = set[tuple[str, ...]]()
    for each in found:
        if each.entries not in said and (one := _stale_cache(each, fills[each.asked], ran)) is not None:
            said.add(each.entries)
            yield one


def _stale_cache(found: StaleCache, fill: Fill, ran: Ran) -> dict[str, Any] | None:
    """The warning; ``None`` if no cell has used the results since the weights changed."""
    used = next((run for run in ran.since(found.moved) if _uses(run, found, fill, ran)), None)
    if used is None or found.hit is False:
        return None
    since, moved, here, module = called(found.since), called(found.moved), called(used.count), found.module
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
        T(
            f"{what.en} of {since} {'come' if others else 'comes'} from `{module}` as it was then. {moved} changed its "
            f"weights, and {here} used the old results: {who.en} computes only what is not kept yet.",
            f"{since} 的 {what.zh}是用当时的 `{module}` 算出来的。{moved} 改变了它的权重，而 {here} 用的仍是旧的结果："
            f"{who.zh} 只计算还没有保存的内容。",
        ),
        T(
            "What is kept does not follow the weights that it was computed from: the key names the data, not the "
            "state of the model.",
            "保存下来的结果不会跟着计算它的权重改变：键只说明是哪份数据，没有说明是哪个状态的模型。",
        ),
        T(
            f"Define `{fill.function}` again after the training, which makes `{place}` anew, and run {here} again; or "
            "keep results only of weights that are not trained any more.",
            f"训练之后重新定义 `{fill.function}`，这会重新创建 `{place}`，再运行 {here}；"
            "或者只保存不再训练的权重的结果。",
        )
        if fill.default
        else T(
            f"Empty it after the training (`{empty}`), and run {here} again; or keep results only of weights that are "
            "not trained any more.",
            f"训练之后清空它（`{empty}`），再运行 {here}；或者只保存不再训练的权重的结果。",
        ),
        (place,) if place.isidentifier() and not place.startswith("_") and not fill.way else (),
        (first,),
    )
    cells = cell(ran, found.moved, "changed") + cell(ran, found.since, "made") + cell(ran, used.count, "stale")
    return warning("stale-cache", "silent", said, cells)


def _uses(run: Cell, found: StaleCache, fill: Fill, ran: Ran) -> bool:
    """Whether a cell reads the cached result after the weights have changed, not to compare it with a new result."""
    runs = list(ran.since(0))
    if not fill.function:
        return run.count > found.moved and any(not each.function and each.holder == fill.holder for each in run.fills)
    functions = definitions(runs)
    # the header of a loop or a ``with`` comes as an assignment without a line: what it evaluates has one
    nodes = (each if hasattr(each, "lineno") else getattr(each, "value", each) for each in statements(run.tree))
    ordered = sorted((each for each in nodes if not isinstance(each, _DEFINITIONS)), key=_line)
    if run.count == found.moved:
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
    """Whether a statement calls the function that keeps results, itself or in the functions that it calls."""
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
