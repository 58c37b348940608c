"""A trace made by hand, without torch: sigmoid saves its result, ``mul_`` overwrites it, backward raises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pitfall_lab.trace import Agreement, By, Effect, Event, Failure, Forecast, Operand, Outcome, Source, Span, Trace

# Chinese text and emoji before, on and after the lines that matter: columns must not shift.
TEXT = """import torch

x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
s = "🙂🙂"; h = torch.sigmoid(x)  # 保存 h
y = h * 2
h.mul_(10)
loss = y.sum() + h.sum()
loss.backward()
"""


def span(line: int, start: str, end: str | None = None) -> Span:
    """The place of the text ``start`` … ``end`` on a line, in code points and in UTF-16 units."""
    text = TEXT.split("\n")[line - 1]
    begin = text.index(start)
    stop = text.index(end, begin) + len(end) if end else begin + len(start)
    return Span(line, begin, line, stop, (_utf16(text[:begin]), _utf16(text[:stop])))


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def tensor(
    storage: str, *, name: str | None, born: int, shape: tuple[int, ...] = (3,), grad_fn: str | None = None
) -> dict[str, Any]:
    """A tensor's record in the state."""
    return {
        "kind": "tensor",
        "name": name,
        "names": [name] if name else [],
        "shape": list(shape),
        "stride": [1] * len(shape),
        "offset": 0,
        "dtype": "float32",
        "device": "cpu",
        "storage": storage,
        "counter": f"C{storage[1:]}",
        "requires_grad": True,
        "is_leaf": grad_fn is None,
        "grad_fn": grad_fn,
        "base": None,
        "grad": None,
        "born": born,
        "alive": True,
    }


def node(
    name: str, following: list[str | None], *, born: int, output: str, saved: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """A graph node's record in the state."""
    return {
        "name": name,
        "next": following,
        "born": born,
        "output": output,
        "saved": list(saved),
        "freed": False,
        "ran": None,
        "gradient": None,
        "gradient_shape": None,
    }


def births(storage: str, cells: list[Any]) -> list[Effect]:
    """A storage with its counter."""
    record = {"size": len(cells), "dtype": "float32", "nbytes": 4 * len(cells), "cells": cells, "alive": True}
    return [agreed(f"storages.{storage}", record), agreed(f"counters.C{storage[1:]}", 0)]


def agreed(path: str, value: Any, by: By = "agreed") -> Effect:
    return Effect(path, value, by)


def failure() -> Failure:
    """What torch raises at the end."""
    return Failure(
        "RuntimeError",
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.FloatTensor [3]], which is output 0 of SigmoidBackward0, is at version 1; expected version 0 instead.",
        kind="saved-tensor-modified",
        node="n2",
        saved="result",
        tensor="t2",
        storage="S2",
        counter="C2",
        expected=0,
        found=1,
        saved_at=1,
        changed_at=(3,),
    )


def call(
    step: int,
    op: str,
    place: Span,
    *effects: Effect,
    takes: tuple[Operand, ...],
    gives: tuple[str, ...] = (),
    **more: Any,
) -> Event:
    return Event(step, "call", op, place, operands=takes, results=gives, effects=effects, by="agreed", **more)


def sample() -> Trace:
    """The trace: eight calls, then six nodes of backward."""
    raised = replace(failure(), step=7, span=span(8, "loss.backward()"))
    kept = {"name": "result", "tensor": "t2", "storage": "S2", "counter": "C2", "version": 0}
    x, h, y, two, ten = Operand("t1"), Operand("t2"), Operand("t3"), Operand(text="2"), Operand(text="10")
    numbers, required = Operand(text="[1.0, -2.0, 3.0]"), Operand(text="True", name="requires_grad")
    events = [
        call(
            0,
            "torch.tensor",
            span(3, "torch.tensor", "True)"),
            *births("S1", [1.0, -2.0, 3.0]),
            agreed("tensors.t1", tensor("S1", name="x", born=0)),
            takes=(numbers, required),
            gives=("t1",),
        ),
        call(
            1,
            "torch.sigmoid",
            span(4, "torch.sigmoid(x)"),
            agreed("nodes.n1", node("AccumulateGrad", [], born=1, output="t1")),
            agreed("nodes.n2", node("SigmoidBackward0", ["n1"], born=1, output="t2", saved=(kept,))),
            *births("S2", [0.7310586, 0.1192029, 0.9525741]),
            agreed("tensors.t2", tensor("S2", name="h", born=1, grad_fn="n2")),
            takes=(x,),
            gives=("t2",),
        ),
        call(
            2,
            "torch.Tensor.mul",
            span(5, "h * 2"),
            agreed("nodes.n3", node("MulBackward0", ["n2", None], born=2, output="t3")),
            *births("S3", [1.4621172, 0.2384058, 1.9051482]),
            agreed("tensors.t3", tensor("S3", name="y", born=2, grad_fn="n3")),
            takes=(h, two),
            gives=("t3",),
        ),
        call(
            3,
            "torch.Tensor.mul_",
            span(6, "h.mul_(10)"),
            agreed("nodes.n4", node("MulBackward0", ["n2", None], born=3, output="t2")),
            agreed("storages.S2.cells", [7.310586, 1.192029, 9.525741]),
            agreed("counters.C2", 1),
            agreed("tensors.t2.grad_fn", "n4"),
            takes=(h, ten),
            gives=("t2",),
            writes=("S2",),
            forecasts=(Forecast(3, failure(), 7),),
        ),
        call(
            4,
            "torch.Tensor.sum",
            span(7, "y.sum()"),
            agreed("nodes.n5", node("SumBackward0", ["n3"], born=4, output="t4")),
            *births("S4", [3.6056712]),
            agreed("tensors.t4", tensor("S4", name=None, born=4, shape=(), grad_fn="n5")),
            takes=(y,),
            gives=("t4",),
        ),
        call(
            5,
            "torch.Tensor.sum",
            span(7, "h.sum()"),
            agreed("nodes.n6", node("SumBackward0", ["n4"], born=5, output="t5")),
            *births("S5", [18.028356]),
            agreed("tensors.t5", tensor("S5", name=None, born=5, shape=(), grad_fn="n6")),
            takes=(h,),
            gives=("t5",),
        ),
        call(
            6,
            "torch.Tensor.add",
            span(7, "y.sum() + h.sum()"),
            agreed("nodes.n7", node("AddBackward0", ["n5", "n6"], born=6, output="t6")),
            *births("S6", [21.634027]),
            agreed("tensors.t6", tensor("S6", name="loss", born=6, shape=(), grad_fn="n7")),
            takes=(Operand("t4"), Operand("t5")),
            gives=("t6",),
        ),
        call(7, "torch.Tensor.backward", span(8, "loss.backward()"), takes=(Operand("t6"),), error=raised),
    ]
    ran = [("n7", "AddBackward0", [1.0]), ("n6", "SumBackward0", [1.0]), ("n5", "SumBackward0", [1.0]), ("n4",
           "MulBackward0", [1.0] * 3), ("n3", "MulBackward0", [1.0] * 3), ("n2", "SigmoidBackward0",
           [12.0] * 3)]  # fmt: skip
    events += [backward_node(8 + i, *one) for i, one in enumerate(ran)]
    events[-1] = replace(events[-1], error=raised)
    environment = (("torch", "2.13.0"), ("python", "3.11"))
    return Trace(
        (Source("program.py", TEXT),),
        tuple(events),
        Outcome("raised", raised),
        Agreement(8, 8),
        environment=environment,
    )


def backward_node(step: int, label: str, name: str, gradient: list[float]) -> Event:
    """One node that runs in backward."""
    shape = [len(gradient)] if len(gradient) > 1 else []
    effects = (agreed(f"nodes.{label}.ran", step, "modelled"), agreed(f"nodes.{label}.gradient", gradient, "modelled"),
               agreed(f"nodes.{label}.gradient_shape", shape, "modelled"))  # fmt: skip
    return Event(step, "node", name, span(8, "loss.backward()"), parent=7, effects=effects, by="modelled")
