"""One of the twelve programs of :mod:`tests.views.twelve` in each run; the command takes them
all, in every size and theme.
"""

from __future__ import annotations

from tests.views.twelve import missing, recorded, shown


def test_the_first_screen_names_the_tensor_and_the_lines_that_saved_changed_and_needed_it(stage):
    root = shown(stage, recorded("contrastive", fixes=False), 1280, 800, "light")
    assert missing(root, "contrastive", 800) == []
    places = "one => [one, one.closest('.pl-code')].map((box) => box.getBoundingClientRect().toJSON())"
    note, code = root.locator(".pl-note").filter(has_text="its memory is written here").evaluate(places)
    assert code["top"] <= note["top"] < note["bottom"] <= code["bottom"], (
        "the code opens on the line, with what is said about it"
    )
