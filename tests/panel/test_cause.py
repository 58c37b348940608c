"""What had been warned of has happened: the line under the failed cell, and Explain, name the tensor and the cells as the warning did."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

FORWARD = "net = nn.Linear(3, 2)\nh = net(torch.ones(4, 3)).sigmoid()\nloss = h.sum()"
SENTENCE = "`h` changed in In [3]; SigmoidBackward0 still holds v0 from In [2]: this is why `loss.backward()` failed."


@pytest.fixture
def failing(monkeypatch):
    """A notebook with the whole extension in it; what it shows is in ``shown``, and no traceback is drawn."""
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook = Notebook(whole=True)
    notebook.shown = []
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: notebook.shown.append(data))
    notebook.run("import torch\nfrom torch import nn")
    yield notebook
    notebook.close()


def hints(notebook):
    return [data[HINT] for data in notebook.shown if HINT in data]


def fail(notebook, text):
    assert not notebook.shell.run_cell(text, store_history=True, cell_id="d").success


def test_the_hint_names_the_tensor_and_the_cells_and_the_warning_changes_its_tense(failing):
    failing.run(FORWARD, "b")
    [warning] = failing.run("h.mul_(2)", "c")
    assert not warning["failed"]
    fail(failing, "loss.backward()")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith(f"pitfall_lab: {SENTENCE} Make a new tensor")
    assert hint["rule"] == "PL101"
    [warning] = failing.page.last("warnings")["warnings"]
    assert (warning["failed"], warning["sentence"]["en"]) == (True, SENTENCE)
    # Explain: the failed cell again, recorded.
    fail(failing, "%%pitfall\nloss.backward()")
    [page] = [data["text/html"] for data in failing.shown if "text/html" in data]
    assert "SigmoidBackward0 still holds v0 from In [2]" in page.replace("<code>", "").replace("</code>", "")


def test_the_same_refusal_of_a_graph_that_the_cell_made_itself_is_not_taken_for_it(failing):
    failing.run(FORWARD, "b")
    assert failing.run("h.mul_(2)", "c")
    fail(failing, FORWARD + "\nh.mul_(2)\nloss.backward()")
    assert "still holds" not in hints(failing)[0]["text"]["en"]


def test_a_used_graph_that_was_warned_of(failing):
    failing.run("net = nn.Linear(3, 1)\nh = torch.zeros(1)", "a")
    failing.run("h = net(torch.ones(3)).tanh() + h\nloss = (h * h).sum()", "b")
    failing.run("loss.backward()", "c")
    [warning] = failing.run("h = net(torch.ones(3)).tanh() * h\nloss = (h * h).sum()", "b")
    assert warning["kind"] == "used-graph"
    fail(failing, "loss.backward()")
    assert "whose graph a backward has used: this is why `loss.backward()` failed" in hints(failing)[0]["text"]["en"]
