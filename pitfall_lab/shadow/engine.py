"""The engine: given a torch call, it computes the result and what happens to storages, version counters and the graph.

>>> engine = Engine()
>>> x = engine.call("torch.tensor", ([1.0, -2.0],), {"requires_grad": True}).result
>>> h = engine.call("torch.sigmoid", (x,)).result
>>> loss = engine.call("torch.Tensor.sum", (h,)).result
>>> [(node.name, saved.name) for node, saved in engine.call("torch.Tensor.mul_", (h, 10)).stale]
[('SigmoidBackward0', 'result')]

The last line is a prediction: after this in-place write, the backward of ``sigmoid`` will raise.
"""

# ruff: noqa: A002 - `next` is what torch's engine calls a node's edges

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from pitfall_lab.shadow.applied import Applied, Arrived, Harmed, NodeRun, Record, WrongGradient
from pitfall_lab.shadow.dtype_refusals import check_operands
from pitfall_lab.shadow.dtypes import FLOAT32, Device, DType, set_default_float
from pitfall_lab.shadow.errors import ShadowError, Unmodelled
from pitfall_lab.shadow.graph import Edge, Graph, Node, Saved
from pitfall_lab.shadow.hooks import Suspended
from pitfall_lab.shadow.out import run_into
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.shadow.registry import ENTRIES, Op
from pitfall_lab.shadow.releases import NEWEST, UNFIT_TYPES, Difference, Release
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Storage, ViewOf

FORBIDDEN = frozenset({"no-grad-view-modified", "multi-output-view-modified", "inference-tensor", "overlap"})
"""Kinds of errors that autograd raises before an operation looks at its arguments."""


def is_forbidden(tensor: ShadowTensor) -> bool:
    """Whether torch may refuse to regenerate the grad_fn of this tensor: it is a view made under ``no_grad``, in
    inference mode, by an operation with several outputs or by a custom Function, and its memory was written in place
    since. False for a tensor that is no view, and where no grad_fn is needed.
    """
    view = tensor.view
    if view is None or view.creation == "default" or view.version == tensor.version:
        return False
    return tensor.node is not None or view.base.requires_grad


NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}
"""NumPy's names of arguments, which torch accepts for its own."""
LARGEST_HALF = 65504
FACTORS = frozenset({"alpha", "beta"})
"""Arguments that may be a number or a 0-dim tensor: an LBFGS step is ``p.add_(d, alpha=t)``."""


class Engine:
    """Carries out torch calls on shadow tensors under one :class:`Policy`, and holds the modes and the graph they
    share.

    Tensors with more than ``value_limit`` elements are modelled without values (below zero: all). ``standalone``: the
    engine computes random numbers and shares memory with NumPy arrays itself; an engine in lockstep with torch leaves
    both to torch (``random`` is None). ``release`` is the release of torch that it models. ``strict``: a fault in an
    entry is raised as it is, not as ``Unmodelled``.
    """

    def __init__(
        self, policy: Policy = TORCH, value_limit: int = 4096, *, standalone: bool = False, release: Release = NEWEST
    ) -> None:
        self.policy = policy
        self.value_limit = value_limit
        self.standalone = standalone
        self.strict = False
        self.anomaly = False
        """Whether a stand-alone program has switched anomaly mode on."""
        self.default_float = FLOAT32
        self.met_inference = False
        """Whether a tensor was made in inference mode."""
        self.random: np.random.Generator | None = np.random.default_rng(0) if standalone else None
        self.graph = Graph(policy, release)
        self.graph.follows_values = value_limit >= 0
        self.numpy_memory: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        self.writes: list[Storage] = []
        self.ran: list[NodeRun] = []
        self.passed: list[Node] = []
        self.harms: list[WrongGradient] = []
        self.harmed: Harmed = WeakKeyDictionary()
        self.warnings: list[str] = []
        self.arrived: list[Arrived] = []
        self.pauses_for_user_code = False
        """Backward suspends at hooks and custom nodes, so that the caller can report what they returned."""
        self.checks_nan = False
        """Anomaly mode: a node that returns NaN ends the backward."""
        self.suspicious = False
        """The program may register node hooks, which cannot be observed: backward suspends at every node."""

    def does(self, difference: Difference) -> bool:
        """Whether the release of torch that the engine models has the newer behaviour of the two that ``difference``
        names.
        """
        return self.graph.does(difference)

    @property
    def grad_enabled(self) -> bool:
        """Whether operations are recorded (``torch.is_grad_enabled()``)."""
        return self.graph.grad_enabled

    @grad_enabled.setter
    def grad_enabled(self, value: bool) -> None:
        self.graph.grad_enabled = value

    @property
    def inference(self) -> bool:
        """Whether ``inference_mode`` is on."""
        return self.graph.inference

    @inference.setter
    def inference(self, value: bool) -> None:
        self.graph.inference = value

    @property
    def packs(self) -> bool:
        """Whether ``saved_tensors_hooks`` of the program are active."""
        return self.graph.packs

    @packs.setter
    def packs(self, value: bool) -> None:
        self.graph.packs = value
        self.graph.has_packed |= value
        self.graph.has_guests |= value

    def call(self, name: str, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Applied:
        """Do what the torch function ``name`` (in full: ``torch.Tensor.mul_``) does with shadow tensors in ``args`` and
        ``kwargs``, and return what it did.

        Raises :class:`ShadowError` where torch raises (its ``applied`` is what was done before), and
        :class:`Unmodelled` where the call is not modelled, also for a fault in an entry (unless ``strict``).

        In torch: the dispatcher calls one layer after another, of which ``VariableType`` (graph, saved tensors) and
        ``ADInplaceOrView`` (versions, views) are generated; here an entry does all of it.
        """
        entry = ENTRIES.get(name)
        if entry is None:
            raise Unmodelled(f"no entry for {name}")
        self.begin()
        try:
            with np.errstate(all="ignore"):
                kwargs = kwargs or {}
                check_operands(self, entry, [*args, *kwargs.values()])
                if "axis" in kwargs or "keepdims" in kwargs:
                    kwargs = {NUMPY_NAMES.get(key, key): value for key, value in kwargs.items()}
                if "alpha" in kwargs or "beta" in kwargs:
                    kwargs = {
                        key: _factor(entry, name, key, value) if key in FACTORS else value
                        for key, value in kwargs.items()
                    }
                result = run_into(self, entry, args, kwargs) if "out" in kwargs else entry.run(self, *args, **kwargs)
                if isinstance(result, Suspended):
                    result.resume()
                    return result.applied() if result.stop is None else result.applied()._replace(waiting=result)
        except ShadowError as error:
            self._refuse_unordered(self._as_here(error), args)
            error.applied = self.applied()
            raise
        except Unmodelled:
            raise
        except Exception as problem:
            if self.strict:
                raise
            # An error in our code must not appear as a prediction about torch.
            raise Unmodelled(f"{name}: {type(problem).__name__}: {problem}") from problem
        if self.met_inference:
            self._refuse_uncounted(entry, args, result)
        return self.applied(result)

    def _as_here(self, error: ShadowError) -> ShadowError:
        """The error with the exception type that the modelled release of torch uses for it."""
        if any(self.does(change) and texts.match(error.message) for change, texts in UNFIT_TYPES.items()):
            error.type_name = "NotImplementedError"
        return error

    def _refuse_unordered(self, error: ShadowError, args: Sequence[Any]) -> None:
        """Decline a call for which torch may raise another error first: for saving an inference
        tensor, or for a forbidden write.
        """
        if (
            error.kind not in FORBIDDEN
            and self.grad_enabled
            and any(isinstance(x, ShadowTensor) and is_forbidden(x) for x in args)
        ):
            raise Unmodelled(
                "which of two errors torch raises first: for an argument, or for a view modified in a forbidden way"
            ) from None
        unordered = self.met_inference and error.kind in {"shape", "dtype", "other"} and not self.inference
        if unordered and any(isinstance(x, ShadowTensor) and x.inference for x in args):
            raise Unmodelled(
                "which of two errors torch raises first: for a shape or dtype, or for saving an inference tensor"
            ) from None

    def _refuse_uncounted(self, entry: Op, args: Sequence[Any], result: Any) -> None:
        """Decline a result whose version depends on which in-place operations torch calls internally.

        It can only for a new tensor made from inference tensors only, outside of inference mode, by an
        operation that is not ``fresh``.
        """
        fills = "fills_for_0_and_1" in entry.traits
        filled = fills and any(
            isinstance(x, int | float) and x in (0, 1) for x in args[1:]
        )  # computed by a fill, or a copy
        given = [x for arg in args for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        operands = [x for x in given if isinstance(x, ShadowTensor)]
        filled |= fills and bool(args) and not isinstance(args[0], ShadowTensor)
        filled |= "copies_0d" in entry.traits and bool(operands) and not operands[0].ndim
        made = entry.kind == "pure"
        if entry.kind == "view" and isinstance(result, ShadowTensor):  # a reshape may have to copy
            made = all(x.storage is not result.storage for x in operands)
        if self.inference or not made or ("fresh" in entry.traits and not filled):
            return
        if operands and all(x.inference for x in operands):
            raise Unmodelled("the version of a result computed from inference tensors only, outside inference_mode")

    def begin(self) -> None:
        """Start a new record of nodes, writes and warnings, for one call: the lists of the last call are replaced by
        empty ones.
        """
        set_default_float(self.default_float)
        self.graph.created = []
        self.graph.stale = []
        self.writes, self.ran, self.passed, self.harms, self.warnings, self.arrived = [], [], [], [], [], []

    def record(self, record: Record | None = None) -> Record:
        """Return the lists in which nodes, writes, warnings and the like of the present call are collected; with
        ``record``, collect in these lists from now on.
        """
        graph = self.graph
        now = graph.created, graph.stale, self.writes, self.ran, self.passed, self.harms, self.warnings, self.arrived
        if record is not None:
            graph.created, graph.stale, self.writes, self.ran, self.passed, self.harms, self.warnings, self.arrived = (
                record
            )
        return now

    def applied(self, result: Any = None) -> Applied:
        """The record of everything since :meth:`begin`, with ``result`` as the call's result.

        In lockstep, writes to storages that the call itself made are left out.
        """
        graph = self.graph
        writes = tuple(dict.fromkeys(self.writes)) if self.writes else ()
        if (
            writes and self.pauses_for_user_code
        ):  # in lockstep every older storage has a mark: one without was made by this call
            writes = tuple([storage for storage in writes if storage.mark])
        created, stale = tuple(graph.created), tuple(graph.stale)
        return Applied(
            result, created, writes, stale, tuple(self.ran), tuple(self.passed), tuple(self.harms), tuple(self.arrived)
        )

    # -- making and changing memory

    def storage(self, size: int, dtype: str, device: str = "cpu", data: np.ndarray | None = None) -> Storage:
        """A new storage of ``size`` elements; ``data`` is a flat array that the engine may keep, or None when the
        values are unknown.
        """
        return Storage(size, DType(dtype), Device(device), data)

    def numpy_storage(self, memory: np.ndarray, dtype: DType) -> Storage:
        """The storage over a flat NumPy array; the same one as before for memory at the same address with the same
        dtype, as long as that storage is alive (stand-alone only).
        """
        address = memory.__array_interface__["data"][0]
        storage = self.numpy_memory.get(address)
        if storage is None or storage.data is None or storage.dtype != dtype:
            storage = Storage(memory.size, dtype, data=memory)
            storage.shared = True
            self.numpy_memory[address] = storage
        return storage

    def share(self, storage: Storage) -> None:
        """Note that NumPy code outside the engine may write to the memory of ``storage`` from now on."""
        storage.share()
        if storage.data is not None:
            self.numpy_memory[storage.data.__array_interface__["data"][0]] = storage

    def is_lent(self, storage: Storage) -> bool:
        """Whether a NumPy array shares this memory (stand-alone only)."""
        return (
            storage.data is not None and self.numpy_memory.get(storage.data.__array_interface__["data"][0]) is storage
        )

    def write(self, tensor: ShadowTensor, values: np.ndarray | None) -> None:
        """Put ``values`` (broadcast to the tensor's shape; None: unknown) into the tensor's memory.

        Does not increase the version. Unknown values of the storage stay unknown, unless ``tensor`` covers it and is
        within the engine's limit. Raises ``Unmodelled`` if unknown values would go into memory that a NumPy array
        shares.
        """
        storage = tensor.storage
        storage.about_to_change()
        target = tensor.window()
        if (
            values is not None
            and target is None
            and tensor.numel == storage.size <= self.value_limit
            and tensor.dtype.numpy is not None
        ):
            storage.data = np.empty(storage.size, tensor.dtype.numpy)
            target = tensor.window()
        if values is None or target is None:
            if self.is_lent(storage):
                raise Unmodelled("unknown values written into memory that a NumPy array shares")
            storage.data = None
        else:
            target[...] = values
        storage.changed()
        self.writes.append(storage)

    def write_at(self, tensor: ShadowTensor, places: Any, values: Any) -> None:
        """Write ``values`` to the elements of ``tensor`` at ``places`` (a NumPy index) only: for tensors in which
        several elements share an address.

        Does not increase the version. If the tensor's values are unknown, they stay unknown.
        """
        tensor.storage.about_to_change()
        target = tensor.window()
        if target is not None:
            target[places] = values
        tensor.storage.changed()
        self.writes.append(tensor.storage)

    def bump(self, counter: Counter, by: int = 1) -> tuple[tuple[Node, Saved], ...]:
        """Increase the version counter by ``by``; return the saved tensors that this makes invalid, as pairs of the
        node that saved it and the saved tensor. Empty if there are none.
        """
        return self.graph.bump(counter, by)

    def overwrite(self, storage: Storage, values: np.ndarray | None) -> tuple[tuple[Node, Saved], ...]:
        """Record that a storage now has ``values`` (None: unknown), written without any version counter having noticed:
        by NumPy, or a fused optimizer.

        Returns the saved tensors whose changed values backward will now read without an error, as pairs of the node
        that saved it and the saved tensor, by age of the nodes.
        """
        storage.about_to_change()
        storage.data = None if values is None else np.array(values).reshape(-1)
        storage.changed()
        live = [
            (s.node, s) for s in storage.saved or () if not s.freed and not s.stale and s.node is not None and s.differs
        ]
        return tuple(sorted(((n, s) for n, s in live if n is not None), key=lambda pair: pair[0].sequence))

    def fill(self, storage: Storage, values: np.ndarray) -> None:
        """Set all values of a storage to ``values``, which were read from torch, since the engine could not compute
        them.

        This is no write: no version increases, and no saved values are copied before.
        """
        storage.data = np.array(values).reshape(-1)

    # -- tensors and nodes that torch made

    def adopt(
        self,
        storage: Storage,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
        dtype: str,
        *,
        counter: Counter | None = None,
        version: int = 0,
        requires_grad: bool = False,
        grad_fn: Node | None = None,
        output_nr: int = 0,
        base: ShadowTensor | None = None,
        creation: str = "default",
        kind: str = "tensor",
    ) -> ShadowTensor:
        """A shadow tensor for one that the engine did not see being made. ``stride`` and ``offset`` are in elements.

        Its version counter is ``counter``, else that of ``base``, else a new one at ``version``. ``requires_grad``
        matters only for a leaf that is no view; ``grad_fn`` and ``output_nr`` are the node that made it and the index
        of it among the node's outputs. ``base`` is the tensor that it is a view of (None: no view), and ``creation``
        says how the view was made (:class:`ViewOf`). ``kind`` is ``"tensor"`` or ``"parameter"``.
        """
        if counter is None:
            counter = base.counter if base is not None else Counter(version)
        tensor = ShadowTensor(self.graph, storage, tuple(shape), tuple(stride), offset, DType(dtype), counter)
        tensor.flag = requires_grad and grad_fn is None and base is None
        tensor.node, tensor.output_nr, tensor.kind = grad_fn, output_nr, kind
        if base is not None:
            tensor.view = ViewOf(base, creation, tensor.version)
        if grad_fn is not None:
            missing = output_nr + 1 - len(grad_fn.outputs)
            grad_fn.outputs = (
                grad_fn.outputs + [((), DType(dtype))] * missing
            )  # a new list: nodes made by one recipe share one
            grad_fn.outputs[output_nr] = (tensor.shape, tensor.dtype)
        return tensor

    def node(self, name: str, next: Sequence[Edge] = (), saved: Sequence[Saved] = (), *, lazy: bool = False) -> Node:
        """A node for one that torch made and that has no model here: backward reaches it and checks versions, but its
        outgoing gradients are unknown.

        ``name`` is torch's (``MulBackward0``), ``next`` its edges, ``saved`` its saved tensors. ``lazy``: its backward
        is user code, and its saved tensors are checked only when that code reads ``saved_tensors``.
        """
        node = self.graph.new_node(name, tuple(next))
        node.mirrored, node.lazy = True, lazy
        self.graph.has_guests |= lazy
        node.keep(*saved)
        return node

    def saved(self, name: str, tensor: ShadowTensor, *, is_output: bool = False, own: bool = False) -> Saved:
        """A saved tensor for :meth:`node`, at its present version. ``name`` is the node's attribute for it (``self``,
        ``result``); ``is_output``: ``tensor`` is an output of the node itself; ``own``: a copy that only the node has,
        which no write makes invalid.
        """
        saved = Saved(name, tensor, own=own)
        if is_output:
            saved.is_output = saved.has_node = True
            saved.tensor = None
        return saved

    def accumulate_grad(self, leaf: ShadowTensor) -> Node:
        """The leaf's AccumulateGrad node, for the edges of a mirrored node."""
        return self.graph.accumulate_grad(leaf)

    def zero_gradients(self) -> None:
        """Zero every known ``.grad`` (no such thing happens in torch; a belief about ``no_grad``)."""
        for gradient in tuple(self.graph.gradients):
            self.write(gradient, np.zeros(()))

    def set_grad(self, leaf: ShadowTensor, gradient: ShadowTensor | None) -> None:
        """Assign ``leaf.grad``."""
        leaf.gradient = gradient


def _factor(entry: Op, name: str, key: str, value: Any) -> Any:
    """``alpha`` or ``beta`` as a number, also when given as a 0-dim tensor; declines other values."""
    short = name.rpartition(".")[2]
    if value is None or isinstance(value, str):
        if "alpha_is_number" not in entry.traits or short != entry.names[0].rpartition(".")[2]:
            raise Unmodelled("which overload torch selects for these arguments")
        raise ShadowError("TypeError", f"{short}(): argument '{key}' must be Number, not {type(value).__name__}")
    if not isinstance(value, ShadowTensor):
        if "takes_alpha" not in entry.traits and not (type(value) in {int, float} and abs(value) <= LARGEST_HALF):
            raise Unmodelled("alpha or beta that is not a plain number, or is a very large one")
        return value
    seen = value.window()
    if value.ndim or value.requires_grad or seen is None:
        raise Unmodelled(
            "alpha or beta given as a tensor that requires grad, has dimensions, or whose value is unknown"
        )
    return seen.item()
