"""Finds gradients that a cell left in ``.grad`` without a step, and to which a later training cell may have added
(:meth:`Leftovers.compare` returns the first).

Determined from versions alone: the cell wrote ``.grad`` of leaves that an optimizer holds, but not the leaves; the
gradient is not zero; and no later cell cleared or replaced it before the cell that wrote the leaves. Whether that cell
cleared the gradient first cannot be seen afterwards; its source must be read for this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.history import is_leaf
from pitfall_lab.observe.live.object_kinds import held_by, is_own
from pitfall_lab.observe.live.written_again import samples


class Leftover(NamedTuple):
    """A leaf to whose leftover gradient a training cell may have added: cell ``left`` wrote the gradient without a
    step, and cell ``stepped`` was the next one that wrote the leaf.

    ``name`` and ``optimizer`` are the expressions for the leaf and the optimizer that holds it, ``path`` the names and
    keys that lead to the leaf. ``others`` counts further such leaves. Cells are given by their numbers.
    """

    name: str
    path: Path
    optimizer: str
    others: int
    left: int
    stepped: int


class _LeftoverLeaf(NamedTuple):
    """A leaf after a cell: its version, the id and version of its gradient, and the number of the cell that left this
    gradient without a step; 0 if a step has used it, or there is no gradient.
    """

    version: int
    gradient: int
    written: int
    left: int


class Leftovers:
    """Remembers, after each cell, the versions of the leaves that optimizers hold and of their gradients, to find a
    leaf that a cell has updated while it had a gradient from an earlier cell.
    """

    def __init__(self) -> None:
        self._was: dict[int, _LeftoverLeaf] = {}
        self._cell = 0
        self._found: Leftover | None = None

    def compare(self, found: Found, now: int, budget: Budget) -> Leftover | None:
        """The first leaf written by the last cell, with the number ``now``, that had a gradient left by an earlier
        cell; None if there is none, or the time limit ``budget`` is exceeded.

        A second call with the same number returns the same. ``found`` is what the notebook's names lead to.
        """
        if now == self._cell:
            return self._found
        self._cell, self._found = now, None
        holders = {id(each): optimizer.text for optimizer in found.optimizers for each in held_by(optimizer.value)}
        known: dict[int, _LeftoverLeaf] = {}
        stepped: list[tuple[Thing, int]] = []
        for thing in (*found.parameters, *found.tensors) if holders else ():
            leaf = thing.value
            if id(leaf) not in holders or id(leaf) in known:
                continue
            if not budget.goes_on():
                self._was |= known
                return None
            if not is_own(leaf) or leaf.is_inference() or not is_leaf(leaf):
                continue
            was, gradient = self._was.get(id(leaf)), leaf.grad
            moved = was is not None and was.version != leaf._version
            if was is not None and was.left and moved:
                stepped.append((thing, was.left))
            if gradient is None or not is_own(gradient) or gradient.is_inference():
                known[id(leaf)] = _LeftoverLeaf(leaf._version, 0, -1, 0)
                continue
            same = was is not None and (was.gradient, was.written) == (id(gradient), gradient._version)
            left = was.left if same and was is not None else now
            if moved or was is None or (not same and not has_numbers(thing, gradient)):
                left = 0
            known[id(leaf)] = _LeftoverLeaf(leaf._version, id(gradient), gradient._version, left)
        self._was = known
        if stepped:
            (first, left), others = stepped[0], len(stepped) - 1
            self._found = Leftover(first.text, first.path, holders[id(first.value)], others, left, now)
        return self._found


def has_numbers(leaf: Thing, gradient: Any) -> bool:
    """Whether ``gradient``, the gradient of ``leaf``, has elements other than zero; determined from a sample if one can
    be taken. True if the gradient is not on the CPU or not strided.
    """
    some = samples(Thing(leaf.path, leaf.text, "tensor", gradient))
    if some is not None:
        return bool((some != 0).any())
    return gradient.device.type != "cpu" or gradient.layout is not torch.strided or bool(gradient.detach().any())
