"""Finds losses whose new graph continues in one that a backward has freed, so that the next backward would fail there
(:func:`used`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.carriers import Carriers
from pitfall_lab.observe.live.found import Found, Path
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.object_kinds import held_by, is_own
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import ACCUMULATE, node_name, sequence_of


class Used(NamedTuple):
    """A tensor whose graph contains a node that an earlier backward freed.

    ``name`` is the expression for the tensor, ``path`` the names and keys that lead to it, ``node`` the name of the
    freed node, ``made`` the number of the cell that created that node (None: unknown). ``carrier`` is the variable
    through which that node came into the graph, and ``carrier_path`` its path; both are empty if unknown; where only
    the carrier is known, ``name`` is empty. ``shared``: the tensor's own grad_fn was created in the same run of a cell
    as the freed node, and a backward from another result of that run has freed it. ``learns`` is the first leaf in the
    carrier's graph that an optimizer holds, ``more`` counts further ones, and ``optimizer`` is the optimizer; empty if
    unknown.
    """

    name: str
    path: Path
    node: str
    made: int | None
    carrier: str = ""
    carrier_path: Path = ()
    shared: bool = False
    learns: str = ""
    more: int = 0
    optimizer: str = ""


def used(roots: Sequence[Root], live: set[Any], cells: Cells, carriers: Carriers, budget: Budget) -> list[Used]:
    """Return the scalars among ``roots`` (named tensors with a graph) computed both from parameters and from a result
    whose graph was freed; an empty list if there are none, or the time limit ``budget`` is exceeded.

    A loss whose backward has run, and what was computed from it alone (a percentage to print), is left out: between it
    and the parameters no node holds saved tensors any more. Nodes in ``live`` are known to be not freed. ``cells``
    determines which cell created a node, ``carriers`` which name had it.
    """
    found = [_used(root, live, cells, carriers, budget) for root in roots if root.thing.value.numel() == 1]
    return [each for each in found if each is not None] if not budget.spent else []


def _used(root: Root, live: set[Any], cells: Cells, carriers: Carriers, budget: Budget) -> Used | None:
    work, seen, freed, leaf, new = [root.node], {root.node}, None, False, False
    for node in work:  # the list grows during the iteration
        if not budget.goes_on():
            return None
        if node not in live and is_freed(node):
            freed = freed or node
            continue
        new |= node in live
        leaf |= node.name() == ACCUMULATE
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    if freed is None or not (leaf and new):
        return None
    made = cells.of(sequence_of(freed))
    return carried(root, carriers, cells, cells.now, budget) or Used(
        root.thing.text, root.thing.path, node_name(freed), made, shared=_is_of(root, made, cells)
    )


def carried(root: Root, carriers: Carriers, cells: Cells, before: int, budget: Budget) -> Used | None:
    """Return the freed graph that ``root`` reaches through the tensor of a name which had this tensor after a cell with
    a smaller number than ``before``; None if there is none.

    ``carriers`` finds that name, ``cells`` determines which cell created a node; ``budget`` is the time limit.
    """
    for carrier, node in carriers.of(root.node, before, budget):
        freed = freed_behind(node, budget)
        if freed is not None:
            made = cells.of(sequence_of(freed))
            shared = _is_of(root, made, cells)
            return Used(root.thing.text, root.thing.path, node_name(freed), made, carrier.name, carrier.path, shared)
    return None


def with_leaves(used: Used, found: Found, budget: Budget) -> Used:
    """Return ``used`` with ``learns``, ``more`` and ``optimizer`` set, if an optimizer holds leaves in the carrier's
    graph; else unchanged.

    ``found`` is what the notebook's names lead to, ``budget`` the time limit.
    """
    carrier = next((each.value for each in found.tensors if each.path == used.carrier_path), None)
    if carrier is None or not is_own(carrier) or carrier.is_inference():
        return used
    nodes = walk([history(carrier, carrier._version).root], budget)
    leaves = {id(node.variable) for node in nodes if node.name() == ACCUMULATE}
    holders = {id(each): optimizer.text for optimizer in found.optimizers for each in held_by(optimizer.value)}
    names = {id(each.value): each.text for each in reversed((*found.tensors, *found.parameters))}
    trained = [at for at in names if at in leaves and at in holders]
    if not trained or budget.spent:
        return used
    first = trained[-1]
    return used._replace(learns=names[first], more=len(trained) - 1, optimizer=holders[first])


def _is_of(root: Root, made: int | None, cells: Cells) -> bool:
    return made is not None and cells.of(sequence_of(root.node)) == made


def freed_behind(node: Any, budget: Budget) -> Any:
    """Return the nearest node that a backward has freed, this one or one in its graph; ``None`` if there is none.
    ``budget`` is the time limit.
    """
    return next((each for each in walk([node], budget) if is_freed(each)), None)


def begun_from(roots: Iterable[Root], cells: Cells, budget: Budget) -> list[Used]:
    """One record for each tensor of ``roots`` whose own graph has a freed node: backward through anything computed from
    it would fail.

    In the records the carrier is set, and not ``name``. ``cells`` determines which cell created a node; ``budget`` is
    the time limit.
    """
    found = []
    for root in roots:
        freed = freed_behind(root.node, budget)
        if freed is not None:
            name, path = root.thing.text, root.thing.path
            found.append(Used("", (), node_name(freed), cells.of(sequence_of(freed)), name, path))
    return found
