"""Long trainings: what is found in them, and what a check of them costs: ``python -m tests.bench.long_programs``.

The first table has the programs of tests/check/long, as they are and with their mistake planted: how many steps of each
are recorded, of how many, and whether the findings are the same when every round is recorded. The second has longer
versions of some: the processor time of ``python FILE`` and of ``pitfall-lab check --no-fixes FILE``, without what
starting either takes. ``--short`` is the first table for the programs with a mistake, without the comparison;
``--cost`` the second alone. Ends with 1 if findings differ or a check costs more than one and a half times as much.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from pitfall_lab.observe.rounds import Sampling
from pitfall_lab.rules import find
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program
from tests.bench.checking import command
from tests.check.long_programs import PROGRAMS

MOST = 1.5
ENOUGH = 400_000
LONGER = {
    "images": (("range(6)", "range(250)"), ("optimizer, 6)", "optimizer, 250)")),
    "gpt": (("range(90)", "range(2000)"), ("% 25 == 24", "% 500 == 499")),
    "gan": (("range(30)", "range(2000)"), ("batch % 10", "batch % 100")),
}
"""What is replaced in programs to make them longer."""


def recorded(name: str, sampling: Sampling | None) -> Trace:
    """Record a program in this process."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return trace_program(PROGRAMS[name], f"{name}.py", sampling=sampling, limit=None if sampling else ENOUGH)


def found(trace: Trace) -> list[tuple[str, int]]:
    """The rules and lines of what is found in a recording."""
    return sorted((finding.rule, finding.span.line if finding.span else 0) for finding in find(trace))


def findings(*, short: bool) -> bool:
    """Print the first table; return whether all findings are the same."""
    right = True
    print(f"{'program':26}{'recorded':>10}{'of':>9}  found")
    for name in PROGRAMS:
        if short and not name.endswith("_planted"):
            continue
        trace = recorded(name, Sampling())
        whole = trace if short else recorded(name, None)
        same = found(trace) == found(whole) and not trace.disagreements
        right = right and same
        listed = ", ".join(f"{rule} (line {line})" for rule, line in found(trace)) or "nothing"
        print(
            f"{name:26}{len(trace.events):10,}{'' if short else f'{len(whole.events):,}':>9}  "
            f"{listed}{'' if same else '  DIFFERS'}",
            flush=True,
        )
    return right


def cost() -> bool:
    """Print the second table; return whether no check costs too much."""
    right = True
    print(f"{'program':20}{'python':>10}{'check':>10}{'times':>8}   processor time in seconds, without the start")
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text("import torch\nfrom torch.utils.data import DataLoader\ntorch.ones(2)\n", encoding="utf-8")
        check_of_it = "-m", "pitfall_lab", "check", "--no-fixes", str(empty)
        command(*check_of_it)  # compiles what is not compiled yet
        start, start_of_check = command(str(empty))[1], command(*check_of_it)[1]
        for name, changes in LONGER.items():
            text = PROGRAMS[name]
            for old, new in changes:
                assert old in text
                text = text.replace(old, new)
            file = Path(folder, f"{name}.py")
            file.write_text(text, encoding="utf-8")
            plain = command(str(file))[1] - start
            check = (
                command("-m", "pitfall_lab", "check", "--no-fixes", "--timeout", "3000", str(file))[1] - start_of_check
            )
            right = right and (check <= MOST * plain or plain < 10)
            print(f"{name:20}{plain:10.1f}{check:10.1f}{check / plain:8.2f}", flush=True)
    return right


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--cost", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    right = args.cost or findings(short=args.short)
    if not args.short:
        right = cost() and right
    sys.exit(not right)


if __name__ == "__main__":
    main()
