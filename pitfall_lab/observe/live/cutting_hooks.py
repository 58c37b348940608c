"""Finds forward hooks that keep gradients from the parameters before them: a value returned by a hook replaces the
layer's output, and may have no graph (:meth:`CuttingHooks.compare`).

Found from versions and gradients: one optimizer holds parameters before a layer with a forward hook and parameters
after it; a cell has stepped those after it, and none of those before it has a gradient or was written. The layer
itself, and what its module registers before it, count as before it. Whether the hook returns a value, and whether that
is computed from the output, only its source shows.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import Kinds, held_by, is_own, tables
from pitfall_lab.observe.live.repeated_hooks import hook_tables

STEPS = 6
"""A parameter that was not there before the cell counts as trained in it if its version is this much higher than that
of the parameters before the layer.
"""


class CuttingHook(NamedTuple):
    """A layer with forward hooks through which no gradient passes: when cell ``cell`` trained, the parameters before
    the layer got no gradient.

    ``layer`` is the expression for the layer, ``path`` are the names that lead to it. ``first`` is the expression for
    the first parameter before it that ``optimizer`` holds, ``others`` counts further ones. ``hooks`` has, for each
    forward hook of the layer, the cell after which it was first seen, the name of its function, and the first line of
    this function in its cell.
    """

    layer: str
    path: Path
    hooks: tuple[tuple[int, str, int], ...]
    first: str
    others: int
    optimizer: str
    cell: int


class _HookedLayer(NamedTuple):
    """A layer with forward hooks, and the parameters of its module before and after it. It holds references, so it must
    not be kept.
    """

    thing: Thing
    hooks: tuple[tuple[int, Any], ...]
    front: tuple[tuple[str, Any], ...]
    behind: tuple[Any, ...]


class CuttingHooks:
    """Remembers after which cell each forward hook was first seen, and, in modules with such hooks, the version that
    each parameter had after the last cell.
    """

    def __init__(self) -> None:
        self._came: dict[tuple[int, int], int] = {}
        self._versions: dict[int, int] = {}
        #: Each with the id of its layer, and the versions of the parameters in front of it.
        self._found: dict[int, tuple[CuttingHook, int, dict[int, int]]] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[CuttingHook]:
        """For each optimizer, the layer with a forward hook before which parameters got no gradient while those after
        it were trained: the layer with the most such parameters, as long as they get none. ``now`` is the number of the
        last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        if now == self._cell:
            return [each for each, _, _ in self._found.values()]
        hooked = list(_hooked(found, budget))
        if budget.spent:
            return []
        self._cell = now
        came = {(id(each.thing.value), key): now for each in hooked for key, _ in each.hooks}
        self._came = {at: self._came.get(at, cell) for at, cell in came.items()}
        there = {id(each.thing.value): each for each in hooked}
        self._found = {
            at: each
            for at, each in self._found.items()
            if each[1] in there and _untouched(there[each[1]].front, each[2])
        }
        for each in hooked:
            for optimizer in found.optimizers:
                front = self._without_gradient(each, optimizer.value)
                before = self._found.get(id(optimizer.value))
                if front and (before is None or len(before[2]) < len(front)):
                    one = CuttingHook(
                        each.thing.text, each.thing.path, self._named(each), front[0][0], len(front) - 1,
                        optimizer.text, now,
                    )  # fmt: skip
                    versions = {id(parameter): parameter._version for _, parameter in front}
                    self._found[id(optimizer.value)] = one, id(each.thing.value), versions
        self._versions = {
            id(one): one._version for each in hooked for one in (*(last for _, last in each.front), *each.behind)
        }
        return [each for each, _, _ in self._found.values()]

    def _without_gradient(self, layer: _HookedLayer, optimizer: Any) -> list[tuple[str, Any]]:
        """The parameters before a layer that an optimizer holds, if none of them has a gradient or was written while
        the optimizer stepped some after it; else an empty list.
        """
        held = {id(each) for each in held_by(optimizer)}
        front = [(name, each) for name, each in layer.front if id(each) in held]
        behind = [each for each in layer.behind if id(each) in held]
        if not front or any(each.grad is not None or self._moved(each) for _, each in front):
            return []
        least = max(each._version for _, each in front) + STEPS
        trained = (
            self._moved(each) if id(each) in self._versions else each.grad is not None and each._version >= least
            for each in behind
        )  # fmt: skip
        return front if any(trained) else []

    def _moved(self, parameter: Any) -> bool:
        return bool(self._versions.get(id(parameter), parameter._version) != parameter._version)

    def _named(self, layer: _HookedLayer) -> tuple[tuple[int, str, int], ...]:
        return tuple(
            (self._came[id(layer.thing.value), key], code.co_name, code.co_firstlineno)
            for key, function in layer.hooks
            if (code := _code(function)) is not None
        )


def _untouched(front: tuple[tuple[str, Any], ...], versions: dict[int, int]) -> bool:
    there = {id(each): each for _, each in front}
    return all(
        at in there and there[at].grad is None and there[at]._version == version for at, version in versions.items()
    )


def _hooked(found: Found, budget: Budget) -> Iterator[_HookedLayer]:
    """The layers with forward hooks that are inside another module."""
    layers = [(thing, hooks) for thing, table, hooks in hook_tables(found, budget, modules_only=True)
              if table == "_forward_hooks"]  # fmt: skip
    for root in found.modules if layers else ():
        inner = [(thing, hooks) for thing, hooks in layers if thing.path[: len(root.path)] == root.path]
        if not inner:
            continue
        order = list(_in_order(root.text, root.value, set(), budget))
        for thing, hooks in inner:
            ends = [at for at, (_, _, layer) in enumerate(order) if layer == id(thing.value)]
            if ends:
                cut = ends[-1]
                front = tuple((text, each) for text, each, _ in order[:cut] if each is not None)
                behind = tuple(each for _, each, _ in order[cut:] if each is not None)
                yield _HookedLayer(thing, tuple((each.key, each.function) for each in hooks), front, behind)


def _in_order(text: str, module: Any, seen: set[int], budget: Budget) -> Iterator[tuple[str, Any, int]]:
    """The expressions and leaf tensors of the parameters inside a module in the order of registration, each with 0; at
    the end of each module, an entry without a tensor and with the module's id.
    """
    if id(module) in seen or not budget.goes_on():
        return
    seen.add(id(module))
    parameters, _, children = tables(module)
    for name, each in list(parameters.items()):
        if is_own(each) and not each.is_inference() and is_leaf(each) and id(each) not in seen:
            seen.add(id(each))
            yield f"{text}.{name}", each, 0
    kinds = Kinds()
    for name, child in list(children.items()):
        if kinds.of(child) == "module":
            yield from _in_order(f"{text}.{name}", child, seen, budget)
    yield text, None, id(module)


def _code(function: Any) -> types.CodeType | None:
    """The code of a function or method, or of the function that a ``partial`` calls; None for other objects."""
    if type(function) is functools.partial:
        function = function.func
    if type(function) is types.MethodType:
        function = function.__func__
    return function.__code__ if type(function) is types.FunctionType else None
