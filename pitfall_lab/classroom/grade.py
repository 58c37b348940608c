"""The command line of ``pitfall-lab grade``."""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs; tqdm and distributed are not
# needed for every run

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from pitfall_lab import processes
from pitfall_lab.check.command import count, mebibytes, seconds
from pitfall_lab.classroom import account, fence, handback, ledger, lms, roster, submissions
from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom.analysis import table
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import CellOutcome, Limits, RoomError, sit
from pitfall_lab.classroom.register import Row, StateFile, refuse_strangers, remembered, say, versions
from pitfall_lab.classroom.whose import Directory
from pitfall_lab.cli import Refusal

_USUAL = f" (default: as {assignments.NAME} says; without one, {Limits().timeout:g} s and {Limits().memory} MiB)"
DASK_SECONDS = 20
"""Seconds to wait for the scheduler of the Dask cluster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab grade``."""
    parser.epilog = (
        "DIR is what `pitfall-lab classroom init` made (the submissions are in DIR/submissions), or with --chapters a "
        "folder of submissions: each file or folder in it is one student's. Only the sources of %%exercise cells "
        "count. The exit code is 0 when every submission has a row."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the assignment's folder, or a folder of submissions")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=None, help="the table (default: DIR/grades.csv)"
    )
    parser.add_argument(
        "--chapters",
        metavar="N,M",
        help="of a folder without an assignment.toml: grade all exercises of these chapters",
    )
    parser.add_argument(
        "--report", metavar="FOLDER", type=Path, help="write a page for each student and one for the class into FOLDER"
    )
    parser.add_argument(
        "--lang", "--language", dest="language", choices=("en", "zh"), help="the language of the pages (default: en)"
    )
    parser.add_argument(
        "--roster",
        metavar="FILE",
        type=Path,
        help=f"the list of the class (default: DIR/{roster.NAME}, where there is one)",
    )
    parser.add_argument(
        "--lms",
        action="append",
        choices=sorted(lms.SYSTEMS),
        default=[],
        help="also write the marks as this system imports them",
    )
    parser.add_argument(
        "--column", metavar="NAME", help="what the marks' column is called there (default: the assignment's name)"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="STUDENT",
        default=[],
        help="grade this student again and keep all others",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue where an earlier run stopped; what has changed since is graded again",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds that one cell may take, over all its runs " + _USUAL
    )
    limits.add_argument(
        "--memory", type=mebibytes, metavar="MIB", help="memory that a cell may take beyond torch's own " + _USUAL
    )
    limits.add_argument(
        "--jobs", "-j", type=count, metavar="N", help="grade N submissions at once (default: one for each processor)"
    )
    limits.add_argument(
        "--dask", metavar="ADDRESS", help="let the workers of this running Dask cluster grade (tcp://host:8786)"
    )
    limits.add_argument(
        "--trust",
        action="store_true",
        help="grade even if this machine has no fence: submissions can then read and change your files",
    )


def run(args: argparse.Namespace) -> int:
    """Grade every submission, write the table, the reports and the lists for other systems, and return 0.

    Raises :class:`~pitfall_lab.cli.Refusal` if a folder or a file is missing or cannot be read or written, if the
    teacher's files have faults, or if submissions cannot be run here.
    """
    folder: Path = args.folder
    if not folder.is_dir():
        raise Refusal(f"There is no folder {folder}.")
    assignment, where, folder = _assignment(args, folder)
    if not where.is_dir():
        raise Refusal(f"There is no folder {where}; put the submissions there, one file or folder for each student.")
    grades: Path = args.output or folder / "grades.csv"
    if grades.is_dir():
        raise Refusal(f"{grades} is a folder; name a file with -o.")
    fenced = _fenced(trust=args.trust) if args.dask is None else not args.trust
    earlier = remembered(grades, assignment)
    before = earlier if args.resume or args.only else {}
    options = _as_before(args, grades, where, before)
    if left := _left(args, grades, where, earlier):
        options["left"] = left
    if others := _left_tables(args, grades, where, earlier):
        options["left_lms"] = others
    faults = roster.Faults()
    people, overrides, whole = _teachers(args, where.parent, assignment, faults)
    found, directory, skipped = _found(where, grades, people)
    only = _meant(args.only, found, people, overrides, directory, faults=faults) if whole else set()
    faults.refuse()
    refuse_strangers(grades, assignment)
    before_it = _lines(grades) if only else {}
    state = StateFile(grades, assignment, resume=args.resume or bool(args.only))
    if state.aside is not None:
        say(f"What {state.path} held is kept as {state.aside.name}. {state.why}".rstrip(), file=sys.stderr)
    try:
        if options and options != before:
            state.remember(options)
        rows = _graded(
            args,
            replace(assignment, limits=replace(assignment.limits, draw=state.draw)),
            found,
            state,
            only=only,
            fenced=fenced,
            hidden=(str(folder.resolve()), str(where.resolve())),
        )
    except KeyboardInterrupt:
        say(f"\nStopped. What was graded is in {state.path}; --resume continues from there.", file=sys.stderr)
        raise
    except RoomError as problem:
        raise Refusal(str(problem)) from None
    finally:
        state.close()
    entries = ledger.settled(assignment, rows, people, overrides, directory)
    ledger.write_grades(grades, assignment, entries, roster=people is not None)
    files = {each.student: each.names(where) for each in found}
    _write_others(args, grades, assignment, entries, files=files, left=grades.parent / left if left else None)
    account.tell_again([entry for entry in entries if entry.row.student in only], before_it, files)
    account.tell(grades, entries, found, skipped, directory, fenced=fenced)
    account.warn(assignment, overrides)
    return 0


def _found(
    where: Path, grades: Path, people: list[roster.Person] | None
) -> tuple[list[submissions.Submission], Directory, list[str]]:
    """The submissions, one for each person; the directory that says whose each is; and the names of all other files.

    Raises :class:`~pitfall_lab.cli.Refusal` if there is no submission.
    """
    # elsewhere, a file that is called as one of the tables is a student's
    is_here = grades.parent.resolve() == where.resolve()
    found, skipped = submissions.found(where, grades.stem if is_here else None)
    if not found:
        raise Refusal(f"There is nothing to grade in {where}.")
    directory = Directory(people or (), (submission.student for submission in found))
    return submissions.merged(found, directory), directory, skipped


def _lines(grades: Path) -> dict[str, dict[str, str]]:
    """The lines in the table of an earlier run, by the name of the submission; empty if there is no table."""
    return {line["student"]: line for line in table(grades)} if grades.exists() else {}


def _meant(
    words: Sequence[str],
    found: Sequence[submissions.Submission],
    people: list[roster.Person] | None,
    overrides: Sequence[ledger.Override],
    directory: Directory,
    *,
    faults: roster.Faults,
) -> set[str]:
    """The submissions that ``--only`` names.

    ``faults`` gets names, there or in the teacher's own marks, that fit no student or several.
    """
    persons = ledger.everybody((submission.student for submission in found), people, directory)
    only: set[str] = set()
    with faults.noted():
        only = _only(words, found, persons, directory)
    with faults.noted():
        ledger.meant(overrides, persons, directory)
    return only


def _only(
    words: Sequence[str],
    found: Sequence[submissions.Submission],
    persons: dict[str, roster.Person | None],
    directory: Directory,
) -> set[str]:
    """The names of the submissions that ``words``, the values of ``--only``, name.

    Raises :class:`~pitfall_lab.cli.Refusal` with every word that fits no student, several, or one without a submission.
    """
    there = {submission.student for submission in found}
    parts = {part: submission.student for submission in found for part in submission.parts}
    only, faults = set(), roster.Faults()
    for word in words:
        with faults.noted():
            meant = ledger.named(parts.get(word, word), persons, directory)
            if not meant:
                raise Refusal(
                    f"There is no submission of {roster.shown(word)}, and the roster has no such id, login or name."
                )
            if len(meant) > 1:
                raise Refusal(f"{roster.shown(word)} fits {len(meant)} students: write the id.")
            if meant[0] not in there:
                raise Refusal(f"{roster.shown(word)} is in the roster but has no submission.")
            only.add(meant[0])
    faults.refuse()
    return only


def _as_before(args: argparse.Namespace, grades: Path, where: Path, before: dict[str, Any]) -> dict[str, Any]:
    """Fill in the options that ``args`` leaves open (roster, tables, pages, language) from ``before``, an earlier
    run's.

    Returns the options to be stored. Where the table is in the folder of the submissions, ``before`` is not used, since
    its state file may come from a student.
    """
    home = grades.parent
    if home.resolve() == where.resolve():
        before = {}
    written = {**_tables(before, "left_lms"), **_tables(before, "lms")}
    columns = {system: column for system, column in written.items() if system in lms.SYSTEMS}
    args.lms = columns | {system: args.column or columns.get(system) for system in args.lms or list(columns)}
    for name, also in (("report", "left"), ("roster", "")):
        if getattr(args, name) is None and (path := before.get(name) or before.get(also)):
            setattr(args, name, home / path)
    args.language = args.language or before.get("language") or "en"
    paths = {name: os.path.relpath(path, home) for name in ("report", "roster") if (path := getattr(args, name))}
    return {"lms": args.lms, "language": args.language, **paths} if args.lms or paths else {}


def _tables(options: dict[str, Any], name: str) -> dict[str, Any]:
    """The tables for learning management systems in the options of an earlier run under ``name``: column names by
    system.
    """
    found = options.get(name)
    return found if isinstance(found, dict) else {}


def _left_tables(args: argparse.Namespace, grades: Path, where: Path, earlier: dict[str, Any]) -> dict[str, Any]:
    """The tables of earlier runs that still exist and that this run does not write again: column names by system."""
    if grades.parent.resolve() == where.resolve():
        return {}
    written = {**_tables(earlier, "left_lms"), **_tables(earlier, "lms")}
    there = [system for system in written if system in lms.SYSTEMS and lms.place(grades, system).exists()]
    return {system: written[system] for system in there if system not in args.lms}


def _left(args: argparse.Namespace, grades: Path, where: Path, earlier: dict[str, Any]) -> str | None:
    """The folder of pages that an earlier run wrote and this one does not renew, relative to the table's
    folder; None if there is none.
    """
    home, path = grades.parent, earlier.get("report") or earlier.get("left")
    if args.report or not isinstance(path, str) or home.resolve() == where.resolve():
        return None
    return path if (home / path / "index.html").exists() else None


def _write_others(
    args: argparse.Namespace,
    grades: Path,
    assignment: Assignment,
    entries: Sequence[ledger.LedgerLine],
    *,
    files: dict[str, tuple[str, ...]],
    left: Path | None,
) -> None:
    """Write the tables for other systems, and the pages. ``left``: pages of an earlier run that stay as they are."""
    for system, column in args.lms.items():
        most = sum(assignment.worth(key) for key in assignment.keys)
        path = lms.write(grades, system, assignment, entries, column)
        name = lms.title(assignment, column)
        about = lms.other_points(system, name, args.possible, most) + lms.about(system, entries, name, args.titles)
        say(f"For {system.capitalize()}: {path}, for an item of {ledger.counted(most)}.{about}")
    for system in lms.SYSTEMS:
        if system not in args.lms and (old := lms.place(grades, system)).exists():
            say(f"{old} is of an earlier run and was not written anew; --lms {system} does it.")
    if args.report:
        from pitfall_lab.classroom.report import write_reports

        say(f"The page of the class: {write_reports(args.report, assignment, entries, args.language, files)}.")
        for line in handback.told(args.report, entries, files):
            say(line)
    if left:
        say(f"The pages in {left} are of an earlier run and were not written anew; --report {left} does it.")


def _teachers(
    args: argparse.Namespace, home: Path, assignment: Assignment, faults: roster.Faults
) -> tuple[list[roster.Person] | None, list[ledger.Override], bool]:
    """The roster (None without one), the teacher's own marks, and whether the roster's list of people could be read.

    ``args`` gets the ``titles`` of the roster's columns, and the points of those that are an item
    of a gradebook (``possible``).

    They are beside the assignment; a file that is called so among the submissions is a student's. They are read before
    anything is graded, and ``faults`` gets what is wrong in them.
    """
    there = (home / assignments.NAME).is_file()
    args.titles, args.possible = (), {}
    listed, own = args.roster or home / roster.NAME, home / ledger.NAME
    people, overrides, whole = None, [], True
    if args.roster or (there and listed.exists()):
        whole = False
        with faults.noted():
            people, args.titles, args.possible = (
                roster.read(listed, faults),
                roster.titles(listed),
                roster.possible(listed),
            )
            whole = True
    if there and own.exists():
        with faults.noted():
            overrides = ledger.read_overrides(own, assignment, faults)
    return people, overrides, whole


def _assignment(args: argparse.Namespace, folder: Path) -> tuple[Assignment, Path, Path]:
    """The assignment, with the limits of the command line, the folder of the submissions, and the
    one that the table goes into.
    """
    path, where, home = assignments.place(folder)
    if args.chapters is not None and not where.is_dir():  # a file of that name among submissions is a student's
        path, where, home = None, folder, folder
    if args.chapters is not None and path is not None:
        raise Refusal(
            f"{path} says what is graded here, for how many points and until when: leave --chapters away. Without it, "
            "these chapters can be graded in a folder of their own with a copy of the submissions."
        )
    if args.chapters is not None:
        chapters = assignments.chosen(args.chapters)
        ident = "chapters-" + "-".join(map(str, chapters))
        assignment = assignments.of_chapters(chapters, ident=ident, name=folder.resolve().name)
    elif path is None:
        raise Refusal(f"There is no {assignments.NAME} in {folder}; say which exercises to grade with --chapters 5,12.")
    else:
        assignment = assignments.load(path)
    given = {name: value for name, value in (("timeout", args.timeout), ("memory", args.memory)) if value is not None}
    return replace(assignment, limits=replace(assignment.limits, **given)), where, home


def _fenced(*, trust: bool) -> bool:
    """Whether this machine can isolate submissions.

    Raises :class:`~pitfall_lab.cli.Refusal` if it cannot and ``trust`` is False, or if processes cannot be forked here.
    """
    lacks = fence.missing()
    if not hasattr(os, "fork"):
        raise Refusal("Grading needs Linux: a cell runs in a forked process. On Windows, use WSL or a container.")
    if lacks and not trust:
        raise Refusal(
            f"This machine has no {' and no '.join(lacks)}, so nothing would keep a submission from your files. "
            "Grade in a container or on another machine, or say --trust if you trust every submission."
        )
    if lacks:
        say("No fence: submissions can read and change your files (--trust).", file=sys.stderr)
    return not lacks


def _graded(
    args: argparse.Namespace,
    assignment: Assignment,
    found: Sequence[submissions.Submission],
    state: StateFile,
    *,
    only: set[str],
    fenced: bool,
    hidden: tuple[str, ...],
) -> list[Row]:
    """The rows of all submissions; those without a usable row from an earlier run are graded now, several at once.

    Each new row is stored as soon as it is made. A submission whose files have changed is graded again, but with
    ``only`` (the submissions named by ``--only``) all others keep their earlier row.
    """
    rows, sheets, changed, moved = [], [], [], []
    latest = {row.student: row for row in state.known.values()} if only else {}
    for submission in found:
        sheet = submissions.read(submission, assignment.keys)
        known = state.known.get((sheet.student, sheet.digest))
        if (
            known is not None
            and sheet.student not in only
            and (sheet.digest or only)  # without a digest it may be another one
            and known.problem == sheet.problem  # a file that cannot be read has no part in the digest
        ):
            rows.append(known if only else _renewed(known, sheet, state))
            moved += [sheet.student] if rows[-1].received != sheet.received else []
        elif sheet.student in latest and sheet.student not in only:
            rows.append(latest[sheet.student])
            changed.append(sheet.student)
        elif sheet.problem is not None:
            rows.append(_row(sheet))
            if rows[-1] != known:
                state.keep(rows[-1])
        else:
            sheets.append(sheet)
    if changed:
        say(f"Changed since they were graded, and left as they were: {roster.listed(changed)}; --resume grades them.")
    if moved:
        say(
            f"Written at another time than before, and left as they were: {roster.listed(moved)}; --resume "
            "takes the new times."
        )
    with _bar(len(sheets)) as step:
        work = (
            _on_dask(args.dask, assignment, sheets, fenced=fenced)
            if args.dask
            else _here(args.jobs, assignment, sheets, fenced=fenced, hidden=hidden)
        )
        for sheet, outcomes in work:
            found_out = tuple(CellOutcome.from_dict(each) for each in outcomes)
            row = _row(sheet, found_out)
            state.keep(row)
            rows.append(row)
            step()
    return rows


def _renewed(known: Row, sheet: submissions.Sheet, state: StateFile) -> Row:
    """A row of an earlier run, updated with what is read from the files in each run: times, notes and other files.

    Their times may have been corrected since. A row that is different after this is stored.
    """
    row = replace(known, received=sheet.received, notes=sheet.notes, asides=sheet.asides, beside=sheet.beside)
    if row != known:
        state.keep(row)
    return row


def _row(sheet: submissions.Sheet, outcomes: tuple[CellOutcome, ...] = ()) -> Row:
    """The row of the state file for a submission; without outcomes if it could not be read."""
    read = (sheet.notes, sheet.beliefs, sheet.problem, sheet.received)
    return Row(
        sheet.student, sheet.digest, outcomes, *read, versions=versions(), asides=sheet.asides, beside=sheet.beside
    )


Work = Iterator[tuple[submissions.Sheet, list[dict[str, Any]]]]


def _here(
    jobs: int | None,
    assignment: Assignment,
    sheets: Sequence[submissions.Sheet],
    *,
    fenced: bool,
    hidden: tuple[str, ...],
) -> Work:
    """Grade submissions in worker processes of this machine, and yield each with its outcomes as it is done."""
    if not sheets:
        return
    jobs = min(jobs or os.cpu_count() or 1, len(sheets))
    try:
        with processes.pool(jobs) as pool:
            waiting = {
                pool.submit(sit, s.cells, assignment.keys, assignment.limits, fenced=fenced, hidden=hidden): s
                for s in sheets
            }
            for done in as_completed(waiting):
                yield waiting[done], done.result()
    except BrokenExecutor:
        raise RoomError("A grading process was ended from outside; --resume continues.") from None


def _on_dask(address: str, assignment: Assignment, sheets: Sequence[submissions.Sheet], *, fenced: bool) -> Work:
    """Grade submissions on the workers of a running Dask cluster, and yield each with its outcomes as it is done.

    Each worker needs this version of the package and, if ``fenced``, a fence of its own. Raises
    :class:`~pitfall_lab.cli.Refusal` if ``distributed`` is not installed or the scheduler cannot be reached.
    """
    try:
        from distributed import Client
        from distributed import as_completed as finished
    except ImportError:
        raise Refusal('--dask needs the package distributed: pip install "pitfall-lab[dask]".') from None
    try:
        client = Client(address, timeout=DASK_SECONDS)
    except (OSError, ValueError) as problem:
        raise Refusal(f"There is no Dask scheduler at {address}: {problem}.") from None
    with client:
        tasks = {
            client.submit(sit, s.cells, assignment.keys, assignment.limits, fenced=fenced, pure=False): s
            for s in sheets
        }
        for done in finished(list(tasks)):
            yield tasks[done], done.result()


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Any]:
    """Show a progress bar if standard error is a terminal; the context gives a function to call once per submission."""
    if not total or not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="submission", file=sys.stderr) as bar:
        yield bar.update
