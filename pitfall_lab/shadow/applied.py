"""What a call did: the record that the engine returns, and the parts of it that belong to a backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pitfall_lab.shadow.graph import Node, Saved
from pitfall_lab.shadow.hooks import Suspended
from pitfall_lab.shadow.storage import ShadowTensor, Shape, Storage

if TYPE_CHECKING:
    from pitfall_lab.shadow.gradient import Gradient

Arrived = tuple[ShadowTensor, "Gradient"]
"""What got a gradient in a backward (a ``.grad``, or a result of ``autograd.grad``), and the gradient."""
Record = tuple[
    list[Node], list[tuple[Node, Saved]], list[Storage], list["NodeRun"], list[Node], list["Harm"], list[str], list[Arrived]
]


class NodeRun(NamedTuple):
    """A node that ran in backward, with the gradient it received (None when unknown) and that gradient's shape."""

    node: Node
    gradient: np.ndarray | None
    shape: Shape


@dataclass(frozen=True, slots=True)
class Harm:
    """A silently wrong gradient: what torch gives ``leaf``, what was meant, and the saved tensors that were overwritten."""

    leaf: ShadowTensor
    torch: np.ndarray | None
    meant: np.ndarray | None
    causes: tuple[tuple[Node, Saved], ...]


class Applied(NamedTuple):
    """What one call did.

    ``result`` has torch's structure. ``nodes`` were created, in this order. ``writes`` are the storages written.
    ``stale`` are the saved tensors that became invalid by this call: the forecast. ``ran`` and ``harms`` belong to backward, and so do the
    ``passed`` nodes, that one ran which has followed no numbers.
    """

    result: Any = None
    nodes: tuple[Node, ...] = ()
    writes: tuple[Storage, ...] = ()
    stale: tuple[tuple[Node, Saved], ...] = ()
    ran: tuple[NodeRun, ...] = ()
    passed: tuple[Node, ...] = ()
    harms: tuple[Harm, ...] = ()
    arrived: tuple[Arrived, ...] = ()
    asked: bool = False
    """The call had to wait on its way."""
    waiting: Suspended | None = None
    """Set when the call is not over: it waits for what the program's own code does inside it."""

    @property
    def nodes_run(self) -> Sequence[Node]:
        """The nodes that a backward ran, in this order."""
        return self.passed or [run.node for run in self.ran]
