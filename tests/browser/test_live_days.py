"""What a day beside one's own notebooks brings: interrupts, lost connections, many cells and tensors, hostile
notebooks, another language.

Each takes a while: one of them has its turn each day. ``PITFALL_EVERYTHING=1 python -m pytest
tests/browser/test_live_days.py`` runs all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import expect

from pitfall_lab.notebook.magic import HINT
from pitfall_lab.views.stored import MARK
from tests.browser.conftest import Lab
from tests.browser.test_live import FORWARD, JUPYTERLAB_ON_A_KILLED_KERNEL, MARKUP, MODEL, alive, row, source, text
from tests.frontend.accessibility import violations
from tests.turns import todays

KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
NO_LANGUAGE_PACK = "warning: Language pack 'zh_CN' not installed!"
# JupyterLab scrolls to each cell that it runs, and some have ended before it gets there.
FAST_CELLS = "warning: Item with index "
CELLS = 500
# The panel's connection as code in the kernel finds it; what is sent over it is not what the panel sends.
FORGED = """import sys
from IPython import get_ipython
[comm] = get_ipython()._pitfall_lab._panel.beside._comms
row = {"id": "forged", "name": "<img src=x onerror=alert(3)>" * 9, "kind": "tensor", "shape": [-1, "x"], "children": "many"}
deep = {}
for _ in range(200):
    deep = {"kind": "rows", "rows": [deep]}
for data in [
    None, 7, "rows", [], {}, deep, {"version": 2, "kind": "rows", "rows": []}, {"version": 1, "kind": ["rows"]},
    {"version": 1, "kind": "rows", "rows": {"length": 10**9}, "cell": None}, {"version": 1, "kind": "warnings", "warnings": [None, 7, {}]},
    {"version": 1, "kind": "picture", "id": "t", "view": "storage", "svg": "<svg onload=alert(4)><script>alert(5)</script></svg>"},
    {"version": 1, "kind": "children", "id": "__proto__", "rows": [row]}, {"version": 1, "kind": "refused", "text": {"en": {"a": 1}}},
    {"version": 1, "kind": "rows", "rows": [row] * 50, "more": -5, "cell": {"count": 3}, "cells": [row], "note": {"en": "<b>x</b>"}},
]:
    comm.send(data)
"""  # noqa: E501
HOSTILE = f"""import torch
globals()[{MARKUP!r}] = torch.ones(3)

class Rude(torch.Tensor):
    def __getattribute__(self, name):
        raise RuntimeError("<script>alert(2)</script>")

class Endless:
    def __getattr__(self, name):
        while True:
            pass

rude, endless = torch.ones(2).as_subclass(Rude), Endless()
endless.t = torch.ones(7)
t = torch.ones(2)
"""


def run_to_the_end(lab: Lab, first: int) -> None:
    """Run all cells from this one on, and wait for the last one."""
    last = f"window.jupyterapp.shell.currentWidget.content.widgets[{CELLS + 1}].model"
    lab.page.evaluate(
        f"{last}.clearExecution(); window.jupyterapp.shell.currentWidget.content.activeCellIndex = {first}"
    )
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-below')")
    lab.page.wait_for_function(f"{last}.executionCount !== null && {KERNEL}.status === 'idle'", timeout=300_000)


def interrupted_disconnected_and_five_hundred_cells(lab: Lab) -> None:
    cells = [f"t{n} = torch.ones({n + 1})" for n in range(CELLS)]
    lab.open(
        lab.server.write(
            "many.ipynb", "import torch\nfirst = torch.ones(1)", "first.add_(1)\nwhile True:\n    pass", *cells
        )
    )
    alive(lab)
    lab.command("pitfall-lab:open-live-panel")
    lab.run_cell(0)
    expect(row(lab, "first")).to_be_visible()
    # While a cell runs the page answers: the list is searched and sorted, and a picture is refused in one sentence.
    lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    lab.page.wait_for_function(f"{KERNEL}.status === 'busy'")
    lab.page.get_by_role("columnheader", name="Shape").get_by_role("button").click()
    row(lab, "first").click()
    expect(lab.page.locator(".pl-live-details")).to_contain_text("[1] float32")
    lab.page.evaluate(f"{KERNEL}.interrupt()")
    expect(row(lab, "first").locator(".pl-live-moved")).to_have_text("v0\u2009→\u2009v1")
    lab.page.evaluate(f"{KERNEL}.reconnect()")
    alive(lab)
    run_to_the_end(lab, 2)
    # Sorted by shape the largest is first, although more rows than one page of them were made since.
    expect(lab.page.locator(".pl-live-table [data-row]").first).to_have_attribute("data-row", f"t{CELLS - 1}")
    assert lab.page.locator(".pl-live-table [data-row]").count() < 80
    assert 0 < int(lab.page.get_by_label("After which cell").get_attribute("max")) <= 50
    # Back some cells: what came later was not there.
    slider = lab.page.get_by_label("After which cell")
    slider.focus()
    for _ in range(3):
        lab.page.keyboard.press("ArrowLeft")
    expect(lab.page.locator(".pl-live-past")).to_contain_text("As it was after In [")
    expect(row(lab, f"t{CELLS - 1}")).to_have_count(0)
    # The kernel is killed in the middle and starts again by itself: what was there is gone, and the other
    # cells are followed as before.
    middle = CELLS // 2
    source(lab, middle, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    lab.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {middle}")
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    lab.page.get_by_role("dialog").get_by_role("button", name="Ok").click()
    expect(row(lab, "first")).to_have_count(0)
    alive(lab)
    source(lab, middle, "import torch")
    run_to_the_end(lab, middle)
    expect(lab.page.locator(".pl-live-table [data-row]").first).to_have_attribute("data-row", f"t{CELLS - 1}")
    expect(row(lab, "first")).to_have_count(0)
    own = (*JUPYTERLAB_ON_A_KILLED_KERNEL, FAST_CELLS)
    lab.console[:] = [line for line in lab.console if not line.startswith(own)]


def ten_thousand_tensors_are_searched_sorted_and_scrolled(lab: Lab) -> None:
    many = "import torch\nfor n in range(10_000):\n    globals()[f't{n}'] = torch.ones(n % 97 + 1)"
    lab.open(lab.server.write("ten-thousand.ipynb", f"{many}\nneedle = torch.zeros(3, 3)\nview = needle[0]"))
    alive(lab)
    lab.command("pitfall-lab:open-live-panel")
    lab.run_cell(0)
    expect(row(lab, "t0")).to_be_visible()
    search = lab.page.get_by_label("Search names, shapes, types")
    search.fill("needle")
    expect(row(lab, "needle")).to_be_visible()
    expect(lab.page.locator(".pl-live-count")).to_have_text("1 of 10002")
    # All three looks at one row.
    row(lab, "needle").click()
    details = lab.page.locator(".pl-live-details")
    expect(details.locator("dl")).to_contain_text("Shares with")
    expect(details.locator(".pl-live-sheet img")).to_be_visible()
    details.get_by_role("button", name="What keeps it").click()
    expect(details).to_contain_text("Names on this memory: needle, view.")
    details.get_by_role("button", name="Graph").click()
    expect(details.locator(".pl-live-picture")).not_to_be_empty()
    details.get_by_role("button", name="Close").click()
    search.fill("")
    # One key after the other, and the end of the list: each is drawn within a moment of the page's own time.
    table = lab.page.locator(".pl-live-table")
    table.focus()
    metrics = lab.page.context.new_cdp_session(lab.page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})  # the processor time, whatever else runs

    def worked() -> float:
        return next(
            each["value"]
            for each in metrics.send("Performance.getMetrics")["metrics"]
            if each["name"] == "TaskDuration"
        )

    before = worked()
    keys = ["End", "Home", *["ArrowDown"] * 10, "PageDown", "PageUp"]
    for key in keys:
        lab.page.keyboard.press(key)
    assert (worked() - before) / len(keys) < 0.1
    assert lab.page.locator(".pl-live-table [data-row]").count() < 80


def a_hostile_notebook_shows_text_and_nothing_else(lab: Lab) -> None:
    dialogs: list[str] = []
    lab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    million = "names = globals()\nnames |= dict.fromkeys(map('n{}'.format, range(1_000_000)), 0)\nlater = torch.ones(4)"
    lab.open(lab.server.write("hostile.ipynb", HOSTILE, FORGED, "t.add_(1)", million))
    alive(lab)
    lab.command("pitfall-lab:open-live-panel")
    lab.run_cell(0)
    expect(row(lab, MARKUP)).to_be_visible()
    expect(row(lab, "rude")).to_be_visible()
    lab.run_cell(1)
    lab.run_cell(2)
    # What was forged is gone with the next true message, and none of it was more than text.
    expect(row(lab, "t").locator(".pl-live-moved")).to_have_text("v0\u2009→\u2009v1")
    assert lab.page.locator(".pl-live script, .pl-live [onerror], .pl-live [onload]").count() == 0
    lab.run_cell(3)
    expect(row(lab, "later")).to_be_visible()
    expect(lab.page.locator(".pl-live-says")).to_contain_text("Not everything was checked")
    assert dialogs == []


def forged_outputs(lab: Lab, name: str) -> None:
    """Put outputs into the first cell of a notebook file as someone else's page could have stored them;
    the notebook is not trusted.
    """
    text = {"en": f"{MARKUP} <script>alert(6)</script>", "zh": 7}
    stored = [
        {HINT: {"version": 7, "text": text}, "text/plain": "of another version"},
        {
            HINT: {
                "version": 1,
                "text": text,
                "rule": MARKUP,
                "again": {"cells": [{"count": "2"}, {"count": 2}, None], "effects": text},
            }
        },
        {
            MARK: {"version": 99},
            "text/html": "<script>alert(7)</script><p class='stored'>kept</p>",
            "text/plain": "kept",
        },
    ]
    path = lab.server.folder / name
    notebook = nbformat.read(path, 4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", data) for data in stored]
    notebook.metadata["pitfall_lab"] = {"record": MARKUP}
    nbformat.write(notebook, path)


def an_untrusted_notebook_runs_nothing_when_it_is_opened(lab: Lab) -> None:
    dialogs: list[str] = []
    lab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    name = lab.server.write(
        "untrusted.ipynb", "ran = True", "print('ran' in globals(), get_ipython()._pitfall_lab._always)"
    )
    forged_outputs(lab, name)
    lab.open(name)
    alive(lab)
    hint = lab.cell(0).locator(".pl-live-hint")
    expect(hint.last).to_contain_text("Explain together with In [2]")
    assert lab.page.locator(".jp-OutputArea script, .jp-OutputArea [onerror]").count() == 0
    lab.run_cell(1)
    expect(lab.cell(1).locator(".jp-OutputArea-output")).to_have_text("False False\n")
    assert dialogs == []


def found_by_menu_palette_right_click_launcher_and_key(lab: Lab) -> None:
    lab.open(lab.server.write("ways.ipynb", "import torch\nt = torch.ones(2)"))
    alive(lab)
    button = lab.page.locator('.jp-NotebookPanel-toolbar [data-command="pitfall-lab:explain-cell"]')
    expect(button).to_contain_text("Explain")
    told = button.locator("xpath=descendant-or-self::*[@title]").first
    expect(told).to_have_attribute("title", re.compile(r"Explain this cell.*\(Ctrl\+Alt\+E\)"))
    lab.cell(0).locator(".jp-InputArea-editor").click(button="right")
    menu = lab.page.locator(".lm-Menu-content")
    for words in ("Explain this cell", "Show live tensors", "Record every cell of this notebook"):
        expect(menu.get_by_text(words, exact=True)).to_be_visible()
    lab.page.keyboard.press("Escape")
    for place, words in (("View", "Show live tensors"), ("Run", "Record every cell of this notebook")):
        lab.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{place}$")).click()
        expect(menu.get_by_text(words, exact=True)).to_be_visible()
        lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("Control+Alt+l")
    lab.run_cell(0)
    expect(row(lab, "t")).to_be_visible()
    lab.command("apputils:activate-command-palette")
    lab.page.locator(".lm-CommandPalette-input").fill("pitfall")
    for words in (
        "Explain this cell",
        "Open Pitfall Lab panel",
        "Record every cell of this notebook",
        "Show live tensors",
    ):
        expect(lab.page.locator(".lm-CommandPalette-itemLabel", has_text=words)).to_have_count(1)
    lab.page.keyboard.press("Escape")
    lab.command("launcher:create")
    lab.page.locator(".jp-LauncherCard", has_text="Pitfall Lab").click()
    lab.page.wait_for_function("window.jupyterapp.shell.currentWidget?.title?.label === '00-start-here.ipynb'")


def shortcuts_are_shown_and_can_be_changed(lab: Lab) -> None:
    settings = lab.server.home / "settings" / "@jupyterlab" / "shortcuts-extension"
    settings.mkdir(parents=True)
    ours = {"command": "pitfall-lab:open-live-panel", "selector": "body"}
    changed = {"shortcuts": [{**ours, "keys": ["Accel Alt L"], "disabled": True}, {**ours, "keys": ["Accel Alt K"]}]}
    (settings / "shortcuts.jupyterlab-settings").write_text(json.dumps(changed))
    lab.open(lab.server.write("keys.ipynb", "import torch"))
    alive(lab)
    panel = lab.page.locator("#pitfall-lab-live")
    lab.page.keyboard.press("Control+Alt+l")
    lab.page.wait_for_timeout(300)
    expect(panel).to_be_hidden()
    lab.page.keyboard.press("Control+Alt+k")
    expect(panel).to_be_visible()
    lab.command("settingeditor:open", query="Keyboard Shortcuts")
    rows = lab.page.locator(".jp-Shortcuts-Row")
    for words, key in (("Show live tensors", "K"), ("Explain this cell", "E")):
        found = rows.filter(has_text=words)
        expect(found).to_have_count(1)
        expect(found).to_contain_text(re.compile(rf"Alt\s*(\+\s*)?{key}"))
    lab.picture("live-shortcuts")


def forward_and_backward_in_different_cells_are_explained_together(lab: Lab) -> None:
    lab.open(lab.server.write("apart.ipynb", MODEL, FORWARD, "for _ in range(2):\n    h.mul_(2)", "loss.backward()"))
    alive(lab)
    for number in range(4):
        lab.run_cell(number)
    output = lab.cell(3).locator(".jp-OutputArea")
    offer = output.get_by_role("button", name="Explain together with In [2], In [3]")
    expect(output.locator(".pl-live-together")).to_contain_text("They add to .grad again.")
    lab.picture("live-together")
    assert violations(lab.page, ".pl-live-hint") == []
    offer.click()
    root = output.locator(".pl-root")
    expect(root.locator(".pl-cell-name")).to_have_text(["In [1]", "In [2]", "In [3]", "In [5]"], timeout=90_000)
    root.get_by_role("button", name="Apply").first.click()
    assert "clone" in text(lab, 2) or text(lab, 2) != "for _ in range(2):\n    h.mul_(2)"
    for number in range(1, 4):
        lab.run_cell(number)
    expect(output.locator(".jp-RenderedText")).to_have_count(0)


def what_is_warned_of_is_explained_before_it_fails(lab: Lab) -> None:
    lab.open(lab.server.write("ahead.ipynb", MODEL, FORWARD, "h.mul_(2)", "total = 0", "loss.backward()"))
    alive(lab)
    for number in range(3):
        lab.run_cell(number)
    # The cell that would fail is the one that is explained, with those that matter before it.
    notice = lab.cell(2).locator(".pl-live-notice.pl-live-error")
    expect(notice.locator(".pl-live-together")).to_contain_text(
        "Runs them again, and loss.backward(). They add to .grad again."
    )
    assert violations(lab.page, ".pl-live-notice") == []
    notice.get_by_role("button", name="Explain together with In [2], In [3]").click()
    root = lab.cell(4).locator(".pl-root")
    expect(root.locator(".pl-cell-name")).to_have_text(["In [1]", "In [2]", "In [3]", "In [4]"], timeout=90_000)
    expect(root).to_contain_text("h")
    lab.picture("live-ahead")
    # Where no cell calls it yet, a cell with it comes below; undone, it goes as it came.
    lab.open(lab.server.write("ahead-alone.ipynb", MODEL, FORWARD, "h.mul_(2)"))
    alive(lab)
    for number in range(3):
        lab.run_cell(number)
    lab.command("pitfall-lab:open-live-panel")
    lab.page.locator(".pl-live-warning").get_by_role("button", name="Explain together with In [2], In [3]").click()
    expect(lab.cell(3).locator(".pl-root .pl-cell-name")).to_have_text(
        ["In [1]", "In [2]", "In [3]", "In [4]"], timeout=90_000
    )
    assert text(lab, 3) == "loss.backward()"


def what_is_out_of_date_or_silently_wrong_is_said_under_its_cell(lab: Lab) -> None:
    data, net = (
        "import torch\nx = torch.ones(4, 3)\ny = torch.ones(4)",
        "net = torch.nn.Linear(3, 1)\nnormal = x / x.sum(0)",
    )
    lab.open(lab.server.write("silent.ipynb", data, net, "loss = (net(normal) - y).square().mean()"))
    alive(lab)
    for number in range(3):
        lab.run_cell(number)
    notice = lab.cell(2).locator(".pl-live-notice")
    expect(notice).to_have_class(re.compile("pl-live-silent"))
    expect(notice).to_contain_text("loss was computed from 4 × 4 numbers")
    expect(notice).to_contain_text("Fix: Give both the same shape")
    source(lab, 0, data.replace("ones(4, 3)", "randn(4, 3)"))
    source(lab, 2, "del loss\nnormal.mean()")
    lab.run_cell(0)
    lab.run_cell(2)
    expect(notice).to_have_class(re.compile("pl-live-note"))
    expect(notice).to_contain_text("normal of In [2] was computed from the value that x had before In [4]")
    lab.picture("live-out-of-date")
    assert violations(lab.page, ".pl-live-notice") == []


def in_chinese(lab: Lab) -> None:
    settings = lab.server.home / "settings" / "@jupyterlab" / "translation-extension"
    settings.mkdir(parents=True)
    (settings / "plugin.jupyterlab-settings").write_text('{"locale": "zh_CN"}')
    lab.open(lab.server.write("chinese.ipynb", MODEL, FORWARD, "for _ in range(2):\n    h.mul_(2)", "loss.backward()"))
    alive(lab)
    for number in range(4):
        lab.run_cell(number)
    lab.command("pitfall-lab:open-live-panel")
    warning = lab.page.locator(".pl-live-warning.pl-live-error")
    expect(warning).to_contain_text(
        "h 在 In [3] 中被修改了；SigmoidBackward0 仍持有 In [2] 的 v0：所以 loss.backward() 失败了。"
    )
    expect(lab.cell(3).locator(".pl-live-hint")).to_contain_text("与 In [2], In [3] 一起解释")
    expect(lab.page.locator('.jp-NotebookPanel-toolbar [data-command="pitfall-lab:explain-cell"]')).to_contain_text(
        "解释"
    )
    labels = "id => window.jupyterapp.commands.label(id)"
    assert lab.page.evaluate(labels, "pitfall-lab:record-always") == "记录此 notebook 的每个单元格"
    for theme in ("Light", "Dark"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.wait_for_timeout(600)
        lab.picture(f"live-chinese-{theme.lower()}")
    lab.command("settingeditor:open", query="Pitfall Lab")
    expect(lab.page.locator(".jp-SettingsPanel")).to_contain_text("面板隐藏时也警告")
    lab.picture("live-chinese-settings")
    lab.console[:] = [line for line in lab.console if not line.startswith(NO_LANGUAGE_PACK)]


DAYS: list[Callable[[Lab], None]] = [
    interrupted_disconnected_and_five_hundred_cells,
    ten_thousand_tensors_are_searched_sorted_and_scrolled,
    a_hostile_notebook_shows_text_and_nothing_else,
    forward_and_backward_in_different_cells_are_explained_together,
    an_untrusted_notebook_runs_nothing_when_it_is_opened,
    found_by_menu_palette_right_click_launcher_and_key,
    shortcuts_are_shown_and_can_be_changed,
    what_is_warned_of_is_explained_before_it_fails,
    what_is_out_of_date_or_silently_wrong_is_said_under_its_cell,
    in_chinese,
]


@pytest.mark.parametrize("day", todays(DAYS, of=5), ids=lambda day: day.__name__)
def test_a_day_beside_ones_own_notebooks(lab: Lab, day: Callable[[Lab], None]) -> None:
    day(lab)
