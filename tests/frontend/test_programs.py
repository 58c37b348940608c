"""The programs of the tests in the Explorer, in turns: drawn, walked from end to end in both
languages, with a silent console.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pitfall_lab
from pitfall_lab import rules
from tests.corpus import PROGRAMS
from tests.frontend.stage import Stage, state_of
from tests.turns import todays

# More steps than these are walked in leaps: the same renderers run, in a hundredth of the time.
WALKED = 25


@pytest.mark.parametrize("program", todays(PROGRAMS, of=10), ids=lambda path: path.stem)
def test_it_is_drawn_and_walked(stage: Stage, program: Path):
    trace = pitfall_lab.record(program.read_text(encoding="utf-8"), program.name)
    last = len(trace.events) - 1
    state = state_of(trace, rules.find(trace))
    root = stage.show(state)
    failed = stage.page.evaluate(
        """([last, leap]) => {
          const root = document.querySelector(".explorer").shadowRoot;
          const failed = [];
          const sorry = (step) => {
            for (const one of root.querySelectorAll(".pl-nothing, .pl-empties")) {
              if (/could not be drawn|无法绘制/.test(one.textContent)) failed.push(`${step}: ${one.textContent}`);
            }
          };
          for (const language of ["en", "zh"]) {
            window.widgets[0].set("language", language);
            for (let step = -1; step <= last; step += leap) {
              window.widgets[0].set("step", step);
              const text = root.querySelector(".pl-sentence").textContent;
              if (!text.trim()) failed.push(`${step}: nothing is said`);
              sorry(step);
            }
          }
          return failed;
        }""",
        [last, max(1, last // WALKED)],
    )
    assert failed == []
    assert root.locator(".pl-outcome").count() == 1
    stage.page.evaluate(
        "last => { window.widgets[0].set('language', 'en'); window.widgets[0].set('step', last); }", last
    )
    assert root.locator(".pl-count").inner_text() == f"{last + 1} / {last + 1}"
    assert stage.page.evaluate(SPILLED) == []


# In a notebook beside an open file browser there are some 820 pixels. What leaves its card lies over
# its neighbour, or is cut off.
SPILLED = """() => {
  const host = document.querySelector(".explorer");
  const spilled = [];
  for (const width of [1240, 820, 420]) {
    host.style.width = `${width}px`;
    for (const card of host.shadowRoot.querySelectorAll(".pl-story button, .pl-way button")) {
      const edge = card.getBoundingClientRect().right + 0.5;
      const out = [...card.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > edge);
      if (out.length) spilled.push(`${width}: ${out.at(-1).textContent}`);
    }
  }
  host.style.width = "";
  return spilled;
}"""
