"""The command line of ``pitfall-lab check``: :func:`run` checks the files and returns the exit code."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import queue
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pitfall_lab.check import settings as settings_
from pitfall_lab.check.examine import Checked, document, examine, repaired
from pitfall_lab.check.github import github
from pitfall_lab.check.observed import UNOBSERVED
from pitfall_lab.check.sarif import sarif
from pitfall_lab.check.scripts import found
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.terminal import Paint, Style, report, shown, total, wants_colours
from pitfall_lab.check.workshop import EVENT_LIMIT, TIMEOUT, Unchecked, Workshop
from pitfall_lab.cli import Refusal

FORMATS = ("text", "json", "sarif", "github")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab check``."""
    parser.epilog = (
        "Every file that is named, or found in a folder that is named, is RUN, with your rights: this is no sandbox, "
        "and a program can do whatever it can do under `python FILE`. What follows `--` is passed on to it. Settings "
        "are read from [tool.pitfall-lab] in the nearest pyproject.toml. Exit codes: 0 nothing found in what was "
        "seen, 1 an error or a warning was found, 2 a file could not be checked, or observation stopped before the "
        "program ended, 3 a file did not end in time."
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="Python programs, notebooks, and folders of them")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, default=None, help="how findings are printed (default: text)")
    output.add_argument(
        "--json", action="store_true", help="the same as --format json: an object for one file, else a list of them"
    )
    output.add_argument(
        "--lang", "--language", dest="language", choices=("en", "zh"), default="en", help="the language of the report"
    )
    output.add_argument("--show-output", action="store_true", help="print what the programs print, to standard error")
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--select", action="append", metavar="CODES", help="only these rules: PL101,PL2 (a whole family)"
    )
    rules.add_argument("--ignore", action="append", metavar="CODES", help="not these rules")
    rules.add_argument(
        "--exclude", action="append", metavar="PATTERNS", help="files and folders that are not looked for in folders"
    )
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="make the first verified fix of each finding, in the files")
    fixes.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    fixes.add_argument("--no-fixes", action="store_true", help="do not try repairs: each program runs once")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"stop a run after S seconds, not counting waits for a busy processor (default: {TIMEOUT:g})",
    )
    limits.add_argument(
        "--memory", type=mebibytes, metavar="MIB", help="so much memory a program may take beyond torch's own (Linux)"
    )
    limits.add_argument(
        "--steps", type=steps, metavar="N", help=f"record at most N steps of a program (default: {EVENT_LIMIT})"
    )
    limits.add_argument(
        "--every-round", action="store_true", help="record also rounds of loops that repeat what was recorded before"
    )
    limits.add_argument(
        "--jobs", "-j", type=count, metavar="N", help="check N files at the same time (default: one for each processor)"
    )


def seconds(text: str) -> float:
    """Parse a command line argument that is a number of seconds, more than 0 and less than a million.

    Raises ``argparse.ArgumentTypeError`` for any other text.
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("the time must be more than 0 s")
    return value


def mebibytes(text: str) -> int:
    """Parse a command line argument that is a number of MiB: an integer.

    Raises ``argparse.ArgumentTypeError`` unless it is at least 1.
    """
    return _whole(text, "a number of MiB")


def steps(text: str) -> int:
    """Parse a command line argument that is a number of steps: an integer.

    Raises ``argparse.ArgumentTypeError`` unless it is at least 1.
    """
    return _whole(text, "a number of steps")


def count(text: str) -> int:
    """Parse a command line argument that is a number of processes: an integer.

    Raises ``argparse.ArgumentTypeError`` unless it is at least 1.
    """
    return _whole(text, "a number of processes")


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Check all files that the parsed arguments name, print what was found, and return the exit code.

    It is 0 if nothing was found, 1 for an error or a warning (with ``--diff`` also if a fix would be made), 2 if a file
    was not checked to its end, 3 if a file was out of time; for several files the first of 2, 3 and 1 that occurs. With
    ``--fix``, fixed files are written. Raises :class:`~pitfall_lab.cli.Refusal` if ``--no-fixes`` is combined with
    ``--fix`` or ``--diff``, if no rule has a code that is given, and for wrong settings in a pyproject.toml.
    """
    chosen = "json" if args.json and args.format is None else args.format or "text"
    if args.no_fixes and (args.fix or args.diff):
        raise Refusal("--no-fixes leaves nothing for --fix and --diff to do.")
    every: list[Checked] = []
    for result in _all(args):
        checked = _written(result) if args.fix else result
        every.append(checked)
        if chosen == "text":
            _print(checked, args)
        else:
            _say(checked, args)
    if chosen == "json":
        found = [document(checked, args.language) for checked in every]
        alone = len(args.paths) == 1 and not Path(args.paths[0]).is_dir()
        print(json.dumps(found[0] if alone else found, ensure_ascii=False, indent=2))
    elif chosen == "sarif":
        print(json.dumps(sarif(every, args.language), ensure_ascii=False, indent=2))
    elif chosen == "github":
        print(github(every, args.language), end="")
    elif len(every) > 1 and not args.diff:  # a patch ends with its last line
        findings = [finding for checked in every for finding in checked.findings]
        calls = sum(checked.trace.calls for checked in every if checked.trace is not None)
        print(
            total(len(every), calls, findings, sum(checked.problem is not None for checked in every), args.language),
            end="",
        )
    return _exit_code(every, would_change=args.diff)


def _written(checked: Checked) -> Checked:
    """Write the repaired text back to the file, if fixes were made.

    If it cannot be written, the result has the problem and no fixes.
    """
    if checked.fixed and checked.script is not None:
        try:
            checked.script.path.write_bytes(checked.script.raw)
        except OSError as problem:
            sentence = f"{checked.name} cannot be written: {problem.strerror or problem}."
            return replace(checked, fixed=(), problem=Unchecked(type(problem).__name__, sentence))
    return checked


def _exit_code(every: Sequence[Checked], *, would_change: bool) -> int:
    """The exit code for several files: 2 if one was not checked to its end, else 3 if one was out of time,
    else 1 for findings, else 0.

    With ``would_change`` (for ``--diff``), a fix that would be made counts as a finding.
    """
    codes = {checked.exit_code for checked in every} | (
        {1} if would_change and any(checked.fixed for checked in every) else set()
    )
    return next((code for code in (2, 3, 1) if code in codes), 0)


def _all(args: argparse.Namespace) -> Iterator[Checked]:
    """Check every file, several at once, and yield the results in the order of the files.

    With ``--fix`` or ``--diff`` they are those after the fixes, which are not written yet.
    """
    chosen = _Chosen(args)
    files = list(found(args.paths, chosen.excludes))
    for file in files:  # errors in the settings are reported before anything runs
        if isinstance(file, Path):
            chosen.settings(file)
    jobs = min(args.jobs or os.cpu_count() or 1, sum(isinstance(file, Path) for file in files) or 1)
    argv = getattr(args, "passed_on", [])
    with ExitStack() as stack:
        shops: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
        for _ in range(jobs):
            shop = stack.enter_context(Workshop())
            shop.warm()
            shops.put(shop)

        def check(file: Path | Unchecked) -> Checked:
            if isinstance(file, Unchecked):
                return Checked(file.file, problem=file)
            shop = shops.get()
            try:
                if args.fix or args.diff:
                    return repaired(file, shop, chosen.settings(file), argv)
                return examine(file, shop, chosen.settings(file), argv, fixes=not args.no_fixes)
            finally:
                shops.put(shop)

        pool = ThreadPoolExecutor(jobs)
        stack.callback(pool.shutdown, cancel_futures=True)  # when interrupted, the remaining files are not started
        yield from pool.map(check, files)


class _Chosen:
    """The settings of the command line combined with those of pyproject.toml; the command line takes precedence."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._given = {
            "select": settings_.codes(_split(args.select), "--select") if args.select else None,
            "ignore": settings_.codes(_split(args.ignore), "--ignore") if args.ignore else None,
            "exclude": tuple(_split(args.exclude)) if args.exclude else None,
            "timeout": args.timeout,
            "memory": args.memory,
            "steps": args.steps,
            "every_round": args.every_round or None,
        }

    def settings(self, path: Path) -> Settings:
        """Return the settings for a file."""
        return replace(settings_.near(path), **{key: value for key, value in self._given.items() if value is not None})

    def excludes(self, path: Path) -> bool:
        """Whether the settings exclude a path that was found in a folder."""
        return self.settings(path).excludes(path)


def _split(values: Sequence[str]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def _print(checked: Checked, args: argparse.Namespace) -> None:
    """Print the report of one file (with ``--diff`` only its diff) as soon as it is ready; a file
    that did not run has no report.
    """
    if args.diff:
        print(_diff(checked), end="")
    elif checked.trace is not None:
        style = Style(args.language, Paint(colours=wants_colours(sys.stdout)), checked.script)
        text = report(checked.name, checked.trace, checked.findings, style)
        print(text, end="\n" if len(args.paths) > 1 or Path(args.paths[0]).is_dir() else "")
    sys.stdout.flush()
    _say(checked, args, text=not args.diff)


def _say(checked: Checked, args: argparse.Namespace, *, text: bool = False) -> None:
    """Write to standard error: the program's output if requested, why it could not be checked, what was changed.

    ``text``: a report was printed, which begins with the reason if observation stopped early; then this
    reason is not written again.
    """
    if args.show_output and checked.printed:
        paint = Paint(colours=wants_colours(sys.stderr))
        print(paint("dim", f"--- output of {shown(checked.name)}"), file=sys.stderr)
        print("\n".join(shown(line) for line in checked.printed.rstrip("\n").split("\n")), file=sys.stderr)
    if checked.fixed:
        would = "Would make" if args.diff else "Made"
        rules = ", ".join(dict.fromkeys(finding.rule for finding in checked.fixed))
        count = f"{len(checked.fixed)} fix{'es' if len(checked.fixed) > 1 else ''}"
        print(f"{would} {count} in {shown(checked.name)} ({rules}).", file=sys.stderr)
    said_first = (
        checked.problem is not None and checked.problem.kind == UNOBSERVED and text
    )  # the report on standard output begins with it
    if checked.problem is not None and not said_first:
        print(f"pitfall-lab check: {shown(checked.problem.said.say(args.language))}", file=sys.stderr)


def _diff(checked: Checked) -> str:
    """The changes of ``--fix`` as a unified diff, empty if there are none; for a notebook, a diff of its
    code cells one after the other.
    """
    if not checked.fixed or checked.before is None or checked.script is None:
        return ""
    before, after = (script.shown.splitlines(keepends=True) for script in (checked.before, checked.script))
    lines = difflib.unified_diff(before, after, f"a/{checked.name}", f"b/{checked.name}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
