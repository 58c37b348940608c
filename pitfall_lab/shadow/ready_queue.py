"""Determines which node of a backward pass runs next: :class:`ReadyQueue`.

Source in torch: ``ReadyQueue`` in ``torch/csrc/autograd/engine.h``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pitfall_lab.shadow.graph import Node


class ReadyQueue:
    """The nodes that have received all their gradients; ``pop`` returns the one with the highest sequence number.

    That is the node that was created last. All AccumulateGrad nodes have the same sequence number, and their order
    determines which of two leaves gets a copy of a gradient. The heap is therefore the same as in libstdc++, which
    torch uses (``std::push_heap``, ``std::pop_heap``).
    """

    def __init__(self) -> None:
        self.heap: list[Node] = []
        """The nodes in heap order."""

    def __bool__(self) -> bool:
        return bool(self.heap)

    def push(self, node: Node) -> None:
        """Add a node."""
        self.heap.append(node)
        self._rise(len(self.heap) - 1, node)

    def _rise(self, place: int, node: Node) -> None:
        heap = self.heap
        while place and heap[(place - 1) // 2].sequence < node.sequence:
            heap[place] = heap[(place - 1) // 2]
            place = (place - 1) // 2
        heap[place] = node

    def pop(self) -> Node:
        """Remove and return the next node."""
        heap = self.heap
        first, last = heap[0], heap.pop()
        size = len(heap)
        if size:
            place = 0
            while 2 * place + 2 < size:
                child = 2 * place + 2
                child -= heap[child].sequence < heap[child - 1].sequence
                heap[place] = heap[child]
                place = child
            if 2 * place + 1 < size:
                heap[place] = heap[2 * place + 1]
                place = 2 * place + 1
            self._rise(place, last)
        return first
