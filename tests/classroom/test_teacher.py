"""What a teacher has around the grades: roster, deadlines, own marks, other systems' tables, analysis.

No submission is run here.
"""

from __future__ import annotations

import codecs
import csv
import doctest
import io
import json
import os
import re
import time
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from pitfall_lab.classroom import account, analysis, ledger, lms, report, roster, similar
from pitfall_lab.classroom.assignment import Assignment, load
from pitfall_lab.classroom.judge import known
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.whose import Directory
from pitfall_lab.cli import Refusal, main
from pitfall_lab.lessons import tasks
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.trace import T
from tests.classroom import importers
from tests.classroom.a_class import KEYS

DUE = 1_800_000_000.0
ASSIGNMENT = Assignment("test-class", "Week 3", KEYS, due=DUE, late_penalty=10, late_days=1)
LIST = (
    "student;id;name;section;email;login;extra_days;received\n"
    "ada;77;Ada Lovelace;B;ada@x.org;adal;;\n"
    "bob;78;=cmd|x;A;;;2;\n"
    ";79;Carol Chen;A;;;;\n"
)


def outcomes(*wrong: str):
    return tuple(
        known(exercises()[key], exercises()[key].wrong[0] if key in wrong else exercises()[key].right[0])
        for key in KEYS
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    at = {"versions": ("0.1", "2.13")}
    right, half = outcomes(), outcomes("12.1", "12.2")
    return [
        Row("ada", "1", right, received=DUE - 1, **at),
        Row("bob", "2", half, received=DUE + 3.5 * ledger.DAY, **at),
    ]


def people(tmp_path: Path, text: str = LIST) -> list[roster.Person]:
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8-sig")
    return roster.read(path)


# --- the roster --------------------------------------------------------------------------------------------------


def test_who_did_not_hand_in_has_a_line_and_who_is_not_listed_is_said_to_be(rows: list[Row], tmp_path: Path) -> None:
    entries = ledger.settled(ASSIGNMENT, [*rows, Row("mallory", "3", outcomes())], people(tmp_path))
    verdicts = {entry.row.student: (entry.row.verdict, entry.person.section, entry.listed) for entry in entries}
    assert verdicts == {
        "mallory": ("graded", "", False),
        "79": ("absent", "A", True),
        "bob": ("graded", "A", True),
        "ada": ("graded", "B", True),
    }
    assert entries[0].remarks() == ["not in the roster"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,name\n1,a\n1,b\n", "line 3: “1” is there twice"),
        ("student\nada\nada\n", "line 3: “ada” is there twice"),
        ("student,id\n5,\nada,5\n", "line 3: “5” is there twice"),
        ("id,login\n1,ada\n2,Ada\n", "line 3: the login “Ada” is there twice"),
        ("name\nAda\n", "one of them student or id or login or email"),
        ("", "one of them student or id"),
        (
            "id,name,extra_days\n1,Ada,0,5\n",
            "line 2: it has 4 cells, and there are 3 columns. Put quotation marks around a cell that has a comma",
        ),
        (
            "id;name\n1;a;b;\n",
            "line 2: it has 4 cells, and there are 2 columns. Put quotation marks around a cell that has a semicolon",
        ),
        ("student,extra_days\nada,many\n", "extra_days must be a number"),
        ("student,extra_days\nada,nan\n", "extra_days must be a number"),
        ("student,received\nada,soon\n", "received must be like"),
        ("student,extra_day\nada,5\n", "a column “extra_day”, which is not read: is it extra_days?"),
        ("id,recieved\n1,\n", "a column “recieved”, which is not read: is it received?"),
        ("student,name\n,Ada\n", "there is no student, id, login or email"),
        ("student\n" + "a" * 200_000 + "\n", "not a table that can be read"),
        ("student\n" + "\n".join(map(str, range(roster.MOST + 2))), "more than"),
    ],
)
def test_a_roster_that_cannot_be_used_gets_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=re.escape(sentence)):
        people(tmp_path, text)


def test_a_mark_with_a_comma_too_many_is_no_other_mark(tmp_path: Path) -> None:
    (tmp_path / "overrides.csv").write_text(
        "student,exercise,points,note\nada,12.1,0,5,late\nbob,,1,well, no\n", encoding="utf-8"
    )
    with pytest.raises(Refusal, match=r"line 2: it has 5 cells[^\n]*\n.*line 3: it has 5 cells"):
        ledger.read_overrides(tmp_path / "overrides.csv", ASSIGNMENT)


def test_a_roster_in_another_encoding_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_bytes("student\nJosé\n".encode("utf-16"))
    with pytest.raises(Refusal, match="not text in UTF-8"):
        roster.read(tmp_path / "roster.csv")


@pytest.mark.parametrize("seconds", [-1e18, 1e12, 1e18, 1e300])
def test_a_file_may_come_from_any_time(tmp_path: Path, seconds: float) -> None:
    ledger.write_grades(
        tmp_path / "g.csv", ASSIGNMENT, ledger.settled(ASSIGNMENT, [Row("ada", "1", outcomes(), received=seconds)])
    )
    assert (tmp_path / "g.csv").read_text(encoding="utf-8").splitlines()[1].startswith("ada,")


# --- deadlines, and the teacher's own marks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "extra", "late", "share"),
    [
        (-1, 0, 0, 0.0),
        (0, 0, 0, 0.0),
        (1, 0, 1, 0.0),
        (ledger.DAY + 1, 0, 2, 0.1),
        (3.5 * ledger.DAY, 2, 2, 0.1),
        (40 * ledger.DAY, 0, 40, 1.0),
    ],
)
def test_days_after_the_deadline_cost_what_the_assignment_says(
    rows: list[Row], after: float, extra: float, late: int, share: float
) -> None:
    row = replace(rows[0], received=DUE + after)
    (entry,) = ledger.settled(ASSIGNMENT, [row], [roster.Person("ada", extra_days=extra)])
    assert (entry.late, entry.deducted, entry.total) == (late, 4 * share, 4 - 4 * share)
    (given,) = ledger.settled(ASSIGNMENT, [row], [roster.Person("ada", received=DUE - 9)])
    assert given.deducted == 0, "when it came the teacher knows better than the file"


def test_percent_are_of_the_unrounded_sum_and_a_solved_exercise_has_all_of_its_points(
    rows: list[Row], tmp_path: Path
) -> None:
    said = rows[0].outcomes[0].marks[0]
    marks = tuple(replace(said, holds=holds, had=False, idle=False) for holds in (True, False, False))
    third = tuple(replace(outcome, status="partly", marks=marks) for outcome in rows[0].outcomes)
    odd = replace(ASSIGNMENT, due=DUE, late_days=0, points={KEYS[0]: 1.3333, KEYS[1]: 0.1, KEYS[2]: 0.2})
    late = Row("carol", "3", third, received=DUE + 1)
    ledger.write_grades(
        tmp_path / "g.csv",
        odd,
        ledger.settled(odd, [replace(rows[0], received=DUE), replace(late, received=DUE, student="dan"), late]),
    )
    with (tmp_path / "g.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = {line["student"]: (line["points"], line["of"], line["percent"]) for line in csv.DictReader(file)}
    most = sum(odd.worth(key) for key in KEYS)
    assert lines["ada"] == (f"{most:g}", f"{most:g}", "100.0")
    assert lines["dan"] == ("0.88", f"{most:g}", "33.3"), "0.44 + 0.03 + 0.07 + 0.33 are 0.87, and 33.0 percent"
    assert lines["carol"][2] == "30.0"


def test_the_deadline_is_read_from_the_assignment(tmp_path: Path) -> None:
    path = tmp_path / "assignment.toml"
    text = replace(ASSIGNMENT, due=None).to_toml()
    path.write_text(text, encoding="utf-8")
    assert load(path).due is None
    path.write_text(text.replace("# due", "due").replace("# late_penalty", "late_penalty"), encoding="utf-8")
    made = load(path)
    assert made.due is not None
    assert (made.late_penalty, made.late_days) == (10, 0)
    path.write_text('due = "tomorrow"\n' + text, encoding="utf-8")
    with pytest.raises(Refusal, match="due must be a date"):
        load(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name =", "late_penality = 10\nname ="), "“late_penality” is no setting; late_penalty is meant"),
        (("name =", "colour = 1\nname ="), "“colour” is no setting; there are format, id, name"),
        (("[points]", '[points]\n"4.1" = 1'), "points has a line for 4.1, which is not among its exercises"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    path = tmp_path / "assignment.toml"
    text = ASSIGNMENT.to_toml()
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(Refusal, match=re.escape(sentence)):
        load(path)


def test_columns_that_are_of_no_use_here_are_not_refused(tmp_path: Path) -> None:
    assert people(tmp_path, "Student ID,id,Username,last name,Extra Days\n1,5,ada,Lovelace,2\n")[0].extra_days == 2


ADA = roster.Person("1001", "1001", "Lovelace, Ada", login="adal")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            """Student,ID,SIS User ID,SIS Login ID,Section,Week 3 (9),student
,,,,,Manual Posting
    Points Possible,,,,,4
"Lovelace, Ada",71,1001,adal,A,,lovelaceada_71
"Chen, Carol",72,,carol,B,3
"Student, Test",73,,5a0c,A,
"Invited, Ina",74,,,B,
""",
            [
                replace(ADA, student="lovelaceada_71", section="A", number="71"),
                roster.Person("carol", "", "Chen, Carol", "B", login="carol", number="72"),
                roster.Person("74", "", "Invited, Ina", "B", number="74"),
            ],
        ),
        (
            (
                "First name,Last name,ID number,Institution,Email address,Week 3 (Real)\n"
                "Ada,Lovelace,1001,,ada@x.org,-\n"
                "Bo,Hu,,,bo@x.org,4\n"
            ),
            [replace(ADA, email="ada@x.org", login=""), roster.Person("bo@x.org", "", "Hu, Bo", email="bo@x.org")],
        ),
        ('"Last Name","First Name","Username","Student ID","Last Access"\n"Lovelace","Ada","adal","1001",""\n', [ADA]),
    ],
    ids=["canvas", "moodle", "blackboard"],
)
def test_a_list_that_a_system_exports_is_a_roster(tmp_path: Path, text: str, found: list[roster.Person]) -> None:
    assert people(tmp_path, text) == found


def test_the_table_has_the_time_that_counted(rows: list[Row], tmp_path: Path) -> None:
    listed = people(tmp_path, "student,received\nada,2026-11-23T12:00:00+00:00\n")
    ledger.write_grades(tmp_path / "g.csv", ASSIGNMENT, ledger.settled(ASSIGNMENT, rows[:1], listed))
    head, line = table(tmp_path / "g.csv")
    assert line[head.index("received")] == "2026-11-23T12:00:00Z"


def test_the_teachers_marks_replace_the_graders_with_a_note(rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "overrides.csv"
    path.write_text("student,exercise,points,note\nbob,12.1,0.5,shown to me\n77,,3,\n", encoding="utf-8")
    with pytest.raises(Refusal, match="line 3: note is missing"):
        ledger.read_overrides(path, ASSIGNMENT)
    path.write_text("student,exercise,points\n77,,3\n", encoding="utf-8")
    with pytest.raises(Refusal, match="has no column note"):
        ledger.read_overrides(path, ASSIGNMENT)
    path.write_text("student,exercise,points,note\nbob,12.1,0,5,half\nbob,99.1,1,x\n,12.1,,x\n", encoding="utf-8")
    with pytest.raises(Refusal, match="it has 5 cells") as several:
        ledger.read_overrides(path, ASSIGNMENT)
    assert [line.partition("line ")[2][:1] for line in str(several.value).split("\n")] == ["2", "3", "4"]
    path.write_text(
        "student,exercise,points,note\nbob,12.1,0.75,shown to me\nada,,3,talked too much\n", encoding="utf-8"
    )
    own = ledger.read_overrides(path, ASSIGNMENT)
    by = {entry.row.student: entry for entry in ledger.settled(replace(ASSIGNMENT, due=None), rows, None, own)}
    assert by["bob"].points["12.1"] == 0.75
    assert "12.1: 0.75 points by the teacher instead of" in by["bob"].remarks()[0]
    assert by["ada"].total == 3
    assert "talked too much" in by["ada"].remarks("zh")[-1]
    with pytest.raises(Refusal, match="“eve”"):
        ledger.settled(ASSIGNMENT, rows, None, [ledger.Override("eve", "", 1, "x")])
    path.write_text("student,exercise,points,note\nbob,99.1,1,x\n", encoding="utf-8")
    with pytest.raises(Refusal, match="no exercise of this assignment"):
        ledger.read_overrides(path, ASSIGNMENT)


# --- tables ----------------------------------------------------------------------------------------------------------


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def written(rows: list[Row], tmp_path: Path, system: str, column: str | None = None) -> list[list[str]]:
    return table(
        lms.write(
            tmp_path / "grades.csv", system, ASSIGNMENT, ledger.settled(ASSIGNMENT, rows, people(tmp_path)), column
        )
    )


def test_moodle_finds_a_column_for_the_student_one_for_the_grade_and_one_for_its_feedback(
    rows: list[Row], tmp_path: Path
) -> None:
    head, *lines = written(rows, tmp_path, "moodle")
    assert head == ["ID number", "Username", "Email address", "Full name", "Week 3", "Week 3 (feedback)"]
    by = {line[0]: line for line in lines}
    assert set(by) == {"77", "78"}, "who did not hand in keeps what Moodle has: an empty cell would take it away"
    assert by["77"][1:5] == ["adal", "ada@x.org", "Ada Lovelace", "4"]
    assert "2 days late" in by["78"][5]


@pytest.mark.parametrize(
    ("text", "first", "said"),
    [
        (
            "First name,Last name,Email address,name\nAda,Lovelace,ada@x.org,Ada Lovelace\n",
            ["", "", "ada@x.org"],
            "Map “Email address” to",
        ),
        ("id,name,email\n5,Ada Lovelace,ada@x.org\n", ["5", "", "ada@x.org"], "Map “ID number” to"),
        ("login,name,email\nadal,Ada Lovelace,ada@x.org\n", ["", "adal", "ada@x.org"], "Map “Username” to"),
        ("student,name\nada,Ada Lovelace\n", ["ada", "ada", ""], "Map “ID number” to"),
    ],
)
def test_moodle_has_an_address_in_its_own_column_and_it_is_said_what_to_map(
    text: str, first: list[str], said: str, rows: list[Row], tmp_path: Path
) -> None:
    entries = ledger.settled(
        ASSIGNMENT, [replace(rows[0], student="Ada Lovelace_3_assignsubmission_file_")], people(tmp_path, text)
    )
    line = next(
        line
        for line in table(lms.write(tmp_path / "g.csv", "moodle", ASSIGNMENT, entries))
        if line[3] == "Ada Lovelace"
    )
    assert line[:3] == first
    assert said in lms.about("moodle", entries)


MIXED = """name,email,id,login
Ada Lovelace,ada@x.org,,
Bo Hu,bo@x.org,7,
Carol Chen,,8,carol
Dan Fox,dan@x.org,,dan
Eve Moss,,9,
Max Berg,,10,
Max Berg,m@x.org,,
"""


def all_of(rows: list[Row], tmp_path: Path, text: str) -> list[ledger.LedgerLine]:
    """The same submission from each person in a roster."""
    persons = people(tmp_path, text)
    return ledger.settled(ASSIGNMENT, [replace(rows[0], student=person.student) for person in persons], persons)


def test_a_line_without_what_moodle_finds_a_student_by_is_left_out_and_named(rows: list[Row], tmp_path: Path) -> None:
    """Moodle's importer gives the mark of such a line to the student of the line above."""
    entries = all_of(rows, tmp_path, MIXED)
    _, *lines = table(lms.write(tmp_path / "g.csv", "moodle", ASSIGNMENT, entries))
    assert sorted(line[0] for line in lines) == ["10", "7", "8", "9"]
    said = lms.about("moodle", entries)
    assert "Map “ID number”" in said
    assert "Not in it, since the roster has no ID number of theirs: 3 (" in said
    assert all(name in said for name in ("Ada Lovelace", "Dan Fox", "Max Berg (m@x.org)"))


def test_no_system_gets_an_id_or_login_that_the_roster_does_not_have(rows: list[Row], tmp_path: Path) -> None:
    entries = all_of(rows, tmp_path, MIXED)
    _, _, *lines = table(lms.write(tmp_path / "g.csv", "canvas", ASSIGNMENT, entries))
    assert ["Ada Lovelace", "", "", "", ""] in [line[:5] for line in lines]
    assert [line[2] for line in lines if line[0] == "Max Berg"] == ["10"], (
        "by the name alone it would be the other one's"
    )
    said = lms.about("canvas", entries)
    assert "by the name alone, which others have, too: 1 (“Max Berg (m@x.org)”)" in said
    assert "Found by the name, having neither number, id nor login: 1 (“Ada Lovelace”)" in said
    _, *lines = table(lms.write(tmp_path / "g.csv", "blackboard", ASSIGNMENT, entries))
    assert {line[3] for line in lines} == {"7", "8", "9", "10", ""}
    assert "is the Username: 5 (" in lms.about("blackboard", entries)


def test_two_with_one_address_are_refused_where_moodle_finds_by_the_address(rows: list[Row], tmp_path: Path) -> None:
    entries = all_of(rows, tmp_path, "student,name,email\nada,Ada Lovelace,x@x.org\nbo,Bo Hu,x@x.org\n")
    with pytest.raises(Refusal, match="two lines for “x@x"):
        lms.write(tmp_path / "g.csv", "moodle", ASSIGNMENT, entries)


@pytest.mark.parametrize("system", sorted(lms.SYSTEMS))
def test_what_could_not_be_graded_is_no_mark_before_the_teacher_gives_one(
    rows: list[Row], tmp_path: Path, system: str
) -> None:
    persons = people(tmp_path)
    problem = T(en="it is a PDF", zh="PDF")
    unread = [replace(row, outcomes=(), problem=problem) if row.student == "ada" else row for row in rows]
    ungraded = [
        replace(row, outcomes=tuple(replace(each, status="ungraded") for each in row.outcomes))
        if row.student == "ada"
        else row
        for row in rows
    ]
    for some in (unread, ungraded):
        entries = ledger.settled(ASSIGNMENT, some, persons)
        text = lms.write(tmp_path / "g.csv", system, ASSIGNMENT, entries).read_text(encoding="utf-8")
        assert "Lovelace" not in text
        assert "could not be graded and overrides.csv has no mark: 1 (“Ada Lovelace”)" in lms.about(system, entries)
        entries = ledger.settled(ASSIGNMENT, some, persons, [ledger.Override("ada", "", 2.5, "read by hand")])
        text = lms.write(tmp_path / "g.csv", system, ASSIGNMENT, entries).read_text(encoding="utf-8")
        assert re.search(r"Lovelace.*2\.5", text)
        assert "could not be graded" not in lms.about(system, entries)


def test_a_sum_is_rounded_once() -> None:
    """Two thirds of 2.5 points, each shown as 0.83, are 1.67."""
    keys = KEYS[:2]
    assignment = replace(ASSIGNMENT, keys=keys, points=dict.fromkeys(keys, 2.5), due=None)
    solved = known(exercises()[KEYS[0]], exercises()[KEYS[0]].right[0])
    marks = tuple(replace(solved.marks[0], holds=holds, had=False, idle=False) for holds in (True, False, False))
    outcomes = tuple(replace(solved, key=key, status="partly", marks=marks) for key in keys)
    (entry,) = ledger.settled(assignment, [Row("ada", "d", outcomes)])
    assert list(entry.points.values()) == [0.83] * 2
    assert (entry.total, round(entry.unrounded, 6)) == (1.67, 1.666667)
    late = replace(assignment, due=1000.0, late_penalty=10.0, late_days=0)
    (entry,) = ledger.settled(late, [Row("ada", "d", outcomes, received=1001.0)])
    assert (entry.total, entry.deducted) == (1.5, 0.17)
    third = replace(late, points={keys[0]: 13.0, keys[1]: 0.0}, late_penalty=20.0)
    (entry,) = ledger.settled(third, [Row("ada", "d", outcomes, received=1001.0)])
    assert (entry.total, entry.deducted) == (3.47, 0.87), "20 percent of 4.3333 are 0.8667, and what is left is 3.4667"
    exact = replace(assignment, points=dict.fromkeys(keys, 0.125))
    (entry,) = ledger.settled(exact, [Row("ada", "d", tuple(replace(each, status="solved") for each in outcomes))])
    assert entry.total == 0.25


def test_who_is_late_gets_the_times_by_which_it_was_decided(rows: list[Row], tmp_path: Path) -> None:
    """The deadline is shown with the offset that the teacher wrote."""
    zone = timezone(timedelta(hours=1))
    assert replace(ASSIGNMENT, zone=zone).clock(0.0) == "1970-01-01 01:00 (UTC+0100)"
    entries = {
        entry.row.student: entry for entry in ledger.settled(replace(ASSIGNMENT, zone=zone), rows, people(tmp_path))
    }
    page = report.student_page(replace(ASSIGNMENT, zone=zone), entries["bob"], "en")
    assert re.search(r"Handed in: \d{4}-\d\d-\d\d \d\d:\d\d \(UTC\+0100\)\. Deadline: .*\(UTC\+0100\)\.", page)
    assert "Deadline" not in report.student_page(ASSIGNMENT, entries["ada"], "en")


def test_canvas_reads_the_students_columns_and_the_points_possible(rows: list[Row], tmp_path: Path) -> None:
    """The rules of its importer: the first two names, the optional pair of ids, then Section; a title with
    a number is an assignment's.
    """
    head, possible, *lines = written(rows, tmp_path, "canvas", "Week 3 (4711)")
    assert "Student" in head[0]
    assert "ID" in head[1]
    assert re.search(r"SIS\s+User\s+ID", head[2])
    assert re.search(r"SIS\s+Login\s+ID", head[3])
    assert "Section" in head[4]
    assert re.fullmatch(r"(.+) \((\d+)\)", head[5])
    assert "Points Possible" in possible[0]
    assert (possible[5], {len(line) for line in lines}) == ("4", {6})
    assert "79" not in {line[2] for line in lines}
    assert {line[1] for line in lines} == {""}
    with pytest.raises(Refusal, match="Canvas keeps"):
        written(rows, tmp_path, "canvas", "Final Grade")


def test_canvas_own_list_goes_back_with_canvas_own_numbers(rows: list[Row], tmp_path: Path) -> None:
    text = 'Student,ID,SIS Login ID,Section\n"Schmidt, Anna",71,ada,A\n"Schmidt, Anna",72,,A\n'
    entries = ledger.settled(ASSIGNMENT, rows[:1], people(tmp_path, text), [ledger.Override("72", "", 1, "shown")])
    lms.write(tmp_path / "grades.csv", "canvas", ASSIGNMENT, entries)
    _, _, *lines = table(tmp_path / "grades.canvas.csv")
    assert [line[:5] for line in lines] == [
        ["Schmidt, Anna", "72", "", "", "A"],
        ["Schmidt, Anna", "71", "", "ada", "A"],
    ]


def test_nobody_is_called_as_canvas_calls_the_line_of_the_points(rows: list[Row], tmp_path: Path) -> None:
    text = 'Student,ID,SIS Login ID,Section\n"Points\tPossible",71,ada,A\n'
    entries = ledger.settled(ASSIGNMENT, rows[:1], people(tmp_path, text), [ledger.Override("ada", "", 1, "shown")])
    lms.write(tmp_path / "grades.csv", "canvas", ASSIGNMENT, entries)
    _, possible, line = table(tmp_path / "grades.canvas.csv")
    assert "Points Possible" in possible[0]
    assert (line[0], line[1], line[5]) == ("Points_Possible", "71", "1")


def test_blackboard_finds_the_username_and_every_cell_in_quotation_marks(rows: list[Row], tmp_path: Path) -> None:
    head, *lines = written(rows, tmp_path, "blackboard", "Week 3 |4711")
    assert head == ["Last Name", "First Name", "Username", "Student ID", "Week 3 [Total Pts: 4 Score] |4711"]
    assert ["Lovelace", "Ada", "adal", "77", "4"] in lines
    assert all(line[2] for line in lines), "a line without a Username is refused"
    text = (tmp_path / "grades.blackboard.csv").read_text(encoding="utf-8")
    assert all(re.fullmatch(r'"[^"]*"(,"[^"]*")*', line) for line in text.splitlines())
    assert written(rows, tmp_path, "blackboard")[0][4] == "Week 3 [Total Pts: 4 Score]"


@pytest.mark.parametrize(
    ("system", "known", "written_as"),
    [
        ("canvas", "Week 3 (4711)", "Week 3 (4711)"),
        ("blackboard", "Week 3 [Total Pts: 4 Score] |4711", "Week 3 [Total Pts: 4 Score] |4711"),
        ("blackboard", "Week 3 |4711", "Week 3 [Total Pts: 4 Score] |4711"),
    ],
)
def test_a_column_that_the_systems_own_list_has_is_named_before_a_new_one_is_made(
    rows: list[Row], tmp_path: Path, system: str, known: str, written_as: str
) -> None:
    entries = ledger.settled(ASSIGNMENT, rows, people(tmp_path, LIST))
    (tmp_path / "roster.csv").write_text(
        f'Student,ID,SIS Login ID,Section,"{known}",Week 33 (5)\n', encoding="utf-8-sig"
    )
    there = roster.titles(tmp_path / "roster.csv")
    said = lms.about(system, entries, "Week 3", there)
    assert (
        f" “Week 3” is a new column there, having no number; roster.csv has “{known}” already: "
        f"--column '{known}' writes" in said
    )
    assert " “Week 4” is a new column there, having no number." in lms.about(system, entries, "Week 4", there)
    assert "new column" not in lms.about(system, entries, known, there)
    assert written_as in written(rows, tmp_path, system, known)[0]
    assert "new column" not in lms.about("moodle", entries, "Week 3", there)
    assert roster.titles(tmp_path / "nowhere.csv") == []


@pytest.mark.parametrize(
    ("system", "keys"), [("moodle", "77 78 79"), ("canvas", "77 78 79"), ("blackboard", "adal bob 79")]
)
def test_a_gradebook_has_the_marks_after_the_import_and_keeps_what_was_not_handed_in(
    rows: list[Row], tmp_path: Path, system: str, keys: str
) -> None:
    entries = {entry.row.student: entry for entry in ledger.settled(ASSIGNMENT, rows, people(tmp_path))}
    written(rows, tmp_path, system)
    raw = (tmp_path / f"grades.{system}.csv").read_bytes()
    book = importers.of(system, keys.split(), items={"Week 3": 4.0})
    assert book.read(raw) == []
    ada, bob, carol = (book.marks[key]["Week 3"] for key in keys.split())
    assert (ada, bob, carol) == (entries["ada"].total, round(entries["bob"].total, 6), 9.0)
    assert raw.decode("utf-8").count("\r\n") == 2 + (2 if system == "canvas" else 1)
    if system == "moodle":
        assert book.feedback["78"]["Week 3"] == lms._feedback(entries["bob"])
        assert "2 days late" in book.feedback["78"]["Week 3"]
        assert book.feedback["79"] == {}


def test_the_importers_refuse_what_their_systems_refuse(rows: list[Row], tmp_path: Path) -> None:
    """Otherwise an import that went well would say nothing."""
    line = {"moodle": b"Ada,4\r\n", "canvas": b"Ada,,77,,A,4\r\n", "blackboard": b'"L","A","adal","77","4"\r\n'}
    head = {
        "moodle": b"ID number,Week 3\r\n",
        "canvas": b"Student,ID,SIS User ID,SIS Login ID,Section,Week 3\r\nPoints Possible,,,,,4\r\n",
        "blackboard": b'"Last Name","First Name","Username","Student ID","Week 3 |1"\r\n',
    }
    for system, wrong in (
        ("moodle", head["moodle"] + line["moodle"]),  # nobody has this number
        ("moodle", b"\xef\xbb\xbf" + head["moodle"]),  # the first column has another name
        ("moodle", head["moodle"] + b"77,nine\r\n"),
        ("moodle", head["moodle"] + b"77,5\r\n"),  # more than the item's maximum
        ("canvas", b"Student,SIS User ID,ID,Section,Week 3\r\nAda,77,,A,4\r\n"),
        ("canvas", head["canvas"] + b"Ada,,99,,A,4\r\n"),
        ("canvas", head["canvas"].replace(b",,,,,4", b",,,,,5") + line["canvas"]),  # out of other points
        ("blackboard", head["blackboard"] + line["blackboard"].replace(b'"adal"', b'""')),
        ("blackboard", head["blackboard"].replace(b'"', b"") + line["blackboard"]),
        ("blackboard", head["blackboard"].replace(b"|1", b"|2") + line["blackboard"]),  # no column has this number
    ):
        keys = ["adal"] if system == "blackboard" else ["77"]
        assert importers.of(system, keys, items={"Week 3": 4.0}).read(wrong), (system, wrong)


@pytest.mark.parametrize(
    ("system", "column", "items"),
    [
        ("canvas", "Week 3 (4711)", {"Week 3": 4.0, "Week 3 (4711)": 4.0}),
        ("blackboard", "Week 3 |4711", {"Week 3 [Total Pts: 4 Score] |4711": 4.0}),
        ("canvas", "A new one", {"Week 3": 4.0}),
        ("blackboard", "A new one", {"Week 3 |1": 4.0}),
    ],
)
def test_a_column_with_a_number_is_the_one_that_is_there_and_another_is_new(
    rows: list[Row], tmp_path: Path, system: str, column: str, items: dict[str, float]
) -> None:
    written(rows, tmp_path, system, column)
    keys = ["adal", "bob"] if system == "blackboard" else ["77", "78"]
    book = importers.of(system, keys, items=dict(items))
    assert book.read((tmp_path / f"grades.{system}.csv").read_bytes()) == []
    assert (len(book.items) > len(items)) is (column == "A new one")
    touched = {item for marks in book.marks.values() for item, mark in marks.items() if mark != 9.0}
    assert len(touched) == 1
    assert column.partition(" |")[0] in touched.pop()


def test_a_feedback_never_comes_without_its_mark(rows: list[Row], tmp_path: Path) -> None:
    """Moodle would empty the mark."""
    assert all(line[4] or not line[5] for line in written(rows, tmp_path, "moodle"))


def test_every_table_has_the_versions_and_no_formula(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = ledger.settled(ASSIGNMENT, rows, people(tmp_path))
    ledger.write_grades(tmp_path / "grades.csv", ASSIGNMENT, entries, roster=True)
    assert (tmp_path / "grades.csv").read_bytes().startswith(codecs.BOM_UTF8), "Excel needs it"
    head, *lines = table(tmp_path / "grades.csv")
    line = dict(zip(head, next(line for line in lines if line[0] == "bob"), strict=True))
    assert (line["pitfall_lab"], line["torch"], line["id"], line["late_days"], line["section"]) == (
        "0.1",
        "2.13",
        "78",
        "2",
        "A",
    )
    analysis.write(tmp_path / "analysis.csv", ASSIGNMENT, rows)
    assert table(tmp_path / "analysis.csv")[1][-3:] == ["test-class", "0.1", "2.13"]
    for system in lms.SYSTEMS:
        written(rows, tmp_path, system)
    report.write_reports(tmp_path / "report", ASSIGNMENT, entries, "en")
    head = {"pitfall_lab_grading": 1, "assignment": "test-class", "exercises": list(KEYS)}
    state = [json.dumps(head), *(row.to_json() for row in rows)]
    (tmp_path / "grades.state.jsonl").write_text("\n".join(state), encoding="utf-8")
    for word in ("totals", "terms"):
        assert main(["classroom", word, str(tmp_path)]) == 0
        (tmp_path / f"{word}.csv").write_text(capsys.readouterr().out, encoding="utf-8")
    made = {path.relative_to(tmp_path): table(path) for path in tmp_path.rglob("*.csv") if path.name != "roster.csv"}
    assert len(made) == 6 + len(lms.SYSTEMS), made.keys()
    for path, lines in made.items():
        everything = {cell for line in lines for cell in line}
        foreign = path.stem.removeprefix("grades.") in lms.SYSTEMS  # formats that have no place for a version
        assert ({"pitfall_lab", "torch", "0.1", "2.13"} <= everything) is not foreign, path
    cells = [cell for lines in made.values() for line in lines for cell in line]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", " =1", "\u202e=1", "a\u2028b", "\x00=1"]
)
def test_no_text_begins_a_formula_or_turns_its_line(text: str) -> None:
    made = plain(text)
    assert made[:1] not in "=+-@\t\r\n＝"
    assert made.isprintable()


# --- pages, analysis, similarity -------------------------------------------------------------------------------------


def test_a_students_page_leads_nowhere_and_has_hints(rows: list[Row], tmp_path: Path) -> None:
    entries = ledger.settled(ASSIGNMENT, rows, people(tmp_path))
    page = report.student_page(ASSIGNMENT, next(entry for entry in entries if entry.row.student == "bob"), "en")
    assert "<a " not in page
    assert "Ada" not in page
    assert page.count("<details><summary>Hints") == 2
    assert "torch 2.13" in page
    index = report.write_reports(tmp_path / "report", ASSIGNMENT, entries, "zh").read_text(encoding="utf-8")
    assert "Carol Chen" in index
    assert 'href="alike.html"' in index


def test_what_separates_strong_from_weak_answers(rows: list[Row]) -> None:
    strong, weak = rows[0], replace(rows[1], outcomes=outcomes(*KEYS))
    class_of = [replace(strong, student=f"s{n}") for n in range(8)] + [replace(weak, student=f"w{n}") for n in range(4)]
    items = analysis.properties(ASSIGNMENT, class_of)
    best = max(items, key=lambda item: item.separates or 0)
    assert (best.holds, best.answered, best.separates) == (8, 12, 1.0)
    assert all(item.separates is None for item in analysis.properties(ASSIGNMENT, class_of[:9])), "nine are too few"
    believing = [
        replace(row, beliefs=(("detach_copies", "12 q-1"),) if row.student[0] == "w" else (("other", "12 q-2"),))
        for row in class_of
    ]
    found = {item.name: item for item in analysis.misconceptions(ASSIGNMENT, believing)}
    assert (found["detach_copies"].holds, found["detach_copies"].separates) == (4, -1.0)


def test_terms_are_compared_by_property(rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for term, of in (("spring", rows[:1]), ("autumn", rows)):
        (tmp_path / term).mkdir()
        head = {"pitfall_lab_grading": 1, "assignment": term, "exercises": list(KEYS)}
        lines = [json.dumps(head), *(row.to_json() for row in of), '{"torn']
        (tmp_path / term / "grades.state.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["classroom", "terms", str(tmp_path / "spring"), str(tmp_path / "autumn")]) == 0
    head, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == ["kind", "item", "what", "spring (n=1)", "spring separates", "autumn (n=2)", "autumn separates"]
    assert {line[3] for line in lines if line[0] == "property"} == {"1.000"}
    assert "0.500" in {line[5] for line in lines}
    assert lines[-3:] == [
        ["students", "", "with a progress file", "0", "", "0", ""],
        ["version", "pitfall_lab", "", "0.1", "", "0.1", ""],
        ["version", "torch", "", "2.13", "", "2.13", ""],
    ]
    assert main(["classroom", "terms", str(tmp_path)]) == 2
    (tmp_path / "x.jsonl").write_text("[]\n", encoding="utf-8")
    assert main(["classroom", "terms", str(tmp_path / "x.jsonl")]) == 2


def test_terms_compare_misconceptions_and_what_separates(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strong, weak = rows[0], replace(rows[1], outcomes=outcomes(*KEYS), versions=("0.2", "2.14"))
    for term, weak_ones, belief in (("spring", 6, "detach_copies"), ("autumn", 3, "clone_detaches")):
        class_of = [replace(strong, student=f"s{n}") for n in range(12 - weak_ones)]
        class_of += [replace(weak, student=f"w{n}", beliefs=((belief, "12 q-1"),)) for n in range(weak_ones)]
        class_of = [each if each.beliefs else replace(each, beliefs=(("other", "12 q-2"),)) for each in class_of[:-1]]
        class_of.append(replace(weak, student="without a progress file"))
        (tmp_path / term).mkdir()
        head = {"pitfall_lab_grading": 1, "assignment": term, "exercises": list(KEYS)}
        lines = [json.dumps(head), *(row.to_json() for row in class_of)]
        (tmp_path / term / "grades.state.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["classroom", "terms", str(tmp_path / "spring"), str(tmp_path / "autumn")]) == 0
    _, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
    assert [line for line in lines if line[0] == "misconception"] == [
        ["misconception", "12 q-1", "clone_detaches", "", "", "0.182", "-1"],
        ["misconception", "12 q-1", "detach_copies", "0.455", "-1", "", ""],
        ["misconception", "12 q-2", "other", "0.545", "1", "0.818", "1"],
    ]
    assert "1" in {line[4] for line in lines if line[0] == "property"}, "who has it is among the strong"
    assert lines[-3:] == [
        ["students", "", "with a progress file", "11", "", "11", ""],
        ["version", "pitfall_lab", "", "0.2", "", "0.2", ""],
        ["version", "torch", "", "2.14", "", "2.14", ""],
    ]


def test_terms_count_who_could_be_read_in_the_exercises_order_and_tell_folders_of_one_name_apart(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unread = Row("carol", "3", problem=T(en="it is a PDF", zh="PDF"))
    for term in ("spring", "autumn"):
        (tmp_path / term / "w1").mkdir(parents=True)
        head = {"pitfall_lab_grading": 1, "assignment": term, "exercises": list(KEYS)}
        lines = [json.dumps(head), *(row.to_json() for row in (*rows, unread))]
        (tmp_path / term / "w1" / "grades.state.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["classroom", "terms", "spring/w1", "autumn/w1"]) == 0
    head, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head[3::2] == ["spring/w1 (n=2)", "autumn/w1 (n=2)"], "shares are of these, not of three"
    assert {line[3] for line in lines if line[0] == "property"} == {"0.500", "1.000"}
    for key in KEYS:
        assert [line[2] for line in lines if line[1] == key] == [
            prop.sentence.en for prop in exercises()[key].properties
        ]


def test_a_submission_that_is_gone_is_in_no_figures_of_the_term(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"pitfall_lab_grading": 1, "assignment": "test-class", "exercises": list(KEYS)}
    gone = replace(rows[0], student="gone", digest="9" * 64)
    earlier = replace(rows[1], student="ada", digest="8" * 64)
    lines = [json.dumps(head), *(row.to_json() for row in (*rows, gone, earlier))]
    (tmp_path / "grades.state.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ledger.write_grades(tmp_path / "grades.csv", ASSIGNMENT, ledger.settled(ASSIGNMENT, rows))
    assert main(["classroom", "terms", str(tmp_path)]) == 0
    first, *lines_of = csv.reader(io.StringIO(capsys.readouterr().out))
    assert first[3].endswith("(n=2)")
    assert "0.500" in {line[3] for line in lines_of}


def test_totals_add_the_points_of_each_student(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = people(tmp_path)
    later = [replace(rows[0], student="Ada Lovelace_5_assignsubmission_file_"), Row("eve", "5", outcomes())]
    for week, of in (("one", rows), ("two", later)):
        (tmp_path / week).mkdir()
        own = [ledger.Override("79", "", 2.5, "oral")] if week == "two" else []
        entries = ledger.settled(replace(ASSIGNMENT, due=None), of, listed, own)
        ledger.write_grades(tmp_path / week / "grades.csv", ASSIGNMENT, entries, roster=True)
    assert main(["classroom", "totals", str(tmp_path / "one"), str(tmp_path / "two" / "grades.csv")]) == 0
    head, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == [
        "student",
        "id",
        "name",
        "section",
        "login",
        "email",
        "one",
        "two",
        "points",
        "of",
        "percent",
        "pitfall_lab",
        "torch",
    ]
    by = {line[1] or line[0]: line[6:11] for line in lines}
    assert {line[11]: line[12] for line in lines} == {"0.1": "2.13", "": ""}, "who handed in nothing was not graded"
    assert by["77"] == ["4", "4", "8", "8", "100.0"]
    assert by["79"] == ["", "2.5", "2.5", "8", "31.2"], (
        "handed in nothing in the first week, and has a mark in the second"
    )
    assert by["eve"] == ["", "4", "4", "8", "50.0"]
    (tmp_path / "one" / "grades.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert main(["classroom", "totals", str(tmp_path / "one")]) == 2
    assert "is no table of `pitfall-lab grade`" in capsys.readouterr().err
    assert main(["classroom", "totals", str(tmp_path / "nowhere")]) == 2
    assert f"There is no {tmp_path / 'nowhere'}; name the folder of a graded assignment." in capsys.readouterr().err
    (tmp_path / "quiz").mkdir()
    for word in ("totals", "terms"):
        assert main(["classroom", word, str(tmp_path / "quiz")]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path / 'quiz'} has not been graded: there is no {tmp_path / 'quiz'}/grades." in said
        assert "Errno" not in said


def test_totals_are_of_the_points_before_they_were_rounded(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = rows[0].outcomes[0].marks[0]
    marks = tuple(replace(said, holds=holds, had=False, idle=False) for holds in (True, False, False))
    third = Row("ada", "1", (replace(rows[0].outcomes[0], status="partly", marks=marks),))
    eighth = replace(ASSIGNMENT, keys=KEYS[:1], points={KEYS[0]: 0.125}, due=None)
    for week in "abc":
        (tmp_path / week).mkdir()
        entries = ledger.settled(
            replace(eighth, points={}), [third, replace(rows[0], student="bob", outcomes=rows[0].outcomes[:1])]
        )
        ledger.write_grades(tmp_path / week / "grades.csv", replace(eighth, points={}), entries)
    (tmp_path / "d").mkdir()
    ledger.write_grades(
        tmp_path / "d" / "grades.csv", eighth, ledger.settled(eighth, [replace(rows[0], outcomes=rows[0].outcomes[:1])])
    )
    assert main(["classroom", "totals", *(str(tmp_path / week) for week in "abc")]) == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    assert [line[6:12] for line in lines] == [
        ["0.33", "0.33", "0.33", "1", "3", "33.3"],
        ["1", "1", "1", "3", "3", "100.0"],
    ]
    path = tmp_path / "a" / "grades.csv"
    path.write_text(path.read_text(encoding="utf-8-sig").replace("ada,graded,0.33", "ada,graded,0.9"), encoding="utf-8")
    assert main(["classroom", "totals", str(tmp_path / "a"), str(tmp_path / "d")]) == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    assert lines[0][6:9] == ["0.9", "0.125", "1.025"], (
        "what was changed by hand counts as it is, and no digit of 0.125 is lost"
    )


def test_totals_count_no_folder_twice_and_tell_folders_of_one_name_apart(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for term in ("spring", "autumn"):
        (tmp_path / term / "w1").mkdir(parents=True)
        ledger.write_grades(tmp_path / term / "w1" / "grades.csv", ASSIGNMENT, ledger.settled(ASSIGNMENT, rows[:1]))
    assert main(["classroom", "totals", "spring/w1", str(tmp_path / "spring" / "w1" / "grades.csv")]) == 2
    assert "grades.csv is named twice: its points would count twice" in capsys.readouterr().err
    assert main(["classroom", "totals", "spring/w1", "autumn/w1"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[0]
        == "student,id,name,section,login,email,spring/w1,autumn/w1,points,of,percent,pitfall_lab,torch"
    )


CANVAS_LIST = """Student,ID,SIS Login ID,Section
"Żółć, Łukasz",511,zolcl,A
"Schmidt, Anna",504,schmidta,A
"Schmidt, Anna",505,schmidtb,A
"""
MOODLE_LIST = "First name,Last name,Email address\nŁukasz,Żółć,lz@x.org\nAnna,Schmidt,as@x.org\nBo,Hu,bo@x.org\n"
FULL_LIST = "id,name,login\n1,Łukasz Żółć,ZOLCL\n2,Anna Schmidt,schmidta\n3,Anna Schmidt,schmidtb\n"


@pytest.mark.parametrize(
    ("rosters", "sums", "said"),
    [
        ((CANVAS_LIST, CANVAS_LIST), {"zolcl": ["4", "4", "8"]}, ["Joined by the login: 3."]),
        ((MOODLE_LIST, MOODLE_LIST), {"lz@x.org": ["4", "4", "8"]}, ["Joined by the e-mail address: 3."]),
        ((CANVAS_LIST, FULL_LIST), {"1": ["4", "4", "8"]}, ["Joined by the login: 3."]),
        (
            (CANVAS_LIST, MOODLE_LIST),
            {"zolcl": ["4", "4", "8"], "schmidta": ["", "", "0"], "as@x.org": ["", "", "0"], "bo@x.org": ["", "", "0"]},
            [
                "Joined by the full name: 1.",
                "Not joined, since several people have the name: 3 (“Schmidt, Anna: only in 0”, ",
                "Not in every table, or there under another name: 1 (“Hu, Bo: only in 1”)",
            ],
        ),
        (
            ("login,name\nx,\nzolcl,Łukasz Żółć\n", "id,name\n7,\n8,Łukasz Żółć\n9,Łukasz Żółć\n"),
            {"x": ["", "", "0"], "7": ["", "", "0"], "8": ["", "", "0"], "9": ["", "", "0"]},
            ["Not joined, since several", "Not in every table"],
        ),
    ],
    ids=["login", "email", "id and login", "name", "nothing"],
)
def test_totals_join_by_the_best_that_both_rosters_have(
    rosters: tuple[str, str],
    sums: dict[str, list[str]],
    said: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for week, text in enumerate(rosters):
        (tmp_path / str(week)).mkdir()
        row = Row(f"zolclukasz_511_900{week}_week{week}", "1", outcomes())
        entries = ledger.settled(replace(ASSIGNMENT, due=None), [row], people(tmp_path, text))
        ledger.write_grades(tmp_path / str(week) / "grades.csv", ASSIGNMENT, entries, roster=True)
    assert main(["classroom", "totals", *(str(tmp_path / str(week)) for week in range(2))]) == 0
    out, err = capsys.readouterr()
    lines = list(csv.DictReader(io.StringIO(out)))
    found = {line["id"] or line["login"] or line["email"]: [line["0"], line["1"], line["points"]] for line in lines}
    assert {who: found[who] for who in sums} == sums
    for sentence, line in zip(said, err.splitlines(), strict=True):
        assert line.startswith(sentence)


UNUSUAL = """\
def attend(q, k, v):
    a = q @ k.t()
    a = a - a.amax(1, True)
    w = torch.exp(a)
    return (w @ v) / w.sum(1, keepdim=True)
"""


def answer(student: str, source: str) -> Row:
    return Row(student, "", (replace(known(exercises()["12.2"], source), source=source),))


def test_of_predictions_only_the_same_mistakes_are_alike() -> None:
    exercise = exercises()["4.1"]
    capital = exercise.right[0].replace('"error"', '"Error"')
    mistaken = exercise.right[0].replace("(1, 6)", "(6, 1)")
    other = exercise.right[0].replace("(1, 6)", "(6,)")
    answers = {"a": exercise.right[0], "b": capital, "c": capital, "d": mistaken, "e": mistaken, "f": other}
    class_of = [Row(name, "", (replace(known(exercise, source), source=source),)) for name, source in answers.items()]
    assert [row.outcomes[0].status for row in class_of[:3]] == ["solved"] * 3
    assert [(pair.one, pair.other) for pair in similar.pairs(class_of, ["4.1"])] == [(("d",), ("e",))]


def test_the_same_files_of_two_people_are_named_if_there_is_an_answer_in_them(rows: list[Row], tmp_path: Path) -> None:
    blank = tuple(replace(each, status="unsolved") for each in rows[0].outcomes)
    class_of = [replace(rows[0], student=name, digest="5") for name in ("ada", "bob")]
    class_of += [replace(rows[0], student=name, digest="6", outcomes=blank) for name in ("eve", "dan")]
    class_of += [Row(name, "7", problem=T(en="x", zh="x")) for name in ("kim", "lea")]
    assert similar.same_files([*class_of, replace(rows[0], student="z", digest="8")]) == [("ada", "bob")]
    page = report.alike_page(ASSIGNMENT, ledger.settled(ASSIGNMENT, class_of), "en")
    assert "<h2>The same files, byte for byte</h2><ul><li>ada; bob</li></ul>" in page
    assert "byte for byte" not in report.alike_page(ASSIGNMENT, ledger.settled(ASSIGNMENT, rows), "en")


def test_each_of_several_sections_has_a_line_of_its_own(rows: list[Row], tmp_path: Path) -> None:
    unread = Row("79", "3", problem=T(en="it is a PDF", zh="PDF"))
    entries = ledger.settled(replace(ASSIGNMENT, due=None), [*rows, unread], people(tmp_path))
    page = report.class_page(ASSIGNMENT, entries, "en")
    bob = next(entry.total for entry in entries if entry.row.student == "bob")
    assert "<p>Points of 2: mean" in page, "what could not be read is no mark of 0"
    assert f"<p>Section A: Points of 1: mean {round(bob, 2):g} of 4" in page
    assert "<p>Section B: Points of 1: mean 4 of 4" in page
    alone = [entry for entry in entries if entry.person.section == "B"]
    assert "Section B:" not in report.class_page(ASSIGNMENT, alone, "en")


def test_answers_that_are_alike_but_for_names_are_found_and_common_ones_are_not() -> None:
    renamed = UNUSUAL.replace("a ", "scores ").replace("(a)", "(scores)").replace("a.", "scores.") + "# mine\n"
    near = UNUSUAL.replace("a.amax(1, True)", "a.amax(1, True).detach()")
    common = [answer(f"c{n}", exercises()["12.2"].right[0]) for n in range(3)]
    found = similar.pairs([answer("ada", UNUSUAL), answer("bob", renamed), answer("eve", near), *common], KEYS)
    assert [(pair.one, pair.other) for pair in found] == [(("ada",), ("bob",)), (("ada", "bob"), ("eve",))]
    assert found[0].ratio == 1.0
    assert similar.pairs([answer(f"s{n}", UNUSUAL) for n in range(similar.COMMON)], KEYS) == []


def test_pairs_are_counted_over_exercises() -> None:
    """Names alone differ in 12.2; in 4.1 two have the same mistake, and a third another one."""
    predicted = {"ada": "(6, 1)", "bob": "(6, 1)", "eve": "(6,)"}
    near = UNUSUAL.replace("a.amax(1, True)", "a.amax(1, True).detach()")
    attended = {
        "ada": UNUSUAL,
        "bob": UNUSUAL.replace("w ", "weight ").replace("w.", "weight.").replace("(w", "(weight"),
        "eve": near,
    }
    class_of = []
    for name, shape in predicted.items():
        source = exercises()["4.1"].right[0].replace("(1, 6)", shape)
        class_of.append(
            Row(
                name,
                "",
                (replace(known(exercises()["4.1"], source), source=source), *answer(name, attended[name]).outcomes),
            )
        )
    found = similar.together(similar.all_pairs(class_of, ["4.1", "12.2"]), ["4.1", "12.2"])
    assert found == [("ada", "bob", ("4.1", "12.2")), ("ada", "eve", ("12.2",)), ("bob", "eve", ("12.2",))]
    entries = ledger.settled(
        replace(ASSIGNMENT, keys=("4.1", "12.2")), class_of, [roster.Person("bob", name="Bob <B>")]
    )
    page = report.alike_page(replace(ASSIGNMENT, keys=("4.1", "12.2")), entries, "en")
    assert (
        "<tr><td>ada</td><td>Bob &lt;B&gt;</td><td class=n>2</td><td>4.1, 12.2</td></tr><tr><td>ada</td><td>eve</td>"
        in page
    )
    assert page.index("Exercises alike") < page.index("<h2>12.2 · ")


def test_it_is_said_how_many_answers_are_too_short_to_be_compared() -> None:
    given = exercises()["12.2"].given
    rows = [answer("a", f"{given}\nx = 1"), answer("b", f"{given}\ny = 1"), answer("c", given), answer("d", UNUSUAL)]
    assert similar.too_short(rows, ["12.2"]) == 2
    assert "too short: 2." in report.alike_page(ASSIGNMENT, ledger.settled(ASSIGNMENT, rows), "en")


def test_an_answer_that_four_have_is_listed_with_their_names() -> None:
    ring = [
        answer(f"100{n}", UNUSUAL.replace("a ", f"a{n} ").replace("(a)", f"(a{n})").replace("a.", f"a{n}."))
        for n in range(4)
    ]
    ((key, students, source),) = similar.common([*ring, answer("x", "def attend(q, k, v):\n    return None")], KEYS)
    assert (key, students, source) == ("12.2", ("1000", "1001", "1002", "1003"), ring[0].outcomes[0].source)
    entries = ledger.settled(ASSIGNMENT, ring, [roster.Person("1000", name="Ada Lovelace")])
    page = report.alike_page(ASSIGNMENT, entries, "en")
    assert "<p>1001; 1002; 1003; Ada Lovelace</p>" in page


def test_two_of_one_name_are_told_apart_on_the_pages_of_the_class(rows: list[Row]) -> None:
    unusual = tuple(
        replace(outcome, source=outcome.source + "\nspare = [" + "1, " * 30 + "]") for outcome in rows[1].outcomes
    )
    listed = [roster.Person("1011", "1011", "Anna Schmidt"), roster.Person("1012", "1012", "Anna Schmidt")]
    entries = ledger.settled(ASSIGNMENT, [Row("1011", "1", unusual), Row("1012", "2", unusual)], listed)
    for text in (report.alike_page(ASSIGNMENT, entries, "en"), report.class_page(ASSIGNMENT, entries, "en")):
        assert "Anna Schmidt (1011)" in text
        assert "Anna Schmidt (1012)" in text


def test_the_class_page_has_the_points_of_the_table_and_names_in_order(rows: list[Row], tmp_path: Path) -> None:
    worth = replace(ASSIGNMENT, points={"12.3": 2.5}, due=None)
    listed = people(tmp_path, "student,name\nada,Zoe\nbob,Ann\n")
    entries = ledger.settled(worth, rows, listed, [ledger.Override("ada", "12.1", 0.25, "x")])
    assert [entry.person.name for entry in entries] == ["Ann", "Zoe"]
    page = report.class_page(worth, entries, "en")
    line = page[page.index(">Zoe</a>") :]
    assert re.findall(r'title="[^"]+">([^<]*)</td>', line)[:4] == ["0.25", "1", "2.5", "1"]


def test_two_hundred_different_answers_are_compared_in_bounded_time() -> None:
    blank = known(exercises()["12.2"], "x = 1")
    texts = [UNUSUAL + "".join(f"x{n} = {n * m % 97} + q.sum({m})\n" for m in range(n % 13)) for n in range(200)]
    rows = [Row(f"s{n}", "", (replace(blank, source=text),)) for n, text in enumerate(texts)]
    hostile = Row("eve", "", (replace(blank, source="'" * 60_000 + "(" * 60_000),))
    started = time.process_time()
    assert len(similar.pairs([*rows, hostile], KEYS)) == similar.SHOWN
    assert time.process_time() - started < 30


def test_a_preview_has_the_answers_the_tasks_and_the_page_that_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classroom", "init", str(tmp_path / "a"), "--chapters", "4", "--exercises-only"]) == 0
    assert main(["classroom", "preview", str(tmp_path / "a"), "--lang", "zh"]) == 0
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "a" / "preview").iterdir()}
    assert set(pages) == {"key", "student", "returned"}
    exercise = exercises()["4.2"]
    assert report.escape(exercise.right[0]) in pages["key"]
    assert report.escape(exercise.right[0]) not in pages["student"]
    for key in ("4.1", "4.2", "4.3", "4.4"):
        task = tasks.paragraphs(exercises()[key].task.zh)
        assert task in pages["student"]
        assert task in pages["key"]
        assert all(tasks.inline(hint.zh) in pages["student"] for hint in exercises()[key].hints)
    assert "参考答案" in capsys.readouterr().out
    assert pages["key"].count("评分：") == 1
    had = [
        mark.sentence[1]
        for key in ("4.1", "4.2", "4.3", "4.4")
        for mark in known(exercises()[key], exercises()[key].given).marks
        if mark.had
    ]
    assert had
    assert all(f"{tasks.coded(sentence)} [原题已有]" in pages["key"] for sentence in had)


# --- the command -----------------------------------------------------------------------------------------------------


def test_one_student_is_graded_again_and_marks_of_the_teacher_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "week"
    assert main(["classroom", "init", str(place), "--chapters", "12", "--exercises-only"]) == 0
    for name in ("ada", "bob"):
        (place / "submissions" / f"{name}.ipynb").write_text('{"cells": []}', encoding="utf-8")
        os.utime(place / "submissions" / f"{name}.ipynb", (DUE, DUE))
    judged: list[int] = []

    def here(_jobs, assignment, sheets, **_):
        judged.append(len(sheets))
        return (
            (sheet, [known(exercises()[key], exercises()[key].wrong[0]).to_dict() for key in assignment.keys])
            for sheet in sheets
        )

    monkeypatch.setattr("pitfall_lab.classroom.grade._here", here)
    (place / "roster.csv").write_text(LIST, encoding="utf-8")
    (place / "overrides.csv").write_text("student,exercise,points,note\nada,,4,oral\n", encoding="utf-8")
    words = ["grade", str(place), "--lms", "canvas", "--lms", "moodle", "--trust"]
    assert main(words) == 0
    assert main([*words, "--only", "bob"]) == 0
    assert main([*words, "--resume"]) == 0
    assert judged == [2, 1, 0]
    with (place / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = {line["student"]: line for line in csv.DictReader(file)}
    assert (lines["ada"]["points"], lines["79"]["verdict"]) == ("4", "absent")
    assert lines["bob"]["received"] == "2027-01-15T08:00:00Z"
    assert (place / "grades.canvas.csv").is_file()
    capsys.readouterr()
    assert main([*words, "--only", "eve"]) == 2
    assert "no submission of “eve”" in capsys.readouterr().err
    assert main([*words, "--only", "carol chen"]) == 2
    assert "“carol chen” is in the roster but has no submission" in capsys.readouterr().err
    assert main([*words, "--only", "78", "--only", "Ada Lovelace"]) == 0, (
        "an id and a name are as good as the submission's name"
    )
    assert judged == [2, 1, 0, 2]


def test_marks_for_some_exercises_only_are_said_and_replace_no_mark_where_there_was_none(
    rows: list[Row], tmp_path: Path
) -> None:
    unread = Row("carol", "3", problem=T(en="it is a PDF", zh="PDF"))
    marks = [
        ledger.Override("79", "12.1", 1, "saw it"),
        ledger.Override("carol", "12.1", 1, "on paper"),
        ledger.Override("ada", "12.1", 0, "x"),
    ]
    entries = {
        entry.row.student: entry for entry in ledger.settled(ASSIGNMENT, [*rows, unread], people(tmp_path), marks)
    }
    assert [student for student, entry in entries.items() if entry.in_part] == ["carol", "79"]
    assert [note.en for note in entries["79"].notes] == ["12.1: 1 point by the teacher (saw it)"]
    assert [note.zh for note in entries["carol"].notes] == ["12.1：教师给 1 分（on paper）"]
    assert "instead of 1" in entries["ada"].notes[0].en
    said = list(account._people([*entries.values()], [], Directory(people(tmp_path), entries)))
    assert "Have marks of yours for some exercises only, so that the others count 0: 2 (“carol”, “Carol Chen”)." in said
    whole = [ledger.Override("79", key, 1, "saw it") for key in KEYS]
    assert not any(entry.in_part for entry in ledger.settled(ASSIGNMENT, rows, people(tmp_path), whole))


def test_a_page_says_why_what_holds_earns_nothing(tmp_path: Path) -> None:
    made = Assignment("test-idle", "Idle", ("2.3", "8.3"))
    constant = "def sensitivity(model, batch):\n    return torch.zeros(1)\n"
    nothing = "def distances(a, b):\n    return a.unsqueeze(1) - b\n"
    row = Row("ada", "1", (known(exercises()["2.3"], nothing), known(exercises()["8.3"], constant)))
    (entry,) = ledger.settled(made, [row])
    assert entry.total == 0
    assert any(mark.holds and not mark.had for mark in row.outcomes[1].marks)
    pages = {language: report.student_page(made, entry, language) for language in ("en", "zh")}
    assert pages["en"].count("also holds for an answer that does nothing, so it earns nothing.") == sum(
        any(mark.holds and not mark.had for mark in outcome.marks) for outcome in row.outcomes
    )
    assert "什么都不做的答案也具备，因此不得分。" in pages["zh"]
    (entry,) = ledger.settled(ASSIGNMENT, [Row("ada", "1", outcomes())])
    assert "earns nothing." not in report.student_page(ASSIGNMENT, entry, "en")


def test_cells_that_were_stopped_are_said_also_where_another_verdict_matters_more(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = replace(rows[0].outcomes[0], status="timeout")
    looked = replace(rows[0].outcomes[1], unneeded=("sys",))
    both = [Row("ada", "1", (stopped, looked)), Row("bob", "2", (stopped,)), Row("eve", "3", (looked,))]
    entries = ledger.settled(ASSIGNMENT, both)
    assert [entry.row.verdict for entry in entries] == ["look", "stopped", "look"]
    account.tell(tmp_path / "grades.csv", entries, [], [], Directory(()), fenced=True)
    assert "Cells were stopped, too, of: 1 (“ada”)." in capsys.readouterr().out


def test_a_penalty_without_a_deadline_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    account.warn(replace(ASSIGNMENT, due=None), [])
    assert "no deadline (due), so nobody is late." in capsys.readouterr().out
    account.warn(ASSIGNMENT, [])
    account.warn(Assignment("test-free", "Free", KEYS), [])
    assert "nobody is late" not in capsys.readouterr().out


def test_rows_are_by_last_name_whichever_way_it_is_written(rows: list[Row], tmp_path: Path) -> None:
    names = ("Zoe Adams", "Hopper, Grace", "Ada Lovelace", "Łukasz Żółć", "Ali Brown")
    people = [roster.Person(str(n), str(n), name) for n, name in enumerate(names)]
    entries = ledger.settled(ASSIGNMENT, [], people)
    assert [entry.person.name.replace(",", "").split()[0] for entry in entries] == [
        "Zoe",
        "Ali",
        "Hopper",
        "Ada",
        "Łukasz",
    ]


def test_an_item_that_is_out_of_other_points_in_the_exported_list_is_said(rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,Week 3 (4711)\n    Points Possible,,,,,10\nAda,1,77,adal,A,\n",
        encoding="utf-8",
    )
    assert lms.other_points("canvas", "Week 3 (4711)", roster.possible(path), 4) == (
        " In roster.csv, “Week 3 (4711)” is out of 10: set the same points there."
    )
    assert lms.other_points("canvas", "Week 3 (4711)", roster.possible(path), 10) == ""
    assert lms.other_points("canvas", "Week 4", roster.possible(path), 4) == ""
    path.write_text('"Last Name","Username","Week 3 [Total Pts: 16 Score] |98765"\n"L","adal",""\n', encoding="utf-8")
    assert "is out of 16" in lms.other_points("blackboard", "Week 3 |98765", roster.possible(path), 4)
    assert lms.other_points("blackboard", "Week 3 |98766", roster.possible(path), 4) == ""
    path.write_text("id,name\n77,Ada\n", encoding="utf-8")
    assert roster.possible(path) == {}


def test_names_on_the_page_of_alike_answers_are_told_apart(rows: list[Row]) -> None:
    people = [roster.Person(name, name, name) for name in ("Müller, Zoë", "Schmidt, Anna")]
    same = [replace(rows[1], student=person.student, digest="1") for person in people]
    page = report.alike_page(ASSIGNMENT, ledger.settled(ASSIGNMENT, same, people), "en")
    assert "Müller, Zoë; Schmidt, Anna" in page


def test_who_has_a_name_twice_in_one_table_only_is_no_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for week, lines in (("1", "77,Ada L\n78,Anna S\n79,Anna S\n"), ("2", "77,Ada L\n")):
        (tmp_path / week).mkdir()
        body = "".join(f"{line.partition(',')[0]},{line},graded,1,2,x,1\n" for line in lines.splitlines())
        head = "student,id,name,verdict,points,of,assignment,sha256\n"
        (tmp_path / week / "grades.csv").write_text(head + body, encoding="utf-8-sig")
    assert main(["classroom", "totals", str(tmp_path / "1"), str(tmp_path / "2")]) == 0
    said = capsys.readouterr().err
    assert "several people have the name" not in said
    assert "Not in every table, or there under another name: 2" in said


def test_the_examples_in_the_docstrings_hold() -> None:
    for module in (analysis, roster, similar):
        done = doctest.testmod(module)
        assert done.attempted
        assert not done.failed


def test_items_that_a_progress_file_makes_up_do_not_fill_the_class_page(rows: list[Row]) -> None:
    made_up = tuple(("detach_copies", f"12 made-up-{n}") for n in range(200))
    told = [
        replace(rows[0], beliefs=made_up),
        *(replace(row, beliefs=(("detach_copies", "12 q-1"),)) for row in [rows[-1]] * 3),
    ]
    page = report._beliefs(told, "en")
    assert page.count("<th scope=col>") == 1 + report.MOST_ITEMS
    assert "12 q-1" in page
