"""The Explorer's budgets, and from running a cell of 50 operations to a drawn Explorer: ``python -m tests.bench.drawing``.

The budgets are measured in a page of their own (:mod:`tests.bench.pages`), the rest in a real JupyterLab.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.browser.conftest import Lab, launch, serve, visit

OPERATIONS = [
    line
    for n in range(1, 10)
    for line in (f"h = torch.sigmoid(x * {n})", "x = h + x", f"y = x.sum() * {n}")
]
LAST = ["x = x - 1", "y = y + x.mean()", "h.mul_(2)", "y.backward()"]
CELL = "\n".join(["x = torch.linspace(0, 1, 6, requires_grad=True)", *OPERATIONS, *LAST])

# Measured in the page: from the command to the first frame in which the picture and the code are there; beside it, the kernel's answer.
RUN_AND_WAIT = """async number => {
    const panel = window.jupyterapp.shell.currentWidget;
    panel.content.activeCellIndex = number;
    const area = panel.content.widgets[number].node;
    panel.content.widgets[number].outputArea.model.clear();
    await new Promise(requestAnimationFrame);
    const started = performance.now();
    let answered = 0;
    window.jupyterapp.commands.execute("notebook:run-cell").then(() => { answered = performance.now(); });
    const drawn = () => [...area.querySelectorAll("[data-lm-suppress-shortcuts]")].some(
        host => host.shadowRoot?.querySelector(".pl-picture") && host.shadowRoot.querySelector(".pl-p-code .pl-line"));
    while (!drawn()) {
        if (performance.now() > started + 60000) throw new Error(`not drawn within a minute: ${area.innerText.slice(0, 500)}`);
        await new Promise(requestAnimationFrame);
    }
    await new Promise(requestAnimationFrame);
    const seen = performance.now();
    while (!answered) await new Promise(requestAnimationFrame);
    return [seen - started, answered - started];
}"""


def measure(lab: Lab, rounds: int) -> None:
    lab.open(lab.server.write("bench.ipynb", "%load_ext pitfall_lab\nimport torch", f"%%pitfall\n{CELL}"))
    lab.run_cell(0)
    first, *later = [lab.page.evaluate(RUN_AND_WAIT, 1) for _ in range(rounds + 1)]
    counted = lab.cell(1).locator(".pl-agree").first.inner_text()
    print(f"a cell of {len(CELL.splitlines())} lines; {counted.splitlines()[-1]}")
    print(f"drawn after {first[0] / 1000:.2f} s the first time (kernel's answer after {first[1] / 1000:.2f} s)")
    drawn, answered = (statistics.median(values) / 1000 for values in zip(*later, strict=True))
    print(f"drawn after {drawn:.2f} s afterwards, median of {rounds} (kernel's answer after {answered:.2f} s)")


def main(rounds: int) -> None:
    from tests.bench import pages

    for figure in pages.measure(rounds):
        print(figure, flush=True)
    with tempfile.TemporaryDirectory() as place, launch() as chromium:
        home, folder = Path(place) / "home", Path(place) / "learner"
        home.mkdir()
        folder.mkdir()
        with serve(home, folder) as server, visit(chromium, server) as lab:
            measure(lab, rounds)
            assert lab.console == []


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
