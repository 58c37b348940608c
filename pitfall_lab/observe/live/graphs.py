"""Reads the graphs of live tensors: the nodes and their saved tensors, mostly without unpacking these (:func:`kept`).

Unpacking runs hooks and may raise. It is done only for a saved tensor whose version is above 0 when it is first seen,
and for one whose version has changed: torch's own version check then decides whether backward would raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe import private, tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.object_kinds import is_own

RAW = "_raw_saved_"
_SLOTS: dict[type, tuple[str, ...]] = {}
_RUNNING = ("running_mean", "running_var")
Key = tuple[Any, ...]


class SavedNow(NamedTuple):
    """A saved tensor of a node, with its present ``version``.

    ``node`` is the node, ``key`` identifies it without keeping it alive (:func:`.tensor_facts.node_key`); ``slot`` is
    torch's name for the saved tensor (``result``), ``index`` its index in a slot with several tensors (None: it is the
    slot's only one). ``raw`` is torch's ``SavedTensor`` object, ``tensor`` the saved tensor. It holds references, so it
    must not be kept.
    """

    node: Any
    key: Key
    slot: str
    index: int | None  # type: ignore[assignment] # a tuple's method of that name is not used
    raw: Any
    tensor: torch.Tensor
    version: int

    def taken(self) -> bool:
        """Whether the saved tensor passes torch's version check, so that backward would not raise."""
        return not self.refusal()

    def refusal(self) -> str:
        """The message of the error that backward would raise for the saved tensor; empty if it would not raise."""
        try:
            self.unpack()
        except RuntimeError as error:
            return str(error)
        return ""

    def unpack(self) -> None:
        """Unpack the saved tensor as backward would; raises the error that backward would raise."""
        _unpack(self.node, self.slot, self.raw if self.index is not None else None)

    def saved_at(self) -> int | None:
        """Return the version at which the tensor was saved; None if it cannot be found."""
        return tensor_facts.saved_version(self.tensor, self.unpack)


def walk(roots: Iterable[Any], budget: Budget) -> list[Any]:
    """The nodes in the graphs of the nodes ``roots`` (None is ignored): these first, then the nearest first, as far as
    the time limit ``budget`` allows.
    """
    seen: dict[Any, None] = dict.fromkeys(root for root in roots if root is not None)
    found = list(seen)
    for node in found:  # the list grows during the iteration
        if not budget.goes_on():
            break
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen[following] = None
                found.append(following)
    return found


def kept(node: Any) -> Iterator[SavedNow]:
    """The tensors that a node has saved, without those that were freed by a backward or packed by hooks, inference
    tensors, and those of other classes than Tensor and Parameter.
    """
    names = _slots(type(node))
    if not names:
        return
    key = None
    for name in names:
        try:
            raw = getattr(node, RAW + name)
        except RuntimeError:  # a custom Function whose saved tensors were freed
            continue
        many = type(raw) is tuple
        for index, saved in enumerate(raw if many else (raw,)):
            if saved.unpack_hook is not None:
                continue
            tensor = saved.data
            if tensor is None or not is_own(tensor) or tensor.is_inference():
                continue
            if key is None:
                key = tensor_facts.node_key(node)
            yield SavedNow(node, key, name, index if many else None, saved, tensor, tensor._version)


def _slots(kind: type) -> tuple[str, ...]:
    known = _SLOTS.get(kind)
    if known is None:
        if issubclass(kind, torch.autograd.function.BackwardCFunction):
            return ("tensors",)  # each Function of the program has its own class, which must not be kept alive
        known = _SLOTS[kind] = (
            tuple(name.removeprefix(RAW) for name in dir(kind) if name.startswith(RAW)) if private.has_saved else ()
        )
    return known


def _unpack(node: Any, slot: str, one: Any) -> None:
    """Unpack the tensor ``one`` of a slot with several, if torch can do so (from 2.11 on); else the whole slot."""
    if one is not None and hasattr(one, "unpack"):
        one.unpack()
    else:
        getattr(node, "saved_tensors" if slot == "tensors" else f"_saved_{slot}")


def is_read_in_backward(slot: SavedNow) -> bool:
    """Whether backward uses the values of the saved tensor ``slot``: batch normalization in training mode saves its
    running statistics but does not use them.
    """
    return not (slot.slot in _RUNNING and getattr(slot.node, "_saved_training", False))


def is_freed(node: Any) -> bool:
    """Whether a backward has freed saved tensors of the node; False if the node has saved none, or hooks have packed
    all of them.
    """
    for name in _slots(type(node)):
        try:
            raw = getattr(node, RAW + name)
            for saved in raw if type(raw) is tuple else (raw,):
                if saved.unpack_hook is None and saved.data is None:
                    _unpack(node, name, saved if type(raw) is tuple else None)
        except RuntimeError:
            return True
    return False


def reach(root: Any, among: set[Any], budget: Budget) -> set[Any]:
    """The nodes of the set ``among`` that a backward from ``root`` would reach. ``budget`` is the time limit."""
    return among.intersection(walk([root], budget))
