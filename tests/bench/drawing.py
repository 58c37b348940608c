"""From running a cell to a drawn Explorer, and to its fixes: ``python -m tests.bench.drawing``; with
``--browser``, in a real page too.

The first part is processor time, in one process, of three cells in a shell: 50 operations, and a training step of a
small GPT in which nothing is wrong, and one in which something is. It is split into what is done until the Explorer is
sent: the recording (what the cell takes more than without it), what is carried for later runs, the rules, the pictures,
the stored page, and writing all of it down. Then what the fixes take: processor time of the kernel and of the process
that tries them (they take turns, so on two idle cores this is what is waited for), and the time on the wall; first
without a pause after the extension was loaded, while that process still imports torch. Last what one change of *What
if* takes, until what it changed can be drawn.

``--browser`` measures the budgets in a page of its own (:mod:`tests.bench.pages`), and the time on
the wall in a real JupyterLab. Each figure stands beside its budget; the command ends with 1 where one is exceeded.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.browser.conftest import Lab

OPERATIONS = [line for n in range(1, 10) for line in (f"h = torch.sigmoid(x * {n})", "x = h + x", f"y = x.sum() * {n}")]
LAST = ["x = x - 1", "y = y + x.mean()", "h.mul_(2)", "y.backward()"]
CELL = "\n".join(["x = torch.linspace(0, 1, 6, requires_grad=True)", *OPERATIONS, *LAST])

GPT = (Path(__file__).parent / "gpt.py").read_text(encoding="utf-8")
MADE = """model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids = torch.randint(0, 64, (4, 17))"""
STEP = """optimizer.zero_grad()
logits = model(ids[:, :-1])
loss = F.cross_entropy(logits.reshape(-1, 64), ids[:, 1:].reshape(-1))
loss.backward()
optimizer.step()"""
AGAIN = STEP.replace("backward()", "backward(retain_graph=True)") + "\nloss.backward()"
#: What is run before the measured cell, and the processor time within which the cell must be drawn.
CELLS: dict[str, tuple[tuple[str, ...], str, float]] = {
    "50 operations": (("import torch",), CELL, 0.3),
    "a step of a GPT, nothing wrong": ((GPT, MADE), STEP, 0.5),
    "a step of a GPT, something wrong": ((GPT, MADE), AGAIN, 0.5),
}
FIXES = 2.5
"""For all fixes, and for a change of What if."""
PAGE = 0.3
"""For the cell of 50 operations in a real JupyterLab, from the command to the first frame that shows all of it."""


class Clock:
    """Adds up the processor time of some functions while others call them."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    @contextlib.contextmanager
    def reading(self, parts: dict[str, tuple[tuple[Any, str], ...]]) -> Iterator[None]:
        kept = [(place, name, getattr(place, name)) for functions in parts.values() for place, name in functions]
        for part, functions in parts.items():
            for place, name in functions:
                setattr(place, name, self._timed(part, getattr(place, name)))
        try:
            yield
        finally:
            for place, name, function in kept:
                setattr(place, name, function)

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[part] += time.process_time() - started

        return timed


def in_a_shell(rounds: int, cells: Iterable[str] = CELLS) -> int:
    """Print what each of the ``cells`` takes, the best of ``rounds``; returns how many budgets were exceeded."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell

    torch.set_num_threads(1)
    shell = InteractiveShell.instance()
    shown: list[Any] = []
    import IPython.display

    IPython.display.display = lambda *objects, **_: shown.extend(one._repr_mimebundle_() and one for one in objects)  # type: ignore[assignment]
    shell.run_line_magic("load_ext", "pitfall_lab")
    exceeded = 0
    for title in cells:
        before, cell, budget = CELLS[title]
        first, *runs = [measured(shell, shown, before, cell) for _ in range(rounds + 1)]
        best = min(runs, key=lambda run: run["drawn"])
        over = "" if best["drawn"] <= budget else "   over"
        exceeded += (best["drawn"] > budget) + (best["trials"] > 0 and best["work"] > FIXES)
        exceeded += best.get("what if", 0.0) > FIXES
        print(
            f"{title}: {best.pop('calls'):.0f} calls; drawn after {best.pop('drawn'):.2f} s of processor time "
            f"(budget {budget:g}){over}"
        )
        wall, work, trials = best.pop("fixes"), best.pop("work"), best.pop("trials")
        asked = best.pop("what if", None)
        print("   " + ", ".join(f"{part} {seconds:.3f}" for part, seconds in best.items()))
        if trials:
            over = "" if work <= FIXES else "   over"
            print(
                f"   {trials:.0f} trials of fixes: {work:.2f} s of processor time (budget {FIXES:g}), "
                f"{wall:.2f} s on the wall{over}"
            )
            print(f"   the first time: {first['fixes']:.2f} s on the wall")
        if asked is not None:
            over = "" if asked <= FIXES else "   over"
            print(f"   a change of What if: {asked:.2f} s of processor time (budget {FIXES:g}){over}")
    return exceeded


def measured(shell: Any, shown: list[Any], before: tuple[str, ...], cell: str) -> dict[str, float]:
    """One look at a cell: the seconds of each part."""
    from pitfall_lab import rules, views
    from pitfall_lab.notebook import cell_program
    from pitfall_lab.trace import Trace
    from pitfall_lab.verify import Session
    from pitfall_lab.widgets import explorer

    def run(text: str, **more: Any) -> float:
        started = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            shell.run_cell(text, store_history=True, **more)
        return time.process_time() - started

    for each in before:
        run(each)
    plain = run(cell)
    for each in before:
        run(each)
    later: list[Callable[[], None]] = []
    behind, explorer.Explorer._behind = explorer.Explorer._behind, staticmethod(later.append)  # type: ignore[method-assign, assignment]
    clock = Clock()
    parts: dict[str, tuple[tuple[Any, str], ...]] = {
        "carrying": ((cell_program, "program"),),
        "reading the record": ((Session, "finish"),),
        "rules": ((rules, "find"), (explorer, "changes")),
        "scene": ((explorer, "_gathered"), (views, "scene")),
        "stored page": ((views, "page"), (views, "text")),
        "writing": ((Trace, "to_json"), (explorer, "deflated")),
    }
    with clock.reading(parts):
        drawn = run(f"%%pitfall\n{cell}", cell_id="bench") - plain
    explorer.Explorer._behind = staticmethod(behind)  # type: ignore[method-assign]
    look = shown[-1]
    spent = {"recording": drawn - sum(clock.spent.values()), **clock.spent}
    started, used, tells = time.perf_counter(), _worked(), []
    look.observe(tells.append, "_tried")
    for work in later:
        work()
    fixes = {"fixes": time.perf_counter() - started, "work": _worked() - used, "trials": len(tells)}
    if change := next(iter(look._changes.values()), None):
        answers: list[dict[str, Any]] = []
        look.send = lambda content, buffers=(): answers.append(content)
        used = _worked()
        look._what_if(change)
        fixes["what if"] = _worked() - used
        assert "compared" in answers[0], answers
    return {"calls": look.trace.calls, "drawn": drawn, **spent, **fixes}


def _worked() -> float:
    """Processor time in seconds of this process and of the one that tries fixes, with its forks that have ended."""
    from pitfall_lab.notebook.fix_runs import bench

    worker = bench().shop()._worker
    stat = Path(f"/proc/{worker.pid}/stat") if worker is not None else None
    ticks = (
        stat.read_text(encoding="ascii").rpartition(")")[2].split()[11:15] if stat is not None and stat.exists() else []
    )
    return time.process_time() + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


# Measured in the page: from the command to the first frame in which the picture and the code are there;
# beside it, the kernel's answer.
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
}"""  # noqa: E501


def measure(lab: Lab, rounds: int) -> float:
    """Print how long a cell takes until it is drawn; returns that, in s on the wall."""
    lab.open(lab.server.write("bench.ipynb", "%load_ext pitfall_lab\nimport torch", f"%%pitfall\n{CELL}"))
    lab.run_cell(0)
    first, *later = [lab.page.evaluate(RUN_AND_WAIT, 1) for _ in range(rounds + 1)]
    counted = lab.cell(1).locator(".pl-agree").first.inner_text()
    print(f"a cell of {len(CELL.splitlines())} lines; {counted.splitlines()[-1]}")
    print(f"drawn after {first[0] / 1000:.2f} s the first time (kernel's answer after {first[1] / 1000:.2f} s)")
    drawn, answered = (statistics.median(values) / 1000 for values in zip(*later, strict=True))
    print(
        f"drawn after {drawn:.2f} s afterwards, median of {rounds} (budget {PAGE:g}; kernel's answer after "
        f"{answered:.2f} s){'' if drawn <= PAGE else '   over'}"
    )
    return drawn


def in_a_page(rounds: int) -> int:
    """Print what the page takes; returns how many budgets were exceeded."""
    from tests.bench import pages
    from tests.browser.conftest import launch, serve, visit

    figures = pages.measure(rounds)
    print(*figures, sep="\n", flush=True)
    exceeded = sum(figure.value > figure.budget for figure in figures)
    with tempfile.TemporaryDirectory() as place, launch() as chromium:
        home, folder = Path(place) / "home", Path(place) / "learner"
        home.mkdir()
        folder.mkdir()
        with serve(home, folder) as server, visit(chromium, server) as lab:
            exceeded += measure(lab, rounds) > PAGE
            assert lab.console == []
    return exceeded


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--short", action="store_true", help="only the first cell, once")
    options = parser.parse_args()
    exceeded = in_a_shell(1, list(CELLS)[:1]) if options.short else in_a_shell(options.rounds)
    if options.browser:
        exceeded += in_a_page(options.rounds)
    raise SystemExit(exceeded > 0)


if __name__ == "__main__":
    main()
