"""The stand-in for Python that has imported torch does for its caller what Python does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest


def done(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def test_words_folder_environment_and_files_are_those_of_the_caller(warm_python: str, tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text("FOUND = 'near'")
    code = (
        "import os, sys, near; print(sys.argv, os.getcwd(), sorted(os.environ), near.FOUND, input()); "
        "print(__name__, file=sys.stderr)"
    )
    # The shell sets the second one where there is none, Python the third.
    environment = {"PYTHONPATH": "/nowhere", "PWD": str(tmp_path), "LC_CTYPE": "C.UTF-8"}
    warm, cold = (
        done(each, "-c", code, "a b", cwd=tmp_path, env=environment, input="given\n")
        for each in (warm_python, sys.executable)
    )
    assert (warm.stdout, warm.stderr, warm.returncode) == (cold.stdout, cold.stderr, cold.returncode)
    assert "near given" in warm.stdout


def test_a_module_is_run_by_a_fork_in_which_torch_is_there(warm_python: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys; print(sys.argv, __name__, 'torch' in sys.modules, sys.executable)"
    )
    told = done(warm_python, "-m", "program", "x", cwd=tmp_path).stdout
    assert told == f"{[str(tmp_path / 'program.py'), 'x']} __main__ {sys.platform == 'linux'} {warm_python}\n"


def test_a_file_is_run_without_its_folder_on_the_path(warm_python: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"import sys; print(sys.argv, __name__, 'torch' in sys.modules, {str(tmp_path)!r} in sys.path)"
    )
    told = done(warm_python, "-P", str(tmp_path / "program.py"), "x", cwd=tmp_path).stdout
    assert told == f"{[str(tmp_path / 'program.py'), 'x']} __main__ {sys.platform == 'linux'} False\n"


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os.abort()", -6)])
def test_it_ends_as_the_program_ends(warm_python: str, code: str, status: int) -> None:
    assert done(warm_python, "-c", code).returncode == status


def test_a_program_ends_with_who_asked_for_it(warm_python: str, tmp_path: Path) -> None:
    code = "import time, pathlib\nwhile True: pathlib.Path('alive').touch(); time.sleep(0.01)"
    asked, sign = subprocess.Popen([warm_python, "-c", code], cwd=tmp_path), tmp_path / "alive"
    while not sign.exists():
        time.sleep(0.01)
    asked.kill()
    asked.wait()
    end, seen = time.monotonic() + 20, 0
    while seen != (seen := sign.stat().st_mtime_ns):
        assert time.monotonic() < end
        time.sleep(0.3)
