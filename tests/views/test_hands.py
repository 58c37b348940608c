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
    outside = ["blocks.0", "TanhBackward0", "blocks.1", "TanhBackward0", "blocks.2", "TanhBackward0", "head", "MulBackward0"]
    assert sorted(titles(panel)) == sorted([*outside, "PowBackward0", "MeanBackward0"])
    panel.locator(".v-card", has_text="blocks.1").press("Enter")
    assert {"blocks.0", "blocks.1.ln", "blocks.1.mlp", "MulBackward0", "AddBackward0"} <= set(titles(panel))
    assert trail(panel).all_inner_texts() == ["model", "blocks.1"]
    assert trail(panel).last.evaluate("one => one.getRootNode().activeElement === one"), "the focus is where the reader went"
    panel.locator(".v-card", has_text="blocks.1.mlp").click()
    assert {"blocks.1.mlp.0", "ReluBackward0", "blocks.1.mlp.2"} <= set(titles(panel))
    panel.locator(".v-card", has_text="blocks.0").press(" ")
    assert trail(panel).all_inner_texts() == ["model", "blocks.0"]
    assert "blocks.1" in titles(panel)
    trail(panel).first.press("Enter")
    assert {"blocks.0", "blocks.1", "blocks.2"} <= set(titles(panel))


def test_a_closed_box_is_marked_while_something_inside_it_runs(stage, net):
    root = stage.show(net)
    panel = root.locator(".pl-p-graph")
    root.locator("input[type=range]").focus()
    assert panel.locator(".v-card.v-now").count() == 1
    assert panel.locator(".v-card.v-now .v-b").text_content() == "blocks.0", "the last node of backward is a leaf's, inside"
    flows = panel.locator(".v-back").evaluate_all("all => all.filter((one) => getComputedStyle(one).visibility === 'visible').length")
    assert flows >= 9, "gradients flow between the boxes as well"
