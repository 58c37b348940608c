"""Element-wise operations and their in-place variants.

Every rule here is written once; the method, the function, the in-place method and the operator all use it. What is
saved follows torch's ``tools/autograd/derivatives.yaml``: the *input* where the derivative is a function of it
(log, sin, pow), the *result* where that is cheaper (exp, sqrt, tanh). An in-place operation that needs its old
input saves a private clone.
"""

# ruff: noqa: A001, A002, ARG005, D103 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import BOOL, C_TYPES, FLOAT32, INT64, DType, can_cast
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.gradient import zeros_like
from pitfall_lab.shadow.graph import NO_DERIVATIVE, RaisingVjp, Written
from pitfall_lab.shadow.layout import made_of
from pitfall_lab.shadow.ops.building import (
    NUMBERS,
    Keep,
    Operand,
    OpRule,
    as_float,
    broadcast,
    check_history,
    check_overlap,
    check_word,
    each,
    in_place,
    no_room,
    pointwise,
    promoted,
    pure,
    records,
    refusing,
    sign_of,
    tensor_only,
)
from pitfall_lab.shadow.registry import ENTRIES, Trait, add, op
from pitfall_lab.shadow.releases import CLAMP_STOPS_AT_ITS_BOUNDS
from pitfall_lab.shadow.storage import ShadowTensor

SELF, RESULT = (Keep("self", 0),), (Keep("result", "result"),)


def no_out(out: object) -> None:
    """Raise ``Unmodelled`` if ``out`` is given: it is not modelled for this operation."""
    if out is not None:
        raise Unmodelled("out= is not modelled")


def operand(value: Any) -> Any:
    """The value itself, a tensor or a Python number (for a NumPy number, the Python one); raises ``Unmodelled`` for
    anything else, and for an int that does not fit into 64 bits.
    """
    if isinstance(value, np.generic) and not isinstance(value, np.bool_):
        value = value.item()
    if not isinstance(value, (ShadowTensor, *NUMBERS)):
        raise Unmodelled(f"operand of type {type(value).__name__}")
    check_word(value)
    return value


# -- arithmetic


def _add_rule(alpha: complex, dtype: DType = FLOAT32) -> OpRule:
    refused = _refused_factor(alpha, dtype)
    if alpha == 1:
        return OpRule("AddBackward0", np.add, (), lambda g, s: (g, g), refused=refused)
    return OpRule("AddBackward0", lambda a, b: a + _like(b, alpha), (), lambda g, s: (g, g * alpha), refused=refused)


def _sub_rule(alpha: complex, dtype: DType = FLOAT32) -> OpRule:
    return OpRule(
        "SubBackward0",
        lambda a, b: a - (b if alpha == 1 else _like(b, alpha)),
        (),
        lambda g, s: (g, -g if alpha == 1 else -g * alpha),
        refused=_refused_factor(alpha, dtype),
    )


def _refused_factor(alpha: complex, dtype: DType) -> str:
    """Torch's error text for an alpha or beta whose type does not fit the result's dtype; empty if it fits."""
    if isinstance(alpha, bool) and dtype != BOOL:
        return "Boolean alpha only supported for Boolean results."
    if dtype.category < 2 and not isinstance(alpha, int):
        return "For integral input tensors, argument alpha must not be a floating point number."
    if not dtype.is_complex and isinstance(alpha, complex):
        return "For non-complex input tensors, argument alpha must not be a complex number."
    return no_room(dtype, alpha)


def _like(array: np.ndarray, alpha: complex) -> np.ndarray:
    result: np.ndarray = array * np.asarray(alpha).astype(array.dtype)
    return result


def _mul_vjp(g: Any, s: Any) -> tuple[Any, Any]:
    # torch computes gradients in the alphabetical order of their names, which the order of second derivatives shows
    other = None if s.self is None else g * np.conj(s.self)
    return None if s.other is None else g * np.conj(s.other), other


def _times(right: Any, left: Callable[[], Any]) -> Any:
    """``left * right`` with the right factor first, as torch's compiled formulas do it: with
    ``create_graph`` the order of nodes shows.
    """
    return left() * right


def _div_vjp(g: Any, s: Any) -> tuple[Any, Any]:
    other = None if s.self is None else _times(np.conj((s.self / s.other) / s.other), lambda: -g)
    return g / np.conj(s.other), other


MUL = OpRule("MulBackward0", np.multiply, (Keep("other", 1, 0), Keep("self", 0, 1)), _mul_vjp)
DIV = OpRule("DivBackward0", np.true_divide, (Keep("other", 1), Keep("self", 0, 1)), _div_vjp)


def _check_bool_sub(*operands: Operand) -> None:
    """Raise torch's error for subtracting bool tensors."""
    truths = [x.dtype == BOOL if isinstance(x, ShadowTensor) else isinstance(x, bool) for x in operands]
    if len(operands) == 2 and all(truths):
        text = "with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
    elif any(truths):
        text = f"with a bool tensor is not supported. {INVERT}"
    else:
        return
    raise runtime(f"Subtraction, the `-` operator, {text}", "dtype")


INVERT = "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
NO_NEGATION = f"Negation, the `-` operator, on a bool tensor is not supported. {INVERT}"


@op(
    "add",
    samples=("a + b", "a + 2", "2.5 + a", "a + c", "torch.add(a, b, alpha=3)", "n + 1.5", "n + n"),
    traits=("elementwise", "same_form", "fresh", "takes_alpha", "alpha_is_number"),
)
def add_(e: Engine, input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> ShadowTensor:
    no_out(out)
    pair = operand(input), operand(other)
    dtype = promoted(*pair)
    return pointwise(e, _add_rule(alpha, dtype), pair, dtype, dtype)


@op(".__radd__", samples=("sum([a, b])",), traits=("elementwise",), computes="add")
def radd(e: Engine, self: Any, other: Any) -> ShadowTensor:
    return add_(e, self, other)


@op(
    ".add_",
    kind="inplace",
    samples=("h.add_(b)", "h.add_(1)", "h.add_(c, alpha=2)", "h.add_(c, alpha=n[0, 1])", "p.add_(1)", "n.add_(1)"),
    traits=("elementwise", "same_form", "takes_alpha", "alpha_is_number"),
)
def add_in_place(e: Engine, self: Any, other: Any, *, alpha: float = 1) -> ShadowTensor:
    pair = self, operand(other)
    dtype = promoted(*pair)
    return in_place(e, _add_rule(alpha, dtype), pair, dtype)


@op(
    "sub",
    "torch.subtract",
    samples=("a - b", "a - 1", "torch.sub(a, b, alpha=2)", "a - c"),
    traits=("elementwise", "same_form", "fresh", "takes_alpha", "alpha_is_number"),
)
def sub(e: Engine, input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> ShadowTensor:
    no_out(out)
    pair = operand(input), operand(other)
    _check_bool_sub(*pair)
    dtype = promoted(*pair)
    return pointwise(e, _sub_rule(alpha, dtype), pair, dtype, dtype)


@op(
    ".sub_",
    kind="inplace",
    samples=("h.sub_(b)", "h.sub_(1)", "h.sub_(c)"),
    traits=("elementwise", "same_form", "takes_alpha", "alpha_is_number"),
)
def sub_in_place(e: Engine, self: Any, other: Any, *, alpha: float = 1) -> ShadowTensor:
    pair = self, operand(other)
    _check_bool_sub(*pair)
    dtype = promoted(*pair)
    return in_place(e, _sub_rule(alpha, dtype), pair, dtype)


@op(
    ".__rsub__",
    "torch.rsub",
    samples=("1 - a", "2.5 - a"),
    traits=("elementwise", "exchanged", "fresh", "takes_alpha"),
    computes="sub",
)
def rsub(e: Engine, self: Any, other: Any, *, alpha: float = 1) -> ShadowTensor:
    if isinstance(other, ShadowTensor):
        raise Unmodelled("rsub with a tensor as second operand")
    _check_bool_sub(self, other)
    dtype = promoted(self, operand(other))
    rule = OpRule(
        "RsubBackward1",
        lambda a, o: o - _like(a, alpha),
        (),
        lambda g, s: (-g if alpha == 1 else -g * alpha,),
        1,
        _refused_factor(alpha, dtype),
    )
    return pointwise(e, rule, (self, operand(other)), dtype, dtype)


@op("mul", "torch.multiply", ".multiply", ".__rmul__", saves="other if self needs grad; self if other needs grad",
    samples=("a * b", "a * 2", "2.0 * a", "a * c", "a * p", "p * a", "n * 2", "a * a", "a * c[0]", "a.t() * b.t()"),
    traits=("elementwise", "same_form", "fresh"))  # fmt: skip
def mul(e: Engine, input: Any, other: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    pair = operand(input), operand(other)
    if e.policy.star_multiplies_matrices and all(isinstance(x, ShadowTensor) and x.ndim == 2 for x in pair):
        result: ShadowTensor = ENTRIES["torch.matmul"].run(e, input, other)
        return result
    dtype = promoted(*pair)
    return pointwise(e, MUL, pair, dtype, dtype)


@op(".mul_", kind="inplace", saves="other if self needs grad; a clone of self if other needs grad",
    samples=("h.mul_(b)", "h.mul_(2)", "h.mul_(p)", "h[0].mul_(2)", "h.t().mul_(w)", "h.mul_(c)"),
    traits=("elementwise", "same_form"))  # fmt: skip
def mul_in_place(e: Engine, self: Any, other: Any) -> ShadowTensor:
    pair = self, operand(other)
    return in_place(e, MUL, pair, promoted(*pair))


@op("div", "torch.true_divide", ".__truediv__", ".true_divide", saves="other; self if other needs grad",
    samples=("a / b", "a / 2", "a / c", "n / 2", "p / a"), traits=("elementwise", "same_form", "fresh"))  # fmt: skip
def div(e: Engine, input: Any, other: Any, *, rounding_mode: str | None = "", out: Any = None) -> ShadowTensor:
    no_out(out)
    rule = _division(rounding_mode)
    pair = operand(input), operand(other)
    if e.policy.integer_division_stays_integer and promoted(*pair).category < 2:
        return floor_divide(e, input, other)
    dtype = as_float(promoted(*pair))
    return pointwise(e, rule, pair, dtype, dtype)


@op(
    ".div_",
    ".__itruediv__",
    kind="inplace",
    saves="other; a clone of self if other needs grad",
    samples=("h.div_(b)", "h.div_(2)"),
    traits=("elementwise", "same_form"),
)
def div_in_place(e: Engine, self: Any, other: Any, *, rounding_mode: str | None = "") -> ShadowTensor:
    rule = _division(rounding_mode)
    pair = self, operand(other)
    return in_place(e, rule, pair, as_float(promoted(*pair)))


def _division(rounding_mode: str | None) -> OpRule:
    """The rule of ``div`` with a ``rounding_mode``; "" means that the argument was not given.

    Rounding itself is declined.

    Torch records ``DivBackward2`` if the argument is given, even as None.
    """
    if rounding_mode:
        raise Unmodelled("rounding_mode")
    return DIV if rounding_mode is not None else replace(DIV, node="DivBackward2")


@op(
    ".__rdiv__",
    ".__rtruediv__",
    samples=("1 / b", "2.0 / b"),
    traits=("elementwise", "exchanged", "fresh"),
    computes="div",
)
def rdiv(e: Engine, self: Any, other: Any) -> ShadowTensor:
    return mul(e, reciprocal(e, self), other)


ROOTS: dict[float, Callable[[Any], Any]] = {0.5: np.sqrt, -0.5: lambda x: 1 / np.sqrt(x), 2: np.square}
"""Powers that torch computes in another way: the roots show it at minus infinity, the square where
NumPy 1.26 does not multiply.
"""


def _power(base: Any, exponent: Any) -> Any:
    if np.asarray(base).dtype.kind in "iu":
        return _integer_power(base, exponent)
    base, exponent = np.broadcast_arrays(base, exponent)
    return np.power(base, exponent.copy())  # of a stretched 0.5 NumPy would take the root


def _integer_power(base: Any, exponent: Any) -> Any:
    if np.any(np.asarray(exponent) < 0):
        raise Unmodelled("an integer tensor to a negative power")
    return np.power(base, exponent)


def _pow_rule(exponent: float) -> OpRule:
    def vjp(g: Any, s: Any) -> tuple[Any]:
        if exponent == 0 and not isinstance(exponent, bool):  # which is not equal to any number in C++
            return (np.zeros_like(g, order="C"),)
        return (g * np.conj(exponent * _numbered(s.self, exponent - 1)),)

    return OpRule("PowBackward0", lambda a: _numbered(a, exponent), SELF, vjp)


def _numbered(base: Any, exponent: float) -> Any:
    """``base ** exponent`` for an exponent that is a Python number."""
    if not isinstance(base, np.ndarray):  # a Term (create_graph)
        return np.power(base, exponent)
    root = ROOTS.get(exponent) if base.dtype.kind == "f" else None
    return root(base) if root else _power(base, np.asarray(exponent).astype(base.dtype))


def _pow_tensor_vjp(g: Any, s: Any) -> tuple[Any, Any]:
    if s.exponent.dtype == np.bool_:
        raise runtime(f"Subtraction, the `-` operator, with a bool tensor is not supported. {INVERT}", "dtype")
    to_base = g * s.exponent * np.power(s.self, np.where(s.exponent == 0, 1, s.exponent) - 1)
    log = np.where(
        (s.self == 0) & (s.exponent >= 0),
        0,
        s.result * np.log(s.self if s.self.dtype == s.result.dtype else s.self.astype(s.result.dtype)),
    )
    return np.where(s.exponent == 0, 0, to_base), g * log


POW_TENSOR = OpRule(
    "PowBackward1", _power, (Keep("exponent", 1), Keep("self", 0), Keep("result", "result")), _pow_tensor_vjp
)


def _refused_power(dtype: DType, exponent: Any) -> str:
    if dtype.category == 1 and exponent < 0:
        return "Integers to negative integer powers are not allowed."
    return no_room(dtype, exponent) if dtype[:] in {"float16", "bfloat16"} else ""  # other kernels take a double


@op("pow", ".__pow__", saves="self; and exponent and result when the exponent is a tensor",
    samples=("a ** 2", "a.pow(3)", "b ** 0.5", "b ** c", "a ** 0", "b ** -1", "n ** 2", "torch.pow(2, a)"),
    traits=("elementwise", "fresh", "fills_for_0_and_1"))  # fmt: skip
def pow(e: Engine, input: Any, exponent: Any, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    base, exponent = operand(input), operand(exponent)
    if not isinstance(base, ShadowTensor):
        return rpow(e, exponent, base)
    dtype = promoted(base, exponent)
    if isinstance(exponent, ShadowTensor):
        if dtype.is_complex and records(e, base, exponent):
            raise Unmodelled("the derivative of complex powers")
        return pointwise(e, POW_TENSOR, (base, exponent), dtype, dtype)
    return pointwise(e, refusing(_pow_rule(exponent), _refused_power(dtype, exponent)), (base,), dtype, dtype)


@op(
    ".pow_",
    ".__ipow__",
    kind="inplace",
    saves="a clone of self",
    samples=("h.pow_(2)", "h[0].pow_(2)"),
    traits=("elementwise",),
)
def pow_in_place(e: Engine, self: Any, exponent: Any) -> ShadowTensor:
    exponent = operand(exponent)
    dtype = promoted(self, exponent)
    if isinstance(exponent, ShadowTensor):
        return in_place(e, POW_TENSOR, (self, exponent), dtype)
    return in_place(e, refusing(_pow_rule(exponent), _refused_power(dtype, exponent)), (self,), dtype)


@op(".__rpow__", saves="exponent, result", samples=("2 ** a",), traits=("elementwise", "exchanged"), computes="pow")
def rpow(e: Engine, self: Any, other: Any) -> ShadowTensor:
    if isinstance(other, ShadowTensor):
        return pow(e, other, self)
    tensor_only(self)
    dtype = promoted(self, other)
    log = math.log(other) if other > 0 else (0.0 if other == 0 else math.nan)
    keeps = (Keep("exponent", 0), Keep("result", "result"))
    rule = OpRule(
        "PowBackward2",
        lambda x: _power(np.asarray(other).astype(x.dtype), x),
        keeps,
        lambda g, s: (g * (s.result * log),),
    )
    check_history(e, self)
    return pure(
        e, rule, (self,), self.shape, dtype, dtype
    )  # row by row: the base, a number, is broadcast to a tensor first


def whole_or_not(divided: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function ``divided`` (a division of arrays) changed so that it raises ``ShadowError`` for integers and
    a zero divisor, as torch's kernels do; NumPy returns 0.
    """

    def forward(a: Any, b: Any) -> Any:
        if np.asarray(a).dtype.kind in "iu" and np.any(
            np.broadcast_to(np.equal(b, 0), np.broadcast_shapes(np.shape(a), np.shape(b)))
        ):
            raise runtime("ZeroDivisionError")
        return divided(a, b)

    return forward


@op(
    ".__floordiv__",
    "torch.floor_divide",
    ".floor_divide",
    samples=("n // 2", "p // 2", "a // b", "a // 2"),
    traits=("elementwise",),
)
def floor_divide(e: Engine, input: Any, other: Any) -> ShadowTensor:
    pair = operand(input), operand(other)
    dtype = promoted(*pair)
    if dtype == BOOL:
        broadcast(*(x.shape for x in pair if isinstance(x, ShadowTensor)))
        raise no_kernel("div_floor_cpu", dtype.scalar_name)
    refusal = RaisingVjp("derivative for aten::floor_divide is not implemented")
    result = pointwise(
        e, OpRule(NO_DERIVATIVE, whole_or_not(np.floor_divide), (), refusal, edges=0), pair, dtype, dtype
    )
    if result.node is not None:
        result.node.next = tuple(e.graph.edge(x) for x in pair if isinstance(x, ShadowTensor) and x.requires_grad)
    return result


# -- with a number, as torch's own C++ code writes it: other nodes than Python's ``+`` and ``*`` make, and nothing saved


def add_number(e: Engine, input: Any, number: float) -> ShadowTensor:
    """``input + number``."""
    return pointwise(
        e,
        OpRule("AddBackward1", lambda a: a + a.dtype.type(number), (), lambda g, s: (g,)),
        (input,),
        input.dtype,
        input.dtype,
    )


def add_number_(e: Engine, input: Any, number: float) -> ShadowTensor:
    """``input += number``."""
    return in_place(
        e, OpRule("AddBackward1", lambda a: a + a.dtype.type(number), (), lambda g, s: (g,)), (input,), input.dtype
    )


def sub_number(e: Engine, input: Any, number: float) -> ShadowTensor:
    """``input - number``."""
    return pointwise(
        e,
        OpRule("SubBackward1", lambda a: a - a.dtype.type(number), (), lambda g, s: (g,)),
        (input,),
        input.dtype,
        input.dtype,
    )


def mul_number(e: Engine, input: Any, number: float) -> ShadowTensor:
    """``input * number``."""
    rule = OpRule("MulBackward1", lambda a: a * a.dtype.type(number), (), lambda g, s: (g * g.dtype.type(number),))
    return pointwise(e, rule, (input,), input.dtype, input.dtype)


def div_number(e: Engine, input: Any, number: float) -> ShadowTensor:
    """``input / number``."""
    rule = OpRule("DivBackward1", lambda a: a / a.dtype.type(number), (), lambda g, s: (g / g.dtype.type(number),))
    return pointwise(e, rule, (input,), input.dtype, input.dtype)


# -- functions of one argument


def unary(name: str, node: str, forward: Callable[[Any], Any], keeps: tuple[Keep, ...], vjp: Callable[[Any, Any], Any],
          *, floats: bool = True, arg: str = "a", functional: bool = False, source: str = "",
          in_place_rule: OpRule | None = None, like_self: bool = False, fresh: bool = True) -> None:  # fmt: skip
    """Register a function ``name`` and its in-place form ``name_``. ``forward`` computes it on arrays; ``keeps`` and
    ``vjp`` are those of its rule (:class:`OpRule`), except that ``vjp`` returns a single array.

    ``floats``: integers become floats. ``arg`` is the variable that the sample calls use; ``functional``: it is in
    ``torch.nn.functional``, too; ``source`` is where torch implements it; ``in_place_rule`` is the rule of ``name_``
    where it differs; ``like_self``: the result is made by ``empty_like``; ``fresh``: see
    :data:`~pitfall_lab.shadow.registry.Trait`.
    """
    rule = OpRule(node, forward, keeps, lambda g, s: (vjp(g, s),))

    def run(e: Engine, input: Any, *, out: Any = None) -> ShadowTensor:
        no_out(out)
        tensor_only(input)
        _real(input, name)
        dtype = as_float(input.dtype) if floats else input.dtype
        return pointwise(e, rule, (input,), dtype, dtype, input if like_self else None)

    def run_in_place(e: Engine, input: Any) -> ShadowTensor:
        tensor_only(input)
        _real(input, name)
        return in_place(e, in_place_rule or rule, (input,), as_float(input.dtype) if floats else input.dtype)

    what = ", ".join(k.name for k in keeps)
    samples = (f"{arg}.{name}()", f"torch.{name}({arg})", f"{arg}.t().{name}()")
    add(
        (name, *((f"F.{name}",) if functional else ())),
        run,
        "pure",
        what,
        samples,
        source,
        traits=("elementwise", *(("fresh",) if fresh else ())),
    )
    clone = what.replace("self", "a clone of self")
    target = "h" if arg == "a" else "(b * 1)"
    functions = {"sign": (), "relu": (f"torch.{name}_", f"F.{name}_")}.get(name, (f"torch.{name}_",))
    add(
        (f".{name}_", *functions),
        run_in_place,
        "inplace",
        clone,
        (f"{target}.{name}_()",),
        source,
        traits=("elementwise",),
    )
    RUNS[name] = run, run_in_place


def _real(tensor: ShadowTensor, name: str) -> None:
    """Raise for bool where torch does, and decline complex dtypes whose results or derivatives are not modelled."""
    if name == "neg" and tensor.dtype == BOOL:
        raise runtime(NO_NEGATION, "dtype")
    if name == "abs" and tensor.dtype == BOOL:
        raise no_kernel("abs_cpu", "Bool")
    if name == "square" and tensor.dtype == BOOL:
        raise Unmodelled("square of a bool tensor")
    if tensor.dtype.is_complex and (name not in ("neg", "exp") or tensor.requires_grad):
        raise Unmodelled(f"{name} of a complex tensor")


RUNS: dict[str, tuple[Callable[..., ShadowTensor], Callable[..., ShadowTensor]]] = {}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-x))
    return result


unary("exp", "ExpBackward0", np.exp, RESULT, lambda g, s: g * s.result)
unary("exp2", "Exp2Backward0", np.exp2, RESULT, lambda g, s: g * s.result * math.log(2))
unary("expm1", "Expm1Backward0", np.expm1, RESULT, lambda g, s: g * (s.result + 1))
unary("log", "LogBackward0", np.log, SELF, lambda g, s: g / s.self, arg="b")
unary("log2", "Log2Backward0", np.log2, SELF, lambda g, s: g / (s.self * math.log(2)), arg="b")
unary("log10", "Log10Backward0", np.log10, SELF, lambda g, s: g / (s.self * math.log(10)), arg="b")
unary("log1p", "Log1PBackward0", np.log1p, SELF, lambda g, s: g / (s.self + 1), arg="b")
unary("sqrt", "SqrtBackward0", np.sqrt, RESULT, lambda g, s: g / (2 * s.result), arg="b")
unary(
    "rsqrt",
    "RsqrtBackward0",
    lambda x: 1 / np.sqrt(x),
    RESULT,
    lambda g, s: _times(s.result**3, lambda: -0.5 * g),
    arg="b",
)
unary(
    "reciprocal",
    "ReciprocalBackward0",
    lambda x: 1 / x,
    RESULT,
    lambda g, s: _times(s.result * s.result, lambda: -g),
    arg="b",
)
unary("sin", "SinBackward0", np.sin, SELF, lambda g, s: g * np.cos(s.self))
unary("cos", "CosBackward0", np.cos, SELF, lambda g, s: g * -np.sin(s.self))
unary("tan", "TanBackward0", np.tan, RESULT, lambda g, s: g * (1 + s.result * s.result))
unary("asin", "AsinBackward0", np.arcsin, SELF, lambda g, s: g / np.sqrt(1 - s.self * s.self), arg="(a * 0.3)")
unary("acos", "AcosBackward0", np.arccos, SELF, lambda g, s: -g / np.sqrt(1 - s.self * s.self), arg="(a * 0.3)")
unary("atan", "AtanBackward0", np.arctan, SELF, lambda g, s: g / (s.self * s.self + 1))
unary("sinh", "SinhBackward0", np.sinh, SELF, lambda g, s: g * np.cosh(s.self))
unary("cosh", "CoshBackward0", np.cosh, SELF, lambda g, s: g * np.sinh(s.self))
unary("tanh", "TanhBackward0", np.tanh, RESULT, lambda g, s: g * (1 - s.result * s.result), functional=True)
unary("sigmoid", "SigmoidBackward0", _sigmoid, RESULT, lambda g, s: g * ((1 - s.result) * s.result), functional=True)
unary(
    "relu",
    "ReluBackward0",
    lambda x: np.maximum(x, 0),
    RESULT,
    lambda g, s: np.where(s.result <= 0, 0, g),
    floats=False,
)
unary("abs", "AbsBackward0", np.abs, SELF, lambda g, s: g * sign_of(s.self), floats=False, fresh=False)
unary("neg", "NegBackward0", np.negative, (), lambda g, s: -g, floats=False)
unary("sign", "SignBackward0", sign_of, (), lambda g, s: zeros_like(g), floats=False)
unary("floor", "FloorBackward0", np.floor, (), lambda g, s: zeros_like(g), floats=False, fresh=False)
unary("ceil", "CeilBackward0", np.ceil, (), lambda g, s: zeros_like(g), floats=False, fresh=False)
unary("trunc", "TruncBackward0", np.trunc, (), lambda g, s: zeros_like(g), floats=False, fresh=False)
unary("round", "RoundBackward0", np.round, (), lambda g, s: zeros_like(g), floats=False, fresh=False)
erf_of = each(math.erf)
unary(
    "erf",
    "ErfBackward0",
    erf_of,
    SELF,
    lambda g, s: g * (2 / math.sqrt(math.pi)) * np.exp(-s.self * s.self),
)
unary(
    "erfc",
    "ErfcBackward0",
    each(math.erfc),
    SELF,
    lambda g, s: g * (-2 / math.sqrt(math.pi)) * np.exp(-s.self * s.self),
)
unary("square", "PowBackward0", np.square, SELF, lambda g, s: g * (2 * np.power(s.self, 1)), floats=False)
reciprocal = RUNS["reciprocal"][0]


@op(
    "torch.absolute",
    ".absolute",
    ".__abs__",
    samples=("abs(a)", "a.absolute()"),
    saves="self",
    traits=("elementwise",),
    computes="abs",
)
def absolute(e: Engine, input: Any) -> ShadowTensor:
    return RUNS["abs"][0](e, input)


@op("torch.negative", ".negative", ".__neg__", samples=("-a",), traits=("elementwise",), computes="neg")
def negative(e: Engine, input: Any) -> ShadowTensor:
    return RUNS["neg"][0](e, input)


@op(
    "torch.special.expit",
    saves="result",
    samples=("torch.special.expit(a)",),
    traits=("elementwise",),
    computes="sigmoid",
)
def expit(e: Engine, input: Any) -> ShadowTensor:
    return RUNS["sigmoid"][0](e, input)


@op(
    "F.relu",
    kind="pure",
    saves="result",
    samples=("F.relu(a)", "F.relu(h, inplace=True)"),
    traits=("elementwise", "fresh"),
)
def functional_relu(e: Engine, input: Any, inplace: bool = False) -> ShadowTensor:
    return RUNS["relu"][1 if inplace else 0](e, input)


# -- activations with parameters


def _activation(
    e: Engine, rule: OpRule, in_place_rule: OpRule | None, input: Any, inplace: bool, *, like_self: bool = False
) -> ShadowTensor:
    tensor_only(input)
    dtype = as_float(input.dtype)
    if inplace:
        return in_place(e, in_place_rule or rule, (input,), dtype)
    return pointwise(e, rule, (input,), dtype, dtype, input if like_self else None)


@op(
    "F.leaky_relu",
    saves="self; result when in place",
    samples=("F.leaky_relu(a)", "F.leaky_relu(a, 0.2)", "F.leaky_relu(h, inplace=True)"),
    traits=("elementwise",),
)
def leaky_relu(e: Engine, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> ShadowTensor:

    def forward(x: Any) -> Any:
        return np.where(x > 0, x, x * np.asarray(negative_slope, x.dtype))

    rule = OpRule("LeakyReluBackward0", forward, SELF, lambda g, s: (np.where(s.self > 0, g, g * negative_slope),))

    def backward_of_result(g: Any, s: Any) -> tuple[Any]:
        if negative_slope < 0:
            raise runtime(NEGATIVE_SLOPE)
        return (np.where(s.result > 0, g, g * negative_slope),)

    return _activation(e, rule, OpRule("LeakyReluBackward1", forward, RESULT, backward_of_result), input, inplace)


NEGATIVE_SLOPE = (
    "In-place leakyReLu backward calculation is triggered with a negative slope which is not supported. This is "
    "caused by calling in-place forward function with a negative slope, please call out-of-place version instead. "
    "File an issue at https://github.com/pytorch/pytorch if you do require supporting in-place leakRelu backward "
    "calculation with negative slope"
)


@op(
    "torch.nn.functional.leaky_relu_",
    kind="inplace",
    saves="result",
    samples=("F.leaky_relu_(h)",),
    traits=("elementwise",),
)
def leaky_relu_in_place(e: Engine, input: Any, negative_slope: float = 0.01) -> ShadowTensor:
    return leaky_relu(e, input, negative_slope, inplace=True)


@op(
    "F.elu",
    saves="self; result when in place",
    samples=("F.elu(a)", "F.elu(a, 0.5)", "F.elu(h, inplace=True)"),
    traits=("elementwise",),
)
def elu(e: Engine, input: Any, alpha: float = 1.0, inplace: bool = False) -> ShadowTensor:
    tensor_only(input)
    if not input.dtype.is_floating_point:
        raise Unmodelled("elu of a tensor that is not floating point")

    def forward(x: Any) -> Any:
        return np.where(x > 0, x, alpha * np.expm1(x))

    rule = OpRule("EluBackward0", forward, SELF, lambda g, s: (np.where(s.self <= 0, g * alpha * np.exp(s.self), g),))
    in_place_rule = OpRule(
        "EluBackward1", forward, RESULT, lambda g, s: (np.where(s.result <= 0, g * (s.result + alpha), g),)
    )
    return _activation(e, rule, in_place_rule, input, inplace)


@op("torch.nn.functional.elu_", kind="inplace", saves="result", samples=("F.elu_(h)",), traits=("elementwise",))
def elu_in_place(e: Engine, input: Any, alpha: float = 1.0) -> ShadowTensor:
    return elu(e, input, alpha, inplace=True)


@op("F.silu", saves="self", samples=("F.silu(a)", "F.silu(h, inplace=True)"), traits=("elementwise",))
def silu(e: Engine, input: Any, inplace: bool = False) -> ShadowTensor:
    def vjp(g: Any, s: Any) -> tuple[Any]:
        gate = _sigmoid(s.self)
        return (g * (gate * (1 + s.self * (1 - gate))),)

    return _activation(e, OpRule("SiluBackward0", lambda x: x * _sigmoid(x), SELF, vjp), None, input, inplace)


@op("F.gelu", saves="self", samples=("F.gelu(a)", "F.gelu(a, approximate='tanh')"), traits=("elementwise",))
def gelu(e: Engine, input: Any, approximate: str = "none") -> ShadowTensor:
    root = math.sqrt(2 / math.pi)
    seen = input.window() if isinstance(input, ShadowTensor) else None
    if seen is not None and np.isinf(seen).any():
        raise Unmodelled("gelu of inf: some of torch's kernels return NaN, others inf")

    def forward(x: Any) -> Any:
        if approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(root * (x + 0.044715 * x**3)))
        return x * 0.5 * (1 + erf_of(x / math.sqrt(2)))

    def vjp(g: Any, s: Any) -> tuple[Any]:
        x = s.self
        if approximate == "tanh":
            t = np.tanh(root * (x + 0.044715 * x**3))
            return (g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * (x * x))),)
        return (g * (0.5 * (1 + erf_of(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),)

    return _activation(e, OpRule("GeluBackward0", forward, SELF, vjp), None, input, inplace=False)


@op("F.softplus", saves="self", samples=("F.softplus(a)",), traits=("elementwise",))
def softplus(e: Engine, input: Any, beta: float = 1, threshold: float = 20) -> ShadowTensor:
    def forward(x: Any) -> Any:
        return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)

    rule = OpRule(
        "SoftplusBackward0",
        forward,
        SELF,
        lambda g, s: (np.where(s.self * beta > threshold, g, g * _sigmoid(s.self * beta)),),
    )
    return _activation(e, rule, None, input, inplace=False)


@op("F.hardtanh", saves="self", samples=("F.hardtanh(a)", "F.hardtanh(a, -0.5, 0.5)"), traits=("elementwise",))
def hardtanh(e: Engine, input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> ShadowTensor:
    rule = OpRule(
        "HardtanhBackward0",
        lambda x: np.clip(x, min_val, max_val),
        SELF,
        lambda g, s: (np.where((s.self <= min_val) | (s.self >= max_val), 0, g),),
    )
    return _activation(e, rule, None, input, inplace, like_self=True)


@op("F.relu6", saves="self", samples=("F.relu6(a)",), traits=("elementwise",))
def relu6(e: Engine, input: Any, inplace: bool = False) -> ShadowTensor:
    return hardtanh(e, input, 0.0, 6.0, inplace)


def _clamp_rule(e: Engine, low: float | None, high: float | None) -> OpRule:
    above, below = (np.greater, np.less) if e.does(CLAMP_STOPS_AT_ITS_BOUNDS) else (np.greater_equal, np.less_equal)

    def vjp(g: Any, s: Any) -> tuple[Any]:
        inside = np.ones(s.self.shape, bool)
        inside = inside if low is None else inside & above(s.self, low)
        inside = inside if high is None else inside & below(s.self, high)
        return (np.where(inside, g, 0),)

    return OpRule("ClampBackward1", lambda x: np.clip(x, low, high), SELF, vjp)


def _clamp_arguments(self: Any, low: Any, high: Any) -> DType:
    tensor_only(self)
    if isinstance(low, ShadowTensor) or isinstance(high, ShadowTensor):
        raise Unmodelled("clamp with tensor bounds")
    if isinstance(low, complex) or isinstance(high, complex):
        raise Unmodelled("clamp with complex bounds")
    if low is None and high is None:
        raise runtime("torch.clamp: At least one of 'min' or 'max' must not be None")
    return promoted(self, *(operand(x) for x in (low, high) if x is not None))


@op(
    "clamp",
    "torch.clip",
    ".clip",
    saves="self",
    samples=("a.clamp(0, 1)", "a.clamp(min=0)", "a.clamp(max=0.5)", "torch.clamp(a, -1, 1)"),
    traits=("elementwise", "fresh"),
)
def clamp(e: Engine, input: Any, min: Any = None, max: Any = None, *, out: Any = None) -> ShadowTensor:
    no_out(out)
    dtype = _clamp_arguments(input, min, max)
    return pointwise(e, refusing(_clamp_rule(e, min, max), no_room(dtype, min, max)), (input,), dtype, dtype)


@op(
    ".clamp_",
    "torch.clamp_",
    ".clip_",
    kind="inplace",
    saves="a clone of self",
    samples=("h.clamp_(0, 1)", "h.clamp_(min=0)"),
    traits=("elementwise",),
)
def clamp_in_place(e: Engine, self: Any, min: Any = None, max: Any = None) -> ShadowTensor:
    dtype = _clamp_arguments(self, min, max)
    check_number_fits(self, dtype)
    return in_place(e, refusing(_clamp_rule(e, min, max), no_room(dtype, min, max)), (self,), dtype)


def check_number_fits(self: ShadowTensor, dtype: DType) -> None:
    """Raise ``ShadowError`` (torch's error) for a number of this ``dtype``, such as a bound of ``clamp_``, if its
    category is higher than that of ``self``, which is written; torch names the target's type as C++ does here.
    """
    if not can_cast(dtype, self.dtype):
        text = f"result type {dtype.scalar_name} can't be cast to the desired output type {C_TYPES[self.dtype]}"
        raise runtime(text, "dtype", tensor=self)


def _register_bound(
    name: str, forward: Any, inside: Any, up_to: Any
) -> tuple[Callable[..., ShadowTensor], Callable[..., ShadowTensor]]:
    """Register ``clamp_min`` or ``clamp_max`` (a kernel with one bound); return the function and its in-place form."""

    def rule(e: Engine, bound: float) -> OpRule:
        passes = inside if e.does(CLAMP_STOPS_AT_ITS_BOUNDS) else up_to
        title = "".join(word.capitalize() for word in name.split("_"))
        return OpRule(
            f"{title}Backward0",
            lambda x: forward(x, bound),
            SELF,
            lambda g, s: (np.where(passes(s.self, bound), g, 0),),
        )

    def prepare(input: Any, bound: Any) -> DType:
        tensor_only(input)
        if isinstance(bound, ShadowTensor):
            raise Unmodelled(f"{name} with a tensor")
        return promoted(input, operand(bound))

    def run(e: Engine, input: Any, bound: Any) -> ShadowTensor:
        dtype = prepare(input, bound)
        return pointwise(e, refusing(rule(e, bound), no_room(dtype, bound)), (input,), dtype, dtype)

    def run_in_place(e: Engine, self: Any, bound: Any) -> ShadowTensor:
        dtype = prepare(self, bound)
        return in_place(e, refusing(rule(e, bound), no_room(dtype, bound)), (self,), dtype)

    add(name, run, "pure", "self", (f"a.{name}(0)", f"torch.{name}(a, 0.25)"), traits=("elementwise",))
    add(
        (f".{name}_", f"torch.{name}_"),
        run_in_place,
        "inplace",
        "a clone of self",
        (f"h.{name}_(0.25)",),
        traits=("elementwise",),
    )
    return run, run_in_place


clamp_min, clamp_min_in_place = _register_bound("clamp_min", np.maximum, np.greater, np.greater_equal)
clamp_max, _ = _register_bound("clamp_max", np.minimum, np.less, np.less_equal)


# -- three arguments, as the optimizers use them


def _lerp_rule(weight: float) -> OpRule:
    def forward(a: Any, b: Any) -> Any:
        w = a.dtype.type(weight)
        return a + w * (b - a) if abs(weight) < 0.5 else b - (b - a) * (1 - w)

    return OpRule("LerpBackward0", forward, (), lambda g, s: (g * (1 - weight), g * weight))


LERP = OpRule(
    "LerpBackward1", lambda a, b, w: np.where(np.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w)),
    (Keep("end", 1, 2), Keep("self", 0, 2), Keep("weight", 2)),
    lambda g, s: (g * (1 - s.weight), g * s.weight, None if s.end is None else g * (s.end - s.self)),
)  # fmt: skip


def _lerp(e: Engine, self: Any, end: Any, weight: Any, inplace: bool) -> ShadowTensor:
    tensor_only(self, end)
    by_tensor = isinstance(weight, ShadowTensor)
    rule, operands = (
        (LERP, (self, end, weight))
        if by_tensor
        else (refusing(_lerp_rule(weight), no_room(self.dtype, weight, wide=True)), (self, end))
    )
    if inplace:
        e.graph.check_inplace(self, records(e, *operands))
    check_history(e, *operands)
    # A weight without dimensions takes part in the promotion of types; one with dimensions must fit.
    for name, x in (("end", end), ("weight", weight))[: 1 + (by_tensor and weight.ndim > 0)]:
        if x.dtype != self.dtype:
            raise runtime(f"expected dtype {self.dtype.c_name} for `{name}` but got dtype {x.dtype.c_name}", "dtype")
    dtype = promoted(*operands)
    if dtype.category < 2:
        if inplace:
            check_overlap(self, operands)
        shape = broadcast(*(x.shape for x in operands))
        if inplace and shape != self.shape:
            raise Unmodelled("which of two errors torch raises first: for the shapes, or for the dtype")
        raise no_kernel(f"lerp_kernel_{'tensor' if by_tensor else 'scalar'}", dtype.scalar_name)
    return in_place(e, rule, operands, dtype) if inplace else pointwise(e, rule, operands, dtype, dtype)


@op(
    "lerp",
    saves="end and self if weight needs grad; weight when it is a tensor",
    samples=("torch.lerp(a, b, 0.5)", "a.lerp(b, 0.2)", "torch.lerp(a, b, c)"),
    traits=("elementwise", "same_form"),
)
def lerp(e: Engine, input: Any, end: Any, weight: Any) -> ShadowTensor:
    return _lerp(e, input, end, weight, inplace=False)


@op(".lerp_", kind="inplace", samples=("h.lerp_(b, 0.5)", "p.lerp_(p * 2, 0.1)"), traits=("elementwise", "same_form"))
def lerp_in_place(e: Engine, self: Any, end: Any, weight: Any) -> ShadowTensor:
    return _lerp(e, self, end, weight, inplace=True)


def _addcmul_rule(value: float) -> OpRule:
    def vjp(g: Any, s: Any) -> tuple[Any, Any, Any]:
        return (
            g,
            None if s.tensor2 is None else g * (s.tensor2 * value),
            None if s.tensor1 is None else g * (s.tensor1 * value),
        )

    keeps = (Keep("tensor1", 1, 2), Keep("tensor2", 2, 1))
    return OpRule("AddcmulBackward0", lambda a, b, c: a + a.dtype.type(value) * b * c, keeps, vjp)


def _addcdiv_rule(value: float) -> OpRule:
    def vjp(g: Any, s: Any) -> tuple[Any, Any, Any]:
        return (
            g,
            g * (value / s.tensor2),
            None if s.tensor1 is None else -g * value * (s.tensor1 / s.tensor2) / s.tensor2,
        )

    return OpRule(
        "AddcdivBackward0",
        lambda a, b, c: a + a.dtype.type(value) * b / c,
        (Keep("tensor1", 1, 2), Keep("tensor2", 2)),
        vjp,
    )


WHOLE_ADDCDIV = (
    "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
    "division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * "
    "torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) "
    "for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 / "
    "tensor2), for all dtypes."
)


def _register_addc(name: str, make: Callable[[float], OpRule]) -> None:
    def check(e: Engine, value: Any, *operands: ShadowTensor) -> None:
        if not isinstance(value, NUMBERS):
            raise Unmodelled(f"{name} whose value is not a number")
        if name == "addcdiv" and all(x.dtype.category < 2 for x in operands[1:]):
            check_history(e, *operands)
            raise runtime(WHOLE_ADDCDIV, "dtype")

    def rule_of(e: Engine, tensor1: ShadowTensor, tensor2: ShadowTensor, value: float) -> OpRule:
        if name == "addcmul" or tensor2.dtype.category > 1 or not records(e, tensor1):
            return make(value)

        refusal = RaisingVjp(f"result type Float can't be cast to the desired output type {tensor2.dtype.scalar_name}")
        return replace(make(value), vjp=refusal)  # the number is divided by the tensor in the tensor's own memory

    def run(e: Engine, input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> ShadowTensor:
        check(e, value, input, tensor1, tensor2)
        dtype = promoted(input, tensor1, tensor2)
        check(e, value, input, tensor1, tensor2)
        rule = refusing(rule_of(e, tensor1, tensor2, value), no_room(dtype, value, wide=True))
        return pointwise(e, rule, (input, tensor1, tensor2), dtype, dtype)

    def run_in_place(e: Engine, self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> ShadowTensor:
        tensor_only(self, tensor1, tensor2)
        check(e, value, self, tensor1, tensor2)
        dtype = promoted(self, tensor1, tensor2)
        rule = refusing(rule_of(e, tensor1, tensor2, value), no_room(dtype, value, wide=True))
        return in_place(e, rule, (self, tensor1, tensor2), dtype)

    saves = "tensor1 if tensor2 needs grad; tensor2"
    add(
        name,
        run,
        "pure",
        saves,
        (f"torch.{name}(a, b, c, value=2)", f"p.{name}(p, b)"),
        traits=("elementwise", "same_form"),
    )
    add(
        f".{name}_",
        run_in_place,
        "inplace",
        saves,
        (f"h.{name}_(a, b, value=-0.5)", f"p.{name}_(p * 2, p + 5)"),
        traits=("elementwise", "same_form"),
    )


_register_addc("addcmul", _addcmul_rule)
_register_addc("addcdiv", _addcdiv_rule)


# -- choosing


@op(
    ".where",
    saves="condition",
    samples=("a.where(m, b)",),
    traits=("elementwise", "fresh"),
)
def where_method(e: Engine, self: Any, condition: Any, other: Any) -> ShadowTensor:
    return where(e, condition, self, other)


@op(
    "torch.where",
    saves="condition",
    samples=("torch.where(m, a, b)", "torch.where(m, a, 0.0)", "torch.where(a > 0, a, c)", "torch.where(m, m, m)"),
    traits=("elementwise", "fresh"),
)
def where(e: Engine, condition: Any, input: Any = None, other: Any = None) -> ShadowTensor:
    if input is None or other is None:
        raise Unmodelled("where(condition) with one argument")
    tensor_only(condition)
    if condition.dtype != BOOL:
        text = (
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype.scalar_name}"
        )
        raise runtime(text, "dtype") if condition.dtype != "uint8" else Unmodelled("where with a uint8 condition")
    x, y = operand(input), operand(other)
    dtype = promoted(x, y)
    if no_room(dtype, x, y):
        raise Unmodelled("where with a number that overflows the dtype of the result")
    check_history(e, x, y)
    broadcast(
        condition.shape, *(t.shape for t in (x, y) if isinstance(t, ShadowTensor))
    )  # torch's message names these sizes first

    def forward(p: Any, q: Any, mask: Any) -> Any:
        return np.where(mask, p.astype(dtype.numpy), q.astype(dtype.numpy))

    rule = OpRule(
        "WhereBackward0",
        forward,
        (Keep("condition", 2),),
        lambda g, s: (np.where(s.condition, g, 0), np.where(s.condition, 0, g)),
        edges=2,
    )
    return pointwise(e, rule, (x, y, condition), dtype, iterated=(condition, x, y))


def _masked_fill(value: Any) -> OpRule:
    def forward(x: Any, mask: Any, *fill: Any) -> Any:
        return np.where(mask, fill[0].astype(x.dtype) if fill else np.asarray(value).astype(x.dtype), x)

    if isinstance(value, ShadowTensor):
        return OpRule(
            "MaskedFillBackward1", lambda x, v, mask: forward(x, mask, v), (Keep("mask", 2),),
            lambda g, s: (np.where(s.mask, 0, g), np.sum(np.where(s.mask, g, 0))), edges=2,
        )  # fmt: skip
    return OpRule("MaskedFillBackward0", forward, (Keep("mask", 1),), lambda g, s: (np.where(s.mask, 0, g),), edges=1)


def _masked_operands(self: Any, mask: Any, value: Any) -> tuple[Any, ...]:
    tensor_only(self, mask)
    if isinstance(value, ShadowTensor) and value.ndim:
        raise runtime(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).",
            "shape",
        )
    if mask.dtype != BOOL:
        raise runtime(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.c_name}", "dtype")
    value = operand(value)
    if isinstance(value, float) and self.dtype == "uint8" and value < 0:
        raise Unmodelled("a negative number together with an unsigned tensor")
    return (self, value, mask) if isinstance(value, ShadowTensor) else (self, mask)


@op(
    "masked_fill",
    saves="mask",
    samples=(
        "a.masked_fill(m, 0)",
        "torch.masked_fill(a, m, -1.5)",
        "a.masked_fill(a[0] > 0, a[0])",
        "a.masked_fill(a, 0)",
        "a.masked_fill(a[:, :2], 0)",
    ),
    traits=("elementwise",),
)
def masked_fill(e: Engine, input: Any, mask: Any, value: Any) -> ShadowTensor:
    tensor_only(input, mask)
    shape = broadcast(mask.shape, input.shape)  # torch expands both before it looks at what they hold
    operands = _masked_operands(input, mask, value)
    check_history(e, input)
    return pure(e, refusing(_masked_fill(value), no_room(input.dtype, value)), operands, shape, input.dtype)


@op(
    ".masked_fill_",
    kind="inplace",
    saves="mask",
    samples=("h.masked_fill_(m, 0)", "h.masked_fill_(m, 2.0)"),
    traits=("elementwise",),
)
def masked_fill_in_place(e: Engine, self: Any, mask: Any, value: Any) -> ShadowTensor:
    operands = _masked_operands(self, mask, value)
    if any(s == 0 and n > 1 for s, n in zip(self.stride, self.shape, strict=True)):
        e.warnings.append(
            "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before "
            "performing this operation."
        )
        return _masked_fill_expanded(e, self, mask, value, operands)
    return in_place(e, refusing(_masked_fill(value), no_room(self.dtype, value)), operands)


def _masked_fill_expanded(
    e: Engine, self: ShadowTensor, mask: ShadowTensor, value: Any, operands: tuple[Any, ...]
) -> ShadowTensor:
    """masked_fill_ on an expanded tensor: an element is filled when any element at its address is."""
    before, hit = self.values(), mask.window()

    def again() -> None:
        if before is not None and hit is not None:
            e.write(self, before)
            out = self.window()
            for index in zip(*np.nonzero(np.broadcast_to(hit, self.shape)), strict=True):
                if out is not None:
                    out[index] = value

    return in_place(
        e, refusing(_masked_fill(value), no_room(self.dtype, value)), operands, elementwise=False, overlapping=again
    )


def extremum_rule(node: str, forward: Any, wins: Any) -> OpRule:
    """The rule of maximum and minimum, which ``forward`` computes: the gradient goes to the selected operand, half to
    each where both are equal, and all of it to both where one is NaN. ``wins(y, x)`` says in which elements ``y`` is
    selected and not ``x``.
    """

    def vjp(g: Any, s: Any) -> tuple[Written, Written]:
        share = np.where(s.self == s.other, g / 2, g)  # both get all of it where one is NaN: then neither has lost
        pairs = ((s.self, s.other), (s.other, s.self))
        # what has to be converted to its operand's type is new memory, in which nothing has been written
        one, two = (made_of(made_of(s.self, s.other), made_of(g), g) for _ in pairs)
        one[...], two[...] = (np.where(wins(y, x), 0, share) for x, y in pairs)
        return Written(one, int(s.self.dtype == g.dtype)), Written(two, int(s.other.dtype == g.dtype))

    return OpRule(node, forward, (Keep("other", 1), Keep("self", 0)), vjp)


def _extremum(name: str, node: str, forward: Any, wins: Any) -> OpRule:
    rule = extremum_rule(node, forward, wins)

    def run(e: Engine, input: Any, other: Any, *, out: Any = None) -> ShadowTensor:
        no_out(out)
        tensor_only(input, other)
        dtype = promoted(input, other)
        return pointwise(e, rule, (input, other), dtype, dtype)

    traits: tuple[Trait, ...] = ("fresh", "out_may_be_operand")
    add(name, run, "pure", "self, other", (f"torch.{name}(a, b)", f"a.{name}(c)"), traits=("elementwise", *traits))
    return rule


MAXIMUM = _extremum("maximum", "MaximumBackward0", np.maximum, np.greater)
MINIMUM = _extremum("minimum", "MinimumBackward0", np.minimum, np.less)


# -- comparisons and logic: no gradients


def _compare(names: tuple[str, ...], forward: Any, sample: str) -> Callable[..., ShadowTensor]:
    def run(e: Engine, input: Any, other: Any, *, out: Any = None) -> ShadowTensor:
        no_out(out)
        tensor_only(input)
        pair = input, operand(other)
        if promoted(*pair).is_complex and names[0] not in ("eq", "ne"):
            raise Unmodelled("comparing complex tensors by order")
        return pointwise(e, OpRule("", forward), pair, BOOL, promoted(*pair))

    add(
        names,
        run,
        "pure",
        "",
        (sample, sample.replace("b", "0")),
        traits=("elementwise", "fresh"),
    )
    return run


_compare(("gt", "torch.greater", ".greater", ".__gt__"), np.greater, "a > b")
_compare(("lt", "torch.less", ".less", ".__lt__"), np.less, "a < b")
_compare(("ge", "torch.greater_equal", ".greater_equal", ".__ge__"), np.greater_equal, "a >= b")
_compare(("le", "torch.less_equal", ".less_equal", ".__le__"), np.less_equal, "a <= b")
compare_equal = _compare(("eq", ".__eq__"), np.equal, "a == b")
compare_different = _compare(("ne", "torch.not_equal", ".not_equal", ".__ne__"), np.not_equal, "a != b")


def _refuse_bits(name: str, dtype: DType) -> None:
    """Raise torch's error for bitwise operations on floating point dtypes."""
    if name == "bitwise_not":
        raise ShadowError(
            "TypeError", "~ (operator.invert) is only implemented on integer and Boolean-type tensors", "dtype"
        )
    raise no_kernel(f"{name}_cpu", dtype.scalar_name)


def _logic(names: tuple[str, ...], forward: Any, result: DType | None, sample: str) -> Callable[..., ShadowTensor]:
    def run(e: Engine, input: Any, *others: Any) -> ShadowTensor:
        tensor_only(input)
        operands = (input, *(operand(x) for x in others))
        dtype = promoted(*operands)
        if dtype.category > 1 and names[0].startswith("bitwise"):
            _refuse_bits(names[0], dtype)
        if names == ("isfinite",):
            check_history(e, input)  # it calls abs, which has a derivative
        return pointwise(e, OpRule("", forward), operands, result or dtype, dtype)

    add(names, run, "pure", "", (sample,), traits=("elementwise",))
    return run


_logic(("bitwise_and", ".__and__"), np.bitwise_and, None, "m & m")
_logic(("bitwise_or", ".__or__"), np.bitwise_or, None, "m | m")
_logic(("bitwise_xor", ".__xor__"), np.bitwise_xor, None, "m ^ m")
_logic(("bitwise_not", ".__invert__"), np.invert, None, "~m")
_logic(("logical_and",), np.logical_and, BOOL, "torch.logical_and(m, a > 0)")
_logic(("logical_or",), np.logical_or, BOOL, "torch.logical_or(m, a > 0)")
_logic(("logical_xor",), np.logical_xor, BOOL, "torch.logical_xor(m, a > 0)")
logical_not = _logic(("logical_not",), np.logical_not, BOOL, "torch.logical_not(m)")
_logic(("isnan",), np.isnan, BOOL, "torch.isnan(a)")
_logic(("isfinite",), np.isfinite, BOOL, "torch.isfinite(a)")


__all__ = [
    "DIV",
    "FLOAT32",
    "INT64",
    "MUL",
    "RUNS",
    "absolute",
    "add_",
    "div",
    "mul",
    "no_out",
    "operand",
    "pow",
    "sub",
]
