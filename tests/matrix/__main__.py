"""The engine on every supported release: ``python -m tests.matrix``, or a part: ``--torch 2.15.0
--numpy 1.26.4 --python 3.12``.

For each cell an environment is made, used and removed, one at a time; results are kept in
``build/matrix/results.json``, so that a run which was ended goes on where it was, and everything that was
printed in ``build/matrix/<cell>``. ``--again`` measures anew, and ``--part check`` one part. What ``check``
says of the test programs is compared with ``reference.json``, which ``--reference`` writes on the newest
release. Exit status: 0 when nothing fails.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.matrix.environments import ROOT, Cell, Unmade, make
from tests.matrix.measures import Bench
from tests.matrix.table import differences, failing, render

FOLDER = ROOT / "build" / "matrix"
REFERENCE = Path(__file__).with_name("reference.json")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""From the first one that the package supports to the newest that torch does."""
OLDEST_NUMPY = "1.26.4"
PARTS = ("engine", "fuzz", "check")
"""The methods of a :class:`~tests.matrix.measures.Bench`."""


def main() -> int:
    """Measure what is asked for and not yet known, and print the table of all that is."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--torch", help="only this release")
    parser.add_argument("--numpy", help="only this release, or newest")
    parser.add_argument("--python", help="only this minor version, 3.12")
    parser.add_argument(
        "--quick", action="store_true", help="fewer of the engine's tests, and 50 random programs both ways"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--again", action="store_true", help="measure anew what is known already")
    parser.add_argument("--part", choices=PARTS, help="measure only this part anew")
    parser.add_argument(
        "--reference",
        action="store_true",
        help="from now on the first cell's check is what the others are compared with",
    )
    parser.add_argument("--list", action="store_true", help="print the cells as JSON, and measure nothing")
    options = parser.parse_args()
    chosen = selected(options)
    if options.list:
        print(json.dumps([asdict(cell) for cell in chosen]))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = Results(FOLDER / ("quick.json" if options.quick else "results.json"))
    for cell in chosen:
        known = results.rows.get(cell.name, {})
        if options.again or options.part or not known:
            print(f"== {cell.name}", flush=True)
            parts = (options.part,) if options.part and known else PARTS
            results.keep(cell, known | measured(cell, parts, quick=options.quick, jobs=options.jobs))
            print(render([results.row(cell)]).rpartition("\n")[2], flush=True)
    if options.reference:
        REFERENCE.write_text(json.dumps(results.rows[chosen[0].name]["check"], indent=0) + "\n", encoding="utf-8")
    rows = [results.row(cell) for cell in chosen]
    print(f"\n{render(rows)}")
    return int(any(map(failing, rows)))


def selected(options: argparse.Namespace) -> list[Cell]:
    """The cells of the matrix, or the one that is named by at least a release of torch or a corner of it."""
    if options.torch:
        return [Cell(options.torch, options.numpy or "newest", options.python or PYTHONS[0])]
    return [
        cell
        for cell in matrix(releases())
        if (options.numpy is None or cell.numpy == options.numpy)
        and (options.python is None or cell.python == options.python)
    ]


def matrix(torches: list[str]) -> list[Cell]:
    """The newest release first, since the others are compared with it; every minor release; the
    corners of NumPy and Python.
    """
    newest, oldest = torches[0], torches[-1]
    cells = [Cell(torch, "newest", PYTHONS[0]) for torch in torches]
    cells += [Cell(torch, OLDEST_NUMPY, PYTHONS[0]) for torch in (newest, oldest)]
    return cells + [Cell(newest, "newest", python) for python in PYTHONS[1:]]


def releases() -> list[str]:
    """Of every minor release of torch from the declared lower bound on, the last one that
    pip finds; the newest first.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = (re.match(r"torch>=(\d+)\.(\d+)", line) for line in project["dependencies"] if line.startswith("torch"))
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True, check=True
    ).stdout
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    for found in re.finditer(r"\b(\d+)\.(\d+)\.(\d+)\b", listed.partition("Available versions:")[2].partition("\n")[0]):
        major, minor, patch = map(int, found.groups())
        last[major, minor] = max((major, minor, patch), last.get((major, minor), (0, 0, 0)))
    lowest = (int(bound[1]), int(bound[2]))
    return [".".join(map(str, last[minor])) for minor in sorted(last, reverse=True) if minor >= lowest]


def measured(cell: Cell, parts: Sequence[str], *, quick: bool, jobs: int) -> dict[str, Any]:
    """Make a cell's environment, measure these parts, and remove it."""
    started, output, environment = time.monotonic(), FOLDER / cell.name, FOLDER / "environment"
    output.mkdir(exist_ok=True)
    row: dict[str, Any] = {"torch": cell.torch, "python": cell.python, "numpy": cell.numpy}
    try:
        python, row["how"] = make(cell, environment)
        bench = Bench(python, output, jobs, quick)
        row["numpy"] = bench.run("versions.txt", "-c", "import numpy; print(numpy.__version__)").strip()
        row |= {part: getattr(bench, part)() for part in parts}
    except Unmade as reason:
        row["unmade"] = str(reason)
    finally:
        shutil.rmtree(environment, ignore_errors=True)
    return row if len(parts) < len(PARTS) else {**row, "seconds": round(time.monotonic() - started)}


class Results:
    """What was measured, kept in a file after each cell."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.rows: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def keep(self, cell: Cell, row: dict[str, Any]) -> None:
        """Remember a cell's result."""
        self.rows[cell.name] = row
        self._file.write_text(json.dumps(self.rows, indent=1), encoding="utf-8")

    def row(self, cell: Cell) -> dict[str, Any]:
        """A cell's result, with the programs that ``check`` sees differently there."""
        row = self.rows[cell.name]
        reference = json.loads(REFERENCE.read_text(encoding="utf-8"))
        return {**row, "check_differing": differences(row.get("check", {}), reference)}


if __name__ == "__main__":
    sys.exit(main())
