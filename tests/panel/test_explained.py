"""Explain beside the live panel: what the panel knows stands in the explanation, also where the
recorded run no longer shows it.
"""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook import fix_runs
from pitfall_lab.notebook.magic import HINT
from pitfall_lab.widgets.explorer import Explorer
from tests.panel.notebook import Notebook


@pytest.fixture
def notebook(monkeypatch):
    """A notebook with the whole extension; its hints and Explorers are kept, no traceback is
    drawn, and fixes are not tried.
    """
    shown, explorers = [], []
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    monkeypatch.setattr("IPython.display.display", lambda *objects, **_: explorers.extend(objects))
    monkeypatch.setattr(fix_runs.Bench, "warm", lambda self: None)
    monkeypatch.setattr(Explorer, "try_fixes", lambda self, **_: None)
    notebook = Notebook(whole=True)
    notebook.shown, notebook.explorers = shown, explorers
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: shown.append(data))
    notebook.run("import numpy as np\nimport torch\nfrom torch import nn")
    yield notebook
    notebook.close()


def explained(notebook, text, cell, *, fails, before=""):
    """What Explain shows of a cell: its findings."""
    assert notebook.shell.run_cell(f"%%pitfall{before}\n{text}", store_history=True, cell_id=cell).success is not fails
    return notebook.explorers[-1].findings


def hints(notebook):
    return [data[HINT] for data in notebook.shown if HINT in data]


NETS = (
    "G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))\n"
    "og, od = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)"
)
GAN = [
    ("nets", NETS),
    ("fake", "fake = G(torch.ones(5, 2))\ng_loss = nn.functional.softplus(-D(fake)).mean()"),
    ("critic", "d_loss = D(fake.detach()).mean()\nod.zero_grad()\nd_loss.backward()\nod.step()"),
]
GENERATOR = "og.zero_grad()\ng_loss.backward()\nog.step()"


def test_the_failed_run_has_used_the_graph_and_the_first_reason_is_said(notebook):
    for cell, text in GAN:
        notebook.run(text, cell)
    assert not notebook.shell.run_cell(GENERATOR, store_history=True, cell_id="generator").success
    for _ in range(2):  # explained once more, too
        first, *rest = explained(notebook, GENERATOR, "generator", fails=True)
        assert first.rule == "PL104", first.message.en
        assert "changed in In [4]" in first.message.en
        assert "So it was in the run before, In [5]" in first.explanation.en
        assert [each.rule for each in rest] == ["PLE35"]
    assert [[each["count"] for each in hint["again"]["cells"]] for hint in hints(notebook)] == [[3, 4]] * 3
    [only] = explained(notebook, GENERATOR, "generator", fails=True, before=" --with 3,4")
    assert only.rule == "PL104"
    notebook.run(GAN[1][1], "fake")
    assert explained(notebook, GENERATOR, "generator", fails=False) == ()  # made anew: that failure is over


def test_a_list_that_was_not_emptied_is_named_and_its_fix_is_not_to_detach(notebook):
    notebook.run("net, kept = nn.Linear(2, 1), []", "net")
    text = (
        "for x in torch.ones(3, 2):\n    kept.append(net(x).tanh())\nloss = torch.stack(kept).mean()\nloss.backward()"
    )
    notebook.run(text, "round")
    assert not notebook.shell.run_cell(text, store_history=True, cell_id="round").success
    [finding] = explained(notebook, text, "round", fails=True)
    assert finding.rule == "PL502"
    assert "`kept.clear()`" in finding.explanation.en


def test_a_setting_and_data_of_other_cells_are_named_and_the_place_in_the_cell_stays(notebook):
    notebook.run("labels, x = np.arange(12) % 3 + 1, torch.ones(12, 2)", "data")
    notebook.run("net = nn.Linear(2, 3)", "net")
    for _ in range(2):
        notebook.run("y = torch.from_numpy(labels)\ny -= 1", "shift")
    [finding] = explained(notebook, "loss = nn.functional.cross_entropy(net(x), y)", "loss", fails=True)
    assert finding.message.en.startswith("`y -= 1` in In [5] has changed `labels` of In [2] once more")
    assert "Here: In [6]" in finding.explanation.en or "Here: Line 1" in finding.explanation.en
    assert finding.span is not None


def test_a_live_warning_stands_where_no_rule_has_found_anything(notebook):
    notebook.run("net = nn.Linear(2, 3)\nopt = torch.optim.SGD(net.parameters(), 0.1)", "net")
    text = "handle = net.register_forward_hook(lambda m, i, o: o * 2)"
    notebook.run(text, "hook")
    notebook.run(text, "hook")
    [finding] = explained(notebook, text, "hook", fails=False)
    assert (finding.rule, finding.severity, finding.span) == ("PL616", "warning", None)
    assert finding.message.en.startswith("`net` (Linear) has one forward hook twice")
    assert not explained(notebook, "torch.ones(2) + 1", "other", fails=False)
    assert "one forward hook twice" in notebook.explorers[0]._repr_mimebundle_()[0]["text/plain"]


def test_a_cell_that_does_not_fail_any_more_says_so(notebook):
    notebook.run("x, n = torch.ones(6), 4", "start")
    text = "n += 1\ny = x.view(n, -1)"
    assert not notebook.shell.run_cell(text, store_history=True, cell_id="view").success
    before = len(hints(notebook))
    explained(notebook, text, "view", fails=False)
    [hint] = hints(notebook)[before:]
    assert hint["text"]["en"].startswith(
        "pitfall_lab: this run does not fail any more: In [3] failed with “shape '[5, -1]' is invalid"
    )
    assert "Run again what makes `n`, then explain it." in hint["text"]["en"]
    notebook.run("n = 4", "n")
    before = len(hints(notebook))
    explained(notebook, text, "view", fails=True)
    assert [hint for hint in hints(notebook)[before:] if "any more" in hint["text"]["en"]] == []
