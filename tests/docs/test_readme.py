"""Every command in the README and the pages behind it is run, and everything the README points to is there."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.docs import fresh
from tests.turns import in_whole_runs, todays

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHAPTERS = (ROOT / "pitfall_lab" / "docs" / "chapters.md").read_text(encoding="utf-8")
BEHIND = ("chapters.md", "notebook.md", "commands.md", "cost.md")  # the other pages have tests of their own
PAGES = [
    ROOT / "README.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    *(ROOT / "pitfall_lab" / "docs" / name for name in BEHIND),
]


def commands(text: str) -> list[str]:
    """The lines of a page's shell blocks, of those in lists too."""
    blocks = re.findall(r"^( *)```bash\n(.*?)\n *```$", text, flags=re.MULTILINE | re.DOTALL)
    return [line.removeprefix(indent) for indent, block in blocks for line in block.splitlines()]


COMMANDS = list(dict.fromkeys(line for page in PAGES for line in commands(page.read_text(encoding="utf-8"))))
TOOL = ".venv/bin/pitfall-lab"
RUNNER = "python3 tests/run.py"
COLD = ("doctor", "book")
"""Commands that are about the Python that runs them, or start notebooks."""
EXIT_CODES = {
    "check": {0, 1},
    "explain": {0},
    "show": {0},
    "saves": {0},
    "claims": {0, 1},
    "book": {0},
    "doctor": {0, 1},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place for what commands write, in which the README's paths exist."""
    for name in ("tests", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def python(folder: Path, *words: str, by: str = sys.executable) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [by, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def test_the_two_commands_come_first_and_are_run_by_the_runner_itself() -> None:
    lines = [line for line in COMMANDS if "doctor" not in line]
    assert lines[0] == fresh.first_command()
    assert lines[1] == RUNNER
    # Nobody can run the whole suite from inside it: .ci/run runs it, and after it the first command.
    assert "python3 tests/run.py" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "fresh.py" in (ROOT / "tests" / "run.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    in_whole_runs([line for line in COMMANDS if line.startswith(TOOL) and " lab" not in line.removeprefix(TOOL)], of=3),
)
def test_a_command_of_the_tool_runs(line: str, folder: Path, warm_python: str) -> None:
    words = shlex.split(line.removeprefix(TOOL))
    done = python(folder, "-m", "pitfall_lab", *words, by=sys.executable if words[0] in COLD else warm_python)
    assert done.returncode in EXIT_CODES[words[0]], done.stderr
    assert "Traceback" not in done.stderr
    if "-o" in words:
        assert (folder / words[words.index("-o") + 1]).stat().st_size > 1000


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith(f"{TOOL} lab")])
def test_the_lab_without_a_browser_listens_on_the_port_it_was_given(line: str, folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    words = shlex.split(re.sub(r"--port \d+", f"--port {free}", line.removeprefix(TOOL)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_TOKEN": "t", "HOME": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pitfall_lab", *words], cwd=folder, env=environment, stderr=subprocess.PIPE
    )
    try:
        assert _answers(
            f"http://127.0.0.1:{free}/api/contents/notebooks/00-start-here.ipynb?token=t&content=0", process
        )
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    return False


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith(f"{RUNNER} ")])
def test_a_part_of_the_tests_can_be_run(line: str) -> None:
    # The runner would install the package anew under the feet of the tests that are running: its
    # pytest part only, collecting.
    done = python(
        ROOT,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        *shlex.split(line.removeprefix(RUNNER)),
        by=sys.executable,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "::" in done.stdout


@pytest.mark.parametrize(
    "line", todays([line for line in COMMANDS if line.startswith("python3 -m tests.bench.")], of=10)
)
def test_a_benchmark_prints_its_figures(line: str, warm_python: str) -> None:
    fewest = {"checking": ["1", "tests/programs/silent_data.py"], "questions": ["1"]}
    name = line.rpartition(".")[2]
    by = sys.executable if name == "live" else warm_python  # that one looks at what is imported
    done = python(ROOT, *shlex.split(line)[1:], *fewest.get(name, ["--short"]), by=by)
    # The figures of a short run on a busy machine may be over a budget: it says so, and tests/bench holds the limits.
    assert done.returncode == 0 or re.search(r"over budget|\)   over$", done.stdout, re.MULTILINE), done.stderr[-2000:]
    assert re.search(r"\d+\.\d+ (x|ms)|\d+\.\d\d s", done.stdout)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("python3 -m tests.check.")])
def test_the_table_of_recall_is_printed(line: str, warm_python: str) -> None:
    done = python(
        ROOT, *shlex.split(line)[1:], "PL401", by=warm_python
    )  # of one rule: all programs are run by the tests of the rules
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert re.search(r"^PL401 .* 100% +0$", done.stdout, flags=re.MULTILINE)


BY_THE_TEST_COMMAND = tuple(f"build/test-environment/bin/python -m {check}" for check in ("ruff check .", "mypy"))


def test_no_command_is_left_out() -> None:
    known = (
        TOOL,
        RUNNER,
        "python3 -m tests.bench.",
        "python3 -m tests.check.recall",
        "python3 -m venv .venv && ",
        *BY_THE_TEST_COMMAND,
    )
    assert [line for line in COMMANDS if not line.startswith(known)] == []


def test_the_notebook_cell_of_the_tour_does_what_the_tour_says(folder: Path, warm_python: str) -> None:
    (cell,) = [block for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "%%pitfall" in block]
    program = "\n".join(line.removeprefix("   ") for line in cell.splitlines() if "%%" not in line)
    (folder / "tour.py").write_text(program)
    done = python(folder, "-m", "pitfall_lab", "check", "tour.py", by=warm_python)
    assert done.returncode == 1
    assert "saved-tensor-overwritten" in done.stdout
    assert "verified" in done.stdout


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_what_the_readme_points_to_is_there(target: str) -> None:
    assert (ROOT / target).is_file()


def test_the_badge_opens_the_start_notebook_and_its_address_is_set_in_one_place() -> None:
    addresses = re.findall(r"^\[binder\]: (\S+)$", README, flags=re.MULTILINE)
    assert len(addresses) == 1
    assert README.count("mybinder.org/v2/") == 1
    matched = re.fullmatch(r"https://mybinder\.org/v2/gh/[\w.-]+/[\w.-]+/HEAD\?urlpath=lab/tree/(\S+)", addresses[0])
    assert matched
    assert (ROOT / matched[1]).is_file()


def test_every_chapter_is_on_the_page_of_the_course() -> None:
    assert [p.name for p in (ROOT / "notebooks").glob("[0-9]*.ipynb") if f"notebooks/{p.name}" not in CHAPTERS] == []


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len(README.split()) < 700


def test_what_is_checked_is_said_to_be_run_and_not_fenced() -> None:
    for page in (README, (ROOT / "pitfall_lab" / "docs" / "commands.md").read_text(encoding="utf-8")):
        assert re.search(r"with your rights\W+(this is|and is) no\s+sandbox", page)
