"""Graphs that grow from run to run, and sums that keep used graphs."""

from __future__ import annotations

import textwrap

import pytest
from IPython.core.interactiveshell import InteractiveShell

START = "net, rnn = nn.Linear(3, 1), nn.RNNCell(3, 3)\nX = torch.randn(5, 3)\ntotal, h = 0, torch.zeros(5, 3)"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("loss = net(X).sum()\ntotal = total + loss", "total"),
        ("h = rnn(X, h)", "h"),
        ("total += net(X).mean()", "total"),
    ],
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


RNN = "rnn, head = nn.GRUCell(3, 3), nn.Linear(3, 1)\nX, h = torch.randn(5, 3), torch.zeros(5, 3)"
STEP = "h = rnn(X, h)\nloss = head(h).square().mean()"


def test_the_name_that_carries_a_graph_is_the_one_that_is_said(notebook):
    notebook.run(RNN, "start")
    assert notebook.run(STEP, "step") == notebook.run(STEP, "step") == []
    [warning] = notebook.run(STEP, "step")  # and not once more for the loss
    assert (warning["row"], warning["kind"]) == ("h", "graph-grows")
    assert "h = " not in warning["sentence"]["en"]


def test_a_step_in_one_cell_is_noted_before_it_is_run_again_and_named_when_it_fails(notebook, monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(RNN, "start")
    [note] = notebook.run(STEP + "\nloss.backward()", "step")
    assert (note["kind"], note["row"], note["level"]) == ("used-again", "h", "note")
    assert not notebook.shell.run_cell(STEP + "\nloss.backward()", store_history=True, cell_id="step").success
    [warning] = notebook.page.last("warnings")["warnings"]
    assert (warning["kind"], warning["failed"]) == ("used-graph", True)
    assert warning["sentence"]["en"].startswith("`loss` leads through `h` into ")
    assert "`h = h.detach()`" in warning["fix"]["en"]
    assert notebook.run("h = torch.zeros(5, 3)\n" + STEP + "\nloss.backward()\nh = h.detach()", "right") == []


def test_a_step_in_a_function_is_named_when_it_fails(notebook, monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(RNN, "start")
    notebook.run("def step(h):\n    h = rnn(X, h)\n    head(h).mean().backward()\n    return h", "f")
    assert notebook.run("h = step(h)", "go") == []
    assert not notebook.shell.run_cell("h = step(h)", store_history=True, cell_id="go").success
    [warning] = notebook.page.last("warnings")["warnings"]
    assert warning["sentence"]["en"].startswith("`h` leads into ")


def test_an_output_that_is_reshaped_before_its_loss_is_no_state(notebook):
    notebook.run(RNN, "start")
    forward, back = "out = head(rnn(X, h))", "out = out.squeeze()\nloss = out.square().mean()\nloss.backward()"
    for text, cell in ((forward, "f"), (back, "b")) * 2:
        assert notebook.run(text, cell) == []


def test_what_is_computed_from_a_used_loss_to_be_printed_is_no_new_graph(notebook):
    notebook.run(START, "start")
    notebook.run("loss = net(X).square().mean()\nloss.backward()\nrunning = 0", "a")
    assert notebook.run("percent = 100 * loss\nrunning = running + loss", "b") == []
    assert notebook.run("loss = net(X).square().mean()\nrunning = running + loss\nloss.backward()", "c") == []


def test_losses_collected_with_their_graphs(notebook):
    notebook.run(START, "start")
    notebook.run("kept, numbers = [], []", "lists")
    loop = "for _ in range(6):\n    loss = net(X).square().mean()\n    loss.backward()\n    {}"
    [warning] = notebook.run(loop.format("kept.append(loss)"), "loop")
    assert (warning["row"], warning["rule"]) == ("kept", "PL511")
    assert "keeps 6 losses together with their graphs" in warning["sentence"]["en"]
    assert [each["row"] for each in notebook.run("1 + 1", "other")] == ["kept"]  # as long as it is true
    assert notebook.run("kept = [each.item() for each in kept]", "mend") == []
    assert notebook.run(loop.format("kept.append(loss.detach()); numbers.append(loss.item())"), "loop") == []


def test_two_losses_of_one_forward_share_a_graph_and_carry_nothing(notebook, monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run("body, a, b = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)\nX = torch.randn(5, 3)", "start")
    notebook.run("h = body(X).tanh()\none, two = a(h).square().mean(), b(h).square().mean()", "forward")
    assert notebook.run("one.backward()", "one") == []  # that there will be another backward, no cell has said
    assert not notebook.shell.run_cell("two.backward()", store_history=True, cell_id="two").success
    [failed] = notebook.page.last("warnings")["warnings"]
    assert (failed["row"], failed["rule"]) == ("two", "PL501")
    assert "with a result whose backward has been run" in failed["sentence"]["en"]
    assert "(a + b).backward()" in failed["fix"]["en"]
    notebook.run(
        "one, two = (lambda h: (a(h).square().mean(), b(h).square().mean()))(body(X).tanh())\n(one + two).backward()",
        "right",
    )


POLICY = (
    "policy = nn.Linear(3, 2)\n"
    "opt = torch.optim.SGD(policy.parameters(), 0.1)\n"
    "X = torch.randn(6, 3)\n"
    "def act(x):\n"
    "    chances = torch.distributions.Categorical(logits=policy(x))\n"
    "    return chances.log_prob(chances.sample())"
)
COLLECT = "for x in X:\n    kept.append(act(x))"
UPDATE = "loss = -torch.stack(kept).mean()\nopt.zero_grad()\nloss.backward()\nopt.step()"


def test_a_list_that_is_not_emptied_before_the_next_round_is_to_be_emptied(notebook, monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(POLICY, "start")
    notebook.run("kept = []", "list")
    assert notebook.run(COLLECT, "collect") == []
    assert notebook.run(UPDATE, "update") == []  # the list may end with this round
    [note] = notebook.run(COLLECT, "collect")
    assert (note["row"], note["kind"], note["level"]) == ("kept", "graph-grows", "note")
    assert "still has 6 results whose graph a backward has used (In [5])" in note["sentence"]["en"]
    assert "`kept.clear()`" in note["fix"]["en"]
    assert not notebook.shell.run_cell(UPDATE, store_history=True, cell_id="update").success
    failed = next(each for each in notebook.page.last("warnings")["warnings"] if each["kind"] == "used-graph")
    assert failed["sentence"]["en"].startswith("`loss` leads through `kept[0]` into ")
    assert "`kept.clear()`" in failed["fix"]["en"]
    assert "cut the loss off" in failed["fix"]["en"]
    notebook.run("kept.clear()", "empty")
    assert notebook.run(COLLECT, "collect") == []
    assert notebook.run(UPDATE, "update") == []


@pytest.mark.parametrize(
    ("made", "into", "name"),
    [
        ("policy.saved = []", "policy.saved.append(act(x))", "policy.saved"),
        ("runs = {'a': []}", "runs['a'] += [act(x)]", "runs['a']"),
        ("scores = {}", "scores[len(scores)] = act(x)", "scores"),
    ],
)
def test_lists_and_dicts_inside_others_too(notebook, monkeypatch, made, into, name):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(POLICY, "start")
    notebook.run(made, "list")
    values = f"list({name}.values())" if name == "scores" else name
    round_ = f"for x in X:\n    {into}\n{UPDATE.replace('kept', values)}"
    assert notebook.run(round_, "round") == []
    assert not notebook.shell.run_cell(round_, store_history=True, cell_id="round").success
    failed = next(each for each in notebook.page.last("warnings")["warnings"] if each["kind"] == "used-graph")
    assert f"`{name}.clear()`" in failed["fix"]["en"]


def test_a_list_that_one_cell_makes_and_uses_twice(notebook, monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(POLICY, "start")
    cell = "kept = []\nfor _ in range(2):\n" + textwrap.indent(f"{COLLECT}\n{UPDATE}", "    ")
    assert not notebook.shell.run_cell(cell, store_history=True, cell_id="all").success
    failed = next(each for each in notebook.page.last("warnings")["warnings"] if each["kind"] == "used-graph")
    assert "`kept.clear()`" in failed["fix"]["en"]


STATES = (
    "cells = nn.ModuleList([nn.GRUCell(3, 3), nn.GRUCell(3, 3)])\nx, states = torch.randn(2, 3), []\n"
    "for _ in cells:\n    states.append(torch.zeros(2, 3))"
)


@pytest.mark.parametrize(
    "step",
    [
        "for i, cell in enumerate(cells):\n    states[i] = cell(x, states[i])",
        "states = [cell(x, s) for cell, s in zip(cells, states)]",
    ],
)
def test_a_list_of_states_that_is_carried_on_is_to_be_detached(notebook, monkeypatch, step):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook.run(STATES, "start")
    cell = f"{step}\nloss = states[0].sum() + states[1].sum()\nloss.backward()"
    notebook.run(cell, "step")
    assert not notebook.shell.run_cell(cell, store_history=True, cell_id="step").success
    failed = next(each for each in notebook.page.last("warnings")["warnings"] if each["kind"] == "used-graph")
    assert failed["fix"]["en"].endswith("`.detach()`.")
    assert "clear" not in failed["fix"]["en"]


def test_losses_of_one_round_that_are_added_and_used_once_are_no_growth(notebook):
    notebook.run(POLICY, "start")
    notebook.run("tasks = list(X)\nouter = []", "list")
    notebook.run("for x in tasks:\n    outer.append(act(x))", "tasks")
    assert notebook.run("meta = torch.stack(outer).mean()\nopt.zero_grad()\nmeta.backward()", "meta") == []
    assert notebook.run("opt.step()\nprint(len(outer))", "step") == []
    loop = (
        "for _ in range(3):\n"
        "    {}for x in tasks:\n"
        "        outer.append(act(x))\n"
        "    torch.stack(outer).mean().backward()\n"
        "    {}"
    )
    assert notebook.run("outer = []\n" + loop.format("", "outer.clear()"), "loop") == []
    assert notebook.run(loop.format("outer = []\n    opt.zero_grad()\n    ", "opt.step()"), "other loop") == []


def test_a_list_that_takes_another_used_round_grows(notebook):
    notebook.run(POLICY, "start")
    notebook.run("history = []", "list")
    cell = "losses = [act(x) for x in X]\nsum(losses).backward()\nhistory += losses"
    assert notebook.run(cell, "round") == []
    [note] = notebook.run(cell, "round")
    assert note["row"] == "history"
    assert "keeps 12 losses together with their graphs" in note["sentence"]["en"]


def test_a_loss_whose_own_backward_has_been_run_is_left_alone(notebook):
    """Two losses of one forward, each with its backward in turn: nothing is left to do with the first one."""
    notebook.run("body, a, b = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)\nX = torch.randn(5, 3)", "start")
    forward = "h = body(X).tanh()\none, two = a(h).square().mean(), b(h).square().mean()"
    assert notebook.run(f"{forward}\none.backward(retain_graph=True)\ntwo.backward()", "both") == []
    assert notebook.run(forward, "forward") == []
    [warning] = notebook.run("one.backward()", "one")
    assert (warning["row"], warning["rule"]) == ("two", "PL501")
