"""The live panel beside ordinary notebooks: warned before backward fails, several kernels, one that
dies, and names that are markup.
"""

from __future__ import annotations

import json
import re

from playwright.sync_api import Locator, expect

from tests.browser.conftest import Lab
from tests.frontend.accessibility import violations

MODEL = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return torch.sigmoid(self.layer(x))
"""
FORWARD = "torch.manual_seed(0)\nnet = Net()\nh = net(torch.ones(4, 3))\nloss = h.sum()"
WALK = (MODEL, FORWARD, "for _ in range(2):\n    h.mul_(2)", "loss.backward()")
JUPYTERLAB_ON_A_KILLED_KERNEL = (
    "warning: Connection lost, reconnecting",
    "error: Could not restore the debugger state: Canceled future",
)
MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = f"""import torch
globals()[{MARKUP!r}] = torch.ones(3)

class Rude(torch.Tensor):
    def __getattribute__(self, name):
        raise RuntimeError("<script>alert(2)</script>")

rude = torch.ones(2).as_subclass(Rude)
several = [torch.ones(n) for n in range(2, 5)]
t = torch.arange(6.0)
view = t[::2]
array = t.numpy()
"""


def alive(lab: Lab) -> None:
    """Wait until the front notebook's kernel is connected with the panel."""
    lab.page.wait_for_function("document.querySelector('#pitfall-lab-live').dataset.kernel === 'live'")


def row(lab: Lab, name: str) -> Locator:
    return lab.page.locator(f".pl-live-row[data-row={json.dumps(name)}]")


def source(lab: Lab, number: int, text: str) -> None:
    """Write a cell as the editor does."""
    script = "([n, text]) => window.jupyterapp.shell.currentWidget.content.widgets[n].model.sharedModel.setSource(text)"
    lab.page.evaluate(script, [number, text])


def text(lab: Lab, number: int) -> str:
    """What a cell says."""
    return lab.page.evaluate(
        "n => window.jupyterapp.shell.currentWidget.content.widgets[n].model.sharedModel.getSource()", number
    )


def test_a_broken_graph_is_warned_of_before_backward_and_explained_and_mended(lab: Lab) -> None:
    lab.open(lab.server.write("own.ipynb", *WALK))
    alive(lab)
    for number in range(3):
        lab.run_cell(number)
    # The panel was never opened: its icon is marked, and the cell that changed `h` has one line below it.
    notice = lab.cell(2).locator(".pl-live-notice.pl-live-error")
    expect(notice).to_contain_text("loss.backward() will fail")
    expect(notice.locator(".pl-live-fix")).to_contain_text("or change a copy (.clone())")
    expect(lab.page.locator(".lm-TabBar-tab.pl-live-badge.pl-live-failing")).to_have_count(1)
    lab.picture("live-notice")
    notice.get_by_role("button", name="In [2] saved").click()
    lab.page.wait_for_function("window.jupyterapp.shell.currentWidget.content.activeCellIndex === 1")
    notice.get_by_role("button", name="Show in the panel").click()
    expect(notice).to_have_count(0)
    expect(lab.page.locator(".pl-live-badge")).to_have_count(0)
    expect(row(lab, "h")).to_have_class("pl-live-row pl-live-selected pl-live-error")
    warning = lab.page.locator(".pl-live-warning.pl-live-error")
    expect(warning).to_contain_text("h changed in In [3]; SigmoidBackward0 still holds v0 from In [2]")
    assert violations(lab.page, ".pl-live") == []
    lab.picture("live-warned")
    # In the narrowest panel the state is whole.
    lab.page.locator("#pitfall-lab-live").evaluate("node => node.style.setProperty('width', '250px')")
    for name in ("h", "loss"):
        assert row(lab, name).locator(".pl-live-state").evaluate("node => node.scrollWidth <= node.clientWidth"), name
    lab.page.locator("#pitfall-lab-live").evaluate("node => node.style.removeProperty('width')")

    # It fails as it was said; the frames of torch are behind one line, and a click brings them.
    lab.run_cell(3)
    output = lab.cell(3).locator(".jp-OutputArea")
    expect(output).to_contain_text("modified by an inplace operation")
    failed = "h changed in In [3]; SigmoidBackward0 still holds v0 from In [2]: this is why loss.backward() failed."
    expect(output.locator(".pl-live-hint")).to_contain_text(failed)
    expect(warning).to_contain_text(failed)
    expect(warning.get_by_role("heading")).to_contain_text("Failed")
    expect(lab.cell(3).locator(".pl-live-notice")).to_have_count(0)  # the line below the traceback has said it
    frames = output.get_by_role("button", name="library frames")
    inner = output.locator(".jp-RenderedText").filter(has_text="_tensor.py")
    expect(inner).to_be_hidden()
    frames.click()
    expect(inner).to_be_visible()
    lab.command("pitfall-lab:explain-cell")
    expect(output.locator(".pl-root")).to_contain_text(
        "h changed in In [3]; SigmoidBackward0 still holds v0 from In [2]"
    )

    # The line that wrote and the line that saved are marked; the edit is one step of the cell's
    # history, and goes as it came.
    lab.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.scrollToItem(1)"
    )  # JupyterLab 4.2 draws only what is in sight
    changed, saved = (lab.cell(number).locator(".pl-marked") for number in (2, 1))
    expect(changed).to_have_text("h.mul_(2)")
    expect(saved).to_have_text("h = net(torch.ones(4, 3))")
    expect(lab.cell(2).locator(".pl-sign")).to_have_attribute("title", re.compile("still holds v0 from In \\[2\\]"))
    changed.hover()
    card = lab.page.locator(".pl-card")
    expect(card).to_contain_text("SigmoidBackward0 still holds v0 from In [2]")
    lab.picture("live-marked")
    card.get_by_role("button", name="Apply").click()
    mended = "for _ in range(2):\n    h = h.clone()\n    h.mul_(2)"
    assert text(lab, 2) == mended
    expect(changed).to_have_count(0)
    card.get_by_role("button", name="Undo").click()
    assert text(lab, 2) == WALK[2]
    card.get_by_role("button", name="Apply").click()
    lab.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets[2].model.sharedModel.undo()"
    )  # as Ctrl+Z does
    assert text(lab, 2) == WALK[2]
    warning.get_by_role("button", name="Apply").click()
    assert text(lab, 2) == mended
    for number in range(1, 4):
        lab.run_cell(number)
    expect(output.locator(".jp-RenderedText")).to_have_count(0)
    expect(warning).to_have_count(0)
    expect(lab.page.locator(".jp-Notebook .pl-marked, .jp-Notebook .pl-sign")).to_have_count(0)
    saved = "JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON())"
    assert "pl-live" not in lab.page.evaluate(saved)


def test_two_notebooks_a_kernel_that_dies_and_names_that_are_markup(lab: Lab) -> None:
    dialogs: list[str] = []
    lab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    lab.open(lab.server.write("first.ipynb", HOSTILE, "t.add_(1)\nmany = None", "import os\nos.kill(os.getpid(), 9)"))
    alive(lab)
    lab.command("pitfall-lab:open-live-panel")
    lab.run_cell(0)
    # Everything that a name can be is text.
    expect(row(lab, MARKUP)).to_be_visible()
    assert lab.page.locator(".pl-live img, .pl-live script").count() == 0
    # What shares memory has one number, NumPy's arrays too, and is tied together when one of it is selected.
    numbers = [row(lab, name).locator(".pl-live-swatch").inner_text() for name in ("t", "view", "array")]
    assert len(set(numbers)) == 1
    row(lab, "t").click()
    expect(row(lab, "array")).to_have_class("pl-live-row pl-live-tied")
    expect(lab.page.locator(".pl-live-sheet img")).to_be_visible()
    # By keyboard: unfold, go in, fold; close what is known of the row.
    table = lab.page.locator(".pl-live-table")
    table.focus()
    lab.page.keyboard.press("ArrowUp")
    expect(row(lab, "several")).to_have_attribute("aria-selected", "true")
    lab.page.keyboard.press("ArrowRight")
    expect(table.locator('[aria-level="2"]')).to_have_count(3)
    lab.page.keyboard.press("ArrowLeft")
    expect(table.locator('[aria-level="2"]')).to_have_count(0)
    lab.page.get_by_label("Search names, shapes, types").fill("[3]")
    expect(table.locator("[data-row]")).to_have_count(2)
    lab.page.get_by_label("Search names, shapes, types").fill("")
    # Back to the cell before, and to now.
    lab.run_cell(1)
    expect(row(lab, "t").locator(".pl-live-moved")).to_have_text("v0\u2009→\u2009v1")
    lab.page.get_by_label("After which cell").fill("0")
    expect(lab.page.locator(".pl-live-past")).to_contain_text("As it was after In [1]")
    lab.page.get_by_role("button", name="Back to now").click()
    expect(row(lab, "t").locator(".pl-live-moved")).to_be_visible()

    # Another notebook has rows of its own; the first one's come back with it.
    lab.command("docmanager:open", path=lab.server.write("second.ipynb", "import torch\nsecond = torch.ones(3)"))
    lab.page.wait_for_function("window.jupyterapp.shell.currentWidget.title.label === 'second.ipynb'")
    alive(lab)
    lab.run_cell(0)
    expect(row(lab, "second")).to_be_visible()
    lab.command("docmanager:open", path="first.ipynb")
    expect(row(lab, "view")).to_be_visible()
    expect(row(lab, "second")).to_have_count(0)

    # Its kernel is killed and starts again by itself: what was there is gone, and the next cell is seen.
    lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    lab.page.get_by_role("dialog").get_by_role("button", name="Ok").click()
    expect(row(lab, "view")).to_have_count(0)
    alive(lab)
    source(lab, 2, "import torch\nafterwards = torch.ones(1)")
    lab.run_cell(2)
    expect(row(lab, "afterwards")).to_be_visible()
    assert dialogs == []
    lab.console[:] = [line for line in lab.console if not line.startswith(JUPYTERLAB_ON_A_KILLED_KERNEL)]


def test_switched_off_nothing_is_sent_to_any_kernel(lab: Lab) -> None:
    settings = lab.server.home / "settings" / "pitfall-lab"
    settings.mkdir(parents=True)
    (settings / "plugin.jupyterlab-settings").write_text('{"live": false}')
    lab.open(lab.server.write("off.ipynb", "import sys\nprint('pitfall_lab' in sys.modules)"))
    lab.run_cell(0)
    expect(lab.cell(0).locator(".jp-OutputArea-output")).to_have_text("False\n")
    lab.command("pitfall-lab:open-live-panel")
    expect(lab.page.locator(".pl-live")).to_contain_text("switched off")


def test_every_cell_of_a_notebook_is_recorded_from_the_first_after_a_restart(lab: Lab) -> None:
    lab.open(
        lab.server.write(
            "always.ipynb", "import torch\nx = torch.ones(3, requires_grad=True)", "h = x.sigmoid()", "n = 1"
        )
    )
    alive(lab)
    shown = lab.page.locator(".jp-Notebook .jp-OutputArea .pl-root")
    button = lab.page.locator('[data-command="pitfall-lab:record-always"]:not(li)')
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.model.getMetadata('pitfall_lab')") == {
        "record": True
    }
    lab.run_cell(0)
    expect(shown).to_have_count(1)
    lab.picture("live-recording")
    # What is run at once after a restart is recorded: the notebook says so, and no longer the old kernel.
    lab.page.evaluate(
        """async () => {
            await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart();
            await window.jupyterapp.commands.execute("notebook:run-all-cells");
        }"""
    )
    expect(shown).to_have_count(2)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    lab.run_cell(0)
    expect(shown).to_have_count(1)
    lab.console[:] = [line for line in lab.console if not line.startswith(JUPYTERLAB_ON_A_KILLED_KERNEL)]
