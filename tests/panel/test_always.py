"""``%pitfall on``: every cell that uses torch is recorded as if it began with ``%%pitfall``, until ``%pitfall off``."""

from __future__ import annotations

import pytest

from pitfall_lab.views.stored import MARK
from tests.panel.notebook import Notebook


@pytest.fixture
def shown(monkeypatch):
    """A notebook with the whole extension, and below which of its cells an Explorer stands."""
    notebook = Notebook(whole=True)
    below = []
    monkeypatch.setattr(
        notebook.shell.display_pub,
        "publish",
        lambda data, *args, **kwargs: MARK in data and below.append(notebook.shell.execution_count),
    )
    yield notebook, below
    notebook.close()


def test_every_cell_that_uses_torch_is_recorded_until_it_is_switched_off(shown, capsys):
    notebook, below = shown
    notebook.run("import torch")
    notebook.run("x = torch.ones(3)")
    assert below == []
    notebook.run("%pitfall on")
    notebook.run("y = x * 2")
    notebook.run("name = 'nothing of torch'")
    notebook.run("%%time\nz = x * 2")
    notebook.run("%%pitfall\nz = x * 2")
    assert len(below) == 2
    notebook.run("%pitfall off")
    notebook.run("y = x * 3")
    assert len(below) == 2
    assert "records every cell" in capsys.readouterr().out


def test_what_is_not_understood_changes_nothing_and_gets_one_sentence(shown, capsys):
    notebook, below = shown
    notebook.run("%pitfall maybe")
    assert "Usage: %pitfall on|off" in capsys.readouterr().out
    notebook.run("import torch\ntorch.ones(3)")
    assert below == []


def test_the_page_of_a_rule_and_help_come_without_any_command_on_the_path(shown, capsys):
    notebook, below = shown
    notebook.run("%pitfall explain PL101")
    assert capsys.readouterr().out.startswith("# PL101 saved-tensor-overwritten")
    notebook.run("%pitfall explain PL1O1")
    assert "Did you mean PL101?" in capsys.readouterr().out
    notebook.run("%%pitfall --help\n1")
    notebook.run("%pitfall --help")
    assert capsys.readouterr().out.count("runs the cell, watched") == 2
    assert below == []
