"""Finds names that keep a module's weights by reference: a ``state_dict()``, a detached weight or its NumPy array
without a copy (:meth:`References.compare`).

Between the examinations only version numbers are kept, to know in which cell the weights have changed since.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.tensor_facts import is_opaque


class KeptReference(NamedTuple):
    """A name whose tensors share the storage of a module's parameters or buffers, or a second name of a module.

    ``name`` is the name, ``path`` the names and keys that lead to its value, ``kind`` that of the value: ``tensor``,
    ``array``, ``group`` (a list or dict), or ``module`` for the module itself. ``module`` is the module's name,
    ``weight`` the expression for the first of the parameters or buffers that are shared (for a second name: the
    module's first name), ``others`` counts further ones. ``since`` is the number of the last cell that bound the name
    or changed its value in place, ``changed`` that of the first later cell that changed the weights (None: none did).
    """

    name: str
    path: Path
    kind: str
    module: str
    weight: str
    others: int
    since: int
    changed: int | None


class References:
    """Remembers the versions that a module's weights had when a name began to refer to them."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, dict[Path, int], int | None]] = {}

    def compare(self, found: Found, touched: Container[str], now: int, budget: Budget) -> list[KeptReference]:
        """The names that now keep weights by reference, by tensors that do not require grad or by arrays, and second
        names of modules; ``touched`` are the names that the last cell, with the number ``now``, has bound or whose
        objects it has changed in place.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        kept, met = [], {}
        for thing, weights in _shared(found, budget):
            name = thing.path[0]
            versions = {
                each.path: each.value._version
                for each in weights
                if each.kind == "tensor" and not each.value.is_inference()
            }
            since, were, changed = self._since.get(name, (now, versions, None))
            if name in touched or were.keys() != versions.keys():
                since, were, changed = now, versions, None
            elif changed is None and were != versions:
                changed = now
            met[name] = since, were, changed
            first = weights[0]
            kept.append(
                KeptReference(name, thing.path, thing.kind, first.path[0], first.text, len(weights) - 1, since, changed)
            )
        if budget.spent:
            self._since.update(met)
            return []
        self._since = met
        return kept


def _shared(found: Found, budget: Budget) -> list[tuple[Thing, list[Thing]]]:
    """The names of lists, dicts, tensors and arrays that share the storage of weights, and the second names of modules,
    each with the weights that it shares.
    """
    weights = {
        each.value.data_ptr(): each
        for each in reversed(found.parameters)
        if budget.goes_on() and is_own(each.value) and not is_opaque(each.value) and each.value.numel()
    }
    weights.pop(0, None)  # weights on the meta device have no memory, and 0 for an address
    named = (
        {thing.path[0]: thing for thing in found.names if thing.kind in ("group", "tensor", "array")} if weights else {}
    )
    shared: dict[str, list[Thing]] = {}
    for thing in (*found.tensors, *found.arrays):
        if not budget.goes_on():
            break
        weight = weights.get(address(thing)) if thing.path[0] in named else None
        if weight is not None and weight.value is not thing.value:
            shared.setdefault(thing.path[0], []).append(weight)
    first: dict[int, Thing] = {}
    again = [
        (thing, [first[id(thing.value)]])
        for thing in found.names
        if thing.kind == "module" and _is_second(thing, first)
    ]
    return [*((named[name], each) for name, each in shared.items()), *again]


def _is_second(thing: Thing, first: dict[int, Thing]) -> bool:
    return first.setdefault(id(thing.value), thing) is not thing


def address(thing: Thing) -> int:
    """Return the address of the first element of a tensor that does not require grad, or of an array; 0 if it cannot be
    read.
    """
    value: Any = thing.value
    if thing.kind == "array":
        return int(value.__array_interface__["data"][0]) if type(value) is np.ndarray else 0
    return int(value.data_ptr()) if is_own(value) and not value.requires_grad and not is_opaque(value) else 0
