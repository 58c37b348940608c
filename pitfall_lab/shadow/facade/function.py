"""``torch.autograd.Function`` for the facade: a node with a user-defined forward and backward.

Source in torch: ``torch/csrc/autograd/python_function.cpp`` and ``custom_function.cpp``. What ``save_for_backward`` got
is captured when ``apply`` returns and checked like any saved tensor; other attributes of ``ctx`` are not checked.

In torch: ``jvp``, ``vmap``, ``setup_context`` and ``once_differentiable`` exist too; ``backward``
cannot be differentiated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, runtime
from pitfall_lab.shadow.facade.tensors import Tensor, engine, no_grad, raise_as_torch, saved_tensor, wrap
from pitfall_lab.shadow.graph import Node, Saved
from pitfall_lab.shadow.ops.building import broadcast, new, open_window
from pitfall_lab.shadow.storage import ShadowTensor, Shape


class FunctionCtx:
    """The ``ctx`` of a custom Function: an object on which ``forward`` stores data for ``backward``.

    ``needs_input_grad`` has a bool for each argument of ``apply``: whether it is a tensor that requires a gradient.
    """

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self.to_save: tuple[Tensor | None, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.without_gradient: tuple[Tensor, ...] = ()
        self.materialize = True
        self.node: Node | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save ``tensors`` (inputs or outputs) for backward.

        ``backward`` reads them as ``ctx.saved_tensors``, which raises RuntimeError if one was written in place after it
        was saved.
        """
        self.to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare that ``forward`` has written these inputs in place."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare that no gradient flows through these outputs."""
        self.without_gradient = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set what ``backward`` receives for an output without a gradient: zeros (True,
        the default) or None (False).
        """
        self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the saved tensors; None for each None that ``save_for_backward`` was given.

        Raises RuntimeError, as torch does, if one was modified or freed since. This is not checked before ``apply`` has
        returned, or if ``apply`` made no node.
        """
        kept = {saved.name: saved for saved in self.node.saved} if self.node is not None else {}
        if self.node is not None and self.node.freed and self.to_save:
            raise RuntimeError(errors.TWICE)
        found: list[Tensor | None] = list(self.to_save)
        for k, tensor in enumerate(found):
            if tensor is not None and self.node is not None:
                found[k] = saved_tensor(self.node, kept[f"{k}"])
        return tuple(found)


class Function:
    """The base class: ``forward(ctx, ...)`` and ``backward(ctx, ...)`` as static methods, called through ``apply``."""

    forward: ClassVar[Any]
    backward: ClassVar[Any]

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward`` with ``args`` under no_grad and return what it returned.

        One node becomes the grad_fn of the floating-point outputs that are not marked as non-differentiable. An input
        that is returned without ``mark_dirty`` is replaced by a view of it. No node is made if grad mode is off, in
        inference mode, or if no argument requires a gradient. Raises RuntimeError for an input marked dirty that is a
        leaf and requires a gradient.
        """
        e, ctx = engine(), FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = e.grad_enabled and not e.inference and any(ctx.needs_input_grad)
        edges = tuple(e.graph.edge(a.shadow) if recording and isinstance(a, Tensor) else (None, 0) for a in args)
        with no_grad():
            result = cls.forward(ctx, *args)
        outputs = list(result) if isinstance(result, tuple) else [result]
        if not recording:
            for view in (
                out.shadow.view for out in outputs if isinstance(out, Tensor) and not any(out is a for a in args)
            ):
                if view is not None:
                    view.creation = "custom"
            return result
        node = e.graph.new_node(f"{cls.__name__}Backward", edges)
        node.vjp = _Rule(e, ctx, cls.backward, node)
        node.multiple = len(outputs) > 1
        place = _Place(e, node, ctx, args)
        try:
            made = [place.output(out, index) if isinstance(out, Tensor) else out for index, out in enumerate(outputs)]
        except ShadowError as error:
            raise_as_torch(error)
        for k, tensor in enumerate(ctx.to_save):
            if tensor is not None:
                fresh = next((m for o, m in zip(outputs, made, strict=True) if o is tensor), tensor)
                node.keep(Saved(f"{k}", fresh.shadow, is_output=fresh.shadow.node is node))
        ctx.node = node
        return tuple(made) if isinstance(result, tuple) else made[0]


@dataclass
class _Place:
    """One call of ``apply``: its node, ctx and inputs, from which the grad_fn of each output follows."""

    e: Engine
    node: Node
    ctx: FunctionCtx
    inputs: Sequence[Any]

    def output(self, out: Tensor, index: int) -> Tensor:
        """Make ``out`` the output ``index`` of the node; return the tensor that ``apply`` returns.

        An output that is marked non-differentiable, or an integer or bool, is returned as it is. So is an input
        marked dirty, with the node as its grad_fn; a leaf that requires a gradient raises there. An input returned
        unmarked becomes a view of itself.
        """
        node, shadow = self.node, out.shadow
        node.outputs += [((), shadow.dtype)] * (index + 1 - len(node.outputs))
        if any(out is t for t in self.ctx.without_gradient) or shadow.dtype.category < 2:
            return out
        if any(out is t for t in self.ctx.dirty):
            if shadow.requires_grad and shadow.is_leaf:
                raise runtime(
                    "a leaf Variable that requires grad has been used in an in-place operation.",
                    "leaf-modified",
                    tensor=shadow,
                )
            node.outputs[index] = (shadow.shape, shadow.dtype)
            self.e.graph.rebase(shadow, node)
            return out
        if any(out is a for a in self.inputs):
            shadow = open_window(self.e, shadow, shadow.shape, shadow.stride, shadow.offset)
        if shadow.view is not None:
            shadow.view.creation, shadow.view.version = "custom", shadow.version
        shadow.node, shadow.output_nr, shadow.flag = node, index, False
        node.outputs[index] = (shadow.shape, shadow.dtype)
        found = wrap(shadow)
        assert isinstance(found, Tensor)
        return found


def _shape(node: Node, index: int) -> Shape:
    return node.outputs[index][0]


def _sums_to(shape: Shape, wanted: Shape) -> bool:
    """Whether a gradient of ``shape`` can be summed down to ``wanted``, because ``wanted`` broadcasts to ``shape``."""
    try:
        return broadcast(shape, wanted) == shape
    except ShadowError:
        return False


class _Rule:
    """The ``backward`` of the program's Function in the form in which the engine calls the backward of a node."""

    def __init__(self, e: Engine, ctx: FunctionCtx, backward: Any, node: Node) -> None:
        self.e, self.ctx, self.backward = e, ctx, backward
        self.name, self.metas = node.name, node.outputs
        self.wanted = [None if inner is None else _shape(inner, index) for inner, index in node.next]

    def __call__(self, g: Any, _: Any) -> list[np.ndarray | None]:
        given = g if isinstance(g, list) else [g]
        tensors = [self._incoming(array, meta) for array, meta in zip(given, self.metas, strict=False)]
        with no_grad():
            answer = self.backward(self.ctx, *tensors)
        answers = list(answer) if isinstance(answer, tuple) else [answer]
        while len(answers) > len(self.wanted) and answers[-1] is None:
            answers.pop()
        if len(answers) != len(self.wanted):
            text = (
                f"function {self.name} returned an incorrect number of gradients (expected "
                f"{len(self.wanted)}, got {len(answers)})"
            )
            raise runtime(text, "shape")
        for index, (wanted, x) in enumerate(zip(self.wanted, answers, strict=True)):
            if wanted is not None and x is not None and not _sums_to(x.shadow.shape, wanted):
                found = f"got {list(x.shadow.shape)} but expected shape compatible with {list(wanted)}"
                raise runtime(f"Function {self.name} returned an invalid gradient at index {index} - {found}", "shape")
        return [
            None if wanted is None or x is None else x.shadow.values()
            for wanted, x in zip(self.wanted, answers, strict=True)
        ]

    def _incoming(self, array: np.ndarray | None, meta: Any) -> Tensor | None:
        if array is None and not self.ctx.materialize:
            return None
        made: ShadowTensor = new(self.e, meta[0], meta[1], np.zeros(()) if array is None else array)
        found = wrap(made)
        assert isinstance(found, Tensor)
        return found


__all__ = ["Function", "FunctionCtx"]
