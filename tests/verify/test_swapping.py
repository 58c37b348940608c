"""Tensors that swap what they are: labels and names stay with the objects, memory and history are exchanged."""

from __future__ import annotations

import weakref

import torch

from pitfall_lab.trace import Trace
from pitfall_lab.trace.replay import replay
from pitfall_lab.verify import trace_program


def named(trace: Trace, name: str) -> dict:
    """What the trace says at the end of the tensor with this name."""
    return next(tensor for tensor in replay(trace)["tensors"].values() if tensor["name"] == name)


def test_each_object_keeps_its_name_and_has_the_memory_of_the_other():
    trace = trace_program(
        "import torch\na = torch.ones(3)\nb = torch.zeros(2)\ntorch.utils.swap_tensors(a, b)\nb.mul_(3)\n"
    )
    a, b = named(trace, "a"), named(trace, "b")
    assert (a["shape"], b["shape"]) == ([2], [3])
    assert (a["storage"], b["storage"]) == ("S2", "S1")
    assert replay(trace)["storages"]["S1"]["cells"] == [3.0, 3.0, 3.0]
    swap = next(event for event in trace.events if event.op == "torch.utils.swap_tensors")
    assert (swap.span.line, [operand.label for operand in swap.operands]) == (4, ["t1", "t2"])


def test_a_weak_reference_of_the_program_s_own_is_still_in_the_way():
    source = (
        "import torch, weakref\na = torch.ones(3)\nw = weakref.ref(a)\ntorch.utils.swap_tensors(a, torch.ones(3))\n"
    )
    trace = trace_program(source)
    assert trace.outcome.failure.message == "Cannot swap t1 because it has weakref associated with it"


def test_nothing_stays_between_torch_and_its_question():
    swap, module = torch._C._swap_tensor_impl, torch.utils.weakref
    trace_program("import torch\nraise SystemExit\n")
    assert torch._C._swap_tensor_impl is swap
    assert torch.utils.weakref is module is weakref
