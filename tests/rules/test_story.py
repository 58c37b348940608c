"""The questions that finders ask a trace have the answers that the program's text gives."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules.kit.story import Story

TRAINING = """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 3)
for _ in range(2):
    opt.zero_grad()
    loss = model(x).mean()
    loss.backward()
    opt.step()
g = torch.autograd.grad(model(x).mean(), model[0].weight)
h = torch.exp(x)
"""


@pytest.fixture(scope="module")
def story(shop: Workshop) -> Story:
    return Story(shop.trace(Subject(TRAINING, "program.py")))


def lines(story: Story, steps: list[int]) -> list[int]:
    return [span.line for step in steps if (span := story.span(step)) is not None]


def test_backwards_are_the_calls_that_ran_one(story: Story) -> None:
    assert lines(story, [e.step for e in story.backwards()]) == [9, 9, 11]
    nodes = [e.op for e in story.nodes_run(story.backwards()[0])]
    assert nodes[0] == "MeanBackward0"
    assert nodes.count("AccumulateGrad") == 4


def test_a_step_of_the_optimizer_is_one_run_of_events(story: Story) -> None:
    steps = story.runs("step")
    assert [len(events) for events in steps] == [4, 4]
    assert {story.said(e.step) for events in steps for e in events} == {"step"}
    assert len({s for e in steps[0] for s in e.writes}) == 4


def test_leaves_are_what_gets_gradients_and_their_history_tells_when(story: Story) -> None:
    assert len(story.leaves) == 4
    for label in story.leaves:
        values = story.history("tensors", label, "grad")
        assert [value is None for _, value in values if value is not None] == [False, False]
        assert story.tensor(label, values[0][0]) is not None


def test_uses_are_the_calls_a_tensor_was_given_to(story: Story) -> None:
    (x,) = [label for label, record in story.tensors.items() if record.get("name") == "x"]
    assert [e.name for e in story.uses(x)] == ["linear", "linear", "linear", "exp"]


def test_behind_a_loss_are_all_nodes_down_to_the_leaves(story: Story) -> None:
    first = story.backwards()[0]
    loss = story.tensor(first.operands[0].label, first.step) or {}
    names = [(story.record("nodes", node) or {}).get("name") for node in story.behind(loss["grad_fn"])]
    assert names[0] == "MeanBackward0"
    assert names.count("AccumulateGrad") == 4


def test_calls_are_asked_for_by_their_exact_names(story: Story) -> None:
    assert [e.name for e in story.calls("exp")] == ["exp"]
    assert list(story.calls("exp_")) == []
    assert [e.step for e in story.calls("exp", "mean")] == sorted(e.step for e in story.calls("exp", "mean"))


def test_a_record_is_the_same_whether_one_asks_forward_or_backward_in_time(story: Story) -> None:
    label = next(label for label, record in story.tensors.items() if record.get("name") == "model.0.weight")
    steps = range(len(story.events))
    forward = [story.record("tensors", label, step) for step in steps]
    backward = [Story(story.trace).record("tensors", label, step) for step in reversed(steps)]
    assert forward == backward[::-1]
    assert forward[-1] == story.record("tensors", label) == story.tensors[label]
    assert len({str(record) for record in forward}) > 2
