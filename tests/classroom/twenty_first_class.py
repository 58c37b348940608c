"""The twenty-first round, written without knowledge of the grader: what runs inside of torch's calls, and derivatives
in forward mode (in ``answers.txt``), folders that cannot be read, numbers of other exercises, rosters that are cut.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pitfall_lab.classroom import roster, submissions
from pitfall_lab.classroom.submissions import Submission
from pitfall_lab.cli import Refusal
from tests.classroom.a_class import TARGET, book, code, notebook, right


def between() -> dict[str, Callable[[Path], Iterator[str]]]:
    """What is done to the folders from outside of any cell, as in :func:`tests.classroom.twentieth_class.between`."""
    return {
        "a folder that cannot be read, in a folder with a notebook": lambda folder: _shut(folder, "inner"),
        "a folder that cannot be read": lambda folder: _shut(folder, ""),
        "a folder that cannot be read, beside a notebook of the same person": _shut_beside,
        "a cell for an exercise that another one's number ends like": _other_number,
        "a roster whose last quotation mark is not closed": lambda folder: _cut(
            folder, 'student,name\nada,"x\nbob,y\n', "line 2: a quotation mark is not closed"
        ),
        "a roster of which the first line has a quotation mark that is not closed": lambda folder: _cut(
            folder, 'student,"id\nada,1\n', "line 1: a quotation mark is not closed"
        ),
        "a roster with a column twice": lambda folder: _cut(
            folder, "student,student,id\nada,bob,1\n", "2 columns student"
        ),
        "an empty zip": lambda folder: _instead(folder, b"PK\x05\x06" + bytes(18), "no notebook in the zip"),
        "a tar that is called a notebook": lambda folder: _instead(
            folder, b"a".ljust(257, b"\0") + b"ustar\0" + bytes(249), "an archive (tar)"
        ),
        "a web page that is all there is": lambda folder: _instead(folder, b"<html></html>", "a web page"),
    }


def _without(place: Path) -> Any:
    """As if the rights of a folder forbade to read it; root may read it all the same."""
    scan = os.scandir

    def scanned(path: Any) -> Any:
        if Path(path) == place:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    return mock.patch.object(os, "scandir", scanned)


def _shut(folder: Path, inner: str) -> Iterator[str]:
    place = folder / "eve" / inner
    place.mkdir(parents=True)
    (folder / "eve" / "a.ipynb").write_text(json.dumps(notebook(right())), encoding="utf-8")
    with _without(place):
        (found,), _ = submissions.found(folder)
        sheet = submissions.read(found, [TARGET])
    if sheet.problem is None:
        yield "what cannot be read does not count"
    elif "cannot be read: Permission denied" not in sheet.problem.en or inner not in sheet.problem.en:
        yield f"it says: {sheet.problem.en}"


def _shut_beside(folder: Path) -> Iterator[str]:
    place = folder / "eve"
    place.mkdir()
    (folder / "eve.ipynb").write_text(json.dumps(notebook(right())), encoding="utf-8")
    with _without(place):
        found, _ = submissions.found(folder)
        (path,) = (each for each in found if not each.is_folder)
        both = [each if each.is_folder else Submission("eve", path.files) for each in found]
        merged = submissions._one(both, "eve")
    if merged.problem is None:
        yield "what cannot be read does not count"


def _other_number(folder: Path) -> Iterator[str]:
    path = folder / "a.ipynb"
    for number, key in (("17.3", "7.3"), ("2.4", "12.4"), ("12.4", "2.4")):
        path.write_text(json.dumps(book([code(f"# c\n%%exercise {number}\n1")])), encoding="utf-8")
        if notes := submissions.read(Submission("eve", (path,)), [key]).notes:
            yield f"it says: {notes[0].en}"
    path.write_text(json.dumps(book([code("# c\n%%exercise 7,3\n1")])), encoding="utf-8")
    if not submissions.read(Submission("eve", (path,)), ["7.3"]).notes:
        yield "a comma is not noted"


def _cut(folder: Path, text: str, says: str) -> Iterator[str]:
    path = folder / "roster.csv"
    path.write_text(text, encoding="utf-8")
    try:
        yield f"it is read: {roster.read(path)}"
    except Refusal as problem:
        if says not in str(problem):
            yield f"it says: {problem}"


def _instead(folder: Path, content: bytes, says: str) -> Iterator[str]:
    path = folder / "a.ipynb"
    path.write_bytes(content)
    sheet = submissions.read(Submission("eve", (path,)), [TARGET])
    if sheet.problem is None or says not in sheet.problem.en:
        yield f"it says: {sheet.problem}"
    if sheet.beside:
        yield "it is beside notebooks, of which there is none"
