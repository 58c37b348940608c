"""Hostile and honest submissions, graded, as a table with the reason why each kind is held.

``python -m tests.classroom.table`` grades all of them, ``python -m tests.classroom.table
--round 6`` those of one round.
"""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pitfall_lab.classroom.judge import Limits, Room, judged
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.cli import main as command
from pitfall_lab.lessons.attempt import Observation, Request
from pitfall_lab.lessons.exercises import exercises
from tests.classroom.a_class import FAMILIES, KEYS, Case, write_class
from tests.classroom.reaches import CLIMBS, REACHES, climbing, reaching
from tests.classroom.rosters import rostered, runs
from tests.classroom.twentieth_class import between_runs

DRAW = 20_261_129
"""What is added to all seeds: other numbers than those of the notebook, as in a class."""
MOST_IN_A_CELL = 32_767
"""Characters that a cell of a spreadsheet may have."""


def acting(row: dict[str, str]) -> list[str]:
    """The cells of a line of a table that a spreadsheet would run."""
    line = io.StringIO()
    csv.writer(line).writerow(row.values())
    return runs(line.getvalue())


def faults(case: Case, row: dict[str, str] | None, outcomes: dict[str, dict[str, Any]]) -> list[str]:
    """What is not as it should be about one submission's grade."""
    if row is None or (row["verdict"] != "unreadable" and not outcomes):
        return ["no row"]
    wanted = {*case.verdict.split("|")}
    wanted |= {"look"} if case.family and "graded" in wanted else set()
    # what was named alone once may be refused by now, where it runs
    refused = [
        key
        for key, outcome in outcomes.items()
        if case.family
        and wanted == {"look"}
        and outcome["status"] == "error"
        and "PermissionError" in outcome["detail"]
    ]
    wanted |= {"graded"} if refused else set()
    found = [] if row["verdict"] in wanted else [f"verdict {row['verdict']}, not {case.verdict}"]
    if row["verdict"] != "unreadable":
        for key in KEYS:
            status = outcomes[key]["status"]
            if status not in case.expected(key) and key not in refused:
                found.append(f"{key} {status}, not {' or '.join(case.expected(key))}")
            if (float(row[key] or 0) == 1.0) != (status == "solved"):
                found.append(f"{key} is {status} for {row[key]} points")
    elif float(row["points"] or 0):
        found.append(f"{row['points']} points for nothing")
    if formulas := acting(row):
        found.append(f"a spreadsheet would run {formulas[0]!r}")
    if large := [name for name, cell in row.items() if len(cell) > MOST_IN_A_CELL]:
        found.append(f"no spreadsheet has room for {large[0]}")
    if case.says not in row["notes"]:
        found.append(f"does not say {case.says!r}: {row['notes']}")
    return found


def graded(
    folder: Path, cases: list[Case]
) -> list[tuple[Case, dict[str, str] | None, dict[str, dict[str, Any]], list[str]]]:
    """Each case with its row of grades.csv, what was kept about each exercise, and what is wrong with that."""
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    lines = [json.loads(line) for line in (folder / "grades.state.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    kept = {line["student"]: {o["key"]: o for o in line["outcomes"]} for line in lines if "student" in line}
    out = []
    for case in cases:
        name = plain(case.name)
        row, outcomes = rows.get(name), kept.get(case.name, {})
        out.append((case, row, outcomes, faults(case, row, outcomes)))
    return out


def pages(folder: Path, cases: list[Case]) -> str:
    """What is not as it should be about the pages: each student has one, that of no other."""
    text = (folder / "report" / "index.html").read_text(encoding="utf-8")
    links = {html.unescape(unquote(link)) for link in re.findall(r'href="(students/[^"]+)"', text)}
    there = [link for link in links if (folder / "report" / link).is_file()]
    return "" if len(there) == len(cases) else f"{len(there)} pages of {len(cases)} students"


def reached() -> list[tuple[str, str, str]]:
    """Each system call and each way to a frame that a cell tries: its family, what it would give, and
    what came of it ("" if refused).
    """
    with Room() as room:
        answers = [
            room.run([Request(cell, expressions=(name,))], Limits(timeout=30, memory=512), 30)
            for cell, name in ((reaching(), "refused"), (climbing(), "got"))
        ]
    refused, got = (
        Observation.from_json(json.loads(answer["report"])["observations"][0]).values[name]
        for answer, name in zip(answers, ("refused", "got"), strict=True)
    )
    calls = [
        ("calls", what, "" if refused.get(what) is True else f"not refused: {refused.get(what)}") for what in REACHES
    ]
    return calls + [("frames", what, "not refused" if what in got else "") for what in CLIMBS]


@dataclass(frozen=True)
class Answer:
    """An answer to an exercise of any chapter; ``right`` ones have to be solved, others must not be unless
    the teacher is told of them.

    An answer that is ``worthless`` must have no points at all.
    """

    key: str
    round: int
    what: str
    source: str
    right: bool
    worthless: bool = False

    def faults(self, room: Room) -> str:
        """What is not as it should be about its grade."""
        outcome = judged(exercises()[self.key], self.source, room, Limits(timeout=20, memory=512, draw=DRAW))
        room.forget()
        if self.right:
            return "" if outcome.status == "solved" and not outcome.unneeded else f"{outcome.status} {outcome.unneeded}"
        earned = outcome.credit > 0 if self.worthless else outcome.status == "solved"
        return f"{outcome.status}, {outcome.credit:g} of the points" if earned and not outcome.unneeded else ""


def answers(only: Collection[int] = ()) -> list[Answer]:
    """Those of ``answers.txt``, of some rounds or of all."""
    text = Path(__file__).with_name("answers.txt").read_text(encoding="utf-8")
    found = re.findall(r"(?ms)^### ([+0-]) (\S+) (\d+) ([^\n]+)\n(.*?)(?=^### |\Z)", text)
    return [
        Answer(key, int(n), what, source, sign == "+", sign == "0")
        for sign, key, n, what, source in found
        if not only or int(n) in only
    ]


def answered(only: Collection[int] = ()) -> list[tuple[str, str, str]]:
    """Each of them: its family, what it is, and what is not as it should be."""
    with Room() as room:
        return [("" if each.right else "fit", f"{each.key} {each.what}", each.faults(room)) for each in answers(only)]


def main() -> int:
    """Grade the class, try the calls, print the tables, and return 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--round", type=int, action="append", default=[], help="of these rounds alone")
    only = parser.parse_args().round
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = write_class(folder, only)
        before = (folder / "notes.txt").read_bytes()
        started = time.monotonic()
        if code := command(["grade", str(folder), "--jobs", "1", "--report", str(folder / "report")]):
            return code
        seconds = time.monotonic() - started
        assert (folder / "notes.txt").read_bytes() == before
        held = []
        print(f"{'submission':20} {'what it is':46} {'verdict':11} {'points':6} {' '.join(f'{key:9}' for key in KEYS)}")
        for case, row, outcomes, found in graded(folder, cases):
            states = " ".join(f"{outcomes[key]['status'] if outcomes else '-':9}" for key in KEYS)
            verdict, points = (row["verdict"], row["points"]) if row else ("", "")
            print(
                f"{case.name:20} {case.what:46} {verdict:11} {points:6} {states} "
                f"{'✓' if not found else '✗ ' + '; '.join(found)}"
            )
            held.append((case.family, case.what, "; ".join(found)))
        held.append(("", "the pages", pages(folder, cases)))
    print(f"{len(cases)} submissions in {seconds:.0f} s\n")
    held += [] if only else reached()
    held += rostered(only)
    held += between_runs(only)
    held += answered(only)
    print(f"{'hostile':9} {'cases':>5} {'open':>4} held because")
    for family, reason in FAMILIES.items():
        these = [problem for kind, _, problem in held if kind == family]
        print(f"{family:9} {len(these):5} {sum(map(bool, these)):4} {reason}")
    hostile = [problem for family, _, problem in held if family]
    print(f"{'all':9} {len(hostile):5} {sum(map(bool, hostile)):4}\n")
    for _, what, problem in held:
        if problem:
            print(f"open: {what}: {problem}")
    return int(any(problem for _, _, problem in held))


if __name__ == "__main__":
    sys.exit(main())
