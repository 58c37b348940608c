"""The record that the engine returns for a call: nodes created, storages written, saved tensors made stale."""

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
    """A node that ran in backward, with the gradient it received (None when unknown) and that gradient's shape.

    ``parts``: where several gradients were added up to it, and all are known and have at most ``CELL_LIMIT`` elements,
    each with the node it came from.
    """

    node: Node
    gradient: np.ndarray | None
    shape: Shape
    parts: tuple[tuple[Node, np.ndarray], ...] = ()


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A silently wrong gradient of ``leaf``: the one torch computes, the one without the overwrites, and
    the saved tensors overwritten.
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
    """What one call did.

    ``result`` has the structure of torch's. ``nodes`` were created, in this order. ``writes`` are the storages written.
    ``stale`` are the saved tensors that this call made invalid: backward will raise. ``ran`` and ``harms`` are of a
    backward, as are the ``passed`` nodes: those that ran in a backward without values.
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
