"""Run chapters in a real JupyterLab and take pictures of their widgets, for people to look at.

``python -m tests.notebooks.pictures [NUMBER ...] [--narrow NUMBER ...]`` opens each notebook (default: all), runs it from top to bottom and
writes ``tests/screenshots/chapters/12-light-explorer-errors-central-run.png`` and so on: the first cell of every kind (Explorer, question,
play, view, claim, figure, finding, exercise) in the light theme and the dark one, and with ``--narrow`` once more in a window 480 pixels wide.
What a program can see is printed, and makes the exit code 1: a cell that failed, a widget that did not draw, text that stands out of its
output, words in the browser's console, and requests that leave the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.browser.conftest import SCREENSHOTS, Lab, launch, serve, visit
from tests.notebooks.books import ANNOUNCED, NAMES, read, tags

FOLDER = SCREENSHOTS / "chapters"
WIDE, NARROW = {"width": 1280, "height": 3200}, {"width": 480, "height": 3200}
KINDS = {
    "explorer": "%%pitfall", "question": "pitfall_lab.question(", "play": "pitfall_lab.play(", "view": "pitfall_lab.show_",
    "claim": "pitfall_lab.claim", "figure": "plt.show()", "finding": "pitfall_lab.check(", "exercise": "%%exercise",
}  # fmt: skip

# What JupyterLab says on a slow machine: its list of cells still grew when it was asked to scroll, or a plugin of its own took seconds.
SLOW = ("did not appear within 10000 ms", "ms to activate.", "too long to activate.")

# What is asked about an output area. A widget lives in a shadow root; its host is the element with one.
LOOK = """area => {
    const wrong = [];
    const text = area.innerText;
    for (const said of ["Error displaying widget", "Loading widget", "Javascript Error", "site-packages/pitfall_lab"])
        if (text.includes(said)) wrong.push(`shows “${said}”`);
    const ours = /pitfall_lab[\\/]\S+\.py:\d+/.exec(text);
    if (ours) wrong.push(`shows a line of ours: “${ours[0]}”`);
    const roots = [area, ...[...area.querySelectorAll("*")].filter(e => e.shadowRoot).map(e => e.shadowRoot)];
    const right = area.getBoundingClientRect().right + 1;
    const scrolls = e => { for (; e; e = e.parentElement ?? e.getRootNode().host) {
        if (e === area) return false;
        if (/auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX)) return true;
    } return false; };
    for (const root of roots) {
        if (root !== area && root.host.getBoundingClientRect().height < 20) wrong.push("a widget of no height");
        for (const e of root.querySelectorAll("p, td, th, button, select, svg, img, pre, h3, h4, li, label")) {
            const box = e.getBoundingClientRect();
            if (!box.width || box.right <= right || scrolls(e.parentElement)) continue;
            wrong.push(`<${e.localName}> “${e.textContent.trim().slice(0, 40)}” stands out by ${Math.round(box.right - right)} px`);
            break;
        }
        for (const img of root.querySelectorAll("img")) if (!img.alt) wrong.push("an image without an alt text");
        for (const svg of root.querySelectorAll("svg"))
            if (!svg.closest("[aria-hidden=true]") && !svg.matches("[aria-label], [aria-labelledby]") && !svg.querySelector("title"))
                wrong.push("a drawing with neither a name nor aria-hidden");
    }
    return [...new Set(wrong)];
}"""


def main(words: list[str]) -> int:
    """Run the chapters; 1 when something was seen that should not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks.pictures", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("numbers", nargs="*", help="chapters, 00 to 19 (default: all)")
    parser.add_argument("--narrow", nargs="*", default=[], metavar="NUMBER", help="chapters to show in a narrow window as well")
    chosen = parser.parse_args(words)
    names = [name for name in NAMES if not chosen.numbers or name[:2] in chosen.numbers]
    seen = 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # see tests/notebooks/books.py
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, launch() as browser:
        (home := Path(scratch, "home")).mkdir()
        (learner := Path(scratch, "learner")).mkdir()
        with serve(home, learner) as server:
            for name in names:
                started = time.monotonic()
                with visit(browser, server) as lab:
                    wrong = list(chapter(lab, name, narrow=name[:2] in chosen.narrow))
                    wrong += [f"console: {line}" for line in lab.console if not any(words in line for words in SLOW)]
                    wrong += [f"request: {url}" for url in lab.blocked]
                print(f"{name}: {time.monotonic() - started:.0f} s, {len(wrong) or 'nothing'} to look into", flush=True)
                print(*(f"    {line}\n" for line in wrong), sep="", end="", flush=True)
                seen += len(wrong)
    print(f"pictures in {FOLDER}")
    return int(seen > 0)


def chapter(lab: Lab, name: str, *, narrow: bool) -> Iterator[str]:
    """Run one chapter, take its pictures, and yield what looks wrong."""
    cells = read(name).cells
    lab.page.set_viewport_size(WIDE)
    lab.open(f"notebooks/{name}")
    lab.command("application:toggle-left-area")
    run_all(lab)
    for number, cell in enumerate(cells):
        if cell.cell_type == "code":
            area, failed = output(lab, number), "error" in outputs(lab, number)
            if failed != (ANNOUNCED in tags(cell)):
                yield f"{cell.id}: {'failed' if failed else 'did not fail'}"
            if area is not None:
                yield from (f"{cell.id}: {line}" for line in area.evaluate(LOOK))
    shown = first_of_each_kind(cells)
    for theme in ("Light", "Dark"):
        lab.theme(f"JupyterLab {theme}")
        for kind, number in shown.items():
            take(lab, number, f"{name[:2]}-{theme.lower()}-{kind}-{cells[number].id}")
    if narrow:
        lab.theme("JupyterLab Light")
        lab.page.set_viewport_size(NARROW)
        for kind, number in shown.items():
            area = output(lab, number)
            if area is not None:
                yield from (f"{cells[number].id}, narrow: {line}" for line in area.evaluate(LOOK))
            take(lab, number, f"{name[:2]}-narrow-{kind}-{cells[number].id}")


def first_of_each_kind(cells: list[Any]) -> dict[str, int]:
    """Return the number of the first code cell of each kind that a chapter has."""
    found: dict[str, int] = {}
    for number, cell in enumerate(cells):
        kind = next((kind for kind, word in KINDS.items() if cell.cell_type == "code" and word in cell.source), None)
        if kind is not None:
            found.setdefault(kind, number)
    return found


def run_all(lab: Lab) -> None:
    """Run all cells and wait until the last has been answered."""
    lab.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    lab.page.wait_for_function(
        """() => {
            const panel = window.jupyterapp.shell.currentWidget;
            const code = panel.content.widgets.filter(w => w.model.type === "code");
            return code.every(w => w.model.executionCount !== null) && panel.sessionContext.session?.kernel?.status === "idle";
        }""",
        timeout=600_000,
    )


def output(lab: Lab, number: int) -> Any:
    """Bring a cell's output into view and return it, drawn; ``None`` when the cell has none."""
    lab.page.evaluate("n => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'start')", number)
    if not outputs(lab, number):
        return None
    area = lab.cell(number).locator(".jp-OutputArea.jp-Cell-outputArea")
    area.locator(".jp-OutputArea-child").first.wait_for()
    lab.page.wait_for_timeout(200)  # widgets draw in the next frames
    return area


def outputs(lab: Lab, number: int) -> list[str]:
    """Return the types of a cell's outputs."""
    ask = "n => window.jupyterapp.shell.currentWidget.content.widgets[n].model.outputs.toJSON().map(o => o.output_type)"
    return list(lab.page.evaluate(ask, number))


def take(lab: Lab, number: int, name: str) -> None:
    """Write one picture of a cell and its output."""
    output(lab, number)
    lab.page.wait_for_timeout(250)
    lab.cell(number).screenshot(path=FOLDER / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
