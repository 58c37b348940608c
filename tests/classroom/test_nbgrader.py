"""The real nbgrader: it makes the assignment from our source notebooks, grades what comes back, and
its gradebook has the points.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from pitfall_lab.classroom.judge import known
from pitfall_lab.classroom.nbgrader import _judge
from pitfall_lab.cli import main
from pitfall_lab.lessons.exercises import exercises

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "12-inplace-errors.ipynb"
GRADES = "SELECT base_cell.name, grade.auto_score FROM grade JOIN base_cell ON grade.cell_id = base_cell.id"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose assignment nbgrader has made, and graded for a student."""
    folder = tmp_path_factory.mktemp("course")
    words = ["--chapters", "12", "--exercises-only", "--nbgrader"]
    assert main(["classroom", "init", str(folder), *words]) == 0
    nbgrader(folder, "-m", "nbgrader", "generate_assignment", "pitfalls")
    # one solved, one half, one unsolved, and one with an easier test in the place of ours
    hand_in(folder, "ada", {"12.1": exercises()["12.1"].right[1], "12.2": exercises()["12.2"].wrong[2]}, forged="12.4")
    nbgrader(folder, "-m", "nbgrader", "autograde", "pitfalls")
    return folder


def nbgrader(folder: Path, *words: str) -> None:
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # nbgrader starts the program alembic, which lies beside this Python
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    variables = {
        **os.environ,
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": path,
        "PATH": programs,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stdout + done.stderr, (
        "the interrupt that ends the kernel is not said as if it were a fault"
    )


def hand_in(folder: Path, student: str, cells: dict[str, str], forged: str = "") -> None:
    book = nbformat.read(folder / "release" / "pitfalls" / NOTEBOOK, as_version=4)
    for cell in book.cells:
        for key, source in cells.items():
            if cell.source.startswith(f"%%exercise {key}\n"):
                cell.source = f"%%exercise {key}\n{source}"
        if forged and f'points("{forged}"' in cell.source:
            cell.source = "1.0"
    place = folder / "submitted" / student / "pitfalls"
    place.mkdir(parents=True)
    nbformat.write(book, place / NOTEBOOK)


def test_the_released_notebook_has_the_given_cells_and_no_solution(course: Path) -> None:
    text = (course / "release" / "pitfalls" / NOTEBOOK).read_text(encoding="utf-8")
    sources = [cell.source for cell in nbformat.reads(text, as_version=4).cells]
    for key in ("12.1", "12.2", "12.3", "12.4"):
        exercise = exercises()[key]
        assert f"%%exercise {key}\n{exercise.given.rstrip()}" in sources
        assert not [right for right in exercise.right if any(right.strip() in source for source in sources)]


def test_nbgrader_gives_the_points_that_the_grader_gives(course: Path) -> None:
    with contextlib.closing(sqlite3.connect(course / "gradebook.db")) as book:
        scores = dict(book.execute(GRADES).fetchall())
    first, second, third, fourth = (scores[f"exercise-12-{n}-points"] for n in (1, 2, 3, 4))
    assert first == 1.0
    assert second == pytest.approx(known(exercises()["12.2"], exercises()["12.2"].wrong[2]).credit, abs=1e-4), (
        "four digits"
    )
    assert (third, fourth) == (0.0, 0.0)


def test_an_interrupt_of_the_kernel_does_not_reach_the_process_that_judges() -> None:
    """A kernel is ended with an interrupt to its whole process group; the judge ends with its input."""
    judge = _judge.__wrapped__()
    try:
        assert os.getpgid(judge.pid) != os.getpgid(0)
        judge.stdin.close()
        assert judge.wait(120) == 0
    finally:
        judge.kill()
        judge.stdout.close()
