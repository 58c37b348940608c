"""Operations on lists of tensors: what optimizers and gradient clipping do to all parameters at once.

``torch._foreach_add_(xs, ys)`` is ``x.add_(y)`` for each pair; a number or a single tensor is used for all. On
the CPU torch does the same (``aten/src/ATen/native/ForeachOpsKernels.cpp``, the "slow" kernels), so each
tensor's version increases once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.ops.building import in_place, promoted, records, tensor_only
from pitfall_lab.shadow.ops.pointwise import MAXIMUM, MINIMUM
from pitfall_lab.shadow.registry import ENTRIES, Trait, add
from pitfall_lab.shadow.storage import ShadowTensor

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = ("mul", "div", "pow", "clamp_min", "clamp_max")
EXTREMA = {"maximum": MAXIMUM, "minimum": MINIMUM}


def _each(name: str, apply: Callable[..., Any], *traits: Trait) -> None:
    """Register ``torch._foreach_<name>``: ``apply(engine, element, ...)`` on each element of the lists.

    It raises for an empty list and lists of unequal lengths, and declines a call that autograd records.
    """

    def run(e: Engine, tensors: Any, *others: Any, **named: Any) -> Any:
        if not isinstance(tensors, tuple | list):
            raise Unmodelled("a foreach function given a number in place of the list of tensors")
        if not tensors:
            raise runtime("Tensor list must have at least one tensor.", "shape")
        tensor_only(*tensors)
        for other in others:
            if isinstance(other, tuple | list) and len(other) != len(tensors):
                text = f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
                raise runtime(text, "shape")
        if records(e, *tensors, *(x for other in others if isinstance(other, tuple | list) for x in other)):
            # torch's nodes have names of their own (ForeachAddBackward1Scalar); optimizers never make them
            raise Unmodelled("a foreach function that autograd records")
        results = []
        for k, tensor in enumerate(tensors):
            rest = [other[k] if isinstance(other, tuple | list) else other for other in others]
            results.append(apply(e, tensor, *rest, **named))
        return results if name.endswith("_") else tuple(results)

    add(f"torch._foreach_{name}", run, "inplace" if name.endswith("_") else "pure", traits=traits)


def _same(full: str) -> Callable[..., Any]:
    def apply(e: Engine, *args: Any, **named: Any) -> Any:
        return ENTRIES[full].run(e, *args, **named)

    return apply


for _name in (*UNARY, *BINARY):
    _each(_name, _same(f"torch.{_name}"))
    _each(f"{_name}_", _same(f"torch.Tensor.{_name}_"))
_each("add", _same("torch.add"), "takes_alpha")
_each("add_", _same("torch.Tensor.add_"), "takes_alpha")
_each("sub", _same("torch.sub"), "takes_alpha", "alpha_is_number")
_each("sub_", _same("torch.Tensor.sub_"), "takes_alpha")
for _name, _rule in EXTREMA.items():
    _each(_name, _same(f"torch.{_name}"))

    def _extremum_in_place(e: Engine, self: ShadowTensor, other: Any, rule: Any = _rule) -> Any:
        return in_place(e, rule, (self, other), promoted(self, other))

    _each(f"{_name}_", _extremum_in_place)
for _name in ("zero_", "copy_", "lerp_"):
    _each(_name, _same(f"torch.Tensor.{_name}"))
_each("lerp", _same("torch.lerp"))
_each("norm", _same("torch.Tensor.norm"))
_each("max", _same("torch.max"))
_each("clone", _same("torch.clone"))


def _with_value(full: str) -> Callable[..., Any]:
    def apply(e: Engine, self: Any, one: Any, two: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        chosen = value if scalars is None else scalars
        if isinstance(chosen, ShadowTensor):
            raise Unmodelled("a tensor of factors")
        return ENTRIES[full].run(e, self, one, two, value=chosen)

    return apply


for _name in ("addcmul", "addcdiv"):
    _each(_name, _with_value(f"torch.{_name}"))
    _each(f"{_name}_", _with_value(f"torch.Tensor.{_name}_"))
