"""Finds modules that get gradients from a loss that trains another module, while no optimizer holds any of their
parameters (:meth:`Idles.compare`).

Such a module is a teacher, a copy whose weights are averages, or an encoder that was not passed to the optimizer. It is
reported after the optimizer of the loss has made steps. If its weights changed meanwhile, they may have been updated
with their gradients, by an optimizer that is not seen or by hand: then the module is reported only if its parameters
have the shapes of a trained module's, as an average of weights has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.graphs import walk
from pitfall_lab.observe.live.object_kinds import held_by, is_own

STEPS = 2


class Idle(NamedTuple):
    """A module that no optimizer trains although its parameters have gradients: they are in the graph of the loss
    ``loss``, with which ``optimizer`` trains another module (both are expressions).

    ``name`` is the expression for the module, ``path`` the names that lead to it, ``parameters`` the number of its
    parameters that require grad. ``moved``: the values of these parameters have changed since they were first seen.
    """

    name: str
    path: Path
    parameters: int
    loss: str
    optimizer: str
    moved: bool


class Idles:
    """Remembers the version at which each parameter was first seen: a higher one shows that it was written since."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def compare(self, found: Found, roots: Sequence[Root], budget: Budget) -> list[Idle]:
        """The named modules none of whose parameters an optimizer holds, which have gradients and are in the graph of a
        loss with which an optimizer has trained another module for at least ``STEPS`` steps; if their own weights have
        changed, only those with the shapes of a trained module.

        ``roots`` are the named tensors with a graph; a loss is one with one element. Empty if there are none, or if the
        search was incomplete or the time limit ``budget`` is exceeded. ``found`` is what the notebook's names lead to.
        """
        if budget.spent or found.more or found.hidden:
            return []
        own = [each for each in found.parameters if is_own(each.value)]
        self._first = {id(each.value): self._first.get(id(each.value), each.value._version) for each in own}
        holders = {id(each): optimizer.text for optimizer in found.optimizers for each in held_by(optimizer.value)}
        modules = {each.path[0]: each for each in found.modules if len(each.path) == 1}
        by_module: dict[str, list[Thing]] = {name: [] for name in modules}
        for each in own:
            if each.value.requires_grad and each.path[0] in by_module:
                by_module[each.path[0]].append(each)
        idle = {
            name: things
            for name, things in by_module.items()
            if things
            and not any(id(each.value) in holders for each in things)
            and any(each.value.is_leaf and each.value.grad is not None for each in things)
        }
        trained = {
            tuple(each.value.shape for each in things): name
            for name, things in by_module.items()
            if things and name not in idle
        }
        made: list[Idle] = []
        for root in (each for each in roots if each.thing.value.numel() == 1) if idle and holders else ():
            nodes = walk([root.node], budget)
            leads = {id(node.variable): node.variable for node in nodes if node.name() == tensor_facts.ACCUMULATE}
            stepped = next(
                (holders[at] for at, each in leads.items() if at in holders and self._moved(each) >= STEPS), ""
            )
            for name, things in idle.items() if stepped else ():
                if any(id(each.value) in leads for each in things) and all(one.name != name for one in made):
                    moved = any(self._moved(each.value) for each in things)
                    if not moved or tuple(each.value.shape for each in things) in trained:
                        made.append(Idle(name, (name,), len(things), root.thing.text, stepped, moved))
        return made if not budget.spent else []

    def _moved(self, tensor: Any) -> int:
        return int(tensor._version) - self._first.get(id(tensor), int(tensor._version))
