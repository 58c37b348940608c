"""Finds a data set that was split again while a loader still has a subset of the earlier split: its rows are in several
new subsets (:meth:`Splits.compare`).

Only subsets (``random_split``, ``Subset``) and their loaders are read, and only their indices: no item of a data set is
read. The folds of a cross-validation, all of which still exist, and a loader over a few rows are not mistaken for the
rest of an earlier split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader, Subset

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, is_shown
from pitfall_lab.observe.live.object_kinds import Kinds, inside, is_own
from pitfall_lab.observe.tensor_facts import is_opaque

MOST = 200_000
"""How many rows a split may have to be compared."""
FIRST = 8
DEPTH = 2
_MRO = type.__dict__["__mro__"].__get__
_Key = tuple[Any, ...]


class SplitAgain(NamedTuple):
    """A loader that has a subset of an earlier split, although its data set was split again.

    ``loader`` is the expression for it; cell ``before`` made its split, cell ``again`` the new one (numbers of cells).
    ``shared`` of the ``rows`` rows of the new subset ``part`` (an expression) are among those of the loader. ``names``
    are those that lead to a new subset or to a loader of it.
    """

    loader: str
    part: str
    shared: int
    rows: int
    before: int
    again: int
    names: frozenset[str]


class SubsetPart(NamedTuple):
    """A subset that a name leads to; holds references, so it must not be kept.

    ``names`` are the expressions for it, ``loaders`` those for loaders of it, ``positions`` its ``indices``, ``data``
    its data set. ``key`` identifies the subset: its id, the id of its data set, its length and its first indices.
    """

    key: _Key
    names: list[str]
    loaders: list[str]
    positions: Any
    data: Any = None


class Splits:
    """Remembers, as numbers and names, after which cell each subset was first seen, and whether it was then a subset of
    a whole split.
    """

    def __init__(self) -> None:
        self._came: dict[_Key, tuple[int, bool]] = {}
        self._found: list[SplitAgain] = []
        self._keys: tuple[Any, ...] = ()

    def compare(self, parts: list[SubsetPart], now: int) -> list[SplitAgain]:
        """The loaders of the only subset left of an earlier split whose data set has been split again since, if the
        loader's rows are in several new subsets; ``now`` is the number of the last cell.

        An empty list if there are none. ``parts`` are all :func:`subsets` of the namespace.
        """
        keys = tuple((part.key, tuple(part.names), tuple(part.loaders)) for part in parts)
        if keys != self._keys:
            self._keys, self._found = keys, list(self._search(parts, now))
        return self._found

    def _search(self, parts: list[SubsetPart], now: int) -> Iterator[SplitAgain]:
        of_data: dict[int, list[SubsetPart]] = {}
        for part in parts:
            of_data.setdefault(part.key[1], []).append(part._replace(positions=numbers(part.positions)))
        came = {}
        for some in of_data.values():
            new = [part for part in some if part.key not in self._came]
            whole = _is_whole(new)
            came.update({part.key: self._came.get(part.key, (now, whole)) for part in some})
        self._came = came
        for some in of_data.values():
            rounds: dict[int, list[SubsetPart]] = {}
            for part in some:
                rounds.setdefault(came[part.key][0], []).append(part)
            splits = {
                cell: each for cell, each in rounds.items() if len(each) > 1 and all(came[one.key][1] for one in each)
            }
            if splits:
                again = max(splits)
                yield from _stale(rounds, splits[again], again, came)


def _stale(
    rounds: dict[int, list[SubsetPart]], new: list[SubsetPart], again: int, came: dict[_Key, tuple[int, bool]]
) -> Iterator[SplitAgain]:
    for cell, old in rounds.items():
        if (
            cell >= again or len(old) > 1 or not came[old[0].key][1]
        ):  # what is left of the earlier split is one part of it
            continue
        [part] = old
        rows = set(part.positions)
        shared = [(each, sum(row in rows for row in each.positions)) for each in new]
        hit = [(each, count) for each, count in shared if count]
        if part.loaders and len(hit) > 1:
            least, count = min(hit, key=lambda pair: len(pair[0].positions))
            names = frozenset(
                name.partition("[")[0].partition(".")[0] for each in new for name in (*each.names, *each.loaders)
            )
            name = (least.names or least.loaders)[0]
            yield SplitAgain(part.loaders[0], name, count, len(least.positions), cell, again, names)


def _is_whole(parts: list[SubsetPart]) -> bool:
    """Whether these subsets have each row of a data set exactly once, so that they are a split of it."""
    total = sum(len(part.positions) for part in parts)
    if len(parts) < 2 or not 0 < total <= MOST:
        return False
    rows = set[int]().union(*(part.positions for part in parts))
    return len(rows) == total and min(rows) == 0 and max(rows) == total - 1


def subsets(namespace: Mapping[str, Any], budget: Budget) -> list[SubsetPart] | None:
    """Return the ``torch.utils.data.Subset`` objects that the notebook's names, lists, dicts and loaders lead to, each
    once, with the expressions for them and their loaders; ``None`` if the time limit ``budget`` is exceeded.

    Subsets whose indices cannot be read are left out. ``namespace`` has the notebook's names and their objects.
    """
    kinds, found = Kinds(), dict[int, SubsetPart]()
    for name in list(namespace):  # of a million names, the names alone are copied ten times faster
        if not budget.goes_on():
            break
        if type(name) is str and is_shown(name):
            value = namespace.get(name)
            for text, each in _inside(name, value, kinds, DEPTH):
                is_loader = _is_a(each, DataLoader)
                subset = inside(each, "object").get("dataset") if is_loader else each
                if not _is_a(subset, Subset):
                    continue
                table = inside(subset, "object")
                positions = table.get("indices")
                count = _count(positions)
                if positions is None or count is None:
                    continue
                key = id(subset), id(table.get("dataset")), count, tuple(numbers(positions[:FIRST]))
                part = found.setdefault(id(subset), SubsetPart(key, [], [], positions, table.get("dataset")))
                (part.loaders if is_loader else part.names).append(text)
    return list(found.values()) if not budget.spent else None


def _inside(text: str, value: Any, kinds: Kinds, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the subsets and loaders that a value is or contains, each with its expression."""
    if _is_a(value, Subset) or _is_a(value, DataLoader):
        yield text, value
        return
    kind = kinds.of(value) if depth else ""
    if kind not in ("group", "object"):
        return
    if type(value) is list or type(value) is tuple:
        named = [(f"{text}[{at}]", each) for at, each in enumerate(value[:ELEMENTS])]
    else:
        table = islice((value if kind == "group" else inside(value, kind)).items(), ELEMENTS)
        plain = [(key, each) for key, each in list(table) if type(key) is str or type(key) is int]
        named = [(f"{text}[{key!r}]" if kind == "group" else f"{text}.{key}", each) for key, each in plain]
    for shown, each in named:
        yield from _inside(shown, each, kinds, depth - 1)


def _is_a(value: Any, cls: type) -> bool:
    return any(each is cls for each in _MRO(type(value)))


def _count(indices: Any) -> int | None:
    """How many indices a subset has; ``None`` if they cannot be read, or there are more than :data:`MOST`."""
    kind = Kinds().of(indices)
    if type(indices) is list or type(indices) is range:
        count = len(indices)
    elif kind == "array" and type(indices) is np.ndarray and indices.ndim == 1 and indices.dtype.kind in "iu":
        count = indices.shape[0]
    elif (
        kind == "tensor"
        and is_own(indices)
        and not is_opaque(indices)
        and indices.device.type == "cpu"
        and indices.dim() == 1
    ):
        count = int(indices.shape[0])
    else:
        return None
    return count if count <= MOST else None


def numbers(indices: Any) -> list[int]:
    """Return the ``indices`` of a ``Subset`` as a list of integers; an empty list if the first ones are not all
    integers.
    """
    found = list(indices) if type(indices) is list or type(indices) is range else indices.tolist()
    return found if all(isinstance(each, (int, np.integer)) for each in found[:FIRST]) else []
