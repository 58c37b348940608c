"""A trace means the same in the browser as in Python: the state after every step is equal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pitfall_lab.trace import Effect, Event, Trace, replay
from tests.frontend.sample import sample
from tests.frontend.stage import Stage, state_of


def long_trace(count: int = 700) -> Trace:
    """Many small effects on few places, so that checkpoints and shared parts are exercised."""
    events = []
    for step in range(count):
        label = f"t{step % 7}"
        effects = [
            Effect(f"counters.C{step % 5}", step),
            Effect(f"tensors.{label}", {"name": f"v{step}", "names": [], "alive": True}),
        ]
        effects.append(Effect(f"tensors.{label}.deep.er", step))
        if step % 11 == 0:
            effects.append(Effect(f"storages.S{step % 3}", None))
        if step % 13 == 0:
            effects.append(Effect("mode.grad", step % 2 == 0))
        events.append(Event(step, "call", "torch.op", effects=tuple(effects)))
    return Trace(events=tuple(events))


def compare(stage: Stage, trace: Trace, steps: list[int]) -> None:
    stage.show(state_of(sample()))
    shown: list[Any] = stage.page.evaluate(
        "([text, steps]) => window.module.walk(text, steps)", [trace.to_json(), steps]
    )
    for step, state in zip(steps, shown, strict=True):
        assert state == json.loads(json.dumps(replay(trace, step))), step


def test_every_step_of_the_sample(stage: Stage):
    trace = sample()
    compare(stage, trace, list(range(-1, len(trace.events))))


@pytest.mark.parametrize("order", ["forwards", "backwards", "leaps"])
def test_one_model_walked_in_any_order(stage: Stage, order: str):
    steps = list(range(0, 700, 3))
    steps = {"forwards": steps, "backwards": steps[::-1], "leaps": [(step * 397) % 700 for step in steps]}[order]
    compare(stage, long_trace(), steps)
