"""``%%pitfall`` in a real IPython shell: the cell behaves as it would without it."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab import magic
from pitfall_lab.widgets.explorer import Explorer

FAILS = "h = x.sigmoid()\nh.mul_(2)\nh.sum().backward()"


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda *objects, **_: shown.extend(objects))
    monkeypatch.setattr(magic.Bench, "warm", lambda self: None)
    shell.shown = shown
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell("import torch\nx = torch.ones(3, requires_grad=True)")
    yield shell
    magic.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


def explorers(shell):
    return [o for o in shell.shown if isinstance(o, Explorer)]


def test_the_cell_runs_in_the_users_namespace_and_an_explorer_appears(shell):
    result = shell.run_cell("%%pitfall\ny = x * 2\ny")
    assert result.success
    assert result.result is shell.user_ns["y"]
    [explorer] = explorers(shell)
    assert explorer.trace.outcome.kind == "finished"


def test_an_error_is_shown_by_ipython_as_usual_and_without_our_frames(shell, capsys):
    result = shell.run_cell(f"%%pitfall\n{FAILS}")
    assert isinstance(result.error_in_exec, RuntimeError)
    printed = capsys.readouterr().out
    assert "modified by an inplace operation" in printed
    assert "recorder.py" not in printed
    assert "_pitfall_lab_run" not in printed
    [explorer] = explorers(shell)
    assert explorer.trace.outcome.failure.kind == "saved-tensor-modified"
    assert [f.rule for f in explorer.findings] == ["PL101"]


def test_a_syntax_error_is_ipythons_and_the_explorer_says_the_cell_was_not_run(shell):
    result = shell.run_cell("%%pitfall\ny = = 2")
    assert isinstance(result.error_before_exec, SyntaxError)
    [explorer] = explorers(shell)
    assert "not run" in explorer.trace.notes[0].en


def test_options_that_are_not_understood_get_one_sentence_and_the_cell_runs(shell, capsys):
    result = shell.run_cell("%%pitfall --colour red\nz = 5")
    assert result.success
    assert shell.user_ns["z"] == 5
    assert capsys.readouterr().out.startswith("pitfall_lab did not watch this cell: ")
    assert explorers(shell) == []


def test_cells_without_the_magic_are_left_alone(shell):
    shell.run_cell("y = x * 2")
    assert explorers(shell) == []


def test_magics_inside_the_cell_work(shell):
    assert shell.run_cell("%%pitfall\n%time y = x + 1").success
    assert explorers(shell)


def test_loading_twice_changes_nothing(shell):
    before = len(shell.input_transformers_cleanup)
    shell.run_line_magic("load_ext", "pitfall_lab")
    magic.load_ipython_extension(shell)
    assert len(shell.input_transformers_cleanup) == before


def test_unloading_takes_the_magic_away(shell):
    magic.unload_ipython_extension(shell)
    assert magic.without_magic not in shell.input_transformers_cleanup
    magic.load_ipython_extension(shell)


def test_a_failure_while_showing_is_one_sentence(shell, monkeypatch, capsys):
    monkeypatch.setattr(magic.Watcher, "_show", lambda *_: 1 / 0)
    assert shell.run_cell("%%pitfall\ny = x * 2").success
    assert capsys.readouterr().out.startswith("pitfall_lab could not show this cell: ZeroDivisionError")


def test_the_language_is_passed_on(shell):
    shell.run_cell("%%pitfall --language zh\ny = x * 2")
    assert explorers(shell)[0].language == "zh"


def test_a_fix_is_tried_with_what_the_cell_used_of_earlier_cells(shell):
    shell.run_cell("def act(v):\n    return torch.sigmoid(v)\nscale = 2.5")
    shell.run_cell("%%pitfall\nh = act(x) * scale\nh = h.exp()\nh.mul_(2)\nh.sum().backward()")
    [finding] = explorers(shell)[0].findings
    assert finding.fixes
    assert all(fix.verified for fix in finding.fixes)


def test_a_cell_that_cannot_be_repeated_gets_its_findings_without_fixes(shell):
    shell.run_cell("y = x * 2")  # not a leaf: it cannot be written down as source
    shell.run_cell("%%pitfall\nh = y.exp()\nh.mul_(2)\nh.sum().backward()")
    [finding] = explorers(shell)[0].findings
    assert (finding.rule, finding.fixes) == ("PL101", ())
