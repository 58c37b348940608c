"""The two engines in lockstep: what the trace of a program says, and that both engines say it."""

from __future__ import annotations

import gc
import linecache
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pitfall_lab.trace import Failure, Trace, replay
from pitfall_lab.verify import trace_callable, trace_program
from pitfall_lab.verify.json_values import cells, equal, plain

SIGMOID = """\
import torch
x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)
y = h * 2
h.mul_(10)
(y.sum() + h.sum()).backward()
"""


def failure_of(trace: Trace) -> Failure:
    assert trace.outcome.failure is not None
    return trace.outcome.failure


def line(trace: Trace, step: int | None) -> int:
    span = trace.events[step].span if step is not None else None
    assert span is not None
    return span.line


def test_a_failing_backward_is_told_with_the_line_that_saved_and_the_line_that_changed():
    trace = trace_program(SIGMOID)
    failure = failure_of(trace)
    assert failure.kind == "saved-tensor-modified"
    assert (line(trace, failure.saved_at), [line(trace, s) for s in failure.changed_at], line(trace, failure.step)) == (
        3,
        [5],
        6,
    )
    assert (failure.saved, failure.expected, failure.found) == ("result", 0, 1)
    assert trace.disagreements == ()


def test_the_failure_is_forecast_at_the_write_with_the_text_torch_will_use():
    trace = trace_program(SIGMOID)
    [forecast] = trace.forecasts
    assert line(trace, forecast.step) == 5
    assert forecast.came_true == failure_of(trace).step
    with pytest.raises(RuntimeError) as raised:
        exec(SIGMOID, {})
    assert forecast.failure.message == str(raised.value)


def test_a_forecast_whose_backward_never_runs_does_not_come_true():
    trace = trace_program("import torch\nx = torch.ones(2, requires_grad=True)\nh = x.exp()\nh.add_(1)\n")
    assert [f.came_true for f in trace.forecasts] == [None]
    assert trace.outcome.kind == "finished"


def test_labels_count_from_birth_and_traces_are_the_same_every_time():
    assert trace_program(SIGMOID).to_json() == trace_program(SIGMOID).to_json()


def test_names_come_from_the_assignment():
    state = replay(trace_program(SIGMOID))
    assert [state["tensors"][label]["name"] for label in ("t1", "t2", "t3")] == ["x", "h", "y"]


def test_module_parameters_are_named_by_their_path():
    trace = trace_program("import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 1))\nnet(torch.ones(1, 2))\n")
    names = {t["name"] for t in replay(trace)["tensors"].values()}
    assert {"net.0.weight", "net.0.bias"} <= names


NUMPY = """\
import numpy as np
import torch
a = np.ones(3, dtype=np.float32)
t = torch.from_numpy(a)
w = torch.ones(3, requires_grad=True)
loss = (w * t).sum()
a[0] = 5
loss.backward()
"""


def test_a_numpy_write_is_found_with_its_line_and_the_harm_is_computed():
    trace = trace_program(NUMPY)
    [write] = [e for e in trace.events if e.kind == "write"]
    assert (write.op, line(trace, write.step)) == ("numpy", 7)
    [harm] = trace.harms
    assert (harm.torch, harm.meant) == ([5.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    [cause] = harm.causes
    assert (line(trace, cause.saved_at), [line(trace, s) for s in cause.changed_at]) == (6, [7])


def test_an_array_and_its_tensor_lie_on_one_storage_but_only_the_tensor_has_a_counter():
    state = replay(trace_program(NUMPY))
    array = next(t for t in state["tensors"].values() if t["kind"] == "array")
    tensor = next(t for t in state["tensors"].values() if t["name"] == "t")
    assert array["storage"] == tensor["storage"]
    assert (array["counter"], array["name"]) == (None, "a")
    assert tensor["counter"] is not None


@pytest.mark.parametrize(
    ("hook", "told"), [("lambda g: None", [([5.0, 1.0, 1.0], [1.0, 1.0, 1.0])]), ("lambda g: g * 2", [])]
)
def test_no_meant_gradient_is_told_where_a_hook_of_the_program_has_changed_one(hook: str, told: list):
    trace = trace_program(NUMPY.replace("loss.backward", f"loss.register_hook({hook})\nloss.backward"))
    assert [(harm.torch, harm.meant) for harm in trace.harms] == told
    assert trace.disagreements == ()


def test_a_write_by_torch_into_memory_that_an_array_shares_is_no_write_by_numpy(monkeypatch):
    monkeypatch.setitem(
        linecache.cache, "<string>", (4, None, ["pass\n"], "<string>")
    )  # as for ``python -c`` from 3.13 on
    trace = trace_program("import torch\nt = torch.tensor([0.5, 0.25])\na = t.numpy()\nt.mul_(2)\nu = t + 1\n")
    assert [(e.kind, e.name) for e in trace.events if e.writes] == [("call", "mul_")]
    assert trace.disagreements == ()


def test_memory_that_torch_does_not_own_is_watched_even_when_its_array_has_no_name():
    source = """\
import numpy as np
import torch
class Reader:
    def __init__(self):
        self.buffer = np.zeros(2, dtype=np.float32)
    def sample(self, value):
        self.buffer[...] = value
        return torch.from_numpy(self.buffer)
reader = Reader()
w = torch.ones(2, requires_grad=True)
first = (w * reader.sample(2.0)).sum()
second = (w * reader.sample(5.0)).sum()
(first + second).backward()
"""
    [harm] = trace_program(source).harms
    assert (harm.torch, harm.meant) == ([10.0, 10.0], [7.0, 7.0])
    [cause] = harm.causes
    assert [line(trace_program(source), s) for s in cause.changed_at] == [7]


def test_a_view_that_torch_refuses_to_describe_does_not_end_the_recording():
    source = """\
import torch
w = torch.zeros(3, requires_grad=True)
scores = torch.exp(w)
with torch.no_grad():
    first = scores[0]
    first.zero_()
scores[1:].sum().backward()
"""
    trace = trace_program(source)
    assert trace.notes == ()
    assert failure_of(trace).kind == "saved-tensor-modified"


def test_a_leaf_that_is_a_view_of_a_plain_tensor_is_adopted_as_a_leaf():
    trace = trace_program(
        "y = (x * 2).sum()\ny.backward()\n", namespace={"x": torch.ones(4).reshape(2, 2).requires_grad_()}
    )
    assert trace.disagreements == ()
    assert any(event.op == "AccumulateGrad" for event in trace.events)


def test_the_result_of_a_module_has_the_name_and_its_intermediate_steps_have_none():
    source = (
        "import torch\n"
        "from torch import nn\n"
        "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
        "out = net(torch.ones(1, 2))\n"
    )
    trace = trace_program(source)
    named = [
        event.results
        for event in trace.events
        for label in event.results
        if replay(trace)["tensors"][label]["name"] == "out"
    ]
    assert len(named) == 1
    assert trace.events[-1].name == "relu"


def test_a_write_through_data_is_silent_and_its_harm_is_computed():
    program = (
        "import torch\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "h = x * 2\n"
        "y = (h * h).sum()\n"
        "h.data.mul_(3)\n"
        "y.backward()\n"
    )
    trace = trace_program(program)
    [harm] = trace.harms
    assert (harm.torch, harm.meant) == ([24.0, 24.0], [8.0, 8.0])
    with_data = replay(trace)["tensors"]
    h, d = (
        with_data["t2"],
        next(t for t in with_data.values() if t["storage"] == with_data["t2"]["storage"] and t is not with_data["t2"]),
    )
    assert h["counter"] != d["counter"]


def test_backward_is_told_node_by_node_and_the_leaf_gradient_is_held_by_both_engines():
    trace = trace_program("import torch\nx = torch.ones(2, requires_grad=True)\n(x * 3).sum().backward()\n")
    assert [e.op for e in trace.events if e.kind == "node"] == ["SumBackward0", "MulBackward0", "AccumulateGrad"]
    state = replay(trace)
    grad = state["tensors"][state["tensors"]["t1"]["grad"]]
    assert state["storages"][grad["storage"]]["cells"] == [3.0, 3.0]
    [born] = [
        e for event in trace.events for e in event.effects if e.path == f"tensors.{state['tensors']['t1']['grad']}"
    ]
    assert born.by == "agreed"


def test_an_operation_without_a_model_is_mirrored_and_says_why():
    program = (
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = torch.special.bessel_j0(x.detach())\nz = y + x\n"
    )
    trace = trace_program(program + "z.sum().backward()\n")
    [event] = [e for e in trace.events if e.op.endswith("bessel_j0")]
    assert event.by == "observed"
    assert event.reason
    assert trace.agreement.mirrored >= 1
    assert trace.disagreements == ()


def test_a_custom_function_that_no_mode_sees_is_taken_over_and_its_saved_tensor_watched():
    source = """\
import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g
a = torch.ones(2, requires_grad=True)
h = a * 1
y = Square.apply(h)
s = y.sum()
h.add_(1)
s.backward()
"""
    trace = trace_program(source)
    assert trace.outcome.kind == "raised"
    assert any(f.failure.node and line(trace, f.step) == 15 for f in trace.forecasts)


def test_dead_tensors_are_told_dead_and_none_is_kept_alive_by_the_recording():
    trace = trace_program("import torch\nx = torch.ones(3)\ndel x\ny = torch.ones(2)\n")
    assert replay(trace)["tensors"]["t1"]["alive"] is False
    gc.collect()
    before = sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
    kept = trace_program(SIGMOID)
    gc.collect()
    assert (
        sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()) <= before
    )  # what earlier tests left may go meanwhile
    assert kept.events


def test_the_learners_own_exception_is_the_outcome_with_its_line():
    trace = trace_program("import torch\nx = torch.ones(2)\nraise ValueError('mine')\n")
    failure = failure_of(trace)
    assert (failure.type, failure.message, failure.kind, failure.span and failure.span.line) == (
        "ValueError",
        "mine",
        "other",
        3,
    )


def test_a_program_that_python_cannot_parse_was_not_run_and_says_so():
    trace = trace_program("import torch\nx = = 1\n")
    assert trace.events == ()
    assert failure_of(trace).type == "SyntaxError"
    assert "not run" in trace.notes[0].en


@pytest.mark.parametrize(
    "program",
    [
        "import torch\nx = torch.empty(10**9, device='meta')\ny = x + 1\n",
        "import torch\nx = torch.tensor([float('nan'), float('inf')], requires_grad=True)\n(x * 2).sum().backward()\n",
        "import torch\nx = torch.tensor([1 + 2j, 3j], requires_grad=True)\n(x * x.conj()).real.sum().backward()\n",
        "import torch\nx = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)\nx.exp().sum().backward()\n",
        "import torch\nx = torch.empty(0, 3, requires_grad=True)\nx.sum().backward()\n",
        "import torch\nx = torch.tensor(2.0, requires_grad=True)\n(x ** 3).backward()\n",
        "import torch\nx = torch.ones(2, 2).to_sparse()\ny = x + x\n",
        "import torch\nf = torch.func.grad(lambda v: (v ** 2).sum())\nf(torch.ones(3))\n",
        "import torch\nf = torch.func.vmap(lambda v: v * 2)\nf(torch.ones(3, 2))\n",
        "import torch\nq = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)\nq.dequantize()\n",
        "import torch\nwith torch.inference_mode():\n    x = torch.ones(3)\n    y = x[0]\nz = x + 1\n",
        "import torch\nn = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])\nn + 1\n",
        "import torch\n变量 = torch.ones(2)  # 🙂 中文\n结果 = 变量 * 2\n",
        (
            "import torch\nx = torch.ones(2, requires_grad=True)\nx.register_hook(lambda g: g * 100)\n"
            "(x * 2).sum().backward()\nassert x.grad[0] == 200\n"
        ),
    ],
)
def test_unusual_tensors_are_traced_without_a_disagreement_and_the_recording_goes_on_to_the_end(program: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes and deprecations of torch's
        trace = trace_program(program)
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.disagreements == ()
    assert [n for n in trace.notes if n.kind == "stopped"] == []
    assert Trace.from_json(trace.to_json()) == trace


def test_chinese_text_and_emoji_before_an_expression_do_not_shift_its_span():
    source = "import torch\n变 = '🙂'; 值 = torch.ones(2); 和 = 值 + 1\n"
    trace = trace_program(source)
    text = source.splitlines()[1]
    spans = [e.span for e in trace.events if e.span is not None]
    assert [text[s.column : s.end_column] for s in spans] == ["torch.ones(2)", "值 + 1"]
    in_utf16 = text.encode("utf-16-le")
    assert [in_utf16[2 * s.utf16[0] : 2 * s.utf16[1]].decode("utf-16-le") for s in spans] == ["torch.ones(2)", "值 + 1"]


def test_a_mode_that_the_program_leaves_on_stays_on_and_ours_goes():
    before = torch._C._len_torch_function_stack()
    try:
        trace_program("import torch\ntorch.set_default_device('meta')\n")
        assert torch.ones(1).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == before


def test_a_failure_of_ours_ends_the_recording_and_not_the_program(monkeypatch):
    from pitfall_lab.verify.lockstep import Lockstep

    monkeypatch.setattr(Lockstep, "after", lambda *_: 1 / 0)
    namespace: dict[str, object] = {}
    trace = trace_program("import torch\nx = torch.ones(2) + 1\ndone = x.tolist()\n", namespace=namespace)
    assert namespace["done"] == [2.0, 2.0]
    assert [n.kind for n in trace.notes] == ["stopped"]
    assert "division by zero" in trace.notes[0].en


def test_a_trace_ends_at_its_limit_and_says_so():
    trace = trace_program(
        "import torch\nx = torch.ones(1)\nfor _ in range(20):\n    x = x + 1\nassert x.item() == 21\n", limit=5
    )
    assert trace.outcome.kind == "finished"
    assert [event.span.line for event in trace.events] == [2, 4, 4, 4, 4, 5], (
        "the fifth line had not called torch before"
    )
    [note] = trace.notes
    assert "its limit of 5 steps" in note.en


def test_a_function_can_be_traced():
    def program():
        w = torch.ones(2, requires_grad=True)
        w += 1

    trace = trace_callable(program)
    assert failure_of(trace).kind == "leaf-modified"
    assert trace.sources[0].name == "test_lockstep.py"


def test_stopping_restores_the_trace_function_of_the_thread():
    import sys

    before = sys.gettrace()
    trace_program(NUMPY)
    assert sys.gettrace() is before


@given(st.lists(st.floats(width=32) | st.integers(-5, 5) | st.booleans(), max_size=40))
@example([0.0] * 9 + [float("nan")] + [0.0] * 9)
def test_cells_are_json_values_and_long_ones_are_abbreviated(items):
    out = cells(np.array(items, dtype=object if not items else None))
    if len(items) <= 12:
        assert len(out) == len(items)
    else:
        assert out["count"] == len(items)
        ends = {*range(6), *range(len(items) - 6, len(items))}
        nan = next((place for place, item in enumerate(items) if math.isnan(item)), 0)
        assert {place for place, _ in out["shown"]} == ends | {nan}
        assert nan == 0 or [nan, "nan"] in out["shown"]


def test_numbers_are_equal_up_to_rounding_and_not_beyond():
    one = np.array([1.0, 2.0], np.float32)
    assert equal(one, np.nextafter(one, 9, dtype=np.float32), "float32")
    assert not equal(one, one * np.float32(1.001), "float32")
    assert not equal(np.array([1, 2]), np.array([1, 3]), "int64")
    assert plain(float("nan")) == "nan"


def test_of_a_large_wrong_gradient_the_cells_that_differ_are_shown():
    source = """\
import torch
w = torch.ones(100, requires_grad=True)
x = torch.ones(100)
loss = (w * x).sum()
x.data[50] = 7.0
loss.backward()
"""
    [harm] = trace_program(source).harms
    assert [50, 7.0] in harm.torch["shown"]
    assert [50, 1.0] in harm.meant["shown"]


def test_batch_norm_in_training_is_no_silent_harm():
    source = """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
net(torch.randn(4, 3)).sum().backward()
"""
    trace = trace_program(source)
    assert trace.harms == ()
    assert trace.disagreements == ()


def test_a_call_that_failed_leaves_no_tensor_behind_for_the_cyclic_collector():
    source = """\
import gc, weakref, torch
gc.disable()
w = torch.ones(2, requires_grad=True)
h = w.exp()
loss = h.sum()
ref = weakref.ref(loss)
h.add_(1)
try:
    loss.backward()
except RuntimeError:
    pass
del loss
dead = ref() is None
gc.enable()
"""
    namespace: dict[str, object] = {}
    trace_program(source, namespace=namespace)
    assert namespace["dead"]


def test_what_was_meant_counts_from_what_was_meant_before():
    trace = trace_program(
        "import torch\nw = torch.tensor([1.5, 2.0], requires_grad=True)\ny = w * w\nw.detach().numpy()[:1] = 2\n"
        "for _ in range(3):\n    y.sum().backward(retain_graph=True)\n"
    )
    assert [(harm.torch, harm.meant) for harm in trace.harms] == [
        ([4.0, 4.0], [3.0, 4.0]),
        ([8.0, 8.0], [6.0, 8.0]),
        ([12.0, 12.0], [9.0, 12.0]),
    ]
