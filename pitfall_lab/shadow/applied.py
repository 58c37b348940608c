"""The record that the engine returns for a call: nodes created, storages written, saved tensors made stale.
:class:`Applied` is that record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pitfall_lab.shadow.graph import Node, Saved
from pitfall_lab.shadow.hooks import Suspended
from pitfall_lab.shadow.storage import ShadowTensor, Shape, Storage

if TYPE_CHECKING:
    from pitfall_lab.shadow.gradient import Gradient

Arrived = tuple[ShadowTensor, "Gradient"]
"""A tensor that received a gradient in backward (its ``.grad``, or a result of
``autograd.grad``), and that gradient.
"""
Record = tuple[
    list[Node],
    list[tuple[Node, Saved]],
    list[Storage],
    list["NodeRun"],
    list[Node],
    list["WrongGradient"],
    list[str],
    list[Arrived],
]


class NodeRun(NamedTuple):
    """A node that ran in backward.

    ``node`` is the graph node. ``gradient`` is the gradient of its first output that it received, after hooks; None
    where no gradient arrived or its values are unknown. ``shape`` is the shape of that gradient. ``parts`` are the
    summands of that gradient, each with the node that sent it; ``()`` if there was only one, or if one is unknown or
    has more than ``CELL_LIMIT`` elements.
    """

    node: Node
    gradient: np.ndarray | None
    shape: Shape
    parts: tuple[tuple[Node, np.ndarray], ...] = ()


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A gradient that backward computed wrongly without an error, because values that nodes had saved were overwritten.

    ``leaf`` is the tensor with the gradient: a leaf, a result with ``retain_grad``, or an input of ``autograd.grad``.
    ``torch`` is the gradient that torch computes, ``meant`` the gradient computed from the values that were saved. Both
    include what ``.grad`` held before, and each is None if it is unknown. ``causes`` are the overwritten saved tensors,
    each as a pair with the node that saved it.
    """

    leaf: ShadowTensor
    torch: np.ndarray | None
    meant: np.ndarray | None
    causes: tuple[tuple[Node, Saved], ...]


Harmed = WeakKeyDictionary[ShadowTensor, tuple[np.ndarray | None, np.ndarray | None]]
"""For each leaf whose gradient was silently wrong: the gradient that torch accumulated up to
then, and the one that was meant.
"""


class Applied(NamedTuple):
    """What one call did: the record that :meth:`Engine.call` returns.

    ``result`` has the structure of torch's result, with shadow tensors instead of tensors. ``nodes`` are the nodes that
    the call created, in the order of their creation; ``writes`` are the storages that it wrote. ``stale`` are pairs of
    a node and a tensor saved by it whose version differs from the saved one since this call, so that a backward through
    the node will raise.

    The other fields are set by a backward only. ``ran`` are the nodes that ran, in order; for a backward that computes
    no values, ``ran`` is empty and ``passed`` has the nodes. ``harms`` are the gradients that are wrong without an
    error. ``arrived`` are pairs of the new ``.grad`` (or the result of ``autograd.grad``) and the gradient that it was
    made from.
    """

    result: Any = None
    nodes: tuple[Node, ...] = ()
    writes: tuple[Storage, ...] = ()
    stale: tuple[tuple[Node, Saved], ...] = ()
    ran: tuple[NodeRun, ...] = ()
    passed: tuple[Node, ...] = ()
    harms: tuple[WrongGradient, ...] = ()
    arrived: tuple[Arrived, ...] = ()
    ran_user_code: bool = False
    """Whether the call was suspended at least once for user code."""
    waiting: Suspended | None = None
    """The suspended call while it waits for user code (a hook, a custom backward); None when the call is over."""

    @property
    def nodes_run(self) -> Sequence[Node]:
        """Return the nodes that a backward ran, in the order in which they ran."""
        return self.passed or [run.node for run in self.ran]
