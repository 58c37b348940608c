"""Finds functions of the notebook with a module or an optimizer as a parameter's default, after the name of that module
or optimizer has been bound to another one (:meth:`Defaults.compare`).

A default is computed once, when the cell with the ``def`` runs. Which object each name had is stored by id; the old
object stays alive, since the function holds it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import is_shown
from pitfall_lab.observe.live.held_functions import own_functions
from pitfall_lab.observe.live.object_kinds import Kinds

HELD = ("module", "optimizer")


class OldDefault(NamedTuple):
    """A parameter of a function whose default is a module or optimizer that its name no longer refers to.

    The default of ``parameter`` of ``function`` is what cell ``made`` bound to ``name``; cell ``since`` bound the name
    to another object (numbers of cells). ``place``: the index of the parameter, from 0, or None if it is keyword-only.
    """

    function: str
    parameter: str
    place: int | None
    name: str
    made: int
    since: int


class Defaults:
    """Remembers, by id, which module or optimizer each name of a notebook had after each cell."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[int, int]] = {}
        self._was: dict[int, tuple[str, int, int]] = {}

    def compare(self, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[OldDefault]:
        """One record for each parameter of a function of the notebook whose default is a module or optimizer that a
        name was bound to after an earlier cell and none is now; ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``namespace`` has the notebook's
        names and their objects.
        """
        kinds, bound = Kinds(), dict[str, int]()
        for name in list(namespace):
            if not budget.goes_on():
                return []
            if type(name) is str and is_shown(name):
                value = namespace.get(name)
                if kinds.of(value) in HELD:
                    bound[name] = id(value)
        for name, key in bound.items():
            before, made = self._names.get(name, (key, now))
            if before != key:
                self._was[before] = (name, made, now)
            self._names[name] = (key, made if before == key else now)
        for key in bound.values():
            self._was.pop(key, None)
        functions = (own_functions(namespace, budget) or {}) if self._was else {}
        found = [
            OldDefault(function, parameter, place, *self._was[id(value)])
            for function, each in functions.items()
            for parameter, place, value in _defaults(each)
            if id(value) in self._was and kinds.of(value) in HELD
        ]
        # of objects that no function holds, the ids may come again
        kept = {id(value) for each in functions.values() for _, _, value in _defaults(each)}
        self._was = {key: each for key, each in self._was.items() if key in kept}
        return found


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, int | None, Any]]:
    """The name, index and default of each parameter that has a default; the index is None for keyword-only
    parameters.
    """
    code, given = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(given)
    for at, value in enumerate(given, first):
        yield code.co_varnames[at], at, value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield name, None, value
