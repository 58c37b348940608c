"""Finds modules whose parameters changed while dropout or batch normalization inside them were in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, inside, is_own, tables

_MRO = type.__dict__["__mro__"].__get__
_DROPOUT = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
_NORM = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
_MODED = frozenset(getattr(torch.nn, name) for name in (*_DROPOUT, *_NORM))
SAMPLED = 8
_Versions = frozenset[tuple[int, int]]


class Evaluating(NamedTuple):
    """A module in evaluation mode after a cell that changed its parameters.

    ``part`` is the first layer inside that computes something else in this mode, ``type`` its class, ``others`` counts further ones.
    ``before``: the module was in this mode before the cell too.
    """

    name: str
    path: Path
    part: str
    type: str
    others: int
    cell: int
    before: bool


class Modes:
    """Remembers which modules were in evaluation mode after the cell before, and their parameters' versions, as plain numbers."""

    def __init__(self) -> None:
        self._was: dict[int, tuple[bool, _Versions]] = {}
        self._is: dict[int, tuple[bool, _Versions]] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[Evaluating]:
        """The modules that are in evaluation mode after the last cell, and whose parameters that cell has changed."""
        if now != self._cell:
            self._was, self._is, self._cell = self._is, {}, now
        sampled = _versions(found)
        made = []
        for thing in found.modules:
            evaluating, versions = inside(thing.value, "module").get("training") is False, sampled.get(thing.path[0], frozenset())
            was, before = self._was.get(id(thing.value), (False, frozenset()))
            self._is[id(thing.value)] = evaluating, versions
            if not evaluating or before == versions or {at for at, _ in before} != {at for at, _ in versions}:
                continue
            moded = [part for part in _parts(thing, budget) if _computes_differently(part.value)]
            if moded and not budget.spent:
                first = moded[0]
                made.append(Evaluating(thing.text, thing.path, first.text, class_name(first.value), len(moded) - 1, now, was))
        return made


def _versions(found: Found) -> dict[str, _Versions]:
    """The versions of the first parameters that each name leads to: a step of an optimizer changes them all."""
    sampled: dict[str, list[tuple[int, int]]] = {}
    for thing in found.parameters:
        some = sampled.setdefault(thing.path[0], [])
        if len(some) < SAMPLED and is_own(thing.value) and thing.value.requires_grad and not thing.value.is_inference():
            some.append((id(thing.value), thing.value._version))
    return {name: frozenset(some) for name, some in sampled.items()}


def _parts(thing: Thing, budget: Budget) -> Iterator[Thing]:
    """A module and all modules inside it, each once."""
    kinds, work, seen = Kinds(), [thing], {id(thing.value)}
    for part in work:  # the list grows during the iteration
        if not budget.goes_on():
            return
        yield part
        for name, value in list(tables(part.value)[2].items()):
            if type(name) is str and kinds.of(value) == "module" and id(value) not in seen:
                seen.add(id(value))
                work.append(Thing((*part.path, name), f"{part.text}.{name}", "module", value))


def _computes_differently(module: Any) -> bool:
    """Whether this very layer is in evaluation mode, computes something else in it, and is not frozen as well."""
    table = inside(module, "module")
    frozen = any(is_own(each) and not each.requires_grad for each in list(tables(module)[0].values()))
    return not frozen and table.get("training") is False and table.get("p") != 0 and any(each in _MODED for each in _MRO(type(module)))
