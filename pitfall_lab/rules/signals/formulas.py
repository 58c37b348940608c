"""Formulas that recorded calls compute element by element, evaluated at chosen numbers; no values from the trace are
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


SMOOTH: dict[str, Callable[..., float]] = {
    "exp": math.exp,
    "exp2": lambda x: 2**x,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "log2": math.log2,
    "log10": math.log10,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "atan": math.atan,
    "sigmoid": _sigmoid,
    "erf": math.erf,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "logsigmoid": lambda x: math.log(_sigmoid(x)),
    "neg": lambda x: -x,
    "clone": lambda x: x,
    "detach": lambda x: x,
    "contiguous": lambda x: x,
    "radd": lambda x, y: x + y,
    "rmul": lambda x, y: x * y,
    "ones_like": lambda _: 1.0,
    "zeros_like": lambda _: 0.0,
    "negative": lambda x: -x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "subtract": lambda x, y: x - y,
    "rsub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
    "multiply": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "divide": lambda x, y: x / y,
    "true_divide": lambda x, y: x / y,
    "truediv": lambda x, y: x / y,
    "rdiv": lambda x, y: y / x,
    "rtruediv": lambda x, y: y / x,
    "pow": lambda x, y: x**y,
    "rpow": lambda x, y: y**x,
    "addcmul": lambda x, y, z: x + y * z,
    "addcdiv": lambda x, y, z: x + y / z,
}
"""Operations that have a derivative in the interior of their domain, by name without the underscores of operators."""


PIECES: dict[str, Callable[..., float]] = {
    "abs": abs,
    "absolute": abs,
    "relu": lambda x: max(x, 0.0),
    "where": lambda mask, x, y: x if mask else y,
    "ge": lambda x, y: float(x >= y),
    "gt": lambda x, y: float(x > y),
    "le": lambda x, y: float(x <= y),
    "lt": lambda x, y: float(x < y),
    "maximum": max,
    "minimum": min,
    "sign": lambda x: float((x > 0) - (x < 0)),
}
"""Operations that are smooth piece by piece, by name without the underscores of operators."""

_FUNCTIONS = SMOOTH | PIECES

_OF_TWO = (
    {"ge", "gt", "le", "lt", "maximum", "minimum"}
    | spellings("add", "mul")
    | spellings("div", "pow", "sub", exchanged=True)
)
"""Operations of two operands."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that recorded calls compute element by element: ``calls``, in order, compute the tensor ``result`` (a
    label).

    ``same`` maps the label of a tensor to that of the tensor it is equal to, such as an unpacked saved tensor to the
    tensor that was saved.
    """

    calls: tuple[Event, ...]
    result: str
    same: dict[str, str]

    def at(self, known: dict[str, float]) -> float | None:
        """Return the result if the tensors have the values ``known`` (by label), which must include all tensors that no
        call of the formula computes.

        None outside the domain of an operation, and if the result is infinite, NaN or complex.
        """
        values = dict(known)
        try:
            for event in self.calls:
                given = [
                    values[self.same.get(o.label, o.label)] if o.label is not None else float(o.text)
                    for o in event.operands
                ]
                values[event.results[0]] = _FUNCTIONS[_short(event)](*given)
        except (
            ValueError,
            OverflowError,
            ZeroDivisionError,
            TypeError,
        ):  # TypeError: a root of a negative number is complex
            return None
        result = values[self.same.get(self.result, self.result)]
        return result if isinstance(result, float) and math.isfinite(result) else None

    def slope(self, known: dict[str, float], label: str, width: float = 1e-4) -> float | None:
        """Return the numeric derivative of the result with respect to the tensor ``label`` at the values ``known``,
        from the results at ``width`` above and below; None outside the domain.
        """
        above, below = (self.at({**known, label: known[label] + side}) for side in (width, -width))
        return None if above is None or below is None else (above - below) / (2 * width)


def formula(
    story: Story, calls: Iterable[Event], result: str, same: dict[str, str], known: set[str], *, pieces: bool = False
) -> Formula | None:
    """Return the formula by which ``calls`` compute the tensor ``result`` from the tensors ``known`` (labels).

    None if it needs any other call or tensor, if the tensors do not all have one shape, or if a call is not one of
    :data:`SMOOTH` (with ``pieces``, nor of :data:`PIECES`) whose other arguments are finite numbers. ``same`` is as in
    :class:`Formula`.
    """
    made = {event.results[0]: event for event in calls if len(event.results) == 1 and event.error is None}
    needed: dict[str, Event] = {}
    pending, shape = [same.get(result, result)], story.shape(result)
    while pending:
        label = pending.pop()
        if label in known or label in needed:
            continue
        event = made.get(label)
        if event is None or not _is_known(event, pieces=pieces) or event.writes:
            return None
        if story.shape(label, event.step) != shape:
            return None
        needed[label] = event
        pending += [same.get(o.label, o.label) for o in event.operands if o.label is not None]
    if any(story.shape(label) != shape for label in known):
        return None
    return Formula(tuple(sorted(needed.values(), key=lambda event: event.step)), result, same)


def _short(event: Event) -> str:
    return event.name.strip("_")


def _is_known(event: Event, *, pieces: bool) -> bool:
    return (
        _short(event) in (_FUNCTIONS if pieces else SMOOTH)
        and bool(event.operands)
        and all(o.label is not None or _is_number(o.text) for o in event.operands)
        and (len(event.operands) == _arguments(_short(event)))
    )


def _arguments(name: str) -> int:
    return 3 if name.startswith("addc") or name == "where" else 2 if name in _OF_TWO else 1


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
