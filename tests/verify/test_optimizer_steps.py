"""The trace knows which tensors an optimizer held when it stepped, also where no call of torch's tells."""

from __future__ import annotations

import threading

import torch
from torch.optim import optimizer as torch_optimizer

from pitfall_lab.trace import Trace
from pitfall_lab.verify.program import trace_program

START = "import torch\nfrom torch import nn\na, b = nn.Linear(2, 2), nn.Linear(2, 1)\n"


def names(trace: Trace, held: tuple[str, ...]) -> set[str]:
    state = {e.path: e.value for event in trace.events for e in event.effects if e.path.endswith(".name")}
    return {str(state.get(f"tensors.{label}.name")) for label in held}


def test_a_step_without_any_gradient_is_told_with_what_it_holds():
    trace = trace_program(
        START + "b(a(torch.ones(1, 2)).detach()).sum().backward()\ntorch.optim.SGD(a.parameters(), lr=1.0).step()\n"
    )
    (step,) = trace.optimizer_steps
    assert (step.optimizer, step.span.line if step.span else None) == ("SGD", 5)
    assert names(trace, step.holds) == {"a.weight", "a.bias"}
    assert step.step == len(trace.events), "nothing was called in it"


def test_only_the_first_steps_of_each_optimizer_are_told():
    two = "one, two = torch.optim.Adam(a.parameters()), torch.optim.SGD(b.parameters(), lr=0.1)\n"
    trace = trace_program(START + two + "for _ in range(10):\n    one.step()\n    two.step()\n")
    assert [step.optimizer for step in trace.optimizer_steps] == ["Adam", "SGD"] * 3


def test_an_optimizer_is_known_with_its_tensors_from_the_moment_when_it_is_made():
    made = "one = torch.optim.Adam(a.parameters())\ntwo = torch.optim.SGD(\n    b.parameters(), lr=0.1)\n"
    use = "b(a(torch.ones(1, 2))).sum().backward()\none.add_param_group({'params': [c]})\nc.mul(2)\none.step()\n"
    trace = trace_program(START + "c = torch.ones(1, requires_grad=True)\n" + made + use)
    one, two = trace.optimizers
    assert (one.optimizer, one.span and one.span.line, names(trace, one.holds)) == (
        "Adam",
        5,
        {"a.weight", "a.bias", "c"},
    )
    assert (two.optimizer, two.span and two.span.line, names(trace, two.holds)) == ("SGD", 6, {"b.weight", "b.bias"})
    assert [(step.made, step.holds) for step in trace.optimizer_steps] == [(0, one.holds)]
    assert Trace.from_json(trace.to_json()).optimizers == trace.optimizers


def test_an_optimizer_that_is_gone_before_the_end_is_known_by_what_a_step_saw():
    program = (
        "def train():\n"
        "    idle = torch.optim.SGD(a.parameters(), lr=1.0)\n"
        "    other = torch.optim.SGD(b.parameters(), lr=1.0)\n"
    )
    trace = trace_program(
        START + program + "    b(a(torch.ones(1, 2))).sum().backward()\n    other.step()\ntrain()\ndel a, b\n"
    )
    idle = trace.optimizers[0]
    assert names(trace, idle.holds) == {"a.weight", "a.bias"}
    assert [step.made for step in trace.optimizer_steps] == [1]


def test_torch_is_left_as_it_was_and_other_threads_are_not_listened_to():
    before = dict(torch_optimizer._global_optimizer_pre_hooks)
    elsewhere = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)

    def step_elsewhere() -> None:
        thread = threading.Thread(target=elsewhere.step)
        thread.start()
        thread.join()

    trace = trace_program(
        "step_elsewhere()\nraise ValueError('the program ends badly')\n", namespace={"step_elsewhere": step_elsewhere}
    )
    assert trace.optimizer_steps == ()
    assert dict(torch_optimizer._global_optimizer_pre_hooks) == before


def test_a_compiled_step_is_one_graph_as_without_us():
    program = START + (
        "graphs = []\ndef backend(module, inputs):\n    graphs.append(module)\n    return module.forward\n"
        "optimizer = torch.optim.SGD(a.parameters(), lr=0.5)\na(torch.ones(1, 2)).sum().backward()\n"
        "step = torch.compile(lambda: optimizer.step(), backend=backend)\nstep()\n"
    )
    alone: dict[str, object] = {}
    exec(compile(program, "<alone>", "exec"), alone)
    torch._dynamo.reset()
    watched: dict[str, object] = {"__name__": "__main__"}
    trace = trace_program(program, namespace=watched)
    assert trace.outcome.kind == "finished"
    assert [len(found["graphs"]) for found in (alone, watched)] == [1, 1]  # type: ignore[arg-type]


def test_what_a_graph_break_leaves_to_python_is_not_compiled_by_us():
    program = START + (
        "graphs = []\n"
        "def backend(module, inputs):\n"
        "    graphs.append(module)\n"
        "    return module.forward\n"
        "def broken(x):\n"
        "    for _ in range(3):\n"
        "        torch._dynamo.graph_break()\n"
        "        x = x.exp().sin()\n"
        "    return x\n"
        "torch.compile(broken, backend=backend)(torch.ones(3))\n"
    )
    watched: dict[str, object] = {"__name__": "__main__"}
    assert trace_program(program, namespace=watched).outcome.kind == "finished"
    assert watched["graphs"] == []


def test_the_steps_travel_with_the_trace():
    trace = trace_program(START + "torch.optim.SGD(a.parameters(), lr=1.0).step()\n")
    assert Trace.from_json(trace.to_json()).optimizer_steps == trace.optimizer_steps != ()
