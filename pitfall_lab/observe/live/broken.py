"""Finds backwards that would raise, or would use wrong values, as a saved tensor of their graph was changed after it
was saved (:func:`broken`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path, Thing
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.saved import Cells, Moved
from pitfall_lab.observe.live.saved_names import Names


class Root(NamedTuple):
    """A tensor from which a backward may start: ``thing`` is the named tensor, ``node`` its grad_fn (for a view whose
    grad_fn is not read: its base's grad_fn).
    """

    thing: Thing
    node: Any


class Broken(NamedTuple):
    """One backward that would go wrong, as a tensor saved in its graph was changed.

    ``root`` is the expression for the tensor from which the backward starts, ``root_path`` the names and keys that lead
    to it; ``is_scalar``: it has one element. ``name`` and ``path`` are those of the changed tensor, empty if it has no
    name; ``others`` counts further changed tensors; ``is_parameter``: it is a leaf that requires grad, or a view of
    one. ``node`` is the name of the node that saved it, ``at`` the version at which it was saved (None: unknown) and
    ``now`` the present one. ``made`` is the cell that computed the node, ``line`` the line of the statement in it,
    ``changed`` the cell that changed the tensor; each is None where unknown. ``silent``: the change did not increment
    the version, so backward does not raise. ``refusals`` are torch's error messages, one for each saved tensor that
    fails its version check. ``changes`` are numbers that identify the changes: a backward from another root may go
    wrong by the same ones. ``among`` is the expression for the list or dict at ``among_path``; both are empty if only
    one of its entries goes wrong, or the root is in none.
    """

    name: str
    path: Path
    others: int
    root: str
    root_path: Path
    is_scalar: bool
    node: str
    at: int | None
    now: int
    silent: bool
    is_parameter: bool
    made: int | None
    line: int | None
    changed: int | None
    refusals: frozenset[str]
    changes: frozenset[int]
    among: str = ""
    among_path: Path = ()
    """The path of the list or dict of which several entries go wrong by the same change; the root is the first of
    them.
    """
    collected: bool = False
    """Whether the root is an entry of a list or dict that was filled during a training, or by several cells: losses
    that are kept only to be printed.
    """


MOST = 50
EACH = 4
"""Of a list or dict with more than twice this many graphs, only this many of the first and of the last ones are
examined.
"""


def sampled(roots: Sequence[Root]) -> list[Root]:
    """The roots without those in the middle of long lists and dicts; the first and the last ones of each remain."""
    groups: dict[Path, list[Root]] = {}
    for root in roots:
        if inside := group_of(root.thing):
            groups.setdefault(inside, []).append(root)
    left_out = {id(root) for group in groups.values() for root in group[EACH:-EACH]}
    return [root for root in roots if id(root) not in left_out]


def group_of(thing: Thing) -> Path:
    """The path of the list, tuple or dict that contains ``thing`` as an entry; empty if there is none."""
    return thing.path[:-1] if len(thing.path) > 1 and thing.text.endswith("]") else ()


def broken(roots: Sequence[Root], moved: Sequence[Moved], names: Names, cells: Cells, budget: Budget) -> list[Broken]:
    """The backwards that go wrong, from ``roots`` and by the changed saved tensors ``moved``: about :data:`MOST` at
    most, scalars (losses) first.

    ``names`` finds the changed tensors' names, ``cells`` the cells that created nodes. A graph of which a backward has
    freed a node is left out; entries of one list or dict that go wrong by the changes of one cell are one record. A
    backward rarely starts from a tensor with several elements: for such a tensor changed leaves are not reported, as
    outputs computed before training continued are common. ``budget`` is the time limit.
    """
    found: list[Broken] = []
    by_node: dict[Any, list[int]] = {}
    for at, each in enumerate(moved):
        by_node.setdefault(each.kept.node, []).append(at)
    for root in sorted(roots, key=lambda root: root.thing.value.numel() != 1) if moved else ():
        scalar = root.thing.value.numel() == 1
        nodes = walk([root.node], budget)
        hit = [at for node in nodes for at in by_node.get(node, ()) if scalar or not _is_leaf(moved[at])]
        if hit and len(found) < MOST and not any(is_freed(node) for node in nodes):
            for silent in (False, True):
                met = {at: moved[at] for at in hit if moved[at].silent is silent}
                if met:
                    found.append(_broken(root, scalar, met, names)._replace(among_path=group_of(root.thing)))
    made: dict[Path, set[int | None]] = {}
    for root in roots if found else ():
        if inside := group_of(root.thing):
            made.setdefault(inside, set()).add(cells.of(tensor_facts.sequence_of(root.node)))
    return _grouped(found, made)


def _grouped(found: Sequence[Broken], made: Mapping[Path, set[int | None]]) -> list[Broken]:
    """The records, with one record for all entries of a list or dict that go wrong by the changes of one cell; ``made``
    are the cells that created the entries of each list or dict.
    """
    groups: dict[tuple[Any, ...], list[Broken]] = {}
    for at, each in enumerate(found):
        key = (each.among_path, each.is_scalar, each.silent, each.made, each.changed) if each.among_path else (at,)
        groups.setdefault(key, []).append(each)
    inside = {each.among_path for each in found if each.made is not None and each.made == each.changed}
    inside |= {path for path, cells in made.items() if len(cells) > 1}
    return [_together(entries, entries[0].among_path in inside) for entries in groups.values()]


def _together(entries: Sequence[Broken], collected: bool) -> Broken:
    """One record for entries of one list or dict, or for a single root; ``collected``: see :class:`Broken`."""
    first = entries[0]
    if not first.among_path:
        return first
    one = len(entries) == 1
    return first._replace(
        among="" if one else first.root.rpartition("[")[0],
        among_path=() if one else first.among_path,
        collected=collected and first.is_parameter,
        refusals=frozenset[str]().union(*(each.refusals for each in entries)),
        changes=frozenset[int]().union(*(each.changes for each in entries)),
    )


def _is_leaf(moved: Moved) -> bool:
    """Whether the saved tensor is a leaf that requires gradients, or a view of one (a transposed weight)."""
    tensor = tensor_facts.base_of(moved.kept.tensor)
    tensor = moved.kept.tensor if tensor is None else tensor
    return bool(tensor.requires_grad and tensor.grad_fn is None)


def _broken(root: Root, scalar: bool, hit: Mapping[int, Moved], names: Names) -> Broken:
    """One record for all changes in ``hit``; it describes the change that backward would reach first."""
    met = list(hit.values())
    first = max(met, key=lambda each: each.kept.key[0] if type(each.kept.key[0]) is int else -1)
    named = {each.kept.tensor.data_ptr(): names.of(each.kept) for each in met if each.changed == first.changed}
    thing = named.get(first.kept.tensor.data_ptr())
    return Broken(
        thing.text if thing else "",
        thing.path if thing else (),
        len(named) - 1,
        root.thing.text,
        root.thing.path,
        scalar,
        first.node,
        first.version,
        first.kept.version,
        first.silent,
        _is_leaf(first),
        first.made,
        first.line,
        first.changed,
        frozenset(each.kept.refusal() for each in met if not each.silent),
        frozenset(hit),
    )
