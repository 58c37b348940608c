"""Finds parametrizations of one class that two cells have registered on one weight: the cell that registers was run
again, and torch applies both (:meth:`Parametrizations.compare`).

Stored from cell to cell is only the cell after which each parametrization was first seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path
from pitfall_lab.observe.live.object_kinds import class_name, class_origin, tables

_OF_TORCH = "torch.nn.utils.parametrize"


class ParametrizedAgain(NamedTuple):
    """A tensor with several parametrizations of one class, registered by different cells.

    The tensor is ``attribute`` of ``module``, to which the names ``path`` lead; ``times`` of its parametrizations have
    the class ``type``. Cell ``first`` registered the first of them, cell ``again`` the first that another cell
    registered (numbers of cells). ``others`` counts further tensors on which the same cells registered this class.
    """

    module: str
    path: Path
    attribute: str
    type: str
    times: int
    first: int
    again: int
    others: int = 0


class Parametrizations:
    """Remembers after which cell each parametrization of a weight was first seen."""

    def __init__(self) -> None:
        self._came: dict[tuple[int, str], int] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> list[ParametrizedAgain]:
        """The weights with several parametrizations of one class that different cells have registered: one record for
        each class and pair of cells; further weights with the same class and cells are counted in ``others``.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to, ``now`` the number of the last cell.
        """
        came, said = dict[tuple[int, str], int](), dict[tuple[int, int, str], ParametrizedAgain]()
        for thing in found.layers:
            if not budget.goes_on():
                return []
            if class_name(thing.value) != "ParametrizationList" or class_origin(thing.value) != _OF_TORCH:
                continue
            _, _, parts = tables(thing.value)
            by_class: dict[type, list[tuple[int, Any]]] = {}
            for name, part in parts.items():
                at = id(thing.value), name
                came[at] = self._came.get(at, now)
                by_class.setdefault(type(part), []).append((came[at], part))
            for same in by_class.values():
                first, again = same[0][0], next((cell for cell, _ in same if cell != same[0][0]), None)
                if again is None:
                    continue
                kind = class_name(same[0][1])
                known = said.get((first, again, kind))
                module, attribute = thing.text.rpartition(".parametrizations.")[::2]
                said[first, again, kind] = (
                    known._replace(others=known.others + 1)
                    if known is not None
                    else ParametrizedAgain(module, thing.path[:-2], attribute, kind, len(same), first, again)
                )
        self._came = came
        return list(said.values())
