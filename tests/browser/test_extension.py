"""The JupyterLab extension: chapters in the left panel, and "Explain this cell"."""

from __future__ import annotations

import re

import nbformat
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from pitfall_lab.lessons.progress import Entry, keep
from pitfall_lab.views.stored import MARK
from tests.browser.test_live import alive
from tests.frontend.accessibility import violations

EXPLAIN = "pitfall-lab:explain-cell"
SOURCE = "import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)\nh.mul_(2)\nh.sum().backward()"


def test_the_panel_lists_the_chapters_by_their_headings_and_opens_them(lab):
    for entry in (
        Entry("05", "5.1", "exercise", 3, 4),
        Entry("05", "5.1", "exercise", 4, 4),
        Entry("05", "5.2", "exercise", 6, 6),
    ):
        keep(entry, lab.server.folder / "notebooks")
    lab.open("notebooks/00-start-here.ipynb")
    lab.command("pitfall-lab:open-panel")
    items = lab.page.locator(".pl-chapters .pl-chapters-item")
    items.first.wait_for()
    names = sorted(path.name for path in (lab.server.folder / "notebooks").glob("[0-9][0-9]-*.ipynb"))
    assert [item.split("/")[-1] for item in items.evaluate_all("all => all.map(one => one.dataset.path)")] == names
    assert (
        lab.page.locator('.pl-chapters-item[aria-current="page"]').get_attribute("data-path")
        == "notebooks/00-start-here.ipynb"
    )
    # Progress, times, and the first unsolved exercise of the chapter that was worked on last.
    assert lab.page.locator(".pl-chapters-solved").all_inner_texts() == ["✓ 2/4"]
    opening = (lab.server.folder / "notebooks" / "05-copies-and-views.ipynb").read_text("utf-8")
    minutes = re.search(r"(\d+) minutes", opening)[1]
    assert (
        lab.page.locator('.pl-chapters-item[data-path$="05-copies-and-views.ipynb"] .pl-chapters-time').inner_text()
        == f"{minutes} min"
    )
    assert (
        lab.page.locator('.pl-chapters-item[data-path$="05-copies-and-views.ipynb"] .pl-chapters-solved').count() == 1
    )
    assert violations(lab.page, ".pl-chapters") == []
    lab.picture("panel")
    items.nth(1).click()
    lab.page.wait_for_function("name => window.jupyterapp.shell.currentWidget?.title?.label === name", arg=names[1])
    lab.page.get_by_role("button", name="Next exercise: 5.3").click()
    lab.page.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.content?.activeCell?.model.sharedModel.getSource().startsW"
        "ith('%%exercise 5.3')"
    )


def test_explain_shows_the_explorer_below_the_cell_and_leaves_its_source_alone(lab):
    lab.open(lab.server.write("plain.ipynb", SOURCE, ""))
    lab.page.locator('[data-command="pitfall-lab:explain-cell"]').first.wait_for()
    lab.command(EXPLAIN)
    root = lab.cell(0).locator(".jp-OutputArea .pl-root")
    root.wait_for()
    assert (
        lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.getSource()")
        == SOURCE
    )
    assert "RuntimeError" in root.locator(".pl-outcome").inner_text()
    lab.page.wait_for_function(
        "() => document.querySelector('.jp-OutputArea "
        "[data-lm-suppress-shortcuts]').getBoundingClientRect().top < innerHeight"
    )
    # Its lines are marked, with the edits that help.
    marked = lab.cell(0).locator(".jp-InputArea .pl-marked")
    expect(marked).to_have_text(["h = torch.sigmoid(x)", "h.mul_(2)", "h.sum().backward()"])
    # The keys work at once, and the Explorer says only to others how to get in.
    expect(root.locator(".pl-hint")).to_be_hidden()
    lab.page.keyboard.press("Home")
    expect(root.locator(".pl-count")).to_contain_text("0 /")
    for theme in ("Light", "Dark"):
        lab.theme(f"JupyterLab {theme}")
        lab.page.wait_for_timeout(600)
        lab.picture(f"explain-{theme.lower()}")


def test_explain_falls_back_to_the_cell_that_was_run_last(lab):
    lab.open(lab.server.write("after.ipynb", SOURCE, ""))
    lab.command("notebook:run-cell-and-select-next")
    lab.cell(0).locator(
        ".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr'], .jp-OutputArea-output"
    ).first.wait_for()
    assert lab.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex") == 1
    lab.page.locator('[data-command="pitfall-lab:explain-cell"]').first.click()
    lab.cell(0).locator(".jp-OutputArea .pl-root").wait_for()


def test_an_output_without_its_widget_shows_the_page_that_is_stored_beside_it(lab):
    """As in a notebook that is opened again: the widget is known to no kernel."""
    bundle = {
        "application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": "gone"},
        MARK: {"version": 1},
        "text/html": "<p class='stored'>what the cell did</p>",
        "text/plain": "what the cell did",
    }
    lab.open(lab.server.write("again.ipynb", f"display({bundle!r}, raw=True)"))
    lab.expected.append("widget model not found")  # the widgets' own words about it
    lab.run_cell(0)
    output = lab.cell(0).locator(".jp-OutputArea")
    output.locator(".stored").wait_for()
    assert "Error displaying widget" not in output.inner_text()


LOOK = "import torch, pitfall_lab\nt = torch.arange(6.0)\npitfall_lab.show_storage(t, t[::2])"
SIZES = (
    "from pitfall_lab.widgets.front_end import DrawnWidget\nimport gc\n"
    "print('carried', max(len(each._esm) for each in gc.get_objects() if DrawnWidget in type(each).__mro__))"
)


def test_the_script_is_loaded_once_for_all_pictures_of_a_page_and_none_of_them_carries_it(lab):
    asked = []
    lab.page.on("request", lambda request: asked.append(request.url) if "/static/explorer." in request.url else None)
    lab.open(lab.server.write("many.ipynb", "%load_ext pitfall_lab", f"%%pitfall\n{SOURCE}", LOOK, SOURCE, SIZES))
    alive(lab)
    for number in range(4):
        lab.run_cell(number)
    lab.cell(1).locator(".jp-OutputArea .pl-root .pl-message").wait_for()
    lab.cell(2).locator(".jp-OutputArea .pl-root").wait_for()
    lab.run_cell(4)
    said = lab.cell(4).locator(".jp-OutputArea-output").first.inner_text()
    assert 0 < int(said.split()[-1]) < 2000
    assert len(asked) == 1
    # The page is loaded anew: the kernel still has the widgets, and the script comes from the extension again.
    lab.command("docmanager:save")
    lab.page.reload()
    lab.cell(1).locator(".jp-OutputArea .pl-root .pl-message").wait_for()
    lab.cell(2).locator(".jp-OutputArea .pl-root").wait_for()
    assert len(asked) == 2


TOLD = "Line 4 overwrites"
STORED_FIX = """() => {
  const { outputs } = window.jupyterapp.shell.currentWidget.content.widgets[1].model;
  const pages = [...Array(outputs.length).keys()].map((at) => outputs.get(at).data["text/html"] ?? "");
  return pages.some((page) => page.includes("applied and re-run"));
}"""


def test_a_notebook_that_was_saved_and_is_opened_again_without_its_kernel_shows_the_stored_page(lab):
    lab.open(name := lab.server.write("days_later.ipynb", "%load_ext pitfall_lab", f"%%pitfall\n{SOURCE}"))
    alive(lab)
    lab.run_cell(0)
    lab.run_cell(1)
    lab.cell(1).locator(".jp-OutputArea .pl-message").wait_for()
    lab.cell(1).locator("[data-tab=versions]").first.click()
    lab.cell(1).locator(".pl-trying progress").wait_for(state="detached")
    lab.page.wait_for_function(STORED_FIX)
    assert lab.cell(1).locator(".pl-root").count() == 1
    chosen = lab.cell(1).locator("[data-tab=versions]").first
    assert chosen.get_attribute("aria-selected") == "true", "the Explorer is the one that was there"
    lab.command("docmanager:save")
    lab.server.shut_down_kernels()
    lab.expected.append("widget model not found")  # ipywidgets' own words, for each widget that it looks for
    lab.open(name)
    output = lab.cell(1).locator(".jp-OutputArea")
    page = output.locator(".jp-RenderedHTML:visible")
    page.get_by_text(TOLD).first.wait_for()
    assert "applied and re-run: it works" in page.inner_text(), (
        "with the fix, which was verified after the cell was drawn"
    )
    assert "What to do" not in page.inner_text()
    assert page.locator("img, svg").count(), "with its pictures"
    assert output.locator(".pl-root").count() == 0, "nobody is there to make the widget"
    assert "Error displaying widget" not in output.inner_text()
    assert "model not found" not in output.inner_text()
    lab.picture("reopened")

    # What viewers make of it that run no widgets: as HTML, and with all taken out that GitHub's does not trust.
    saved = nbformat.read(lab.server.folder / name, as_version=4)
    for sanitised in (False, True):
        text, _ = HTMLExporter(sanitize_html=sanitised).from_notebook_node(saved)
        assert TOLD in text
        assert not re.search(r"model_id", text), "no widget that nobody can draw"


LONG = "%%pitfall\n" + "# a line\n" * 40 + "import time\ntime.sleep(1)\n" + SOURCE
NEW = """[...document.querySelectorAll(".jp-OutputArea [data-lm-suppress-shortcuts]:not([data-old])")]
    .find(host => host.shadowRoot?.querySelector(".pl-picture"))"""
SEEN = f"""() => {{
    const host = {NEW};
    if (!host) return false;
    const frame = host.closest('.jp-WindowedPanel-outer').getBoundingClientRect();
    const picture = host.shadowRoot.querySelector('.pl-picture').getBoundingClientRect();
    return host.getBoundingClientRect().top >= frame.top - 1 && picture.bottom <= frame.bottom + 1;
}}"""
PLACE = "document.querySelector('.jp-Notebook .jp-WindowedPanel-outer').scrollTop"


def test_after_a_run_the_first_screen_is_in_sight_unless_the_reader_has_moved(lab):
    lab.open(lab.server.write("long.ipynb", "%load_ext pitfall_lab", LONG, "# below\n" * 30))
    lab.run_cell(0)

    def run(command: str) -> None:
        lab.page.evaluate(
            "() => document.querySelectorAll('[data-lm-suppress-shortcuts]').forEach(old => { old.dataset.old = ''; })"
        )
        lab.page.evaluate(
            "() => { const { content } = window.jupyterapp.shell.currentWidget; content.activeCellIndex = 1; }"
        )
        lab.page.evaluate("name => void window.jupyterapp.commands.execute(name)", command)

    for command in (
        "notebook:run-cell",
        "notebook:run-cell-and-select-next",
    ):  # below a long cell; then, where the old output ended
        run(command)
        lab.page.wait_for_function(SEEN)
    run("notebook:run-cell-and-select-next")
    lab.page.mouse.move(700, 500)
    lab.page.mouse.wheel(0, -9000)
    lab.page.wait_for_function(f"{PLACE} === 0")
    lab.page.wait_for_function(f"!!{NEW}")
    lab.page.wait_for_timeout(500)
    assert lab.page.evaluate(PLACE) == 0, "the reader has gone elsewhere and stays there"
