"""Global settings of torch that a cell has switched and left so."""

from __future__ import annotations

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

DATA = "x, y = torch.randn(8, 3), torch.randn(8, 1)\nnet = nn.Linear(3, 1)"


@pytest.fixture(autouse=True)
def _as_it_was():
    """Whatever a cell switches is set back."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("switch", "back", "words"),
    [
        ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)",
         ("In [3] set the default dtype to float64 and left it so: layers and tensors that are made from now on "
         "are float64, and `x`, ")),
        ("torch.set_default_device('meta')", "torch.set_default_device('cpu')",
        "In [3] set the default device to meta and left it so"), ("torch.set_grad_enabled(False)",
        "torch.set_grad_enabled(True)", "In [3] switched gradients off and left it so"),
        ("torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)",
        "In [3] switched anomaly detection on"), ("torch.use_deterministic_algorithms(True)",
        "torch.use_deterministic_algorithms(False)", "In [3] switched deterministic "),
    ],
)  # fmt: skip
def test_it_is_noted_until_it_is_set_back(notebook, switch, back, words):
    notebook.run(DATA, "data")
    [note] = notebook.run(switch, "switch")
    assert (note["kind"], note["level"], note["row"]) == ("left-switched", "note", None)
    assert note["sentence"]["en"].startswith(words)
    assert f"`{back}`" in note["fix"]["en"]
    assert [each["count"] for each in note["cells"]] == [3]
    assert [each["kind"] for each in notebook.run("1 + 1", "other")] == ["left-switched"]
    assert notebook.run(back, "back") == []


@pytest.mark.parametrize(
    "cells",
    [
        ["torch.set_default_dtype(torch.float64)", DATA, "net(x)"],  # at the top, for all
        ["torch.set_grad_enabled(False)", DATA, "net(x)"],
        ["torch.use_deterministic_algorithms(True)", DATA],
        [DATA, "torch.set_default_dtype(torch.float64)\nq = torch.rand(3)\ntorch.set_default_dtype(torch.float32)"],
        [
            DATA,
            "with torch.no_grad(), torch.autograd.detect_anomaly(check_nan=False), torch.device('meta'):\n    net(x)",
        ],
        [DATA, "def seed_all():\n    torch.manual_seed(0)\n    torch.use_deterministic_algorithms(True)", "seed_all()"],
        [DATA, "torch.set_default_dtype(torch.float64)\nx, y, net = x.double(), y.double(), net.double()"],
    ],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_is_set_for_all_or_set_back_is_right(notebook, cells):
    assert [notebook.run(text, str(at)) for at, text in enumerate(cells)] == [[]] * len(cells)


@pytest.mark.parametrize(
    ("cells", "fails", "words", "fix"),
    [
        (["torch.set_default_dtype(torch.float64)\nprobe = torch.randn(2, 2)", "net = nn.Linear(3, 1)"],
         "for _ in range(2):\n    loss = net(x).mean()",
         ("In [2] set the default dtype to float64 and left it so: `net` of In [3] is float64, `x` of In [1] is "
         "float32. This is why"),
         "`net` is made in In [3]."),
        (["torch.set_default_dtype(torch.float64)", "w = torch.randn(3, 1)", "def model(v):\n    return v @ w"],
        "model(x)", "In [2] set the default dtype to float64 and left it so: `w` of In [3] is float64",
        "`torch.set_default_dtype(torch.float32)`"), (["torch.set_grad_enabled(False)", "loss = net(x).mean()"],
        "loss.backward()", "In [2] switched gradients off and left it so", "`torch.set_grad_enabled(True)`"),
        (["torch.use_deterministic_algorithms(True)"],
        "raise RuntimeError('x does not have a deterministic implementation')",
        "In [2] switched deterministic algorithms on", "`torch.use_deterministic_algorithms(False)`"),
    ],
)  # fmt: skip
def test_it_is_named_where_an_error_follows_from_it(monkeypatch, cells, fails, words, fix):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook, shown = Notebook(whole=True), []
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: shown.append(data))
    try:
        for text in ("import torch\nfrom torch import nn\n" + DATA, *cells):
            notebook.run(text, text)
        assert not notebook.shell.run_cell(fails, store_history=True, cell_id="fails").success
        [hint] = [data[HINT] for data in shown if HINT in data]
        assert hint["text"]["en"].startswith(f"pitfall_lab: {words}")
        assert fix in hint["text"]["en"]
    finally:
        notebook.close()


def test_another_error_of_number_types_is_not_taken_for_it(monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook, shown = Notebook(whole=True), []
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: shown.append(data))
    try:
        notebook.run("import torch\nfrom torch import nn\ntorch.set_default_dtype(torch.float64)\n" + DATA, "data")
        notebook.run("z = x.float()", "z")  # converted by its own cell, after the switch
        assert not notebook.shell.run_cell("net(z)", store_history=True, cell_id="fails").success
        [hint] = [data[HINT] for data in shown if HINT in data]
        assert hint["text"]["en"].startswith("pitfall_lab: numbers of two types meet here, ")
    finally:
        notebook.close()
