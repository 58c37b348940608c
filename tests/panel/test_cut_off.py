"""A loss that was made anew from numbers: no parameter gets a gradient, with or without an error."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

START = [
    (
        "net",
        (
            "X, Y = torch.randn(8, 4), torch.randn(8, 1)\n"
            "net = nn.Linear(4, 1)\n"
            "opt = torch.optim.SGD(net.parameters(), 0.1)"
        ),
    )
]
BACK = ("back", "opt.zero_grad()\nloss.backward()\nopt.step()")
MEAN = ("mean", "err = np.mean((pred - Y.numpy()) ** 2)")
FUNCTION = ("f", "def predict(x):\n    return net(x).tolist()")
NUMPY = ("numpy", "pred = net(X).detach().numpy()")


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ([NUMPY, MEAN, ("loss", "loss = torch.tensor(err, requires_grad=True)")], "`.detach()` in In [3]"),
        ([("out", "out = net(X)"), ("loss", "loss = torch.tensor(out.square().mean().item(), requires_grad=True)")],
        "`.item()` in In [4]"), ([FUNCTION, ("loss",
        "loss = (torch.tensor(predict(X)) - Y).square().mean()\nloss.requires_grad_()")], "`.tolist()` in In [3]"),
        ([("out", "with torch.no_grad():\n    out = net(X)"), ("loss", "loss = out.sum().requires_grad_()")],
        "`with no_grad` in In [3]"),
    ],
)  # fmt: skip
def test_a_loss_that_begins_its_own_graph(notebook, cells, where):
    warned = [notebook.run(text, cell) for cell, text in (*START, *cells)]
    [before] = warned[-1]
    assert (before["kind"], before["row"], before["level"]) == (
        "cut-off",
        "loss",
        "note",
    )  # no cell has called backward yet
    assert where in before["sentence"]["en"]
    [after] = notebook.run(BACK[1], "back")
    assert (after["level"], after["rule"]) == ("silent", "PL505")
    assert notebook.run("net.weight.grad is None", "see")  # it is true
    assert notebook.run("loss = (net(X) - Y).square().mean()", "right") == []


@pytest.mark.parametrize(
    ("cell", "loss", "said"),
    [
        (NUMPY, "torch.tensor(pred)", "`.detach()` in In [3] left the graph of `net`'s output behind"),
        (
            ("f", "@torch.no_grad()\ndef predict(x):\n    return net(x)"),
            "predict(X)", "`@no_grad` in In [3] recorded no graph of `net`'s output",
        ),
        (
            ("f", "def predict(x):\n    with torch.inference_mode():\n        return net(x)"),
            "predict(X)", "`with inference_mode` in In [3] recorded no graph of `net`'s output",
        ),
        (
            (
                "class",
                """class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)
    @torch.no_grad()
    def encode(self, x):
        return self.inner(x)
    def forward(self, x):
        return self.encode(x)
pair = Pair()""",
            ),
            "pair(X)", "`@no_grad` in In [3] recorded no graph of `pair`'s output",
        ),
    ],
)  # fmt: skip
def test_a_backward_that_fails_for_want_of_a_graph_names_the_cut(notebook, monkeypatch, cell, loss, said):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    for at, text in (*START, cell, ("loss", f"criterion = nn.MSELoss()\nloss = criterion({loss}, Y)")):
        assert notebook.run(text, at) == []
    result = notebook.shell.run_cell(BACK[1], store_history=True, cell_id="back")
    cause = notebook.panel.cause(result.error_in_exec, BACK[1])
    assert cause.sentence.en == f"{said}: this is why `loss.backward()` failed."


@pytest.mark.parametrize(
    "cells",
    [
        [("scale", "scale = torch.tensor(1.0, requires_grad=True)"), ("o", "other = torch.optim.SGD([scale], 0.1)")],
        [("shift", "shift = torch.tensor(float(X.mean()), requires_grad=True)")],
        [("see", "with torch.no_grad():\n    val = (net(X) - Y).square().mean()\nval.item()")],
        [NUMPY, ("see", "error = np.abs(pred - Y.numpy()).mean()\nprint(error)")],
        [("loss", "loss = (net(X) - Y).square().mean()\nseen = [loss.item()]"), BACK],
    ],
)
def test_what_is_learned_or_only_looked_at_is_not(notebook, cells):
    assert [notebook.run(text, cell) for cell, text in (*START, *cells)] == [[]] * (len(START) + len(cells))
