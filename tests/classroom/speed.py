"""How long a class of 200 and 30 takes: ``python -m tests.classroom.speed [--students 200] [--chapter
12] [--jobs 2] [--loops 8]``.

The thirty are written by hand (chapter 12 only): each has to come out as :mod:`tests.classroom.a_class` says. The
memory of all processes together must not grow with the class.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from pitfall_lab.classroom.assignment import available
from pitfall_lab.cli import main as command
from pitfall_lab.lessons.exercises import exercises
from tests.classroom.a_class import Case, book, code, the_class, write
from tests.classroom.table import graded

NOTEBOOKS = (
    "twice",
    "twice-wrong",
    "lines",
    "utf-16",
    "copies",
    "timed",
    "folder",
    "magics",
    "pasted",
    "shown",
    "input",
    "outputs",
)

MOST_SECONDS, MOST_BUSY = 180, 200
"""What two hundred submissions of chapter 12 may take on two idle processors: seconds, and those of processor time."""


def by_hand(folder: Path) -> list[Case]:
    """Thirty submissions and more that students could have written, each with how it must be graded."""
    return [case for case in the_class(folder) if not case.family or case.name in NOTEBOOKS]


class Memory(threading.Thread):
    """The memory of this process and all that it has started, in MiB, once a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Look until :attr:`over`."""
        while not self.over.wait(1):
            self.seen.append(self._now())

    def _now(self) -> int:
        parents, sizes = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents[int(path.parent.name)], sizes[int(path.parent.name)] = int(fields[1]), int(fields[21])
        ours = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sum(sizes.get(pid, 0) for pid in ours) * os.sysconf("SC_PAGE_SIZE") >> 20

    def halves(self) -> tuple[int, int]:
        """The median of each half of the time, without the start."""
        self.over.set()
        seen = self.seen[len(self.seen) // 5 :]
        half = len(seen) // 2
        return sorted(seen[:half] or [0])[half // 2], sorted(seen[half:] or [0])[(len(seen) - half) // 2]


def main() -> int:
    """Write a class whose every cell is answered, rightly or wrongly, grade it, and print the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--chapter", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", action="store_true", help="fail beyond 180 s, or 200 s of processor time")
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
        hand = by_hand(folder) if args.chapter == 12 else []
        for case in hand:
            write(case, folder)
        memory = Memory()
        memory.start()
        started, before = time.monotonic(), os.times()
        words = [
            "grade",
            name,
            "--chapters",
            str(args.chapter),
            "--jobs",
            str(args.jobs),
            "--report",
            str(folder / "report"),
        ]
        if found := command(words):
            return found
        seconds, after = time.monotonic() - started, os.times()
        first, second = memory.halves()
        with (folder / "grades.csv").open(encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        odd = {case.name: found for case, _, _, found in graded(folder, hand) if found}
    assert not odd, odd
    assert len(rows) == args.students + len(hand)
    assert second < 1.2 * first + 100, "memory grows with the class"
    stopped = {
        row["student"]: row["notes"]
        for row in rows
        if row["student"].startswith("student-") and row["verdict"] != "graded"
    }
    assert len(stopped) == min(args.loops, args.students), stopped
    busy = after.user + after.system + after.children_user + after.children_system
    busy -= before.user + before.system + before.children_user + before.children_system
    said = (
        f"{args.students} submissions of chapter {args.chapter} ({len(keys)} exercises each; "
        f"{args.loops} endless loops)"
    )
    said += f" and {len(hand)} by hand" if hand else ""
    print(
        f"{said}, {args.jobs} at once: {seconds:.0f} s, {busy:.0f} s of processor time; the machine's load is "
        f"{os.getloadavg()[0]:.1f}"
    )
    assert not args.budget or (seconds <= MOST_SECONDS and busy <= MOST_BUSY), said
    print(f"memory of all processes: {first} MiB in the first half, {second} MiB in the second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
