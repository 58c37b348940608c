"""Findings for other tools: SARIF 2.1.0 as its schema demands it, GitHub's workflow commands,
patches, and fixes in the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pitfall_lab.check import Checked, Unchecked, Workshop, examine
from pitfall_lab.check.examine import repaired
from pitfall_lab.check.github import github
from pitfall_lab.check.sarif import sarif
from pitfall_lab.check.settings import Settings
from pitfall_lab.cli import main
from pitfall_lab.rules import CATALOGUE

BAD = (
    "import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)\nh.mul_(10)  # ten\nh.sum().backward()\n"
)
TWO = BAD + "w = torch.ones(3, requires_grad=True)\nk = torch.exp(w)\nk += 1\nk.sum().backward()\n"

# What the SARIF 2.1.0 schema demands of the parts that are used here: every object closed, its required
# properties and value ranges.
TEXT = {"text": {"type": "string", "minLength": 1}}
MESSAGE = {"type": "object", "required": ["text"], "properties": TEXT, "additionalProperties": False}
MARKDOWN = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}},
    "additionalProperties": False,
}
ARTIFACT = {
    "type": "object",
    "properties": {"uri": {"type": "string", "pattern": r"^[^ \\]+$"}, "uriBaseId": {"const": "SRCROOT"}},
    "additionalProperties": False,
}
REGION = {
    "type": "object",
    "required": ["startLine"],
    "properties": {
        name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn", "endLine", "endColumn")
    },
    "additionalProperties": False,
}
LOCATION = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {"artifactLocation": ARTIFACT, "region": REGION},
            "additionalProperties": False,
        },
        "logicalLocations": {"type": "array", "items": {"type": "object"}},
        "message": MESSAGE,
    },
    "additionalProperties": False,
}
FIX = {
    "type": "object",
    "required": ["artifactChanges"],
    "properties": {
        "description": MESSAGE,
        "artifactChanges": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["artifactLocation", "replacements"],
                "properties": {
                    "artifactLocation": ARTIFACT,
                    "replacements": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["deletedRegion"],
                            "properties": {
                                "deletedRegion": REGION,
                                "insertedContent": {"type": "object", "required": ["text"]},
                            },
                            "additionalProperties": False,
                        },
                    },
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
        "shortDescription": MARKDOWN,
        "fullDescription": MARKDOWN,
        "help": MARKDOWN,
        "helpUri": {"type": "string", "pattern": "^https://"},
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}, "additionalProperties": False},
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "items": LOCATION},
        "relatedLocations": {"type": "array", "items": LOCATION, "uniqueItems": True},
        "fixes": {"type": "array", "items": FIX, "uniqueItems": True},
    },
    "additionalProperties": False,
}
LOG = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {"type": "array", "items": RULE, "uniqueItems": True},
                                },
                                "additionalProperties": False,
                            }
                        },
                        "additionalProperties": False,
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "originalUriBaseIds": {"type": "object", "additionalProperties": ARTIFACT},
                    "invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"]}},
                    "results": {"type": "array", "items": RESULT},
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


@pytest.fixture(scope="module")
def bad(shop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    path = tmp_path_factory.mktemp("formats") / "my program.py"
    path.write_text(BAD)
    return examine(path, shop, Settings(), name="my program.py")


def valid(log: dict[str, Any]) -> dict[str, Any]:
    import jsonschema  # takes seconds, in each process that collects the tests

    jsonschema.validate(json.loads(json.dumps(log)), LOG)
    (run,) = log["runs"]
    return run


@pytest.mark.parametrize("language", ["en", "zh"])
def test_sarif_is_valid_and_tells_the_whole_story(bad: Checked, language: Any) -> None:
    run = valid(sarif([bad], language))
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "PL101"
    assert rule["help"]["text"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20program.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 4, "startColumn": 1, "endLine": 4, "endColumn": 11},
    }
    assert [r["physicalLocation"]["region"]["startLine"] for r in result["relatedLocations"]] == [3, 4, 5]
    assert len({r["id"] for r in result["relatedLocations"]}) == 3


def test_a_fix_in_sarif_replaces_exactly_the_lines_it_names(bad: Checked) -> None:
    (result,) = valid(sarif([bad]))["results"]
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    region, lines = replacement["deletedRegion"], BAD.splitlines(keepends=True)
    assert (region["startColumn"], region["endColumn"]) == (1, 1)
    lines[region["startLine"] - 1 : region["endLine"] - 1] = [replacement["insertedContent"]["text"]]
    assert "".join(lines) == BAD.replace("h.mul_(10)", "h = h * 10")


def test_every_rule_is_in_sarif_with_its_help() -> None:
    run = valid(sarif([]))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [rule.code for rule in CATALOGUE]
    assert run["invocations"][0]["executionSuccessful"] is True


def test_a_file_that_could_not_be_checked_is_a_notification_in_sarif_and_an_error_for_github() -> None:
    lost = Checked("a,b.py", problem=Unchecked("SyntaxError", "a,b.py is not valid Python (line 3: 100% wrong).", 3))
    (invocation,) = valid(sarif([lost]))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith("a,b.py is not valid")
    assert github([lost]) == "::error file=a%2Cb.py,line=3::a,b.py is not valid Python (line 3: 100%25 wrong).\n"


def test_no_control_character_reaches_githubs_log() -> None:
    hostile = "bad \x1b[2J\x1b]0;x\x07\r\x9b1m\u202eevil\u2069 \x00 100%\n::error::forged"
    lost = Checked(f"{hostile}.py", problem=Unchecked("ValueError", f"{hostile}.", file=f"{hostile}.py"))
    line = github([lost])
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert line.count("bad \ufffd[2J\ufffd]0;x\ufffd\ufffd\ufffd1m\ufffdevil\ufffd \ufffd 100%25%0A") == 2
    assert "file=" in line


@pytest.mark.parametrize("form", ["github", "text"])
def test_an_exceptions_text_sends_nothing_to_a_terminal(
    form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "p.py"
    program.write_text('import torch\nraise ValueError("bad \\x1b[2J\\x1b]0;x\\x07\\u202e end")\n')
    main(["check", "--no-fixes", "--format", form, str(program)])
    said = "".join(capfd.readouterr())
    assert "bad \ufffd[2J\ufffd]0;x\ufffd\ufffd end" in said
    assert all(sign == "\n" or sign.isprintable() for sign in said)


def test_github_shows_a_finding_at_its_line(bad: Checked) -> None:
    (line,) = github([bad]).splitlines()
    assert line.startswith(
        "::error file=my program.py,line=4,endLine=4,col=1,endColumn=10,title=PL101 saved-tensor-overwritten::Line 4 "
    )


def test_the_command_prints_one_sarif_log_for_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "b.py").write_text("x = (")
    assert main(["check", str(tmp_path), "--format", "sarif", "--no-fixes"]) == 2
    run = valid(json.loads(capsys.readouterr().out))
    assert [result["ruleId"] for result in run["results"]] == ["PL101"]


# --- fixes in the files
# -------------------------------------------------------------------------------------------------


def test_a_diff_shows_what_a_fix_would_change_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.py"
    path.write_text(BAD)
    (right := tmp_path / "y.py").write_text("import torch\n")
    assert main(["check", str(path), str(right), "--diff"]) == 1
    found = capsys.readouterr()
    assert "-h.mul_(10)  # ten\n+h = h * 10  # ten\n" in found.out
    assert "Checked" not in found.out  # it is a patch to its last line
    assert "Would make 1 fix" in found.err
    assert path.read_text() == BAD


def test_fix_repairs_one_mistake_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.py"
    path.write_text(TWO)
    assert main(["check", str(path), "--fix"]) == 0
    assert path.read_text() == TWO.replace("h.mul_(10)", "h = h * 10").replace("k += 1", "k = k + 1")
    assert "Made 2 fixes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "before", [b"\xef\xbb\xbf" + BAD.replace("\n", "\r\n").encode(), b"# coding: latin-1\n# \xe9\n" + BAD.encode()]
)
def test_a_fix_keeps_the_encoding_and_the_line_ends(before: bytes, tmp_path: Path, shop: Workshop) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(before)
    checked = repaired(path, shop, Settings())
    assert checked.script is not None
    assert checked.script.raw == before.replace(b"h.mul_(10)", b"h = h * 10")


def test_a_program_without_findings_is_left_alone(tmp_path: Path, shop: Workshop) -> None:
    path = tmp_path / "x.py"
    path.write_text("x = 1\r\n", newline="")
    checked = repaired(path, shop, Settings())
    assert checked.fixed == ()
    assert checked.script is not None
    assert checked.script.raw == b"x = 1\r\n"


def test_fix_without_trying_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    assert main(["check", str(tmp_path / "x.py"), "--fix", "--no-fixes"]) == 2
    assert "leaves nothing" in capsys.readouterr().err
