"""Finds modules whose parameters changed while dropout or batch or instance normalization inside them was in evaluation
mode (:meth:`ModuleModes.compare`).

A layer whose own parameters, or those of its neighbours, did not change belongs to a frozen submodule, where evaluation
mode is intended.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, inside, is_own, tables

_MRO = type.__dict__["__mro__"].__get__
_DROPOUT = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
_NORM = (
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "SyncBatchNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
)
_DROPS = frozenset(getattr(torch.nn, name) for name in _DROPOUT)
_MODED = _DROPS | frozenset(getattr(torch.nn, name) for name in _NORM)
_Versions = dict[int, int]


class Evaluating(NamedTuple):
    """A module in evaluation mode after a cell that changed its parameters.

    ``name`` is the expression for the module, ``path`` the names and keys that lead to it, ``cell`` the number of the
    cell. ``part`` is the expression for the first layer inside that computes something else in this mode, ``type`` its
    class; ``others`` counts further such layers. ``before``: the module was in this mode before the cell too.
    ``drops``: one of the layers is a dropout; unlike batch normalization, it is rarely put into this mode on
    purpose.
    """

    name: str
    path: Path
    part: str
    type: str
    others: int
    cell: int
    before: bool
    drops: bool


class ModuleModes:
    """Remembers which modules were in evaluation mode after the previous cell, and the versions of their parameters
    then, to find modules that a cell changes while they are in this mode.
    """

    def __init__(self) -> None:
        self._was: dict[int, tuple[bool, _Versions]] = {}
        self._is: dict[int, tuple[bool, _Versions]] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[Evaluating]:
        """The modules that are in evaluation mode after the last cell, with the number ``now``, and whose parameters
        that cell has changed; only those with a trained layer that computes something else in this mode.

        An empty list if there are none. ``found`` is what the notebook's names lead to, ``budget`` the time limit.
        """
        if now != self._cell:
            self._was, self._is, self._cell = self._is, {}, now
        known = _versions(found)
        made = []
        for thing in found.modules:
            evaluating, versions = inside(thing.value, "module").get("training") is False, known.get(thing.path[0], {})
            was, before = self._was.get(id(thing.value), (False, {}))
            self._is[id(thing.value)] = evaluating, versions
            if not evaluating or before == versions or before.keys() != versions.keys():
                continue
            moved = {at for at, version in versions.items() if before[at] != version}
            moded = _idle_layers(list(_parts(thing, budget)), moved)
            if moded and not budget.spent:
                first, others = moded[0], len(moded) - 1
                drops = any(any(each in _DROPS for each in _MRO(type(part.value))) for part in moded)
                kind = class_name(first.value)
                made.append(Evaluating(thing.text, thing.path, first.text, kind, others, now, was, drops))
        return made


def _versions(found: Found) -> dict[str, _Versions]:
    """For each name, the versions of the parameters that it leads to, by their ids; parameters that do not require grad
    are left out.
    """
    known: dict[str, _Versions] = {}
    for thing in found.parameters:
        if is_own(thing.value) and thing.value.requires_grad and not thing.value.is_inference():
            known.setdefault(thing.path[0], {})[id(thing.value)] = thing.value._version
    return known


def _idle_layers(parts: Sequence[Thing], moved: Container[int]) -> list[Thing]:
    """The layers among ``parts``, the modules inside a module, that would have computed something else in training mode
    and belong to a trained submodule.

    ``moved`` are the ids of the parameters that changed. A layer without parameters counts as trained if the nearest
    layers with parameters before and after it are, in the order in which the module holds them.
    """
    trained = [_is_trained(part.value, moved) for part in parts]
    found = []
    for at, part in enumerate(parts):
        if not _computes_differently(part.value):
            continue
        beside = [
            next((each for each in side if each is not None), None)
            for side in (reversed(trained[:at]), trained[at + 1 :])
        ]
        near = [trained[at]] if trained[at] is not None else [each for each in beside if each is not None]
        if near and all(near):
            found.append(part)
    return found


def _is_trained(module: Any, moved: Container[int]) -> bool | None:
    """Whether one of the module's own parameters changed; None if it has none."""
    own = [each for each in list(tables(module)[0].values()) if is_own(each)]
    return any(id(each) in moved for each in own) if own else None


def _parts(thing: Thing, budget: Budget) -> Iterator[Thing]:
    """A module and all modules inside it, each once, in the order in which ``print`` shows them."""
    kinds, work, seen = Kinds(), [thing], {id(thing.value)}
    while work:
        part = work.pop()
        if not budget.goes_on():
            return
        yield part
        inner = []
        for name, value in list(tables(part.value)[2].items()):
            if type(name) is str and kinds.of(value) == "module" and id(value) not in seen:
                seen.add(id(value))
                inner.append(Thing((*part.path, name), f"{part.text}.{name}", "module", value))
        work.extend(reversed(inner))


def _computes_differently(module: Any) -> bool:
    """Whether this layer itself is in evaluation mode and computes something else in it than in training mode."""
    table = inside(module, "module")
    return table.get("training") is False and table.get("p") != 0 and any(each in _MODED for each in _MRO(type(module)))
