"""What the commands refuse, what they set aside, and what they make.

Nothing here starts a process: no submission can be read.
"""

from __future__ import annotations

import doctest
import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitfall_lab import cli
from pitfall_lab.classroom import exercise_list, fence, grade
from pitfall_lab.classroom.assignment import Assignment, available
from pitfall_lab.classroom.init import STUDENT, chapter_books
from pitfall_lab.classroom.judge import CellOutcome
from pitfall_lab.classroom.register import Row, StateFile
from pitfall_lab.classroom.submissions import CELL, Sheet, Submission, read
from pitfall_lab.cli import main
from pitfall_lab.lessons.exercises import exercises

ROOT = Path(__file__).resolve().parents[2]
IN_THE_TREE = {**os.environ, "PYTHONPATH": str(ROOT)}
TEACHING = ROOT / "pitfall_lab" / "docs" / "teaching"
PAGE = (ROOT / "pitfall_lab" / "docs" / "classroom.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"^```bash\n(.*?)\n```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An assignment with one submission, which cannot be read."""
    place = tmp_path / "week-3"
    assert main(["classroom", "init", str(place), "--chapters", "12", "--exercises-only"]) == 0
    (place / "submissions" / "ada.ipynb").write_text("no notebook", encoding="utf-8")
    return place


# --- making an assignment --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [True, False])
def test_students_get_every_exercise_as_given_and_no_solution(tmp_path: Path, short: bool) -> None:
    words = ["classroom", "init", str(tmp_path / "a"), "--chapters", ",".join(map(str, available()))]
    assert main([*words, "--exercises-only"] if short else words) == 0
    made = tomllib.loads((tmp_path / "a" / "assignment.toml").read_text(encoding="utf-8"))
    books = [nbformat.read(path, as_version=4) for path in sorted((tmp_path / "a" / STUDENT).glob("*.ipynb"))]
    cells = [cell for book in books for cell in book.cells]
    there = {begin[1]: cell.source for cell in cells if (begin := CELL.match(cell.source))}
    assert sorted(there) == sorted(made["exercises"]) == sorted(exercises())
    for key, source in there.items():
        assert source == f"%%exercise {key}\n{exercises()[key].given.rstrip()}"
        # whole lines: what is right may be the given line without its end
        assert not [
            cell.id
            for cell in cells
            for right in exercises()[key].right
            if f"\n{right.strip()}\n" in f"\n{cell.source}\n"
        ], key
    for book in books:
        nbformat.validate(book)
        assert not [
            cell.id for cell in book.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)
        ]
    readme = (tmp_path / "a" / STUDENT / "README.md").read_text(encoding="utf-8")
    assert "`12-inplace-errors.ipynb`" in readme
    assert "单元格" in readme


@pytest.mark.parametrize("kind", [["--exercises-only"], [], ["--nbgrader"], ["--otter"]])
def test_some_exercises_are_handed_out_and_no_others(tmp_path: Path, kind: list[str]) -> None:
    assert main(["classroom", "init", str(tmp_path / "a"), "--exercises", "12.2", "4.3,4.1", "4.1", *kind]) == 0
    paths = sorted((tmp_path / "a").rglob("*.ipynb"))
    assert [path.name[:2] for path in paths] == ["04", "12"]
    cells = [nbformat.read(path, as_version=4).cells for path in paths]
    assert [sorted(begin[1] for cell in book if (begin := CELL.match(cell.source))) for book in cells] == [
        ["4.1", "4.3"],
        ["12.2"],
    ]
    for book, others in zip(cells, (("4.2", "4.4"), ("12.1", "12.3", "12.4")), strict=True):
        text = "\n".join(cell.source for cell in book)
        assert not [key for key in others if f"Exercise {key}" in text or exercises()[key].task.en in text]
    if not kind:
        assert "· Exercises" in text  # the text above a task that is left out stays
        assert tomllib.loads((tmp_path / "a" / "assignment.toml").read_text(encoding="utf-8"))["exercises"] == [
            "12.2",
            "4.3",
            "4.1",
        ]
        assert "(12.2, 4.3, 4.1)" in (tmp_path / "a" / STUDENT / "README.md").read_text(encoding="utf-8")


def test_the_lesson_is_kept_or_left_out() -> None:
    (book,) = chapter_books((12,)).values()
    assert "**A question from practice.**" in book.cells[0].source


def code_of(words: list[str]) -> int | str | None:
    """The exit code of a command, which may end the process as argparse does."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["classroom", "init", "new", "--chapters", "twelve"], "not a chapter's number"),
        (["classroom", "init", "new", "--chapters", "99"], "has no exercises"),
        (
            ["classroom", "init", "new", "--exercises", "12.2", "12.9"],
            "'12.9' is not an exercise; there are 12.1, 12.2, 12.3, 12.4.",
        ),
        (["classroom", "init", "new", "--exercises", "twelve"], "write them as 4.1 4.3 12.2"),
        (["classroom", "init", "new", "--exercises", "99.1"], "write them as 4.1 4.3 12.2"),
        (["classroom", "init", "new", "--exercises", ","], "No exercise is named"),
        (["classroom", "init", "new", "--exercises", ""], "No exercise is named"),
        (
            ["classroom", "init", "new", "--exercises", "8,1"],
            "'8' is a chapter, not an exercise; write 8.1 8.2 8.3 8.4, or --chapters 8",
        ),
        (["classroom", "init", "new", "--exercises", "4.1", "foo"], "“foo” is one word too many: "),
        (
            ["classroom", "init", "new", "--exercises"],
            "what belongs to --exercises is missing; `pitfall-lab classroom init --help` says",
        ),
        (["classroom", "init", "--exercises", "4.1"], "classroom init: DIR is missing; "),
        (["classroom", "init", "new"], "one of --chapters --exercises is needed"),
        (
            ["classroom", "init", "new", "--chapters", "8", "--exercises", "8.1"],
            "--exercises and --chapters cannot be used together",
        ),
        (["classroom", "init", "new", "--chapters", "8", "--otters"], "there is no option --otters here"),
        (["classroom", "init", "new", "--chapters", "8-2"], "'8-2' is a range the wrong way round; write 2-8."),
        (["classroom", "init", "new", "--chapters", ""], "'' is not a chapter's number"),
        (["classroom", "init", "n" * 300, "--chapters", "8"], "File name too long"),
        (["classroom", "init", "other.csv", "--chapters", "8"], "cannot be written"),
        (["classroom", "exercises", "--chapters", "5-3"], "write 3-5."),
        (["classroom", "exercises", "--chapters", ""], "'' is not a chapter's number"),
        (["classroom", "exercises", "--lang", "de"], "'de' is no --lang/--language; there are en, zh; "),
        (["classroom", "preview", "nowhere"], "cannot be read"),
        (["classroom", "preview", "n" * 300], "cannot be read"),
        (["classroom", "preview", "week-3", "-o", "other.csv"], "cannot be written"),
        (["classroom", "totals", "nowhere"], "nowhere"),
        (["classroom", "totals", "n" * 300], "nnn"),
        (["classroom", "terms", "empty"], "empty"),
        (["classroom", "terms"], "DIR is missing"),
        (["classroom", "marks"], "'marks' is no TASK; there are init, exercises, preview, terms, totals"),
        (["classroom"], "TASK is missing"),
        (["grade"], "DIR is missing"),
        (["grade", "week-3", "--timeout", "soon"], "--timeout: 'soon' is not a number of seconds"),
        (["grade", "week-3", "--jobs", "0"], "--jobs/-j: '0' is not a number of processes"),
        (["grade", "week-3", "--lms", "ilias"], "'ilias' is no --lms; there are "),
        (["grade", "week-3", "--chapters", "12"], "leave --chapters away"),
        (["grade", "week-3", "--chapters", "5-3"], "leave --chapters away"),
        (["grade", "week-3/student"], "grade /"),
        (["grade", "week-3", "--roster", "empty"], "cannot be read"),
        (["grade", "week-3", "--roster", "n" * 300], "cannot be read"),
        (["grade", "week-3", "--report", "other.csv"], "cannot be written"),
        (["grade", "week-3", "-o", "n" * 300], "File name too long"),
        (["grade", "n" * 300, "--chapters", "12"], "nnn"),
        (["grade", "other.csv"], "no folder"),
        (["grade", "week-3", "extra"], "“extra” is one word too many"),
        (["grade", "week-3", "--only", "nobody"], "There is no submission of “nobody”"),
        (["classroom", "init", "new", "--chapters", "12", "--nbgrader", "--name", "a b"], "nbgrader takes"),
        (["classroom", "init", "week-3", "--chapters", "12"], "nothing is overwritten"),
        (["grade", "nowhere"], "no folder"),
        (["grade", "empty"], "--chapters"),
        (["grade", "empty", "--chapters", "12"], "nothing to grade"),
        (["grade", "week-3", "-o", "empty"], "is a folder"),
        (["grade", "week-3", "-o", "other.csv"], "does not hold grades of this assignment"),
        (["grade", "week-3", "-o", "nowhere/grades.csv"], "cannot be written"),
    ],
)
def test_bad_input_gets_one_sentence(
    folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("empty").mkdir()
    Path("other.csv").write_text("name,mark\nada,1\n", encoding="utf-8")
    capsys.readouterr()
    assert code_of(words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.startswith("pitfall-lab ")
    assert len(said.splitlines()) == 1, said
    assert Path("other.csv").read_text(encoding="utf-8") == "name,mark\nada,1\n"
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("format = 1", "format = 2"), "reads format 1"),
        (('"12.1"', '"12.99"'), "does not exist"),
        (("timeout = 10", 'timeout = "long"'), "timeout must be a number"),
        (("memory = 1024", "memory = 1"), "memory must be a number"),
        (('"12.1" = 1', '"12.1" = -1'), "12.1 must be a number"),
        (("[points]", "[points"), "not valid TOML"),
        (('id = "', 'id = "../'), "no usable id"),
        (
            ("format = 1", "format = 1\ndue = 2026-11-20 23:59"),
            "without quotation marks and with its seconds; it is “2026-11-20 23:59”.",
        ),
        (
            ("format = 1", "format = 1\ndue = 2026-11-20T23:59+01:00  # noon"),
            "due must be a date with a time, such as 2026-11-20T23:59:00+",
        ),
        (("format = 1", "format = 1\ndue = tomorrow"), "without quotation marks; it is “tomorrow”."),
        (("format = 1", "format = 1\ndue = 2026-11-20T23:59:00\nx = ="), "not valid TOML"),
        (("format = 1", "format = 1\ndue = 0001-01-01T00:00:00"), "due is too far away"),
        (("format = 1", "format = 1\nx = " + "[" * 9999), "not valid TOML"),
        (("[points]", "[points]\n12.1 = 2"), "points names “12”"),
    ],
)
def test_a_broken_assignment_gets_one_sentence(
    folder: Path, change: tuple[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "assignment.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(*change, 1), encoding="utf-8")
    assert main(["grade", str(folder)]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "numbers", [["--chapters", "8", "15"], ["--chapters", "8,", "15"], ["--exercises", "8.4", "15.2,15.3"]]
)
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_may_have_spaces_between_them_wherever_the_folder_stands(
    numbers: list[str], place: int, tmp_path: Path
) -> None:
    words = [*numbers, "--exercises-only"]
    words.insert(place * len(numbers), str(tmp_path / "a"))
    assert main(["classroom", "init", *words]) == 0
    assert [path.name[:2] for path in sorted((tmp_path / "a" / STUDENT).glob("*.ipynb"))] == ["08", "15"]


def test_numbers_of_chapters_may_have_spaces_in_the_list_and_where_a_folder_is_graded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctest.testmod(cli).failed == 0
    assert main(["classroom", "exercises", "--chapters", "8", "15"]) == 0
    assert [line[:2] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ") and line] == [
        "08",
        "15",
    ]
    alone = folder.parent / "handed-in"
    shutil.copytree(folder / "submissions", alone)
    (alone / "assignment.toml").write_text("exercises = []", encoding="utf-8")  # a student's
    assert main(["grade", "--chapters", "8", "15", str(alone), "-o", str(folder / "other.csv")]) == 0
    assert ",8.4,15.1," in (folder / "other.csv").read_text(encoding="utf-8-sig")


def test_the_submissions_of_an_assignment_are_the_assignment_and_its_other_folders_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "roster.csv").write_text("id,name\n1,Ada\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["grade", str(folder / "submissions")]) == 0
    assert f"The table is in {folder / 'grades.csv'}." in capsys.readouterr().out
    assert sorted(path.name for path in (folder / "submissions").iterdir()) == ["ada.ipynb"]
    before = (folder / "grades.csv").read_bytes()
    for name, words in (
        (STUDENT, []),
        (STUDENT, ["--chapters", "12"]),
        ("preview", ["--chapters", "12"]),
        (".", ["--chapters", "12"]),
    ):
        (folder / name).mkdir(exist_ok=True)
        here = sorted((folder / name).iterdir())
        assert main(["grade", str(folder / name), *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert sorted((folder / name).iterdir()) == here
    assert (folder / "grades.csv").read_bytes() == before


# --- grading ---------------------------------------------------------------------------------------------------------


def test_grades_of_another_assignment_are_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", str(folder)]) == 0
    assert main(["grade", str(folder)]) == 0, "its own grades it may write anew"
    other = folder.parent / "week-4"
    main(["classroom", "init", str(other), "--chapters", "12", "--exercises-only"])
    (other / "submissions" / "ada.ipynb").write_text("no notebook", encoding="utf-8")
    before = (folder / "grades.csv").read_bytes()
    assert main(["grade", str(other), "-o", str(folder / "grades.csv")]) == 2
    assert "does not hold grades of this assignment" in capsys.readouterr().err
    assert (folder / "grades.csv").read_bytes() == before


def test_a_file_called_as_one_of_the_teachers_among_the_submissions_is_a_students(folder: Path) -> None:
    table = "student,exercise,points,note\nada,,4,mine\n"
    (folder / "submissions" / "overrides.csv").write_text(table, encoding="utf-8")
    (folder / "submissions" / "roster.csv").write_text("student,id\nada,1\n", encoding="utf-8")
    assert main(["grade", str(folder / "submissions"), "-o", str(folder / "grades.csv")]) == 0
    lines = (folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [
        [name, "unreadable", ""] for name in ("ada", "overrides.csv", "roster.csv")
    ]


@pytest.mark.parametrize(
    ("damage", "word", "why"),
    [
        *(
            (damage, "damaged", "It is damaged.")
            for damage in (b"", b"\x00\xff", b"[]\n", b'{"pitfall_lab_grading": 0}\n')
        ),
        (
            b'{"pitfall_lab_grading": 1, "assignment": "other", "exercises": []}\n',
            "other",
            "It is of another assignment.",
        ),
    ],
)
def test_a_damaged_state_file_is_set_aside(
    folder: Path, damage: bytes, word: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = folder / "grades.state.jsonl"
    state.write_bytes(damage)
    assert main(["grade", str(folder), "--resume"]) == 0
    aside = folder / f"grades.state.{word}-1.jsonl"
    assert aside.read_bytes() == damage
    assert f"is kept as {aside.name}. {why}" in capsys.readouterr().err
    assert [json.loads(line).get("student") for line in state.read_text(encoding="utf-8").splitlines()] == [
        None,
        None,
        "ada",
    ]


def test_a_resumed_run_keeps_the_draw_and_a_new_one_has_another(folder: Path) -> None:
    def draw() -> int:
        lines = (folder / "grades.state.jsonl").read_text(encoding="utf-8").splitlines()
        return int(json.loads(next(line for line in lines if line.startswith('{"draw"')))["draw"])

    assert main(["grade", str(folder)]) == 0
    first = draw()
    assert main(["grade", str(folder), "--resume"]) == 0
    assert draw() == first >= 1000
    assert main(["grade", str(folder)]) == 0
    assert draw() != first


def test_without_resume_the_earlier_state_is_kept_under_another_name(folder: Path) -> None:
    assert main(["grade", str(folder)]) == 0
    earlier = (folder / "grades.state.jsonl").read_bytes()
    assert main(["grade", str(folder)]) == 0
    assert (folder / "grades.state.earlier-1.jsonl").read_bytes() == earlier


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("os.fsync", "grades.state.jsonl"),
        ("pathlib.Path.replace", "grades.csv"),
        ("pitfall_lab.classroom.report._write", "report"),
    ],
)
def test_a_full_disk_ends_the_command_with_a_sentence_and_resume_goes_on(
    where: str, file: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["grade", str(folder), "--report", str(folder / "report")]
    with monkeypatch.context() as patch:
        patch.setattr(where, _full)
        assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(rf"{file}(?: cannot be written)?: No space left on device\. Make room, and grade with", said), said
    assert "Traceback" not in said
    assert list(folder.glob("*.part")) == []
    assert main([*words, "--resume"]) == 0
    assert (folder / "grades.csv").exists()
    assert (folder / "report" / "index.html").exists()


def test_after_an_interrupt_resume_goes_on_with_what_was_not_graded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does it, after the first of three; who judges is no matter here."""
    for name in ("bob", "cem", "dee"):
        text = json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {"name": name}})
        (folder / "submissions" / f"{name}.ipynb").write_text(text, encoding="utf-8")
    judged: list[str] = []

    def work(most: int, sheets: list[Sheet]) -> Iterator[tuple[Sheet, list[dict[str, Any]]]]:
        for sheet in sheets:
            if len(judged) == most:
                raise KeyboardInterrupt
            judged.append(sheet.student)
            yield sheet, [CellOutcome(key, "missing").to_dict() for key in ("12.1", "12.2", "12.3", "12.4")]

    monkeypatch.setattr(grade, "_here", lambda jobs, assignment, sheets, **_: work(1, sheets))
    assert main(["grade", str(folder)]) == 130
    assert f"What was graded is in {folder / 'grades.state.jsonl'}; --resume continues" in capsys.readouterr().err
    assert not (folder / "grades.csv").exists()
    first = [*judged]
    monkeypatch.setattr(grade, "_here", lambda jobs, assignment, sheets, **_: work(9, sheets))
    assert main(["grade", str(folder), "--resume"]) == 0
    assert len(first) == 1
    assert sorted(judged) == ["bob", "cem", "dee"], "each student is graded once"
    assert (folder / "grades.csv").read_text(encoding="utf-8-sig").count("\n") == 5


def test_a_disk_that_is_full_in_the_middle_of_a_row_loses_this_row_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: no file of this process may grow beyond a limit that ends within the second row."""
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from pitfall_lab.classroom.assignment import Assignment\n"
        "from pitfall_lab.classroom.register import Row, StateFile\n"
        "from pitfall_lab.cli import Refusal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "state = StateFile(Path('grades.csv'), Assignment('x', 'X', ('12.2',)), resume=True)\n"
        "state.keep(Row('ada', '1'))\n"
        "most = state.path.stat().st_size + 9\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "try:\n"
        "    state.keep(Row('bob', '2'))\n"
        "except Refusal as refusal:\n"
        "    print(refusal)\n"
        "state.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=IN_THE_TREE, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "File too large. Make room, and grade with --resume" in done.stdout
    monkeypatch.chdir(tmp_path)
    state = StateFile(Path("grades.csv"), Assignment("x", "X", ("12.2",)), resume=True)
    assert [student for student, _ in state.known] == ["ada"]
    state.keep(Row("bob", "2"))
    state.close()
    again = StateFile(Path("grades.csv"), Assignment("x", "X", ("12.2",)), resume=True)
    assert [student for student, _ in again.known] == ["ada", "bob"]
    again.close()


@pytest.mark.parametrize("more", [["--resume"], ["--only", "ada"]])
def test_after_other_exercises_all_is_graded_anew_and_written_as_before(
    folder: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = folder / "report"
    assert main(["grade", str(folder), "--lms", "moodle", "--report", str(report)]) == 0
    earlier = (folder / "grades.state.jsonl").read_bytes()
    path = folder / "assignment.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace('exercises = ["12.1",', 'exercises = ["9.1", "12.1",'),
        encoding="utf-8",
    )
    capsys.readouterr()
    assert main(["grade", str(folder), *more]) == 0
    out, err = capsys.readouterr()
    assert (
        "is kept as grades.state.earlier-1.jsonl. The exercises are others since, so everything is graded anew." in err
    )
    assert (folder / "grades.state.earlier-1.jsonl").read_bytes() == earlier
    assert [line.partition(":")[0] for line in out.splitlines()[:2]] == ["For Moodle", "The page of the class"]
    assert ",9.1,12.1," in (folder / "grades.csv").read_text(encoding="utf-8-sig")
    assert main(["grade", str(folder), "--resume"]) == 0
    assert "is kept as" not in capsys.readouterr().err, "the new state goes on"


def test_without_a_fence_nothing_is_graded_unless_it_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fence, "missing", lambda: ["Landlock"])
    assert main(["grade", str(folder)]) == 2
    assert "nothing would keep a submission from your files" in capsys.readouterr().err
    assert not (folder / "grades.csv").exists()
    assert main(["grade", str(folder), "--trust"]) == 0
    assert "Nothing kept the submissions from your files." in capsys.readouterr().out


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.just("%%exercise 12.1\nx"),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["cells", "cell_type", "source", "code", "worksheets"]), inner)
        ),
        max_leaves=30,
    )
)
def test_no_document_is_too_odd_to_be_read(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.ipynb"
    path.write_text(json.dumps({"cells": document}), encoding="utf-8")
    sheet = read(Submission("ada", (path,)), ["12.1"])
    assert sheet.problem is not None or all(isinstance(source, str) for source in sheet.cells.values())


# --- the page for teachers -------------------------------------------------------------------------------------------


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that start with `pitfall-lab`, in order; the others are run by test_nbgrader, test_otter and test_dask."""
    monkeypatch.chdir(tmp_path)
    others = [line for line in LINES if not line.startswith("pitfall-lab ")]
    assert [line.split()[0] for line in others] == [
        *("nbgrader", "nbgrader", "otter", "mkdir", "jupyter-repo2docker", "sudo", "sudo", "sudo"),
        *("for", "mkdir", "sudo", "done"),
    ]
    for line in (line for line in LINES if line.startswith("pitfall-lab ")):
        for place in (tmp_path / "week-3" / "submissions", tmp_path / "handed-in"):
            if "grade" in line:
                place.mkdir(exist_ok=True)
                (place / "ada.ipynb").write_text("no notebook", encoding="utf-8")
        assert main(shlex.split(line)[1:]) == 0, line
    assert (tmp_path / "week-3" / "report" / "index.html").is_file()
    assert (tmp_path / "quiz.csv").is_file()
    assert (tmp_path / "course" / "source" / "pitfalls" / "12-inplace-errors.ipynb").is_file()


def test_nothing_in_the_page_is_left_to_measure() -> None:
    assert "MEASURED" not in PAGE


def test_every_chapter_has_a_page_for_its_teacher() -> None:
    chapters = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if not path.stem.startswith("00"))
    guides = {path.stem: path.read_text(encoding="utf-8").lower() for path in TEACHING.glob("*.md")}
    assert [name for name in chapters if name not in guides] == []
    for name, text in guides.items():
        assert not [word for word in ("aims", "time", "misconceptions", "discussion") if word not in text], name
        assert len(text.split()) < 900, f"{name} is longer than a page"


def test_the_page_of_exercises_and_the_command_have_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercise_list.PAGE.read_text("utf-8") == exercise_list.page(), (
        "run `python -m pitfall_lab.classroom.exercise_list`"
    )
    assert main(["classroom", "exercises"]) == 0
    said = capsys.readouterr().out
    assert [
        key for key in exercises() if f"\n  {key:5} " not in said or f"| {key} | " not in exercise_list.page()
    ] == []
    assert main(["classroom", "exercises", "--chapters", "12", "--lang", "zh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["12", *[key for key in exercises() if key.startswith("12.")]]
    assert exercises()["12.1"].title.zh in lines[1]
    assert main(["classroom", "exercises", "--chapters", "99"]) == 2


def test_the_answers_are_hidden_from_what_runs() -> None:
    """Every folder that may be read by a submission, against every file of this repository that holds an answer."""
    shown = [path for path, rights in fence.readable(fence.answers()) if rights & 4]
    assert any(Path(nbformat.__file__).is_relative_to(path) for path in shown), (
        "installed packages, whatever their folder is called"
    )
    answers = [
        *(ROOT / "pitfall_lab" / "lessons" / "exercises").rglob("*.py"),
        *TEACHING.glob("*.md"),
        Path(__file__),
        ROOT / "README.md",
    ]
    assert len(answers) > 4
    assert [a for a in answers if any(a.is_relative_to(path) for path in shown)] == []
    assert shutil.which("python3") is None or any(Path(json.__file__).is_relative_to(path) for path in shown)


def test_another_copy_of_the_package_hides_its_answers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "site-packages" / "pitfall_lab"
    for folder in ("lessons/exercises", "shadow"):
        (copy / folder).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    shown = [path for path, rights in fence.readable(fence.answers()) if rights & 4]
    assert copy / "shadow" in shown
    assert not [path for path in shown if (copy / "lessons" / "exercises").is_relative_to(path)]
