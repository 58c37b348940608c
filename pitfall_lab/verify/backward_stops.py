"""Listening: the shadow's backward waits where the program's own code runs, and torch tells what came out of it.

Hooks, a custom Function's ``backward`` and nodes without a model are torch's to run. The shadow stops in front of each, exactly
where torch will be when it runs that code, takes over the gradients that come out, and goes on modelling.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.argument_values import tensors
from pitfall_lab.observe.gradient_hooks import Posts, may_listen
from pitfall_lab.observe.recorder import Call
from pitfall_lab.shadow import Applied, DType, Node, Seen, ShadowError, ShadowTensor, Suspended
from pitfall_lab.verify.shared_state import World

Key = tuple[Node, bool]


class Listening:
    """One backward that waits. Ends with :meth:`finish`, whatever becomes of the call."""

    def __init__(self, world: World, call: Call, waiting: Suspended) -> None:
        self._records, self._limit = world.records, world.limit
        self._memory = call.memory
        self.waiting = waiting
        self._lost = not may_listen()
        self._posts = Posts(self._came)
        if not self._lost:
            self._place(call)

    @property
    def refusal(self) -> ShadowError | None:
        """The error that the code which runs now gets if it asks for what its node saved."""
        return self.waiting.stop.refusal if self.waiting.stop is not None else None

    def _place(self, call: Call) -> None:
        """Put a post at every node of torch's graph at which the shadow will stop."""
        stack = [node for real in tensors(call.args[:1]) if (node := tensor_facts.node_of(real)) is not None]
        done: set[Any] = set()
        while stack:
            node = stack.pop()
            key = tensor_facts.node_key(node)
            if key in done:
                continue
            done.add(key)
            mine = self._records.nodes.get(key)
            if mine is not None:
                hooked, foreign = self.waiting.stops_at(mine)
                if hooked:
                    self._posts.before(node, (mine, False))
                if foreign and mine.leaf is None:
                    self._posts.after(node, (mine, True))
            stack += [child for child, _ in tensor_facts.next_nodes(node) if child is not None]

    def _came(self, key: Key, given: tuple[Any, ...], outgoing: tuple[Any, ...]) -> None:
        """Torch is at a post: bring the shadow there, and on to where it has to wait next."""
        if self._lost or self._memory.get("predicted") is not None:
            return
        try:
            self._skip_leaves()
            stop = self.waiting.stop
            if stop is None or (stop.node, stop.after) != key:
                self._lost = True  # the two go different ways: from here on nobody knows what came out where
                return
            self.waiting.go_on([self._seen(real, given if stop.after else ()) for real in (outgoing if stop.after else given)])
        except ShadowError as predicted:
            self._memory["predicted"] = predicted.with_traceback(None)
        except Exception:  # it would surface in the learner's backward
            self._lost = True

    def _skip_leaves(self) -> None:
        """What a leaf's hooks do when it has its gradient is seen where they do it."""
        while (stop := self.waiting.stop) is not None and stop.after and stop.node.leaf is not None:
            self.waiting.go_on()

    def _seen(self, real: Any, given: tuple[Any, ...]) -> Seen | None:
        if real is None:
            return None
        same = next((index for index, other in enumerate(given) if other is real), None)
        known = self._records.find(real)
        return Seen(tuple(real.shape), tensor_facts.window_values(real, self._limit), same, None if known is None else known.shadow)

    def recognise(self, real: Any) -> ShadowTensor | None:
        """The shadow of a gradient that the program's code has in its hands now."""
        numbers = tensor_facts.window_values(real, self._limit)
        if numbers is None or self._lost:
            return None
        known = self._records.storage_of(tensor_facts.read(real)) is not None
        return self.waiting.recognise(numbers, DType(tensor_facts.dtype_name(real.dtype)), on_known_memory=known)

    def finish(self, *, failed: bool, by_engine: bool = False) -> Applied:
        """Take the posts away and run on with what is known.

        After a call that returned, to the end; after one that torch's engine itself ended, to the next place where it would have
        waited for a gradient: it may have failed behind a leaf, whose hooks take part in nothing.
        """
        self._posts.leave()
        try:
            if by_engine and not self._lost and self._memory.get("predicted") is None:
                self._skip_leaves()
            while not failed and self.waiting.stop is not None and self._memory.get("predicted") is None:
                self.waiting.go_on()
        except ShadowError as predicted:
            self._memory["predicted"] = predicted.with_traceback(None)
        return self.waiting.applied()
