"""``pitfall-lab check FILE``: its JSON, its exit codes, and one clear sentence for whatever cannot be checked."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import pitfall_lab
from pitfall_lab.check import Subject, Unchecked, Workshop, check, check_file, examine
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.terminal import Style, columns, report, shown, wants_colours
from pitfall_lab.check.workshop import _WORKER
from pitfall_lab.cli import main
from pitfall_lab.trace import Disagreement
from pitfall_lab.trace.words import Language
from pitfall_lab.verify import trace_program

ROOT = Path(pitfall_lab.__file__).parent.parent
BAD = """\
import torch

x = torch.ones(3, requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
print("printed by the program")
h.sum().backward()
"""
KEYS = ["file", "torch", "outcome", "error", "observation", "agreement", "findings"]


def command(*words: str, by: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own as a user would start it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    start = [by, "-m", "pitfall_lab", "check", *words]
    return subprocess.run(
        start, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=300, check=False
    )


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


def test_the_help_says_that_a_program_runs_with_the_users_rights(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "is RUN, with your rights: this is no sandbox" in " ".join(capsys.readouterr().out.split())


def test_what_a_program_prints_is_shown_where_that_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", write(tmp_path, BAD), "--show-output", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["findings"]
    assert printed.err.count("printed by the program") == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_trace_with_disagreements_says_how_to_get_their_report(language: Language) -> None:
    source = "import torch\nx = torch.ones(2)\n"
    right = trace_program(source)
    wrong = replace(right, disagreements=(Disagreement(0, "tensors.t1.version", 0, 1),))
    style = Style(language=language)
    assert "disagreement_report" not in report("program.py", right, (), style)
    said = report("program.py", wrong, (), style)
    names: dict[str, object] = {"source": source}
    exec(said[said.index("from pitfall_lab.verify") :], names)  # what it says can be pasted
    assert names["disagreement_report"](wrong).startswith("# The shadow engine and torch disagree")


def test_a_report_shows_place_story_and_a_tried_fix(tmp_path: Path, warm_python: str) -> None:
    path = write(tmp_path, BAD)
    done = command(path, by=warm_python)
    assert done.returncode == 1
    assert f"{path}:5:1: error PL101 saved-tensor-overwritten" in done.stdout
    assert "verified" in done.stdout
    assert "+h = h * 10" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_report_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", write(tmp_path, BAD), "--language", "zh"])
    said = capsys.readouterr().out
    assert "错误 PL101" in said
    assert "第 5 行覆盖了 `h`" in said


def test_a_right_program_exits_with_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, "import torch\nprint(torch.ones(2).sum())\n")]) == 0
    assert "nothing found" in capsys.readouterr().out


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
        """,  # noqa: E501
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
    text = (
        "import torch\n"
        "变量 = torch.ones(2, requires_grad=True)\n"
        "h = torch.exp(变量)  # 🙂\n"
        '"\x1b[2J"; h.mul_(2)\n'
        "h.sum().backward()\n"
    )
    findings = check(text)
    from pitfall_lab.trace import Source, Trace

    lines = report("x.py", Trace((Source("x.py", text),)), findings, Style()).splitlines()
    assert not any("\x1b" in line for line in lines)
    row = next(i for i, line in enumerate(lines) if "h.mul_(2)" in line and "│" in line)
    assert columns(lines[row][: lines[row].index("h.mul_(2)")]) == columns(lines[row + 1][: lines[row + 1].index("^")])


def test_without_fork_each_run_gets_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: str
) -> None:
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr("pitfall_lab.check.workshop._WORKER", [warm_python, *_WORKER[1:]])
    with Workshop() as shop:
        path = tmp_path / "program.py"
        path.write_text(BAD, encoding="utf-8")
        checked = examine(path, shop, Settings(), fixes=False)
        assert [f.rule for f in checked.findings] == ["PL101"]
        assert checked.printed == "printed by the program\n"
        path.write_text("import os\nos.abort()\n", encoding="utf-8")
        assert "crashed its process" in str(examine(path, shop, Settings()).problem)


def test_a_trace_without_findings_travels_without_its_events() -> None:
    with Workshop() as shop:
        right, wrong = Subject("import torch\ntorch.ones(2).sum()\n", "right.py"), Subject(BAD, "wrong.py")
        assert shop.trace(right, whole=False).events == ()
        assert shop.trace(right, whole=False).agreement == shop.trace(right).agreement
        assert shop.trace(right).events
        assert shop.trace(wrong, whole=False) == shop.trace(wrong)


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_that_want_them(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_colours(Terminal()) is coloured
    assert not wants_colours(io.StringIO())


def test_a_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, BAD)

    def refuse(self: Path, _: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert main(["check", path, "--fix"]) == 2
    assert capsys.readouterr().err == f"pitfall-lab check: {path} cannot be written: Permission denied.\n"


def test_an_explorer_of_a_text_has_fixes_that_were_tried() -> None:
    (finding,) = pitfall_lab.explore(BAD).findings
    assert finding.fixes
    assert all(fix.verified for fix in finding.fixes)
