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
