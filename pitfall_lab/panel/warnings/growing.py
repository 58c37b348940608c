"""Warns of a growing graph: over several runs of one cell, or by collecting losses whose backward has already run
(:func:`growing`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import does, loops_reached, reaching
from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.collected import adds, empties
from pitfall_lab.panel.warnings.message import Said, called, cell, is_same_cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.growing_graphs import Growing

RUNS = 3
STEPS = 4
_WHY = T(
    "A tensor that was computed from one with a graph keeps that graph, with the tensors that it has saved. Carried "
    "from step to step it grows: it takes more memory each time, and a backward goes through all steps.",
    "由带计算图的张量算出的张量会保留那个计算图，以及其中保存的张量。一步一步带下去，它会不断变大：每次都占更多内存，"
    "反向传播要经过所有步骤。",
)


def growing(graph: Growing, ran: Ran) -> dict[str, Any] | None:
    """The warning about a graph that grows with each run of a cell, about a sum of losses that keeps their graphs, or
    about a list that keeps graphs whose backward has run.

    None for a graph to which fewer than :data:`RUNS` runs of the last cell have contributed, or whose name that cell
    does not bind; for a sum that keeps fewer than :data:`STEPS` graphs whose backward has run, or whose own backward a
    cell may call; and for a list that may only hold the results of one iteration. ``graph`` is the finding in the live
    objects, ``ran`` are the runs of cells; the warning is the dict of :func:`.message.warning`.
    """
    name, now = graph.name, ran.last
    if now is None or graph.kept:
        return _collected(graph, ran) if now is not None else None
    runs = [count for count in graph.cells if (run := ran.get(count)) is not None and is_same_cell(run, now)]
    fix = T(
        f"Carry `{name}` on without its graph: `{name}.detach()`, or `.item()` for a number.",
        f"不带计算图地传下去：`{name}.detach()`，若是数则用 `.item()`。",
    )
    cells = cell(ran, runs[0] if runs else None, "made") + cell(ran, now.count, "changed", name)
    if len(runs) >= RUNS and graph.path[0] in now.bound:
        first, last = called(runs[0]), called(runs[-1])
        sentence = T(
            f"The graph of `{name}` goes back through {len(runs)} runs of this cell ({first} to {last}) and grows "
            f"with each: {graph.nodes} nodes now.",
            f"`{name}` 的计算图经过了此单元格的 {len(runs)} 次运行（{first} 到 {last}），每运行一次就变大：现在有 "
            f"{graph.nodes} 个节点。",
        )
        return warning("graph-grows", "note", Said(sentence, _WHY, fix, graph.path), cells, "PL511")
    if graph.used >= STEPS and not _goes_backward(graph.path[0], ran):
        sentence = T(
            f"`{name}` adds up losses with their graphs: it keeps the graphs of {graph.used} steps, whose "
            "backward has been run.",
            f"`{name}` 把损失连同计算图一起累加：它保留了 {graph.used} 步的计算图，而这些步骤的反向传播已经运行过了。",
        )
        return warning(
            "graph-grows", "note", Said(sentence, _WHY, fix, graph.path), cell(ran, now.count, "changed", name), "PL511"
        )
    return None


def _collected(graph: Growing, ran: Ran) -> dict[str, Any] | None:
    """The note about a list that keeps graphs whose backward has run; None if it may only hold those of one
    iteration.
    """
    name, last = graph.name, graph.path[-1] if graph.path[-1].isidentifier() else graph.name
    if not graph.fresh and len(graph.cells) < 2 and not (graph.numbers and _fills_in_a_loop(last, ran)):
        return None
    what = T("losses", "损失") if graph.numbers and not graph.fresh else T("results", "结果")
    least = T("at least ", "至少 ") if graph.more else T("", "")
    sentence = T(
        f"`{name}` keeps {least.en}{graph.used} {what.en} together with their graphs, whose backward has been run: "
        "their nodes stay in memory.",
        f"`{name}` 保存了{least.zh or ' '}{graph.used} 个{what.zh}以及它们的计算图，而反向传播已经运行过了：这"
        "些节点一直占着内存。",
    )
    if graph.fresh:
        used = called(graph.cells[0])
        sentence = T(
            f"`{name}` still has {graph.used} {what.en} whose graph a backward has used ({used}), and new ones were "
            "added to them: a backward of what is computed from all of them will fail.",
            f"`{name}` 里仍有 {graph.used} 个{what.zh}，它们的计算图已被反向传播用过（{used}），之后又加入了新的："
            "对由全部元素算出的结果做反向传播将会失败。",
        )
    fix = T(
        f"If a loss is made of all that is in it, empty it before each round: `{name}.clear()`, or a new "
        "list. If its numbers are only to be printed or plotted, keep plain numbers: `.item()` or "
        "`.detach()` before they are appended.",
        f"如果损失由其中的全部元素算出，请在每一轮之前清空它：`{name}.clear()`，或新建一个列表。如果这些数只用于打印或"
        "画图，请只保存数：放入之前用 `.item()` 或 `.detach()`。",
    )
    where = cell(ran, _writer(graph.path[0], ran), "changed", graph.path[0])
    return warning("graph-grows", "note", Said(sentence, _WHY, fix, graph.path), where, "PL511")


def _fills_in_a_loop(name: str, ran: Ran) -> bool:
    """Whether a loop of some cell, or of a function that it calls, adds to this list and calls backward, but does not
    empty the list.
    """
    runs = list(ran.since(0))
    trains = reaching(".backward(", runs)
    loops = (loop for run in runs for loop in loops_reached(run, runs))
    return any(does(loop, ".backward(", trains) and adds(loop, name) and not empties(loop, name) for loop in loops)


def _goes_backward(name: str, ran: Ran) -> bool:
    """Whether some cell calls ``backward`` on this name, or passes it to a function that may."""
    return any(
        (
            isinstance(node, ast.Attribute)
            and node.attr == "backward"
            and isinstance(node.value, ast.Name)
            and node.value.id == name
        )
        or (
            isinstance(node, ast.Call)
            and any(isinstance(each, ast.Name) and each.id == name for each in node.args)
            and not (isinstance(node.func, ast.Name) and node.func.id in ("print", "float", "display"))
        )
        for run in ran.since(0)
        if name in run.text
        for node in ast.walk(run.tree)
    )


def _writer(name: str, ran: Ran) -> int | None:
    """The number of the last run whose source changes the object of the name in place; None if there is none."""
    return max((run.count for run in ran.since(0) if name in run.written), default=None)
