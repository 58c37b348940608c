"""The node behind a live tensor, without giving a view its history anew.

Torch makes the node of a view again when it is asked for it and the view's memory has been written since: a program could notice. So a view
that may be in that state is not asked; what can be gone back through is then the history of its base.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.tensor_facts import base_of


class History(NamedTuple):
    """``state`` is ``leaf`` (it collects a gradient), ``graph`` or ``none``; ``node`` its ``grad_fn`` where it could be asked.

    ``root`` is where a walk begins: the node, or that of the base.
    """

    state: str
    node: Any = None
    root: Any = None
    asked: bool = True


def history(tensor: torch.Tensor, version: int | None) -> History:
    """The history of a tensor of torch's own class."""
    if not tensor.requires_grad:
        return History("none")
    if not tensor._is_view() or version == 0:
        node = tensor.grad_fn
        return History("leaf" if node is None else "graph", node, node)
    base = base_of(tensor)
    return History("graph", None, base.grad_fn if base is not None else None, asked=False)
