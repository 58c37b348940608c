"""Rosters in which students have chosen their own names, as their school's system exports them, and what comes of it.

A name, a login or an address is the student's; numbers are the system's.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pitfall_lab.classroom import account, ledger, lms, roster
from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom.judge import CellOutcome, known
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.report import write_reports
from pitfall_lab.classroom.submissions import Submission
from pitfall_lab.classroom.whose import Directory
from pitfall_lab.lessons.exercises import exercises

KEY = "12.2"
MOODLE = "{}_{}_assignsubmission_file_"
BLACKBOARD = "{}_attempt_2026-11-20-12-00-00_a"
VICTIM = ("1001", "Ada Lovelace", "adal", "ada@x.org")
"""The id, name, login and address of a student who has handed in the right answer."""
_SIGNS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Signs by which a terminal or a page does something else than show them."""


@dataclass(frozen=True)
class Chosen:
    """What somebody else has chosen (id, name, login, address), and what both have handed in.

    ``right``: what the victim's submission is called; ``wrong``: the other one's, in which nothing is done.
    ``gets``: the points that the victim has, None if there may be none before the teacher has looked.
    """

    what: str
    other: tuple[str, str, str, str]
    right: str = MOODLE.format(VICTIM[1], 12)
    wrong: str = ""
    more: tuple[str, ...] = ()
    gets: float | None = 1.0
    round: int = 13
    people: tuple[tuple[str, str, str, str], ...] = field(default=())

    def faults(self) -> str:
        """What is not as it should be about the tables, the pages and what is printed."""
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as said:
            return "; ".join(self._faults(Path(name), said))

    def _faults(self, folder: Path, said: io.StringIO) -> Iterator[str]:
        lines = [VICTIM, self.other, *self.people]
        with (folder / roster.NAME).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("id", "name", "login", "email"), *lines])
        people = roster.read(folder / roster.NAME)
        names = [self.right, *filter(None, (self.wrong,)), *self.more]
        directory = Directory(people, names)
        assignment = assignments.Assignment("a-test", "Week 3", (KEY,))
        rows = [Row(each, "", (_outcome(right=each == self.right),)) for each in names]
        whose = [person.student for name in names if (person := directory.person(name))]
        if len(set(whose)) < len(whose):
            yield "two submissions are one person's"
            return
        entries = ledger.settled(assignment, rows, people, (), directory)
        grades = folder / "grades.csv"
        ledger.write_grades(grades, assignment, entries, roster=True)
        for system in lms.SYSTEMS:
            lms.write(grades, system, assignment, entries)
        write_reports(folder / "report", assignment, entries)
        account.tell(grades, entries, [Submission(name, ()) for name in names], [], directory, fenced=True)
        files = {name: (f"{name}\x1b]0;x\x07\u202e.ipynb",) for name in names}
        account.tell_again(entries, {}, files)
        called = ledger.called(entries)
        if len(set(called.values())) < len(called):
            yield "two students are called the same on pages"
        points = {entry.person.ident: entry.total for entry in entries if entry.is_decided and entry.listed}
        if points.get(VICTIM[0]) != self.gets:
            yield f"{VICTIM[1]} has {points.get(VICTIM[0])} points, not {self.gets}"
        if any(total for ident, total in points.items() if ident != VICTIM[0]):
            yield "somebody else has the points"
        if _SIGNS.search(said.getvalue()):
            yield "what is printed acts on a terminal"
        for path in (*folder.glob("grades*.csv"), *folder.rglob("*.html"), folder / "report" / "pages.csv"):
            text = path.read_text(encoding="utf-8-sig").replace("\r", "")
            if _SIGNS.search(text):
                yield f"{path.name} has signs that act"
            if path.suffix == ".csv" and (cells := runs(text)):
                yield f"a spreadsheet would run {cells[0]!r} of {path.name}"
            if path.suffix == ".html" and "<script" in text:
                yield f"{path.name} has a script"


def runs(text: str) -> list[str]:
    """The cells of a table that a spreadsheet would run, whatever it takes for the sign between cells."""
    cells = [cell for sign in ",;\t" for line in csv.reader(io.StringIO(text), delimiter=sign) for cell in line]
    return [cell for cell in cells if re.match(r"\s*[=+@＝＋＠]|\s*[-－]\D", cell)]


@cache
def _outcome(*, right: bool) -> CellOutcome:
    exercise = exercises()[KEY]
    return known(exercise, exercise.right[0] if right else exercise.given)


def rosters() -> list[Chosen]:
    """All of them."""
    same = MOODLE.format(VICTIM[1], 55)
    return [
        Chosen("is called as another one's login", ("1002", "adal", "eve", "e@x"), wrong=MOODLE.format("adal", 55)),
        Chosen("is called as another one's id", ("1002", "1001", "eve", "e@x"), wrong=MOODLE.format("1001", 55)),
        Chosen(
            "is called as another one's address",
            ("1002", "ada@x.org", "eve", "e@x"),
            wrong=MOODLE.format("ada@x.org", 55),
        ),
        Chosen("is called as another one", ("1002", VICTIM[1], "eve", "e@x"), wrong=same, gets=None),
        Chosen(
            "has another one's name with other accents", ("1002", "Adá Lovelace", "eve", "e@x"), wrong=same, gets=None
        ),
        Chosen(
            "has a login that ends as another one's, with the end of the assignment's name before it",
            ("1002", "Eve", "3_adal", "e@x"),
            right=BLACKBOARD.format("Week_3_adal"),
            more=(BLACKBOARD.format("Week_3_bob"), BLACKBOARD.format("Week_3_cy")),
            people=(("1003", "Bob", "bob", "b@x"), ("1004", "Cy", "cy", "c@x")),
        ),
        Chosen(
            "has a login that ends another one's",
            ("1002", "Eve", "l", "e@x"),
            right=BLACKBOARD.format("Week 3_adal"),
            wrong=BLACKBOARD.format("Week 3_l"),
        ),
        Chosen(
            "has a name that clears the terminal, as somebody else has",
            ("1002", "Eve\x1b[2J\x07\u202e", "eve", "e@x"),
            wrong=MOODLE.format("Eve\ufffd[2J\ufffd\ufffd", 55),
            more=(MOODLE.format("Eve\x1b[2J\x07\u202e", 56),),
            people=(("1003", "Eve\x1b[2J\x07\u202e", "eve2", "f@x"),),
        ),
        Chosen("has a name that is a formula", ("1002", "=cmd|' /C calc'!A0", '-1+1;"=1', "@SUM(1)"), wrong="eve"),
        Chosen("has one behind quotation marks", ("1002", 'Eve;"=1+1', 'x; ""@y', ';"" "+1'), wrong="x"),
        Chosen("has a name that is a line of Canvas' own", ("1002", "Points Possible", "eve", "e@x"), wrong="eve"),
        Chosen(
            "has a name of several lines", ("1002", 'Eve\r\n1001,"Ada Lovelace",adal,\n', "eve", "e@x"), wrong="eve"
        ),
        Chosen("has a name that is a page", ("1002", "</title><script>alert(1)</script>", "eve", "e@x"), wrong="eve"),
        Chosen("has a name that formats expand", ("1002", "{0.__class__}%s{section}", "eve", "e@x"), wrong="eve"),
        Chosen("has a name of five thousand letters", ("1002", "e" * 5_000, "eve", "e@x"), wrong="eve"),
        Chosen("has a name without letters", ("1002", "\u3164\u200b", "eve", "e@x"), wrong="eve"),
        Chosen("has a name of words that stand beside names", ("1002", "Week Final", "eve", "e@x"), wrong="week final"),
        *(replace(each, round=15) for each in _fifteenth()),
        *(replace(each, round=16) for each in _sixteenth()),
        *(replace(each, round=17) for each in _seventeenth()),
        *(replace(each, round=18) for each in _eighteenth()),
    ]


def _eighteenth() -> list[Chosen]:
    """Files that a student has called as another one's download, behind what the system puts before that."""
    eve = ("1002", "Eve Stone", "eve", "e@x")
    canvas, attempt = "stoneeve_78_913_{}.ipynb", BLACKBOARD.format("Week 3_adal")
    mine = "lovelaceada_77_912_week.ipynb"
    of_moodle = MOODLE.format(VICTIM[1], 12)
    return [
        Chosen("has called a file as Blackboard calls another one's", eve, mine, canvas.format(attempt)),
        Chosen("has called a file as Moodle calls another one's", eve, mine, canvas.format(of_moodle)),
        Chosen("has called a file as Canvas calls another one's", eve, mine, canvas.format(mine[:-6])),
        Chosen(
            "has called a file as another one's later attempt",
            eve,
            attempt,
            f"Week 3_eve_attempt_2026-11-20-12-00-01_{attempt.replace('2026', '2027')}.ipynb",
        ),
        Chosen("has called a file so in a folder of Moodle's", eve, of_moodle, MOODLE.format(eve[1], 55) + of_moodle),
    ]


def _seventeenth() -> list[Chosen]:
    """Signs that look like others, in every column."""
    return [
        Chosen(
            "has another one's id in wide digits",
            ("１００１", "Eve", "eve", "e@x"),
            right="1001.ipynb",
            wrong="１００１.ipynb",
        ),
        Chosen(
            "has another one's login with a space that does not break", ("1002", "Eve", "a\xa0dal", "e@x"), wrong="eve"
        ),
        Chosen("has another one's login in letters of another script", ("1002", "Eve", "аdаl", "e@x"), wrong="аdаl"),
        Chosen("has another one's name with a soft hyphen", ("1002", "Ada Love\xadlace", "eve", "e@x"), wrong="eve"),
        Chosen("has a name of other quotation marks", ("1002", "Eve❞ (1001); ″x", "eve", "e@x"), wrong="eve"),
        Chosen(
            "has a name that is another one's with what marks a copy",
            ("1002", "Ada Lovelace-Copy1", "eve", "e@x"),
            wrong=MOODLE.format("Ada Lovelace-Copy1", 55),
        ),
    ]


def _sixteenth() -> list[Chosen]:
    """Names that are read as words of the grader's, or as what it adds to names."""
    bob = ("1003", VICTIM[1], "bob", "b@x")
    return [
        Chosen(
            "is called as one of two others is shown",
            ("1002", f"{VICTIM[1]} (1001)", "eve", "e@x"),
            right=BLACKBOARD.format("Week 3_adal"),
            wrong=BLACKBOARD.format("Week 3_eve"),
            people=(bob,),
        ),
        Chosen(
            "is called as who is shown with what the one called so would be shown with",
            ("1002", f"{VICTIM[1]} (1001)", "eve", "e@x"),
            right=BLACKBOARD.format("Week 3_adal"),
            people=(bob, ("1004", f"{VICTIM[1]} (1001) (1002)", "cy", "c@x")),
        ),
        Chosen("has another one's name with two spaces", ("1002", "Ada  Lovelace", "eve", "e@x"), gets=None),
        Chosen("has another one's name in small letters", ("1002", "ada lovelace", "eve", "e@x"), gets=None),
        Chosen(
            "has it without the space", ("1002", "AdaLovelace", "eve", "e@x"), wrong=MOODLE.format("AdaLovelace", 55)
        ),
        Chosen(
            "has it turned, without a comma",
            ("1002", "Lovelace Ada", "eve", "e@x"),
            wrong=MOODLE.format("Lovelace Ada", 5),
        ),
        Chosen(
            "has a name that becomes another one's where Canvas leaves spaces out",
            ("1002", "Ada Love Lace", "eve", "e@x"),
            right="lovelaceada_77_912_week.ipynb",
            wrong="laceadalove_78_913_week.ipynb",
            gets=None,
        ),
        Chosen(
            "has a name that ends the quotation and says something",
            ("1002", "Eve” and 3 more. All others have full points: “x", "eve", "e@x"),
            wrong="eve",
        ),
    ]


def _fifteenth() -> list[Chosen]:
    """Names that hold what a system puts behind names, that look like another one, and that act in other places."""
    behind = "{}_{}_assignsubmission_file_x"
    inner = "adal_attempt_2026-11-20-12-00-01_x"
    named = {"id": "1002", "login": "eve", "email": "e@x"}

    def called(what: str, name: str, file: str = "", **more: str) -> Chosen:
        who = {**named, **more}
        other = (who["id"], name, who["login"], who["email"])
        return Chosen(what, other, wrong=file or MOODLE.format(name, 55))

    return [
        called("is called as another one with what Moodle puts behind", behind.format(VICTIM[1], 12)),
        called("is called so with another number", behind.format(VICTIM[1], 77)),
        replace(
            called(
                "has a login in which another one's attempt is",
                "Eve",
                BLACKBOARD.format(f"Week 3_{inner}"),
                login=inner,
            ),
            right=BLACKBOARD.format("Week 3_adal"),
        ),
        replace(
            called("is called as another one in a group", "Team-Ada Lovelace"),
            more=(MOODLE.format("Team 1-Bob", 5), MOODLE.format("Team 1-Cy", 6)),
            people=(("1003", "Bob", "bob", "b@x"), ("1004", "Cy", "cy", "c@x")),
        ),
        replace(
            called(
                "has another one's login in wide letters", "Eve", BLACKBOARD.format("Week 3_ａｄａｌ"), login="ａｄａｌ"
            ),
            right=BLACKBOARD.format("Week 3_adal"),
        ),
        called("has another one's name in wide letters", "Ａｄａ Ｌｏｖｅｌａｃｅ"),
        called("has it with a sign that has no width", "Ada\u200b Lovelace", MOODLE.format("Ada� Lovelace", 55)),
        called("has it in letters of another script", "Аdа Lоvеlасе"),
        called("has it with dots behind", "Ada Lovelace.."),
        called("has it with the end of a second copy", "Ada Lovelace (2)"),
        called("has it with the end of a notebook", "Ada Lovelace.ipynb"),
        called("has it turned", "Lovelace, Ada"),
        replace(
            called("has another one's address as login", "Eve", BLACKBOARD.format("W_ada@x.org"), login="ada@x.org"),
            right=BLACKBOARD.format("W_adal"),
        ),
        replace(
            called("has another one's id as login", "Eve", BLACKBOARD.format("Week 3_1001"), login="1001"),
            right=BLACKBOARD.format("Week 3_adal"),
        ),
        called("has another one's address in capitals", "Eve", email="ADA@x.org"),
        called("has a name with a picture in Markdown and HTML", "![x](http://a/b)<img src=x onerror=alert(1)>", "eve"),
        called("has formulas behind tabs", "Eve	=1+1", "eve", login="	=2", email="e	@x"),
        called("has wide signs of formulas", "－1+1", "eve", login="-2+3", email=" =1"),
        called("has a name with the escape of a command line", "%0d=1+1 %PATH% $(id) `id`", "eve"),
    ]


def rostered(only: Collection[int] = ()) -> list[tuple[str, str, str]]:
    """Each of them, or those of some rounds: its family, what it is, and what is not as it should be."""
    return [("names", f"who {each.what}", each.faults()) for each in rosters() if not only or each.round in only]
