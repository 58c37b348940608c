"""Takes the README's picture anew: ``python -m tests.docs.picture``. A cell of the tour, run in real JupyterLab."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.browser.conftest import launch, serve, visit

ROOT = Path(__file__).resolve().parent.parent.parent
CELL = """%%pitfall
import torch

x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
h = torch.sigmoid(x)
gate = h * 2
h.mul_(10)
loss = (gate + h).sum()
loss.backward()"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place, launch() as chromium:
        home, folder = Path(place) / "home", Path(place) / "learner"
        home.mkdir()
        folder.mkdir()
        with serve(home, folder) as server, visit(chromium, server) as lab:
            lab.page.set_viewport_size({"width": 1280, "height": 2800})
            lab.open(server.write("tour.ipynb", "%load_ext pitfall_lab", CELL))
            lab.run_cell(0)
            lab.run_cell(1)
            root = lab.cell(1).locator(".jp-OutputArea .pl-root")
            root.locator(".pl-p-code .pl-line").first.wait_for()
            root.locator("[data-do=apply]").first.wait_for(timeout=60_000)  # the fixes are tried after it is drawn
            lab.page.evaluate("document.activeElement.blur()")
            lab.page.mouse.move(0, 0)
            root.scroll_into_view_if_needed()
            lab.page.wait_for_timeout(500)
            target = ROOT / "pitfall_lab" / "docs" / "explorer.png"
            target.parent.mkdir(exist_ok=True)
            root.screenshot(path=target)
            print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
