"""More functions of one and two arguments, element by element: inverse hyperbolic, gamma and error
functions, remainders, bits.

What is saved follows ``tools/autograd/derivatives.yaml``; the numbers are NumPy's where it has
the function, else a series.
"""

# ruff: noqa: A002, ARG001, ARG005, D103, PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import BOOL, FLOAT64, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.gradient import zeros_like
from pitfall_lab.shadow.graph import Written
from pitfall_lab.shadow.ops.building import (
    NUMBERS,
    Keep,
    Operand,
    OpRule,
    as_float,
    check_history,
    each,
    in_place,
    pointwise,
    promoted,
    records,
    sign_of,
    tensor_only,
)
from pitfall_lab.shadow.ops.mutate import cast
from pitfall_lab.shadow.ops.pointwise import NO_NEGATION, SELF, extremum_rule, operand, unary, whole_or_not
from pitfall_lab.shadow.registry import Trait, add, also, do, op
from pitfall_lab.shadow.releases import FMAX_LOOKS_FOR_NAN, FMAX_SHARES
from pitfall_lab.shadow.storage import ShadowTensor

# -- special functions on arrays, in float64


def lgamma(x: Any) -> Any:
    """The logarithm of the gamma function's absolute value."""
    return each(_lgamma)(x)


def _lgamma(x: float) -> float:
    if math.isnan(x):
        return x
    return math.inf if math.isinf(x) or (x <= 0 and x == int(x)) else math.lgamma(x)


def hurwitz(s: float, x: Any) -> Any:
    """``sum over k of 1 / (x + k)**s`` for s > 1 and x > 0: twenty terms, then Euler and Maclaurin's formula."""
    x = np.asarray(x, np.float64)
    total = np.zeros_like(x)
    for k in range(20):
        total += (x + k) ** -s
    y = x + 20
    total += y ** (1 - s) / (s - 1) + 0.5 * y**-s
    for even, bernoulli in ((2, 1 / 6), (4, -1 / 30), (6, 1 / 42), (8, -1 / 30)):
        factor = math.prod(s + j for j in range(even - 1))
        total += bernoulli / math.factorial(even) * factor * y ** (-s - even + 1)
    return total


def digamma(x: Any) -> Any:
    """The derivative of ``lgamma``, for x > 0; NaN for other x."""
    y = np.asarray(x, np.float64)
    total = np.zeros_like(y)
    for _ in range(12):
        total -= 1 / y
        y = y + 1
    inverse = 1 / (y * y)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return np.where(np.asarray(x) > 0, total + np.log(y) - 0.5 / y - series, np.nan)


def polygamma_values(n: int, x: Any) -> Any:
    """The n-th derivative of ``digamma``, for x > 0; NaN for other x, unless ``n`` is 0 (``digamma`` itself)."""
    if n == 0:
        return digamma(x)
    values = (-1) ** (n + 1) * math.factorial(n) * hurwitz(n + 1.0, x)
    return np.where(np.asarray(x) > 0, values, np.nan)


def _erfinv(y: float) -> float:
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    x = 0.0
    w = math.log(1 - y * y) if y else 0.0
    t = 2 / (math.pi * 0.147) + w / 2
    x = math.copysign(math.sqrt(max(math.sqrt(t * t - w / 0.147) - t, 0.0)), y)
    for _ in range(4):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x


def bessel_i(order: int, x: Any) -> Any:
    """The modified Bessel function of the first kind of integer ``order``: its integral, which the midpoint rule gives
    to full precision. NaN at infinity.
    """
    angle = (np.arange(64) + 0.5) * math.pi / 64
    wide = np.asarray(x, np.float64)
    wide = np.where(np.isinf(wide), np.nan, wide)  # torch divides infinity by infinity
    return np.mean(np.exp(wide[..., None] * np.cos(angle)) * np.cos(order * angle), axis=-1)


def _only_positive(x: Any) -> None:
    if np.any((np.asarray(x) <= 0) | np.isinf(x)):
        raise Unmodelled("the gamma function's derivatives left of zero, and at infinity")


def _digamma(x: Any) -> Any:
    _only_positive(x)
    return digamma(x)


def _underivable(name: str, forward: Callable[..., Any]) -> OpRule:
    """``acosh_`` and its like: torch has the derivative only of ``acosh``."""

    def vjp(g: Any, s: Any) -> tuple[Any]:
        raise ShadowError("NotImplementedError", f"the derivative for 'inplace version of {name}' is not implemented.")

    return OpRule(f"{name.capitalize()}Backward1", forward, (), vjp)


_ROOT_PI = math.sqrt(math.pi)
unary(
    "acosh",
    "AcoshBackward0",
    np.arccosh,
    SELF,
    lambda g, s: g / np.sqrt(s.self * s.self - 1),
    arg="(b + 1)",
    in_place_rule=_underivable("acosh", np.arccosh),
)
unary(
    "asinh",
    "AsinhBackward0",
    np.arcsinh,
    SELF,
    lambda g, s: g / np.sqrt(s.self * s.self + 1),
    in_place_rule=_underivable("asinh", np.arcsinh),
)
unary(
    "atanh",
    "AtanhBackward0",
    np.arctanh,
    SELF,
    lambda g, s: g / (1 - s.self * s.self),
    arg="(a * 0.3)",
    in_place_rule=_underivable("atanh", np.arctanh),
)
unary("lgamma", "LgammaBackward0", lgamma, SELF, lambda g, s: g * _digamma(s.self), arg="b")
unary("digamma", "DigammaBackward0", _digamma, SELF, lambda g, s: g * polygamma_values(1, s.self), arg="b")
unary(
    "erfinv",
    "ErfinvBackward0",
    each(_erfinv),
    SELF,
    lambda g, s: g * 0.5 * _ROOT_PI * np.exp(each(_erfinv)(s.self) ** 2),
    arg="(a * 0.3)",
)
unary("i0", "I0Backward0", lambda x: bessel_i(0, x), SELF, lambda g, s: g * bessel_i(1, s.self))
unary("sinc", "SincBackward0", np.sinc, SELF, lambda g, s: g * _sinc_slope(s.self))
unary("deg2rad", "Deg2RadBackward0", np.deg2rad, (), lambda g, s: g * (math.pi / 180), like_self=True, fresh=False)
unary("rad2deg", "Rad2DegBackward0", np.rad2deg, (), lambda g, s: g * (180 / math.pi), like_self=True, fresh=False)
unary("frac", "FracBackward0", lambda x: x - np.trunc(x), (), lambda g, s: g, floats=False)


def _sinc_slope(x: Any) -> Any:
    z = x * math.pi
    return np.where(x == 0, 0, math.pi * (z * np.cos(z) - np.sin(z)) / np.where(x == 0, 1, z * z))


_SPECIAL = {"digamma": "psi", "lgamma": "gammaln", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2",
            "expm1": "expm1", "log1p": "log1p", "sinc": "sinc", "i0": "i0", "round": "round"}  # fmt: skip
for _name, _special in _SPECIAL.items():
    also(f"torch.{_name}", f"torch.special.{_special}")
also("torch.digamma", "torch.special.digamma")
for _old, _new in {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
}.items():
    also(f"torch.{_old}", f"torch.{_new}", f"torch.Tensor.{_new}")
    also(f"torch.Tensor.{_old}_", f"torch.{_new}_", f"torch.Tensor.{_new}_")
also("torch.trunc", "torch.fix", "torch.Tensor.fix")
also("torch.Tensor.trunc_", "torch.fix_", "torch.Tensor.fix_")
also("torch.Tensor.neg_", "torch.Tensor.negative_", "torch.negative_")
also("torch.Tensor.abs_", "torch.Tensor.absolute_")
also("torch.Tensor.mul_", "torch.Tensor.multiply_")
also("torch.Tensor.div_", "torch.Tensor.divide_", "torch.Tensor.true_divide_")
also("torch.div", "torch.divide", "torch.Tensor.divide")
also("torch.sub", "torch.Tensor.subtract")
also("torch.Tensor.sub_", "torch.Tensor.subtract_")


@op("sgn", samples=("torch.sgn(p)", "p.sgn()"), traits=("elementwise",))
def sgn(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    if records(e, input) or input.dtype.is_complex:
        raise Unmodelled("sgn of a complex tensor, or of one that requires grad (its gradient has no storage in torch)")
    return pointwise(e, OpRule("", sign_of), (input,), input.dtype)


@op(
    "torch.polygamma",
    "torch.special.polygamma",
    saves="self",
    samples=("torch.polygamma(1, b)", "torch.polygamma(2, b)"),
    traits=("elementwise",),
)
def polygamma(e: Engine, n: Any, input: Any) -> ShadowTensor:
    tensor_only(input)

    def forward(x: Any) -> Any:
        _only_positive(x)
        return polygamma_values(n, x)

    rule = OpRule("PolygammaBackward0", forward, SELF, lambda g, s: (g * polygamma_values(n + 1, s.self),))
    return pointwise(e, rule, (input,), as_float(input.dtype), as_float(input.dtype))


@op(
    "logit",
    "torch.special.logit",
    saves="self",
    samples=("torch.logit(b * 0.2)", "(a * 0.3).logit(0.1)"),
    traits=("elementwise",),
)
def logit(e: Engine, input: Any, eps: Any = None) -> ShadowTensor:
    tensor_only(input)
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)

    def forward(x: Any) -> Any:
        x = x if eps is None else np.clip(x, x.dtype.type(low), x.dtype.type(high))
        return np.log(x / (1 - x))

    def vjp(g: Any, s: Any) -> tuple[Any]:
        outside = (s.self < low) | (s.self > high)
        return (np.where(outside, np.nan if eps is None else 0, g / (s.self * (1 - s.self))),)

    return pointwise(
        e, OpRule("LogitBackward0", forward, SELF, vjp), (input,), as_float(input.dtype), as_float(input.dtype)
    )


def _cleaned(nan: Any, posinf: Any, neginf: Any) -> OpRule:
    def forward(x: Any) -> Any:
        if x.dtype.kind not in "fc":
            return x
        info = np.finfo(x.dtype)
        high, low = info.max if posinf is None else posinf, info.min if neginf is None else neginf
        return np.where(np.isnan(x), nan or 0, np.where(np.isposinf(x), high, np.where(np.isneginf(x), low, x)))

    return OpRule("NanToNumBackward0", forward, SELF, lambda g, s: (g * np.isfinite(s.self),))


@op(
    "nan_to_num", saves="self", samples=("torch.nan_to_num(a)", "(a / 0).nan_to_num(1.0, 2.0)"), traits=("elementwise",)
)
def nan_to_num(e: Engine, input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> ShadowTensor:
    tensor_only(input)
    if input.dtype == "float16":
        raise Unmodelled("nan_to_num of a float16 tensor")
    return pointwise(e, _cleaned(nan, posinf, neginf), (input,), input.dtype, input.dtype, like=input)


@op(
    ".nan_to_num_",
    "torch.nan_to_num_",
    kind="inplace",
    saves="a clone of self",
    samples=("h.nan_to_num_()",),
    traits=("elementwise",),
)
def nan_to_num_(e: Engine, self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> ShadowTensor:
    tensor_only(self)
    if self.dtype.category < 2:  # copied onto its own place: nothing is looked at
        return in_place(e, _cleaned(nan, posinf, neginf), (self,), elementwise=False, overlapping=lambda: None)
    return in_place(e, _cleaned(nan, posinf, neginf), (self,), self.dtype)


@op("torch.special.entr", saves="self", samples=("torch.special.entr(b)",), traits=("elementwise",))
def entr(e: Engine, input: Any) -> ShadowTensor:
    tensor_only(input)
    dtype = as_float(input.dtype)
    rule = OpRule(
        "SpecialEntrBackward0",
        lambda x: np.where(x > 0, -x * np.log(np.where(x > 0, x, 1)), np.where(x == 0, 0, -np.inf)),
        SELF,
        lambda g, s: (g * (-np.log(s.self) - 1),),
    )
    return pointwise(e, rule, (input,), dtype, dtype)


# -- two arguments


def binary(name: str, rule: OpRule | Callable[[Engine], OpRule], samples: tuple[str, ...], *, floats: bool = False,
           has_in_place: bool = True) -> None:  # fmt: skip
    """Register ``name`` for two tensors (or a tensor and a number) and, with ``has_in_place``, the method ``name_``.

    The ``rule`` may be a function of the engine, since it may depend on the release; ``samples`` are expressions that
    use the operation. ``floats``: integers become floats. The operation raises ``Unmodelled``, among others, for
    complex operands and, where the rule has no node, for operands that require grad while operations are recorded
    (:func:`records`).
    """
    of: Callable[[Engine], OpRule] = (lambda _e: rule) if isinstance(rule, OpRule) else rule
    node, keeps = (rule.node, rule.keeps) if isinstance(rule, OpRule) else (name, BOTH)

    def check(e: Engine, *pair: Operand) -> None:
        if not node and records(e, *pair):
            raise Unmodelled(f"the gradient of {name}, which torch does not implement either")

    def run(e: Engine, input: Any, other: Any) -> ShadowTensor:
        pair = operand(input), operand(other)
        check(e, *pair)
        if name == "heaviside" and all(isinstance(x, ShadowTensor) for x in pair) and input.dtype != other.dtype:
            raise runtime("heaviside is not yet implemented for tensors with different dtypes.", "dtype")
        kind = as_float(promoted(*pair)) if floats else promoted(*pair)
        if name.endswith("_shift") and kind.category != 1:
            raise no_kernel(f"{name[8]}shift_cpu", kind.scalar_name)
        if kind.is_complex or (name == "nextafter" and kind == "float16"):
            raise Unmodelled(f"{name} of a complex or half-precision tensor")
        return pointwise(e, of(e), pair, kind, kind)

    def run_in_place(e: Engine, self: Any, other: Any) -> ShadowTensor:
        pair = self, operand(other)
        check(e, *pair)
        kind = as_float(promoted(*pair)) if floats else promoted(*pair)
        if kind.is_complex:
            raise Unmodelled(f"{name} of a complex tensor")
        return in_place(e, of(e), pair, kind)

    what = ", ".join(k.name for k in keeps)
    add(name, run, "pure", what, samples, traits=("elementwise",))
    if has_in_place:
        add(
            f".{name}_",
            run_in_place,
            "inplace",
            what.replace("self", "a clone of self"),
            (f"h.{name}_(b)",) if node else (),
            traits=("elementwise",),
        )


def _pair(first: int | None = 1, second: int | None = 0) -> tuple[Keep, ...]:
    return Keep("other", 1, first), Keep("self", 0, second)


BOTH = (Keep("other", 1), Keep("self", 0))


def _atan2_vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """The gradients for both operands of atan2; 0 where both operands are 0. uint8 operands are
    negated as uint8, as in torch.
    """
    if s.self.dtype.kind == "b":
        raise runtime(NO_NEGATION, "dtype")
    square = s.self**2 + s.other**2
    reciprocal = np.where(square == 0, 0, 1 / square).astype(square.dtype)
    return g * s.other * reciprocal, g * -s.self * reciprocal


binary("atan2", OpRule("Atan2Backward0", np.arctan2, BOTH, _atan2_vjp),
       ("torch.atan2(a, b)", "a.atan2(c)"), floats=True)  # fmt: skip
also("torch.atan2", "torch.arctan2", "torch.Tensor.arctan2")
also("torch.Tensor.atan2_", "torch.Tensor.arctan2_")
OWN = (Keep("other", 1, 1), Keep("self", 0, 0))
"""Each operand is saved only if its own gradient is needed."""


def _hypot_vjp(g: Any, s: Any) -> tuple[Any, Any]:
    return None if s.self is None else g * (s.self / s.result), None if s.other is None else g * (s.other / s.result)


binary(
    "hypot",
    OpRule("HypotBackward0", np.hypot, (*OWN, Keep("result", "result")), _hypot_vjp),
    ("torch.hypot(a, b)", "a.hypot(c)"),
)
binary(
    "logaddexp",
    OpRule(
        "LogaddexpBackward0",
        np.logaddexp,
        BOTH,
        lambda g, s: (g / (1 + np.exp(s.other - s.self)), g / (1 + np.exp(s.self - s.other))),
    ),
    ("torch.logaddexp(a, b)", "a.logaddexp(c)"),
    has_in_place=False,
)
binary(
    "logaddexp2",
    OpRule(
        "Logaddexp2Backward0",
        np.logaddexp2,
        BOTH,
        lambda g, s: (g / (1 + np.exp2(s.other - s.self)), g / (1 + np.exp2(s.self - s.other))),
    ),
    ("torch.logaddexp2(a, b)",),
    has_in_place=False,
)
binary("nextafter", OpRule("", np.nextafter), ("torch.nextafter(p, p + 1)",))
binary(
    "heaviside",
    OpRule("", lambda x, v: np.where(x == 0, v, np.where(x > 0, 1, 0))),
    ("torch.heaviside(p - 1, p)",),
    has_in_place=False,
)
binary("gcd", OpRule("", np.gcd), ("torch.gcd(n, n + 2)",))
binary("lcm", OpRule("", np.lcm), ("torch.lcm(n, n + 2)",))
binary("bitwise_left_shift", OpRule("", np.left_shift), ("n << 1", "torch.bitwise_left_shift(n, n)"))
binary("bitwise_right_shift", OpRule("", np.right_shift), ("n >> 1",))
for _sign, _name in (("l", "left"), ("r", "right")):
    also(f"torch.bitwise_{_name}_shift", f"torch.Tensor.__{_sign}shift__")
    also(f"torch.Tensor.bitwise_{_name}_shift_", f"torch.Tensor.__i{_sign}shift__")


def _wins(best: Any, better: Any, wins: Any, node: str) -> Callable[[Engine], OpRule]:
    """The rule of ``fmax`` or ``fmin``: if one of two elements is NaN, the other one is the
    result and gets the gradient.

    In older releases of torch the gradient goes elsewhere: see :data:`FMAX_LOOKS_FOR_NAN` and :data:`FMAX_SHARES`.
    """

    def alone(g: Any, s: Any) -> tuple[Any, Any]:
        first = better(s.self, s.other) | np.isnan(s.other)
        return np.where(first, g, 0), np.where(first, 0, g)

    def shared(g: Any, s: Any) -> tuple[Written, Written]:
        share, first = np.where(s.self == s.other, g / 2, g), better(s.self, s.other) | np.isnan(s.other)
        second = ~first | (s.self == s.other)
        return Written(np.where(first, share, 0), int(s.self.dtype == g.dtype)), Written(
            np.where(second, share, 0), int(s.other.dtype == g.dtype)
        )

    before, between, now = (
        OpRule(node, best, BOTH, alone),
        extremum_rule(node, best, wins),
        OpRule(node, best, BOTH, shared),
    )
    return lambda e: now if e.does(FMAX_LOOKS_FOR_NAN) else between if e.does(FMAX_SHARES) else before


binary("fmax", _wins(np.fmax, np.greater_equal, np.greater, "FmaxBackward0"), ("torch.fmax(a, b)",), has_in_place=False)
binary("fmin", _wins(np.fmin, np.less_equal, np.less, "FminBackward0"), ("torch.fmin(a, b)",), has_in_place=False)


def _copysign_rule(other: Any) -> OpRule:
    def ratio(g: Any, s: Any) -> Any:
        return None if s.self is None else np.where(s.self == 0, 0, g * (s.result / np.where(s.self == 0, 1, s.self)))

    if isinstance(other, ShadowTensor):
        keeps = (Keep("self", 0, 0), Keep("result", "result"))
        return OpRule(
            "CopysignBackward0", np.copysign, keeps, lambda g, s: (ratio(g, s), Written(np.zeros(g.shape, g.dtype)))
        )
    forward = lambda x: np.copysign(x, np.asarray(other).astype(x.dtype))  # noqa: E731 - a rule in one row
    return OpRule(
        "CopysignBackward1", forward, (Keep("self", 0), Keep("result", "result")), lambda g, s: (ratio(g, s),)
    )


FMOD, REMAINDER = whole_or_not(np.fmod), whole_or_not(np.remainder)


def _fmod_rule(other: Any) -> OpRule:
    if not isinstance(other, ShadowTensor):
        return OpRule("FmodBackward0", lambda x: FMOD(x, np.asarray(other).astype(x.dtype)), (), lambda g, s: (g,))
    return OpRule(
        "FmodBackward1",
        FMOD,
        (Keep("other", 1, 1), Keep("self", 0, 1)),
        lambda g, s: (g, _minus(g, s, lambda a, b: np.trunc(a / b))),
    )


def _remainder_rule(other: Any) -> OpRule:
    if not isinstance(other, ShadowTensor):
        return OpRule(
            "RemainderBackward0", lambda x: REMAINDER(x, np.asarray(other).astype(x.dtype)), (), lambda g, s: (g,)
        )
    return OpRule(
        "RemainderBackward1",
        REMAINDER,
        (Keep("other", 1, 1), Keep("self", 0, 1)),
        lambda g, s: (g, _minus(g, s, np.floor_divide)),
    )


def _minus(g: Any, s: Any, divided: Callable[[Any, Any], Any]) -> Any:
    return None if s.other is None else -g * divided(s.self, s.other)


def _xlogy(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y), np.nan, np.where(x == 0, 0, x * np.log(y)))


def _xlogy_to_self(g: Any, x: Any, y: Any) -> Any:
    return np.where((x == 0) & (y <= 0), 0, _xlogy(g, y))


def _xlogy_rule(other: Any) -> OpRule:
    if not isinstance(other, ShadowTensor):
        y = np.asarray(other)
        return OpRule(
            "XlogyBackward2",
            lambda x: _xlogy(x, y.astype(x.dtype)),
            SELF,
            lambda g, s: (_xlogy_to_self(g, s.self, y.astype(g.dtype)),),
        )
    keeps = (Keep("other", 1), Keep("self", 0))
    return OpRule(
        "XlogyBackward0", _xlogy, keeps, lambda g, s: (_xlogy_to_self(g, s.self, s.other), g * s.self / s.other)
    )


def _with_number(
    name: str,
    make: Callable[[Any], OpRule],
    samples: tuple[str, ...],
    *,
    floats: bool = False,
    names: tuple[str, ...] = (),
    traits: tuple[Trait, ...] = (),
) -> None:
    """Register ``name`` and ``name_``, whose node is another one when the second argument is a number."""

    def kind(pair: tuple[Any, Any], *, may_refuse: bool = False) -> DType:
        found = as_float(promoted(*pair)) if floats else promoted(*pair)
        if found.is_complex or (found.category < 2 and not (may_refuse or no_divisor_is_zero(pair))):
            raise Unmodelled(f"{name} with operands of these dtypes")
        return found

    def run(e: Engine, input: Any, other: Any) -> ShadowTensor:
        tensor_only(input)
        pair = input, operand(other)
        dtype = kind(pair, may_refuse=name in {"fmod", "remainder"})
        return pointwise(
            e, make(other), pair if isinstance(other, ShadowTensor) else pair[:1], dtype, dtype, iterated=pair
        )

    def run_in_place(e: Engine, self: Any, other: Any) -> ShadowTensor:
        tensor_only(self)
        pair = self, operand(other)
        return in_place(e, make(other), pair if isinstance(other, ShadowTensor) else pair[:1], kind(pair))

    add((name, *names), run, "pure", "self, other when other is a tensor", samples, traits=("elementwise", *traits))
    saves = "a clone of self, other when other is a tensor"
    add(
        f".{name}_", run_in_place, "inplace", saves, (f"h.{name}_(b)", f"h.{name}_(2)"), traits=("elementwise", *traits)
    )


def no_divisor_is_zero(pair: tuple[Any, Any]) -> bool:
    """Whether the divisor, ``pair[1]`` (an integer or an integer tensor), is known not to be zero in any element, so
    that the division cannot raise.

    False for a tensor with unknown values. For a zero divisor torch raises in the middle of an in-place write, after
    some elements have been written.
    """
    other = pair[1]
    if isinstance(other, NUMBERS):
        return other != 0
    seen = other.window()
    return seen is not None and bool(np.all(seen != 0))


_with_number(
    "copysign", _copysign_rule, ("torch.copysign(a, b)", "a.copysign(-1.0)"), floats=True, traits=("deterministic",)
)
_with_number("fmod", _fmod_rule, ("torch.fmod(a, b)", "a.fmod(2)", "n.fmod(4)"))
_with_number("remainder", _remainder_rule, ("a % 2", "n % 3", "torch.remainder(a, b)", "a % b"), names=(".__mod__",))
also("torch.Tensor.remainder_", "torch.Tensor.__imod__")
_with_number("xlogy", _xlogy_rule, ("torch.xlogy(a, b)", "a.xlogy(2.0)"), floats=True, names=("torch.special.xlogy",))


@op("torch.special.xlog1py", saves="other, self", samples=("torch.special.xlog1py(a, b)",), traits=("elementwise",))
def special_xlog1py(e: Engine, input: Any, other: Any) -> ShadowTensor:
    tensor_only(input, other)
    dtype = as_float(promoted(input, other))

    def xlog1py(x: Any, y: Any) -> Any:
        return np.where(np.isnan(y), np.nan, np.where(x == 0, 0, x * np.log1p(y)))

    rule = OpRule(
        "SpecialXlog1PyBackward0", xlog1py, BOTH,
        lambda g, s: (np.where((s.self == 0) & (s.other <= -1), 0, xlog1py(g, s.other)), g * s.self / (s.other + 1)),
    )  # fmt: skip
    return pointwise(e, rule, (input, other), dtype, dtype)


@op("ldexp", saves="other, result", samples=("torch.ldexp(p, n)",), traits=("elementwise",))
def ldexp(e: Engine, input: Any, other: Any) -> ShadowTensor:
    tensor_only(input, other)
    if records(e, input, other) or other.dtype.category != 1:
        raise Unmodelled("the derivative of ldexp, or ldexp with exponents that are not integers")
    dtype = as_float(input.dtype)
    return pointwise(e, OpRule("", lambda x, k: x * np.exp2(k)), (input, other), dtype, like=input)


@op(
    "float_power",
    saves="as pow, of operands in float64",
    samples=("torch.float_power(a, 2)", "b.float_power(b)", "torch.float_power(n, 2)"),
    traits=("elementwise",),
)
def float_power(e: Engine, input: Any, exponent: Any) -> ShadowTensor:
    pair = operand(input), operand(exponent)
    if promoted(*pair).is_complex:
        raise Unmodelled("complex powers")
    wide = [
        cast(e, x, FLOAT64) if isinstance(x, ShadowTensor) else x for x in reversed(pair)
    ]  # arguments are computed from the right
    result: ShadowTensor = do(e, "pow", *reversed(wide))
    return result


# -- predicates


def _question(
    names: str | tuple[str, ...], forward: Callable[[Any], Any], sample: str, *, like_self: bool = False
) -> None:
    def run(e: Engine, input: Any) -> ShadowTensor:
        tensor_only(input)
        return pointwise(e, OpRule("", forward), (input,), BOOL, like=input if like_self else None)

    add(names, run, "pure", "", (sample,), traits=("elementwise",))


def _infinite(sign: int) -> Callable[[Any], Any]:
    return lambda x: (x == sign * np.inf) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


_question("isinf", np.isinf, "torch.isinf(a / 0)")
_question("isposinf", _infinite(1), "torch.isposinf(a / 0)")
_question("isneginf", _infinite(-1), "torch.isneginf(a / 0)")
_question("signbit", lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0, "torch.signbit(a)")
_question("isreal", np.isreal, "torch.isreal(a)", like_self=True)


@op(
    "isclose",
    samples=(
        "torch.isclose(a, b)",
        "a.isclose(a + 1e-9, equal_nan=True)",
        "torch.isclose(n, n, equal_nan=True)",
        "torch.isclose(a, b, rtol=0, atol=0)",
    ),
    traits=("elementwise",),
)
def isclose(
    e: Engine, input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> ShadowTensor:
    tensor_only(input, other)
    if input.dtype != other.dtype:
        raise Unmodelled("isclose with operands of two dtypes")
    check_history(e, input, other)  # it computes a distance, which has a derivative
    result = pointwise(e, OpRule("", lambda x, y: np.isclose(x, y, rtol, atol, equal_nan)), (input, other), BOOL)
    # What is equal comes first; what is NaN twice, then what is near, is written into it.
    e.graph.bump(result.counter, int(equal_nan and input.dtype.category > 1) + (rtol != 0 or atol != 0))
    return result


# -- comparisons and logic in place


def _question_in_place(names: tuple[str, ...], node: str, forward: Callable[..., Any], sample: str) -> None:
    rule = OpRule(node, forward, (), lambda g, s: (zeros_like(g), zeros_like(g)))

    def run(e: Engine, self: Any, other: Any) -> ShadowTensor:
        tensor_only(self)
        other = operand(other)
        if isinstance(other, ShadowTensor):
            if records(e, self, other):
                raise Unmodelled(f"the gradient of {names[0]}")
            return in_place(e, OpRule("", forward), (self, other), elementwise=True)
        plain = OpRule(node, lambda x: forward(x, other), (), rule.vjp)
        return in_place(e, plain, (self,))

    add(names, run, "inplace", "", (sample,), traits=("elementwise",))


for _name, _long, _forward in (
    ("gt", "greater", np.greater),
    ("lt", "less", np.less),
    ("ge", "greater_equal", np.greater_equal),
    ("le", "less_equal", np.less_equal),
    ("eq", "", np.equal),
    ("ne", "not_equal", np.not_equal),
):
    _names = (f".{_name}_", f".{_long}_") if _long else (f".{_name}_",)
    _question_in_place(_names, f"{_name.capitalize()}Backward0", _forward, f"h.{_name}_(0.5)")


def _logic_in_place(name: str, forward: Callable[..., Any], *samples: str, aliases: tuple[str, ...] = ()) -> None:
    unseen = name.startswith("logical")  # autograd neither checks them nor records their writes

    def run(e: Engine, self: Any, *others: Any) -> ShadowTensor:
        tensor_only(self)
        operands = (self, *(operand(x) for x in others))
        if not unseen and records(e, *operands):
            raise Unmodelled(f"the gradient of {name}")
        before = e.grad_enabled
        e.grad_enabled = before and not unseen
        try:
            return in_place(e, OpRule("", forward), operands, None if unseen else promoted(*operands))
        finally:
            e.grad_enabled = before

    traits: tuple[Trait, ...] = ("unchecked",) if unseen else ()
    add((f".{name}", *aliases), run, "inplace", "", samples, traits=("elementwise", *traits))


_logic_in_place("bitwise_and_", np.bitwise_and, "n.bitwise_and_(3)", aliases=(".__iand__",))
_logic_in_place("bitwise_or_", np.bitwise_or, "n.bitwise_or_(3)", aliases=(".__ior__",))
_logic_in_place("bitwise_xor_", np.bitwise_xor, "n.bitwise_xor_(3)", aliases=(".__ixor__",))
_logic_in_place("bitwise_not_", np.invert, "m.bitwise_not_()")
_logic_in_place("logical_not_", np.logical_not, "m.logical_not_()", "p.logical_not_()")
_logic_in_place("logical_and_", np.logical_and, "m.logical_and_(p > 0)")
_logic_in_place("logical_or_", np.logical_or, "m.logical_or_(p > 0)")
_logic_in_place("logical_xor_", np.logical_xor, "m.logical_xor_(p > 0)")
