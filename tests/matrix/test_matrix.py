"""The tool that measures every release: its table, its choice of cells, and the stand-ins for
libraries that are not here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.__main__ import PYTHONS, matrix
from tests.matrix.environments import Cell, Unmade, interpreter
from tests.matrix.measures import seen
from tests.matrix.stubs import stand_in
from tests.matrix.table import differences, failing, render

CALLER = """
extern int gone_count(int *); extern int cudaGone(void); extern void *gone_table;
int ask(void) { int n = 7; return cudaGone() + gone_count(&n) + (gone_table == 0 ? 1 : 0); }
"""
GONE = "int gone_count(int *n) { return *n; } int cudaGone(void) { return 1; } void *gone_table = &gone_table;"
ASKED = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).ask())"
SAW = {"outcome": "finished", "findings": [["PL301", 7]], "observed": True, "disagreed": 0}
GOOD = {
    "torch": "2.15.0", "python": "3.11", "numpy": "2.4.6", "how": "CPU build", "seconds": 600,
    "check": {"a.py": SAW}, "check_differing": [], "engine": {"passed": 4000, "failed": 0}, "fuzz": {"programs": 1000,
    "failed": 0},
}  # fmt: skip


def compiled(code: str, library: Path, *words: str) -> None:
    source = library.with_suffix(".c")
    source.write_text(code, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source, *words], check=True)


@pytest.mark.parametrize(
    "versions", ["", "THEIRS { global: *; };"], ids=["without versions", "with a version of another name"]
)
def test_a_library_loads_with_stand_ins_for_what_it_is_linked_with(tmp_path: Path, versions: str) -> None:
    gone, caller = tmp_path / "libgone.so.1", tmp_path / "libcaller.so"
    script = tmp_path / "script"
    script.write_text(versions or "{ global: *; };", encoding="utf-8")
    compiled(GONE, gone, f"-Wl,-soname,{gone.name},--version-script,{script}")
    compiled(CALLER, caller, str(gone), "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")
    gone.unlink()
    assert subprocess.run([sys.executable, "-c", ASKED, caller], capture_output=True, check=False).returncode == 1
    assert stand_in(tmp_path) == ["libgone.so.1"]
    asked = subprocess.run([sys.executable, "-c", ASKED, caller], capture_output=True, text=True, check=True)
    assert asked.stdout == "101\n"  # no device, a zero, and data that are zero


def test_nothing_is_made_where_nothing_is_missing(tmp_path: Path) -> None:
    compiled("int alone(void) { return 1; }", tmp_path / "libalone.so")
    assert stand_in(tmp_path) == []


def test_the_table_has_a_row_for_each_cell_and_says_what_was_not_made() -> None:
    unmade = {
        "torch": "2.15.0",
        "python": "3.14",
        "numpy": "newest",
        "unmade": "no Python 3.14 here",
        "seconds": 0,
        "check_differing": [],
    }
    head, line, good, missing = render([GOOD, unmade]).splitlines()
    assert head.count("|") == line.count("|") == good.count("|") == missing.count("|")
    assert good == "| 2.15.0 | 3.11 | 2.4.6 | CPU build | 4,000 | 0 | 1,000 | 0 | 0 of 1 | 10 |"
    assert "not made: no Python 3.14 here" in missing
    assert not failing(GOOD)
    assert not failing(unmade)


@pytest.mark.parametrize(
    "worse",
    [{"engine": {"passed": 1, "failed": 1}}, {"fuzz": {"programs": 500, "failed": 1}}, {"fuzz": {"programs": 0,
    "failed": 0}}, {"check_differing": ["a.py"]}, {"unmade": "no matching distribution"}],
)  # fmt: skip
def test_a_cell_fails_by_each_of_its_measures(worse: dict[str, object]) -> None:
    assert failing({**GOOD, **worse})


@pytest.mark.parametrize("worse", [{"findings": []}, {"observed": False}, {"disagreed": 1}, {"outcome": "raised"}])
def test_a_program_on_which_check_sees_otherwise_differs(worse: dict[str, object]) -> None:
    assert differences({"a.py": SAW}, {"a.py": SAW}) == []
    assert differences({"a.py": {**SAW, **worse}}, {"a.py": SAW}) == ["a.py"]
    assert differences({}, {"a.py": SAW}) == ["a.py"]


def test_a_blind_run_is_seen_as_one() -> None:
    blind = {
        "file": "a.py",
        "outcome": "finished",
        "findings": [],
        "agreement": {"checked": 0, "mirrored": 0, "disagreed": 0},
    }
    assert not seen(blind)["observed"]


def test_every_release_and_every_corner_has_a_cell() -> None:
    cells = matrix(["2.15.0", "2.14.1", "2.6.0"])
    assert cells[0] == Cell("2.15.0", "newest", "3.11")
    assert {cell.torch for cell in cells} == {"2.15.0", "2.14.1", "2.6.0"}
    assert {cell.python for cell in cells} == set(PYTHONS)
    assert {(cell.torch, cell.numpy) for cell in cells} >= {("2.15.0", "1.26.4"), ("2.6.0", "1.26.4")}


def test_a_missing_interpreter_is_said() -> None:
    with pytest.raises(Unmade, match=r"no Python 3\.99 here"):
        interpreter("3.99")
