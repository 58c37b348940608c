"""``pitfall-lab check FILE``: its JSON, its exit codes, and one clear sentence for whatever cannot be checked."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pitfall_lab
from pitfall_lab.check import Unchecked, check, check_file
from pitfall_lab.check.text import Style, columns, report, shown
from pitfall_lab.cli import main

ROOT = Path(pitfall_lab.__file__).parent.parent
BAD = """\
import torch

x = torch.ones(3, requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
print("printed by the program")
h.sum().backward()
"""
KEYS = ["file", "torch", "outcome", "error", "agreement", "findings"]


def command(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own as a user would start it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    start = [sys.executable, "-m", "pitfall_lab", "check", *words]
    return subprocess.run(start, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=300, check=False)


def write(folder: Path, text: str, name: str = "program.py") -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path)


def test_json_is_one_object_and_the_programs_prints_are_not_in_it(tmp_path: Path) -> None:
    done = command(write(tmp_path, BAD), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(found) == KEYS
    assert found["outcome"] == "raised"
    assert found["error"]["type"] == "RuntimeError"
    assert found["error"]["line"] == 7
    assert found["torch"].startswith("2.")
    assert list(found["agreement"]) == ["checked", "agreed", "mirrored", "disagreed"]
    assert found["agreement"]["disagreed"] == 0
    (finding,) = found["findings"]
    assert (finding["rule"], finding["line"], finding["predicted"]) == ("PL101", 5, True)
    assert finding["fixes"][0] == {
        "title": "Make a new tensor instead of overwriting `h`",
        "edits": [{"line": 5, "end_line": 5, "text": "h = h * 10\n"}],
        "verified": True,
    }
    assert "printed by the program" not in done.stderr


def test_what_a_program_prints_is_shown_where_that_is_wanted(tmp_path: Path) -> None:
    done = command(write(tmp_path, BAD), "--show-output", "--json")
    assert json.loads(done.stdout)["findings"]
    assert done.stderr.count("printed by the program") == 1


def test_a_report_shows_place_story_and_a_tried_fix(tmp_path: Path) -> None:
    path = write(tmp_path, BAD)
    done = command(path)
    assert done.returncode == 1
    assert f"{path}:5:1: error PL101 saved-tensor-overwritten" in done.stdout
    assert "verified" in done.stdout
    assert "+h = h * 10" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_report_in_chinese(tmp_path: Path) -> None:
    done = command(write(tmp_path, BAD), "--language", "zh")
    assert "错误 PL101" in done.stdout
    assert "第 5 行覆盖了 `h`" in done.stdout


def test_a_right_program_exits_with_zero(tmp_path: Path) -> None:
    done = command(write(tmp_path, "import torch\nprint(torch.ones(2).sum())\n"))
    assert done.returncode == 0
    assert "nothing found" in done.stdout


def test_a_clean_exit_is_an_ordinary_end(tmp_path: Path) -> None:
    found = check_file(write(tmp_path, "import sys, torch\ntorch.ones(1)\nsys.exit(0)\n"))
    assert (found["outcome"], found["error"], found["findings"]) == ("finished", None, [])


def test_a_script_finds_its_name_its_file_its_arguments_and_its_siblings(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ndef squash(x):\n    h = torch.sigmoid(x)\n    return h\n", "sibling.py")
    path = write(
        tmp_path,
        """\
        import sys
        from dataclasses import dataclass
        from pathlib import Path
        import torch
        from sibling import squash

        @dataclass
        class Config:
            scale: float = 10.0

        def main():
            assert Path(__file__).name == "program.py" and sys.argv[1:] == ["--epochs", "2"] and sys.modules["__main__"].Config is Config
            x = torch.ones(3, requires_grad=True)
            h = squash(x)
            h *= Config().scale
            h.sum().backward()

        if __name__ == "__main__":
            main()
        """,
    )
    found = check_file(path, ["--epochs", "2"])
    (finding,) = found["findings"]
    assert (finding["rule"], finding["line"]) == ("PL101", 15)
    assert finding["fixes"][0]["edits"][0]["text"] == "    h = h * Config().scale\n"


def test_nothing_the_program_does_reaches_the_checker(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "import os, sys, torch\nos.environ['LEFT'] = '1'\nos.chdir('/')\ntorch.Tensor.mul_ = "
        "None\nsys.path.clear()\nsys.modules['json'] = None\n",
    )
    before = (dict(os.environ), Path.cwd(), list(sys.path))
    assert check_file(path)["outcome"] == "finished"
    assert (dict(os.environ), Path.cwd(), list(sys.path)) == before
    assert "torch" not in sys.modules or sys.modules["torch"].Tensor.mul_ is not None


def test_check_of_a_text_gives_findings_with_verified_fixes() -> None:
    (finding,) = check(BAD)
    assert finding.rule == "PL101"
    assert [fix.verified for fix in finding.fixes] == [True] * len(finding.fixes) != []


def test_the_name_check_is_the_function_whichever_import_came_first() -> None:
    assert importlib.import_module("pitfall_lab.check")(BAD)[0].rule == pitfall_lab.check(BAD)[0].rule == "PL101"


def test_check_of_a_text_that_is_not_python_says_so() -> None:
    with pytest.raises(Unchecked, match="line 1"):
        check("x = (")


def test_fixes_can_be_left_untried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, BAD), "--no-fixes", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["fixes"] == []


def test_two_mistakes_are_both_reached_by_repairing_the_first(tmp_path: Path) -> None:
    """The first repair does not make the program finish, but it gets further, and that is a repair."""
    text = BAD + "w = torch.ones(3, requires_grad=True)\nk = torch.exp(w)\nk += 1\nk.sum().backward()\n"
    found = check_file(write(tmp_path, text))
    (first,) = found["findings"]
    assert first["fixes"][0]["verified"]
    (tmp_path / "program.py").write_text(text.replace("h.mul_(10)", "h = h * 10"), encoding="utf-8")
    (second,) = check_file(tmp_path / "program.py")["findings"]
    assert second["line"] == 10


def test_a_report_lines_up_wide_characters_and_shows_control_characters(tmp_path: Path) -> None:
    assert columns("变量 = 1") == 8
    assert "\x1b" not in shown("print('\x1b[2J')")
    text = 'import torch\n变量 = torch.ones(2, requires_grad=True)\nh = torch.exp(变量)  # 🙂\n"\x1b[2J"; h.mul_(2)\nh.sum().backward()\n'
    findings = check(text)
    from pitfall_lab.trace import Source, Trace

    lines = report("x.py", Trace((Source("x.py", text),)), findings, Style()).splitlines()
    assert not any("\x1b" in line for line in lines)
    row = next(i for i, line in enumerate(lines) if "h.mul_(2)" in line and "│" in line)
    assert columns(lines[row][: lines[row].index("h.mul_(2)")]) == columns(lines[row + 1][: lines[row + 1].index("^")])
