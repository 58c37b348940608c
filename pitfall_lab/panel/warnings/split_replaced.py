"""Warns that a model is evaluated on rows on which it was trained, as the data was split again and all names now hold
the new subsets (:func:`split_replaced`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import definitions
from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.data_fed import Uses
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.splits_gone import NewPart, SplitGone

_BEGINS_ANEW = {"load_state_dict", "reset_parameters", "apply", "init_weights", "reset"}


def split_replaced(found: SplitGone, ran: Ran) -> dict[str, Any] | None:
    """The warning that a model trained on a subset of one split is evaluated on a subset of a later split of the same
    rows; None if the sources of the cells do not show that it is the same model.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs = list(ran.since(0))
    functions = definitions(runs)
    first = Uses(functions, {name for names in found.old for name in names}, found.models)
    for run in runs:
        if found.before <= run.count < found.again and run.succeeded:
            first.read(run.tree)
    models = found.models & first.trained
    trained = [at for at, names in enumerate(found.old) if not first.trained.isdisjoint(names)]
    if not models or not trained or len(trained) == len(found.old):
        return None
    held = {name for at, names in enumerate(found.old) if at not in trained for name in names}
    since = [run for run in runs if run.count >= found.again and run.succeeded]
    second = Uses(functions, {name for part in found.new for name in part.names}, models)
    fed: list[tuple[int, str, frozenset[str]]] = []
    for run in since:
        before = len(second.fed)
        second.read(run.tree)
        fed += [(run.count, model, data) for model, data in second.fed[before:]]
    if second.called & _BEGINS_ANEW:
        return None
    for count, model, data in fed:
        for part in found.new:
            shared = sum(part.shared[at] for at in trained)
            names = data.intersection(part.names)
            others = {name for other in found.new if other is not part for name in other.names}
            is_held = not held.isdisjoint(part.names) or not second.trained.isdisjoint(others)
            if shared and names and is_held and second.trained.isdisjoint(part.names):
                return _said(found, ran, part, (shared, count, model))
    return None


def _said(found: SplitGone, ran: Ran, part: NewPart, how: tuple[int, int, str]) -> dict[str, Any]:
    shared, count, model = how
    before, again, here, name = called(found.before), called(found.again), called(count), part.names[0]
    said = Said(
        T(
            f"{again} split the data again, but `{model}` goes on as it was trained on the split of {before}: "
            f"{shared} of the {part.rows} rows of the new `{name}` are among those that it was trained on. {here} "
            "measures it on them.",
            f"{again} 把数据重新划分了，而 `{model}` 仍是用 {before} 那次划分训练的：新的 `{name}` 的 {part.rows} 行"
            f"中有 {shared} 行是它训练时见过的。{here} 用这些行来评估它。",
        ),
        T(
            "A new permutation puts other rows into each part, unless it comes from a fixed seed. The names are new, "
            "but the model has learned the rows of the old training part, and training on does not undo this.",
            "除非随机种子固定，否则新的排列会把别的行放进每个部分。名字是新的，但模型已经学过旧训练集的行，继续训练并不会"
            "消除这一点。",
        ),
        T(
            f"Make `{model}` and its optimizer anew after the new split and train it before it is measured; or keep "
            "the first split (a generator with a fixed seed).",
            f"重新划分之后，先重新创建 `{model}` 和它的优化器并训练，再评估；或者保留第一次的划分"
            "（使用种子固定的生成器）。",
        ),
        (),  # a subset has no row
    )
    cells = cell(ran, found.again, "changed") + cell(ran, found.before, "stale") + cell(ran, count, "made")
    return warning("split-again", "silent", said, cells)
