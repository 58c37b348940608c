"""What a reader can change in a picture by hand: modules that open, in a real Chromium, by mouse and by keyboard."""

from __future__ import annotations

import pytest

import pitfall_lab
from tests.frontend.stage import state_of
from tests.views.test_modules import BLOCK, HEAD, RUN


@pytest.fixture(scope="module")
def net():
    trace = pitfall_lab.trace(HEAD + BLOCK + RUN)
    return state_of(trace, step=len(trace.events) - 1)


def titles(panel):
    return panel.locator(".v-card:visible").evaluate_all("all => all.map((one) => one.querySelector('.v-b').textContent)")


def trail(panel):
    return panel.get_by_role("group", name="open modules").get_by_role("button")


def test_modules_open_by_key_and_by_click_one_in_another_and_close_again(stage, net):
    panel = stage.show(net).locator(".pl-p-graph")
    assert {"blocks", "head", "PowBackward0", "MeanBackward0"} == set(titles(panel))
    panel.locator(".v-card", has_text="blocks").press("Enter")
    assert {"blocks.0", "blocks.1", "blocks.2", "head"} <= set(titles(panel))
    assert trail(panel).all_inner_texts() == ["model", "blocks"]
    assert trail(panel).last.evaluate("one => one.getRootNode().activeElement === one"), "the focus is where the reader went"
    panel.locator(".v-card", has_text="blocks.1").click()
    assert {"blocks.0", "blocks.1.ln", "blocks.1.mlp", "MulBackward0", "AddBackward0"} <= set(titles(panel))
    panel.locator(".v-card", has_text="blocks.1.mlp").press(" ")
    assert {"blocks.1.mlp.0", "ReluBackward0", "blocks.1.mlp.2"} <= set(titles(panel))
    trail(panel).nth(1).click()
    assert "blocks.1" in titles(panel)
    trail(panel).first.press("Enter")
    assert "blocks" in titles(panel)


def test_a_closed_box_is_marked_while_something_inside_it_runs(stage, net):
    root = stage.show(net)
    panel = root.locator(".pl-p-graph")
    root.locator("input[type=range]").focus()
    assert panel.locator(".v-card.v-now").count() == 1
    assert panel.locator(".v-card.v-now .v-b").text_content() == "blocks", "the last node of backward is a leaf's, inside"
    assert panel.locator(".v-back:visible").count() >= 3, "gradients flow between the boxes as well"
