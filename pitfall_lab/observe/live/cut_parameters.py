"""Finds parameters whose shape was changed (``p.data = p.data[kept]``) while their gradient, or their state in an
optimizer (its moments), still has the old shape (:meth:`CutParameters.compare`).

Found from shapes alone: after each cell the shape of each parameter that an optimizer holds is stored. A state tensor
is only compared with the shape that the parameter had, as some optimizers keep sums of other shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Thing
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import held_by, inside, is_own
from pitfall_lab.observe.tensor_facts import is_opaque

Shape = tuple[int, ...]
GRADIENT = "grad"


class CutParameter(NamedTuple):
    """A parameter whose shape a cell has changed, while its gradient or optimizer state has the old shape.

    ``parameter`` and ``optimizer`` are expressions, ``path`` are the names and keys that lead to the optimizer. Cell
    ``cell`` changed the shape from ``was`` to ``now``; ``kept`` is what still has the shape ``was``: a key of the
    optimizer's state (``exp_avg``), or :data:`GRADIENT`. ``others`` counts further such parameters of this optimizer.
    """

    optimizer: str
    path: tuple[str, ...]
    parameter: str
    kept: str
    was: Shape
    now: Shape
    others: int
    cell: int


class CutParameters:
    """Remembers the shape of each parameter that an optimizer holds, and, for parameters whose shape was changed, the
    shape before and the cell that changed it.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, Shape] = {}
        self._cut: dict[int, tuple[Shape, int]] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> list[CutParameter]:
        """One record for each optimizer that holds parameters whose state, or gradient, has the shape from before a
        cell changed it; ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        held = [(thing, each) for thing in found.optimizers for each in _readable(thing)]
        shapes, cut = dict[int, Shape](), dict[int, tuple[Shape, int]]()
        for _, each in held:
            if not budget.goes_on():
                return []
            shape = shapes[id(each)] = tuple(each.shape)
            was = self._shapes.get(id(each), shape)
            before = (was, now) if was != shape else self._cut.get(id(each))
            if before is not None and before[0] != shape:
                cut[id(each)] = before
        self._shapes, self._cut = shapes, cut
        names = {id(each.value): each.text for each in reversed(found.parameters)} if cut else {}
        made: dict[int, CutParameter] = {}
        for thing, each in held if cut else ():
            if id(each) not in cut or not (kept := _kept(thing, each, cut[id(each)][0])):
                continue
            first, at = made.get(id(thing.value)), id(thing.value)
            if first is None or (first.kept == GRADIENT and kept != GRADIENT):
                others = first.others + 1 if first is not None else 0
                was, cell = cut[id(each)]
                name = names.get(id(each), f"{thing.text}.param_groups")
                made[at] = CutParameter(thing.text, thing.path, name, kept, was, shapes[id(each)], others, cell)
            else:
                made[at] = first._replace(others=first.others + 1)
        return list(made.values())


def _readable(optimizer: Thing) -> Iterator[Any]:
    return (each for each in held_by(optimizer.value) if is_own(each) and not is_opaque(each))


def _kept(optimizer: Thing, parameter: Any, was: Shape) -> str:
    """The key of a state tensor that still has the shape ``was``, or :data:`GRADIENT` if the gradient has it; else an
    empty string.
    """
    states = inside(optimizer.value, "optimizer").get("state")
    if isinstance(states, dict):  # a defaultdict, whose keys are tensors: looked up by identity
        state = dict.get(states, parameter)
        for key, value in list(state.items()) if type(state) is dict else ():
            if type(key) is str and is_own(value) and not is_opaque(value) and tuple(value.shape) == was:
                return key
    gradient: Any = parameter.grad if is_leaf(parameter) else None
    if is_own(gradient) and not is_opaque(gradient) and tuple(gradient.shape) == was:
        return GRADIENT
    return ""
