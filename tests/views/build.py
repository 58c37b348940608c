"""Traces made by hand, so that the pictures are tested without torch and without the recorder.

``Program`` writes the events that the recorder would: storages, counters, tensors and nodes by birth, one line of
source per call.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.trace import Effect, Event, Failure, Forecast, Harm, Operand, Outcome, Source, Span, StaleRead, Trace


class Program:
    """A program that grows line by line; each method appends one line of source and its event."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[Event] = []
        self.tensors: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.numbers = {"t": 0, "S": 0, "C": 0, "n": 0}
        self.failure: Failure | None = None

    def label(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{self.numbers[kind]}"

    @property
    def step(self) -> int:
        return len(self.events)

    def event(self, code: str, op: str, *, prefix: str = "", line: int | None = None, **more: Any) -> Event:
        if line is None:
            self.lines.append(prefix + code)
            line = len(self.lines)
        span = Span(line, len(prefix), line, len(prefix) + len(code), (len(prefix), len(prefix) + len(code)))
        event = Event(self.step, more.pop("kind", "call"), op, span, **more)
        self.events.append(event)
        return event

    def tensor(
        self,
        name: str | None,
        shape: list[int],
        *,
        storage: str | None = None,
        counter: str | None = None,
        cells: Any = None,
        stride: list[int] | None = None,
        offset: int = 0,
        code: str = "",
        op: str = "torch.tensor",
        operands: tuple[str, ...] = (),
        node: str | None = None,
        saved: tuple[Any, ...] = (),
        grad: bool = False,
        kind: str = "tensor",
        base: str | None = None,
        line: int | None = None,
    ) -> str:
        """One call that makes a tensor: on a new storage, or over ``storage`` (with its ``counter``, a
        new one, or none for an array).
        """
        label, effects = self.label("t"), []
        if stride is None:
            stride = [1] * len(shape)
            for d in range(len(shape) - 2, -1, -1):
                stride[d] = stride[d + 1] * max(shape[d + 1], 1)
        fn = self.label("n") if node else None
        if storage is None:
            storage = self.label("S")
            size = 1
            for n in shape:
                size *= n
            effects.append(
                Effect(
                    f"storages.{storage}",
                    {"size": size, "dtype": "float32", "nbytes": 4 * size, "cells": cells, "alive": True},
                    "agreed",
                )
            )
            counter = None if kind == "array" else "new"
        if counter == "new":
            counter = self.label("C")
            self.versions[counter] = 0
            effects.append(Effect(f"counters.{counter}", 0, "agreed"))
        if fn:
            nexts = [
                self.tensors[o]["grad_fn"] or self.accumulate(o, effects) if self.tensors[o]["requires_grad"] else None
                for o in operands
            ]
            slots = [
                {
                    "name": n,
                    "tensor": t,
                    "storage": self.tensors[t]["storage"],
                    "counter": self.tensors[t]["counter"],
                    "version": self.versions[self.tensors[t]["counter"]],
                }
                for n, t in saved
                if t != "self"
            ]
            slots += [
                {"name": n, "tensor": label, "storage": storage, "counter": counter, "version": 0}
                for n, t in saved
                if t == "self"
            ]
            effects.append(
                Effect(
                    f"nodes.{fn}",
                    {
                        "name": node,
                        "next": nexts,
                        "born": self.step,
                        "output": label,
                        "saved": slots,
                        "freed": False,
                        "ran": None,
                        "gradient": None,
                        "gradient_shape": None,
                    },
                    "agreed",
                )
            )
        record = {
            "kind": kind,
            "name": name,
            "names": [name] if name else [],
            "shape": shape,
            "stride": stride,
            "offset": offset,
            "dtype": "float32",
            "device": "cpu",
            "storage": storage,
            "counter": counter,
            "requires_grad": grad or fn is not None,
            "is_leaf": fn is None,
            "grad_fn": fn,
            "base": base,
            "grad": None,
            "born": self.step,
            "alive": True,
        }
        self.tensors[label] = record
        effects.append(Effect(f"tensors.{label}", record, "agreed"))
        self.event(
            code or f"torch.tensor({shape})",
            op,
            prefix=f"{name} = " if name else "",
            line=line,
            operands=tuple(Operand(o) for o in operands),
            results=(label,),
            effects=tuple(effects),
            by="agreed",
        )
        return label

    def accumulate(self, leaf: str, effects: list[Effect]) -> str:
        for known, owner in getattr(self, "leaves", {}).items():
            if owner == leaf:
                return str(known)
        node = self.label("n")
        self.leaves = {**getattr(self, "leaves", {}), node: leaf}
        effects.append(
            Effect(
                f"nodes.{node}",
                {
                    "name": "AccumulateGrad",
                    "next": [],
                    "born": self.step,
                    "output": leaf,
                    "saved": [],
                    "freed": False,
                    "ran": None,
                    "gradient": None,
                    "gradient_shape": None,
                },
                "agreed",
            )
        )
        return node

    def write(
        self,
        label: str,
        code: str,
        cells: Any,
        *,
        op: str = "torch.Tensor.mul_",
        bump: bool = True,
        kind: str = "call",
        forecast: Failure | None = None,
        line: int | None = None,
    ) -> int:
        record, effects = self.tensors[label], []
        effects.append(Effect(f"storages.{record['storage']}.cells", cells, "agreed"))
        if bump and record["counter"]:
            self.versions[record["counter"]] += 1
            effects.append(Effect(f"counters.{record['counter']}", self.versions[record["counter"]], "agreed"))
        forecasts = (Forecast(self.step, forecast, None),) if forecast else ()
        self.event(
            code,
            op,
            kind=kind,
            line=line,
            operands=(Operand(label),),
            results=(label,) if kind == "call" else (),
            writes=(record["storage"],),
            effects=tuple(effects),
            forecasts=forecasts,
        )
        return self.step - 1

    def node(
        self,
        label: str,
        name: str,
        shape: list[int],
        parent: int,
        *,
        error: Failure | None = None,
        harms: tuple[Harm, ...] = (),
    ) -> None:
        effects = (
            Effect(f"nodes.{label}.ran", self.step, "modelled"),
            Effect(f"nodes.{label}.gradient_shape", shape, "modelled"),
            Effect(f"nodes.{label}.gradient", [1.0], "modelled"),
        )
        self.events.append(
            Event(
                self.step,
                "node",
                name,
                self.events[parent].span,
                parent=parent,
                effects=effects,
                by="modelled",
                error=error,
                harms=harms,
            )
        )

    def trace(self) -> Trace:
        outcome = Outcome("raised", self.failure) if self.failure else Outcome()
        return Trace(
            (Source("program.py", "\n".join(self.lines) + "\n"),),
            tuple(self.events),
            outcome,
            environment=(("torch", "2.13.0"),),
        )


def overwritten() -> Trace:
    """The program of the whole project: sigmoid saves h, h.mul_ writes it, backward raises."""
    p = Program()
    x = p.tensor("x", [3], cells=[1.0, -2.0, 3.0], grad=True)
    h = p.tensor(
        "h",
        [3],
        cells=[0.731, 0.119, 0.952],
        code="torch.sigmoid(x)",
        op="torch.sigmoid",
        operands=(x,),
        node="SigmoidBackward0",
        saved=(("result", "self"),),
    )
    failure = Failure(
        "RuntimeError",
        "one of the variables needed for gradient computation has been modified by an inplace operation",
        "saved-tensor-modified",
        None,
        None,
        "n1",
        "result",
        h,
        "S2",
        "C2",
        0,
        1,
        1,
        (2,),
    )
    p.write(h, "h.mul_(10)", [7.31, 1.19, 9.52], forecast=failure)
    loss = p.tensor("loss", [], cells=[18.0], code="h.sum()", op="torch.Tensor.sum", operands=(h,), node="SumBackward0")
    raised = Failure(
        **{**{f: getattr(failure, f) for f in failure.__slots__}, "step": p.step, "span": Span(5, 0, 5, 15, (0, 15))}
    )
    p.event("loss.backward()", "torch.Tensor.backward", operands=(Operand(loss),), error=raised)
    p.node("n3", "SumBackward0", [], 4)
    p.node("n1", "SigmoidBackward0", [3], 4, error=raised)
    p.failure = raised
    return p.trace()


def views() -> Trace:
    """A base, a column of it, a transpose, an expand, and `.data` with its own counter."""
    p = Program()
    m = p.tensor("m", [2, 3], cells=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], code="torch.arange(6.).view(2, 3)")
    column = p.tensor(
        "column",
        [2],
        storage="S1",
        counter="C1",
        stride=[3],
        offset=1,
        code="m[:, 1]",
        op="torch.Tensor.__getitem__",
        operands=(m,),
        base=m,
    )
    p.tensor(
        "turned",
        [3, 2],
        storage="S1",
        counter="C1",
        stride=[1, 3],
        code="m.T",
        op="torch.Tensor.T.__get__",
        operands=(m,),
        base=m,
    )
    p.tensor(
        "wide",
        [2, 2],
        storage="S1",
        counter="C1",
        stride=[3, 0],
        offset=1,
        code="column.unsqueeze(1).expand(2, 2)",
        op="torch.Tensor.expand",
        operands=(column,),
        base=m,
    )
    data = p.tensor(
        "raw", [2, 3], storage="S1", counter="new", code="m.data", op="torch.Tensor.data.__get__", operands=(m,)
    )
    p.write(column, "column.add_(10)", [0.0, 11.0, 2.0, 3.0, 14.0, 5.0], op="torch.Tensor.add_")
    p.write(data, "raw[0, 0] = 7", [7.0, 11.0, 2.0, 3.0, 14.0, 5.0], op="torch.Tensor.__setitem__")
    return p.trace()


def array() -> Trace:
    """NumPy writes memory that a node saved: no counter moves, and the gradient is wrong without an error."""
    p = Program()
    a = p.tensor("a", [3], cells=[1.0, 2.0, 3.0], code="np.array([1., 2., 3.])", kind="array")
    w = p.tensor("w", [3], cells=[1.0, 1.0, 1.0], grad=True)
    t = p.tensor(
        "t", [3], storage="S1", counter="new", code="torch.from_numpy(a)", op="torch.from_numpy", operands=(a,)
    )
    y = p.tensor(
        "y",
        [3],
        cells=[1.0, 2.0, 3.0],
        code="w * t",
        op="torch.Tensor.mul",
        operands=(w, t),
        node="MulBackward0",
        saved=(("other", t),),
    )
    changed = p.write(a, "a[0] = 100", [100.0, 2.0, 3.0], op="numpy", bump=False, kind="write")
    loss = p.tensor("loss", [], cells=[6.0], code="y.sum()", op="torch.Tensor.sum", operands=(y,), node="SumBackward0")
    p.event("loss.backward()", "torch.Tensor.backward", operands=(Operand(loss),))
    harm = Harm(8, w, [100.0, 2.0, 3.0], [1.0, 2.0, 3.0], (StaleRead("n1", "other", "S1", 3, (changed,)),))
    p.node("n3", "SumBackward0", [], 6)
    p.node("n1", "MulBackward0", [3], 6, harms=(harm,))
    return p.trace()


def broadcasting() -> Trace:
    """(3, 1) + (4,), a loss of (3,) against (3, 1), and (3,) + (4,), which does not fit."""
    p = Program()
    a = p.tensor("a", [3, 1], cells=[1.0, 2.0, 3.0], grad=True)
    b = p.tensor("b", [4], cells=[10.0, 20.0, 30.0, 40.0], grad=True)
    p.tensor(
        "c",
        [3, 4],
        cells=[float(i) for i in range(12)],
        code="a + b",
        op="torch.Tensor.add",
        operands=(a, b),
        node="AddBackward0",
    )
    t = p.tensor("target", [3], cells=[1.0, 2.0, 3.0])
    p.tensor(
        "loss",
        [],
        cells=[1.3],
        code="F.mse_loss(a, target)",
        op="torch.nn.functional.mse_loss",
        operands=(a, t),
        node="MseLossBackward0",
    )
    failure = Failure(
        "RuntimeError",
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
        "shape",
        p.step,
    )
    p.event("target + b", "torch.Tensor.add", operands=(Operand(t), Operand(b)), error=failure)
    p.failure = failure
    return p.trace()


def loop(turns: int = 60) -> Trace:
    """One weight, read and updated in place again and again by the same two lines."""
    p = Program()
    w = p.tensor("w", [2], cells=[1.0, 1.0])
    p.lines += ["for _ in range(60):", "    g = w * 0.1", "    w.sub_(g)"]
    for turn in range(turns):
        p.tensor("g", [2], cells=[0.1, 0.1], code="w * 0.1", op="torch.Tensor.mul", operands=(w,), line=3)
        p.write(w, "w.sub_(g)", [1.0 - turn / 10, 1.0], op="torch.Tensor.sub_", line=4)
    return p.trace()


def chain(length: int, *, wide: bool = False) -> Trace:
    """A long program: each operation reads the last result; every seventh joins an older one when ``wide``."""
    p = Program()
    last = older = p.tensor("x", [2], cells=[1.0, 2.0], grad=True)
    for i in range(length):
        operands = (last, older) if wide and i % 7 == 6 else (last,)
        last = p.tensor(
            None,
            [2],
            cells=[float(i), 0.5],
            code=f"f{i}(x)",
            op="torch.Tensor.mul",
            operands=operands,
            node="MulBackward0",
            saved=(("self", last),),
        )
        if i % 7 == 3:
            older = last
    return p.trace()


HOSTILE = "</text></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'`${1}]]>&amp;\x00\x1b[31m\u202e张量🔥"


def hostile() -> Trace:
    """Every text that a program or a file can bring is an attack: names, code, messages, operations, labels."""
    p = Program()
    x = p.tensor(HOSTILE, [2], cells=["<b>", "nan"], grad=True, code=f'torch.tensor("{HOSTILE}")')
    y = p.tensor(
        HOSTILE,
        [2, 1],
        cells=["inf", "1+2j"],
        code=HOSTILE,
        op=HOSTILE,
        operands=(x,),
        node=HOSTILE,
        saved=((HOSTILE, x),),
    )
    p.tensor("c", [2, 2], cells=[1.0] * 4, code="a+b", op="torch.add", operands=(x, y), node="AddBackward0")
    p.failure = Failure(HOSTILE, HOSTILE, "other", p.step, Span(3, 0, 3, 4))
    p.event(HOSTILE, HOSTILE, operands=(Operand(x), Operand(text=HOSTILE)), error=p.failure)
    return p.trace()


PROGRAMS = {
    "empty": Trace,
    "overwritten": overwritten,
    "views": views,
    "array": array,
    "broadcasting": broadcasting,
    "loop": loop,
    "chain": lambda: chain(30, wide=True),
    "long": lambda: chain(120, wide=True),
    "hostile": hostile,
}
"""Every hand-made program by name; tests are parametrised over it."""
