"""Whatever cannot be checked gets one clear line and its exit code; other files are checked all the same;
nothing reaches the checker.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pitfall_lab.check import Checked, Workshop, examine
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.worker import Allowance
from pitfall_lab.cli import main

BAD = "import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)\nh.mul_(10)\nh.sum().backward()\n"
GOOD = "import torch\nprint(torch.ones(2).sum())\n"


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


def checked(
    shop: Workshop, folder: Path, content: str | bytes, *argv: str, name: str = "program.py", timeout: float = 20.0
) -> Checked:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return examine(path, shop, replace(Settings(), timeout=timeout), argv, name=name, fixes=False)


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "a syntax error": ("x = (1\n", "not valid Python (line 1"),
    "Python 2": ("print 'hello'\n", "not valid Python (line 1"),
    "an empty file": (" \n", "is empty"),
    "a file of no bytes": (b"", "is empty"),
    "binary data": (b"\x00\xff\xfe\x80\x81", "not a text file that Python can read"),
    "NUL bytes": (b"import torch\n\x00\n", "NUL bytes"),
    "an unknown encoding": (b"# -*- coding: klingon -*-\nx = 1\n", "not a text file that Python can read"),
    "text in another encoding than it says": (
        b"# -*- coding: ascii -*-\nx = '\xe9'\n",
        "not a text file that Python can read",
    ),
    "an exit with an error code": ("import sys\nsys.exit(3)\n", "SystemExit on line 2 (3)"),
    "an exit in a function": (
        "import sys\ndef f():\n    sys.exit('no data')\nf()\nprint(1)\n",
        "SystemExit on line 3 (no data)",
    ),
    "a hard exit": ("import os\nos._exit(4)\n", "SystemExit on line 2 (4)"),
    "a crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "crashed its process (SIGSEGV)"),
    "a real segmentation fault": ("import ctypes\nctypes.string_at(0)\n", "crashed its process (SIGSEGV)"),
    "an abort": ("import os\nos.abort()\n", "crashed its process (SIGABRT)"),
    "a package that is missing": ("import no_such_package_anywhere\n", "ModuleNotFoundError on line 1"),
    "arguments that are missing": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n",
        "SystemExit on line 4 (2), so it could not be checked to its end; pass arguments on to it after `--`",
    ),
    "an exception of its own": ("import torch\ndef f():\n    raise KeyError('lost')\nf()\n", "KeyError on line 3"),
    "an exception whose text fails": (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n",
        "E on line 4",
    ),
    "a question to the user": ("x = input('name? ')\n", "EOFError on line 1"),
    "endless recursion": ("def f():\n    f()\nf()\n", "RecursionError on line 2"),
    "a window": ("import tkinter\ntkinter.Tk()\n", "on line"),
    "killing the process that runs it": (
        "import os\nos.kill(os.getppid(), 9)\nwhile True: pass\n",
        "ended the process",
    ),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_cannot_be_checked_gets_one_line_and_exit_code_two(title: str, tmp_path: Path, shop: Workshop) -> None:
    content, sentence = REFUSED[title]
    result = checked(shop, tmp_path, content)
    assert result.exit_code == 2
    assert sentence in str(result.problem)
    assert len(str(result.problem).splitlines()) == 1
    assert str(result.problem).startswith("program.py")


NEVER_ENDING = {
    "a loop": "while True: pass\n",
    "a loop that holds on": "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n",
    "a loop that prints": "while True: print('x' * 1000)\n",
    "a loop that prints bytes": "import os\nwhile True: os.write(1, b'\\xff\\x00' * 500)\n",
    "a wait": "import time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)\n",
    "a dead lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n",
}


@pytest.mark.parametrize("title", NEVER_ENDING)
def test_a_program_that_never_ends_is_stopped_with_a_code_of_its_own(
    title: str, tmp_path: Path, shop: Workshop
) -> None:
    checked(shop, tmp_path, "pass\n")  # how long the worker process takes to start is another question
    before = time.monotonic()
    result = checked(shop, tmp_path, NEVER_ENDING[title], timeout=1.0)
    assert time.monotonic() - before < 15
    assert result.exit_code == 3
    assert "did not end within 1 s" in str(result.problem)
    assert len(result.printed) <= 1 << 20


def test_waiting_for_a_busy_processor_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], tmp_path / "schedstat"
    monkeypatch.setattr("pitfall_lab.check.worker.time.monotonic", lambda: now[0])
    allowed = Allowance(os.getpid(), 5)
    monkeypatch.setattr(allowed, "_waits", waits)
    answers = {}
    for seconds, waited in ((4, 0), (6, 0), (6, 3), (20, 14), (20, 17), (51, 50)):
        now[0] = seconds
        waits.write_text(f"1000000 {waited * 10**9} 7\n", encoding="ascii")
        answers[seconds, waited] = allowed.over()
    assert answers == {(4, 0): False, (6, 0): True, (6, 3): False, (20, 14): True, (20, 17): False, (51, 50): True}
    waits.unlink()
    now[0] = 6
    assert allowed.over()  # where the system does not say


RUNS = {
    "binary output": "import sys\nsys.stdout.buffer.write(bytes(range(256)))\n",
    "a plot": (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nassert plt.get_backend().lower() == 'agg'\n"
    ),
    "no standard input": "import sys\nassert sys.stdin.read() == ''\n",
    "deleting itself": "import os\nos.remove(__file__)\n",
    "another folder": "import os\nos.chdir('/')\n",
    "closed streams": "import sys\nsys.stdout.close()\nsys.stderr.close()\n",
    "streams that are gone": "import sys\nsys.stdout = sys.stderr = None\n",
    "an exit handler": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "a thread that stays": "import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()\n",
    "patched modules": "import sys\nsys.modules['json'] = None\nsys.path.clear()\n",
    "a fork": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\n",
    "a BOM": b"\xef\xbb\xbfimport torch\n",
    "Windows lines": b"import torch\r\nx = 1\r\nif x:\r\n\ty = 2\r\n",
    "old Mac lines": b"import torch\rx = 1\r",
    "Latin-1 that says so": b"# -*- coding: latin-1 -*-\nx = '\xe9'\nassert len(x) == 1\n",
    "form feeds": b"import torch\n\x0c\nx = 1\n",
    "no last line end": b"x = 1",
    "a hard exit that says all is well": "import os\nos._exit(0)\n",
    "a clean exit": b"import sys\nsys.exit()\n",
    "a script of other names": b"assert __name__ == '__main__' and __file__.endswith('program.py')\n",
}


@pytest.mark.parametrize("title", RUNS)
def test_what_only_looks_difficult_is_checked(title: str, tmp_path: Path, shop: Workshop) -> None:
    result = checked(shop, tmp_path, RUNS[title])
    assert (result.exit_code, result.problem) == (0, None)


def test_what_was_seen_before_a_hard_exit_is_told(tmp_path: Path, shop: Workshop) -> None:
    """``os._exit`` in ``finally`` hides an error that is on its way."""
    text = "import os, torch\nx = torch.ones(2, requires_grad=True)\ntry:\n    x += 1\nfinally:\n    os._exit(1)\n"
    result = checked(shop, tmp_path, text)
    assert [(f.rule, f.severity, f.span and f.span.line) for f in result.findings] == [("PL201", "error", 4)]
    assert result.trace is not None
    assert result.trace.stopped is None


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"], ids=["CRLF", "LF", "CR"])
def test_lines_are_counted_the_same_whatever_ends_them(end: bytes, tmp_path: Path, shop: Workshop) -> None:
    result = checked(shop, tmp_path, b"\xef\xbb\xbf" + BAD.replace("h.mul_", "\t\nh.mul_").encode().replace(b"\n", end))
    assert [(f.rule, f.span and f.span.line) for f in result.findings] == [("PL101", 5)]


def test_a_fork_that_stays_is_ended_even_in_a_session_of_its_own(tmp_path: Path, shop: Workshop) -> None:
    """What it would do in a second, it never does."""
    mark = tmp_path / "mark"
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1.5)\n"
    text += f"        open({str(mark)!r}, 'w')\n"
    assert checked(shop, tmp_path, text, timeout=10).exit_code == 0
    time.sleep(2)
    assert not mark.exists()


def test_children_of_a_stopped_program_are_stopped_with_it(tmp_path: Path, shop: Workshop) -> None:
    pid = tmp_path / "pid"
    text = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    text += f"open({str(pid)!r}, 'w').write(str(child.pid))\nwhile True: pass\n"
    assert checked(shop, tmp_path, text, timeout=1.0).exit_code == 3
    assert _ends(pid)


def test_a_program_ends_when_the_process_that_runs_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n"
    )
    with Workshop() as workshop:
        ended = threading.Thread(
            target=examine, args=(tmp_path / "program.py", workshop, Settings()), kwargs={"fixes": False}
        )
        ended.start()
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            time.sleep(0.05)
        assert workshop._worker is not None
        workshop._worker.kill()
        ended.join()
    assert _ends(tmp_path / "pid")


def _ends(pid: Path) -> bool:
    """Whether the process whose number the file ``pid`` holds ends within five seconds."""
    for _ in range(100):
        if not Path("/proc", pid.read_text()).exists():
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_wants_too_much_memory_gets_an_error_of_its_own(tmp_path: Path, shop: Workshop) -> None:
    path = tmp_path / "program.py"
    path.write_text("import torch\nx = torch.zeros(1 << 29)\nprint(x[0])\n")
    result = examine(path, shop, replace(Settings(), memory=500), name="program.py")
    assert result.exit_code == 1
    assert [(f.rule, f.span and f.span.line) for f in result.findings] == [("PLE44", 2)]
    path.write_text("import torch\nx = torch.zeros(1 << 20)\nprint(x[0])\n")
    assert examine(path, shop, replace(Settings(), memory=500), name="program.py").exit_code == 0


def test_arguments_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    lines = [
        "import argparse as a",
        "p = a.ArgumentParser()",
        "p.add_argument('--epochs', type=int)",
        "assert p.parse_args().epochs == 2",
    ]
    path.write_text("\n".join(lines))
    assert main(["check", str(path), "--", "--epochs", "2"]) == 0
    assert main(["check", str(path), "--timeout", "50", "--", "--epochs", "x"]) == 2


# --- several files
# -----------------------------------------------------------------------------------------------------


def test_other_files_are_checked_and_results_come_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("x = (\n")
    (tmp_path / "b.py").write_text(BAD)
    (tmp_path / "c.py").write_text("import os\nos._exit(9)\n")
    (tmp_path / "d.py").write_text(GOOD)
    (tmp_path / "e.py").write_text("while True: pass\n")
    files = [str(tmp_path / name) for name in ("a.py", "b.py", "c.py", "d.py", "e.py", "missing.py")]
    assert main(["check", *files, "--json", "--jobs", "2", "--timeout", "5", "--no-fixes"]) == 2
    found = capsys.readouterr()
    results = json.loads(found.out)
    assert [each["file"] for each in results] == files
    assert [[f["rule"] for f in each["findings"]] for each in results] == [[], ["PL101"], [], [], [], []]
    assert [(each["error"] or {}).get("type") for each in results] == [
        "SyntaxError",
        "RuntimeError",
        "SystemExit",
        None,
        "Timeout",
        "FileNotFoundError",
    ]
    assert len([line for line in found.err.splitlines() if line.startswith("pitfall-lab check:")]) == 4


def test_a_folder_is_searched_without_what_is_not_the_authors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (".git", "venv", "env", "node_modules", "build", "__pycache__", "pkg/inner"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.py").write_text(GOOD)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / ".hidden.py").write_text(GOOD)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "again.py").symlink_to(tmp_path / "pkg" / "inner" / "x.py")
    assert main(["check", str(tmp_path), "--json", "--no-fixes"]) == 0
    assert [each["file"] for each in json.loads(capsys.readouterr().out)] == [str(tmp_path / "again.py")]


def test_a_folder_without_python_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert main(["check", str(tmp_path)]) == 2
    assert f"There is no Python file and no notebook in {tmp_path}." in capsys.readouterr().err


def test_a_link_in_circles_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "b.py")
    (tmp_path / "b.py").symlink_to(tmp_path / "a.py")
    assert main(["check", str(tmp_path / "a.py")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_pipe_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert main(["check", str(tmp_path / "pipe.py")]) == 2
    assert "not an ordinary file" in capsys.readouterr().err


def test_what_may_not_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.py").write_text(GOOD)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(
        Path, "read_bytes", refuse
    )  # root may read everything: no mode would stop the tests of a container
    assert main(["check", str(tmp_path / "secret.py")]) == 2
    assert "cannot be read: Permission denied." in capsys.readouterr().err


def test_a_folder_that_may_not_be_read_is_said_beside_the_files_that_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open.py").write_text(GOOD)
    (tmp_path / "shut").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["check", str(tmp_path), "--json", "--no-fixes"]) == 2
    found = capsys.readouterr()
    assert [each["outcome"] for each in json.loads(found.out)] == ["finished", "raised"]
    assert "shut cannot be read: Permission denied." in found.err


def test_a_program_without_arguments_for_the_command_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check"])
    assert stop.value.code == 2
