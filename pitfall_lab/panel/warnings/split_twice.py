"""Warns that a model is evaluated on rows on which it was trained, as the data set was split again
(:func:`split_twice`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.cuts import read_in_functions
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.split_again import SplitAgain


def split_twice(found: SplitAgain, ran: Ran, is_module: Callable[[str], bool]) -> dict[str, Any] | None:
    """The warning that a data set was split again while a loader still has a subset of the first split; None if no cell
    has used a new subset with a model that existed before the new split.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`. ``is_module(name)`` says whether the name is bound to a module.
    """
    since = [run for run in ran.since(found.again) if run.succeeded]
    new = {name for run in since for name in run.bound}
    used = next((run for run in since if _measures(run, found, new, ran, is_module)), None)
    if used is None:
        return None
    before, again, here = called(found.before), called(found.again), called(used.count)
    said = Said(
        T(
            f"{again} split the data again, but `{found.loader}` still has a part of the split of {before}: "
            f"{found.shared} of the {found.rows} rows of the new `{found.part}` are in it. {here} measures a model "
            "that was trained on them.",
            f"{again} 把数据重新划分了，而 `{found.loader}` 里仍是 {before} 那次划分的一部分：新的 `{found.part}` 的 "
            f"{found.rows} 行中有 {found.shared} 行在其中。{here} 用模型训练时见过的行来评估它。",
        ),
        T(
            "Each `random_split` draws other rows, unless it is given a generator with a fixed seed. The loader keeps "
            "the part that it was made with.",
            "每次 `random_split` 都会抽取不同的行，除非给它一个种子固定的生成器。加载器保留创建时得到的那一部分。",
        ),
        T(
            "Split once, with `generator=torch.Generator().manual_seed(0)`. After a new split, make the loaders and "
            "the model anew and train it before it is measured.",
            "只划分一次，并给出 `generator=torch.Generator().manual_seed(0)`。重新划分之后，先重新创建加载器和"
            "模型并训练，再评估。",
        ),
        (),  # a subset has no row
    )
    cells = cell(ran, found.again, "changed") + cell(ran, found.before, "stale") + cell(ran, used.count, "made")
    return warning("split-again", "silent", said, cells)


def _measures(run: Cell, found: SplitAgain, new: set[str], ran: Ran, is_module: Callable[[str], bool]) -> bool:
    """Whether a cell reads, itself or in its functions, both a new subset (or a loader of it) and a model that no cell
    has bound since.
    """
    taken = set(_used(run.tree))
    taken = taken.union(*(read_in_functions(each, ran) for each in run.tree.body))
    return not taken.isdisjoint(found.names) and any(is_module(name) and name not in new for name in sorted(taken))


def _used(node: ast.AST) -> Iterator[str]:
    """The names that the code reads, except those of which it only reads the length or type."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("len", "type", "isinstance"):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _used(child)
