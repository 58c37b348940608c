"""The Explorer's budgets, measured in a real Chromium without a server: ``python -m tests.bench.pages``.

Times are those of the page's main thread, as Chromium counts them: what other programs of the machine take
meanwhile does not count. "First paint" ends with the frame after the one in which everything stands; beside it,
what a clock on the wall said.
"""

from __future__ import annotations

import base64
import json
import statistics
import sys
from dataclasses import dataclass
from typing import Any

import pitfall_lab
from pitfall_lab.trace import Trace
from pitfall_lab.widgets import Explorer
from tests.bench.drawing import CELL
from tests.frontend.stage import MODULE, Stage, browser, staged
from tests.views import build

STAMPS = json.loads((MODULE.parent / "build.json").read_text(encoding="utf-8"))
CASES = {
    "a cell of 50 operations": lambda: pitfall_lab.record(f"import torch\n{CELL}"),
    "500": lambda: build.chain(500),
    "10,000": lambda: build.chain(10_000),
}

# From the moment the widget has its data to the frame after the one in which everything stands.
PAINT = """async ({code, states}) => {
  const module = await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  const unpack = (text) => new DataView(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);
  for (const state of states) {
    for (const name of ["_trace", "_scene"]) if (typeof state[name] === "string") state[name] = unpack(state[name]);
  }
  document.body.replaceChildren();
  const started = performance.now();
  window.hosts = [];
  for (const state of states) {
    const el = document.createElement("div");
    document.body.append(el);
    window.hosts.push(el);
    module.default.render({el, model: {get: (name) => state[name], set() {}, save_changes() {}, on() {}, off() {}}});
  }
  const drawn = (el) => el.shadowRoot?.querySelector(".pl-count")?.textContent;
  while (!window.hosts.every(drawn)) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - started;
}"""

STEP = """async () => {
  window.hosts[0].shadowRoot.querySelector('[data-key="ArrowLeft"]').click();
  await new Promise(requestAnimationFrame);
}"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number beside what it may be."""

    name: str
    value: float
    budget: float
    unit: str

    def __str__(self) -> str:
        over = "" if self.value <= self.budget else "   over"
        return f"{self.name:<58} {self.value:>9,.1f} {self.unit:<5} (budget {self.budget:,.0f}){over}"


def sent(trace: Trace) -> dict[str, Any]:
    state = Explorer(trace).get_state()
    packed = {name: base64.b64encode(state[name]).decode() for name in ("_trace", "_scene")}
    return {**packed, "step": state["step"], "focus": state["focus"], "language": "en"}


class Clock:
    """The main thread's own time, in ms."""

    def __init__(self, stage: Stage) -> None:
        self._session = stage.page.context.new_cdp_session(stage.page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self, name: str) -> float:
        """``ScriptDuration``: scripts alone; ``TaskDuration``: style, layout and paint too."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(one["value"] for one in metrics if one["name"] == name))


def paint(stage: Stage, states: list[dict[str, Any]]) -> float:
    stage.page.set_content("<!doctype html><title>bench</title><body>")
    return float(stage.page.evaluate(PAINT, {"code": MODULE.read_text(encoding="utf-8"), "states": states}))


def measure(rounds: int) -> list[Figure]:
    """All budgets; the best of ``rounds`` for a paint, the median of the steps."""
    out = [
        Figure("the widget's script, as it is sent with each widget", STAMPS["explorer_bytes"] / 1000, 110, "kB"),
        Figure("the same, minified and unpacked", STAMPS["minified_bytes"] / 1000, 200, "kB"),
        Figure("its style sheet, minified", STAMPS["style_bytes"] / 1000, 32, "kB"),
    ]
    traces = {name: make() for name, make in CASES.items()}
    states = {name: sent(trace) for name, trace in traces.items()}
    small = next(iter(CASES))
    for name, trace in traces.items():
        data = sum(len(base64.b64decode(states[name][part])) for part in ("_trace", "_scene"))
        out.append(Figure(f"message, per operation ({name})", data / len(trace.events), 400, "bytes"))
    with browser() as chromium, staged(chromium, 1200) as stage:
        clock = Clock(stage)

        def painted(data: list[dict[str, Any]], times: int) -> tuple[float, float]:
            found = []
            for _ in range(times):
                before = clock.read("TaskDuration")
                wall = paint(stage, data)
                found.append((clock.read("TaskDuration") - before, wall))
            return min(found)

        taken, wall = painted([states[small]], rounds)
        out.append(Figure(f"first paint ({small}; {wall:,.0f} ms on the wall)", taken, 300, "ms"))
        for name, budget in (("500", 16), ("10,000", 50)):
            paint(stage, [states[name]])
            times = []
            for _ in range(30):
                before = clock.read("ScriptDuration")
                stage.page.evaluate(STEP)
                times.append(clock.read("ScriptDuration") - before)
            out.append(
                Figure(f"a step among {name} operations, script, median of 30", statistics.median(times), budget, "ms")
            )
        taken, wall = painted([states[small]] * 20, 1)
        out.append(Figure(f"20 Explorers on one page ({wall:,.0f} ms on the wall)", taken, 3000, "ms"))
    return out


if __name__ == "__main__":
    for figure in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        print(figure)
