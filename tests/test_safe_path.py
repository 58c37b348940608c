"""No file beside the user, or beside the program that is checked, runs in the place of a module that is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest

from pitfall_lab import processes
from pitfall_lab.check import Subject, Workshop, module_path
from pitfall_lab.cli import main

# What Python imports by itself as it starts, every module of the standard library, every
# installed package, and this one.
NAMES = sorted(
    {*sys.stdlib_module_names, "sitecustomize", "usercustomize", *filter(str.isidentifier, packages_distributions())}
)
PROGRAM = """\
import json, random, sys
import numpy
import torch
import helper

assert helper.CALLED == "the program's own"
assert sys.path[0] == {folder!r}
x = torch.ones(3, requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
torch.optim.SGD([x], lr=0.1)  # imports parts of torch that come late
h.sum().backward()
"""
SCRIPT = str(Path(sys.executable).with_name("pitfall-lab"))
MODULE = (sys.executable, "-m", "pitfall_lab")


def plant(folder: Path, names: list[str]) -> None:
    """Modules that leave a word behind when they run."""
    folder.mkdir(parents=True, exist_ok=True)
    trap = f"open({str(folder / 'ran')!r}, 'a').write(__name__ + '\\n')\nraise ImportError('a planted module ran')\n"
    for name in names:
        (folder / f"{name}.py").write_text(trap)
    (folder / "planted.pth").write_text(f"import os; open({str(folder / 'ran')!r}, 'a').write('pth')\n")


def ran(*folders: Path) -> list[str]:
    return [name for folder in folders if (folder / "ran").exists() for name in (folder / "ran").read_text().split()]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder of a user."""
    return planted_here(tmp_path_factory.mktemp("here"), set())


@pytest.fixture(scope="module")
def here_for_m(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without what Python itself takes from there for ``-m``, before our first line runs."""
    folder = tmp_path_factory.mktemp("here_for_m")
    (folder / "empty.py").write_text("import sys; print(*sys.modules)")
    return planted_here(folder, {"pitfall_lab", *done(folder, sys.executable, "-m", "empty").stdout.split()})


def planted_here(folder: Path, but: set[str]) -> Path:
    plant(folder, [name for name in [*NAMES, "pitfall_lab"] if name not in but])
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program among planted modules, with one module that it imports itself."""
    folder = tmp_path_factory.mktemp("there")
    plant(folder, [*NAMES, "pitfall_lab"])
    (folder / "helper.py").write_text('CALLED = "the program\'s own"\n')
    path = folder / "program.py"
    path.write_text(PROGRAM.format(folder=str(folder)))
    return path


def done(here: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words, cwd=here, env=environment | variables, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.mark.parametrize("command", [(SCRIPT,), MODULE], ids=["script", "module"])
def test_check_runs_the_program_and_nothing_that_was_planted(
    command: tuple[str, ...], here: Path, here_for_m: Path, program: Path
) -> None:
    here = here_for_m if command is MODULE else here
    found = done(here, *command, "check", "--json", str(program))
    assert ran(here, program.parent) == []
    (finding,) = json.loads(found.stdout)["findings"]
    assert (finding["rule"], finding["fixes"][0]["verified"]) == ("PL101", True), found.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((SCRIPT,), ("saves", "exp")),
        ((SCRIPT,), ("explain", "PL101")),
        (MODULE, ("explain", "PL101")),
        (MODULE, ("doctor",)),
        (MODULE, ("claims", "s1-0-a")),
        ((SCRIPT,), ("classroom", "--help")),
    ],
    ids=lambda words: "-m" if words == MODULE else "script" if words == (SCRIPT,) else " ".join(words),
)
def test_a_command_runs_nothing_that_was_planted(
    command: tuple[str, ...], words: tuple[str, ...], here: Path, here_for_m: Path
) -> None:
    here = here_for_m if command is MODULE else here
    found = done(here, *command, *words)
    assert ran(here) == []
    assert found.returncode == 0, found.stderr


def test_show_runs_the_program_and_nothing_that_was_planted(here_for_m: Path, program: Path) -> None:
    found = done(here_for_m, *MODULE, "show", str(program), "--text")
    assert ran(here_for_m, program.parent) == []
    assert "SigmoidBackward0" in found.stdout, found.stderr


def test_grading_runs_nothing_that_was_planted(tmp_path: Path, here: Path) -> None:
    assert main(["classroom", "init", str(tmp_path / "class"), "--chapters", "12", "--exercises-only"]) == 0
    student = tmp_path / "class" / "submissions" / "mallory"
    plant(student, NAMES)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%%exercise 12.3\nx = 1")])
    nbformat.write(book, student / "answers.ipynb")
    found = done(student, SCRIPT, "grade", str(tmp_path / "class"), "--trust", "--jobs", "1")
    assert ran(student) == []
    assert "1 submission: 1 graded" in found.stdout, found.stderr
    assert done(here, *processes.ours("pitfall_lab.classroom.nbgrader")).returncode == 0
    assert ran(here) == []


def test_a_page_of_a_notebook_runs_nothing_from_where_the_user_is(tmp_path: Path, here: Path) -> None:
    cell = "import sys, torch\nprint(torch.__version__, [entry for entry in sys.path if entry])"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)]), tmp_path / "page.ipynb")
    found = done(here, SCRIPT, "book", str(tmp_path / "page.ipynb"), "-o", str(tmp_path / "book"))
    assert ran(here) == []
    assert found.returncode == 0, found.stderr
    assert str(here) not in (tmp_path / "book" / "page.html").read_text()


def test_trials_for_a_notebook_run_nothing_that_was_planted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", *filter(None, [os.environ.get("PYTHONPATH")])]))
    cell = PROGRAM.format(folder=str(here)).replace("import helper", 'class helper: CALLED = "the program\'s own"')
    with Workshop() as shop:
        trace = shop.trace(Subject(cell, "cell"))
    assert ran(here) == []
    assert trace.outcome.failure is not None
    assert "modified by an inplace operation" in trace.outcome.failure.message


def test_a_path_of_pythonpath_that_means_the_current_folder_is_the_programs_alone(tmp_path: Path) -> None:
    # Python imports the standard library itself from there before our first line runs: only packages are planted.
    plant(tmp_path, ["numpy", "torch", "graphviz", "matplotlib", "tqdm"])
    (tmp_path / "beneath").mkdir()
    (tmp_path / "beneath" / "helper.py").write_text("CALLED = 1\n")
    lines = ["import os, sys, helper, torch", f"assert os.environ['PYTHONPATH'] == {os.pathsep + 'beneath'!r}"]
    lines += [f"assert sys.path[1:3] == {[str(tmp_path), str(tmp_path / 'beneath')]}"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "program.py").write_text("\n".join([*lines, "torch.ones(2).backward()", ""]))
    for words in (("check", "elsewhere/program.py"), ("show", "elsewhere/program.py", "--text")):
        found = done(tmp_path, SCRIPT, *words, PYTHONPATH=f"{os.pathsep}beneath")
        assert ran(tmp_path) == []
        assert "PLE32" in found.stdout or "does not require grad" in found.stdout + found.stderr


def test_a_module_beside_the_program_is_the_programs_and_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "xdrlib_of_ours"  # a name that lies on our path and beside the program
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours" / f"{late}.py").write_text("WHOSE = 'ours'\n")
    for name in (late, "another"):
        (tmp_path / "theirs" / f"{name}.py").write_text("WHOSE = 'theirs'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "ours"))
    program, package = {"__name__": "__main__"}, {"__name__": "pitfall_lab.late"}
    before = sys.path[:], sys.meta_path[:]
    with module_path.as_for_python(str(tmp_path / "theirs"), ""):
        exec(f"import {late}, another", package)
        monkeypatch.delitem(sys.modules, late)
        exec(f"import {late}", program)
    for name in (late, "another"):
        monkeypatch.delitem(sys.modules, name)
    assert [package[late].WHOSE, package["another"].WHOSE, program[late].WHOSE] == ["ours", "theirs", "theirs"]
    assert (sys.path, sys.meta_path) == before


def test_a_program_in_the_current_folder_is_not_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dot").write_text("#!/bin/sh\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    assert processes.installed("dot") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert processes.installed("dot") == str(tmp_path / "dot")
