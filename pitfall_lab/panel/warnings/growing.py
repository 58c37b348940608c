"""Warns of a growing graph: over several runs of one cell, or by adding losses whose backward has already run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.growing_graphs import Growing

RUNS = 3
STEPS = 4
_WHY = T(
    "A tensor that was computed from one with a graph keeps that graph, with the tensors that it has saved. Carried from step to step it "
    "grows: it takes more memory each time, and a backward goes through all steps.",
    "由带计算图的张量算出的张量会保留那个计算图，以及其中保存的张量。一步一步带下去，它会不断变大：每次都占更多内存，反向传播要经过所有步骤。",
)


def growing(graph: Growing, ran: Ran) -> dict[str, Any] | None:
    """The warning; ``None`` if the graph's cells are different ones, which is usual, or if a backward of the whole graph is coming."""
    name, now = graph.name, ran.last
    if now is None:
        return None
    runs = [count for count in graph.cells if (run := ran.get(count)) is not None and _same(run, now)]
    fix = T(
        f"Carry `{name}` on without its graph: `{name}.detach()`, or `.item()` for a number.",
        f"不带计算图地传下去：`{name}.detach()`，若是数则用 `.item()`。",
    )
    cells = cell(ran, runs[0] if runs else None, "made") + cell(ran, now.count, "changed", name)
    if graph.kept:
        sentence = T(
            f"`{name}` keeps {graph.used} losses together with their graphs, whose backward has been run: their nodes stay in memory.",
            f"`{name}` 保存了 {graph.used} 个损失以及它们的计算图，而反向传播已经运行过了：这些节点一直占着内存。",
        )
        plain = T(
            "Keep plain numbers: `.item()` or `.detach()` before a loss is added up or appended.",
            "只保存数：在累加或放入列表之前用 `.item()` 或 `.detach()`。",
        )
        return warning(
            "graph-grows", "note", Said(sentence, _WHY, plain, graph.path), cell(ran, _writer(name, ran), "changed", name), "PL511"
        )
    if len(runs) >= RUNS and graph.path[0] in now.bound:
        first, last = called(runs[0]), called(runs[-1])
        sentence = T(
            f"The graph of `{name}` goes back through {len(runs)} runs of this cell ({first} to {last}) and grows with each: "
            f"{graph.nodes} nodes now.",
            f"`{name}` 的计算图经过了此单元格的 {len(runs)} 次运行（{first} 到 {last}），每运行一次就变大：现在有 {graph.nodes} 个节点。",
        )
        return warning("graph-grows", "note", Said(sentence, _WHY, fix, graph.path), cells, "PL511")
    if graph.used >= STEPS and not _goes_backward(graph.path[0], ran):
        sentence = T(
            f"`{name}` adds up losses with their graphs: it keeps the graphs of {graph.used} steps, whose backward has been run.",
            f"`{name}` 把损失连同计算图一起累加：它保留了 {graph.used} 步的计算图，而这些步骤的反向传播已经运行过了。",
        )
        return warning("graph-grows", "note", Said(sentence, _WHY, fix, graph.path), cell(ran, now.count, "changed", name), "PL511")
    return None


def _same(one: Cell, other: Cell) -> bool:
    return one.id == other.id if one.id and other.id else one.text == other.text


def _goes_backward(name: str, ran: Ran) -> bool:
    """Whether some cell calls this name's backward, or passes it to a function that may."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "backward" and isinstance(node.value, ast.Name) and node.value.id == name)
        or (isinstance(node, ast.Call) and any(isinstance(each, ast.Name) and each.id == name for each in node.args)
            and not (isinstance(node.func, ast.Name) and node.func.id in ("print", "float", "display")))
        for run in ran.since(0) if name in run.text
        for node in ast.walk(run.tree)
    )  # fmt: skip


def _writer(name: str, ran: Ran) -> int | None:
    """The number of the last run whose text writes into the name; None if none does."""
    return max((run.count for run in ran.since(0) if name in run.written), default=None)
