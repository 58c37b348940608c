"""Traces made by hand, so that rules are tested on exactly the facts a test names;
asserts what is found in programs.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import Finding, find
from pitfall_lab.rules.kit.expected_marks import met, plain
from pitfall_lab.trace import Effect, Event, Failure, Forecast, Harm, Operand, Outcome, Source, Span, StaleRead, Trace


def line(text: str, number: int, piece: str | None = None) -> Span:
    """The span of ``piece`` (or of the whole statement) on a line of ``text``."""
    row = text.split("\n")[number - 1]
    piece = row.split("  #")[0].strip() if piece is None else piece
    start = row.index(piece)
    return Span(number, start, number, start + len(piece))


def tensor(
    step: int, name: str, shape: list[int], storage: str = "S1", counter: str = "C1", **more: Any
) -> dict[str, Any]:
    """A tensor as a trace's effects describe it."""
    stride, size = [], 1
    for length in reversed(shape):
        stride.insert(0, size)
        size *= length
    return {
        "kind": "tensor",
        "name": name,
        "names": [name],
        "shape": shape,
        "stride": stride,
        "offset": 0,
        "dtype": "float32",
        "device": "cpu",
        "storage": storage,
        "counter": counter,
        "requires_grad": False,
        "is_leaf": True,
        "grad_fn": None,
        "base": None,
        "grad": None,
        "born": step,
        "alive": True,
        **more,
    }


SIGMOID = """\
import torch
x = torch.ones(3, requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
h.sum().backward()
"""


def refused(
    *, message: str = "anything at all", changed_at: tuple[int, ...] = (2,), forecast: bool = True, raised: bool = True
) -> Trace:
    """The trace of ``SIGMOID``: sigmoid saves its result at step 1, step 2 writes it, step 3 raises."""
    failure = Failure(
        "RuntimeError",
        message,
        "saved-tensor-modified",
        3,
        line(SIGMOID, 5, "h.sum().backward()"),
        "n2",
        "result",
        "t2",
        "S2",
        "C2",
        0,
        1,
        1,
        changed_at,
    )
    saved = {"name": "result", "tensor": "t2", "storage": "S2", "counter": "C2", "version": 0}
    node = {
        "name": "SigmoidBackward0",
        "next": ["n1"],
        "born": 1,
        "output": "t2",
        "saved": [saved],
        "freed": False,
        "ran": None,
        "gradient": None,
        "gradient_shape": None,
    }
    events = (
        Event(
            0,
            "call",
            "torch.ones",
            line(SIGMOID, 2, "torch.ones(3, requires_grad=True)"),
            results=("t1",),
            effects=(Effect("tensors.t1", tensor(0, "x", [3])), Effect("counters.C1", 0)),
        ),
        Event(
            1,
            "call",
            "torch.sigmoid",
            line(SIGMOID, 3, "torch.sigmoid(x)"),
            operands=(Operand("t1"),),
            results=("t2",),
            effects=(
                Effect("tensors.t2", tensor(1, "h", [3], "S2", "C2")),
                Effect("nodes.n2", node),
                Effect("counters.C2", 0),
            ),
        ),
        Event(
            2,
            "call",
            "torch.Tensor.mul_",
            line(SIGMOID, 4, "h.mul_(10)"),
            operands=(Operand("t2"),),
            results=("t2",),
            writes=("S2",),
            effects=(Effect("counters.C2", 1),),
            forecasts=(Forecast(2, failure, 3 if raised else None),) if forecast else (),
        ),
        Event(
            3,
            "call",
            "torch.Tensor.backward",
            line(SIGMOID, 5, "h.sum().backward()"),
            error=failure if raised else None,
        ),
    )
    return Trace((Source("program.py", SIGMOID),), events, Outcome("raised", failure) if raised else Outcome())


SQUARE = """\
import torch
h = torch.ones(2, requires_grad=True) * 2
y = (h ** 2).sum()
a = h.detach().numpy()
a[0] = 50
y.backward()
"""


def bypassed(torch_gradient: Any, meant: Any) -> Trace:
    """The trace of ``SQUARE``: the square saves ``h`` at step 1, NumPy writes it at step 3,
    backward at step 4 does not notice.
    """
    saved = {"name": "self", "tensor": "t1", "storage": "S1", "counter": "C1", "version": 0}
    node = {
        "name": "PowBackward0",
        "next": [],
        "born": 1,
        "output": "t2",
        "saved": [saved],
        "freed": False,
        "ran": 4,
        "gradient": None,
        "gradient_shape": None,
    }
    array = tensor(2, "a", [2], kind="array", counter=None)
    harm = Harm(4, "t1", torch_gradient, meant, (StaleRead("n1", "self", "S1", 1, (3,)),))
    events = (
        Event(
            0,
            "call",
            "torch.ones",
            line(SQUARE, 2, "torch.ones(2, requires_grad=True)"),
            results=("t1",),
            effects=(Effect("tensors.t1", tensor(0, "h", [2])),),
        ),
        Event(
            1,
            "call",
            "torch.Tensor.pow",
            line(SQUARE, 3, "h ** 2"),
            operands=(Operand("t1"),),
            results=("t2",),
            effects=(Effect("nodes.n1", node),),
        ),
        Event(
            2,
            "call",
            "torch.Tensor.numpy",
            line(SQUARE, 4, "h.detach().numpy()"),
            operands=(Operand("t1"),),
            results=("t3",),
            effects=(Effect("tensors.t3", array),),
        ),
        Event(3, "write", "numpy", line(SQUARE, 5, "a[0] = 50"), operands=(Operand("t3"),), writes=("S1",)),
        Event(4, "call", "torch.Tensor.backward", line(SQUARE, 6, "y.backward()"), harms=(harm,)),
    )
    return Trace((Source("program.py", SQUARE),), events)


def compared(left: list[int], right: list[int], op: str = "torch.nn.functional.mse_loss") -> Trace:
    """A loss of two tensors of the given shapes."""
    text = "import torch\np = model(x)\nt = data()\nloss = F.mse_loss(p, t)\n"
    events = (
        Event(
            0,
            "call",
            "torch.matmul",
            line(text, 2, "model(x)"),
            results=("t1",),
            effects=(Effect("tensors.t1", tensor(0, "p", left, "S1")),),
        ),
        Event(
            1,
            "call",
            "torch.tensor",
            line(text, 3, "data()"),
            results=("t2",),
            effects=(Effect("tensors.t2", tensor(1, "t", right, "S2", "C2")),),
        ),
        Event(
            2,
            "call",
            op,
            line(text, 4, "F.mse_loss(p, t)"),
            operands=(Operand("t1"), Operand("t2")),
            results=("t3",),
            effects=(Effect("tensors.t3", tensor(2, "loss", [], "S3", "C3")),),
        ),
    )
    return Trace((Source("program.py", text),), events)


EXAMINED: dict[str, list[Finding]] = {}


def examined(shop: Workshop, source: str) -> list[Finding]:
    """What is found in a rule's program, with the fixes that work; once for all tests.

    Asserts that the engines agree on it.
    """
    if source not in EXAMINED:
        subject = Subject(source, "program.py")
        trace = shop.trace(subject)
        assert trace.disagreements == ()
        EXAMINED[source] = tried(shop, subject, trace)
    return EXAMINED[source]


def assert_found(shop: Workshop, program: str, *, only: tuple[str, ...] = (), repaired: bool = False) -> None:
    """Assert that ``program`` ends without an error and that its marks (``# PL101 changed``) say
    exactly what is found in it.

    Notes count only if the program names their rule. ``only``: the rules whose findings are compared; all if empty.
    ``repaired``: each finding must also have a fix that, tried out, makes it disappear.
    """
    subject = Subject(plain(program), "program.py")
    trace = shop.trace(subject)
    assert trace.outcome.kind == "finished", trace.outcome.failure
    findings = [f for f in find(trace) if (f.rule in only if only else f.severity != "info" or f.rule in program)]
    assert met(findings, program) == ""
    if repaired:
        results = (tried(shop, subject, trace, [each])[0] for each in findings)
        assert [f.span.line for f in results if f.span and not any(fix.verified for fix in f.fixes)] == []


def assert_quiet(shop: Workshop, program: str) -> None:
    """Assert that ``program`` ends without an error and that nothing but notes is found in it."""
    trace = shop.trace(Subject(program, "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert [(f.rule, f.span and f.span.line, f.message.en) for f in find(trace) if f.severity != "info"] == []
