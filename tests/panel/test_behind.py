"""Forward in one cell and backward in another: the cells in which a failure began are offered, and
recorded with the one that failed.
"""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook import fix_runs
from pitfall_lab.notebook.magic import HINT
from pitfall_lab.panel.cells_behind import behind
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.side_effects import side_effects
from pitfall_lab.widgets.explorer import Explorer
from tests.panel.notebook import Notebook

NET = "net = nn.Linear(3, 2)\nopt = torch.optim.SGD(net.parameters(), 0.1)"
FORWARD = "h = net(torch.ones(4, 3)).sigmoid()\nloss = h.sum()"


@pytest.fixture
def notebook(monkeypatch):
    """A notebook with the whole extension; what it shows is kept, no traceback is drawn, and fixes are not tried."""
    shown, explorers = [], []
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    monkeypatch.setattr("IPython.display.display", lambda *objects, **_: explorers.extend(objects))
    monkeypatch.setattr(fix_runs.Bench, "warm", lambda self: None)
    monkeypatch.setattr(Explorer, "try_fixes", lambda self, **_: None)
    notebook = Notebook(whole=True)
    notebook.shown, notebook.explorers = shown, explorers
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: shown.append(data))
    notebook.run("import torch\nfrom torch import nn")
    yield notebook
    notebook.close()


def fail(notebook, text, cell):
    """The offer below a cell that fails: the numbers of the earlier cells, and what running them again changes."""
    before = len(notebook.shown)
    assert not notebook.shell.run_cell(text, store_history=True, cell_id=cell).success
    [hint] = [data[HINT] for data in notebook.shown[before:] if HINT in data]
    return (
        ([each["count"] for each in hint["again"]["cells"]], hint["again"]["effects"]["en"]) if hint["again"] else None
    )


def test_the_cells_that_matter_are_offered_and_recorded_as_one_program(notebook):
    notebook.run(NET, "net")
    notebook.run(FORWARD, "forward")
    notebook.run("other = torch.ones(3) * 2", "other")
    notebook.run("h.mul_(2)", "change")
    offered = ([3, 5], "They add to `.grad` again.")
    assert fail(notebook, "loss.backward()", "back") == offered
    # Explained alone, the cell does not contain what happened: the offer stands there too.
    assert fail(notebook, "%%pitfall\nloss.backward()", "back") == offered
    assert not notebook.shell.run_cell(
        "%%pitfall --with 3,5\nloss.backward()", store_history=True, cell_id="back"
    ).success
    [source, *_] = notebook.explorers[-1].trace.sources
    assert [(part.name, part.cell) for part in source.parts] == [
        ("In [3]", "forward"),
        ("In [5]", "change"),
        ("In [8]", "back"),
    ]
    [finding] = notebook.explorers[-1].findings
    assert finding.rule == "PL101"
    assert source.text.split("\n")[finding.span.line - 1] == "h.mul_(2)"
    assert source.part(finding.span.line).cell == "change"
    # The lines of that run are no lines of the cell that was run.
    [warning] = notebook.page.last("warnings")["warnings"]
    assert {each["line"] for each in warning["cells"]} == {None}


def test_what_the_changed_tensor_was_made_in_is_run_again_too_and_a_model_is_not(notebook):
    notebook.run(NET + "\nx = torch.ones(3, requires_grad=True)", "net")
    notebook.run("x = torch.ones(4, 3)\ny = torch.zeros(4, 2)", "data")
    notebook.run("out = net(x * 2)\nloss = (out.square() - y).sum()", "forward")
    notebook.run("opt.step()\nout.add_(1)\ny[0] = 1", "change")
    assert fail(notebook, "loss.backward()", "back") == (
        [3, 4, 5], "`opt` steps once more, which changes its parameters; they add to `.grad` again."
    )  # fmt: skip


def test_a_result_without_a_graph_leads_to_the_cell_that_cut_it(notebook):
    notebook.run(NET, "net")
    notebook.run("x = torch.ones(4, 3)", "data")
    notebook.run("out = net(x).detach()", "cut")
    notebook.run("loss = out.sum()", "loss")
    assert fail(notebook, "loss.backward()", "back")[0] == [4, 5]


def test_a_cell_that_has_all_that_it_needs_gets_no_offer(notebook):
    notebook.run(NET, "net")
    assert fail(notebook, FORWARD + "\nh.mul_(2)\nloss.backward()", "all") is None
    assert fail(notebook, "torch.ones(3) + torch.ones(4)", "other") is None


def test_a_number_that_no_cell_has_is_said_and_the_cell_runs_alone(notebook, capsys):
    for wrong in ("99", "0", "x", "-1"):
        assert notebook.shell.run_cell(f"%%pitfall --with {wrong}\nz = 1", store_history=True).success
        assert "did not watch this cell" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1", "As far as their text shows, these cells change only what they make."),
        ("opt.step()\nh += 1", "They change `h` once more; `opt` steps once more, which changes its parameters."),
        ("x = torch.randn(3)", "They draw other random numbers (`randn`)."),
        (
            "torch.manual_seed(0)\nx = torch.randn(3)",
            "As far as their text shows, these cells change only what they make.",
        ),
        ("g = open('w')", "As far as their text shows, these cells change only what they make."),
        ("torch.save(net, p)\nf = open(p, 'w')", "They write files (`save`, `open`)."),
        ("get_ipython().system('ls')", "They run commands (`system`)."),
        ("def", "What else these cells change could not be read from their text."),
    ],
)
def test_side_effects_are_read_from_the_text(text, said):
    assert side_effects(text).en == said


def test_more_cells_than_can_be_read_are_not_offered():
    ran = Ran()
    for count in range(1, 30):
        ran.add(Cell(count, str(count), f"t{count} = t{count - 1} + 1"))
    assert behind(Cell(30, "", "t29.backward()"), ran, lambda name: "tensor") is None
