"""How long the notebooks take: ``python -m tests.notebooks.times [NUMBER ...]`` runs them one after the other, each in a fresh kernel.

Prints seconds on the clock and of CPU for each, with the cell that takes longest, and the sums. Two workers of the tests share the sum.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.notebooks.books import NAMES, code, read, run


def main(numbers: list[str]) -> None:
    """Run and print."""
    sums = [0.0, 0.0]
    for name in NAMES:
        if numbers and name[:2] not in numbers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            before = time.monotonic(), _of_children()
            book = run(read(name), Path(folder))
            took = time.monotonic() - before[0], _of_children() - before[1]
        sums = [a + b for a, b in zip(sums, took, strict=True)]
        longest, cell = max((_seconds(cell), cell.id) for cell in code(book))
        print(f"{name:48s} {took[0]:6.1f} s {took[1]:6.1f} s of CPU; {longest:5.1f} s in {cell}", flush=True)
    print(f"{'together':48s} {sums[0]:6.1f} s {sums[1]:6.1f} s of CPU")


def _of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _seconds(cell: Any) -> float:
    stamps = cell.metadata.get("execution", {})
    begin, end = (datetime.fromisoformat(stamps[key]) for key in ("iopub.execute_input", "shell.execute_reply"))
    return (end - begin).total_seconds()


if __name__ == "__main__":
    main(sys.argv[1:])
