"""Finds parameters that a loss depends on but no optimizer holds: those of a recreated module, of layers added later,
or of layers through which trained ones get their gradients (:meth:`Owners.compare`).

A module that no optimizer holds is not wrong in itself: target networks, averaged weights and frozen submodules are
examples. So a parameter is reported only if a loss depends on it or it has a gradient, and only in one of three cases.
The optimizer holds the parameters of an earlier object with the same name, and nothing else trains this one; or it
holds other parameters of the module, and this one was created after the optimizer, or was frozen while the optimizer
already existed; or a gradient passes through the operation that uses it to parameters that the optimizer holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import private, tensor_facts
from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing, parts
from pitfall_lab.observe.live.graphs import walk
from pitfall_lab.observe.live.object_kinds import Kinds, held_by, inside, is_own, tables

MADE = 8
"""A parameter with a higher version was not only initialized and loaded: it is being trained."""

_TURNS = {"TBackward0", "TransposeBackward0", "ViewBackward0", "ExpandBackward0", "UnsqueezeBackward0"}


class LeftOut(NamedTuple):
    """Parameters that a loss depends on or that have a gradient, and that no optimizer holds.

    ``name`` is the expression for the first of them, ``path`` the names and keys that lead to it, ``module`` the name
    of its module; ``others`` counts further ones. ``optimizer`` is the expression for the optimizer that was probably
    expected to hold them, ``optimizer_path`` leads to it. ``why`` is ``replaced`` (the optimizer holds those of an
    earlier object of this name), ``later`` (they were created after the optimizer), ``unfrozen`` (they did not require
    grad while the optimizer already existed) or ``behind`` (gradients pass through them to parameters that it holds).
    ``made`` and ``taken`` are the numbers of the cells after which they and the optimizer were first seen.
    """

    why: str
    name: str
    path: Path
    others: int
    module: str
    optimizer: str
    optimizer_path: Path
    made: int
    taken: int


class Owners:
    """Remembers, by id, when parameters and optimizers first appeared.

    The ids stay valid while an optimizer holds its parameters, as it keeps them alive.
    """

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        self._took: dict[tuple[str, int], int] = {}
        #: torch's sequence number before the cell in which each optimizer came, and that at the last look.
        self._after: dict[tuple[str, int], int] = {}
        self._number = 0
        self._was: dict[str, frozenset[int]] = {}
        self._former: dict[str, frozenset[int]] = {}
        #: Parameters that were frozen after a cell, with the ids of the optimizers that were there.
        self._frozen: dict[int, frozenset[int]] = {}

    def compare(self, found: Found, roots: Sequence[Root], now: int, budget: Budget) -> list[LeftOut]:
        """The parameters that are left out now, one record for each reason and optimizer; ``roots`` are the named
        tensors with a graph, ``now`` is the number of the last cell.

        An empty list if there are none, the search was incomplete, or the time limit ``budget`` is exceeded. ``found``
        is what the notebook's names lead to.
        """
        if budget.spent or found.more or found.hidden:
            return []
        trained = [*found.parameters, *_unregistered(found)]
        self._remember(found, trained, now)
        holders = {id(each): optimizer for optimizer in found.optimizers for each in held_by(optimizer.value)}
        loose = [t for t in trained if id(t.value) not in holders and is_own(t.value) and t.value.requires_grad]
        if not holders or not loose:
            return []
        losses = walk([root.node for root in roots if root.thing.value.numel() == 1], budget)
        leads = {id(node.variable): node for node in losses if node.name() == tensor_facts.ACCUMULATE}
        loose = [t for t in loose if id(t.value) in leads or (t.value.is_leaf and t.value.grad is not None)]
        made: dict[tuple[str, str], list[LeftOut]] = {}
        for thing in loose:
            one = self._of(thing, holders, losses, leads, budget)
            if one is not None and not (one.why == "behind" and self._is_earlier(thing, one, roots, budget)):
                made.setdefault((one.why, one.optimizer), []).append(one)
        return [group[0]._replace(others=len(group) - 1) for group in made.values()] if not budget.spent else []

    def _is_earlier(self, thing: Thing, left: LeftOut, roots: Sequence[Root], budget: Budget) -> bool:
        """Whether every loss that depends on the parameter was computed in cells before that of the optimizer, so that
        another optimizer trained it.
        """
        if not private.has_sequence:
            return False
        after = next((number for (text, _), number in self._after.items() if text == left.optimizer), 0)
        later = [r.node for r in roots if r.thing.value.numel() == 1 and r.node._sequence_nr() >= after]
        return all(
            node.name() != tensor_facts.ACCUMULATE or node.variable is not thing.value for node in walk(later, budget)
        )

    def _remember(self, found: Found, trained: Iterable[Thing], now: int) -> None:
        self._came = {id(thing.value): self._came.get(id(thing.value), now) for thing in trained}
        self._took = {(t.text, id(t.value)): self._took.get((t.text, id(t.value)), now) for t in found.optimizers}
        there = frozenset(id(each.value) for each in found.optimizers)
        self._after = {
            (t.text, id(t.value)): self._after.get((t.text, id(t.value)), self._number) for t in found.optimizers
        }
        if private.next_sequence is not None:
            self._number = private.next_sequence()
        frozen = {
            id(t.value): there
            for t in trained
            if is_own(t.value) and not t.value.requires_grad and t.value.is_floating_point()
        }
        self._frozen = {at: each for at, each in self._frozen.items() if at in self._came} | frozen
        owned: dict[str, set[int]] = {}
        for thing in trained:
            owned.setdefault(thing.path[0], set()).add(id(thing.value))
        for name, ids in owned.items():
            was = self._was.get(name, frozenset())
            if was - ids:
                self._former[name] = self._former.get(name, frozenset()) | (was - ids)
            self._was[name] = frozenset(ids)

    def _of(
        self, thing: Thing, holders: dict[int, Thing], losses: Sequence[Any], leads: dict[int, Any], budget: Budget
    ) -> LeftOut | None:
        name, came = thing.path[0], self._came[id(thing.value)]
        former = next((o for at, o in holders.items() if at in self._former.get(name, ())), None)
        of_module = next((holders[at] for at in self._was[name] if at in holders), None)
        if former is not None and not _is_trained(thing.value):
            return self._left("replaced", thing, former, came)
        if of_module is not None and came > self._took[of_module.text, id(of_module.value)]:
            return self._left("later", thing, of_module, came)
        unfrozen = self._made_while_frozen(thing, holders)
        if unfrozen is not None:
            return self._left("unfrozen", thing, unfrozen, came)
        node = leads.get(id(thing.value))
        before = _held_in_front(node, losses, holders, budget) if node is not None else None
        return self._left("behind", thing, before, came) if before is not None else None

    def _made_while_frozen(self, thing: Thing, holders: dict[int, Thing]) -> Thing | None:
        """Return the optimizer that holds other parameters of the module, or else the only one, if it existed while the
        parameter was frozen; otherwise None.
        """
        then = self._frozen.get(id(thing.value), frozenset())
        known = {id(each.value): each for each in holders.values()}
        own = {id(holders[at].value) for at in self._was[thing.path[0]] if at in holders} or (
            set(known) if len(known) == 1 else set()
        )
        return next((known[at] for at in own & then), None)

    def _left(self, why: str, thing: Thing, optimizer: Thing, came: int) -> LeftOut:
        took = self._took[optimizer.text, id(optimizer.value)]
        return LeftOut(why, thing.text, thing.path, 0, thing.path[0], optimizer.text, optimizer.path, came, took)


def _is_trained(parameter: Any) -> bool:
    """Whether the parameter was written so often that an optimizer which no name leads to, such as a local variable,
    must have trained it.
    """
    return not parameter.is_inference() and parameter._version > MADE


def _held_in_front(leaf: Any, nodes: Sequence[Any], holders: dict[int, Thing], budget: Budget) -> Thing | None:
    """Return the optimizer that holds a parameter farther from the loss than the node that uses this leaf; None if none
    does.
    """
    own = {leaf}
    for node in reversed(
        nodes
    ):  # farthest from the loss first, so that a transpose of the weight comes before the node that uses it
        following = {each for each, _ in node.next_functions}
        if following & own and node.name() in _TURNS:
            own.add(node)
    for node in nodes:
        if node not in own and own & {each for each, _ in node.next_functions}:
            behind = (each for each in walk([node], budget) if each.name() == tensor_facts.ACCUMULATE)
            holder = next((holders[id(each.variable)] for each in behind if id(each.variable) in holders), None)
            if holder is not None:
                return holder
    return None


def _unregistered(found: Found) -> list[Thing]:
    """The parameters of modules that another module holds in a plain list, tuple or dict: its own ``parameters()`` does
    not return them.
    """
    kinds, known = Kinds(), {id(thing.value) for thing in found.parameters}
    loose: dict[int, Thing] = {}
    for module in found.modules:
        for name, value in list(inside(module.value, "module").items()):
            if not any(type(value) is each for each in (list, tuple, dict)) or name in (
                "_parameters",
                "_buffers",
                "_modules",
            ):
                continue
            for part in parts(Thing((*module.path, name), f"{module.text}.{name}", "group", value), kinds):
                for key, each in tables(part.value)[0].items() if part.kind == "module" else ():
                    if id(each) not in known and kinds.of(each) == "tensor":
                        loose[id(each)] = Thing((*part.path, key), f"{part.text}.{key}", "tensor", each)
    return list(loose.values())
