"""axe-core finds nothing in the Explorer, in the Question, on the page without a kernel and in the one-line pictures.

The panel is asked in a real JupyterLab, in tests/browser.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pitfall_lab import rules, show_broadcast, show_graph, show_storage, show_versions, views
from pitfall_lab.lessons.claims import ClaimBox, ledger
from pitfall_lab.lessons.question import pose
from pitfall_lab.widgets import claim_widget, question_widget
from tests.frontend.accessibility import COLOURS, violations
from tests.frontend.sample import sample
from tests.frontend.stage import MOUNT, THEMES, Stage, state_of
from tests.views import build

LOOKS = [("light", 1300), ("dark", 1300), ("contrast", 1300), ("light", 360), ("dark", 390)]
LINES = (
    "import torch\n"
    "\n"
    "x = torch.tensor([0.5, -1.0], requires_grad=True)\n"
    "h = torch.sigmoid(x)\n"
    "h.mul_(10)\n"
    "h.sum().backward()\n"
)
GRID = "import torch\n\ngrid = torch.zeros(2, 3)\nrow = grid[0]\nflat = grid.t().reshape(6)\nrow.add_(1)\n"


def test_it_would_find_something(stage: Stage):
    stage.page.set_content(
        '<!doctype html><html lang="en"><title>bad</title><main><h1>Bad</h1><button></button></main>'
    )
    assert violations(stage.page) == ["button-name: <button></button>"]


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_nothing_is_wrong_with_an_explorer(stage: Stage, theme: str, width: int):
    stage.page.set_viewport_size({"width": width, "height": 900})
    states = []
    for trace in (sample(), build.broadcasting()):
        state = state_of(trace, rules.find(trace), step=4)
        scene = {**json.loads(state["_scene"]), "changes": [{"id": "a", "title": {"en": "Try `this`", "zh": "试"}}]}
        states.append({**state, "_scene": json.dumps(scene), "answers": {"a": [{"failed": "no time"}]}})
    root = stage.show(*states, theme=theme)
    rules_there = () if theme == "light" else COLOURS
    for tab in root.locator("[data-tab]:visible").all():
        tab.click()
        assert violations(stage.page, rules=rules_there) == []
    root.locator("[data-change]").click()
    assert violations(stage.page, rules=rules_there) == []


def test_arrow_keys_reach_all_that_scrolls(stage: Stage):
    root = stage.show(state_of(build.overwritten(), step=4))
    root.locator("[data-tab=graph]").click()
    scrolls = "root => [...root.querySelectorAll('.plv, .pl-code')].map((one) => one.getAttribute('aria-label'))"
    here = "root => root.getRootNode().activeElement?.getAttribute('aria-label')"
    root.locator("input[type=range]").focus()
    reached = set()
    for _ in range(root.locator("[tabindex], button, input, summary").count()):
        stage.page.keyboard.press("ArrowDown")
        reached.add(root.evaluate(here))
    assert len(root.evaluate(scrolls)) == 2
    assert set(root.evaluate(scrolls)) <= reached


def test_arrow_keys_pass_nodes_that_do_not_exist_yet(stage: Stage):
    root = stage.show(state_of(build.overwritten(), rules.find(build.overwritten()), step=1))
    root.locator("[data-tab=graph]").click()
    root.locator("[data-key=all]").click()
    hidden = "all => all.filter((one) => getComputedStyle(one).visibility === 'hidden').length"
    assert root.locator(".v-card").evaluate_all(hidden) > 0
    here = (
        "root => (({dataset, className}) => dataset.key ?? className.baseVal ?? '')(root.getRootNode().activeElement)"
    )
    root.locator("[data-key=all]").focus()
    walked = []
    for _ in range(60):
        stage.page.keyboard.press("ArrowDown")
        walked.append(root.evaluate(here))
    assert any("v-card" in one for one in walked), "a node that is there"
    assert walked.count("all") >= 1, "and round again: nowhere it sticks"


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_nothing_is_wrong_with_a_question(stage: Stage, theme: str, width: int):
    stage.page.set_viewport_size({"width": width, "height": 900})
    states = []
    for asked, language in (
        (pose(LINES, "x.grad"), "en"),
        (pose(GRID, "grid", kind="changes"), "zh"),
        (pose(LINES, kind="line"), "en"),
    ):
        asks = {
            "_content": json.dumps(question_widget.content(asked, language)),
            "marks": [],
            "choice": -1,
            "reason": -1,
        }
        wrong = {"marks": sorted(asked.predictions[0].marks), "reason": 0 if asked.reasons else -1}
        states += [
            {**asks, "committed": False, "skipped": False},
            {**asks, **wrong, "committed": True, "skipped": False},
        ]
    dark = (
        ""
        if theme == "light"
        else "--jp-content-font-color1:#fff;--jp-content-font-color2:#bbb;--jp-layout-color2:#222;"
    )
    body = f'<body style="margin:12px;{dark}{THEMES[theme]}"><main id="notebook"><h1>Notebook</h1></main>'
    stage.page.set_content(f'<!doctype html><html lang="en"><title>stage</title>{body}')
    module = Path(question_widget.__file__).with_name("question.js").read_text(encoding="utf-8")
    stage.page.evaluate(MOUNT, {"code": module, "states": states})
    assert stage.page.locator(".pl-question").count() == 6
    assert violations(stage.page) == []


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_nothing_is_wrong_with_a_claim(stage: Stage, theme: str, width: int):
    stage.page.set_viewport_size({"width": width, "height": 900})
    boxes = [ClaimBox(ledger()[key]) for key in ("s1-2-h", "s1-2-b")]
    one, two = (json.dumps(claim_widget.content(some)) for some in (boxes[:1], boxes))
    decided = {"s1-2-h": "right"}
    looks = [(one, {}, 0), (one, decided, 0), (two, {}, 0), (two, decided, 0), (two, decided, 2)]
    dark = (
        ""
        if theme == "light"
        else "--jp-content-font-color1:#fff;--jp-content-font-color2:#bbb;--jp-layout-color2:#222;"
    )
    body = f'<body style="margin:12px;{dark}{THEMES[theme]}"><main id="notebook"><h1>Notebook</h1></main>'
    stage.page.set_content(f'<!doctype html><html lang="en"><title>stage</title>{body}')
    module = Path(claim_widget.__file__).with_name("claim.js").read_text(encoding="utf-8")
    stage.page.evaluate(
        MOUNT, {"code": module, "states": [{"_content": c, "decisions": d, "at": at} for c, d, at in looks]}
    )
    assert stage.page.locator(".pl-decide").count() == 5
    assert violations(stage.page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_with_pages_and_pictures(stage: Stage, scheme: str):
    x = torch.ones(3, requires_grad=True)
    h = x.exp()
    pictures = [
        show_storage(x, x[1:]),
        show_graph((h * x).sum()),
        show_broadcast((3,), (3, 1)),
        show_versions(x, x.data),
    ]
    stage.page.emulate_media(color_scheme=scheme)
    body = views.fragment(sample()) + "".join(picture.html for picture in pictures)
    style = "<style>:root{color-scheme:light dark;background:Canvas;color:CanvasText}</style>"
    stage.page.set_content(f'<!doctype html><html lang="en"><title>page</title>{style}<main><h1>Page</h1>{body}</main>')
    assert violations(stage.page) == []
