"""Hypothesis at work: generate the programs of one chunk, and shrink what fails."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.fuzz import lockstep, standalone
from tests.fuzz.generator import Step, render, steps, written

CHECKS = {"lockstep": lockstep.check, "standalone": standalone.check}
MOST_SHRUNK, FEWEST = 3, 5
QUIET = settings(
    max_examples=500,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=False,
)


class Enough(BaseException):
    """All programs of a chunk have run: Hypothesis would go on drawing some that nobody looks at."""


class Found(Exception):
    """A program on which the engines differ."""


@contextlib.contextmanager
def the_same_draws() -> Iterator[None]:
    """A seed draws the same programs in every process.

    Hypothesis also draws numbers and words that it finds in the source of whatever local modules happen to be imported.
    """
    original = providers._get_local_constants
    providers.CONSTANTS_CACHE.cache.clear()
    providers._get_local_constants = Constants
    try:
        yield
    finally:
        providers._get_local_constants = original
        providers.CONSTANTS_CACHE.cache.clear()


def chunk(
    run: int, number: int, programs: int, mode: str, *, vocabulary: str = "core", shrink: bool = True
) -> dict[str, Any]:
    """Run one chunk of programs; every kind of failure is counted, and the first few are shrunk."""
    faulthandler.enable()
    key = run * 1_000_003 + number
    counts: Counter[str] = Counter()
    failures: dict[str, dict[str, Any]] = {}
    last = os.environ.get("PITFALL_FUZZ_LAST")

    @seed(key)
    @settings(QUIET, max_examples=2 * programs, phases=[Phase.generate])
    @given(steps())
    def look(program: list[Step]) -> None:
        if counts["programs"] >= programs:
            raise Enough
        writer = written(program, alone=mode == "standalone", vocabulary=vocabulary)
        if writer.statements < FEWEST:
            return  # Hypothesis likes to begin with nothing at all
        text = writer.text()
        if last:
            Path(last).write_text(text, encoding="utf-8")
        result = checked(mode, text)
        counts.update(result.counts)
        counts[f"{mode} programs"] += 1
        if result.problems:
            counts["failed"] += 1
            kind = kind_of(result.problems[0])
            known = failures.setdefault(kind, {"kind": kind, "times": 0, "text": text, "problems": result.problems})
            known["times"] += 1
            if len(text) < len(known["text"]):
                known.update(text=text, problems=result.problems)

    with contextlib.suppress(Enough), the_same_draws():
        look()
    for failure in list(failures.values())[: MOST_SHRUNK if shrink else 0]:
        smaller = shrunk(key, programs, mode, vocabulary, failure["kind"])
        if smaller is not None:
            failure["text"], failure["problems"] = smaller
    for failure in failures.values():
        failure["report"] = report(mode, run, number, failure.pop("text"), failure.pop("problems"))
    return {"counts": counts, "failures": list(failures.values())}


def checked(mode: str, text: str) -> lockstep.Result:
    """Check a program; where the comparison itself fails, that is a problem of the program too,
    and not the end of the chunk.
    """
    try:
        return CHECKS[mode](text)
    except Exception as error:
        return lockstep.Result([f"the comparison failed: {type(error).__name__}: {error}"], Counter(programs=1))


def shrunk(key: int, programs: int, mode: str, vocabulary: str, kind: str) -> tuple[str, list[str]] | None:
    """Let Hypothesis find the failure again and make it small; it stays a failure of the same kind."""
    smallest: tuple[str, list[str]] | None = None

    @seed(key)
    @settings(QUIET, max_examples=2 * programs, phases=[Phase.generate, Phase.shrink])
    @given(steps())
    def look(program: list[Step]) -> None:
        nonlocal smallest
        text = render(program, alone=mode == "standalone", vocabulary=vocabulary)
        problems = checked(mode, text).problems
        if problems and kind_of(problems[0]) == kind:
            smallest = text, problems
            raise Found

    with contextlib.suppress(Found), the_same_draws():
        look()
    return smallest


def kind_of(problem: str) -> str:
    """A problem without the numbers and names that differ from program to program."""
    plain = re.sub(r"line \d+", "line", problem)
    plain = re.sub(r"\bt\d+|\bg\d+|\bnet\d+", "t", plain)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", plain)[:120]


def report(mode: str, run: int, number: int, text: str, problems: list[str]) -> str:
    """The program, ready to paste, and what is wrong with it."""
    from pitfall_lab.verify import trace_program
    from pitfall_lab.verify.bug_report import disagreement_report

    said = "".join(f"# {line}\n" for problem in problems for line in problem.splitlines()[:12])
    body = f"# {mode}, seed {run}, chunk {number}\n{said}{text}"
    if mode != "lockstep":
        return body
    with lockstep.quiet(lockstep.io.StringIO()):
        trace = trace_program(text)
    return body + ("\n" + disagreement_report(trace) if trace.disagreements else "")
