"""What the views are given to draw is what the snapshot files say, program by program."""

from __future__ import annotations

import pytest

from tests.views import snapshots

REMEDY = "the scene has changed; `python -m tests.views.snapshots` writes the snapshots anew, and their diff shows what changed"


def test_there_are_at_least_forty_and_no_file_is_an_orphan():
    assert len(snapshots.PROGRAMS) >= 40
    assert {path.stem for path in snapshots.FOLDER.glob("*.txt")} == set(snapshots.PROGRAMS), REMEDY


@pytest.mark.parametrize("name", snapshots.PROGRAMS)
def test_the_scene_is_as_it_was(name: str):
    kept = (snapshots.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert snapshots.told(name) == kept, REMEDY
