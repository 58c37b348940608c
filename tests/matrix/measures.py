"""What is measured in an environment: the engine's tests, random programs both ways, and ``pitfall-lab
check`` over the test programs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENGINE = (
    *(
        "tests/shadow/test_entries.py",
        "tests/shadow/test_alone.py",
        "tests/shadow/test_releases.py",
        "tests/shadow/test_graph_features.py",
    ),
    *(
        "tests/verify/test_lockstep.py",
        "tests/verify/test_recorder.py",
        "tests/verify/test_prediction.py",
        "tests/verify/test_private.py",
    ),
)
"""Those that compare every operation, every way through the recorder and every difference between
releases with the torch at hand.
"""
A_PART = ("tests/shadow/test_releases.py", "tests/verify/test_lockstep.py", "tests/verify/test_recorder.py")
PROGRAMS = Path("tests/programs")


@dataclass(frozen=True, slots=True)
class Bench:
    """An environment's Python, where its output is kept, and how much is measured."""

    python: Path
    output: Path
    jobs: int
    quick: bool

    def run(self, name: str, *words: object) -> str:
        """The output of a Python command from the root, which is kept in the file ``name``."""
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONPATH": "",
            "PITFALL_EVERYTHING": "1",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # torch's modules are compiled once
        command = [self.python, *words]
        done = subprocess.run(
            [*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        said = [f"$ {' '.join(map(str, words))}", done.stdout, done.stderr, f"exit {done.returncode}"]
        (self.output / name).write_text("\n".join(said), encoding="utf-8")
        return done.stdout

    def engine(self) -> dict[str, int]:
        """How many of the engine's tests passed and failed."""
        words = ("-m", "pytest", "-q", "-n", self.jobs, "-p", "no:cacheprovider")
        printed = self.run("engine.txt", *words, *(A_PART if self.quick else ENGINE))
        summary = printed.rstrip().rpartition("\n")[2]
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", summary)}
        # No summary: pytest itself ended, which is a failure.
        return {
            "passed": counts.get("passed", 0),
            "failed": counts.get("failed", 0) + counts.get("error", 0) + (not counts),
        }

    def fuzz(self) -> dict[str, int]:
        """Random programs, so many in lockstep and so many stand-alone: how many ran and how many differ."""
        total: dict[str, int] = {"programs": 0, "failed": 0}
        for mode in ("lockstep", "standalone"):
            words = ("--programs", 50 if self.quick else 500, "--mode", mode, "--jobs", self.jobs, "--no-shrink")
            printed = self.run(f"fuzz-{mode}.txt", "-m", "tests.fuzz", *words)
            for name in total:
                found = re.search(rf"^  {name}: ([\d,]+)$", printed, re.MULTILINE)
                total[name] += int(found[1].replace(",", "")) if found else 0
        return total

    def check(self) -> dict[str, Any]:
        """What ``check`` says of each test program: its findings' rules and lines, and whether
        it saw and agreed with torch.
        """
        printed = self.run(
            "check.txt", "-m", "pitfall_lab", "check", "--json", "--no-fixes", "--jobs", self.jobs, PROGRAMS
        )
        return {Path(one["file"]).name: seen(one) for one in json.loads(printed)}


def seen(report: dict[str, Any]) -> dict[str, Any]:
    """A program's report without wording and without counts, which releases may differ in."""
    agreement = report.get("agreement") or {}
    return {
        "outcome": report.get("outcome"),
        "findings": sorted([finding["rule"], finding["line"]] for finding in report.get("findings", ())),
        "observed": agreement.get("checked", 0) + agreement.get("mirrored", 0) > 0,
        "disagreed": agreement.get("disagreed", 0),
    }
