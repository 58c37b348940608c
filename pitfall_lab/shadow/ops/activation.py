"""Activation functions: those with a kernel of their own, and those that torch composes of other operations.

What an in-place form saves follows the derivative that torch registers for it: a private clone of the input
(silu, mish, hardswish, hardtanh, threshold), or the result, which the next write then invalidates (elu,
selu, celu, leaky_relu, rrelu).
"""

# ruff: noqa: A002, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.gradient import laid_like
from pitfall_lab.shadow.graph import Saved
from pitfall_lab.shadow.layout import layout
from pitfall_lab.shadow.ops import pointwise, reduce, views
from pitfall_lab.shadow.ops.building import (
    Keep,
    OpRule,
    drawn,
    edges,
    finish_write,
    new,
    own,
    pure,
    records,
    tensor_only,
    wrap_dim,
)
from pitfall_lab.shadow.ops.building import in_place as write
from pitfall_lab.shadow.ops.building import pointwise as broadcasting
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor

SELF, RESULT = (Keep("self", 0),), (Keep("result", "result"),)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def activate(
    e: Engine, rule: OpRule, input: Any, in_place_rule: OpRule | None = None, *, inplace: bool = False
) -> ShadowTensor:
    """Run ``rule`` element by element; with ``inplace``, write ``input`` by ``in_place_rule``, or by ``rule`` if there
    is none.

    Raises ``Unmodelled``, among others, for a tensor that is not floating point.
    """
    tensor_only(input)
    if not input.dtype.is_floating_point:
        raise Unmodelled("an activation of a tensor that is not floating point")
    if inplace:
        return write(e, in_place_rule or rule, (input,), input.dtype)
    return broadcasting(e, rule, (input,), input.dtype, input.dtype)


# -- with a kernel of their own


def _selu_rules() -> tuple[OpRule, OpRule]:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

    def forward(x: Any) -> Any:
        return np.where(x > 0, scale * x, scale * alpha * np.expm1(x))

    return (
        OpRule(
            "EluBackward0",
            forward,
            SELF,
            lambda g, s: (g * np.where(s.self <= 0, scale * alpha * np.exp(s.self), scale),),
        ),
        OpRule(
            "EluBackward1",
            forward,
            RESULT,
            lambda g, s: (g * np.where(s.result <= 0, s.result + alpha * scale, scale),),
        ),
    )


SELU = _selu_rules()


@op(
    "F.selu",
    "torch.selu",
    saves="self; result when in place",
    samples=("F.selu(a)", "F.selu(h, inplace=True)", "torch.selu(a.t())", "F.selu(a[0])"),
    traits=("elementwise",),
)
def selu(e: Engine, input: Any, inplace: bool = False) -> ShadowTensor:
    return activate(e, SELU[0], input, SELU[1], inplace=inplace)


@op("F.selu_", kind="inplace", saves="result", samples=("F.selu_(h)", "F.selu_(h[0])"), traits=("elementwise",))
def selu_in_place(e: Engine, input: Any) -> ShadowTensor:
    return selu(e, input, inplace=True)


@op(
    "F.celu",
    "torch.celu",
    saves="self; result when in place",
    samples=("F.celu(a)", "F.celu(a, 2.0)", "F.celu(h, inplace=True)"),
    traits=("elementwise",),
)
def celu(e: Engine, input: Any, alpha: float = 1.0, inplace: bool = False) -> ShadowTensor:
    if alpha == 0:
        raise runtime("ZeroDivisionError: alpha cannot be 0 for CELU")

    def forward(x: Any) -> Any:
        return np.where(x > 0, x, alpha * np.expm1(x / alpha))

    rule = OpRule("CeluBackward0", forward, SELF, lambda g, s: (g * np.where(s.self <= 0, np.exp(s.self / alpha), 1),))
    in_place_rule = OpRule(
        "CeluBackward1", forward, RESULT, lambda g, s: (g * np.where(s.result <= 0, (s.result + alpha) / alpha, 1),)
    )
    return activate(e, rule, input, in_place_rule, inplace=inplace)


@op("F.celu_", kind="inplace", saves="result", samples=("F.celu_(h, 0.5)",), traits=("elementwise",))
def celu_in_place(e: Engine, input: Any, alpha: float = 1.0) -> ShadowTensor:
    return celu(e, input, alpha, inplace=True)


def _kernel(name: str, title: str, forward: Callable[[Any], Any], backward: Callable[[Any, Any], Any]) -> None:
    """Register an activation that saves its input and has an ``inplace`` argument."""
    rule = OpRule(f"{title}Backward0", forward, SELF, lambda g, s: (backward(g, s.self),))

    def run(e: Engine, input: Any, inplace: bool = False) -> ShadowTensor:
        return activate(e, rule, input, inplace=inplace)

    add(
        f"F.{name}",
        run,
        "pure",
        "self; a clone of self when in place",
        (f"F.{name}(a * 3)", f"F.{name}(h, inplace=True)", f"F.{name}(a.t())"),
        traits=("elementwise",),
    )


def _mish_slope(x: Any) -> Any:
    t = np.tanh(np.log1p(np.exp(x)))
    return t + x * sigmoid(x) * (1 - t * t)


_kernel("mish", "Mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), lambda g, x: g * _mish_slope(x))
SIXTH = float(np.float32(1) / np.float32(6))
"""In torch: a float32 number, also for float64."""

_kernel(
    "hardsigmoid",
    "Hardsigmoid",
    lambda x: np.clip(x + 3, 0, 6) / 6,
    lambda g, x: np.where((x > -3) & (x < 3), g * g.dtype.type(SIXTH), 0),
)
_kernel(
    "hardswish",
    "Hardswish",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    lambda g, x: np.where(x <= -3, 0, np.where(x < 3, g * (x / 3 + 0.5), g)),
)


@op("F.hardtanh_", kind="inplace", saves="a clone of self", samples=("F.hardtanh_(h)",), traits=("elementwise",))
def hardtanh_in_place(e: Engine, input: Any, min_val: float = -1.0, max_val: float = 1.0) -> ShadowTensor:
    return pointwise.hardtanh(e, input, min_val, max_val, inplace=True)


@op(
    "F.threshold",
    "torch.threshold",
    saves="self; a clone of self when in place",
    samples=("F.threshold(a, 0.1, 2.0)", "F.threshold(h, 0.1, 0.0, inplace=True)"),
    traits=("elementwise",),
)
def threshold(e: Engine, input: Any, threshold: float, value: float, inplace: bool = False) -> ShadowTensor:
    if not (isinstance(threshold, bool | int | float) and isinstance(value, bool | int | float)):
        raise Unmodelled("a threshold or value that is a tensor or complex")
    rule, in_place_rule = (
        OpRule(
            f"ThresholdBackward{k}",
            lambda x: np.where(x > threshold, x, value),
            SELF,
            lambda g, s: (np.where(s.self > threshold, g, 0),),
        )
        for k in (0, 1)
    )
    return activate(e, rule, input, in_place_rule, inplace=inplace)


@op(
    "F.threshold_",
    kind="inplace",
    saves="a clone of self",
    samples=("F.threshold_(h, 0.1, 0.0)",),
    traits=("elementwise",),
)
def threshold_in_place(e: Engine, input: Any, threshold_: float, value: float) -> ShadowTensor:
    return threshold(e, input, threshold_, value, inplace=True)


@op(
    "F.hardshrink",
    ".hardshrink",
    saves="self",
    samples=("F.hardshrink(a)", "F.hardshrink(a, 1.2)"),
    traits=("elementwise",),
)
def hardshrink(e: Engine, input: Any, lambd: float = 0.5) -> ShadowTensor:
    rule = OpRule(
        "HardshrinkBackward0",
        lambda x: np.where(np.abs(x) <= lambd, 0, x),
        SELF,
        lambda g, s: (np.where(np.abs(s.self) <= lambd, 0, g),),
    )
    return activate(e, rule, input)


@op("F.softshrink", saves="self", samples=("F.softshrink(a)", "F.softshrink(a, 1.2)"), traits=("elementwise",))
def softshrink(e: Engine, input: Any, lambd: float = 0.5) -> ShadowTensor:
    if lambd < 0:
        raise runtime(f"lambda must be greater or equal to 0, but found to be {lambd:g}.")
    rule = OpRule(
        "SoftshrinkBackward0",
        lambda x: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
        SELF,
        lambda g, s: (np.where(np.abs(s.self) <= lambd, 0, g),),
    )
    return activate(e, rule, input)


@op(
    "F.logsigmoid",
    saves="self, a private buffer",
    samples=("F.logsigmoid(a)", "F.logsigmoid(a * 20)"),
    traits=("elementwise",),
)
def logsigmoid(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if not input.dtype.is_floating_point:
        raise Unmodelled("logsigmoid of a tensor that is not floating point")

    def forward(x: Any) -> Any:
        buffer = np.exp(-np.abs(x))
        return np.minimum(x, 0) - np.log1p(buffer), buffer

    def vjp(g: Any, s: Any) -> tuple[Any]:
        z = s.buffer / (1 + s.buffer)
        return (laid_like(g * np.where(s.self < 0, 1 - z, z), g),)

    rule = OpRule("LogSigmoidBackward0", forward, SELF, vjp)
    return pure(e, rule, (input,), input.shape, input.dtype, hidden=("buffer",))


@op("F.glu", saves="self", samples=("F.glu(w)", "F.glu(w, 1)", "F.glu(a, 0)", "F.glu(img.mT)", "F.glu(a)"))
def glu(e: Engine, input: Any, dim: int = -1) -> ShadowTensor:
    tensor_only(input)
    if not input.ndim:
        raise runtime("glu does not support scalars because halving size must be even", "shape")
    at = wrap_dim(dim, input.ndim)
    if input.shape[at] % 2:
        raise runtime(f"Halving dimension must be even, but dimension {at} is size {input.shape[at]}", "shape")
    shape = (*input.shape[:at], input.shape[at] // 2, *input.shape[at + 1 :])

    def vjp(g: Any, s: Any) -> tuple[Any]:
        x, y = np.split(s.self, 2, at)
        gate = sigmoid(y)
        return (np.ascontiguousarray(np.concatenate([g * gate, g * x * gate * (1 - gate)], at)),)

    def forward(x: Any) -> Any:
        first, second = np.split(x, 2, at)
        return first * sigmoid(second)

    half = ShadowTensor(e.graph, input.storage, shape, input.stride, input.offset, input.dtype)
    return pure(
        e, OpRule("GluBackward0", forward, SELF, vjp), (input,), shape, input.dtype, stride=layout(shape, (half,))
    )


PRELU = OpRule(
    "PreluKernelBackward0", lambda x, w: np.where(x > 0, x, x * w), (Keep("self", 0), Keep("weight", 1)),
    lambda g, s: (np.where(s.self > 0, g, g * s.weight), np.where(s.self > 0, 0, g * s.self)),
)  # fmt: skip


@op(
    "F.prelu",
    ".prelu",
    saves="self, weight (a view of it)",
    samples=("F.prelu(a, c[:1])", "F.prelu(a, c)", "F.prelu(a, torch.tensor([0.25]))", "F.prelu(a, i * 0.5)"),
)
def prelu(e: Engine, input: Any, weight: Any) -> ShadowTensor:
    """``F.prelu``: one weight for all, or one for each channel (dimension 1).

    Raises ``ShadowError`` (torch's error) for another number of weights, weights of several dimensions, weights of
    another dtype, and integer operands, and what :func:`broadcasting` raises.
    """
    tensor_only(input, weight)
    if input.dtype != weight.dtype:
        raise runtime(
            "prelu: Type promoting not supported. Got " + " and ".join(x.dtype.scalar_name for x in (input, weight)),
            "dtype",
        )
    if not input.ndim and weight.numel != 1:
        raise runtime("Not allow zero-dim input tensor.", "shape")
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.numel != 1 and not input.ndim:
        raise runtime("Not allow zero-dim input tensor.", "shape")
    if weight.numel not in {1, channels}:
        text = (
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel} and "
            f"channel size = {channels}."
        )
        raise runtime(text, "shape")
    if weight.ndim > 1:
        raise runtime(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}", "shape")
    if weight.ndim != input.ndim:
        weight = views.reshape(e, weight, *(weight.numel if d == 1 else 1 for d in range(input.ndim)))
    if input.dtype.category < 2:
        raise no_kernel("prelu_cpu", input.dtype.scalar_name)
    return broadcasting(e, PRELU, (input, weight), input.dtype, input.dtype, like=input)


@op("F.rrelu", "torch.rrelu", saves="self, the slopes drawn (private); result instead of self when in place",
    samples=("F.rrelu(a)", "F.rrelu(h, inplace=True)", "F.rrelu(a, 0.2, 0.2)", "F.rrelu(a.t())"))  # fmt: skip
def rrelu(
    e: Engine, input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> ShadowTensor:
    """``F.rrelu``: the slope for negative values is drawn from [lower, upper] in training, and their mean in
    evaluation.

    In lockstep the drawn slopes, and with them the values, are unknown. ``inplace`` writes ``input``. Raises
    ``Unmodelled``, among others, for a tensor that is not floating point.
    """
    tensor_only(input)
    mean = (lower + upper) / 2
    if not input.dtype.is_floating_point:
        raise Unmodelled("rrelu of a tensor that is not floating point")
    if inplace:
        e.graph.check_inplace(input, records(e, input))
    seen = input.window()
    random = training and upper - lower > 1e-6
    noise = _slopes(e, input, lower, upper) if random else new(e, input.shape, input.dtype, np.zeros(()))

    def vjp(g: Any, s: Any) -> tuple[Any]:
        kept = s.result if inplace else s.self
        slope = s.noise if random else np.where(kept > 0, g.dtype.type(1), g.dtype.type(mean))
        return (np.multiply(g, slope, out=np.empty_like(g if random else kept, order="K")),)

    node = None
    if records(e, input):
        node = e.graph.new_node(f"RreluWithNoiseBackward{int(inplace)}", edges(e, (input,)), vjp)
        node.keep(Saved("noise", noise, own=True, drawn=random))
        if not inplace:
            node.keep(Saved("self", input))
    slope = noise.window() if random else np.asarray(mean)
    values = None if seen is None or slope is None else seen * np.where(seen > 0, 1, slope)
    if inplace:
        e.write(input, values)
        finish_write(e, input, node, OpRule("", np.asarray, RESULT))
        answer: ShadowTensor = input
        return answer
    result = new(e, input.shape, input.dtype, values)
    if node is not None:
        own(node, result)
    return result


def _slopes(e: Engine, input: ShadowTensor, lower: float, upper: float) -> ShadowTensor:
    seen = input.window()
    return drawn(
        e,
        input.shape,
        input.dtype,
        lambda r: np.where(np.zeros(()) if seen is None else seen > 0, 1, r.uniform(lower, upper, input.shape)),
    )


@op("F.rrelu_", kind="inplace", saves="result, the slopes drawn (private)", samples=("F.rrelu_(h)",))
def rrelu_in_place(
    e: Engine, input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> ShadowTensor:
    return rrelu(e, input, lower, upper, training, inplace=True)


# -- composed of other operations


@op("F.softsign", saves="input, 1 + |input|", samples=("F.softsign(a)",), traits=("elementwise",))
def softsign(e: Engine, input: Any) -> ShadowTensor:
    return pointwise.div(e, input, pointwise.add_(e, pointwise.absolute(e, input), 1))


@op("F.tanhshrink", saves="tanh(input)", samples=("F.tanhshrink(a)",), traits=("elementwise",))
def tanhshrink(e: Engine, input: Any) -> ShadowTensor:
    return pointwise.sub(e, input, pointwise.RUNS["tanh"][0](e, input))


@op("F.softmin", saves="result", samples=("F.softmin(a, dim=1)", "F.softmin(a, 0)"))
def softmin(e: Engine, input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> ShadowTensor:
    if dtype is not None:
        raise Unmodelled("softmin with dtype")
    return reduce.softmax(e, pointwise.RUNS["neg"][0](e, input), dim)


__all__ = ["activate", "sigmoid"]
