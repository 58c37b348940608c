"""Graphs that grow from run to run, and sums that keep used graphs."""

from __future__ import annotations

import pytest

START = "net, rnn = nn.Linear(3, 1), nn.RNNCell(3, 3)\nX = torch.randn(5, 3)\ntotal, h = 0, torch.zeros(5, 3)"


@pytest.mark.parametrize(
    ("text", "name"), [("loss = net(X).sum()\ntotal = total + loss", "total"), ("h = rnn(X, h)", "h"), ("total += net(X).mean()", "total")]
)
def test_the_third_run_of_a_cell_that_carries_its_graph_on_is_said(notebook, text, name):
    notebook.run(START, "start")
    assert notebook.run(text, "loop") == []
    assert notebook.run(text, "loop") == []
    [warning] = notebook.run(text, "loop")
    assert (warning["row"], warning["kind"], warning["level"]) == (name, "graph-grows", "note")
    assert "goes back through 3 runs of this cell (In [3] to In [5])" in warning["sentence"]["en"]
    assert notebook.run(f"{name} = {name}.detach()", "cut") == []
    assert notebook.run(text, "loop") == []


def test_a_sum_of_losses_whose_backward_has_been_run(notebook):
    notebook.run(START, "start")
    loop = "for _ in range(6):\n    loss = net(X).square().mean()\n    loss.backward()\n    total += loss"
    [warning] = notebook.run(loop, "loop")
    assert warning["row"] == "total"
    assert "keeps the graphs of 6 steps" in warning["sentence"]["en"]
    notebook.run("total = 0")
    assert notebook.run(loop.replace("+= loss", "+= loss.item()"), "loop") == []


def test_a_hidden_state_carried_into_the_next_step_with_its_history(notebook):
    notebook.run(START, "start")
    step = "h = rnn(X, h)\nloss = h.square().sum()"
    assert notebook.run(step, "step") == []
    assert notebook.run("loss.backward()", "back") == []
    [warning] = notebook.run(step, "step")
    assert (warning["kind"], warning["row"], warning["rule"]) == ("used-graph", "loss", "PL502")
    assert warning["sentence"]["en"].endswith("whose graph a backward has used: `loss.backward()` will fail.")
    assert "second time" in notebook.fails("loss.backward()")
    assert notebook.run("h = h.detach()\n" + step, "right") == []


def test_what_is_computed_from_a_used_loss_to_be_printed_is_no_new_graph(notebook):
    notebook.run(START, "start")
    notebook.run("loss = net(X).square().mean()\nloss.backward()\nrunning = 0", "a")
    assert notebook.run("percent = 100 * loss\nrunning = running + loss", "b") == []
    assert notebook.run("loss = net(X).square().mean()\nrunning = running + loss\nloss.backward()", "c") == []
