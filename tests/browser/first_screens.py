"""Pictures of what a user sees when a cell has run, for people to look at: ``python -m
tests.browser.first_screens PROGRAM.py …``.

Each program is put under ``%%pitfall`` into a notebook of its own in a real JupyterLab, the cell is run, and the window
is scrolled to its Explorer, once the fixes have been tried. ``--to FOLDER`` is where the pictures go, ``--size 1280x800
390x844`` are the windows (the first when none is named), ``--theme Light Dark`` the themes, ``--alone`` shuts the side
bar. Named after their programs, with the size and the theme where these differ from the first. What a program can see
is printed, and makes the exit code 1: text that stands out of the Explorer, what axe-core finds, words in the console,
and requests that leave the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Locator

from tests.browser.conftest import SCREENSHOTS, Lab, launch, serve, visit
from tests.frontend.accessibility import violations
from tests.notebooks.pictures import LOOK, SLOW

THEMES = ("Light", "Dark", "Dark High Contrast")
# Of a phone's width nothing is left beside an open side bar.
NARROW = 700
# Fixes of a training of some seconds, tried on a busy machine, in milliseconds.
TRIED = 300_000


def main(words: list[str]) -> int:
    """Take the pictures; 1 when something was seen that should not be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.first_screens", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, default=SCREENSHOTS / "first", metavar="FOLDER")
    parser.add_argument("--size", nargs="+", default=["1280x800"], metavar="WIDTHxHEIGHT")
    parser.add_argument("--theme", nargs="+", default=["Light"], choices=THEMES)
    parser.add_argument("--alone", action="store_true", help="shut the side bar")
    chosen = parser.parse_args(words)
    chosen.to.mkdir(parents=True, exist_ok=True)
    seen = 0
    with tempfile.TemporaryDirectory() as scratch, launch() as browser:
        (home := Path(scratch, "home")).mkdir()
        (learner := Path(scratch, "learner")).mkdir()
        with serve(home, learner) as server:
            for program in chosen.programs:
                with visit(browser, server) as lab:
                    cell = f"%%pitfall\n{program.read_text(encoding='utf-8')}"
                    lab.server.write(f"{program.stem}.ipynb", "%load_ext pitfall_lab", cell)
                    wrong = list(first_screens(lab, program.stem, chosen))
                    wrong += [f"console: {line}" for line in lab.console if not any(words in line for words in SLOW)]
                    wrong += [f"request: {url}" for url in lab.blocked]
                print(f"{program.stem}: {len(wrong) or 'nothing'} to look into", *wrong, sep="\n    ", flush=True)
                seen += len(wrong)
    print(f"pictures in {chosen.to}")
    return int(seen > 0)


def first_screens(lab: Lab, name: str, chosen: argparse.Namespace) -> Iterator[str]:
    """Run the notebook's program, take a picture for each size and theme, and yield what looks wrong."""
    sizes = [tuple(map(int, size.split("x"))) for size in chosen.size]
    lab.page.set_viewport_size({"width": sizes[0][0], "height": sizes[0][1]})
    lab.open(f"{name}.ipynb")
    if chosen.alone:
        lab.command("application:toggle-left-area")
    lab.run_cell(0)
    lab.run_cell(1, timeout=300)
    root = lab.cell(1).locator(".jp-OutputArea .pl-root")
    root.locator(".pl-message").wait_for()
    root.locator(".pl-trying progress").wait_for(state="detached", timeout=TRIED)
    root.evaluate("element => { element.getRootNode().host.dataset.lookedAt = ''; }")
    for width, height in sizes:
        lab.page.set_viewport_size({"width": width, "height": height})
        if width < NARROW and not chosen.alone:
            lab.command("application:toggle-left-area")
        for theme in chosen.theme:
            lab.theme(f"JupyterLab {theme}")
            scroll(lab, root)
            tail = "".join(
                [
                    f"-{width}" * (width != sizes[0][0]),
                    f"-{theme.lower().replace(' ', '-')}" * (theme != chosen.theme[0]),
                ]
            )
            lab.page.screenshot(path=chosen.to / f"{name}{tail}.png", animations="disabled")
            area = lab.cell(1).locator(".jp-OutputArea.jp-Cell-outputArea")
            yield from (f"{width} {theme}: {line}" for line in area.evaluate(LOOK))
            yield from (f"{width} {theme}: {line}" for line in violations(lab.page, "[data-looked-at]"))


def scroll(lab: Lab, root: Locator) -> None:
    """Bring the Explorer's upper edge to that of the window, and let it come to rest there."""
    root.evaluate("element => element.getRootNode().host.scrollIntoView({ block: 'start', behavior: 'instant' })")
    lab.page.mouse.move(0, 0)
    lab.page.wait_for_timeout(700)
    root.evaluate("element => element.getRootNode().host.scrollIntoView({ block: 'start', behavior: 'instant' })")
    lab.page.wait_for_timeout(300)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
