"""Reads the grad_fn of a live tensor without regenerating a view's stale grad_fn (:func:`history`).

Torch regenerates the grad_fn of a view if it is read after the view's storage was written, and a program could notice
that. So it is not read for a view that may be in that state; graph walks then start from the grad_fn of its base.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.tensor_facts import base_of


class History(NamedTuple):
    """How a tensor was computed. ``state`` is ``leaf`` (requires grad, no grad_fn), ``graph`` (also if the grad_fn was
    not read) or ``none`` (does not require grad); ``node`` is the ``grad_fn``, None if there is none or it was not
    read.

    ``root`` is the node where a walk of the graph starts: the grad_fn, or the base's; None if there is none.
    ``readable``: False if the grad_fn was not read, as it may be stale.
    """

    state: str
    node: Any = None
    root: Any = None
    readable: bool = True


def history(tensor: torch.Tensor, version: int | None) -> History:
    """The history of a tensor of one of torch's own classes. ``version`` is its present version: the grad_fn of a view
    is read only if it is 0, as it may be stale otherwise.
    """
    if not tensor.requires_grad:
        return History("none")
    if not tensor._is_view() or version == 0:
        node = tensor.grad_fn
        return History("leaf" if node is None else "graph", node, node)
    base = base_of(tensor)
    return History("graph", None, base.grad_fn if base is not None else None, readable=False)


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires grad and was not computed; False also for a view that is a leaf, as its grad_fn is not
    read.
    """
    return bool(tensor.requires_grad and not tensor._is_view() and tensor.grad_fn is None)
