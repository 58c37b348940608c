"""Finds tied weights that a cell has untied: two attributes inside one module were one parameter, until one of them was
replaced by another parameter (:meth:`PartedWeights.compare`).

Of each tie only the paths and ids are stored. Weights untied on purpose can mostly be recognised: the new weight has
another shape (a head for other classes), or begins with the values of the old one (compared where both are contiguous,
on the CPU, and of dtype float16, float32 or float64). These are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, is_own, tables
from pitfall_lab.observe.live.written_again import sample_of
from pitfall_lab.observe.tensor_facts import dtype_name, is_opaque

MOST = 64
"""How many ties are remembered at most."""
_DTYPES = {"float32": "f4", "float64": "f8", "float16": "f2"}


class PartedWeight(NamedTuple):
    """Two attributes inside one module that were one parameter, until cell ``cell`` replaced one of them.

    ``replaced`` and ``kept`` are the expressions for that attribute and the other one. ``path`` leads to ``replaced``,
    ``since`` is the number of the cell after which the tie was first seen. ``words``: the names that only the path of
    ``replaced`` has, and those that only the path of ``kept`` has. ``more``: how many elements the new parameter adds
    to the module.
    """

    replaced: str
    kept: str
    path: Path
    since: int
    cell: int
    words: tuple[frozenset[str], frozenset[str]]
    more: int


class _Tie(NamedTuple):
    """The paths below the module at ``root`` that lead to one parameter, and the ids of the parameter and the
    module.
    """

    root: Path
    module: int
    places: tuple[Path, ...]
    parameter: int
    since: int


class PartedWeights:
    """Remembers, as ids and paths, which attributes inside one module hold the same parameter."""

    def __init__(self) -> None:
        self._ties: dict[tuple[Path, Path], _Tie] = {}
        #: Each with the ids of the module and of the two parameters.
        self._found: dict[Path, tuple[PartedWeight, tuple[Path, Path, Path], tuple[int, int, int]]] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[PartedWeight]:
        """The ties that were untied and have not been tied again, without those whose new parameter has another shape
        or begins with the values of the old one; ``now`` is the number of the last cell.

        An empty list if there are none. ``found`` is what the notebook's names lead to, ``budget`` the time limit.
        """
        if now == self._cell:
            return [each for each, _, _ in self._found.values()]
        modules = {each.path: each for each in found.modules}
        parted = [one for tie in self._ties.values() for one in _parted(tie, modules, now)]
        still = {path: each for path, each in self._found.items() if _is_still(each[1], each[2], modules)}
        self._found = {each[0].path: each for each in parted} | still
        ties = {(tie.root, tie.places[0]): tie for tie in _ties(found, now, budget)}
        if not budget.spent:
            known = ((at, self._ties.get(at)) for at in ties)
            ties |= {
                at: ties[at]._replace(since=was.since)
                for at, was in known
                if was is not None and was.parameter == ties[at].parameter
            }
            self._ties, self._cell = dict(list(ties.items())[:MOST]), now
        return [each for each, _, _ in self._found.values()]


def _parted(
    tie: _Tie, modules: dict[Path, Thing], now: int
) -> Iterator[tuple[PartedWeight, tuple[Path, Path, Path], tuple[int, int, int]]]:
    thing = modules.get(tie.root)
    if thing is None or id(thing.value) != tie.module:
        return
    held = [(place, _at(thing.value, place)) for place in tie.places]
    kept = next((each for each in held if id(each[1]) == tie.parameter), None)
    replaced = [each for each in held if each[1] is not None and id(each[1]) != tie.parameter]
    if kept is None or not replaced:
        return
    place, new = replaced[0]
    if tuple(new.shape) != tuple(kept[1].shape) or _are_equal(new, kept[1]):
        return
    words = frozenset(place) - frozenset(kept[0]), frozenset(kept[0]) - frozenset(place)
    one = PartedWeight(
        _text(thing, place), _text(thing, kept[0]), (*tie.root, *place), tie.since, now, words, int(new.numel())
    )
    yield one, (tie.root, place, kept[0]), (tie.module, id(new), tie.parameter)


def _is_still(places: tuple[Path, Path, Path], ids: tuple[int, int, int], modules: dict[Path, Thing]) -> bool:
    """Whether the two attributes of a module still hold the parameters that they had when they were found untied."""
    root, one, other = places
    thing = modules.get(root)
    if thing is None or id(thing.value) != ids[0]:
        return False
    return (id(_at(thing.value, one)), id(_at(thing.value, other))) == ids[1:]


def _ties(found: Found, now: int, budget: Budget) -> Iterator[_Tie]:
    """The parameters that a module holds under several paths."""
    if not _is_any_tied(found, budget):
        return
    for thing in found.modules:
        places: dict[int, list[Path]] = {}
        for place, parameter in _places(thing.value, budget):
            places.setdefault(id(parameter), []).append(place)
        for at, each in places.items():
            if len(each) > 1:
                yield _Tie(thing.path, id(thing.value), tuple(each), at, now)


def _is_any_tied(found: Found, budget: Budget) -> bool:
    """Whether some parameter is held by several attributes. This is rare, so the paths are searched only if it is
    True.
    """
    held = [each for layer in found.layers if budget.goes_on() for each in tables(layer.value)[0].values()]
    ids = [id(each) for each in held if each is not None]
    return len(set(ids)) < len(ids)


def _places(module: Any, budget: Budget) -> Iterator[tuple[Path, Any]]:
    """The parameters inside a module with their paths from it; each module inside is visited once."""
    kinds, seen = Kinds(), {id(module)}
    work: list[tuple[Path, Any]] = [((), module)]
    for path, each in work:  # the list grows during the iteration
        if not budget.goes_on():
            return
        parameters, _, children = tables(each)
        for name, parameter in list(parameters.items()):
            if type(parameter) is torch.nn.Parameter:
                yield (*path, name), parameter
        for name, child in list(children.items()):
            if kinds.of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append(((*path, name), child))


def _at(module: Any, place: Path) -> Any:
    """The parameter at this path; ``None`` if there is none that can be read."""
    for step in place[:-1]:
        module = tables(module)[2].get(step) if Kinds().of(module) == "module" else None
    found: Any = tables(module)[0].get(place[-1]) if Kinds().of(module) == "module" else None
    return found if is_own(found) and not is_opaque(found) else None


def _text(thing: Thing, place: Path) -> str:
    return ".".join((thing.text, *place))


def _are_equal(one: Any, other: Any) -> bool:
    """Whether samples of two parameters of one shape have the same values; False if one cannot be read."""
    first, second = _sample(one), _sample(other)
    return first is not None and second is not None and bool(np.array_equal(first, second, equal_nan=True))


def _sample(tensor: Any) -> np.ndarray | None:
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or dtype_name(tensor.dtype) not in _DTYPES:
        return None
    if not tensor.numel() or not tensor.data_ptr():
        return None
    kind = np.dtype(_DTYPES[dtype_name(tensor.dtype)])
    return sample_of((tensor.data_ptr(), tensor.numel() * kind.itemsize, kind))
