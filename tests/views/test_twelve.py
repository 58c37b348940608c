"""One of the twelve programs of :mod:`tests.views.twelve` each day, with the fixes that hold for it; the command takes
them all.
"""

from __future__ import annotations

import pytest

from tests.turns import todays
from tests.views.twelve import LOOKS, NARROW, SEEN, missing, recorded, shown

# What a notebook answers: there is a cell, and it was edited.
CELL = "addEventListener('pitfall-lab-cell', ({detail}) => { detail.done = true; })"


@pytest.mark.parametrize("name", todays(SEEN, of=len(SEEN)))
def test_the_first_screen_names_the_tensor_and_the_lines_and_has_what_helps(stage, name):
    state = recorded(name)
    for width, height, theme in LOOKS:
        root = shown(stage, state, width, height, theme)
        lacking = missing(root, name, height)
        assert lacking == [] or width == NARROW, (width, theme)
        fix = root.locator(".pl-fix").first
        assert "verified by a run" in fix.inner_text()
        copy = fix.locator("[data-do=copy]").bounding_box()
        assert copy["y"] + copy["height"] <= height or width == NARROW, (width, theme, copy)
    root = shown(stage, state, 1280, 800, "light")
    stage.page.evaluate(CELL)
    for _ in range(2):
        root.locator("[data-key=t]").click()  # drawn anew, it sees the cell
    for action in ("apply", "undo"):
        button = root.locator(f".pl-fix [data-do={action}]").first
        box = button.bounding_box()
        assert box["y"] + box["height"] <= 800, action
        button.click()


def test_the_code_opens_on_the_line_with_what_is_said_about_it(stage):
    root = shown(stage, recorded("contrastive", fixes=False), 1280, 800, "light")
    places = "one => [one, one.closest('.pl-code')].map((box) => box.getBoundingClientRect().toJSON())"
    note, code = root.locator(".pl-note").filter(has_text="the memory of self.queue is written here").evaluate(places)
    assert code["top"] <= note["top"] < note["bottom"] <= code["bottom"]


#: Lines that made the guilty value, between those that the finding marks.
MADE = {
    "gan": (40, 74, 78, 81),
    "contrastive": (39, 48, 51),
    "lstm": (29, 50, 51, 52),
    "vae": (19, 22, 51),
    "ppo": (71, 82, 86),
}


@pytest.mark.parametrize("name", MADE)
def test_the_lines_that_make_the_values_of_the_finding_are_never_folded(stage, name):
    root = shown(stage, recorded(name, fixes=False), 1280, 800, "light")
    assert root.locator(".pl-fold").count(), "other lines are"
    for line in MADE[name]:
        assert root.locator(f".pl-code [data-line='{line}']").is_visible(), line
