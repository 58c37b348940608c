"""``create_graph=True``: gradients that are tensors with a grad_fn.

Torch computes gradients with ordinary operations, and with ``create_graph=True`` it records them like any others. So
does the shadow: the rules of :mod:`pitfall_lab.shadow.ops` are written in NumPy, and a :class:`Term` in place of an
array makes NumPy call the engine's operations instead (NEP 13 and NEP 18). A rule whose operations are not torch's has
an entry in :data:`FORMULAS`. A node that is neither there nor in :data:`AS_WRITTEN` (the nodes whose rule is used as it
is) has no second derivative here: the whole call raises ``Unmodelled``, without effects.

Source in torch: ``tools/autograd/derivatives.yaml``, ``torch/csrc/autograd/FunctionsManual.cpp``,
``functions/accumulate_grad.h``.
"""

# ruff: noqa: ARG001, ARG005 - every formula takes (node, g, s, metas), every vjp (g, s); tables in rows

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from pitfall_lab.shadow.backward import Pass, check_sizes, made_by, meta_of
from pitfall_lab.shadow.dtypes import DType, from_numpy
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.gradient import Gradient, sum_to
from pitfall_lab.shadow.graph import Meta, Node, Saved, Written, unpack
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.ops.building import Keep, OpRule, new, pointwise, pure, put_back, sign_of
from pitfall_lab.shadow.origins import Step, Sum
from pitfall_lab.shadow.registry import ENTRIES
from pitfall_lab.shadow.storage import ShadowTensor, Shape, is_dense

UFUNCS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div", np.power: "pow", np.negative: "neg",
    np.exp: "exp", np.log: "log", np.sin: "sin", np.cos: "cos", np.sinh: "sinh", np.cosh: "cosh", np.sqrt: "sqrt",
    np.matmul: "mm",
}  # fmt: skip


class Term:
    """Wraps a shadow tensor so that NumPy formulas can compute with it: each operation calls the engine's, is recorded
    by autograd, and returns a Term.
    """

    __slots__ = ("engine", "tensor")

    def __init__(self, engine: Engine, tensor: ShadowTensor) -> None:
        self.engine = engine
        self.tensor = tensor

    def call(self, name: str, *args: Any, **kwargs: Any) -> Term:
        """Call the operation of torch's ``name`` on terms, tensors and numbers."""
        plain = [_plain(x) for x in args]
        return Term(self.engine, ENTRIES[name].run(self.engine, *plain, **kwargs))

    def method(self, name: str, *args: Any, **kwargs: Any) -> Term:
        """Call a tensor method on this term."""
        return self.call(f"torch.Tensor.{name}", self, *args, **kwargs)

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.tensor.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.tensor.ndim

    @property
    def dtype(self) -> Any:
        """The NumPy type of the elements."""
        return self.tensor.dtype.numpy

    @property
    def T(self) -> Term:  # noqa: N802 - NumPy's name
        """The transpose of a matrix."""
        return self.method("t")

    def reshape(self, shape: Shape) -> Term:
        """The same elements in another shape."""
        return self.method("reshape", *shape)

    def transpose(self, order: Sequence[int]) -> Term:
        """The dimensions in another order."""
        return self.method("permute", *(int(d) for d in order))

    def astype(self, dtype: Any, copy: bool = True) -> Term:
        """The elements as another type."""
        return self.method("to", from_numpy(np.dtype(dtype)))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Term:
        """The sum over the dimensions ``axis``, or over all."""
        return self.method("sum") if axis is None else self.method("sum", axis, keepdims)

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: Any, **_: Any) -> Any:
        if ufunc is np.conjugate:
            return inputs[0]
        if how != "__call__" or ufunc not in UFUNCS:
            raise Unmodelled(f"the second derivative needs {ufunc.__name__}")
        first, *others = inputs
        if not isinstance(first, Term):
            return self._reflected(ufunc, _plain(first))
        if ufunc in SCALED and not isinstance(others[0], Term):
            return _pointwise(SCALED[ufunc](_plain(others[0])), first, number=_plain(others[0]))
        return self.call(f"torch.Tensor.{UFUNCS[ufunc]}", first, *others)

    def _reflected(self, ufunc: Any, number: Any) -> Term:
        if ufunc is np.multiply:
            return _pointwise(_times(number), self, number=number)
        if ufunc is np.subtract:  # C++'s `1 - x` fills a tensor and subtracts in place
            filled = new(self.engine, self.shape, self.tensor.dtype, np.asarray(number), preserved(self.tensor))
            return self.call("torch.Tensor.sub_", filled, self)
        raise Unmodelled(f"the second derivative needs {ufunc.__name__} of a number and a tensor")

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        known = FUNCTIONS.get(function)
        if known is None:
            raise Unmodelled(f"the second derivative needs {function.__name__}")
        return known(*args, **kwargs)

    def __add__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.add, "__call__", self, other)

    def __sub__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.subtract, "__call__", self, other)

    def __mul__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.multiply, "__call__", self, other)

    def __truediv__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.true_divide, "__call__", self, other)

    def __pow__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.power, "__call__", self, other)

    def __matmul__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.matmul, "__call__", self, other)

    def __neg__(self) -> Any:
        return self.__array_ufunc__(np.negative, "__call__", self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Any:
        return self.__array_ufunc__(np.subtract, "__call__", other, self)


def _plain(x: Any) -> Any:
    if isinstance(x, Term):
        return x.tensor
    return x.item() if isinstance(x, np.generic) else x


def _expand_dims(g: Term, axis: Any) -> Term:
    for at in sorted((axis,) if isinstance(axis, int) else axis):
        g = g.method("unsqueeze", at)
    return g


def _times(factor: Any) -> OpRule:
    """The product with a number as in torch's C++ code, which saves nothing (Python's ``*``
    wraps the number into a tensor).
    """
    return OpRule("MulBackward1", lambda x: x * x.dtype.type(factor), (), lambda g, s: (g * factor,))


def _over(divisor: Any) -> OpRule:
    return OpRule("DivBackward1", lambda x: x / x.dtype.type(divisor), (), lambda g, s: (g / divisor,))


def _plus(addend: Any) -> OpRule:
    return OpRule("AddBackward1", lambda x: x + x.dtype.type(addend), (), lambda g, s: (g,))


SCALED: dict[Any, Callable[[Any], OpRule]] = {np.multiply: _times, np.true_divide: _over, np.add: _plus}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.broadcast_to: lambda g, shape: g.method("expand", *shape),
    np.expand_dims: _expand_dims,
    np.squeeze: lambda g, axis: g.method("squeeze", axis),
    np.swapaxes: lambda g, one, two: g.method("transpose", one, two),
    np.zeros_like: lambda g, order="K": Term(
        g.engine, new(g.engine, g.shape, g.tensor.dtype, np.zeros(()), preserved(g.tensor) if order == "K" else None)
    ),
}

# -- rules whose operations are not torch's

AS_WRITTEN = frozenset({
    "AddBackward0", "SubBackward0", "RsubBackward1", "MulBackward0", "DivBackward0", "NegBackward0", "PowBackward0",
    "ExpBackward0", "LogBackward0", "SinBackward0", "CosBackward0", "SinhBackward0", "CoshBackward0", "SumBackward0",
    "SumBackward1", "MeanBackward0", "MeanBackward1", "ExpandBackward0", "ViewBackward0", "UnsafeViewBackward0",
    "ReshapeAliasBackward0", "TBackward0", "TransposeBackward0", "PermuteBackward0", "UnsqueezeBackward0",
    "SqueezeBackward0", "SqueezeBackward1", "SqueezeBackward2", "MmBackward0", "AddmmBackward0", "DotBackward0",
    "CloneBackward0", "CopyBackwards", "ToCopyBackward0", "SqrtBackward0", "AliasBackward0", "FloorBackward0",
    "CeilBackward0", "RoundBackward0", "SignBackward0", "TruncBackward0", "Expm1Backward0", "MulBackward1",
    "DivBackward1", "AddBackward1", "ReciprocalBackward0", "RsqrtBackward0", "AtanBackward0", "ZeroBackward0",
})  # fmt: skip
"""Nodes whose NumPy rule, read operation by operation, is torch's own formula (each is
compared with torch in the tests).
"""

TANH = OpRule(
    "TanhBackwardBackward0",
    lambda g, y: g * (1 - y * y),
    (Keep("grad_output", 0, 1), Keep("output", 1)),
    lambda g, s: (
        g * (1 - s.output * s.output),
        None if s.grad_output is None else g * (-2 * s.output * s.grad_output),
    ),
)
SIGMOID = OpRule(
    "SigmoidBackwardBackward0",
    lambda g, y: g * ((1 - y) * y),
    (Keep("grad_output", 0, 1), Keep("output", 1)),
    lambda g, s: (
        g * ((1 - s.output) * s.output),
        None if s.grad_output is None else g * s.grad_output * (1 - 2 * s.output),
    ),
)
THRESHOLD = OpRule(
    "ThresholdBackwardBackward0", lambda g, y: np.where(y <= 0, 0, g), (Keep("self", 1),),
    lambda g, s: (np.where(s.self <= 0, 0, g), np.zeros_like(g)),
)  # fmt: skip


def _atomic(rule: OpRule) -> Callable[..., tuple[Any, ...]]:
    """The formula of a node whose backward is a single torch operation on the gradient and the saved result."""
    return lambda node, g, s, metas: (_pointwise(rule, g, s.result),)


def _pointwise(rule: OpRule, *terms: Term, number: Any = None) -> Term:
    """Run ``rule`` on terms, as an operation of the engine that is recorded like others.

    ``number``: the Python number that the rule has built in. Torch passes it to TensorIterator as an operand, so it
    may change the strides of the result.
    """
    e, tensors = terms[0].engine, [t.tensor for t in terms]
    return Term(
        e, pointwise(e, rule, tensors, tensors[0].dtype, iterated=None if number is None else (*tensors, number))
    )


def _row_by_row(rule: OpRule, g: Term, result: Term) -> Term:
    return Term(g.engine, pure(g.engine, rule, (g.tensor, result.tensor), g.shape, g.tensor.dtype))


def _window(node: Node, g: Term, _: Any, _metas: Any) -> tuple[Any, ...]:
    """The formula of a view's node: the gradient in zeros of the base's shape.

    The gradient of that is the same view again.
    """
    shape, place = node.vjp.args  # type: ignore[union-attr]
    again = OpRule(
        f"{node.name.removesuffix('0')}Backward0",
        lambda x: put_back(shape, place, x, None)[0],
        (),
        lambda back, s: (place(back),),
    )
    return (Term(g.engine, pure(g.engine, again, (g.tensor,), shape, g.tensor.dtype)),)


def _absolute(_node: Node, g: Term, s: Any, _metas: Any) -> tuple[Any, ...]:
    # torch's zeros have no storage here (``_efficientzerotensor``): nothing is added to them in place
    zeros = OpRule(
        "SgnBackward0",
        sign_of,
        (Keep("self", 0), Keep("result", "result")),
        lambda g, s: (Written(np.zeros_like(g), 0, seen_through=True),),
    )
    return (g * _pointwise(zeros, s.self),)


def _mv(_node: Node, g: Term, s: Any, _metas: Any) -> tuple[Any, ...]:
    left = None if s.vec is None else g.reshape((-1, 1)) * s.vec
    return left, None if s.self is None else s.self.T.method("mv", g)


def _softmax(node: Node, g: Term, s: Any, _metas: Any) -> tuple[Any, ...]:
    (at,) = node.vjp.args  # type: ignore[union-attr]

    def inner(a: Any, b: Any) -> Any:
        return np.sum(a * b, axis=at, keepdims=True)

    def back(d: Any, s: Any) -> tuple[Any, Any]:
        straight = s.output * (d - inner(d, s.output))
        if s.grad_output is None:
            return straight, None
        h = s.grad_output
        return straight, d * h - inner(s.output, h) * d - h * inner(s.output, d)

    rule = OpRule(
        "SoftmaxBackwardDataBackward0",
        lambda g, y: y * (g - inner(g, y)),
        (Keep("grad_output", 0, 1), Keep("output", 1)),
        back,
    )
    return (_row_by_row(rule, g, s.result),)


def _log_softmax(node: Node, g: Term, s: Any, _metas: Any) -> tuple[Any, ...]:
    (at,) = node.vjp.args  # type: ignore[union-attr]

    def total(a: Any) -> Any:
        return np.sum(a, axis=at, keepdims=True)

    def back(d: Any, s: Any) -> tuple[Any, Any]:
        e = np.exp(s.output)
        return d - total(d * e), None if s.grad_output is None else -total(s.grad_output) * e * d

    keeps = (Keep("grad_output", 0, 1), Keep("output", 1))
    rule = OpRule("LogSoftmaxBackwardDataBackward0", lambda g, y: g - np.exp(y) * total(g), keeps, back)
    return (_row_by_row(rule, g, s.result),)


def _cat(node: Node, g: Term, _s: Any, metas: Sequence[Meta | None]) -> tuple[Any, ...]:
    """The backward of cat: consecutive slices of the gradient along the dimension."""
    shapes = [m[0] if m is not None else None for m in metas]
    if any(s is None for s in shapes):
        raise Unmodelled("the second derivative of cat where one operand does not require grad")
    known = [s for s in shapes if s is not None]
    at = next((d for d in range(g.ndim) if any(s[d] != g.shape[d] for s in known)), 0)
    cuts, start = [], 0
    for s in known:
        cuts.append(g.method("narrow", at, start, s[at]))
        start += s[at]
    return tuple(cuts)


FORMULAS: dict[str, Callable[[Node, Any, Any, Sequence[Meta | None]], tuple[Any, ...]]] = {
    "TanhBackward0": _atomic(TANH),
    "SigmoidBackward0": _atomic(SIGMOID),
    "ReluBackward0": _atomic(THRESHOLD),
    "SliceBackward0": _window,
    "SelectBackward0": _window,
    "DiagonalBackward0": _window,
    "AbsBackward0": _absolute,
    "CatBackward0": _cat,
    "MvBackward0": _mv,
    "SoftmaxBackward0": _softmax,
    "LogSoftmaxBackward0": _log_softmax,
}


# -- the pass


class Recorded(Gradient):
    """A gradient that is a tensor with a grad_fn."""

    __slots__ = ("engine",)

    def __init__(self, engine: Engine, tensor: ShadowTensor) -> None:
        super().__init__(tensor.window(), tensor.shape, None, tensor)
        self.engine = engine

    def plus(self, other: Gradient) -> Gradient:
        """The sum, never in place, since its operands may be saved tensors."""
        total = Recorded(self.engine, _call(self.engine, "torch.Tensor.add", self.tensor, other.tensor))
        total.origin = Sum(self, other)
        return total


def _call(e: Engine, name: str, *args: Any, **kwargs: Any) -> ShadowTensor:
    result: ShadowTensor = ENTRIES[name].run(e, *args, **kwargs)
    return result


class RecordedPass(Pass):
    """A backward pass whose operations are recorded.

    At a node without a formula it raises ``Unmodelled``, and filled gradients are restored.
    """

    def run(self) -> None:
        """Run with grad mode on, whatever the caller's mode, as torch does."""
        e = self.engine
        before = e.grad_enabled
        leaves = [(node.leaf, node.leaf.gradient) for node in self.nodes.values() if node.leaf is not None]
        retained = [
            (t, t.gradient) for node in self.nodes.values() for _, kept in node.retains if (t := kept()) is not None
        ]
        e.grad_enabled = True
        try:
            super().run()
        except Unmodelled:
            for tensor, gradient in (*leaves, *retained):
                tensor.gradient = gradient
            raise
        finally:
            e.grad_enabled = before

    def compute(self, node: Node, incoming: list[Gradient | None], as_meant: bool) -> list[Gradient | None]:
        """The node's outgoing gradients, by its formula on tensors; None where there is no gradient.

        Raises ``Unmodelled``, among others, for a node without a formula, and one that received a gradient without a
        tensor.
        """
        del as_meant
        if all(g is None for g in incoming):
            return [None] * len(node.children)
        formula = FORMULAS.get(node.name)
        if node.mirrored or node.multiple or node.vjp is None or (formula is None and node.name not in AS_WRITTEN):
            raise Unmodelled(f"create_graph: the second derivative of {node.name} is not modelled")
        first = incoming[0]
        if first is None or first.tensor is None:
            raise Unmodelled(f"create_graph: {node.name} received no gradient, or one whose grad_fn is not modelled")
        metas = [meta_of(edge) for edge in node.next]
        g, saved = Term(self.engine, first.tensor), self._unpack(node)
        results = node.vjp(g, saved) if formula is None else formula(node, g, saved, metas)
        check_sizes(node, [None if r is None else r.tensor for r in results], metas)
        outgoing = [self._fit(r, meta) for r, meta in zip(results, metas, strict=False)]
        arrays = unpack(node, as_meant=False)
        if arrays is not None:
            made_by(Step.of(node, incoming, arrays), outgoing)
        return outgoing

    def _unpack(self, node: Node) -> _Terms:
        return _Terms({s.name: Term(self.engine, unpacked(self.engine, node, s)) for s in node.saved})

    def _fit(self, result: Any, meta: Meta | None) -> Gradient | None:
        """A gradient summed to the shape and cast to the dtype of the forward input
        (``validate_outputs`` in torch's engine).

        None for no gradient, or where none is needed.
        """
        if meta is None or result is None:
            return None
        shape, dtype = meta
        tensor = result.tensor
        if tensor.shape != shape:
            tensor = sum_to(Term(self.engine, tensor), shape).tensor
        if tensor.dtype != dtype:
            tensor = _call(self.engine, "torch.Tensor.to", tensor, dtype)
        return Recorded(self.engine, tensor)

    def retain(self, tensor: ShadowTensor, gradient: Gradient, dtype: DType) -> None:
        """``retain_grad``: a copy, or a new sum, with its grad_fn."""
        e, held = self.engine, tensor.gradient
        if held is None:
            tensor.gradient = _call(e, "torch.Tensor.clone", gradient.tensor, memory_format="contiguous_format")
        else:
            tensor.gradient = _call(e, "torch.Tensor.add", held, gradient.tensor)
        e.arrived.append((tensor.gradient, gradient))

    def accumulate(self, node: Node, leaf: ShadowTensor, gradient: Gradient) -> None:
        """The leaf's ``.grad``: a copy the first time, later a new sum; never in place.

        A leaf that no longer requires a gradient gets none.
        """
        if not leaf.requires_grad or gradient.tensor is None:
            return
        e, held = self.engine, leaf.gradient
        self.filled[id(leaf)] = (leaf, gradient)
        if held is not None and not e.policy.backward_overwrites_grad:
            leaf.gradient = _call(e, "torch.Tensor.add", held, gradient.tensor)
        elif is_dense(leaf.shape, leaf.stride):
            leaf.gradient = _call(
                e,
                "torch.Tensor.copy_",
                new(e, leaf.shape, node.outputs[0][1], np.zeros(()), leaf.stride),
                gradient.tensor,
            )
        else:
            leaf.gradient = _call(e, "torch.Tensor.clone", gradient.tensor)
        e.graph.gradients.add(leaf.gradient)
        e.arrived.append((leaf.gradient, gradient))
        self.after(leaf)


class _Terms(SimpleNamespace):
    """Saved tensors by name; a name that was not saved reads as None."""

    def __init__(self, terms: dict[str, Term]) -> None:
        super().__init__(**terms)

    def __getattr__(self, name: str) -> None:
        return None


def unpacked(e: Engine, node: Node, saved: Saved) -> ShadowTensor:
    """The tensor that ``node`` has saved as ``saved``: the input itself, or, for an output, a new tensor on its storage
    with ``node`` as grad_fn.
    """
    if saved.tensor is not None:
        return saved.tensor
    tensor = ShadowTensor(e.graph, saved.storage, saved.shape, saved.stride, saved.offset, saved.dtype, saved.counter)
    tensor.node, tensor.output_nr = node, 0
    return tensor
