"""Makes the rows of the live panel for the objects inside a module, an optimizer, a list or a dict; for parameters with
norms, gradient norms and the relative size of the last update (:func:`children`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.found import Found, Path, Thing, is_shown, parts
from pitfall_lab.observe.live.namespace_rows import Row, Table
from pitfall_lab.observe.live.object_kinds import Kinds, held_by, is_own, tables

MOST = 500
NUMBERS = 1 << 20
"""The norm of a tensor with more elements than this is not computed."""


def resolve(namespace: Any, path: Path) -> Thing | None:
    """Return the object to which the path of a row leads, as a :class:`Thing`; None if there is none, if its name is
    not shown (see :func:`is_shown`), or if :func:`members` does not list it.
    """
    kinds = Kinds()
    value = namespace.get(path[0]) if is_shown(path[0]) else None
    kind = kinds.of(value)
    thing = Thing(path[:1], path[0], kind, value) if kind else None
    for step in path[1:]:
        thing = (
            next((each for each in members(thing, kinds) if each.path[-1] == step), None) if thing is not None else None
        )
    return thing


def members(thing: Thing, kinds: Kinds) -> list[Thing]:
    """Return the objects directly inside the object of ``thing``: the parameters, buffers and submodules of a module,
    the tensors that an optimizer trains, the entries of a list, tuple or dict; an empty list for others.

    Only the first :data:`MOST` (500) of a module or optimizer, and the first 256 entries of a list, tuple or dict.
    ``kinds`` determines the kind of each object; objects without a kind are left out.
    """
    if thing.kind == "module":
        parameters, buffers, children = tables(thing.value)
        named = [*parameters.items(), *buffers.items(), *children.items()]
        return [
            Thing((*thing.path, name), f"{thing.text}.{name}", kind, value)
            for name, value in named[:MOST] if type(name) is str and (kind := kinds.of(value)) in ("tensor", "module")
        ]  # fmt: skip
    if thing.kind == "optimizer":
        return [
            Thing((*thing.path, str(at)), f"{thing.text}[{at}]", "tensor", each)
            for at, each in enumerate(held_by(thing.value)[:MOST]) if kinds.of(each) == "tensor"
        ]  # fmt: skip
    return list(parts(thing, kinds)) if thing.kind == "group" else []


def children(thing: Thing, found: Found, table: Table, updates: Updates) -> list[Row]:
    """The rows of the objects inside ``thing`` (see :func:`members`), made by ``table``; the rows of tensors of torch's
    own classes also get the details shown for parameters, in ``detail``.

    ``found`` is what the notebook's names lead to, ``updates`` has the values that were read before.
    """
    owners = {id(each): optimizer.text for optimizer in reversed(found.optimizers) for each in held_by(optimizer.value)}
    names = {id(each.value): each.text for each in reversed(found.parameters)}
    made = []
    for each in members(thing, Kinds()):
        row = table.row(each)
        if each.kind == "tensor" and is_own(each.value):
            row["detail"] = _detail(each.value, owners.get(id(each.value)), row["id"], updates)
            if thing.kind == "optimizer":
                row["name"] = names.get(id(each.value), row["name"])
        made.append(row)
    return made


def _detail(tensor: torch.Tensor, optimizer: str | None, at: str, updates: Updates) -> Row:
    numbers = _numbers(tensor)
    leaf = not tensor._is_view() and tensor.grad_fn is None
    gradient = _numbers(tensor.grad) if leaf and tensor.grad is not None else None
    return {
        "norm": _norm(numbers), "grad_norm": _norm(gradient), "ratio": updates.ratio(at, numbers),
        "frozen": not tensor.requires_grad, "optimizer": optimizer,
    }  # fmt: skip


def _numbers(tensor: torch.Tensor) -> np.ndarray | None:
    numbers = tensor_facts.window_values(tensor, NUMBERS) if tensor.layout is torch.strided else None
    return numbers if numbers is not None and numbers.dtype.kind in "fiu" else None


def _norm(numbers: np.ndarray | None) -> float | None:
    if numbers is None:
        return None
    with np.errstate(all="ignore"):
        found = float(np.sqrt(np.square(numbers, dtype=np.float64).sum()))
    return found if math.isfinite(found) else None


class Updates:
    """The relative size of a parameter's change since the last cell.

    For parameters whose rows were unfolded, a sample of at most 256 values is kept, from which the ratio is computed.
    """

    SAMPLED = 256

    def __init__(self) -> None:
        self._was: dict[str, tuple[int, np.ndarray]] = {}
        self._is: dict[str, tuple[int, np.ndarray]] = {}
        self._cell = 0

    def begin(self, cell: int) -> None:
        """Called when cell ``cell`` has ended: from now on changes are measured from the values that were read since
        the previous call. A second call with the same number changes nothing.
        """
        if cell != self._cell:
            self._was, self._is, self._cell = self._is, {}, cell

    def ratio(self, at: str, numbers: np.ndarray | None) -> float | None:
        """The norm of the change of the values ``numbers`` in the row with the id ``at``, divided by the norm of the
        old values, both of a sample.

        None if ``numbers`` is None, if there are no old values or a different number of them, or if the ratio is not
        finite. The sample is kept, as the old values after the next cell.
        """
        if numbers is None:
            return None
        flat = numbers.reshape(-1)
        sample = flat[:: max(1, flat.size // self.SAMPLED)][: self.SAMPLED].astype(np.float64)
        self._is[at] = flat.size, sample
        size, was = self._was.get(at, (-1, sample))
        if size != flat.size:
            return None
        with np.errstate(all="ignore"):
            found = float(np.linalg.norm(sample - was) / np.linalg.norm(was))
        return found if math.isfinite(found) else None
