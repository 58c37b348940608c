"""``pitfall-lab claims``: what it runs, what it says, and the code it ends with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pitfall_lab.cli import main
from pitfall_lab.commands import claims as command
from pitfall_lab.lessons.chapters import CHAPTERS
from pitfall_lab.lessons.claims import ledger

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def test_a_chapter_is_run_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(CHAPTERS[11].claims)
    assert lines[-1].endswith("7 as recorded with torch 2.13.0, 0 not")


def test_a_difference_is_shown_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(ledger()["s1-0-a"], observed="something else\n")
    monkeypatch.setattr(command, "ledger", lambda: {changed.id: changed})
    assert main(["claims", "s1-0"]) == 1
    said = capsys.readouterr().out
    assert "DIFFERENT" in said
    assert "-something else" in said
    assert main(["claims", "s1-0-a", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["same"] == "no"


def test_what_does_not_exist_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "s9"]) == 2
    assert (
        capsys.readouterr().err
        == "pitfall-lab claims: there is no claim or chapter 's9'; `pitfall-lab claims --list` prints them\n"
    )
    assert main(["claims", "--where", "no/such/folder"]) == 2
    assert "is not a folder of notebooks" in capsys.readouterr().err


def test_the_list_and_the_places_name_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ledger())
    main(["claims", "--where", str(NOTEBOOKS)])
    said = capsys.readouterr().out
    assert all(f" {key} " in said for key in ledger())
    assert "errors-ledger-rest-claims" in said
