"""Support for nbgrader: writes source notebooks whose test cells call :func:`points`, which
grades the answer above them.

The cell with the answer has no nbgrader metadata and stays as the student left it; the locked test below it gives the
points. nbgrader runs the student's cells and the tests in one kernel, so :func:`points` reads the answer from the
notebook's file and grades it in another process. A cell could still change what that kernel reports to nbgrader; with
``pitfall-lab grade`` it cannot.
"""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs; nbformat is slow to import

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pitfall_lab import processes
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.submissions import CELL
from pitfall_lab.cli import Refusal

_CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = {course!r}
# Seconds for one cell. The first test of a notebook starts the process that judges, which imports torch.
c.ExecutePreprocessor.timeout = 300
"""


def write_course(folder: Path, made: Assignment, books: dict[str, Any]) -> Path:
    """Write the notebooks ``books`` (by file name) with nbgrader's tests into ``folder/source/NAME``, and an
    ``nbgrader_config.py`` if there is none; return the folder of the notebooks.

    Raises :class:`~pitfall_lab.cli.Refusal` if that folder is there already or cannot be written.
    """
    import nbformat

    where = folder / "source" / made.name
    if where.exists():
        raise Refusal(f"{where} is there already, and nothing is overwritten; give another --name.")
    try:
        where.mkdir(parents=True)
        for file, book in books.items():
            nbformat.write(with_tests(book, made), where / file)
        config = folder / "nbgrader_config.py"
        if not config.exists():
            config.write_text(_CONFIG.format(course=folder.resolve().name), encoding="utf-8")
    except OSError as problem:
        raise Refusal(f"The notebooks cannot be written into {where}: {problem.strerror}.") from None
    return where


def with_tests(book: Any, made: Assignment) -> Any:
    """The notebook ``book`` (changed in place) with a locked test below each exercise of the assignment."""
    from nbformat.v4 import new_code_cell

    cells = []
    for cell in book.cells:
        cells.append(cell)
        begin = CELL.match(cell.source) if cell.cell_type == "code" else None
        if begin and begin[1] in made.keys:
            ident, worth = f"exercise-{begin[1].replace('.', '-')}-points", made.worth(begin[1])
            grading = {
                "schema_version": 3,
                "grade_id": ident,
                "grade": True,
                "locked": True,
                "solution": False,
                "task": False,
                "points": worth,
            }
            source = f'from pitfall_lab.classroom.nbgrader import points\n\npoints("{begin[1]}", {worth:g})'
            cells.append(new_code_cell(source, id=ident, metadata={"nbgrader": grading}))
    book.cells = cells
    return book


def points(key: str, worth: float = 1.0, folder: str = ".") -> float:
    """The points, out of ``worth``, for the cell of the exercise ``key`` in the *saved* notebooks of ``folder``.

    nbgrader takes the returned number as partial credit. The reasons are printed. Raises ``AssertionError`` with the
    reasons if the cell earns nothing, which nbgrader reads as no points; raises ``RuntimeError`` as :func:`credit`
    does.
    """
    share, reasons = credit(key, folder)
    assert share > 0, "\n".join(reasons)
    print("\n".join(reasons))
    return float(round(share * worth, 4))


def credit(key: str, folder: str = ".") -> tuple[float, tuple[str, ...]]:
    """What an exercise's cell in the saved notebooks of ``folder`` is worth, from 0 to 1, and the reasons as lines of
    text: how the cell ended, and each property.

    Raises ``RuntimeError`` if the process that grades has ended.
    """
    place = Path(folder).resolve()
    return _credit(key, place, tuple(path.stat().st_mtime_ns for path in sorted(place.glob("*.ipynb"))))


@cache
def _credit(key: str, folder: Path, _saved: tuple[int, ...]) -> tuple[float, tuple[str, ...]]:
    judge = _judge()
    assert judge.stdin is not None
    assert judge.stdout is not None
    try:
        judge.stdin.write(json.dumps([key, str(folder)]) + "\n")
        judge.stdin.flush()
        answer = judge.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        _judge.cache_clear()
        raise RuntimeError("The process that grades has ended; what it said is above.")
    share, reasons = json.loads(answer)
    return float(share), tuple(reasons)


@cache
def _judge() -> processes.Popen[str]:
    """Start the process that grades the exercises; one process serves all tests of a notebook.

    It is in a session of its own, because the interrupt that ends a kernel must not end it. It ends when its standard
    input is closed.
    """
    command = processes.ours("pitfall_lab.classroom.nbgrader")
    return processes.start(
        command,
        stdin=processes.PIPE,
        stdout=processes.PIPE,
        start_new_session=True,
        variables={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def main() -> None:
    """In a process of its own: for each line ``[key, folder]``, judge that exercise there and
    print ``[credit, reasons]``.
    """
    from pitfall_lab.classroom import fence
    from pitfall_lab.classroom.judge import SAYS, CellOutcome, Limits, sit
    from pitfall_lab.classroom.submissions import Submission, read

    for line in sys.stdin:
        key, folder = json.loads(line)
        sheet = read(Submission("", tuple(sorted(Path(folder).glob("*.ipynb")))), [key])
        (values,) = sit(sheet.cells, [key], Limits(), fenced=not fence.missing(), hidden=(folder,))
        outcome = CellOutcome.from_dict(values)
        reasons = [f"{key}: {SAYS[outcome.status].en}" + (f" ({outcome.detail})" if outcome.detail else "")]
        reasons += [
            f"{'✓' if m.holds else '○'} {m.sentence[0]}" + (f" ({m.reason[0]})" if m.reason[0] else "")
            for m in outcome.marks
        ]
        print(json.dumps([outcome.credit, reasons]), flush=True)
