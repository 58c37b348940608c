"""Warned before it hurts: a cell has changed what a live graph has saved, and backward is not run yet."""

from __future__ import annotations

import pytest

FORWARD = (
    "x = torch.randn(4, 3, requires_grad=True)\n"
    "net = nn.Linear(3, 1)\n"
    "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
    "h = x.exp()"
)


def test_a_change_in_place_is_named_with_both_cells_and_backward_would_fail(notebook):
    assert notebook.run(FORWARD, "a") == []
    assert notebook.run("loss = net(h).sum()", "b") == []
    [warning] = notebook.run("h.add_(1)", "c")
    assert (
        warning["sentence"]["en"]
        == "`h` changed in In [4]; AddmmBackward0 still holds v0 from In [3]: `loss.backward()` will fail."
    )
    assert warning["rule"] == "PL101"
    assert warning["row"] == "h"
    assert [(cell["id"], cell["line"], cell["role"]) for cell in warning["cells"]] == [
        ("b", 1, "saved"),
        ("c", 1, "changed"),
    ]
    assert "in place (`h = h * 2`, not `h *= 2`)" in warning["fix"]["en"], "`x` is another variable of this program"
    again = warning["again"]
    assert ([each["count"] for each in again["cells"]], again["root"]) == ([3, 4], "loss")
    rows = notebook.rows()
    assert (rows["loss"]["stale"], rows["h"]["version"], rows["h"]["changed"]) == (True, [0, 1], True)
    assert rows["h"]["saved_by"] == [{"node": "AddmmBackward0", "version": 0, "cell": 3, "line": None}]
    assert "modified by an inplace operation" in notebook.fails("loss.backward()")


def test_the_warning_stays_as_long_as_it_is_true(notebook):
    notebook.run(FORWARD + "\nloss = net(h).sum()")
    assert notebook.run("h *= 2")
    [warning] = notebook.run("1 + 1")
    assert "changed in In [3]" in warning["sentence"]["en"]
    assert notebook.run("del loss, h") == []


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("h.data[0] = 7", "h"),
        ("a = h.detach().numpy()\na[0] = 7", "h"),
        ("h.data.mul_(2)", "h"),
        ("net.weight.data.zero_()", "net\x1fweight"),
    ],
)
def test_a_change_past_the_counter_is_noticed_by_the_numbers(notebook, change, row):
    notebook.run(FORWARD)
    notebook.run("loss = net(h).sum()")
    [warning] = notebook.run(change)
    assert (warning["level"], warning["kind"], warning["row"]) == ("silent", "changed-silently", row)
    assert "without a new version" in warning["sentence"]["en"]
    notebook.run("loss.backward()")  # torch does not notice


def test_a_step_between_forward_and_backward(notebook):
    notebook.run(FORWARD + "\nnet(h).sum().backward()\nh = x.exp()")
    notebook.run("loss = net(h).sum()")
    [warning] = notebook.run("opt.step()")
    assert (warning["rule"], warning["row"]) == ("PL104", "net\x1fweight")
    assert "modified by an inplace operation" in notebook.fails("loss.backward()")


@pytest.mark.parametrize(
    "cells",
    [
        ["loss = net(h).sum()", "loss.backward()", "opt.step()"],
        ["loss = net(h).sum()", "loss.backward(retain_graph=True)", "opt.step()"],
        ["out = net(h)", "net(x).sum().backward(); opt.step()"],
        ["h = x + 1\nloss = (h * 2).sum()", "h.add_(1)", "loss.backward()"],
        ["loss = net(h).sum()", "h = h + 1", "loss.backward()"],
        ["loss = net(h).sum()", "h.clone().add_(1)", "loss.backward()"],
        ["loss = net(h).sum()", "h[0].detach().numpy().sum()", "loss.backward()"],
    ],
)
def test_what_torch_takes_is_not_warned_of(notebook, cells):
    notebook.run(FORWARD)
    assert [notebook.run(cell) for cell in cells] == [[]] * len(cells)


def test_numbers_of_shared_memory_mean_the_same_above_and_below(notebook):
    notebook.run(
        "import torch\na = torch.ones(4)\nb = a[:2]\nu = torch.ones(3)\nparts = [u, u.view(3, 1), a.view(2, 2)]"
    )
    rows = notebook.rows()
    [answer] = notebook.page.ask("unfold", id="parts")
    below = [row["storage"] for row in answer["rows"]]
    assert rows["a"]["storage"] == rows["b"]["storage"] == below[2]
    assert below[0] == below[1] != below[2]


def test_a_loss_beside_one_whose_backward_has_been_run(notebook):
    """The change of the step does no harm to the loss that has been run with
    ``retain_graph``, and breaks the other one.
    """
    notebook.run(
        "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))\n"
        "opt = torch.optim.SGD(net.parameters(), 0.1)",
        "net",
    )
    notebook.run(
        "out = net(torch.ones(2, 3, requires_grad=True))\nfirst, second = out.square().mean(), -out.mean()", "f"
    )
    [warning] = notebook.run("first.backward(retain_graph=True)\nopt.step()", "step")
    assert (warning["rule"], warning["id"].split(":")[1]) == ("PL104", "second")
    assert "modified by an inplace operation" in notebook.fails("second.backward()")


COLLECTED = """torch.manual_seed(0)
X, Y = torch.randn(60, 4), torch.randn(60, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
def of(i):
    return (net(X[i:i + 1]) - Y[i:i + 1]).square().mean()
def train(n=3):
    for _ in range(n):
        opt.zero_grad()
        (net(X[:20]) - Y[:20]).square().mean().backward()
        opt.step()"""


@pytest.mark.parametrize(
    ("made", "name", "entry"),
    [
        ("cases = [of(i) for i in range(40)]", "cases", "cases[23]"),
        ("cases = tuple(of(i) for i in range(3))", "cases", "cases[1]"),
        ("cases = {f'case {i}': of(i) for i in range(30)}", "cases", "cases['case 12']"),
        ("found = {'losses': [of(i) for i in range(12)], 'n': 12}", "found['losses']", "found['losses'][7]"),
    ],
)
def test_losses_that_are_kept_in_a_list_get_one_warning(notebook, made, name, entry):
    assert [notebook.run(text) for text in (COLLECTED, "train()", made)] == [[]] * 3
    [warning] = notebook.run("train()")
    assert (warning["kind"], warning["rule"]) == ("changed-after-saving", "PL104")
    assert warning["row"].split("\x1f")[0] == name.partition("[")[0]
    assert warning["sentence"]["en"].startswith("`net.2.weight` changed")
    assert (
        f"still holds v4 from In [4]: a backward through an entry of `{name}` will fail." in warning["sentence"]["en"]
    )
    assert f"compute `{name}` again" in warning["fix"]["en"]
    assert name not in notebook.rows() or notebook.rows()[name]["stale"]
    assert "modified by an inplace operation" in notebook.fails(f"{entry}.backward()")
    assert [each["kind"] for each in notebook.run("1 + 1")] == ["changed-after-saving"]
    assert notebook.run(made) == []


@pytest.mark.parametrize(
    "cells",
    [
        ["log = []\nfor i in range(5):\n    train(1)\n    log.append(of(i))", "print(log[0].item())", "train()"],
        ["log = []", *["train()\nlog.append(of(0))"] * 3, "train()\nprint([each.item() for each in log])"],
        ["cases = [of(i).item() for i in range(40)]", "train()"],
        ["cases = [of(i) for i in range(12)]", "sum(cases).backward()\nopt.step()\nopt.zero_grad()", "train()"],
        ["with torch.no_grad():\n    cases = [of(i) for i in range(12)]", "train()"],
    ],
)
def test_losses_that_are_kept_to_be_printed_are_right(notebook, cells):
    warned = [notebook.run(text) for text in (COLLECTED, *cells)]
    assert [each for some in warned for each in some if each["kind"] == "changed-after-saving"] == []
