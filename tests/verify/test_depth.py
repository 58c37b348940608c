"""Programs whose calls are nested as deep as Python allows: a recording ends there, with a reason,
and the program goes its way.
"""

from __future__ import annotations

from pitfall_lab.rules import find
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

NEARLY = """
import sys
import torch

def deeper(x, calls):
    return deeper(x + 1.0, calls - 1) if calls else x

def depth(calls=0):
    try:
        return depth(calls + 1)
    except RecursionError:
        return calls

x = torch.zeros(1, requires_grad=True)
y = deeper(x, depth() - 6)
y.sum().backward()
kept = x.grad.item(), sys.getrecursionlimit()
"""

ENDLESS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self(self.fc(x))

Net()(torch.ones(2, 3))
"""

BACKWARD_IN_BACKWARD = """
import torch

class Deep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx, g):
        if ctx.x >= 0:
            with torch.enable_grad():
                Deep.apply(ctx.x).sum().backward()
        return g

v = torch.tensor(57.0, requires_grad=True)
Deep.apply(v).sum().backward()
kept = v.grad.item()
"""


def _reasons(trace: Trace) -> list[str]:
    return [note.en for note in trace.notes if note.kind == "stopped"]


def test_a_recursion_that_python_allows_comes_to_its_end() -> None:
    names: dict[str, object] = {}
    trace = trace_program(NEARLY, namespace=names)
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.agreement.disagreed == 0
    grad, limit = names["kept"]
    assert grad == 1.0
    plain: dict[str, object] = {}
    exec(NEARLY, plain)
    assert plain["kept"] == (grad, limit)
    assert ["nested almost as deep as Python allows" in reason for reason in _reasons(trace)] == [True]


def test_a_recursion_without_end_is_called_that() -> None:
    trace = trace_program(ENDLESS)
    (finding,) = (f for f in find(trace) if f.rule.startswith("PLE"))
    assert finding.rule == "PLE00"
    assert finding.span is not None
    assert finding.span.line == 11
    assert "nested deeper here than Python allows" in finding.message.en


def test_a_backward_in_a_backward_in_a_backward_has_the_room_that_it_has_plain() -> None:
    names: dict[str, object] = {}

    def deeper(calls: int) -> Trace:
        return deeper(calls - 1) if calls else trace_program(BACKWARD_IN_BACKWARD, namespace=names)

    trace = deeper(250)
    assert trace.outcome.kind == "finished", trace.outcome
    assert names["kept"] == 1.0
    assert trace.agreement.disagreed == 0
    assert _reasons(trace) == []
