"""Parameters that a loss reaches and no optimizer holds."""

from __future__ import annotations

import pytest

START = [
    ("data", "X, Y = torch.randn(8, 4), torch.randint(0, 3, (8,))\nfit = nn.CrossEntropyLoss()"),
    ("net", "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))"),
    ("opt", "opt = torch.optim.SGD(net.parameters(), lr=0.1)"),
]
STEP = ("step", "loss = fit(net(X), Y)")


@pytest.mark.parametrize(
    ("cells", "row", "rule"),
    [
        ([*START, START[1], STEP], "net\x1f0\x1fweight", "PL606"),
        ([*START, ("new", "net[2] = nn.Linear(8, 3)"), STEP], "net\x1f2\x1fweight", "PL606"),
        ([*START, ("new", "net.append(nn.Linear(3, 3))"), STEP], "net\x1f3\x1fweight", "PL606"),
        (
            [START[0], ("nets", "a, b = nn.Linear(4, 8), nn.Linear(8, 3)"), ("opt",
            "opt = torch.optim.Adam(a.parameters())"), ("f", "loss = fit(b(a(X)), Y)")],
            "b\x1fweight", "PL611",
        ),
        (
            [START[0], ("class", """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 3)]
    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x
net = Net()"""), START[2], STEP],
            "net\x1flayers\x1f0\x1fweight", "PL611",
        ),
    ],
)  # fmt: skip
def test_it_is_said_when_the_loss_is_there_and_before_backward(notebook, cells, row, rule):
    warned = [notebook.run(text, cell) for cell, text in cells]
    assert warned[:-1] == [[]] * (len(cells) - 1)
    [warning] = warned[-1]
    assert (warning["row"], warning["rule"], warning["level"]) == (row, rule, "silent")
    before = {name: value.clone() for name, value in notebook.shell.user_ns[row.split("\x1f")[0]].named_parameters()}
    notebook.run("opt.zero_grad(); loss.backward(); opt.step()", "rest")
    if "layers" not in row:
        name = ".".join(row.split("\x1f")[1:])
        assert notebook.shell.user_ns[row.split("\x1f")[0]].get_parameter(name).equal(before[name])  # it is true


FROZEN = [
    START[0],
    ("net", "body, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 3)\nnet = nn.Sequential(body, head)"),
    (
        "opt",
        "body.requires_grad_(False)\nopt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)",
    ),
    ("f", "def fit_all():\n    opt.zero_grad()\n    fit(net(X), Y).backward()\n    opt.step()"),
    ("one", "fit_all()"),
]


def test_parameters_that_were_frozen_when_the_optimizer_was_made(notebook):
    for cell, text in FROZEN:
        assert notebook.run(text, cell) == []
    [warning] = notebook.run("body.requires_grad_(True)\nfit_all()", "two")
    assert (warning["row"], warning["rule"], warning["level"]) == ("body\x1f0\x1fweight", "PL611", "silent")
    assert warning["sentence"]["en"].startswith("`body.0.weight` and 1 more are no longer frozen")
    assert notebook.run("opt.add_param_group({'params': body.parameters()})\nfit_all()", "add") == []


def test_it_goes_when_the_optimizer_is_made_again(notebook):
    for cell, text in (*START, START[1]):
        notebook.run(text, cell)
    assert len(notebook.run(STEP[1], "step")) == 1
    assert notebook.run(START[2][1], "opt") == []
    assert notebook.run(STEP[1], "step") == []


@pytest.mark.parametrize(("rounds", "said"), [(0, 1), (20, 0)])
def test_a_new_module_that_a_function_has_trained_is_no_stale_one(notebook, rounds, said):
    """Its optimizer is gone with the function; the one that is there belonged to another model of the same name."""
    fit_here = f"""def fit_here(made):
    own = torch.optim.SGD(made.parameters(), lr=0.1)
    for _ in range({rounds}):
        own.zero_grad()
        fit(made(X), Y).backward()
        own.step()
    return made
net = fit_here(nn.Linear(4, 3))
loss = fit(net(X), Y)"""
    for cell, text in START:
        notebook.run(text, cell)
    assert len(notebook.run(fit_here, "fit")) == said
