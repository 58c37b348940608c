"""Plant faults in a copy of the engine, one at a time, and see what finds each: ``python -m tests.fuzz.mutants``.

Each fault of ``faults.toml`` goes into a copy of the package. Random programs are run on it, stand-alone and in
lockstep in turn, until one differs; a fault that survives them meets the engine's tests. A fault that survives those as
well is a hole in the comparison: the command ends with 1. ``--blind 20 --seed 3`` draws faults instead, as nobody would
choose them: comparisons turned round, arguments swapped, statements dropped.

Each fault has a process of its own, forked from one that has imported torch and nothing of the package.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz import MODES

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "pitfall_lab" / "shadow"
FAULTS = Path(__file__).with_name("faults.toml")
CORE = ("engine", "graph", "backward", "gradient", "storage", "hooks", "facade/optim")
"""The files that blind faults are drawn from."""
TESTS = (
    "tests/fuzz/test_fuzz.py::test_what_was_found_once_stays_fixed", "tests/shadow/test_graph_features.py",
    "tests/shadow/test_facts.py", "tests/shadow/test_standalone.py", "tests/shadow/test_optimizers.py",
    "tests/shadow/test_entries.py", "tests/shadow/test_sums.py", "tests/shadow/test_out.py",
    "tests/shadow/test_types.py", "tests/shadow/test_dtypes.py", "tests/shadow/test_policy.py",
    "tests/verify/test_lockstep.py", "tests/verify/test_prediction.py", "tests/shadow/test_saved_table.py",
    "tests/shadow/test_alone.py", "tests/verify/test_fastpath.py", "tests/shadow/test_variants.py",
    "tests/shadow/test_states.py",
)  # fmt: skip
"""The engine's tests, in order of promise."""
PATIENCE, SILENCE = 900, 7200
"""Seconds of processor time, and seconds in all, after which a fault that makes the engine hang is found."""


@dataclass(frozen=True)
class Fault:
    """One fault: in ``file`` of the engine, ``old`` (which occurs once) becomes ``new``, and this ``breaks``."""

    name: str
    file: str
    old: str
    new: str
    breaks: str

    def planted(self, source: str) -> str:
        """The source with the fault in it."""
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: the text to replace occurs {source.count(self.old)} times in {self.file}")
        return source.replace(self.old, self.new)


def known(path: Path = FAULTS) -> list[Fault]:
    """The faults of a file."""
    return [Fault(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["fault"]]


# ------------------------------------------------------------------ faults that nobody chose

OTHER: dict[type[ast.AST], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.And: "or", ast.Or: "and", ast.Add: "-", ast.Sub: "+",
    ast.Mult: "+",
}  # fmt: skip


def blind(seed: int, number: int) -> list[Fault]:
    """Faults drawn from all that can be made in the core by changing one operator, number, argument or statement."""
    draw = random.Random(seed)
    found = [fault for name in CORE for fault in sites(f"{name}.py")]
    return draw.sample(found, number)


def sites(file: str) -> Iterator[Fault]:
    """All faults of this sort in a file."""
    source = (ENGINE / file).read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        change = changed(node)
        if change is None or node.lineno != node.end_lineno:
            continue
        line = lines[node.lineno - 1]
        raw = line.encode()
        new = (raw[: node.col_offset] + change.encode() + raw[node.end_col_offset :]).decode()
        first, last = node.lineno - 1, node.lineno
        while source.count("\n".join(lines[first:last])) > 1:  # as many lines as make it one place
            first, last = first - 1, last + 1
        old = "\n".join(lines[first:last])
        within = [*lines[first : node.lineno - 1], new, *lines[node.lineno : last]]
        if old != "\n".join(within):
            yield Fault(
                f"{file}:{node.lineno}: {line.strip()} -> {new.strip()}",
                file,
                old,
                "\n".join(within),
                type(node).__name__,
            )


def changed(node: Any) -> str | None:
    """The text of a node with one thing changed."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            return f"{ast.unparse(left)} {OTHER[type(op)]} {ast.unparse(right)}"
        case ast.BoolOp(op=op, values=values):
            return "(" + f" {OTHER[type(op)]} ".join(f"({ast.unparse(v)})" for v in values) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})"
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() as op, left=left, right=right):
            return f"(({ast.unparse(left)}) {OTHER[type(op)]} ({ast.unparse(right)}))"
        case ast.Call(func=func, args=[one, two, *rest], keywords=given) if not isinstance(
            one, ast.Starred
        ) and not isinstance(two, ast.Starred):
            return ast.unparse(ast.Call(func, [two, one, *rest], given))
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return "pass"
    return None


# ------------------------------------------------------------------ judging


def drawn(mode: str, programs: int, seed: int) -> list[str]:
    """Random programs, as ``tests.fuzz`` draws them."""
    from hypothesis import Phase, given, settings
    from hypothesis import seed as seeded

    from tests.fuzz.generator import Step, steps, written
    from tests.fuzz.search import FEWEST, QUIET, Enough, the_same_draws

    texts: list[str] = []

    @seeded(seed)
    @settings(QUIET, max_examples=2 * programs or 1, phases=[Phase.generate])
    @given(steps())
    def look(program: list[Step]) -> None:
        if len(texts) >= programs:
            raise Enough
        writer = written(program, alone=mode == "standalone")
        if writer.statements >= FEWEST:
            texts.append(writer.text())

    with contextlib.suppress(Enough), the_same_draws():
        if programs:
            look()
    return texts


def draw_all(programs: int, seed: int, out: Path) -> None:
    """Write the programs of both ways into a file (in a process that has the engine as it is)."""
    out.write_text(json.dumps({mode: drawn(mode, programs, seed) for mode in MODES}))


def judge(folder: Path, texts: dict[str, list[str]], *, each_way: bool, tests: bool) -> None:
    """What becomes of the engine in ``folder``; written into a file there. Runs in a process of its own."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.path.insert(0, str(folder))
    os.chdir(ROOT)
    found: dict[str, Any] = {}
    try:
        from tests.fuzz.search import checked
    except Exception as error:
        found["nothing"] = f"it cannot be imported: {error!r}"
    else:
        for k, (mode, text) in enumerate(
            (mode, pair) for both in zip(*texts.values(), strict=True) for mode, pair in zip(texts, both, strict=True)
        ):
            if mode in found:
                continue
            (folder / "verdict").write_text(
                json.dumps(found | {mode: [k // len(texts) + 1, "the process ended, or hung"]})
            )
            problems = checked(mode, text).problems
            if problems:
                found[mode] = [k // len(texts) + 1, problems[0]]
                if not each_way or len(found) == len(texts):
                    break
        if not found and tests:
            (folder / "verdict").write_text(json.dumps({"tests": [0, "the process ended, or hung"]}))
            found |= tested()
    (folder / "verdict").write_text(json.dumps(found))
    os._exit(0)  # what a broken engine has left behind may not end in peace


def tested() -> dict[str, Any]:
    """The first of the engine's tests that fails."""
    import pytest

    class First:
        passed = 0
        failed = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            self.passed += report.when == "call" and report.passed
            if report.failed and not self.failed:
                self.failed = report.nodeid

    first = First()
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", *TESTS], plugins=[first])
    if code in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return {"tests": [first.passed + 1, first.failed]} if code else {}
    return {"nothing": f"the tests could not be run: {code!r}"}


class Trial:
    """A fault in a copy of the package, and the process that judges it."""

    def __init__(self, fault: Fault | None, texts: dict[str, list[str]], *, each_way: bool, tests: bool) -> None:
        self.fault, self.began = fault, time.monotonic()
        self.temporary = tempfile.TemporaryDirectory(prefix="pitfall-mutant-")
        self.folder = Path(self.temporary.name)
        shutil.copytree(ROOT / "pitfall_lab", self.folder / "pitfall_lab")
        if fault is not None:
            path = self.folder / "pitfall_lab" / "shadow" / fault.file
            path.write_text(fault.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()
        self.process = forked(judge, self.folder, texts, each_way=each_way, tests=tests)

    def _spent(self) -> float:
        """Seconds of processor time: a busy machine is no fault."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return float(sum(psutil.Process(self.process.pid).cpu_times()[:2]))
        return 0.0

    def verdict(self) -> dict[str, Any] | None:
        """What was found, once it is over."""
        if self.process.is_alive() and self._spent() < PATIENCE and time.monotonic() - self.began < SILENCE:
            return None
        self.process.kill()
        self.process.join()
        path = self.folder / "verdict"
        found: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"nothing": "the process ended before anything was run"}
        )
        self.temporary.cleanup()
        return found


def forked(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A process that has imported torch already."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args, kwargs=kwargs)
    process.start()
    return process


# ------------------------------------------------------------------ the command


def main() -> int:
    """Judge the faults; 0 when none survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of the faults to plant (default: all)")
    parser.add_argument("--file", type=Path, default=FAULTS, help="where the faults are written")
    parser.add_argument("--programs", type=int, default=60, help="random programs each way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--blind", type=int, default=0, help="draw so many faults of the core instead")
    parser.add_argument("--each-way", action="store_true", help="go on until both ways have found the fault")
    parser.add_argument("--no-tests", action="store_true", help="random programs only")
    options = parser.parse_args()
    faults = (
        blind(options.seed, options.blind)
        if options.blind
        else [f for f in known(options.file) if not options.names or any(n in f.name for n in options.names)]
    )
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    import hypothesis  # noqa: F401 - before the fork, so that each process has it
    import torch  # noqa: F401 - the same

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "programs"
        forked(draw_all, options.programs, options.seed, out).join()
        texts: dict[str, list[str]] = json.loads(out.read_text())
    print(f"{len(faults)} faults, {options.programs} programs each way, seed {options.seed}\n", flush=True)
    found = list(
        judged([None, *faults], texts, jobs=options.jobs, each_way=options.each_way, tests=not options.no_tests)
    )
    if any(fault is None and verdict for fault, verdict in found):
        print("The engine as it is does not pass: what is said of the others means nothing.")
        return 1
    survivors = [fault for fault, verdict in found if fault is not None and not verdict]
    void = [fault for fault, verdict in found if fault is not None and "nothing" in verdict]
    print(f"\n{len(faults)} faults, {len(survivors)} survived" + (f", {len(void)} made no program" if void else ""))
    return int(bool(survivors or (void and not options.blind)))


def judged(
    faults: list[Fault | None], texts: dict[str, list[str]], *, jobs: int, each_way: bool, tests: bool
) -> Iterator[tuple[Fault | None, dict[str, Any]]]:
    """Every fault with what found it, printed as they come."""
    todo, running = list(reversed(faults)), list[Trial]()
    while todo or running:
        while todo and len(running) < jobs:
            fault = todo.pop()
            running.append(Trial(fault, texts, each_way=each_way, tests=tests and fault is not None))
        time.sleep(0.1)
        for trial in list(running):
            verdict = trial.verdict()
            if verdict is not None:
                running.remove(trial)
                print(row(trial.fault, verdict, time.monotonic() - trial.began), flush=True)
                yield trial.fault, verdict


def row(fault: Fault | None, verdict: dict[str, Any], seconds: float) -> str:
    """One line of the table: the fault, what found it, after how many programs or tests, and how long that took."""
    words = [
        f"{how} {at[0]}: {' '.join(at[1].split())[:110]}" if how != "nothing" else at for how, at in verdict.items()
    ]
    return (
        f"| {fault.name if fault else '(the engine as it is)'} | "
        f"{'; '.join(words) or ('SURVIVES' if fault else 'passes')} | {seconds:.0f} s |"
    )


if __name__ == "__main__":
    sys.exit(main())
