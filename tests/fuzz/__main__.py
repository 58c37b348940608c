"""Run any number of random programs and shrink what fails: ``python -m tests.fuzz --programs 50000 --seed 1``.

Programs are run in chunks, each in a process of its own with its own seed, so that a run can be resumed
(``--state FILE``), a program that hangs or crashes costs one chunk, and any failure can be found again from the
two numbers that are printed. A failure is shrunk by Hypothesis; the smallest program is printed, ready to
paste, with a report for a bug tracker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz import VOCABULARIES

HOW = {
    "predicted": "were named before torch raised them (type and first sentence, versions included)",
    "declined": "came from calls without a model, with a reason",
    "missed": "were missed, or named otherwise",
    "of Python's own": "were raised outside of torch's functions, by Python",
}
ROOT = Path(__file__).resolve().parents[2]
CHUNK = 500
CAPS = {"core": {"calls mirrored in lockstep": 0.03, "statements declined stand-alone": 0.035}}
"""The most that may be without a model: measured 2.3 % and 2.7 %. What is declined is not
compared, so more of it is a failure.
"""
ENOUGH = 5_000
"""So many calls, or statements, say something about their share."""
PATIENCE = 300
"""Seconds without a finished program after which a process is taken for hanging."""


def main() -> int:
    """Run the programs; 0 when the engines agreed on all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=500, help="how many to run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--mode", choices=("lockstep", "standalone", "both"), default="both", help="both: the two modes in turn"
    )
    parser.add_argument(
        "--vocabulary",
        choices=VOCABULARIES,
        default="core",
        help="core: what people write; all: every sample of the registry as well",
    )
    parser.add_argument("--state", type=Path, help="a file that remembers finished chunks, to go on with later")
    parser.add_argument("--no-shrink", action="store_true", help="count failures by kind, shrink none")
    parser.add_argument("--chunk", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.chunk is not None:
        from tests.fuzz.search import chunk

        print(
            json.dumps(
                chunk(
                    options.seed,
                    options.chunk,
                    options.programs,
                    options.mode,
                    vocabulary=options.vocabulary,
                    shrink=not options.no_shrink,
                )
            )
        )
        return 0
    return Run(options).all()


class Run:
    """All chunks of one command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.started = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, dict[str, Any]] = {}
        modes = ("lockstep", "standalone") if options.mode == "both" else (options.mode,)
        number = -(-options.programs // CHUNK)
        self.todo = [(k, modes[k % len(modes)], min(CHUNK, options.programs - k * CHUNK)) for k in range(number)]
        self.todo.reverse()
        if options.state is not None and options.state.is_file():
            for line in options.state.read_text(encoding="utf-8").splitlines():
                self.take(json.loads(line))
            done = {json.loads(line)["chunk"] for line in options.state.read_text(encoding="utf-8").splitlines()}
            self.todo = [t for t in self.todo if t[0] not in done]

    def all(self) -> int:
        """Run the chunks that are left, ``--jobs`` at a time."""
        running: list[Worker] = []
        while self.todo or running:
            while self.todo and len(running) < self.options.jobs:
                running.append(Worker(self.options, *self.todo.pop()))
            time.sleep(0.2)
            for worker in [w for w in running if w.ended()]:
                running.remove(worker)
                result = worker.result()
                self.take(result)
                if self.options.state is not None:
                    with self.options.state.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
                self.progress()
        return self.summary()

    def take(self, result: dict[str, Any]) -> None:
        """Add a chunk's result."""
        self.counts.update(result["counts"])
        for failure in result["failures"]:
            known = self.failures.setdefault(failure["kind"], {**failure, "times": 0})
            known["times"] += failure["times"]

    def progress(self) -> None:
        """One line."""
        done, seconds = self.counts["programs"], time.monotonic() - self.started
        print(
            f"{done:>7,} of {self.options.programs:,} programs, {self.counts['failed']} failed, {seconds:,.0f} s",
            flush=True,
        )

    def summary(self) -> int:
        """What was found."""
        print(
            "\n"
            f"seed {self.options.seed}, vocabulary {self.options.vocabulary}, mode {self.options.mode}, "
            f"{time.monotonic() - self.started:,.0f} s, {self.options.jobs} process(es)"
        )
        for name in sorted(self.counts):
            print(f"  {name}: {self.counts[name]:,}")
        exceeded = self.exceeded()
        said = ", ".join(f"{self.counts[f'errors {how}']:,} {words}" for how, words in HOW.items())
        print(f"  of the statements and calls that failed: {said}")
        for failure in sorted(self.failures.values(), key=lambda f: -f["times"]):
            print(f"\n=== {failure['times']} time(s): {failure['kind']}\n{failure['report']}")
        return int(bool(self.failures or exceeded))

    def exceeded(self) -> list[str]:
        """Print how much had no model; return what was more than is allowed."""
        counts = self.counts
        found = {
            "calls mirrored in lockstep": (counts["mirrored"], counts["calls"]),
            "statements declined stand-alone": (
                counts["statements declined"],
                counts["statements declined"] + counts["statements compared"],
            ),
        }
        more = []
        for what, (some, whole) in found.items():
            cap = CAPS.get(self.options.vocabulary, {}).get(what, 1.0)
            if whole:
                print(f"  {what}: {some / whole:.2%}, at most {cap:.1%}")
            if whole >= ENOUGH and some > cap * whole:
                more.append(what)
        if more:
            print(f"  Too much was not compared: {', '.join(more)}.")
        return more


class Worker:
    """A process that runs one chunk."""

    def __init__(self, options: argparse.Namespace, chunk: int, mode: str, programs: int) -> None:
        self.chunk, self.mode, self.programs = chunk, mode, programs
        self.folder = tempfile.TemporaryDirectory(prefix="pitfall-fuzz-")
        self.last = Path(self.folder.name) / "last.py"
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--chunk",
            str(chunk),
            "--seed",
            str(options.seed),
            "--programs",
            str(programs),
            "--mode",
            mode,
            "--vocabulary",
            options.vocabulary,
        ]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PITFALL_FUZZ_LAST": str(self.last),
        }
        self.out, self.err = (Path(self.folder.name) / name for name in ("out", "err"))
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*command, *["--no-shrink"] * options.no_shrink], cwd=ROOT, env=environment, stdout=out, stderr=err
            )
        self.began = time.time()

    def ended(self) -> bool:
        """Whether it is done, one way or another."""
        if self.process.poll() is not None:
            return True
        touched = self.last.stat().st_mtime if self.last.exists() else self.began
        if time.time() - touched > PATIENCE:
            self.process.kill()
            self.process.wait()
            return True
        return False

    def result(self) -> dict[str, Any]:
        """What the chunk said; a crash or a hang is a failure like any other."""
        try:
            return {"chunk": self.chunk, **json.loads(self.out.read_text().splitlines()[-1])}
        except (IndexError, ValueError):
            program = self.last.read_text() if self.last.exists() else ""
            said = self.err.read_text()[-3000:]
            kind = (
                "the process hung"
                if self.process.returncode == -9
                else f"the process ended with {self.process.returncode}"
            )
            failure = {
                "kind": kind,
                "times": 1,
                "report": f"chunk {self.chunk}, {self.mode}\n{said}\nThe last program was:\n\n{program}",
            }
            return {"chunk": self.chunk, "counts": {"failed": 1, "chunks lost": 1}, "failures": [failure]}
        finally:
            self.folder.cleanup()


if __name__ == "__main__":
    sys.exit(main())
