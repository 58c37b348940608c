"""The progress file: nothing is lost, nothing is overwritten, two writers do not disturb each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pitfall_lab.lessons.progress import NAME, Entry, ProgressError, keep, load

WRITER = """
import sys
from pitfall_lab.lessons.progress import Entry, keep
folder, chapter = sys.argv[1:]
for n in range(60):
    keep(Entry(chapter, f"{chapter}.{n}", "exercise", n % 3, 3, ("detach-copies",) * (n % 2)), folder)
"""


def test_what_is_kept_is_read_again_in_order(tmp_path: Path) -> None:
    assert load(tmp_path).entries == ()
    for held in (1, 3, 2):
        assert keep(Entry("12", "12.1", "exercise", held, 3), tmp_path) is None
    keep(Entry("05", "05.1", "question", 0, 1, ("detach-copies",)), tmp_path)
    progress = load(tmp_path)
    assert [e.held for e in progress.entries] == [1, 3, 2, 0]
    assert all(e.at.endswith("+00:00") for e in progress.entries)
    assert progress.best()["12", "12.1"].solved
    assert not progress.best()["05", "05.1"].solved
    assert progress.beliefs() == {"detach-copies": 1}


def test_several_notebooks_may_write_at_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), chapter]) for chapter in ("01", "02", "03")
    ]
    assert [w.wait() for w in writers] == [0, 0, 0]
    progress = load(tmp_path)
    assert progress.torn == 0
    assert len(progress.entries) == 180
    for chapter in ("01", "02", "03"):
        assert [e.item for e in progress.entries if e.chapter == chapter] == [f"{chapter}.{n}" for n in range(60)]


def test_a_writer_that_is_killed_loses_its_own_line_at_most(tmp_path: Path) -> None:
    keep(Entry("01", "01.1", "claim", 1, 1), tmp_path)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"chapter": "01", "it')  # what a crash in the middle of a write leaves
    keep(Entry("01", "01.2", "claim", 1, 1), tmp_path)
    progress = load(tmp_path)
    assert [e.item for e in progress.entries] == ["01.1", "01.2"]
    assert progress.torn == 1
    assert b'{"chapter": "01", "it\n' in (tmp_path / NAME).read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"not ours\n",
        b"\xff\xfe\x00",
        b"[]\n",
        b'{"pitfall_lab_progress": "one"}\n',
        b'{"pitfall_lab_progress": 0}\n',
        b"[" * 5000,
        b"\n",
    ],
)
def test_a_damaged_file_is_set_aside_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(ProgressError, match="left as it is"):
        load(tmp_path)
    assert path.read_bytes() == content
    aside = keep(Entry("01", "01.1", "claim", 1, 1), tmp_path)
    assert aside is not None
    assert aside.read_bytes() == content
    assert len(load(tmp_path).entries) == 1
    path.write_bytes(content)
    assert keep(Entry("01", "01.1", "claim", 1, 1), tmp_path) not in {None, aside}


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text('{"pitfall_lab_progress": 99}\n{"anything": 1}\n')
    for act in (lambda: load(tmp_path), lambda: keep(Entry("01", "01.1", "claim", 1, 1), tmp_path)):
        with pytest.raises(ProgressError, match="later version"):
            act()
    assert path.read_text() == '{"pitfall_lab_progress": 99}\n{"anything": 1}\n'


@pytest.mark.parametrize(
    "change",
    [
        {"held": 4},
        {"held": -1},
        {"held": "1"},
        {"kind": "other"},
        {"beliefs": [1]},
        {"chapter": None},
        {"item": ["<script>"]},
    ],
)
def test_a_line_that_is_no_entry_is_counted_and_skipped(tmp_path: Path, change: dict) -> None:
    keep(Entry("01", "01.1", "claim", 1, 3), tmp_path)
    values = {"chapter": "01", "item": "01.2", "kind": "claim", "held": 1, "total": 3} | change
    with (tmp_path / NAME).open("a") as file:
        file.write(json.dumps(values) + "\n")
    assert load(tmp_path).torn == 1
    assert len(load(tmp_path).entries) == 1


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    with pytest.raises(ProgressError, match="cannot be kept"):
        keep(Entry("01", "01.1", "claim", 1, 1), missing)
    (tmp_path / NAME).mkdir()
    with pytest.raises(ProgressError, match="cannot be read"):
        load(tmp_path)


def test_no_file_stays_open(tmp_path: Path) -> None:
    lowest = os.dup(0)
    os.close(lowest)
    for _ in range(5):
        keep(Entry("01", "01.1", "claim", 1, 1), tmp_path)
    now = os.dup(0)
    os.close(now)
    assert now == lowest
