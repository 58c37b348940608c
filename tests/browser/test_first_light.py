"""The whole product as a learner meets it: open chapter 12, run it, and follow one error from
cause to effect by keyboard.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import Lab
from tests.corpus import FOLDER
from tests.frontend.accessibility import violations
from tests.turns import todays
from tests.verify.test_magic import LOOP, MEMORY
from tests.views.twelve import FOLDER as PROGRAMS

CHAPTER = "notebooks/12-inplace-errors.ipynb"


def sources(lab: Lab, notebook: str) -> list[str]:
    """The cells of a notebook; Markdown cells are empty strings."""
    cells = json.loads((lab.server.folder / notebook).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in cells]


def explorer(lab: Lab, cell: int) -> Locator:
    root = lab.cell(cell).locator(".jp-OutputArea .pl-root")
    root.locator(".pl-p-code .pl-line").first.wait_for()
    return root


def current_line(root: Locator) -> str:
    return root.locator(".pl-p-code .pl-now-row .pl-text").inner_text().strip()


def show_from_the_top(lab: Lab, root: Locator) -> None:
    root.evaluate("element => element.getRootNode().host.scrollIntoView({ block: 'start', behavior: 'instant' })")
    lab.page.wait_for_timeout(500)  # for people's eyes: transitions end before the picture is taken


def test_chapter_12_leads_by_keyboard_from_saved_over_changed_to_raised(lab: Lab) -> None:
    cells = sources(lab, CHAPTER)
    program = next(n for n, source in enumerate(cells) if source.startswith("%%pitfall"))
    lab.open(CHAPTER)
    for number in [n for n in range(program + 1) if cells[n]]:
        lab.run_cell(number)
    # The cell failed exactly as it does without us ...
    output = lab.cell(program).locator(".jp-OutputArea")
    expect(output.locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText").first).to_contain_text(
        "RuntimeError"
    )
    assert "site-packages/pitfall_lab" not in output.locator(".jp-RenderedText").first.inner_text()
    # ... and below it is the Explorer.
    root = explorer(lab, program)
    root.locator("input[type=range]").first.focus()
    press = lab.page.keyboard.press
    press("Home")
    expect(root.locator(".pl-count")).to_contain_text("0 /")
    steps = int(root.locator(".pl-count").inner_text().split("/")[1])
    said = [root.locator(".pl-sentence").inner_text()]
    while "torch raises" not in said[-1]:
        assert len(said) <= steps, said
        press("ArrowRight")
        said.append(root.locator(".pl-sentence").inner_text())
    assert current_line(root) == "loss.backward()"
    assert any("backward" in text and "keeps" in text for text in said)
    assert any("its backward will now fail" in text for text in said[:-1]), "the forecast comes before torch raises"
    for view in ("graph", "storage", "versions"):
        root.locator(f"[data-tab={view}]").click()
        expect(root.locator(f".pl-p-{view} .pl-body")).not_to_be_empty()
    expect(root.locator("[data-tab=broadcast]"), "nothing is stretched in this cell").to_have_count(0)
    root.locator("[data-tab=fix]").click()
    root.locator("input[type=range]").first.focus()
    # E goes round: from where it raised to where it was saved, to the change, and back.
    followed = []
    for _ in range(3):
        press("e")
        followed.append(current_line(root))
    assert followed == ["h = torch.sigmoid(x)", "h.mul_(10)", "loss.backward()"]
    expect(root).to_contain_text("verified")
    press("e")
    press("e")
    for theme in ("Light", "Dark"):
        lab.theme(f"JupyterLab {theme}")
        show_from_the_top(lab, root)
        lab.picture(f"first-light-{theme.lower()}")


def test_a_broadcast_loss_has_its_picture_and_its_fix_goes_into_the_cell(lab: Lab) -> None:
    program = (FOLDER / "loss_broadcast_silent.py").read_text(encoding="utf-8")
    lab.open(lab.server.write("broadcast.ipynb", "%load_ext pitfall_lab", f"%%pitfall\n{program}"))
    lab.run_cell(0)
    lab.run_cell(1)
    root = explorer(lab, 1)
    expect(root.locator(".pl-picture.pl-table")).to_contain_text("pairs instead of")
    expect(root).to_contain_text("loss-broadcast")
    # The fix is written into the cell, and taken back.
    source = "window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.getSource()"
    before = lab.page.evaluate(source)
    expect(root.locator(".pl-fix .pl-ok").first).to_contain_text("verified", timeout=180_000)
    edit = root.locator(".pl-fix .pl-new").first.inner_text().removeprefix("+ ")
    root.locator("[data-do=apply]").first.click()
    after = lab.page.evaluate(source)
    assert edit in after
    assert edit not in before
    assert after.startswith("%%pitfall\n")
    root.locator("[data-do=undo]").click()
    assert lab.page.evaluate(source) == before
    show_from_the_top(lab, root)
    lab.picture("broadcast-light")


def test_a_fix_goes_into_the_cell_that_it_is_about_and_is_taken_back(lab: Lab) -> None:
    made = "model = GatedMemory(3)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseries = torch.randn(4, 3)"
    cells = ["%load_ext pitfall_lab\nimport torch", MEMORY, made, f"%%pitfall\n{LOOP}"]
    lab.open(lab.server.write("apart.ipynb", *cells))
    for number in range(4):
        lab.run_cell(number)
    root = explorer(lab, 3)
    expect(root.locator(".pl-cell-name")).to_have_text(["In [2]", "In [4]"])
    expect(root.locator(".pl-fix .pl-ok").first).to_contain_text("verified", timeout=180_000)
    assert root.locator(".pl-fix .pl-new").first.inner_text() == "+ memory = memory + x"
    sources = "window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.sharedModel.getSource())"
    repaired = [*cells[:1], MEMORY.replace("memory += x", "memory = memory + x"), *cells[2:]]
    root.locator("[data-do=apply]").first.click()
    assert lab.page.evaluate(sources) == repaired
    root.locator("[data-do=undo]").click()
    assert lab.page.evaluate(sources) == cells
    # The editor's own undo knows the change too.
    root.locator("[data-do=apply]").first.click()
    lab.cell(1).locator(".cm-content").click()
    lab.page.keyboard.press("Control+z")
    assert lab.page.evaluate(sources) == cells
    lab.page.keyboard.press("Control+Shift+z")
    assert lab.page.evaluate(sources) == repaired
    for number in (1, 2, 3):
        lab.run_cell(number)
    expect(lab.cell(3).locator(".jp-OutputArea")).not_to_contain_text("RuntimeError")


@pytest.mark.parametrize("name", todays(("gpt", "lstm", "ppo", "diffusion"), of=3))
def test_sentence_picture_and_fix_fit_into_what_jupyterlab_leaves_of_a_window(lab: Lab, name: str) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 800})
    program = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    lab.open(lab.server.write("fits.ipynb", "%load_ext pitfall_lab", f"%%pitfall\n{program}"))
    lab.run_cell(0)
    lab.run_cell(1, timeout=180)
    root = explorer(lab, 1)
    expect(root.locator(".pl-fix .pl-ok").first).to_contain_text("verified", timeout=180_000)
    show_from_the_top(lab, root)
    frame = lab.page.locator(".jp-Notebook .jp-WindowedPanel-outer").bounding_box()
    for part in ("[data-part=head]", "[data-part=picture]", "[data-do=apply]", "[data-do=copy]", ".pl-buttons"):
        box = root.locator(part).first.bounding_box()
        assert frame["y"] - 1 <= box["y"] < box["y"] + box["height"] <= frame["y"] + frame["height"] + 1, part
    root.evaluate("element => { element.getRootNode().host.dataset.lookedAt = ''; }")
    lab.theme("JupyterLab Dark High Contrast")
    assert violations(lab.page, "[data-looked-at]") == []
    lab.picture(f"fits-{name}-contrast")
    lab.theme("JupyterLab Light")
    lab.picture(f"fits-{name}-light")


def test_keys_pressed_in_the_explorer_do_not_reach_the_notebook(lab: Lab) -> None:
    lab.open(
        lab.server.write(
            "keys.ipynb", "%load_ext pitfall_lab\nimport torch", "%%pitfall\nx = torch.ones(2)\nv = x[:]\nx.add_(1)"
        )
    )
    lab.run_cell(0)
    lab.run_cell(1)
    root = explorer(lab, 1)
    root.locator("input[type=range]").first.focus()
    for key in ("a", "b", "d", "d", "x", "m", "y", "e", "Home", "ArrowRight"):
        lab.page.keyboard.press(key)
    assert lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length") == 2
    expect(root.locator(".pl-count")).to_contain_text("1 /")
    root.locator("[data-tab=whatif]").click()
    # What if …: the kernel is asked by the change's id, runs it in another process and answers with both runs.
    root.locator('[data-change="new-3"]').click()
    expect(root.locator(".pl-whatif")).to_contain_text("The runs differ from step 3 on", timeout=60_000)


def test_stepping_works_while_the_kernel_is_busy_and_after_it_is_gone(lab: Lab) -> None:
    cells = [
        "%load_ext pitfall_lab\nimport torch",
        "%%pitfall\nx = torch.ones(2)\nx.add_(1)",
        "import time\ntime.sleep(60)",
    ]
    lab.open(lab.server.write("busy.ipynb", *cells))
    lab.run_cell(0)
    lab.run_cell(1)
    root = explorer(lab, 1)
    lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    lab.page.wait_for_function("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'")
    root.locator("input[type=range]").first.focus()
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowRight")
    expect(root.locator(".pl-count")).to_contain_text("1 /")
    lab.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    lab.page.keyboard.press("ArrowRight")
    expect(root.locator(".pl-count")).to_contain_text("2 /")


HOSTILE = (
    "html_in_names", "unicode", "nan_inf", "complex_numbers", "low_precision", "empty_and_scalar", "meta_huge",
    "lazily_huge", "own_exception",
)  # fmt: skip


def test_odd_programs_run_as_without_us_and_put_nothing_into_the_page(lab: Lab) -> None:
    programs = [(FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in HOSTILE]
    broken = "%%pitfall\nx = = 1  # <b>not Python</b>"
    cells = ["%load_ext pitfall_lab", *(f"%%pitfall\n{program}" for program in programs), broken]
    dialogs = []
    lab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    lab.open(lab.server.write("odd.ipynb", *cells))
    for number in range(len(cells)):
        lab.run_cell(number)
        lab.cell(number).scroll_into_view_if_needed()
    for number, name in enumerate(HOSTILE, 1):
        root = explorer(lab, number)
        # Markup from the program would be an element; everything that we draw ourselves is
        # HTML without handlers and SVG.
        assert root.locator("script, img, iframe, object, b:has-text('bold'), [onerror], [onload]").count() == 0, name
    assert dialogs == []
    text = lab.page.locator(".jp-Notebook").inner_text()
    assert "site-packages/pitfall_lab" not in text
    assert "SyntaxError" in lab.cell(len(cells) - 1).inner_text()


@pytest.mark.parametrize("chapter", todays(["00-start-here", "05-copies-and-views", "12-inplace-errors"], of=3))
def test_every_cell_of_a_chapter_runs_in_jupyterlab(lab: Lab, chapter: str) -> None:
    notebook = f"notebooks/{chapter}.ipynb"
    cells = sources(lab, notebook)
    lab.open(notebook)
    pitfalls = 0
    for number, source in enumerate(cells):
        if source:
            lab.run_cell(number)
        if source.startswith("%%pitfall"):
            lab.cell(number).scroll_into_view_if_needed()
            explorer(lab, number)
            pitfalls += 1
    assert pitfalls == sum(source.startswith("%%pitfall") for source in cells)
