"""Runs the shadow's backward up to each point where torch runs user code, and continues it with what that code returned
(:class:`Listening`).

Only torch can run hooks, a custom Function's ``backward`` and nodes without a model. The shadow's backward is suspended
before each of them. Hooks on torch's nodes report when torch gets there and which gradients the user code returned; the
shadow continues with these.
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
    """One backward of the shadow that is suspended (``waiting``) while torch runs the same backward, ``call``.

    :meth:`finish` must be called when torch's backward has returned or raised.
    """

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
        """The error that the user code running now gets if it reads its node's saved tensors, or None."""
        return self.waiting.stop.refusal if self.waiting.stop is not None else None

    def _place(self, call: Call) -> None:
        """Register a hook on every node of torch's graph at which the shadow's backward will be suspended."""
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
        """Called when torch reaches a hooked node: continue the shadow's backward to its next suspension."""
        if self._lost or self._memory.get("predicted") is not None:
            return
        try:
            self._skip_leaves()
            stop = self.waiting.stop
            if stop is None or (stop.node, stop.after) != key:
                self._lost = (
                    True  # torch and the shadow run different nodes: later gradients cannot be assigned to nodes
                )
                return
            self.waiting.resume(
                [self._seen(real, given if stop.after else ()) for real in (outgoing if stop.after else given)]
            )
        except ShadowError as predicted:
            self._memory["predicted"] = predicted.with_traceback(None)
        except Exception:  # it would be raised in the learner's backward
            self._lost = True

    def _skip_leaves(self) -> None:
        """Resume the shadow's backward where it is suspended after a leaf: the effects of a leaf's hooks are observed
        when they run.
        """
        while (stop := self.waiting.stop) is not None and stop.after and stop.node.leaf is not None:
            self.waiting.resume()

    def _seen(self, real: Any, given: tuple[Any, ...]) -> Seen | None:
        if real is None:
            return None
        same = next((index for index, other in enumerate(given) if other is real), None)
        known = self._records.find(real)
        return Seen(
            tuple(real.shape),
            tensor_facts.window_values(real, self._limit),
            same,
            None if known is None else known.shadow,
        )

    def recognise(self, real: Any) -> ShadowTensor | None:
        """Return the shadow of a gradient that user code has received (``real``), found by its values; None if these
        are unknown or no gradient has them.
        """
        numbers = tensor_facts.window_values(real, self._limit)
        if numbers is None or self._lost:
            return None
        known = self._records.storage_of(tensor_facts.read(real)) is not None
        return self.waiting.recognise(numbers, DType(tensor_facts.dtype_name(real.dtype)), on_known_memory=known)

    def finish(self, *, failed: bool, by_engine: bool = False) -> Applied:
        """Remove the hooks and continue the shadow's backward with what is known; return what it did. An error that the
        shadow predicts is stored in the memory of the call, as ``predicted``.

        Unless ``failed`` (torch's call raised), the backward is run to its end. If torch's engine raised
        (``by_engine``), it is run past leaves to the next node that waits for a gradient, because the error may have
        occurred after a leaf, whose hooks do not change other gradients.
        """
        self._posts.leave()
        try:
            if by_engine and not self._lost and self._memory.get("predicted") is None:
                self._skip_leaves()
            while not failed and self.waiting.stop is not None and self._memory.get("predicted") is None:
                self.waiting.resume()
        except ShadowError as predicted:
            self._memory["predicted"] = predicted.with_traceback(None)
        return self.waiting.applied()
