"""Run a file of torch's own tests, each test plain and recorded: ``python -m tests.torchtests
pytorch/test/test_autograd.py``.

The file comes from torch's repository, of a release near the installed one; tests that fail by themselves do not count.
One that passes must pass recorded, with the same warnings and random numbers, and what the two engines said is counted.
Every run of a test is a fork of a process that has imported the file. Needed besides torch: ``pip install expecttest``,
and what the file itself imports.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import gc
import hashlib
import importlib.util
import inspect
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pitfall_lab.trace import Trace
from pitfall_lab.verify.program import Session, trace_program

ADDRESS = re.compile(r"0x[0-9a-f]+")
LABEL = re.compile(r"\b[tSCn]\d+\b")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
PATIENCE = 10
"""How much longer than its processor time a run may last: it may wait for something that never comes."""
PASSED = ("passed", "skipped", "expected failure")


class File:
    """A test file's text, and where its tests stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        tree = ast.parse("".join(self.lines))
        self.tests = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]

    def holding(self, method: Callable[[], object]) -> File:
        """The file in whose class the method stands, which the test file may have imported from beside it."""
        code = getattr(inspect.unwrap(method), "__code__", None)
        path = Path(code.co_filename).resolve() if code is not None else self.path
        return File(path) if path != self.path and path.is_relative_to(self.path.parent) else self

    def only(self, method: Callable[[], object]) -> str:
        """The text without the bodies of the other tests, each line in its place: the recorder
        looks at what words a program uses.
        """
        code = getattr(inspect.unwrap(method), "__code__", None)
        mine = code.co_firstlineno if code is not None and code.co_filename == str(self.path) else 0
        lines = list(self.lines)
        for node in self.tests:
            begins, first, last = (
                min([node.lineno, *(d.lineno for d in node.decorator_list)]),
                node.body[0].lineno,
                node.end_lineno or 0,
            )
            if mine and not begins <= mine <= last and first > node.lineno:
                lines[first - 1 : last] = [" " * node.body[0].col_offset + "pass\n", *["\n"] * (last - first)]
        return "".join(lines)


@dataclass
class Run:
    """How one run of a test ended: ``how`` in a word, the ``error``, what else it left, and what the trace counted."""

    how: str
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    random: str = ""
    calls: dict[str, int] = field(default_factory=dict)
    disagreements: list[tuple[str, str]] = field(default_factory=list)
    """Kind and example."""
    notes: list[str] = field(default_factory=list)


class Runs:
    """All runs, by the test's name and how it was run; ``state`` is a file that keeps them."""

    def __init__(self, state: Path | None) -> None:
        self.of: dict[str, dict[str, Run]] = defaultdict(dict)
        for line in state.read_text(encoding="utf-8").splitlines() if state is not None and state.exists() else ():
            name, how, run = json.loads(line)
            self.of[name][how] = Run(**run)
        self._state = state

    def wants(self, name: str, how: str) -> bool:
        """Whether this run is still to be done: of a test that fails plain the recorded one is not."""
        known = self.of[name]
        return how not in known and (how == "plain" or ("plain" in known and known["plain"].how in PASSED))

    def add(self, name: str, how: str, run: Run) -> None:
        """Keep a run."""
        self.of[name][how] = run
        if self._state is not None:
            with self._state.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, how, asdict(run)]) + "\n")


def main() -> int:
    """Run the tests; 0 when every test that passes plain passes recorded, in the same
    way and without a disagreement.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.torchtests", description=__doc__)
    parser.add_argument("file", type=Path, help="a test file of torch's repository")
    parser.add_argument(
        "-k",
        dest="patterns",
        action="append",
        default=[],
        help="only tests whose name holds this (or matches it, with *)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("--timeout", type=int, default=120, help="seconds of processor time for one run of a test")
    parser.add_argument("--state", type=Path, help="a file that remembers finished runs, to go on with later")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has none of its parent's threads
    os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
    path = options.file.resolve()
    tests = [test for test in collect(load(path)) if selected(test.id(), options.patterns)]
    warm()
    runs = Runs(options.state)
    forked(tests, File(path), options.jobs, options.timeout, runs)
    return report(path, {test.id(): runs.of[test.id()] for test in tests})


def load(path: Path) -> Any:
    """Import the file as Python does when it is run from its folder, without running its tests."""
    sys.argv = [str(path)]
    sys.path[:0] = [str(path.parent)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def collect(module: Any) -> list[unittest.TestCase]:
    """The module's tests, one by one."""

    def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
        for test in suite:
            yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]

    return list(flat(unittest.defaultTestLoader.loadTestsFromModule(module)))


def selected(name: str, patterns: list[str]) -> bool:
    """Whether ``-k`` wants this test: as with unittest."""
    return not patterns or any(
        fnmatch.fnmatchcase(name, pattern if "*" in pattern else f"*{pattern}*") for pattern in patterns
    )


# ------------------------------------------------------------------ one process for each run


def warm() -> None:
    """Load what a recording needs once, for all forks."""
    trace_program("import torch\ntorch.ones(2, requires_grad=True).mul(2)")
    gc.collect()
    gc.freeze()


def forked(tests: list[unittest.TestCase], file: File, jobs: int, timeout: int, runs: Runs) -> None:
    """Run each test plain and, if it passes, recorded."""
    todo = [(test, how) for test in reversed(tests) for how in ("plain", "recorded") if runs.wants(test.id(), how)]
    running: dict[int, tuple[unittest.TestCase, str, float]] = {}
    done = 0
    with tempfile.TemporaryDirectory(prefix="pitfall-torchtests-") as folder:
        while todo or running:
            while todo and len(running) < jobs:
                test, how = todo.pop()
                running[fork(test, file, how, Path(folder), timeout)] = (test, how, time.monotonic())
            ended = [(pid, status) for pid, status in (os.waitpid(pid, os.WNOHANG) for pid in list(running)) if pid]
            for pid, status in ended:
                test, how, _ = running.pop(pid)
                runs.add(test.id(), how, result(Path(folder) / str(pid), status))
                if runs.wants(test.id(), "recorded"):
                    todo.append((test, "recorded"))
                done += 1
                if done % 100 == 0:
                    print(f"{done:>7,} runs, {len(todo):,} to come", file=sys.stderr, flush=True)
            for pid, (_, _, began) in running.items():
                if time.monotonic() - began > PATIENCE * timeout:
                    os.kill(pid, signal.SIGKILL)
            if not ended:
                time.sleep(0.01)


def fork(test: unittest.TestCase, file: File, how: str, folder: Path, timeout: int) -> int:
    """Run one test in a fork; its process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(silence, descriptor)
    try:
        run = once(test, file, recorded=how == "recorded")
    except BaseException:  # an error of ours: it is the result
        run = Run("crashed", traceback.format_exc())
    (folder / str(os.getpid())).write_text(json.dumps(asdict(run)), encoding="utf-8")
    os._exit(0)


def result(left: Path, status: int) -> Run:
    """What a fork left."""
    if not left.exists():
        ended = os.waitstatus_to_exitcode(status)
        return (
            Run("not finished")
            if ended in {-signal.SIGKILL, -signal.SIGXCPU}
            else Run("crashed", f"the process ended with {ended}")
        )
    run = Run(**json.loads(left.read_text(encoding="utf-8")))
    left.unlink()
    return run


def once(test: unittest.TestCase, file: File, *, recorded: bool) -> Run:
    """Run a test in this process."""
    kept: list[Trace] = []
    if recorded:
        name = test._testMethodName
        method = getattr(test, name)
        file = file.holding(method)
        setattr(test, name, under_observation(method, Session(str(file.path), file.path.name, file.only(method)), kept))
    found, told = unittest.TestResult(), []

    def show(message: Any, category: type[Warning], filename: str, line: int, *_: Any) -> None:
        told.append(f"{Path(filename).name}:{line}: {category.__name__}: {ADDRESS.sub('…', str(message))}")

    warnings.resetwarnings()
    warnings.simplefilter("default")
    warnings.showwarning = show
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what torch's tests use
    torch.manual_seed(0)
    test.run(found)
    run = Run(*ending(found), warnings=told, random=dice())
    for trace in kept:
        look(trace, run)
    return run


def under_observation(method: Callable[[], object], session: Session, kept: list[Trace]) -> Callable[[], object]:
    """The test's method, recorded; its trace is put into ``kept``."""

    @functools.wraps(method)
    def recorded() -> None:
        failed: BaseException | None = None
        try:
            with session:
                method()
        except BaseException as error:
            failed = error
            raise
        finally:
            kept.append(session.finish(failed))
            del failed

    return recorded


def ending(found: unittest.TestResult) -> tuple[str, str]:
    """How a test ended, and the end of its error."""
    for how, entries in (
        ("failed", [*found.failures, *found.errors]),
        ("skipped", found.skipped),
        ("expected failure", found.expectedFailures),
    ):
        if entries:
            return how, ADDRESS.sub("…", entries[0][1])[-3000:]
    return ("failed", "unexpected success") if found.unexpectedSuccesses else ("passed", "")


def dice() -> str:
    """Where the random numbers are."""
    state = torch.default_generator.get_state().numpy().tobytes(), random.getstate(), np.random.get_state()  # noqa: NPY002
    return hashlib.sha256(repr(state).encode()).hexdigest()


def look(trace: Trace, run: Run) -> None:
    """Count what a trace says."""
    agreement = asdict(trace.agreement)
    run.calls = {name: run.calls.get(name, 0) + number for name, number in agreement.items()}
    run.notes += [f"{note.kind}: {note.en}" for note in trace.notes]
    for d in trace.disagreements:
        event = trace.events[d.step]
        where = f"line {event.span.line if event.span else '?'}: {event.op}: {d.path}"
        if d.path == "outcome":
            kind, example = f"torch: {kind_of(d.observed)}\n      engine: {kind_of(d.modelled)}", where
        else:
            kind, example = (
                f"{event.name}: {LABEL.sub('', d.path).replace('..', '.')}",
                f"{where}: torch {d.observed!r}, engine {d.modelled!r}"[:400],
            )
        run.disagreements.append((kind, example))


def kind_of(said: Any) -> str:
    """An outcome without its numbers and addresses."""
    return NUMBER.sub("#", ADDRESS.sub("…", str(said).split("\n")[0]))


# ------------------------------------------------------------------ the table


def report(path: Path, runs: dict[str, dict[str, Run]]) -> int:
    """Print the table and what differed."""
    sound = {name: pair for name, pair in runs.items() if pair["plain"].how in PASSED}
    late = [name for name, pair in sound.items() if pair["recorded"].how == "not finished"]
    changed = {name: difference(pair["plain"], pair["recorded"]) for name, pair in sound.items() if name not in late}
    changed = {name: how for name, how in changed.items() if how}
    stopped = {name: [n for n in pair["recorded"].notes if n.startswith("stopped")] for name, pair in sound.items()}
    calls = Counter[str]()
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, pair in sound.items():
        calls.update(pair["recorded"].calls)
        for kind, example in pair["recorded"].disagreements:
            kinds[kind].append(f"{short(name)}: {example}")
    rows = {
        "tests": len(runs),
        "passed plain (or skipped)": f"{len(sound)} ({sum(pair['plain'].how == 'skipped' for pair in sound.values())})",
        "passed recorded, in the same way": len(sound) - len(late) - len(changed),
        "changed outcome": len(changed),
        "not finished recorded": len(late),
        "stopped observing": sum(map(bool, stopped.values())),
        "calls compared / mirrored / disagreed": f"{calls['checked']:,} / {calls['mirrored']:,} / {calls['disagreed']:,}",  # noqa: E501
        "disagreements (kinds)": f"{sum(map(len, kinds.values()))} ({len(kinds)})",
    }
    print(f"\n{path.name}, torch {torch.__version__}\n\n| | |\n|---|---|")
    print("\n".join(f"| {name} | {value} |" for name, value in rows.items()))
    section("Changed outcome", [f"{short(name)}: {how}" for name, how in changed.items()])
    section("Not finished recorded", [short(name) for name in late])
    section("Stopped observing", [f"{short(name)}: {notes[0]}" for name, notes in stopped.items() if notes])
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    section("Kinds of disagreement", [f"{len(found)} × {kind}\n      {found[0]}" for kind, found in ordered])
    return int(bool(changed or late or kinds))


def difference(plain: Run, recorded: Run) -> str:
    """How a recorded run differs from the plain one, if it does."""
    if recorded.how != plain.how:
        return f"{plain.how}, recorded {recorded.how}\n{recorded.error}"
    if recorded.warnings != plain.warnings:
        more, less = (
            Counter(recorded.warnings) - Counter(plain.warnings),
            Counter(plain.warnings) - Counter(recorded.warnings),
        )
        return f"other warnings: more {list(more)}, fewer {list(less)}"[:1500]
    return "other random numbers" if recorded.random != plain.random else ""


def section(title: str, lines: list[str]) -> None:
    """A heading with its lines, if there are any."""
    if lines:
        print(f"\n{title}")
        print("\n".join(f"  {line}" for line in lines))


def short(name: str) -> str:
    """A test's name without its module."""
    return name.split(".", 1)[1]


if __name__ == "__main__":
    sys.exit(main())
