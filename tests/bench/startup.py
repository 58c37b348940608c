"""What the extension adds to the start of JupyterLab: ``python -m tests.bench.startup [pairs]`` prints the table.

One server and one browser; each pair is a page with the extension and one that was not given it, in turns.
"processor" is the time that the page's main thread worked, "restored" the time on the clock until the workspace
stood. A notebook is open in each.
"""

from __future__ import annotations

import html
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Route

from tests.browser.conftest import Server, launch, serve, visit

OURS = "pitfall-lab"
BUDGET = 100
CONFIG = re.compile(r'(<script id="jupyter-config-data" type="application/json">)(.*?)(</script>)', re.DOTALL)


def without(route: Route) -> None:
    """JupyterLab's page as it would be if the extension were not installed."""
    answer = route.fetch()
    begin, config, end = CONFIG.search(answer.text()).groups()
    read = json.loads(html.unescape(config))
    kept = [each for each in read["federated_extensions"] if each["name"] != OURS]
    assert len(kept) == len(read["federated_extensions"]) - 1, "the extension was there to be left out"
    page = answer.text().replace(begin + config + end, begin + json.dumps({**read, "federated_extensions": kept}) + end)
    route.fulfill(response=answer, body=page)


def started(browser: Browser, server: Server, notebook: str, *, ours: bool) -> tuple[float, float]:
    """Milliseconds of the main thread, and on the clock, until the page's workspace stood."""
    with visit(browser, server) as lab:
        if not ours:
            lab.page.route("**/lab/tree/**", without)
        metrics = lab.page.context.new_cdp_session(lab.page)
        metrics.send("Performance.enable")
        lab.page.goto(server.address(notebook), wait_until="commit")
        lab.page.wait_for_function("window.jupyterapp?.restored", polling=5)
        clock = lab.page.evaluate("window.jupyterapp.restored.then(() => performance.now())")
        lab.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        found = {each["name"]: each["value"] for each in metrics.send("Performance.getMetrics")["metrics"]}
        assert lab.page.evaluate("window.jupyterapp.commands.hasCommand('pitfall-lab:explain-cell')") is ours
        lab.page.context.close()  # with the browser's cache: each start is a first one
        return 1000 * found["TaskDuration"], clock


def main(pairs: int) -> bool:
    """Measure and print; whether the extension takes more than its budget of processor time."""
    figures: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as place, launch() as browser:
        home, folder = Path(place) / "home", Path(place) / "learner"
        home.mkdir()
        folder.mkdir()
        with serve(home, folder) as server:
            notebook = server.write("plain.ipynb", "1 + 1")
            for ours in (True, False):  # what the first start of each fills, all later ones have
                started(browser, server, notebook, ours=ours)
            for pair in range(pairs):
                for ours in (True, False) if pair % 2 else (False, True):
                    figures[ours].append(started(browser, server, notebook, ours=ours))
    print(f"{'':22}processor  restored   (median of {pairs}, ms)")
    medians = {ours: [statistics.median(each[at] for each in figures[ours]) for at in (0, 1)] for ours in figures}
    for ours, name in ((False, "without the extension"), (True, "with it")):
        print(f"{name:22}{medians[ours][0]:9.0f}{medians[ours][1]:10.0f}")
    differences = [
        statistics.median(a[at] - b[at] for a, b in zip(figures[True], figures[False], strict=True)) for at in (0, 1)
    ]
    print(f"{'more, pair by pair':22}{differences[0]:9.0f}{differences[1]:10.0f}   (budget: {BUDGET})")
    return differences[0] > BUDGET


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
