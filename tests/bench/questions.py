"""How fast a Question answers: every answer of every question of the chapters, in Chromium: ``python -m
tests.bench.questions [CHAPTER]``.

From the commit to the drawn verdict (styles and layout included). ``computed`` is how many wrong answers were computed
for the program: by beliefs and by leaving something out; a question about cells or lines offers all of them besides.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pitfall_lab.widgets.question_widget as widget
from pitfall_lab.lessons.question import Question, pose
from tests.frontend.stage import MOUNT, browser

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
MODULE = Path(widget.__file__).with_name("question.js").read_text(encoding="utf-8")
LIMIT = 150
"""Milliseconds."""
COMMIT = """marks => {
  const root = document.querySelector(".pl-question"), [what, why] = root.querySelectorAll("fieldset");
  marks.forEach((n) => { [...what.querySelectorAll("input")].find((one) => one.value === String(n)).checked = true; });
  if (why) why.querySelector("input").checked = true;
  root.querySelector("form").dispatchEvent(new Event("change"));
  const start = performance.now();
  root.querySelector("form").requestSubmit();
  const height = document.querySelector("[aria-live=polite]").getBoundingClientRect().height;
  return [performance.now() - start, height];
}"""


def questions(chapter: str = "") -> Iterator[tuple[str, Question]]:
    """Yield the questions of the chapters' notebooks by cell."""
    for path in sorted(NOTEBOOKS.glob(f"{chapter}*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and source.startswith("pitfall_lab.question("):
                call: Any = ast.parse(source).body[0]
                named = {word.arg: ast.literal_eval(word.value) for word in call.value.keywords}
                yield f"{path.name[:2]} {cell['id']}", pose(*map(ast.literal_eval, call.value.args), **named)


def main() -> int:
    """Print a line for each question; 1 when an answer took longer than it may."""
    times = []
    with browser() as running:
        page = running.new_page(viewport={"width": 900, "height": 900})
        for name, asked in questions(*sys.argv[1:2]):
            content, took = json.dumps(widget.content(asked, "en")), []
            for marks in [*([n] for n in range(len(asked.choices))), *(sorted(p.marks) for p in asked.predictions)]:
                page.set_content('<main id="notebook"></main>')
                state = {
                    "_content": content,
                    "marks": [],
                    "choice": -1,
                    "reason": -1,
                    "committed": False,
                    "skipped": False,
                }
                page.evaluate(MOUNT, {"code": MODULE, "states": [state]})
                milliseconds, height = page.evaluate(COMMIT, marks)
                assert height > 0, (name, marks)
                took.append(milliseconds)
            times += took
            said = (
                f"{len(asked.choices):2d} choices, {len(asked.predictions)} computed, slowest "
                f"answer {max(took):5.1f} ms"
            )
            print(f"{name:34s} {said}", flush=True)
    print(
        f"{len(times)} answers: median {statistics.median(times):.1f} ms, slowest "
        f"{max(times):.1f} ms (limit {LIMIT} ms)"
    )
    return int(max(times) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
