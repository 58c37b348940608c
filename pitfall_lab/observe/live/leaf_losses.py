"""Finds one-element tensors that require grad and have no graph; one of them may be a loss made from a number, as by
``torch.tensor(loss.item(), requires_grad=True)`` (:func:`leaf_losses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import held_by, is_own


class LeafLoss(NamedTuple):
    """A one-element tensor that requires grad, is a leaf, and is no parameter.

    ``has_gradient``: a backward has reached it. ``name`` is the expression for the tensor, ``path`` the names and keys
    that lead to it.
    """

    name: str
    path: Path
    has_gradient: bool


def leaf_losses(found: Found, budget: Budget) -> list[LeafLoss]:
    """A record for each tensor bound to a name that has one element, requires grad, is a leaf, and is neither a
    parameter nor held by an optimizer.

    Empty if there is no optimizer, as no gradient is needed then. ``found`` is what the notebook's names lead to,
    ``budget`` the time limit.
    """
    if not found.optimizers:
        return []
    known = {id(each) for optimizer in found.optimizers for each in held_by(optimizer.value)}
    known |= {id(thing.value) for thing in found.parameters}
    losses = [thing for thing in _numbers(found.names) if budget.goes_on() and id(thing.value) not in known]
    return [LeafLoss(thing.text, thing.path, thing.value.grad is not None) for thing in losses]


def _numbers(names: Sequence[Thing]) -> list[Thing]:
    tensors = (thing for thing in names if thing.kind == "tensor" and is_own(thing.value))
    return [each for each in tensors if is_leaf(each.value) and each.value.numel() == 1]
