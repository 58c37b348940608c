"""Notebook 7: the Explorer, a picture that is written to, a question, the chapters and the live panel
work there as in JupyterLab.
"""

from __future__ import annotations

import sys

from playwright.sync_api import expect

from tests.browser.conftest import serve, visit
from tests.browser.test_live import row

CELLS = (
    "%load_ext pitfall_lab",
    (
        "%%pitfall\n"
        "import torch\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "h = torch.sigmoid(x)\n"
        "h.mul_(2)\n"
        "h.sum().backward()"
    ),
    "import torch, pitfall_lab\nt = torch.arange(6.0)\neven = t[::2]\npitfall_lab.show_storage(t, even)",
    "print(even, t._version)",
    'pitfall_lab.question("import torch\\nt = torch.zeros(3)\\nv = t[1:]\\nv[0] = 5", ask="t")',
    "s = torch.ones(3, requires_grad=True).sigmoid()\ntotal = s.sum()",
    "s.mul_(2)",
)
# Warnings about its own menus, and a listener of its own (every frame of the stack is in notebook_core)
# that is sometimes called too early.
ITS_OWN = ("warning: ", "uncaught: Cannot read properties of undefined (reading 'schema')")


def test_everything_works_in_notebook_7(browser, tmp_path):
    home, folder = tmp_path / "home", tmp_path / "learner"
    home.mkdir()
    folder.mkdir()
    command = [sys.executable, "-m", "notebook", "--no-browser", "--allow-root", f"--ServerApp.root_dir={folder}"]
    with serve(home, folder, command) as server, visit(browser, server) as lab:
        name = server.write("seven.ipynb", *CELLS)
        lab.open(name, f"{server.url}/notebooks/{name}?token={server.token}")
        for number in range(2):
            lab.run_cell(number)
        root = lab.cell(1).locator(".jp-OutputArea .pl-root")
        root.wait_for()
        assert "RuntimeError" in root.locator(".pl-outcome").inner_text()
        root.locator("input[type=range]").focus()
        lab.page.keyboard.press("Home")
        expect(root.locator(".pl-count")).to_contain_text("0 /")
        lab.picture("notebook7-explorer")

        lab.run_cell(2)
        storage = lab.cell(2).locator(".jp-OutputArea .pl-root")
        storage.locator(".v-cell").nth(2).dblclick()
        storage.get_by_role("textbox").fill("7.5")
        storage.get_by_role("textbox").press("Enter")
        expect(storage.locator(".v-cell").nth(2)).to_have_text("7.5")
        expect(storage.locator("td.v-written")).to_have_text(["7.5", "2", "1"])
        lab.run_cell(3)
        expect(lab.cell(3).locator(".jp-OutputArea-output")).to_contain_text("tensor([0.0000, 7.5000, 4.0000]) 1")
        lab.picture("notebook7-storage")

        lab.run_cell(4)
        question = lab.cell(4).locator(".jp-OutputArea")
        question.get_by_role("radio").first.check()
        question.get_by_role("button", name="Skip").click()
        expect(question.get_by_text("Skipped. The answer is marked above.")).to_be_visible()

        for number in (5, 6):
            lab.run_cell(number)
        expect(lab.cell(6).locator(".pl-live-notice")).to_contain_text("total.backward() will fail")
        lab.cell(6).get_by_role("button", name="Show in the panel").click()
        expect(row(lab, "s")).to_have_class("pl-live-row pl-live-selected pl-live-error")
        lab.picture("notebook7-live")

        lab.command("pitfall-lab:open-panel")
        lab.page.locator(".pl-chapters").wait_for()
        lab.picture("notebook7-panel")

        lab.command("docmanager:save")
        server.shut_down_kernels()
        lab.expected.append("widget model not found")  # ipywidgets' own words, which may come late
        lab.open(name, f"{server.url}/notebooks/{name}?token={server.token}")
        page = lab.cell(1).locator(".jp-RenderedHTML:visible")
        page.get_by_text("Line 4 overwrites").first.wait_for()
        assert "model not found" not in lab.cell(1).inner_text()
        lab.picture("notebook7-reopened")
        assert lab.blocked == []
        assert [line for line in lab.said() if not line.startswith(ITS_OWN)] == []
