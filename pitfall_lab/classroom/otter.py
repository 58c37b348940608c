"""Support for Otter: writes a master notebook for ``otter assign`` whose tests call
:func:`earned`, which grades the answer.

An exercise has as many tests as the given cell lacks properties, and each tests whether the answer has earned one more
of them: so Otter gives the points that ``pitfall-lab grade`` gives. Otter too runs the whole notebook in one kernel;
the answer is graded in another process, as under :mod:`nbgrader <pitfall_lab.classroom.nbgrader>`.
"""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs; nbformat is slow to import

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.nbgrader import credit
from pitfall_lab.classroom.submissions import CELL
from pitfall_lab.cli import Refusal
from pitfall_lab.lessons.exercise import Exercise

_CONFIG = "# ASSIGNMENT CONFIG\nexport_cell: false\ncheck_all_cell: false\nrequirements:\n  - {package}"


def write_masters(folder: Path, made: Assignment, books: dict[str, Any], package: str = "pitfall-lab") -> Path:
    """Write the notebooks ``books`` (by file name), with solutions and tests for ``otter assign``, into
    ``folder/NAME``; return that folder.

    Raises :class:`~pitfall_lab.cli.Refusal` if that folder is there already or cannot be written.

    ``package`` is what pip installs this package from where the autograder runs.
    """
    import nbformat

    where = folder / made.name
    if where.exists():
        raise Refusal(f"{where} is there already, and nothing is overwritten; give another --name.")
    try:
        where.mkdir(parents=True)
        for file, book in books.items():
            nbformat.write(master(book, made, package), where / file)
    except OSError as problem:
        raise Refusal(f"The notebooks cannot be written into {where}: {problem.strerror}.") from None
    return where


def master(book: Any, made: Assignment, package: str = "pitfall-lab") -> Any:
    """The notebook ``book`` (changed in place) with the cells of a question of Otter-Grader around each exercise of the
    assignment. ``package`` is what pip installs this package from where the autograder runs.
    """
    from pitfall_lab.lessons.exercises import exercises

    cells = [_raw(_CONFIG.format(package=json.dumps(package)))]
    for cell in book.cells:
        begin = CELL.match(cell.source) if cell.cell_type == "code" else None
        cells += _question(exercises()[begin[1]], made.worth(begin[1])) if begin and begin[1] in made.keys else [cell]
    book.cells = cells
    return book


def _question(exercise: Exercise, worth: float) -> list[Any]:
    """The notebook cells of one question of Otter-Grader: the answer's cell with solution and prompt, and the tests.

    In the student's version of the answer's cell Otter leaves the text of the prompt.
    """
    from nbformat.v4 import new_code_cell

    from pitfall_lab.classroom.judge import lacking

    parts, given = lacking(exercise), exercise.given.rstrip()
    quotes = '"""' if '"""' not in given else "'''"
    prompt = f"{quotes} # BEGIN PROMPT\n{given}\n{quotes} # END PROMPT"
    solution = f"# BEGIN SOLUTION NO PROMPT\n{exercise.right[0].rstrip()}\n# END SOLUTION"
    answer = new_code_cell(f"%%exercise {exercise.key}\n{solution}\n{prompt}")
    tests = [
        new_code_cell(
            f'""" # BEGIN TEST CONFIG\npoints: {worth / parts:g}\n""" # END TEST CONFIG\n'
            f'from pitfall_lab.classroom.otter import earned\nearned("{exercise.key}", {part}, {parts})'
        )
        for part in range(1, parts + 1)
    ]
    name = f"exercise_{exercise.key.replace('.', '_')}"
    return [
        _raw(f"# BEGIN QUESTION\nname: {name}"),
        *(_raw("# BEGIN SOLUTION"), answer, _raw("# END SOLUTION")),
        *(_raw("# BEGIN TESTS"), *tests, _raw("# END TESTS")),
        _raw("# END QUESTION"),
    ]


def _raw(text: str) -> Any:
    from nbformat.v4 import new_raw_cell

    return new_raw_cell(text)


def earned(key: str, part: int, parts: int, folder: str = ".") -> None:
    """Raise ``AssertionError`` with the reasons unless the answer to the exercise ``key`` in the *saved* notebooks of
    ``folder`` earns ``part`` of ``parts``.

    ``parts`` is the number of tests of the exercise; test ``part`` (from 1) passes if the answer earns that many parts
    of the points.
    """
    share, reasons = credit(key, folder)
    assert share * parts > part - 0.5, "\n".join(reasons)
