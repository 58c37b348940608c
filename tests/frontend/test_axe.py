"""axe-core finds nothing in the Explorer, on the page without a kernel and in the one-line pictures.

axe-core comes with the front end's development dependencies (`npm ci` in pitfall_lab/frontend); without them this file is not collected.
"""

from __future__ import annotations

import json

import pytest
import torch

from pitfall_lab import rules, show_broadcast, show_graph, show_storage, show_versions, views
from tests.frontend.sample import sample
from tests.frontend.stage import AXE, Stage, state_of
from tests.views import build

RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.flatMap(
    (one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)}`))"""


def violations(stage: Stage) -> list[str]:
    stage.page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    return stage.page.evaluate(RUN)


@pytest.mark.parametrize(("theme", "width"), [("light", 1300), ("dark", 1300), ("contrast", 1300), ("light", 360)])
def test_nothing_is_wrong_with_an_explorer(stage: Stage, theme: str, width: int):
    stage.page.set_viewport_size({"width": width, "height": 900})
    states = []
    for trace in (sample(), build.chain(30, wide=True), build.broadcasting()):
        state = state_of(trace, rules.find(trace), step=4)
        scene = {**json.loads(state["_scene"]), "changes": [{"id": "a", "title": {"en": "Try `this`", "zh": "试"}}]}
        states.append({**state, "_scene": json.dumps(scene), "answers": {"a": [{"failed": "no time"}]}})
    root = stage.show(*states, theme=theme)
    root.locator("[data-change]").click()
    assert violations(stage) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_with_pages_and_pictures(stage: Stage, scheme: str):
    x = torch.ones(3, requires_grad=True)
    h = x.exp()
    pictures = [show_storage(x, x[1:]), show_graph((h * x).sum()), show_broadcast((3,), (3, 1)), show_versions(x, x.data)]
    stage.page.emulate_media(color_scheme=scheme)
    body = views.fragment(sample()) + "".join(picture.html for picture in pictures)
    style = "<style>:root{color-scheme:light dark;background:Canvas;color:CanvasText}</style>"
    stage.page.set_content(f'<!doctype html><html lang="en"><title>page</title>{style}<main><h1>Page</h1>{body}</main>')
    assert violations(stage) == []
