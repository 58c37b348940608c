"""Why a cell failed, if the panel had warned before of just this.

An error is taken for the one that was warned of if torch's message is the one that the live graph gave, and the cell has not made
that graph anew. Where a cell has led its own backward into a used graph, the name that carried it there is found after the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pitfall_lab.observe.live.broken import Broken
from pitfall_lab.observe.live.session import Computed
from pitfall_lab.observe.live.used_graphs import Used
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.cuts import Cut
from pitfall_lab.panel.warnings.changed import changed
from pitfall_lab.panel.warnings.cut_off import refused
from pitfall_lab.panel.warnings.message import called
from pitfall_lab.panel.warnings.used import used
from pitfall_lab.trace import T

NO_GRAPH = "does not require grad and does not have a grad_fn"
NO_LEAF = "can't optimize a non-leaf Tensor"
SECOND_TIME = "Trying to backward through the graph a second time"


class Cause(NamedTuple):
    """Why a cell failed: sentence, explanation and fix of a warning, and ``what`` was found in the live graph."""

    what: Broken | Used | Cut | Computed
    sentence: T
    explanation: T
    fix: T
    rule: str


class Look(NamedTuple):
    """Functions that look at live objects: ``search`` finds what led into a used graph, from the names that the cell made and read.

    ``is_module``: whether a name is a module with parameters. ``computed``: those of some names that are results of operations.
    """

    search: Callable[[Iterable[str], Iterable[str]], Used | None]
    is_module: Callable[[str], bool]
    computed: Callable[[Iterable[str]], Sequence[Computed]]


def cause(error: BaseException | None, text: str, known: Sequence[Broken | Used], ran: Ran, look: Look) -> Cause | None:
    """The reason why the cell with this text failed, if it was ``known`` before or the live graphs show it; else None."""
    if error is None:
        return None
    cell = Cell(0, "", text)
    for each in known:
        if _is_it(each, str(error), text) and _root(each) not in cell.bound and (said := _said(each, ran)):
            return said
    if SECOND_TIME in str(error):
        made = sorted(cell.bound, key=lambda name: name not in cell.backwards)
        found = look.search(made, sorted(cell.flow[0] - set(cell.backwards)))
        return _said(found, ran, cell.backwards) if found is not None else None
    if NO_GRAPH in str(error):
        roots = [each for each in cell.backwards if each.isidentifier()]
        without = refused(roots[0], ran, cell, look.is_module) if roots else None
        return Cause(*without, "PLE32") if without is not None else None
    if NO_LEAF in str(error):
        results = look.computed(sorted(cell.flow[0]))
        return _no_leaf(results[0]) if results else None
    return None


def _no_leaf(what: Computed) -> Cause:
    made = called(what.made)
    en, zh = (f" in {made}", f" {made} 中 ") if made else ("", "")
    name = f"`{what.name}`"
    return Cause(
        what,
        T(
            f"{name} is the result of {what.node}{en}, not a leaf: an optimizer can update only tensors that were made, not computed.",
            f"{name} 是{zh}{what.node} 的结果，不是叶子：优化器只能更新直接创建的张量，不能更新算出来的张量。",
        ),
        T(
            "The gradient flows from a result to the tensors that it was computed from; the result itself keeps none.",
            "梯度会从一个结果继续传到算出它的那些张量；结果本身不保留梯度。",
        ),
        T(
            f"Set `requires_grad` after the computation: `{what.name} = (…).detach().requires_grad_()`.",
            f"在计算之后再设置 `requires_grad`：`{what.name} = (…).detach().requires_grad_()`。",
        ),
        "PL206",
    )


def runs_of(what: Broken | Used | Cut | Computed) -> tuple[int | None, ...]:
    """The numbers of the runs that made the graph and, if it was changed, that changed what it had saved; or that left it.

    None for a run that is not known.
    """
    if isinstance(what, Cut):
        return (what.cell or None,)
    return (what.made, what.changed) if isinstance(what, Broken) else (what.made,)


def _root(what: Broken | Used) -> str:
    return (what.root_path if isinstance(what, Broken) else what.path)[0]


def _is_it(what: Broken | Used, words: str, text: str) -> bool:
    return words in what.refusals if isinstance(what, Broken) else SECOND_TIME in words and _root(what) in text


def _said(what: Broken | Used, ran: Ran, backwards: Sequence[str] = ()) -> Cause | None:
    """Return the warning about ``what`` in the past tense; None if there is none.

    ``backwards``: the expressions on which the failed cell calls backward, if the cell is not yet among the runs.
    """
    message = changed(what, ran, failed=True) if isinstance(what, Broken) else used(what, ran, failed=True, backwards=backwards)
    if message is None:
        return None
    sentence, explanation, fix = (T(**message[name]) for name in ("sentence", "explanation", "fix"))
    return Cause(what, sentence, explanation, fix, message["rule"])
