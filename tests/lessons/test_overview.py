"""The progress is shown chapter by chapter, escaped, and whatever state its file is in."""

from __future__ import annotations

from pathlib import Path

import pitfall_lab
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.overview import Overview
from pitfall_lab.lessons.progress import NAME, Entry, keep


def test_nothing_done_yet_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    shown = pitfall_lab.progress(tmp_path)
    assert isinstance(shown, Overview)
    assert "Nothing has been answered yet." in str(shown)
    assert all(row.solved == 0 and row.exercises for row in shown.rows)
    assert sum(row.exercises for row in shown.rows) == len(exercises())
    assert list(tmp_path.iterdir()) == []


def test_exercises_and_questions_are_counted_once_each_by_their_best_answer(tmp_path: Path) -> None:
    for held in (1, 4, 2):
        keep(Entry("05", "5.1", "exercise", held, 4), tmp_path)
    keep(Entry("05", "5.2", "exercise", 5, 6), tmp_path)
    keep(Entry("05", "q-1", "question", 0, 2, ("detach_copies", "views_copy", "no_such_belief")), tmp_path)
    keep(Entry("05", "q-1", "question", 2, 2), tmp_path)
    keep(Entry("05", "q-2", "question", 0, 2, ("detach_copies",)), tmp_path)
    keep(Entry("", "q-3", "question", 1, 1), tmp_path)
    shown = pitfall_lab.progress(tmp_path)
    five = next(row for row in shown.rows if row.number == "05")
    assert (five.solved, five.right, five.answered) == (1, 1, 2)
    assert shown.beliefs == (("detach_copies", 2), ("views_copy", 1))
    assert "I think detach() gives me a copy. (2×)" in str(shown)
    assert [(row.right, row.answered) for row in shown.rows if not row.number] == [(1, 1)]
    chinese = pitfall_lab.progress(tmp_path, "zh")._repr_mimebundle_()
    assert "我以为 detach() 会给我一份副本。" in chinese["text/html"]
    assert "你的进度" in chinese["text/plain"]


def test_a_file_that_is_not_ours_is_said_to_be_so_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("<script>alert(1)</script>", "utf-8")
    shown = pitfall_lab.progress(tmp_path)._repr_mimebundle_()
    assert "left as it is" in shown["text/plain"]
    assert "<script" not in shown["text/html"]
    assert (tmp_path / NAME).read_text("utf-8") == "<script>alert(1)</script>"


def test_torn_lines_are_counted(tmp_path: Path) -> None:
    keep(Entry("05", "5.1", "exercise", 4, 4), tmp_path)
    with (tmp_path / NAME).open("a") as file:
        file.write('{"chapter": "05"\n')
    assert "1 lines of the file could not be read." in str(pitfall_lab.progress(tmp_path))
