"""The faults of ``python -m tests.fuzz.mutants`` can be planted, and the command tells what finds them;
all of them are run by hand.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.fuzz.mutants import CORE, ENGINE, ROOT, Fault, blind, known, sites

FAULTS = known()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_has_one_place_and_makes_a_program(fault: Fault) -> None:
    assert changes_the_program(fault)


def changes_the_program(fault: Fault) -> bool:
    """Whether a file is another program with the fault.

    Only statements with another text are compared: a file has hundreds.
    """
    source = (ENGINE / fault.file).read_text(encoding="utf-8")
    was, now = statements(source), statements(fault.planted(source))
    if len(was) != len(now):
        return True
    pairs = zip(was, now, strict=True)
    return any(ast.dump(one) != ast.dump(other) for (old, one), (new, other) in pairs if old != new)


@cache
def statements(source: str) -> list[tuple[str, ast.stmt]]:
    """The statements of a file, each with its text; of a class those in it."""
    lines, tree = source.split("\n"), ast.parse(source)
    found = [inner for each in tree.body for inner in ([each] if not isinstance(each, ast.ClassDef) else each.body)]
    return [("\n".join(lines[each.lineno - 1 : each.end_lineno]), each) for each in found]


def test_a_fault_that_has_lost_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        Fault("gone", "graph.py", "no such text", "", "").planted((ENGINE / "graph.py").read_text(encoding="utf-8"))


def test_the_faults_are_many_and_various() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({fault.breaks for fault in FAULTS}) >= 15
    assert [fault.name for fault in FAULTS[:3]] == [
        "expand steps by 1 where the size is 3", "tensor hooks run in reverse order", "detach has a counter of its own",
    ]  # fmt: skip


def test_faults_are_drawn_from_all_of_the_core() -> None:
    assert all(len(list(sites(f"{name}.py"))) > 10 for name in CORE)
    drawn = blind(3, 40)
    assert drawn == blind(3, 40)
    assert len({fault.file for fault in drawn}) > 4
    assert all(changes_the_program(fault) for fault in drawn)


def test_the_command_tells_what_finds_a_fault_and_what_none_finds(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(
        """
[[fault]]
name = "a second gradient overwrites the first"
file = "backward.py"
old = "            self.engine.write(held, plus(held.window(), gradient.array))"
new = "            self.engine.write(held, gradient.array)"
breaks = "accumulation"

[[fault]]
name = "no fault at all"
file = "backward.py"
old = "            self.engine.write(held, plus(held.window(), gradient.array))"
new = "            self.engine.write(held, plus(held.window(), gradient.array))  # the same"
breaks = "nothing"
"""
    )
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.mutants",
        "--file",
        str(file),
        "--programs",
        "1",
        "--seed",
        "3",
        "--no-tests",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in done.stdout.splitlines() if line.startswith("|")}
    assert "passes" in rows["(the engine as it is)"], done.stdout + done.stderr
    assert (
        ".grad" in rows["a second gradient overwrites the first"]
        or "cells" in rows["a second gradient overwrites the first"]
    )
    assert "SURVIVES" in rows["no fault at all"]
    assert "2 faults, 1 survived" in done.stdout
    assert done.returncode == 1
