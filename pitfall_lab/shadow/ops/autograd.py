"""backward, autograd.grad, hooks and retain_grad."""

# ruff: noqa: ARG001, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.applied import WrongGradient
from pitfall_lab.shadow.backward import Pass, compare, meta_of, reducible, wrongly_read
from pitfall_lab.shadow.dtypes import from_numpy
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.gradient import Gradient, in_memory, outline_of
from pitfall_lab.shadow.graph import Edge
from pitfall_lab.shadow.hooks import AFTER, Handle, Suspended
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.ops.building import check_base, new, open_window, tensor_only
from pitfall_lab.shadow.ops.double import Recorded, RecordedPass
from pitfall_lab.shadow.origins import hooked
from pitfall_lab.shadow.registry import ENTRIES, op
from pitfall_lab.shadow.releases import UNUSED_HAVE_AN_INDEX
from pitfall_lab.shadow.storage import ShadowTensor, Shape


def as_list(x: Any) -> list[Any]:
    """A sequence as a list; a single object as a list of one, None as an empty one."""
    return [] if x is None else list(x) if isinstance(x, tuple | list) else [x]


def first_gradients(e: Engine, outputs: list[ShadowTensor], given: list[Any]) -> list[Gradient | None]:
    """The gradients at which a backward begins, one for each of ``outputs``: the one in ``given``, else (where that is
    None) ones for an output of one element; None where none is given and the output requires no gradient. A given one
    is converted to the output's dtype.

    Raises ``ShadowError`` (torch's error) where none is given for an output of several elements (ones under the belief
    ``backward_sums_elements``) or of non-real ones, and for a given one of another shape; ``Unmodelled``, among others,
    for a given one that is no tensor.
    """
    result: list[Gradient | None] = []
    for k, (output, g) in enumerate(zip(outputs, given, strict=True)):
        if g is None:
            if not output.requires_grad:
                result.append(None)
                continue
            if output.numel != 1 and not e.policy.backward_sums_elements:
                raise runtime(
                    "grad can be implicitly created only for scalar outputs", "nonscalar-backward", tensor=output
                )
            if not output.dtype.is_floating_point:
                text = f"grad can be implicitly created only for real scalar outputs but got torch.{output.dtype[:]}"
                raise runtime(text, "nonscalar-backward", tensor=output)
            ones = new(e, output.shape, output.dtype, np.ones(output.shape))
            gradient = _given(ones, output.shape)
        else:
            tensor_only(g)
            if g.shape != output.shape:
                text = (
                    f"Mismatch in shape: grad_output[{k}] has a shape of torch.Size({list(g.shape)}) and output[{k}] "
                    f"has a shape of torch.Size({list(output.shape)})."
                )
                raise runtime(text, "shape", tensor=output)
            fitting = g if g.dtype == output.dtype else ENTRIES["torch.Tensor.to"].run(e, g, output.dtype)
            gradient = _given(fitting, output.shape)
        gradient.hold(2)  # held by the pass and by the caller
        result.append(gradient)
    return result


def _given(tensor: ShadowTensor, shape: Shape) -> Gradient:
    """A tensor of the caller as a Gradient on the tensor's own storage, so that ``.grad`` may become a view of it."""
    gradient = Gradient(tensor.window(), shape, tensor=tensor)
    gradient.held.storage = tensor.storage
    gradient.outline = outline_of(tensor) if gradient.array is None else None
    if tensor.counter is not None:
        gradient.held.counter = tensor.counter
    return gradient


def prepare(
    e: Engine, outputs: list[ShadowTensor], given: list[Any], retain_graph: bool | None, create_graph: bool
) -> Pass:
    """Check the roots and make the pass of a backward from ``outputs``; ``given`` has a gradient or None for each of
    them.

    ``retain_graph`` None means the same as ``create_graph``. With ``create_graph`` the pass records what it does.

    Raises ``ShadowError`` (torch's error) for a root without a graph, and where :func:`first_gradients` does;
    ``Unmodelled`` in inference mode, and where that does.
    """
    if e.inference:
        raise Unmodelled("a backward inside inference_mode")
    roots = []
    gradients = first_gradients(e, outputs, given)
    for k, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
        edge = e.graph.edge(output)
        if edge[0] is None or gradient is None:
            raise runtime(errors.NO_GRAPH.format(index=k), "no-gradient", tensor=output)
        roots.append((edge, gradient))
    keep = create_graph if retain_graph is None else bool(retain_graph)
    if create_graph:
        started: list[tuple[Edge, Gradient]] = [
            (edge, Recorded(e, g.tensor)) for edge, g in roots if g.tensor is not None
        ]
        the_pass: Pass = RecordedPass(e, started, keep_graph=keep)
    else:
        the_pass = Pass(e, roots, keep_graph=keep)
    return the_pass


def rehearse(the_pass: Pass) -> tuple[Pass, list[Any]] | None:
    """Run a copy of the pass with saved values as they were when saved, to find wrong gradients; nothing is filled.

    Return that copy, and the changed saved tensors as pairs of the node and the saved tensor. None if no saved value
    has changed without an error, or if the copy ends in an error of torch's.
    """
    causes = wrongly_read(the_pass.nodes.values())
    if not causes:
        return None
    again = Pass(
        the_pass.engine,
        [(edge, Gradient(g.array, g.shape)) for edge, g in the_pass.roots],
        dict(the_pass.captures),
        the_pass.targets,
    )
    again.as_meant = True
    again.plan()
    try:
        again.run()
    except errors.ShadowError:
        return None  # the real pass raises it too, at its own time
    return again, causes


def check_roots(the_pass: Pass) -> None:
    """Raise ``ShadowError`` for a gradient at which the pass begins with another shape than its node's output
    (``validate_outputs``): possible after ``.data = …``.

    Raises ``Unmodelled`` for one that torch would first sum to that shape.
    """
    for k, ((node, index), gradient) in enumerate(the_pass.roots):
        meta = meta_of((node, index))
        if meta is not None and meta[0] != gradient.shape:
            if reducible(gradient.shape, meta[0]):
                raise Unmodelled("a grad_outputs tensor that torch first reduces to the shape of the output")
            sizes = f"got {list(gradient.shape)} but expected shape compatible with {list(meta[0])}"
            raise runtime(f"invalid gradient at index {k} - {sizes}", "shape", node=node)


def execute(the_pass: Pass, finish: Callable[[], Any], judge: Callable[[], None] | None = None) -> Any:
    """Run the pass, then ``finish``, and return its result. If the pass raises, ``judge`` is called instead.

    In lockstep, where user code runs in the pass, a Suspended call is returned. Raises ``ShadowError`` where torch
    raises in a backward, and ``Unmodelled``, among others, for hooks of which the order, or the gradients with
    ``create_graph``, are not modelled.
    """
    e = the_pass.engine
    check_roots(the_pass)
    kinds = [
        {index == AFTER for index, _ in root.leaf.hooks or ()}
        for (root, _), _ in the_pass.roots
        if root is not None and root.leaf is not None
    ]
    if e.pauses_for_user_code and {True, False} in kinds:
        raise Unmodelled("a leaf as root of the backward, with tensor hooks and post-accumulate-grad hooks at once")
    if e.pauses_for_user_code and the_pass.stops():
        if isinstance(the_pass, RecordedPass):
            raise Unmodelled("create_graph=True through a hook, or a node whose backward is not modelled")
        return Suspended(e, the_pass, finish, judge)
    try:
        the_pass.run()
    except errors.ShadowError:
        if judge is not None:
            judge()
        raise
    return finish()


@op(".backward", kind="other")
def backward(
    e: Engine,
    self: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> Any:
    tensor_only(self)
    return backward_all(e, [self], [gradient], retain_graph, create_graph, None, inputs)


@op("torch.autograd.backward", kind="other")
def backward_all(e: Engine, tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
                 create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> Any:  # fmt: skip
    if grad_variables is not None:
        raise Unmodelled("grad_variables")
    outputs = as_list(tensors)
    tensor_only(*outputs)
    given = as_list(grad_tensors) or [None] * len(outputs)
    the_pass = prepare(e, outputs, given, retain_graph, bool(create_graph))
    if create_graph:
        e.warnings.append(errors.CYCLE)
    if inputs is not None:
        wanted = as_list(inputs)
        the_pass.plan()
        if not wanted:
            raise runtime("`inputs` argument to `backward()` cannot be empty.")
        for x in wanted:
            retain_grad(e, x)
        the_pass.restrict({id(e.graph.edge(x)[0]) for x in wanted})
    elif not (
        create_graph
        or e.graph.reshaped
        or e.graph.follows_values
        or e.graph.has_guests
        or e.suspicious
        or e.policy.inplace_never_breaks_backward
    ):
        check_roots(the_pass)
        return the_pass.run_without_numbers()
    else:
        the_pass.plan()
    if e.suspicious and any(node.retains for node in the_pass.nodes.values()):
        raise Unmodelled("node hooks (Node.register_hook), which cannot be observed, together with retain_grad")
    rehearsal = rehearse(the_pass)
    nodes = the_pass.nodes.values() if rehearsal is not None else ()
    filled = [
        tensor for node in nodes for tensor in (node.leaf, *(kept() for _, kept in node.retains)) if tensor is not None
    ]
    before = {id(tensor): tensor.gradient.values() for tensor in filled if tensor.gradient is not None}

    def judge() -> None:
        if rehearsal is not None and not the_pass.altered:
            e.harms += compare(before, rehearsal[0], the_pass, rehearsal[1], e.harmed)

    return execute(the_pass, judge, judge)


@op("torch.autograd.grad", kind="other")
def grad(e: Engine, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> Any:  # fmt: skip
    if is_grads_batched:
        raise Unmodelled("is_grads_batched: the backward runs under vmap")
    if e.suspicious:
        raise Unmodelled("node hooks (Node.register_hook), which cannot be observed and may replace these gradients")
    if materialize_grads and allow_unused is not None and not allow_unused:
        text = (
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
        raise errors.ShadowError("ValueError", text)
    if inputs is None:
        raise errors.ShadowError("TypeError", "'NoneType' object is not iterable")
    made, wanted = as_list(outputs), as_list(inputs)
    tensor_only(*made, *wanted)
    given = as_list(grad_outputs) or [None] * len(made)
    the_pass = prepare(e, made, given, retain_graph, bool(create_graph))
    the_pass.plan()
    places = [_place(e, x) for x in wanted]
    for position, place in enumerate(places):
        the_pass.captures.setdefault(place, []).append(position)
    the_pass.restrict({node for node, _ in places})
    rehearsal = rehearse(the_pass)
    unused_ok = bool(allow_unused) or materialize_grads

    def finish() -> tuple[Any, ...]:
        results = tuple(
            _captured(e, the_pass, k, x, unused_ok, materialize_grads, bool(create_graph)) for k, x in enumerate(wanted)
        )
        if rehearsal is not None and not the_pass.altered:
            _harms(e, the_pass, rehearsal, wanted)
        return results

    return execute(the_pass, finish)


def _place(e: Engine, x: ShadowTensor) -> tuple[int, int]:
    if not x.requires_grad:
        raise runtime("One of the differentiated Tensors does not require grad", "no-gradient", tensor=x)
    check_base(x)
    if x.grad_fn is None:
        node = x.accumulator() if x.accumulator is not None else None
        return (id(node) if node is not None else -id(x), 0)
    return id(x.grad_fn), x.output_nr


def _captured(
    e: Engine, the_pass: Pass, k: int, x: ShadowTensor, unused_ok: bool, zeros: bool, create_graph: bool
) -> ShadowTensor | None:
    gradient = the_pass.captured.get(k)
    if gradient is None:
        if not unused_ok:
            which = (
                f"The differentiated Tensor at index {k}"
                if e.does(UNUSED_HAVE_AN_INDEX)
                else "One of the differentiated Tensors"
            )
            raise runtime(errors.UNUSED.format(which=which), "no-gradient", tensor=x)
        return _materialized(e, x, requires_grad=create_graph) if zeros else None
    result = detached(e, gradient, x, [g.tensor for _, g in the_pass.roots if g.tensor is not None])
    e.arrived.append((result, gradient))
    return result


def _materialized(e: Engine, like: ShadowTensor, *, requires_grad: bool) -> ShadowTensor:
    """Return zeros for an unused input, as ``materialize_grads=True`` does."""
    zeros = new(e, like.shape, like.dtype, np.zeros(()), preserved(like))
    zeros.flag = requires_grad
    return zeros


def detached(e: Engine, gradient: Gradient, like: ShadowTensor, given: list[ShadowTensor]) -> ShadowTensor:
    """The tensor that hooks get for ``gradient``: on its memory, without a copy (that of a sum has stride 0), and the
    same object every time.

    ``like`` is the tensor that the gradient is of. A gradient on the storage of one of ``given`` (gradients that the
    caller passed in) becomes a view of that.
    """
    if gradient.tensor is None:
        array = gradient.array
        # the tensor's .data may have been replaced: its gradient has the dtype of when the graph was made.
        dtype = (
            like.dtype
            if array is None or like.dtype.numpy is None or like.dtype.numpy == array.dtype
            else from_numpy(array.dtype)
        )
        unknown = array is None and gradient.outline is None
        made = new(e, gradient.shape, dtype, None) if unknown else in_memory(gradient, like.graph, dtype)
        made.counter = gradient.held.counter
        source = next((tensor for tensor in given if tensor.storage is made.storage), None)
        if source is not None:  # a view, made inside backward, of the root gradient
            made = open_window(e, source, made.shape, made.stride, made.offset, "no_grad")
        made.received = source is None
        made.loose = (
            gradient.loose or unknown or not {0, 1}.isdisjoint(gradient.shape)
        )  # strides of at most one element do not matter
        gradient.tensor = made
    return gradient.tensor


def _harms(e: Engine, the_pass: Pass, rehearsal: tuple[Pass, list[Any]], wanted: list[ShadowTensor]) -> None:
    for k, x in enumerate(wanted):
        real, meant = the_pass.captured.get(k), rehearsal[0].captured.get(k)
        if real is None or meant is None:
            continue
        if real.array is None or meant.array is None or not np.array_equal(real.array, meant.array, equal_nan=True):
            e.harms.append(WrongGradient(x, real.array, meant.array, tuple(rehearsal[1])))


# -- hooks


@op(".retain_grad", kind="other")
def retain_grad(e: Engine, self: Any) -> None:
    tensor_only(self)
    if not self.requires_grad:
        raise runtime("can't retain_grad on Tensor that has requires_grad=False", tensor=self)
    if self.node is None or self.retains_grad:
        return  # here torch uses a view's present grad_fn without regenerating it
    node = self.grad_fn
    assert node is not None
    self.retains_grad = True
    node.retains += ((self.output_nr, ref(self)),)


def _nowhere() -> None:
    """Return None, as the weak reference to a node would that no longer exists; for edges that lead to no node."""


@op(".register_hook", kind="other")
def register_hook(e: Engine, self: Any, hook: Any) -> Handle:
    """``Tensor.register_hook``: a stand-alone engine calls the hook; in lockstep torch does, and ``hook`` is None. The
    handle that is returned removes it.

    The hook belongs to the grad_fn that the tensor has at its first hook. Raises ``ShadowError`` (torch's error) for a
    tensor that requires no gradient, and ``Unmodelled`` for what is no tensor.
    """
    tensor_only(self)
    if not self.requires_grad:
        raise runtime("cannot register a hook on a tensor that doesn't require gradient", tensor=self)

    def call(gradient: Gradient) -> Gradient:
        if isinstance(gradient, Recorded):
            answer = hook(gradient.tensor)
            return gradient if answer is None else hooked(gradient, Recorded(e, answer))
        if gradient.array is None:
            return Gradient(None, gradient.shape)
        shown = in_memory(gradient, self.graph, self.dtype)
        kept = ref(shown)
        record = e.record()
        returned = hook(shown)
        e.record(record)  # operations inside the hook are not part of this call's record
        del shown
        seen = kept()
        if seen is not None and returned is not seen:
            gradient.hold()  # the hook keeps a reference: the gradient's memory cannot become .grad
        if returned is None or returned is seen:
            return gradient
        numbers = returned.window()
        return hooked(
            gradient, Gradient(None if numbers is None else numbers.copy(order="K"), gradient.shape)
        )  # its strides

    e.graph.has_guests = True
    if self.hooked is None:  # later hooks are put at the node of the first one, whatever the present grad_fn
        self.hooked = _nowhere, 0
        if self.grad_fn is not None:
            self.hooked = ref(self.grad_fn), self.output_nr
    node, index = self.hooked[0](), self.hooked[1]
    entry = (index, None if hook is None else call)
    return Handle(entry, self) if node is None else Handle(entry, self, node)


@op(".register_post_accumulate_grad_hook", kind="other")
def register_post_accumulate_grad_hook(e: Engine, self: Any, hook: Any) -> Handle:
    """``register_post_accumulate_grad_hook``: the hook runs after the leaf's ``.grad`` was written, and must return
    None. The handle that is returned removes it.

    Raises ``ShadowError`` (torch's error) for a tensor that is no leaf, or requires no gradient, and ``Unmodelled`` for
    what is no tensor.
    """
    tensor_only(self)
    if not self.requires_grad:
        raise runtime("cannot register a hook on a tensor that doesn't require gradient", tensor=self)
    if self.grad_fn is not None:
        raise runtime("post accumulate grad hooks cannot be registered on non-leaf tensors", tensor=self)
    e.graph.has_guests = True
    return Handle((AFTER, hook), self)
