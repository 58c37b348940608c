"""Optimizers: the facade's against torch's, and torch's observed in lockstep, in every form that torch has."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from pitfall_lab.shadow import run
from pitfall_lab.verify import trace_program

VARIANTS = {
    "SGD": ("lr=0.1", "lr=0.1, momentum=0.9", "lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, maximize=True"),
    "Adam": ("lr=0.1", "lr=0.1, amsgrad=True, weight_decay=0.1, maximize=True"),
    "AdamW": ("lr=0.1", "lr=0.0", "lr=0.1, amsgrad=True"),
    "RMSprop": ("lr=0.1", "lr=0.1, momentum=0.9, centered=True, weight_decay=0.1"),
    "Adagrad": ("lr=0.1", "lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5"),
    "NAdam": ("lr=0.1", "lr=0.1, weight_decay=0.1, decoupled_weight_decay=True"),
    "RAdam": ("lr=0.1", "lr=0.1, weight_decay=0.1"),
    "Adadelta": ("lr=0.1", "lr=0.1, maximize=True"),
    "Adamax": ("lr=0.1",),
    "ASGD": ("lr=0.1", "lr=0.1, t0=0"),
    "Rprop": ("lr=0.1",),
}
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}
CASES = [
    (name, options, form)
    for name, variants in VARIANTS.items()
    for options in variants
    for form in ("", ", foreach=False", ", foreach=True", *([", fused=True"] if name in FUSED else []))
]
START = """\
import torch
w = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
b = torch.tensor([1.0, -2.0], requires_grad=True)
unused = torch.ones(2, requires_grad=True)
x = torch.tensor([[1.0, 0.5, -1.0], [0.25, 2.0, 1.0]])
opt = torch.optim.{name}([{{"params": [w, unused]}}, {{"params": [b], "lr": {rate}}}], {options})
"""
STEPS = """\
for k in range({steps}):
    opt.zero_grad(set_to_none=k < 1)
    loss = ((x @ w.t() + b) ** 2).sum()
    loss.backward()
    opt.step()
"""


def program(name: str, options: str, steps: int = 3) -> str:
    return START.format(name=name, options=options, rate=0.0 if "lr=0.0" in options else 0.05) + STEPS.format(
        steps=steps
    )


def numbers(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor.shadow.values()


def facts(names: dict[str, Any]) -> dict[str, Any]:
    """What a program left: of every parameter, its gradient and its state, the version and the numbers."""
    opt = names["opt"]
    tensors = {"w": names["w"], "b": names["b"], "unused": names["unused"], "w.grad": names["w"].grad}
    for k, state in opt.state_dict()["state"].items():
        tensors |= {
            f"{k}.{key}": value
            for key, value in state.items()
            if value is not None and not isinstance(value, float | int)
        }
    return {key: (tensor._version, tuple(tensor.shape), numbers(tensor)) for key, tensor in tensors.items()}


@pytest.mark.parametrize(("name", "options", "form"), CASES)
def test_three_steps_stand_alone_are_torchs(name: str, options: str, form: str):
    source = program(name, options + form)
    real: dict[str, Any] = {}
    exec(source, real)
    shadow, error, _ = run(source)
    assert error is None
    theirs, ours = facts(real), facts(shadow)
    assert theirs.keys() == ours.keys()
    for key, (version, shape, values) in theirs.items():
        assert ours[key][:2] == (version, shape), key
        # float32, three steps, each with a division by a small root: a few units in the sixth place
        np.testing.assert_allclose(ours[key][2], values, rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.parametrize(("name", "options", "form"), CASES)
def test_three_steps_in_lockstep_agree_and_nothing_is_mirrored(name: str, options: str, form: str):
    trace = trace_program(program(name, options + form))
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.disagreements == ()
    assert [(event.op, event.reason) for event in trace.events if event.reason] == []


BETWEEN = (
    START
    + """\
hidden = (x @ w.t()).tanh()
loss = (hidden @ w).sum() + (b * b).sum()
loss.backward(retain_graph=True)
opt.step()
loss.backward()
"""
)


@pytest.mark.parametrize("form", ["", ", foreach=False", ", foreach=True"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_between_forward_and_backward_is_named_before_torch_raises_it(name: str, form: str):
    source = BETWEEN.format(name=name, options=f"lr=0.1{form}", rate=0.1)
    trace = trace_program(source)
    assert trace.disagreements == ()
    failure = trace.outcome.failure
    assert failure is not None
    assert failure.kind == "saved-tensor-modified"
    # two changes a step for those that also decay, correct or average the parameter itself
    assert failure.found == (2 if name in ("AdamW", "NAdam") or (name == "ASGD" and "True" not in form) else 1)
    assert any(forecast.came_true is not None for forecast in trace.forecasts)
    with pytest.raises(RuntimeError) as raised:
        exec(source, {})
    assert failure.message == str(raised.value)
    _, error, _ = run(source)
    assert str(error).split(" Hint:", maxsplit=1)[0] == str(raised.value).split(" Hint:", maxsplit=1)[0]


@pytest.mark.parametrize("name", sorted(FUSED))
def test_a_fused_step_between_forward_and_backward_is_silent_and_its_harm_is_told(name: str):
    source = BETWEEN.format(name=name, options="lr=0.1, fused=True", rate=0.1)
    trace = trace_program(source)
    assert trace.outcome.kind == "finished"
    assert trace.disagreements == ()
    real: dict[str, Any] = {}
    exec(source, real)
    assert (real["w"]._version, real["b"]._version) == (0, 0)
    harms = trace.harms
    assert len(harms) == 2
    assert {line(trace, cause.changed_at[-1]) for harm in harms for cause in harm.causes} == {10}
    meant: dict[str, Any] = {}
    exec(source.replace("opt.step()\n", "").replace("x @ w", "x @ (w * 1)"), meant)
    observed = {6: ("w", real, meant), 2: ("b", real, meant)}
    for harm in harms:
        key, torchs, wanted = observed[len(harm.torch)]
        np.testing.assert_allclose(harm.torch, torchs[key].grad.reshape(-1).numpy(), rtol=1e-5)
        np.testing.assert_allclose(harm.meant, wanted[key].grad.reshape(-1).numpy(), rtol=1e-5)


def line(trace: Any, step: int) -> int:
    return trace.events[step].span.line


@pytest.mark.parametrize("name", VARIANTS)
def test_a_differentiable_step_may_not_change_a_leaf(name: str):
    source = program(name, "lr=0.1, differentiable=True")
    trace = trace_program(source)
    assert trace.disagreements == ()
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.kind == "leaf-modified"
    _, error, _ = run(source)
    assert str(error) == trace.outcome.failure.message


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_a_saved_state_can_be_loaded_and_training_goes_on_as_before(name: str):
    options = "lr=0.1, momentum=0.9" if name == "SGD" else "lr=0.1"
    again = f"opt = torch.optim.{name}([{{'params': [w, unused]}}, {{'params': [b]}}], lr=1.0)\n"
    source = (
        program(name, options)
        + f"saved = opt.state_dict()\n{again}opt.load_state_dict(saved)\n"
        + STEPS.format(steps=2)
    )
    straight = program(name, options, steps=1).replace("range(1)", "(0, 1, 2, 0, 1)")
    real: dict[str, Any] = {}
    exec(straight, real)
    shadow, error, _ = run(source)
    assert error is None
    np.testing.assert_allclose(shadow["w"].shadow.values(), real["w"].detach().numpy(), rtol=1e-5)
    trace = trace_program(source)
    assert (trace.outcome.kind, trace.disagreements) == ("finished", ())


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("torch.optim.SGD([], lr=0.1)", ValueError),
        ("torch.optim.SGD([torch.ones(1, requires_grad=True) * 1], lr=0.1)", ValueError),
        ("torch.optim.SGD([w], lr=0.1).add_param_group({'params': [w]})", ValueError),
        ("torch.optim.RMSprop([w], fused=True)", TypeError),
        ("torch.optim.Adam([w], fused=True, foreach=True)", RuntimeError),
        ("torch.optim.Adam([w], fused=True, differentiable=True)", RuntimeError),
    ],
)
def test_what_an_optimizer_refuses_is_refused_in_torchs_words(program: str, error: type[Exception]):
    source = f"import torch\nw = torch.ones(1, requires_grad=True)\n{program}\n"
    with pytest.raises(error) as raised:
        exec(source, {})
    _, ours, _ = run(source)
    assert (type(ours), str(ours)) == (error, str(raised.value))


SCHEDULED = """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.{optimizer}(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.{scheduler}
{ema}
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(4, 2)).sum().backward()
    torch.nn.utils.clip_grad_{clip}_(net.parameters(), 1.0)
    opt.step()
    scheduler.step()
    {update}
"""


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "ema"),
    [
        ("SGD", "StepLR(opt, 1)", ""),
        ("Adam", "CosineAnnealingLR(opt, 3)", "get_ema_multi_avg_fn(0.9)"),
        ("AdamW", "OneCycleLR(opt, 0.1, total_steps=4)", "get_swa_multi_avg_fn()"),
        ("RMSprop", "LambdaLR(opt, lambda k: 0.5 ** k)", ""),
    ],
)
def test_schedules_clipping_and_averages_of_weights_agree(optimizer: str, scheduler: str, ema: str):
    made = (
        f"average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.{ema})" if ema else ""
    )
    clip, update = ("value", "average.update_parameters(net)") if ema else ("norm", "")
    text = SCHEDULED.format(optimizer=optimizer, scheduler=scheduler, ema=made, clip=clip, update=update)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = trace_program(text)
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.disagreements == ()


def test_lbfgs_with_a_closure_agrees():
    trace = trace_program("""\
import torch
w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
opt = torch.optim.LBFGS([w], max_iter=4, line_search_fn="strong_wolfe")
def closure():
    opt.zero_grad()
    loss = ((w - 1) ** 2).sum() + w[0] ** 4
    loss.backward()
    return loss
opt.step(closure)
""")
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.disagreements == ()
