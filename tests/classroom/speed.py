"""How long a class of 200 takes: ``python -m tests.classroom.speed [--students 200] [--chapter 12] [--jobs 2] [--loops 8]``."""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from pitfall_lab.classroom.assignment import available
from pitfall_lab.cli import main as command
from pitfall_lab.lessons.exercises import exercises
from tests.classroom.a_class import book, code


def main() -> int:
    """Write a class whose every cell is answered, rightly or wrongly, grade it, and print the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--chapter", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--loops", type=int, default=8, help="so many students have an endless loop in one cell")
    args = parser.parse_args()
    keys, chance = available()[args.chapter], random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(args.students):
            # each differs from every other, so that nothing could be graded once for all
            answers = {key: chance.choice([*exercises()[key].right, *exercises()[key].wrong]) for key in keys}
            if n < args.loops:
                answers[keys[0]] = "while True:\n    pass"
            cells = [code(f"%%exercise {key}\n{source}\n# {n}\n") for key, source in answers.items()]
            (folder / f"student-{n:03}.ipynb").write_text(json.dumps(book(cells)), encoding="utf-8")
        started, before = time.monotonic(), os.times()
        words = ["grade", name, "--chapters", str(args.chapter), "--jobs", str(args.jobs), "--report", str(folder / "report")]
        if found := command(words):
            return found
        seconds, after = time.monotonic() - started, os.times()
        with (folder / "grades.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    assert len(rows) == args.students
    stopped = {row["student"]: row["notes"] for row in rows if row["verdict"] != "graded"}
    assert len(stopped) == min(args.loops, args.students), stopped
    busy = after.user + after.system + after.children_user + after.children_system
    busy -= before.user + before.system + before.children_user + before.children_system
    cells = f"{args.students} submissions of chapter {args.chapter} ({len(keys)} exercises each; {args.loops} endless loops)"
    print(f"{cells}, {args.jobs} at once: {seconds:.0f} s, {busy:.0f} s of processor time; the machine's load is {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
