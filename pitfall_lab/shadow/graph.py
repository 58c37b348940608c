"""The autograd graph: nodes, their saved tensors, and how in-place operations change grad_fn.

Source in torch: ``torch/csrc/autograd/saved_variable.cpp``, ``variable.cpp`` (``rebase_history``,
``VariableHooks::grad_fn``), ``functions/utils.h`` and ``VariableTypeUtils.h`` (``check_inplace``).
"""

# ruff: noqa: A002, A003 - `next` is what torch's engine calls a node's edges

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import DType, type_name
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.shadow.releases import NEWEST, NODES_ARE_NAMED_SHORT, THE_HINT_CHECKS_NO_NAN, Difference, Release
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, Storage, window
from pitfall_lab.shadow.view_gradients import RaisingVjp, Vjp, Written, as_strided_vjp, copy_slices_vjp

Edge = tuple["Node | None", int]
Meta = tuple[Shape, DType]


NO_DERIVATIVE = "NotImplemented"
"""The node of an operation without a derivative."""
FIRST = 2**63
"""The sequence number of AccumulateGrad (it runs before all other ready nodes), and of a node without a derivative."""


class Node:
    """A node of the graph: in backward it receives the gradients of its outputs and passes those of its inputs to its
    ``children``.

    ``vjp(g, s)`` computes them: ``g`` is the incoming gradient (a list if ``multiple``: the node has several outputs),
    ``s`` holds the saved arrays by name, and one array or None per edge comes back. ``outputs`` are the shapes and
    dtypes of what the forward made; a gradient is summed and cast to them. ``indices`` are torch's ``input_nr``: which
    of each child's outputs it is of (``next`` is both together). ``leaf`` is the tensor whose ``.grad`` an
    AccumulateGrad fills (None for other nodes), ``inner`` the node inside a CopySlices, ``sequence`` the number that
    orders backward (newest first), ``freed`` True after a backward without ``retain_graph``. ``mirrored`` nodes
    represent torch nodes without a model here: gradients through them are unknown; for ``lazy`` ones, user code
    computes them.

    In torch: ``torch/csrc/autograd/function.h``, with one class for each derivative, generated from
    ``tools/autograd/derivatives.yaml``; sequence numbers are counted per thread.
    """

    __slots__ = (
        "__weakref__", "children", "facade", "freed", "hooks", "indices", "inner", "lazy", "leaf", "mark", "mirrored",
        "multiple", "name", "outputs", "retains", "saved", "sequence", "torch_key", "vjp",
    )  # fmt: skip
    children: tuple[Node | None, ...]
    indices: tuple[int, ...]

    def __init__(self, name: str, next: tuple[Edge, ...], sequence: int, vjp: Vjp | None = None) -> None:
        self.name = name
        self.next = next
        self.sequence = sequence
        self.vjp = vjp
        self.saved: tuple[Saved, ...] = ()
        self.outputs: list[Meta] = []
        self.multiple = False
        self.freed = False
        self.mirrored = False
        self.lazy = False
        self.leaf: ShadowTensor | None = None
        self.inner: Node | None = None
        self.facade: Any = None
        self.mark = 0
        self.torch_key: Any = None
        self.hooks: tuple[tuple[int, Callable[[Any], Any] | None], ...] = ()
        self.retains: tuple[tuple[int, ref[ShadowTensor]], ...] = ()

    @property
    def next(self) -> tuple[Edge, ...]:
        """The edges: pairs of a child node and ``input_nr``."""
        return tuple(zip(self.children, self.indices, strict=True))

    @next.setter
    def next(self, edges: tuple[Edge, ...]) -> None:
        self.children, self.indices = zip(*edges, strict=True) if edges else ((), ())

    def keep(self, *saved: Saved) -> None:
        """Add saved tensors, in the order in which backward will check them."""
        for s in saved:
            s.owner = ref(self)
        self.saved += saved

    def release(self) -> None:
        """Free the saved tensors (after a backward without ``retain_graph``)."""
        for s in self.saved:
            s.freed = True
            s.tensor = None
            s.original = None
        if self.inner is not None:
            # CopySlices drops the operation inside, with the nodes that it alone kept alive.
            self.inner = self.vjp = None
        self.freed = True

    def __repr__(self) -> str:
        return f"<{self.name}>"


_IN_NAMESPACE = ("CopySlices", "CopyBackwards", "AccumulateGrad", "CloneBackward", NO_DERIVATIVE)


def full_name(name: str) -> str:
    """Torch's name of a node, with the C++ namespace where its class is not a generated one."""
    return f"torch::autograd::{name}" if name in _IN_NAMESPACE else name


class Saved:
    """A tensor that a node keeps for backward, with the version it had.

    ``name`` is the node's attribute for it (``self``, ``result``). ``is_output``: it is a result of the node itself.
    ``own``: a copy that only the node has, which no write can invalidate (``drawn``: of random numbers, in lockstep
    torch's). An input is kept as the tensor object, in ``tensor`` (so ``p.data = t`` changes what backward reads); an
    output as storage and strides, with ``tensor`` None, so that node and output do not keep each other alive.
    ``freed``: backward has dropped it. ``stale``: a write has made its version wrong. ``packed``: hooks of the program
    (``saved_tensors_hooks``) keep it; what they return in backward is unknown, and no version is checked. ``original``:
    a copy of the saved values, made before the memory was first written (None until then). To save an inference tensor
    raises ``ShadowError`` (torch's error).

    In torch: ``SavedVariable`` in ``torch/csrc/autograd/saved_variable.cpp``, which keeps no copy, and which its
    counter does not know.
    """

    __slots__ = (
        "__weakref__", "counter", "drawn", "dtype", "freed", "has_node", "is_output", "name", "offset", "original",
        "own", "owner", "packed", "shape", "stale", "storage", "stride", "tensor", "version", "view_node",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        tensor: ShadowTensor,
        *,
        is_output: bool = False,
        own: bool = False,
        drawn: bool = False,
        inplace_on_view: bool = False,
    ) -> None:
        if tensor.inference:
            raise runtime(errors.INFERENCE_SAVED, "inference-tensor", tensor=tensor)
        self.name = name
        self.is_output = is_output and not tensor.is_leaf
        self.has_node = not tensor.is_leaf
        self.view_node = ref(tensor.node) if inplace_on_view and tensor.node is not None else None
        self.tensor: ShadowTensor | None = None if self.is_output else tensor
        self.storage: Storage = tensor.storage
        self.offset, self.shape, self.stride, self.dtype = tensor.offset, tensor.shape, tensor.stride, tensor.dtype
        self.counter: Counter | None = tensor.counter
        self.version = 0 if tensor.counter is None else tensor.counter.version
        self.own = own or drawn
        self.drawn = drawn
        self.packed = tensor.graph.packs
        self.freed = False
        self.stale = False
        self.original: np.ndarray | None = None
        self.owner: ref[Node] | None = None
        if not self.own:
            if tensor.counter is not None and not self.packed:
                tensor.counter.watch(self)
            if tensor.graph.follows_values:
                self.storage.watch(self)

    @property
    def node(self) -> Node | None:
        """Return the node that saved this tensor; None when the node is no longer alive."""
        return self.owner() if self.owner else None

    def keep(self) -> None:
        """Copy the values into ``original``, before they change for the first time."""
        if self.original is None and not self.freed:
            seen = self.now()
            self.original = None if seen is None else seen.copy()

    def now(self) -> np.ndarray | None:
        """The present values in the saved tensor's memory, or None when they are not modelled."""
        return window(self.storage, self.offset, self.shape, self.stride, self.dtype)

    def meant(self) -> np.ndarray | None:
        """Return the values at the time of saving; None if unknown."""
        return self.now() if self.original is None else self.original

    def read(self) -> np.ndarray | None:
        """Return the values that backward will read; None if unknown."""
        return self.now() if self.tensor is None else self.tensor.window()

    @property
    def differs(self) -> bool:
        """Whether backward will read other values than were saved; True if either is unknown.

        False for an own copy, once it is freed, and where no saved values had to be copied (nothing was written, or the
        values were unknown then) and the tensor still has the same storage.
        """
        if (
            self.own
            or self.freed
            or (self.original is None and (self.tensor is None or self.tensor.storage is self.storage))
        ):
            return False
        then, now = self.meant(), self.read()
        return (
            then is None
            or now is None
            or then.shape != now.shape
            or not np.array_equal(then, now, equal_nan=then.dtype.kind in "fc")
        )

    def check(self, owner: Node, graph: Graph, *, dry_run: bool = False) -> None:
        """Raise ``ShadowError`` (torch's error) if the saved tensor of the node ``owner`` is freed, detached from its
        graph, or modified in place since.

        ``dry_run``: no grad_fn is regenerated for the check, so no state changes. A copy that only the node has, and
        one that hooks keep, is checked for being freed only.
        """
        if owner.freed:
            raise runtime(errors.TWICE, "backward-twice", node=owner, saved=self)
        if self.own or self.packed:
            return
        made_by = None
        if self.view_node is not None:
            made_by = self.view_node()
        elif self.tensor is not None:
            made_by = graph.grad_fn(self.tensor, dry_run=dry_run)
        if made_by is None and self.has_node:
            if not self.is_output:
                raise runtime(errors.DETACHED, "other", node=owner, saved=self, tensor=self.tensor)
            made_by = owner.inner or owner
        counter = self.tensor.counter if self.tensor is not None else self.counter
        found = 0 if counter is None else counter.version
        if found != self.version:
            now = self.tensor or self
            origin = f", which is output 0 of {graph.message_name(made_by)}," if made_by else ""
            hint = errors.HINT if graph.does(THE_HINT_CHECKS_NO_NAN) else errors.OLD_HINT
            text = errors.MODIFIED.format(
                type=type_name(now.dtype),
                shape=list(now.shape),
                origin=origin,
                found=found,
                expected=self.version,
                hint=hint,
            )
            raise runtime(
                text,
                "saved-tensor-modified",
                node=owner,
                saved=self,
                tensor=self.tensor,
                expected=self.version,
                found=found,
            )

    def __repr__(self) -> str:
        return f"<saved {self.name} at v{self.version}{' (own)' if self.own else ''}>"


def unpack(node: Node, *, as_meant: bool) -> Arrays | None:
    """The saved arrays of ``node`` by name, as they are now or, with ``as_meant``, as they were when saved; None when
    the values of one are unknown.
    """
    arrays: dict[str, np.ndarray | None] = {}
    known = True
    for s in node.saved:
        array = s.meant() if as_meant else s.read()
        known = known and array is not None
        arrays[s.name] = array
    return Arrays(arrays) if known else None


class Arrays(SimpleNamespace):
    """Saved arrays by name; a name that was not saved reads as None, as in torch.

    ``inside`` is set while the rounding error of a formula is estimated: it is a function that disturbs an array which
    the formula keeps in single precision without saving it as a tensor.
    """

    def __init__(self, arrays: dict[str, np.ndarray | None]) -> None:
        super().__init__(**arrays)

    def __getattr__(self, name: str) -> None:
        return None


class Graph:
    """The state that all tensors of one engine share: grad mode, inference mode, and the number that the next node gets
    (``sequence``).

    ``created`` and ``stale`` are the nodes made and the saved tensors made invalid by the present call.
    ``follows_values`` is False for an engine without values; ``has_packed`` True once ``saved_tensors_hooks`` kept a
    saved tensor; ``gradients`` are the tensors known as a ``.grad``.
    """

    def __init__(self, policy: Policy = TORCH, release: Release = NEWEST) -> None:
        self.policy = policy
        self.release = release
        self.grad_enabled = True
        self.inference = False
        self.created: list[Node] = []
        self.stale: list[tuple[Node, Saved]] = []
        self.sequence = 0
        self.follows_values = True
        self.packs = False  # whether saved_tensors_hooks of the program are active
        self.has_packed = False
        self.has_guests = False
        """Whether user code may run in a backward: hooks, custom Functions, ``saved_tensors_hooks``."""
        self.reshaped = (
            False  # whether a tensor's shape was changed (.data) after its grad_fn was made: backward may raise then
        )
        self.gradients: WeakSet[ShadowTensor] = WeakSet()

    def does(self, difference: Difference) -> bool:
        """Whether the release of torch that the engine models has the newer behaviour of the two that ``difference``
        names.
        """
        return self.release >= difference.since

    # -- nodes and edges

    def message_name(self, node: Node) -> str:
        """The name of a node in torch's error messages.

        >>> [Graph().message_name(Node(name, (), 0)) for name in ("ExpBackward0", "MaxBackward1", "CopySlices")]
        ['Exp', 'Max1', 'torch::autograd::CopySlices']
        """
        if node.name in _IN_NAMESPACE or not self.does(NODES_ARE_NAMED_SHORT):
            return full_name(node.name)
        head, found, tail = node.name.rpartition("Backward")
        return head + tail.removeprefix("0") if found and (not tail or tail.isdigit()) else node.name

    def new_node(self, name: str, next: tuple[Edge, ...], vjp: Vjp | None = None) -> Node:
        """Make a node with the next sequence number and add it to ``created``; one with the name ``NO_DERIVATIVE`` has
        the number ``FIRST``. ``vjp`` computes its gradients; None where it has no such function.
        """
        node = Node(name, next, FIRST if name == NO_DERIVATIVE else self.sequence, vjp)
        self.sequence += 1
        self.created.append(node)
        return node

    def drop_unreached(self, results: Iterable[ShadowTensor]) -> None:
        """Remove from ``created`` the nodes that no gradient of ``results`` reaches; torch
        frees them when the call ends.
        """
        reached: set[int] = set()
        work = [x.node for x in results]
        while work:
            node = work.pop()
            if node is not None and id(node) not in reached:
                reached.add(id(node))
                work += node.children
        self.created = [node for node in self.created if id(node) in reached]

    def edge(self, tensor: ShadowTensor) -> Edge:
        """The edge for the gradient of ``tensor``: to its grad_fn, to its AccumulateGrad, or to no node."""
        node = self.grad_fn(tensor)
        if node is not None:
            return node, tensor.output_nr
        # A view made under no_grad has requires_grad=True (from its base) but no grad_fn: its edge is empty.
        return (self.accumulate_grad(tensor), 0) if tensor.flag else (None, 0)

    def accumulate_grad(self, leaf: ShadowTensor) -> Node:
        """The leaf's AccumulateGrad node, made if needed; a leaf has only a weak reference to it, so
        that it is freed with the graph.
        """
        node = leaf.accumulator() if leaf.accumulator else None
        if node is None:
            node = Node("AccumulateGrad", (), FIRST)
            node.leaf = leaf
            node.outputs = [(leaf.shape, leaf.dtype)]
            leaf.accumulator = ref(node)
            self.created.append(node)
        return node

    # -- views

    def grad_fn(self, tensor: ShadowTensor, *, dry_run: bool = False) -> Node | None:
        """The grad_fn of ``tensor``, None without one; for a view that requires grad and whose base was written since,
        a new AsStridedBackward0, or ``ShadowError`` where torch refuses to make one (:meth:`check_creation`).

        Its edge goes to the base's present grad_fn. ``dry_run=True``: return a placeholder with the
        right name and do not create the node; creating it now would give it the wrong sequence number,
        and so the wrong place in backward.

        In torch: ``VariableHooks::grad_fn`` in ``torch/csrc/autograd/variable.cpp``.
        """
        view = tensor.view
        if view is None or (tensor.node is None and not view.base.requires_grad):
            return tensor.node
        version = tensor.version
        if view.version != version:
            self.check_creation(tensor, indirect=True)
            if dry_run:
                return Node("AsStridedBackward0", (), self.sequence)
            base = view.base
            windows = [(t.offset, t.shape, t.stride) for t in (base, tensor)]
            node = self.new_node("AsStridedBackward0", (self.edge(base),), as_strided_vjp(*windows))
            node.outputs = [(tensor.shape, tensor.dtype)]
            self.move_retained(tensor, node)
            tensor.node, tensor.output_nr = node, 0
            view.version = version
        return tensor.node

    def check_creation(self, tensor: ShadowTensor, *, indirect: bool) -> None:
        """Raise ``ShadowError`` (torch's error) for an in-place write to a view made under no_grad, in inference mode,
        by a multi-output or custom function.

        ``indirect``: its base, or another view of that, was written. Nothing is raised for any other tensor. In torch:
        ``handle_view_on_rebase`` in ``torch/csrc/autograd/variable.cpp``.
        """
        view = tensor.view
        if view is None or view.creation == "default":
            return
        what = "its base or another view of its base has been" if indirect else "is being"
        node = tensor.node
        made = (
            "A view was"
            if node is None
            else f"Output {tensor.output_nr} of {self.message_name(node)} is a view of a view which was"
        )
        if view.creation == "inference":
            text = f"{made} created in inference mode and {what} modified inplace in normal mode."
        elif view.creation == "no_grad" or node is None:
            text = f"{made} created in no_grad mode and {what} modified inplace with grad mode enabled."
        else:
            text = f"Output {tensor.output_nr} of {self.message_name(node)} is a view and {what} modified inplace."
        if view.creation == "custom":
            raise runtime(text + errors.CUSTOM, "other", tensor=tensor, node=node)
        if view.creation == "multi":
            raise runtime(text + errors.MULTI, "multi-output-view-modified", tensor=tensor, node=node)
        mode = "inference_mode" if view.creation == "inference" else "no_grad"
        kind = "inference-tensor" if view.creation == "inference" else "no-grad-view-modified"
        raise runtime(text + errors.AMBIGUOUS.format(mode=mode), kind, tensor=tensor)

    # -- in-place operations

    def check_inplace(self, tensor: ShadowTensor, any_requires_grad: bool) -> None:
        """Raise ``ShadowError`` where torch raises before an in-place operation on a leaf, or on a view that may not be
        changed.

        Nothing is checked if neither the tensor nor another operand requires a gradient (``any_requires_grad``), with
        grad mode off, in inference mode, and for inference tensors. In torch: ``check_inplace`` in
        ``torch/csrc/autograd/VariableTypeUtils.h``. Raises ``Unmodelled`` for a tensor that ``autograd.grad`` returned.
        Under the belief ``inplace_on_leaf_allowed`` nothing is checked, under ``inplace_always_refused`` every such
        operation is an error.
        """
        if not (any_requires_grad and self.grad_enabled) or self.policy.inplace_on_leaf_allowed or tensor.inference:
            return
        if self.inference:
            return  # no checks in inference mode, whatever the grad mode
        if self.policy.inplace_always_refused:
            raise runtime(errors.LEAF, "leaf-modified", tensor=tensor)
        if tensor.received or (tensor.view is not None and tensor.view.base.received):
            raise Unmodelled(
                "an in-place write to a tensor returned by autograd.grad: whether it is a view is not modelled"
            )
        if tensor.view is not None:
            self.check_creation(tensor, indirect=False)
            if tensor.requires_grad and tensor.view.base.is_leaf:
                raise runtime(errors.VIEW_OF_LEAF, "view-of-leaf-modified", tensor=tensor)
        if tensor.requires_grad and tensor.is_leaf:
            raise runtime(errors.LEAF, "leaf-modified", tensor=tensor)

    def bump(self, counter: Counter | None, by: int = 1) -> tuple[tuple[Node, Saved], ...]:
        """Increase the version by ``by``; returns the saved tensors that this made invalid, as pairs of the node that
        saved it and the saved tensor, ordered by the creation of the nodes.

        Nothing happens without a counter, nor with grad mode off under the belief ``no_grad_hides_versions``: ``()``. A
        negative ``by`` sets the version back, which can make saved tensors valid again.
        """
        if counter is None or (self.policy.no_grad_hides_versions and not self.grad_enabled):
            return ()
        counter.version += by
        if by < 0:
            self.taken_back(counter)
        fresh = []
        for reference in counter.saved or ():
            saved = reference()
            node = None if saved is None else saved.node
            if (
                saved is not None
                and not saved.stale
                and not saved.freed
                and node is not None
                and saved.version != counter.version
            ):
                saved.stale = True
                fresh.append((node, saved))
        # By creation of the node, then by slot.
        fresh.sort(key=lambda pair: (pair[0].sequence, pair[1].name))
        self.stale.extend(fresh)
        return tuple(fresh)

    @staticmethod
    def taken_back(counter: Counter) -> None:
        """Called after ``_unsafe_preserve_version_counter`` has set ``counter`` back: saved tensors that were saved at
        the version which it has now are no longer ``stale``, so backward accepts them again.
        """
        for saved in [known for reference in counter.saved or () if (known := reference()) is not None]:
            saved.stale &= saved.version != counter.version

    def rebase(self, tensor: ShadowTensor, node: Node) -> Node:
        """Make ``node``, of an in-place operation, the grad_fn of ``tensor``; returns the node that holds the saved
        tensors: ``node`` itself, or the CopySlices around it.

        For a write through a view, the *base* gets a CopySlices node around the operation's node, and the view an
        AsStridedBackward0 on top of that. Raises Unmodelled for a view that no longer has the storage or dtype of its
        base, and where :meth:`move_retained` raises it.

        In torch: ``rebase_history`` in ``torch/csrc/autograd/variable.cpp``.
        """
        if tensor.view is None or self.policy.views_have_own_version:
            self.move_retained(tensor, node)
            tensor.node, tensor.output_nr = node, 0
            if tensor.view is not None:
                tensor.view.version = tensor.version
            return node
        base = tensor.view.base
        if base.storage is not tensor.storage:
            raise Unmodelled(
                "a write through a view whose storage was replaced (.data, set_), so that it no "
                "longer shares its base's"
            )
        if base.dtype != tensor.dtype or (tensor.node is not None and tensor.node.name == "ViewAsRealBackward0"):
            raise Unmodelled(
                "an in-place write to a view whose dtype, or that of a view on the way to it, differs from its base's"
            )
        outer = self.new_node("CopySlices", (self.edge(base), *node.next[1:]), copy_slices_vjp(base, tensor, node))
        outer.inner = node
        outer.outputs = [(base.shape, base.dtype)]
        outer.keep(*node.saved)
        if node in self.created:
            self.created.remove(node)  # it is inside CopySlices, invisible in torch too
        self.move_retained(base, outer)
        base.node, base.output_nr = outer, 0
        if base.view is not None:
            base.view.version = base.version
        self.grad_fn(tensor)
        return outer

    @staticmethod
    def move_retained(tensor: ShadowTensor, node: Node, index: int = 0) -> None:
        """After an in-place operation on ``tensor``: move its ``retain_grad`` hook to the new grad_fn ``node``, whose
        output ``index`` it is now. Its tensor hooks stay at the old grad_fn.

        Raises Unmodelled where torch has lost the hook. In torch: ``update_tensor_hooks_on_new_gradfn`` in
        ``variable.cpp``.
        """
        tensor.hooked = None
        tensor.hooks = tuple(hook for hook in tensor.hooks or () if hook[0] < 0)  # post-accumulate-grad hooks stay
        if tensor.retains_grad:
            if tensor.node is None or tensor.has_lost_hook:
                raise Unmodelled(
                    "torch lost the retain_grad hook at an in-place view operation: an internal assert fails"
                )
            tensor.node.retains = tuple(r for r in tensor.node.retains if r[1]() is not tensor)
            node.retains += ((index, ref(tensor)),)


__all__ = [
    "FIRST",
    "NO_DERIVATIVE",
    "Edge",
    "Graph",
    "Meta",
    "Node",
    "RaisingVjp",
    "Saved",
    "Vjp",
    "Written",
    "as_strided_vjp",
    "full_name",
    "unpack",
]
