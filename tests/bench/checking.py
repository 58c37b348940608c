"""What ``pitfall-lab check`` adds to the running time of a training script of 200 lines: ``python3 -m
tests.bench.checking [runs [FILE]]``.

Prints the own time of the script, or of another FILE (``python training.py``), that of the check, and
what the check spends it on.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pitfall_lab.check import Subject, Workshop, recorded
from pitfall_lab.trace import Trace

SCRIPT = Path(__file__).resolve().parent / "training.py"
HOME = SCRIPT.parent.parent.parent


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def command(*words: str) -> tuple[float, float]:
    """The time of a whole process, and the processor time that it and its children took.

    It finds and keeps compiled modules, as an installed package does: in a tree whose modules are not compiled, and
    where Python is told to keep none (``PYTHONDONTWRITEBYTECODE``), each process would compile all of this package.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    passed = timed(
        lambda: subprocess.run([sys.executable, *words], cwd=HOME, capture_output=True, check=False, env=variables)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compared(script: Path, runs: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The median time and processor time of ``python script``, and of a check of it."""
    own, check = [], []
    for _ in range(runs + 1):  # in turn, so that both meet the same machine
        own.append(command(str(script)))
        check.append(command("-m", "pitfall_lab", "check", str(script)))
    # The first run of each compiles what is not compiled yet.
    alone, checked = ([statistics.median(times) for times in zip(*rows[1:], strict=True)] for rows in (own, check))
    return (alone[0], alone[1]), (checked[0], checked[1])


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    script = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else SCRIPT
    alone, checked = compared(script, runs)
    lines = len(script.read_text(encoding="utf-8").splitlines())
    print(f"{script.name}, {lines} lines, median of {runs}{'processor':>21}")
    for title, (passed, busy) in ((f"python {script.name}", alone), (f"pitfall-lab check {script.name}", checked)):
        print(f"  {title:<41}{passed:6.2f} s{busy:8.2f} s")
    print(f"  {'the check adds':<41}{checked[0] - alone[0]:6.2f} s{checked[1] - alone[1]:8.2f} s\n")
    parts(script)


def parts(script: Path) -> None:
    """Where the time of a check goes."""
    subject = Subject(script.read_text(encoding="utf-8"), script.name, str(script))
    kept: list[Trace] = []
    with Workshop() as shop:
        rows = [
            ("start the process that imports torch", lambda: shop.witness(Subject("import torch.optim", "start"))),
            ("run the script there, unobserved", lambda: shop.output(subject)),
            ("run it recorded by both engines, and find", lambda: kept.append(recorded(shop, subject))),
        ]
        for title, work in rows:
            print(f"  {title:<41}{timed(work):6.2f} s")
    print(f"  ({kept[0].agreement.checked} calls recorded)")


if __name__ == "__main__":
    main()
