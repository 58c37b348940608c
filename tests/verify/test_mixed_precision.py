"""Mixed precision in lockstep: autocast is mirrored with its reason, the gradient scaler is
modelled; nothing disagrees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pitfall_lab.verify import trace_program

START = """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
x = torch.ones(2, 3)
"""
AUTOCAST = """\
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).float().pow(2).mean()
    loss.backward()
    opt.step()
"""
SCALER = """\
opt = torch.optim.Adam(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
for k in range(4):
    opt.zero_grad()
    loss = net(x).pow(2).mean() * (float("inf") if k == 1 else 1)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
scale = scaler.get_scale()
"""


def weights(source: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names, [p.detach().numpy() for p in names["net"].parameters()]


FUSED = SCALER.replace("unscale_(opt)", "get_scale()").replace("lr=0.1)", "lr=0.1, fused=True)")


@pytest.mark.parametrize("body", [AUTOCAST, SCALER, FUSED])
def test_training_in_mixed_precision_is_the_same_observed_and_no_engine_disagrees(body: str):
    _, alone = weights(START + body)
    names: dict[str, Any] = {}
    trace = trace_program(START + body, namespace=names)
    assert trace.outcome.kind == "finished", trace.outcome
    assert (trace.disagreements, trace.notes) == ((), ())
    for one, other in zip(names["net"].parameters(), alone, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other)


def test_calls_under_autocast_say_so_and_the_others_are_modelled():
    trace = trace_program(START + AUTOCAST)
    reasons = {event.reason for event in trace.events if event.reason}
    assert reasons == {"autocast decides the dtypes of the operands"}
    assert all(event.scope == () or event.reason == "" or "linear" in event.op or event.span for event in trace.events)


def test_the_gradient_scaler_is_modelled_also_when_gradients_overflow():
    names: dict[str, Any] = {}
    trace = trace_program(START + SCALER, namespace=names)
    assert [(event.op, event.reason) for event in trace.events if event.reason] == []
    assert names["scale"] == 8.0  # halved by the overflow, doubled after two good steps
