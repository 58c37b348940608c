"""Whose a submission is: names as systems give them, several files of one person, archives; and what is said of it.

Nothing runs.
"""

from __future__ import annotations

import csv
import doctest
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pitfall_lab.classroom import archives, ledger, lms, submissions, whose
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import known
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.report import student_page
from pitfall_lab.classroom.roster import Person
from pitfall_lab.classroom.whose import Directory
from pitfall_lab.cli import Refusal, main
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.trace import T

KEYS = ("4.2", "12.2")
EARLY, LATE = (datetime(2026, 11, day, 12).astimezone().timestamp() for day in (20, 24))
CLASS = [
    Person("1", "1", "Zoe Adams", login="adams"),
    Person("1001", "1001", "Zoë Müller", login="mullerz", email="zoe@uni.example"),
    Person("1002", "1002", "José Ángel Núñez-García", login="nunezj"),
    Person("1004", "1004", "Siobhán O'Connor", login="oconnors"),
    Person("1005", "1005", "Anna Schmidt", login="schmidta"),
    Person("1006", "1006", "Anna Schmidt", login="schmidtan"),
    Person("1007", "1007", "Łukasz Żółć", login="zolc_l"),
    Person("1009", "1009", "Meier, Max", login="maxm"),
    Person("1011", "1011", "Jean-Luc d'Arc", login="darcj"),
    Person("1012", "1012", "李 娜", login="lina"),
    Person("1013", "1013", "Marie Curie", login="mc"),
    Person("1014", "1014", "Ada Lovelace", login="ada"),
    Person("1015", "1015", "Grace Hopper", login="gh"),
]


def book(**answers: str) -> bytes:
    """A notebook with answers: ``e4_2="x = 1"``."""
    cells = [
        {"cell_type": "code", "source": f"%%exercise {key[1:].replace('_', '.')}\n{answer}"}
        for key, answer in answers.items()
    ]
    return json.dumps({"cells": cells}).encode()


# --- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ident"),
    [
        ("lovelaceada_77_912_week-3", "1014"),
        ("lovelaceada_LATE_77_912_week-3", "1014"),
        ("mullerzoe_1_1_w", "1001"),
        ("muellerzoe_1_1_w", "1001"),
        ("müllerzoë_81_1_w", "1001"),
        ("curiemarie_5_5_w", "1013"),
        ("mariecurie_5_5_w", "1013"),
        ("nunezgarciajoseangel_LATE_79_1_12", "1002"),
        ("oconnorsiobhan_77_912_12", "1004"),
        ("meiermax_80_1_12", "1009"),
        ("darcjeanluc_80_1_12", "1011"),
        ("李娜_5_6_x", "1012"),
        ("hoppergrace_1_1_w", "1015"),
        ("Zoë Müller_7_assignsubmission_file_", "1001"),
        ("Siobhán O'Connor_1_assignsubmission_file_week3.zip", "1004"),
        ("Jean-Luc d_Arc_3_assignsubmission_file_x", "1011"),
        ("Curie Marie_3_assignsubmission_onlinetext_", "1013"),
        ("Week 3_mullerz_attempt_2026-11-20-12-00-00_12", "1001"),
        ("Week_3_zolc_l_attempt_2026-11-20-12-00-00_12_final", "1007"),
        ("Week 3_1009_attempt_2026-11-20-12-00-00_12", "1009"),
        ("Lukasz Zolc", "1007"),
        ("zoe@uni.example", "1001"),
        ("Jose\u0301 A\u0301ngel Nu\u0301n\u0303ez-Garci\u0301a", "1002"),
        ("ADA LOVELACE", "1014"),
        ("Ada Lovelace (1)", "1014"),
        ("1014_week3", "1014"),
        ("week3_ada_final", "1014"),
        ("Ada_Lovelace_v2", "1014"),
        ("week 3 - Lovelace, Ada (final)", "1014"),
        ("2026-11-20 Jose Angel Nunez-Garcia hw3", "1002"),
        ("Copy of Jean-Luc d'Arc 12", "1011"),
        ("OConnor-Siobhan-Copy1", "1004"),
        ("1014-final", "1014"),
        ("hw 1007", "1007"),
        ("李娜-作业8", "1012"),
        ("李 娜 week 3", "1012"),
        ("1014.pdf", "1014"),
        ("Lovelace, Ada.tar.gz", "1014"),
        ("Kopie von 1014", "1014"),
        ("Copia di Grace Hopper", "1015"),
        # what is nobody's, or could be two people's
        ("Anna_Grace_Hopper", None),
        ("Ada Lovelace and Grace Hopper", None),
        ("1014-1015", None),
        ("Anna Schmidt week 3", None),
        ("week-1", None),
        ("12-inplace-errors", None),
        ("ada-graphs", None),
        ("lovelace week 3", None),
        ("stranger_1_1_w", None),
        ("stranger_1005_1006_w", None),
        ("Nobody Known_1_assignsubmission_file_", None),
        ("Anna-Ada Lovelace_1_assignsubmission_file_", None),
        ("xada.pdf", None),
        ("Week 3_nobody_attempt_2026-11-20-12-00-00_1", None),
        ("week_1", None),
        ("Anna Schmidt", None),
        ("schmidtanna_77_1_w", None),
        ("ada_mullerz", None),
        ("1004_ada", None),
        ("xada", None),
        ("", None),
    ],
)
def test_a_name_finds_its_person_or_nobody(name: str, ident: str | None) -> None:
    person = Directory(CLASS, [name]).person(name)
    assert (person and person.ident) == ident


@pytest.mark.parametrize("groups", [("Group A", "Group A", "Group A"), ("Team 1", "Team 2", "Late-Team 3")])
def test_moodle_puts_groups_and_teams_before_names(groups: tuple[str, ...]) -> None:
    whom = ("Ada Lovelace", "Jean-Luc d_Arc", "Zoë Müller")
    names = [
        f"{group}-{name}_{n}_assignsubmission_file_" for n, (group, name) in enumerate(zip(groups, whom, strict=True))
    ]
    directory = Directory(CLASS, names)
    assert [(person := directory.person(name)) and person.ident for name in names] == ["1014", "1011", "1001"]
    others = [
        f"{name}_{n + 50}_assignsubmission_file_"
        for n, name in enumerate(("Grace Hopper", "Marie Curie", "李 娜", "Zoe Adams"))
    ]
    mixed = Directory(CLASS, [names[0], *others])
    assert mixed.person(names[0]) is None, "a single one of a class may be somebody with a double name"


def test_of_two_names_that_differ_in_accents_the_one_that_is_written_counts() -> None:
    people = [Person("1", "1", "Zoë Müller"), Person("2", "2", "Zoe Muller"), Person("3", "3", "Zoé Muller")]
    told = {"Müller, Zoë": "1", "zoë müller": "1", "Muller Zoé": "3", "mullerzoe": None, "Zoe Müller": None}
    assert {name: (person := Directory(people, [name]).person(name)) and person.ident for name in told} == told


def test_an_ending_is_left_away_only_where_the_whole_name_is_nobodys() -> None:
    people = [Person("ada", login="ada"), Person("ada.py", login="ada.py")]
    assert [Directory(people, [name]).person(name) for name in ("ada.py", "ada.pdf")] == [people[1], people[0]]


@pytest.mark.parametrize("column", ["x y.ipynb", "x y", "x y.zip"])
def test_the_column_student_takes_a_files_name_with_its_ending(column: str) -> None:
    listed = [Person(column, "7", "Carol Chen"), Person("8", "8", "Bo Hu")]
    assert [(person := Directory(listed, [name]).person(name)) and person.ident for name in ("x y", "8", "x")] == [
        "7",
        "8",
        None,
    ]
    assert Directory([Person("1024", "1024"), Person("x y.pdf")], ["1024.pdf"]).person("1024.pdf") == Person(
        "1024", "1024"
    )


def test_a_number_is_an_id_between_people_of_one_name_where_all_numbers_of_the_class_are_ids() -> None:
    annas = [f"Anna Schmidt_{n}_assignsubmission_file_" for n in (1005, 1006)]
    others = ["Ada Lovelace_1014_assignsubmission_file_", "A Guest_3_assignsubmission_file_"]
    directory = Directory(CLASS, [*annas, *others])
    assert [(person := directory.person(name)) and person.ident for name in annas] == ["1005", "1006"]
    contrary = Directory(CLASS, [*annas, *others, "Grace Hopper_1001_assignsubmission_file_"])
    assert [contrary.person(name) for name in annas] == [None, None], (
        "the number that Moodle gave Grace is another's id"
    )
    assert str(contrary.doubt(annas[0])) != str(None)
    assert "fits 2 people" in contrary.doubt(annas[0]).en  # type: ignore[union-attr]


def test_canvas_number_decides_where_the_roster_has_it() -> None:
    class_of = [replace(person, number=str(500 + int(person.ident) % 100)) for person in CLASS[1:-1]] + CLASS[-1:]
    whose_is = {
        "schmidtanna_505_1_w": "1005",
        "schmidtanna_506_2_w": "1006",
        "schmidtanna_505_3_v": "1005",
        "schmidtanna_999_4_w": None,  # somebody of this name who is not in the roster
        "lovelaceada_513_5_w": None,  # Marie's number
        "mcsklodowska_513_6_w": "1013",  # Canvas shows another name of hers
        "hoppergrace_700_7_w": "1015",  # the roster has no number of hers
        "strangerx_701_8_w": None,
    }
    directory = Directory(class_of, whose_is)
    assert {name: (person := directory.person(name)) and person.ident for name in whose_is} == whose_is
    assert "fits 1014 in the roster, and Canvas' number in it is another" in directory.doubt("lovelaceada_513_5_w").en  # type: ignore[union-attr]
    others = ["schmidtanna_77_1_w", "lovelaceada_78_2_w"]
    other = Directory(class_of, others)
    assert [(person := other.person(name)) and person.ident for name in others] == [None, "1014"], (
        "the numbers are of another server"
    )


def test_two_downloads_of_moodle_have_other_numbers_for_the_same_people() -> None:
    class_of = ["Grace Hopper", "Ada Lovelace", "Marie Curie", "Łukasz Żółć"]
    names = [f"{name}_{number + n}_assignsubmission_file_" for number in (30, 60) for n, name in enumerate(class_of)]
    directory = Directory(CLASS, names[:-1])
    assert [(person := directory.person(name)) and person.ident for name in names[:-1]] == [
        "1015",
        "1014",
        "1013",
        "1007",
        "1015",
        "1014",
        "1013",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "mallory_77_912_x_ada_attempt_2026-11-20-12-00-00",
        "mallory_77_912_Ada Lovelace_5_assignsubmission_file_x",
        "Week 3_mallory_attempt_2026-11-20-12-00-00_x_ada_attempt_2026-11-21-12-00-00",
        "Week 3_mallory_attempt_2026-11-20-12-00-00_Ada Lovelace_5_assignsubmission_file_x",
        "Mallory M_9_assignsubmission_file_x_ada_attempt_2026-11-20-12-00-00",
        "Mallory M_9_assignsubmission_file_Ada Lovelace_5_assignsubmission_file_x",
        "mallory_77_912_lovelaceada_78_913_x",
    ],
)
def test_what_a_student_calls_a_file_does_not_make_it_anothers(name: str, tmp_path: Path) -> None:
    assert Directory(CLASS, [name, "ada"]).person(name) is None
    sheets = handed_in(tmp_path, {f"{name}.ipynb": book(e4_2="spoiled = 1"), "ada.ipynb": book(e4_2="mine = 1")})
    assert sheets["ada"].cells == {"4.2": "mine = 1"}


def test_two_numbers_with_one_name_are_two_people_and_the_student_column_decides() -> None:
    names = ["Grace Hopper_31_assignsubmission_file_", "Grace Hopper_32_assignsubmission_file_"]
    directory = Directory(CLASS, names)
    assert [directory.person(name) for name in names] == [None, None]
    assert "two people of this name" in directory.doubt(names[0]).en  # type: ignore[union-attr]
    people = [replace(person, student="Grace Hopper_31") if person.ident == "1015" else person for person in CLASS]
    decided = Directory(people, names)
    assert (decided.person(names[0]) or CLASS[0]).ident == "1015"


def test_the_examples_in_the_docstrings_hold() -> None:
    done = doctest.testmod(whose)
    assert done.attempted
    assert not done.failed


# --- several files of one person -------------------------------------------------------------------------------------


def handed_in(
    folder: Path, files: dict[str, bytes], people: list[Person] | None = CLASS
) -> dict[str, submissions.Sheet]:
    """What is read of a folder of files, by student."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_800_000_000, 1_800_000_000))
    found, _ = submissions.found(folder)
    directory = Directory(people or (), [each.student for each in found])
    return {each.student: submissions.read(each, KEYS) for each in submissions.merged(found, directory)}


@pytest.mark.parametrize("people", [CLASS, None])
def test_files_of_different_chapters_are_one_submission(tmp_path: Path, people: list[Person] | None) -> None:
    files = {
        "lina_77_912_04-squeeze.ipynb": book(e4_2="four = 4"),
        "lina_77_913_12-inplace.ipynb": book(e12_2="twelve = 12"),
        "ada_78_914_12-inplace.ipynb": book(e12_2="ada = 1"),
    }
    sheets = handed_in(tmp_path, files, people)
    assert set(sheets) == (
        {"1012", "ada_78_914_12-inplace"} if people else {"lina_77_913_12-inplace", "ada_78_914_12-inplace"}
    )
    sheet = next(sheet for name, sheet in sheets.items() if "ada" not in name)
    assert sheet.cells == {"4.2": "four = 4", "12.2": "twelve = 12"}
    assert "“lina_77_912_04-squeeze”, “lina_77_913_12-inplace”" in sheet.asides[0].en


def test_names_that_have_a_systems_form_by_chance_are_not_one_persons(tmp_path: Path) -> None:
    sheets = handed_in(
        tmp_path, {f"week_3_{n}_{name}.ipynb": book(e4_2="x") for n, name in ((10, "ada"), (11, "bob"))}, None
    )
    assert len(sheets) == 2


def test_where_all_answers_are_in_two_files_it_is_said_once(tmp_path: Path) -> None:
    both = zipfile.ZipFile(tmp_path / "ada.zip", "w")
    for n, name in enumerate(("12.ipynb", "12 (1).ipynb")):
        both.writestr(name, book(e4_2=f"a = {n}", e12_2=f"b = {n}"))
    both.close()
    folder = tmp_path / "there"
    folder.mkdir()
    (tmp_path / "ada.zip").rename(folder / "ada.zip")
    (found, *_), _ = submissions.found(folder)
    sheet = submissions.read(found, KEYS)
    assert [note.en for note in sheet.notes] == [
        "exercises 4.2, 12.2 are in 2 files; those in “ada.zip/12 (1).ipynb” count"
    ]
    assert sheet.cells == {"4.2": "a = 1", "12.2": "b = 1"}


def test_a_folder_without_a_notebook_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "08.py").write_bytes(b"")
    (found,), _ = submissions.found(tmp_path)
    assert found.problem is not None
    assert found.problem.en == "there is no notebook in the folder, but “08.py”"
    (tmp_path / "ada" / "08.py").unlink()
    (tmp_path / "ada" / ".ipynb_checkpoints").mkdir()
    (found,), _ = submissions.found(tmp_path)
    assert found.problem == T(
        en="there is no notebook in the folder, but “.ipynb_checkpoints”",
        zh="文件夹中没有笔记本，只有 “.ipynb_checkpoints”",
    )


def test_what_is_no_notebook_is_its_owners_and_says_what_it_is(tmp_path: Path) -> None:
    sheets = handed_in(tmp_path, {"1014.py": b"x = 1\n", "1015.pdf": b"%PDF-1.7", "1015.ipynb": book(e4_2="x = 1")})
    assert sheets["1014.py"].problem == T(
        en="it is a Python program, not a notebook (a file .ipynb)", zh="它是Python 程序，不是笔记本（.ipynb 文件）"
    )
    assert sheets["1015"].cells == {"4.2": "x = 1"}
    assert [note.en for note in sheets["1015"].notes] == [
        "“1015.pdf” was left out: it is a PDF, not a notebook (a file .ipynb)"
    ]


def test_of_one_chapter_the_newest_attempt_counts_and_it_is_said_which(tmp_path: Path) -> None:
    new, old = (f"Week 3_mullerz_attempt_2026-11-{day}-12-00-00_04.ipynb" for day in (20, 9))
    old = old.replace("-11-9-", "-11-09-")
    sheet = handed_in(tmp_path, {new: book(e4_2="new = 1"), old: book(e4_2="old = 1", e12_2="only = 1")})["1001"]
    assert sheet.cells == {"4.2": "new = 1", "12.2": "only = 1"}
    assert f"exercise 4.2 is in 2 files; the one in “{new}” counts" in [note.en for note in sheet.notes]


@pytest.mark.parametrize(
    ("older", "newer"), [("04.ipynb", "04 (1).ipynb"), ("04 (9).ipynb", "04 (10).ipynb"), ("04.ipynb", "04(1).ipynb")]
)
@pytest.mark.parametrize("later", [-5000, 0, 5000])
def test_a_browsers_second_download_is_newer_whatever_the_times(
    tmp_path: Path, older: str, newer: str, later: float
) -> None:
    handed_in(tmp_path, {f"ada/{older}": book(e4_2="old = 1"), f"ada/{newer}": book(e4_2="new = 1")})
    os.utime(tmp_path / "ada" / newer, (1_800_000_000 + later, 1_800_000_000 + later))
    sheet = submissions.read(submissions.found(tmp_path)[0][0], KEYS)
    assert sheet.cells["4.2"] == "new = 1"
    assert f"“{newer}” counts" in sheet.notes[0].en


def test_of_files_with_other_names_the_one_written_last_counts(tmp_path: Path) -> None:
    handed_in(tmp_path, {"ada/b.ipynb": book(e4_2="b = 1"), "ada/a.ipynb": book(e4_2="a = 1")})
    os.utime(tmp_path / "ada" / "a.ipynb", (1_800_000_100, 1_800_000_100))
    assert submissions.read(submissions.found(tmp_path)[0][0], KEYS).cells["4.2"] == "a = 1"


def test_an_untouched_cell_in_a_newer_file_yields_to_an_older_answer(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    for name, answer, when in (("04.ipynb", "x = 1", EARLY), ("again.ipynb", exercises()["4.2"].given, LATE)):
        (tmp_path / "ada" / name).write_bytes(book(e4_2=answer))
        os.utime(tmp_path / "ada" / name, (when, when))
    sheet = submissions.read(submissions.found(tmp_path)[0][0], KEYS)
    assert sheet.cells["4.2"] == "x = 1"
    assert "the one in “04.ipynb” counts" in sheet.notes[0].en


def test_what_systems_leave_behind_is_no_submission_and_is_said(tmp_path: Path) -> None:
    receipt = "Week 3_mullerz_attempt_2026-11-20-12-00-00.txt"
    alone = "Week 3_oconnors_attempt_2026-11-20-12-00-00.txt"
    files = {
        "Week 3_mullerz_attempt_2026-11-20-12-00-00_12.ipynb": book(e12_2="x = 1"),
        receipt: b"Name: Zoe",
        alone: b"Name: S",
    }
    files |= {"__MACOSX/._a.ipynb": b"x", ".hidden.ipynb": book(), ".DS_Store": b"x", "Thumbs.db": b"x"}
    sheets = handed_in(tmp_path, files)
    assert set(sheets) == {"Week 3_mullerz_attempt_2026-11-20-12-00-00_12", alone}
    assert sheets[alone].problem is not None, "who handed in nothing else is not lost"
    assert set(submissions.found(tmp_path)[1]) == {"__MACOSX", ".hidden.ipynb", ".DS_Store", "Thumbs.db", receipt}


def test_a_download_of_a_class_is_no_submission(tmp_path: Path) -> None:
    files = {f"download/{name}_7_9_04.ipynb": book(e4_2="x = 1") for name in ("lovelaceada", "hoppergrace")}
    (sheet,) = handed_in(tmp_path, files).values()
    assert "several people" in (sheet.problem.en if sheet.problem else "")


# --- archives --------------------------------------------------------------------------------------------------------


def packed(files: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", kind) as box:
        for name, content in files.items():
            box.writestr(name, content)
    return raw.getvalue()


def encrypted() -> bytes:
    raw = bytearray(packed({"04.ipynb": book(e4_2="x = 1")}))
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    return bytes(raw)


@pytest.mark.parametrize("place", ["Łukasz Żółć_1007_assignsubmission_file_week3.zip", "ada/x.zip", "ada.ipynb"])
def test_a_zip_is_read(tmp_path: Path, place: str) -> None:
    files = {
        "week3/04.ipynb": book(e4_2="a = 1"),
        "week3/12.ipynb": book(e12_2="b = 1"),
        "__MACOSX/week3/._04.ipynb": b"x",
        "n.txt": b"x",
    }
    (sheet,) = handed_in(tmp_path, {place: packed(files)}).values()
    assert (sheet.problem, sheet.cells) == (None, {"4.2": "a = 1", "12.2": "b = 1"})


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (packed({"readme.txt": b"x"}), "no notebook in the zip, but “readme.txt”"),
        (
            packed({"a/inner.zip": packed({"04.ipynb": book(e4_2="x = 1")})}),
            "no notebook in the zip, but “a/inner.zip”",
        ),
        (packed({".ipynb_checkpoints/04.ipynb": book()}), "no notebook in the zip, but “.ipynb_checkpoints/04.ipynb”"),
        (b"%PDF-1.7 x", "it is a PDF, not a notebook"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html>", "it is a web page, not a notebook"),
        (b"\x89PNG\r\n", "it is a picture, not a notebook"),
        (packed({"04.ipynb": book()}, zipfile.ZIP_LZMA), "unusual kind: unpack it"),
        (encrypted(), "with a password: unpack it"),
        (packed({"04.ipynb": book(e4_2="x = 1" * 99)})[:-40], "cannot be read: unpack it"),
        (packed({f"{n}.ipynb": b"" for n in range(51)}), "more than 50 notebooks"),
        (packed({f"{n}": b"" for n in range(archives.MOST_MEMBERS + 1)}), "more than 2000 files"),
        (packed({"bomb.ipynb": b"\0" * (submissions.LARGEST + 1)}), "too large"),
        (packed({"a/lovelaceada_7_9_04.ipynb": book(), "a/hoppergrace_8_10_04.ipynb": book()}), "several people"),
        (b"Rar!\x1a\x07\x00", "an archive (RAR), not a notebook: unpack it"),
        (b"7z\xbc\xaf'\x1c", "an archive (7z), not a notebook: unpack it"),
        (b"\x1f\x8b\x08\x00", "an archive (gzip), not a notebook: unpack it"),
    ],
)
def test_an_archive_that_cannot_be_read_gets_one_sentence(tmp_path: Path, raw: bytes, sentence: str) -> None:
    (sheet,) = handed_in(tmp_path, {"ada.zip": raw}).values()
    assert sentence in (sheet.problem.en if sheet.problem else "")
    (sheet,) = handed_in(tmp_path, {"ada.zip": raw, "ada/04.ipynb": book(e4_2="x = 1")}).values()
    if re.search("no notebook in the zip|it is a (?:PDF|web page|picture)", sentence):  # it has no answers
        assert sheet.cells == {"4.2": "x = 1"}
        assert any("“ada.zip” was left out" in note.en and sentence in note.en for note in sheet.notes)
        assert sheet.beside == ("ada.zip",)
    else:
        assert not sheet.cells
        assert sheet.problem is not None
        assert sheet.problem.en.startswith("“ada.zip”, which may hold what counts: ")
        assert sentence in sheet.problem.en


@pytest.mark.parametrize("broken", [b"no", b"", b'{"worksheets": []}', b"PK\x03\x04", b"7z\xbc\xaf'\x1c"])
@pytest.mark.parametrize("form", ["{}", "ada/{}", "zip"])
def test_a_notebook_that_cannot_be_read_leaves_no_mark_beside_one_that_can(
    tmp_path: Path, broken: bytes, form: str
) -> None:
    files = {"12.ipynb": book(e12_2="x = 1"), "04.ipynb": broken}
    if form == "zip":
        (sheet,) = handed_in(tmp_path, {"ada.zip": packed(files)}).values()
    elif form == "{}":
        roster = [Person("1001", "1001", "Ada")]
        (sheet,) = handed_in(tmp_path, {f"1001_{name}": raw for name, raw in files.items()}, roster).values()
    else:
        (sheet,) = handed_in(tmp_path, {form.format(name): raw for name, raw in files.items()}).values()
    assert not sheet.cells
    assert sheet.problem is not None
    assert re.match(r"“(?:ada\.zip/|1001_)?04\.ipynb”, which may hold what counts: \w", sheet.problem.en)
    assert "04.ipynb”（其中可能有应计分的答案）" in sheet.problem.zh


def test_a_broken_attempt_is_passed_over_only_where_a_newer_one_has_every_exercise(tmp_path: Path) -> None:
    whole = book(e4_2="x = 1", e12_2="y = 1")
    (sheet,) = handed_in(tmp_path / "newest", {"ada/04.ipynb": whole, "ada/04 (1).ipynb": b"no"}).values()
    assert sheet.problem is not None
    assert sheet.problem.en.startswith("“04 (1).ipynb”, ")
    (sheet,) = handed_in(tmp_path / "older", {"ada/04.ipynb": b"no", "ada/04 (1).ipynb": whole}).values()
    assert sheet.problem is None
    assert sheet.cells == {"4.2": "x = 1", "12.2": "y = 1"}
    assert [note.en for note in sheet.notes] == ["“04.ipynb” was left out: it is not a notebook: it is no JSON"]
    (sheet,) = handed_in(tmp_path / "half", {"ada/04.ipynb": b"no", "ada/04 (1).ipynb": book(e4_2="x = 1")}).values()
    assert sheet.problem is not None


def test_magics_above_an_exercise_are_said_to_be_skipped(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "source": f"{above}%%exercise {key}\nx = 1"}
        for above, key in (("%%time\n%%capture\n", "4.2"), ("%%time\n", "9.1"))
    ]
    (sheet,) = handed_in(tmp_path, {"ada.ipynb": json.dumps({"cells": cells}).encode()}).values()
    assert sheet.cells == {"4.2": "x = 1"}
    assert [note.en for note in sheet.notes] == [
        "4.2: `%%time`, `%%capture` above the exercise have a meaning in a notebook only and were skipped"
    ]


def test_a_link_in_a_folder_is_not_followed_and_leaves_no_mark(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(book(e12_2="x = 1"))
    (tmp_path / "in" / "ada").mkdir(parents=True)
    (tmp_path / "in" / "ada" / "12.ipynb").symlink_to(tmp_path / "secret.txt")
    (sheet,) = handed_in(tmp_path / "in", {"ada/04.ipynb": book(e4_2="x = 1")}).values()
    assert not sheet.cells
    assert sheet.problem is not None
    assert sheet.problem.en == "“12.ipynb”, which may hold what counts: it is a link, and links are not followed"


def test_a_readme_among_the_submissions_is_named(tmp_path: Path) -> None:
    for name in ("readme.txt", "grades.csv", "ada.ipynb"):
        (tmp_path / name).write_bytes(book())
    found, skipped = submissions.found(tmp_path)
    assert [each.student for each in found] == ["ada"]
    assert skipped == ["readme.txt"]


def test_what_is_beside_a_notebook_and_was_not_read_is_said(tmp_path: Path) -> None:
    files = {"04.ipynb": book(e4_2="x = 1"), "02.pdf": b"%PDF", "README.txt": b"", "data.csv": b"1", ".hidden.pdf": b""}
    for name, sheet in (
        ("", handed_in(tmp_path / "folder", {f"ada/{name}": raw for name, raw in files.items()})["ada"]),
        ("ada.zip/", handed_in(tmp_path / "zip", {"ada.zip": packed(files)})["ada"]),
    ):
        assert sheet.cells == {"4.2": "x = 1"}
        assert sheet.beside == (f"{name}02.pdf",)
        assert [note.en for note in sheet.notes] == [f"“{name}02.pdf” is no notebook and was not read"]


@pytest.mark.parametrize("inside", ["./04.ipynb", "../../04.ipynb", "a/../04.ipynb"])
def test_a_name_in_a_zip_is_no_path_and_what_is_there_is_read(tmp_path: Path, inside: str) -> None:
    (sheet,) = handed_in(
        tmp_path, {"ada.zip": packed({inside: book(e4_2="a = 1"), "12.ipynb": book(e12_2="b = 1")})}
    ).values()
    assert sheet.cells == {"4.2": "a = 1", "12.2": "b = 1"}
    assert not (tmp_path.parent / "04.ipynb").exists()


@pytest.mark.parametrize("at", range(0, 400, 23))
def test_no_damage_to_a_zip_ends_the_class(tmp_path: Path, at: int) -> None:
    raw = bytearray(packed({"04.ipynb": book(e4_2="x = 1")}))
    raw[at % len(raw)] ^= 0xFF
    (sheet,) = handed_in(tmp_path, {"ada.zip": bytes(raw)}).values()
    assert sheet.problem is not None or set(sheet.cells) <= set(KEYS)


# --- marks -----------------------------------------------------------------------------------------------------------

ASSIGNMENT = Assignment("test-class", "Week 3", KEYS)


def row(student: str) -> Row:
    return Row(student, student, tuple(known(exercises()[key], exercises()[key].right[0]) for key in KEYS))


@pytest.mark.parametrize("system", sorted(lms.SYSTEMS))
def test_a_mark_for_someone_who_handed_in_nothing_is_passed_on(tmp_path: Path, system: str) -> None:
    marks = [ledger.Override("1011", "", 1.5, "oral exam"), ledger.Override("Grace Hopper", "4.2", 0.5, "shown")]
    entries = ledger.settled(ASSIGNMENT, [row("ada"), row("mallory")], CLASS, marks)
    path = lms.write(tmp_path / "grades.csv", system, ASSIGNMENT, entries)
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    ident = {"moodle": "ID number", "canvas": "SIS User ID", "blackboard": "Student ID"}[system]
    column = next(name for name in lines[0] if name.startswith("Week 3"))
    marks_of = {line[ident]: line[column] for line in lines if line[ident]}
    assert marks_of == {"1014": "2", "1011": "1.5", "1015": "0.5"}, (
        "a line for each person with a mark, none for who is not in the roster"
    )
    if system == "moodle":
        said = {line[ident]: line["Week 3 (feedback)"] for line in lines}
        assert "oral exam" in said["1011"]


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("%%exercise 4,2\nx = 1", "code", "“%%exercise 4,2” in line 1"),
        ("%%exercise 4.20\nx = 1", "code", "“%%exercise 4.20” in line 1"),
        ("%%Exercise 4.2\nx = 1", "code", "“%%Exercise 4.2” in line 1"),
        ("%%excercise 4.2\nx = 1", "code", "“%%excercise 4.2” in line 1"),
        ("%exercise 4.2\nx = 1", "code", "“%exercise 4.2” in line 1"),
        ("# mine\n%%exercise 4.2\nx = 1", "code", "“%%exercise 4.2” in line 2"),
        ("%load_ext pitfall_lab\n%%exercise 4.2\nx = 1", "code", "“%%exercise 4.2” in line 2"),
        ("%%exercise 4.2\nx = 1", "markdown", "cell that is no code with “%%exercise 4.2”"),
        ("%%exercise 4-2\nx = 1", "raw", "“%%exercise 4-2”"),
    ],
)
def test_a_cell_that_almost_is_an_answer_is_named(source: str, kind: str, said: str) -> None:
    cells = [{"cell_type": kind, "source": source}, {"cell_type": "code", "source": "%%exercise 4.3\nx = 1"}]
    sheet = read_of(cells, "4.2", "4.3")
    assert [said in note.en for note in sheet.notes] == [True]
    assert "begins with “%%exercise 4.2”" in sheet.notes[0].en
    answered = [*cells, {"cell_type": "code", "source": "%%exercise 4.2\nx = 2"}]
    assert read_of(answered, "4.2", "4.3").notes == (), "there is an answer"


def test_a_cell_that_only_speaks_of_an_exercise_is_not_named() -> None:
    texts = [
        "In `%%exercise 4.2 --hint` there are hints.",
        "%%timeit 4.2",
        "Exercise 4.2",
        "%%exercise 9.1\nx = 1",
        "%%exercise",
        "%%exercise x",
    ]
    cells = [{"cell_type": kind, "source": text} for text in texts for kind in ("code", "markdown")]
    assert read_of(cells, "4.2").notes == ()


def read_of(cells: list[dict[str, str]], *keys: str) -> submissions.Sheet:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ada.ipynb"
        path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
        return submissions.read(submissions.Submission("ada", (path,)), keys)


def test_a_mark_has_one_person(tmp_path: Path) -> None:
    rows = [row("ada"), row("Anna Schmidt_x")]
    for word, sentence in (
        ("Anna Schmidt", "fits 2 students: write the id"),
        ("nobody", "“nobody”, which is no submission"),
    ):
        with pytest.raises(Refusal, match=sentence):
            ledger.settled(ASSIGNMENT, rows, CLASS, [ledger.Override(word, "", 1, "x")])
    with pytest.raises(Refusal, match="two marks for the sum"):
        ledger.settled(ASSIGNMENT, rows, CLASS, [ledger.Override(word, "", 1, "x") for word in ("ada", "1014")])


def test_no_table_for_another_system_has_two_lines_for_one_student(tmp_path: Path) -> None:
    entries = ledger.settled(ASSIGNMENT, [row("ada")], [Person("ada", "", "Ada"), Person("x", "1", "Bo", login="ada")])
    with pytest.raises(Refusal, match="two lines for “ada”"):
        lms.write(tmp_path / "grades.csv", "blackboard", ASSIGNMENT, entries)


def test_blackboard_gets_the_last_name_that_a_comma_marks() -> None:
    assert [whose.last_and_first(name) for name in ("Müller, Max", "Ada Lovelace", "Zoë")] == [
        ("Müller", "Max"),
        ("Lovelace", "Ada"),
        ("Zoë", ""),
    ]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An assignment with a roster; judging gives each student full marks."""
    place = tmp_path / "week"
    assert main(["classroom", "init", str(place), "--chapters", "4,12", "--exercises-only"]) == 0
    lines = [
        "id,name,login",
        "1014,Ada Lovelace,ada",
        "1012,李 娜,lina",
        "1011,Jean-Luc d'Arc,darcj",
        "1001,Zoë Müller,mullerz",
    ]
    (place / "roster.csv").write_text("\n".join(lines), encoding="utf-8")
    (place / "overrides.csv").write_text(
        "student,exercise,points,note\n1011,,7,oral\nAda Lovelace,4.2,3,bonus\n", encoding="utf-8"
    )

    def here(_jobs: Any, assignment: Assignment, sheets: list[submissions.Sheet], **_: Any) -> Any:
        return (
            (sheet, [known(exercises()[key], exercises()[key].right[0]).to_dict() for key in assignment.keys])
            for sheet in sheets
        )

    monkeypatch.setattr("pitfall_lab.classroom.grade._here", here)
    for name, content in {
        "lovelaceada_5_9_04.ipynb": book(e4_2="x = 1"),
        "lina_77_912_04.ipynb": book(e4_2="x = 1"),
        "lina_77_913_12.ipynb": book(e12_2="x = 1"),
        "mallory.ipynb": book(e4_2="x = 1"),
        ".DS_Store": b"",
    }.items():
        (place / "submissions" / name).write_bytes(content)
    return place


def test_the_last_lines_say_what_became_of_everybody(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["grade", str(week), "--trust", "--lms", "moodle"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = [line.partition(":")[0] for line in lines]
    assert said[1:6] == [
        "3 submissions",
        "Not read, since these are no submissions",
        "Several files of one person, read as one submission",
        "Not in the roster, and so in no table for another system",
        "Handed in nothing, and have no mark",
    ]
    assert "1 (“Zoë Müller”)" in lines[5]
    assert "1 (“Jean-Luc d'Arc”)" in lines[6]
    assert "“Ada Lovelace” 3 points for 4.2, which is worth 1" in lines[7]


def test_a_repeated_run_leaves_tables_and_pages_for_the_next_resume(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, report = week / "grades.moodle.csv", week / "report"
    assert main(["grade", str(week), "--trust", "--lms", "moodle", "--column", "Third", "--report", str(report)]) == 0
    for _ in range(2):  # a repeated full run leaves what is there as it is
        assert main(["grade", str(week), "--trust"]) == 0
    with (week / "overrides.csv").open("a", encoding="utf-8") as file:
        file.write("1001,,6,late mark\n")
    assert "late mark" not in table.read_text(encoding="utf-8")
    assert main(["grade", str(week), "--trust", "--resume"]) == 0
    assert "late mark" in table.read_text(encoding="utf-8")
    assert ",Third," in table.read_text(encoding="utf-8").splitlines()[0]
    assert any("late mark" in page.read_text(encoding="utf-8") for page in (report / "students").iterdir())


def test_who_is_without_a_mark_since_one_of_the_files_is_broken_is_named(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (week / "submissions" / "1001").mkdir()
    (week / "submissions" / "1001" / "04.ipynb").write_bytes(b"no")
    (week / "submissions" / "1001" / "12.ipynb").write_bytes(book(e12_2="x = 1"))
    (week / "submissions" / "1001" / "12.pdf").write_bytes(b"%PDF")
    assert main(["grade", str(week), "--trust", "--lms", "moodle", "--report", str(week / "report")]) == 0
    lines = capsys.readouterr().out.splitlines()
    name = "Zoë Müller"
    assert (
        f"Could not be read: 1 (“{name}”): “04.ipynb”, which may hold what counts: it is not a notebook: it is no JSON."
        in lines
    )
    assert any(line.startswith("Without a mark, ") and f"“{name}”" in line for line in lines)
    assert f"Beside notebooks, and not read, since these are none: 1 (“{name}: 12.pdf”)." in lines
    with (week / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        (line,) = [line for line in csv.DictReader(file) if line["student"] == "1001"]
    assert (line["verdict"], line["points"], line["12.2"]) == ("unreadable", "", "")
    assert name not in (week / "grades.moodle.csv").read_text(encoding="utf-8")
    (page,) = [path for path in (week / "report" / "students").iterdir() if "1001" in path.name]
    assert "No mark yet" in page.read_text(encoding="utf-8")


def test_whose_it_may_be_and_why_it_was_not_read_is_said(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (week / "roster.csv").open("a", encoding="utf-8") as file:
        file.write("\n1007,Anna Schmidt,\n1009,Anna Schmidt,\n")
    (week / "submissions" / "Anna Schmidt.ipynb").write_bytes(book(e4_2="x = 1"))
    (week / "submissions" / "broken.ipynb").write_bytes(b"no")
    assert main(["grade", str(week), "--trust"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (said,) = [line for line in lines if "“Anna Schmidt”" in line]
    assert said.startswith(
        "Not clear whose, and so in no table for another system: 1 (“Anna Schmidt”). It may be of "
        "Anna Schmidt (1007) or "
    )
    assert "Anna Schmidt (1009): write what the submission is called into the column student of roster.csv" in said
    people = (week / "roster.csv").read_text(encoding="utf-8").splitlines()
    lines_of = [f"{'' if number else 'student'},{line}" for number, line in enumerate(people)] + ["broke,1010,Eve,"]
    (week / "roster.csv").write_text("\n".join(lines_of), encoding="utf-8")
    assert main(["grade", str(week), "--trust", "--resume"]) == 0
    assert (
        "In the column student of roster.csv, and no submission is called so: 1 (“broke”)."
        in capsys.readouterr().out.splitlines()
    )
    at = lines.index("Could not be read: 1 (“broken”): it is not a notebook: it is no JSON.")
    assert lines[at + 1].startswith(
        "Without a mark, since it could not be read or not all be graded: 1 (“broken”). Put what can be read"
    )
    assert lines[at + 1].endswith("and grade with --resume; or give a mark in overrides.csv.")
    with (week / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        (notes,) = [line["notes"] for line in csv.DictReader(file) if line["student"] == "Anna Schmidt"]
    assert "the name fits 2 people in the roster (1007, 1009)" in notes


def test_everything_that_is_wrong_with_the_teachers_files_is_said_before_anything_is_graded(
    week: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roster, own = (week / "roster.csv").read_text("utf-8"), (week / "overrides.csv").read_text("utf-8")
    monkeypatch.setattr("pitfall_lab.classroom.grade._graded", lambda *_, **__: pytest.fail("graded"))
    (week / "roster.csv").write_text(roster + "\n1014,Twice,\n,Nobody,\n1030,Late,ada\n", encoding="utf-8")
    (week / "overrides.csv").write_text(own + "1014,9.9,1,x\n1012,4.2,many,x\nwho,,1,x\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["grade", str(week), "--trust"]) == 2
    said = capsys.readouterr().err
    assert [f"line {line}:" in said for line in (6, 7, 8)] == [True] * 3
    own_faults = ("line 4: “9.9” is no exercise", "line 5: points must be a number", "“who”, which is no submission")
    assert [each in said for each in own_faults] == [True] * 3
    assert "two marks" not in said
    (week / "roster.csv").write_text(roster, encoding="utf-8")
    (week / "overrides.csv").write_text(own + "who,,1,x\nwhat,,1,x\n", encoding="utf-8")
    assert main(["grade", str(week), "--trust"]) == 2
    said = capsys.readouterr().err
    assert [word in said for word in ("“who”, which is no submission", "“what”, which is no submission")] == [True] * 2


def test_a_page_goes_back_to_whose_submission_it_was_whatever_is_inside(week: Path) -> None:
    """A student's folder may hold a file that is called as another's is."""
    inside = week / "submissions" / "Mallory Eve_9_assignsubmission_file_"
    for name in ("lovelaceada_5_9_04.ipynb", "Ada Lovelace_5_assignsubmission_file_04.ipynb"):
        inside.mkdir(exist_ok=True)
        (inside / name).write_bytes(book(e4_2="x = 1"))
        assert main(["grade", str(week), "--trust", "--report", str(week / "report")]) == 0
        with zipfile.ZipFile(week / "report" / "canvas-feedback.zip") as archive:
            assert archive.namelist() == ["lovelaceada_5_9_04.ipynb", "lina_77_913_12.ipynb"]
            assert "Mallory" not in archive.read("lovelaceada_5_9_04.ipynb").decode()
        with zipfile.ZipFile(week / "report" / "moodle-feedback.zip") as archive:
            assert archive.namelist() == ["Mallory Eve_9_assignsubmission_file_feedback.html"]
        (inside / name).unlink()


def test_resume_writes_what_was_written_before(week: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "pages"
    words = ["grade", str(week), "--trust"]
    assert main([*words, "--lms", "canvas"]) == 0
    assert "“week” is a new column there, having no number." in capsys.readouterr().out
    assert main([*words, "--lms", "canvas", "--column", "Week 3 (4711)", "--report", str(report), "--lang", "zh"]) == 0
    assert "new column" not in capsys.readouterr().out
    assert main([*words, "--resume", "--lms", "moodle"]) == 0
    (week / "overrides.csv").write_text("student,exercise,points,note\n1011,,6.25,oral\n", encoding="utf-8")
    (week / "submissions" / "mallory.ipynb").unlink()
    pages = {path.name for path in (report / "students").iterdir()}
    assert main([*words, "--resume"]) == 0
    for system in ("canvas", "moodle"):
        assert "6.25" in (week / f"grades.{system}.csv").read_text(encoding="utf-8")
    assert "Week 3 (4711)" in (week / "grades.canvas.csv").read_text(encoding="utf-8")
    assert "Week 3 (4711)" not in (week / "grades.moodle.csv").read_text(encoding="utf-8")
    index = (report / "index.html").read_text(encoding="utf-8")
    assert "6.25" in index
    assert '<html lang="zh">' in index
    left = {path.name for path in (report / "students").iterdir()}
    assert {name.partition("-")[0] for name in pages - left} == {"mallory"}
    assert all(f"students/{quote(name)}" in index for name in left)
    capsys.readouterr()
    assert main(words) == 0
    assert "grades.moodle.csv is of an earlier run and was not written anew" in capsys.readouterr().out


def test_other_points_need_no_new_run(week: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["grade", str(week), "--trust"]
    assert main(words) == 0
    before = lines_of(week)["mallory"]
    path = week / "assignment.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('"4.2" = 1\n', '"4.2" = 3\n'), encoding="utf-8")
    monkeypatch.setattr(
        "pitfall_lab.classroom.grade._here",
        lambda _jobs, _assignment, sheets, **__: iter([pytest.fail("run")] if sheets else []),
    )
    assert main([*words, "--resume"]) == 0
    after = lines_of(week)["mallory"]
    assert (
        float(after["points"]) - float(before["points"]),
        float(after["of"]) - float(before["of"]),
        after["4.2"],
    ) == (2, 2, "3")


def test_a_state_file_among_submissions_is_not_believed(week: Path, tmp_path: Path) -> None:
    """Who hands in a state file would else choose where pages are written, and which roster counts."""
    place = tmp_path / "handed-in"
    place.mkdir()
    (place / "ada.ipynb").write_bytes(book(e12_2="x = 1"))
    keys = [key for key in exercises() if key.startswith("12.")]
    head = {"pitfall_lab_grading": 1, "assignment": "chapters-12", "exercises": keys}
    options = {"options": {"lms": {"moodle": None}, "report": "../elsewhere", "roster": "ada.ipynb"}}
    (place / "grades.state.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(options)}\n", encoding="utf-8")
    assert main(["grade", str(place), "--chapters", "12", "--resume", "--trust"]) == 0
    assert not (tmp_path / "elsewhere").exists()
    assert not (place / "grades.moodle.csv").exists()


def lines_of(place: Path) -> dict[str, dict[str, str]]:
    with (place / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {line["name"] or line["student"]: line for line in csv.DictReader(file)}


def set_due(place: Path, due: str = "2026-11-22T12:00:00") -> None:
    path = place / "assignment.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("# due = 2026-11-20T23:59:00+01:00", f"due = {due}").replace("# late_p", "late_p"),
        encoding="utf-8",
    )


def test_who_is_late_is_said_and_by_which_times(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_due(week)
    for path in (week / "submissions").iterdir():
        os.utime(path, (LATE, LATE))
    assert main(["grade", str(week), "--trust"]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Late: "))
    assert said.startswith("Late: 3 (")
    assert "“Ada Lovelace”" in said
    assert "; points deducted from 3; by the files' own times. The column received of roster.csv" in said


def test_a_folder_that_cannot_be_read_is_late_as_a_file_is(week: Path) -> None:
    set_due(week)
    for folder, name in (("Zoë Müller", "04.pdf"), ("Jean-Luc d'Arc", "a/b.docx")):
        path = week / "submissions" / folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"%PDF")
        os.utime(path, (EARLY, LATE))
    (week / "submissions" / "empty").mkdir()
    assert main(["grade", str(week), "--trust"]) == 0
    found = {name: (line["verdict"], line["late_days"], line["received"][:10]) for name, line in lines_of(week).items()}
    assert found["Zoë Müller"] == found["Jean-Luc d'Arc"] == ("unreadable", "2", "2026-11-24")
    assert found["empty"] == ("unreadable", "0", "")
    os.utime(week / "submissions" / "Zoë Müller" / "04.pdf", (EARLY, EARLY))
    assert main(["grade", str(week), "--trust", "--resume"]) == 0
    assert lines_of(week)["Zoë Müller"]["received"][:10] == "2026-11-20", (
        "what was there is not taken for what is there"
    )


def test_who_loses_points_is_said_and_two_of_one_name_are_told_apart(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_due(week)
    toml = (week / "assignment.toml").read_text(encoding="utf-8").replace("# late_days = 0", "late_days = 1")
    (week / "assignment.toml").write_text(toml, encoding="utf-8")
    (week / "overrides.csv").unlink()
    shutil.rmtree(week / "submissions")
    (week / "submissions").mkdir()
    people = "1,Ada Lovelace\n2,Anna Schmidt\n3,Anna Schmidt\n4,Łukasz Żółć\n"
    (week / "roster.csv").write_text("id,name\n" + people, encoding="utf-8")
    due = datetime.fromisoformat("2026-11-22T12:00:00").timestamp()
    for name, written in (("1", due + 9), ("Łukasz Żółć_77_assignsubmission_file_4", due + 90_000)):
        path = week / "submissions" / f"{name}.ipynb"
        path.write_bytes(book(e4_2="x = 1"))
        os.utime(path, (written, written))
    assert main(["grade", str(week), "--trust", "--report", str(week / "report")]) == 0
    said = capsys.readouterr().out
    assert (
        "Late: 2 (“Ada Lovelace”, “Łukasz Żółć”); points deducted from 1 (“Łukasz Żółć”); by the files' own times."
        in said
    )
    assert "Handed in nothing, and have no mark: 2 (“Anna Schmidt (2)”, “Anna Schmidt (3)”)" in said
    assert "moodle-feedback.zip. Not in it: 1 (“Ada Lovelace”), whose files have no name of Moodle's." in said


def test_the_time_in_blackboards_name_counts_and_not_the_files(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_due(week)
    for login, when, written in (
        ("ada", "2026-11-24-10-00-00", EARLY),
        ("lina", "2026-11-20-10-00-00", LATE),
        ("darcj", "2026-13-99-10-00-00", EARLY),
    ):
        path = week / "submissions" / f"Quiz_{login}_attempt_{when}_04.ipynb"
        path.write_bytes(book(e4_2="x = 1"))
        os.utime(path, (written, written))
    for name in ("lovelaceada_5_9_04.ipynb", "lina_77_912_04.ipynb", "lina_77_913_12.ipynb", "mallory.ipynb"):
        (week / "submissions" / name).unlink()
    assert main(["grade", str(week), "--trust"]) == 0
    lines = lines_of(week)
    assert {name: lines[name]["late_days"] for name in ("Ada Lovelace", "李 娜", "Jean-Luc d'Arc")} == {
        "Ada Lovelace": "2",
        "李 娜": "0",
        "Jean-Luc d'Arc": "0",
    }
    assert "1 (“Ada Lovelace”); points deducted from 1; by the times in Blackboard's names" in capsys.readouterr().out


def test_where_canvas_and_the_clock_disagree_it_is_said(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_due(week)
    submissions_of = week / "submissions"
    (submissions_of / "lovelaceada_5_9_04.ipynb").rename(submissions_of / "lovelaceada_LATE_5_9_04.ipynb")
    for name, when in (
        ("lovelaceada_LATE_5_9_04.ipynb", EARLY),
        ("lina_77_912_04.ipynb", EARLY),
        ("lina_77_913_12.ipynb", LATE),
    ):
        os.utime(submissions_of / name, (when, when))
    assert main(["grade", str(week), "--trust"]) == 0
    said = capsys.readouterr().out
    assert "Canvas calls late who is not late here: 1 (“Ada Lovelace”)" in said
    assert "Late here, and not called late by Canvas: 1 (“李 娜”)" in said
    assert "Canvas calls it late" in lines_of(week)["Ada Lovelace"]["notes"]
    os.utime(submissions_of / "lovelaceada_LATE_5_9_04.ipynb", (LATE, LATE))
    os.utime(submissions_of / "lina_77_913_12.ipynb", (EARLY, EARLY))
    assert main(["grade", str(week), "--trust"]) == 0
    assert "Canvas" not in capsys.readouterr().out.replace("grades.canvas", "")


def test_pages_that_are_not_written_anew_are_said_to_be_of_an_earlier_run(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["grade", str(week), "--trust"]
    report = week / "report"
    sentence = f"The pages in {report} are of an earlier run and were not written anew; --report {report} does it."
    assert main([*words, "--report", str(report)]) == 0
    assert "earlier run" not in capsys.readouterr().out
    for _ in range(2):
        assert main(words) == 0
        assert sentence in capsys.readouterr().out
    for more in (["--resume"], ["--only", "ada"]):  # these go on from the run that wrote them
        assert main([*words, *more]) == 0
        assert "earlier run" not in capsys.readouterr().out


def test_only_grades_those_whom_it_names(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["grade", str(week), "--trust"]
    assert main(words) == 0
    before = lines_of(week)
    for name in ("lovelaceada_5_9_04.ipynb", "mallory.ipynb"):
        (week / "submissions" / name).write_bytes(book(e4_2="x = 2"))
    capsys.readouterr()
    assert main([*words, "--only", "1014"]) == 0
    after = lines_of(week)
    assert after["mallory"]["sha256"] == before["mallory"]["sha256"]
    assert after["Ada Lovelace"]["sha256"] != before["Ada Lovelace"]["sha256"]
    said = capsys.readouterr().out
    assert "Changed since they were graded, and left as they were: 1 (“mallory”); --resume grades them." in said
    assert "Graded again: “Ada Lovelace” (lovelaceada_5_9_04.ipynb): " in said
    assert f"points, before it had {before['Ada Lovelace']['points']} (4.2: 3 points by the teacher instead of " in said
    assert main([*words, "--resume"]) == 0
    assert lines_of(week)["mallory"]["sha256"] != before["mallory"]["sha256"]


def test_who_has_a_mark_and_no_files_is_not_said_to_have_files(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", str(week), "--trust", "--report", str(week / "report")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "canvas-feedback.zip." in line]
    assert "Not in it: 1 (“mallory”), whose files have no name of Canvas'" in line
    assert line.endswith("Not in it: 1 (“Jean-Luc d'Arc”), who handed in nothing.")


def test_the_page_and_the_console_count_the_same_who_did_not_hand_in(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (week / "roster.csv").open("a", encoding="utf-8") as file:
        file.write("\n1007,Anna Schmidt,as\n1009,Anna Schmidt,at\n")
    (week / "overrides.csv").unlink()
    (week / "submissions" / "Anna Schmidt.ipynb").write_bytes(book(e4_2="x = 1"))
    capsys.readouterr()
    assert main(["grade", str(week), "--trust", "--report", str(week / "report")]) == 0
    assert "Handed in nothing, and have no mark: 2 (“Jean-Luc d'Arc”, “Zoë Müller”)" in capsys.readouterr().out
    page = (week / "report" / "index.html").read_text(encoding="utf-8")
    assert "Who did not hand in (2)" in page
    assert (
        "Who may have handed in what is not clear whose it is (2)</h2><p>Anna Schmidt (1007); Anna Schmidt (1009)</p>"
        in page
    )


def test_a_name_that_fits_two_people_is_refused_also_where_one_handed_in(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (week / "roster.csv").open("a", encoding="utf-8") as file:
        file.write("\n1007,Anna Schmidt,as\n1009,Anna Schmidt,at\n")
    (week / "submissions" / "1007.ipynb").write_bytes(book(e4_2="x = 1"))
    capsys.readouterr()
    assert main(["grade", str(week), "--trust", "--only", "Anna Schmidt", "--only", "who", "--only", "1009"]) == 2
    said = capsys.readouterr().err
    for sentence in (
        "“Anna Schmidt” fits 2 students",
        "no submission of “who”",
        "“1009” is in the roster but has no submission",
    ):
        assert sentence in said
    assert main(["grade", str(week), "--trust", "--only", "1007"]) == 0


def test_what_is_for_the_teacher_is_not_in_what_students_get(week: Path) -> None:
    report = week / "report"
    (week / "roster.csv").write_text(
        "id,name\n1,Mallory\n2,Mallory\n1014,Ada Lovelace\n1011,Jean-Luc d'Arc\n", encoding="utf-8"
    )
    assert main(["grade", str(week), "--trust", "--report", str(report)]) == 0
    remarks = ["the name fits 2 people in the roster", "not in the roster", "read as one submission"]
    pages = "".join(path.read_text(encoding="utf-8") for path in (report / "students").glob("*.html"))
    index = (report / "index.html").read_text(encoding="utf-8")
    assert all(remark in index and remark not in pages for remark in remarks)
    outcome = replace(known(exercises()["4.2"], exercises()["4.2"].right[0]), unneeded=("sys",))
    (entry,) = ledger.settled(
        Assignment("test", "Week", ("4.2",)), [Row("ada", "1", (outcome,))], [Person("ada", "5", "Ada")]
    )
    assert "read the cell" in entry.remarks()[0]
    assert entry.remarks(to_student=True) == []
    assert "read the cell" not in student_page(Assignment("test", "Week", ("4.2",)), entry, "en")
    assert (
        "read the cell"
        not in lms.write(week / "g.csv", "moodle", Assignment("test", "Week", ("4.2",)), [entry]).read_text()
    )


def test_a_duplicate_counts_only_where_the_times_are_equal_and_the_note_says_that(tmp_path: Path) -> None:
    folder = tmp_path / "ada"
    folder.mkdir()
    for name, answer in (("04.ipynb", "x = 1"), ("04-Copy1.ipynb", "x = 2")):
        (folder / name).write_bytes(book(e4_2=answer))
        os.utime(folder / name, (EARLY, EARLY))
    sheet = submissions.read(submissions.found(tmp_path)[0][0], KEYS)
    assert sheet.cells["4.2"] == "x = 2"
    assert "the one in “04-Copy1.ipynb” counts, and another was written at the same time" in sheet.notes[0].en
    os.utime(folder / "04.ipynb", (EARLY + 9, EARLY + 9))
    sheet = submissions.read(submissions.found(tmp_path)[0][0], KEYS)
    assert sheet.cells["4.2"] == "x = 1"
    assert sheet.notes[0].en.endswith("counts")


def test_times_that_were_put_right_count_when_a_run_is_resumed(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_due(week)
    words = ["grade", str(week), "--trust"]
    for path in (week / "submissions").iterdir():
        os.utime(path, (LATE, LATE))
    assert main(words) == 0
    assert lines_of(week)["Ada Lovelace"]["late_days"] == "2"
    for path in (week / "submissions").iterdir():
        os.utime(path, (EARLY, EARLY))
    capsys.readouterr()
    assert main([*words, "--only", "mallory"]) == 0
    assert "Written at another time than before, and left as they were: 2 (" in capsys.readouterr().out
    assert lines_of(week)["Ada Lovelace"]["late_days"] == "2", "all others are kept"
    for _ in range(2):
        assert main([*words, "--resume"]) == 0
        assert "Late: " not in capsys.readouterr().out
        line = lines_of(week)["Ada Lovelace"]
        assert (line["late_days"], line["deducted"], line["received"][:10]) == ("0", "0", "2026-11-20")
    assert main([*words, "--only", "mallory"]) == 0
    assert "another time" not in capsys.readouterr().out, "the state has the new times"


def test_a_file_that_the_teacher_repaired_is_said_to_be_later_than_before(
    week: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_due(week)
    path = week / "submissions" / "lovelaceada_5_9_04.ipynb"
    (week / "overrides.csv").unlink()
    path.write_bytes(b"no notebook")
    for each in (week / "submissions").iterdir():
        os.utime(each, (EARLY, EARLY))
    words = ["grade", str(week), "--trust"]
    assert main(words) == 0
    said = (
        "“Ada Lovelace” is later than before, by the files' own times: a file that you repaired or copied keeps "
        "its time with `cp -p`"
    )
    for when, later in ((LATE, True), (EARLY, False)):
        path.write_bytes(b"no notebook")
        os.utime(path, (EARLY, EARLY))
        assert main([*words, "--resume"]) == 0
        path.write_bytes(book(e4_2="x = 1"))
        os.utime(path, (when, when))
        capsys.readouterr()
        assert main([*words, "--only", "1014"]) == 0
        out = capsys.readouterr().out
        assert (said in out) is later
        assert "before it had no mark" in out


def test_whose_time_the_roster_gives_is_said(week: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_due(week)
    for path in (week / "submissions").iterdir():
        os.utime(path, (LATE, LATE))
    lines = [
        "id,name,received",
        "1014,Ada Lovelace,2026-11-20T10:00",
        "1012,李 娜,",
        "1011,Jean-Luc d'Arc,2026-11-20T10:00",
    ]
    (week / "roster.csv").write_text("\n".join(lines), encoding="utf-8")
    assert main(["grade", str(week), "--trust"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "When it came is as roster.csv says: 1 (“Ada Lovelace”)." in said, "who handed in nothing has no time"
