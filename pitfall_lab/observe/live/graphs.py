"""The graphs behind live tensors: their nodes, and what each has saved, read without unpacking.

Unpacking runs hooks and raises, so it is done only where a saved tensor is first met at a version above 0, and where one has moved: then it
is torch itself that says whether it would still take it.
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


class Kept(NamedTuple):
    """A tensor that a node has saved, as it is now. ``unpack`` is what torch would do in a backward."""

    node: Any
    key: Key
    slot: str
    index: int | None
    raw: Any
    tensor: torch.Tensor
    version: int

    def taken(self) -> bool:
        """Whether torch would still take it."""
        return not self.refusal()

    def refusal(self) -> str:
        """What torch would raise in a backward; empty where it would take it."""
        try:
            self.unpack()
        except RuntimeError as error:
            return str(error)
        return ""

    def unpack(self) -> None:
        """Do what a backward would do first; raises what it would raise."""
        _unpack(self.node, self.slot, self.raw if self.index is not None else None)

    def saved_at(self) -> int | None:
        """The version that torch would take; ``None`` where it cannot be found."""
        return tensor_facts.saved_version(self.tensor, self.unpack)


def walk(roots: Iterable[Any], budget: Budget) -> list[Any]:
    """The nodes behind ``roots``, nearest first."""
    seen: dict[Any, None] = dict.fromkeys(root for root in roots if root is not None)
    found = list(seen)
    for node in found:  # grows while it is read
        if not budget.goes_on():
            break
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen[following] = None
                found.append(following)
    return found


def kept(node: Any) -> Iterator[Kept]:
    """What a node still holds; not what a backward has freed or what hooks have packed."""
    names = _slots(type(node))
    if not names:
        return
    key = None
    for name in names:
        try:
            raw = getattr(node, RAW + name)
        except RuntimeError:  # a custom Function that has been freed
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
            yield Kept(node, key, name, index if many else None, saved, tensor, tensor._version)


def _slots(kind: type) -> tuple[str, ...]:
    known = _SLOTS.get(kind)
    if known is None:
        if issubclass(kind, torch.autograd.function.BackwardCFunction):
            return ("tensors",)  # each Function of the program's has a class of its own, which must not be kept
        known = _SLOTS[kind] = tuple(name.removeprefix(RAW) for name in dir(kind) if name.startswith(RAW)) if private.has_saved else ()
    return known


def _unpack(node: Any, slot: str, one: Any) -> None:
    """Unpack what a slot holds: one of its tensors where torch can (from 2.11 on), else all."""
    if one is not None and hasattr(one, "unpack"):
        one.unpack()
    else:
        getattr(node, "saved_tensors" if slot == "tensors" else f"_saved_{slot}")


def is_read_in_backward(slot: Kept) -> bool:
    """Whether backward uses the numbers: batch normalization in training mode saves its running statistics and does not use them."""
    return not (slot.slot in _RUNNING and getattr(slot.node, "_saved_training", False))


def is_freed(node: Any) -> bool:
    """Whether a backward has been through here and freed what the node had saved."""
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
    """Those of ``among`` that a backward from ``root`` would come to."""
    return among.intersection(walk([root], budget))
