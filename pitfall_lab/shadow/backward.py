"""The backward pass: runs the newest node first, sums gradients where paths meet, and sets ``.grad`` of each leaf.

:class:`Pass` is one backward pass.

Source in torch: ``torch/csrc/autograd/engine.cpp`` (``compute_dependencies``, ``evaluate_function``). Like torch's, it
is iterative: a chain of 100,000 operations needs no deep call stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.applied import Harmed, NodeRun, WrongGradient
from pitfall_lab.shadow.dtypes import FLOAT32 as _FLOAT
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.gradient import (
    Gradient,
    Held,
    as_tensor,
    converted,
    handed_through,
    is_permuted,
    is_rounding,
    memory,
    plus,
    retained,
    rounded_once,
    sum_to,
    swapped,
)
from pitfall_lab.shadow.graph import (
    FIRST,
    NO_DERIVATIVE,
    Edge,
    Graph,
    Meta,
    Node,
    RaisingVjp,
    Saved,
    Written,
    full_name,
    unpack,
)
from pitfall_lab.shadow.hooks import AFTER, Answer, Seen, Stop
from pitfall_lab.shadow.origins import FormulaPart, Step
from pitfall_lab.shadow.ready_queue import ReadyQueue
from pitfall_lab.shadow.storage import ShadowTensor, Shape
from pitfall_lab.trace import CELL_LIMIT

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pitfall_lab.shadow.dtypes import DType

MANY = 2
"""From this number of gradients on, what a node receives is recorded as a sum."""


@dataclass
class Pass:
    """One backward pass: how many gradients each node still waits for, and the gradients that have arrived.

    ``roots`` are the edges at which the pass starts, each with its first gradient. ``captures`` maps (``id`` of a node,
    index of its output) to the indices in the result of ``autograd.grad`` at which the gradient that arrives there is
    returned; it is empty for ``backward()``. ``captured`` maps such an index to its gradient. ``keep_graph`` says that
    the saved tensors are not freed (``retain_graph``).

    ``nodes``, ``waiting`` and ``arrived`` have the ``id`` of a node as key. ``nodes`` are those that can be reached
    from the roots. ``waiting`` is the number of gradients that a node has still to receive. ``arrived`` has the
    gradients received so far, one sum per output of the node (None: none yet).

    In torch: ``GraphTask`` in ``torch/csrc/autograd/graph_task.h``; torch has one thread and one queue for each device.
    """

    engine: Engine
    roots: list[tuple[Edge, Gradient]]
    captures: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    targets: set[int] | None = None
    """Ids of the nodes that must run (``inputs=``, ``autograd.grad``); None: all."""
    keep_graph: bool = False
    as_meant: bool = False
    """True in a second run, with the values that the saved tensors had when they were saved: nothing is checked, freed
    or accumulated.
    """
    altered: bool = False
    """Whether a user hook replaced a gradient.

    The run ``as_meant`` is not compared then: the hook did not get its gradients.
    """
    captured: dict[int, Gradient | None] = field(default_factory=dict)
    filled: dict[int, tuple[ShadowTensor, Gradient]] = field(default_factory=dict)
    """The tensors whose ``.grad`` was filled so far (leaves, and results with
    ``retain_grad``), by id, with the gradient.
    """
    nodes: dict[int, Node] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, list[Gradient | None]] = field(default_factory=dict)
    parts: dict[int, list[tuple[Node, np.ndarray | None]]] = field(default_factory=dict)
    """By node, the gradients that are added up to its first one, with the nodes that they come from."""

    def plan(self) -> None:
        """Find every node that can be reached from the roots (``nodes``) and count the edges that lead to it
        (``waiting``).

        Raises :class:`Unmodelled` if a node has a derivative that is not modelled.
        """
        stack = [node for (node, _), _ in self.roots if node is not None]
        for node in stack:
            self.waiting[id(node)] = self.waiting.get(id(node), 0) + 1
        while stack:
            node = stack.pop()
            if id(node) in self.nodes:
                continue
            self.nodes[id(node)] = node
            if node.name == NO_DERIVATIVE and node.vjp is None:
                raise Unmodelled("the backward reaches an operation whose derivative is not modelled")
            for child in node.children:
                if child is not None:
                    self.waiting[id(child)] = self.waiting.get(id(child), 0) + 1
                    stack.append(child)

    def restrict(self, wanted: Iterable[int]) -> None:
        """Set ``targets`` to the nodes in ``wanted`` and all nodes from which one of these can be reached.

        ``wanted`` has the ``id`` of nodes. Only the nodes in ``targets`` run. In torch: ``GraphTask::init_to_execute``.
        """
        needed = set(wanted)
        done: set[int] = set()
        for start in list(self.nodes.values()):
            stack: list[tuple[Node, bool]] = [(start, False)]
            while stack:
                node, left = stack.pop()
                if left:
                    if any(child is not None and id(child) in needed for child in node.children):
                        needed.add(id(node))
                elif id(node) not in done:
                    done.add(id(node))
                    stack.append((node, True))
                    stack.extend((child, False) for child in node.children if child is not None)
        self.targets = needed

    def run(self) -> None:
        """Run the pass to its end without stopping for user code.

        Raises :class:`ShadowError` where torch raises, after everything that torch does before that error, and whatever
        :meth:`steps` raises.
        """
        for stop in self.steps():
            raise AssertionError(f"the gradients that user code returned at {stop.node} are not known")

    def steps(self) -> Generator[Stop, Answer, None]:
        """Run the pass, stopping for user code if ``engine.pauses_for_user_code`` is set.

        It then yields a :class:`Stop` at every node with hooks or with a backward written by the user, and continues
        with the gradients that are sent back. Raises :class:`ShadowError` where torch raises, and :class:`Unmodelled`
        if it is not modelled what torch does.
        """
        pauses_for_user_code = self.engine.pauses_for_user_code and not self.as_meant
        queue = ReadyQueue()
        for (root, index), start in self.roots:
            self.deliver(queue, root, index, start, is_root=True)
        while queue:
            node = queue.pop()
            incoming = self.arrived.pop(id(node))
            runs = self.targets is None or self.must_run(node)
            if self.targets is not None:
                self.capture(node, incoming, runs)
            if not runs:
                continue
            if pauses_for_user_code and self.has_hooks(node):
                self.take(incoming, (yield Stop(node, incoming)))
            refusal = self.refusal(node) if pauses_for_user_code and self.checks_late(node) else None
            outgoing = self.evaluate(node, incoming)
            if pauses_for_user_code and self.is_foreign(node):
                answer = yield Stop(node, incoming, after=True, refusal=refusal)
                if answer is not None:
                    outgoing = [came_out(seen, incoming) for seen in answer]
                    self.check_nan(node, outgoing)
            self.hand_on(queue, node, outgoing)

    def hand_on(self, queue: ReadyQueue, node: Node, outgoing: list[Gradient | None]) -> None:
        """Add the outgoing gradients of a node to the sums of its child nodes.

        Nodes that have then received all their gradients are added to ``queue``.
        """
        for child, gradient in zip(node.children, outgoing, strict=False):
            if gradient is not None and (
                self.targets is None or id(child) in self.targets
            ):  # torch does not compute unneeded ones
                gradient.hold()
        for child, index, gradient in zip(node.children, node.indices, outgoing, strict=False):
            self.note(node, child, index, gradient)
            self.deliver(queue, child, index, gradient)

    def note(self, sender: Node, node: Node | None, index: int, gradient: Gradient | None) -> None:
        """Record in ``parts`` the gradient that ``sender`` sends to output ``index`` of ``node``.

        It does so only if ``index`` is 0 and ``node`` receives several gradients. The recorded gradient is a copy of
        the values, or None if these are unknown or more than ``CELL_LIMIT``.
        """
        if (
            node is None
            or index
            or gradient is None
            or self.as_meant
            or (self.waiting[id(node)] < MANY and id(node) not in self.parts)
        ):
            return
        known = gradient.array is not None and gradient.array.size <= CELL_LIMIT
        self.parts.setdefault(id(node), []).append((sender, np.array(gradient.array) if known else None))

    def added(self, node: Node) -> tuple[tuple[Node, np.ndarray], ...]:
        """Remove and return the gradients that were added up in ``node``, each as a pair with the node that sent it.

        The result is empty if there was only one, or if one is unknown or has more than ``CELL_LIMIT`` elements.
        """
        parts = self.parts.pop(id(node), [])
        known = tuple((sender, array) for sender, array in parts if array is not None)
        return known if MANY <= len(parts) == len(known) else ()

    def capture(self, node: Node, incoming: list[Gradient | None], runs: bool) -> None:
        """Keep the gradients in ``incoming`` that ``autograd.grad`` has to return.

        If the node runs (``runs``), they are kept as they are before the hooks. If it does not run, its hooks are run
        here, and the gradients are kept as they are after the hooks.
        """
        wanted = [
            (index, place) for index in range(len(incoming)) for place in self.captures.get((id(node), index), ())
        ]
        if not runs:
            if self.engine.pauses_for_user_code and self.has_hooks(node):
                self.take(incoming, None)  # these hooks cannot be observed; the result of autograd.grad will be
            self.hooks(node, incoming)
        for index, place in wanted:
            gradient = self.captured[place] = incoming[index]
            if gradient is not None:
                gradient.hold()

    # -- user code

    def stops(self) -> bool:
        """Whether the pass has to stop for user code at any node."""
        return any(self.has_hooks(node) or self.is_foreign(node) for node in self.nodes.values())

    def has_hooks(self, node: Node) -> bool:
        """Whether user hooks may see and replace the gradients that the node receives.

        It is True for every node if ``engine.suspicious`` is set, since there may then be node hooks, which cannot be
        observed. Post-accumulate-grad hooks count too, except those of a leaf that is a root.
        """
        hooks = node.hooks if node.leaf is None else node.leaf.hooks or ()
        if node.leaf is not None and any(root is node for (root, _), _ in self.roots):
            hooks = tuple(
                hook for hook in hooks if hook[0] != AFTER
            )  # for a leaf that is a root, only tensor hooks run first
        return self.engine.suspicious or bool(hooks)

    def is_foreign(self, node: Node) -> bool:
        """Whether the outgoing gradients of the node are computed by user code or have no model.

        User code is a custom Function, or ``saved_tensors_hooks`` that keep one of the saved tensors; only an engine
        with values needs a model. For a leaf, the result says whether it has post-accumulate-grad hooks. It is True for
        every other node if ``engine.suspicious`` is set, since there may then be node hooks.
        """
        if node.leaf is not None:
            return any(index == AFTER for index, _ in node.leaf.hooks or ())
        if self.engine.graph.has_packed and any(saved.packed for saved in node.saved):
            return True
        return self.engine.suspicious or node.lazy or (node.mirrored and self.engine.value_limit > 0)

    def checks_late(self, node: Node) -> bool:
        """Whether the versions of the node's saved tensors are checked only when user code reads
        ``saved_tensors``, if at all.
        """
        return node.lazy or self.engine.suspicious

    def refusal(self, node: Node) -> ShadowError | None:
        """The error that reading ``ctx.saved_tensors`` would raise in the node's user code, or None."""
        try:
            check_saved(node, self.engine.graph)
        except ShadowError as error:
            return error
        return None

    def take(self, incoming: list[Gradient | None], answer: Answer) -> None:
        """Replace each incoming gradient that a hook changed by the one in ``answer``; the others keep their storage.

        If ``answer`` is None, it is not known what the hooks returned: the gradients keep their shapes, and
        their values become unknown.
        """
        for index, gradient in enumerate(incoming):
            seen = None if answer is None or index >= len(answer) else answer[index]
            if answer is None:
                incoming[index] = None if gradient is None else Gradient(None, gradient.shape)
            elif gradient is None or not is_still(gradient, seen):
                incoming[index] = swapped(gradient, came_out(seen, ()))
                self.altered |= gradient is not None or seen is not None

    def run_without_numbers(self) -> None:  # noqa: C901 - one loop for many nodes
        """Do what :meth:`run` does, for an engine without values, when all nodes run: the graph alone says which
        gradients exist.
        """
        passed, keep_graph = self.engine.passed, self.keep_graph or self.engine.policy.graph_survives_backward
        roots = list(dict.fromkeys(root for (root, _), _ in self.roots if root is not None))
        waiting = _joins(roots)
        queue = ReadyQueue()
        heap = queue.heap
        for root in (each for each in roots if not waiting[each]):
            queue.push(root)
        while heap:
            node: Node | None = queue.pop()
            while node is not None:  # a chain needs no queue
                if node.retains:
                    self.hooks(node, [Gradient(None, shape) for shape, _ in node.outputs])
                passed.append(node)
                if node.sequence >= FIRST or node.saved or node.freed or node.inner is not None:
                    self.run_node(node, keep_graph=keep_graph)
                else:
                    node.freed = not keep_graph
                ready: Node | None = None
                for child in node.children:
                    if child is None:
                        continue
                    if child in waiting:
                        waiting[child] -= 1
                        if waiting[child]:
                            continue
                    if ready is not None:
                        queue.push(ready)
                    ready = child
                if heap and ready is not None:
                    queue.push(ready)
                    ready = None
                node = ready

    def run_node(self, node: Node, *, keep_graph: bool) -> None:
        """Run one node without computing values: check its saved tensors, and free them unless ``keep_graph``.

        An AccumulateGrad fills its leaf's ``.grad``, without values.

        Raises ``ShadowError`` where torch does: for what was freed, detached or modified, and for ``.grad`` that cannot
        be added to; ``Unmodelled`` where :meth:`accumulate` raises it.
        """
        if node.leaf is not None:
            self.accumulate(node, node.leaf, Gradient(None, node.outputs[0][0]))
            return
        if node.freed and node.name == "CopySlices":
            raise runtime(errors.TWICE, "backward-twice", node=node)
        for saved in node.saved:
            if node.freed or not saved.own:
                saved.check(node, self.engine.graph)
        if isinstance(node.vjp, RaisingVjp):
            node.vjp()
        if not keep_graph:
            node.release()

    def must_run(self, node: Node) -> bool:
        """Whether the node runs: it must be among ``targets``. False where these are None: then every node runs, and
        this is not asked.

        With ``autograd.grad``, also one of its children must be: a node whose incoming gradient is only returned
        does not run, and is not freed.
        """
        if self.targets is None or id(node) not in self.targets:
            return False
        if not self.captures:
            return True
        return any(c is not None and id(c) in self.targets for c in node.children)

    def deliver(
        self, queue: ReadyQueue, node: Node | None, index: int, gradient: Gradient | None, *, is_root: bool = False
    ) -> None:
        """Add a gradient (None: there is none) to those that output ``index`` of ``node`` has received; put the node
        into ``queue`` once all have arrived. Nothing happens for no node.

        A node that is not needed for the ``inputs`` of the backward is queued only if it is a root (``is_root``), for
        its hooks.
        """
        if node is None:
            return
        slots = self.arrived.setdefault(id(node), [])
        slots += [None] * (index + 1 - len(slots))
        if gradient is not None:
            held = slots[index]
            if held is None:
                slots[index] = gradient
            else:
                total = held.plus(gradient)
                for used in (held, gradient):
                    used.hold(-1)
                total.hold()
                slots[index] = total
        self.waiting[id(node)] -= 1
        if self.waiting[id(node)] == 0 and (is_root or self.targets is None or id(node) in self.targets):
            queue.push(node)

    # -- one node

    def evaluate(self, node: Node, incoming: list[Gradient | None]) -> list[Gradient | None]:
        """Run one node: its hooks, the check of its saved tensors, and its formula. Return the outgoing gradients
        (None: no gradient), and free the saved tensors unless the graph is kept.

        The node of a leaf adds to its ``.grad`` and returns an empty list. Raises ``ShadowError`` where torch raises
        (a saved tensor that was freed or changed, NaN in anomaly mode, among others), and ``Unmodelled`` where
        :meth:`compute` or :meth:`accumulate` raises it.
        """
        self.hooks(node, incoming)
        first = incoming[0] if incoming else None
        if not self.as_meant:
            shape = first.shape if first is not None else (node.outputs[0][0] if node.outputs else ())
            received = None if first is None or first.array is None else np.array(first.array)
            self.engine.ran.append(NodeRun(node, received, shape, self.added(node)))
        if node.leaf is not None:
            if first is not None:
                self.accumulate(node, node.leaf, first)
                if first.holders > 1:
                    first.hold(-1)  # it was copied: the next holder may take the memory itself
            return []
        lenient = self.as_meant or self.engine.policy.inplace_never_breaks_backward
        forgiven = lenient and (
            self.as_meant or not node.freed
        )  # the policy without version checks still frees saved tensors
        if not forgiven and not (self.engine.pauses_for_user_code and self.checks_late(node)):
            check_saved(node, self.engine.graph)
        if isinstance(node.vjp, RaisingVjp) and any(gradient is not None for gradient in incoming):
            node.vjp()
        outgoing = self.compute(node, incoming, lenient)
        for gradient in incoming:
            if gradient is not None:
                gradient.hold(-1)
        if not self.keep_graph and not self.as_meant and not self.engine.policy.graph_survives_backward:
            node.release()
        self.check_nan(node, outgoing)
        return outgoing

    def check_nan(self, node: Node, outgoing: list[Gradient | None]) -> None:
        """Raise ``ShadowError`` if an outgoing gradient of ``node`` has NaN, in anomaly mode (``engine.checks_nan``)
        and not in the run ``as_meant``.
        """
        if self.as_meant or not self.engine.checks_nan:
            return
        for index, gradient in enumerate(outgoing):
            if gradient is not None and gradient.array is not None and np.isnan(gradient.array).any():
                raise runtime(
                    f"Function '{full_name(node.name)}' returned nan values in its {index}th output.", node=node
                )

    def compute(self, node: Node, incoming: list[Gradient | None], as_meant: bool) -> list[Gradient | None]:
        """The gradients of the node's inputs, summed and cast to what the inputs were (in torch: ``validate_outputs``).

        None for an input that needs no gradient or gets none, and for all if none has arrived. Values are unknown where
        an incoming gradient or a saved tensor is, where an input has more elements than the engine's limit, and where
        the formula has no model (``Unmodelled``). Raises ``Unmodelled`` itself where the shape of a saved tensor, or of
        one in a graph with unknown values, was changed since.
        """
        if all(g is None for g in incoming):
            return [None] * len(node.children)
        needed = (
            None if node.name == "CopySlices" else self.targets
        )  # torch's generated formulas compute no other gradients
        metas = [meta_of(edge) if needed is None or id(edge[0]) in needed else None for edge in node.next]
        arrays = [None if g is None else g.array for g in incoming]
        limit = self.engine.value_limit
        unknown = any(g is not None and g.array is None for g in incoming) or any(
            m is not None and math.prod(m[0]) > limit for m in metas
        )
        unknown |= not node.multiple and any(
            g is not None for g in incoming[1:]
        )  # of a statistic: saved, unpacked and used (create_graph)
        if not as_meant and any(
            s.tensor is not None and (s.tensor.shape, s.tensor.dtype) != (s.shape, s.dtype) for s in node.saved
        ):
            raise Unmodelled("a saved tensor whose shape or dtype was changed after it was saved (.data, set_)")
        saved = None if unknown or node.vjp is None or node.mirrored else unpack(node, as_meant=as_meant)
        if saved is None or node.vjp is None:
            if self.engine.graph.reshaped and not as_meant:
                raise Unmodelled(
                    "a gradient with unknown values, in a graph where a tensor's shape was changed after "
                    "its grad_fn was made"
                )
            return handed_through(node, incoming, metas)
        given: Any = arrays + [None] * (len(node.outputs) - len(arrays)) if node.multiple else arrays[0]
        try:
            with np.errstate(all="ignore"):
                results = node.vjp(given, saved)
                if any(a is not None and a.dtype == np.float16 for a in arrays):
                    results = rounded_once(node.vjp, given, saved, results, arrays)
        except Unmodelled:  # the formula declines these values
            return [None if meta is None else Gradient(None, meta[0]) for meta in metas]
        check_sizes(node, results, metas)
        loose = any(g is not None and g.loose for g in incoming) or any(
            map(is_permuted, (*arrays, *vars(saved).values(), *results))
        )
        outgoing = [self.wrap(r, meta, incoming, loose=loose) for r, meta in zip(results, metas, strict=False)]
        made_by(Step.of(node, incoming, saved), outgoing)
        return outgoing

    @staticmethod
    def wrap(array: Any, meta: Meta | None, incoming: list[Gradient | None], *, loose: bool) -> Gradient | None:
        """Return an array that a backward formula returned as a Gradient; None if there is none, or no ``meta``.

        An array that is an incoming gradient unchanged gives that Gradient object. Any other is summed to the shape and
        cast to the dtype in ``meta``; a view of an incoming gradient has the same owner of memory as that. ``loose``:
        the strides of a new gradient are not predicted.
        """
        if meta is None or array is None:
            return None
        shape, dtype = meta
        for g in incoming:
            if (
                g is not None
                and g.array is not None
                and g.array is array
                and g.shape == shape
                and array.dtype == (dtype.numpy or object)
            ):
                return g
        times, seen_through = (array.times, array.seen_through) if isinstance(array, Written) else (0, False)
        array = np.asarray(array.array if isinstance(array, Written) else array)
        if array.shape != shape:
            # Where dimensions were added by broadcasting, torch passes on a view of the sum.
            array, times, seen_through = np.asarray(sum_to(array, shape)), 0, array.ndim > len(shape) > 0
        if dtype.numpy is None:
            return Gradient(None, shape)
        if array.dtype != dtype.numpy:
            array = converted(array.real if array.dtype.kind == "c" and dtype.category < 3 else array, dtype.numpy)
            if all(g is None or g.array is None or g.array.dtype != dtype.numpy for g in incoming):
                times, seen_through = 0, False  # torch casts it too, into memory of its own
        owner = memory(array)
        for g in incoming:
            if g is not None and g.array is not None and memory(g.array) is owner:
                seen = Gradient(array, shape, g.held)
                seen.loose = g.loose
                return seen
        made = Gradient(array, shape, Held(times))
        made.held.holders = int(seen_through)
        made.loose = loose and not times
        return made

    def hooks(self, node: Node, incoming: list[Gradient | None]) -> None:
        """Run the tensor hooks of a node in order of registration: what they return replaces the gradient in
        ``incoming``. Then fill the ``.grad`` of the node's outputs with ``retain_grad``.
        """
        registered = node.hooks if node.leaf is None else node.leaf.hooks or ()
        for index, hook in registered:
            gradient = incoming[index] if 0 <= index < len(incoming) else None
            if gradient is not None and hook is not None:
                incoming[index] = swapped(gradient, hook(gradient))
        for index, reference in node.retains:
            tensor = reference()
            gradient = incoming[index] if index < len(incoming) else None
            if tensor is not None and gradient is not None:
                self.filled[id(tensor)] = (tensor, gradient)
                if not self.as_meant:
                    self.retain(tensor, gradient, node.outputs[index][1] if index < len(node.outputs) else tensor.dtype)

    def retain(self, tensor: ShadowTensor, gradient: Gradient, dtype: DType) -> None:
        """Set the ``.grad`` of a tensor with ``retain_grad``: a copy of the gradient, or, where it has a ``.grad``, a
        new tensor with the sum of both. ``dtype`` is the tensor's when the graph was made.
        """
        tensor.gradient = retained(tensor, gradient, dtype)
        self.engine.arrived.append((tensor.gradient, gradient))

    # -- leaves

    def accumulate(self, node: Node, leaf: ShadowTensor, gradient: Gradient) -> None:
        """Add a gradient to the ``.grad`` of ``leaf``: the first (under the belief ``backward_overwrites_grad`` every
        one) becomes ``.grad``, later ones are added to it in place.

        A leaf that no longer requires a gradient gets none. In the run ``as_meant`` the gradient is only noted in
        ``filled``. Raises ``ShadowError`` where torch does: for a tensor that is no leaf any more, an expanded
        ``.grad``, or one of inference mode. Raises ``Unmodelled`` for a ``.grad`` of another shape than the gradient's.
        """
        if not self.as_meant and self.engine.graph.grad_fn(leaf) is not None:
            raise runtime(errors.NO_LEAF, "other", tensor=leaf)
        if not leaf.requires_grad:  # detach_() made it a leaf since; its retain_grad hook remains
            if not self.as_meant:
                self.after(leaf)
            return
        self.filled[id(leaf)] = (leaf, gradient)
        if self.as_meant:
            return
        held = leaf.gradient
        if held is None or self.engine.policy.backward_overwrites_grad:
            leaf.gradient = as_tensor(self.engine, leaf, gradient, node.outputs[0][1])
        else:
            if held.is_expanded:
                raise runtime(errors.OVERLAP_SELF, "overlap", tensor=held)
            if held.shape != gradient.shape:
                raise Unmodelled(
                    "accumulating into a .grad of another shape: the leaf's .data was replaced between two backwards"
                )
            self.engine.write(held, plus(held.window(), gradient.array))
            if (
                held.counter is None and not self.engine.inference
            ):  # detach() of an inference tensor has its own counter
                raise runtime(errors.INFERENCE_WRITE, "inference-tensor", tensor=held)
            self.engine.graph.bump(held.counter)
        if leaf.gradient is not None:
            self.engine.arrived.append((leaf.gradient, gradient))
        self.after(leaf)

    @staticmethod
    def after(leaf: ShadowTensor) -> None:
        """Run the post-accumulate-grad hooks of a leaf.

        Raises ``ShadowError`` if one returns anything but None or the leaf.
        """
        for index, hook in leaf.hooks or ():
            returned = hook(leaf) if index == AFTER and hook is not None else None
            if isinstance(returned, ShadowTensor) and returned is not leaf:
                raise runtime("Tensor post accumulate grad hooks should return None.")
            if returned is not None and not isinstance(returned, ShadowTensor):
                raise ShadowError("TypeError", f"expected Variable, but hook returned '{type(returned).__name__}'")


def made_by(step: Step, outgoing: list[Gradient | None]) -> None:
    """Set ``origin`` of each outgoing gradient of a node to the formula that computed it (``step``) and its index. A
    gradient that has an origin already, or is one of the incoming gradients unchanged, keeps its own.
    """
    for index, gradient in enumerate(outgoing):
        if gradient is not None and gradient.origin is None and all(gradient is not given for given in step.given):
            gradient.origin = FormulaPart(step, index)


def check_saved(node: Node, graph: Graph) -> None:
    """Raise ``ShadowError`` where torch raises when ``node`` unpacks its saved tensors: for freed, detached and
    modified ones.
    """
    if node.name == "CopySlices" and node.freed:
        raise runtime(errors.TWICE, "backward-twice", node=node)
    for saved in node.saved:
        saved.check(node, graph)


def check_sizes(node: Node, results: Iterable[Any], metas: Iterable[Meta | None]) -> None:
    """Raise ``ShadowError`` for a gradient that cannot be summed down to the shape of its tensor, which is possible
    only after ``h.data = …``.

    ``results`` are the arrays that the formula of ``node`` returned, ``metas`` the shape and dtype that each must have
    (None: not needed, not checked).
    """
    for k, (result, meta) in enumerate(zip(results, metas, strict=False)):
        shape = np.shape(result.array if isinstance(result, Written) else result)
        if meta is not None and result is not None and not reducible(shape, meta[0]):
            text = (
                f"Function {full_name(node.name)} returned an invalid gradient at index {k} - got "
                f"{list(shape)} but expected shape "
            )
            raise runtime(f"{text}compatible with {list(meta[0])}", "shape", node=node)


def is_still(gradient: Gradient, seen: Seen | None) -> bool:
    """Whether the gradient that user code returned (``seen``; None: no gradient) is ``gradient`` unchanged: not another
    tensor that is known, with the same shape and close values.

    If so, torch's values are copied into ``gradient``. False if the values of one are unknown.
    """
    if seen is None or gradient.array is None or seen.array is None or gradient.array.shape != seen.array.shape:
        return False
    if seen.tensor is not gradient.tensor and seen.tensor is not None:
        return False
    if not np.allclose(gradient.array, seen.array, rtol=1e-5, atol=1e-8, equal_nan=True):
        return False
    if gradient.array.flags.writeable:
        gradient.array[...] = seen.array
    return True


def came_out(seen: Seen | None, incoming: Sequence[Gradient | None]) -> Gradient | None:
    """The Gradient for one that user code returned (``seen``): the incoming gradient if it returned that, unchanged,
    else a new one; None if it returned None.
    """
    if seen is None:
        return None
    same = None if seen.given is None else incoming[seen.given]
    if same is not None and is_still(same, seen):
        return same
    gradient = Gradient(seen.array, seen.shape, tensor=seen.tensor)
    gradient.loose = True  # the values are known, but not whether user code keeps the tensor
    if seen.tensor is not None and seen.tensor.counter is not None:
        gradient.array = seen.tensor.window()
        gradient.held.counter, gradient.held.storage = seen.tensor.counter, seen.tensor.storage
    return gradient


def _joins(roots: list[Node]) -> dict[Node, int]:
    """For each root, and each reachable node with several incoming edges, the number of these edges.

    All other nodes have one.
    """
    count = dict.fromkeys(roots, 0)
    seen, stack = set(roots), list(roots)
    while stack:
        for child in stack.pop().children:
            if child in seen:
                count[child] = count.get(child, 1) + 1
            elif child is not None:
                seen.add(child)
                stack.append(child)
    return count


def reducible(shape: Shape, wanted: Shape) -> bool:
    """Whether a gradient of ``shape`` can be summed down to ``wanted``."""
    return len(shape) >= len(wanted) and all(
        m in {1, n} for n, m in zip(reversed(shape), reversed(wanted), strict=False)
    )


def meta_of(edge: Edge) -> Meta | None:
    """The shape and dtype that a gradient along this edge must have; None for an edge without a node. Where the node
    has no record of that output, a shape without dimensions.
    """
    node, index = edge
    if node is None:
        return None
    return node.outputs[index] if index < len(node.outputs) else ((), node.leaf.dtype if node.leaf else _FLOAT)


# -- harm


def wrongly_read(nodes: Iterable[Node]) -> list[tuple[Node, Saved]]:
    """The saved tensors whose values have changed (or may have, where values are unknown) without an error in backward:
    their version has not changed, or is not checked. Each as a pair with the node that saved it.
    """
    found = []
    for node in nodes:
        for saved in node.saved:
            counter = saved.tensor.counter if saved.tensor is not None else saved.counter
            unnoticed = saved.packed or (counter is not None and counter.version == saved.version)
            if unnoticed and not saved.own and not saved.freed and saved.differs:
                found.append((node, saved))
    return found


def compare(
    before: dict[int, np.ndarray | None], rehearsal: Pass, real: Pass, causes: list[tuple[Node, Saved]], harmed: Harmed
) -> list[WrongGradient]:
    """The wrong gradients: a ``WrongGradient`` for each tensor filled in ``real`` whose gradient differs by more than
    rounding from that in ``rehearsal`` (or where one of the two is unknown), the pass with the values as they were when
    saved. Empty if all agree.

    Both gradients include what ``.grad`` was before this backward (``before``, by the tensor's ``id``). ``causes`` are
    the overwritten saved tensors, copied into each. ``harmed`` maps each tensor with a wrong gradient to its present
    ``.grad`` and the one that was meant; it is updated.
    """
    harms = []
    for key, (leaf, gradient) in real.filled.items():
        meant = rehearsal.filled[key][1].array if key in rehearsal.filled else None
        if gradient.array is not None and meant is not None and is_rounding(gradient.array, meant):
            continue
        start = before.get(key)
        torch = gradient.array if start is None else plus(start, gradient.array)
        was, then = harmed.get(leaf, (None, None))
        if start is not None and was is not None and np.array_equal(start, was, equal_nan=True):
            start = then
        wanted = meant if start is None else plus(start, meant)
        if torch is not None:
            harmed[leaf] = torch.copy(), wanted  # .grad may be this very array, which the next backward writes
        harms.append(WrongGradient(leaf, torch, wanted, tuple(causes)))
    return harms
