"""A class, graded by the command: right, wrong in each known way, and hostile submissions of
each family; these in turns.
"""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.cli import main
from pitfall_lab.lessons import progress
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from tests.classroom.a_class import KEYS, the_class, write_class
from tests.classroom.table import graded
from tests.turns import todays

ALL = the_class(Path("outside"))
ASKED_FOR = {"html", "loop", "folder"}
"""Submissions that tests below look at; those that are not hostile (without a family) are always there."""
TODAYS = {
    name
    for case in todays(ALL, of=36, kind=lambda case: case.family, every=3)
    for name in (case.name, case.beside)
    if name
}
NAMES = [case.name for case in ALL if case.name in TODAYS | ASKED_FOR or not case.family]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class after grading, with reports."""
    place = tmp_path_factory.mktemp("course") / "class"
    write_class(place, named=NAMES)
    assert main(["grade", str(place), "--jobs", "1", "--report", str(place / "report")]) == 0
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, list[str]]:
    cases = [case for case in the_class(folder) if case.name in NAMES]
    return {case.name: faults for case, _, _, faults in graded(folder, cases)}


def test_the_class_is_as_large_as_it_is_meant_to_be() -> None:
    names = [case.name for case in ALL]
    assert len(names) == len(set(names)) >= 736


def test_no_submission_makes_the_tables_large(folder: Path) -> None:
    """What a cell says, its values and its names are kept as far as a reader wants them."""
    lines = (folder / "grades.state.jsonl").read_bytes().splitlines()
    assert max(map(len, lines)) < 200_000
    assert max(path.stat().st_size for path in (folder / "report").rglob("*.html")) < 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_submission_is_graded_as_it_should_be(found: dict[str, list[str]], name: str) -> None:
    assert found[name] == []


def test_nothing_of_the_teachers_was_touched(folder: Path) -> None:
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "the teacher's notes"
    assert {path.name for path in folder.iterdir()} == {
        "assignment.toml",
        "grades.csv",
        "grades.state.jsonl",
        "notes.txt",
        "report",
        "submissions",
    }
    assert len(list((folder / "submissions").iterdir())) == len(NAMES)


def test_there_is_a_row_for_every_submission(folder: Path) -> None:
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["student"] for row in rows) == sorted(map(plain, NAMES))
    assert all(float(row["of"]) == len(KEYS) for row in rows)
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_the_pages_show_everything_and_run_nothing(folder: Path) -> None:
    report = folder / "report"
    pages = [report / "index.html", report / "alike.html", *(report / "students").iterdir()]
    assert len(pages) == len(NAMES) + 2
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "<b>=1+1" not in text
        assert "A &lt;class&gt;" in text
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)
        assert not re.search("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)
    index = pages[0].read_text(encoding="utf-8")
    links = re.findall(r'href="(students/[^"]+)"', index)
    assert len(links) == len(NAMES)
    assert all((report / unquote(link)).is_file() for link in links)
    shown = next(page for page in pages if page.name.startswith("html-")).read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_the_heat_map_counts_who_has_which_property(folder: Path) -> None:
    lines = (folder / "grades.state.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    outcomes = [o for line in lines for o in json.loads(line).get("outcomes", ()) if o["key"] == KEYS[0]]
    holds = sum(o["marks"][0]["holds"] for o in outcomes)
    text = (folder / "report" / "index.html").read_text(encoding="utf-8")
    first = re.search(rf"{KEYS[0]}</th><td>[^<]+</td><td class=n [^>]+>(\d+) <span class=quiet>\((\d+) %\)", text)
    assert first
    assert (int(first[1]), int(first[2])) == (holds, round(100 * holds / len(outcomes)))


def test_misconceptions_of_the_progress_files_are_counted_by_item(folder: Path) -> None:
    text = (folder / "report" / "index.html").read_text(encoding="utf-8")
    belief = re.escape(html.escape(MISCONCEPTIONS["detach_copies"].belief.en))
    assert re.search(rf"<th scope=col>12 q-1</th></tr><tr><th scope=row>{belief}</th><td class=n [^>]+>1 ", text)
    assert "no such belief" not in text


def copy_with_holes(source: str, target: str) -> None:
    """Copy a file; one of a terabyte, which is all holes, takes no place on the disk."""
    size = Path(source).stat().st_size
    if size < 1 << 30:
        shutil.copy2(source, target)
        return
    with Path(target).open("wb") as file:
        file.truncate(size)
    shutil.copystat(source, target)


def test_a_resumed_run_grades_only_what_has_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "class"
    ignored = shutil.ignore_patterns("report", "pipe.ipynb", "socket.ipynb", progress.NAME)
    shutil.copytree(folder, again, symlinks=True, ignore=ignored, copy_function=copy_with_holes)
    with (again / "grades.state.jsonl").open("ab") as file:
        file.write(b'{"student": "torn')  # a crash in the middle of a line
    (again / "submissions" / "loop.ipynb").unlink()
    (again / "submissions" / "right-1.ipynb").write_text("changed", encoding="utf-8")
    # nothing is left for a process to judge: what cannot be read needs none
    monkeypatch.setattr("pitfall_lab.classroom.judge.Room.run", None)
    assert main(["grade", str(again), "--resume"]) == 0
    with (again / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows: dict[str, Any] = {row["student"]: row for row in csv.DictReader(file)}
    assert rows["right-1"]["verdict"] == "unreadable"
    assert rows["right-2"]["points"] == f"{len(KEYS)}"
    assert "loop" not in rows
    assert len(rows) == len(NAMES) - len({"loop", "pipe", "socket"}.intersection(NAMES))
    lines = (again / "grades.state.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith(('{"options"', '{"draw"'))]
    assert len(lines) == 1 + len(NAMES) + 2  # the head, everything of the first run, the torn line, the changed one
