"""Remembers the dtype of each module's parameters after each cell, to name the cell that has converted a module
(:meth:`ModuleTypes.converted`).

``module.to(…)``, ``half()`` and ``double()`` change the module itself and return it: a name bound to the result refers
to the same module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, is_shown
from pitfall_lab.observe.live.object_kinds import Kinds, is_own, tables


class ConvertedModule(NamedTuple):
    """A module whose first floating-point parameter has been converted to another dtype.

    The module ``name`` had the dtype ``before`` (such as ``float32``), and has had ``after`` since the cell with the
    number ``cell``. ``also`` are further names of the same module.
    """

    name: str
    before: str
    after: str
    cell: int
    also: tuple[str, ...]


class ModuleTypes:
    """The dtypes of modules, and the cells after which they were first seen."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[tuple[int, str], ...]] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> None:
        """Remember the dtype of each module after the cell with the number ``now``; the last two dtypes of each are
        kept. Returns nothing. If the time limit ``budget`` is exceeded, nothing changes.

        ``found`` is what the notebook's names lead to.
        """
        seen: dict[int, tuple[tuple[int, str], ...]] = {}
        for thing in found.modules:
            if not budget.goes_on():
                return
            dtype = _dtype(thing.value)
            known = self._types.get(id(thing.value), ())
            if dtype is not None:
                seen[id(thing.value)] = known if known and known[-1][1] == dtype else (*known, (now, dtype))[-2:]
        self._types = seen

    def converted(self, namespace: Mapping[str, Any], names: Iterable[str]) -> ConvertedModule | None:
        """The first of the modules with these names that a cell has converted to another dtype; ``None`` if there is
        none. ``namespace`` has the notebook's names and their objects.
        """
        kinds = Kinds()
        for name in names:
            value = namespace.get(name)
            history = self._types.get(id(value), ())
            if kinds.of(value) != "module" or len(history) < 2 or history[-1][1] != _dtype(value):
                continue
            also = [each for each in list(namespace) if type(each) is str and is_shown(each) and each != name]
            same = tuple(each for each in also if namespace.get(each) is value)
            return ConvertedModule(name, history[0][1], history[1][1], history[1][0], same)
        return None


def _dtype(module: Any) -> str | None:
    """The dtype of the first floating-point parameter of a module or its submodules; ``None`` if it has none."""
    work, seen, kinds = [module], set[int](), Kinds()
    for each in work:  # the list grows during the iteration
        if id(each) in seen or kinds.of(each) != "module":
            continue
        seen.add(id(each))
        parameters, _, children = tables(each)
        for one in parameters.values():
            if is_own(one) and torch.Tensor.is_floating_point(one):
                return str(one.dtype).removeprefix("torch.")
        work.extend(children.values())
    return None
