"""What the views are given to draw is what the snapshot files say, program by program."""

from __future__ import annotations

import pytest

from tests.views import snapshots

REMEDY = (
    "the scene has changed; `python -m tests.views.snapshots` writes the snapshots anew, and their "
    "diff shows what changed"
)


KEPT = sorted(path.stem for path in snapshots.FOLDER.glob("*.txt"))


def test_there_are_at_least_forty_and_no_file_is_an_orphan():
    assert len(KEPT) >= 40
    assert set(KEPT) <= set(snapshots.PROGRAMS), REMEDY


@pytest.mark.parametrize("name", KEPT)
def test_the_scene_is_as_it_was(name: str):
    kept = (snapshots.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert snapshots.told(name) == kept, REMEDY
