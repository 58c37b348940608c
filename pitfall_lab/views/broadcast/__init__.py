"""Operands of different shapes, right-aligned: what stretches, what it becomes, and what backward sums again.
:func:`project` returns a case for each such expression, as plain data.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Literal, NotRequired, TypedDict

from pitfall_lab.trace import Event, T, Trace
from pitfall_lab.trace.state_types import Cell
from pitfall_lab.views.label_history import Facts, at, gather
from pitfall_lab.views.tabs import Tab

TAB = Tab(3, T(en="Broadcast", zh="广播"))


class Dim(TypedDict):
    """One dimension of an operand, aligned to the result's.

    ``size`` is None if the operand does not have the dimension; ``stride`` is 0 if the operand is stretched there.
    """

    size: int | None
    kind: Literal["real", "one", "missing", "clash"]
    stride: int


class BroadcastOperand(TypedDict):
    """An operand of a broadcast call.

    ``summed`` are the result's dimensions over which backward sums to get the operand's gradient (empty if it requires
    none). ``ends`` is there if the operand is too large for ``cells``: the known elements at both ends of its last two
    dimensions, as ``[row-major index, value]``.
    """

    label: str
    storage: str | None
    shape: list[int]
    dims: list[Dim]
    summed: list[int]
    cells: list[Cell | None] | None
    ends: NotRequired[list[tuple[int, Cell]]]


class BroadcastResult(TypedDict):
    """The result of a broadcast call, with the common shape.

    ``reduced``: the call returns only a mean or a sum of it. ``ends`` is as in :class:`BroadcastOperand`.
    """

    label: str | None
    shape: list[int]
    reduced: bool
    cells: list[Cell | None] | None
    ends: NotRequired[list[tuple[int, Cell]]]


class BroadcastCase(TypedDict):
    """One expression whose operands have different shapes; ``sign`` is the operator between them, ``clash`` are
    the dimensions that do not fit.
    """

    step: int
    steps: list[int]
    op: str
    sign: str
    line: int | None
    code: str
    result: BroadcastResult
    clash: list[int]
    operands: list[BroadcastOperand]
    node: str | None
    ran: int | None
    crossed: bool
    wasteful: bool
    play: NotRequired[bool]


class Meeting(TypedDict):
    """How shapes meet: ``shape`` is the common shape, ``clash`` the indices of its dimensions in which sizes do not
    fit, ``operands`` each tensor with its dimensions aligned to that shape, and ``crossed`` whether a tensor of shape
    (N,) met one of (N, 1).
    """

    shape: list[int]
    clash: list[int]
    operands: list[BroadcastOperand]
    crossed: bool


class BroadcastScene(TypedDict):
    """What the browser draws of broadcasting; ``play`` if shapes can be changed there."""

    cases: list[BroadcastCase]
    left_out: NotRequired[int]
    play: NotRequired[bool]


ELEMENTWISE = frozenset(
    [
        "add",
        "sub",
        "subtract",
        "mul",
        "multiply",
        "div",
        "divide",
        "true_divide",
        "floor_divide",
        "remainder",
        "fmod",
        "pow",
        "rsub",
        "atan2",
        "arctan2",
        "hypot",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "less",
        "greater",
        "less_equal",
        "greater_equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "where",
        "lerp",
        "addcmul",
        "addcdiv",
        "copy",
        "masked_fill",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "float_power",
        "xlogy",
        "copysign",
        "logaddexp",
        "broadcast_tensors",
        "expand_as",
        "float_power",
        "heaviside",
        "nextafter",
        "and",
        "or",
        "xor",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "truediv",
        "floordiv",
        "mod",
    ]
)
REDUCING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
"""Elementwise inside, then a mean or a sum: the broadcast result is never seen by the program."""
CASES = 60
"""The largest number of expressions that are drawn; the picture gives the number of those left out."""
GRID = 12
ENDS = 3
"""So many elements at each end of a long dimension may be drawn."""


def project(trace: Trace, facts: Facts | None = None) -> BroadcastScene:
    """The expressions whose tensors have different shapes, as cases in plain data; ``steps`` are a case's steps in a
    loop.

    Only operations in ``ELEMENTWISE`` count. At most ``CASES`` are returned; ``left_out`` is the number of the others.
    A case whose sizes do not fit is returned only if the call raised. ``dims`` of an operand are aligned to the
    result's: ``kind`` is ``"real"``, ``"one"`` (of size 1, and stretched), ``"missing"`` (added in front) or
    ``"clash"``; ``stride`` is 0 where the operand is stretched. ``summed`` are the result's dimensions over which
    backward sums to get the operand's gradient (empty if it requires none).
    """
    facts = facts or gather(trace)
    cases: dict[tuple[Any, ...], BroadcastCase] = {}
    for event in trace.events:
        case = _case(event, facts)
        if case is not None:
            key = (case["line"], case["code"], *(tuple(o["shape"]) for o in case["operands"]), bool(case["clash"]))
            cases.setdefault(key, case)["steps"].append(event.step)
    return {"cases": list(cases.values())[:CASES], "left_out": max(0, len(cases) - CASES)}


def base_name(event: Event) -> str:
    """The operation's name without underscores at its ends: ``add`` for ``torch.Tensor.add_``, ``__add__`` and
    ``torch.add``.
    """
    return event.name.strip("_")


SIGNS = {
    "add": "+", "sub": "−", "subtract": "−", "mul": "×", "multiply": "×", "div": "÷", "divide": "÷", "true_divide": "÷",
    "eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥", "and": "∧", "or": "∨", "xor": "⊻",
}  # fmt: skip
"""How an operation is written between its operands; all others stand under one sign."""


def _case(event: Event, facts: Facts) -> BroadcastCase | None:
    name = base_name(event)
    tensors = [o.label for o in event.operands if o.label in facts.tensors]
    if event.kind != "call" or name not in ELEMENTWISE or len(tensors) < 2:
        return None
    before = event.step - 1 if name != "expand" else event.step
    met = meet(facts, tensors, before, in_place=event.name.endswith("_") and not event.name.endswith("__"))
    if len({tuple(o["shape"]) for o in met["operands"]}) < 2 or (met["clash"] and event.error is None):
        return None
    made = event.results[0] if event.results else None
    node = facts.tensor(made, event.step).get("grad_fn") if made else None
    numbers: _Numbers = {"cells": None}
    if made and name not in REDUCING:
        numbers = _numbers(facts, made, event.step)
    return {
        "step": event.step,
        "steps": [],
        "op": event.name,
        "sign": "∘" if "alpha" in facts.code(event.step) else SIGNS.get(name, "∘"),
        "line": event.span.line if event.span else None,
        "code": facts.code(event.step),
        "result": {
            "label": made,
            "shape": met["shape"],
            "reduced": name in REDUCING,
            **numbers,
        },
        "clash": met["clash"],
        "operands": met["operands"],
        "node": node,
        "ran": next((s for s, r in facts.nodes.get(node or "", []) if r and r.get("ran") == s), None),
        "crossed": met["crossed"],
        "wasteful": name in REDUCING and met["crossed"],
    }


def meet(facts: Facts, tensors: list[str], step: int, *, in_place: bool = False) -> Meeting:
    """How the shapes that the tensors have after event ``step`` broadcast.

    Returns the common ``shape``, its dimensions in which sizes do not fit (``clash``), the ``operands`` aligned to it,
    and whether (N,) meets (N, 1) (``crossed``). With ``in_place``, a dimension also clashes if the common shape is
    larger there than the first tensor's.
    """
    shapes = [
        [int(n) for n in facts.tensor(t, step).get("shape") or facts.tensor(t).get("shape") or ()] for t in tensors
    ]
    shape, clash = broadcast_shape(shapes)
    if not clash and in_place and shape != shapes[0]:
        clash = _clashes(shapes[0], shape)  # an in-place write cannot make its own tensor larger
    operands = [_operand(facts, t, step, s, (shape, clash)) for t, s in zip(tensors, shapes, strict=True)]
    return {"shape": shape, "clash": clash, "operands": operands, "crossed": _crossed(shapes)}


def broadcast_shape(shapes: list[list[int]]) -> tuple[list[int], list[int]]:
    """The common shape of ``shapes`` (at least one), and the indices of its dimensions in which sizes do not fit.

    In a dimension that does not fit, the shape has the largest size.

    >>> broadcast_shape([[3, 1], [4]]), broadcast_shape([[3], [4]])
    (([3, 4], []), ([4], [0]))
    """
    rank = max(len(s) for s in shapes)
    full = [[1] * (rank - len(s)) + s for s in shapes]
    result, clash = [], []
    for d in range(rank):
        sizes = {s[d] for s in full}
        sizes.discard(1)
        if len(sizes) > 1:
            clash.append(d)
        result.append(max(sizes) if len(sizes) > 1 else next(iter(sizes), 1))
    return result, clash


def _clashes(target: list[int], result: list[int]) -> list[int]:
    pad = len(result) - len(target)
    return [d for d in range(len(result)) if d < pad or target[d - pad] != result[d]]


def _crossed(shapes: list[list[int]]) -> bool:
    """Whether one shape ends in N and another one, with one dimension more, in (N, 1), with N > 1.

    Then every row meets every column: N × N results.
    """
    pairs = [(a, b) for a in shapes for b in shapes]
    return any(len(a) >= 1 and len(b) == len(a) + 1 and b[-1] == 1 and a[-1] > 1 and b[-2] == a[-1] for a, b in pairs)


def _operand(
    facts: Facts, label: str, step: int, shape: list[int], common: tuple[list[int], list[int]]
) -> BroadcastOperand:
    result, clash = common
    stride = list(facts.tensor(label, step).get("stride") or facts.tensor(label).get("stride") or [0] * len(shape))
    pad = len(result) - len(shape)
    needs = (facts.tensor(label, step) or facts.tensor(label)).get("requires_grad") is True
    dims: list[Dim] = []
    summed = []
    for d, size in enumerate(result):
        own = shape[d - pad] if d >= pad else None
        stretched = own is None or (own == 1 and size != 1)
        kind: Literal["real", "one", "missing", "clash"]
        kind = (
            "clash"
            if d in clash and own not in (None, 1)
            else "missing"
            if own is None
            else "one"
            if stretched
            else "real"
        )
        step_size = 0 if stretched else stride[d - pad] if d - pad < len(stride) else 0
        dims.append({"size": own, "kind": kind, "stride": step_size})
        if stretched and needs:
            summed.append(d)
    record = facts.tensor(label)
    return {
        "label": label,
        "storage": record.get("storage"),
        "shape": shape,
        "dims": dims,
        "summed": summed,
        **_numbers(facts, label, step),
    }


class _Numbers(TypedDict):
    cells: list[Cell | None] | None
    ends: NotRequired[list[tuple[int, Cell]]]


def _numbers(facts: Facts, label: str, step: int) -> _Numbers:
    """A tensor's elements in row-major order as ``cells``, with None for an unknown one.

    ``cells`` is None if no element is known, or if there are more than ``GRID``; then ``ends`` has the known ones of
    the first and last ``ENDS`` in each dimension, for tensors of at most two dimensions.
    """
    record = facts.tensor(label, step) or facts.tensor(label)
    shape, stride, offset = record.get("shape") or [], record.get("stride") or [], record.get("offset") or 0
    known = _flat(facts, record.get("storage"), step)
    count = prod(shape)
    if not count or known is None or len(stride) != len(shape):
        return {"cells": None}

    def place(index: tuple[int, ...]) -> int:
        return int(offset + sum(i * s for i, s in zip(index, stride, strict=True)))

    if count <= GRID:
        return {"cells": [known.get(place(index)) for index in product(*map(range, shape))]}
    if len(shape) > 2:
        return {"cells": None}
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    ends: list[tuple[int, Cell]] = []
    for index in product(*([*range(min(n, ENDS)), *range(max(ENDS, n - ENDS), n)] for n in shape)):
        at_place = known.get(place(index))
        if at_place is not None:
            ends.append((sum(i * s for i, s in zip(index, strides, strict=True)), at_place))
    return {"cells": None, "ends": ends} if ends else {"cells": None}


def _flat(facts: Facts, storage: str | None, step: int) -> dict[int, Any] | None:
    record = at(facts.storages.get(storage or "", []), step) or at(facts.storages.get(storage or "", []))
    cells = (record or {}).get("cells")
    if cells is None:
        return None
    return dict(cells.get("shown", ())) if isinstance(cells, dict) else dict(enumerate(cells))
