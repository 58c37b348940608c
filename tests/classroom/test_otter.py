"""Otter's own `assign` and `run`, where otter-grader is installed; what our master notebooks hold, everywhere.

Otter brings 28 packages (Sphinx and pandas among them), which take some 16 s of a processor to install, so it is not
among what the tests need. Against it: `pip install --target FOLDER otter-grader`, of which the packages that are there
already can be left out, and `PYTHONPATH=FOLDER python -m pytest tests/classroom/test_otter.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from pitfall_lab.classroom import otter
from pitfall_lab.classroom.judge import known
from pitfall_lab.cli import main
from pitfall_lab.lessons.exercises import exercises

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "12-inplace-errors.ipynb"
KEYS = ("12.1", "12.2", "12.3", "12.4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the master notebook of chapter 12."""
    folder = tmp_path_factory.mktemp("otter")
    assert main(["classroom", "init", str(folder), "--chapters", "12", "--exercises-only", "--otter"]) == 0
    return folder


def test_the_master_has_a_question_for_each_exercise_with_as_many_tests_as_there_are_parts_to_earn(
    folder: Path,
) -> None:
    cells = nbformat.read(folder / "pitfalls" / NOTEBOOK, as_version=4).cells
    raw = [cell.source for cell in cells if cell.cell_type == "raw"]
    assert [text.split("name: ")[1] for text in raw if "BEGIN QUESTION" in text] == [
        f"exercise_{key.replace('.', '_')}" for key in KEYS
    ]
    assert raw.count("# BEGIN TESTS") == raw.count("# END TESTS") == len(KEYS)
    for key in KEYS:
        exercise = exercises()[key]
        answer = next(cell.source for cell in cells if cell.source.startswith(f"%%exercise {key}\n"))
        assert exercise.right[0].rstrip() in answer
        assert f"BEGIN PROMPT\n{exercise.given.rstrip()}\n" in answer
        asked = [cell.source for cell in cells if f'earned("{key}", ' in cell.source]
        assert asked[-1].endswith(f"{len(asked)}, {len(asked)})")


def test_a_test_says_why_a_part_was_not_earned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otter, "credit", lambda key, folder: (0.5, ("○ backward runs",)))
    otter.earned("12.2", 2, 4, str(tmp_path))
    with pytest.raises(AssertionError, match="backward runs"):
        otter.earned("12.2", 3, 4, str(tmp_path))


def test_otter_gives_the_points_that_the_grader_gives(folder: Path) -> None:
    pytest.importorskip("otter")
    call(
        folder, "assign", f"pitfalls/{NOTEBOOK}", "dist", "--no-pdfs"
    )  # it grades the solutions, and fails when one does not pass
    student = nbformat.read(folder / "dist" / "student" / NOTEBOOK, as_version=4)
    sources = [cell.source for cell in student.cells]
    for key in KEYS:
        assert f"%%exercise {key}\n{exercises()[key].given.rstrip()}" in sources
    answers = {"12.1": exercises()["12.1"].right[1], "12.2": exercises()["12.2"].wrong[2]}
    for cell in student.cells:
        for key, answer in answers.items():
            if cell.source.startswith(f"%%exercise {key}\n"):
                cell.source = f"%%exercise {key}\n{answer}"
    nbformat.write(student, folder / "ada.ipynb")
    (made,) = (folder / "dist" / "autograder").glob("*.zip")
    (folder / "out").mkdir()
    call(folder, "run", "ada.ipynb", "-a", str(made), "-o", "out")
    tests = json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))["tests"]
    scores = {test["name"]: test["score"] for test in tests if "exercise" in test["name"]}
    assert scores.pop("exercise_12_1") == 1
    assert scores.pop("exercise_12_2") == pytest.approx(known(exercises()["12.2"], answers["12.2"]).credit, abs=1e-5)
    assert set(scores.values()) == {0}


def call(folder: Path, *words: str) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-W", "ignore", "-m", "otter", *words]
    variables = {**os.environ, "HOME": str(folder), "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stdout + done.stderr
